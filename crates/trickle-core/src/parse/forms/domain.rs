//! Rewrites CREATE DOMAIN: its constraints, and the schema of its collation.

use super::reader::Reader;
use super::{Edit, MARK, name, word};
use sqlparser::ast::{Ident, ObjectName};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

/// Returns the collation of a domain. The tree has room for only one identifier. This identifier contains
/// both the schema and the name, each after the character `MARK`.
pub(in crate::parse) fn collation(written: &Ident) -> ObjectName {
    let parts = written.value.strip_prefix(MARK).and_then(|both| both.split_once(MARK));
    match parts {
        Some(parts) => {
            let part = |value: &str| Ident { value: value.to_owned(), ..written.clone() };
            ObjectName::from(vec![part(parts.0), part(parts.1)])
        }
        None => ObjectName::from(vec![written.clone()]),
    }
}

impl Reader<'_> {
    /// Rewrites `NOT NULL` to a CHECK at the end of the statement, and the two names in `COLLATE s.c` to one
    /// name.
    pub(super) fn domain(&self, i: usize) -> Vec<(usize, Edit)> {
        let (mut edits, mut checked) = (Vec::new(), false);
        if i.checked_sub(1).is_none_or(|before| self.keyword(before) != Keyword::CREATE) {
            return edits;
        }
        let mut at = i + 1;
        while at < self.words.len() && !self.is(at, &Token::SemiColon) {
            if (self.keyword(at), self.keyword(at + 1)) == (Keyword::NOT, Keyword::NULL) {
                let named = at >= 2 && self.keyword(at - 2) == Keyword::CONSTRAINT;
                let from = if named { at - 2 } else { at };
                edits.extend((from..=at + 1).map(|gone| (gone, Edit::Instead(Vec::new()))));
                checked = true;
            }
            if self.keyword(at) == Keyword::COLLATE
                && self.is(at + 2, &Token::Period)
                && let (Some(schema), Some(collation)) = (self.folded(at + 1), self.folded(at + 3))
            {
                edits.push((at + 1, Edit::Instead(vec![name(format!("{MARK}{schema}{MARK}{collation}"))])));
                edits.extend([at + 2, at + 3].map(|gone| (gone, Edit::Instead(Vec::new()))));
            }
            // Tokens in parentheses belong to an expression.
            at = self.partner.get(at).copied().flatten().filter(|end| *end > at).unwrap_or(at) + 1;
        }
        if checked {
            let not_null = ["VALUE", "IS", "NOT", "NULL"].map(word);
            let check = [word("CHECK"), Token::LParen].into_iter().chain(not_null).chain([Token::RParen]);
            let last = at - 1;
            if at < self.words.len() {
                edits.push((at, Edit::Before(check.collect())));
            } else if edits.iter().any(|(word, _)| *word == last) {
                edits.push((last, Edit::Instead(check.collect())));
            } else {
                let token = self.words[last].1.token.clone();
                edits.push((last, Edit::Instead(std::iter::once(token).chain(check).collect())));
            }
        }
        edits
    }
}
