//! Rewrites SEARCH and CYCLE after a recursive query in WITH.

use super::reader::Reader;
use super::{Edit, name, word};
use crate::parse::names::fold;
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart, OrderByExpr,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, Whitespace, Word};

const DEPTH: &str = "\0search depth";
const BREADTH: &str = "\0search breadth";
const CYCLE: &str = "\0cycle";
const CYCLE_TO: &str = "\0cycle to";
/// The greatest number of tokens that the value after TO or DEFAULT may have.
const VALUE: usize = 24;

/// The clause `SEARCH DEPTH|BREADTH FIRST BY columns SET column`.
pub(in crate::parse) struct Search<'q> {
    /// Whether the order is DEPTH FIRST.
    pub(in crate::parse) depth: bool,
    /// The column that the clause adds.
    pub(in crate::parse) set: &'q Ident,
    /// The columns of the search order.
    pub(in crate::parse) by: Vec<&'q Ident>,
}

/// The clause `CYCLE columns SET column [TO value DEFAULT value] USING column`.
pub(in crate::parse) struct Cycle<'q> {
    /// The columns whose values repeat in a cycle.
    pub(in crate::parse) by: Vec<&'q Ident>,
    /// The column that marks a cycle.
    pub(in crate::parse) set: &'q Ident,
    /// The value of the column `set` for a row in a cycle, and its value for any other row.
    pub(in crate::parse) values: Option<(&'q Expr, &'q Expr)>,
    /// The column that holds the path.
    pub(in crate::parse) using: &'q Ident,
}

/// Returns the clauses SEARCH and CYCLE from the keys that [`Reader::recursion`] puts into an ORDER BY.
/// Returns `None` if the keys are real sort keys.
pub(in crate::parse) fn search_and_cycle(
    keys: &[OrderByExpr],
) -> Option<(Option<Search<'_>>, Option<Cycle<'_>>)> {
    let (mut search, mut cycle) = (None, None);
    for key in keys {
        let Expr::Function(f) = &key.expr else { return None };
        let [ObjectNamePart::Identifier(mark)] = f.name.0.as_slice() else { return None };
        let FunctionArguments::List(list) = &f.args else { return None };
        let arg = |a: &'_ FunctionArg| matches!(a, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
        if !list.args.iter().all(arg) {
            return None;
        }
        let args: Vec<&Expr> = list.args.iter().filter_map(expr).collect();
        let names = |args: &[&'_ Expr]| args.iter().filter_map(|e| ident(e)).count() == args.len();
        match (mark.value.as_str(), args.as_slice()) {
            (DEPTH | BREADTH, [set, by @ ..]) if names(by) => {
                let by = by.iter().filter_map(|e| ident(e)).collect();
                search = Some(Search { depth: mark.value == DEPTH, set: ident(set)?, by });
            }
            (CYCLE, [set, using, by @ ..]) if names(by) => {
                let by = by.iter().filter_map(|e| ident(e)).collect();
                cycle = Some(Cycle { by, set: ident(set)?, values: None, using: ident(using)? });
            }
            (CYCLE_TO, [set, using, value, other, by @ ..]) if names(by) => {
                let by = by.iter().filter_map(|e| ident(e)).collect();
                let values = Some((*value, *other));
                cycle = Some(Cycle { by, set: ident(set)?, values, using: ident(using)? });
            }
            _ => return None,
        }
    }
    Some((search, cycle))
}

fn expr(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Some(e),
        _ => None,
    }
}

fn ident(e: &Expr) -> Option<&Ident> {
    match e {
        Expr::Identifier(i) => Some(i),
        _ => None,
    }
}

