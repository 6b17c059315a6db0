//! Syntax trees of statements that change data.

use super::{Cte, Query, Scalar, SelectItem};
use crate::ident::{Ident, Qualified};

/// `INSERT INTO table (columns) query ON CONFLICT … RETURNING …`
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// The common table expressions of the INSERT.
    pub ctes: Vec<Cte>,
    /// A comment for people who see the INSERT in an error message.
    pub note: Option<String>,
    /// The table into which rows are inserted.
    pub table: Qualified,
    /// The alias of the table.
    pub alias: Option<Ident>,
    /// The columns that are inserted. The list is empty for a table without columns.
    pub columns: Vec<Ident>,
    /// The query whose rows are inserted.
    pub source: Query,
    /// `ON CONFLICT`
    pub on_conflict: Option<OnConflict>,
    /// `RETURNING`
    pub returning: Vec<SelectItem>,
}

/// `ON CONFLICT (columns) DO …`
#[derive(Clone, Debug, PartialEq)]
pub struct OnConflict {
    /// The columns of the unique index. The list may be empty only with DO NOTHING.
    pub columns: Vec<Ident>,
    /// The action for a row whose key the table already has.
    pub action: ConflictAction,
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
    pub ctes: Vec<Cte>,
    /// The table that is updated.
    pub table: Qualified,
    /// The alias of the table.
    pub alias: Option<Ident>,
    /// The assigned columns and their values.
    pub set: Vec<(Ident, Scalar)>,
    /// `FROM`
    pub from: Vec<super::FromItem>,
    /// The conjuncts of WHERE.
    pub filter: Vec<Scalar>,
    /// `RETURNING`
    pub returning: Vec<SelectItem>,
}

/// `DELETE FROM table USING … WHERE …`
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// The common table expressions of the DELETE.
    pub ctes: Vec<Cte>,
    /// The table from which rows are deleted.
    pub table: Qualified,
    /// The alias of the table.
    pub alias: Option<Ident>,
    /// `USING`
    pub using: Vec<super::FromItem>,
    /// The conjuncts of WHERE.
    pub filter: Vec<Scalar>,
    /// `RETURNING`
    pub returning: Vec<SelectItem>,
}

/// `MERGE INTO table USING source ON … WHEN …`
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// The common table expressions of the MERGE.
    pub ctes: Vec<Cte>,
    /// The table that is changed.
    pub table: Qualified,
    /// The alias of the table.
    pub alias: Option<Ident>,
    /// The FROM item whose rows are merged into the table.
    pub using: super::FromItem,
    /// The condition under which a row of the source matches a row of the table.
    pub on: Scalar,
    /// The WHEN clauses, in order.
    pub whens: Vec<MergeWhen>,
    /// `RETURNING`, which PostgreSQL has since version 17
    pub returning: Vec<SelectItem>,
}

/// A clause `WHEN [NOT] MATCHED … THEN …`
#[derive(Clone, Debug, PartialEq)]
pub struct MergeWhen {
    /// `MATCHED`; if false, `NOT MATCHED`.
    pub matched: bool,
    /// The condition after `AND`.
    pub condition: Option<Scalar>,
    /// The action of the clause.
    pub action: MergeAction,
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
    pub tables: Vec<Qualified>,
}

/// `LOCK TABLE … IN … MODE [NOWAIT]`
#[derive(Clone, Debug, PartialEq)]
pub struct Lock {
    /// The tables, in the order in which they are locked.
    pub tables: Vec<Qualified>,
    /// The mode in which the tables are locked.
    pub mode: LockMode,
    /// `NOWAIT`
    pub nowait: bool,
    /// `ONLY`: partitions and inheritance children are not locked.
    pub only: bool,
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
