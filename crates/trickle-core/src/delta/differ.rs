//! Differentiation of a plan, node by node.

use crate::graph::Graph;

/// What a delta rule works with: the graph, the deltas of inputs, stored states.
pub struct Differ<'g> {
    /// The graph that holds both Q and ΔQ.
    pub graph: &'g mut Graph,
}
