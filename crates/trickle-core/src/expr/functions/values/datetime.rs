//! Values of date and time functions: arithmetic, truncation and fields.

use super::interval::{interval, moment};
use super::{arg, float, int, mistyped, numeric, text};
use crate::error::{Error, Result};
use crate::types::calendar::{
    DAY, HOUR, MINUTE, SECOND, checked_days, civil_from_days, date_in_range, days_from_civil, in_range,
    iso_week, split, weekday,
};
use crate::types::{Datum, Interval, Numeric};
use crate::values::compare;
use num_bigint::BigInt;
use std::cmp::Ordering;

fn date(a: &[Datum], i: usize) -> Result<i32> {
    match arg(a, i) {
        Datum::Date(d) => Ok(*d),
        other => Err(mistyped(other)),
    }
}
fn time(a: &[Datum], i: usize) -> Result<i64> {
    match arg(a, i) {
        Datum::Time(t) => Ok(*t),
        other => Err(mistyped(other)),
    }
}
fn shifted(d: i32, by: i64) -> Result<Datum> {
    if d == i32::MAX || d == i32::MIN {
        return Ok(Datum::Date(d));
    }
    date_in_range(i64::from(d) + by).map(Datum::Date)
}
pub(crate) fn date_add(a: &[Datum]) -> Result<Datum> {
    shifted(date(a, 0)?, int(a, 1)?)
}
pub(crate) fn date_add_swapped(a: &[Datum]) -> Result<Datum> {
    shifted(date(a, 1)?, int(a, 0)?)
}
pub(crate) fn date_subtract(a: &[Datum]) -> Result<Datum> {
    shifted(date(a, 0)?, -int(a, 1)?)
}
pub(crate) fn days_between(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (date(a, 0)?, date(a, 1)?);
    if [x, y].iter().any(|d| *d == i32::MAX || *d == i32::MIN) {
        return Err(Error::data("22008", "cannot subtract infinite dates"));
    }
    Ok(Datum::Int(i64::from(x) - i64::from(y)))
}
pub(crate) fn time_add(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Time((time(a, 0)? + interval(a, 1)?.micros % DAY).rem_euclid(DAY)))
}
pub(crate) fn time_add_swapped(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Time((time(a, 1)? + interval(a, 0)?.micros % DAY).rem_euclid(DAY)))
}
pub(crate) fn time_subtract(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Time((time(a, 0)? - interval(a, 1)?.micros % DAY).rem_euclid(DAY)))
}
pub(crate) fn time_between(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Interval(Interval { months: 0, days: 0, micros: time(a, 0)? - time(a, 1)? }))
}

/// A unit of time, or a field of a date. SQL may have several names for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    IsoYear,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    Epoch,
    Julian,
    Zone,
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name.trim().to_ascii_lowercase().as_str() {
        "microseconds" | "microsecond" | "us" | "usec" | "usecs" => Unit::Microsecond,
        "milliseconds" | "millisecond" | "ms" | "msec" | "msecs" => Unit::Millisecond,
        "second" | "seconds" | "sec" | "secs" | "s" => Unit::Second,
        "minute" | "minutes" | "min" | "mins" | "m" => Unit::Minute,
        "hour" | "hours" | "hr" | "hrs" | "h" => Unit::Hour,
        "day" | "days" | "d" => Unit::Day,
        "week" | "weeks" | "w" => Unit::Week,
        "month" | "months" | "mon" | "mons" => Unit::Month,
        "quarter" | "qtr" => Unit::Quarter,
        "year" | "years" | "yr" | "yrs" | "y" => Unit::Year,
        "decade" | "decades" | "dec" | "decs" => Unit::Decade,
        "century" | "centuries" | "cent" | "c" => Unit::Century,
        "millennium" | "millennia" | "mil" | "mils" => Unit::Millennium,
        "isoyear" => Unit::IsoYear,
        "dow" => Unit::DayOfWeek,
        "isodow" => Unit::IsoDayOfWeek,
        "doy" => Unit::DayOfYear,
        "epoch" => Unit::Epoch,
        "julian" => Unit::Julian,
        "timezone" | "timezone_hour" | "timezone_minute" => Unit::Zone,
        _ => return None,
    })
}

fn named_unit(a: &[Datum], ty: &str) -> Result<Unit> {
    let name = text(a, 0)?;
    unit(name).ok_or_else(|| {
        Error::data("22023", format!("unit \"{}\" not recognized for type {ty}", name.to_ascii_lowercase()))
    })
}

fn unsupported(a: &[Datum], ty: &str) -> Error {
    let name = text(a, 0).unwrap_or_default().to_ascii_lowercase();
    Error::data("0A000", format!("unit \"{name}\" not supported for type {ty}"))
}

const TIMESTAMP: &str = "timestamp without time zone";

