//! Drops numbers from aliases that are unique without a number.
//!
//! While a plan is rendered, all aliases of a statement are different, so that blocks can be merged and
//! copied freely. In a complete SELECT, only the aliases of this SELECT must be different from each other.

use super::ast::{FromItem, Scalar, Select, SetExpr, Visitor, walk_select};
use crate::ident::Ident;
use std::cell::Cell;

/// Shortens the aliases in a complete query.
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

/// An alias with a number, and the shorter alias that may replace it.
struct Shorter {
    long: Ident,
    short: Ident,
    taken: Cell<bool>,
}

fn tidy_select(select: &mut Select) {
    // A SELECT has only a few aliases, so a linear search is faster than hashing.
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

/// Collects the aliases of a FROM item that are visible in its SELECT and have a shorter form. An alias that
/// is the relation's own name is left out. If several aliases have the same shorter form, the first alias
/// gets this form.
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

/// Returns an alias without its number, such as `orders` for `orders_2`.
pub(super) fn without_number(alias: &str) -> &str {
    match alias.rsplit_once('_') {
        Some((name, n)) if !name.is_empty() && !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => alias,
    }
}
