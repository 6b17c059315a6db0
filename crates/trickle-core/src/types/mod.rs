//! SQL types and their values, independent of any query.

pub(crate) mod calendar;
mod datum;
pub(crate) mod display;
mod numeric;
mod written;

pub use datum::{Datum, Interval};
pub use numeric::Numeric;
pub(crate) use written::{WRITTEN, is_written};

use serde::{Deserialize, Serialize};
use std::fmt;
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
    /// `numeric` or `numeric(precision, scale)`. The latter fixes the display scale of every value.
    Numeric(Option<(u16, i16)>),
    /// `real`
    Float4,
    /// `double precision`
    Float8,
    /// `text`
    Text,
    /// `character varying`, with its greatest length in characters if it has one
    Varchar(Option<u32>),
    /// `character(n)`: blanks at the end do not count in comparisons
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
    /// An array with any number of dimensions; the field is the type of its elements.
    Array(Arc<Type>),
    /// The type of an anonymous row, with the types of its fields.
    Record(Arc<[Type]>),
    /// The type of a literal before the context decides about it.
    Unknown,
    /// Another type, with the facts about it that the engine needs.
    Other(Arc<OtherType>),
}

/// A type that is not built into the engine, such as an enum, a domain, a range, a composite type or a type
/// of an extension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OtherType {
    /// The name of the type, in the form in which PostgreSQL parses it: schema-qualified and quoted where
    /// necessary.
    pub sql_name: String,
    /// Whether the type has an operator `=`. (The types json, xml and point have none.)
    pub equality: bool,
    /// Whether the type has a hash operator class.
    pub hashable: bool,
    /// Whether the type has a default btree operator class.
    pub ordered: bool,
    /// Whether equal values of the type are always identical. (Not so for citext, and for texts under
    /// nondeterministic collations.)
    pub exact: bool,
}

