//! Reads DDL statements and records their objects in a [`MemoryCatalog`].

use super::extensions;
use super::memory::{MemoryCatalog, Name, composite, quoted};
use super::{Catalog, ColumnDef, ForeignKey, Generated, TableDef};
use crate::error::{Error, Result};
use crate::expr::{FuncKind, FuncSig, Volatility};
use crate::parse::ast::{
    AlterColumnOperation, AlterTableOperation, ArgMode, ColumnDef as AstColumn, ColumnOption,
    CreateCollation, CreateCollationDefinition, CreateFunction, CreateIndex, CreateTable,
    CreateTableLikeKind, CreateView, DataType, Expr, ForeignKeyConstraint, FunctionBehavior,
    FunctionCalledOnNull, FunctionReturnType, Ident, IndexColumn, NullsDistinctOption, ObjectName,
    RenameTableNameKind, SqlOption, Statement, TableConstraint, UserDefinedTypeCompositeAttributeDef,
    UserDefinedTypeRepresentation,
};
use crate::parse::{
    CreateAggregate, Definition, Place, Source, collation, fold, generated, qualified, type_of,
};
use crate::types::{OtherType, Type};
use std::cell::RefCell;
use std::sync::Arc;

/// Adds the tables, keys, views, types and functions that one statement defines.
pub(super) fn apply(catalog: &mut MemoryCatalog, definition: Definition, source: &Source) -> Result<()> {
    let mut ddl = Ddl { catalog, source, opaque: RefCell::default() };
    let applied = match definition {
        Definition::Statement(statement) => ddl.apply(*statement),
        Definition::Aggregate(aggregate) => ddl.create_aggregate(&aggregate),
    };
    for (name, doubt) in ddl.opaque.take() {
        if catalog.named_type(Some(&name.0), &name.1).is_none() {
            catalog.add_opaque(name, doubt);
        }
    }
    applied
}

/// The pseudo-types of PostgreSQL. A pseudo-type stands for other types, or has no values. If a function has
/// one among its types, only the function's name is recorded.
const PSEUDO: [&str; 22] = [
    "any",
    "anyarray",
    "anycompatible",
    "anycompatiblearray",
    "anycompatiblemultirange",
    "anycompatiblenonarray",
    "anycompatiblerange",
    "anyelement",
    "anyenum",
    "anymultirange",
    "anynonarray",
    "anyrange",
    "cstring",
    "event_trigger",
    "fdw_handler",
    "index_am_handler",
    "internal",
    "language_handler",
    "table_am_handler",
    "trigger",
    "tsm_handler",
    "void",
];

struct Ddl<'a> {
    catalog: &'a mut MemoryCatalog,
    source: &'a Source,
    /// The types that the statement names although nothing defines them, each with the error that reports
    /// this.
    opaque: RefCell<Vec<(Name, Error)>>,
}

