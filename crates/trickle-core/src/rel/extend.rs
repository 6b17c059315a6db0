//! Deltas of `min` and `max`. New values extend the stored extremum of a group. If the extremum itself
//! leaves, the group is recomputed.

use super::{
    Accumulate, Distinct, Filter, Join, Map, Negate, Positive, Reduce, SemiJoin, Union, image, same,
};
use crate::agg::{self, Acc, AggCall, Upkeep};
use crate::delta::{Differ, negate, sum};
use crate::error::Result;
use crate::expr::{Expr, FuncSig};
use crate::graph::{Graph, NodeId};
use crate::types::Type;

/// Whether the call is `min` or `max` over a type whose equal values always have the same image.
fn is_extremum(call: &AggCall) -> bool {
    matches!(call.upkeep(), Upkeep::Extremum { .. })
}

/// Splits a grouped reduce of linear aggregates and extrema into two reduces that are joined on the group
/// key. One reduce has the extrema and a count of rows; [`delta`] extends such a reduce. The other reduce has
/// the linear aggregates. Returns `None` where an aggregate is neither linear nor an extremum.
pub(crate) fn split(reduce: &Reduce, graph: &mut Graph) -> Result<Option<NodeId>> {
    let linear = |c: &AggCall| matches!(c.upkeep(), Upkeep::Linear(_));
    let fits = reduce.aggs().iter().all(|c| linear(c) || is_extremum(c));
    if !fits || reduce.keys().is_empty() || !reduce.aggs().iter().any(is_extremum) || is_extended(reduce) {
        return Ok(None);
    }
    let n = reduce.keys().len();
    let part = |keep: &dyn Fn(&AggCall) -> bool| {
        reduce.aggs().iter().filter(|c| keep(c)).cloned().collect::<Vec<_>>()
    };
    let extrema: Vec<AggCall> = [AggCall::count_star()]
        .into_iter()
        .chain(part(&is_extremum).into_iter().map(|c| AggCall { distinct: false, ..c }))
        .collect();
    let left = graph.add(Reduce::new(reduce.input(), reduce.keys().to_vec(), extrema))?;
    let sums = part(&linear);
    let (mut joined, width) = (left, graph.schema(left).len());
    if !sums.is_empty() {
        let sums = Reduce::new(reduce.input(), reduce.keys().to_vec(), sums);
        let right = match super::accumulate::expand(&sums, graph)? {
            Some(expanded) => expanded,
            None => graph.add(sums)?,
        };
        let (l, r) = (graph.schema(left).clone(), graph.schema(right).clone());
        let keys: Vec<usize> = (0..n).collect();
        let on = same(&l, &keys, &r, &keys);
        joined = graph.add(Join::new(left, right, on))?;
    }
    let schema = graph.schema(joined).clone();
    let (mut next_extremum, mut next_sum) = (n + 1, width + n);
    let mut out: Vec<Expr> = (0..n).map(|i| schema.expr(i)).collect();
    for call in reduce.aggs() {
        let place = if is_extremum(call) { &mut next_extremum } else { &mut next_sum };
        out.push(schema.expr(*place));
        *place += 1;
    }
    let labels = (0..n)
        .map(|i| schema.columns()[i].label.clone())
        .chain(reduce.aggs().iter().map(|c| c.sig.name.clone()));
    graph.add(Map::new(joined, out).labelled(labels.collect())).map(Some)
}

/// Whether the reduce consists of `count(*)` and extrema, and has group keys.
pub(super) fn is_extended(reduce: &Reduce) -> bool {
    let calls = reduce.aggs();
    !reduce.keys().is_empty()
        && calls.len() > 1
        && calls[0] == AggCall::count_star()
        && calls[1..].iter().all(|c| is_extremum(c) && !c.distinct)
}

