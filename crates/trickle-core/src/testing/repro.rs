//! The text of a counterexample, ready to be pasted.

use super::Sample;
use crate::catalog::TableDef;
use crate::error::{Error, Result};
use crate::eval::{Database, ZSet};
use crate::graph::{Format, NodeId, explain};
use crate::rel::{Rel, with_servers_clock};
use crate::sql::{Changes, Ident, Profile, Qualified, Sources, Stored, render_query};
use crate::types::{Datum, Type};
use std::fmt::Write;
use std::sync::Arc;

/// Writes the plan. Then writes, as SQL, the tables that the sample reads, with their rows, and the query and
/// the change.
pub fn reproduction(sample: &Sample, db: &Database) -> String {
    let mut out = format!("plan:\n{}", explain(&sample.graph, sample.root, Format::Text));
    let time = |t: i64| Datum::Timestamp(t).to_text(&Type::Timestamptz).unwrap_or_default();
    let _ = writeln!(out, "-- then {}, now {}", time(db.clock.then), time(db.clock.now));
    let defs = tables(sample);
    for def in &defs {
        create(&mut out, def);
        if let Some(rows) = db.before.get(&def.id) {
            change(&mut out, def, rows);
        }
    }
    let columns = sample.graph.schema(sample.root).len();
    let names: Vec<Arc<str>> = (0..columns).map(|i| format!("c{i}").into()).collect();
    let (graph, root) = match with_servers_clock(&sample.graph, sample.root) {
        Ok(made) => made,
        Err(_) => (sample.graph.clone(), sample.root),
    };
    match render_query(&graph, root, &TablesOnly, &Profile::default(), &names) {
        Ok(query) => {
            let _ = writeln!(out, "{query};");
        }
        Err(e) => {
            let _ = writeln!(out, "-- the query cannot be rendered: {e}");
        }
    }
    out.push_str("-- the change\n");
    for def in &defs {
        if let Some(rows) = db.delta.get(&def.id) {
            change(&mut out, def, rows);
        }
    }
    out
}

/// Returns the tables that a sample reads.
fn tables(sample: &Sample) -> Vec<Arc<TableDef>> {
    let mut found: Vec<Arc<TableDef>> = Vec::new();
    for id in sample.graph.reachable(sample.root) {
        if let Rel::Table(t) = sample.graph.rel(id)
            && found.iter().all(|def| def.id != t.def().id)
        {
            found.push(t.def().clone());
        }
    }
    found
}

/// The sources of a query that reads only tables, and no changes or states.
struct TablesOnly;

impl Sources for TablesOnly {
    fn changes(&self, def: &TableDef) -> Result<Changes> {
        Err(Error::plan(format!("the change of {} in a query", def.name)))
    }
    fn state(&self, of: NodeId) -> Result<Stored> {
        Err(Error::plan(format!("the stored result of {of} in a query")))
    }
}

fn create(out: &mut String, def: &TableDef) {
    let mut parts: Vec<String> = def
        .columns
        .iter()
        .map(|c| {
            let null = if c.nullable { "" } else { " NOT NULL" };
            format!("{} {}{null}", Ident::new(&c.name), c.ty)
        })
        .collect();
    for (i, key) in def.keys.iter().enumerate() {
        let names: Vec<String> = key.iter().map(|k| Ident::new(&def.columns[*k].name).to_string()).collect();
        let kind = if i == 0 { "PRIMARY KEY" } else { "UNIQUE" };
        parts.push(format!("{kind} ({})", names.join(", ")));
    }
    let name = Qualified::new(&def.schema, &def.name);
    let _ = writeln!(out, "CREATE TABLE {name} ({});", parts.join(", "));
}

/// Writes the change of a table as one statement for each changed row. Deletes come first.
fn change(out: &mut String, def: &TableDef, rows: &ZSet) {
    let name = Qualified::new(&def.schema, &def.name);
    for (row, weight) in rows.iter().filter(|(_, w)| *w < 0) {
        let same: Vec<String> = def
            .columns
            .iter()
            .zip(row.iter())
            .map(|(c, d)| format!("{} IS NOT DISTINCT FROM {}", Ident::new(&c.name), literal(d, &c.ty)))
            .collect();
        let _ = writeln!(
            out,
            "DELETE FROM {name} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {name} WHERE {} LIMIT {}));",
            same.join(" AND "),
            weight.unsigned_abs()
        );
    }
    for (row, weight) in rows.iter().filter(|(_, w)| *w > 0) {
        let values: Vec<String> = row.iter().zip(&def.columns).map(|(d, c)| literal(d, &c.ty)).collect();
        for _ in 0..weight {
            let _ = writeln!(out, "INSERT INTO {name} VALUES ({});", values.join(", "));
        }
    }
}

fn literal(datum: &Datum, ty: &Type) -> String {
    match datum.to_text(ty) {
        None => "NULL".to_owned(),
        Some(text) if matches!(datum, Datum::Int(_)) => text,
        Some(text) => format!("'{}'", text.replace('\'', "''")),
    }
}
