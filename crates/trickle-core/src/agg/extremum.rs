//! The aggregates `min` and `max`.

use super::{AggCall, Facts, Family, Upkeep, ValueOf, aggregate};
use crate::error::Result;
use crate::expr::FuncSig;
use crate::types::{Datum, Type};

pub(super) struct Extremum;

fn greatest(sig: &FuncSig) -> bool {
    &*sig.name == "max"
}

impl Family for Extremum {
    fn names(&self) -> &'static [&'static str] {
        &["min", "max"]
    }

    fn facts(&self, _name: &str) -> Facts {
        Facts::of(ValueOf::Pick)
    }

    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig> {
        let [arg] = args else { return None };
        let has = arg.is_ordered()
            && !matches!(arg, Type::Bool | Type::Uuid | Type::Jsonb | Type::Unknown | Type::Record(_));
        let ret = match arg {
            Type::Varchar(_) => Type::Text,
            other => other.base(),
        };
        has.then(|| aggregate(name, vec![ret.clone()], ret, false))
    }

    fn upkeep(&self, call: &AggCall) -> Upkeep {
        // For an inexact type, the present values determine which of several equal values (1.0, 1.00) is
        // returned. The aggregate is therefore recomputed.
        match call.args.first() {
            Some(arg) if arg.ty().is_exact() || arg.fixed_scale().is_some() => {
                Upkeep::Extremum { greatest: greatest(&call.sig) }
            }
            _ => Upkeep::Rescan,
        }
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        let values = rows.iter().map(|r| &r[0]).filter(|d| !d.is_null());
        let ty = &call.sig.args[0];
        let order = |a: &&Datum, b: &&Datum| {
            let order = crate::values::compare_as(ty, a, b);
            let order = if greatest(&call.sig) { order.reverse() } else { order };
            order.then_with(|| crate::expr::compare_images(ty, a, b)).then_with(|| a.cmp(b))
        };
        Ok(values.min_by(order).cloned().unwrap_or(Datum::Null))
    }
}
