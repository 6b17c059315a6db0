//! Values of functions on intervals, and of sums of timestamps and intervals. The session's time zone is UTC,
//! where every day has 24 hours.

use super::{arg, float, int, mistyped};
use crate::error::{Error, Result};
use crate::types::calendar::{
    DAY, civil_from_days, days_from_civil, in_range, midnight, month_length, split,
};
use crate::types::{Datum, Interval};

pub(super) fn overflow() -> Error {
    Error::data("22008", "interval out of range")
}

pub(super) fn interval(a: &[Datum], i: usize) -> Result<Interval> {
    match arg(a, i) {
        Datum::Interval(v) => Ok(*v),
        // PostgreSQL casts a time to an interval implicitly.
        Datum::Time(t) => Ok(Interval { months: 0, days: 0, micros: *t }),
        other => Err(mistyped(other)),
    }
}

/// Returns a timestamp argument; a date counts as its midnight.
pub(super) fn moment(a: &[Datum], i: usize) -> Result<i64> {
    match arg(a, i) {
        Datum::Timestamp(t) => Ok(*t),
        Datum::Date(d) => midnight(*d),
        other => Err(mistyped(other)),
    }
}

fn opposite(i: Interval) -> Result<Interval> {
    Ok(Interval {
        months: i.months.checked_neg().ok_or_else(overflow)?,
        days: i.days.checked_neg().ok_or_else(overflow)?,
        micros: i.micros.checked_neg().ok_or_else(overflow)?,
    })
}

/// Moves a timestamp by an interval. The timestamp moves first by months, with the day limited to the length
/// of the new month, then by days, then by microseconds.
fn moved(t: i64, by: Interval) -> Result<i64> {
    if t == i64::MAX || t == i64::MIN {
        return Ok(t);
    }
    let (mut days, micros) = split(t);
    if by.months != 0 {
        let (y, m, d) = civil_from_days(days);
        let months = y * 12 + (m - 1) + i64::from(by.months);
        let (y, m) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        days = days_from_civil(y, m, d.min(month_length(y, m)));
    }
    let days = i128::from(days) + i128::from(by.days);
    in_range(days * i128::from(DAY) + i128::from(micros) + i128::from(by.micros))
}

pub(crate) fn later(a: &[Datum]) -> Result<Datum> {
    moved(moment(a, 0)?, interval(a, 1)?).map(Datum::Timestamp)
}
pub(crate) fn later_swapped(a: &[Datum]) -> Result<Datum> {
    moved(moment(a, 1)?, interval(a, 0)?).map(Datum::Timestamp)
}
pub(crate) fn earlier(a: &[Datum]) -> Result<Datum> {
    moved(moment(a, 0)?, opposite(interval(a, 1)?)?).map(Datum::Timestamp)
}

/// Returns `(a, b) OVERLAPS (c, d)`. Instead of an end, `b` or `d` may be an interval: the length of the
/// period.
pub(crate) fn overlap(a: &[Datum]) -> Result<Datum> {
    let end = |from: usize| match (arg(a, from), arg(a, from + 1)) {
        (Datum::Null, Datum::Interval(_)) => Ok(Datum::Null),
        (start, length @ Datum::Interval(_)) => later(&[start.clone(), length.clone()]),
        (_, end) => Ok(end.clone()),
    };
    super::datetime::overlaps(&[arg(a, 0).clone(), end(0)?, arg(a, 2).clone(), end(2)?])
}

fn sum(a: Interval, b: Interval) -> Result<Interval> {
    Ok(Interval {
        months: a.months.checked_add(b.months).ok_or_else(overflow)?,
        days: a.days.checked_add(b.days).ok_or_else(overflow)?,
        micros: a.micros.checked_add(b.micros).ok_or_else(overflow)?,
    })
}
pub(crate) fn add(a: &[Datum]) -> Result<Datum> {
    sum(interval(a, 0)?, interval(a, 1)?).map(Datum::Interval)
}
pub(crate) fn subtract(a: &[Datum]) -> Result<Datum> {
    sum(interval(a, 0)?, opposite(interval(a, 1)?)?).map(Datum::Interval)
}
pub(crate) fn negate(a: &[Datum]) -> Result<Datum> {
    opposite(interval(a, 0)?).map(Datum::Interval)
}

/// Applies `scale` to each part of an interval. Fractions of months become days of a 30-day month, and
/// fractions of days become seconds (`interval_mul` and `interval_div` of PostgreSQL's timestamp.c).
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn scaled(i: Interval, scale: impl Fn(f64) -> f64) -> Result<Interval> {
    let whole = |x: f64| -> Result<i32> {
        let fits = x.is_finite() && x >= f64::from(i32::MIN) && x <= f64::from(i32::MAX);
        if fits { Ok(x as i32) } else { Err(overflow()) }
    };
    let to_micro = |x: f64| (x * 1e6).round_ties_even() / 1e6;
    let (month_part, day_part) = (scale(f64::from(i.months)), scale(f64::from(i.days)));
    let (months, mut days) = (whole(month_part)?, i64::from(whole(day_part)?));
    let from_months = to_micro((month_part - f64::from(months)) * 30.0);
    let mut seconds = to_micro((day_part - days as f64 + from_months - from_months.trunc()) * 86_400.0);
    if seconds.abs() >= 86_400.0 {
        let carry = (seconds / 86_400.0).trunc();
        days += carry as i64;
        seconds -= carry * 86_400.0;
    }
    days += from_months.trunc() as i64;
    let micros = (scale(i.micros as f64) + seconds * 1e6).round_ties_even();
    if !(micros >= i64::MIN as f64 && micros < i64::MAX as f64) {
        return Err(overflow());
    }
    Ok(Interval { months, days: i32::try_from(days).map_err(|_| overflow())?, micros: micros as i64 })
}

