//! The questions that rewrites and cost estimates ask of an operator. No rewrite changes the result of a
//! plan.

use super::{By, Pruned, Relational, Restriction};
use crate::error::Result;
use crate::graph::{ColSet, Graph, Node, NodeId};

/// The properties of an operator by which the plans above and below the operator become cheaper.
pub trait Rewrite: Relational {
    /// Returns, for each input, the columns that the operator reads to compute its own columns `columns` and
    /// the number of its rows.
    fn needed(&self, columns: &ColSet, inputs: &[&Node]) -> Vec<ColSet>;

    /// Adds the operator over inputs that lack columns. Each input has at least the columns that
    /// [`Rewrite::needed`] returns for `columns`, and the added node has at least the columns `columns`.
    ///
    /// # Errors
    /// Errors of [`Graph::add`].
    fn pruned(&self, graph: &mut Graph, columns: &ColSet, inputs: &[&Pruned]) -> Result<Pruned>;

    /// Adds a plan for `op(R) ⋉ K` in which K restricts inputs of the operator. Returns `None` where such a
    /// plan is not known to give the same rows.
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

    /// Returns, for each input, how the operator looks up the rows of this input. The rows of the operator
    /// are looked up as `by` says.
    fn looks_up(&self, graph: &Graph, by: &By) -> Vec<By>;
}
