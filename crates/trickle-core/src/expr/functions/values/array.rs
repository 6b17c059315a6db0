//! Values of functions on one-dimensional arrays.

use super::{arg, count, int, items, text};
use crate::error::Result;
use crate::types::Datum;
use crate::values::compare;

fn list(items: impl IntoIterator<Item = Datum>) -> Datum {
    Datum::Array(items.into_iter().collect())
}

/// Returns the elements of argument `i`; none for NULL.
fn elements(a: &[Datum], i: usize) -> Result<&[Datum]> {
    if arg(a, i).is_null() { Ok(&[]) } else { items(a, i) }
}

/// Concatenates two arrays. If one operand is NULL, it counts as an empty array.
pub(crate) fn concatenate(a: &[Datum]) -> Result<Datum> {
    if arg(a, 0).is_null() && arg(a, 1).is_null() {
        return Ok(Datum::Null);
    }
    Ok(list(elements(a, 0)?.iter().chain(elements(a, 1)?).cloned()))
}
pub(crate) fn append(a: &[Datum]) -> Result<Datum> {
    Ok(list(elements(a, 0)?.iter().chain([arg(a, 1)]).cloned()))
}
pub(crate) fn prepend(a: &[Datum]) -> Result<Datum> {
    Ok(list([arg(a, 0)].into_iter().chain(elements(a, 1)?).cloned()))
}

/// Whether `x` is equal to an element of `list`. NULL does not equal any value.
fn holds(list: &[Datum], x: &Datum) -> bool {
    !x.is_null() && list.iter().any(|y| compare(x, y).is_eq())
}
pub(crate) fn is_superset(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (items(a, 0)?, items(a, 1)?);
    Ok(Datum::Bool(y.iter().all(|e| holds(x, e))))
}
pub(crate) fn is_subset(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (items(a, 0)?, items(a, 1)?);
    Ok(Datum::Bool(x.iter().all(|e| holds(y, e))))
}
pub(crate) fn overlaps(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (items(a, 0)?, items(a, 1)?);
    Ok(Datum::Bool(x.iter().any(|e| holds(y, e))))
}

/// Returns the length of an array in dimension 1. Returns NULL for an empty array and for any other
/// dimension.
pub(crate) fn length(a: &[Datum]) -> Result<Datum> {
    let x = items(a, 0)?;
    Ok(if x.is_empty() || int(a, 1)? != 1 { Datum::Null } else { count(x.len()) })
}
pub(crate) fn lower(a: &[Datum]) -> Result<Datum> {
    Ok(if length(a)?.is_null() { Datum::Null } else { Datum::Int(1) })
}
pub(crate) fn cardinality(a: &[Datum]) -> Result<Datum> {
    Ok(count(items(a, 0)?.len()))
}
pub(crate) fn dimensions(a: &[Datum]) -> Result<Datum> {
    Ok(if items(a, 0)?.is_empty() { Datum::Null } else { Datum::Int(1) })
}
pub(crate) fn remove(a: &[Datum]) -> Result<Datum> {
    if arg(a, 0).is_null() {
        return Ok(Datum::Null);
    }
    Ok(list(items(a, 0)?.iter().filter(|x| compare(x, arg(a, 1)).is_ne()).cloned()))
}
pub(crate) fn position(a: &[Datum]) -> Result<Datum> {
    let at = elements(a, 0)?.iter().position(|x| compare(x, arg(a, 1)).is_eq());
    Ok(at.map_or(Datum::Null, |i| count(i + 1)))
}
pub(crate) fn positions(a: &[Datum]) -> Result<Datum> {
    if arg(a, 0).is_null() {
        return Ok(Datum::Null);
    }
    let all = items(a, 0)?.iter().enumerate().filter(|(_, x)| compare(x, arg(a, 1)).is_eq());
    Ok(list(all.map(|(i, _)| count(i + 1))))
}
/// Returns `string_to_array(text, delimiter [, null text])`.
pub(crate) fn split(a: &[Datum]) -> Result<Datum> {
    if arg(a, 0).is_null() {
        return Ok(Datum::Null);
    }
    let s = text(a, 0)?;
    let parts: Vec<String> = match arg(a, 1) {
        _ if s.is_empty() => Vec::new(),
        Datum::Null => s.chars().map(String::from).collect(),
        _ if text(a, 1)?.is_empty() => vec![s.to_owned()],
        _ => s.split(text(a, 1)?).map(str::to_owned).collect(),
    };
    let null = if arg(a, 2).is_null() { None } else { Some(text(a, 2)?) };
    let item = |s: String| if Some(s.as_str()) == null { Datum::Null } else { Datum::text(s) };
    Ok(list(parts.into_iter().map(item)))
}
