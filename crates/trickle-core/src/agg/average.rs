//! `avg(x)`: the sum divided by the count, with PostgreSQL's division of numerics.

use super::{AggCall, Facts, Family, Linear, Upkeep, ValueOf, addition, aggregate, sum};
use crate::error::Result;
use crate::expr::{Expr, FuncSig};
use crate::types::{Datum, Type};
use std::sync::Arc;

pub(super) struct Average;

impl Family for Average {
    fn names(&self) -> &'static [&'static str] {
        &["avg"]
    }

    fn facts(&self, _name: &str) -> Facts {
        Facts::of(ValueOf::Total)
    }

    fn signature(&self, _name: &str, args: &[Type]) -> Option<FuncSig> {
        let [arg] = args else { return None };
        let ret = match arg {
            Type::Int2 | Type::Int4 | Type::Int8 | Type::Numeric(_) => Type::Numeric(None),
            Type::Float4 | Type::Float8 => Type::Float8,
            Type::Interval => Type::Interval,
            _ => return None,
        };
        Some(aggregate("avg", vec![arg.base()], ret, true))
    }

    fn upkeep(&self, call: &AggCall) -> Upkeep {
        match sum::totals(call) {
            Some(accs) => {
                Upkeep::Linear(Linear { accs, finish: |call, accs| sum::finish(call, accs, quotient) })
            }
            None => Upkeep::Rescan,
        }
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        addition::average(&call.sig.args[0], rows)
    }
}

/// Returns `total / count` as a numeric. The division never raises an error, since a CASE around it excludes
/// the count 0.
fn quotient(total: &Expr, count: &Expr) -> Expr {
    let numeric = Type::Numeric(None);
    let sig = FuncSig::operator("/", vec![numeric.clone(), numeric.clone()], numeric.clone());
    let sig = Arc::new(FuncSig { raises: false, ..(*sig).clone() });
    Expr::call(sig, vec![total.clone().cast(numeric.clone()), count.clone().cast(numeric)])
}
