//! Every aggregate that is kept by recomputing its touched groups, user-defined ones included.

use super::OrderOf::{self, Minded, Open};
use super::ValueOf::{self, Function, List, Pick, TextList, Texts};
use super::{AggCall, Facts, Family, NullValue, aggregate};
use crate::error::Result;
use crate::expr::FuncSig;
use crate::types::{Datum, Type};

pub(super) struct Other;

/// The aggregates of this family that are PostgreSQL's own. An object of jsonb with unique keys is the same for
/// each order, since jsonb sorts its keys.
const AGGREGATES: [(&str, ValueOf, OrderOf); 19] = [
    ("array_agg", List, Minded),
    ("string_agg", TextList, Minded),
    ("json_agg", TextList, Minded),
    ("json_agg_strict", TextList, Minded),
    ("jsonb_agg", List, Minded),
    ("jsonb_agg_strict", List, Minded),
    ("json_object_agg", Texts, Minded),
    ("json_object_agg_strict", Texts, Minded),
    ("json_object_agg_unique", Texts, Minded),
    ("json_object_agg_unique_strict", Texts, Minded),
    ("jsonb_object_agg", Function, Minded),
    ("jsonb_object_agg_strict", Function, Minded),
    ("jsonb_object_agg_unique", Function, Open),
    ("jsonb_object_agg_unique_strict", Function, Open),
    ("any_value", Pick, Open),
    ("xmlagg", TextList, Minded),
    ("range_agg", Function, Open),
    ("range_intersect_agg", Function, Open),
    ("sum", Function, Open),
];

impl Family for Other {
    fn names(&self) -> &'static [&'static str] {
        const NAMES: [&str; AGGREGATES.len()] = {
            let mut names = [""; AGGREGATES.len()];
            let mut i = 0;
            while i < names.len() {
                names[i] = AGGREGATES[i].0;
                i += 1;
            }
            names
        };
        &NAMES
    }

    fn facts(&self, name: &str) -> Facts {
        let found = AGGREGATES.iter().find(|(known, ..)| *known == name);
        found.map_or(Facts::UNKNOWN, |(_, value, order)| Facts {
            null: NullValue::Unknown,
            value: *value,
            order: *order,
        })
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
