//! Identifiers and dotted names.

use super::Extent;
use std::fmt;

/// The greatest length of a name, in bytes.
const MAX_NAME: usize = 63;

/// An identifier, as it is written but without quotes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ident {
    pub(crate) text: String,
    pub(crate) quoted: bool,
    pub(crate) extent: Extent,
}

impl Ident {
    /// Makes a quoted identifier that has no position in a text.
    pub(crate) fn quoted(text: &str) -> Ident {
        Ident { text: text.to_owned(), quoted: true, extent: Extent::default() }
    }

    /// Returns the name that the identifier denotes: in lower case if the identifier is unquoted, and cut to
    /// 63 bytes.
    pub(crate) fn folded(&self) -> String {
        let mut name = if self.quoted { self.text.clone() } else { self.text.to_ascii_lowercase() };
        if name.len() > MAX_NAME {
            let cut = (0..=MAX_NAME).rev().find(|i| name.is_char_boundary(*i)).unwrap_or(0);
            name.truncate(cut);
        }
        name
    }
}

impl fmt::Display for Ident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quoted {
            true => write!(f, "\"{}\"", self.text.replace('"', "\"\"")),
            false => f.write_str(&self.text),
        }
    }
}

/// A name with dots between its parts, such as `schema.table`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjectName {
    pub(crate) parts: Vec<Ident>,
    pub(crate) extent: Extent,
}

impl ObjectName {
    /// Returns the parts, with case folded.
    pub(crate) fn folded(&self) -> Vec<String> {
        self.parts.iter().map(Ident::folded).collect()
    }

    /// Returns the schema and the name of `schema.name` or `name`, folded. If the name of a database comes
    /// before the schema, it is dropped.
    pub(crate) fn qualified(&self) -> (Option<String>, String) {
        let mut parts = self.folded();
        let last = parts.pop().unwrap_or_default();
        (parts.pop(), last)
    }

    /// Whether a part is quoted. A quoted name is not a keyword.
    pub(crate) fn is_quoted(&self) -> bool {
        self.parts.iter().any(|p| p.quoted)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts.iter().map(ToString::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquoted_names_fold_and_long_ones_are_cut() {
        let bare = |text: &str| Ident { quoted: false, ..Ident::quoted(text) };
        assert_eq!(bare("MyTable").folded(), "mytable");
        assert_eq!(Ident::quoted("MyTable").folded(), "MyTable");
        assert_eq!(bare(&"é".repeat(40)).folded().len(), 62);
    }
}
