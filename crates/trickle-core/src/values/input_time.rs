//! Reads dates, times and intervals from text.

use crate::error::{Error, Result};
use crate::types::calendar::{DAY, HOUR, MINUTE, SECOND, checked_days, month_length};
use crate::types::{Interval, calendar};

fn bad(ty: &str, text: &str) -> Error {
    Error::data("22007", format!("invalid input syntax for type {ty}: \"{text}\""))
}

fn out_of_range(text: &str) -> Error {
    Error::data("22008", format!("date/time field value out of range: \"{text}\""))
}

/// Splits off ` BC` at the end. Returns the rest, and whether ` BC` was there.
fn era(text: &str) -> (&str, bool) {
    let t = text.trim();
    match t.len().checked_sub(3).and_then(|at| t.split_at_checked(at)) {
        Some((head, tail)) if tail.eq_ignore_ascii_case(" bc") => (head.trim_end(), true),
        _ => (t, false),
    }
}

/// Reads `infinity` or `-infinity`. Returns whether the infinity is positive. Returns `None` for any other
/// text.
fn infinity(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "infinity" | "+infinity" => Some(true),
        "-infinity" => Some(false),
        _ => None,
    }
}

fn number(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) { None } else { text.parse().ok() }
}

/// Returns the day of `year-month-day`. Returns `None` for a text in another format, and the inner error for
/// a date that does not exist.
fn day(text: &str, bc: bool, whole: &str) -> Option<Result<i64>> {
    let mut parts = text.splitn(3, '-').map(number);
    let (y, m, d) = (parts.next()??, parts.next()??, parts.next()??);
    let year = if bc { 1 - y } else { y };
    if y == 0 || !(1..=12).contains(&m) || d < 1 || d > month_length(year, m) {
        return Some(Err(out_of_range(whole)));
    }
    Some(checked_days(year, m, d).ok_or_else(|| out_of_range(whole)))
}

/// Returns the microseconds of `h:m[:s[.f]]`. Returns `None` for a text in another format, and the inner
/// error for a time that does not exist.
fn clock(text: &str, whole: &str) -> Option<Result<i64>> {
    let mut parts = text.splitn(3, ':');
    let (h, m) = (number(parts.next()?)?, number(parts.next()?)?);
    let s = parts.next().map_or(Some(0), seconds)?;
    let micros = h.checked_mul(HOUR)?.checked_add(m * MINUTE)?.checked_add(s)?;
    let fits = m < 60 && s <= MINUTE && micros <= DAY;
    Some(if fits { Ok(micros) } else { Err(out_of_range(whole)) })
}

/// Returns the microseconds of `s[.f]`, rounded.
fn seconds(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let micros = fraction_micros(fraction)?;
    Some(number(whole)?.checked_mul(SECOND)? + micros)
}

/// Returns the number `0.fraction` in millionths. Halves are rounded up.
fn fraction_micros(fraction: &str) -> Option<i64> {
    let mut digits: String = fraction.chars().take(7).collect();
    while digits.len() < 7 {
        digits.push('0');
    }
    number(&digits).map(|n| (n + 5) / 10)
}

pub(super) fn date(text: &str) -> Result<i32> {
    if let Some(positive) = infinity(text) {
        return Ok(if positive { i32::MAX } else { i32::MIN });
    }
    let (body, bc) = era(text);
    // The text may have a time of day behind the date. The time of day is ignored.
    let head = body.split([' ', 'T']).next().unwrap_or_default();
    let days = day(head, bc, text).ok_or_else(|| bad("date", text))??;
    calendar::date_in_range(days).map_err(|_| Error::data("22008", format!("date out of range: \"{text}\"")))
}

pub(super) fn time(text: &str) -> Result<i64> {
    clock(text.trim(), text).ok_or_else(|| bad("time", text))?
}

pub(super) fn timestamp(text: &str, zoned: bool) -> Result<i64> {
    if let Some(positive) = infinity(text) {
        return Ok(if positive { i64::MAX } else { i64::MIN });
    }
    let ty = if zoned { "timestamp with time zone" } else { "timestamp" };
    let invalid = || bad(ty, text);
    let (body, bc) = era(text);
    let (head, tail) = body.split_once([' ', 'T']).unwrap_or((body, ""));
    let days = day(head, bc, text).ok_or_else(invalid)??;
    let tail = tail.trim();
    let at = tail.find(['+', '-', 'Z', 'z', 'U', 'u', 'G', 'g']).unwrap_or(tail.len());
    let (local, zone) = (tail[..at].trim(), tail[at..].trim());
    let micros = if local.is_empty() { 0 } else { clock(local, text).ok_or_else(invalid)?? };
    // If the type has no zone, an offset is read and ignored.
    let offset = offset(zone).ok_or_else(invalid)?;
    let t =
        i128::from(days) * i128::from(DAY) + i128::from(micros) - i128::from(if zoned { offset } else { 0 });
    calendar::in_range(t).map_err(|_| Error::data("22008", format!("timestamp out of range: \"{text}\"")))
}

