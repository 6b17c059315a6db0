//! Evaluates plans. Every node is evaluated once, and the inputs of a node before the node itself.

use super::{Context, Database, ZSet};
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId};
use crate::rel::Rel;
use std::sync::Arc;

/// The default for the greatest number of rows, copies counted, of a relation in a plan.
/// [`Evaluator::within`] sets another number.
const ROWS: u64 = 1 << 24;

/// Returns the relation that `root` denotes over `database`.
///
/// # Errors
/// Fails if an expression raises an error on a row for which it is evaluated, or if the plan breaks an
/// operator's contract.
pub fn eval(graph: &Graph, root: NodeId, database: &Database) -> Result<ZSet> {
    Evaluator::new(graph, database).eval(root).map(Arc::unwrap_or_clone)
}

/// An evaluator of several roots of one graph over one database. The results of shared nodes are computed
/// once.
pub struct Evaluator<'a> {
    graph: &'a Graph,
    database: &'a Database,
    /// The results of nodes over the current state.
    current: Vec<Option<Arc<ZSet>>>,
    /// The results of nodes over the previous state, which are the contents of stored tables.
    stored: Vec<Option<Arc<ZSet>>>,
    /// The greatest number of rows of a relation.
    limit: u64,
}

impl<'a> Evaluator<'a> {
    /// Makes an evaluator that has not computed anything yet.
    pub fn new(graph: &'a Graph, database: &'a Database) -> Evaluator<'a> {
        Evaluator { graph, database, current: vec![None; graph.len()], stored: Vec::new(), limit: ROWS }
    }

    /// Limits each relation of the plan to `rows` rows, where copies count. The default is some 16 million.
    /// The limit is needed because a recursion may never end, and because a chain of joins multiplies the
    /// copies of rows.
    #[must_use]
    pub fn within(self, rows: u64) -> Evaluator<'a> {
        Evaluator { limit: rows, ..self }
    }

    /// Returns the relation that `root` denotes over the database.
    ///
    /// # Errors
    /// Fails as [`eval`] does, and with 54000 if a relation has too many rows.
    pub fn eval(&mut self, root: NodeId) -> Result<Arc<ZSet>> {
        self.run(root, false)
    }

    /// Returns the relation that `root` denotes over the previous state. Every table has its previous rows,
    /// and every change is empty.
    ///
    /// # Errors
    /// Fails as [`eval`] does.
    pub fn eval_before(&mut self, root: NodeId) -> Result<Arc<ZSet>> {
        self.run(root, true)
    }

    fn run(&mut self, root: NodeId, previous: bool) -> Result<Arc<ZSet>> {
        if previous && self.stored.is_empty() {
            self.stored = vec![None; self.graph.len()];
        }
        if let Some(known) = self.known(root, previous) {
            return Ok(known);
        }
        for id in self.graph.reachable(root) {
            if self.known(id, previous).is_some() {
                continue;
            }
            if let Rel::State(state) = self.graph.rel(id) {
                self.run(state.of(), true)?;
            }
            let inputs = self.graph.inputs(id);
            let held: Vec<Arc<ZSet>> = inputs
                .iter()
                .map(|i| {
                    self.known(*i, previous).ok_or_else(|| Error::internal("an input was not evaluated"))
                })
                .collect::<Result<_>>()?;
            let inputs: Vec<&ZSet> = held.iter().map(|z| &**z).collect();
            let cx = Context {
                graph: self.graph,
                database: self.database,
                previous,
                stored: &self.stored,
                limit: self.limit,
            };
            let out = Arc::new(self.graph.node(id).op().eval(&inputs, &cx)?);
            cx.allows(out.copies())?;
            let results = if previous { &mut self.stored } else { &mut self.current };
            results[id.index()] = Some(out);
        }
        self.known(root, previous).ok_or_else(|| Error::internal("the root was not evaluated"))
    }

    fn known(&self, id: NodeId, previous: bool) -> Option<Arc<ZSet>> {
        let results = if previous { &self.stored } else { &self.current };
        results.get(id.index()).cloned().flatten()
    }
}
