//! Records the keys and foreign keys of tables, and the indexes.

use super::Ddl;
use crate::catalog::{ForeignKey, TableDef};
use crate::error::{Error, Result};
use crate::syntax::{
    Column, ColumnConstraint, CreateIndex, ForeignKey as Reference, Ident, KeyColumn, TableConstraint,
};

impl Ddl<'_> {
    pub(super) fn column_constraints(&self, def: &mut TableDef, column: &Column) -> Result<()> {
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

    pub(super) fn constraint(&self, def: &mut TableDef, c: &TableConstraint, validated: bool) -> Result<()> {
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

    pub(super) fn column(&self, def: &TableDef, name: &Ident) -> Result<usize> {
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

    pub(super) fn create_index(&mut self, index: &CreateIndex) -> Result<()> {
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
