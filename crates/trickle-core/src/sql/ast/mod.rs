//! The typed syntax tree of the SQL that the engine generates. The tree contains no SQL text: only the
//! printer writes SQL.

mod ddl;
mod dml;
mod plpgsql;
mod query;
mod scalar;
mod walk;

pub use ddl::{
    AddPrimaryKey, ColumnSpec, CreateIndex, CreateSchema, CreateTable, CreateTrigger, CreateView, DropObject,
    EnableAlways, ObjectKind, TriggerEvent, TriggerTiming,
};
pub use dml::{
    ConflictAction, Delete, Insert, Lock, LockMode, Merge, MergeAction, MergeWhen, OnConflict, Truncate,
    Update,
};
pub use plpgsql::{CreateScriptFunction, CreateTriggerFunction, Instruction, NamedRows, pinned_path};
pub use query::{
    Cte, CteBody, FromItem, JoinKind, OrderBy, Query, Select, SelectItem, SetExpr, SetOperator, TableCall,
};
pub use scalar::{Aggregate, Frame, FrameBound, Over, Param, Scalar, SpecialCall};
pub(crate) use walk::{Visitor, walk_from, walk_scalar, walk_select};

/// An SQL statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `SELECT`
    Query(Query),
    /// `INSERT`
    Insert(Insert),
    /// `UPDATE`
    Update(Update),
    /// `DELETE`
    Delete(Delete),
    /// `MERGE`
    Merge(Merge),
    /// `TRUNCATE`
    Truncate(Truncate),
    /// `LOCK TABLE`
    Lock(Lock),
    /// `CREATE SCHEMA`
    CreateSchema(CreateSchema),
    /// `CREATE TABLE`
    CreateTable(CreateTable),
    /// `CREATE VIEW`
    CreateView(CreateView),
    /// `CREATE INDEX`
    CreateIndex(CreateIndex),
    /// `CREATE FUNCTION … RETURNS trigger`
    CreateTriggerFunction(CreateTriggerFunction),
    /// `CREATE FUNCTION … RETURNS trigger`, in a language other than PL/pgSQL
    CreateScriptFunction(CreateScriptFunction),
    /// `REVOKE ALL ON FUNCTION name() FROM PUBLIC`
    RevokeFunction(crate::sql::Qualified),
    /// `GRANT EXECUTE ON FUNCTION name() TO PUBLIC`
    GrantFunction(crate::sql::Qualified),
    /// `CREATE TRIGGER`
    CreateTrigger(CreateTrigger),
    /// `ALTER TABLE … ADD PRIMARY KEY`
    AddPrimaryKey(AddPrimaryKey),
    /// `ALTER TABLE … ENABLE ALWAYS TRIGGER`
    EnableAlways(EnableAlways),
    /// `DROP …`
    Drop(DropObject),
}
