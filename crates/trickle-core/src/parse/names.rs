//! Identifiers and types as PostgreSQL reads them.

use super::ast::{ArrayElemTypeDef, DataType, Ident, ObjectName, ObjectNamePart};
use crate::types::{OtherType, Type};
use std::sync::Arc;

/// The name that an identifier stands for: unquoted ones in lower case, at most 63 bytes.
pub(crate) fn fold(ident: &Ident) -> String {
    let mut name = match ident.quote_style {
        None => ident.value.to_ascii_lowercase(),
        Some(_) => ident.value.clone(),
    };
    if name.len() > 63 {
        let cut = (0..=63).rev().find(|i| name.is_char_boundary(*i)).unwrap_or(0);
        name.truncate(cut);
    }
    name
}

/// The parts of a dotted name.
pub(crate) fn parts(name: &ObjectName) -> Vec<String> {
    name.0
        .iter()
        .map(|p| match p {
            ObjectNamePart::Identifier(i) => fold(i),
            ObjectNamePart::Function(f) => fold(&f.name),
        })
        .collect()
}

/// `schema.name` or `name`; a database in front is dropped.
pub(crate) fn qualified(name: &ObjectName) -> (Option<String>, String) {
    let mut parts = parts(name);
    let last = parts.pop().unwrap_or_default();
    (parts.pop(), last)
}

/// The type behind a type name; `named` knows those that are not built in.
pub(crate) fn type_of(
    ty: &DataType,
    named: &dyn Fn(Option<&str>, &str) -> Option<Type>,
) -> Result<Type, String> {
    match ty {
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(e, _)
            | ArrayElemTypeDef::Qualified(e, _)
            | ArrayElemTypeDef::AngleBracket(e)
            | ArrayElemTypeDef::Parenthesis(e),
        ) => {
            let element = type_of(e, named)?;
            // An array of any number of dimensions is one type.
            Ok(if element.element().is_some() { element } else { element.array() })
        }
        DataType::Interval { .. } => Ok(Type::Interval),
        DataType::Custom(name, modifiers) => {
            let (schema, base) = qualified(name);
            if schema.as_deref().is_none_or(|s| s == "pg_catalog") {
                let text = if modifiers.is_empty() {
                    base.clone()
                } else {
                    format!("{base}({})", modifiers.join(","))
                };
                if let Some(t) = Type::parse(&text).or_else(|| other(&base)) {
                    return Ok(t);
                }
            }
            named(schema.as_deref(), &base).ok_or(name.to_string())
        }
        plain => {
            let text = plain.to_string();
            let word = text.split('(').next().unwrap_or_default().trim().to_ascii_lowercase();
            Type::parse(&text).or_else(|| other(&word)).ok_or(text)
        }
    }
}

/// Built-in types that the engine has no variant for.
fn other(name: &str) -> Option<Type> {
    // (equality, hashable, ordered)
    let (equality, hashable, ordered) = match name {
        "xml" | "point" | "line" | "lseg" | "box" | "path" | "polygon" | "jsonpath" => (false, false, false),
        "circle" => (false, false, false),
        "money" | "bit" | "varbit" | "bit varying" | "tsvector" | "tsquery" => (true, false, true),
        "inet"
        | "cidr"
        | "macaddr"
        | "macaddr8"
        | "oid"
        | "name"
        | "timetz"
        | "regclass"
        | "xid8"
        | "pg_lsn"
        | "time with time zone"
        | "int4range"
        | "int8range"
        | "numrange"
        | "tsrange"
        | "tstzrange"
        | "daterange"
        | "int4multirange"
        | "int8multirange"
        | "nummultirange"
        | "tsmultirange"
        | "tstzmultirange"
        | "datemultirange" => (true, true, true),
        "xid" => (true, true, false),
        _ => return None,
    };
    let exact = !matches!(name, "numrange" | "nummultirange" | "timetz" | "time with time zone");
    Some(Type::Other(Arc::new(OtherType { sql_name: name.to_owned(), equality, hashable, ordered, exact })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquoted_names_fold_and_long_ones_are_cut() {
        assert_eq!(fold(&Ident::new("MyTable")), "mytable");
        assert_eq!(fold(&Ident::with_quote('"', "MyTable")), "MyTable");
        assert_eq!(fold(&Ident::new("é".repeat(40))).len(), 62);
    }
}
