//! Drops merges of rows that no reader needs.

use crate::error::Result;
use crate::graph::{Graph, NodeId, NodeMap};
use crate::rel::Rel;

/// Drops each Consolidate whose merge no reader needs, or whose input is merged already. A Consolidate that
/// is a root stays. It is computed anyway, so its result is the cheapest relation for its readers.
pub(super) fn rule(graph: &mut Graph, roots: &[NodeId]) -> Result<Vec<NodeId>> {
    let order = graph.reachable_from(roots);
    let mut needed = NodeMap::new();
    for id in order.iter().rev() {
        let inherits = needed.get(*id).is_some();
        for (i, input) in graph.inputs(*id).iter().enumerate() {
            if graph.rel(*id).as_operator().needs_merged(graph, i, inherits) {
                needed.insert(*input, ());
            }
        }
    }
    let mut new: NodeMap<NodeId> = NodeMap::new();
    for id in order {
        let mut made = graph.over(id, |i| new.get(i).unwrap_or(i))?;
        if let Rel::Consolidate(c) = graph.rel(made) {
            let input = graph.props(c.input());
            let merged = input.consolidated && (!c.is_state() || (input.positive && input.non_negative));
            if merged || (needed.get(id).is_none() && !roots.contains(&id)) {
                made = c.input();
            }
        }
        new.insert(id, made);
    }
    Ok(roots.iter().map(|r| new.get(*r).unwrap_or(*r)).collect())
}
