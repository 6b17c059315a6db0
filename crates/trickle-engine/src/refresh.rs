//! Refreshes stream tables. Finds the groups of linked stream tables to refresh, and leaves out the groups
//! without changes (`idle`). Plans stream tables again if their sources were altered. Refreshes each group in
//! one run of the refresh machine (`group`).

mod group;
mod idle;

use crate::adapt::Rebuilt;
use crate::cache::Wanted;
use crate::db::RefreshDriver;
use crate::drive::Watch;
use crate::error::{Error, Result};
use crate::locks::not_catalog_owner;
use crate::names::Name;
use crate::registry::{Entry, Registry};
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trickle_core::catalog::TableId;
use trickle_core::refresh::{Action, MemberReport, Phases};
use trickle_core::vocabulary::Activity;

/// The greatest number of times that a refresh is planned again because a source was altered meanwhile.
const REPLAN: u32 = 3;

/// The greatest number of sets of stream tables whose catalog rows a connection remembers.
const RECENT: usize = 100;

/// The time between two searches for old history.
const PRUNE: Duration = Duration::from_secs(3600);

/// The outcome of a refresh for one stream table.
#[derive(Clone, Debug)]
pub struct Refreshed {
    /// The report of the refresh machine.
    pub report: MemberReport,
    /// The time that the run spent once for all of its stream tables, in microseconds.
    pub shared: Phases,
}

impl Refreshed {
    /// If a new result of the stream table was built beside the former one, adds the work of building it to
    /// the report. That work was done before the run.
    fn tell(&mut self, rebuilt: &BTreeMap<i64, Rebuilt>) {
        let r = &mut self.report;
        let Some(Rebuilt { why, written, took }) = rebuilt.get(&r.id) else { return };
        (r.action, r.reason) = (Action::Reinitialize, why.clone());
        r.rows_inserted += written.inserted;
        r.rows_updated += written.updated;
        r.rows_deleted += written.deleted;
        r.phases.execute += u64::try_from(took.as_micros()).unwrap_or(0);
    }
}

impl Refreshed {
    /// Returns the outcome for a stream table that needs no changes.
    fn idle(e: &Entry) -> Refreshed {
        Refreshed { report: MemberReport::no_data(e.id, &e.relation), shared: Phases::default() }
    }
}

impl<C: RefreshDriver> Trickle<C> {
    /// Refreshes stream tables by name, each with all stream tables that it reads. Linked stream tables are
    /// refreshed over one snapshot.
    ///
    /// # Errors
    /// No stream table has one of the names; another role owns one of the stream tables; the refresh failed.
    /// A failed refresh changes nothing in the stream tables that are linked with the failed one.
    pub async fn refresh(&mut self, names: &[Name], options: &RefreshOptions) -> Result<Vec<Refreshed>> {
        self.cache.unplannable = None;
        let key = Wanted::Names(names.to_vec());
        if let Some(done) = self.refresh_known(&key, options).await? {
            self.prune_history().await?;
            return Ok(done);
        }
        let registry = Arc::new(self.of_names(names).await?);
        let wanted = registry.ids(names, &self.search_path)?;
        // A name without a schema may mean another table at the next call, so its catalog rows are not
        // remembered.
        if names.iter().all(|n| n.schema.is_some()) {
            self.remember(key, &registry);
        }
        let done = self.refresh_each(&registry, &wanted, options, None).await;
        self.forgetting(done)
    }

    /// Does the same as [`Trickle::refresh`], with `watch` as the observer, which sees each statement of the
    /// refresh machine before it is sent. The statements are sent one by one, which takes more round trips
    /// and has no other effect.
    ///
    /// # Errors
    /// The errors of [`Trickle::refresh`]; the errors of `watch`.
    pub async fn refresh_watched(
        &mut self,
        names: &[Name],
        options: &RefreshOptions,
        watch: &mut dyn Watch,
    ) -> Result<Vec<Refreshed>> {
        let registry = self.of_names(names).await?;
        let wanted = registry.ids(names, &self.search_path)?;
        self.refresh_each(&registry, &wanted, options, Some(watch)).await
    }

    /// Refreshes all stream tables of the current role.
    ///
    /// # Errors
    /// The errors of [`Trickle::refresh`].
    pub async fn refresh_all(&mut self, options: &RefreshOptions) -> Result<Vec<Refreshed>> {
        let registry = self.registry().await?;
        let wanted: Vec<TableId> = registry
            .entries()
            .filter(|e| e.own && e.exists && !e.is_beside())
            .map(|e| e.relation.id)
            .collect();
        self.refresh_each(&registry, &wanted, options, None).await
    }

