//! Reads DDL statements and records their objects in a [`MemoryCatalog`].

use super::extensions;
use super::memory::{DEFAULT_SCHEMA, MemoryCatalog, Name, composite, quoted};
use super::{Catalog, ColumnDef, ForeignKey, Generated, TableDef};
use crate::error::{Error, Result};
use crate::expr::{FuncKind, FuncSig, Volatility};
use crate::parse::Source;
use crate::syntax::{
    AlterOperation, Attribute, Column, ColumnChange, ColumnConstraint, CreateAggregate, CreateCollation,
    CreateDomain, CreateFunction, CreateIndex, CreateTable, CreateType, CreateView, ForeignKey as Reference,
    Ident, KeyColumn, ObjectName, Place, Statement, TableConstraint, TypeDefinition, TypeName,
};
use crate::types::{OtherType, Type};
use std::cell::RefCell;
use std::sync::Arc;

/// Adds the tables, keys, views, types and functions that one statement defines.
pub(super) fn apply(catalog: &mut MemoryCatalog, statement: Statement, source: &Source) -> Result<()> {
    let mut ddl = Ddl { catalog, source, opaque: RefCell::default() };
    let applied = ddl.apply(statement);
    for (name, doubt) in ddl.opaque.take() {
        if catalog.named_type(Some(&name.0), &name.1).is_none() {
            catalog.add_opaque(name, doubt);
        }
    }
    applied
}

/// The pseudo-types of PostgreSQL. A pseudo-type stands for other types, or has no values. If one of a
/// function's types is a pseudo-type, only the function's name is recorded.
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
    /// The undefined types that the statement names, each with an error that reports it.
    opaque: RefCell<Vec<(Name, Error)>>,
}

