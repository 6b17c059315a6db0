//! The statement that writes the rows whose keys may have changed.

use super::change::{
    Against, Gone, delete_at, dml, done, insert_into, names_beside, same, stored_at, upsert,
};
use super::layout::Stored;
use crate::sql::ast::{
    ConflictAction, Cte, CteBody, FromItem, Insert, OnConflict, Query, Scalar, Select, SelectItem, Statement,
};
use crate::sql::{Ident, Named, Qualified};
use crate::types::Type;

/// Builds the one statement that brings a table with the key `key` up to date from the rows whose keys a
/// change may have touched. The statement returns one row: the numbers of rows inserted, updated and deleted.
/// Rows that did not change are looked up (and locked, as ON CONFLICT does), but not written.
pub(crate) fn affected_statement(
    ctes: Vec<Cte>,
    (keys, rows): (&Named, &Named),
    table: &Stored,
    key: &[usize],
) -> Statement {
    let mut names = names_beside(&ctes);
    let (removed, written) = (names.fresh("removed"), names.fresh("written"));
    let mut query = Query::select(Select { items: done(&removed, &written), ..Select::default() });
    query.ctes = ctes;
    let gone = stored_at(table, key, &without_row(table, key, keys, rows), Against::Plan);
    query.ctes.push(dml(removed, CteBody::Delete(delete_at(table, gone))));
    query.ctes.push(dml(written, CteBody::Insert(coming(table, key, rows))));
    Statement::Query(query)
}

/// Returns the affected keys without a current row.
fn without_row(table: &Stored, key: &[usize], keys: &Named, rows: &Named) -> Gone {
    let (k, r) = (Ident::fixed("d"), Ident::fixed("r"));
    let of = |alias: &Ident, named: &Named, i: usize| Scalar::column(alias, &named.columns[i]);
    let matching = key.iter().enumerate().map(|(i, c)| same(table, *c, of(&r, rows, *c), of(&k, keys, i)));
    let row = Select {
        items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
        from: vec![FromItem::relation(Qualified::bare(rows.relation.clone()), r.clone())],
        filter: matching.collect(),
        ..Select::default()
    };
    Gone {
        from: FromItem::relation(Qualified::bare(keys.relation.clone()), k.clone()),
        key: (0..key.len()).map(|i| of(&k, keys, i)).collect(),
        filter: vec![Scalar::Exists { query: Box::new(Query::select(row)), negated: true }],
    }
}

/// Builds the INSERT that writes the rows of the affected keys. Stored and new rows are compared by their
/// images, all columns in one comparison (`*<>`, PostgreSQL 9.24.6). An equal value with another image
/// therefore counts as changed.
fn coming(table: &Stored, key: &[usize], rows: &Named) -> Insert {
    let (d, t, excluded) = (Ident::fixed("d"), Ident::fixed("t"), Ident::fixed("excluded"));
    let select = Select {
        items: rows.columns.iter().map(|c| SelectItem { expr: Scalar::column(&d, c), name: None }).collect(),
        from: vec![FromItem::relation(Qualified::bare(rows.relation.clone()), d.clone())],
        ..Select::default()
    };
    // Without the cast, PostgreSQL would apply the operator to each pair of columns of the two ROW(…).
    let record = Type::Record(table.columns.iter().map(|c| c.ty.clone()).collect());
    let values = |of: &Ident| table.columns.iter().map(|c| Scalar::column(of, &c.name)).collect();
    let row = |of: &Ident| Scalar::Row(values(of)).cast(record.clone());
    let differs = row(&t).op("*<>", row(&excluded));
    // If all columns belong to the key, a stored row needs no update.
    let nothing = OnConflict { columns: table.names(key), action: ConflictAction::Nothing };
    let on_conflict = upsert(table, key, vec![differs]).or(Some(nothing));
    Insert { alias: Some(t), ..insert_into(table, select, on_conflict) }
}