impl Reader<'_> {
    /// Rewrites SEARCH and CYCLE after a query in parentheses to the keys of an ORDER BY inside the
    /// parentheses. A recursive query itself cannot have an ORDER BY.
    pub(super) fn recursion(&self, i: usize) -> Vec<(usize, Edit)> {
        let Some(close) = i.checked_sub(1).filter(|c| self.is(*c, &Token::RParen)) else { return Vec::new() };
        let (mut at, mut keys) = (i, Vec::new());
        for read in [Self::search, Self::cycle] {
            if let Some((key, end)) = read(self, at) {
                keys.push(key);
                at = end;
            }
        }
        if keys.is_empty() {
            return Vec::new();
        }
        // A number may come directly before ORDER, so a space separates them.
        let mut order = vec![Token::Whitespace(Whitespace::Space), word("ORDER"), word("BY")];
        order.extend(keys.join(&Token::Comma));
        let gone = (i..at).map(|w| (w, Edit::Instead(Vec::new())));
        std::iter::once((close, Edit::Before(order))).chain(gone).collect()
    }

    fn search(&self, i: usize) -> Option<(Vec<Token>, usize)> {
        let mark =
            match (self.is_word(i, "search"), self.is_word(i + 1, "depth"), self.is_word(i + 1, "breadth")) {
                (true, true, _) => DEPTH,
                (true, _, true) => BREADTH,
                _ => return None,
            };
        if self.keyword(i + 2) != Keyword::FIRST || self.keyword(i + 3) != Keyword::BY {
            return None;
        }
        let (by, at) = self.columns(i + 4)?;
        let set = self.after(at, Keyword::SET)?;
        Some((call(mark, [vec![set]].into_iter().chain(by)), at + 2))
    }

    fn cycle(&self, i: usize) -> Option<(Vec<Token>, usize)> {
        if !self.is_word(i, "cycle") {
            return None;
        }
        let (by, at) = self.columns(i + 1)?;
        let set = self.after(at, Keyword::SET)?;
        let (mut at, mut values) = (at + 2, Vec::new());
        if self.keyword(at) == Keyword::TO {
            for end in [Keyword::DEFAULT, Keyword::USING] {
                let stop = (at + 1..at + VALUE).find(|w| self.keyword(*w) == end)?;
                values.push(self.words.get(at + 1..stop)?.iter().map(|(_, t)| t.token.clone()).collect());
                at = stop;
            }
        }
        let using = self.after(at, Keyword::USING)?;
        let mark = if values.is_empty() { CYCLE } else { CYCLE_TO };
        let args = [vec![set], vec![using]].into_iter().chain(values).chain(by);
        Some((call(mark, args), at + 2))
    }

    /// Reads column names separated by commas. Returns the names, and the position after them.
    fn columns(&self, i: usize) -> Option<(Vec<Vec<Token>>, usize)> {
        let (mut names, mut at) = (vec![vec![self.column(i)?]], i + 1);
        while self.is(at, &Token::Comma) {
            names.push(vec![self.column(at + 1)?]);
            at += 2;
        }
        Some((names, at))
    }

    fn after(&self, i: usize, keyword: Keyword) -> Option<Token> {
        if self.keyword(i) == keyword { self.column(i + 1) } else { None }
    }

    /// Returns the name of a column as a quoted token, since some names are words that begin an expression.
    fn column(&self, i: usize) -> Option<Token> {
        match self.words.get(i).map(|(_, t)| &t.token) {
            Some(Token::Word(Word { value, quote_style, .. })) => {
                let ident = Ident {
                    value: value.clone(),
                    quote_style: *quote_style,
                    span: sqlparser::tokenizer::Span::empty(),
                };
                Some(name(fold(&ident)))
            }
            _ => None,
        }
    }
}

/// Returns the tokens of `mark(a, b, …)`.
fn call(mark: &str, args: impl Iterator<Item = Vec<Token>>) -> Vec<Token> {
    let mut tokens = vec![name(mark), Token::LParen];
    tokens.extend(args.collect::<Vec<_>>().join(&Token::Comma));
    tokens.push(Token::RParen);
    tokens
}
