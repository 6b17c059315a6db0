//! The reference evaluator: what a plan denotes, over in-memory tables, with PostgreSQL's semantics.
//!
//! An embedder can use it as an oracle for its own tests: put rows into a [`Database`], lower a query, call [`eval`].

pub mod aggregates;
mod compare;
mod zset;

pub use compare::compare;
pub use zset::{Row, ZSet};

use crate::catalog::TableId;
use crate::error::Result;
use crate::graph::{Graph, NodeId};
use std::collections::HashMap;

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
}