/// Returns `date_trunc(unit, timestamp)`.
pub(crate) fn truncate(a: &[Datum]) -> Result<Datum> {
    let (unit, t) = (named_unit(a, TIMESTAMP)?, moment(a, 1)?);
    if t == i64::MAX || t == i64::MIN {
        return Ok(Datum::Timestamp(t));
    }
    let (days, _) = split(t);
    let (y, m, _) = civil_from_days(days);
    let floor = |step: i64| t - t.rem_euclid(step);
    let start = |y: i64, m: i64| in_range(i128::from(days_from_civil(y, m, 1)) * i128::from(DAY));
    Ok(Datum::Timestamp(match unit {
        Unit::Microsecond => t,
        Unit::Millisecond => floor(1000),
        Unit::Second => floor(SECOND),
        Unit::Minute => floor(MINUTE),
        Unit::Hour => floor(HOUR),
        Unit::Day => floor(DAY),
        Unit::Week => in_range(i128::from(days - (weekday(days) + 6) % 7) * i128::from(DAY))?,
        Unit::Month => start(y, m)?,
        Unit::Quarter => start(y, (m - 1) / 3 * 3 + 1)?,
        Unit::Year => start(y, 1)?,
        Unit::Decade => start(y.div_euclid(10) * 10, 1)?,
        Unit::Century => start((y + 99).div_euclid(100) * 100 - 99, 1)?,
        Unit::Millennium => start((y + 999).div_euclid(1000) * 1000 - 999, 1)?,
        _ => return Err(unsupported(a, TIMESTAMP)),
    }))
}

/// Returns `date_trunc(unit, interval)`.
pub(crate) fn truncate_interval(a: &[Datum]) -> Result<Datum> {
    let (unit, i) = (named_unit(a, "interval")?, interval(a, 1)?);
    let months = |step: i32| Interval { months: i.months / step * step, days: 0, micros: 0 };
    let micros = |step: i64| Interval { micros: i.micros / step * step, ..i };
    Ok(Datum::Interval(match unit {
        Unit::Microsecond => i,
        Unit::Millisecond => micros(1000),
        Unit::Second => micros(SECOND),
        Unit::Minute => micros(MINUTE),
        Unit::Hour => micros(HOUR),
        Unit::Day => Interval { micros: 0, ..i },
        Unit::Month => months(1),
        Unit::Quarter => months(3),
        Unit::Year => months(12),
        Unit::Decade => months(120),
        Unit::Century => months(1200),
        Unit::Millennium => months(12_000),
        _ => return Err(unsupported(a, "interval")),
    }))
}

/// Returns a number of microseconds in units of `10^scale` microseconds, with `scale` fractional digits.
fn fraction(micros: i128, scale: u16) -> Numeric {
    Numeric::Finite { unscaled: BigInt::from(micros), scale }
}

/// Returns a field that is smaller than a minute. Timestamps, times and intervals all have these fields.
fn within_minute(unit: Unit, micros: i64) -> Option<Numeric> {
    let part = micros % MINUTE;
    Some(match unit {
        Unit::Microsecond => Numeric::from(part),
        Unit::Millisecond => fraction(part.into(), 3),
        Unit::Second => fraction(part.into(), 6),
        Unit::Minute => Numeric::from(micros % HOUR / MINUTE),
        Unit::Hour => Numeric::from(micros / HOUR),
        _ => return None,
    })
}

/// Returns a field of the date of a day. Returns `None` for a unit that is not such a field.
fn of_day(unit: Unit, days: i64) -> Option<i64> {
    let (y, m, d) = civil_from_days(days);
    // There is no year 0. The year before year 1 is −1, its century is −1, and its millennium is −1.
    let era = |n: i64| if y > 0 { (y + n - 1) / n } else { -((n - y) / n) };
    Some(match unit {
        Unit::Day => d,
        Unit::Month => m,
        Unit::Quarter => (m - 1) / 3 + 1,
        Unit::Week => iso_week(days).1,
        Unit::Year => {
            if y > 0 {
                y
            } else {
                y - 1
            }
        }
        Unit::IsoYear => {
            let (year, _) = iso_week(days);
            if year > 0 { year } else { year - 1 }
        }
        Unit::Decade => y.div_euclid(10),
        Unit::Century => era(100),
        Unit::Millennium => era(1000),
        Unit::DayOfWeek => weekday(days),
        Unit::IsoDayOfWeek => (weekday(days) + 6) % 7 + 1,
        Unit::DayOfYear => days - days_from_civil(y, 1, 1) + 1,
        Unit::Julian => days + 2_451_545,
        _ => return None,
    })
}

