//! Identifiers, and the quotes around them.

use crate::hash::FastMap;
use std::borrow::{Borrow, Cow};
use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The name of an object or a column, which may be any text. The name is stored without quotes. It is printed
/// with quotes where PostgreSQL needs them.
#[derive(Clone)]
pub struct Ident(Name);

#[derive(Clone)]
enum Name {
    Fixed(&'static str),
    Shared(Arc<str>),
}

/// A name, possibly with a schema. A name without a schema is looked up in the search path and among common
/// table expressions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qualified {
    /// The schema, if the name is qualified.
    pub schema: Option<Ident>,
    /// The name within the schema.
    pub name: Ident,
}

/// The greatest number of bytes in a name of PostgreSQL.
pub(crate) const MAX_BYTES: usize = 63;

impl Ident {
    /// Makes an identifier from a name as PostgreSQL's catalog stores it.
    pub fn new(name: impl AsRef<str>) -> Ident {
        Ident(Name::Shared(Arc::from(name.as_ref())))
    }
    /// Makes an identifier from a name that the engine itself chose.
    pub(crate) const fn fixed(name: &'static str) -> Ident {
        Ident(Name::Fixed(name))
    }
    /// Returns the identifier that consists of this name and `suffix`. The name is shortened where PostgreSQL
    /// would otherwise cut off a part of the suffix.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Ident {
        suffixed(self.as_str(), suffix)
    }
    /// Returns the name without quotes.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Name::Fixed(name) => name,
            Name::Shared(name) => name,
        }
    }
    /// Whether PostgreSQL reads the name without quotes as this name. The name must be in lower case. If the
    /// name is a keyword, the keyword must be unreserved.
    pub(crate) fn is_plain(&self) -> bool {
        let name = self.as_str();
        let Some(first) = name.bytes().next() else { return false };
        if KINDS[usize::from(first)] != LETTER {
            return false;
        }
        // No keyword contains a digit, so only a name without digits can be a keyword.
        match name.bytes().fold(0, |all, b| all | KINDS[usize::from(b)]) {
            LETTER => !is_keyword(name),
            all => all & OTHER == 0,
        }
    }
}

/// A byte with which an unquoted name may begin.
const LETTER: u8 = 1;
/// A byte with which an unquoted name may continue, but not begin.
const DIGIT: u8 = 2;
/// A byte that an unquoted name may not contain.
const OTHER: u8 = 4;

/// The kind of each byte: `LETTER`, `DIGIT` or `OTHER`.
const KINDS: [u8; 256] = {
    let mut kinds = [OTHER; 256];
    let mut b = 0;
    while b < 128 {
        kinds[b] = match b as u8 {
            b'a'..=b'z' | b'_' => LETTER,
            b'0'..=b'9' | b'$' => DIGIT,
            _ => OTHER,
        };
        b += 1;
    }
    kinds
};

/// Two identifiers are equal if their texts are equal, even if the texts are stored at different addresses.
impl PartialEq for Ident {
    fn eq(&self, other: &Ident) -> bool {
        let (a, b) = (self.as_str(), other.as_str());
        // Copies of an identifier share their text, so the addresses are compared first.
        std::ptr::eq(a, b) || a == b
    }
}
impl Eq for Ident {}
impl Ord for Ident {
    fn cmp(&self, other: &Ident) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}
impl PartialOrd for Ident {
    fn partial_cmp(&self, other: &Ident) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Hash for Ident {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}
impl Borrow<str> for Ident {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}
impl fmt::Debug for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ident").field(&self.as_str()).finish()
    }
}

impl Qualified {
    /// Makes the qualified name `schema.name`.
    pub fn new(schema: impl AsRef<str>, name: impl AsRef<str>) -> Qualified {
        Qualified { schema: Some(Ident::new(schema)), name: Ident::new(name) }
    }
    /// Makes a name without a schema: the name of a common table expression, or of an object that the search
    /// path finds.
    pub fn bare(name: Ident) -> Qualified {
        Qualified { schema: None, name }
    }
}

