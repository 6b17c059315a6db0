//! Repairs stored tables and capture triggers that somebody has altered or dropped.

use crate::alter::Alteration;
use crate::capture;
use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::locks::patiently;
use crate::names::Name;
use crate::refresh::Refreshed;
use crate::registry::{Entry, Registry, require_own, shown};
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use trickle_core::catalog::TableId;
use trickle_core::cost::{Inputs, Model, threshold};
use trickle_core::vocabulary::Activity;

/// The inputs of the cost model: the costs of past refreshes, and the estimated numbers of rows of the
/// sources and of the result.
const COSTS: &str = "SELECT cost_model::text, coalesce((SELECT sum(greatest(c.reltuples, 0)) FROM pg_class c \
        JOIN pgtrickle.pgt_dependencies d ON d.source_relid = c.oid WHERE d.pgt_id = s.pgt_id), 0)::int8, \
    coalesce((SELECT greatest(c.reltuples, 0) FROM pg_class c WHERE c.oid = s.pgt_relid), 0)::int8 \
    FROM pgtrickle.pgt_stream_tables s WHERE pgt_id = $1";

impl<C: RefreshDriver> Trickle<C> {
    /// Makes the missing or altered parts of a stream table again, from the stored query. The parts are
    /// hidden tables, the key or index, and the triggers of its sources. Recomputes the stream table
    /// afterwards.
    ///
    /// # Errors
    /// No stream table has that name; another role owns the stream table; its query is not valid any more;
    /// errors of the server.
    pub async fn repair(&mut self, name: &Name) -> Result<Vec<Refreshed>> {
        let e = self.find(name).await?;
        require_own(&e, self.voice())?;
        self.replan(&e).await?;
        let options = RefreshOptions { full: true, ..RefreshOptions::default() };
        self.refresh(std::slice::from_ref(name), &options).await
    }

    /// Makes capture triggers again where they are missing or altered, or are not of the kind that
    /// [`CaptureOptions`](capture::CaptureOptions) requests. Checks the sources of this role's stream tables.
    /// If `only` is not empty, checks only the tables named there. Readers of a repaired table are recomputed
    /// once afterwards. Returns the names of the repaired tables.
    ///
    /// # Errors
    /// No stream table reads a table that `only` names; triggers belong to another role; errors of the
    /// server.
    pub async fn rebuild_triggers(&mut self, only: &[Name]) -> Result<Vec<String>> {
        let mut wanted = BTreeSet::new();
        for name in only {
            wanted.insert(TableId(self.source(name).await?.0));
        }
        let registry = self.registry().await?;
        let mut readers: BTreeMap<TableId, Vec<&Entry>> = BTreeMap::new();
        for e in registry.entries() {
            e.read().for_each(|d| readers.entry(d.relation.id).or_default().push(e));
        }
        let mut rebuilt = Vec::new();
        for (source, readers) in readers {
            // Readers that other roles own are recomputed too (`pgtrickle.mark_readers`).
            let is_meant = wanted.is_empty() || wanted.contains(&source);
            if !is_meant || !readers.iter().any(|e| e.own) {
                continue;
            }
            let name = readers[0].read().find(|d| d.relation.id == source).map(|d| d.relation.clone());
            let Some(name) = name else { continue };
            let mut catalog = crate::catalog::PgCatalog::new();
            let table = capture::table_by_oid(self.db(), &mut catalog, &name.schema, &name.name).await?;
            let Some(table) = table.filter(|t| t.id == source) else { continue };
            let (patience, progress) = (self.settings.patience, self.progress.clone());
            let options = self.settings.capture;
            let made = patiently(&mut self.connection, patience, &[source.0], &*progress, async |t| {
                capture::rebuild(t, &table, options).await
            })
            .await?;
            if made {
                rebuilt.push(format!("{}.{}", name.schema, name.name));
            }
        }
        Ok(rebuilt)
    }

