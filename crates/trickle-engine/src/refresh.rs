//! Refreshes stream tables. Finds the stream tables that have changes, plans those again whose sources were
//! altered, and drives the refresh machine once for each group of linked stream tables.

use crate::adapt::Rebuilt;
use crate::db::Connection;
use crate::drive::{Watch, drive};
use crate::error::{Error, Result};
use crate::locks::not_keeper;
use crate::names::Name;
use crate::pending::sources_of;
use crate::registry::{Dependency, Entry, Registry, require_own, shown};
use crate::say;
use crate::scheduler::now;
use crate::security::left_behind;
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trickle_core::catalog::TableId;
use trickle_core::refresh::{
    Action, Failure, FailureKind, KeptBy, Lease, Lock, Member, MemberReport, Phases, Plan, Report, Request,
    Transaction, record_failure, record_skip,
};
use trickle_core::schedule::Time;
use trickle_core::vocabulary::{Activity, Initiator};

/// The greatest number of times that a refresh is planned again because a source was altered meanwhile.
const REPLAN: u32 = 3;

/// The greatest number of sets of stream tables whose catalog rows a connection remembers.
const RECENT: usize = 100;

/// The time between two searches for old history.
const PRUNE: Duration = Duration::from_secs(3600);

/// The stream tables that a call is asked to refresh.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    /// The names of the stream tables, with their schemas.
    Names(Vec<Name>),
    /// The oids of the tables of the stream tables.
    Tables(Vec<TableId>),
}

/// The outcome of a refresh for one stream table.
#[derive(Clone, Debug)]
pub struct Refreshed {
    /// The report of the refresh machine.
    pub report: MemberReport,
    /// The time that the run spent once for all of its stream tables, in microseconds.
    pub shared: Phases,
}

impl Refreshed {
    /// Adds the work that was done before the run, if the result of the stream table was built beside and
    /// took the place of the former one.
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

/// The options of a refresh.
#[derive(Clone, Debug, Default)]
pub struct RefreshOptions {
    /// Whether to recompute even if nothing changed.
    pub full: bool,
    /// The origin of the refresh, which is `MANUAL` (the default), `SCHEDULER` or `INITIAL`.
    pub initiated_by: Initiator,
    /// The stream tables to recompute because one of their sources is not captured. `None` stands for all
    /// such stream tables.
    pub polled: Option<BTreeSet<TableId>>,
    /// The lease under which a refresh on schedule is committed.
    pub lease: Option<Lease>,
    /// The last time at which the scheduler found that there was nothing to do, by this machine's clock.
    pub quiet_at: Option<Time>,
}

impl RefreshOptions {
    /// Whether the refresh is by hand. In that case the times of the stream table advance even if nothing
    /// changed.
    fn is_by_hand(&self) -> bool {
        self.initiated_by == Initiator::Manual
    }

    /// Whether sources of `e` that are not captured count as changed.
    pub(crate) fn polls(&self, e: &Entry) -> bool {
        self.polled.as_ref().is_none_or(|p| p.contains(&e.relation.id))
    }

    /// Returns the options for the first fill of a stream table.
    pub(crate) fn initial() -> RefreshOptions {
        RefreshOptions { initiated_by: Initiator::Initial, ..RefreshOptions::default() }
    }
}

/// The statement which notes that the stream tables `$1` have all changes that were committed by the time
/// `$2`, in microseconds since 1970. A stream table that reads the clock does not get a new time, since its
/// rows were computed for the stored one.
///
/// A stream table that is being refreshed is left out, since its refresh notes the time itself. If that
/// refresh reads an older snapshot, it could not write the catalog row after this statement had written it.
const NOTE_IDLE: &str = "UPDATE pgtrickle.pgt_stream_tables SET last_refresh_at = clock_timestamp(), \
     data_timestamp = CASE WHEN reads_clock THEN data_timestamp ELSE to_timestamp($2::int8 / 1000000.0) END \
     WHERE pgt_id IN (SELECT s.pgt_id FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = ANY ($1) AND NOT EXISTS ( \
         SELECT FROM pg_locks l WHERE l.relation = s.pgt_relid \
         AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) \
         AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')) \
     FOR NO KEY UPDATE SKIP LOCKED)";

impl Refreshed {
    /// Returns the outcome for a stream table that needs no changes.
    fn idle(e: &Entry) -> Refreshed {
        Refreshed { report: MemberReport::no_data(e.id, &e.relation), shared: Phases::default() }
    }
}

impl<C: Connection> Trickle<C> {
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

