//! Moves restrictions to touched keys towards the leaves.
//!
//! The identity `op(R) ⋉ K = op(R ⋉ K)` holds in three cases. For a linear operator, the columns of K are
//! columns that the operator passes on. For a join they are columns of one input, and for a per-key operator
//! they are columns of its key.

use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, NodeId};
use crate::hash::FastMap;
use crate::rel::{
    Distinct, Filter, Join, JoinKeys, Keys, Map, Negate, OuterJoin, Rel, Relational, SemiJoin, Union,
    join_keys,
};

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
    push(graph, s.left(), &keys, s.right())
}

/// Returns `node ⋉ K` with the restriction moved down as far as possible. Returns `None` where it cannot be
/// moved at all.
fn push(graph: &mut Graph, node: NodeId, keys: &JoinKeys, by: NodeId) -> Result<Option<NodeId>> {
    let node = graph.shared(node);
    stacker::maybe_grow(64 * 1024, 1024 * 1024, || match node.rel() {
        Rel::Filter(f) => {
            let below = pushed(graph, f.input(), keys, by)?;
            graph.add(Filter::new(below, f.predicate().clone())).map(Some)
        }
        Rel::Negate(n) => {
            let below = pushed(graph, n.input(), keys, by)?;
            graph.add(Negate::new(below)).map(Some)
        }
        Rel::Consolidate(c) => {
            let below = pushed(graph, c.input(), keys, by)?;
            graph.add(c.with_inputs(&[below])).map(Some)
        }
        Rel::Union(u) => {
            let mut parts = Vec::new();
            for s in u.summands() {
                parts.push(pushed(graph, *s, keys, by)?);
            }
            graph.add(Union::new(parts)).map(Some)
        }
        Rel::Map(m) => {
            let Some(keys) = through(keys, |c| m.exprs()[c].as_column()) else { return Ok(None) };
            let below = pushed(graph, m.input(), &keys, by)?;
            graph.add(m.with_inputs(&[below])).map(Some)
        }
        Rel::Expand(e) => {
            let width = graph.schema(e.input()).len();
            let Some(keys) = through(keys, |c| (c < width).then_some(c)) else { return Ok(None) };
            let below = pushed(graph, e.input(), &keys, by)?;
            graph.add(e.with_inputs(&[below])).map(Some)
        }
        Rel::Join(j) => join(graph, j, keys, by),
        Rel::SemiJoin(s) => {
            let left = pushed(graph, s.left(), keys, by)?;
            graph.add(s.with_inputs(&[left, s.right()])).map(Some)
        }
        Rel::OuterJoin(o) if !o.is_full() => {
            let width = graph.schema(o.left_input()).len();
            if keys.left.iter().any(|c| *c >= width) {
                return Ok(None);
            }
            let left = pushed(graph, o.left_input(), keys, by)?;
            graph.add(OuterJoin::left(left, o.right_input(), o.on().clone())).map(Some)
        }
        rel @ (Rel::Reduce(_)
        | Rel::Accumulate(_)
        | Rel::Distinct(_)
        | Rel::Positive(_)
        | Rel::Single(_)
        | Rel::Window(_)
        | Rel::Top(_)
        | Rel::SetOp(_)) => per_key(graph, rel, keys, by),
        _ => Ok(None),
    })
}

/// Returns `node ⋉ K`. The restriction is moved below `node` where possible; otherwise it stays above. The
/// restriction also stays above if the size of the change bounds the size of `node`. In this case `node` is
/// computed once for all its readers. Moving the restriction below would copy `node`. At every level of a
/// nested query, this would add one more plan of this size.
fn pushed(graph: &mut Graph, node: NodeId, keys: &JoinKeys, by: NodeId) -> Result<NodeId> {
    let below = if graph.props(node).bounded { None } else { push(graph, node, keys, by)? };
    match below {
        Some(made) => Ok(made),
        None => graph.add(on_top(graph, node, keys, by)),
    }
}

fn on_top(graph: &Graph, node: NodeId, keys: &JoinKeys, by: NodeId) -> SemiJoin {
    let (l, r) = (graph.schema(node), graph.schema(by));
    let on = keys.left.iter().zip(&keys.right).zip(&keys.null_safe).map(|((a, b), safe)| {
        let (a, b) = (l.expr(*a), r.expr(*b).shifted(l.len()));
        if *safe { a.same_as(b) } else { a.equals(b) }
    });
    SemiJoin::semi(node, by, Expr::and(on))
}

/// Returns the keys with each left column replaced by its image. Returns `None` where a column has no image.
fn through(keys: &JoinKeys, image: impl Fn(usize) -> Option<usize>) -> Option<JoinKeys> {
    let left = keys.left.iter().map(|c| image(*c)).collect::<Option<Vec<_>>>()?;
    Some(JoinKeys { left, ..keys.clone() })
}

/// Returns the pairs whose left column is in `range`. In the result, left columns are counted from the start
/// of `range`.
fn part(keys: &JoinKeys, range: std::ops::Range<usize>) -> JoinKeys {
    let kept: Vec<usize> = (0..keys.left.len()).filter(|i| range.contains(&keys.left[*i])).collect();
    JoinKeys {
        left: kept.iter().map(|i| keys.left[*i] - range.start).collect(),
        right: kept.iter().map(|i| keys.right[*i]).collect(),
        null_safe: kept.iter().map(|i| keys.null_safe[*i]).collect(),
        residual: Vec::new(),
    }
}

/// Restricts the inputs of a join. If all key columns belong to one input, this input is restricted. If they
/// belong to both inputs, the left input is restricted by its own key columns. The pairs are then restricted
/// by all key columns.
fn join(graph: &mut Graph, j: &Join, keys: &JoinKeys, by: NodeId) -> Result<Option<NodeId>> {
    let (l, r) = (graph.schema(j.left()).len(), graph.schema(j.right()).len());
    let (left, right) = (part(keys, 0..l), part(keys, l..l + r));
    let (mut a, mut b) = (j.left(), j.right());
    // The right input is not restricted here. The join condition may carry the restriction over from the left
    // input.
    let whole = left.left.is_empty() || right.left.is_empty();
    if !left.left.is_empty() {
        if graph.props(a).bounded {
            return Ok(None);
        }
        a = pushed(graph, a, &left, by)?;
    } else if !right.left.is_empty() {
        if graph.props(b).bounded {
            return Ok(None);
        }
        b = pushed(graph, b, &right, by)?;
    }
    let joined = graph.add(Join::new(a, b, j.on().clone()))?;
    if whole {
        return Ok(Some(joined));
    }
    graph.add(on_top(graph, joined, keys, by)).map(Some)
}

/// Restricts the inputs of a per-key operator. Requires that the restriction reads only columns of the
/// operator's key.
fn per_key(graph: &mut Graph, rel: &Rel, keys: &JoinKeys, by: NodeId) -> Result<Option<NodeId>> {
    let inputs = rel.as_operator().inputs();
    let nodes: Vec<_> = inputs.iter().map(|i| graph.node(*i)).collect();
    let crate::rel::Class::PerKey { keys: columns, output } = rel.as_operator().class(&nodes) else {
        return Ok(None);
    };
    let mut below = Vec::new();
    for (input, columns) in inputs.iter().zip(&columns) {
        let place = |c: usize| output.iter().position(|o| *o == c).map(|i| columns[i]);
        let Some(keys) = through(keys, place) else { return Ok(None) };
        below.push(pushed(graph, *input, &keys, by)?);
    }
    graph.add(rel.as_operator().with_inputs(&below)).map(Some)
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
    pushed(graph, node, &keys, by)
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