/// Computes the delta over stored groups: `Δ = redone + extended − old`. If a removed value reaches the
/// stored extremum of a group, the group is redone from the current rows. Otherwise the values that came
/// extend the stored group. The change is consolidated before it is split into rows that came and rows that
/// left. A row that an update did not alter is therefore in neither set.
pub(super) fn delta(reduce: &Reduce, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
    let comparable = cx.graph.schema(reduce.input()).without_equality().is_none();
    if !is_extended(reduce) || !comparable || !image::identify(cx.graph, reduce.input(), reduce.keys()) {
        return Ok(None);
    }
    let Some(state) = cx.state(node)? else { return Ok(None) };
    let n = reduce.keys().len();
    let keys: Vec<usize> = (0..n).collect();
    let change = cx.delta(reduce.input())?;
    let change = cx.net(change, true)?;
    let touched = cx.keys(change, reduce.keys())?;
    let old = cx.restrict(state, &keys, touched)?;
    let back = negate(cx.graph, change)?;
    let (added, removed) = (cx.graph.add(Positive::new(change))?, cx.graph.add(Positive::new(back))?);
    let extrema = reduce.aggs()[1..].to_vec();
    let gained = cx.graph.add(Reduce::new(added, reduce.keys().to_vec(), extrema.clone()))?;
    let lost = cx.graph.add(Reduce::new(removed, reduce.keys().to_vec(), extrema))?;
    let spoiled = spoiled(reduce, cx.graph, old, lost)?;

    let current = cx.after(reduce.input())?;
    let current = cx.restrict(current, reduce.keys(), spoiled)?;
    let redone = cx.graph.add(Reduce::new(current, reduce.keys().to_vec(), reduce.aggs().to_vec()))?;

    let counts = cx.graph.add(Accumulate::new(change, reduce.keys().to_vec(), vec![Acc::count(None)]))?;
    let extended = extended(reduce, cx.graph, old, gained, counts)?;
    let whole = SemiJoin::restrict(cx.graph, extended, &keys, spoiled).on().clone();
    let extended = cx.graph.add(SemiJoin::anti(extended, spoiled, whole))?;

    let minus = cx.graph.add(Negate::new(old))?;
    sum(cx.graph, node, [redone, extended, minus]).map(Some)
}

/// Returns the keys of the groups that may have lost a stored extremum.
fn spoiled(reduce: &Reduce, graph: &mut Graph, old: NodeId, lost: NodeId) -> Result<NodeId> {
    let n = reduce.keys().len();
    let (o, l) = (graph.schema(old).clone(), graph.schema(lost).clone());
    let reaches = reduce.aggs()[1..].iter().enumerate().map(|(i, call)| {
        let op = if matches!(call.upkeep(), Upkeep::Extremum { greatest: true }) { ">=" } else { "<=" };
        let (stored, gone) = (o.expr(n + 1 + i), l.expr(n + i).shifted(o.len()));
        Expr::call(FuncSig::comparison(op, gone.ty().clone(), stored.ty().clone()), vec![gone, stored])
    });
    let reaches = Expr::or(reaches);
    let keys: Vec<usize> = (0..n).collect();
    let on = Expr::and(same(&o, &keys, &l, &keys).conjuncts().into_iter().chain([reaches]));
    let pairs = graph.add(Join::new(old, lost, on))?;
    let keys = graph.add(Map::columns(pairs, &o, &(0..n).collect::<Vec<_>>()))?;
    graph.add(Distinct::by_value(graph, keys))
}

/// Returns the union of three relations, merged by key: stored groups, extrema of the values that came, and
/// changes of the counts. A group whose count became 0 is left out.
fn extended(
    reduce: &Reduce,
    graph: &mut Graph,
    old: NodeId,
    gained: NodeId,
    counts: NodeId,
) -> Result<NodeId> {
    let n = reduce.keys().len();
    let schema = graph.schema(old).clone();
    let values = schema.len() - n - 1;
    let part = |graph: &mut Graph, from: NodeId, count: bool, extrema: bool| {
        let s = graph.schema(from).clone();
        let count_expr = if count { s.expr(n) } else { Expr::int8(0) };
        let first = n + usize::from(count);
        let value = |i: usize| {
            if extrema { s.expr(first + i) } else { Expr::null(schema.columns()[n + 1 + i].ty.clone()) }
        };
        let exprs = (0..n).map(|i| s.expr(i)).chain([count_expr]).chain((0..values).map(value)).collect();
        graph.add(Map::new(from, exprs))
    };
    let parts =
        [part(graph, old, true, true)?, part(graph, gained, false, true)?, part(graph, counts, true, false)?];
    let all = graph.add(Union::new(parts))?;
    let s = graph.schema(all).clone();
    let total = agg::resolve("sum", &[Type::Int8])
        .ok_or_else(|| crate::error::Error::internal("no sum of bigint"))?;
    let mut calls = vec![AggCall::new(total, vec![s.expr(n)])];
    calls.extend(
        reduce.aggs()[1..]
            .iter()
            .enumerate()
            .map(|(i, c)| AggCall::new(c.sig.clone(), vec![s.expr(n + 1 + i)])),
    );
    let merged = graph.add(Reduce::new(all, (0..n).collect(), calls))?;
    let m = graph.schema(merged).clone();
    let exprs = (0..m.len()).map(|i| if i == n { m.expr(i).cast(Type::Int8) } else { m.expr(i) }).collect();
    let merged = graph.add(Map::new(merged, exprs))?;
    let live = graph.schema(merged).expr(n).equals(Expr::int8(0)).negated();
    graph.add(Filter::new(merged, live))
}
