//! Small random tables with many NULLs and duplicates, and random changes of them.

use super::{Choice, timed};
use crate::catalog::{ColumnDef, TableDef, TableId};
use crate::eval::{Database, Row, ZSet};
use crate::types::{Datum, Numeric, Type};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Returns the tables that random plans read: two with a key, one with a key of two columns, one without a
/// key.
pub fn tables() -> Vec<Arc<TableDef>> {
    let t = |id: u32, name: &str, cols: &[(&str, Type, bool)], keys: Vec<Vec<usize>>| {
        let columns = cols.iter().map(|(n, ty, nullable)| ColumnDef::new(*n, ty.clone(), *nullable));
        Arc::new(TableDef { keys, ..TableDef::new(TableId(id), "public", name, columns.collect()) })
    };
    vec![
        t(
            1,
            "a",
            &[("id", Type::Int4, false), ("k", Type::Int4, true), ("v", Type::Int4, true)],
            vec![vec![0]],
        ),
        t(
            2,
            "b",
            &[("id", Type::Int4, false), ("k", Type::Int4, true), ("w", Type::Int4, false)],
            vec![vec![0]],
        ),
        t(
            3,
            "c",
            &[("k", Type::Int4, true), ("s", Type::Text, true), ("n", Type::Numeric(Some((4, 1))), true)],
            vec![],
        ),
        t(
            4,
            "d",
            &[("x", Type::Int4, false), ("y", Type::Int4, false), ("f", Type::Bool, true)],
            vec![vec![0, 1]],
        ),
    ]
}

/// Returns the tables of [`tables`] with other column types, whose equal values may have different images:
/// numerics, floats, texts with blanks at the end.
pub fn inexact_tables() -> Vec<Arc<TableDef>> {
    let retyped = |def: Arc<TableDef>| {
        let mut def = TableDef::clone(&def);
        for column in &mut def.columns {
            column.ty = match (&*column.name, &column.ty) {
                ("v", _) | (_, Type::Numeric(_)) => Type::Numeric(None),
                ("w", _) => Type::Float8,
                (_, Type::Text) => Type::Bpchar(None),
                (_, ty) => ty.clone(),
            };
        }
        Arc::new(def)
    };
    tables().into_iter().map(retyped).collect()
}

/// Returns a database without rows in any table.
pub fn empty_database() -> Database {
    Database::default()
}

/// Makes a random state of `tables` and a random change of it. The states before and after the change satisfy
/// keys and NOT NULL. A table has at most `rows` rows.
pub fn change(choice: &mut Choice, tables: &[Arc<TableDef>], rows: usize) -> Database {
    let mut db = Database { clock: timed::clock(choice), ..Database::default() };
    for table in tables {
        let before = state(choice, table, rows, &[]);
        let mut delta = ZSet::new();
        let mut kept: Vec<Row> = Vec::new();
        let touched = !choice.one_in(3);
        for row in &before {
            if touched && choice.one_in(2) {
                delta.add(row.clone(), -1);
            } else {
                kept.push(row.clone());
            }
        }
        if touched {
            for row in state(choice, table, rows.div_ceil(2), &kept) {
                delta.add(row, 1);
            }
        }
        let mut state = ZSet::new();
        for row in before {
            state.add(row, 1);
        }
        db.before.insert(table.id, state);
        db.delta.insert(table.id, delta);
    }
    db
}

/// Makes up to `rows` rows. Their keys differ from each other and from the keys of the rows `beside`.
fn state(choice: &mut Choice, table: &TableDef, rows: usize, beside: &[Row]) -> Vec<Row> {
    let key = |row: &Row| table.keys.first().map(|k| k.iter().map(|c| row[*c].clone()).collect::<Vec<_>>());
    let mut taken: BTreeSet<Vec<Datum>> = beside.iter().filter_map(key).collect();
    let mut made = Vec::new();
    for _ in 0..choice.below(rows + 1) {
        let row: Row = table.columns.iter().map(|c| value(choice, &c.ty, c.nullable)).collect();
        if key(&row).is_none_or(|k| taken.insert(k)) {
            made.push(row);
        }
    }
    made
}

/// Draws a value from a domain of two or three values, or NULL.
pub(super) fn value(choice: &mut Choice, ty: &Type, nullable: bool) -> Datum {
    if nullable && choice.one_in(3) {
        return Datum::Null;
    }
    match ty {
        Type::Bool => Datum::Bool(choice.below(2) == 1),
        Type::Text => Datum::text(["", "a", "b"][choice.below(3)]),
        Type::Bpchar(_) => Datum::text(["a", "a ", "b"][choice.below(3)]),
        Type::Float8 => Datum::Float([0.0, -0.0, 1.0][choice.below(3)]),
        Type::Numeric(None) => {
            let (unscaled, scale) = [(10, 1), (100, 2), (5, 1)][choice.below(3)];
            Datum::Numeric(Arc::new(Numeric::Finite { unscaled: unscaled.into(), scale }))
        }
        Type::Numeric(_) => {
            let unscaled = [0, 5, 10][choice.below(3)];
            Datum::Numeric(Arc::new(Numeric::Finite { unscaled: unscaled.into(), scale: 1 }))
        }
        Type::Array(element) => {
            Datum::Array((0..choice.below(3)).map(|_| value(choice, element, true)).collect())
        }
        _ => Datum::Int([0, 1, 2][choice.below(3)]),
    }
}
