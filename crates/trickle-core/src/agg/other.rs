//! The aggregates that are recomputed for each touched group. User-defined aggregates are included.

use super::NullValue::{self, Unknown, WithoutValues};
use super::OrderOf::{self, Free, Matters, Open};
use super::ValueOf::{self, Function, List, Pick, TextList, Texts, Total};
use super::addition::present;
use super::{AggCall, Facts, Family, aggregate, opaque};
use crate::error::Result;
use crate::expr::FuncSig;
use crate::types::{Datum, Type};

pub(super) struct Other;

/// The aggregates of this family that PostgreSQL provides. A jsonb object with unique keys is the same for
/// every order of the rows, since jsonb sorts its keys.
const AGGREGATES: [(&str, NullValue, ValueOf, OrderOf); 19] = [
    ("array_agg", Unknown, List, Matters),
    ("string_agg", Unknown, TextList, Matters),
    ("json_agg", Unknown, TextList, Matters),
    ("json_agg_strict", Unknown, TextList, Matters),
    ("jsonb_agg", Unknown, TextList, Matters),
    ("jsonb_agg_strict", Unknown, TextList, Matters),
    ("json_object_agg", Unknown, Texts, Matters),
    ("json_object_agg_strict", Unknown, Texts, Matters),
    ("json_object_agg_unique", Unknown, Texts, Matters),
    ("json_object_agg_unique_strict", Unknown, Texts, Matters),
    ("jsonb_object_agg", Unknown, Texts, Matters),
    ("jsonb_object_agg_strict", Unknown, Texts, Matters),
    ("jsonb_object_agg_unique", Unknown, Texts, Free),
    ("jsonb_object_agg_unique_strict", Unknown, Texts, Free),
    ("any_value", Unknown, Pick, Open),
    ("xmlagg", Unknown, TextList, Matters),
    ("range_agg", Unknown, Function, Free),
    ("range_intersect_agg", Unknown, Function, Free),
    ("sum", WithoutValues, Total, Free),
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
        found.map_or(Facts::UNKNOWN, |(_, null, value, order)| Facts {
            null: *null,
            value: *value,
            order: *order,
        })
    }

    fn signature(&self, name: &str, args: &[Type]) -> Option<FuncSig> {
        let ret = match (name, args) {
            // An array of arrays has more dimensions, but the same type.
            ("array_agg", [arg]) if arg.element().is_some() => arg.clone(),
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
        // An aggregate that builds objects may raise an error on a NULL key. Its variants with unique keys
        // also raise an error on a repeated key.
        let raises = name.contains("_object_agg");
        Some(aggregate(name, args.to_vec(), ret, raises))
    }

    fn of_nothing(&self, call: &AggCall) -> Option<Datum> {
        call.sig.schema.is_none().then_some(Datum::Null)
    }

    fn is_opaque(&self, call: &AggCall) -> bool {
        let known = match (&*call.sig.name, call.sig.args.as_slice()) {
            ("array_agg", [arg]) => arg.element().is_none(),
            ("any_value", [_]) => true,
            ("string_agg", [text, _]) => *text != Type::Bytea,
            _ => false,
        };
        call.sig.schema.is_some() || !known
    }

    fn value(&self, call: &AggCall, rows: &[Vec<Datum>]) -> Result<Datum> {
        if self.is_opaque(call) {
            return Ok(opaque(call, rows));
        }
        Ok(collected(call, rows))
    }
}

/// Returns the multirange type that belongs to a built-in range or multirange type.
fn multirange(name: &str) -> Option<Type> {
    let base = name.strip_suffix("multirange").or_else(|| name.strip_suffix("range"))?;
    Type::parse(&format!("{base}multirange"))
}

/// Returns the value of `array_agg`, `string_agg` or `any_value`.
fn collected(call: &AggCall, rows: &[Vec<Datum>]) -> Datum {
    match &*call.sig.name {
        "string_agg" => joined(rows),
        "any_value" => present(rows).next().cloned().unwrap_or(Datum::Null),
        _ if rows.is_empty() => Datum::Null,
        _ => Datum::Array(rows.iter().map(|r| r[0].clone()).collect()),
    }
}

/// Joins texts. Before each text except the first comes the delimiter from the text's own row. NULL texts are
/// skipped, and a NULL delimiter counts as empty.
fn joined(rows: &[Vec<Datum>]) -> Datum {
    let mut out: Option<String> = None;
    for row in rows {
        let Datum::Text(text) = &row[0] else { continue };
        match (&mut out, &row[1]) {
            (None, _) => out = Some(text.to_string()),
            (Some(out), Datum::Text(delimiter)) => {
                out.push_str(delimiter);
                out.push_str(text);
            }
            (Some(out), _) => out.push_str(text),
        }
    }
    out.map_or(Datum::Null, Datum::text)
}