impl Ddl<'_> {
    fn apply(&mut self, statement: Statement) -> Result<()> {
        match statement {
            Statement::CreateTable(t) => self.create_table(&t),
            Statement::AlterTable { name, operations } => {
                if !operations.iter().any(matters) {
                    return Ok(());
                }
                // Scripts that recreate tables drop the constraints of tables that may not exist.
                let drops =
                    |op: &AlterOperation| matches!(op, AlterOperation::DropConstraint) || !matters(op);
                let known = self.table(&name);
                if operations.iter().all(drops) && known.is_err() {
                    return Ok(());
                }
                let mut def = known?;
                operations.iter().try_for_each(|op| self.alter(&mut def, op))?;
                self.catalog.add_table(def)
            }
            Statement::CreateView(v) => {
                self.create_view(&v);
                Ok(())
            }
            Statement::CreateIndex(i) => self.create_index(&i),
            Statement::CreateType(t) => self.create_type(&t),
            Statement::CreateDomain(d) => self.create_domain(&d),
            Statement::CreateFunction(f) => self.create_function(&f),
            Statement::CreateAggregate(a) => self.create_aggregate(&a),
            Statement::CreateExtension(e) => {
                let schema = e.schema.as_ref().map(Ident::folded);
                let schema = schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_owned());
                self.catalog.add_extension(&e.name.folded(), &schema);
                Ok(())
            }
            Statement::CreateCollation(c) => {
                self.create_collation(&c);
                Ok(())
            }
        }
    }

    fn create_domain(&mut self, d: &CreateDomain) -> Result<()> {
        let base = self.ty(&d.ty)?;
        let (schema, name) = self.name(&d.name);
        // A domain has the operators of its base type. If the domain has a collation, its texts are compared
        // under this collation.
        let ty = match &d.collation {
            Some(c) => self.collated(base, c),
            None => base,
        };
        let constrained = d.constrained || self.is_constrained(&d.ty);
        self.catalog.add_domain((schema, name), ty, constrained);
        Ok(())
    }

    fn name(&self, name: &ObjectName) -> Name {
        let (schema, name) = name.qualified();
        (schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_owned()), name)
    }

    fn at(&self, e: Error, node: &impl Place) -> Error {
        match self.source.of(node) {
            Some(span) => e.at(span),
            None => e,
        }
    }

    fn table(&self, name: &ObjectName) -> Result<TableDef> {
        let (schema, table) = name.qualified();
        let found = self.catalog.table(schema.as_deref(), &table);
        found.map(|t| (*t).clone()).ok_or_else(|| {
            self.at(Error::unknown_table(format!("relation \"{table}\" does not exist")), name)
                .hint("Put the CREATE TABLE of a referenced table first.")
        })
    }

    /// Returns the type with a name. An undefined type is opaque, since the server may have this type.
    fn ty(&self, ty: &TypeName) -> Result<Type> {
        let named = |schema: Option<&str>, name: &str| {
            let found = self.catalog.named_type(schema, name);
            found.or_else(|| (!PSEUDO.contains(&name)).then(|| self.opaque_type(schema, name, ty)))
        };
        ty.resolve(&named).or_else(|name| {
            let name = name.to_lowercase();
            match PSEUDO.contains(&name.as_str()) {
                true => Err(Error::unknown_object(format!("type \"{name}\" does not exist"))),
                false => Ok(self.opaque_type(None, &name, ty)),
            }
        })
    }

    fn opaque_type(&self, schema: Option<&str>, name: &str, place: &TypeName) -> Type {
        let schema = schema.unwrap_or(DEFAULT_SCHEMA).to_owned();
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
        let e = match place.object() {
            Some(name) => self.at(e, name),
            None => e,
        };
        let mut opaque = self.opaque.borrow_mut();
        if opaque.iter().all(|(k, _)| *k != key) {
            opaque.push((key, e));
        }
        ty
    }

    fn is_constrained(&self, ty: &TypeName) -> bool {
        ty.object().is_some_and(|name| {
            let (schema, name) = name.qualified();
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
        let primary = |c: &&TableConstraint| matches!(c, TableConstraint::PrimaryKey { .. });
        for c in t.constraints.iter().filter(primary) {
            self.constraint(&mut def, c, true)?;
        }
        for column in &t.columns {
            self.column_constraints(&mut def, column)?;
        }
        for c in t.constraints.iter().filter(|c| !primary(c)) {
            self.constraint(&mut def, c, true)?;
        }
        for parent in t.inherits.iter().chain(&t.partition_of) {
            self.catalog.add_table(TableDef { descendants: true, ..self.table(parent)? })?;
        }
        self.catalog.add_table(def)
    }

    /// Adds the columns that a table gets from other tables by INHERITS, PARTITION OF and LIKE. By PARTITION
    /// OF, the table also gets the keys.
    fn inherited(&self, def: &mut TableDef, t: &CreateTable) -> Result<()> {
        for parent in t.inherits.iter().chain(&t.partition_of).chain(&t.like) {
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

    fn add_column(&self, def: &mut TableDef, column: &Column) -> Result<()> {
        let name = column.name.folded();
        if def.column(&name).is_some() {
            let e = Error::setting(format!("column \"{name}\" of \"{}\" is given more than once", def.name));
            return Err(self.at(e, &column.name));
        }
        let serial = column.ty.object().is_some_and(|n| n.qualified().1.ends_with("serial"));
        let ty = self.ty(&column.ty).map_err(|e| self.at(e, &column.name))?;
        let ty = match &column.collation {
            Some(name) => self.collated(ty, name),
            None => ty,
        };
        let generated = column.generated.as_ref().map(|g| match g.is_virtual {
            true => Generated::Virtual(g.text.as_str().into()),
            false => Generated::Stored(g.text.as_str().into()),
        });
        def.columns.push(ColumnDef { generated, ..ColumnDef::new(name, ty, !column.not_null && !serial) });
        Ok(())
    }

    /// Returns a string type under a collation. A collation other than `default` determines the order of
    /// texts. A nondeterministic collation also determines which texts are equal.
    fn collated(&self, ty: Type, name: &ObjectName) -> Type {
        let (schema, collation) = name.qualified();
        if collation == "default" {
            return ty;
        }
        match self.catalog.collation(schema.as_deref(), &collation) {
            Some(found) => ty.collated(&found.sql_name, found.deterministic),
            None => ty,
        }
    }

    fn column_constraints(&self, def: &mut TableDef, column: &Column) -> Result<()> {
        let this = self.column(def, &column.name)?;
        for constraint in &column.constraints {
            match constraint {
                ColumnConstraint::PrimaryKey => add_key(def, vec![this], true),
                ColumnConstraint::Unique { nulls_not_distinct, deferrable } => {
                    if !deferrable && (*nulls_not_distinct || !def.columns[this].nullable) {
                        add_key(def, vec![this], false);
                    }
                }
                ColumnConstraint::ForeignKey(f) => self.foreign_key(def, vec![this], f, true)?,
            }
        }
        Ok(())
    }

    fn constraint(&self, def: &mut TableDef, c: &TableConstraint, validated: bool) -> Result<()> {
        match c {
            TableConstraint::PrimaryKey { columns, deferrable } => {
                let key = self.key_columns(def, columns)?;
                for c in &key {
                    def.columns[*c].nullable = false;
                }
                if !deferrable {
                    add_key(def, key, true);
                }
            }
            TableConstraint::Unique { deferrable: true, .. } | TableConstraint::Other => {}
            TableConstraint::Unique { columns, nulls_not_distinct, deferrable: false } => {
                let key = self.key_columns(def, columns)?;
                if *nulls_not_distinct || key.iter().all(|c| !def.columns[*c].nullable) {
                    add_key(def, key, false);
                }
            }
            TableConstraint::ForeignKey { columns, key } => {
                let columns = columns.iter().map(|c| self.column(def, c)).collect::<Result<_>>()?;
                self.foreign_key(def, columns, key, validated)?;
            }
        }
        Ok(())
    }

    fn column(&self, def: &TableDef, name: &Ident) -> Result<usize> {
        let folded = name.folded();
        def.column(&folded).ok_or_else(|| {
            let e = Error::unknown_column(format!("column \"{folded}\" of \"{}\" does not exist", def.name));
            self.at(e, name)
        })
    }

    fn key_columns<'c>(
        &self,
        def: &TableDef,
        columns: impl IntoIterator<Item = &'c KeyColumn>,
    ) -> Result<Vec<usize>> {
        let column = |c: &KeyColumn| match c {
            KeyColumn::Name(name) => self.column(def, name),
            KeyColumn::Expression(place) => {
                Err(self.at(Error::syntax("a key is a list of column names"), place))
            }
        };
        columns.into_iter().map(column).collect()
    }

    fn foreign_key(
        &self,
        def: &mut TableDef,
        columns: Vec<usize>,
        f: &Reference,
        validated: bool,
    ) -> Result<()> {
        let own = f.table.qualified().1 == *def.name && self.table(&f.table).is_err();
        let target = if own { def.clone() } else { self.table(&f.table)? };
        let target_columns = if f.columns.is_empty() {
            target.keys.first().cloned().unwrap_or_default()
        } else {
            f.columns.iter().map(|c| self.column(&target, c)).collect::<Result<_>>()?
        };
        if target_columns.len() != columns.len() {
            let e = Error::setting(format!(
                "the foreign key of \"{}\" does not fit the key of \"{}\"",
                def.name, target.name
            ));
            return Err(self.at(e, &f.table).hint("Name as many referenced as referencing columns."));
        }
        let validated = validated && !f.deferrable;
        def.foreign_keys.push(ForeignKey { columns, target: target.id, target_columns, validated });
        Ok(())
    }

    fn alter(&self, def: &mut TableDef, op: &AlterOperation) -> Result<()> {
        match op {
            AlterOperation::AddConstraint { constraint, not_valid } => {
                self.constraint(def, constraint, !not_valid)
            }
            AlterOperation::AddColumn(column) => {
                self.add_column(def, column)?;
                self.column_constraints(def, column)
            }
            AlterOperation::AlterColumn { column, change } => {
                let i = self.column(def, column)?;
                match change {
                    ColumnChange::SetNotNull => def.columns[i].nullable = false,
                    ColumnChange::DropNotNull => {
                        def.columns[i].nullable = true;
                        def.keys.retain(|k| !k.contains(&i));
                    }
                    ColumnChange::SetType(ty) => {
                        def.columns[i].ty = self.ty(ty).map_err(|e| self.at(e, column))?;
                    }
                    ColumnChange::Other => {}
                }
                Ok(())
            }
            AlterOperation::RenameColumn { from, to } => {
                let i = self.column(def, from)?;
                def.columns[i].name = Arc::from(to.folded());
                Ok(())
            }
            AlterOperation::RenameTable(name) => {
                def.name = Arc::from(name.qualified().1);
                Ok(())
            }
            AlterOperation::DropColumns(names) => {
                for name in names {
                    let i = self.column(def, name)?;
                    drop_column(def, i);
                }
                Ok(())
            }
            AlterOperation::DropConstraint => {
                // The catalog does not store the names of constraints, so the dropped constraint may be any
                // key, foreign key or NOT NULL of the table.
                def.keys.clear();
                def.foreign_keys.clear();
                def.columns.iter_mut().for_each(|c| c.nullable = true);
                Ok(())
            }
            AlterOperation::Other => Ok(()),
        }
    }

    fn create_index(&mut self, index: &CreateIndex) -> Result<()> {
        if index.partial {
            return Ok(());
        }
        let mut def = self.table(&index.table)?;
        let plain = |c: &&KeyColumn| matches!(c, KeyColumn::Name(_));
        let first = self.key_columns(&def, index.columns.iter().take_while(plain))?;
        if !first.is_empty() {
            self.catalog.add_index(&def, &first);
        }
        if !index.unique || !index.columns.iter().all(|c| plain(&c)) {
            return Ok(());
        }
        let key = self.key_columns(&def, &index.columns)?;
        if index.nulls_not_distinct || key.iter().all(|c| !def.columns[*c].nullable) {
            add_key(&mut def, key, false);
        }
        self.catalog.add_table(def)
    }

    fn create_view(&mut self, v: &CreateView) {
        let (schema, name) = self.name(&v.name);
        let mut query = v.query.clone();
        if !v.columns.is_empty() {
            let columns: Vec<String> = v.columns.iter().map(ToString::to_string).collect();
            let alias = match v.name.parts.as_slice() {
                [only] => only.to_string(),
                _ => Ident::quoted(&name).to_string(),
            };
            query = format!("SELECT * FROM ({query}) AS {alias} ({})", columns.join(", "));
        }
        self.catalog.add_view(&schema, &name, query);
    }

    fn create_type(&mut self, t: &CreateType) -> Result<()> {
        let is_enum = match &t.definition {
            TypeDefinition::Composite(attributes) => return self.create_composite(&t.name, attributes),
            TypeDefinition::Enum => true,
            TypeDefinition::Other => false,
        };
        let (schema, name) = self.name(&t.name);
        let other = OtherType {
            sql_name: format!("{}.{}", quoted(&schema), quoted(&name)),
            equality: true,
            hashable: is_enum,
            ordered: true,
            exact: is_enum,
        };
        self.catalog.add_type(&schema, &name, Type::Other(Arc::new(other)));
        Ok(())
    }

    fn create_composite(&mut self, name: &ObjectName, attributes: &[Attribute]) -> Result<()> {
        let field = |a: &Attribute| {
            let ty = self.ty(&a.ty).map_err(|e| self.at(e, &a.name))?;
            let ty = a.collation.as_ref().map_or_else(|| ty.clone(), |c| self.collated(ty.clone(), c));
            Ok((Arc::from(a.name.folded()), ty))
        };
        let fields = attributes.iter().map(field).collect::<Result<Vec<_>>>()?;
        self.catalog.add_composite(self.name(name), fields);
        Ok(())
    }

    fn create_collation(&mut self, c: &CreateCollation) {
        if c.nondeterministic {
            self.catalog.add_inexact_collation(self.name(&c.name));
        }
    }

    /// Adds an aggregate. The result type is that of the final function. Without a final function, the result
    /// type is the state type.
    fn create_aggregate(&mut self, a: &CreateAggregate) -> Result<()> {
        let (schema, name) = self.name(&a.name);
        let args = a.args.iter().map(|t| self.ty(t)).collect::<Result<Vec<_>>>();
        let (args, state) =
            args.and_then(|args| Ok((args, self.ty(&a.state)?))).map_err(|e| self.at(e, &a.name))?;
        let ret = match &a.finish {
            None => state,
            Some(finish) => {
                let (schema, name) = finish.qualified();
                match self.catalog.function(schema.as_deref(), &name, &[state]) {
                    Some(finish) => finish.ret.clone(),
                    // The final function is built into the server, and its result type is not known here.
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
        let Ok(args) = f.args.iter().map(|ty| self.ty(ty)).collect::<Result<Vec<_>>>() else {
            self.catalog.add_vague(name);
            return Ok(());
        };
        let Some(ret) = &f.returns else { return Ok(()) };
        let columns = f.columns.as_slice();
        let fields = columns.iter().map(|(_, ty)| self.ty(ty)).collect::<Result<Vec<_>>>();
        let set = f.returns_set || !columns.is_empty();
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
        sig.columns = columns.iter().map(|(name, _)| Arc::from(name.folded())).collect();
        if set {
            sig.kind = FuncKind::SetReturning;
        }
        sig.volatility = f.volatility;
        sig.strict = f.strict;
        self.catalog.add_function(sig);
        Ok(())
    }
}

/// Whether an ALTER TABLE changes a fact that the catalog records. Dumps also use ALTER TABLE for views,
/// sequences and defaults.
fn matters(op: &AlterOperation) -> bool {
    match op {
        AlterOperation::AlterColumn { change, .. } => !matches!(change, ColumnChange::Other),
        AlterOperation::AddConstraint { .. }
        | AlterOperation::AddColumn(_)
        | AlterOperation::RenameColumn { .. }
        | AlterOperation::RenameTable(_)
        | AlterOperation::DropColumns(_)
        | AlterOperation::DropConstraint => true,
        AlterOperation::Other => false,
    }
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
