//! Rewrites operators that the parser crate does not know, or to which it gives another precedence than
//! PostgreSQL.

use super::reader::Reader;
use super::{Edit, name, word};
use crate::parse::operators::CHARACTERS;
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectNamePart};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

const LOCAL: &str = "\0local";
const VARIADIC: &str = "\0variadic";
/// The marker for an operator that the parser crate does not read before ANY and ALL.
const ANY: &str = "\0any ";

/// Returns the real operator and the operand of ANY or ALL, from the right side of an equality that was
/// rewritten from `a op ANY (b)`.
pub(in crate::parse) fn operator_of_any(right: &Expr) -> Option<(&str, &Expr)> {
    let Expr::Function(f) = right else { return None };
    let [ObjectNamePart::Identifier(name)] = f.name.0.as_slice() else { return None };
    let op = name.value.strip_prefix(ANY)?;
    let FunctionArguments::List(list) = &f.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(asked))] => Some((op, asked)),
        _ => None,
    }
}

/// Returns the array in `VARIADIC array`.
pub(in crate::parse) fn variadic(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::ExprNamed { name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(e), .. }
            if name.value == VARIADIC =>
        {
            Some(e)
        }
        _ => None,
    }
}

/// Whether the zone of AT TIME ZONE is the marker for AT LOCAL.
pub(in crate::parse) fn is_local(zone: &Expr) -> bool {
    matches!(zone, Expr::Identifier(Ident { value, .. }) if value == LOCAL)
}

