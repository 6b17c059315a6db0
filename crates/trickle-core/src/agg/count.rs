//! The aggregates `count(*)` and `count(x)`.

use super::{Acc, AggCall, Facts, Family, Linear, NullValue, Upkeep, ValueOf, aggregate, also};
use crate::error::Result;
use crate::expr::FuncSig;
use crate::types::{Datum, Type};

pub(super) struct Count;

pub(super) fn signature(args: &[Type]) -> FuncSig {
    aggregate("count", args.to_vec(), Type::Int8, false)
}

impl Family for Count {
    fn names(&self) -> &'static [&'static str] {
        &["count"]
    }

    fn facts(&self, _name: &str) -> Facts {
        Facts { null: NullValue::Never, ..Facts::of(ValueOf::Total) }
    }

    fn signature(&self, _name: &str, args: &[Type]) -> Option<FuncSig> {
        (args.len() <= 1).then(|| signature(args))
    }

    fn of_nothing(&self, _call: &AggCall) -> Option<Datum> {
        Some(Datum::Int(0))
    }

    fn upkeep(&self, call: &AggCall) -> Upkeep {
        let filter = match call.args.first() {
            Some(arg) => also(&call.filter, arg.clone().is_not_null()),
            None => call.filter.clone(),
        };
        Upkeep::Linear(Linear { accs: vec![Acc::count(filter)], finish: |_, accs| accs[0].clone() })
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        let counted = rows.iter().filter(|r| call.args.is_empty() || !r[0].is_null()).count();
        Ok(Datum::Int(i64::try_from(counted).unwrap_or(i64::MAX)))
    }
}
