//! Values of functions on jsonb.

use super::{arg, count, items, json, text};
use crate::error::{Error, Result};
use crate::types::{Datum, display};
use serde_json::{Map, Value};
use std::sync::Arc;

fn wrap(v: Option<&Value>) -> Datum {
    v.map_or(Datum::Null, |v| Datum::Json(Arc::new(v.clone())))
}
/// Converts the result of `->>`: a string loses its quotes, and null becomes NULL.
fn unquoted(v: Option<&Value>) -> Datum {
    match v {
        None | Some(Value::Null) => Datum::Null,
        Some(Value::String(s)) => Datum::text(s),
        Some(other) => Datum::text(display::jsonb_text(other)),
    }
}

/// Returns an array element; negative positions count from the end.
fn element(v: &Value, i: i64) -> Option<&Value> {
    let array = v.as_array()?;
    let at =
        if i < 0 { array.len().checked_sub(usize::try_from(-i).ok()?)? } else { usize::try_from(i).ok()? };
    array.get(at)
}

fn member(a: &[Datum]) -> Result<Option<&Value>> {
    let v = json(a, 0)?;
    match arg(a, 1) {
        Datum::Int(i) => Ok(element(v, *i)),
        _ => Ok(v.get(text(a, 1)?)),
    }
}
pub(crate) fn get(a: &[Datum]) -> Result<Datum> {
    member(a).map(wrap)
}
pub(crate) fn get_text(a: &[Datum]) -> Result<Datum> {
    member(a).map(unquoted)
}

fn at_path<'a>(mut v: &'a Value, path: &[Datum]) -> Option<&'a Value> {
    for step in path {
        let Datum::Text(step) = step else { return None };
        v = match v {
            Value::Object(map) => map.get(&**step)?,
            Value::Array(_) => element(v, step.trim().parse().ok()?)?,
            _ => return None,
        };
    }
    Some(v)
}
pub(crate) fn path(a: &[Datum]) -> Result<Datum> {
    Ok(wrap(at_path(json(a, 0)?, items(a, 1)?)))
}
pub(crate) fn path_text(a: &[Datum]) -> Result<Datum> {
    Ok(unquoted(at_path(json(a, 0)?, items(a, 1)?)))
}
pub(crate) fn extract_path(a: &[Datum]) -> Result<Datum> {
    Ok(wrap(at_path(json(a, 0)?, a.get(1..).unwrap_or_default())))
}
pub(crate) fn extract_path_text(a: &[Datum]) -> Result<Datum> {
    Ok(unquoted(at_path(json(a, 0)?, a.get(1..).unwrap_or_default())))
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| equal(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(k, v)| y.get(k).is_some_and(|w| equal(v, w)))
        }
        _ => a == b,
    }
}

/// Returns `a @> b`: arrays compare as sets, objects by key, and a top-level array contains a bare scalar.
fn contains(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            y.iter().all(|(k, w)| x.get(k).is_some_and(|v| contains(v, w)))
        }
        (Value::Array(x), Value::Array(y)) => y.iter().all(|w| {
            x.iter().any(|v| match (v, w) {
                (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => contains(v, w),
                _ => equal(v, w),
            })
        }),
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => false,
        _ => equal(a, b),
    }
}
fn contains_top(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(x), w) if !w.is_array() && !w.is_object() => x.iter().any(|v| equal(v, w)),
        _ => contains(a, b),
    }
}
pub(crate) fn is_superset(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Bool(contains_top(json(a, 0)?, json(a, 1)?)))
}
pub(crate) fn is_subset(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Bool(contains_top(json(a, 1)?, json(a, 0)?)))
}

