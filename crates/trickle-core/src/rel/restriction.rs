//! Restrictions to touched keys, and the rules that move them from an operator to its inputs.
//!
//! The identity `op(R) ⋉ K = op(R ⋉ K)` holds in three cases. For a linear operator, the columns of K are
//! columns that the operator passes on. For a join they are columns of one input, and for a per-key operator
//! they are columns of its key.

use super::{Class, JoinKeys, Relational, SemiJoin};
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, NodeId};
use std::ops::Range;

/// A restriction `⋉ K`: it keeps the rows whose key columns equal those of a row of K.
#[derive(Clone, Debug)]
pub struct Restriction {
    /// The columns of the restricted node, and the columns of K that they are compared with.
    keys: JoinKeys,
    /// K.
    by: NodeId,
}

impl Restriction {
    /// Makes the restriction to the rows that have a partner in `by` under `keys`, which has no residual.
    pub(crate) fn new(keys: JoinKeys, by: NodeId) -> Restriction {
        Restriction { keys, by }
    }

    /// Returns the restriction with each key column mapped by `image`. Returns `None` if `image` returns
    /// `None` for a column.
    pub(super) fn through(&self, image: impl Fn(usize) -> Option<usize>) -> Option<Restriction> {
        let left = self.keys.left.iter().map(|c| image(*c)).collect::<Option<Vec<_>>>()?;
        Some(Restriction { keys: JoinKeys { left, ..self.keys.clone() }, by: self.by })
    }

    /// Returns the restriction by those key columns that are in `range`. The positions of these columns are
    /// counted from the start of `range`. Returns `None` if no key column is in `range`.
    pub(super) fn part(&self, range: Range<usize>) -> Option<Restriction> {
        let keys = &self.keys;
        let kept: Vec<usize> = (0..keys.left.len()).filter(|i| range.contains(&keys.left[*i])).collect();
        let part = JoinKeys {
            left: kept.iter().map(|i| keys.left[*i] - range.start).collect(),
            right: kept.iter().map(|i| keys.right[*i]).collect(),
            null_safe: kept.iter().map(|i| keys.null_safe[*i]).collect(),
            residual: Vec::new(),
        };
        (!kept.is_empty()).then(|| Restriction::new(part, self.by))
    }

    /// Returns `node ⋉ K` with the restriction moved down as far as possible. Returns `None` where it cannot
    /// be moved at all.
    pub(crate) fn moved_below(&self, graph: &mut Graph, node: NodeId) -> Result<Option<NodeId>> {
        let node = graph.shared(node);
        stacker::maybe_grow(64 * 1024, 1024 * 1024, || node.op().restricted(graph, self))
    }

    /// Returns `node ⋉ K`. The restriction is moved below `node` where possible; otherwise it stays above.
    /// The restriction also stays above if the size of the change bounds the size of `node`. In this case
    /// `node` is computed once for all its readers. Moving the restriction below would copy `node`. At every
    /// level of a nested query, this would add one more plan of this size.
    pub(crate) fn of(&self, graph: &mut Graph, node: NodeId) -> Result<NodeId> {
        let below = if graph.props(node).bounded { None } else { self.moved_below(graph, node)? };
        match below {
            Some(made) => Ok(made),
            None => self.above(graph, node),
        }
    }

    /// Returns `node ⋉ K` with the restriction above `node`.
    pub(super) fn above(&self, graph: &mut Graph, node: NodeId) -> Result<NodeId> {
        let (l, r) = (graph.schema(node), graph.schema(self.by));
        let keys = &self.keys;
        let on = keys.left.iter().zip(&keys.right).zip(&keys.null_safe).map(|((a, b), safe)| {
            let (a, b) = (l.expr(*a), r.expr(*b).shifted(l.len()));
            if *safe { a.same_as(b) } else { a.equals(b) }
        });
        let semi = SemiJoin::semi(node, self.by, Expr::and(on));
        graph.add(semi)
    }
}

/// Restricts the first input of an operator. The other inputs stay unchanged. The operator computes each of
/// its rows from one row of the first input. `image` maps a column of the operator to the column of the first
/// input that has the same values.
pub(super) fn first_input(
    op: &dyn Relational,
    graph: &mut Graph,
    to: &Restriction,
    image: impl Fn(usize) -> Option<usize>,
) -> Result<Option<NodeId>> {
    let mut inputs = op.inputs();
    let Some(to) = to.through(image) else { return Ok(None) };
    if let Some(first) = inputs.first_mut() {
        *first = to.of(graph, *first)?;
    }
    graph.add(op.with_inputs(&inputs)).map(Some)
}

/// Restricts all inputs of an operator whose columns are also the columns of each input.
pub(super) fn all_inputs(op: &dyn Relational, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
    let mut below = Vec::new();
    for input in op.inputs() {
        below.push(to.of(graph, input)?);
    }
    graph.add(op.with_inputs(&below)).map(Some)
}

/// Restricts the inputs of a per-key operator. Requires that the restriction reads only columns of the
/// operator's key.
pub(super) fn per_key(op: &dyn Relational, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
    let inputs = op.inputs();
    let nodes: Vec<_> = inputs.iter().map(|i| graph.node(*i)).collect();
    let Class::PerKey { keys, output } = op.class(&nodes) else { return Ok(None) };
    let mut below = Vec::new();
    for (input, columns) in inputs.iter().zip(&keys) {
        let place = |c: usize| output.iter().position(|o| *o == c).map(|i| columns[i]);
        let Some(to) = to.through(place) else { return Ok(None) };
        below.push(to.of(graph, *input)?);
    }
    graph.add(op.with_inputs(&below)).map(Some)
}
