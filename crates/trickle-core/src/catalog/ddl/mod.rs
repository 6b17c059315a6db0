//! Reads DDL statements and records their objects in a [`MemoryCatalog`].

mod alter;
mod constraint;
mod function;
mod table;
mod types;

use super::memory::{DEFAULT_SCHEMA, MemoryCatalog, Name};
use super::{Catalog, TableDef};
use crate::error::{Error, Result};
use crate::parse::Source;
use crate::syntax::{CreateView, Ident, ObjectName, Place, Statement};
use std::cell::RefCell;

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
            Statement::AlterTable { name, operations } => self.alter_table(&name, &operations),
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
}
