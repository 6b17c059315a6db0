//! Statements that create and drop objects.

use super::{Query, Scalar};
use crate::sql::ident::{Ident, Qualified};
use crate::types::Type;

/// `CREATE SCHEMA IF NOT EXISTS`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateSchema {
    /// Its name.
    pub name: Ident,
}

/// A column of a new table.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    /// Name.
    pub name: Ident,
    /// Type.
    pub ty: Type,
    /// `NOT NULL`
    pub not_null: bool,
    /// `DEFAULT`
    pub default: Option<Scalar>,
}

/// `CREATE TABLE`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateTable {
    /// Name.
    pub name: Qualified,
    /// `UNLOGGED`
    pub unlogged: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// Columns.
    pub columns: Vec<ColumnSpec>,
    /// `PRIMARY KEY`; empty for none.
    pub primary_key: Vec<Ident>,
    /// `WITH (fillfactor = …)`
    pub fillfactor: Option<u8>,
}

/// `CREATE OR REPLACE VIEW name (columns) AS query`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateView {
    /// Name.
    pub name: Qualified,
    /// Column names.
    pub columns: Vec<Ident>,
    /// The query that it shows.
    pub query: Query,
}

/// `CREATE [UNIQUE] INDEX`
#[derive(Clone, Debug, PartialEq)]
pub struct CreateIndex {
    /// Name, in the table's schema.
    pub name: Ident,
    /// Table.
    pub table: Qualified,
    /// `UNIQUE`
    pub unique: bool,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// Keys: columns or expressions over them.
    pub keys: Vec<Scalar>,
    /// `NULLS NOT DISTINCT` (15)
    pub nulls_not_distinct: bool,
    /// `WHERE`: the condition on the rows that it holds.
    pub filter: Option<Scalar>,
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
    pub replace: bool,
    /// Name.
    pub name: Ident,
    /// Table.
    pub table: Qualified,
    /// The time.
    pub timing: TriggerTiming,
    /// The event.
    pub event: TriggerEvent,
    /// `REFERENCING OLD TABLE AS`
    pub old_table: Option<Ident>,
    /// `REFERENCING NEW TABLE AS`
    pub new_table: Option<Ident>,
    /// `FOR EACH ROW` rather than `STATEMENT`.
    pub for_each_row: bool,
    /// The function it calls.
    pub function: Qualified,
}

/// `ALTER TABLE … ADD PRIMARY KEY`, which makes its columns NOT NULL.
#[derive(Clone, Debug, PartialEq)]
pub struct AddPrimaryKey {
    /// Table.
    pub table: Qualified,
    /// Key columns.
    pub columns: Vec<Ident>,
}

/// `ALTER TABLE … ENABLE ALWAYS TRIGGER …`: fires under every `session_replication_role`.
#[derive(Clone, Debug, PartialEq)]
pub struct EnableAlways {
    /// Table.
    pub table: Qualified,
    /// The trigger's name.
    pub trigger: Ident,
}

/// The kind of an object to drop.
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
    /// The kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: Qualified,
    /// `CASCADE`
    pub cascade: bool,
}
