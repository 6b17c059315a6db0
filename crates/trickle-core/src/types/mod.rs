//! SQL types and their values, independent of any query.

pub(crate) mod calendar;
mod collation;
mod datum;
pub(crate) mod display;
mod names;
mod numeric;
mod written;

pub use datum::{Datum, Interval};
pub use numeric::Numeric;
pub(crate) use written::{WRITTEN, is_written};

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A PostgreSQL type. It includes the type modifiers that change values.
///
/// Two types are equal if and only if PostgreSQL stores the same values under both. For example, `numeric`
/// and `numeric(10,2)` differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Type {
    /// `boolean`
    Bool,
    /// `smallint`
    Int2,
    /// `integer`
    Int4,
    /// `bigint`
    Int8,
    /// `numeric` or `numeric(precision, scale)`. With a scale, every value has the same number of digits
    /// after the point.
    Numeric(Option<(u16, i16)>),
    /// `real`
    Float4,
    /// `double precision`
    Float8,
    /// `text`
    Text,
    /// `character varying`, with its greatest length in characters if it has one
    Varchar(Option<u32>),
    /// `character(n)`: comparisons ignore blanks at the end
    Bpchar(Option<u32>),
    /// `bytea`
    Bytea,
    /// `date`
    Date,
    /// `time without time zone`
    Time,
    /// `timestamp without time zone`
    Timestamp,
    /// `timestamp with time zone`
    Timestamptz,
    /// `interval`
    Interval,
    /// `uuid`
    Uuid,
    /// `json`, which has no equality operator
    Json,
    /// `jsonb`
    Jsonb,
    /// An array with any number of dimensions. The field is the type of its elements.
    Array(Arc<Type>),
    /// The type of an anonymous row, with the types of its fields.
    Record(Arc<[Type]>),
    /// The type of a literal before the context determines its real type.
    Unknown,
    /// Another type, with the facts about it that the engine needs.
    Other(Arc<OtherType>),
}

/// A type that is not built into the engine, such as an enum, a domain, a range, a composite type or a type
/// of an extension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OtherType {
    /// The name of the type, as PostgreSQL parses it: schema-qualified and quoted where necessary.
    pub sql_name: String,
    /// Whether the type has an operator `=`. (The types json, xml and point have none.)
    pub equality: bool,
    /// Whether the type has a hash operator class.
    pub hashable: bool,
    /// Whether the type has a default btree operator class.
    pub ordered: bool,
    /// Whether equal values of the type are always identical. (Equal values of citext may differ, and so may
    /// equal texts under a nondeterministic collation.)
    pub exact: bool,
}

impl Type {
    /// Returns the name from which PostgreSQL parses this type, such as `bigint`, `numeric(10,2)` or
    /// `text[]`.
    pub fn sql_name(&self) -> String {
        self.to_string()
    }

    /// Returns the type without modifiers. For example, `numeric(10,2)` becomes `numeric`.
    #[must_use]
    pub fn base(&self) -> Type {
        match self {
            Type::Numeric(_) => Type::Numeric(None),
            Type::Varchar(_) => Type::Varchar(None),
            Type::Bpchar(_) => Type::Bpchar(None),
            Type::Other(o) if o.sql_name == "bit" || o.sql_name.starts_with("bit(") => {
                Type::Other(Arc::new(OtherType { sql_name: "\"bit\"".to_owned(), ..(**o).clone() }))
            }
            other => other.clone(),
        }
    }

    /// Returns the type without modifiers. The result keeps the collation, and has every value that the type
    /// has under any modifiers. For `char(3)[]` the result is `bpchar[]`. For `time(0) without time zone` the
    /// result is the same name without `(0)`.
    #[must_use]
    pub fn unmodified(&self) -> Type {
        if let Some((base, collation)) = self.collation() {
            return base.unmodified().collated(collation, self.is_exact() || !base.is_exact());
        }
        match self {
            Type::Array(e) => e.unmodified().array(),
            Type::Other(o) => match self.base() {
                Type::Other(b) if b.sql_name == o.sql_name => Type::Other(Arc::new(OtherType {
                    sql_name: names::without_modifiers(&o.sql_name),
                    ..(**o).clone()
                })),
                base => base,
            },
            other => other.base(),
        }
    }

