//! The sources whose changes must be captured for a new stream table.

use crate::capture;
use crate::catalog::PgCatalog;
use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::names::HIDDEN;
use crate::resolve::Resolved;
use crate::trickle::Trickle;
use std::sync::Arc;
use trickle_core::catalog::{TableDef, TableKind};
use trickle_core::{Cause, Reason, ReasonKind};

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the sources of an incremental query whose changes can be captured. Adds a reason against
    /// deltas for every other source.
    pub(super) fn capturable(
        &self,
        resolved: &Resolved,
        sources: Vec<(Arc<TableDef>, Vec<usize>)>,
        reasons: &mut Vec<Reason>,
    ) -> Vec<(Arc<TableDef>, Vec<usize>)> {
        let mut captured = Vec::new();
        for (table, columns) in sources {
            let place = format!("{}.{}", table.schema, table.name);
            let dependency = resolved.dependencies.iter().find(|d| d.oid == table.id.0);
            let owned = dependency.is_some_and(|d| d.owned);
            let is_secured = dependency.is_some_and(|d| d.row_security.is_some());
            let kind = if is_secured { TableKind::View } else { table.kind };
            let against = match kind {
                TableKind::Table | TableKind::StreamTable if owned && &*table.schema != "pg_catalog" => None,
                TableKind::Table | TableKind::StreamTable => Some((
                    format!("the table {place} of {}", dependency.map_or("another owner", |d| &d.owner)),
                    "Only its owner may capture the changes of a table: make the stream table as that role.",
                )),
                TableKind::View => Some((
                    format!("row-level security on {place}"),
                    "What is read depends on who reads: query the table as its owner, or without policies.",
                )),
                TableKind::MaterializedView => Some((
                    format!("the materialized view {place}"),
                    self.voice().one(
                        "Create it with --snapshots, which reads all of the view at each refresh and compares, or make the view \
                         a stream table, whose changes are known.",
                        "Make the view a stream table, whose changes are known; or create this one by the program with trickle \
                         create --snapshots, which reads all of the view at each refresh and compares.",
                    ),
                )),
                TableKind::ForeignTable => Some((
                    match table.descendants {
                        true => {
                            format!("the table {place}, of whose partitions or children some are foreign")
                        }
                        false => format!("the foreign table {place}"),
                    },
                    self.voice().one(
                        "Its changes happen elsewhere: create it with --snapshots, which reads all of the table at each refresh \
                         and compares.",
                        "Its changes happen elsewhere: create it by the program with trickle create --snapshots, which reads all \
                         of the table at each refresh and compares.",
                    ),
                )),
            };
            match against {
                None => captured.push((table, columns)),
                Some((construct, help)) => {
                    reasons.push(Reason {
                        span: None,
                        kind: ReasonKind::NotYet,
                        cause: Cause::Source,
                        construct,
                        help: help.to_owned(),
                    });
                }
            }
        }
        captured
    }

    /// Returns the sources of a query that full refreshes bring up to date, if the changes of all of them
    /// can be captured; otherwise none. A refresh of such a query does nothing where no change was captured.
    pub(super) async fn watched(
        &self,
        catalog: &mut PgCatalog,
        resolved: &Resolved,
    ) -> Result<Vec<(Arc<TableDef>, Vec<usize>)>> {
        let mut watched = Vec::new();
        for d in resolved.dependencies.iter().filter(|d| d.relkind != "v") {
            let table = capture::table_by_oid(self.db(), catalog, &d.schema, &d.name).await?;
            let Some(table) = table else { return Ok(Vec::new()) };
            let known = matches!(table.kind, TableKind::Table | TableKind::StreamTable);
            if !known || d.row_security.is_some() || !d.owned || d.schema == "pg_catalog" {
                return Ok(Vec::new());
            }
            let stored = |c: &usize| table.columns[*c].is_stored();
            let columns = (0..table.columns.len()).filter(stored).collect();
            watched.push((table, columns));
        }
        Ok(watched)
    }

    /// Whether a stream table reads copies of its sources.
    pub(super) async fn follows_copies(&self, id: i64) -> Result<bool> {
        let text = "SELECT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables c \
             ON c.pgt_relid = d.source_relid WHERE d.pgt_id = $1 AND c.pgt_schema = $2)";
        let row = self.db().query_one(text, &[&id, &HIDDEN]).await;
        Ok(row.map_err(|e| Error::server("look for copies", e))?.get(0))
    }
}
