//! The values of SQL types. The order and the equality of `Datum` are *structural*: values are compared by
//! image, so 1.0 and 1.00 differ. Under SQL's comparison 1.0 and 1.00 are equal; [`crate::values`] implements
//! this comparison.

use super::Numeric;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value of an SQL type.
#[derive(Clone, Debug)]
pub enum Datum {
    /// NULL, of any type.
    Null,
    /// `boolean`
    Bool(bool),
    /// `smallint`, `integer` or `bigint`. The type of the expression says which of them.
    Int(i64),
    /// `numeric`
    Numeric(Arc<Numeric>),
    /// `real` or `double precision`. The type of the expression says which of them.
    Float(f64),
    /// `text`, `varchar`, `char(n)` (padded with blanks) or `json`. Values of types that the evaluator does
    /// not know are stored as their text too.
    Text(Arc<str>),
    /// `bytea`
    Bytes(Arc<[u8]>),
    /// A `date`: the number of days since 2000-01-01.
    Date(i32),
    /// A `time`: the number of microseconds since midnight.
    Time(i64),
    /// A `timestamp`, or a `timestamptz` in UTC: the number of microseconds since 2000-01-01 00:00.
    Timestamp(i64),
    /// `interval`
    Interval(Interval),
    /// `uuid`
    Uuid(u128),
    /// `jsonb`: the keys of objects are sorted and unique, and numbers are stored as numeric text.
    Json(Arc<serde_json::Value>),
    /// A one-dimensional array with lower bound 1. Its elements have the same type.
    Array(Arc<[Datum]>),
    /// A row of values.
    Record(Arc<[Datum]>),
}

/// An interval in three separate parts, as PostgreSQL stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    /// The number of whole months.
    pub months: i32,
    /// The number of whole days.
    pub days: i32,
    /// The number of microseconds.
    pub micros: i64,
}

impl Datum {
    /// Makes a text value.
    pub fn text(s: impl AsRef<str>) -> Datum {
        Datum::Text(Arc::from(s.as_ref()))
    }

    /// Whether the value is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Datum::Null)
    }

    /// Returns the rank of the value's variant in the structural order, in which variants are compared first.
    fn rank(&self) -> u8 {
        match self {
            Datum::Null => 0,
            Datum::Bool(_) => 1,
            Datum::Int(_) => 2,
            Datum::Numeric(_) => 3,
            Datum::Float(_) => 4,
            Datum::Text(_) => 5,
            Datum::Bytes(_) => 6,
            Datum::Date(_) => 7,
            Datum::Time(_) => 8,
            Datum::Timestamp(_) => 9,
            Datum::Interval(_) => 10,
            Datum::Uuid(_) => 11,
            Datum::Json(_) => 12,
            Datum::Array(_) => 13,
            Datum::Record(_) => 14,
        }
    }
}

impl Ord for Datum {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Datum::Null, Datum::Null) => Ordering::Equal,
            (Datum::Bool(a), Datum::Bool(b)) => a.cmp(b),
            (Datum::Int(a), Datum::Int(b)) | (Datum::Time(a), Datum::Time(b)) => a.cmp(b),
            (Datum::Timestamp(a), Datum::Timestamp(b)) => a.cmp(b),
            (Datum::Numeric(a), Datum::Numeric(b)) => a.cmp(b),
            (Datum::Float(a), Datum::Float(b)) => a.total_cmp(b),
            (Datum::Text(a), Datum::Text(b)) => a.cmp(b),
            (Datum::Bytes(a), Datum::Bytes(b)) => a.cmp(b),
            (Datum::Date(a), Datum::Date(b)) => a.cmp(b),
            (Datum::Interval(a), Datum::Interval(b)) => a.cmp(b),
            (Datum::Uuid(a), Datum::Uuid(b)) => a.cmp(b),
            (Datum::Json(a), Datum::Json(b)) => a.to_string().cmp(&b.to_string()),
            (Datum::Array(a), Datum::Array(b)) | (Datum::Record(a), Datum::Record(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Datum {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Datum {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Datum {}

impl Hash for Datum {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.rank().hash(state);
        match self {
            Datum::Null => {}
            Datum::Bool(b) => b.hash(state),
            Datum::Int(i) | Datum::Time(i) | Datum::Timestamp(i) => i.hash(state),
            Datum::Numeric(n) => n.hash(state),
            Datum::Float(x) => x.to_bits().hash(state),
            Datum::Text(s) => s.hash(state),
            Datum::Bytes(b) => b.hash(state),
            Datum::Date(d) => d.hash(state),
            Datum::Interval(i) => i.hash(state),
            Datum::Uuid(u) => u.hash(state),
            Datum::Json(j) => j.to_string().hash(state),
            Datum::Array(a) | Datum::Record(a) => a.hash(state),
        }
    }
}
