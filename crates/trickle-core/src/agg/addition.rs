//! The values of sums and means over the rows of a group.

use crate::error::{Error, Result};
use crate::expr::functions;
use crate::types::{Datum, Interval, Numeric, Type};
use std::sync::Arc;

fn numeric(n: Numeric) -> Datum {
    Datum::Numeric(Arc::new(n))
}

/// Returns the values of the first argument that are not NULL.
pub(super) fn present(rows: &[Vec<Datum>]) -> impl Iterator<Item = &Datum> {
    rows.iter().filter_map(|r| r.first()).filter(|d| !d.is_null())
}

/// Returns the sum of integers and numerics, as a numeric, and the number of values. Returns `None` if there
/// are no values.
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

/// Returns the sum of floats and their number. The floats are added to `start` in order, as in PostgreSQL. An
/// overflow of finite values is an error.
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
/// Fails if the sum overflows.
pub(super) fn sum(ty: &Type, rows: &[Vec<Datum>]) -> Result<Datum> {
    Ok(match ty {
        Type::Int2 | Type::Int4 => match numeric_sum(rows)? {
            Some((sum, _)) => Datum::Int(sum.to_integer(64, "bigint")?),
            None => Datum::Null,
        },
        Type::Float4 | Type::Float8 => {
            // PostgreSQL's sum starts with the first value, so the sum of −0 alone is −0. Starting from −0
            // gives this result; starting from 0 does not.
            float_sum(rows, -0.0, *ty == Type::Float4)?.map_or(Datum::Null, |(sum, _)| Datum::Float(sum))
        }
        Type::Interval => interval_sum(rows)?.map_or(Datum::Null, |(sum, _)| Datum::Interval(sum)),
        _ => numeric_sum(rows)?.map_or(Datum::Null, |(sum, _)| numeric(sum)),
    })
}

/// Returns `avg` over the first argument, which has type `ty`.
///
/// # Errors
/// Fails if the sum overflows.
pub(super) fn average(ty: &Type, rows: &[Vec<Datum>]) -> Result<Datum> {
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
