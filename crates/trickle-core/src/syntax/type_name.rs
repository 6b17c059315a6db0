//! Names of types.

use super::ObjectName;
use crate::types::{OtherType, Type};
use std::sync::Arc;

/// The name of a type, as a query or a definition gives it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TypeName {
    /// The name as messages show it. A type whose name consists of keywords is found by this text.
    pub(crate) text: String,
    pub(crate) shape: TypeShape,
    /// The number of fractional digits to which a cast to the type rounds, if the type is a date/time type or
    /// an array of such a type. `None` if the name does not state the number.
    pub(crate) precision: Option<u64>,
}

/// The parts of a type's name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TypeShape {
    /// An array of elements of this type.
    Array(Box<TypeName>),
    /// An interval. A cast to an interval with fields keeps the fields from the first to the last, for
    /// example from `day` to `minute`.
    Interval(Option<(String, String)>),
    /// A type that may be defined by users, with its modifiers.
    Named { name: ObjectName, modifiers: Vec<String> },
    /// A type whose name consists of keywords.
    Keywords,
}

impl TypeName {
    /// Returns the name of a type that is named by an object's name.
    pub(crate) fn object(&self) -> Option<&ObjectName> {
        match &self.shape {
            TypeShape::Named { name, .. } => Some(name),
            TypeShape::Array(_) | TypeShape::Interval(_) | TypeShape::Keywords => None,
        }
    }

    /// Returns the first and the last field of an interval type that keeps only the fields between them.
    pub(crate) fn interval_fields(&self) -> Option<(&str, &str)> {
        match &self.shape {
            TypeShape::Interval(Some((first, last))) => Some((first, last)),
            _ => None,
        }
    }

    /// Finds the type; `named` finds types that are not built in.
    ///
    /// # Errors
    /// Fails with the name of the type, if the type does not exist.
    pub(crate) fn resolve(&self, named: &dyn Fn(Option<&str>, &str) -> Option<Type>) -> Result<Type, String> {
        match &self.shape {
            TypeShape::Array(element) => {
                let element = element.resolve(named)?;
                // The type of an array does not depend on its number of dimensions.
                Ok(if element.element().is_some() { element } else { element.array() })
            }
            TypeShape::Interval(_) => Ok(Type::Interval),
            TypeShape::Named { name, modifiers } => resolve_named(name, modifiers, named),
            TypeShape::Keywords => Type::parse(&self.text).ok_or_else(|| self.text.clone()),
        }
    }
}

fn resolve_named(
    name: &ObjectName,
    modifiers: &[String],
    named: &dyn Fn(Option<&str>, &str) -> Option<Type>,
) -> Result<Type, String> {
    let (schema, base) = name.qualified();
    let quoted = name.parts.last().is_some_and(|i| i.quoted);
    let modified = |name: &str| match modifiers.is_empty() {
        true => name.to_owned(),
        false => format!("{name}({})", modifiers.join(",")),
    };
    if schema.as_deref().is_none_or(|s| s == "pg_catalog") {
        // The type `"char"` is not `char(1)`, and the quoted name `"bit"` denotes bit strings of any length.
        let spelled = match base.as_str() {
            "char" if quoted => "\"char\"",
            "bit" if quoted && modifiers.is_empty() => "\"bit\"",
            plain => plain,
        };
        if let Some(t) = Type::parse(&modified(spelled)) {
            return Ok(t);
        }
    }
    let found = named(schema.as_deref(), &base).ok_or_else(|| name.to_string())?;
    Ok(match found {
        Type::Other(o) if !modifiers.is_empty() => {
            Type::Other(Arc::new(OtherType { sql_name: modified(&o.sql_name), ..(*o).clone() }))
        }
        other => other,
    })
}