impl Reader<'_> {
    /// Rewrites `a::type COLLATE c`: the cast gets parentheses.
    pub(super) fn collated(&self, i: usize) -> Vec<(usize, Edit)> {
        let (mut end, mut start) = (i, None);
        while let Some(cast) = self.cast_before(end) {
            end = cast;
            start = self.operand_before(cast);
        }
        let edit = |(at, token)| (at, Edit::Before(vec![token]));
        start.map(|start| [(start, Token::LParen), (i, Token::RParen)].map(edit).into()).unwrap_or_default()
    }

    /// Returns the position of the `::` before the type that ends before word `i`.
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

    /// Returns the position where the operand of the `::` at `i` begins. The operand is a constant, a name, a
    /// call, or an expression in parentheses.
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

    /// Rewrites `t.*::t`: the row gets parentheses.
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

    /// Rewrites `TRIM(BOTH FROM a)`, a TRIM without characters to remove, to a call of `btrim`, `ltrim` or
    /// `rtrim`.
    pub(super) fn trimmed(&self, i: usize) -> Vec<(usize, Edit)> {
        let called = match self.keyword(i + 2) {
            Keyword::LEADING => "ltrim",
            Keyword::TRAILING => "rtrim",
            Keyword::BOTH | Keyword::FROM => "btrim",
            _ => return Vec::new(),
        };
        let from = i + 2 + usize::from(self.keyword(i + 2) != Keyword::FROM);
        if !self.is(i + 1, &Token::LParen) || self.keyword(from) != Keyword::FROM {
            return Vec::new();
        }
        let gone = (i + 2..=from).map(|at| (at, Edit::Instead(Vec::new())));
        std::iter::once((i, Edit::Instead(vec![name(called)]))).chain(gone).collect()
    }

    /// Rewrites `VARIADIC a` in a call to a named argument. In the definition of a function, `VARIADIC` stays
    /// as it is.
    pub(super) fn variadic(&self, i: usize) -> Vec<(usize, Edit)> {
        let after = |at: usize, token: &Token| at.checked_sub(1).is_some_and(|before| self.is(before, token));
        if !after(i, &Token::Comma) && !after(i, &Token::LParen) {
            return Vec::new();
        }
        let mut called = i;
        while called > 0 && !after(called, &Token::LParen) {
            called = self.partner[called - 1].filter(|open| *open < called).unwrap_or(called - 1);
        }
        called = called.saturating_sub(2);
        while called >= 2 && after(called, &Token::Period) {
            called -= 2;
        }
        let defines = called.checked_sub(1).is_some_and(|before| {
            matches!(self.keyword(before), Keyword::FUNCTION | Keyword::AGGREGATE | Keyword::PROCEDURE)
        });
        if defines { Vec::new() } else { vec![(i, Edit::Instead(vec![name(VARIADIC), Token::RArrow]))] }
    }

    /// Rewrites `a op ANY (b)` to an equality, for an operator that the parser crate does not read before
    /// ANY. The operand `b` becomes the argument of a marker that contains the operator.
    pub(super) fn any(&self, i: usize) -> Vec<(usize, Edit)> {
        let Some(close) =
            self.partner.get(i + 1).copied().flatten().filter(|_| self.is(i + 1, &Token::LParen))
        else {
            return Vec::new();
        };
        let Some((start, op)) = self.operator_before(i) else { return Vec::new() };
        let mut edits = vec![(start, Edit::Instead(vec![Token::Eq]))];
        edits.extend((start + 1..i).map(|gone| (gone, Edit::Instead(Vec::new()))));
        // A query that is an argument needs additional parentheses.
        edits.push((i + 2, Edit::Before(vec![name(format!("{ANY}{op}")), Token::LParen, Token::LParen])));
        edits.push((close, Edit::After(vec![Token::RParen, Token::RParen])));
        edits
    }

    /// Returns the operator before ANY, and its position. Returns `None` if the parser crate reads this
    /// operator.
    fn operator_before(&self, i: usize) -> Option<(usize, String)> {
        let last = i.checked_sub(1)?;
        if let Some(open) = self.partner[last].filter(|_| self.is(last, &Token::RParen)) {
            let word = open.checked_sub(1).filter(|at| self.is_word(*at, "operator"))?;
            let first = (open..last).rev().find(|at| self.is(*at, &Token::Period)).unwrap_or(open) + 1;
            return Some((word, (first..last).map(|at| self.words[at].1.token.to_string()).collect()));
        }
        let op = self.words[last].1.token.to_string();
        let known =
            ["=", "<>", "!=", "<", ">", "<=", ">=", "~", "~*", "!~", "!~*", "~~", "~~*", "!~~", "!~~*"];
        let symbol = op.chars().all(|c| CHARACTERS.contains(c));
        (symbol && !known.contains(&op.as_str())).then_some((last, op))
    }

    /// Rewrites `OPERATOR(s.===)`: the symbols of the operator become one token.
    pub(super) fn operator(&self, i: usize) -> Vec<(usize, Edit)> {
        let Some(close) =
            self.partner.get(i + 1).copied().flatten().filter(|_| self.is(i + 1, &Token::LParen))
        else {
            return Vec::new();
        };
        let first = (i + 2..close).rev().find(|at| self.is(*at, &Token::Period)).map_or(i + 2, |dot| dot + 1);
        if first + 1 >= close || self.asks(close + 1) {
            return Vec::new();
        }
        let op: String = (first..close).map(|at| self.words[at].1.token.to_string()).collect();
        let gone = (first + 1..close).map(|at| (at, Edit::Instead(Vec::new())));
        std::iter::once((first, Edit::Instead(vec![Token::CustomBinaryOperator(op)]))).chain(gone).collect()
    }

    fn asks(&self, i: usize) -> bool {
        matches!(self.keyword(i), Keyword::ANY | Keyword::SOME | Keyword::ALL)
    }

    /// Rewrites `COLLATION FOR (a)` to a call.
    pub(super) fn collation_of(&self, i: usize) -> Vec<(usize, Edit)> {
        if self.keyword(i + 1) != Keyword::FOR || !self.is(i + 2, &Token::LParen) {
            return Vec::new();
        }
        vec![(i, Edit::Instead(vec![name("pg_collation_for")])), (i + 1, Edit::Instead(Vec::new()))]
    }

    /// Rewrites `SUBSTRING(a SIMILAR pattern ESCAPE c)` to a call with three arguments.
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

    /// Rewrites `a AT LOCAL` to AT TIME ZONE with a marker as the zone.
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
