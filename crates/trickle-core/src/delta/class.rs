//! The delta rules of the four classes. The rule of a class is correct for every operator of the class, so no
//! operator needs a rule of its own.

use super::{Differ, negate, sum};
use crate::error::Result;
use crate::expr::Moment;
use crate::graph::NodeId;
use crate::rel::{Keys, Rel, Union};

/// Applies the rule `Δop(R) = op(ΔR)`.
pub(super) fn linear(cx: &mut Differ<'_>, n: NodeId) -> Result<NodeId> {
    let node = cx.graph.shared(n);
    let rel = node.rel();
    let mut deltas = Vec::new();
    for input in node.inputs() {
        deltas.push(cx.delta(*input)?);
    }
    match rel {
        Rel::Union(_) => sum(cx.graph, n, deltas),
        // The rows of the delta are not merged here. A node that needs merged rows merges them itself.
        Rel::Consolidate(_) => Ok(deltas.swap_remove(0)),
        _ => {
            if let Some(pairs) = as_pairs(cx, n, &deltas)? {
                return Ok(pairs);
            }
            let raises = rel.can_raise();
            for d in &mut deltas {
                *d = cx.net(*d, raises)?;
            }
            let op = rel.as_operator().with_inputs(&deltas);
            cx.graph.add(op)
        }
    }
}

/// Returns the delta of a map or a filter as a revision, if the delta of its input is a revision. A revision
/// consists of pairs of old and new rows. A map that can raise an error is evaluated on both rows of a pair.
/// This is safe if a key tells the pairs apart: the old row then exists before the change, and the new row
/// after it.
fn as_pairs(cx: &mut Differ<'_>, n: NodeId, deltas: &[NodeId]) -> Result<Option<NodeId>> {
    let [delta] = deltas else { return Ok(None) };
    let Rel::Revise(pairs) = cx.graph.rel(*delta) else { return Ok(None) };
    let made = match cx.graph.rel(n) {
        rel @ Rel::Map(m) if !rel.can_raise() || cx.graph.props(*delta).consolidated => {
            pairs.mapped(m, cx.graph.schema(n))
        }
        Rel::Filter(f) => pairs.filtered(f, cx.graph.schema(pairs.input())),
        _ => return Ok(None),
    };
    made.map(|made| cx.graph.add(made)).transpose()
}

/// Applies `Δ(A ⋈ B) = ΔA ⋈ B′ + A′ ⋈ ΔB − ΔA ⋈ ΔB`, where ⋈ stands for the operator. The rule reads current
/// states only, and each of its terms reads a delta.
pub(super) fn bilinear(cx: &mut Differ<'_>, n: NodeId) -> Result<NodeId> {
    let node = cx.graph.shared(n);
    let &[a, b] = node.inputs() else {
        return Err(crate::error::Error::plan(format!(
            "{} is bilinear and has not two inputs",
            node.op().name()
        )));
    };
    let (da, db) = (cx.delta(a)?, cx.delta(b)?);
    let of = |left, right| node.op().with_inputs(&[left, right]);
    let (changes_a, changes_b) = (!cx.graph.props(da).empty, !cx.graph.props(db).empty);
    let mut terms = Vec::new();
    if changes_a {
        let after = cx.after(b)?;
        terms.push(cx.graph.add(of(da, after))?);
    }
    if changes_b {
        let after = cx.after(a)?;
        terms.push(cx.graph.add(of(after, db))?);
    }
    if changes_a && changes_b {
        let both = cx.graph.add(of(da, db))?;
        terms.push(negate(cx.graph, both)?);
    }
    sum(cx.graph, n, terms)
}

/// Applies `Δop(R) = op(R′ ⋉ K) − op((R′ ⋉ K) − ΔR)`, where K is the set of touched keys. If the result of
/// the operator is stored, the second term is read from the stored result, for the keys in K.
pub(super) fn per_key(
    cx: &mut Differ<'_>,
    n: NodeId,
    keys: &[Vec<usize>],
    output: &[usize],
) -> Result<NodeId> {
    let node = cx.graph.shared(n);
    let (rel, inputs) = (node.rel(), node.inputs());
    let mut touched = Vec::new();
    for (input, cols) in inputs.iter().zip(keys) {
        let delta = cx.delta(*input)?;
        if !cx.graph.props(delta).empty {
            touched.push(cx.keys(delta, cols)?);
        }
    }
    let touched = match touched.as_slice() {
        [] => return sum(cx.graph, n, []),
        [one] => *one,
        _ => {
            let all = cx.graph.add(Union::new(touched))?;
            let cols: Vec<usize> = (0..output.len()).collect();
            cx.graph.add(Keys::new(all, cols))?
        }
    };
    let (mut after, mut before) = (Vec::new(), Vec::new());
    let stored = cx.state(n)?;
    for (input, cols) in inputs.iter().zip(keys) {
        let current = cx.after(*input)?;
        let current = cx.restrict(current, cols, touched)?;
        after.push(current);
        if stored.is_none() {
            let delta = cx.delta(*input)?;
            before.push(cx.minus(current, delta)?);
        }
    }
    let after = cx.graph.add(rel.as_operator().with_inputs(&after))?;
    let before = match stored {
        Some(state) => cx.restrict(state, output, touched)?,
        None => cx.graph.add(rel.as_operator().with_inputs(&before))?,
    };
    cx.difference(after, before)
}

/// Returns the result after the change minus the result before the change.
pub(super) fn global(cx: &mut Differ<'_>, n: NodeId) -> Result<NodeId> {
    let node = cx.graph.shared(n);
    let (rel, inputs) = (node.rel(), node.inputs());
    let (mut after, mut before) = (Vec::new(), Vec::new());
    let stored = cx.state(n)?;
    for input in inputs {
        after.push(cx.after(*input)?);
        if stored.is_none() {
            before.push(cx.before(*input)?);
        }
    }
    let after = cx.graph.add(rel.as_operator().with_inputs(&after))?;
    let before = match stored {
        Some(state) => state,
        None => cx.graph.add(earlier(rel).as_operator().with_inputs(&before))?,
    };
    cx.difference(after, before)
}

/// Returns the operator with the time of the previous refresh instead of the current time.
pub(super) fn earlier(rel: &Rel) -> Rel {
    match rel {
        Rel::Filter(f) => f.at(Moment::Then).into(),
        Rel::Map(m) => m.at(Moment::Then).into(),
        _ => rel.clone(),
    }
}
