//! Random window calls, and random first rows of partitions.

use super::plans::Limits;
use super::{Choice, exprs};
use crate::agg::{self, AggCall};
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, NodeId, Schema};
use crate::rel::{Slice, Top, Window};
use crate::types::Type;
use crate::window::{self, Bound, Exclusion, Order, OrderKey, Units, WindowCall, WindowFrame};

/// Makes a window over `input` with one or two calls over one partition. The order of the partition is total
/// if a call depends on the order of peers.
pub(super) fn sample(
    choice: &mut Choice,
    graph: &mut Graph,
    input: NodeId,
    limits: &Limits,
) -> Result<NodeId> {
    let schema = graph.schema(input).clone();
    let mut partition: Vec<usize> = (0..choice.below(3)).map(|_| choice.below(schema.len())).collect();
    partition.sort_unstable();
    partition.dedup();
    partition.retain(|c| schema.columns()[*c].ty.has_equality());
    let sortable = |c: &usize| schema.columns()[*c].ty.is_ordered();
    let mut order: Vec<OrderKey> = Vec::new();
    for _ in 0..choice.below(3) {
        let column = choice.below(schema.len());
        if sortable(&column) && order.iter().all(|k| k.column != column) {
            order.push(OrderKey {
                column,
                descending: choice.one_in(3),
                nulls_first: choice.one_in(3),
                settles: false,
            });
        }
    }
    let total = (0..schema.len()).all(|c| sortable(&c) && schema.columns()[c].ty.is_exact());
    let complete = total && choice.below(2) == 0;
    if complete {
        order = completed(order, &schema);
    }
    let near = choice.one_in(3);
    let calls = (0..=choice.below(2)).map(|_| call(choice, &schema, &order, limits));
    let calls = calls.map(|c| if near { nearer(c) } else { c });
    let calls = calls.map(|c| if complete || c.order() == Order::Peers { c } else { rank() }).collect();
    graph.add(Window::new(input, partition, order, calls))
}

/// Makes the first rows of each partition of `input`, in a total order. Returns `input` itself if its rows
/// have no total order.
pub(super) fn top(choice: &mut Choice, graph: &mut Graph, input: NodeId) -> Result<NodeId> {
    let schema = graph.schema(input).clone();
    if !schema.columns().iter().all(|c| c.ty.is_ordered() && c.ty.is_exact()) {
        return Ok(input);
    }
    let partition = if choice.below(2) == 0 { vec![choice.below(schema.len())] } else { Vec::new() };
    let given: Vec<OrderKey> = (0..choice.below(2))
        .map(|_| OrderKey {
            column: choice.below(schema.len()),
            descending: choice.one_in(3),
            nulls_first: choice.one_in(3),
            settles: false,
        })
        .collect();
    let rows = |choice: &mut Choice, n| u64::try_from(choice.below(n)).unwrap_or(0);
    let slice = Slice {
        offset: if choice.one_in(4) { rows(choice, 3) } else { 0 },
        limit: if choice.one_in(8) { None } else { Some(rows(choice, 4)) },
        ties: !given.is_empty() && choice.one_in(3),
    };
    graph.add(Top::new(input, partition, completed(given, &schema), slice))
}

/// Returns the order, with all other columns of the rows appended to its keys.
fn completed(mut order: Vec<OrderKey>, schema: &Schema) -> Vec<OrderKey> {
    for column in 0..schema.len() {
        if order.iter().all(|k| k.column != column) {
            order.push(OrderKey::settling(column));
        }
    }
    order
}

fn call(choice: &mut Choice, schema: &Schema, order: &[OrderKey], limits: &Limits) -> WindowCall {
    let column = schema.expr(choice.below(schema.len()));
    let names = [
        "row_number",
        "rank",
        "dense_rank",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "sum",
        "count",
        "max",
    ];
    let name = choice.pick(&names).copied().unwrap_or("rank");
    if let Some(sig) = window::resolve(name, std::slice::from_ref(column.ty())) {
        return WindowCall { call: AggCall::new(sig, vec![column]), frame: frame(choice, order) };
    }
    if let Some(sig) = window::resolve(name, &[]) {
        return WindowCall { call: AggCall::new(sig, Vec::new()), frame: WindowFrame::default() };
    }
    let Some(sig) = agg::resolve(name, std::slice::from_ref(column.ty())) else { return rank() };
    // The order of peers would determine the last bits of a sum of floats. It would also determine which of
    // several equal values is returned as the greatest.
    if matches!(sig.ret, Type::Float4 | Type::Float8) || (name == "max" && !sig.ret.is_exact()) {
        return rank();
    }
    let arg = column.cast(sig.args[0].clone());
    let filter = choice.one_in(4).then(|| exprs::condition(choice, schema, 1, limits));
    let call = AggCall { filter, ..AggCall::new(sig, vec![arg]) };
    WindowCall { call, frame: frame(choice, order) }
}

fn frame(choice: &mut Choice, order: &[OrderKey]) -> WindowFrame {
    let offset = |choice: &mut Choice| Expr::int8(i64::try_from(choice.below(3)).unwrap_or(0));
    let units = match choice.below(3) {
        0 => Units::Rows,
        1 if !order.is_empty() => Units::Groups,
        _ => Units::Range,
    };
    let counted = units != Units::Range;
    let start = match choice.below(3) {
        0 if counted => Bound::Preceding(offset(choice)),
        1 => Bound::CurrentRow,
        _ => Bound::Unbounded,
    };
    let end = match choice.below(3) {
        0 if counted => Bound::Following(offset(choice)),
        1 => Bound::Unbounded,
        _ => Bound::CurrentRow,
    };
    let exclude = match choice.below(8) {
        0 => Exclusion::CurrentRow,
        1 => Exclusion::Group,
        2 => Exclusion::Ties,
        _ => Exclusion::NoOthers,
    };
    WindowFrame { units, start, end, exclude }
}

/// Returns the call with a frame of the row itself and one row on each side.
fn nearer(call: WindowCall) -> WindowCall {
    let by = || Expr::int8(1);
    let frame = WindowFrame {
        units: Units::Rows,
        start: Bound::Preceding(by()),
        end: Bound::Following(by()),
        ..call.frame
    };
    if call.is_window_function() && call.reach().is_none() {
        return WindowCall { call: AggCall::count_star(), frame };
    }
    WindowCall { frame, ..call }
}

fn rank() -> WindowCall {
    let sig = window::resolve("rank", &[]);
    let call = sig.map_or_else(AggCall::count_star, |sig| AggCall::new(sig, Vec::new()));
    WindowCall { call, frame: WindowFrame::default() }
}