    /// Refreshes stream tables, each group of linked ones in a run of its own. If one group fails, the other
    /// groups are still refreshed. Without names, refreshes all stream tables of the current role. Suspended
    /// ones are left out unless another stream table of the role reads them.
    ///
    /// # Errors
    /// No stream table has one of the names; the connection is lost. An error of one group is in the result
    /// of that group.
    pub async fn refresh_apart(
        &mut self,
        names: &[Name],
        options: &RefreshOptions,
    ) -> Result<Vec<Result<Vec<Refreshed>>>> {
        let registry = if names.is_empty() { self.registry().await? } else { self.of_names(names).await? };
        let mut wanted: Vec<TableId> = registry.ids(names, &self.search_path)?;
        if names.is_empty() {
            let due = |e: &&Entry| e.own && e.status != Activity::Suspended && !e.is_beside();
            wanted.extend(registry.entries().filter(due).map(|e| e.relation.id));
        }
        let groups = groups(&registry, &wanted)?;
        let idle = self.idle(&groups, options).await?;
        let mut done = Vec::new();
        for group in groups {
            if group.iter().all(|e| idle.contains(&e.id)) {
                done.push(Ok(group.iter().map(Refreshed::idle).collect()));
                continue;
            }
            match self.refresh_replanning(group, options, None).await {
                Err(e) if e.is_connection() => return Err(e),
                result => done.push(result),
            }
        }
        self.prune_history().await?;
        Ok(done)
    }