    /// Returns the names of the current role's suspended stream tables.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn suspended(&mut self) -> Result<Vec<String>> {
        let registry = self.registry().await?;
        let suspended = |e: &&Entry| e.own && e.status == Activity::Suspended && !e.is_beside();
        Ok(registry.entries().filter(suspended).map(shown).collect())
    }

    /// Suspends or resumes stream tables: the named ones, or all that the current role owns. The triggers of
    /// a suspended IMMEDIATE stream table still apply changes. Returns the names of the stream tables whose
    /// state changed.
    ///
    /// # Errors
    /// No stream table has one of the names; another role owns one of the stream tables; errors of the
    /// server.
    pub async fn set_suspended(&mut self, names: Option<&[Name]>, suspended: bool) -> Result<Vec<String>> {
        let registry = self.registry().await?;
        let wanted: Vec<TableId> = match names {
            Some(names) => registry.ids(names, &self.search_path)?,
            None => registry.entries().filter(|e| e.own).map(|e| e.relation.id).collect(),
        };
        let entries: Vec<&Entry> = wanted.iter().filter_map(|id| registry.by_table(*id)).collect();
        entries.iter().try_for_each(|e| require_own(e, self.voice()))?;
        let mut done = Vec::new();
        for e in entries.into_iter().filter(|e| (e.status == Activity::Suspended) != suspended) {
            if suspended {
                let text = "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', consecutive_errors = 0, updated_at = now() \
                     WHERE pgt_id = $1";
                let paused = self.db().execute(text, &[&e.id]).await;
                paused.map_err(|err| Error::server(format!("pause {}", shown(e)), err))?;
            } else {
                let name =
                    Name { schema: Some(e.relation.schema.to_string()), name: e.relation.name.to_string() };
                let wanted = Alteration { suspended: Some(false), ..Alteration::default() };
                self.alter(&name, &wanted).await?;
            }
            done.push(shown(e));
        }
        Ok(done)
    }

    /// Returns the ratio of changed rows to source rows above which a recompute is expected to cost less
    /// than the delta. The value 0 means that a recompute always costs less, and the value 2 that it never
    /// does. Returns `None` where the stream table has no delta.
    ///
    /// # Errors
    /// No stream table has that name; its query is not valid any more; errors of the server.
    pub async fn threshold(&mut self, name: &Name) -> Result<Option<f64>> {
        let e = self.find(name).await?;
        let ways = self.runnable(&e).await?.program.strategies().to_vec();
        if !ways.iter().any(|w| w.is_incremental()) {
            return Ok(None);
        }
        let row = self.db().query_one(COSTS, &[&e.id]).await;
        let row = row.map_err(|err| Error::server("read what refreshes have cost", err))?;
        let model = row.get::<Option<String>>(0).and_then(|json| serde_json::from_str::<Model>(&json).ok());
        let rows = |i: usize| u64::try_from(row.get::<i64>(i)).unwrap_or_default();
        let inputs = Inputs { delta_rows: 0, source_rows: rows(1), result_rows: rows(2) };
        Ok(Some(threshold(&model.unwrap_or_default(), &inputs, &ways)))
    }
}

/// A stream table in the tree of stream tables, with its sources, its readers and its level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// The name of the stream table.
    pub name: String,
    /// The level of the stream table. A stream table that reads no other stream table has level 1. Any other
    /// stream table has a level 1 higher than the greatest level of its sources.
    pub level: u32,
    /// The relations that the stream table reads.
    pub reads: Vec<String>,
    /// The stream tables that read the stream table.
    pub read_by: Vec<String>,
}

/// Returns all stream tables with their sources and readers, in an order in which each comes after the
/// stream tables that it reads.
///
/// # Errors
/// The stream tables of the catalog read each other in a circle.
pub fn tree(registry: &Registry) -> Result<Vec<TreeNode>> {
    let dag = registry.dag()?;
    let mut all = Vec::new();
    for (level, ids) in (1..).zip(dag.levels()) {
        for e in ids.iter().filter_map(|id| registry.by_table(*id)) {
            let readers = dag.readers(e.relation.id);
            all.push(TreeNode {
                name: shown(e),
                level,
                reads: e
                    .dependencies
                    .iter()
                    .map(|d| format!("{}.{}", d.relation.schema, d.relation.name))
                    .collect(),
                read_by: readers.iter().filter_map(|id| registry.by_table(*id)).map(shown).collect(),
            });
        }
    }
    Ok(all)
}
