//! Drops the check for a second row in scalar subqueries that have at most one row.

use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{ColSet, Graph, NodeId};
use crate::rel::{Map, Rel};

/// Drops a `Single` if its input has at most one row for each key. Without a key, the input must have exactly
/// one row.
pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let Rel::Single(s) = graph.rel(id) else { return Ok(None) };
    let (input, keys) = (s.input(), s.keys());
    let unique = graph.props(input).is_key(&ColSet::all(keys));
    if !unique || (keys == 0 && !exactly_one(graph, input)) {
        return Ok(None);
    }
    let labels = graph.schema(id).columns().iter().map(|c| c.label.clone()).collect();
    let exprs = graph.schema(input).identity().into_iter().chain([Expr::bool(false)]).collect();
    graph.add(Map::new(input, exprs).labelled(labels)).map(Some)
}

/// Whether the relation has exactly one row for all data. It is then an aggregate without GROUP BY, or a map
/// over such an aggregate.
fn exactly_one(graph: &Graph, node: NodeId) -> bool {
    match graph.rel(node) {
        Rel::Reduce(r) => r.keys().is_empty(),
        Rel::Accumulate(a) => a.keys().is_empty(),
        Rel::Single(s) => s.keys() == 0,
        Rel::Map(m) => exactly_one(graph, m.input()),
        _ => false,
    }
}
