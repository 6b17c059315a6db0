//! The rows near a change, on which window functions with bounded frames depend.
//!
//! Suppose that each call sees at most `b` rows before its own row and `a` rows after it. A changed row then
//! changes the values of at most `a` rows before it and `b` rows after it. The calls of these rows see at
//! most `a + b` rows before and after the changed row. For frames by RANGE the same is true of distances in
//! the order key. Reading more rows than necessary is correct too. The plan therefore counts distinct values
//! of the leading order key instead of rows, since an index finds the next value.

use super::{Join, Map, Reduce, Rel, Widen, Window, same};
use crate::agg::{self, AggCall};
use crate::delta::Differ;
use crate::error::{Error, Result};
use crate::expr::functions::resolve_operator;
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::graph::{Graph, NodeId};
use crate::types::{Datum, Interval, Type};
use crate::window::{Reach, WindowCall};
use std::sync::Arc;

/// The range of input rows that a window needs around a changed row.
pub(super) struct Near {
    /// The position of the leading order key in the window's input.
    value: usize,
    /// The reach that covers the reach of each of the window's calls.
    reach: Reach,
}

impl Near {
    /// Returns `None` where a call's reach is unbounded, or where no index could find the rows near a change.
    pub(super) fn of(window: &Window, graph: &Graph) -> Option<Near> {
        let all = |all: Reach, call: &WindowCall| call.reach().and_then(|reach| all.and(reach));
        let reach = window.calls().iter().try_fold(Reach::default(), all)?;
        let value = window.order().first()?.column;
        let column = graph.schema(window.input()).column(value)?;
        let far = reach.distance.as_ref().is_none_or(|by| safe(&column.ty, by).is_some());
        let told = !column.nullable && column.ty.is_exact() && extremes(&column.ty).is_some();
        let read = window.partition().iter().copied().chain([value]).collect();
        (told && far && is_looked_up(graph, window.input(), read)).then_some(Near { value, reach })
    }

    /// Returns current rows of each partition that has changed rows. They reach from the rows near the least
    /// changed row to the rows near the greatest changed row.
    pub(super) fn rows(&self, window: &Window, cx: &mut Differ<'_>) -> Result<NodeId> {
        let (current, change) = (cx.after(window.input())?, cx.delta(window.input())?);
        let (partition, n) = (window.partition(), window.partition().len());
        let schema = cx.graph.schema(current).clone();
        let ty = schema.columns()[self.value].ty.clone();
        let marks: Vec<usize> = partition.iter().copied().chain([self.value]).collect();
        let changed = cx.keys(change, &marks)?;
        let extremes = extremes(&ty).ok_or_else(|| Error::internal("a range of values without order"))?;
        let ends = extremes.map(|sig| AggCall::new(sig, vec![Expr::column(n, ty.clone())]));
        let keys: Vec<usize> = (0..n).collect();
        let mut ranges = cx.graph.add(Reduce::new(changed, keys.clone(), ends.to_vec()))?;
        ranges = self.stretched(cx.graph, ranges, n)?;
        let values = self.reach.before.saturating_add(self.reach.after);
        if values > 0 {
            let wide = Widen::new(ranges, current, partition.to_vec(), self.value, values);
            ranges = cx.graph.add(wide)?;
            // The frame of a row at an end of the widened range may reach beyond this end, by at most the
            // greatest distance at which calls read rows.
            ranges = self.stretched(cx.graph, ranges, n)?;
        }
        let wide = cx.graph.schema(ranges).clone();
        let within = |op: &str, end: usize| {
            let (value, end) = (schema.expr(self.value), wide.expr(end).shifted(schema.len()));
            Expr::call(FuncSig::comparison(op, ty.clone(), end.ty().clone()), vec![value, end])
        };
        let of = same(&schema, partition, &wide, &keys).conjuncts();
        let on = Expr::and(of.into_iter().chain([within(">=", n), within("<=", n + 1)]));
        let near = cx.graph.add(Join::new(current, ranges, on))?;
        let all: Vec<usize> = (0..schema.len()).collect();
        cx.graph.add(Map::columns(near, &schema, &all))
    }

    /// Extends ranges by the greatest distance at which calls read rows. The two ends of a range are columns
    /// `n` and `n + 1`.
    fn stretched(&self, graph: &mut Graph, ranges: NodeId, n: usize) -> Result<NodeId> {
        let Some(by) = &self.reach.distance else { return Ok(ranges) };
        let schema = graph.schema(ranges);
        let end = |c: usize, way| moved(&schema.expr(c), by, way);
        let ends = [end(n, Direction::Down), end(n + 1, Direction::Up)].into_iter().flatten();
        let exprs = (0..n).map(|c| schema.expr(c)).chain(ends).collect();
        let labels = schema.columns().iter().map(|c| c.label.clone()).collect();
        graph.add(Map::new(ranges, exprs).labelled(labels))
    }
}

/// Returns the aggregates that compute the least and the greatest value of a type.
fn extremes(ty: &Type) -> Option<[Arc<FuncSig>; 2]> {
    let [least, greatest] = ["min", "max"].map(|name| agg::resolve(name, std::slice::from_ref(ty)));
    Some([least?, greatest?]).filter(|ends| ends.iter().all(|sig| sig.ret == *ty))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Down,
    Up,
}

