//! Aliases without numbers where they need none.
//!
//! While a plan is rendered every alias of the statement is different, so that blocks can be merged and copied freely.
//! Once a SELECT is complete, only the aliases within it must differ.

use super::ast::{FromItem, Scalar, Select, SetExpr, Visitor, walk_select};
use super::ident::Ident;
use crate::hash::{FastBuild, FastMap};
use std::collections::HashSet;

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

fn tidy_select(select: &mut Select) {
    let mut own = Vec::new();
    select.from.iter().for_each(|f| aliases(f, &mut own));
    own.retain(|a| without_number(a.as_str()).len() < a.as_str().len());
    if own.is_empty() {
        return;
    }
    let mut seen: HashSet<Ident, FastBuild> = HashSet::default();
    let mut read: HashSet<Ident, FastBuild> = HashSet::default();
    let mut scalar = |s: &mut Scalar| {
        if let Scalar::Column { table: Some(t), .. } = s
            && !read.contains(t)
        {
            read.insert(t.clone());
        }
    };
    let mut alias = |a: &mut Ident| {
        seen.insert(a.clone());
    };
    walk_select(select, &mut Visitor { scalar: &mut scalar, alias: &mut alias });
    seen.extend(read);
    let mut renamed: FastMap<Ident, Ident> = FastMap::default();
    for old in own {
        let short = Ident::new(without_number(old.as_str()));
        if seen.insert(short.clone()) {
            renamed.insert(old, short);
        }
    }
    if renamed.is_empty() {
        return;
    }
    let rename = |a: &mut Ident| {
        if let Some(new) = renamed.get(a) {
            *a = new.clone();
        }
    };
    let mut scalar = |s: &mut Scalar| {
        if let Scalar::Column { table: Some(t), .. } = s {
            rename(t);
        }
    };
    walk_select(select, &mut Visitor { scalar: &mut scalar, alias: &mut { rename } });
}

/// The aliases of a FROM item that are visible in its SELECT and are not its relation's own name.
fn aliases(item: &FromItem, out: &mut Vec<Ident>) {
    match item {
        FromItem::Relation { name, alias } if name.name == *alias => {}
        FromItem::Relation { alias, .. }
        | FromItem::Subquery { alias, .. }
        | FromItem::Function { alias, .. } => out.push(alias.clone()),
        FromItem::Join { left, right, .. } => {
            aliases(left, out);
            aliases(right, out);
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
