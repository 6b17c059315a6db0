//! Reads tokens word by word, for syntax that the surrounding words identify.

use super::sets::ends_group_by;
use super::{DISTINCT, Edit, MARK, ONLY, VIRTUAL, name, word};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The tokens other than white space, with the partner of each parenthesis and bracket.
pub(super) struct Reader<'t> {
    pub(super) words: Vec<(usize, &'t TokenWithSpan)>,
    pub(super) partner: Vec<Option<usize>>,
    /// The greatest nesting depth of parentheses and brackets.
    pub(super) depth: usize,
}

impl<'t> Reader<'t> {
    pub(super) fn new(tokens: &'t [TokenWithSpan]) -> Reader<'t> {
        let words: Vec<(usize, &TokenWithSpan)> =
            tokens.iter().enumerate().filter(|(_, t)| !matches!(t.token, Token::Whitespace(_))).collect();
        let mut partner = vec![None; words.len()];
        let (mut open, mut depth): (Vec<usize>, usize) = (Vec::new(), 0);
        for (i, (_, t)) in words.iter().enumerate() {
            let opener = match t.token {
                Token::LParen | Token::LBracket => {
                    open.push(i);
                    depth = depth.max(open.len());
                    continue;
                }
                Token::RParen => Token::LParen,
                Token::RBracket => Token::LBracket,
                _ => continue,
            };
            // If a bracket is still open at a closing parenthesis, the bracket has no partner.
            while opener == Token::LParen && open.last().is_some_and(|o| words[*o].1.token == Token::LBracket)
            {
                open.pop();
            }
            if let Some(o) = open.pop_if(|o| words[*o].1.token == opener) {
                (partner[o], partner[i]) = (Some(i), Some(o));
            }
        }
        Reader { words, partner, depth }
    }

    pub(super) fn keyword(&self, i: usize) -> Keyword {
        self.words.get(i).map_or(Keyword::NoKeyword, |(_, t)| super::keyword(t))
    }
    pub(super) fn is(&self, i: usize, token: &Token) -> bool {
        self.words.get(i).is_some_and(|(_, t)| t.token == *token)
    }
    pub(super) fn is_word(&self, i: usize, text: &str) -> bool {
        matches!(self.words.get(i), Some((_, t)) if matches!(&t.token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(text)))
    }
    pub(super) fn is_name(&self, i: usize) -> bool {
        matches!(self.words.get(i).map(|(_, t)| &t.token), Some(Token::Word(_)))
    }

    /// Returns the name at word `i`, with its case folded as by PostgreSQL.
    pub(super) fn folded(&self, i: usize) -> Option<String> {
        match &self.words.get(i)?.1.token {
            Token::Word(w) if w.quote_style.is_some() => Some(w.value.clone()),
            Token::Word(w) => Some(w.value.to_ascii_lowercase()),
            _ => None,
        }
    }

    pub(super) fn edits(&self) -> Vec<(usize, Edit)> {
        let queries = self.queries();
        let mut edits = Vec::new();
        let mut next = 0;
        while next < self.words.len() {
            let i = next;
            next += 1;
            if let Some(end) = self.call_over_query(i, &mut edits) {
                next = end;
                continue;
            }
            let found = match self.keyword(i) {
                Keyword::ONLY => self.only(i),
                Keyword::GROUP => self.grouped(i),
                Keyword::USING => self.using(i),
                Keyword::ROWS => self.rows_from(i),
                Keyword::GENERATED => self.generated(i),
                Keyword::FETCH => self.fetched(i),
                Keyword::EXCLUDE => self.excluded(i),
                Keyword::PRECEDING | Keyword::FOLLOWING => self.offset(i),
                Keyword::SEARCH | Keyword::CYCLE => self.recursion(i),
                Keyword::DOMAIN => self.domain(i),
                Keyword::WITHOUT => self.json_test(i),
                Keyword::COLLATE => self.collated(i),
                Keyword::TABLE => self.table(i),
                Keyword::COLLATION => self.collation_of(i),
                Keyword::SUBSTRING => self.similar_part(i),
                Keyword::AT => self.at_local(i),
                Keyword::TRIM => self.trimmed(i),
                Keyword::VARIADIC => self.variadic(i),
                Keyword::ANY | Keyword::SOME | Keyword::ALL => self.any(i),
                Keyword::OPERATOR => self.operator(i),
                _ if self.is(i, &Token::DoubleColon) => self.row_cast(i),
                _ if self.is(i, &Token::LParen) => self.query(i, &queries),
                _ if self.is_word(i, "document") => self.document(i),
                _ if self.is_call(i) => self.call(i),
                _ if self.is_normal_form(i) => self.normal_form(i),
                _ => Vec::new(),
            };
            edits.extend(found.into_iter().map(|(word, edit)| (self.words[word].0, edit)));
        }
        edits
    }

    /// Rewrites `ONLY t` and `ONLY (t)` in FROM: a marker becomes the first part of the table's name.
    fn only(&self, i: usize) -> Vec<(usize, Edit)> {
        let Some(before) = i.checked_sub(1) else { return Vec::new() };
        let item = matches!(self.keyword(before), Keyword::FROM | Keyword::JOIN)
            || self.is(before, &Token::Comma)
            || self.is(before, &Token::LParen)
            || self.keyword(before) == Keyword::TABLE && !self.table(before).is_empty();
        let mark = (i, Edit::Instead(vec![name(ONLY), Token::Period]));
        match self.partner.get(i + 1).copied().flatten() {
            Some(end) if item && self.is(i + 1, &Token::LParen) => {
                vec![mark, (i + 1, Edit::Instead(Vec::new())), (end, Edit::Instead(Vec::new()))]
            }
            _ if item && self.is_name(i + 1) => vec![mark],
            _ => Vec::new(),
        }
    }

    /// Rewrites `GROUP BY DISTINCT a` to `GROUP BY mark, a`, and `GROUP BY ALL a` to `GROUP BY a`.
    fn grouped(&self, i: usize) -> Vec<(usize, Edit)> {
        if self.keyword(i + 1) != Keyword::BY {
            return Vec::new();
        }
        let end = [Token::RParen, Token::SemiColon, Token::EOF].iter().any(|t| self.is(i + 3, t));
        let key = i + 3 < self.words.len() && !end && !ends_group_by(self.keyword(i + 3));
        let (first, mut edits) = match self.keyword(i + 2) {
            Keyword::DISTINCT => (i + 3, vec![(i + 2, Edit::Instead(vec![name(DISTINCT), Token::Comma]))]),
            Keyword::ALL if key => (i + 3, vec![(i + 2, Edit::Instead(Vec::new()))]),
            _ => (i + 2, Vec::new()),
        };
        self.sets(first, false, &mut edits);
        edits
    }

    /// Rewrites `USING (a, b) AS x`: the alias becomes the last name in the list.
    fn using(&self, i: usize) -> Vec<(usize, Edit)> {
        let Some(end) = self.partner.get(i + 1).copied().flatten().filter(|_| self.is(i + 1, &Token::LParen))
        else {
            return Vec::new();
        };
        let columns = (i + 2..end).all(|c| self.is_name(c) || self.is(c, &Token::Comma));
        match self.folded(end + 2) {
            Some(alias) if columns && self.keyword(end + 1) == Keyword::AS => {
                let gone = || Edit::Instead(Vec::new());
                let listed = Edit::Before(vec![Token::Comma, name(format!("{MARK}{alias}"))]);
                vec![(end, listed), (end + 1, gone()), (end + 2, gone())]
            }
            _ => Vec::new(),
        }
    }

    /// Rewrites `GENERATED ALWAYS AS (e) [VIRTUAL]` to a stored column, whose expression is marked as
    /// virtual.
    fn generated(&self, i: usize) -> Vec<(usize, Edit)> {
        let always = (self.keyword(i + 1), self.keyword(i + 2)) == (Keyword::ALWAYS, Keyword::AS);
        match self.partner.get(i + 3).copied().flatten() {
            Some(end) if always && self.keyword(end + 1) != Keyword::STORED => {
                let mut edits = vec![
                    (i + 4, Edit::Before(vec![name(VIRTUAL), Token::LParen])),
                    (end, Edit::Before(vec![Token::RParen])),
                ];
                edits.push(match self.keyword(end + 1) {
                    Keyword::VIRTUAL => (end + 1, Edit::Instead(vec![word("STORED")])),
                    _ => (end + 1, Edit::Before(vec![word("STORED")])),
                });
                edits
            }
            _ => Vec::new(),
        }
    }

    /// Rewrites `FETCH FIRST (n) ROWS`: the number loses its parentheses.
    fn fetched(&self, i: usize) -> Vec<(usize, Edit)> {
        let first = matches!(self.keyword(i + 1), Keyword::FIRST | Keyword::NEXT);
        let number = matches!(self.words.get(i + 3), Some((_, t)) if matches!(t.token, Token::Number(..)));
        if !(first && number && self.is(i + 2, &Token::LParen) && self.is(i + 4, &Token::RParen)) {
            return Vec::new();
        }
        [i + 2, i + 4].map(|at| (at, Edit::Instead(Vec::new()))).into()
    }

    /// Rewrites `'…'::type PRECEDING`: the offset gets parentheses.
    fn offset(&self, i: usize) -> Vec<(usize, Edit)> {
        let begins = |at: &usize| {
            matches!(
                self.keyword(*at),
                Keyword::BETWEEN | Keyword::AND | Keyword::ROWS | Keyword::RANGE | Keyword::GROUPS
            )
        };
        let text = |t: &Token| matches!(t, Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_));
        match (0..i).rev().find(begins) {
            Some(at) if self.words.get(at + 1).is_some_and(|(_, t)| text(&t.token)) => {
                let parentheses = [(at + 1, Token::LParen), (i, Token::RParen)];
                parentheses.map(|(at, t)| (at, Edit::Before(vec![t]))).into()
            }
            _ => Vec::new(),
        }
    }