/// The text between a type and its collation in the name of a type that has another collation than its own.
const COLLATE: &str = " COLLATE ";

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

    /// Returns the type without modifiers. It keeps its collation, and has every value that the type has
    /// under any modifiers. For `char(3)[]` the result is `bpchar[]`. For `time(0) without time zone` the
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
                    sql_name: without_modifiers(&o.sql_name),
                    ..(**o).clone()
                })),
                base => base,
            },
            other => other.base(),
        }
    }

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

    /// Whether PostgreSQL defines `=` for the type. If so, values can be grouped, joined, and compared as
    /// parts of rows.
    pub fn has_equality(&self) -> bool {
        match self {
            Type::Json => false,
            Type::Array(e) => e.has_equality(),
            Type::Record(fields) => fields.iter().all(Type::has_equality),
            Type::Other(o) => o.equality,
            _ => true,
        }
    }

    /// Whether the type is `name`, the type of identifiers.
    pub fn is_name(&self) -> bool {
        matches!(self, Type::Other(o) if o.sql_name == "name")
    }

    /// Whether values of the type may be composite. Types of which only the name is known have no equality
    /// here, so they may be composite.
    pub fn may_have_fields(&self) -> bool {
        matches!(self, Type::Record(_)) || matches!(self, Type::Other(o) if !o.equality)
    }

    /// Whether the type has a hash operator class.
    pub fn is_hashable(&self) -> bool {
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

    /// Whether equal values of the type are always written alike. Not exact are numeric without a scale (1.0
    /// = 1.00), floats (−0 = 0), intervals (1 day = 24 hours), jsonb, and types that contain one of these.
    /// Not exact is also bpchar without a length. Values of `char(n)` are all padded to n characters. An
    /// [`Expr::image`](crate::expr::Expr::image) tells equal values apart that are written differently.
    pub fn is_exact(&self) -> bool {
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
    pub fn is_storable(&self) -> bool {
        match self {
            Type::Record(_) => false,
            Type::Array(e) => e.is_storable(),
            _ => true,
        }
    }

    /// Whether the type is `smallint`, `integer` or `bigint`.
    pub fn is_integer(&self) -> bool {
        matches!(self, Type::Int2 | Type::Int4 | Type::Int8)
    }

    /// Whether the type is `real` or `double precision`.
    pub fn is_float(&self) -> bool {
        matches!(self, Type::Float4 | Type::Float8)
    }

    /// Whether the type is an integer type, numeric or a floating-point type.
    pub fn is_number(&self) -> bool {
        self.is_integer() || matches!(self, Type::Numeric(_) | Type::Float4 | Type::Float8)
    }

    /// Whether the type's values are object identifiers, or arrays or records that contain object
    /// identifiers. Object identifiers are read and written as names that the search path resolves
    /// (PostgreSQL manual, Object Identifier Types).
    pub fn is_name_by_path(&self) -> bool {
        match self {
            Type::Array(element) => element.is_name_by_path(),
            Type::Record(fields) => fields.iter().any(Type::is_name_by_path),
            Type::Other(o) => NAMES_BY_PATH.contains(&&*o.sql_name),
            Type::Bool
            | Type::Int2
            | Type::Int4
            | Type::Int8
            | Type::Numeric(_)
            | Type::Float4
            | Type::Float8
            | Type::Text
            | Type::Varchar(_)
            | Type::Bpchar(_)
            | Type::Bytea
            | Type::Date
            | Type::Time
            | Type::Timestamp
            | Type::Timestamptz
            | Type::Interval
            | Type::Uuid
            | Type::Json
            | Type::Jsonb
            | Type::Unknown => false,
        }
    }

    /// Whether the type is `text`, `varchar` or `char`.
    pub fn is_string(&self) -> bool {
        matches!(self, Type::Text | Type::Varchar(_) | Type::Bpchar(_))
    }

    /// Whether the type, or the element type of an array, is not one of PostgreSQL's own. The name of such a
    /// type has a schema.
    pub(crate) fn is_users(&self) -> bool {
        matches!(self.element().unwrap_or(self), Type::Other(o) if o.sql_name.contains('.'))
    }

    /// Returns the element type of an array type; `None` for another type.
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

    /// Returns the built-in type with this name, in full or abbreviated as PostgreSQL writes it (`int4`,
    /// `varchar(3)`, `text[]`, …).
    pub fn parse(name: &str) -> Option<Type> {
        let lower = name.trim().to_ascii_lowercase();
        if let Some(element) = lower.strip_suffix("[]") {
            return Type::parse(element).map(Type::array);
        }
        let (head, mods) = split_modifiers(&lower)?;
        let first = |mods: &[i64]| mods.first().and_then(|n| u32::try_from(*n).ok());
        Some(match head.as_str() {
            "bool" | "boolean" => Type::Bool,
            "int2" | "smallint" | "smallserial" => Type::Int2,
            "int4" | "int" | "integer" | "serial" => Type::Int4,
            "int8" | "bigint" | "bigserial" => Type::Int8,
            "numeric" | "decimal" | "dec" => Type::Numeric(match mods.as_slice() {
                [] => None,
                [p] => Some((u16::try_from(*p).ok()?, 0)),
                [p, s, ..] => Some((u16::try_from(*p).ok()?, i16::try_from(*s).ok()?)),
            }),
            "real" | "float4" => Type::Float4,
            "float8" | "double precision" | "float" => Type::Float8,
            "text" => Type::Text,
            "varchar" | "character varying" => Type::Varchar(first(&mods)),
            "bpchar" => Type::Bpchar(first(&mods)),
            "char" | "character" => Type::Bpchar(Some(first(&mods).unwrap_or(1))),
            "bytea" => Type::Bytea,
            "date" => Type::Date,
            "time" | "time without time zone" => Type::Time,
            "timestamp" | "timestamp without time zone" => Type::Timestamp,
            "timestamptz" | "timestamp with time zone" => Type::Timestamptz,
            "interval" => Type::Interval,
            "uuid" => Type::Uuid,
            "json" => Type::Json,
            "jsonb" => Type::Jsonb,
            "unknown" => Type::Unknown,
            "record" => Type::Record(Arc::from([])),
            name => Type::Other(Arc::new(OtherType { sql_name: lower.clone(), ..system(name)? })),
        })
    }
}

/// The object identifier types, whose values are written as the names of objects.
const NAMES_BY_PATH: [&str; 11] = [
    "regclass",
    "regcollation",
    "regconfig",
    "regdictionary",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
];

/// Returns the properties of a built-in type of PostgreSQL for which [`Type`] has no variant.
fn system(name: &str) -> Option<OtherType> {
    let (equality, hashable, ordered) = match name {
        "xml" | "jsonpath" | "point" | "line" | "lseg" | "box" | "path" | "polygon" | "circle" => {
            (false, false, false)
        }
        "money" | "bit" | "\"bit\"" | "varbit" | "bit varying" | "tsvector" | "tsquery" => {
            (true, false, true)
        }
        "inet"
        | "cidr"
        | "macaddr"
        | "macaddr8"
        | "oid"
        | "name"
        | "\"char\""
        | "timetz"
        | "time with time zone"
        | "regclass"
        | "regtype"
        | "xid8"
        | "pg_lsn"
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
    // PostgreSQL compares text search queries by their words alone, so equal queries may be written
    // differently.
    let exact = !matches!(name, "numrange" | "nummultirange" | "tsquery");
    Some(OtherType { sql_name: String::new(), equality, hashable, ordered, exact })
}

/// Returns the name of a type without parentheses and the text in them. Parentheses in quoted names stay.
fn without_modifiers(name: &str) -> String {
    let (mut out, mut depth, mut quoted) = (String::new(), 0, false);
    for c in name.chars() {
        quoted ^= c == '"';
        match c {
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

/// Splits `numeric(10,2)` into `numeric` and `[10, 2]`. For `timestamp(3) without time zone`, the words after
/// the parentheses stay in the name.
fn split_modifiers(name: &str) -> Option<(String, Vec<i64>)> {
    let Some((head, rest)) = name.split_once('(') else { return Some((name.trim().to_owned(), Vec::new())) };
    let (inside, tail) = rest.split_once(')')?;
    let mods = inside.split(',').map(|m| m.trim().parse().ok()).collect::<Option<Vec<i64>>>()?;
    let head = format!("{} {}", head.trim(), tail.trim());
    Some((head.trim().to_owned(), mods))
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Bool => f.write_str("boolean"),
            Type::Int2 => f.write_str("smallint"),
            Type::Int4 => f.write_str("integer"),
            Type::Int8 => f.write_str("bigint"),
            Type::Numeric(None) => f.write_str("numeric"),
            Type::Numeric(Some((p, s))) => write!(f, "numeric({p},{s})"),
            Type::Float4 => f.write_str("real"),
            Type::Float8 => f.write_str("double precision"),
            Type::Text => f.write_str("text"),
            Type::Varchar(None) => f.write_str("character varying"),
            Type::Varchar(Some(n)) => write!(f, "character varying({n})"),
            Type::Bpchar(None) => f.write_str("bpchar"),
            Type::Bpchar(Some(n)) => write!(f, "character({n})"),
            Type::Bytea => f.write_str("bytea"),
            Type::Date => f.write_str("date"),
            Type::Time => f.write_str("time without time zone"),
            Type::Timestamp => f.write_str("timestamp without time zone"),
            Type::Timestamptz => f.write_str("timestamp with time zone"),
            Type::Interval => f.write_str("interval"),
            Type::Uuid => f.write_str("uuid"),
            Type::Json => f.write_str("json"),
            Type::Jsonb => f.write_str("jsonb"),
            Type::Array(e) => match e.collation() {
                Some((base, collation)) => write!(f, "{base}[]{COLLATE}{collation}"),
                None => write!(f, "{e}[]"),
            },
            Type::Record(_) => f.write_str("record"),
            Type::Unknown => f.write_str("unknown"),
            Type::Other(o) => f.write_str(&o.sql_name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Type;

    #[test]
    fn an_array_has_the_collation_of_its_elements() {
        let array = Type::Text.array().collated("public.nd", false);
        assert_eq!(array.to_string(), "text[] COLLATE public.nd");
        assert_eq!((array.uncollated(), array.is_exact()), (Type::Text.array(), false));
        assert_eq!(array.recollated(&Type::Varchar(None)), Type::Varchar(None).collated("public.nd", false));
        assert_eq!(array.recollated(&Type::Int4), Type::Int4);
    }

    #[test]
    fn names_round_trip() {
        for name in [
            "bigint",
            "numeric(10,2)",
            "character varying(3)",
            "text[]",
            "timestamp with time zone",
            "character(1)",
            "bit varying(5)",
            "time(3) with time zone",
            "inet",
        ] {
            assert_eq!(Type::parse(name).map(|t| t.sql_name()).as_deref(), Some(name));
        }
        assert_eq!(Type::parse("decimal(5)"), Some(Type::Numeric(Some((5, 0)))));
        assert_eq!(Type::parse("mood"), None);
        assert_eq!(Type::parse("BIT(3)").map(|t| t.sql_name()).as_deref(), Some("bit(3)"));
    }
}