    /// Refreshes the `wanted` stream tables of a registry that has all stream tables linked with them.
    async fn refresh_each(
        &mut self,
        registry: &Registry,
        wanted: &[TableId],
        options: &RefreshOptions,
        watch: Option<&mut (dyn Watch + '_)>,
    ) -> Result<Vec<Refreshed>> {
        let done = self.refresh_groups(groups(registry, wanted)?, options, watch).await?;
        self.prune_history().await?;
        Ok(done)
    }

    async fn refresh_groups(
        &mut self,
        groups: Vec<Vec<Entry>>,
        options: &RefreshOptions,
        mut watch: Option<&mut (dyn Watch + '_)>,
    ) -> Result<Vec<Refreshed>> {
        let mut done = Vec::new();
        for group in groups {
            done.extend(self.refresh_replanning(group, options, watch.as_deref_mut()).await?);
        }
        Ok(done)
    }

    /// Refreshes the groups of the `wanted` stream tables, with all stream tables of the same group that they
    /// read. If a wanted stream table is [apart](trickle_core::dag::StreamTableNode::apart) from a stream
    /// table that it reads, only the wanted one is refreshed.
    pub async fn refresh_linked(
        &mut self,
        wanted: &[TableId],
        options: &RefreshOptions,
    ) -> Result<Vec<Refreshed>> {
        let key = Wanted::Tables(wanted.to_vec());
        if let Some(done) = self.refresh_known(&key, options).await? {
            return Ok(done);
        }
        let registry = Arc::new(self.linked(wanted).await?);
        self.remember(key, &registry);
        let done = self.refresh_groups(own_groups(&registry, wanted)?, options, None).await;
        self.forgetting(done)
    }

    /// Remembers the catalog rows of stream tables for their next refresh, if all of them are filled,
    /// unchanged and owned by the current role. The next refresh compares, under its locks, everything that
    /// the plans were made from (`pgtrickle.definition`, `pgtrickle.unchanged`).
    fn remember(&mut self, wanted: Wanted, registry: &Arc<Registry>) {
        if self.cache.recent.len() >= RECENT {
            self.cache.recent.clear();
        }
        if registry.entries().all(|e| e.is_populated && e.unchanged && e.exists && e.own) {
            self.cache.recent.insert(wanted, registry.clone());
        }
    }

    /// Refreshes stream tables by the catalog rows that were remembered at their last refresh. Returns
    /// `None` if no catalog rows are remembered, or if these have changed since. In that case the caller
    /// must look up the names again before it plans a stream table again.
    async fn refresh_known(
        &mut self,
        key: &Wanted,
        options: &RefreshOptions,
    ) -> Result<Option<Vec<Refreshed>>> {
        let Some(registry) = self.cache.recent.get(key).cloned() else { return Ok(None) };
        let groups = match key {
            Wanted::Names(names) => groups(&registry, &registry.ids(names, &self.search_path)?)?,
            Wanted::Tables(tables) => own_groups(&registry, tables)?,
        };
        let mut done = Vec::new();
        for group in groups {
            self.heal(&group).await?;
            match self.refresh_group(&group, options, None).await {
                Ok(part) => done.extend(part),
                Err(e) => {
                    self.cache.recent.clear();
                    return if e.is_input() || e.is_stale() { Ok(None) } else { Err(e) };
                }
            }
        }
        Ok(Some(done))
    }

    /// Forgets all remembered catalog rows after an error, so that the next refresh reads the catalog.
    fn forgetting<T>(&mut self, done: Result<T>) -> Result<T> {
        if done.is_err() {
            self.cache.recent.clear();
        }
        done
    }

    /// Refreshes linked stream tables by catalog rows that were read just before. Plans the stream tables
    /// again if a source was altered since they were planned. The catalog rows may show the alteration, or
    /// the refresh may notice it under its locks.
    async fn refresh_replanning(
        &mut self,
        group: Vec<Entry>,
        options: &RefreshOptions,
        mut watch: Option<&mut (dyn Watch + '_)>,
    ) -> Result<Vec<Refreshed>> {
        let wanted: Vec<TableId> = group.iter().map(|e| e.relation.id).collect();
        let mut first = self.all_fit(&group).await.then_some(group);
        let (mut again, mut rebuilt) = (REPLAN, BTreeMap::new());
        loop {
            let linked = match first.take() {
                Some(group) => vec![group],
                None => match self.adapt(&wanted, options.initiated_by).await {
                    Ok(adapted) => {
                        rebuilt.extend(adapted.rebuilt);
                        own_groups(&adapted.registry, &wanted)?
                    }
                    Err(e) if e.is_stale() && again > 0 => {
                        again -= 1;
                        continue;
                    }
                    Err(e) => return Err(e),
                },
            };
            let mut done: Vec<Refreshed> = Vec::new();
            let mut failed = None;
            for group in linked {
                self.heal(&group).await?;
                self.relieve(&group).await?;
                match self.refresh_group(&group, options, watch.as_deref_mut()).await {
                    Ok(part) => done.extend(part),
                    Err(e) => failed = Some(e),
                }
            }
            match failed {
                None => {
                    done.iter_mut().for_each(|r| r.tell(&rebuilt));
                    return Ok(done);
                }
                Some(e) if e.is_stale() && again > 0 => again -= 1,
                Some(e) => return Err(e),
            }
        }
    }

    async fn all_fit(&mut self, group: &[Entry]) -> bool {
        for e in group {
            if !self.fits(e).await {
                return false;
            }
        }
        true
    }

    /// Deletes history that is older than the retention time, once in a while.
    ///
    /// No other session should wait for this deletion. So the function does nothing where its row locks
    /// would last until a caller ends its transaction. Rows that another session is deleting are skipped.
    pub async fn prune_history(&mut self) -> Result<()> {
        let days = i32::try_from(self.settings.history_retention_days).unwrap_or(i32::MAX);
        let lasts = self.connection.callers().is_some_and(|c| !c.brief || !c.fresh);
        if days == 0 || lasts || self.cache.pruned.is_some_and(|at| at.elapsed() < PRUNE) {
            return Ok(());
        }
        self.cache.pruned = Some(Instant::now());
        let text = "DELETE FROM pgtrickle.pgt_refresh_history WHERE refresh_id IN (SELECT refresh_id \
             FROM pgtrickle.pgt_refresh_history WHERE start_time < now() - make_interval(days => $1) FOR UPDATE SKIP LOCKED)";
        self.db()
            .execute(text, &[&days])
            .await
            .map_err(|e| not_catalog_owner(Error::server("prune history", e)))?;
        Ok(())
    }
}

/// Returns the groups that have wanted stream tables. A returned group has only its wanted members and the
/// members that these read, each after those that it reads.
fn own_groups(registry: &Registry, wanted: &[TableId]) -> Result<Vec<Vec<Entry>>> {
    let mut own = groups(registry, wanted)?;
    own.retain(|g| g.iter().any(|e| wanted.contains(&e.relation.id)));
    Ok(own)
}

/// Returns the wanted stream tables and all stream tables that they read, as groups that share no stream
/// table. Within a group, each stream table comes after those that it reads, and each group comes after the
/// groups that it reads.
pub(crate) fn groups(registry: &Registry, wanted: &[TableId]) -> Result<Vec<Vec<Entry>>> {
    let dag = registry.dag()?;
    let set: BTreeSet<TableId> = dag.refresh_set(&wanted.iter().copied().collect()).into_iter().collect();
    let part = |group: &Vec<TableId>| -> Vec<Entry> {
        let entries = group.iter().filter(|id| set.contains(id)).filter_map(|id| registry.by_table(*id));
        entries.cloned().collect()
    };
    Ok(dag.groups().iter().map(part).filter(|g| !g.is_empty()).collect())
}
