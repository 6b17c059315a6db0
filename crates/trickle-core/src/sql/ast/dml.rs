//! Syntax trees of statements that change data.

use super::{Cte, Query, Scalar, SelectItem};
use crate::ident::{Ident, Qualified};

/// `INSERT INTO table (columns) query ON CONFLICT … RETURNING …`
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// The common table expressions of the INSERT.
    pub(crate) ctes: Vec<Cte>,
    /// A comment for people who see the INSERT in an error message.
    pub(crate) note: Option<String>,
    /// The table into which rows are inserted.
    pub(crate) table: Qualified,
    /// The alias of the table.
    pub(crate) alias: Option<Ident>,
    /// The columns that are inserted. The list is empty for a table without columns.
    pub(crate) columns: Vec<Ident>,
    /// The query whose rows are inserted.
    pub(crate) source: Query,
    /// `ON CONFLICT`
    pub(crate) on_conflict: Option<OnConflict>,
    /// `RETURNING`
    pub(crate) returning: Vec<SelectItem>,
}

/// `ON CONFLICT (columns) DO …`
#[derive(Clone, Debug, PartialEq)]
pub struct OnConflict {
    /// The columns of the unique index. The list may be empty only with DO NOTHING.
    pub(crate) columns: Vec<Ident>,
    /// The action for a row whose key the table already has.
    pub(crate) action: ConflictAction,
}

/// The action for a proposed row whose key the table already has.
#[derive(Clone, Debug, PartialEq)]
pub enum ConflictAction {
    /// `DO NOTHING`
    Nothing,
    /// `DO UPDATE SET … WHERE …`, which reads the proposed row as `excluded`.
    Update {
        /// The assigned columns and their values.
        set: Vec<(Ident, Scalar)>,
        /// The conjuncts of WHERE.
        filter: Vec<Scalar>,
    },
}

/// `UPDATE table SET … FROM … WHERE …`
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The common table expressions of the UPDATE.
    pub(crate) ctes: Vec<Cte>,
    /// The table that is updated.
    pub(crate) table: Qualified,
    /// The alias of the table.
    pub(crate) alias: Option<Ident>,
    /// The assigned columns and their values.
    pub(crate) set: Vec<(Ident, Scalar)>,
    /// `FROM`
    pub(crate) from: Vec<super::FromItem>,
    /// The conjuncts of WHERE.
    pub(crate) filter: Vec<Scalar>,
    /// `RETURNING`
    pub(crate) returning: Vec<SelectItem>,
}

/// `DELETE FROM table USING … WHERE …`
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// The common table expressions of the DELETE.
    pub(crate) ctes: Vec<Cte>,
    /// The table from which rows are deleted.
    pub(crate) table: Qualified,
    /// The alias of the table.
    pub(crate) alias: Option<Ident>,
    /// `USING`
    pub(crate) using: Vec<super::FromItem>,
    /// The conjuncts of WHERE.
    pub(crate) filter: Vec<Scalar>,
    /// `RETURNING`
    pub(crate) returning: Vec<SelectItem>,
}

/// `MERGE INTO table USING source ON … WHEN …`
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// The common table expressions of the MERGE.
    pub(crate) ctes: Vec<Cte>,
    /// The table that is changed.
    pub(crate) table: Qualified,
    /// The alias of the table.
    pub(crate) alias: Option<Ident>,
    /// The FROM item whose rows are merged into the table.
    pub(crate) using: super::FromItem,
    /// The condition under which a row of the source matches a row of the table.
    pub(crate) on: Scalar,
    /// The WHEN clauses, in order.
    pub(crate) whens: Vec<MergeWhen>,
    /// `RETURNING`, which PostgreSQL has since version 17
    pub(crate) returning: Vec<SelectItem>,
}

/// A clause `WHEN [NOT] MATCHED … THEN …`
#[derive(Clone, Debug, PartialEq)]
pub struct MergeWhen {
    /// `MATCHED`; if false, `NOT MATCHED`.
    pub(crate) matched: bool,
    /// The condition after `AND`.
    pub(crate) condition: Option<Scalar>,
    /// The action of the clause.
    pub(crate) action: MergeAction,
}

/// The action of a [`MergeWhen`].
#[derive(Clone, Debug, PartialEq)]
pub enum MergeAction {
    /// `UPDATE SET …`
    Update(Vec<(Ident, Scalar)>),
    /// `INSERT (…) VALUES (…)`
    Insert(Vec<(Ident, Scalar)>),
    /// `DELETE`
    Delete,
    /// `DO NOTHING`
    Nothing,
}

/// `TRUNCATE`
#[derive(Clone, Debug, PartialEq)]
pub struct Truncate {
    /// The tables that are truncated.
    pub(crate) tables: Vec<Qualified>,
}

/// `LOCK TABLE … IN … MODE [NOWAIT]`
#[derive(Clone, Debug, PartialEq)]
pub struct Lock {
    /// The tables, in the order in which they are locked.
    pub(crate) tables: Vec<Qualified>,
    /// The mode in which the tables are locked.
    pub(crate) mode: LockMode,
    /// `NOWAIT`
    pub(crate) nowait: bool,
    /// `ONLY`: partitions and inheritance children are not locked.
    pub(crate) only: bool,
}

/// The mode of a table lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// `ACCESS SHARE`
    AccessShare,
    /// `ROW SHARE`
    RowShare,
    /// `ROW EXCLUSIVE`
    RowExclusive,
    /// `SHARE UPDATE EXCLUSIVE`
    ShareUpdateExclusive,
    /// `SHARE`
    Share,
    /// `SHARE ROW EXCLUSIVE`
    ShareRowExclusive,
    /// `EXCLUSIVE`
    Exclusive,
    /// `ACCESS EXCLUSIVE`
    AccessExclusive,
}
