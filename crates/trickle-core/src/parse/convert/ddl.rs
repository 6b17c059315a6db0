//! Converts the statements that define objects of a catalog.

use super::names::{ident, object_name, type_name};
use crate::expr::Volatility;
use crate::parse::aggregate;
use crate::parse::forms::{collation, generated};
use crate::parse::source::extent;
use crate::syntax::{
    AlterOperation, Attribute, Column, ColumnChange, ColumnConstraint, CreateAggregate, CreateCollation,
    CreateDomain, CreateExtension, CreateFunction, CreateIndex, CreateTable, CreateType, CreateView,
    ForeignKey, GeneratedColumn, KeyColumn, Statement, TableConstraint, TypeDefinition,
};
use sqlparser::ast::{
    self, AlterColumnOperation, AlterTableOperation, ArgMode, ColumnOption, ConstraintCharacteristics,
    CreateCollationDefinition, CreateTableLikeKind, DataType, ForeignKeyConstraint, FunctionBehavior,
    FunctionCalledOnNull, FunctionReturnType, IndexColumn, NullsDistinctOption, RenameTableNameKind, Spanned,
    SqlOption, UserDefinedTypeRepresentation as Representation,
};

/// Converts a statement. Returns `None` for a statement whose objects a catalog does not record.
pub(in crate::parse) fn statement(s: &ast::Statement) -> Option<Statement> {
    Some(match s {
        ast::Statement::CreateTable(t) => Statement::CreateTable(create_table(t)),
        ast::Statement::AlterTable(t) => Statement::AlterTable {
            name: object_name(&t.name),
            operations: t.operations.iter().map(alter_operation).collect(),
        },
        ast::Statement::CreateView(v) if !v.materialized => Statement::CreateView(CreateView {
            name: object_name(&v.name),
            columns: v.columns.iter().map(|c| ident(&c.name)).collect(),
            query: v.query.to_string(),
        }),
        ast::Statement::CreateIndex(i) => Statement::CreateIndex(CreateIndex {
            table: object_name(&i.table_name),
            columns: i.columns.iter().map(key_column).collect(),
            unique: i.unique,
            nulls_not_distinct: i.nulls_distinct == Some(false),
            partial: i.predicate.is_some(),
        }),
        ast::Statement::CreateType { name, representation } => Statement::CreateType(CreateType {
            name: object_name(name),
            definition: type_definition(representation.as_ref()),
        }),
        ast::Statement::CreateDomain(d) => Statement::CreateDomain(CreateDomain {
            name: object_name(&d.name),
            ty: type_name(&d.data_type),
            collation: d.collation.as_ref().map(|c| object_name(&collation(c))),
            constrained: !d.constraints.is_empty(),
        }),
        ast::Statement::CreateFunction(f) => Statement::CreateFunction(create_function(f)),
        ast::Statement::CreateExtension(e) => Statement::CreateExtension(CreateExtension {
            name: ident(&e.name),
            schema: e.schema.as_ref().map(ident),
        }),
        ast::Statement::CreateCollation(c) => Statement::CreateCollation(CreateCollation {
            name: object_name(&c.name),
            nondeterministic: is_nondeterministic(&c.definition),
        }),
        _ => return None,
    })
}

/// Converts CREATE AGGREGATE.
pub(in crate::parse) fn aggregate(a: &aggregate::CreateAggregate) -> Statement {
    Statement::CreateAggregate(CreateAggregate {
        name: object_name(&a.name),
        args: a.args.iter().map(type_name).collect(),
        state: type_name(&a.state),
        finish: a.finish.as_ref().map(object_name),
    })
}

fn create_table(t: &ast::CreateTable) -> CreateTable {
    let like = t.like.as_ref().map(|like| match like {
        CreateTableLikeKind::Parenthesized(like) | CreateTableLikeKind::Plain(like) => {
            object_name(&like.name)
        }
    });
    CreateTable {
        name: object_name(&t.name),
        if_not_exists: t.if_not_exists,
        columns: t.columns.iter().map(column).collect(),
        constraints: t.constraints.iter().map(constraint).collect(),
        inherits: t.inherits.iter().flatten().map(object_name).collect(),
        partition_of: t.partition_of.as_ref().map(object_name),
        like,
    }
}

fn column(c: &ast::ColumnDef) -> Column {
    let options = || c.options.iter().map(|o| &o.option);
    let not_null = |o: &ColumnOption| {
        matches!(o, ColumnOption::NotNull | ColumnOption::PrimaryKey(_) | ColumnOption::Identity(_))
    };
    let collation = options().find_map(|o| match o {
        ColumnOption::Collation(name) => Some(object_name(name)),
        _ => None,
    });
    let generated = options().find_map(|o| match o {
        ColumnOption::Generated { generation_expr: Some(e), .. } => {
            let (e, is_virtual) = generated(e);
            Some(GeneratedColumn { text: e.to_string(), is_virtual })
        }
        _ => None,
    });
    Column {
        name: ident(&c.name),
        ty: type_name(&c.data_type),
        not_null: options().any(not_null),
        collation,
        generated,
        constraints: options().filter_map(column_constraint).collect(),
    }
}

/// Converts a constraint of a column. Returns `None` for an option that is not a key constraint.
fn column_constraint(o: &ColumnOption) -> Option<ColumnConstraint> {
    match o {
        ColumnOption::PrimaryKey(_) => Some(ColumnConstraint::PrimaryKey),
        ColumnOption::Unique(u) => Some(ColumnConstraint::Unique {
            nulls_not_distinct: u.nulls_distinct == NullsDistinctOption::NotDistinct,
            deferrable: deferrable(&u.characteristics),
        }),
        ColumnOption::ForeignKey(f) => Some(ColumnConstraint::ForeignKey(foreign_key(f))),
        _ => None,
    }
}