/// The number of days in a thousand years, rounded up.
const MILLENNIUM: i32 = 365_250;
const MICROS_OF_A_DAY: i64 = 24 * 60 * 60 * 1_000_000;

/// Moves `end` by at least `by`. If `end` is so near the limit of its type that the sum could raise an error,
/// the result is this limit.
fn moved(end: &Expr, by: &Datum, way: Direction) -> Option<Expr> {
    let ty = end.ty();
    let (by, [down, up]) = safe(ty, by)?;
    let ((edge, limit), test, op) = match way {
        Direction::Down => (down, ">=", "-"),
        Direction::Up => (up, "<=", "+"),
    };
    let literal = |value| Expr::literal(value, ty.clone());
    let near = FuncSig::comparison(test, ty.clone(), ty.clone());
    let sum = Expr::call(resolve_operator(op, &[ty.clone(), by.ty().clone()])?, vec![end.clone(), by]);
    let sum = if sum.ty() == ty { sum } else { sum.cast(ty.clone()) };
    let whens = vec![(Expr::call(near, vec![end.clone(), literal(edge)]), sum)];
    Some(Expr::new(ExprKind::Case { whens, otherwise: literal(limit) }, ty.clone()))
}

/// Returns an amount that is at least `by` and can be added to values of type `ty`. Returns also two pairs of
/// values, one for subtraction and one for addition. Each pair consists of the last value for which the
/// operation cannot raise an error, and of the type's limit. Returns `None` where the type has no addition,
/// or where `by` is so large that reading near rows would save nothing.
fn safe(ty: &Type, by: &Datum) -> Option<(Expr, [(Datum, Datum); 2])> {
    let by = match by {
        Datum::Interval(by) => Expr::literal(Datum::Interval(exact(ty, *by)?), Type::Interval),
        by => Expr::literal(by.clone(), ty.clone()),
    };
    let ends = match (ty, by.as_literal()?) {
        (Type::Date, Datum::Interval(_)) => [(-MILLENNIUM, i32::MIN), (MILLENNIUM, i32::MAX)]
            .map(|(edge, limit)| (Datum::Date(edge), Datum::Date(limit))),
        (Type::Timestamp | Type::Timestamptz, Datum::Interval(_)) => {
            let edge = i64::from(MILLENNIUM) * MICROS_OF_A_DAY;
            [(-edge, i64::MIN), (edge, i64::MAX)]
                .map(|(edge, limit)| (Datum::Timestamp(edge), Datum::Timestamp(limit)))
        }
        (Type::Int2 | Type::Int4 | Type::Int8, Datum::Int(by)) => {
            let (least, greatest) = match ty {
                Type::Int2 => (i16::MIN.into(), i16::MAX.into()),
                Type::Int4 => (i32::MIN.into(), i32::MAX.into()),
                _ => (i64::MIN, i64::MAX),
            };
            let (low, high) = (least.checked_add(*by)?, greatest.checked_sub(*by)?);
            (low <= high)
                .then_some([(low, least), (high, greatest)])?
                .map(|(edge, limit)| (Datum::Int(edge), Datum::Int(limit)))
        }
        _ => return None,
    };
    Some((by, ends))
}

/// Returns an interval in days and microseconds that is at least as long as `by`, on whatever date `by`
/// begins. A month has at most 31 days. A day may be longer or shorter than 24 hours where clocks are set
/// forward or back. Returns `None` where the interval is longer than a thousand years.
fn exact(ty: &Type, by: Interval) -> Option<Interval> {
    let days = by.months.checked_mul(31)?.checked_add(by.days)?;
    let set = i32::from(*ty == Type::Timestamptz && days > 0);
    let whole = i32::try_from(by.micros / MICROS_OF_A_DAY).ok()?;
    let by = Interval { months: 0, days: days.checked_add(set)?, micros: by.micros };
    (by.days.checked_add(whole)? < MILLENNIUM).then_some(by)
}

/// Whether `node` consists of tables and states, possibly joined, and an index on one of them can find the
/// rows of `node` by `columns`.
fn is_looked_up(graph: &Graph, node: NodeId, columns: Vec<usize>) -> bool {
    let mut stack = vec![(node, columns)];
    while let Some((node, columns)) = stack.pop() {
        match graph.rel(node) {
            Rel::Table(_) | Rel::State(_) => {}
            Rel::Filter(f) => stack.push((f.input(), columns)),
            Rel::Map(m) => match columns.iter().map(|c| m.exprs()[*c].as_column()).collect() {
                Some(below) => stack.push((m.input(), below)),
                None => return false,
            },
            Rel::Join(j) => {
                let width = graph.schema(j.left()).len();
                let (left, right): (Vec<_>, Vec<_>) = columns.into_iter().partition(|c| *c < width);
                if !left.is_empty() && !right.is_empty() {
                    return false;
                }
                stack.push((j.left(), left));
                stack.push((j.right(), right.into_iter().map(|c| c - width).collect()));
            }
            _ => return false,
        }
    }
    true
}