/// Returns a field of an infinite date. The value is infinite for a field that grows without bound, and NULL
/// for any other field.
fn of_infinity(unit: Unit, positive: bool) -> Datum {
    match unit {
        Unit::Year
        | Unit::IsoYear
        | Unit::Decade
        | Unit::Century
        | Unit::Millennium
        | Unit::Epoch
        | Unit::Julian => numeric(if positive { Numeric::Infinity } else { Numeric::NegInfinity }),
        _ => Datum::Null,
    }
}

/// Seconds from 1970-01-01 to 2000-01-01.
const UNIX_TO_2000: i64 = 946_684_800;

/// Returns `extract(field from timestamp)`, with and without time zone.
pub(crate) fn extract(a: &[Datum]) -> Result<Datum> {
    let (unit, t) = (named_unit(a, TIMESTAMP)?, moment(a, 1)?);
    if t == i64::MAX || t == i64::MIN {
        return Ok(of_infinity(unit, t > 0));
    }
    let (days, micros) = split(t);
    if let Some(field) = within_minute(unit, micros) {
        return Ok(numeric(field));
    }
    Ok(numeric(match unit {
        Unit::Epoch => fraction(i128::from(t) + i128::from(UNIX_TO_2000) * i128::from(SECOND), 6),
        Unit::Julian => {
            Numeric::from(days + 2_451_545).add(&Numeric::from(micros).divide(&Numeric::from(DAY))?)?
        }
        Unit::Zone => Numeric::from(0),
        _ => Numeric::from(of_day(unit, days).ok_or_else(|| unsupported(a, TIMESTAMP))?),
    }))
}

/// Returns `extract(field from date)`.
pub(crate) fn extract_date(a: &[Datum]) -> Result<Datum> {
    let (unit, d) = (named_unit(a, "date")?, date(a, 1)?);
    if (d == i32::MAX || d == i32::MIN) && (unit == Unit::Epoch || of_day(unit, 0).is_some()) {
        return Ok(of_infinity(unit, d > 0));
    }
    let days = i64::from(d);
    Ok(numeric(Numeric::from(match unit {
        Unit::Epoch => days * (DAY / SECOND) + UNIX_TO_2000,
        _ => of_day(unit, days).ok_or_else(|| unsupported(a, "date"))?,
    })))
}

/// Returns `extract(field from time)`.
pub(crate) fn extract_time(a: &[Datum]) -> Result<Datum> {
    let (unit, t) = (named_unit(a, "time without time zone")?, time(a, 1)?);
    let field = match unit {
        Unit::Epoch => Some(fraction(t.into(), 6)),
        _ => within_minute(unit, t),
    };
    field.map(numeric).ok_or_else(|| unsupported(a, "time without time zone"))
}

/// Returns `extract(field from interval)`.
pub(crate) fn extract_interval(a: &[Datum]) -> Result<Datum> {
    let (unit, i) = (named_unit(a, "interval")?, interval(a, 1)?);
    if let Some(field) = within_minute(unit, i.micros) {
        return Ok(numeric(field));
    }
    let years = i64::from(i.months / 12);
    Ok(numeric(match unit {
        Unit::Day => Numeric::from(i64::from(i.days)),
        Unit::Month => Numeric::from(i64::from(i.months % 12)),
        Unit::Quarter => Numeric::from(i64::from(i.months % 12 / 3) + 1),
        Unit::Year => Numeric::from(years),
        Unit::Decade => Numeric::from(years / 10),
        Unit::Century => Numeric::from(years / 100),
        Unit::Millennium => Numeric::from(years / 1000),
        Unit::Epoch => {
            // A year counts as 365.25 days, and a month as 30 days.
            let days = i64::from(i.months % 12) * 30 + i64::from(i.days);
            let seconds = i128::from(years) * 31_557_600 + i128::from(days) * 86_400;
            fraction(seconds * i128::from(SECOND) + i128::from(i.micros), 6)
        }
        _ => return Err(unsupported(a, "interval")),
    }))
}

/// Converts the result of `extract` to the floating-point result of `date_part`.
fn as_float(d: Datum) -> Datum {
    match d {
        Datum::Numeric(n) => Datum::Float(n.to_f64()),
        other => other,
    }
}
pub(crate) fn part(a: &[Datum]) -> Result<Datum> {
    extract(a).map(as_float)
}
pub(crate) fn part_time(a: &[Datum]) -> Result<Datum> {
    extract_time(a).map(as_float)
}
pub(crate) fn part_interval(a: &[Datum]) -> Result<Datum> {
    extract_interval(a).map(as_float)
}

pub(crate) fn make_date(a: &[Datum]) -> Result<Datum> {
    let (y, m, d) = (int(a, 0)?, int(a, 1)?, int(a, 2)?);
    let bad = || Error::data("22008", format!("date field value out of range: {y}-{m:02}-{d:02}"));
    if y == 0 {
        return Err(bad());
    }
    let days = checked_days(if y < 0 { y + 1 } else { y }, m, d).ok_or_else(bad)?;
    date_in_range(days).map(Datum::Date).map_err(|_| bad())
}

