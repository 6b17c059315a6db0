//! Statements that change data.

use super::{Cte, Query, Scalar, SelectItem};
use crate::sql::ident::{Ident, Qualified};

/// `INSERT INTO table (columns) query ON CONFLICT … RETURNING …`
#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    /// Common table expressions of the statement.
    pub ctes: Vec<Cte>,
    /// A comment for people who see the statement in an error message.
    pub note: Option<String>,
    /// Target.
    pub table: Qualified,
    /// The target's alias.
    pub alias: Option<Ident>,
    /// Columns; empty for a table without columns.
    pub columns: Vec<Ident>,
    /// The rows.
    pub source: Query,
    /// `ON CONFLICT`
    pub on_conflict: Option<OnConflict>,
    /// `RETURNING`
    pub returning: Vec<SelectItem>,
}

/// `ON CONFLICT (columns) DO …`
#[derive(Clone, Debug, PartialEq)]
pub struct OnConflict {
    /// Columns of the unique index; empty only for DO NOTHING.
    pub columns: Vec<Ident>,
    /// The action.
    pub action: ConflictAction,
}

/// The action for a row that exists already.
#[derive(Clone, Debug, PartialEq)]
pub enum ConflictAction {
    /// `DO NOTHING`
    Nothing,
    /// `DO UPDATE SET … WHERE …`; the proposed row is `excluded`.
    Update {
        /// Assignments.
        set: Vec<(Ident, Scalar)>,
        /// Conjuncts of WHERE.
        filter: Vec<Scalar>,
    },
}

/// `UPDATE table SET … FROM … WHERE …`
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Common table expressions of the statement.
    pub ctes: Vec<Cte>,
    /// Target.
    pub table: Qualified,
    /// The target's alias.
    pub alias: Option<Ident>,
    /// Assignments.
    pub set: Vec<(Ident, Scalar)>,
    /// `FROM`
    pub from: Vec<super::FromItem>,
    /// Conjuncts of WHERE.
    pub filter: Vec<Scalar>,
    /// `RETURNING`
    pub returning: Vec<SelectItem>,
}

/// `DELETE FROM table USING … WHERE …`
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// Common table expressions of the statement.
    pub ctes: Vec<Cte>,
    /// Target.
    pub table: Qualified,
    /// The target's alias.
    pub alias: Option<Ident>,
    /// `USING`
    pub using: Vec<super::FromItem>,
    /// Conjuncts of WHERE.
    pub filter: Vec<Scalar>,
    /// `RETURNING`
    pub returning: Vec<SelectItem>,
}

/// `MERGE INTO table USING source ON … WHEN …`
#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    /// Common table expressions of the statement.
    pub ctes: Vec<Cte>,
    /// Target.
    pub table: Qualified,
    /// The target's alias.
    pub alias: Option<Ident>,
    /// Source.
    pub using: super::FromItem,
    /// Join condition.
    pub on: Scalar,
    /// Clauses in order.
    pub whens: Vec<MergeWhen>,
    /// `RETURNING` (17)
    pub returning: Vec<SelectItem>,
}

/// One `WHEN [NOT] MATCHED … THEN …`
#[derive(Clone, Debug, PartialEq)]
pub struct MergeWhen {
    /// `MATCHED` rather than `NOT MATCHED`.
    pub matched: bool,
    /// `AND` condition.
    pub condition: Option<Scalar>,
    /// The action.
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
    /// Tables.
    pub tables: Vec<Qualified>,
}

/// `LOCK TABLE … IN … MODE [NOWAIT]`
#[derive(Clone, Debug, PartialEq)]
pub struct Lock {
    /// Tables, in the order in which they are locked.
    pub tables: Vec<Qualified>,
    /// Mode.
    pub mode: LockMode,
    /// `NOWAIT`
    pub nowait: bool,
    /// `ONLY`: without partitions and children.
    pub only: bool,
}

/// A table lock mode.
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
