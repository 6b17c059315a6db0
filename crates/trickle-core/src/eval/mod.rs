//! The reference evaluator: what a plan denotes, over in-memory tables, with PostgreSQL's semantics.

pub mod aggregates;
mod cast;
mod compare;
mod driver;
mod expr;
pub(crate) mod group;
mod input;
mod input_time;
mod opaque;
mod zset;

pub use cast::cast;
pub(crate) use compare::SqlKey;
pub use compare::{compare, compare_as, compare_rows};
pub use driver::{Evaluator, eval};
pub use expr::{call, expr, is_true};
pub use input::input;
pub use zset::{Row, ZSet, difference, same_bag};

use crate::catalog::TableId;
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use std::collections::HashMap;
use std::sync::Arc;

/// The data that a plan is evaluated over: for each table its previous state R and its change ΔR, as full-width rows.
/// The current state is their sum.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// R, by table.
    pub before: HashMap<TableId, ZSet>,
    /// ΔR, by table; a table that is missing did not change.
    pub delta: HashMap<TableId, ZSet>,
}

/// What an operator denotes.
pub trait Evaluate {
    /// The output over evaluated inputs.
    ///
    /// # Errors
    /// What the query's own expressions raise (division by zero, overflow, a second row in a scalar subquery …).
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet>;
}

/// What an operator may look at beside its inputs.
pub struct Context<'a> {
    /// The plan.
    pub graph: &'a Graph,
    /// The node being evaluated.
    pub node: NodeId,
    /// The data.
    pub database: &'a Database,
    /// Whether the plan is evaluated over the previous state, as though no table had changed.
    pub previous: bool,
    /// Results over the previous state, by node.
    stored: &'a [Option<Arc<ZSet>>],
}

impl Context<'_> {
    /// What `of` denotes over the previous state of the sources.
    ///
    /// # Errors
    /// Where the driver did not evaluate it first, which is a bug.
    pub fn stored(&self, of: NodeId) -> Result<&ZSet> {
        self.stored
            .get(of.index())
            .and_then(Option::as_deref)
            .ok_or_else(|| Error::internal(format!("the stored result of {of} was not evaluated")))
    }
}
