//! Aliases without numbers where they need none.
//!
//! While a plan is rendered every alias of the statement is different, so that blocks can be merged and copied freely.
//! Once a SELECT is complete, only the aliases within it must differ.

use super::ast::{FromItem, Scalar, Select, SetExpr, Visitor, walk_select};
use super::ident::Ident;
use std::cell::Cell;

/// Shortens the aliases of a complete query.
pub(super) fn tidy(set: &mut SetExpr) {
    match set {
        SetExpr::Select(select) => tidy_select(select),
        SetExpr::UnionAll(arms) => arms.iter_mut().for_each(tidy),
        SetExpr::SetOp { left, right, .. } => {
            tidy(left);
            tidy(right);
        }
        SetExpr::Values(_) => {}
    }
}

/// An alias with a number, and the alias that it may give way to.
struct Shorter {
    long: Ident,
    short: Ident,
    taken: Cell<bool>,
}

fn tidy_select(select: &mut Select) {
    // A handful: looking through them is quicker than hashing.
    let mut found = Vec::new();
    select.from.iter().for_each(|f| shorter(f, &mut found));
    if found.is_empty() {
        return;
    }
    let take = |name: &Ident| found.iter().filter(|s| s.short == *name).for_each(|s| s.taken.set(true));
    let mut scalar = |s: &mut Scalar| s.table().into_iter().for_each(|t| take(t));
    walk_select(select, &mut Visitor { scalar: &mut scalar, alias: &mut |a| take(a) });
    found.retain(|s| !s.taken.get());
    if found.is_empty() {
        return;
    }
    let rename = |name: &mut Ident| {
        if let Some(s) = found.iter().find(|s| s.long == *name) {
            *name = s.short.clone();
        }
    };
    let mut scalar = |s: &mut Scalar| s.table().into_iter().for_each(rename);
    walk_select(select, &mut Visitor { scalar: &mut scalar, alias: &mut { rename } });
}

/// The aliases of a FROM item that are visible in its SELECT and could be shorter, but for its relation's own name. Of
/// those that could be the same the first is.
fn shorter(item: &FromItem, out: &mut Vec<Shorter>) {
    match item {
        FromItem::Relation { name, alias } if name.name == *alias => {}
        FromItem::Relation { alias, .. }
        | FromItem::Subquery { alias, .. }
        | FromItem::Function { alias, .. } => {
            let short = without_number(alias.as_str());
            if short.len() < alias.as_str().len() && out.iter().all(|s| s.short.as_str() != short) {
                out.push(Shorter { long: alias.clone(), short: Ident::new(short), taken: Cell::new(false) });
            }
        }
        FromItem::Join { left, right, .. } => {
            shorter(left, out);
            shorter(right, out);
        }
    }
}

/// `orders_2` is `orders` once more.
pub(super) fn without_number(alias: &str) -> &str {
    match alias.rsplit_once('_') {
        Some((name, n)) if !name.is_empty() && !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => alias,
    }
}