    /// Whether PostgreSQL defines `=` for the type. If so, values can be grouped, joined, and compared as
    /// parts of rows.
    pub(crate) fn has_equality(&self) -> bool {
        match self {
            Type::Json => false,
            Type::Array(e) => e.has_equality(),
            Type::Record(fields) => fields.iter().all(Type::has_equality),
            Type::Other(o) => o.equality,
            _ => true,
        }
    }

    /// Whether the type is `name`, the type of identifiers.
    pub(crate) fn is_name(&self) -> bool {
        matches!(self, Type::Other(o) if o.sql_name == "name")
    }

    /// Whether values of the type may be composite. If only the name of a type is known, the engine knows no
    /// equality for it, so its values may be composite.
    pub(crate) fn may_have_fields(&self) -> bool {
        matches!(self, Type::Record(_)) || matches!(self, Type::Other(o) if !o.equality)
    }

    /// Whether the type has a hash operator class.
    pub(crate) fn is_hashable(&self) -> bool {
        match self {
            Type::Json => false,
            Type::Array(e) => e.is_hashable(),
            Type::Record(fields) => fields.iter().all(Type::is_hashable),
            Type::Other(o) => o.hashable,
            _ => true,
        }
    }

    /// Whether PostgreSQL orders the values of the type by `<`.
    pub fn is_ordered(&self) -> bool {
        match self {
            Type::Json => false,
            Type::Array(e) => e.is_ordered(),
            Type::Record(fields) => fields.iter().all(Type::is_ordered),
            Type::Other(o) => o.ordered,
            _ => true,
        }
    }

    /// Whether equal values of the type always have the same image. These types are not exact: numeric
    /// without a scale (1.0 = 1.00), floats (−0 = 0), intervals (1 day = 24 hours), jsonb, and types that
    /// contain one of these. The type bpchar without a length is not exact either. The type `char(n)` is
    /// exact, since its values are padded to n characters. [`Expr::image`](crate::expr::Expr::image)
    /// distinguishes equal values with different images.
    pub(crate) fn is_exact(&self) -> bool {
        match self {
            Type::Numeric(None)
            | Type::Float4
            | Type::Float8
            | Type::Bpchar(None)
            | Type::Interval
            | Type::Jsonb => false,
            Type::Array(e) => e.is_exact(),
            Type::Record(fields) => fields.iter().all(Type::is_exact),
            Type::Other(o) => o.exact,
            _ => true,
        }
    }

    /// Whether a table can have a column of this type. Anonymous rows occur only in expressions.
    pub(crate) fn is_storable(&self) -> bool {
        match self {
            Type::Record(_) => false,
            Type::Array(e) => e.is_storable(),
            _ => true,
        }
    }

    /// Whether the type is `smallint`, `integer` or `bigint`.
    pub(crate) fn is_integer(&self) -> bool {
        matches!(self, Type::Int2 | Type::Int4 | Type::Int8)
    }

    /// Whether the type is `real` or `double precision`.
    pub(crate) fn is_float(&self) -> bool {
        matches!(self, Type::Float4 | Type::Float8)
    }

    /// Whether the type is an integer type, numeric or a floating-point type.
    pub(crate) fn is_number(&self) -> bool {
        self.is_integer() || matches!(self, Type::Numeric(_) | Type::Float4 | Type::Float8)
    }

    /// Whether the type is `text`, `varchar` or `char`.
    pub(crate) fn is_string(&self) -> bool {
        matches!(self, Type::Text | Type::Varchar(_) | Type::Bpchar(_))
    }

    /// Whether values of the type, or parts of them, are of type `char(n)`. Comparisons ignore trailing
    /// blanks of such values.
    pub(crate) fn is_padded(&self) -> bool {
        match self {
            Type::Bpchar(_) => true,
            Type::Array(e) => e.is_padded(),
            Type::Record(fields) => fields.iter().any(Type::is_padded),
            _ => false,
        }
    }

    /// Whether the type, or the element type of an array, is not built into PostgreSQL. The name of such a
    /// type has a schema.
    pub(crate) fn is_users(&self) -> bool {
        matches!(self.element().unwrap_or(self), Type::Other(o) if o.sql_name.contains('.'))
    }

    /// Returns the element type of an array type. Returns `None` for another type.
    pub fn element(&self) -> Option<&Type> {
        match self {
            Type::Array(e) => Some(e),
            _ => None,
        }
    }

    /// Returns the type of arrays of this type.
    #[must_use]
    pub fn array(self) -> Type {
        Type::Array(Arc::new(self))
    }
}