    /// Rewrites `frame EXCLUDE …` to a marker, which becomes the last key of the ORDER BY before the frame.
    /// If there is no ORDER BY, an ORDER BY with this key is added.
    fn excluded(&self, i: usize) -> Vec<(usize, Edit)> {
        let (mark, words) = match self.keyword(i + 1) {
            Keyword::NO if self.is_word(i + 2, "others") => (0, 2),
            Keyword::CURRENT if self.keyword(i + 2) == Keyword::ROW => (1, 2),
            Keyword::GROUP => (2, 1),
            _ if self.is_word(i + 1, "ties") => (3, 1),
            _ => return Vec::new(),
        };
        let (mut frame, mut ordered, mut at) = (None, false, i);
        while let Some(before) = at.checked_sub(1) {
            at = match (self.words[before].1.token.clone(), self.partner[before]) {
                (Token::RParen, Some(open)) => open,
                (Token::LParen, _) => break,
                _ => before,
            };
            match self.keyword(at) {
                Keyword::ROWS | Keyword::RANGE | Keyword::GROUPS if frame.is_none() => frame = Some(at),
                Keyword::ORDER => ordered = true,
                _ => {}
            }
        }
        let Some(frame) = frame else { return Vec::new() };
        let mut key = if ordered { vec![Token::Comma] } else { vec![word("ORDER"), word("BY")] };
        key.push(name(super::EXCLUDED[mark].0));
        let gone = (i..=i + words).map(|at| (at, Edit::Instead(Vec::new())));
        std::iter::once((frame, Edit::Before(key))).chain(gone).collect()
    }
}
