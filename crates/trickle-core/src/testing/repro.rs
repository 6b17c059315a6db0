//! A counterexample as something to paste.

use super::Sample;
use crate::eval::Database;
use crate::graph::{Format, explain};
use crate::rel::Rel;
use std::fmt::Write;

/// The plan and the rows that it read.
pub fn reproduction(sample: &Sample, db: &Database) -> String {
    let mut out = format!("plan:\n{}", explain(&sample.graph, sample.root, Format::Text));
    let mut shown = Vec::new();
    for id in sample.graph.reachable(sample.root) {
        if let Rel::Table(t) = sample.graph.rel(id) {
            let def = t.def();
            if shown.contains(&def.id) {
                continue;
            }
            shown.push(def.id);
            for (what, rows) in [("before", db.before.get(&def.id)), ("change", db.delta.get(&def.id))] {
                if let Some(rows) = rows.filter(|r| !r.is_empty()) {
                    let _ = write!(out, "{}.{} {what}:\n{rows}", def.schema, def.name);
                }
            }
        }
    }
    out
}
