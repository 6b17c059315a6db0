//! The questions of rewrites and of costs to an operator. Each rewrite keeps the result.

use super::{By, Pruned, Relational, Restriction};
use crate::error::Result;
use crate::graph::{ColSet, Graph, Node, NodeId};

/// The part of an operator that makes the plans above and below it cheaper.
pub trait Rewrite: Relational {
    /// Returns for each input the columns from which the operator computes its columns `columns`, and from
    /// which it decides how many rows there are.
    fn needed(&self, columns: &ColSet, inputs: &[&Node]) -> Vec<ColSet>;

    /// Adds the operator over inputs that lack columns. Each input has at least the columns that
    /// [`Rewrite::needed`] returns for `columns`, and the made node has at least `columns`.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    fn pruned(&self, graph: &mut Graph, columns: &ColSet, inputs: &[&Pruned]) -> Result<Pruned>;

    /// Adds a plan for `op(R) ⋉ K` in which K restricts inputs of the operator. Returns `None` where this is
    /// not known to give the same rows.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>>;

    /// Whether the rows of the input at position `input` must be merged. One reason is that the operator
    /// needs merged rows. The other reason is that readers of the operator need merged or positive rows
    /// (`inherits`), and the operator has such rows only if this input has them.
    fn needs_merged(&self, graph: &Graph, input: usize, inherits: bool) -> bool;

    /// Whether a stored result of the operator replaces a recompute by a lookup.
    fn pays_to_store(&self) -> bool;

    /// Returns for each input how the operator looks up its rows, if the operator's own rows are looked up as
    /// `by` says.
    fn looks_up(&self, graph: &Graph, by: &By) -> Vec<By>;
}
