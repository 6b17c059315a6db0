//! Moves restrictions to touched keys towards the leaves.

use crate::error::Result;
use crate::graph::{Graph, NodeId};
use crate::hash::FastMap;
use crate::rel::{Distinct, JoinKeys, Keys, Map, Rel, Restriction, join_keys};

/// Moves the restriction of `L ⋉ K` down if the change bounds the size of K, but not the size of L.
pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let semi = graph.shared(id);
    let Rel::SemiJoin(s) = semi.rel() else { return Ok(None) };
    if s.is_anti() || graph.props(s.left()).bounded || !graph.props(s.right()).bounded {
        return Ok(None);
    }
    let keys = join_keys(s.on(), graph.schema(s.left()).len());
    if !keys.residual.is_empty() || keys.left.is_empty() {
        return Ok(None);
    }
    Restriction::new(keys, s.right()).moved_below(graph, s.left())
}

/// Rewrites `small ⋈ big` to `small ⋈ (big ⋉ keys(small))`. The operator may also be ⋉, ▷ or ⟕, if `big` is
/// its right input. Requires that `big` contains more than joined tables, so that PostgreSQL would compute
/// the whole of `big`.
pub(super) fn sideways(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let node = graph.shared(id);
    let rel = node.rel();
    let (l, r, on) = match rel {
        Rel::Join(j) => (j.left(), j.right(), j.on()),
        Rel::SemiJoin(s) => (s.left(), s.right(), s.on()),
        Rel::OuterJoin(o) if !o.is_full() => (o.left_input(), o.right_input(), o.on()),
        _ => return Ok(None),
    };
    let keys = join_keys(on, graph.schema(l).len());
    if keys.left.is_empty() || !keys.left.iter().all(|c| graph.schema(l).columns()[*c].ty.has_equality()) {
        return Ok(None);
    }
    let (lb, rb) = (graph.props(l).bounded, graph.props(r).bounded);
    if lb && !rb && computed(graph, r) {
        let small = keys_of(graph, l, &keys.left)?;
        let right = restricted(graph, r, &keys.right, &keys.null_safe, small)?;
        return graph.add(rel.as_operator().with_inputs(&[l, right])).map(Some);
    }
    if rb && !lb && computed(graph, l) && matches!(rel, Rel::Join(_)) {
        let small = keys_of(graph, r, &keys.right)?;
        let left = restricted(graph, l, &keys.left, &keys.null_safe, small)?;
        return graph.add(rel.as_operator().with_inputs(&[left, r])).map(Some);
    }
    Ok(None)
}

/// Returns the values of the columns `cols` in the rows of `small`. In a query the set of values must be
/// exact, since its delta subtracts the set before the change from the set after the change. In a delta the
/// set may contain more values, since the set restricts both operands of a subtraction.
fn keys_of(graph: &mut Graph, small: NodeId, cols: &[usize]) -> Result<NodeId> {
    if graph.props(small).reads_delta || !graph.props(small).non_negative {
        return graph.add(Keys::new(small, cols.to_vec()));
    }
    let schema = graph.schema(small).clone();
    let values = graph.add(Map::columns(small, &schema, cols))?;
    graph.add(Distinct::new(values))
}

fn restricted(
    graph: &mut Graph,
    node: NodeId,
    cols: &[usize],
    null_safe: &[bool],
    by: NodeId,
) -> Result<NodeId> {
    let keys = JoinKeys {
        left: cols.to_vec(),
        right: (0..cols.len()).collect(),
        null_safe: null_safe.to_vec(),
        residual: Vec::new(),
    };
    Restriction::new(keys, by).of(graph, node)
}

/// Whether `node` contains operators other than leaves, filters, joins and selections of columns. PostgreSQL
/// would then compute the whole of `node` before the join.
fn computed(graph: &Graph, node: NodeId) -> bool {
    let plain = |rel: &Rel| {
        matches!(rel, Rel::Table(_) | Rel::State(_) | Rel::Values(_) | Rel::Filter(_) | Rel::Join(_))
            || matches!(rel, Rel::Map(m) if m.exprs().iter().all(|e| e.as_column().is_some()))
    };
    let (mut stack, mut seen) = (vec![node], FastMap::default());
    while let Some(id) = stack.pop() {
        if seen.insert(id, ()).is_some() {
            continue;
        }
        if !plain(graph.rel(id)) {
            return true;
        }
        stack.extend(graph.inputs(id));
    }
    false
}
