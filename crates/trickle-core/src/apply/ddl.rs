//! The tables and indexes of a layout.

use super::change::row_hash;
use super::layout::{Identity, Layout, Stored};
use crate::sql::Ident;
use crate::sql::ast::{
    AddPrimaryKey, ColumnSpec, CreateIndex, CreateTable, DropObject, ObjectKind, Scalar, Statement,
};

/// The fill factor that leaves room in each page for new versions of its rows. Updates of keyed tables
/// therefore stay HOT.
const FILLFACTOR: u8 = 80;

/// Builds the statements that create every table of `layout`, with the indexes by which refreshes find its
/// rows.
pub(crate) fn create_statements(layout: &Layout) -> Vec<Statement> {
    layout.tables().flat_map(create_table).collect()
}

/// Builds the statements that drop every table of `layout`.
pub(crate) fn drop_statements(layout: &Layout) -> Vec<Statement> {
    let drop = |t: &Stored| {
        Statement::Drop(DropObject { kind: ObjectKind::Table, name: t.name.clone(), cascade: false })
    };
    layout.tables().map(drop).collect()
}

/// Builds the statements that create one table, with the indexes by which refreshes find its rows.
pub(crate) fn create_table(table: &Stored) -> Vec<Statement> {
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
    made.extend(indexes(table));
    made
}

/// Builds the statements that add the key and the indexes of [`create_table`] to a table that has the columns
/// of `table` but no key.
pub(crate) fn identity_statements(table: &Stored) -> Vec<Statement> {
    let key = key(table);
    if is_declared(table) && !key.is_empty() {
        let columns = table.names(key);
        let primary = Statement::AddPrimaryKey(AddPrimaryKey { table: table.name.clone(), columns });
        return std::iter::once(primary).chain(indexes(table)).collect();
    }
    indexes(table)
}

fn key(table: &Stored) -> &[usize] {
    match &table.identity {
        Identity::Key(key) => key,
        _ => &[],
    }
}

/// Whether the key can be a primary key, which is so if none of its columns may be NULL.
fn is_declared(table: &Stored) -> bool {
    key(table).iter().all(|k| !table.columns[*k].nullable)
}

/// The suffixes in the names of a stored table's indexes: for a key, for a bag's rows, for a lookup, for keys
/// with NULLs. A result has at most one lookup index, by which a refresh finds the result's own old rows.
const SUFFIXES: [&str; 4] = ["_key", "_row", "_part", "_null"];

/// Returns the names that the indexes of a stored table named `table` can have.
pub fn index_names(table: &Ident) -> [Ident; 4] {
    SUFFIXES.map(|suffix| table.with_suffix(suffix))
}

fn indexes(table: &Stored) -> Vec<Statement> {
    let column = |i: &usize| Scalar::Column { table: None, name: table.columns[*i].name.clone() };
    let columns = |of: &[usize]| of.iter().map(column).collect::<Vec<_>>();
    let identity = match &table.identity {
        Identity::Single => None,
        Identity::Key(_) if is_declared(table) => None,
        Identity::Key(key) => Some((SUFFIXES[0].to_owned(), columns(key), true)),
        Identity::Bag => {
            let hashable = table.hashable();
            (!hashable.is_empty())
                .then(|| (SUFFIXES[1].to_owned(), vec![row_hash(columns(&hashable))], false))
        }
    };
    let lookups = table.lookups.iter().enumerate().map(|(i, by)| {
        let number = if i == 0 { String::new() } else { (i + 1).to_string() };
        (format!("{}{number}", SUFFIXES[2]), columns(by), false)
    });
    let create = |(suffix, keys, unique): (String, Vec<Scalar>, bool)| CreateIndex {
        name: table.name.name.with_suffix(&suffix),
        table: table.name.clone(),
        unique,
        if_not_exists: false,
        keys,
        nulls_not_distinct: unique,
        filter: None,
    };
    let nullable = table.null_keys();
    let nulls = (!nullable.is_empty()).then(|| CreateIndex {
        filter: Some(Scalar::or(nullable.iter().map(|k| column(k).is_null()))),
        ..create((SUFFIXES[3].to_owned(), vec![row_hash(columns(key(table)))], false))
    });
    let plain: Vec<CreateIndex> = identity.into_iter().chain(lookups).map(create).collect();
    plain.into_iter().chain(nulls).map(Statement::CreateIndex).collect()
}
