//! Values of functions that return sets of rows, as arrays.

use super::{arg, int, interval, items, json, mistyped, numeric};
use crate::error::{Error, Result};
use crate::expr::FuncSig;
use crate::types::{Datum, Interval, Numeric, Type, display};
use crate::values::{compare, input};
use serde_json::Value;
use std::sync::Arc;

/// The greatest number of rows that one call may return. The evaluator holds all of them in memory.
const MOST: usize = 1_000_000;

fn set(rows: impl IntoIterator<Item = Datum>) -> Datum {
    Datum::Array(rows.into_iter().collect())
}

/// Returns the elements of an array, of all dimensions, in order.
pub(crate) fn unnest(a: &[Datum]) -> Result<Datum> {
    fn flat(array: &[Datum], out: &mut Vec<Datum>) {
        for item in array {
            match item {
                Datum::Array(inner) => flat(inner, out),
                other => out.push(other.clone()),
            }
        }
    }
    let mut out = Vec::new();
    flat(items(a, 0)?, &mut out);
    Ok(set(out))
}

fn no_step() -> Error {
    Error::data("22023", "step size cannot equal zero")
}

/// Returns the series that begins with `first` and continues by `next`. The series ends where `next` returns
/// `None`, or before the first value for which `inside` returns false.
fn series<T: Clone>(
    first: T,
    inside: impl Fn(&T) -> bool,
    mut next: impl FnMut(&T) -> Result<Option<T>>,
    datum: impl Fn(T) -> Datum,
) -> Result<Datum> {
    let (mut rows, mut current) = (Vec::new(), Some(first));
    while let Some(value) = current.filter(&inside) {
        if rows.len() >= MOST {
            return Err(Error::data("54000", "a series is too long to be held in memory"));
        }
        current = next(&value)?;
        rows.push(datum(value));
    }
    Ok(set(rows))
}

/// Returns a series of integers. The series also ends where the next number would overflow.
pub(crate) fn integers(a: &[Datum]) -> Result<Datum> {
    let (start, stop) = (int(a, 0)?, int(a, 1)?);
    let step = if a.len() > 2 { int(a, 2)? } else { 1 };
    if step == 0 {
        return Err(no_step());
    }
    let inside = |n: &i64| if step > 0 { *n <= stop } else { *n >= stop };
    series(start, inside, |n| Ok(n.checked_add(step)), Datum::Int)
}

pub(crate) fn numerics(a: &[Datum]) -> Result<Datum> {
    for (i, what) in ["start", "stop", "step"].into_iter().enumerate().take(a.len()) {
        let n = super::dec(a, i)?;
        if !n.is_finite() {
            let what = if what == "step" { "step size".to_owned() } else { format!("{what} value") };
            let kind = if matches!(n, Numeric::NaN) { "NaN" } else { "infinity" };
            return Err(Error::data("22023", format!("{what} cannot be {kind}")));
        }
    }
    let (start, stop) = (super::dec(a, 0)?, super::dec(a, 1)?);
    let step = if a.len() > 2 { super::dec(a, 2)?.clone() } else { Numeric::from(1) };
    let sign = step.compare(&Numeric::from(0));
    if sign.is_eq() {
        return Err(no_step());
    }
    let inside = |n: &Numeric| n.compare(stop).is_eq() || n.compare(stop) == sign.reverse();
    series(start.clone(), inside, |n| n.add(&step).map(Some), numeric)
}

pub(crate) fn moments(a: &[Datum]) -> Result<Datum> {
    let (start, stop) = (interval::moment(a, 0)?, interval::moment(a, 1)?);
    let step = arg(a, 2);
    let sign = compare(step, &Datum::Interval(Interval { months: 0, days: 0, micros: 0 }));
    if sign.is_eq() {
        return Err(no_step());
    }
    let inside = |t: &i64| if sign.is_gt() { *t <= stop } else { *t >= stop };
    let next = |t: &i64| match interval::later(&[Datum::Timestamp(*t), step.clone()])? {
        Datum::Timestamp(t) => Ok(Some(t)),
        other => Err(mistyped(&other)),
    };
    series(start, inside, next, Datum::Timestamp)
}

