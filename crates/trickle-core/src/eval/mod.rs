//! The reference evaluator: it computes what a plan denotes, over in-memory tables, with PostgreSQL's
//! semantics.
//!
//! An embedder can use it as an oracle for its own tests: put rows into a [`Database`], build or lower a
//! plan, call [`eval`]. A relation is a [`ZSet`], a function from rows to integer weights; a change has
//! negative ones. Errors are results: if an expression divides by zero on a row that is processed, the whole
//! evaluation gives that error.
//!
//! Strings compare by bytes, the time zone is UTC, dates are written in ISO form. The value of a function
//! that the evaluator does not know is a hash of its name and arguments.
//!
//! `SELECT a, sum(b) FROM t WHERE b > 0 GROUP BY a` before and after a change:
//!
//! ```
//! use std::sync::Arc;
//! use trickle_core::agg::{self, AggCall};
//! use trickle_core::catalog::{ColumnDef, TableDef, TableId};
//! use trickle_core::eval::{Database, Evaluator, ZSet};
//! use trickle_core::expr::{Expr, functions::resolve_operator};
//! use trickle_core::graph::Graph;
//! use trickle_core::rel::{Filter, Reduce, Table};
//! use trickle_core::types::{Datum, Type};
//!
//! # fn main() -> trickle_core::Result<()> {
//! let column = |name: &str| ColumnDef::new(name, Type::Int4, true);
//! let t = Table::new(Arc::new(TableDef::new(TableId(1), "public", "t", vec![column("a"), column("b")])));
//!
//! let mut graph = Graph::new();
//! let t = graph.add(t)?;
//! let b = graph.schema(t).expr(1);
//! let zero = Expr::literal(Datum::Int(0), Type::Int4);
//! let greater = resolve_operator(">", &[Type::Int4, Type::Int4])
//!     .ok_or_else(|| trickle_core::Error::internal(">"))?;
//! let positive = graph.add(Filter::new(t, Expr::call(greater, vec![b.clone(), zero])))?;
//! let sum = agg::resolve("sum", &[Type::Int4]).ok_or_else(|| trickle_core::Error::internal("sum"))?;
//! let query = graph.add(Reduce::new(positive, vec![0], vec![AggCall::new(sum, vec![b])]))?;
//!
//! let row = |a: i64, b: i64| vec![Datum::Int(a), Datum::Int(b)];
//! let mut database = Database::default();
//! database.before.insert(TableId(1), ZSet::from_iter([row(1, 5), row(1, 5), row(2, -3), row(2, 4)]));
//! let mut change = ZSet::new();
//! change.add(row(1, 5).into(), -1);
//! database.delta.insert(TableId(1), change);
//!
//! let mut evaluator = Evaluator::new(&graph, &database);
//! assert_eq!(evaluator.eval_before(query)?.to_string(), "+1 × (1, 10)\n+1 × (2, 4)\n");
//! assert_eq!(evaluator.eval(query)?.to_string(), "+1 × (1, 5)\n+1 × (2, 4)\n");
//! # Ok(())
//! # }
//! ```

pub mod aggregates;
mod cast;
mod compare;
mod driver;
mod expr;
pub(crate) mod group;
mod input;
mod input_time;
mod opaque;
pub(crate) mod windows;
mod zset;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

pub use cast::cast;
pub(crate) use compare::SqlKey;
pub use compare::{compare, compare_as, compare_rows};
pub use driver::{Evaluator, eval};
pub use expr::{call, expr, is_true};
pub use input::input;
pub use zset::{Row, ZSet, difference, same_bag};

use crate::catalog::TableId;
use crate::error::{Error, Result};
use crate::expr::{Expr, Moment};
use crate::graph::{Graph, NodeId};
use crate::types::{Datum, Type};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The data that a plan is evaluated over: for each table its previous state R and its change ΔR, as
/// full-width rows. The current state is the sum of both.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// R, by table.
    pub before: HashMap<TableId, ZSet>,
    /// ΔR, by table; a table that is missing did not change.
    pub delta: HashMap<TableId, ZSet>,
    /// The times of the clock.
    pub clock: Clock,
}

/// The times of the previous refresh and of this one, in microseconds since 2000-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// t0, the time of the previous refresh.
    pub then: i64,
    /// t1, the time of this refresh.
    pub now: i64,
}

impl Database {
    /// Returns the previous state as a database in which nothing changes.
    pub fn before(&self) -> Database {
        let clock = Clock { now: self.clock.then, ..self.clock };
        Database { before: self.before.clone(), delta: HashMap::new(), clock }
    }

    /// Returns the changed sources: tables, and the clock.
    pub fn changed(&self) -> BTreeSet<TableId> {
        let tables = self.delta.iter().filter(|(_, d)| !d.is_empty()).map(|(t, _)| *t);
        tables.chain((self.clock.then != self.clock.now).then_some(TableId::CLOCK)).collect()
    }
}

/// The relation that an operator denotes.
pub trait Evaluate {
    /// Returns the output over evaluated inputs.
    ///
    /// # Errors
    /// The errors that the query's own expressions raise (division by zero, overflow, a second row in a
    /// scalar subquery …).
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet>;
}

/// The data that an operator may read beside its inputs.
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
    /// The greatest number of rows of a relation.
    limit: u64,
}

impl Context<'_> {
    /// Returns a time of the refresh as a constant.
    pub(crate) fn time(&self, moment: Moment) -> Expr {
        let clock = self.database.clock;
        let time = if self.previous || moment == Moment::Then { clock.then } else { clock.now };
        Expr::literal(Datum::Timestamp(time), Type::Timestamptz)
    }

    /// Checks that a relation may have `rows` rows.
    ///
    /// # Errors
    /// 54000 where that is more than the evaluator's limit.
    pub(crate) fn allows(&self, rows: u64) -> Result<()> {
        match rows <= self.limit {
            true => Ok(()),
            false => Err(Error::data("54000", format!("a relation has more than {} rows", self.limit))
                .hint("Evaluator::within says how many there may be.")),
        }
    }

    /// Returns the relation that `of` denotes over the previous state of the sources.
    ///
    /// # Errors
    /// Where the driver has not evaluated `of` yet, which is a bug.
    pub fn stored(&self, of: NodeId) -> Result<&ZSet> {
        self.stored
            .get(of.index())
            .and_then(Option::as_deref)
            .ok_or_else(|| Error::internal(format!("the stored result of {of} was not evaluated")))
    }
}
