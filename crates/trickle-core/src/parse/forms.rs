//! Forms of PostgreSQL's that the parser's crate does not read, in words that it does.
//!
//! What is added is a name that begins with a NUL, which no text of a server's can hold: it says to the front end what
//! the tree has no place for. Where that needs no saying, the tokens are those of an equal query.

use super::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    ObjectNamePart,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

const ONLY: &str = "\0only";
const DISTINCT: &str = "\0distinct";
const ROWS_FROM: &str = "\0rows";
const DEFINED: &str = "\0defined";
const VIRTUAL: &str = "\0virtual";
/// The alias of a query in parentheses; in front of an alias, that it is one.
const MARK: &str = "\0";

/// Whether a table is read as `ONLY t`.
pub(crate) fn is_only(name: &ObjectName) -> bool {
    matches!(name.0.first(), Some(ObjectNamePart::Identifier(i)) if i.value == ONLY)
}

/// Whether a part of a name says how the others are meant.
pub(super) fn is_mark(part: &ObjectNamePart) -> bool {
    matches!(part, ObjectNamePart::Identifier(i) if i.value.starts_with(MARK))
}

/// Whether the first key of GROUP BY stands for its DISTINCT.
pub(crate) fn is_group_distinct(key: &Expr) -> bool {
    matches!(key, Expr::Identifier(i) if i.value == DISTINCT)
}

/// The alias in `USING (…) AS alias`, which is the last of the names.
pub(crate) fn using_alias(names: &[ObjectName]) -> Option<Ident> {
    match names.last()?.0.as_slice() {
        [ObjectNamePart::Identifier(i)] => {
            Some(Ident { value: i.value.strip_prefix(MARK)?.to_owned(), ..i.clone() })
        }
        _ => None,
    }
}

/// Whether what looks like a function in FROM is `ROWS FROM (…)`.
pub(crate) fn is_rows_from(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(i)] if i.value == ROWS_FROM)
}

/// A call inside `ROWS FROM (…)`.
pub(crate) struct RowsFrom<'a> {
    pub(crate) call: &'a Function,
    /// `AS (name type, …)`
    pub(crate) definition: Vec<(&'a Ident, &'a DataType)>,
}

impl<'a> RowsFrom<'a> {
    pub(crate) fn of(arg: &'a FunctionArg) -> Option<RowsFrom<'a>> {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(call))) = arg else { return None };
        let FunctionArguments::List(list) = &call.args else { return None };
        if !matches!(call.name.0.as_slice(), [ObjectNamePart::Identifier(i)] if i.value == DEFINED) {
            return Some(RowsFrom { call, definition: Vec::new() });
        }
        let (first, columns) = list.args.split_first()?;
        let column = |c: &'a FunctionArg| match c {
            FunctionArg::ExprNamed { name: Expr::Identifier(name), arg, .. } => match arg {
                FunctionArgExpr::Expr(Expr::Cast { data_type, .. }) => Some((name, data_type)),
                _ => None,
            },
            _ => None,
        };
        let definition = columns.iter().map(column).collect::<Option<_>>()?;
        Some(RowsFrom { definition, ..RowsFrom::of(first)? })
    }
}

/// The expression of a generated column, and whether it is a virtual one.
pub(crate) fn generated(e: &Expr) -> (&Expr, bool) {
    if let Expr::Function(f) = e
        && let [ObjectNamePart::Identifier(name)] = f.name.0.as_slice()
        && name.value == VIRTUAL
        && let FunctionArguments::List(list) = &f.args
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))] = list.args.as_slice()
    {
        return (inner, true);
    }
    (e, false)
}

/// The tokens with such forms put into other words.
pub(super) fn reworded(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let suspect = |t: &TokenWithSpan| {
        let word = matches!(
            keyword(t),
            Keyword::ONLY
                | Keyword::GROUP
                | Keyword::ROWS
                | Keyword::USING
                | Keyword::GENERATED
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::VALUES
                | Keyword::TABLE
                | Keyword::ORDER
                | Keyword::LIMIT
        );
        word || matches!(&t.token, Token::Word(w) if w.value.eq_ignore_ascii_case("xmlelement"))
    };
    if !tokens.iter().any(suspect) {
        return tokens;
    }
    let edits = Reader::new(&tokens).edits();
    if edits.is_empty() {
        return tokens;
    }
    edited(tokens, edits)
}

