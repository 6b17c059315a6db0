//! Splits the arguments of a call with keywords into parts.

use super::keywords::{BEFORE, BEHIND, COLUMN};
use super::{NAME, TYPE};
use crate::parse::forms::reader::Reader;
use crate::parse::forms::{Edit, MARK, name, word};
use sqlparser::tokenizer::Token;

/// The kind of part that is expected next among the arguments of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedPart {
    /// The definition of a table's column, which begins with the column's name.
    Column,
    /// An expression, or keywords before an expression.
    Expression,
    /// Keywords after an expression.
    Words,
}

/// Splits the arguments of a call into parts.
pub(super) struct Scan<'r, 't> {
    reader: &'r Reader<'t>,
    called: &'r str,
    at: usize,
    /// The number of parts.
    pub(super) parts: usize,
    /// The number of parts that are keywords.
    pub(super) words: usize,
    pub(super) edits: Vec<(usize, Edit)>,
}

impl<'r, 't> Scan<'r, 't> {
    /// Starts at the word `at`, without any parts yet.
    pub(super) fn new(reader: &'r Reader<'t>, called: &'r str, at: usize) -> Scan<'r, 't> {
        Scan { reader, called, at, parts: 0, words: 0, edits: Vec::new() }
    }

    /// Reads the parts up to `end`. With `columns`, the parts are the column definitions of a table.
    pub(super) fn list(&mut self, end: usize, columns: bool) {
        let first = if columns { ExpectedPart::Column } else { ExpectedPart::Expression };
        let mut due = first;
        while self.at < end {
            if self.reader.is(self.at, &Token::Comma) {
                self.mark(1, ",");
                due = first;
            } else if self.reader.is(self.at, &Token::Colon) {
                self.mark(1, ":");
                self.words += 1;
                due = ExpectedPart::Expression;
            } else if due == ExpectedPart::Column && !self.is_nested() {
                due = ExpectedPart::Words;
                self.named();
                if self.words(due, true).is_none_or(|(words, _)| words != "FOR ORDINALITY") {
                    self.typed(end, true);
                }
            } else if let Some((words, count)) = self.words(due, columns) {
                self.mark(count, words);
                self.words += 1;
                self.follow(words, end);
                let before = matches!(words, "NESTED" | "NESTED PATH" | "PATH" | "VALUE")
                    || words.starts_with("PASSING")
                    || BEFORE.contains(&words) && words != "RETURNING";
                due = if before { ExpectedPart::Expression } else { ExpectedPart::Words };
            } else {
                self.part(Vec::new());
                self.skip(end, columns);
                due = ExpectedPart::Words;
            }
        }
    }

    /// Reads the parts that must follow the keywords `words` and that are not expressions.
    fn follow(&mut self, words: &str, end: usize) {
        match words {
            "AS" if self.called == "xmlserialize" => self.typed(end, false),
            "RETURNING" => self.typed(end, false),
            "AS" | "NAME" => self.named(),
            "COLUMNS" | "XMLATTRIBUTES" | "XMLNAMESPACES" => {
                let columns = words == "COLUMNS";
                match self.reader.partner.get(self.at).copied().flatten() {
                    Some(close) if self.reader.is(self.at, &Token::LParen) => {
                        self.mark(1, "(");
                        self.list(close, columns);
                        self.mark(1, ")");
                    }
                    _ => self.list(end, columns),
                }
            }
            _ => {}
        }
    }

