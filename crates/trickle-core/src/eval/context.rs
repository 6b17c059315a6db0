//! The interface between the evaluator and the operators.

use super::{Database, ZSet};
use crate::error::{Error, Result};
use crate::expr::{Expr, Moment};
use crate::graph::{Graph, NodeId};
use crate::types::{Datum, Type};
use std::sync::Arc;

/// The relation that an operator denotes.
pub trait Evaluate {
    /// Returns the output of the operator over evaluated inputs.
    ///
    /// # Errors
    /// Fails if an expression of the query raises an error (division by zero, overflow, a second row in a
    /// scalar subquery …).
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet>;
}

/// The data that an operator may read in addition to its inputs.
pub struct Context<'a> {
    /// The plan.
    pub(crate) graph: &'a Graph,
    /// The tables and the clock.
    pub(crate) database: &'a Database,
    /// Whether the plan is evaluated over the previous state, as if no table had changed.
    pub(crate) previous: bool,
    /// The results of nodes over the previous state.
    pub(super) stored: &'a [Option<Arc<ZSet>>],
    /// The greatest number of rows of a relation.
    pub(super) limit: u64,
}

impl Context<'_> {
    /// Returns a time of the refresh as a constant expression.
    pub(crate) fn time(&self, moment: Moment) -> Expr {
        let clock = self.database.clock;
        let time = if self.previous || moment == Moment::Then { clock.then } else { clock.now };
        Expr::literal(Datum::Timestamp(time), Type::Timestamptz)
    }

    /// Checks that a relation may have `rows` rows.
    ///
    /// # Errors
    /// Fails with 54000 if `rows` is more than the evaluator's limit.
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
    /// Fails with an internal error if the driver has not evaluated `of` yet, which is a bug.
    pub(crate) fn stored(&self, of: NodeId) -> Result<&ZSet> {
        self.stored
            .get(of.index())
            .and_then(Option::as_deref)
            .ok_or_else(|| Error::internal(format!("the stored result of {of} was not evaluated")))
    }
}
