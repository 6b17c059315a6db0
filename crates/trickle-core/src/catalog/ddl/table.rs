//! Records the tables that CREATE TABLE defines, with their columns.

use super::Ddl;
use crate::catalog::{Catalog, ColumnDef, Generated, TableDef};
use crate::error::{Error, Result};
use crate::syntax::{Column, CreateTable, TableConstraint};
use std::sync::Arc;

impl Ddl<'_> {
    pub(super) fn create_table(&mut self, t: &CreateTable) -> Result<()> {
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

    pub(super) fn add_column(&self, def: &mut TableDef, column: &Column) -> Result<()> {
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
}
