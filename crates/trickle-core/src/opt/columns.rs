//! Drops columns that no reader needs.

use crate::error::{Error, Result};
use crate::graph::{ColSet, Graph, Node, NodeId, NodeMap};
use crate::rel::Pruned;

/// Prunes the plans under `roots`. All columns of the roots stay.
pub(super) fn rule(graph: &mut Graph, roots: &[NodeId]) -> Result<Vec<NodeId>> {
    let order = graph.reachable_from(roots);
    let mut needs: NodeMap<ColSet> = NodeMap::new();
    for root in roots {
        needs.insert(*root, ColSet::all(graph.schema(*root).len()));
    }
    let mut whole = true;
    for id in order.iter().rev() {
        let width = graph.schema(*id).len();
        let mut mine = std::mem::take(needs.entry(*id));
        if mine.is_empty() && width > 0 {
            // If the rows of a relation are only counted, the relation keeps one column.
            mine = ColSet::all(1);
        }
        whole &= mine.len() == width;
        let node = graph.node(*id);
        let inputs: Vec<&Node> = node.inputs().iter().map(|i| graph.node(*i)).collect();
        let needed = node.op().needed(&mine, &inputs);
        if needed.len() != inputs.len() {
            return Err(Error::internal(format!(
                "{} does not tell what it needs of each input",
                node.op().name()
            )));
        }
        for (input, columns) in node.inputs().iter().zip(needed) {
            needs.entry(*input).extend(&columns);
        }
        needs.insert(*id, mine);
    }
    if whole {
        return Ok(roots.to_vec());
    }
    let mut done: NodeMap<Pruned> = NodeMap::new();
    for id in order {
        let mine = needs.remove(id).unwrap_or_default();
        let pruned = prune(graph, id, &mine, &done)?;
        done.insert(id, pruned);
    }
    let mut made = Vec::new();
    for root in roots {
        let top = done.get_ref(*root).ok_or_else(|| Error::internal("a root was not pruned"))?;
        let width = graph.schema(*root).len();
        made.push(top.exactly(graph, 0..width)?);
    }
    Ok(made)
}

/// Returns the node with at least its columns `columns`, over the pruned inputs.
fn prune(graph: &mut Graph, id: NodeId, columns: &ColSet, done: &NodeMap<Pruned>) -> Result<Pruned> {
    let node = graph.shared(id);
    let pruned = |i: &NodeId| done.get_ref(*i).ok_or_else(|| Error::internal("an input was not pruned"));
    let inputs = node.inputs().iter().map(pruned).collect::<Result<Vec<&Pruned>>>()?;
    let width = node.schema().len();
    // In most plans, pruning changes only some nodes.
    let unchanged = inputs.iter().zip(node.inputs()).all(|(new, old)| new.node == *old);
    if columns.len() == width && unchanged {
        return Ok(Pruned { node: id, kept: ColSet::all(width) });
    }
    node.op().pruned(graph, columns, &inputs)
}
