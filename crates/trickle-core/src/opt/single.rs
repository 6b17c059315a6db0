//! A scalar subquery that cannot have two rows.

use crate::error::Result;
use crate::graph::{ColSet, Graph, NodeId};
use crate::rel::Rel;

/// Drops a Single over what has at most one row for each key value, and, without keys, exactly one.
pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Rel::Single(s) = graph.rel(id) else { return Ok(None) };
    let unique = graph.props(s.input()).is_key(&ColSet::all(s.keys()));
    Ok((unique && (s.keys() > 0 || exactly_one(graph, s.input()))).then_some(s.input()))
}

/// Whether the relation has a row whatever the data: an aggregate without GROUP BY, mapped.
fn exactly_one(graph: &Graph, node: NodeId) -> bool {
    match graph.rel(node) {
        Rel::Reduce(r) => r.keys().is_empty(),
        Rel::Accumulate(a) => a.keys().is_empty(),
        Rel::Single(s) => s.keys() == 0,
        Rel::Map(m) => exactly_one(graph, m.input()),
        _ => false,
    }
}
