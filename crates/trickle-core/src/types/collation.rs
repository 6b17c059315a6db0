//! Text types with a collation other than the type's default collation.

use super::{OtherType, Type};
use std::sync::Arc;

/// The separator between a type and its collation, in the name of a type with a collation other than its
/// default.
pub(super) const COLLATE: &str = " COLLATE ";

impl Type {
    /// Returns the type with its default collation, and the name of the collation that it has instead.
    /// Returns `None` where the type has its default collation.
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

    /// Returns the type with its default collation.
    #[must_use]
    pub fn uncollated(&self) -> Type {
        self.collation().map_or_else(|| self.clone(), |(base, _)| base)
    }

    /// Returns a string type, or an array of a string type, with another collation. `collation` is the
    /// collation's name as PostgreSQL parses it. If the collation is not deterministic, equal texts may have
    /// different images. Other types are returned unchanged.
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

    /// Returns `ty` with the collation of this type.
    #[must_use]
    pub(crate) fn recollated(&self, ty: &Type) -> Type {
        match self.collation() {
            Some((base, collation)) => ty.collated(collation, self.is_exact() || !base.is_exact()),
            None => ty.clone(),
        }
    }
}