/// Whether `key` is a key of an object, a string in an array, or the string itself.
fn has(v: &Value, key: &str) -> bool {
    match v {
        Value::Object(map) => map.contains_key(key),
        Value::Array(a) => a.iter().any(|v| v.as_str() == Some(key)),
        other => other.as_str() == Some(key),
    }
}
pub(crate) fn exists(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Bool(has(json(a, 0)?, text(a, 1)?)))
}
fn keys(a: &[Datum]) -> Result<impl Iterator<Item = &str>> {
    Ok(items(a, 1)?.iter().filter_map(|d| match d {
        Datum::Text(s) => Some(&**s),
        _ => None,
    }))
}
pub(crate) fn exists_any(a: &[Datum]) -> Result<Datum> {
    let v = json(a, 0)?;
    Ok(Datum::Bool(keys(a)?.any(|k| has(v, k))))
}
pub(crate) fn exists_all(a: &[Datum]) -> Result<Datum> {
    let v = json(a, 0)?;
    Ok(Datum::Bool(keys(a)?.all(|k| has(v, k))))
}
/// Returns `a || b`: objects are merged, and values of the right object take precedence. Other values become
/// arrays and are concatenated.
pub(crate) fn concatenate(a: &[Datum]) -> Result<Datum> {
    let joined = match (json(a, 0)?, json(a, 1)?) {
        (Value::Object(x), Value::Object(y)) => {
            Value::Object(x.iter().chain(y).map(|(k, v)| (k.clone(), v.clone())).collect::<Map<_, _>>())
        }
        (x, y) => {
            let list = |v: &Value| v.as_array().cloned().unwrap_or_else(|| vec![v.clone()]);
            Value::Array(list(x).into_iter().chain(list(y)).collect())
        }
    };
    Ok(Datum::Json(Arc::new(joined)))
}
/// Returns `jsonb - text` and `jsonb - integer`.
pub(crate) fn without(a: &[Datum]) -> Result<Datum> {
    let invalid = |m: &str| Error::data("22023", m);
    let rest = match (json(a, 0)?.clone(), arg(a, 1)) {
        (Value::Array(mut list), Datum::Int(i)) => {
            let at = if *i < 0 { i64::try_from(list.len()).unwrap_or(i64::MAX) + i } else { *i };
            if let Some(at) = usize::try_from(at).ok().filter(|at| *at < list.len()) {
                list.remove(at);
            }
            Value::Array(list)
        }
        (Value::Object(_), Datum::Int(_)) => {
            return Err(invalid("cannot delete from object using integer index"));
        }
        (Value::Object(mut map), _) => {
            map.remove(text(a, 1)?);
            Value::Object(map)
        }
        (Value::Array(list), _) => {
            let key = text(a, 1)?;
            Value::Array(list.into_iter().filter(|v| v.as_str() != Some(key)).collect())
        }
        _ => return Err(invalid("cannot delete from scalar")),
    };
    Ok(Datum::Json(Arc::new(rest)))
}
pub(crate) fn array_length(a: &[Datum]) -> Result<Datum> {
    match json(a, 0)? {
        Value::Array(list) => Ok(count(list.len())),
        Value::Object(_) => Err(Error::data("22023", "cannot get array length of a non-array")),
        _ => Err(Error::data("22023", "cannot get array length of a scalar")),
    }
}
pub(crate) fn kind(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::text(match json(a, 0)? {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }))
}
pub(crate) fn strip_nulls(a: &[Datum]) -> Result<Datum> {
    fn strip(v: &Value) -> Value {
        match v {
            Value::Object(map) => {
                let kept = map.iter().filter(|(_, v)| !v.is_null());
                Value::Object(kept.map(|(k, v)| (k.clone(), strip(v))).collect())
            }
            Value::Array(list) => Value::Array(list.iter().map(strip).collect()),
            other => other.clone(),
        }
    }
    Ok(Datum::Json(Arc::new(strip(json(a, 0)?))))
}
/// Converts an SQL value to a JSON value.
fn value(d: &Datum) -> Result<Value> {
    Ok(match d {
        Datum::Null => Value::Null,
        Datum::Bool(b) => Value::Bool(*b),
        Datum::Int(i) => Value::from(*i),
        Datum::Json(j) => Value::clone(j),
        Datum::Text(s) => Value::String(s.to_string()),
        Datum::Array(list) => Value::Array(list.iter().map(value).collect::<Result<_>>()?),
        Datum::Numeric(_) | Datum::Float(_) => {
            let text = d.to_string();
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        other => Value::String(other.to_string()),
    })
}
pub(crate) fn to_jsonb(a: &[Datum]) -> Result<Datum> {
    value(arg(a, 0)).map(|v| Datum::Json(Arc::new(v)))
}
pub(crate) fn build_array(a: &[Datum]) -> Result<Datum> {
    let list = a.iter().map(value).collect::<Result<_>>()?;
    Ok(Datum::Json(Arc::new(Value::Array(list))))
}
pub(crate) fn build_object(a: &[Datum]) -> Result<Datum> {
    let mut map = Map::new();
    if !a.len().is_multiple_of(2) {
        return Err(Error::data("22023", "argument list must have even number of elements"));
    }
    for (i, pair) in a.chunks_exact(2).enumerate() {
        if pair[0].is_null() {
            let message = format!("argument {}: key must not be null", 2 * i + 1);
            return Err(Error::data("22023", message));
        }
        let key = match &pair[0] {
            Datum::Bool(b) => if *b { "true" } else { "false" }.to_owned(),
            key => key.to_string(),
        };
        map.insert(key, value(&pair[1])?);
    }
    Ok(Datum::Json(Arc::new(Value::Object(map))))
}