impl Ddl<'_> {
    fn apply(&mut self, statement: Statement) -> Result<()> {
        match statement {
            Statement::CreateTable(t) => self.create_table(&t),
            Statement::AlterTable(t) if t.operations.iter().any(matters) => {
                let mut def = self.table(&t.name)?;
                t.operations.iter().try_for_each(|op| self.alter(&mut def, op))?;
                self.catalog.add_table(def)
            }
            Statement::CreateView(v) if !v.materialized => {
                self.create_view(&v);
                Ok(())
            }
            Statement::CreateIndex(i) => self.create_index(&i),
            Statement::CreateType { name, representation } => {
                if let Some(UserDefinedTypeRepresentation::Composite { attributes }) = representation {
                    return self.create_composite(&name, &attributes);
                }
                let plain = matches!(representation, Some(UserDefinedTypeRepresentation::Enum { .. }));
                self.create_type(&name, plain);
                Ok(())
            }
            Statement::CreateDomain(d) => {
                let base = self.ty(&d.data_type)?;
                let (schema, name) = self.name(&d.name);
                // A domain has the operators of its base type. If the domain has a collation, texts are
                // compared under this collation.
                let ty = match &d.collation {
                    Some(c) => self.collated(base, &collation(c)),
                    None => base,
                };
                let constrained = !d.constraints.is_empty() || self.is_constrained(&d.data_type);
                self.catalog.add_domain((schema, name), ty, constrained);
                Ok(())
            }
            Statement::CreateFunction(f) => self.create_function(&f),
            Statement::CreateExtension(e) => {
                let schema = e.schema.as_ref().map_or(self.catalog.default_schema().to_owned(), fold);
                self.catalog.add_extension(&fold(&e.name), &schema);
                Ok(())
            }
            Statement::CreateCollation(c) => {
                self.create_collation(&c);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn name(&self, name: &ObjectName) -> Name {
        let (schema, name) = qualified(name);
        (schema.unwrap_or_else(|| self.catalog.default_schema().to_owned()), name)
    }

    fn at(&self, e: Error, node: &impl Place) -> Error {
        match self.source.of(node) {
            Some(span) => e.at(span),
            None => e,
        }
    }

    fn table(&self, name: &ObjectName) -> Result<TableDef> {
        let (schema, table) = qualified(name);
        let found = self.catalog.table(schema.as_deref(), &table);
        found.map(|t| (*t).clone()).ok_or_else(|| {
            self.at(Error::unknown_table(format!("relation \"{table}\" does not exist")), name)
                .hint("Put the CREATE TABLE of a referenced table first.")
        })
    }

    /// Returns the type with a name. A type that nothing defines is opaque, since the server may have it.
    fn ty(&self, ty: &DataType) -> Result<Type> {
        let named = |schema: Option<&str>, name: &str| {
            let found = self.catalog.named_type(schema, name);
            found.or_else(|| (!PSEUDO.contains(&name)).then(|| self.opaque_type(schema, name, ty)))
        };
        type_of(ty, &named).or_else(|name| {
            let name = name.to_lowercase();
            match PSEUDO.contains(&name.as_str()) {
                true => Err(Error::unknown_object(format!("type \"{name}\" does not exist"))),
                false => Ok(self.opaque_type(None, &name, ty)),
            }
        })
    }

    fn opaque_type(&self, schema: Option<&str>, name: &str, place: &DataType) -> Type {
        let schema = schema.unwrap_or(self.catalog.default_schema()).to_owned();
        let key = (schema, name.to_owned());
        let ty = composite(&key);
        let e = Error::unknown_object(format!("type \"{name}\" is not known offline"));
        let help = match extensions::that_has(name) {
            Some(extension) => {
                format!("Extension \"{extension}\" has one of this name: write CREATE EXTENSION before it.")
            }
            None => {
                "Queries may show its values; whether there is more that they can do, the server decides."
                    .to_owned()
            }
        };
        let e = e.hint(help);
        let e = match place {
            DataType::Custom(name, _) => self.at(e, name),
            _ => e,
        };
        let mut opaque = self.opaque.borrow_mut();
        if opaque.iter().all(|(k, _)| *k != key) {
            opaque.push((key, e));
        }
        ty
    }

    fn is_constrained(&self, ty: &DataType) -> bool {
        matches!(ty, DataType::Custom(name, _) if {
            let (schema, name) = qualified(name);
            self.catalog.is_constrained(schema.as_deref(), &name)
        })
    }

    fn create_table(&mut self, t: &CreateTable) -> Result<()> {
        let (schema, name) = self.name(&t.name);
        if self.catalog.table(Some(&schema), &name).is_some() {
            if t.if_not_exists {
                return Ok(());
            }
            return Err(self.at(Error::setting(format!("relation \"{name}\" already exists")), &t.name));
        }
        let mut def = self.catalog.new_table(&name, Vec::new());
        def.schema = Arc::from(schema.as_str());
        self.inherited(&mut def, t)?;
        for column in &t.columns {
            self.add_column(&mut def, column)?;
        }
        // The primary key is the first of the keys. The columns of the primary key become NOT NULL before the
        // UNIQUE constraints are read.
        let primary = |c: &&TableConstraint| matches!(c, TableConstraint::PrimaryKey(_));
        for c in t.constraints.iter().filter(primary) {
            self.constraint(&mut def, c, true)?;
        }
        for column in &t.columns {
            self.column_constraints(&mut def, column)?;
        }
        for c in t.constraints.iter().filter(|c| !primary(c)) {
            self.constraint(&mut def, c, true)?;
        }
        for parent in t.inherits.iter().flatten().chain(&t.partition_of) {
            self.catalog.add_table(TableDef { descendants: true, ..self.table(parent)? })?;
        }
        self.catalog.add_table(def)
    }

    /// Adds the columns that a table takes over from other tables through INHERITS, PARTITION OF and LIKE.
    /// PARTITION OF takes over the keys too.
    fn inherited(&self, def: &mut TableDef, t: &CreateTable) -> Result<()> {
        let like = t.like.iter().map(|l| match l {
            CreateTableLikeKind::Parenthesized(l) | CreateTableLikeKind::Plain(l) => &l.name,
        });
        for parent in t.inherits.iter().flatten().chain(&t.partition_of).chain(like) {
            for column in self.table(parent)?.columns {
                if def.column(&column.name).is_none() {
                    def.columns.push(column);
                }
            }
        }
        if let Some(parent) = &t.partition_of {
            def.keys = self.table(parent)?.keys;
        }
        Ok(())
    }

    fn add_column(&self, def: &mut TableDef, column: &AstColumn) -> Result<()> {
        let name = fold(&column.name);
        if def.column(&name).is_some() {
            let e = Error::setting(format!("column \"{name}\" of \"{}\" is given more than once", def.name));
            return Err(self.at(e, &column.name));
        }
        let not_null = column.options.iter().any(|o| {
            matches!(
                o.option,
                ColumnOption::NotNull | ColumnOption::PrimaryKey(_) | ColumnOption::Identity(_)
            )
        });
        let serial =
            matches!(&column.data_type, DataType::Custom(n, _) if qualified(n).1.ends_with("serial"));
        let ty = self.ty(&column.data_type).map_err(|e| self.at(e, &column.name))?;
        let collation = column.options.iter().find_map(|o| match &o.option {
            ColumnOption::Collation(name) => Some(name),
            _ => None,
        });
        let ty = match collation {
            Some(name) => self.collated(ty, name),
            None => ty,
        };
        let generated = column.options.iter().find_map(|o| match &o.option {
            ColumnOption::Generated { generation_expr: Some(e), .. } => Some(match generated(e) {
                (e, true) => Generated::Virtual(e.to_string().into()),
                (e, false) => Generated::Stored(e.to_string().into()),
            }),
            _ => None,
        });
        def.columns.push(ColumnDef { generated, ..ColumnDef::new(name, ty, !not_null && !serial) });
        Ok(())
    }

    /// Returns a string type under a collation. A collation other than `default` decides about the order of
    /// texts; a nondeterministic collation decides also which texts are equal.
    fn collated(&self, ty: Type, name: &ObjectName) -> Type {
        let (schema, collation) = qualified(name);
        if collation == "default" {
            return ty;
        }
        match self.catalog.collation(schema.as_deref(), &collation) {
            Some(found) => ty.collated(&found.sql_name, found.deterministic),
            None => ty,
        }
    }

    fn column_constraints(&self, def: &mut TableDef, column: &AstColumn) -> Result<()> {
        let this = self.column(def, &column.name)?;
        for o in &column.options {
            match &o.option {
                ColumnOption::PrimaryKey(_) => add_key(def, vec![this], true),
                ColumnOption::Unique(u) => {
                    let nulls = u.nulls_distinct == NullsDistinctOption::NotDistinct;
                    if !deferrable(&u.characteristics) && (nulls || !def.columns[this].nullable) {
                        add_key(def, vec![this], false);
                    }
                }
                ColumnOption::ForeignKey(f) => self.foreign_key(def, vec![this], f, true)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn constraint(&self, def: &mut TableDef, c: &TableConstraint, validated: bool) -> Result<()> {
        match c {
            TableConstraint::PrimaryKey(p) => {
                let key = self.index_columns(def, &p.columns)?;
                for c in &key {
                    def.columns[*c].nullable = false;
                }
                if !deferrable(&p.characteristics) {
                    add_key(def, key, true);
                }
            }
            TableConstraint::Unique(u) if !deferrable(&u.characteristics) => {
                let key = self.index_columns(def, &u.columns)?;
                let nulls = u.nulls_distinct == NullsDistinctOption::NotDistinct;
                if nulls || key.iter().all(|c| !def.columns[*c].nullable) {
                    add_key(def, key, false);
                }
            }
            TableConstraint::ForeignKey(f) => {
                let columns = f.columns.iter().map(|c| self.column(def, c)).collect::<Result<_>>()?;
                self.foreign_key(def, columns, f, validated)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn column(&self, def: &TableDef, name: &Ident) -> Result<usize> {
        let folded = fold(name);
        def.column(&folded).ok_or_else(|| {
            let e = Error::unknown_column(format!("column \"{folded}\" of \"{}\" does not exist", def.name));
            self.at(e, name)
        })
    }

    fn index_columns(&self, def: &TableDef, columns: &[IndexColumn]) -> Result<Vec<usize>> {
        columns
            .iter()
            .map(|c| match &c.column.expr {
                Expr::Identifier(name) => self.column(def, name),
                e => Err(self.at(Error::syntax("a key is a list of column names"), e)),
            })
            .collect()
    }

    fn foreign_key(
        &self,
        def: &mut TableDef,
        columns: Vec<usize>,
        f: &ForeignKeyConstraint,
        validated: bool,
    ) -> Result<()> {
        let own = qualified(&f.foreign_table).1 == *def.name && self.table(&f.foreign_table).is_err();
        let target = if own { def.clone() } else { self.table(&f.foreign_table)? };
        let target_columns = if f.referred_columns.is_empty() {
            target.keys.first().cloned().unwrap_or_default()
        } else {
            f.referred_columns.iter().map(|c| self.column(&target, c)).collect::<Result<_>>()?
        };
        if target_columns.len() != columns.len() {
            let e = Error::setting(format!(
                "the foreign key of \"{}\" does not fit the key of \"{}\"",
                def.name, target.name
            ));
            return Err(self.at(e, &f.foreign_table).hint("Name as many referenced as referencing columns."));
        }
        let validated = validated && !deferrable(&f.characteristics);
        def.foreign_keys.push(ForeignKey { columns, target: target.id, target_columns, validated });
        Ok(())
    }

    fn alter(&self, def: &mut TableDef, op: &AlterTableOperation) -> Result<()> {
        match op {
            AlterTableOperation::AddConstraint { constraint, not_valid } => {
                self.constraint(def, constraint, !not_valid)
            }
            AlterTableOperation::AddColumn { column_def, .. } => {
                self.add_column(def, column_def)?;
                self.column_constraints(def, column_def)
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                let i = self.column(def, column_name)?;
                match op {
                    AlterColumnOperation::SetNotNull => def.columns[i].nullable = false,
                    AlterColumnOperation::DropNotNull => {
                        def.columns[i].nullable = true;
                        def.keys.retain(|k| !k.contains(&i));
                    }
                    AlterColumnOperation::SetDataType { data_type, .. } => {
                        def.columns[i].ty = self.ty(data_type).map_err(|e| self.at(e, column_name))?;
                    }
                    _ => {}
                }
                Ok(())
            }
            AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
                let i = self.column(def, old_column_name)?;
                def.columns[i].name = Arc::from(fold(new_column_name));
                Ok(())
            }
            AlterTableOperation::RenameTable { table_name } => {
                let (RenameTableNameKind::As(n) | RenameTableNameKind::To(n)) = table_name;
                def.name = Arc::from(qualified(n).1);
                Ok(())
            }
            AlterTableOperation::DropColumn { column_names, .. } => {
                for name in column_names {
                    let i = self.column(def, name)?;
                    drop_column(def, i);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn create_index(&mut self, index: &CreateIndex) -> Result<()> {
        if index.predicate.is_some() {
            return Ok(());
        }
        let mut def = self.table(&index.table_name)?;
        let plain = |c: &&IndexColumn| matches!(c.column.expr, Expr::Identifier(_));
        let first: Vec<IndexColumn> = index.columns.iter().take_while(plain).cloned().collect();
        let first = self.index_columns(&def, &first)?;
        if !first.is_empty() {
            self.catalog.add_index(&def, &first);
        }
        if !index.unique || !index.columns.iter().all(|c| plain(&c)) {
            return Ok(());
        }
        let key = self.index_columns(&def, &index.columns)?;
        if index.nulls_distinct == Some(false) || key.iter().all(|c| !def.columns[*c].nullable) {
            add_key(&mut def, key, false);
        }
        self.catalog.add_table(def)
    }

    fn create_view(&mut self, v: &CreateView) {
        let (schema, name) = self.name(&v.name);
        let mut query = v.query.to_string();
        if !v.columns.is_empty() {
            let columns: Vec<String> = v.columns.iter().map(|c| c.name.to_string()).collect();
            let alias = Ident::with_quote('"', name.as_str());
            let alias = if v.name.0.len() == 1 { v.name.to_string() } else { alias.to_string() };
            query = format!("SELECT * FROM ({query}) AS {alias} ({})", columns.join(", "));
        }
        self.catalog.add_view(&schema, &name, query);
    }

    fn create_type(&mut self, name: &ObjectName, is_enum: bool) {
        let (schema, name) = self.name(name);
        let other = OtherType {
            sql_name: format!("{}.{}", quoted(&schema), quoted(&name)),
            equality: true,
            hashable: is_enum,
            ordered: true,
            exact: is_enum,
        };
        self.catalog.add_type(&schema, &name, Type::Other(Arc::new(other)));
    }

    fn create_composite(
        &mut self,
        name: &ObjectName,
        attributes: &[UserDefinedTypeCompositeAttributeDef],
    ) -> Result<()> {
        let field = |a: &UserDefinedTypeCompositeAttributeDef| {
            let ty = self.ty(&a.data_type).map_err(|e| self.at(e, &a.name))?;
            let ty = a.collation.as_ref().map_or_else(|| ty.clone(), |c| self.collated(ty.clone(), c));
            Ok((Arc::from(fold(&a.name)), ty))
        };
        let fields = attributes.iter().map(field).collect::<Result<Vec<_>>>()?;
        self.catalog.add_composite(self.name(name), fields);
        Ok(())
    }

    fn create_collation(&mut self, c: &CreateCollation) {
        let CreateCollationDefinition::Options(options) = &c.definition else { return };
        let loose = |o: &SqlOption| {
            matches!(o, SqlOption::KeyValue { key, value } if fold(key) == "deterministic"
                && value.to_string().eq_ignore_ascii_case("false"))
        };
        if options.iter().any(loose) {
            self.catalog.add_inexact_collation(self.name(&c.name));
        }
    }

    /// Adds an aggregate. Its result has the type of its final function; without a final function, it has the
    /// type of the state.
    fn create_aggregate(&mut self, a: &CreateAggregate) -> Result<()> {
        let (schema, name) = self.name(&a.name);
        let args = a.args.iter().map(|t| self.ty(t)).collect::<Result<Vec<_>>>();
        let (args, state) =
            args.and_then(|args| Ok((args, self.ty(&a.state)?))).map_err(|e| self.at(e, &a.name))?;
        let ret = match &a.finish {
            None => state,
            Some(finish) => {
                let (schema, name) = qualified(finish);
                match self.catalog.function(schema.as_deref(), &name, &[state]) {
                    Some(finish) => finish.ret.clone(),
                    // The final function is one of the server's own, and its result type is not known here.
                    None => return Ok(()),
                }
            }
        };
        let sig = FuncSig::unknown(Some(&schema), &name, args, ret.base());
        self.catalog.add_function(FuncSig {
            kind: FuncKind::Aggregate,
            volatility: Volatility::Immutable,
            ..sig
        });
        Ok(())
    }

    fn create_function(&mut self, f: &CreateFunction) -> Result<()> {
        let (schema, name) = self.name(&f.name);
        let inputs = f.args.iter().flatten().filter(|a| a.mode != Some(ArgMode::Out));
        let Ok(args) = inputs.map(|a| self.ty(&a.data_type)).collect::<Result<Vec<_>>>() else {
            self.catalog.add_vague(name);
            return Ok(());
        };
        let (ret, set) = match &f.return_type {
            Some(FunctionReturnType::DataType(t)) => (t, false),
            Some(FunctionReturnType::SetOf(t)) => (t, true),
            None => return Ok(()),
        };
        let columns = match ret {
            DataType::Table(Some(columns)) => columns.as_slice(),
            _ => &[],
        };
        let fields = columns.iter().map(|c| self.ty(&c.data_type)).collect::<Result<Vec<_>>>();
        let set = set || !columns.is_empty();
        // A function that returns a trigger or a pseudo-type cannot occur in an expression, and is not
        // recorded.
        let ret = match (fields, columns) {
            (Ok(fields), [_, _, ..]) => Type::Record(fields.into()),
            (Ok(fields), [_]) => fields.into_iter().next().unwrap_or(Type::Unknown),
            (Ok(_), []) => match self.ty(ret) {
                Ok(ret) => ret,
                Err(_) => return Ok(()),
            },
            (Err(_), _) => return Ok(()),
        };
        let mut sig = FuncSig::unknown(Some(&schema), &name, args, ret);
        sig.columns = columns.iter().map(|c| Arc::from(fold(&c.name))).collect();
        if set {
            sig.kind = FuncKind::SetReturning;
        }
        sig.volatility = match f.behavior {
            Some(FunctionBehavior::Immutable) => Volatility::Immutable,
            Some(FunctionBehavior::Stable) => Volatility::Stable,
            _ => Volatility::Volatile,
        };
        sig.strict = matches!(
            f.called_on_null,
            Some(FunctionCalledOnNull::Strict | FunctionCalledOnNull::ReturnsNullOnNullInput)
        );
        self.catalog.add_function(sig);
        Ok(())
    }
}

/// Whether an ALTER TABLE changes a fact that the catalog records. Dumps use ALTER TABLE also for views,
/// sequences and defaults.
fn matters(op: &AlterTableOperation) -> bool {
    use AlterColumnOperation::{DropNotNull, SetDataType, SetNotNull};
    match op {
        AlterTableOperation::AlterColumn { op, .. } => {
            matches!(op, SetNotNull | DropNotNull | SetDataType { .. })
        }
        AlterTableOperation::AddConstraint { .. }
        | AlterTableOperation::AddColumn { .. }
        | AlterTableOperation::RenameColumn { .. }
        | AlterTableOperation::RenameTable { .. }
        | AlterTableOperation::DropColumn { .. } => true,
        _ => false,
    }
}

fn deferrable(c: &Option<crate::parse::ast::ConstraintCharacteristics>) -> bool {
    c.as_ref().is_some_and(|c| c.deferrable == Some(true) || c.enforced == Some(false))
}

fn add_key(def: &mut TableDef, key: Vec<usize>, primary: bool) {
    if def.keys.contains(&key) {
        return;
    }
    if primary {
        def.keys.insert(0, key);
    } else {
        def.keys.push(key);
    }
}

/// Removes column `i`, and the keys that contain it. The positions of later columns decrease by 1.
fn drop_column(def: &mut TableDef, i: usize) {
    let moved = |c: &mut usize| {
        if *c > i {
            *c -= 1;
        }
    };
    def.columns.remove(i);
    def.keys.retain(|k| !k.contains(&i));
    def.keys.iter_mut().flatten().for_each(moved);
    def.foreign_keys.retain(|f| !f.columns.contains(&i));
    def.foreign_keys.iter_mut().flat_map(|f| &mut f.columns).for_each(moved);
}
