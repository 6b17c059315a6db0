//! The reference evaluator. It computes the relation that a plan denotes, over in-memory tables, with
//! PostgreSQL's semantics.
//!
//! An embedder can use the evaluator as an oracle for its own tests: put rows into a [`Database`], build or
//! lower a plan, call [`eval`]. A relation is a [`ZSet`], a function from rows to integer weights. In a
//! change, removed rows have negative weights. An error is a result too: if an expression divides by zero on
//! a row that is processed, the whole evaluation fails with that error.
//!
//! Strings compare by bytes, the time zone is UTC, dates are written in ISO form. The value of a function
//! that the evaluator does not know is a hash of its name and arguments.
//!
//! The example evaluates `SELECT a, sum(b) FROM t WHERE b > 0 GROUP BY a` before and after a change:
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

pub(crate) mod aggregates;
mod context;
mod driver;
pub(crate) mod group;
pub(crate) mod windows;
mod zset;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

pub(crate) use crate::expr::evaluate::{call, expr, is_true};
pub use driver::{Evaluator, eval};
pub use zset::{Row, ZSet, same_bag};
for_tests! {
    use context::{Context, Evaluate};
}

use crate::table::TableId;
use std::collections::{BTreeSet, HashMap};

/// The data over which a plan is evaluated: for each table, the previous state R and the change ΔR, as rows
/// with all columns. The current state R′ is the sum of R and ΔR.
#[derive(Clone, Debug, Default)]
pub struct Database {
    /// R, the previous state, by table.
    pub before: HashMap<TableId, ZSet>,
    /// ΔR, the change, by table; a table that is missing did not change.
    pub delta: HashMap<TableId, ZSet>,
    /// The times t0 and t1. Expressions that read the clock get these times.
    pub clock: Clock,
}

/// The times of the previous refresh and of this refresh, in microseconds since 2000-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// t0, the time of the previous refresh.
    pub then: i64,
    /// t1, the time of this refresh.
    pub now: i64,
}

impl Database {
    /// Returns a database with the same previous state, in which no table and no clock changed.
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
