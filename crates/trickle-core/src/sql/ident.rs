//! Identifiers, and when they need quotes.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// An unquoted name of a table, column, function …; any text is one. Printed, it is quoted where it must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ident(Arc<str>);

/// A name within a schema; without one PostgreSQL looks it up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qualified {
    /// The schema.
    pub schema: Option<Ident>,
    /// The name.
    pub name: Ident,
}

/// PostgreSQL keeps this many bytes of a name.
pub const MAX_BYTES: usize = 63;

impl Ident {
    /// The name as it is stored in the catalog.
    pub fn new(name: impl AsRef<str>) -> Ident {
        Ident(Arc::from(name.as_ref()))
    }
    /// The name without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// Whether PostgreSQL reads the bare name as this name: lower case and no keyword but an unreserved one.
    pub fn is_plain(&self) -> bool {
        let mut bytes = self.0.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
        let rest = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'$';
        first && bytes.all(rest) && KEYWORDS.binary_search(&&*self.0).is_err()
    }
}

impl Qualified {
    /// `schema.name`
    pub fn new(schema: impl AsRef<str>, name: impl AsRef<str>) -> Qualified {
        Qualified { schema: Some(Ident::new(schema)), name: Ident::new(name) }
    }
    /// A name without a schema: a CTE, or what the search path finds.
    pub fn bare(name: Ident) -> Qualified {
        Qualified { schema: None, name }
    }
}

impl From<&str> for Ident {
    fn from(name: &str) -> Ident {
        Ident::new(name)
    }
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_plain() { f.write_str(&self.0) } else { write!(f, "\"{}\"", self.0.replace('"', "\"\"")) }
    }
}

impl fmt::Display for Qualified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{schema}.")?;
        }
        self.name.fmt(f)
    }
}

/// Names given out so far: each is handed out once.
#[derive(Clone, Debug, Default)]
pub struct NameSet {
    taken: HashSet<Ident>,
}

impl NameSet {
    /// None taken.
    pub fn new() -> NameSet {
        NameSet::default()
    }
    /// Takes a name so that it is not given out.
    pub fn reserve(&mut self, name: Ident) {
        self.taken.insert(name);
    }
    /// `wanted`, with a number behind it where it is taken. Never longer than PostgreSQL keeps, never empty.
    pub fn fresh(&mut self, wanted: &str) -> Ident {
        let wanted = if wanted.is_empty() { "column" } else { wanted };
        let mut n = 1usize;
        loop {
            let suffix = if n == 1 { String::new() } else { format!("_{n}") };
            let name = Ident::new(format!("{}{suffix}", clip(wanted, MAX_BYTES - suffix.len())));
            if self.taken.insert(name.clone()) {
                return name;
            }
            n += 1;
        }
    }
}

/// The longest prefix of at most `bytes` bytes that ends at a character; NUL, which no name may hold, is left out.
fn clip(name: &str, bytes: usize) -> String {
    let mut out = String::new();
    for c in name.chars().filter(|c| *c != '\0') {
        if out.len() + c.len_utf8() > bytes {
            break;
        }
        out.push(c);
    }
    out
}

/// Keywords that are not unreserved in some PostgreSQL from 15 to 18 (manual, appendix C): the ones that
/// `quote_ident` quotes. Sorted.
#[rustfmt::skip]
const KEYWORDS: &[&str] = &[
    "all", "analyse", "analyze", "and", "any", "array", "as", "asc", "asymmetric", "authorization",
    "between", "bigint", "binary", "bit", "boolean", "both", "case", "cast", "char", "character", "check",
    "coalesce", "collate", "collation", "column", "concurrently", "constraint", "create", "cross",
    "current_catalog", "current_date", "current_role", "current_schema", "current_time",
    "current_timestamp", "current_user", "dec", "decimal", "default", "deferrable", "desc", "distinct",
    "do", "else", "end", "except", "exists", "extract", "false", "fetch", "float", "for", "foreign",
    "freeze", "from", "full", "grant", "greatest", "group", "grouping", "having", "ilike", "in",
    "initially", "inner", "inout", "int", "integer", "intersect", "interval", "into", "is", "isnull",
    "join", "json", "json_array", "json_arrayagg", "json_exists", "json_object", "json_objectagg",
    "json_query", "json_scalar", "json_serialize", "json_table", "json_value", "lateral", "leading",
    "least", "left", "like", "limit", "localtime", "localtimestamp", "merge_action", "national",
    "natural", "nchar", "none", "normalize", "not", "notnull", "null", "nullif", "numeric", "offset",
    "on", "only", "or", "order", "out", "outer", "overlaps", "overlay", "placing", "position",
    "precision", "primary", "real", "references", "returning", "right", "row", "select", "session_user",
    "setof", "similar", "smallint", "some", "substring", "symmetric", "system_user", "table",
    "tablesample", "then", "time", "timestamp", "to", "trailing", "treat", "trim", "true", "union",
    "unique", "user", "using", "values", "varchar", "variadic", "verbose", "when", "where", "window",
    "with", "xmlattributes", "xmlconcat", "xmlelement", "xmlexists", "xmlforest", "xmlnamespaces",
    "xmlparse", "xmlpi", "xmlroot", "xmlserialize", "xmltable",
];

#[cfg(test)]
mod tests {
    use super::{Ident, KEYWORDS, NameSet};

    #[test]
    fn quotes_where_needed() {
        for (name, text) in [
            ("orders", "orders"),
            ("a$1", "a$1"),
            ("Orders", "\"Orders\""),
            ("1a", "\"1a\""),
            ("", "\"\""),
            ("a.b", "\"a.b\""),
            ("a\"; DROP TABLE x; --", "\"a\"\"; DROP TABLE x; --\""),
            ("group", "\"group\""),
            ("group by", "\"group by\""),
            ("größe", "\"größe\""),
            ("action", "action"),
            ("left", "\"left\""),
            ("json_table", "\"json_table\""),
        ] {
            assert_eq!(Ident::new(name).to_string(), text);
        }
    }

    #[test]
    fn keywords_are_sorted() {
        assert!(KEYWORDS.is_sorted());
    }

    #[test]
    fn fresh_names_are_short_and_unique() {
        let mut names = NameSet::new();
        let long = "ä".repeat(40);
        let (a, b) = (names.fresh(&long), names.fresh(&long));
        assert_ne!(a, b);
        assert!(a.as_str().len() <= 63 && b.as_str().len() <= 63 && b.as_str().ends_with("_2"));
        assert_eq!(names.fresh("").as_str(), "column");
    }
}
