//! Rewrites queries in parentheses that are used as expressions.

use super::reader::Reader;
use super::{Edit, MARK, name, word};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

impl Reader<'_> {
    /// Returns for each parenthesis whether the parenthesis opens a query. The next token is then SELECT or a
    /// similar keyword, or another parenthesis that opens a query. In the latter case, only clauses that may
    /// follow a query come after the inner query in the outer parentheses.
    pub(super) fn queries(&self) -> Vec<bool> {
        let mut queries = vec![false; self.words.len()];
        for i in (0..self.words.len()).rev().filter(|i| self.is(*i, &Token::LParen)) {
            queries[i] = match self.keyword(i + 1) {
                Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE => true,
                _ if !queries.get(i + 1).copied().unwrap_or_default() => false,
                _ => self.partner[i + 1]
                    .is_some_and(|end| self.is(end + 1, &Token::RParen) || self.goes_on(end + 1)),
            };
        }
        queries
    }

    /// Rewrites `TABLE t`, as a query, to `SELECT * FROM t`.
    pub(super) fn table(&self, i: usize) -> Vec<(usize, Edit)> {
        let set = |i: usize| matches!(self.keyword(i), Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT);
        let begins = match i.checked_sub(1) {
            None => true,
            Some(before) => match self.keyword(before) {
                Keyword::ALL | Keyword::DISTINCT => before.checked_sub(1).is_some_and(set),
                Keyword::AS => true,
                _ if set(before) => true,
                _ => [Token::LParen, Token::RParen, Token::SemiColon].iter().any(|t| self.is(before, t)),
            },
        };
        if !begins || !self.is_name(i + 1) {
            return Vec::new();
        }
        vec![(i, Edit::Instead(vec![word("SELECT"), Token::Mul, word("FROM")]))]
    }

    /// Whether keyword `i` continues the query in parentheses before the keyword.
    fn goes_on(&self, i: usize) -> bool {
        matches!(
            self.keyword(i),
            Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::ORDER
                | Keyword::LIMIT
                | Keyword::OFFSET
                | Keyword::FETCH
        )
    }

    /// Whether an operand of an expression may follow token `i`, rather than the arguments of a call.
    pub(super) fn begins_operand(&self, i: usize) -> bool {
        let set = |i: usize| matches!(self.keyword(i), Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT);
        match self.words.get(i).map(|(_, t)| &t.token) {
            // The ALL of UNION ALL is followed by a query, not by an operand.
            Some(Token::Word(_)) if i.checked_sub(1).is_some_and(set) => false,
            Some(Token::Word(_)) => matches!(
                self.keyword(i),
                Keyword::ANY
                    | Keyword::SOME
                    | Keyword::ALL
                    | Keyword::SELECT
                    | Keyword::DISTINCT
                    | Keyword::AND
                    | Keyword::OR
                    | Keyword::NOT
                    | Keyword::CASE
                    | Keyword::WHEN
                    | Keyword::THEN
                    | Keyword::ELSE
                    | Keyword::WHERE
                    | Keyword::ON
                    | Keyword::HAVING
                    | Keyword::BY
                    | Keyword::BETWEEN
                    | Keyword::LIKE
                    | Keyword::ILIKE
            ),
            Some(Token::SemiColon | Token::RParen) | None => false,
            Some(_) => true,
        }
    }

    /// Rewrites `((SELECT …) UNION …)` and `(VALUES …)` in an expression to `(SELECT * FROM (…))`. In any
    /// other place, the parser crate reads a query in parentheses.
    pub(super) fn query(&self, i: usize, queries: &[bool]) -> Vec<(usize, Edit)> {
        // If parentheses contain only other parentheses, the inner ones are treated like the outer ones. An
        // operand of a set operation stays as it is in its parentheses, since it is read with the whole set
        // operation.
        let mut at = i;
        while at > 0 && queries[at - 1] {
            if self.partner[at].is_some_and(|end| self.goes_on(end + 1)) {
                return Vec::new();
            }
            at -= 1;
        }
        let Some(before) = at.checked_sub(1).filter(|b| self.begins_operand(*b)) else { return Vec::new() };
        let Some(end) = self.partner[i].filter(|_| queries[i]) else { return Vec::new() };
        let unread = match self.keyword(i + 1) {
            Keyword::VALUES | Keyword::TABLE => !self.is(before, &Token::Comma),
            Keyword::SELECT | Keyword::WITH => false,
            _ => self.partner[i + 1].is_some_and(|inner| self.goes_on(inner + 1)),
        };
        if !unread {
            return Vec::new();
        }
        let open = vec![word("SELECT"), Token::Mul, word("FROM"), Token::LParen];
        let close = vec![Token::RParen, word("AS"), name(MARK)];
        vec![(i + 1, Edit::Before(open)), (end, Edit::Before(close))]
    }
}