/// Returns `to_timestamp(seconds since 1970)`.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
pub(crate) fn to_timestamp(a: &[Datum]) -> Result<Datum> {
    let x = float(a, 0)?;
    if x.is_infinite() {
        return Ok(Datum::Timestamp(if x > 0.0 { i64::MAX } else { i64::MIN }));
    }
    if x.is_nan() {
        return Err(Error::data("22008", "timestamp cannot be NaN"));
    }
    let micros = ((x - UNIX_TO_2000 as f64) * 1e6).round_ties_even();
    in_range(micros as i128).map(Datum::Timestamp)
}
pub(crate) fn is_finite(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Bool(!matches!(
        arg(a, 0),
        Datum::Date(i32::MIN | i32::MAX) | Datum::Timestamp(i64::MIN | i64::MAX)
    )))
}

/// Returns `(a, b) OVERLAPS (c, d)` for points in time, by the rules of SQL-92
/// (src/backend/utils/adt/timestamp.c). The earlier end of a period is its start. If one end is NULL, the
/// other end is the start. The result is NULL if it depends on the unknown value of an end that is NULL.
pub(crate) fn overlaps(a: &[Datum]) -> Result<Datum> {
    let less = |x: &Datum, y: &Datum| compare(x, y).is_lt();
    let period = |from: usize| match (arg(a, from), arg(a, from + 1)) {
        (Datum::Null, Datum::Null) => None,
        (Datum::Null, end) | (end, Datum::Null) => Some((end, &Datum::Null)),
        (start, end) if less(end, start) => Some((end, start)),
        ends => Some(ends),
    };
    let (Some((s1, e1)), Some((s2, e2))) = (period(0), period(2)) else { return Ok(Datum::Null) };
    // The two periods overlap if the period that starts first ends after the start of the other.
    let (first_end, second) = match compare(s1, s2) {
        Ordering::Greater => (e2, (s1, e1)),
        Ordering::Less => (e1, (s2, e2)),
        Ordering::Equal => {
            let open = e1.is_null() || e2.is_null();
            return Ok(if open { Datum::Null } else { Datum::Bool(true) });
        }
    };
    Ok(match (first_end, second) {
        (Datum::Null, _) => Datum::Null,
        (end, (start, _)) if less(start, end) => Datum::Bool(true),
        (_, (_, Datum::Null)) => Datum::Null,
        _ => Datum::Bool(false),
    })
}

/// Rounds a time to the number of fractional digits in the modifier of a type. Halves are rounded away from
/// zero. For an interval, the fields below the last field in the modifier are set to 0.
pub(crate) fn rounded(a: &[Datum]) -> Result<Datum> {
    let digits = u32::try_from(int(a, 1)? & 0xFFFF).unwrap_or(6).min(6);
    let unit = 10_i64.pow(6 - digits);
    let round = |t: i64| {
        let away = t.abs() + unit / 2;
        (away - away % unit) * t.signum()
    };
    Ok(match arg(a, 0) {
        Datum::Timestamp(t) if *t != i64::MAX && *t != i64::MIN => Datum::Timestamp(round(*t)),
        Datum::Time(t) => Datum::Time(round(*t)),
        Datum::Interval(i) => {
            let i = cut(*i, int(a, 1)? >> 16)?;
            Datum::Interval(Interval { micros: round(i.micros), ..i })
        }
        other => other.clone(),
    })
}

/// Sets the fields below the last field of `fields` to 0. `fields` has a bit for each field (`INTERVAL_MASK`
/// in PostgreSQL's `utils/timestamp.h`).
fn cut(i: Interval, fields: i64) -> Result<Interval> {
    let has = |bit: u32| fields & (1 << bit) != 0;
    let Interval { months, micros, .. } = i;
    // An interval is infinite if all its fields have the greatest value, or all have the least value.
    if (i.months, i.days) == (i32::MAX, i32::MAX) || (i.months, i.days) == (i32::MIN, i32::MIN) {
        return Ok(i);
    }
    if has(12) {
        Ok(i)
    } else if has(11) {
        Ok(Interval { micros: micros - micros % MINUTE, ..i })
    } else if has(10) {
        Ok(Interval { micros: micros - micros % HOUR, ..i })
    } else if has(3) {
        Ok(Interval { micros: 0, ..i })
    } else if has(1) {
        Ok(Interval { months, days: 0, micros: 0 })
    } else if has(2) {
        Ok(Interval { months: months - months % 12, days: 0, micros: 0 })
    } else {
        Err(Error::data("XX000", format!("unrecognized interval typmod: {fields}")))
    }
}
