//! Evaluates aggregates over the rows of a group.

use super::group::shown_first;
use super::{Row, compare, compare_as, expr, is_true, opaque};
use crate::agg::{Acc, AggCall, family};
use crate::error::{Error, Result};
use crate::expr::{Expr, functions};
use crate::types::{Datum, Interval, Numeric, Type};
use std::cmp::Ordering;
use std::sync::Arc;

/// Returns the value of a call over the rows of one group, each with its positive weight.
///
/// A call without ORDER BY reads the rows in structural order. An aggregate that depends on the order thus
/// has exactly one value in the evaluator, though PostgreSQL leaves the value open.
///
/// # Errors
/// The errors that the arguments raise on rows that pass FILTER, and the errors that the aggregate raises.
pub fn over(call: &AggCall, rows: &[(&Row, i64)]) -> Result<Datum> {
    let mut found: Vec<(Vec<Datum>, Vec<Datum>, i64)> = Vec::new();
    for (row, w) in rows {
        if let Some(filter) = &call.filter
            && !is_true(filter, row)?
        {
            continue;
        }
        let args = call.args.iter().map(|a| expr(a, row)).collect::<Result<Vec<_>>>()?;
        let keys = call.order_by.iter().map(|k| expr(&k.expr, row)).collect::<Result<Vec<_>>>()?;
        found.push((args, keys, *w));
    }
    if call.distinct {
        // PostgreSQL sorts to find duplicates, so DISTINCT without ORDER BY still returns the values in
        // order.
        let types: Vec<&Type> = call.args.iter().map(Expr::ty).collect();
        let order = |a: &[Datum], b: &[Datum]| {
            let values = types.iter().zip(a.iter().zip(b));
            values.map(|(ty, (a, b))| compare_as(ty, a, b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        };
        let shown = |a: &[Datum], b: &[Datum]| shown_first(types.iter().copied(), (a, 1), (b, 1));
        found.sort_by(|a, b| order(&a.0, &b.0).then_with(|| shown(&a.0, &b.0)));
        found.dedup_by(|a, b| order(&a.0, &b.0).is_eq());
        found.iter_mut().for_each(|f| f.2 = 1);
    }
    if !call.order_by.is_empty() {
        let types: Vec<&Type> = call.order_by.iter().map(|k| k.expr.ty()).collect();
        let shown = |a: &[Datum], b: &[Datum]| shown_first(types.iter().copied(), (a, 1), (b, 1));
        let order = |a: &[Datum], b: &[Datum]| by_keys(call, a, b);
        found.sort_by(|a, b| order(&a.1, &b.1).then_with(|| shown(&a.1, &b.1)).then_with(|| a.0.cmp(&b.0)));
        if call.within_group {
            for equal in found.chunk_by_mut(|a, b| order(&a.1, &b.1).is_eq()) {
                let least = equal[0].1.clone();
                equal.iter_mut().for_each(|f| f.1.clone_from(&least));
            }
        }
    }
    let mut values = Vec::with_capacity(found.len());
    for (mut args, keys, w) in found {
        if call.within_group {
            args.extend(keys);
        }
        for _ in 1..w {
            values.push(args.clone());
        }
        values.push(args);
    }
    family(&call.sig).value(call, &values)
}

/// Compares two rows by the sort keys of a call.
pub(crate) fn by_keys(call: &AggCall, a: &[Datum], b: &[Datum]) -> Ordering {
    for (key, (x, y)) in call.order_by.iter().zip(a.iter().zip(b)) {
        let order = match (x.is_null(), y.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if key.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if key.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if key.descending => compare_as(key.expr.ty(), y, x),
            (false, false) => compare_as(key.expr.ty(), x, y),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Returns `Σ weight × value` of an accumulator over weighted rows; 0 if no row has a value.
///
/// # Errors
/// The errors that the accumulator's expressions raise, and overflow of the sum (22003).
pub fn total(acc: &Acc, rows: &[(&Row, i64)]) -> Result<Datum> {
    let overflow = || Error::data("22003", "bigint out of range");
    let mut count: i64 = 0;
    let mut sum = match acc.zero() {
        Datum::Numeric(zero) => Numeric::clone(&zero),
        _ => Numeric::from(0),
    };
    for (row, w) in rows {
        if let Some(filter) = &acc.filter
            && !is_true(filter, row)?
        {
            continue;
        }
        let value = match &acc.value {
            Some(value) => expr(value, row)?,
            None => Datum::Int(1),
        };
        match (value, &acc.ty) {
            (Datum::Null, _) => {}
            (Datum::Int(v), Type::Int8) => {
                count = v.checked_mul(*w).and_then(|v| count.checked_add(v)).ok_or_else(overflow)?;
            }
            (Datum::Int(v), _) => sum = sum.add(&Numeric::from(v).multiply(&Numeric::from(*w))?)?,
            (Datum::Numeric(v), _) => sum = sum.add(&v.multiply(&Numeric::from(*w))?)?,
            (other, ty) => return Err(Error::plan(format!("an accumulator of type {ty} met {other}"))),
        }
    }
    Ok(if acc.ty == Type::Int8 { Datum::Int(count) } else { Datum::Numeric(Arc::new(sum)) })
}

/// Whether an accumulator's value is 0.
pub fn is_zero(value: &Datum) -> bool {
    compare(value, &Datum::Int(0)).is_eq()
}

fn numeric(n: Numeric) -> Datum {
    Datum::Numeric(Arc::new(n))
}

fn present(rows: &[Vec<Datum>]) -> impl Iterator<Item = &Datum> {
    rows.iter().filter_map(|r| r.first()).filter(|d| !d.is_null())
}

/// Returns the sum of integers and numerics, as a numeric, and the number of values; `None` without values.
fn numeric_sum(rows: &[Vec<Datum>]) -> Result<Option<(Numeric, i64)>> {
    let mut sum: Option<(Numeric, i64)> = None;
    for value in present(rows) {
        let value = match value {
            Datum::Int(i) => Numeric::from(*i),
            Datum::Numeric(n) => Numeric::clone(n),
            other => return Err(Error::plan(format!("a numeric sum met {other}"))),
        };
        sum = Some(match sum {
            None => (value, 1),
            Some((s, n)) => (s.add(&value)?, n + 1),
        });
    }
    Ok(sum)
}

/// Returns the sum of floats and their number. The floats are added to `start` in order, as by PostgreSQL.
/// Overflow of finite values raises.
fn float_sum(rows: &[Vec<Datum>], start: f64, single: bool) -> Result<Option<(f64, i64)>> {
    let (mut sum, mut n, mut special) = (start, 0_i64, false);
    for value in present(rows) {
        let Datum::Float(x) = value else { return Err(Error::plan(format!("a float sum met {value}"))) };
        special |= !x.is_finite();
        sum = if single { round_single(sum + x) } else { sum + x };
        n += 1;
        if sum.is_infinite() && !special {
            return Err(Error::data("22003", "value out of range: overflow"));
        }
    }
    Ok((n > 0).then_some((sum, n)))
}

#[allow(clippy::cast_possible_truncation)]
fn round_single(x: f64) -> f64 {
    f64::from(x as f32)
}

fn interval_sum(rows: &[Vec<Datum>]) -> Result<Option<(Interval, i64)>> {
    let overflow = || Error::data("22008", "interval out of range");
    let mut sum: Option<(Interval, i64)> = None;
    for value in present(rows) {
        let Datum::Interval(i) = value else {
            return Err(Error::plan(format!("an interval sum met {value}")));
        };
        let (s, n) = sum.unwrap_or((Interval { months: 0, days: 0, micros: 0 }, 0));
        let total = Interval {
            months: s.months.checked_add(i.months).ok_or_else(overflow)?,
            days: s.days.checked_add(i.days).ok_or_else(overflow)?,
            micros: s.micros.checked_add(i.micros).ok_or_else(overflow)?,
        };
        sum = Some((total, n + 1));
    }
    Ok(sum)
}

/// Returns `sum` over the first argument, which has type `ty`. The sum of `smallint` and `integer` is a
/// `bigint`, and the sum of `bigint` and `numeric` is a `numeric`.
///
/// # Errors
/// Overflow.
pub fn sum(ty: &Type, rows: &[Vec<Datum>]) -> Result<Datum> {
    Ok(match ty {
        Type::Int2 | Type::Int4 => match numeric_sum(rows)? {
            Some((sum, _)) => Datum::Int(sum.to_integer(64, "bigint")?),
            None => Datum::Null,
        },
        Type::Float4 | Type::Float8 => {
            // PostgreSQL's sum starts with the first value, so the sum of −0 alone is −0. Starting from −0
            // gives this result, starting from 0 does not.
            float_sum(rows, -0.0, *ty == Type::Float4)?.map_or(Datum::Null, |(sum, _)| Datum::Float(sum))
        }
        Type::Interval => interval_sum(rows)?.map_or(Datum::Null, |(sum, _)| Datum::Interval(sum)),
        _ => numeric_sum(rows)?.map_or(Datum::Null, |(sum, _)| numeric(sum)),
    })
}

/// Returns `avg` over the first argument, which has type `ty`.
///
/// # Errors
/// Overflow.
pub fn average(ty: &Type, rows: &[Vec<Datum>]) -> Result<Datum> {
    match ty {
        Type::Float4 | Type::Float8 => {
            #[allow(clippy::cast_precision_loss)]
            let quotient = |(sum, n): (f64, i64)| Datum::Float(sum / n as f64);
            Ok(float_sum(rows, 0.0, false)?.map_or(Datum::Null, quotient))
        }
        Type::Interval => match interval_sum(rows)? {
            #[allow(clippy::cast_precision_loss)]
            Some((sum, n)) => functions::divide_interval(sum, n as f64).map(Datum::Interval),
            None => Ok(Datum::Null),
        },
        _ => match numeric_sum(rows)? {
            Some((sum, n)) => Ok(numeric(sum.divide(&Numeric::from(n))?)),
            None => Ok(Datum::Null),
        },
    }
}

/// Returns the value of `array_agg`, `string_agg` or `any_value`.
pub fn collected(call: &AggCall, rows: &[Vec<Datum>]) -> Datum {
    match &*call.sig.name {
        "string_agg" => joined(rows),
        "any_value" => present(rows).next().cloned().unwrap_or(Datum::Null),
        _ if rows.is_empty() => Datum::Null,
        _ => Datum::Array(rows.iter().map(|r| r[0].clone()).collect()),
    }
}

/// Returns a stand-in for the value of an aggregate that the evaluator does not know. Equal rows give equal
/// stand-ins.
pub fn opaque(call: &AggCall, rows: &[Vec<Datum>]) -> Datum {
    let mut args: Vec<Datum> = rows.iter().map(|r| Datum::Record(r.as_slice().into())).collect();
    if call.order_by.is_empty() {
        args.sort();
    }
    opaque::value(&call.sig, &args)
}

/// Joins texts. Each text except the first is preceded by the delimiter of its own row. NULL texts are
/// skipped, and a NULL delimiter counts as empty.
fn joined(rows: &[Vec<Datum>]) -> Datum {
    let mut out: Option<String> = None;
    for row in rows {
        let Datum::Text(text) = &row[0] else { continue };
        match (&mut out, &row[1]) {
            (None, _) => out = Some(text.to_string()),
            (Some(out), Datum::Text(delimiter)) => {
                out.push_str(delimiter);
                out.push_str(text);
            }
            (Some(out), _) => out.push_str(text),
        }
    }
    out.map_or(Datum::Null, Datum::text)
}
