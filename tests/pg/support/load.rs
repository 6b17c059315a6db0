//! Makes tables of the core's catalog, and rows of its evaluator, on a server.

use trickle_client::Session;
use trickle_core::catalog::TableDef;
use trickle_core::eval::ZSet;
use trickle_core::types::{Datum, Type};

/// Greatest number of rows in one INSERT.
const BATCH: usize = 500;

/// Creates tables with their keys. Then creates the validated foreign keys between the tables.
pub(crate) async fn create_tables(session: &Session, tables: &[&TableDef]) {
    let mut sql = String::new();
    for table in tables {
        let column = |c: &trickle_core::catalog::ColumnDef| {
            format!("{} {}{}", quote(&c.name), c.ty.sql_name(), if c.nullable { "" } else { " NOT NULL" })
        };
        let mut parts: Vec<String> = table.columns.iter().map(column).collect();
        for (i, key) in table.keys.iter().enumerate() {
            let kind = if i == 0 { "PRIMARY KEY" } else { "UNIQUE" };
            parts.push(format!("{kind} ({})", columns(table, key)));
        }
        sql += &format!("CREATE SCHEMA IF NOT EXISTS {};\n", quote(&table.schema));
        sql += &format!("CREATE TABLE {} ({});\n", name(table), parts.join(", "));
    }
    for table in tables {
        for key in table.foreign_keys.iter().filter(|k| k.validated) {
            let target =
                tables.iter().find(|t| t.id == key.target).expect("a foreign key's target is created too");
            sql += &format!(
                "ALTER TABLE {} ADD FOREIGN KEY ({}) REFERENCES {} ({});\n",
                name(table),
                columns(table, &key.columns),
                name(target),
                columns(target, &key.target_columns),
            );
        }
    }
    run(session, &sql).await;
}

/// Applies a change, or fills an empty table. Rows with negative weights are deleted as often as their weight
/// says. Then rows with positive weights are inserted. A row to delete is found by its image, so 1.0 is never
/// deleted instead of 1.00.
pub(crate) async fn apply_change(session: &Session, table: &TableDef, change: &ZSet) {
    let mut sql = String::new();
    for (row, weight) in change.iter().filter(|(_, w)| *w < 0) {
        let same: Vec<String> = table
            .columns
            .iter()
            .zip(row.iter())
            .map(|(c, d)| {
                format!("{}::text IS NOT DISTINCT FROM {}::text", quote(&c.name), literal(d, &c.ty))
            })
            .collect();
        let same = if same.is_empty() { "true".to_owned() } else { same.join(" AND ") };
        let table = name(table);
        sql += &format!(
            "DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table} WHERE {same} LIMIT {}));\n",
            weight.unsigned_abs()
        );
    }
    let mut values = Vec::new();
    for (row, weight) in change.iter().filter(|(_, w)| *w > 0) {
        let row: Vec<String> = table.columns.iter().zip(row.iter()).map(|(c, d)| literal(d, &c.ty)).collect();
        let row = format!("({})", row.join(", "));
        values.extend(std::iter::repeat_n(row, usize::try_from(weight).unwrap()));
    }
    for batch in values.chunks(BATCH) {
        if table.columns.is_empty() {
            sql += &format!("INSERT INTO {} DEFAULT VALUES;\n", name(table)).repeat(batch.len());
        } else {
            sql += &format!("INSERT INTO {} VALUES {};\n", name(table), batch.join(", "));
        }
    }
    run(session, &sql).await;
}

async fn run(session: &Session, sql: &str) {
    session.client().batch_execute(sql).await.unwrap_or_else(|e| panic!("{e:?}\n{sql}"));
}

/// Returns a value in its text form, cast to the column's type.
fn literal(datum: &Datum, ty: &Type) -> String {
    match datum.to_text(ty) {
        None => format!("NULL::{}", ty.sql_name()),
        Some(text) => format!("'{}'::{}", text.replace('\'', "''"), ty.sql_name()),
    }
}

fn name(table: &TableDef) -> String {
    format!("{}.{}", quote(&table.schema), quote(&table.name))
}

fn columns(table: &TableDef, positions: &[usize]) -> String {
    let names: Vec<String> = positions.iter().map(|&i| quote(&table.columns[i].name)).collect();
    names.join(", ")
}

/// Returns a name in quotes. Every name gets quotes, so no name is a special case.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
