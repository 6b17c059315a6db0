//! Calls that have a special grammar, such as `JSON_VALUE(a, b RETURNING integer)` and `a IS DOCUMENT`.

use crate::types::Type;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A part of the text of a call that has a special grammar.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FormPiece {
    /// Keywords, a comma, a colon or a parenthesis.
    Word(Arc<str>),
    /// A name, unquoted.
    Name(Arc<str>),
    /// A type.
    Type(Type),
    /// A string constant, where the grammar requires a constant instead of an expression.
    Text(Arc<str>),
    /// The next argument of the call.
    Argument,
}

/// Returns the pieces of a call's text, each with a flag: whether a space comes before the piece.
pub(crate) fn spaced(form: &[FormPiece]) -> impl Iterator<Item = (bool, &FormPiece)> {
    let before = std::iter::once(None).chain(form.iter().map(Some));
    before.zip(form).map(|(before, piece)| (before.is_some_and(|b| b.is_apart_from(piece)), piece))
}

impl FormPiece {
    /// Whether a space separates this piece from `next` in the printed call.
    fn is_apart_from(&self, next: &FormPiece) -> bool {
        let word = |p: &FormPiece, words: &[&str]| matches!(p, FormPiece::Word(w) if words.contains(&&**w));
        let opens = word(next, &["("]) && matches!(self, FormPiece::Word(w) if !matches!(&**w, "," | ":"));
        !(word(self, &["("]) || word(next, &[")", ","]) || opens)
    }
}
