//! Merges rows only where a reader needs it.

use crate::error::Result;
use crate::graph::{Graph, NodeId, NodeMap};
use crate::rel::Rel;

/// Drops every Consolidate that no reader needs, and every one over rows that are merged already. A
/// Consolidate that is itself a root is computed anyway, so its readers do best to read its result.
pub(super) fn rule(graph: &mut Graph, roots: &[NodeId]) -> Result<Vec<NodeId>> {
    let order = graph.reachable_from(roots);
    let mut needed = NodeMap::new();
    for id in order.iter().rev() {
        let inherits = needed.get(*id).is_some();
        for (i, input) in graph.inputs(*id).iter().enumerate() {
            if needs(graph, *id, i, inherits) {
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

/// Whether `id` needs its `i`-th input merged. It may need that itself. Or its readers need `id` merged or
/// positive, which it is only if that input is.
fn needs(graph: &Graph, id: NodeId, i: usize, inherits: bool) -> bool {
    match graph.rel(id) {
        Rel::Reduce(_)
        | Rel::Distinct(_)
        | Rel::Single(_)
        | Rel::SetOp(_)
        | Rel::Window(_)
        | Rel::Top(_)
        | Rel::Recursion(_) => true,
        Rel::SemiJoin(_) => i == 1 || inherits,
        Rel::OuterJoin(o) => i == 1 || o.is_full() || inherits,
        rel @ (Rel::Map(_) | Rel::Filter(_) | Rel::Expand(_)) => inherits || rel.can_raise(),
        // Of the equal keys of a group, the shown one must be there, so rows that cancel must be gone.
        rel @ Rel::Accumulate(a) => rel.can_raise() || !a.shows_any(graph),
        // These operators merge the rows themselves.
        Rel::Consolidate(_) | Rel::Positive(_) => false,
        // More keys than needed cost more work than merging does. But a plain change is not merged for its
        // keys alone.
        Rel::Keys(_) => false,
        _ => inherits,
    }
}
