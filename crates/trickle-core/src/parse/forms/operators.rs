//! Operators that the parser's crate binds otherwise, or does not know.

use super::reader::Reader;
use super::{Edit, name, word};
use crate::parse::ast::{Expr, Ident};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

const LOCAL: &str = "\0local";

/// Whether the zone of AT TIME ZONE stands for AT LOCAL.
pub(crate) fn is_local(zone: &Expr) -> bool {
    matches!(zone, Expr::Identifier(Ident { value, .. }) if value == LOCAL)
}

impl Reader<'_> {
    /// `a::type COLLATE c`: the cast in parentheses.
    pub(super) fn collated(&self, i: usize) -> Vec<(usize, Edit)> {
        let (mut end, mut start) = (i, None);
        while let Some(cast) = self.cast_before(end) {
            end = cast;
            start = self.operand_before(cast);
        }
        let edit = |(at, token)| (at, Edit::Before(vec![token]));
        start.map(|start| [(start, Token::LParen), (i, Token::RParen)].map(edit).into()).unwrap_or_default()
    }

    /// The `::` of the type that ends in front of a word.
    fn cast_before(&self, i: usize) -> Option<usize> {
        let (mut at, mut words) = (i, Vec::new());
        loop {
            at = at.checked_sub(1)?;
            match &self.words[at].1.token {
                Token::DoubleColon => break,
                Token::RParen | Token::RBracket => at = self.partner[at]?,
                Token::Period => words.clear(),
                Token::Word(w) if words.len() < 4 => words.push(w.value.to_ascii_lowercase()),
                _ => return None,
            }
        }
        words.reverse();
        let several = ["character varying", "bit varying", "double precision"];
        let time = |w: &[String]| matches!(w, [t, _, time, zone] if (t == "time" || t == "timestamp") && time == "time" && zone == "zone");
        (words.len() == 1 || several.contains(&words.join(" ").as_str()) || time(&words)).then_some(at)
    }

    /// Where the operand of the `::` at `i` begins: a constant, a name, a call, or what stands in parentheses.
    fn operand_before(&self, i: usize) -> Option<usize> {
        let mut at = i.checked_sub(1)?;
        if let Some(open) = self.partner[at] {
            let called =
                open.checked_sub(1).filter(|name| self.is_name(*name) && !self.begins_operand(*name));
            at = called.unwrap_or(open);
        }
        while at >= 2 && self.is(at - 1, &Token::Period) && self.is_name(at - 2) {
            at -= 2;
        }
        Some(at)
    }

    /// `t.*::t`: the row in parentheses.
    pub(super) fn row_cast(&self, i: usize) -> Vec<(usize, Edit)> {
        let row =
            i >= 3 && self.is(i - 1, &Token::Mul) && self.is(i - 2, &Token::Period) && self.is_name(i - 3);
        match self.operand_before(i.saturating_sub(2)).filter(|_| row) {
            Some(start) => [(start, Token::LParen), (i, Token::RParen)]
                .map(|(at, token)| (at, Edit::Before(vec![token])))
                .into(),
            None => Vec::new(),
        }
    }

    /// `COLLATION FOR (a)` is a call.
    pub(super) fn collation_of(&self, i: usize) -> Vec<(usize, Edit)> {
        if self.keyword(i + 1) != Keyword::FOR || !self.is(i + 2, &Token::LParen) {
            return Vec::new();
        }
        vec![(i, Edit::Instead(vec![name("pg_collation_for")])), (i + 1, Edit::Instead(Vec::new()))]
    }

    /// `SUBSTRING(a SIMILAR pattern ESCAPE c)` is a call with three arguments.
    pub(super) fn similar_part(&self, i: usize) -> Vec<(usize, Edit)> {
        let Some(end) = self.partner.get(i + 1).copied().flatten().filter(|_| self.is(i + 1, &Token::LParen))
        else {
            return Vec::new();
        };
        let (mut at, mut commas) = (i + 2, Vec::new());
        while at < end {
            let similar = self.keyword(at) == Keyword::SIMILAR && self.keyword(at + 1) != Keyword::TO;
            if similar || self.keyword(at) == Keyword::ESCAPE {
                commas.push((at, Edit::Instead(vec![Token::Comma])));
            }
            at = self.partner[at].filter(|close| *close > at).unwrap_or(at) + 1;
        }
        if commas.len() == 2 { commas } else { Vec::new() }
    }

    /// `a AT LOCAL`: a zone that says so.
    pub(super) fn at_local(&self, i: usize) -> Vec<(usize, Edit)> {
        let operand = i.checked_sub(1).is_some_and(|before| {
            !self.awaits_operand(before)
                && ![Token::Comma, Token::LParen, Token::Period].iter().any(|t| self.is(before, t))
        });
        if !(operand && self.is_word(i + 1, "local")) {
            return Vec::new();
        }
        let zone = vec![word("TIME"), word("ZONE"), name(LOCAL)];
        vec![(i + 1, Edit::Instead(zone))]
    }
}