    /// Returns the stream tables, by `pgt_id`, that a refresh would not change. Only whole groups are
    /// returned. Asks the server one question for all stream tables, and one question about the changes that
    /// their buffers still have. For a refresh by hand, also notes the time up to which the returned stream
    /// tables have all changes.
    async fn idle(&mut self, groups: &[Vec<Entry>], options: &RefreshOptions) -> Result<BTreeSet<i64>> {
        let askable = |e: &&Entry| {
            // If a buffer is at its limit, changes may be missing in it.
            let told = |d: &Dependency| !d.full;
            e.own && e.exists && e.unchanged && e.dependencies.iter().all(told)
        };
        let asked: Vec<&Entry> = groups.iter().flatten().filter(askable).collect();
        if options.full || asked.is_empty() {
            return Ok(BTreeSet::new());
        }
        let begun = if options.is_by_hand() { Some(self.instant().await?) } else { None };
        let pending: BTreeSet<i64> = match self.candidates(&asked, options).await {
            Ok(looked) => looked.pending.into_iter().collect(),
            Err(e) if e.is_connection() => return Err(e),
            // A table was altered or dropped just now, and the refresh will find out which one.
            Err(_) => return Ok(BTreeSet::new()),
        };
        let quiet: Vec<Entry> = asked.into_iter().filter(|e| !pending.contains(&e.id)).cloned().collect();
        self.drain(&quiet).await?;
        let idle = all_idle(groups, &quiet.iter().map(|e| e.id).collect());
        if let Some(begun) = begun.filter(|_| !idle.is_empty()) {
            let ids: Vec<i64> = idle.iter().copied().collect();
            let noted = self.db().ask(NOTE_IDLE, &[&ids, &begun]).await;
            match noted.map_err(|e| Error::server("note when stream tables were refreshed", e)) {
                Err(e) if e.is_connection() => return Err(e),
                // The error is reported, and no refresh fails because of it.
                Err(e) => self.progress.say(e.message()),
                Ok(_) => {}
            }
        }
        Ok(idle)
    }