fn constraint(c: &ast::TableConstraint) -> TableConstraint {
    match c {
        ast::TableConstraint::PrimaryKey(p) => TableConstraint::PrimaryKey {
            columns: p.columns.iter().map(key_column).collect(),
            deferrable: deferrable(&p.characteristics),
        },
        ast::TableConstraint::Unique(u) => TableConstraint::Unique {
            columns: u.columns.iter().map(key_column).collect(),
            nulls_not_distinct: u.nulls_distinct == NullsDistinctOption::NotDistinct,
            deferrable: deferrable(&u.characteristics),
        },
        ast::TableConstraint::ForeignKey(f) => TableConstraint::ForeignKey {
            columns: f.columns.iter().map(ident).collect(),
            key: foreign_key(f),
        },
        _ => TableConstraint::Other,
    }
}

fn foreign_key(f: &ForeignKeyConstraint) -> ForeignKey {
    ForeignKey {
        table: object_name(&f.foreign_table),
        columns: f.referred_columns.iter().map(ident).collect(),
        deferrable: deferrable(&f.characteristics),
    }
}

fn deferrable(c: &Option<ConstraintCharacteristics>) -> bool {
    c.as_ref().is_some_and(|c| c.deferrable == Some(true) || c.enforced == Some(false))
}

fn key_column(c: &IndexColumn) -> KeyColumn {
    match &c.column.expr {
        ast::Expr::Identifier(name) => KeyColumn::Name(ident(name)),
        other => KeyColumn::Expression(extent(other.span())),
    }
}

fn alter_operation(op: &AlterTableOperation) -> AlterOperation {
    match op {
        AlterTableOperation::AddConstraint { constraint: c, not_valid } => {
            AlterOperation::AddConstraint { constraint: constraint(c), not_valid: *not_valid }
        }
        AlterTableOperation::AddColumn { column_def, .. } => AlterOperation::AddColumn(column(column_def)),
        AlterTableOperation::AlterColumn { column_name, op } => AlterOperation::AlterColumn {
            column: ident(column_name),
            change: match op {
                AlterColumnOperation::SetNotNull => ColumnChange::SetNotNull,
                AlterColumnOperation::DropNotNull => ColumnChange::DropNotNull,
                AlterColumnOperation::SetDataType { data_type, .. } => {
                    ColumnChange::SetType(type_name(data_type))
                }
                _ => ColumnChange::Other,
            },
        },
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            AlterOperation::RenameColumn { from: ident(old_column_name), to: ident(new_column_name) }
        }
        AlterTableOperation::RenameTable { table_name } => {
            let (RenameTableNameKind::As(name) | RenameTableNameKind::To(name)) = table_name;
            AlterOperation::RenameTable(object_name(name))
        }
        AlterTableOperation::DropColumn { column_names, .. } => {
            AlterOperation::DropColumns(column_names.iter().map(ident).collect())
        }
        AlterTableOperation::DropConstraint { .. } => AlterOperation::DropConstraint,
        _ => AlterOperation::Other,
    }
}

fn type_definition(representation: Option<&Representation>) -> TypeDefinition {
    match representation {
        Some(Representation::Composite { attributes }) => {
            let attribute = |a: &ast::UserDefinedTypeCompositeAttributeDef| Attribute {
                name: ident(&a.name),
                ty: type_name(&a.data_type),
                collation: a.collation.as_ref().map(object_name),
            };
            TypeDefinition::Composite(attributes.iter().map(attribute).collect())
        }
        Some(Representation::Enum { .. }) => TypeDefinition::Enum,
        Some(Representation::Range { .. } | Representation::SqlDefinition { .. }) | None => {
            TypeDefinition::Other
        }
    }
}

fn create_function(f: &ast::CreateFunction) -> CreateFunction {
    let inputs = f.args.iter().flatten().filter(|a| a.mode != Some(ArgMode::Out));
    let (returns, returns_set) = match &f.return_type {
        Some(FunctionReturnType::DataType(ty)) => (Some(ty), false),
        Some(FunctionReturnType::SetOf(ty)) => (Some(ty), true),
        None => (None, false),
    };
    let columns = match returns {
        Some(DataType::Table(Some(columns))) => columns.as_slice(),
        _ => &[],
    };
    CreateFunction {
        name: object_name(&f.name),
        args: inputs.map(|a| type_name(&a.data_type)).collect(),
        returns: returns.map(type_name),
        returns_set,
        columns: columns.iter().map(|c| (ident(&c.name), type_name(&c.data_type))).collect(),
        volatility: match f.behavior {
            Some(FunctionBehavior::Immutable) => Volatility::Immutable,
            Some(FunctionBehavior::Stable) => Volatility::Stable,
            Some(FunctionBehavior::Volatile) | None => Volatility::Volatile,
        },
        strict: matches!(
            f.called_on_null,
            Some(FunctionCalledOnNull::Strict | FunctionCalledOnNull::ReturnsNullOnNullInput)
        ),
    }
}

fn is_nondeterministic(definition: &CreateCollationDefinition) -> bool {
    let CreateCollationDefinition::Options(options) = definition else { return false };
    options.iter().any(|o| {
        matches!(o, SqlOption::KeyValue { key, value } if ident(key).folded() == "deterministic"
            && value.to_string().eq_ignore_ascii_case("false"))
    })
}
