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

/// Whether the rows of the `i`-th input of `id` must be merged. One reason is that the operator of `id` needs
/// merged rows. The other reason is that readers of `id` need merged or positive rows (`inherits`), and `id`
/// has such rows only if this input has them.
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
        // Where a group has several equal keys, the output key must be that of a present row. Rows that
        // cancel must therefore be merged first.
        rel @ Rel::Accumulate(a) => rel.can_raise() || !a.shows_any(graph),
        // These operators merge the rows of their input themselves.
        Rel::Consolidate(_) | Rel::Positive(_) => false,
        // The result may contain keys of rows that cancel. A change is therefore not merged just to compute
        // its keys.
        Rel::Keys(_) => false,
        Rel::Table(_)
        | Rel::Values(_)
        | Rel::State(_)
        | Rel::Union(_)
        | Rel::Negate(_)
        | Rel::Revise(_)
        | Rel::Join(_)
        | Rel::Widen(_) => inherits,
    }
}
