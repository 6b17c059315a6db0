//! Records the changes of tables by ALTER TABLE.

use super::Ddl;
use crate::catalog::TableDef;
use crate::error::Result;
use crate::syntax::{AlterOperation, ColumnChange, ObjectName};
use std::sync::Arc;

impl Ddl<'_> {
    /// Records the changes of one ALTER TABLE. Fails if the table is unknown and some change is not a dropped
    /// constraint.
    pub(super) fn alter_table(&mut self, name: &ObjectName, operations: &[AlterOperation]) -> Result<()> {
        if !operations.iter().any(matters) {
            return Ok(());
        }
        // Scripts that recreate tables drop the constraints of tables that may not exist.
        let drops = |op: &AlterOperation| matches!(op, AlterOperation::DropConstraint) || !matters(op);
        let known = self.table(name);
        if operations.iter().all(drops) && known.is_err() {
            return Ok(());
        }
        let mut def = known?;
        operations.iter().try_for_each(|op| self.alter(&mut def, op))?;
        self.catalog.add_table(def)
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
