//! Which inner results are kept, so that the delta of a nested query follows the change.
//!
//! `State(n)` denotes n, so every choice gives an equal delta; this is a decision about cost alone.

use crate::agg::Acc;
use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::rel::{Accumulate, Map, Rel, distinct_by_image, shown_partition, split_extrema};
use std::collections::BTreeSet;

/// How much to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keep {
    /// The result alone.
    Result,
    /// The result, the accumulators of aggregates, the counts behind DISTINCT, and every inner result whose change
    /// cannot be computed from its inputs' changes alone.
    #[default]
    Nested,
}

/// Rewrites a query so that what can be accumulated is: aggregates that are linear become `finish ∘ accumulate`,
/// extrema stand beside a count of their group, DISTINCT becomes a count of each row. Keys of which equal values may be
/// written differently are accumulated by image first. An identity.
///
/// # Errors
/// Those of [`Graph::add`].
pub fn prepare(graph: &mut Graph, root: NodeId) -> Result<NodeId> {
    graph.rebuild(root, |g, _, rel| {
        match &rel {
            Rel::Reduce(reduce) => {
                if let Some(expanded) = rel.as_operator().expand(g)? {
                    return Ok(expanded);
                }
                if let Some(split) = split_extrema(reduce, g)? {
                    return Ok(split);
                }
            }
            Rel::Distinct(d) if !g.schema(d.input()).is_empty() => {
                if let Some(by_image) = distinct_by_image(g, d.input())? {
                    return g.add(rel.as_operator().with_inputs(&[by_image]));
                }
                let all: Vec<usize> = (0..g.schema(d.input()).len()).collect();
                let counts = Accumulate::new(d.input(), all.clone(), vec![Acc::count(None)]);
                let counted = g.add(counts.with_any_key(g))?;
                let schema = g.schema(counted).clone();
                return g.add(Map::columns(counted, &schema, &all));
            }
            _ => {}
        }
        g.add(rel)
    })
}

/// The nodes under `root` whose results are kept: always `root`, and what `keep` asks for.
pub fn stored(graph: &Graph, root: NodeId, keep: Keep) -> BTreeSet<NodeId> {
    let mut kept = BTreeSet::from([root]);
    if keep == Keep::Nested {
        kept.extend(graph.reachable(root).into_iter().filter(|id| pays(graph, *id)));
        if let Rel::Map(map) = graph.rel(root)
            && let Rel::Window(w) = graph.rel(map.input())
            && (shown_partition(map, w).is_some() || w.is_local(graph))
        {
            kept.remove(&map.input());
        }
    }
    kept
}

/// Whether keeping the result of this operator turns recomputation into lookup, and a table can hold it.
fn pays(graph: &Graph, id: NodeId) -> bool {
    let nullary = graph.props(id).sources.is_empty();
    let storable = graph.schema(id).columns().iter().all(|c| c.ty.is_storable());
    !nullary
        && storable
        && matches!(
            graph.rel(id),
            Rel::Accumulate(_)
                | Rel::Reduce(_)
                | Rel::Distinct(_)
                | Rel::Single(_)
                | Rel::SetOp(_)
                | Rel::Positive(_)
                | Rel::Window(_)
                | Rel::Top(_)
                | Rel::Recursion(_)
        )
}
