//! The typed syntax tree of the SQL that the engine generates. The tree contains no SQL text: only the
//! printer writes SQL.

mod ddl;
mod dml;
mod plpgsql;
mod query;
mod scalar;
mod walk;

pub use ddl::{
    AddPrimaryKey, CreateIndex, CreateSchema, CreateTable, CreateTrigger, CreateView, DropObject,
    EnableAlways, ObjectKind,
};
pub use dml::{Delete, Insert, Lock, Merge, Truncate, Update};
pub(crate) use plpgsql::pinned_path;
pub use plpgsql::{CreateScriptFunction, CreateTriggerFunction};
pub use query::Query;
pub use scalar::Param;
for_tests! {
    use ddl::{ColumnSpec, TriggerEvent, TriggerTiming};
    use dml::{ConflictAction, LockMode, MergeAction, MergeWhen, OnConflict};
    use plpgsql::{Instruction, NamedRows};
    use query::{Cte, CteBody, FromItem, JoinKind, OrderBy, Select, SelectItem, SetExpr, SetOperator};
    use query::TableCall;
    use scalar::{Aggregate, Frame, FrameBound, Over, Scalar, SpecialCall};
}
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