/// Reads an offset as microseconds east of UTC.
fn offset(zone: &str) -> Option<i64> {
    match zone.to_ascii_lowercase().as_str() {
        "" | "z" | "utc" | "gmt" => return Some(0),
        _ => {}
    }
    let (sign, digits) =
        zone.strip_prefix('+').map_or_else(|| zone.strip_prefix('-').map(|d| (-1, d)), |d| Some((1, d)))?;
    let mut parts = digits.split(':').map(number);
    let first = parts.next()??;
    let (h, m) = match digits.split(':').next()?.len() {
        3 | 4 => (first / 100, first % 100),
        _ => (first, parts.next().map_or(Some(0), |m| m)?),
    };
    let s = parts.next().map_or(Some(0), |s| s)?;
    (h <= 15 && m < 60 && s < 60).then_some(sign * (h * HOUR + m * MINUTE + s * SECOND))
}

/// Reads an interval of words and clock times: `1 year 2 mons -3 days 04:05:06.7`. A number without a unit at
/// the end counts seconds, and `ago` negates the whole interval.
pub(super) fn interval(text: &str) -> Result<Interval> {
    let invalid = || bad("interval", text);
    let spaced = spaced(text);
    let mut words = spaced.split_ascii_whitespace().peekable();
    let mut sum = Parts::default();
    let mut any = false;
    let mut ago = false;
    while let Some(word) = words.next() {
        if word == "ago" && any && words.peek().is_none() {
            ago = true;
            break;
        }
        if word == "@" {
            continue;
        }
        any = true;
        let (negative, body) = match word.strip_prefix('-') {
            Some(b) => (true, b),
            None => (false, word.strip_prefix('+').unwrap_or(word)),
        };
        let sign = if negative { -1 } else { 1 };
        if body.contains(':') {
            sum.micros += sign * i128::from(hours(body).ok_or_else(invalid)?);
            continue;
        }
        let amount = sign * millionths(body).ok_or_else(invalid)?;
        let unit = words.next_if(|w| w.starts_with(|c: char| c.is_ascii_alphabetic()) && *w != "ago");
        sum.add(amount, unit.unwrap_or("s")).ok_or_else(invalid)?;
    }
    if !any {
        return Err(invalid());
    }
    let out_of_range = || Error::data("22008", format!("interval field value out of range: \"{text}\""));
    sum.signed(if ago { -1 } else { 1 }).ok_or_else(out_of_range)
}

/// Returns the number `n[.f]` in millionths.
fn millionths(text: &str) -> Option<i128> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = i128::from(if whole.is_empty() { 0 } else { number(whole)? });
    Some(whole * 1_000_000 + i128::from(fraction_micros(fraction)?))
}

/// The parts of an interval, added up from words.
#[derive(Default)]
struct Parts {
    months: i128,
    days: i128,
    micros: i128,
}

impl Parts {
    /// Adds an amount, in millionths of the unit. Returns `None` for a word that is not a unit.
    fn add(&mut self, amount: i128, unit: &str) -> Option<()> {
        let part = |n: i128| amount * n / 1_000_000;
        let rest = |n: i128| amount * n % 1_000_000;
        match unit {
            "us" | "usec" | "microsecond" | "microseconds" => self.micros += part(1),
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => self.micros += part(1000),
            "s" | "sec" | "secs" | "second" | "seconds" => self.micros += amount,
            "m" | "min" | "mins" | "minute" | "minutes" => self.micros += amount * 60,
            "h" | "hr" | "hrs" | "hour" | "hours" => self.micros += amount * 3600,
            "d" | "day" | "days" => {
                self.days += part(1);
                self.micros += rest(1) * 86_400;
            }
            "w" | "week" | "weeks" => {
                self.days += part(7);
                self.micros += rest(7) * 86_400;
            }
            "mon" | "mons" | "month" | "months" => {
                self.months += part(1);
                let left = rest(1) * 30;
                self.days += left / 1_000_000;
                self.micros += left % 1_000_000 * 86_400;
            }
            "y" | "yr" | "yrs" | "year" | "years" => self.months += (amount * 12) / 1_000_000,
            "decade" | "decades" | "dec" | "decs" => self.months += part(120),
            "century" | "centuries" | "c" | "cent" => self.months += part(1200),
            "millennium" | "millennia" | "mil" | "mils" => self.months += part(12_000),
            _ => return None,
        }
        Some(())
    }

    /// Returns the interval with its parts multiplied by `sign`. Returns `None` if a part overflows.
    fn signed(&self, sign: i128) -> Option<Interval> {
        Some(Interval {
            months: i32::try_from(self.months * sign).ok()?,
            days: i32::try_from(self.days * sign).ok()?,
            micros: i64::try_from(self.micros * sign).ok()?,
        })
    }
}

/// Returns the text in lower case, with a blank between a number and its unit.
fn spaced(text: &str) -> String {
    let mut out = String::new();
    let mut digit = false;
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        if digit && c.is_ascii_alphabetic() {
            out.push(' ');
        }
        digit = c.is_ascii_digit();
        out.push(c);
    }
    out
}

/// Returns the microseconds of `h:m[:s[.f]]` with any number of hours.
fn hours(text: &str) -> Option<i64> {
    let mut parts = text.splitn(3, ':');
    let (h, m) = (number(parts.next()?)?, number(parts.next()?)?);
    let s = parts.next().map_or(Some(0), seconds)?;
    if m >= 60 || s >= MINUTE + SECOND {
        None
    } else {
        h.checked_mul(HOUR)?.checked_add(m * MINUTE)?.checked_add(s)
    }
}
