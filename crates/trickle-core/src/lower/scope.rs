//! The names that are visible in a SELECT: the items of its FROM, and the CTEs.

use super::outer_column::Outer;
use super::relation::{RowKey, RowOrder};
use super::slot::shift;
use crate::error::Error;
use crate::expr::{Expr, SortKey};
use crate::graph::NodeId;
use crate::near::nearest;
use std::sync::Arc;

/// A named value over the columns of a FROM.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: Arc<str>,
    /// A column, or a COALESCE for the merged column of a FULL JOIN.
    pub(super) expr: Expr,
}

/// One item of FROM under its alias.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) name: Arc<str>,
    pub(super) schema: Option<Arc<str>>,
    pub(super) columns: Vec<Named>,
    /// The positions of the primary key's columns, which determine all columns of the item.
    pub(super) key: Option<Vec<usize>>,
    /// The name of a column that is NULL only in rows that an outer join padded.
    pub(super) present: Option<Arc<str>>,
    /// The schema and name of the table or view whose rows the item has.
    pub(super) table: Option<(Arc<str>, Arc<str>)>,
    /// The column names of an item's row that is used as a value, if they differ from the names in `columns`.
    pub(super) fields: Option<Vec<Arc<str>>>,
    /// The names of virtual columns whose expressions the engine cannot read.
    pub(super) unread: Vec<Arc<str>>,
}

/// The names that are visible in one SELECT.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// The columns that `*` expands to. Unqualified names are looked up in these columns.
    pub(super) star: Vec<Named>,
    /// The items in which qualified names are looked up.
    pub(super) items: Vec<Item>,
}

impl Scope {
    pub(super) fn of_item(item: Item) -> Scope {
        Scope { star: item.columns.clone(), items: vec![item] }
    }

    /// Combines both scopes into one that has the names of both.
    pub(super) fn and(mut self, other: Scope) -> Scope {
        self.star.extend(other.star);
        self.items.extend(other.items);
        self
    }

    /// Returns the same names over columns whose positions are smaller by `by`.
    pub(super) fn moved(&self, by: usize) -> Scope {
        let by = -(by as isize);
        let named = |n: &Named| Named { name: n.name.clone(), expr: shift(&n.expr, by) };
        let item = |i: &Item| Item {
            columns: i.columns.iter().map(named).collect(),
            key: i.key.as_ref().map(|k| k.iter().map(|c| c.wrapping_add_signed(by)).collect()),
            ..i.clone()
        };
        Scope { star: self.star.iter().map(named).collect(), items: self.items.iter().map(item).collect() }
    }
}

/// A SELECT being lowered.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    pub(super) scope: Scope,
    /// The outer columns that are available as the columns 0.. of this SELECT's FROM.
    pub(super) refs: Vec<Outer>,
    /// The relation that has the values of `refs`.
    pub(super) domain: Option<NodeId>,
    /// Whether outer columns become [`Slot::Outer`], placeholders for columns of the enclosing query's
    /// relation.
    pub(super) direct: bool,
    /// Whether some construct cannot use outer columns directly, so that the SELECT must be lowered again
    /// over a domain.
    pub(super) direct_failed: bool,
    /// Whether FROM has only one item.
    pub(super) alone: bool,
    /// The order of the rows of FROM before grouping.
    pub(super) order: RowOrder<SortKey>,
    /// Whether `order` is the order in which the windows sorted the rows.
    pub(super) resorted: bool,
    /// Whether the select list contains set-returning calls.
    pub(super) expanded: bool,
}

/// A CTE that was lowered.
#[derive(Clone, Debug)]
pub(super) struct Cte {
    pub(super) name: String,
    pub(super) node: NodeId,
    pub(super) names: Vec<Arc<str>>,
    /// The outer columns, which are the first columns of the CTE's relation.
    pub(super) refs: Vec<Outer>,
    /// The columns of the CTE that no query can read.
    pub(super) unread: Vec<Arc<str>>,
    /// The order of the CTE's rows.
    pub(super) order: RowOrder<RowKey>,
}

impl Item {
    pub(super) fn of(name: Arc<str>, columns: Vec<Named>) -> Item {
        Item {
            name,
            schema: None,
            columns,
            key: None,
            present: None,
            table: None,
            fields: None,
            unread: Vec::new(),
        }
    }
    pub(super) fn answers_to(&self, qualifier: &[String]) -> bool {
        match qualifier {
            [table] => *table == *self.name,
            [.., schema, table] => *table == *self.name && self.schema.as_deref() == Some(schema),
            [] => false,
        }
    }
    /// Whether the item has a column of that name that the engine cannot read.
    pub(super) fn hides(&self, name: &str) -> bool {
        self.unread.iter().any(|u| **u == *name)
    }
}

/// Adds "Did you mean …" where a similar name exists.
pub(super) fn hint<'n>(e: Error, name: &str, near: impl Iterator<Item = &'n str>) -> Error {
    match nearest(name, near.take(1_000)) {
        Some(near) => e.hint(format!("Did you mean \"{near}\"?")),
        None => e,
    }
}
