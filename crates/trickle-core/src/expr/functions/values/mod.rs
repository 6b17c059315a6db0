//! The values of built-in functions, by family. Also the helper functions by which all families read
//! arguments.

pub(super) mod array;
pub(super) mod datetime;
pub(super) mod interval;
pub(super) mod json;
pub(super) mod network;
pub(super) mod number;
pub(super) mod sets;
pub(super) mod text;

use crate::error::{Error, Result};
use crate::types::{Datum, Numeric};
use std::sync::Arc;

/// Makes the error for an argument whose value is not of the declared type. The plan then has wrong types.
fn mistyped(d: &Datum) -> Error {
    Error::plan(format!("a function met {d}, which is not of its argument's type"))
}

fn arg(args: &[Datum], i: usize) -> &Datum {
    args.get(i).unwrap_or(&Datum::Null)
}

fn int(args: &[Datum], i: usize) -> Result<i64> {
    match arg(args, i) {
        Datum::Int(n) => Ok(*n),
        other => Err(mistyped(other)),
    }
}

fn float(args: &[Datum], i: usize) -> Result<f64> {
    match arg(args, i) {
        Datum::Float(x) => Ok(*x),
        other => Err(mistyped(other)),
    }
}

fn dec(args: &[Datum], i: usize) -> Result<&Numeric> {
    match arg(args, i) {
        Datum::Numeric(n) => Ok(n),
        other => Err(mistyped(other)),
    }
}

fn text(args: &[Datum], i: usize) -> Result<&str> {
    match arg(args, i) {
        Datum::Text(s) => Ok(s),
        other => Err(mistyped(other)),
    }
}

fn items(args: &[Datum], i: usize) -> Result<&[Datum]> {
    match arg(args, i) {
        Datum::Array(a) => Ok(a),
        other => Err(mistyped(other)),
    }
}

fn json(args: &[Datum], i: usize) -> Result<&serde_json::Value> {
    match arg(args, i) {
        Datum::Json(j) => Ok(j),
        other => Err(mistyped(other)),
    }
}

fn numeric(n: Numeric) -> Datum {
    Datum::Numeric(Arc::new(n))
}

/// Converts a length or count to `integer`.
fn count(n: usize) -> Datum {
    Datum::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Reads an integer argument as a length; a negative integer counts as 0.
fn size(n: i64) -> usize {
    usize::try_from(n).unwrap_or(0)
}
