//! The objects of a stream table: its stored tables, and the capture of changes of its sources.

use super::StreamTable;
use crate::apply::{create_statements, create_table, drop_statements, identity_statements};
use crate::cdc::{Buffer, Mode};
use crate::sql::ast::Statement;
use crate::sql::opaque;
use crate::table::{TableId, TableKind};
use crate::types::Type;
use std::sync::Arc;

impl StreamTable {
    /// Returns the statements that create the stored tables, which are then empty.
    pub fn ddl(&self) -> Vec<Statement> {
        create_statements(&self.layout)
    }
    /// Returns the part of [`StreamTable::ddl`] that creates the table of the result. Its columns have the
    /// types `types`, as the server spells them. Each of these types accepts all values of the column's type
    /// in the plan.
    pub fn result_ddl(&self, types: &[String]) -> Vec<Statement> {
        let mut made = create_table(&self.layout.result);
        for statement in &mut made {
            if let Statement::CreateTable(table) = statement {
                for (column, ty) in table.columns.iter_mut().zip(types) {
                    column.ty = Type::Other(Arc::new(opaque(ty)));
                }
            }
        }
        made
    }
    /// Returns the part of [`StreamTable::ddl`] that creates the state tables.
    pub fn state_ddl(&self) -> Vec<Statement> {
        self.layout.states.iter().flat_map(create_table).collect()
    }
    /// Returns the statements that add the key of [`StreamTable::ddl`] to a table that has the columns of the
    /// result: NOT NULL and primary key, or an index.
    pub fn identity_ddl(&self) -> Vec<Statement> {
        identity_statements(&self.layout.result)
    }
    /// Returns the statements that drop the stored tables.
    pub fn drop_ddl(&self) -> Vec<Statement> {
        drop_statements(&self.layout)
    }

    /// Returns the change buffers that the deltas read, one for each source whose changes can be captured.
    pub fn buffers(&self) -> Vec<Buffer> {
        self.sources()
            .into_iter()
            .filter(|(def, _)| matches!(def.kind, TableKind::Table | TableKind::StreamTable))
            .map(|(def, columns)| Buffer::new(def, &self.options.state_schema, &columns))
            .collect()
    }

    /// Returns, for each source, the statements that start capture, if the source is not captured yet. For a
    /// captured source, [`ChangeSource::widen`](crate::cdc::ChangeSource::widen) adds the columns that its
    /// buffer lacks.
    pub fn capture(&self, mode: Mode) -> Vec<(TableId, Vec<Statement>)> {
        let install = |b: &Buffer| (b.table().id, mode.source().install(b));
        self.buffers().iter().map(install).collect()
    }
}
