//! Derives the names that PostgreSQL gives to output columns without an alias.

use crate::syntax::{Access, Body, Call, Expr, Node, Query, SelectItem, TypeName};
use crate::types::Type;

/// Returns the name of an output expression; `?column?` for an expression without a name.
pub(super) fn column_name(e: &Expr) -> String {
    figure(e).map_or_else(|| "?column?".to_owned(), |(name, _)| name)
}

/// Returns the name of an output expression. Also returns whether the name comes from the innermost
/// expression, and not from a cast or a construct around it.
fn figure(e: &Expr) -> Option<(String, bool)> {
    let own = |s: &str| Some((s.to_owned(), true));
    let weak = |s: &str| Some((s.to_owned(), false));
    match &e.node {
        Node::Name(parts) => parts.last().map(|i| (i.folded(), true)),
        Node::Nested(e) | Node::Collate { operand: e, .. } => figure(e),
        Node::Access { root, chain } => chain
            .iter()
            .rev()
            .find_map(|a| match a {
                Access::Field(i) => Some((i.folded(), true)),
                Access::AllFields | Access::Subscript(_) => None,
            })
            .or_else(|| figure(root)),
        Node::Array(_) | Node::ArrayOfQuery(_) => own("array"),
        Node::Call(call) => function_name(call).map(|n| (n, true)),
        Node::Form(form) => own(&form.name.to_ascii_lowercase()),
        Node::FormOverQuery(name) => own(&name.to_ascii_lowercase()),
        Node::Builtin { function, .. } => own(function),
        Node::Cast { operand, ty } => {
            figure(operand).filter(|(_, own)| *own).or_else(|| type_name(ty).map(|n| (n, false)))
        }
        Node::TypedLiteral { ty, .. } => type_name(ty).map(|n| (n, false)),
        Node::Interval(_) => weak("interval"),
        Node::Case(case) => {
            case.otherwise.as_deref().and_then(figure).filter(|(_, own)| *own).or_else(|| weak("case"))
        }
        Node::Exists { .. } => own("exists"),
        Node::Subquery(q) => first_output(q).map(|n| (n, true)),
        Node::Row(_) => own("row"),
        Node::Extract { .. } => own("extract"),
        Node::Position { .. } => own("position"),
        Node::AtTimeZone { .. } => own("timezone"),
        Node::WholeRow(_)
        | Node::Star
        | Node::Literal(_)
        | Node::Binary { .. }
        | Node::Unary { .. }
        | Node::Is { .. }
        | Node::IsDistinct { .. }
        | Node::IsForm { .. }
        | Node::Between { .. }
        | Node::InList { .. }
        | Node::InQuery { .. }
        | Node::Quantified { .. }
        | Node::Like { .. }
        | Node::SimilarTo { .. } => None,
    }
}

fn function_name(call: &Call) -> Option<String> {
    call.name.parts.last().map(|i| i.folded())
}

/// Returns a type's internal name.
fn type_name(ty: &TypeName) -> Option<String> {
    let name = match ty
        .resolve(&|_, name| {
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
    match &q.body {
        Body::Select(s) => match s.items.first()? {
            SelectItem::Value { expr, alias: None } => figure(expr).map(|(n, _)| n),
            SelectItem::Value { alias: Some(alias), .. } => Some(alias.folded()),
            SelectItem::Star(_) | SelectItem::TableStar(..) | SelectItem::FieldsStar(..) => None,
        },
        Body::Query(q) => first_output(q),
        Body::SetOperation(_) | Body::Values(_) | Body::Write(_) => None,
    }
}
