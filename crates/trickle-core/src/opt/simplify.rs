//! Conditions and values that the input's columns decide.

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::rel::{Filter, Join, Map, Rel};

pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    match graph.rel(id).clone() {
        Rel::Filter(f) => {
            let predicate = f.predicate().simplified(graph.schema(f.input()));
            graph.add(Filter::new(f.input(), predicate)).map(Some)
        }
        Rel::Join(j) => {
            let both = graph.schema(j.left()).concat(graph.schema(j.right()));
            graph.add(Join::new(j.left(), j.right(), j.on().simplified(&both))).map(Some)
        }
        Rel::Map(m) => {
            let schema = graph.schema(m.input()).clone();
            let map = Map::new(m.input(), m.exprs().iter().map(|e| e.simplified(&schema)).collect());
            let labels = graph.schema(id).columns().iter().map(|c| c.label.clone()).collect();
            graph.add(if m.labels().is_some() { map.labelled(labels) } else { map }).map(Some)
        }
        _ => Ok(None),
    }
}
