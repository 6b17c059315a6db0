//! The pending changes of stream tables, counted by one query for all of them.

use super::CatalogFacts;
use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::pending::{listed_sources, reader, sources_of};
use crate::registry::{Dependency, Entry, Registry};
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use trickle_core::catalog::TableId;
use trickle_core::refresh::{Reader, Source, pending_text};
use trickle_core::vocabulary::Mode;

/// The pending changes of a stream table and of all stream tables that it reads.
#[derive(Default)]
pub(super) struct Pending {
    /// The pending changes of each source; `None` where a source is not captured.
    pub(super) sources: BTreeMap<TableId, Option<Waiting>>,
    /// Whether one of these stream tables will be planned again or recomputed in any case.
    pub(super) rebuild: bool,
}

/// The pending changes in a buffer: the number of rows, and whether a TRUNCATE or an overflow makes the rows
/// useless.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) rows: i64,
    pub(super) truncated: bool,
    pub(super) overflowed: bool,
}

impl Pending {
    /// Adds the pending changes of a buffer. If several stream tables read a source, the one with the
    /// greatest number of pending changes counts.
    fn add(&mut self, source: TableId, new: Option<Waiting>) {
        let slot = self.sources.entry(source).or_insert(new);
        *slot = slot.zip(new).map(|(a, b)| Waiting {
            rows: a.rows.max(b.rows),
            truncated: a.truncated || b.truncated,
            overflowed: a.overflowed || b.overflowed,
        });
    }
}

impl<C: RefreshDriver> Trickle<C> {
    /// Returns, by `pgt_id`, the pending changes of these stream tables and of the stream tables that they
    /// read, by one query for all. Stream tables that the query cannot cover are left out.
    pub(super) async fn pending_changes(
        &mut self,
        registry: &Registry,
        more: &BTreeMap<i64, CatalogFacts>,
        of: &[Entry],
    ) -> Result<BTreeMap<i64, Pending>> {
        let all = registry.with_upstream(of.iter().map(|e| e.relation.id))?;
        let known = |e: &&Entry| e.own && e.unchanged && more.get(&e.id).is_some_and(|m| m.exists);
        let mut asked: Vec<(&Entry, Vec<Source>)> = Vec::new();
        for e in all.into_iter().filter(known) {
            match self.counted_sources(e).await {
                Ok(sources) => asked.push((e, sources)),
                Err(e) if e.is_connection() => return Err(e),
                // A table was altered or dropped just now, so the pending changes are unknown. The error of
                // the query below has the same cause.
                Err(_) => {}
            }
        }
        let waiting = match self.waiting(&asked).await {
            Err(e) if !e.is_connection() => return Ok(BTreeMap::new()),
            result => result?,
        };
        let dag = registry.dag()?;
        let mut found = BTreeMap::new();
        for e in of {
            let set = dag.refresh_set(&BTreeSet::from([e.relation.id]));
            let upstream: Vec<&Entry> = set.iter().filter_map(|id| registry.by_table(*id)).collect();
            if upstream.iter().any(|u| u.unchanged && !waiting.contains_key(&u.id)) {
                continue;
            }
            let mut pending = Pending {
                rebuild: upstream
                    .iter()
                    .any(|u| !u.unchanged || more.get(&u.id).is_some_and(|m| m.needs_reinit)),
                ..Pending::default()
            };
            for (source, new) in upstream.iter().filter_map(|u| waiting.get(&u.id)).flatten() {
                pending.add(*source, *new);
            }
            found.insert(e.id, pending);
        }
        Ok(found)
    }

    /// Returns the sources whose changes count as pending for a stream table. The catalog may list no columns
    /// of a source. In this case either the plan reads the source but none of its columns, or the plan does
    /// not read the source. Only the plan itself shows which of the two is true.
    async fn counted_sources(&mut self, e: &Entry) -> Result<Vec<Source>> {
        let unsure = |d: &Dependency| d.buffer.is_some() && d.columns.is_empty();
        if e.mode == Mode::Full || !e.read().any(unsure) {
            return Ok(listed_sources(e, self.voice()));
        }
        let runnable = self.runnable(e).await?;
        sources_of(e, &runnable, self.voice())
    }

    /// Returns, by `pgt_id`, the pending changes of each stream table in the buffers of its sources.
    async fn waiting(
        &self,
        asked: &[(&Entry, Vec<Source>)],
    ) -> Result<BTreeMap<i64, Vec<(TableId, Option<Waiting>)>>> {
        let mut waiting: BTreeMap<i64, Vec<(TableId, Option<Waiting>)>> =
            asked.iter().map(|(e, _)| (e.id, Vec::new())).collect();
        if asked.is_empty() {
            return Ok(waiting);
        }
        let options = RefreshOptions::default();
        let readers: Vec<Reader<'_>> =
            asked.iter().map(|(e, sources)| reader(e, sources, &options)).collect();
        let rows = self.db().query(&pending_text(&readers), &[]).await;
        for r in rows.map_err(|e| Error::server("count pending changes", e))? {
            let (rows, cut): (Option<i64>, Option<bool>) = (r.get(2), r.get(3));
            let new =
                rows.map(|rows| Waiting { rows, truncated: cut.is_some(), overflowed: cut == Some(true) });
            waiting.entry(r.get(0)).or_default().push((TableId(r.get(1)), new));
        }
        Ok(waiting)
    }
}
