//! Every aggregate that is kept by recomputing its touched groups, user-defined ones included.

use super::{AggCall, Family, aggregate};
use crate::error::Result;
use crate::expr::FuncSig;
use crate::types::{Datum, Type};

pub(super) struct Other;

impl Family for Other {
    fn names(&self) -> &'static [&'static str] {
        &[
            "array_agg",
            "string_agg",
            "json_agg",
            "json_agg_strict",
            "jsonb_agg",
            "jsonb_agg_strict",
            "json_object_agg",
            "json_object_agg_strict",
            "json_object_agg_unique",
            "json_object_agg_unique_strict",
            "jsonb_object_agg",
            "jsonb_object_agg_strict",
            "jsonb_object_agg_unique",
            "jsonb_object_agg_unique_strict",
            "any_value",
            "xmlagg",
            "range_agg",
            "range_intersect_agg",
            "sum",
        ]
    }

    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig> {
        let ret = match (name, args) {
            ("array_agg", [arg]) => arg.clone().array(),
            ("any_value", [arg]) => arg.clone(),
            ("string_agg", [Type::Text | Type::Varchar(_) | Type::Unknown, _]) => Type::Text,
            ("string_agg", [Type::Bytea, Type::Bytea]) => Type::Bytea,
            (json, [_]) if json.starts_with("json_agg") => Type::Json,
            (json, [_, _]) if json.starts_with("json_object_agg") => Type::Json,
            (json, [_]) if json.starts_with("jsonb_agg") => Type::Jsonb,
            (json, [_, _]) if json.starts_with("jsonb_object_agg") => Type::Jsonb,
            ("sum", [Type::Other(o)]) if o.sql_name == "money" => args[0].clone(),
            ("xmlagg", [Type::Other(o)]) if o.sql_name == "xml" => args[0].clone(),
            ("range_agg", [Type::Other(o)]) => multirange(&o.sql_name)?,
            ("range_intersect_agg", [Type::Other(o)]) => {
                multirange(&o.sql_name)?;
                args[0].clone()
            }
            _ => return None,
        };
        // An object aggregate may raise on a NULL key, a unique one also on a repeated key.
        let raises = name.contains("_object_agg");
        Some(aggregate(name, args.to_vec(), ret, raises))
    }

    fn of_nothing(&self, call: &AggCall) -> Option<Datum> {
        call.sig.schema.is_none().then_some(Datum::Null)
    }

    fn is_opaque(&self, call: &AggCall) -> bool {
        let known = match (&*call.sig.name, call.sig.args.as_slice()) {
            ("array_agg" | "any_value", [_]) => true,
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

/// Returns the multirange type of a built-in range or multirange type.
fn multirange(name: &str) -> Option<Type> {
    let base = name.strip_suffix("multirange").or_else(|| name.strip_suffix("range"))?;
    Type::parse(&format!("{base}multirange"))
}
