//! Replaces a relation by a constant relation without rows, if it has no rows for any data.

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::rel::{Rel, Values};

pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    if !graph.props(id).empty || matches!(graph.rel(id), Rel::Values(_)) {
        return Ok(None);
    }
    let schema = graph.schema(id).clone();
    graph.add(Values::empty(schema)).map(Some)
}
