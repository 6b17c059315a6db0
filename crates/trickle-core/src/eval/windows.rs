//! Evaluates window functions over the ordered rows of a partition (PostgreSQL manual, 9.22 and "Window
//! Function Calls").

use super::{Row, aggregates, call, expr};
use crate::error::{Error, Result};
use crate::expr::functions::resolve_operator;
use crate::graph::Schema;
use crate::types::{Datum, Type};
use crate::values::compare_as;
use crate::window::{Bound, Exclusion, OrderKey, Units, WindowCall};
use std::cmp::Ordering;

/// Returns the rows of a partition in the order of the keys, each row as often as its weight. Rows with equal
/// keys are in structural order.
pub(crate) fn ordered<'a>(rows: &[(&'a Row, i64)], keys: &[OrderKey], schema: &Schema) -> Vec<&'a Row> {
    let mut all: Vec<&Row> = Vec::new();
    for (row, w) in rows {
        all.extend((0..*w).map(|_| *row));
    }
    all.sort_by(|a, b| by_keys(keys, schema, a, b).then_with(|| a.cmp(b)));
    all
}

fn by_keys(keys: &[OrderKey], schema: &Schema, a: &Row, b: &Row) -> Ordering {
    let order = |k: &OrderKey| {
        let (x, y) = (&a[k.column], &b[k.column]);
        match (x.is_null(), y.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if k.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if k.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let ty = schema.column(k.column).map_or(&Type::Text, |c| &c.ty);
                let up = compare_as(ty, x, y);
                if k.descending { up.reverse() } else { up }
            }
        }
    };
    keys.iter().map(order).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

/// Whether two rows are equal in all order keys.
pub(crate) fn are_peers(keys: &[OrderKey], schema: &Schema, a: &Row, b: &Row) -> bool {
    by_keys(keys, schema, a, b).is_eq()
}

/// A partition for which one call is computed.
struct Partition<'a> {
    rows: &'a [&'a Row],
    keys: &'a [OrderKey],
    schema: &'a Schema,
    /// For each row, the number of the row's peer group.
    groups: Vec<usize>,
}

/// Returns the value of a call for each of the ordered rows of a partition.
///
/// # Errors
/// Fails if an expression of the call raises an error, or if the function refuses an argument.
pub(crate) fn over(
    window: &WindowCall,
    rows: &[&Row],
    keys: &[OrderKey],
    schema: &Schema,
) -> Result<Vec<Datum>> {
    let mut groups = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        let group = match i.checked_sub(1) {
            None => 0,
            Some(before) => groups[before] + usize::from(by_keys(keys, schema, rows[before], row).is_ne()),
        };
        groups.push(group);
    }
    let partition = Partition { rows, keys, schema, groups };
    (0..rows.len()).map(|i| partition.value(window, i)).collect()
}

