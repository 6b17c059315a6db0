//! `sum(x)`: linear for integers, and for numerics that have a few known scales. Other sums are recomputed.

use super::{Acc, AggCall, Facts, Family, Linear, Upkeep, ValueOf, addition, aggregate, also};
use crate::error::Result;
use crate::expr::functions::resolve_function;
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::types::{Datum, Numeric, Type};
use std::sync::Arc;

pub(super) struct Sum;

impl Family for Sum {
    fn names(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn facts(&self, _name: &str) -> Facts {
        Facts::of(ValueOf::Total)
    }

    fn signature(&self, _name: &str, args: &[Type]) -> Option<FuncSig> {
        let [arg] = args else { return None };
        let ret = match arg {
            Type::Int2 | Type::Int4 => Type::Int8,
            Type::Int8 | Type::Numeric(_) => Type::Numeric(None),
            Type::Float4 | Type::Float8 | Type::Interval => arg.clone(),
            _ => return None,
        };
        Some(aggregate("sum", vec![arg.base()], ret, true))
    }

    fn upkeep(&self, call: &AggCall) -> Upkeep {
        match totals(call) {
            Some(accs) => {
                Upkeep::Linear(Linear { accs, finish: |call, accs| finish(call, accs, |sum, _| sum.clone()) })
            }
            None => Upkeep::Rescan,
        }
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        addition::sum(&call.sig.args[0], rows)
    }
}

/// Returns the accumulators of a sum: the count of values other than NULL, and the total. For numerics there
/// are two kinds of further counts. The first is the count of NaN. The total leaves out NaN, since NaN + 1 −
/// NaN is NaN. The second is, for each scale except the least, the count of values of this scale. It is
/// needed since a sum is written with the greatest scale of its values. Returns `None` where adding a value
/// and subtracting it again may change the total.
pub(super) fn totals(call: &AggCall) -> Option<Vec<Acc>> {
    let arg = call.args.first()?;
    let scales = arg.scales()?;
    let present = also(&call.filter, arg.clone().is_not_null());
    if arg.ty().is_integer() {
        return Some(vec![Acc::count(present), Acc::sum(arg.clone(), call.filter.clone())]);
    }
    if arg.may_be_infinite() {
        return None;
    }
    let is_nan = arg.clone().equals(nan());
    let finite = compared("<>", arg.clone(), nan());
    let value = match scales.as_slice() {
        [_] => arg.clone(),
        [.., greatest] => rounded(arg, *greatest)?,
        [] => return None,
    };
    let mut accs = vec![
        Acc::count(present),
        Acc::sum(value, also(&call.filter, finite)),
        Acc::count(also(&call.filter, is_nan)),
    ];
    let scale = resolve_function("scale", &[Type::Numeric(None)])?;
    accs.extend(scales.iter().skip(1).map(|s| {
        let written = Expr::call(scale.clone(), vec![arg.clone().cast(Type::Numeric(None))]);
        let so = written.equals(Expr::literal(Datum::Int(i64::from(*s)), Type::Int4));
        Acc::count(also(&call.filter, so))
    }));
    Some(accs)
}

/// Returns NULL for a group without values, and NaN where one of the values is NaN. Otherwise returns
/// `value(total, count)`.
pub(super) fn finish(call: &AggCall, accs: &[Expr], value: fn(&Expr, &Expr) -> Expr) -> Expr {
    let ret = &call.sig.ret;
    let (present, total) = (&accs[0], &accs[1]);
    let some = |count: &Expr| compared(">", count.clone(), Expr::int8(0));
    let mut whens = vec![(present.clone().equals(Expr::int8(0)), Expr::null(ret.clone()))];
    whens.extend(accs.get(2).map(|nans| (some(nans), nan())));
    let scales = call.args.first().and_then(Expr::scales).unwrap_or_default();
    let greatest = scales.last().copied();
    let as_written =
        |s: &u16| rounded(total, *s).filter(|_| Some(*s) != greatest).unwrap_or_else(|| total.clone());
    let mut written: Vec<Expr> = scales.iter().map(as_written).collect();
    let least = match scales.len() {
        0 | 1 => total.clone(),
        _ => written.remove(0),
    };
    let counted = accs.iter().skip(3).zip(&written).rev();
    whens.extend(counted.map(|(count, total)| (some(count), value(total, present))));
    Expr::new(ExprKind::Case { whens, otherwise: value(&least, present) }, ret.clone())
}

fn rounded(value: &Expr, scale: u16) -> Option<Expr> {
    let round = resolve_function("round", &[Type::Numeric(None), Type::Int4])?;
    let digits = Expr::literal(Datum::Int(i64::from(scale)), Type::Int4);
    Some(Expr::call(round, vec![value.clone().cast(Type::Numeric(None)), digits]))
}

fn compared(op: &str, left: Expr, right: Expr) -> Expr {
    Expr::call(FuncSig::comparison(op, left.ty().clone(), right.ty().clone()), vec![left, right])
}

/// Makes the constant `'NaN'::numeric`.
pub(crate) fn nan() -> Expr {
    Expr::literal(Datum::Numeric(Arc::new(Numeric::NaN)), Type::Numeric(None))
}
