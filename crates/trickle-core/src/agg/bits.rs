//! The aggregates `bit_and`, `bit_or` and `bit_xor` of integers.

use super::{AggCall, Facts, Family, NullValue, ValueOf, aggregate};
use crate::error::Result;
use crate::expr::FuncSig;
use crate::types::{Datum, Type};

pub(super) struct Bits;

impl Family for Bits {
    fn names(&self) -> &'static [&'static str] {
        &["bit_and", "bit_or", "bit_xor"]
    }

    fn facts(&self, _name: &str) -> Facts {
        Facts { null: NullValue::Unknown, ..Facts::of(ValueOf::Function) }
    }

    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig> {
        let [arg] = args else { return None };
        arg.is_integer().then(|| aggregate(name, vec![arg.clone()], arg.clone(), false))
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        let ints = rows.iter().filter_map(|r| if let Datum::Int(i) = r[0] { Some(i) } else { None });
        let joined = match &*call.sig.name {
            "bit_and" => ints.reduce(|a, b| a & b),
            "bit_or" => ints.reduce(|a, b| a | b),
            _ => ints.reduce(|a, b| a ^ b),
        };
        Ok(joined.map_or(Datum::Null, Datum::Int))
    }
}