/// Returns the subscripts of one dimension of an array, in reverse order if the third argument is true.
pub(crate) fn subscripts(a: &[Datum]) -> Result<Datum> {
    let (mut dimension, mut at) = (int(a, 1)?, items(a, 0)?);
    while dimension > 1 {
        let Some(Datum::Array(inner)) = at.first() else { return Ok(Datum::Null) };
        (dimension, at) = (dimension - 1, inner);
    }
    if dimension < 1 {
        return Ok(Datum::Null);
    }
    let mut rows: Vec<Datum> = (1..=at.len()).map(super::count).collect();
    if matches!(arg(a, 2), Datum::Bool(true)) {
        rows.reverse();
    }
    Ok(set(rows))
}

pub(crate) fn pieces(a: &[Datum]) -> Result<Datum> {
    super::array::split(a)
}

fn wrap(v: &Value) -> Datum {
    Datum::Json(Arc::new(v.clone()))
}

fn text(v: &Value) -> Datum {
    match v {
        Value::Null => Datum::Null,
        Value::String(s) => Datum::text(s),
        other => Datum::text(display::jsonb_text(other)),
    }
}

fn array_of(a: &[Datum], item: fn(&Value) -> Datum) -> Result<Datum> {
    match json(a, 0)? {
        Value::Array(items) => Ok(set(items.iter().map(item))),
        Value::Object(_) => Err(Error::data("22023", "cannot extract elements from an object")),
        _ => Err(Error::data("22023", "cannot extract elements from a scalar")),
    }
}
pub(crate) fn elements(a: &[Datum]) -> Result<Datum> {
    array_of(a, wrap)
}
pub(crate) fn elements_text(a: &[Datum]) -> Result<Datum> {
    array_of(a, text)
}

/// Returns the members of an object in jsonb's order: short keys first.
fn object(v: &Value, refused: impl FnOnce(&str) -> String) -> Result<Vec<(&String, &Value)>> {
    let Value::Object(map) = v else {
        let kind = if v.is_array() { "an array" } else { "a scalar" };
        return Err(Error::data("22023", refused(kind)));
    };
    let mut members: Vec<_> = map.iter().collect();
    members.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
    Ok(members)
}
fn pairs(a: &[Datum], name: &str, item: fn(&Value) -> Datum) -> Result<Datum> {
    let members = object(json(a, 0)?, |_| format!("cannot call {name} on a non-object"))?;
    Ok(set(members.into_iter().map(|(k, v)| Datum::Record([Datum::text(k), item(v)].into()))))
}
pub(crate) fn members(a: &[Datum]) -> Result<Datum> {
    pairs(a, "jsonb_each", wrap)
}
pub(crate) fn members_text(a: &[Datum]) -> Result<Datum> {
    pairs(a, "jsonb_each_text", text)
}
pub(crate) fn keys(a: &[Datum]) -> Result<Datum> {
    let members = object(json(a, 0)?, |kind| format!("cannot call jsonb_object_keys on {kind}"))?;
    Ok(set(members.into_iter().map(|(k, _)| Datum::text(k))))
}

/// Returns the objects of an array as rows with the columns that the call defines.
pub(crate) fn records(a: &[Datum], sig: &FuncSig) -> Result<Datum> {
    let Type::Record(types) = &sig.ret else { return Err(Error::plan("a set of records without columns")) };
    let refused = |what: &str| Error::data("22023", format!("{what} jsonb_to_recordset"));
    let Value::Array(items) = json(a, 0)? else {
        return Err(refused("a value that is no array was given to"));
    };
    let row = |item: &Value| {
        let Value::Object(map) = item else {
            return Err(refused("an element that is no object was given to"));
        };
        let field = |(name, ty): (&Arc<str>, &Type)| field(map.get(&**name).unwrap_or(&Value::Null), ty);
        Ok(Datum::Record(sig.columns.iter().zip(types.iter()).map(field).collect::<Result<_>>()?))
    };
    Ok(set(items.iter().map(row).collect::<Result<Vec<_>>>()?))
}

/// Returns a part of a document as a value of type `ty`. For a type that jsonb does not have, the value is
/// read from the text of the part.
fn field(v: &Value, ty: &Type) -> Result<Datum> {
    match (v, ty) {
        (Value::Null, _) => Ok(Datum::Null),
        (_, Type::Jsonb) => Ok(wrap(v)),
        (Value::Array(items), Type::Array(element)) => {
            Ok(Datum::Array(items.iter().map(|i| field(i, element)).collect::<Result<_>>()?))
        }
        (Value::String(s), _) => input(s, ty),
        _ => input(&display::jsonb_text(v), ty),
    }
}
