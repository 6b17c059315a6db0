//! Types of texts under other collations than their own.

use super::{OtherType, Type};
use std::sync::Arc;

/// The text between a type and its collation in the name of a type that has another collation than its own.
pub(super) const COLLATE: &str = " COLLATE ";

impl Type {
    /// Returns the type under its own collation, and the name of the other collation that it is under.
    /// Returns `None` where the type is under its own collation.
    pub fn collation(&self) -> Option<(Type, &str)> {
        match self {
            Type::Other(o) => {
                let (base, collation) = o.sql_name.split_once(COLLATE)?;
                Type::parse(base).filter(Type::is_string).map(|base| (base, collation))
            }
            Type::Array(e) => e.collation().map(|(base, collation)| (base.array(), collation)),
            _ => None,
        }
    }

    /// Returns the type under its own collation.
    #[must_use]
    pub fn uncollated(&self) -> Type {
        self.collation().map_or_else(|| self.clone(), |(base, _)| base)
    }

    /// Returns a string type, or an array of a string type, under another collation. `collation` is the
    /// collation's name in the form in which PostgreSQL parses it. If the collation is not deterministic,
    /// equal texts may be written differently. Other types are returned unchanged.
    #[must_use]
    pub fn collated(&self, collation: &str, deterministic: bool) -> Type {
        match self.uncollated() {
            Type::Array(e) => e.collated(collation, deterministic).array(),
            base if base.is_string() => Type::Other(Arc::new(OtherType {
                sql_name: format!("{base}{COLLATE}{collation}"),
                equality: true,
                hashable: true,
                ordered: true,
                exact: deterministic && base.is_exact(),
            })),
            other => other,
        }
    }

    /// Returns `ty` under the collation that this type is under.
    #[must_use]
    pub fn recollated(&self, ty: &Type) -> Type {
        match self.collation() {
            Some((base, collation)) => ty.collated(collation, self.is_exact() || !base.is_exact()),
            None => ty.clone(),
        }
    }
}