/// What becomes of the token at a place.
enum Edit {
    /// These come before it.
    Before(Vec<Token>),
    /// These come instead of it.
    Instead(Vec<Token>),
}

fn edited(tokens: Vec<TokenWithSpan>, mut edits: Vec<(usize, Edit)>) -> Vec<TokenWithSpan> {
    // Those of one place keep their order.
    edits.sort_by_key(|(at, _)| *at);
    let mut edits = edits.into_iter().peekable();
    let mut out = Vec::with_capacity(tokens.len());
    for (i, token) in tokens.into_iter().enumerate() {
        let mut kept = true;
        while let Some((_, edit)) = edits.next_if(|(at, _)| *at == i) {
            let (new, instead) = match edit {
                Edit::Before(new) => (new, false),
                Edit::Instead(new) => (new, true),
            };
            kept &= !instead;
            out.extend(new.into_iter().map(|t| TokenWithSpan::new(t, token.span)));
        }
        if kept {
            out.push(token);
        }
    }
    out
}

fn keyword(t: &TokenWithSpan) -> Keyword {
    match &t.token {
        Token::Word(w) if w.quote_style.is_none() => w.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn name(text: impl Into<String>) -> Token {
    Token::Word(Word { value: text.into(), quote_style: Some('"'), keyword: Keyword::NoKeyword })
}

fn word(text: &str) -> Token {
    Token::make_keyword(text)
}

/// The tokens that are no white space, each parenthesis with its partner.
struct Reader<'t> {
    words: Vec<(usize, &'t TokenWithSpan)>,
    partner: Vec<Option<usize>>,
}

impl<'t> Reader<'t> {
    fn new(tokens: &'t [TokenWithSpan]) -> Reader<'t> {
        let words: Vec<(usize, &TokenWithSpan)> =
            tokens.iter().enumerate().filter(|(_, t)| !matches!(t.token, Token::Whitespace(_))).collect();
        let mut partner = vec![None; words.len()];
        let mut open = Vec::new();
        for (i, (_, t)) in words.iter().enumerate() {
            match t.token {
                Token::LParen => open.push(i),
                Token::RParen => {
                    if let Some(o) = open.pop() {
                        (partner[o], partner[i]) = (Some(i), Some(o));
                    }
                }
                _ => {}
            }
        }
        Reader { words, partner }
    }

    fn keyword(&self, i: usize) -> Keyword {
        self.words.get(i).map_or(Keyword::NoKeyword, |(_, t)| keyword(t))
    }
    fn is(&self, i: usize, token: &Token) -> bool {
        self.words.get(i).is_some_and(|(_, t)| t.token == *token)
    }
    fn is_name(&self, i: usize) -> bool {
        matches!(self.words.get(i).map(|(_, t)| &t.token), Some(Token::Word(_)))
    }

    fn edits(&self) -> Vec<(usize, Edit)> {
        let queries = self.queries();
        let mut edits = Vec::new();
        for i in 0..self.words.len() {
            let found = match self.keyword(i) {
                Keyword::ONLY => self.only(i),
                Keyword::GROUP => self.grouped(i),
                Keyword::USING => self.using(i),
                Keyword::ROWS => self.rows_from(i),
                Keyword::GENERATED => self.generated(i),
                _ if self.is(i, &Token::LParen) => self.query(i, &queries),
                _ => self.xml_name(i),
            };
            edits.extend(found.into_iter().map(|(word, edit)| (self.words[word].0, edit)));
        }
        edits
    }

    /// `ONLY t` and `ONLY (t)` in FROM: a name in front of the table's.
    fn only(&self, i: usize) -> Vec<(usize, Edit)> {
        let Some(before) = i.checked_sub(1) else { return Vec::new() };
        let item = matches!(self.keyword(before), Keyword::FROM | Keyword::JOIN)
            || self.is(before, &Token::Comma)
            || self.is(before, &Token::LParen);
        let mark = (i, Edit::Instead(vec![name(ONLY), Token::Period]));
        match self.partner.get(i + 1).copied().flatten() {
            Some(end) if item && self.is(i + 1, &Token::LParen) => {
                vec![mark, (i + 1, Edit::Instead(Vec::new())), (end, Edit::Instead(Vec::new()))]
            }
            _ if item && self.is_name(i + 1) => vec![mark],
            _ => Vec::new(),
        }
    }

    /// `GROUP BY DISTINCT a` has a first key that says so; `GROUP BY ALL a` is `GROUP BY a`.
    fn grouped(&self, i: usize) -> Vec<(usize, Edit)> {
        if self.keyword(i + 1) != Keyword::BY {
            return Vec::new();
        }
        let key = match self.keyword(i + 3) {
            Keyword::HAVING
            | Keyword::WINDOW
            | Keyword::UNION
            | Keyword::INTERSECT
            | Keyword::EXCEPT
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::FETCH
            | Keyword::FOR => false,
            _ => {
                let end = [Token::RParen, Token::SemiColon, Token::EOF].iter().any(|t| self.is(i + 3, t));
                i + 3 < self.words.len() && !end
            }
        };
        match self.keyword(i + 2) {
            Keyword::DISTINCT => vec![(i + 2, Edit::Instead(vec![name(DISTINCT), Token::Comma]))],
            Keyword::ALL if key => vec![(i + 2, Edit::Instead(Vec::new()))],
            _ => Vec::new(),
        }
    }

    /// `USING (a, b) AS x`: the alias is a last name in the list.
    fn using(&self, i: usize) -> Vec<(usize, Edit)> {
        let Some(end) = self.partner.get(i + 1).copied().flatten().filter(|_| self.is(i + 1, &Token::LParen))
        else {
            return Vec::new();
        };
        let columns = (i + 2..end).all(|c| self.is_name(c) || self.is(c, &Token::Comma));
        match self.words.get(end + 2).map(|(_, t)| &t.token) {
            Some(Token::Word(w)) if columns && self.keyword(end + 1) == Keyword::AS => {
                let alias =
                    if w.quote_style.is_some() { w.value.clone() } else { w.value.to_ascii_lowercase() };
                let gone = || Edit::Instead(Vec::new());
                let listed = Edit::Before(vec![Token::Comma, name(format!("{MARK}{alias}"))]);
                vec![(end, listed), (end + 1, gone()), (end + 2, gone())]
            }
            _ => Vec::new(),
        }
    }

    /// `ROWS FROM (f(a), g(b) AS (x t, …))`: a function of that name, whose second argument is another one of `g(b)` and of
    /// NULLs of these types and names.
    fn rows_from(&self, i: usize) -> Vec<(usize, Edit)> {
        let item = i.checked_sub(1).is_some_and(|b| {
            matches!(self.keyword(b), Keyword::FROM | Keyword::JOIN | Keyword::LATERAL)
                || self.is(b, &Token::Comma)
                || self.is(b, &Token::LParen)
        });
        let call = self.is_name(i + 3) && (self.is(i + 4, &Token::LParen) || self.is(i + 4, &Token::Period));
        let open = item && call && self.keyword(i + 1) == Keyword::FROM && self.is(i + 2, &Token::LParen);
        let Some(end) = self.partner.get(i + 2).copied().flatten().filter(|_| open) else {
            return Vec::new();
        };
        let mut edits = vec![(i, Edit::Instead(vec![name(ROWS_FROM)])), (i + 1, Edit::Instead(Vec::new()))];
        let (mut start, mut at) = (i + 3, i + 3);
        while at < end {
            if self.keyword(at) == Keyword::AS
                && let Some(close) = self.partner[at + 1].filter(|_| self.is(at + 1, &Token::LParen))
            {
                edits.push((start, Edit::Before(vec![name(DEFINED), Token::LParen])));
                edits.push((at, Edit::Instead(vec![Token::Comma])));
                edits.push((at + 1, Edit::Instead(Vec::new())));
                self.definitions(at + 2..close, &mut edits);
                at = close;
            }
            at = self.partner[at].filter(|_| self.is(at, &Token::LParen)).unwrap_or(at) + 1;
            if self.is(at, &Token::Comma) {
                start = at + 1;
            }
        }
        edits
    }

    /// `a t, …` as `a => NULL::t, …`
    fn definitions(&self, columns: std::ops::Range<usize>, edits: &mut Vec<(usize, Edit)>) {
        let mut at = columns.start;
        while at < columns.end {
            edits.push((at + 1, Edit::Before(vec![Token::RArrow, word("NULL"), Token::DoubleColon])));
            while at < columns.end && !self.is(at, &Token::Comma) {
                at = self.partner[at].filter(|_| self.is(at, &Token::LParen)).unwrap_or(at) + 1;
            }
            at += 1;
        }
    }

    /// `GENERATED ALWAYS AS (e) [VIRTUAL]`: a stored column of an expression that says what it is.
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

    /// `xmlelement(NAME a, …)`: the element's name is the first argument.
    fn xml_name(&self, i: usize) -> Vec<(usize, Edit)> {
        let called = |(_, t): &(usize, &TokenWithSpan)| matches!(&t.token, Token::Word(w) if ["xmlelement", "xmlpi"].contains(&w.value.to_ascii_lowercase().as_str()));
        let element = self.words.get(i).is_some_and(called) && self.is(i + 1, &Token::LParen);
        if element && self.keyword(i + 2) == Keyword::NAME && self.is_name(i + 3) {
            return vec![(i + 2, Edit::Instead(Vec::new()))];
        }
        Vec::new()
    }

    /// Which parentheses open a query: SELECT stands in them, or behind another one that does, with nothing behind that
    /// but what may follow a query.
    fn queries(&self) -> Vec<bool> {
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

    /// Whether what stands here makes a query of one in parentheses before it.
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

    /// Whether an operand of an expression, and not the arguments of a call, may stand behind this.
    fn begins_operand(&self, i: usize) -> bool {
        let set = |i: usize| matches!(self.keyword(i), Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT);
        match self.words.get(i).map(|(_, t)| &t.token) {
            // UNION ALL
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

    /// `((SELECT …) UNION …)` in an expression, and `(VALUES …)`, are what `(SELECT * FROM (…))` is. Elsewhere such a query
    /// is read as it stands.
    fn query(&self, i: usize, queries: &[bool]) -> Vec<(usize, Edit)> {
        // What stands in a query's parentheses is read with it: an arm as it is, what fills them as they are.
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

#[cfg(test)]
mod tests {
    use super::super::parse_query;

    fn read(sql: &str) -> String {
        let parsed = parse_query(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
        parsed.query().unwrap().to_string().replace('\0', "!")
    }

    #[test]
    fn what_the_parser_does_not_read_is_put_into_other_words() {
        for (sql, wanted) in [
            ("SELECT 1 FROM ONLY a, ONLY (s.b) AS x", "SELECT 1 FROM \"!only\".a, \"!only\".s.b AS x"),
            ("SELECT 1 FROM a JOIN b USING (k) AS u", "SELECT 1 FROM a JOIN b USING(k, \"!u\")"),
            ("SELECT k FROM a GROUP BY DISTINCT k", "SELECT k FROM a GROUP BY \"!distinct\", k"),
            ("SELECT k FROM a GROUP BY ALL k", "SELECT k FROM a GROUP BY k"),
            (
                "SELECT 1 = ANY ((SELECT 1) UNION (SELECT 2))",
                "SELECT 1 = ANY(SELECT * FROM ((SELECT 1) UNION (SELECT 2)) AS \"!\")",
            ),
            (
                "SELECT (((SELECT 1) UNION (SELECT 2)) EXCEPT SELECT 3)",
                "SELECT (SELECT * FROM (((SELECT 1) UNION (SELECT 2)) EXCEPT SELECT 3) AS \"!\")",
            ),
            ("SELECT 1 < ALL (VALUES (2))", "SELECT 1 < ALL(SELECT * FROM (VALUES (2)) AS \"!\")"),
            ("SELECT xmlelement(NAME a, b)", "SELECT xmlelement(a, b)"),
        ] {
            assert_eq!(read(sql), wanted);
        }
    }

    #[test]
    fn what_it_reads_stays() {
        for sql in [
            "SELECT (SELECT 1) UNION SELECT 2",
            "SELECT ((SELECT 1)) + 1",
            "SELECT 1 WHERE 1 IN ((SELECT 1) UNION (SELECT 2)) AND EXISTS ((SELECT 1) EXCEPT (SELECT 2))",
            "((SELECT 1) UNION (SELECT 2)) ORDER BY 1 FETCH FIRST 1 ROWS ONLY",
            "SELECT 1 FROM ((SELECT 1) UNION (SELECT 2)) AS x JOIN (VALUES (1)) AS y ON true",
            "SELECT (a, b) FROM t GROUP BY (a), b ORDER BY a",
            "SELECT array_agg((SELECT 1) ORDER BY a) FROM t",
            "(SELECT 1) UNION ALL ((SELECT 2) UNION (SELECT 3))",
        ] {
            assert!(!read(sql).contains('!'), "{sql}");
        }
    }
}
