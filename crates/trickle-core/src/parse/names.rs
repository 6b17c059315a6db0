//! Reads identifiers and types as PostgreSQL does.

use super::ast::{
    ArrayElemTypeDef, DataType, Expr, Ident, ObjectName, ObjectNamePart, Visit, visit_expressions,
    visit_relations,
};
use crate::types::{OtherType, Type};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Returns the name that an identifier denotes: in lower case if the identifier is unquoted, and cut to 63
/// bytes.
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

/// Returns the parts of a dotted name, without the mark for ONLY.
pub(crate) fn parts(name: &ObjectName) -> Vec<String> {
    name.0
        .iter()
        .filter(|p| !super::forms::is_mark(p))
        .map(|p| match p {
            ObjectNamePart::Identifier(i) => fold(i),
            ObjectNamePart::Function(f) => fold(&f.name),
        })
        .collect()
}

/// Returns the schema and the name of `schema.name` or `name`. The name of a database before the schema is
/// dropped.
pub(crate) fn qualified(name: &ObjectName) -> (Option<String>, String) {
    let mut parts = parts(name);
    let last = parts.pop().unwrap_or_default();
    (parts.pop(), last)
}

/// Finds a type by its name in the query; `named` finds types that are not built in.
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
            // Arrays have the same type, whatever the number of their dimensions.
            Ok(if element.element().is_some() { element } else { element.array() })
        }
        DataType::Interval { .. } => Ok(Type::Interval),
        DataType::Custom(name, modifiers) => {
            let (schema, base) = qualified(name);
            let quoted =
                name.0.last().and_then(ObjectNamePart::as_ident).is_some_and(|i| i.quote_style.is_some());
            let modified = |name: &str| match modifiers.is_empty() {
                true => name.to_owned(),
                false => format!("{name}({})", modifiers.join(",")),
            };
            if schema.as_deref().is_none_or(|s| s == "pg_catalog") {
                // The type `"char"` is not `char(1)`, and the quoted name `"bit"` means bit strings of any
                // length.
                let spelled = match base.as_str() {
                    "char" if quoted => "\"char\"",
                    "bit" if quoted && modifiers.is_empty() => "\"bit\"",
                    plain => plain,
                };
                if let Some(t) = Type::parse(&modified(spelled)) {
                    return Ok(t);
                }
            }
            let found = named(schema.as_deref(), &base).ok_or(name.to_string())?;
            Ok(match found {
                Type::Other(o) if !modifiers.is_empty() => {
                    Type::Other(Arc::new(OtherType { sql_name: modified(&o.sql_name), ..(*o).clone() }))
                }
                other => other,
            })
        }
        plain => {
            let text = plain.to_string();
            Type::parse(&text).ok_or(text)
        }
    }
}

/// Returns the number of fractional digits to which a cast to a date/time type rounds; `None` if the type
/// does not state the number.
pub(crate) fn precision(ty: &DataType) -> Option<u64> {
    match ty {
        DataType::Timestamp(p, _) | DataType::Time(p, _) | DataType::Interval { precision: p, .. } => *p,
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(e, _)
            | ArrayElemTypeDef::Qualified(e, _)
            | ArrayElemTypeDef::AngleBracket(e)
            | ArrayElemTypeDef::Parenthesis(e),
        ) => precision(e),
        _ => None,
    }
}

/// Returns the first and the last field of a cast to an interval type that keeps these fields alone, such as
/// `day` and `minute`.
pub(crate) fn interval_fields(ty: &DataType) -> Option<(String, String)> {
    let DataType::Interval { fields: Some(fields), .. } = ty else { return None };
    let text = fields.to_string().to_ascii_lowercase();
    let (first, last) = text.split_once(" to ").unwrap_or((&text, &text));
    Some((first.to_owned(), last.to_owned()))
}

/// Returns the names of the functions that an expression calls, each with its schema if one is given. Calls
/// within subqueries are among them. The calls that the parser marks as forms of their own are left out.
pub(crate) fn called(e: &Expr) -> Vec<(Option<String>, String)> {
    let mut found = Vec::new();
    let _ = visit_expressions(e, |e| {
        if let Expr::Function(f) = e {
            let parts: Vec<String> = f.name.0.iter().filter_map(ObjectNamePart::as_ident).map(fold).collect();
            match parts.as_slice() {
                [name] if !name.starts_with('\0') => found.push((None, name.clone())),
                [.., schema, name] if !schema.starts_with('\0') => {
                    found.push((Some(schema.clone()), name.clone()))
                }
                _ => {}
            }
        }
        ControlFlow::<()>::Continue(())
    });
    found
}

/// Counts how often a query, or a part of a query, contains this name of a relation without a schema.
pub(crate) fn reads(tree: &impl Visit, name: &str) -> usize {
    let mut n = 0;
    let _ = visit_relations(tree, |relation| {
        if let [ObjectNamePart::Identifier(i)] = relation.0.as_slice() {
            n += usize::from(fold(i) == name);
        }
        ControlFlow::<()>::Continue(())
    });
    n
}

/// Returns the names of relations in a query or a part of a query, each with its schema if one is given.
/// Names of CTEs are among the names.
pub(crate) fn relations(tree: &impl Visit) -> Vec<(Option<String>, String)> {
    let mut found = Vec::new();
    let _ = visit_relations(tree, |relation| {
        let parts = relation.0.iter().filter_map(ObjectNamePart::as_ident).map(fold);
        // The mark for ONLY stands before the name. No identifier of a query can begin with NUL.
        let parts: Vec<String> = parts.filter(|p| !p.starts_with('\0')).collect();
        match parts.as_slice() {
            [name] => found.push((None, name.clone())),
            [.., schema, name] => found.push((Some(schema.clone()), name.clone())),
            [] => {}
        }
        ControlFlow::<()>::Continue(())
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_are_found_wherever_they_stand() {
        let sql = "WITH w AS (SELECT * FROM a) SELECT (SELECT 1 FROM s.b) FROM w, ONLY \"C\" x WHERE EXISTS (TABLE d)";
        let found = crate::parse::parse_query(sql).unwrap().relations();
        let mut names: Vec<String> =
            found.into_iter().map(|(s, n)| s.map_or(n.clone(), |s| format!("{s}.{n}"))).collect();
        names.sort();
        assert_eq!(names, ["C", "a", "d", "s.b", "w"]);
    }

    #[test]
    fn unquoted_names_fold_and_long_ones_are_cut() {
        assert_eq!(fold(&Ident::new("MyTable")), "mytable");
        assert_eq!(fold(&Ident::with_quote('"', "MyTable")), "MyTable");
        assert_eq!(fold(&Ident::new("é".repeat(40))).len(), 62);
    }
}
