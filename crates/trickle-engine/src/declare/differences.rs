//! The differences between a stream table and its declaration.

use super::Declared;
use super::plan::Seen;
use super::queries::same_text;
use crate::catalog::is_copy;
use crate::design::consistency;
use crate::registry::Entry;
use trickle_core::catalog::TableId;

/// The differences between a stream table and its declaration.
pub(super) struct Differences {
    /// Whether the rows of the stream table have to be computed again, or from other sources.
    pub(super) in_rows: bool,
    /// Whether a property differs that only the catalog has.
    pub(super) in_properties: bool,
    /// The differences, for people.
    pub(super) why: Vec<String>,
}

impl Differences {
    /// Compares a stream table with its declaration. `seen` has the properties of the declared query, if that
    /// query can be read now.
    pub(super) fn of(d: &Declared, e: &Entry, seen: Option<&Seen>) -> Differences {
        let mut why = Vec::new();
        let query = is_another_query(d, e, seen);
        if query {
            why.push("query".to_owned());
        }
        let mut differs = |what: &str, before: &str, after: &str| {
            if before != after {
                why.push(format!("{what} {before} → {after}"));
            }
            before != after
        };
        let mode = differs("mode", &e.requested.name().to_lowercase(), &d.mode.name().to_lowercase());
        let manual = |s: &Option<String>| s.clone().unwrap_or_else(|| "manual".to_owned());
        let schedule = differs("schedule", &manual(&e.schedule), &manual(&d.schedule));
        let apart = differs("diamond_consistency", consistency(e.apart), consistency(d.apart));
        let follows = d.snapshots && !e.reads_copies();
        if follows {
            why.push("snapshots".to_owned());
        }
        Differences { in_rows: query || mode || follows, in_properties: schedule || apart, why }
    }
}

/// Whether the declared query differs from the query of the stream table. The names in equal texts may mean
/// other relations and functions than when the stream table was made.
fn is_another_query(d: &Declared, e: &Entry, seen: Option<&Seen>) -> bool {
    let Some(seen) = seen else { return !same_text(&d.query, &e.original) };
    let mut read: Vec<TableId> = seen.reads.iter().map(|(id, _)| *id).collect();
    read.sort_unstable();
    let mut known: Vec<TableId> =
        e.dependencies.iter().filter(|d| !is_copy(&d.relation)).map(|d| d.relation.id).collect();
    known.sort_unstable();
    seen.canonical != e.query || read != known || seen.functions != e.functions
}
