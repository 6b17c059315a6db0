//! The tables and indexes of a layout.

use super::change::row_hash;
use super::layout::{Identity, Layout, Stored};
use crate::sql::Ident;
use crate::sql::ast::{
    AddPrimaryKey, ColumnSpec, CreateIndex, CreateTable, DropObject, ObjectKind, Scalar, Statement,
};

/// Leaves room in each page for the next versions of its rows, so that updates of keyed tables stay HOT.
const FILLFACTOR: u8 = 80;

/// Creates every table of `layout` with the index that its identity needs.
pub fn create_statements(layout: &Layout) -> Vec<Statement> {
    layout.tables().flat_map(create_table).collect()
}

/// Drops every table of `layout`.
pub fn drop_statements(layout: &Layout) -> Vec<Statement> {
    let drop = |t: &Stored| {
        Statement::Drop(DropObject { kind: ObjectKind::Table, name: t.name.clone(), cascade: false })
    };
    layout.tables().map(drop).collect()
}

/// Creates one table with the index that its identity needs.
pub fn create_table(table: &Stored) -> Vec<Statement> {
    let key = key(table);
    let declared = is_declared(table);
    let keyed = !key.is_empty() && key.len() < table.columns.len();
    let columns = table.columns.iter().enumerate().map(|(i, c)| ColumnSpec {
        name: c.name.clone(),
        ty: c.ty.clone(),
        not_null: declared && key.contains(&i),
        default: None,
    });
    let mut made = vec![Statement::CreateTable(CreateTable {
        name: table.name.clone(),
        unlogged: false,
        if_not_exists: false,
        columns: columns.collect(),
        primary_key: if declared { table.names(key) } else { Vec::new() },
        fillfactor: keyed.then_some(FILLFACTOR),
    })];
    made.extend(index(table));
    made
}

/// Gives a table that has the columns of `table` and no key the identity that [`create_table`] gives it.
pub fn identity_statements(table: &Stored) -> Vec<Statement> {
    let key = key(table);
    if is_declared(table) && !key.is_empty() {
        let columns = table.names(key);
        return vec![Statement::AddPrimaryKey(AddPrimaryKey { table: table.name.clone(), columns })];
    }
    index(table).into_iter().collect()
}

fn key(table: &Stored) -> &[usize] {
    match &table.identity {
        Identity::Key(key) => key,
        _ => &[],
    }
}

/// Whether the key can be a primary key: no column of it may be NULL.
fn is_declared(table: &Stored) -> bool {
    key(table).iter().all(|k| !table.columns[*k].nullable)
}

/// The suffixes of an index that gives a table its identity: of a key, of a bag's rows.
const SUFFIXES: [&str; 2] = ["_key", "_row"];

/// The names that the index of a stored table of this name can have.
pub fn index_names(table: &Ident) -> [Ident; 2] {
    SUFFIXES.map(|suffix| table.with_suffix(suffix))
}

fn index(table: &Stored) -> Option<Statement> {
    let column = |i: &usize| Scalar::Column { table: None, name: table.columns[*i].name.clone() };
    let (suffix, keys, unique) = match &table.identity {
        Identity::Single => return None,
        Identity::Key(_) if is_declared(table) => return None,
        Identity::Key(key) => (SUFFIXES[0], key.iter().map(column).collect(), true),
        Identity::Bag => {
            let hashable = table.hashable();
            if hashable.is_empty() {
                return None;
            }
            (SUFFIXES[1], vec![row_hash(hashable.iter().map(column).collect())], false)
        }
    };
    let name = table.name.name.with_suffix(suffix);
    Some(Statement::CreateIndex(CreateIndex {
        name,
        table: table.name.clone(),
        unique,
        if_not_exists: false,
        keys,
        nulls_not_distinct: unique,
    }))
}
