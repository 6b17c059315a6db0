//! Rewrites the predicates `IS DOCUMENT` and `IS JSON`.

use crate::parse::forms::reader::Reader;
use crate::parse::forms::{Edit, word};
use sqlparser::ast::JsonKeyUniqueness;

/// Whether a test `a IS [NOT] JSON …` in the tree was rewritten from `a IS [NOT] DOCUMENT`.
pub(in crate::parse) fn is_document(keys: Option<&JsonKeyUniqueness>) -> bool {
    keys == Some(&JsonKeyUniqueness::WithoutUniqueKeys)
}

impl Reader<'_> {
    /// Rewrites `a IS [NOT] DOCUMENT` to `a IS [NOT] JSON WITHOUT UNIQUE KEYS`. The clause WITHOUT UNIQUE
    /// KEYS identifies the rewritten test, since [`Reader::json_test`] removes this clause from real tests of
    /// JSON.
    pub(in crate::parse::forms) fn document(&self, i: usize) -> Vec<(usize, Edit)> {
        if !self.is_test(i) {
            return Vec::new();
        }
        vec![(i, Edit::Instead(["JSON", "WITHOUT", "UNIQUE", "KEYS"].map(word).into()))]
    }

    /// Rewrites `a IS JSON … WITHOUT UNIQUE KEYS`: the clause is the default, and is left out.
    pub(in crate::parse::forms) fn json_test(&self, i: usize) -> Vec<(usize, Edit)> {
        if !self.ends_json_test(i) || !self.is_word(i + 1, "unique") {
            return Vec::new();
        }
        let keys = usize::from(self.is_word(i + 2, "keys"));
        (i..i + 2 + keys).map(|gone| (gone, Edit::Instead(Vec::new()))).collect()
    }

    /// Whether `IS [NOT]` comes directly before word `i`.
    fn is_test(&self, i: usize) -> bool {
        let word = |back: usize, text: &str| i.checked_sub(back).is_some_and(|at| self.is_word(at, text));
        word(1, "is") || word(1, "not") && word(2, "is")
    }

    /// Whether `IS [NOT] JSON [kind]` comes directly before word `i`.
    pub(super) fn ends_json_test(&self, i: usize) -> bool {
        let kinds = ["value", "scalar", "array", "object"];
        let Some(before) = i.checked_sub(1) else { return false };
        let kind = kinds.iter().any(|kind| self.is_word(before, kind));
        let json = if kind { before.checked_sub(1) } else { Some(before) };
        json.is_some_and(|json| self.is_word(json, "json") && self.is_test(json))
    }
}