    /// Returns the time of the server's clock, in microseconds since 1970.
    async fn instant(&self) -> Result<i64> {
        let text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";
        let row = self.db().query_one(text, &[]).await;
        row.map(|r| r.get(0)).map_err(|e| Error::server("ask for the time", e))
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

    /// Refreshes the groups of the `wanted` stream tables, with all stream tables of the same group that
    /// they read. Stream tables that a wanted one reads and is
    /// [apart](trickle_core::dag::StreamTableNode::apart) from are not refreshed.
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

    /// Refreshes linked stream tables over one snapshot, each after the stream tables that it reads.
    ///
    /// # Errors
    /// The error at which the refresh machine gave up, after which nothing has changed in the database.
    pub(crate) async fn refresh_group(
        &mut self,
        group: &[Entry],
        options: &RefreshOptions,
        watch: Option<&mut (dyn Watch + '_)>,
    ) -> Result<Vec<Refreshed>> {
        let plan = self.plan(group, options).await?;
        let initiated_by = plan.request.initiated_by;
        let table = group.last().map(|e| e.relation.id);
        let looking = self.onlooker(doing(group), table);
        match looking.during(self.drive(group, plan, watch)).await? {
            Ok(report) => {
                self.drain(group).await?;
                let shared = report.shared;
                Ok(report.members.into_iter().map(|report| Refreshed { report, shared }).collect())
            }
            Err(failure) => {
                let of = failure.member.and_then(|id| group.iter().find(|e| e.id == id)).or(group.last());
                let kind = failure.kind;
                let mut error = Error::from(failure);
                let Some(of) = of else { return Err(error) };
                if let Some(session) = self.gave_way(&error) {
                    let why = format!("gave way to {session}");
                    self.connection.step(&record_skip(of.id, &why, initiated_by)).await?;
                    return Err(given_way(of, &why));
                }
                if kind == FailureKind::Statement {
                    error = self.blamed_on_columns(of, error).await;
                    if error.sqlstate() == Some("42501")
                        && let Some(whose) = left_behind(self.db(), of.id).await?
                    {
                        error = error.hint(whose);
                    }
                    if error.sqlstate() == Some("57014") {
                        error = error.hint(say::one(
                            "The setting statement_timeout_ms gives each statement of a refresh another limit, 0 none; a trickle refresh \
                             by hand with it brings the stream table up to date.",
                            "The setting pg_trickle.statement_timeout_ms limits each statement of a refresh on schedule, 0 none; \
                             pgtrickle.refresh_stream_table() under another statement_timeout brings the stream table up to date.",
                        ));
                    }
                    self.note_failure(of, error.message(), initiated_by).await?;
                }
                let message = format!("cannot refresh {}: {}", shown(of), error.message());
                Err(error.saying(message))
            }
        }
    }

    /// Returns the session for which a statement of the refresh was cancelled, if that cancel caused
    /// `error`.
    pub(crate) fn gave_way(&self, error: &Error) -> Option<String> {
        let cancelled = error.sqlstate() == Some("57014");
        cancelled.then(|| self.yielding.take().or_else(|| self.connection.gives_way_to())).flatten()
    }

    /// Runs a plan. A large first fill runs on several connections, all other work on one connection.
    async fn drive(
        &mut self,
        group: &[Entry],
        plan: Plan,
        mut watch: Option<&mut (dyn Watch + '_)>,
    ) -> Result<std::result::Result<Report, Failure>> {
        match self.load(group, &plan, watch.as_deref_mut()).await? {
            Some(done) => Ok(done),
            None => Ok(drive(&self.connection, plan, watch).await),
        }
    }

    /// Collects the facts that the refresh machine needs about linked stream tables.
    pub(crate) async fn plan(&mut self, group: &[Entry], options: &RefreshOptions) -> Result<Plan> {
        let read = group.iter().flat_map(|e| e.dependencies.iter().map(|d| d.relation.id.0));
        let tables: Vec<u32> = group.iter().map(|e| e.relation.id.0).chain(read).collect();
        self.connection.idle(&tables).map_err(|e| Error::server("refresh", e))?;
        let mut members = Vec::new();
        for e in group {
            require_own(e)?;
            let runnable = self.runnable(e).await?;
            members.push(Member {
                id: e.id,
                relation: e.relation.clone(),
                sources: sources_of(e, &runnable)?,
                program: runnable.program.clone(),
                policy: self.settings.policy(),
                definition: Some(e.definition.as_str().into()),
                polled: options.polls(e),
                unseen: e.unseen(),
                lock: if e.is_populated { Lock::Refreshes } else { Lock::Writers },
                kept_by: kept_by(e, options),
                settings: e.in_force.clone(),
            });
        }
        let quiet = |at| u64::try_from(now().since(at).as_millis()).unwrap_or(u64::MAX);
        let request = Request {
            initiated_by: options.initiated_by,
            full: options.full,
            store_empty: options.is_by_hand(),
            lease: options.lease,
            quiet_ms: options.quiet_at.map(quiet),
        };
        let s = &self.settings;
        let (lock_timeout_ms, attempts) = (s.lock_timeout_ms, s.attempts);
        let statement_timeout_ms = s.statement_timeout_ms;
        let transaction = match self.connection.callers() {
            Some(c) => Transaction::Callers { command: c.command, fresh: c.fresh },
            None => Transaction::Own { lock_timeout_ms, statement_timeout_ms, attempts },
        };
        Ok(Plan { members, transaction, work_mem: self.settings.work_mem(), request, asked_at: None })
    }

    /// Fills a new stream table, and analyzes it afterwards for the server's planner.
    pub(crate) async fn fill(&mut self, id: i64) -> Result<()> {
        let text = "SELECT pgt_relid FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1";
        let row = self.db().query_opt(text, &[&id]).await;
        let row = row.map_err(|e| Error::server("look for a new stream table", e))?;
        let Some(table) = row.map(|r| TableId(r.get(0))) else { return Ok(()) };
        let registry = self.linked(&[table]).await?;
        let Some(entry) = registry.get(id) else { return Ok(()) };
        let wanted = entry.relation.id;
        let options = RefreshOptions::initial();
        for group in groups(&registry, &[wanted])? {
            self.refresh_group(&group, &options, None).await?;
        }
        self.analyze(entry).await
    }

    /// Analyzes the stored tables of a stream table.
    pub(crate) async fn analyze(&mut self, e: &Entry) -> Result<()> {
        let runnable = self.runnable(e).await?;
        let fail = |err| Error::server("analyze a stream table", err);
        self.db().batch_execute(&format!("ANALYZE {}", shown(e))).await.map_err(fail)?;
        for t in runnable.table.iter().flat_map(|t| &t.layout().states) {
            self.db().as_keeper(&format!("ANALYZE {}", t.name)).await.map_err(fail)?;
        }
        Ok(())
    }

    pub(crate) async fn note_failure(&self, e: &Entry, message: &str, initiated_by: Initiator) -> Result<()> {
        let s = record_failure(e.id, message, initiated_by, self.settings.max_consecutive_errors);
        self.connection.step(&s).await.map(|_| ())
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
        self.db().execute(text, &[&days]).await.map_err(|e| not_keeper(Error::server("prune history", e)))?;
        Ok(())
    }
}

/// Returns the error of a refresh that gave way to another session. Such an error does not count as a
/// failure.
pub(crate) fn given_way(e: &Entry, why: &str) -> Error {
    Error::busy(format!("the refresh of {} {why}", shown(e)))
        .hint("It is begun again. The setting give_way_ms says how long a session waits for a refresh.")
}

/// Returns the sources whose triggers bring a stream table up to date, if it is IMMEDIATE, and whether to
/// lock these sources for a recompute.
fn kept_by(e: &Entry, options: &RefreshOptions) -> Option<KeptBy> {
    let tables = || e.read().map(|d| d.relation.clone()).collect();
    let locked = options.full || e.needs_reinit || !e.is_populated;
    e.is_immediate().then(|| KeptBy { tables: tables(), locked })
}

/// Returns the members of those groups in which every stream table is quiet. A quiet group is also left out
/// if it reads a stream table of a group that is left out, since the refresh of that group may bring changes.
/// The groups must be in an order in which each comes after the groups that it reads.
fn all_idle(groups: &[Vec<Entry>], quiet: &BTreeSet<i64>) -> BTreeSet<i64> {
    let (mut behind, mut idle) = (BTreeSet::new(), BTreeSet::new());
    for group in groups {
        let reads_behind = |e: &Entry| e.dependencies.iter().any(|d| behind.contains(&d.relation.id));
        if group.iter().all(|e| quiet.contains(&e.id) && !reads_behind(e)) {
            idle.extend(group.iter().map(|e| e.id));
        } else {
            behind.extend(group.iter().map(|e| e.relation.id));
        }
    }
    idle
}

/// Returns the name of a refresh of a group, for progress and errors.
fn doing(group: &[Entry]) -> String {
    match group {
        [] => "refreshing".to_owned(),
        [e] => format!("refreshing {}", shown(e)),
        [e, ..] => format!("refreshing {} and {} more", shown(group.last().unwrap_or(e)), group.len() - 1),
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
