//! Rewrites grouping sets. The parser crate refuses grouping sets that are nested or begin with a
//! parenthesis. Grouping sets are therefore rewritten to calls, and [`GroupItem::of`] recognizes these calls.

use super::reader::Reader;
use super::{Edit, name};
use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

const SETS: &str = "\0sets";
const ROLLUP: &str = "\0rollup";
const CUBE: &str = "\0cube";
const EMPTY: &str = "\0empty";

/// An item of GROUP BY, or of GROUPING SETS.
pub(in crate::parse) enum GroupItem<'a> {
    /// One grouping set: no key, one key, or several in parentheses.
    Set(Vec<&'a Expr>),
    /// GROUPING SETS: the sets of all its items.
    Sets(Vec<GroupItem<'a>>),
    /// ROLLUP: the set of all parts, the set without the last part, and so on down to the empty set.
    Rollup(Vec<Vec<&'a Expr>>),
    /// CUBE: every subset of the parts.
    Cube(Vec<Vec<&'a Expr>>),
}

impl GroupItem<'_> {
    /// Reads an item. Returns `None` if the parentheses of GROUPING SETS, ROLLUP or CUBE contain a clause
    /// that is not allowed there, such as ORDER BY.
    pub(in crate::parse) fn of(item: &Expr) -> Option<GroupItem<'_>> {
        let bare = bare(item);
        if matches!(bare, Expr::Identifier(i) if i.value == EMPTY) {
            return Some(GroupItem::Set(Vec::new()));
        }
        let Some((construct, f)) = construct(bare) else { return Some(GroupItem::Set(keys(item))) };
        let parts = arguments(f)?;
        Some(match construct {
            SETS => GroupItem::Sets(parts.into_iter().map(GroupItem::of).collect::<Option<_>>()?),
            ROLLUP => GroupItem::Rollup(parts.into_iter().map(keys).collect()),
            _ => GroupItem::Cube(parts.into_iter().map(keys).collect()),
        })
    }
}

/// Removes the parentheses around an expression.
fn bare(mut e: &Expr) -> &Expr {
    while let Expr::Nested(inner) = e {
        e = inner;
    }
    e
}

/// Returns the keys of `(a, b)`, or an expression as the only key.
fn keys(item: &Expr) -> Vec<&Expr> {
    match bare(item) {
        Expr::Tuple(list) => list.iter().collect(),
        _ => vec![item],
    }
}

fn construct(e: &Expr) -> Option<(&'static str, &Function)> {
    let Expr::Function(f) = e else { return None };
    let [ObjectNamePart::Identifier(i)] = f.name.0.as_slice() else { return None };
    [SETS, ROLLUP, CUBE].into_iter().find(|c| i.value == *c).map(|c| (c, f))
}

/// Returns the parts in the parentheses of a construct. Returns `None` if there are other clauses in or after
/// the parentheses.
fn arguments(f: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &f.args else { return None };
    let alone = list.clauses.is_empty()
        && list.duplicate_treatment.is_none()
        && !list.args.is_empty()
        && f.over.is_none()
        && f.filter.is_none()
        && f.null_treatment.is_none()
        && f.within_group.is_empty();
    let part = |a| match a {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref e)) => Some(e),
        _ => None,
    };
    if alone { list.args.iter().map(part).collect() } else { None }
}

/// Whether a keyword may follow the items of GROUP BY.
pub(super) fn ends_group_by(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::HAVING
            | Keyword::WINDOW
            | Keyword::UNION
            | Keyword::INTERSECT
            | Keyword::EXCEPT
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::FETCH
            | Keyword::FOR
    )
}

impl Reader<'_> {
    /// Rewrites grouping sets to calls, from the item at `at` to the end of GROUP BY or of the parentheses.
    pub(super) fn sets(&self, mut at: usize, inside: bool, edits: &mut Vec<(usize, Edit)>) {
        let marked = |text: &str| Edit::Instead(vec![name(text)]);
        loop {
            let open = match (self.keyword(at), self.keyword(at + 1)) {
                (Keyword::GROUPING, Keyword::SETS) => at + 2,
                _ => at + 1,
            };
            let call = self.is(open, &Token::LParen);
            match self.keyword(at) {
                Keyword::GROUPING if call && open == at + 2 => {
                    edits.push((at, marked(SETS)));
                    edits.push((at + 1, Edit::Instead(Vec::new())));
                    self.sets(open + 1, true, edits);
                }
                Keyword::ROLLUP if call => edits.push((at, marked(ROLLUP))),
                Keyword::CUBE if call => edits.push((at, marked(CUBE))),
                // Without arguments, ROLLUP and CUBE are names of columns.
                Keyword::ROLLUP => edits.push((at, marked("rollup"))),
                Keyword::CUBE => edits.push((at, marked("cube"))),
                _ if inside && self.is(at, &Token::LParen) && self.is(at + 1, &Token::RParen) => {
                    edits.push((at, marked(EMPTY)));
                    edits.push((at + 1, Edit::Instead(Vec::new())));
                }
                _ => {}
            }
            // The next item begins after the next comma.
            while !self.is(at, &Token::Comma) {
                let over = at >= self.words.len()
                    || self.is(at, &Token::RParen)
                    || self.is(at, &Token::SemiColon)
                    || ends_group_by(self.keyword(at));
                if over {
                    return;
                }
                at = match self.partner.get(at).copied().flatten() {
                    Some(end) if end > at => end + 1,
                    _ => at + 1,
                };
            }
            at += 1;
        }
    }
}