    /// Returns the longest entry of the keyword lists at the current position, and the number of its words.
    pub(super) fn words(&self, due: ExpectedPart, columns: bool) -> Option<(&'static str, usize)> {
        let lists: [&[&str]; 2] = match (due, columns) {
            (ExpectedPart::Expression, _) => [&BEFORE, &[]],
            (_, true) => [&BEHIND, &COLUMN],
            (_, false) => [&BEHIND, &[]],
        };
        let begins = |at| [Token::Comma, Token::LParen].iter().any(|t| self.reader.is(at, t));
        let goes_on = |at| !begins(at) && self.reader.awaits_operand(at);
        if due != ExpectedPart::Expression && self.at.checked_sub(1).is_some_and(goes_on) {
            return None;
        }
        let here = |words: &&&'static str| {
            words.split(' ').enumerate().all(|(i, w)| self.reader.is_word(self.at + i, w))
                && self.may_be(words)
        };
        let count = |words: &&str| words.split(' ').count();
        let found = lists.into_iter().flatten().filter(here).max_by_key(|w| count(w))?;
        Some((*found, count(found)))
    }

    /// Whether these words are keywords at the current position. In other places the same words may be a name
    /// or a part of an expression.
    fn may_be(&self, words: &str) -> bool {
        match words {
            // For JSON_OBJECTAGG, `called` is the stem `object`.
            "VALUE" => matches!(self.called, "json_object" | "object"),
            unique if unique.contains(" UNIQUE") => !self.reader.ends_json_test(self.at),
            "NAME" => self.parts == 0 && matches!(self.called, "xmlelement" | "xmlpi"),
            "DOCUMENT" | "CONTENT" => self.parts == 0 && matches!(self.called, "xmlparse" | "xmlserialize"),
            "NULL" | "NOT NULL" => self.called == "xmltable",
            "INDENT" | "NO INDENT" => self.called == "xmlserialize",
            root if root.starts_with("VERSION") || root.starts_with("STANDALONE") => {
                let before = self.at.checked_sub(1);
                self.called == "xmlroot" && before.is_some_and(|b| self.reader.is(b, &Token::Comma))
            }
            _ => true,
        }
    }

    /// Whether a nested path begins at the current position, rather than a column named `nested`.
    fn is_nested(&self) -> bool {
        let text = |t: &Token| matches!(t, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_));
        let next = self.reader.words.get(self.at + 1);
        self.reader.is_word(self.at, "nested")
            && (self.reader.is_word(self.at + 1, "path") || next.is_some_and(|(_, t)| text(&t.token)))
    }

    /// Begins a part before the current word. The part consists of `tokens`. If `tokens` is empty, the part
    /// consists of the following words.
    fn part(&mut self, tokens: Vec<Token>) {
        let comma = (self.parts > 0).then_some(Token::Comma);
        self.parts += 1;
        let new: Vec<Token> = comma.into_iter().chain(tokens).collect();
        if !new.is_empty() {
            self.edits.push((self.at, Edit::Before(new)));
        }
    }

    /// Makes a part `token` that replaces `count` words.
    fn instead(&mut self, count: usize, token: Token) {
        self.part(vec![token]);
        self.edits.extend((self.at..self.at + count).map(|gone| (gone, Edit::Instead(Vec::new()))));
        self.at += count;
    }

    fn mark(&mut self, count: usize, words: &str) {
        self.instead(count, name(format!("{MARK}{words}")));
    }

    fn named(&mut self) {
        if let Some(given) = self.reader.folded(self.at) {
            self.instead(1, name(format!("{NAME}{given}")));
        }
    }

    fn typed(&mut self, end: usize, columns: bool) {
        if self.at < end {
            self.part(vec![name(TYPE), Token::LParen, word("NULL"), Token::DoubleColon]);
            self.skip(end, columns);
            self.edits.push((self.at, Edit::Before(vec![Token::RParen])));
        }
    }

    /// Moves to the end of the current expression or type.
    fn skip(&mut self, end: usize, columns: bool) {
        let ends = |scan: &Self| {
            [Token::Comma, Token::Colon].iter().any(|t| scan.reader.is(scan.at, t))
                || scan.words(ExpectedPart::Words, columns).is_some()
        };
        self.at = self.reader.behind(self.at).min(end);
        while self.at < end && !ends(self) {
            self.at = self.reader.behind(self.at).min(end);
        }
    }
}
