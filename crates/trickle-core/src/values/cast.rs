//! Evaluates casts, for each pair of types, with PostgreSQL's rounding and errors.

use super::input::{fit_string, input};
use crate::error::{Error, Result};
use crate::types::{Datum, Interval, Numeric, Type, calendar, is_written};
use std::sync::Arc;

/// Returns `CAST(value AS to)`, for a value of type `from`.
///
/// # Errors
/// Fails with 22003 if the value is out of range, and with 22023 for a jsonb value of another kind. Fails
/// with 22P02 or a similar code for a text that is not a value of type `to`. If there is no cast between the
/// types, the value is returned unchanged, since the types of a plan are checked before its evaluation.
pub fn cast(value: &Datum, from: &Type, to: &Type) -> Result<Datum> {
    if value.is_null() || from == to {
        return Ok(value.clone());
    }
    match (value, to) {
        (_, t) if t.is_string() => Ok(to_string(value, from, t)),
        (Datum::Text(s), _) => match (from, to) {
            (Type::Json, Type::Json) | (_, Type::Unknown) => Ok(value.clone()),
            _ => input(s, to),
        },
        (_, t) if is_written(t) => Ok(value.to_text(from).map_or(Datum::Null, Datum::text)),
        (Datum::Bool(b), Type::Int4) => Ok(Datum::Int(i64::from(*b))),
        (Datum::Int(i), Type::Bool) => Ok(Datum::Bool(*i != 0)),
        (Datum::Int(i), t) if t.is_integer() => in_range(*i, t),
        (Datum::Int(i), Type::Numeric(mods)) => decimal(Numeric::from(*i), *mods),
        #[allow(clippy::cast_precision_loss)]
        (Datum::Int(i), Type::Float8) => Ok(Datum::Float(*i as f64)),
        #[allow(clippy::cast_precision_loss)]
        (Datum::Int(i), Type::Float4) => Ok(Datum::Float(f64::from(*i as f32))),
        (Datum::Numeric(n), t) if t.is_number() => from_numeric(n, t),
        (Datum::Float(x), t) if t.is_number() => from_float(*x, *from == Type::Float4, t),
        (Datum::Json(j), t) => from_jsonb(j, from, t),
        (Datum::Array(items), Type::Array(element)) => {
            let from = from.element().cloned().unwrap_or(Type::Unknown);
            let items = items.iter().map(|d| cast(d, &from, element)).collect::<Result<_>>()?;
            Ok(Datum::Array(items))
        }
        (Datum::Date(d), Type::Timestamp | Type::Timestamptz) => calendar::midnight(*d).map(Datum::Timestamp),
        (Datum::Timestamp(t), Type::Date) => Ok(Datum::Date(match *t {
            i64::MAX => i32::MAX,
            i64::MIN => i32::MIN,
            t => calendar::date_in_range(calendar::split(t).0)?,
        })),
        (Datum::Timestamp(t), Type::Time) => Ok(match *t {
            i64::MAX | i64::MIN => Datum::Null,
            t => Datum::Time(calendar::split(t).1),
        }),
        (Datum::Time(t), Type::Interval) => Ok(Datum::Interval(Interval { months: 0, days: 0, micros: *t })),
        (Datum::Interval(i), Type::Time) => Ok(Datum::Time(i.micros.rem_euclid(calendar::DAY))),
        _ => Ok(value.clone()),
    }
}

/// Returns the text of a value: booleans in words, `char(n)` without its padding.
fn to_string(value: &Datum, from: &Type, to: &Type) -> Datum {
    let text = match (value, from) {
        (Datum::Bool(b), _) => if *b { "true" } else { "false" }.to_owned(),
        (Datum::Text(s), Type::Bpchar(_)) => s.trim_end_matches(' ').to_owned(),
        _ => value.to_text(from).unwrap_or_default(),
    };
    fit_string(&text, to)
}