pub(crate) fn multiply(a: &[Datum]) -> Result<Datum> {
    let factor = float(a, 1)?;
    scaled(interval(a, 0)?, |x| x * factor).map(Datum::Interval)
}
pub(crate) fn multiply_swapped(a: &[Datum]) -> Result<Datum> {
    let factor = float(a, 0)?;
    scaled(interval(a, 1)?, |x| x * factor).map(Datum::Interval)
}
pub(crate) fn divide(a: &[Datum]) -> Result<Datum> {
    quotient(interval(a, 0)?, float(a, 1)?).map(Datum::Interval)
}

/// Returns `interval / double precision`.
///
/// # Errors
/// Fails for a division by zero (22012) or an overflow (22008).
pub(crate) fn quotient(i: Interval, by: f64) -> Result<Interval> {
    if by == 0.0 {
        return Err(super::number::division_by_zero());
    }
    scaled(i, |x| x / by)
}

/// Moves whole days from the hours of an interval to its days.
fn hours_justified(i: Interval) -> Result<Interval> {
    let mut days = i64::from(i.days) + i.micros / DAY;
    let mut micros = i.micros % DAY;
    if days > 0 && micros < 0 {
        (days, micros) = (days - 1, micros + DAY);
    } else if days < 0 && micros > 0 {
        (days, micros) = (days + 1, micros - DAY);
    }
    Ok(Interval { days: i32::try_from(days).map_err(|_| overflow())?, micros, ..i })
}
/// Returns `make_interval(years, months, weeks, days, hours, mins, secs)`.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn make(a: &[Datum]) -> Result<Datum> {
    let seconds = (float(a, 6)? * 1e6).round_ties_even();
    if !seconds.is_finite() || seconds.abs() >= 9.2e18 {
        return Err(overflow());
    }
    let part = |large: usize, times: i64, small: usize| -> Result<i32> {
        i32::try_from(int(a, large)? * times + int(a, small)?).map_err(|_| overflow())
    };
    let minutes = int(a, 4)? * 60 + int(a, 5)?;
    let micros =
        minutes.checked_mul(60_000_000).and_then(|m| m.checked_add(seconds as i64)).ok_or_else(overflow)?;
    Ok(Datum::Interval(Interval { months: part(0, 12, 1)?, days: part(2, 7, 3)?, micros }))
}

pub(crate) fn justify_hours(a: &[Datum]) -> Result<Datum> {
    hours_justified(interval(a, 0)?).map(Datum::Interval)
}
pub(crate) fn justify_days(a: &[Datum]) -> Result<Datum> {
    let i = interval(a, 0)?;
    let mut months = i64::from(i.months) + i64::from(i.days / 30);
    let mut days = i.days % 30;
    if months > 0 && days < 0 {
        (months, days) = (months - 1, days + 30);
    } else if months < 0 && days > 0 {
        (months, days) = (months + 1, days - 30);
    }
    Ok(Datum::Interval(Interval { months: i32::try_from(months).map_err(|_| overflow())?, days, ..i }))
}

/// Returns `timestamp − timestamp` as days and the remaining time, never as months.
pub(crate) fn between(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (moment(a, 0)?, moment(a, 1)?);
    if [x, y].iter().any(|t| *t == i64::MAX || *t == i64::MIN) {
        return Err(Error::data("22008", "cannot subtract infinite timestamps"));
    }
    let micros = x.checked_sub(y).ok_or_else(overflow)?;
    hours_justified(Interval { months: 0, days: 0, micros }).map(Datum::Interval)
}

/// Returns `age(a, b)`: the difference in calendar years, months and days, and the remaining time.
pub(crate) fn age(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (moment(a, 0)?, moment(a, 1)?);
    if [x, y].iter().any(|t| *t == i64::MAX || *t == i64::MIN) {
        return Err(Error::data("22008", "cannot subtract infinite timestamps"));
    }
    let ((from, to), sign) = if x < y { ((x, y), -1) } else { ((y, x), 1) };
    let ((d1, t1), (d0, t0)) = (split(to), split(from));
    let ((y1, m1, day1), (y0, m0, day0)) = (civil_from_days(d1), civil_from_days(d0));
    let (mut months, mut days, mut micros) = ((y1 - y0) * 12 + m1 - m0, day1 - day0, t1 - t0);
    if micros < 0 {
        (micros, days) = (micros + DAY, days - 1);
    }
    // Borrowing a month adds the number of days in the month of the earlier moment.
    while days < 0 {
        days += month_length(y0, m0);
        months -= 1;
    }
    let small = |n: i64| i32::try_from(n * sign).map_err(|_| overflow());
    Ok(Datum::Interval(Interval { months: small(months)?, days: small(days)?, micros: micros * sign }))
}
