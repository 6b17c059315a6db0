//! Aggregate values over the rows of a group.

use crate::agg::AggCall;
use crate::error::{Error, Result};
use crate::types::{Datum, Type};

/// `sum` over the first argument.
///
/// # Errors
/// Overflow.
pub fn sum(_ty: &Type, _rows: &[Vec<Datum>]) -> Result<Datum> {
    Err(Error::internal("not written"))
}

/// `avg` over the first argument.
///
/// # Errors
/// Overflow.
pub fn average(_ty: &Type, _rows: &[Vec<Datum>]) -> Result<Datum> {
    Err(Error::internal("not written"))
}

/// Every other aggregate that the evaluator knows.
///
/// # Errors
/// What the aggregate raises; or that the evaluator does not know it.
pub fn other(_call: &AggCall, _rows: &[Vec<Datum>]) -> Result<Datum> {
    Err(Error::internal("not written"))
}
