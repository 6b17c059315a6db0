//! `sum(x)`: linear for integers and for numerics of one fixed scale, else recomputed.

use super::{Acc, AggCall, Family, Linear, Upkeep, aggregate, also};
use crate::error::Result;
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::types::{Datum, Numeric, Type};
use std::sync::Arc;

pub(super) struct Sum;

impl Family for Sum {
    fn names(&self) -> &'static [&'static str] {
        &["sum"]
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
            Some(accs) => Upkeep::Linear(Linear {
                accs,
                finish: |call, accs| finish(&call.sig.ret, accs, |sum, _| sum.clone()),
            }),
            None => Upkeep::Rescan,
        }
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        crate::eval::aggregates::sum(&call.sig.args[0], rows)
    }
}

/// The accumulators of a sum: the non-NULL count, the total, and for numeric the count of NaN (kept apart, since
/// NaN + 1 − NaN is NaN). `None` where adding and subtracting would leave a trace.
pub(super) fn totals(call: &AggCall) -> Option<Vec<Acc>> {
    let arg = call.args.first()?;
    arg.fixed_scale()?;
    let present = also(&call.filter, arg.clone().is_not_null());
    if arg.ty().is_integer() {
        return Some(vec![Acc::count(present), Acc::sum(arg.clone(), call.filter.clone())]);
    }
    let is_nan = arg.clone().equals(nan());
    let finite = Expr::new(
        ExprKind::Call(
            FuncSig::comparison("<>", arg.ty().clone(), Type::Numeric(None)),
            vec![arg.clone(), nan()],
        ),
        Type::Bool,
    );
    Some(vec![
        Acc::count(present),
        Acc::sum(arg.clone(), also(&call.filter, finite)),
        Acc::count(also(&call.filter, is_nan)),
    ])
}

/// NULL for a group without values, NaN where one is among them, else `value(total, count)`.
pub(super) fn finish(ret: &Type, accs: &[Expr], value: fn(&Expr, &Expr) -> Expr) -> Expr {
    let (present, total) = (&accs[0], &accs[1]);
    let mut whens = vec![(present.clone().equals(Expr::int8(0)), Expr::null(ret.clone()))];
    if let Some(nans) = accs.get(2) {
        let some =
            Expr::call(FuncSig::comparison(">", Type::Int8, Type::Int8), vec![nans.clone(), Expr::int8(0)]);
        whens.push((some, nan()));
    }
    Expr::new(ExprKind::Case { whens, otherwise: value(total, present) }, ret.clone())
}

fn nan() -> Expr {
    Expr::literal(Datum::Numeric(Arc::new(Numeric::NaN)), Type::Numeric(None))
}
