//! The names of types, as PostgreSQL writes them. This module reads and writes such names.

use super::collation::COLLATE;
use super::{OtherType, Type};
use std::fmt;
use std::sync::Arc;

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

impl Type {
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

    /// Returns the built-in type with this name. The name is in full or abbreviated, as PostgreSQL writes it
    /// (`int4`, `varchar(3)`, `text[]`, …).
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
    // PostgreSQL compares text search queries only by their words, so equal queries may have different
    // images.
    let exact = !matches!(name, "numrange" | "nummultirange" | "tsquery");
    Some(OtherType { sql_name: String::new(), equality, hashable, ordered, exact })
}

/// Returns the name of a type without parentheses and the text in them. Parentheses in quoted names stay.
pub(super) fn without_modifiers(name: &str) -> String {
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
