//! Converts identifiers, dotted names and names of types.

use crate::parse::forms::is_mark;
use crate::parse::source::extent;
use crate::syntax::{Extent, Ident, ObjectName, TypeName, TypeShape};
use sqlparser::ast::{self, ArrayElemTypeDef, DataType, ObjectNamePart, Spanned};

pub(in crate::parse) fn ident(i: &ast::Ident) -> Ident {
    Ident { text: i.value.clone(), quoted: i.quote_style.is_some(), extent: extent(i.span) }
}

/// Converts a dotted name. A marker before the name, such as that for ONLY, is left out.
pub(in crate::parse) fn object_name(name: &ast::ObjectName) -> ObjectName {
    let parts = name.0.iter().filter(|p| !is_mark(p)).map(|p| match p {
        ObjectNamePart::Identifier(i) => ident(i),
        ObjectNamePart::Function(f) => ident(&f.name),
    });
    ObjectName { parts: parts.collect(), extent: extent(name.span()) }
}

/// Makes an unquoted name of one part.
pub(super) fn word(text: &str, extent: Extent) -> ObjectName {
    let part = Ident { text: text.to_owned(), quoted: false, extent };
    ObjectName { parts: vec![part], extent }
}

pub(super) fn type_name(ty: &DataType) -> TypeName {
    let shape = match element(ty) {
        Some(element) => TypeShape::Array(Box::new(type_name(element))),
        None => match ty {
            DataType::Interval { fields, .. } => TypeShape::Interval(fields.as_ref().map(|fields| {
                let text = fields.to_string().to_ascii_lowercase();
                let (first, last) = text.split_once(" to ").unwrap_or((&text, &text));
                (first.to_owned(), last.to_owned())
            })),
            DataType::Custom(name, modifiers) => {
                TypeShape::Named { name: object_name(name), modifiers: modifiers.clone() }
            }
            _ => TypeShape::Keywords,
        },
    };
    TypeName { text: ty.to_string(), shape, precision: precision(ty) }
}

fn element(ty: &DataType) -> Option<&DataType> {
    match ty {
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(element, _)
            | ArrayElemTypeDef::Qualified(element, _)
            | ArrayElemTypeDef::AngleBracket(element)
            | ArrayElemTypeDef::Parenthesis(element),
        ) => Some(element),
        _ => None,
    }
}

fn precision(ty: &DataType) -> Option<u64> {
    match ty {
        DataType::Timestamp(p, _) | DataType::Time(p, _) | DataType::Interval { precision: p, .. } => *p,
        _ => element(ty).and_then(precision),
    }
}