fn in_range(i: i64, ty: &Type) -> Result<Datum> {
    let fits = match ty {
        Type::Int2 => i16::try_from(i).is_ok(),
        Type::Int4 => i32::try_from(i).is_ok(),
        _ => true,
    };
    if fits { Ok(Datum::Int(i)) } else { Err(Error::data("22003", format!("{ty} out of range"))) }
}

fn decimal(n: Numeric, mods: Option<(u16, i16)>) -> Result<Datum> {
    let n = match mods {
        Some((p, s)) => n.with_typmod(p, s)?,
        None => n,
    };
    Ok(Datum::Numeric(Arc::new(n)))
}

fn from_numeric(n: &Numeric, to: &Type) -> Result<Datum> {
    match to {
        Type::Int2 => n.to_integer(16, "smallint").map(Datum::Int),
        Type::Int4 => n.to_integer(32, "integer").map(Datum::Int),
        Type::Int8 => n.to_integer(64, "bigint").map(Datum::Int),
        Type::Numeric(mods) => decimal(n.clone(), *mods),
        _ if n.is_finite() => input(&n.to_string(), to),
        _ => Ok(Datum::Float(n.to_f64())),
    }
}

/// Casts from `real` (`single`) or `double precision`. In a cast to an integer type, halves are rounded to
/// the even neighbour. In a cast to numeric, the value is rounded to the number of digits that the float type
/// always represents exactly.
fn from_float(x: f64, single: bool, to: &Type) -> Result<Datum> {
    let range = || Error::data("22003", format!("{to} out of range"));
    match to {
        Type::Float8 => Ok(Datum::Float(x)),
        Type::Float4 => {
            #[allow(clippy::cast_possible_truncation)]
            let y = f64::from(x as f32);
            if y.is_infinite() && !x.is_infinite() {
                return Err(Error::data("22003", "value out of range: overflow"));
            }
            if y == 0.0 && x != 0.0 {
                return Err(Error::data("22003", "value out of range: underflow"));
            }
            Ok(Datum::Float(y))
        }
        Type::Numeric(mods) => {
            let digits = if single { 5 } else { 14 };
            let text = format!("{x:.digits$e}");
            // As with C's `%g`, the mantissa has no zeros at its end.
            let text = match text.split_once('e') {
                Some((m, e)) if m.contains('.') => {
                    format!("{}e{e}", m.trim_end_matches('0').trim_end_matches('.'))
                }
                _ => text,
            };
            decimal(Numeric::parse(&text)?.unwrap_or(Numeric::NaN), *mods)
        }
        _ => {
            let bits = match to {
                Type::Int2 => 15,
                Type::Int4 => 31,
                _ => 63,
            };
            let (limit, rounded) = (2_f64.powi(bits), x.round_ties_even());
            if !(rounded >= -limit && rounded < limit) {
                return Err(range());
            }
            #[allow(clippy::cast_possible_truncation)]
            Ok(Datum::Int(rounded as i64))
        }
    }
}

fn from_jsonb(j: &serde_json::Value, from: &Type, to: &Type) -> Result<Datum> {
    use serde_json::Value;
    let wrong = |kind: &str| Error::data("22023", format!("cannot cast jsonb {kind} to type {}", to.base()));
    let kind = match j {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "numeric",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match (j, to) {
        (Value::Bool(b), Type::Bool) => Ok(Datum::Bool(*b)),
        (Value::Number(n), t) if t.is_number() => {
            let n = Numeric::parse(&n.to_string())?.unwrap_or(Numeric::NaN);
            from_numeric(&n, t)
        }
        (_, Type::Json) => {
            Ok(Datum::text(Datum::Json(Arc::new(j.clone())).to_text(from).unwrap_or_default()))
        }
        (_, t) if t.is_number() || *t == Type::Bool => Err(wrong(kind)),
        _ => Ok(Datum::Json(Arc::new(j.clone()))),
    }
}
