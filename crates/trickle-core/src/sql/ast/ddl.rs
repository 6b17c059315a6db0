//! Syntax trees of statements that create and drop objects.

use super::{Query, Scalar};
use crate::ident::{Ident, Qualified};
use crate::types::Type;

/// `CREATE SCHEMA IF NOT EXISTS`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSchema {
    /// The name of the schema.
    pub(crate) name: Ident,
}

/// A column of a new table.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    /// The name of the column.
    pub(crate) name: Ident,
    /// The type of the column.
    pub(crate) ty: Type,
    /// `NOT NULL`
    pub(crate) not_null: bool,
    /// `DEFAULT`
    pub(crate) default: Option<Scalar>,
}

/// `CREATE TABLE`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTable {
    /// The name of the table.
    pub name: Qualified,
    /// `UNLOGGED`
    pub(crate) unlogged: bool,
    /// `IF NOT EXISTS`
    pub(crate) if_not_exists: bool,
    /// The columns of the table.
    pub(crate) columns: Vec<ColumnSpec>,
    /// `PRIMARY KEY`: the names of the key's columns. The list is empty for a table without a primary key.
    pub primary_key: Vec<Ident>,
    /// `WITH (fillfactor = …)`
    pub(crate) fillfactor: Option<u8>,
}

/// `CREATE OR REPLACE VIEW name (columns) AS query`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateView {
    /// The name of the view.
    pub(crate) name: Qualified,
    /// The names of the view's columns.
    pub(crate) columns: Vec<Ident>,
    /// The query of the view.
    pub(crate) query: Query,
}

/// `CREATE [UNIQUE] INDEX`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateIndex {
    /// The name of the index, which is created in the table's schema.
    pub name: Ident,
    /// The indexed table.
    pub(crate) table: Qualified,
    /// `UNIQUE`
    pub(crate) unique: bool,
    /// `IF NOT EXISTS`
    pub(crate) if_not_exists: bool,
    /// The keys of the index: columns, or expressions over columns.
    pub(crate) keys: Vec<Scalar>,
    /// `NULLS NOT DISTINCT`, which PostgreSQL has since version 15
    pub(crate) nulls_not_distinct: bool,
    /// `WHERE`: the condition on the rows that the index contains.
    pub(crate) filter: Option<Scalar>,
}

/// The time at which a trigger fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerTiming {
    /// `BEFORE`
    Before,
    /// `AFTER`
    After,
}

/// The event that fires a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TriggerEvent {
    /// `INSERT`
    Insert,
    /// `UPDATE`
    Update,
    /// `DELETE`
    Delete,
    /// `TRUNCATE`
    Truncate,
}

/// `CREATE TRIGGER`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTrigger {
    /// `OR REPLACE`
    pub(crate) replace: bool,
    /// The name of the trigger.
    pub(crate) name: Ident,
    /// The table on which the trigger is created.
    pub(crate) table: Qualified,
    /// The time at which the trigger fires.
    pub(crate) timing: TriggerTiming,
    /// The event that fires the trigger.
    pub(crate) event: TriggerEvent,
    /// `REFERENCING OLD TABLE AS`
    pub(crate) old_table: Option<Ident>,
    /// `REFERENCING NEW TABLE AS`
    pub(crate) new_table: Option<Ident>,
    /// `FOR EACH ROW`; if false, `FOR EACH STATEMENT`.
    pub(crate) for_each_row: bool,
    /// The function that the trigger calls.
    pub(crate) function: Qualified,
}

/// `ALTER TABLE … ADD PRIMARY KEY`, which also makes the key columns NOT NULL.
#[derive(Clone, Debug, PartialEq)]
pub struct AddPrimaryKey {
    /// The table that gets the primary key.
    pub(crate) table: Qualified,
    /// The columns of the primary key.
    pub columns: Vec<Ident>,
}

/// `ALTER TABLE … ENABLE ALWAYS TRIGGER …`, after which the trigger fires for every value of
/// `session_replication_role`.
#[derive(Clone, Debug, PartialEq)]
pub struct EnableAlways {
    /// The table of the trigger.
    pub(crate) table: Qualified,
    /// The name of the trigger.
    pub(crate) trigger: Ident,
}

/// The kind of an object that is dropped.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectKind {
    /// `TABLE`
    Table,
    /// `VIEW`
    View,
    /// `INDEX`
    Index,
    /// `FUNCTION name()`
    Function,
    /// `TRIGGER … ON table`
    Trigger(Qualified),
}

/// `DROP … IF EXISTS`
#[derive(Clone, Debug, PartialEq)]
pub struct DropObject {
    /// The kind of the object.
    pub kind: ObjectKind,
    /// The name of the object.
    pub name: Qualified,
    /// `CASCADE`
    pub cascade: bool,
}
