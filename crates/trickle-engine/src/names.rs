//! Names of tables as people type them, and the names of trickle's own schemas.

use crate::error::{Error, Result};
use std::fmt;
use trickle_core::apply::index_names;
use trickle_core::sql::Ident;

/// The schema of the catalog.
pub(crate) const CATALOG: &str = "pgtrickle";

/// The schema of buffers, states and copies.
pub(crate) const HIDDEN: &str = "pgtrickle_changes";

/// A name, unquoted, with or without a schema.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// The schema, if the name has one.
    pub schema: Option<String>,
    /// The name without the schema.
    pub name: String,
}

impl Name {
    /// Reads `name`, `schema.name`, and quoted forms of both. As in PostgreSQL, unquoted parts are folded to
    /// lower case.
    ///
    /// # Errors
    /// More than two parts, an empty part, an unfinished quote, or more than 63 bytes in a part.
    pub fn parse(text: &str) -> Result<Name> {
        let bad = |why: &str| {
            Err(Error::input(format!("\"{text}\" is not a table name: {why}")).hint(
                "Write name or schema.name; put double quotes around a part that has capitals or dots.",
            ))
        };
        let mut parts: Vec<String> = vec![String::new()];
        let mut chars = text.trim().chars().peekable();
        let mut quoted = false;
        while let Some(c) = chars.next() {
            let Some(part) = parts.last_mut() else { break };
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    part.push('"');
                }
                '"' => quoted = !quoted,
                '.' if !quoted => parts.push(String::new()),
                c if quoted => part.push(c),
                c if c.is_alphanumeric() || matches!(c, '_' | '$') => part.extend(c.to_lowercase()),
                _ => return bad(&format!("it holds \"{c}\" outside quotes")),
            }
        }
        if quoted {
            return bad("a quote is not closed");
        }
        if parts.iter().any(String::is_empty) {
            return bad("a part is empty");
        }
        if parts.iter().any(|p| p.len() > 63) {
            return bad("a part is longer than 63 bytes");
        }
        match <[String; 2]>::try_from(parts) {
            Ok([schema, name]) => Ok(Name { schema: Some(schema), name }),
            Err(mut parts) if parts.len() == 1 => Ok(Name { schema: None, name: parts.swap_remove(0) }),
            Err(_) => bad("it has more than two parts"),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{}.", Ident::new(schema))?;
        }
        write!(f, "{}", Ident::new(&self.name))
    }
}

/// Returns the statements that rename a stored table within its schema, and rename its indexes to match.
pub(crate) fn rename_table(schema: &str, from: &Ident, to: &Ident) -> String {
    let schema = Ident::new(schema);
    let keys = |table: &Ident| index_names(table).into_iter().chain([table.with_suffix("_pkey")]);
    let index = |(old, new)| format!(";\nALTER INDEX IF EXISTS {schema}.{old} RENAME TO {new}");
    let indexes: String = keys(from).zip(keys(to)).map(index).collect();
    format!("ALTER TABLE {schema}.{from} RENAME TO {to}{indexes}")
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn names_are_read_as_postgres_reads_them() {
        let read = |t: &str| Name::parse(t).map(|n| n.to_string());
        assert_eq!(read("Totals").unwrap(), "totals");
        assert_eq!(read("shop.Totals").unwrap(), "shop.totals");
        assert_eq!(read("\"My.Shop\".\"a\"\"b\"").unwrap(), "\"My.Shop\".\"a\"\"b\"");
        for bad in ["", "a.b.c", "a b", "\"a", "a.", "a;drop", &"x".repeat(64)] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
