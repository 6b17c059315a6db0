//! Derives the names that PostgreSQL gives to output columns without an alias.

use super::special::field_name;
use crate::parse::ast::{
    AccessExpr, DataType, Expr, Function, ObjectNamePart, Query, SelectItem, SetExpr, TrimWhereField,
};
use crate::parse::{fold, form_name, is_array_of_query, json_aggregate};
use crate::types::Type;

/// Returns the name of an output expression; `?column?` for an expression without a name.
pub(super) fn column_name(e: &Expr) -> String {
    figure(e).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
}

/// Returns the name of an output expression, and whether this name comes from the innermost expression rather
/// than from a cast or a construct around it.
fn figure(e: &Expr) -> Option<(String, bool)> {
    let own = |s: &str| Some((s.to_owned(), true));
    let weak = |s: &str| Some((s.to_owned(), false));
    match e {
        Expr::Identifier(i) => Some((fold(i), true)),
        Expr::CompoundIdentifier(parts) => parts.last().map(|i| (fold(i), true)),
        Expr::Nested(e) | Expr::Collate { expr: e, .. } => figure(e),
        Expr::CompoundFieldAccess { root, access_chain } => access_chain
            .iter()
            .rev()
            .find_map(|a| match a {
                AccessExpr::Dot(Expr::Identifier(i)) => Some((fold(i), true)),
                _ => None,
            })
            .or_else(|| figure(root)),
        Expr::Function(f) if is_array_of_query(f) => own("array"),
        Expr::Function(f) => function_name(f).map(|n| (n, true)),
        Expr::Cast { expr, data_type, .. } => {
            figure(expr).filter(|(_, own)| *own).or_else(|| type_name(data_type).map(|n| (n, false)))
        }
        Expr::TypedString(t) => type_name(&t.data_type).map(|n| (n, false)),
        Expr::Interval(_) => weak("interval"),
        Expr::Case { else_result, .. } => {
            else_result.as_deref().and_then(figure).filter(|(_, own)| *own).or_else(|| weak("case"))
        }
        Expr::Exists { .. } => own("exists"),
        Expr::Subquery(q) => first_output(q).map(|n| (n, true)),
        Expr::Array(_) => own("array"),
        Expr::Tuple(_) => own("row"),
        Expr::Extract { .. } => own("extract"),
        Expr::Ceil { .. } => own("ceil"),
        Expr::Floor { .. } => own("floor"),
        Expr::Position { .. } => own("position"),
        Expr::Substring { shorthand, .. } => own(if *shorthand { "substr" } else { "substring" }),
        Expr::Overlay { .. } => own("overlay"),
        Expr::Trim { trim_where, .. } => own(match trim_where {
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
            _ => "btrim",
        }),
        Expr::AtTimeZone { .. } => own("timezone"),
        _ => None,
    }
}

fn function_name(f: &Function) -> Option<String> {
    let json = json_aggregate(&f.name).map(|(called, _)| called);
    if let Some(called) = form_name(&f.name).or(json) {
        return Some(called.to_ascii_lowercase());
    }
    match f.name.0.last() {
        Some(ObjectNamePart::Identifier(i)) => Some(fold(i)),
        _ => None,
    }
}

/// Returns a type's internal name.
fn type_name(ty: &DataType) -> Option<String> {
    let name = match crate::parse::type_of(ty, &|_, name| {
        Some(Type::Other(std::sync::Arc::new(crate::types::OtherType {
            sql_name: name.to_owned(),
            equality: false,
            hashable: false,
            ordered: false,
            exact: false,
        })))
    })
    .ok()?
    {
        Type::Bool => "bool".to_owned(),
        Type::Int2 => "int2".to_owned(),
        Type::Int4 => "int4".to_owned(),
        Type::Int8 => "int8".to_owned(),
        Type::Float4 => "float4".to_owned(),
        Type::Float8 => "float8".to_owned(),
        Type::Numeric(_) => "numeric".to_owned(),
        Type::Varchar(_) => "varchar".to_owned(),
        Type::Bpchar(_) => "bpchar".to_owned(),
        Type::Time => "time".to_owned(),
        Type::Timestamp => "timestamp".to_owned(),
        Type::Timestamptz => "timestamptz".to_owned(),
        Type::Array(e) => return Some(array_name(&e)),
        other => other.to_string(),
    };
    Some(name)
}

/// Returns the name of a column that is a cast to an array type: the name of the element type, such as `text`
/// for `text[]`.
fn array_name(element: &Type) -> String {
    match element {
        Type::Int4 => "int4".to_owned(),
        Type::Int8 => "int8".to_owned(),
        Type::Int2 => "int2".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Varchar(_) => "varchar".to_owned(),
        other => other.base().to_string(),
    }
}

/// Returns the name of a scalar subquery's column.
fn first_output(q: &Query) -> Option<String> {
    match &*q.body {
        SetExpr::Select(s) => match s.projection.first()? {
            SelectItem::UnnamedExpr(e) => figure(e).map(|(n, _)| n),
            SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
            _ => None,
        },
        SetExpr::Query(q) => first_output(q),
        _ => None,
    }
}

/// Returns a field of EXTRACT as text, in lower case.
pub(super) fn field(field: &crate::parse::ast::DateTimeField) -> String {
    field_name(field)
}
