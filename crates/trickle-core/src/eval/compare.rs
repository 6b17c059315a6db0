//! SQL comparison of values.

use crate::types::Datum;
use std::cmp::Ordering;

/// PostgreSQL's btree order of two values of one type: 1.0 equals 1.00, NaN is greatest, NULL comes last.
pub fn compare(a: &Datum, b: &Datum) -> Ordering {
    a.cmp(b)
}
