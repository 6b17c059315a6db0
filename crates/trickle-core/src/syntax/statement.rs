//! The statements that define objects of a catalog, with the parts that a catalog needs.

use super::{Extent, Ident, ObjectName, TypeName};
use crate::expr::Volatility;

/// A statement that a catalog reads.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    CreateTable(CreateTable),
    AlterTable { name: ObjectName, operations: Vec<AlterOperation> },
    CreateView(CreateView),
    CreateIndex(CreateIndex),
    CreateType(CreateType),
    CreateDomain(CreateDomain),
    CreateFunction(CreateFunction),
    CreateAggregate(CreateAggregate),
    CreateCollation(CreateCollation),
    CreateExtension(CreateExtension),
}

/// CREATE TABLE.
#[derive(Clone, Debug)]
pub(crate) struct CreateTable {
    pub(crate) name: ObjectName,
    pub(crate) if_not_exists: bool,
    pub(crate) columns: Vec<Column>,
    pub(crate) constraints: Vec<TableConstraint>,
    pub(crate) inherits: Vec<ObjectName>,
    pub(crate) partition_of: Option<ObjectName>,
    /// The table of LIKE.
    pub(crate) like: Option<ObjectName>,
}

/// The definition of a column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: Ident,
    pub(crate) ty: TypeName,
    /// Whether the column is never NULL, because of NOT NULL, PRIMARY KEY or an identity.
    pub(crate) not_null: bool,
    pub(crate) collation: Option<ObjectName>,
    pub(crate) generated: Option<GeneratedColumn>,
    pub(crate) constraints: Vec<ColumnConstraint>,
}

/// `GENERATED ALWAYS AS (expression)`.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedColumn {
    /// The text of the expression.
    pub(crate) text: String,
    pub(crate) is_virtual: bool,
}

/// A constraint that is written after a column.
#[derive(Clone, Debug)]
pub(crate) enum ColumnConstraint {
    PrimaryKey,
    Unique { nulls_not_distinct: bool, deferrable: bool },
    ForeignKey(ForeignKey),
}

/// A constraint of a table.
#[derive(Clone, Debug)]
pub(crate) enum TableConstraint {
    PrimaryKey {
        columns: Vec<KeyColumn>,
        deferrable: bool,
    },
    Unique {
        columns: Vec<KeyColumn>,
        nulls_not_distinct: bool,
        deferrable: bool,
    },
    ForeignKey {
        columns: Vec<Ident>,
        key: ForeignKey,
    },
    /// A constraint that does not define a key, such as CHECK.
    Other,
}

/// `REFERENCES table (columns)`.
#[derive(Clone, Debug)]
pub(crate) struct ForeignKey {
    pub(crate) table: ObjectName,
    /// The referenced columns. The list is empty if the primary key is referenced.
    pub(crate) columns: Vec<Ident>,
    /// Whether rows may violate the constraint. A deferrable constraint may be violated for a time, and a
    /// constraint that is not enforced may always be violated.
    pub(crate) deferrable: bool,
}

/// A column of a key or an index.
#[derive(Clone, Debug)]
pub(crate) enum KeyColumn {
    Name(Ident),
    /// An expression instead of a column.
    Expression(Extent),
}

/// A change that ALTER TABLE makes.
#[derive(Clone, Debug)]
pub(crate) enum AlterOperation {
    AddConstraint {
        constraint: TableConstraint,
        not_valid: bool,
    },
    AddColumn(Column),
    AlterColumn {
        column: Ident,
        change: ColumnChange,
    },
    RenameColumn {
        from: Ident,
        to: Ident,
    },
    RenameTable(ObjectName),
    DropColumns(Vec<Ident>),
    /// DROP CONSTRAINT. Catalogs hold keys without the names of constraints.
    DropConstraint,
    /// A change that catalogs do not record, such as a default or a partition.
    Other,
}

/// A change of a column.
#[derive(Clone, Debug)]
pub(crate) enum ColumnChange {
    SetNotNull,
    DropNotNull,
    SetType(TypeName),
    /// A change of a fact that no catalog records, such as a default.
    Other,
}

/// CREATE VIEW.
#[derive(Clone, Debug)]
pub(crate) struct CreateView {
    pub(crate) name: ObjectName,
    /// The names that the statement gives to the columns.
    pub(crate) columns: Vec<Ident>,
    /// The text of the query.
    pub(crate) query: String,
}

/// CREATE INDEX.
#[derive(Clone, Debug)]
pub(crate) struct CreateIndex {
    pub(crate) table: ObjectName,
    pub(crate) columns: Vec<KeyColumn>,
    pub(crate) unique: bool,
    pub(crate) nulls_not_distinct: bool,
    /// Whether a WHERE restricts the index to some rows.
    pub(crate) partial: bool,
}

/// CREATE TYPE.
#[derive(Clone, Debug)]
pub(crate) struct CreateType {
    pub(crate) name: ObjectName,
    pub(crate) definition: TypeDefinition,
}

/// The definition of a type.
#[derive(Clone, Debug)]
pub(crate) enum TypeDefinition {
    Composite(Vec<Attribute>),
    Enum,
    /// A range, a base type, or a type that is only declared (a shell type).
    Other,
}

/// A field of a composite type.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    pub(crate) name: Ident,
    pub(crate) ty: TypeName,
    pub(crate) collation: Option<ObjectName>,
}

/// CREATE DOMAIN.
#[derive(Clone, Debug)]
pub(crate) struct CreateDomain {
    pub(crate) name: ObjectName,
    pub(crate) ty: TypeName,
    pub(crate) collation: Option<ObjectName>,
    /// Whether the domain has constraints.
    pub(crate) constrained: bool,
}

/// CREATE FUNCTION.
#[derive(Clone, Debug)]
pub(crate) struct CreateFunction {
    pub(crate) name: ObjectName,
    /// The types of the input arguments.
    pub(crate) args: Vec<TypeName>,
    /// The type of the result. `None` for a procedure, or where OUT arguments define the result.
    pub(crate) returns: Option<TypeName>,
    /// Whether the function is declared to return a set, by SETOF.
    pub(crate) returns_set: bool,
    /// The columns of `RETURNS TABLE (…)`.
    pub(crate) columns: Vec<(Ident, TypeName)>,
    pub(crate) volatility: Volatility,
    pub(crate) strict: bool,
}

/// CREATE AGGREGATE (PostgreSQL manual, VI.I).
#[derive(Clone, Debug)]
pub(crate) struct CreateAggregate {
    pub(crate) name: ObjectName,
    /// The argument types. In an ordered-set aggregate, the types of direct arguments come first, then the
    /// types of aggregated arguments.
    pub(crate) args: Vec<TypeName>,
    /// `STYPE`: the state type. Without a final function, this is also the type of the result.
    pub(crate) state: TypeName,
    /// The final function, `FINALFUNC`.
    pub(crate) finish: Option<ObjectName>,
}

/// CREATE COLLATION.
#[derive(Clone, Debug)]
pub(crate) struct CreateCollation {
    pub(crate) name: ObjectName,
    /// Whether texts with different bytes may be equal, as with `deterministic = false`.
    pub(crate) nondeterministic: bool,
}

/// CREATE EXTENSION.
#[derive(Clone, Debug)]
pub(crate) struct CreateExtension {
    pub(crate) name: Ident,
    pub(crate) schema: Option<Ident>,
}
