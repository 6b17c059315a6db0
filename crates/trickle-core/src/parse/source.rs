//! The text of a query, and positions in the text.

use crate::error::Span;
use crate::syntax::{Extent, Place, Position};
use sqlparser::tokenizer::{Location, Span as TokenSpan};

/// Converts a span of the parser crate.
pub(super) fn extent(span: TokenSpan) -> Extent {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let position = |at: Location| Position { line: number(at.line), column: number(at.column) };
    Extent { start: position(span.start), end: position(span.end) }
}

/// SQL text, with the byte offsets at which its lines start.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    text: String,
    lines: Vec<usize>,
    /// Whether every character is one byte. If so, byte offsets can be computed without counting characters.
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

    /// Returns the position of a part of the tree. Returns `None` if the position is not known.
    pub(crate) fn of(&self, part: &impl Place) -> Option<Span> {
        let Extent { start: first, end: last } = part.extent();
        let start = self.byte(first)?;
        let end = self.byte(last).unwrap_or(start).max(start);
        Some(Span { start, end, line: first.line, column: first.column })
    }

    /// Converts a span of the parser crate to a [`Span`] with bytes, line and column.
    pub(super) fn span(&self, span: TokenSpan) -> Option<Span> {
        self.of(&extent(span))
    }

    fn byte(&self, at: Position) -> Option<usize> {
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
        let at = |line, column| Position { line, column };
        let span = s.of(&Extent { start: at(1, 3), end: at(1, 4) }).unwrap();
        assert_eq!((span.start, span.end, span.line, span.column), (3, 4, 1, 3));
        assert_eq!((s.end().line, s.end().column, s.end().start), (2, 3, 7));
    }
}
