//! Compares values and rows as SQL does.

use crate::types::{Datum, Interval, Type, calendar, display};
use serde_json::Value;
use std::cmp::Ordering;

/// Compares two values of one type in PostgreSQL's btree order: 1.0 equals 1.00, −0 equals 0, NaN is
/// greatest, NULL comes last. The order is total, and agrees with SQL's `=` on values that are not NULL.
///
/// Strings compare by bytes (collation "C"). This function does not ignore the padding of a `char(n)` value;
/// [`compare_as`] does. Numbers of different types compare by value, and dates compare with timestamps as
/// midnight.
pub fn compare(a: &Datum, b: &Datum) -> Ordering {
    match (a, b) {
        (Datum::Null, Datum::Null) => Ordering::Equal,
        (Datum::Null, _) => Ordering::Greater,
        (_, Datum::Null) => Ordering::Less,
        (Datum::Numeric(a), Datum::Numeric(b)) => a.compare(b),
        (Datum::Int(a), Datum::Numeric(b)) => crate::types::Numeric::from(*a).compare(b),
        (Datum::Numeric(a), Datum::Int(b)) => a.compare(&crate::types::Numeric::from(*b)),
        (Datum::Float(a), Datum::Float(b)) => compare_floats(*a, *b),
        (Datum::Interval(a), Datum::Interval(b)) => span(*a).cmp(&span(*b)),
        (Datum::Json(a), Datum::Json(b)) => compare_json(a, b),
        (Datum::Array(a), Datum::Array(b)) | (Datum::Record(a), Datum::Record(b)) => compare_rows(a, b),
        (Datum::Date(a), Datum::Timestamp(b)) => midnight(*a).cmp(&i128::from(*b)),
        (Datum::Timestamp(a), Datum::Date(b)) => i128::from(*a).cmp(&midnight(*b)),
        _ => a.cmp(b),
    }
}

/// Compares like [`compare`], for values of a known type. Trailing blanks of `char(n)` are ignored, also in
/// the elements of arrays and in the fields of rows.
pub fn compare_as(ty: &Type, a: &Datum, b: &Datum) -> Ordering {
    if ty.is_padded() { compare(&unpadded(ty, a), &unpadded(ty, b)) } else { compare(a, b) }
}

/// Returns the value of type `ty` without the trailing blanks that comparisons ignore.
pub(crate) fn unpadded(ty: &Type, value: &Datum) -> Datum {
    let all = |items: &[Datum], ty: &Type| items.iter().map(|item| unpadded(ty, item)).collect();
    match (ty, value) {
        (Type::Bpchar(_), Datum::Text(s)) => Datum::text(s.trim_end_matches(' ')),
        (Type::Array(element), Datum::Array(items)) if element.is_padded() => {
            // The elements of an array of several dimensions are arrays of the same type.
            let nested = items.iter().any(|item| matches!(item, Datum::Array(_)));
            Datum::Array(all(items, if nested { ty } else { element }))
        }
        (Type::Record(types), Datum::Record(fields)) if types.len() == fields.len() => {
            Datum::Record(types.iter().zip(&**fields).map(|(ty, field)| unpadded(ty, field)).collect())
        }
        _ => value.clone(),
    }
}

/// Compares rows lexicographically by [`compare`]. A row comes after its prefixes.
pub(crate) fn compare_rows(a: &[Datum], b: &[Datum]) -> Ordering {
    a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|o| o.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
    }
}

/// Returns the length of an interval in microseconds. Intervals are compared by this length. A month counts
/// as 30 days, a day as 24 hours.
fn span(i: Interval) -> i128 {
    let days = i128::from(i.months) * 30 + i128::from(i.days);
    days * i128::from(calendar::DAY) + i128::from(i.micros)
}

/// Returns a date as a timestamp, in microseconds. An infinite date lies outside all finite timestamps.
fn midnight(days: i32) -> i128 {
    match days {
        i32::MAX => i128::from(i64::MAX),
        i32::MIN => i128::from(i64::MIN),
        _ => i128::from(days) * i128::from(calendar::DAY),
    }
}

/// Compares in jsonb's btree order: Object > Array > Boolean > Number > String > Null. Two containers are
/// compared by size first. (An empty array at the top sorts below everything, for historical reasons that
/// PostgreSQL documents.)
fn compare_json(a: &Value, b: &Value) -> Ordering {
    let empty = |v: &Value| v.as_array().is_some_and(Vec::is_empty);
    match (empty(a), empty(b)) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        _ => compare_json_values(a, b),
    }
}

fn compare_json_values(a: &Value, b: &Value) -> Ordering {
    let rank = |v: &Value| match v {
        Value::Null => 0,
        Value::String(_) => 1,
        Value::Number(_) => 2,
        Value::Bool(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    };
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => compare_floats(a.as_f64().unwrap_or(f64::NAN), b.as_f64().unwrap_or(f64::NAN)),
        },
        (Value::Array(a), Value::Array(b)) => a.len().cmp(&b.len()).then_with(|| {
            a.iter()
                .zip(b)
                .map(|(a, b)| compare_json_values(a, b))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal)
        }),
        (Value::Object(a), Value::Object(b)) => a.len().cmp(&b.len()).then_with(|| {
            let (a, b) = (display::sorted_pairs(a), display::sorted_pairs(b));
            a.iter()
                .zip(&b)
                .map(|((k, v), (l, w))| k.cmp(l).then_with(|| compare_json_values(v, w)))
                .find(|o| o.is_ne())
                .unwrap_or(Ordering::Equal)
        }),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// A key of groups and joins: values under SQL equality and order. NULL is equal to NULL.
#[derive(Clone, Debug)]
pub(crate) struct SqlKey<T>(pub(crate) T);

impl<T: AsRef<[Datum]>> Ord for SqlKey<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_rows(self.0.as_ref(), other.0.as_ref())
    }
}
impl<T: AsRef<[Datum]>> PartialOrd for SqlKey<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T: AsRef<[Datum]>> PartialEq for SqlKey<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T: AsRef<[Datum]>> Eq for SqlKey<T> {}
