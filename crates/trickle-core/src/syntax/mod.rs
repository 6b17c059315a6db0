//! The syntax tree of queries, and of the statements that a catalog reads. [`crate::parse`] makes it from
//! text, and [`crate::lower`] and [`crate::catalog`] read it.
//!
//! The tree has PostgreSQL's syntax only: parsing refuses clauses of other databases. Names of columns and
//! tables are not resolved. Two spellings of one meaning, such as `CAST(a AS t)` and `a::t`, have equal
//! trees. The position in the text is ignored.

mod call;
mod expr;
mod extent;
mod from;
mod name;
mod query;
mod select;
mod statement;
mod type_name;
mod walk;
mod window;

pub(crate) use call::{Argument, Arguments, Call, Form, FormPart};
pub(crate) use expr::{
    Access, BinaryOperator, Case, Expr, Interval, Literal, Node, Operator, Subscript, Test, UnaryOperator,
    When,
};
pub(crate) use extent::{Extent, Place, Position};
pub(crate) use from::{
    Alias, AliasColumn, Constraint, FromItem, Functions, Join, JoinSide, RowsFrom, TableCall, TableKind,
    TableRef,
};
pub(crate) use name::{Ident, ObjectName};
pub(crate) use query::{
    Body, Cte, Cycle, Fetch, Limit, OrderItem, Query, Search, SetOperation, SetOperator, Sort, Values, With,
    Write,
};
pub(crate) use select::{Distinct, GroupBy, GroupItem, GroupSets, Select, SelectItem};
pub(crate) use statement::{
    AlterOperation, Attribute, Column, ColumnChange, ColumnConstraint, CreateAggregate, CreateCollation,
    CreateDomain, CreateExtension, CreateFunction, CreateIndex, CreateTable, CreateType, CreateView,
    ForeignKey, GeneratedColumn, KeyColumn, Statement, TableConstraint, TypeDefinition,
};
pub(crate) use type_name::{TypeName, TypeShape};
pub(crate) use walk::{calls, reads};
pub(crate) use window::{Frame, FrameBound, NamedWindow, Over, WindowSpec};
