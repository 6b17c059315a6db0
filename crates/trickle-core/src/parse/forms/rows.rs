//! Rewrites `ROWS FROM (…)`, and the column definition lists inside the parentheses.

use super::reader::Reader;
use super::{Edit, name, word};
use sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    ObjectNamePart,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

const ROWS_FROM: &str = "\0rows";
const DEFINED: &str = "\0defined";

/// Whether a function in FROM represents `ROWS FROM (…)`.
pub(in crate::parse) fn is_rows_from(name: &ObjectName) -> bool {
    matches!(name.0.as_slice(), [ObjectNamePart::Identifier(i)] if i.value == ROWS_FROM)
}

/// A call inside `ROWS FROM (…)`.
pub(in crate::parse) struct RowsFrom<'a> {
    pub(in crate::parse) call: &'a Function,
    /// The column definition list `AS (name type, …)`.
    pub(in crate::parse) definition: Vec<(&'a Ident, &'a DataType)>,
}

impl<'a> RowsFrom<'a> {
    pub(in crate::parse) fn of(arg: &'a FunctionArg) -> Option<RowsFrom<'a>> {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Function(call))) = arg else { return None };
        let FunctionArguments::List(list) = &call.args else { return None };
        if !matches!(call.name.0.as_slice(), [ObjectNamePart::Identifier(i)] if i.value == DEFINED) {
            return Some(RowsFrom { call, definition: Vec::new() });
        }
        let (first, columns) = list.args.split_first()?;
        let column = |c: &'a FunctionArg| match c {
            FunctionArg::ExprNamed {
                name: Expr::Identifier(name),
                arg: FunctionArgExpr::Expr(Expr::Cast { data_type, .. }),
                ..
            } => Some((name, data_type)),
            _ => None,
        };
        let definition = columns.iter().map(column).collect::<Option<_>>()?;
        Some(RowsFrom { definition, ..RowsFrom::of(first)? })
    }
}

impl Reader<'_> {
    /// Rewrites `ROWS FROM (f(a), g(b) AS (x t, …))` to `rows(f(a), defined(g(b), x => NULL::t, …))`. Here
    /// `rows` is the marked function `ROWS_FROM`, and `defined` is the marked function `DEFINED`.
    pub(super) fn rows_from(&self, i: usize) -> Vec<(usize, Edit)> {
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

    /// Rewrites `a t, …` to `a => NULL::t, …`.
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
}
