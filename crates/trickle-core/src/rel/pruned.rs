//! Nodes without the columns that no reader needs.

use super::{Map, Relational};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::graph::{ColSet, Graph, Node, NodeId};

/// A position that no node has, even after the columns of another node are put before it.
const NOWHERE: usize = usize::MAX / 2;

/// A node that replaces an old node and may lack some of its columns.
pub struct Pruned {
    /// The new node.
    pub node: NodeId,
    /// Those columns of the old node that the new node has, in the same order.
    pub kept: ColSet,
}

impl Pruned {
    /// Adds `op` as a node that has the columns `kept` of the old node.
    pub(super) fn add(
        graph: &mut Graph,
        op: impl Into<super::Rel>,
        kept: impl Into<ColSet>,
    ) -> Result<Pruned> {
        Ok(Pruned { node: graph.add(op)?, kept: kept.into() })
    }

    /// Returns the position of a column of the old node. A column that is not kept gets a position that no
    /// node has, so [`Graph::add`] refuses an operator that reads it.
    pub(super) fn at(&self, old: usize) -> usize {
        self.kept.rank(old).unwrap_or(NOWHERE)
    }

    /// Returns the expression over the new node.
    pub(super) fn expr(&self, e: &Expr) -> Expr {
        e.map_columns(|c| self.at(c))
    }

    /// Returns a node with exactly the columns `old` of the old node, in this order.
    ///
    /// # Errors
    /// Fails if a column is not kept.
    pub(crate) fn exactly(&self, graph: &mut Graph, old: impl Iterator<Item = usize>) -> Result<NodeId> {
        let position = |c| self.kept.rank(c).ok_or_else(|| Error::internal("a needed column was pruned"));
        let positions = old.map(position).collect::<Result<Vec<usize>>>()?;
        let schema = graph.schema(self.node);
        if positions.len() == schema.len() && positions.iter().enumerate().all(|(i, p)| i == *p) {
            return Ok(self.node);
        }
        let map = Map::columns(self.node, schema, &positions);
        graph.add(map)
    }
}

/// Returns the columns that expressions read.
pub(super) fn read<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> ColSet {
    let mut used = ColSet::new();
    exprs.into_iter().for_each(|e| e.each_column(|c| used.insert(c)));
    used
}

/// Returns the needs of an operator that reads whole rows of all its inputs, for instance to compare them.
pub(super) fn all(inputs: &[&Node]) -> Vec<ColSet> {
    inputs.iter().map(|i| ColSet::all(i.schema().len())).collect()
}

/// Adds the operator over all columns of its inputs.
pub(super) fn over_whole_inputs(
    op: &dyn Relational,
    graph: &mut Graph,
    inputs: &[&Pruned],
) -> Result<Pruned> {
    let mut whole = Vec::new();
    for (old, input) in op.inputs().into_iter().zip(inputs) {
        let width = graph.schema(old).len();
        whole.push(input.exactly(graph, 0..width)?);
    }
    let node = graph.add(op.with_inputs(&whole))?;
    Ok(Pruned { node, kept: ColSet::all(graph.schema(node).len()) })
}

/// Returns the needs of a join. Its columns are those of the left input, then those of the right.
pub(super) fn of_sides(on: &Expr, columns: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
    let used = read([on]).union(columns);
    let width = inputs[0].schema().len();
    let left = used.iter().filter(|c| *c < width).collect();
    let right = used.iter().filter(|c| *c >= width).map(|c| c - width).collect();
    vec![left, right]
}

/// Returns the columns that a join of two pruned inputs has, and its condition over them. The left input had
/// `width` columns.
pub(super) fn paired(on: &Expr, width: usize, inputs: &[&Pruned]) -> Result<(NodeId, NodeId, Expr, ColSet)> {
    let [left, right] = inputs else { return Err(Error::internal("a join has two inputs")) };
    let kept = left.kept.union(&right.kept.shifted(width));
    let on = on.map_columns(|c| kept.rank(c).unwrap_or(NOWHERE));
    Ok((left.node, right.node, on, kept))
}

/// Returns the only input.
pub(super) fn only<'p>(inputs: &[&'p Pruned]) -> Result<&'p Pruned> {
    match inputs {
        [one] => Ok(one),
        _ => Err(Error::internal("the operator has one input")),
    }
}