impl Partition<'_> {
    fn value(&self, window: &WindowCall, i: usize) -> Result<Datum> {
        if !window.is_window_function() {
            let frame: Vec<(&Row, i64)> =
                self.frame(window, i)?.into_iter().map(|j| (self.rows[j], 1)).collect();
            return aggregates::over(&window.call, &frame);
        }
        let arg = |n: usize, row: usize| window.call.args.get(n).map(|e| expr(e, self.rows[row])).transpose();
        let peers = |i: usize| self.groups.iter().enumerate().filter(move |(_, g)| **g == self.groups[i]);
        match &*window.call.sig.name {
            "row_number" => integer(i + 1),
            "rank" => integer(peers(i).next().map_or(0, |(first, _)| first) + 1),
            "dense_rank" => integer(self.groups[i] + 1),
            "percent_rank" => {
                let first = peers(i).next().map_or(0, |(first, _)| first);
                Ok(ratio(first, self.rows.len().saturating_sub(1)))
            }
            "cume_dist" => {
                let last = peers(i).next_back().map_or(0, |(last, _)| last);
                Ok(ratio(last + 1, self.rows.len()))
            }
            "ntile" => self.bucket(arg(0, 0)?, i),
            name @ ("lag" | "lead") => {
                let by = match arg(1, i)? {
                    None => 1,
                    Some(Datum::Int(n)) => n,
                    Some(_) => return Ok(Datum::Null),
                };
                let by = if name == "lag" { by.checked_neg() } else { Some(by) };
                let at = by.and_then(|by| i64::try_from(i).ok()?.checked_add(by));
                let at = at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < self.rows.len());
                match at {
                    Some(at) => Ok(arg(0, at)?.unwrap_or(Datum::Null)),
                    None => Ok(arg(2, i)?.unwrap_or(Datum::Null)),
                }
            }
            name => {
                let frame = self.frame(window, i)?;
                let at = match (name, arg(1, i)?) {
                    ("first_value", _) => frame.first(),
                    ("last_value", _) => frame.last(),
                    ("nth_value", Some(Datum::Int(n))) => {
                        let n = usize::try_from(n).ok().filter(|n| *n > 0).ok_or_else(|| {
                            Error::data("22016", "argument of nth_value must be greater than zero")
                        })?;
                        frame.get(n - 1)
                    }
                    ("nth_value", _) => None,
                    _ => return Err(Error::plan(format!("{name} is not a window function"))),
                };
                Ok(at.map(|at| arg(0, *at)).transpose()?.flatten().unwrap_or(Datum::Null))
            }
        }
    }

    /// Returns the bucket of row `i` for `ntile`. The sizes of buckets differ by at most one row, and larger
    /// buckets come first.
    fn bucket(&self, count: Option<Datum>, i: usize) -> Result<Datum> {
        let Some(Datum::Int(n)) = count else { return Ok(Datum::Null) };
        let n = usize::try_from(n).ok().filter(|n| *n > 0);
        let n = n.ok_or_else(|| Error::data("22014", "argument of ntile must be greater than zero"))?;
        let (size, larger) = (self.rows.len() / n, self.rows.len() % n);
        let in_larger = larger * (size + 1);
        integer(if i < in_larger { i / (size + 1) } else { larger + (i - in_larger) / size.max(1) } + 1)
    }

    /// Returns the positions of the rows in the frame of row `i`, in order.
    fn frame(&self, window: &WindowCall, i: usize) -> Result<Vec<usize>> {
        let mut rows = Vec::new();
        for j in 0..self.rows.len() {
            let started = self.reaches(window.frame.units, &window.frame.start, i, j, false)?;
            let left_out = match window.frame.exclude {
                Exclusion::NoOthers => false,
                Exclusion::CurrentRow => j == i,
                Exclusion::Group => self.groups[j] == self.groups[i],
                Exclusion::Ties => j != i && self.groups[j] == self.groups[i],
            };
            if started && self.reaches(window.frame.units, &window.frame.end, i, j, true)? && !left_out {
                rows.push(j);
            }
        }
        Ok(rows)
    }

    /// Whether row `j` is at or after the start of the frame of row `i`. With `end`, whether row `j` is at or
    /// before the end of that frame.
    fn reaches(&self, units: Units, bound: &Bound, i: usize, j: usize, end: bool) -> Result<bool> {
        let offset = |e: &crate::expr::Expr, back: bool| -> Result<i64> {
            let Datum::Int(n) = expr(e, &[])? else {
                return Err(Error::data("22004", "frame offset must not be null"));
            };
            if n < 0 {
                return Err(Error::data("22013", "frame offset must not be negative"));
            }
            Ok(if back { -n } else { n })
        };
        let place = |row: usize| -> Result<i64> {
            let place = if units == Units::Groups { self.groups[row] } else { row };
            i64::try_from(place).map_err(|_| Error::internal("a partition of more rows than fit"))
        };
        let within = |by: i64| -> Result<bool> {
            let limit = place(i)?.saturating_add(by);
            Ok(if end { place(j)? <= limit } else { place(j)? >= limit })
        };
        match (bound, units) {
            (Bound::Unbounded, _) => Ok(true),
            (Bound::CurrentRow, Units::Rows) => within(0),
            (Bound::CurrentRow, _) if end => Ok(self.groups[j] <= self.groups[i]),
            (Bound::CurrentRow, _) => Ok(self.groups[j] >= self.groups[i]),
            (Bound::Preceding(e), Units::Rows | Units::Groups) => within(offset(e, true)?),
            (Bound::Following(e), Units::Rows | Units::Groups) => within(offset(e, false)?),
            (Bound::Preceding(e) | Bound::Following(e), Units::Range) => {
                self.in_range(e, matches!(bound, Bound::Preceding(_)), (i, j), end)
            }
        }
    }

    /// Like [`Partition::reaches`], for a RANGE offset in the only order key. The distance of two NULLs is 0,
    /// and the distance of NULL from any other value is infinite. A frame limit that overflows lies beyond
    /// every row.
    fn in_range(
        &self,
        by: &crate::expr::Expr,
        preceding: bool,
        (i, j): (usize, usize),
        end: bool,
    ) -> Result<bool> {
        let [key] = self.keys else {
            return Err(Error::plan("a frame by range has not exactly one order key"));
        };
        let (mine, other) = (&self.rows[i][key.column], &self.rows[j][key.column]);
        if mine.is_null() || other.is_null() {
            let (a, b) = (self.groups[j], self.groups[i]);
            return Ok(if end { a <= b } else { a >= b });
        }
        let ty = self.schema.column(key.column).map_or(Type::Text, |c| c.ty.clone());
        let back = preceding != key.descending;
        let op = if back { "-" } else { "+" };
        let sig = resolve_operator(op, &[ty.clone(), by.ty().clone()])
            .ok_or_else(|| Error::plan(format!("no range over {ty} {op} {}", by.ty())))?;
        let limit = match call(&sig, &[mine.clone(), expr(by, &[])?]) {
            Ok(limit) => limit,
            Err(_) => return Ok(preceding != end),
        };
        let order = compare_as(&ty, other, &limit);
        let order = if key.descending { order.reverse() } else { order };
        Ok(if end { order.is_le() } else { order.is_ge() })
    }
}

fn integer(n: usize) -> Result<Datum> {
    i64::try_from(n).map(Datum::Int).map_err(|_| Error::internal("a partition of more rows than fit"))
}

/// Returns `n / of`; 0 if `of` is 0.
#[allow(clippy::cast_precision_loss)]
fn ratio(n: usize, of: usize) -> Datum {
    Datum::Float(if of == 0 { 0.0 } else { n as f64 / of as f64 })
}
