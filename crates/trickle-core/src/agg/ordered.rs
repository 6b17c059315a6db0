//! Ordered-set aggregates, `f(…) WITHIN GROUP (ORDER BY …)`: `mode`, `percentile_cont` and `percentile_disc`
//! (PostgreSQL manual, 9.21, tables of ordered-set and hypothetical-set aggregates). Hypothetical-set
//! aggregates return the position that a row would have among the group's rows: `rank`, `dense_rank`,
//! `percent_rank`, `cume_dist`.

use super::{AggCall, Facts, Family, NullValue, OrderOf, ValueOf, aggregate, by_keys, opaque};
use crate::error::{Error, Result};
use crate::expr::FuncSig;
use crate::expr::functions::common_type;
use crate::types::{Datum, Type};
use crate::values::compare_as;
use std::sync::Arc;

pub(super) struct Ordered;

/// Returns the signature of a call with arguments of types `args` and sort keys of types `keys`.
pub(super) fn signature(name: &str, args: &[Type], keys: &[Type]) -> Option<FuncSig> {
    if is_hypothetical(name) {
        if args.is_empty() || args.len() != keys.len() {
            return None;
        }
        let pairs = args.iter().zip(keys).map(|(a, k)| common_type(&[k.clone(), a.clone()]));
        let ret = if matches!(name, "rank" | "dense_rank") { Type::Int8 } else { Type::Float8 };
        return Some(aggregate(name, pairs.collect::<Option<_>>()?, ret, false));
    }
    let [key] = keys else { return None };
    if let ("mode", []) = (name, args) {
        return Some(aggregate(name, Vec::new(), key.clone(), false));
    }
    let [fraction] = args else { return None };
    let several = fraction.element().is_some();
    let ret = match name {
        "percentile_disc" => key.clone(),
        "percentile_cont" if *key == Type::Interval => Type::Interval,
        "percentile_cont" if key.is_number() => Type::Float8,
        _ => return None,
    };
    let (arg, ret) = if several { (Type::Float8.array(), ret.array()) } else { (Type::Float8, ret) };
    let number = fraction.element().unwrap_or(fraction);
    (number.is_number() || *number == Type::Unknown).then(|| aggregate(name, vec![arg], ret, true))
}

/// Whether the arguments are a hypothetical row. The aggregate then computes the row's position among the
/// group's rows.
fn is_hypothetical(name: &str) -> bool {
    matches!(name, "rank" | "dense_rank" | "percent_rank" | "cume_dist")
}

impl Family for Ordered {
    fn names(&self) -> &'static [&'static str] {
        &["mode", "percentile_cont", "percentile_disc", "rank", "dense_rank", "percent_rank", "cume_dist"]
    }

    fn facts(&self, name: &str) -> Facts {
        let value = match name {
            "mode" | "percentile_disc" => ValueOf::Pick,
            "percentile_cont" | "rank" | "dense_rank" | "percent_rank" | "cume_dist" => ValueOf::Function,
            _ => ValueOf::Unknown,
        };
        Facts { null: NullValue::Unknown, value, order: OrderOf::Matters }
    }

    /// Returns `None`, since the signature also depends on the types of the sort keys (see [`signature`]).
    fn signature(&self, _name: &str, _args: &[Type]) -> Option<FuncSig> {
        None
    }

    fn knows(&self, sig: &FuncSig) -> bool {
        self.names().contains(&&*sig.name)
    }

    fn of_nothing(&self, call: &AggCall) -> Option<Datum> {
        Some(if is_hypothetical(&call.sig.name) { place(call, &[]) } else { Datum::Null })
    }

    fn is_opaque(&self, call: &AggCall) -> bool {
        call.sig.ret.element().is_some()
            || (&*call.sig.name, &call.sig.ret) == ("percentile_cont", &Type::Interval)
    }

    /// Computes the value of a call over one group. NULL keys are skipped, except by the hypothetical-set
    /// aggregates.
    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        if self.is_opaque(call) {
            return Ok(opaque(call, rows));
        }
        if is_hypothetical(&call.sig.name) {
            return Ok(place(call, rows));
        }
        let keys: Vec<&Datum> = rows.iter().filter_map(|r| r.last()).filter(|k| !k.is_null()).collect();
        if &*call.sig.name == "mode" {
            return Ok(mode(call, &keys));
        }
        let (Some(Datum::Float(fraction)), false) = (rows.first().map(|r| &r[0]), keys.is_empty()) else {
            return Ok(Datum::Null);
        };
        if !(0.0..=1.0).contains(fraction) {
            let message = format!("percentile value {fraction} is not between 0 and 1");
            return Err(Error::data("22003", message));
        }
        if &*call.sig.name == "percentile_disc" {
            let nth = (fraction * to_float(keys.len())).ceil().max(1.0);
            return Ok(keys[to_index(nth) - 1].clone());
        }
        let at = fraction * to_float(keys.len() - 1);
        let (low, high) = (number(keys[to_index(at.floor())]), number(keys[to_index(at.ceil())]));
        Ok(Datum::Float(if at.floor() == at.ceil() { low } else { low + (at - at.floor()) * (high - low) }))
    }
}

/// Returns the position that a hypothetical row would have among the keys. The hypothetical row consists of
/// the arguments, which are the same in all `rows`. The keys come after them.
fn place(call: &AggCall, rows: &[Vec<Datum>]) -> Datum {
    let split = |r: &Vec<Datum>| call.args.len().min(r.len());
    let against = |r: &Vec<Datum>| by_keys(call, &r[split(r)..], &r[..split(r)]);
    let before = rows.iter().filter(|r| against(r).is_lt()).count();
    let peers = rows.iter().filter(|r| against(r).is_eq()).count();
    let count = |n: usize| Datum::Int(i64::try_from(n).unwrap_or(i64::MAX));
    match &*call.sig.name {
        "rank" => count(before + 1),
        "dense_rank" => {
            let mut earlier: Vec<&Vec<Datum>> = rows.iter().filter(|r| against(r).is_lt()).collect();
            earlier.dedup_by(|a, b| by_keys(call, &a[split(a)..], &b[split(b)..]).is_eq());
            count(earlier.len() + 1)
        }
        "percent_rank" if rows.is_empty() => Datum::Float(0.0),
        "percent_rank" => Datum::Float(to_float(before) / to_float(rows.len())),
        _ => Datum::Float(to_float(before + peers + 1) / to_float(rows.len() + 1)),
    }
}

/// Returns the first of the values that occur most often.
fn mode(call: &AggCall, keys: &[&Datum]) -> Datum {
    let mut best: Option<&[&Datum]> = None;
    for run in keys.chunk_by(|a, b| compare_as(&call.sig.ret, a, b).is_eq()) {
        if best.is_none_or(|b| b.len() < run.len()) {
            best = Some(run);
        }
    }
    best.map_or(Datum::Null, |run| run[0].clone())
}

fn number(d: &Datum) -> f64 {
    match d {
        #[allow(clippy::cast_precision_loss, reason = "as the cast of bigint to double precision")]
        Datum::Int(i) => *i as f64,
        Datum::Numeric(n) => Arc::as_ref(n).to_f64(),
        Datum::Float(x) => *x,
        _ => f64::NAN,
    }
}

#[allow(clippy::cast_precision_loss, reason = "a group in memory has fewer than 2^53 rows")]
fn to_float(n: usize) -> f64 {
    n as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and the number of rows"
)]
fn to_index(x: f64) -> usize {
    x as usize
}
