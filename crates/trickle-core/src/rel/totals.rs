//! The change of stored totals: each changed group is joined with its stored row.

use super::{Accumulate, Map, OuterJoin, Revise, Side};
use crate::agg::Acc;
use crate::delta::Part;
use crate::error::Result;
use crate::expr::functions::resolve_operator;
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::graph::{Graph, NodeId, Schema};
use crate::types::Datum;
use std::sync::Arc;

/// The greatest number of nullable key columns for which stored groups are looked up one by one. Each
/// nullable key column doubles the SQL text, since `=` does not match NULL.
const NULLABLE: usize = 1;

/// Returns the change of the accumulation `totals`, whose node is `node`. The previous totals are stored in
/// `parts`, and `d` is the change of the totals. The returned change is `revise(d ⟕ part₁ ⟕ part₂ …)`, with
/// `new = old + d` for each total. Returns `None` where equality of plain columns cannot find a stored group.
/// Returns `None` also where a stored group cannot be distinguished from a missing group.
pub(super) fn beside_stored(
    totals: &Accumulate,
    graph: &mut Graph,
    node: NodeId,
    d: NodeId,
    parts: &[Part],
) -> Result<Option<NodeId>> {
    let schema = graph.schema(node).clone();
    let keys = totals.keys().len();
    let columns = &schema.columns()[..keys];
    if columns.iter().filter(|c| c.nullable).count() > NULLABLE || columns.iter().any(|c| !c.ty.is_exact()) {
        return Ok(None);
    }
    let Some(looked_up) = looked_up(graph, &schema, keys, d, parts)? else { return Ok(None) };
    let (mut was, mut is) = (Vec::new(), Vec::new());
    for ((acc, stored), i) in totals.accs().iter().zip(looked_up.totals).zip(keys..) {
        let stored = stored.into_iter().chain([zero(acc)]).collect();
        let old = Expr::new(ExprKind::Coalesce(stored), acc.ty.clone());
        let Some(plus) = resolve_operator("+", &[acc.ty.clone(), acc.ty.clone()]) else { return Ok(None) };
        is.push(Expr::call(plus, vec![old.clone(), schema.expr(i)]));
        was.push(old);
    }
    let labels: Vec<Arc<str>> = schema.columns().iter().map(|c| c.label.clone()).collect();
    let old = labels[keys..].iter().map(|l| format!("old_{l}").into());
    let named =
        labels[..keys].iter().cloned().chain(old).chain(labels[keys..].iter().cloned()).chain(["had".into()]);
    let same = (0..keys).map(|k| schema.expr(k));
    let pairs = same.chain(was).chain(is).chain([looked_up.had]).collect();
    let pairs = graph.add(Map::new(looked_up.rows, pairs).labelled(named.collect()))?;
    let (all, n) = (graph.schema(pairs).clone(), totals.accs().len());
    let row = |from: usize| (0..keys).chain(from..from + n).map(|i| all.expr(i)).collect::<Vec<_>>();
    let was = Side { row: row(keys), there: all.expr(keys + 2 * n) };
    let is = row(keys + n);
    let has = if keys == 0 { Expr::bool(true) } else { has_rows(totals, graph, &is[keys..]) };
    graph.add(Revise::new(pairs, was, Side { row: is, there: has }, labels)).map(Some)
}

/// The changes of groups, joined with the stored rows of these groups.
struct LookedUp {
    /// The rows: the columns of the change, then the columns of each stored part.
    rows: NodeId,
    /// Whether the group of a row is stored in one of the parts.
    had: Expr,
    /// For each total, its column in each part that stores the total. If a group is stored only in other
    /// parts, the total is 0 for this group.
    totals: Vec<Vec<Expr>>,
}

/// Looks up the changed groups by key: `d ⟕ part₁ ⟕ part₂ …`. `schema` is the schema of the totals, and its
/// first columns are the key.
fn looked_up(
    graph: &mut Graph,
    schema: &Schema,
    keys: usize,
    d: NodeId,
    parts: &[Part],
) -> Result<Option<LookedUp>> {
    let (mut rows, mut had) = (d, Vec::new());
    let mut totals = vec![Vec::new(); schema.len() - keys];
    for part in parts {
        let Some(present) = presence(graph, part, keys) else { return Ok(None) };
        let width = graph.schema(rows).len();
        let row: Vec<Expr> = part.row.iter().map(|e| e.shifted(width)).collect();
        let same = (0..keys).map(|k| match schema.columns()[k].nullable {
            true => schema.expr(k).same_as(row[k].clone()),
            false => schema.expr(k).equals(row[k].clone()),
        });
        let on = Expr::and(same.chain([part.known.shifted(width)]));
        rows = graph.add(OuterJoin::left(rows, part.stored, on))?;
        had.push(row[present].clone().is_not_null());
        for (total, value) in totals.iter_mut().zip(&row[keys..]) {
            total.extend(Some(value.clone()).filter(|v| v.as_literal().is_none()));
        }
    }
    Ok(Some(LookedUp { rows, had: Expr::or(had), totals }))
}

/// Returns a column of the part that is NULL exactly where the lookup found no stored row. Returns `None`
/// where the part has no such column, or where a key is not a plain column.
fn presence(graph: &Graph, part: &Part, keys: usize) -> Option<usize> {
    let stored = graph.schema(part.stored);
    let plain = part.row[..keys].iter().all(|e| e.as_column().is_some());
    let never_null = |e: &Expr| e.as_column().is_some_and(|c| !stored.columns()[c].nullable);
    plain.then(|| part.row.iter().position(never_null)).flatten()
}

/// Whether a group has a total other than 0, where `values` are the totals of the group. If the totals of a
/// state include a count of rows, this count alone decides.
fn has_rows(totals: &Accumulate, graph: &Graph, values: &[Expr]) -> Expr {
    let some = |t: &Expr| {
        let sig = FuncSig::comparison("<>", t.ty().clone(), t.ty().clone());
        Expr::call(sig, vec![t.clone(), Expr::int8(0).cast(t.ty().clone())])
    };
    let count = totals.accs().iter().position(|a| *a == Acc::count(None));
    match count.filter(|_| graph.props(totals.input()).non_negative) {
        Some(count) => some(&values[count]),
        None => Expr::or(values.iter().map(some)),
    }
}

fn zero(acc: &Acc) -> Expr {
    match acc.zero() {
        Datum::Int(n) => Expr::int8(n).cast(acc.ty.clone()),
        other => Expr::literal(other, acc.ty.clone()),
    }
}
