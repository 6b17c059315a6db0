//! Every aggregate that is kept by recomputing its touched groups, user-defined ones included.

use super::{AggCall, Family, aggregate};
use crate::error::Result;
use crate::expr::FuncSig;
use crate::types::{Datum, Type};

pub(super) struct Other;

impl Family for Other {
    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig> {
        let ret = match (name, args) {
            ("array_agg", [arg]) => arg.clone().array(),
            ("string_agg", [Type::Text | Type::Varchar(_) | Type::Unknown, _]) => Type::Text,
            ("string_agg", [Type::Bytea, Type::Bytea]) => Type::Bytea,
            ("json_agg", [_]) | ("json_object_agg", [_, _]) => Type::Json,
            ("jsonb_agg", [_]) | ("jsonb_object_agg", [_, _]) => Type::Jsonb,
            ("sum", [Type::Other(o)]) if o.sql_name == "money" => args[0].clone(),
            _ => return None,
        };
        Some(aggregate(name, args.to_vec(), ret, false))
    }

    fn is_opaque(&self, call: &AggCall) -> bool {
        let known = match (&*call.sig.name, call.sig.args.as_slice()) {
            ("array_agg", [_]) => true,
            ("string_agg", [text, _]) => *text != Type::Bytea,
            _ => false,
        };
        call.sig.schema.is_some() || !known
    }

    fn minds_order(&self) -> bool {
        true
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        if self.is_opaque(call) {
            return Ok(crate::eval::aggregates::opaque(call, rows));
        }
        Ok(crate::eval::aggregates::collected(call, rows))
    }
}
