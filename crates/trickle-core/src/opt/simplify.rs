//! Simplifies conditions and values that follow from properties of the input's columns.

use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, Node, NodeId};
use crate::rel::{Filter, Join, Map, Rel};

/// Whether the node has an expression that this rule may simplify.
pub(super) fn may_apply(node: &Node) -> bool {
    match node.rel() {
        Rel::Filter(f) => f.predicate().is_logical(),
        Rel::Join(j) => j.on().is_logical(),
        Rel::Map(m) => m.exprs().iter().any(Expr::is_logical),
        _ => false,
    }
}

pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let node = graph.shared(id);
    match node.rel() {
        Rel::Filter(f) => {
            let predicate = f.predicate().simplified(graph.schema(f.input()));
            graph.add(Filter::new(f.input(), predicate)).map(Some)
        }
        Rel::Join(j) => {
            let both = graph.schema(j.left()).concat(graph.schema(j.right()));
            graph.add(Join::new(j.left(), j.right(), j.on().simplified(&both))).map(Some)
        }
        Rel::Map(m) => {
            let schema = graph.schema(m.input());
            let map = Map::new(m.input(), m.exprs().iter().map(|e| e.simplified(schema)).collect());
            let labels = node.schema().columns().iter().map(|c| c.label.clone()).collect();
            graph.add(if m.labels().is_some() { map.labelled(labels) } else { map }).map(Some)
        }
        _ => Ok(None),
    }
}
