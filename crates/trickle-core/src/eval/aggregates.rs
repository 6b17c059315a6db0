//! Evaluates aggregates over the rows of a group.

use super::group::shown_first;
use super::{Row, expr, is_true};
use crate::agg::{Acc, AggCall, by_keys, family};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::types::{Datum, Numeric, Type};
use crate::values::{compare, compare_as};
use std::cmp::Ordering;
use std::sync::Arc;

/// Returns the value of a call over the rows of one group. Each row has a positive weight.
///
/// A call without ORDER BY reads the rows in structural order. An aggregate that depends on the order thus
/// has exactly one value in the evaluator, though PostgreSQL does not determine the value.
///
/// # Errors
/// Fails if an argument raises an error on a row that passes FILTER, or if the aggregate raises an error.
pub(crate) fn over(call: &AggCall, rows: &[(&Row, i64)]) -> Result<Datum> {
    let mut found: Vec<(Vec<Datum>, Vec<Datum>, i64)> = Vec::new();
    for (row, w) in rows {
        if let Some(filter) = &call.filter
            && !is_true(filter, row)?
        {
            continue;
        }
        let args = call.args.iter().map(|a| expr(a, row)).collect::<Result<Vec<_>>>()?;
        let keys = call.order_by.iter().map(|k| expr(&k.expr, row)).collect::<Result<Vec<_>>>()?;
        found.push((args, keys, *w));
    }
    if call.distinct {
        // PostgreSQL sorts to find duplicates, so DISTINCT without ORDER BY still returns the values in
        // order.
        let types: Vec<&Type> = call.args.iter().map(Expr::ty).collect();
        let order = |a: &[Datum], b: &[Datum]| {
            let values = types.iter().zip(a.iter().zip(b));
            values.map(|(ty, (a, b))| compare_as(ty, a, b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
        };
        let shown = |a: &[Datum], b: &[Datum]| shown_first(types.iter().copied(), (a, 1), (b, 1));
        found.sort_by(|a, b| order(&a.0, &b.0).then_with(|| shown(&a.0, &b.0)));
        found.dedup_by(|a, b| order(&a.0, &b.0).is_eq());
        found.iter_mut().for_each(|f| f.2 = 1);
    }
    if !call.order_by.is_empty() {
        let types: Vec<&Type> = call.order_by.iter().map(|k| k.expr.ty()).collect();
        let shown = |a: &[Datum], b: &[Datum]| shown_first(types.iter().copied(), (a, 1), (b, 1));
        let order = |a: &[Datum], b: &[Datum]| by_keys(call, a, b);
        found.sort_by(|a, b| order(&a.1, &b.1).then_with(|| shown(&a.1, &b.1)).then_with(|| a.0.cmp(&b.0)));
        if call.within_group {
            for equal in found.chunk_by_mut(|a, b| order(&a.1, &b.1).is_eq()) {
                let least = equal[0].1.clone();
                equal.iter_mut().for_each(|f| f.1.clone_from(&least));
            }
        }
    }
    let mut values = Vec::with_capacity(found.len());
    for (mut args, keys, w) in found {
        if call.within_group {
            args.extend(keys);
        }
        for _ in 1..w {
            values.push(args.clone());
        }
        values.push(args);
    }
    family(&call.sig).value(call, &values)
}

/// Returns `Σ weight × value` of an accumulator over weighted rows. The sum is 0 if no row has a value.
///
/// # Errors
/// Fails if an expression of the accumulator raises an error, or if the sum overflows (22003).
pub(crate) fn total(acc: &Acc, rows: &[(&Row, i64)]) -> Result<Datum> {
    let overflow = || Error::data("22003", "bigint out of range");
    let mut count: i64 = 0;
    let mut sum = match acc.zero() {
        Datum::Numeric(zero) => Numeric::clone(&zero),
        _ => Numeric::from(0),
    };
    for (row, w) in rows {
        if let Some(filter) = &acc.filter
            && !is_true(filter, row)?
        {
            continue;
        }
        let value = match &acc.value {
            Some(value) => expr(value, row)?,
            None => Datum::Int(1),
        };
        match (value, &acc.ty) {
            (Datum::Null, _) => {}
            (Datum::Int(v), Type::Int8) => {
                count = v.checked_mul(*w).and_then(|v| count.checked_add(v)).ok_or_else(overflow)?;
            }
            (Datum::Int(v), _) => sum = sum.add(&Numeric::from(v).multiply(&Numeric::from(*w))?)?,
            (Datum::Numeric(v), _) => sum = sum.add(&v.multiply(&Numeric::from(*w))?)?,
            (other, ty) => return Err(Error::plan(format!("an accumulator of type {ty} met {other}"))),
        }
    }
    Ok(if acc.ty == Type::Int8 { Datum::Int(count) } else { Datum::Numeric(Arc::new(sum)) })
}

/// Whether an accumulator's value is 0.
pub(crate) fn is_zero(value: &Datum) -> bool {
    compare(value, &Datum::Int(0)).is_eq()
}
