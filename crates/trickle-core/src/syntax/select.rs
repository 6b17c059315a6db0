//! One SELECT: its list, its clauses, and grouping.

use super::{Expr, Extent, FromItem, Ident, NamedWindow, ObjectName, Place};

/// `SELECT … FROM … WHERE … GROUP BY … HAVING … WINDOW …`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Select {
    pub(crate) distinct: Option<Distinct>,
    pub(crate) items: Vec<SelectItem>,
    pub(crate) from: Vec<FromItem>,
    /// The condition of WHERE.
    pub(crate) selection: Option<Expr>,
    pub(crate) group_by: GroupBy,
    pub(crate) having: Option<Expr>,
    pub(crate) windows: Vec<NamedWindow>,
    pub(crate) extent: Extent,
}

/// DISTINCT after SELECT.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Distinct {
    Rows,
    /// `DISTINCT ON (…)`.
    On(Vec<Expr>),
}

/// An entry of the select list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SelectItem {
    /// An expression, with its name if one is given.
    Value { expr: Expr, alias: Option<Ident> },
    /// `*`.
    Star(Extent),
    /// `table.*`.
    TableStar(ObjectName, Extent),
    /// `(value).*`.
    FieldsStar(Expr, Extent),
}

impl Place for SelectItem {
    fn extent(&self) -> Extent {
        match self {
            SelectItem::Value { expr, alias } => {
                alias.as_ref().map_or(expr.extent, |a| expr.extent.union(a.extent))
            }
            SelectItem::Star(extent)
            | SelectItem::TableStar(_, extent)
            | SelectItem::FieldsStar(_, extent) => *extent,
        }
    }
}

/// The clause GROUP BY.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupBy {
    /// Whether equal grouping sets count once, as in `GROUP BY DISTINCT`.
    pub(crate) distinct: bool,
    /// The items. The list is empty if there is no GROUP BY.
    pub(crate) items: Vec<GroupItem>,
}

impl GroupBy {
    /// Whether there is no GROUP BY.
    pub(crate) fn is_absent(&self) -> bool {
        self.items.is_empty()
    }
}

/// An item of GROUP BY.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupItem {
    pub(crate) sets: GroupSets,
    pub(crate) extent: Extent,
}

/// The grouping sets of an item of GROUP BY, or of GROUPING SETS.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GroupSets {
    /// One grouping set: no key, one key, or several in parentheses.
    Set(Vec<Expr>),
    /// GROUPING SETS: the sets of all its items.
    Sets(Vec<GroupSets>),
    /// ROLLUP: the set of all parts, the set without the last part, and so on down to the empty set.
    Rollup(Vec<Vec<Expr>>),
    /// CUBE: every subset of the parts.
    Cube(Vec<Vec<Expr>>),
}