impl From<&'static str> for Ident {
    fn from(name: &'static str) -> Ident {
        Ident::fixed(name)
    }
}
impl From<&Arc<str>> for Ident {
    fn from(name: &Arc<str>) -> Ident {
        Ident(Name::Shared(name.clone()))
    }
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.as_str();
        if self.is_plain() { f.write_str(name) } else { write!(f, "\"{}\"", name.replace('"', "\"\"")) }
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

/// The first number that is appended to a name in use.
const FIRST: usize = 2;

/// The set of the names that are in use. It never hands out the same name twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameSet {
    /// The names in use, each with the number that is tried next if the name is wanted again.
    taken: FastMap<Ident, usize>,
}

impl NameSet {
    /// Makes an empty set of names.
    pub(crate) fn new() -> NameSet {
        NameSet::default()
    }
    /// Marks a name as in use, so that the set does not hand it out.
    pub(crate) fn reserve(&mut self, name: Ident) {
        self.taken.entry(name).or_insert(FIRST);
    }
    /// Returns `wanted`. If `wanted` is in use, returns `wanted` with a number appended. The returned name is
    /// not empty, and is at most as long as PostgreSQL allows.
    pub(crate) fn fresh(&mut self, wanted: &str) -> Ident {
        self.give(wanted, || Ident::new(wanted))
    }
    /// Returns a name like [`NameSet::fresh`]. If the returned name is `wanted` itself, both identifiers
    /// share one text.
    pub(crate) fn fresh_like(&mut self, wanted: &Ident) -> Ident {
        self.give(wanted.as_str(), || wanted.clone())
    }
    /// Returns a name and marks it as in use. If the name is `wanted` unchanged, `whole` makes the
    /// identifier.
    fn give(&mut self, wanted: &str, whole: impl FnOnce() -> Ident) -> Ident {
        let kept = clip(if wanted.is_empty() { "column" } else { wanted }, MAX_BYTES);
        while let Some(next) = self.taken.get_mut(&*kept) {
            let n = *next;
            *next += 1;
            let numbered = suffixed(&kept, &format!("_{n}"));
            if let Entry::Vacant(free) = self.taken.entry(numbered.clone()) {
                free.insert(FIRST);
                return numbered;
            }
        }
        let name = if kept == wanted { whole() } else { Ident::new(kept) };
        self.taken.insert(name.clone(), FIRST);
        name
    }
}

fn suffixed(name: &str, suffix: &str) -> Ident {
    let kept = clip(name, MAX_BYTES.saturating_sub(suffix.len()));
    Ident::new([&*kept, suffix].concat())
}

/// Returns the longest prefix of `name` that has at most `bytes` bytes and ends between two characters. NUL
/// characters are left out, since PostgreSQL does not allow them in names.
fn clip(name: &str, bytes: usize) -> Cow<'_, str> {
    match name.contains('\0') {
        false => name[..name.floor_char_boundary(bytes)].into(),
        true => clip(&name.replace('\0', ""), bytes).into_owned().into(),
    }
}

/// The keywords of every category but "unreserved", in at least one of PostgreSQL 15 to 18 (manual, appendix
/// C). PostgreSQL's function `quote_ident` quotes these keywords. The list is sorted.
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

/// For each letter, the position in the list of the first keyword that begins with this letter.
const STARTS: [usize; 27] = {
    let mut starts = [KEYWORDS.len(); 27];
    let mut i = KEYWORDS.len();
    while i > 0 {
        i -= 1;
        let mut letter = (KEYWORDS[i].as_bytes()[0] - b'a') as usize + 1;
        // A letter without keywords has the position of the next letter.
        while letter > 0 {
            letter -= 1;
            starts[letter] = i;
        }
    }
    starts
};

fn is_keyword(name: &str) -> bool {
    match name.as_bytes().first() {
        Some(first @ b'a'..=b'z') => {
            let letter = usize::from(first - b'a');
            KEYWORDS[STARTS[letter]..STARTS[letter + 1]].contains(&name)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Ident, KEYWORDS, NameSet, is_keyword};

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
    fn keywords_are_sorted_and_found() {
        assert!(KEYWORDS.is_sorted());
        assert!(KEYWORDS.iter().all(|k| is_keyword(k)));
        assert!(!is_keyword("zone") && !is_keyword("a") && !is_keyword("kind") && !is_keyword(""));
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
