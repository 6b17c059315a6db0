//! The text of a query, and places in it.

use crate::error::Span;
use sqlparser::ast::{self, Spanned};
use sqlparser::tokenizer::{Location, Span as TokenSpan};

/// A part of the syntax tree whose place in the text is known.
pub(crate) trait Place {
    /// Returns the place of the part; empty if the parser crate did not store the place.
    fn place(&self) -> TokenSpan;
}

impl Place for ast::Ident {
    fn place(&self) -> TokenSpan {
        self.span
    }
}
impl Place for TokenSpan {
    fn place(&self) -> TokenSpan {
        *self
    }
}
macro_rules! spanned {
    ($($Node:ident),*) => {
        $(impl Place for ast::$Node {
            fn place(&self) -> TokenSpan { self.span() }
        })*
    };
}
spanned!(Expr, ObjectName, Query, Select, SetExpr, TableFactor, SelectItem, Function, TableWithJoins);

/// SQL text, with the byte offsets at which its lines start.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    text: String,
    lines: Vec<usize>,
    /// Whether every character is one byte, so that the byte offset of a place follows without counting
    /// characters.
    ascii: bool,
}

impl Source {
    pub(crate) fn new(text: &str) -> Source {
        let starts = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        Source { text: text.to_owned(), lines, ascii: text.is_ascii() }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the place after the last character.
    pub(crate) fn end(&self) -> Span {
        let line = self.lines.len();
        let start = self.lines.last().copied().unwrap_or(0);
        let column = self.text.get(start..).map_or(0, |l| l.chars().count()) + 1;
        Span { start: self.text.len(), end: self.text.len(), line: small(line), column: small(column) }
    }

    /// Returns the place of the character at a byte offset.
    pub(crate) fn at(&self, byte: usize) -> Span {
        let line = self.lines.partition_point(|start| *start <= byte);
        let start = line.checked_sub(1).and_then(|l| self.lines.get(l)).copied().unwrap_or(0);
        let column = self.text.get(start..byte).map_or(0, |l| l.chars().count()) + 1;
        Span { start: byte, end: byte, line: small(line), column: small(column) }
    }

    /// Returns the place of a part of the tree; `None` if the parser crate did not store the place.
    pub(crate) fn of(&self, node: &impl Place) -> Option<Span> {
        self.span(node.place())
    }

    /// Converts a span of the parser crate to a [`Span`] with bytes, line and column.
    pub(crate) fn span(&self, span: TokenSpan) -> Option<Span> {
        let start = self.byte(span.start)?;
        let end = self.byte(span.end).unwrap_or(start).max(start);
        let (line, column) = (u32::try_from(span.start.line).ok()?, u32::try_from(span.start.column).ok()?);
        Some(Span { start, end, line, column })
    }

    fn byte(&self, at: Location) -> Option<usize> {
        let line = usize::try_from(at.line).ok()?.checked_sub(1)?;
        let start = *self.lines.get(line)?;
        let skip = usize::try_from(at.column).ok()?.checked_sub(1)?;
        if self.ascii {
            return Some((start + skip).min(self.text.len()));
        }
        let rest = self.text.get(start..)?;
        Some(start + rest.char_indices().nth(skip).map_or(rest.len(), |(i, _)| i))
    }
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_offsets_bytes() {
        let s = Source::new("é x\nab");
        let at = |line, column| Location { line, column };
        let span = s.span(TokenSpan { start: at(1, 3), end: at(1, 4) }).unwrap();
        assert_eq!((span.start, span.end, span.line, span.column), (3, 4, 1, 3));
        assert_eq!((s.end().line, s.end().column, s.end().start), (2, 3, 7));
    }
}
