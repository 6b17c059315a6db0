//! The state of stream tables, for people, and as JSON for programs. Submodules have the pending changes of
//! stream tables (`waiting`), their buffers and their history, and the refresher.
//!
//! Instants are texts in ISO 8601, in UTC, by PostgreSQL's clock.

mod buffers;
mod history;
mod refresher;
mod waiting;

pub use buffers::BufferStatus;
pub use history::HistoryEntry;
pub use refresher::{REFRESHER, Refresher};

use crate::db::{Json, RefreshDriver, Row};
use crate::design::consistency;
use crate::error::{Error, Result};
use crate::names::Name;
use crate::registry::{Dependency, Entry, shown};
use crate::trickle::Trickle;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trickle_core::catalog::TableKind;
use trickle_core::schedule;
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::{Action, Activity, Ending, Mode, RefreshMode};
use waiting::Pending;

/// The state of a stream table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// `schema.name` of the stream table, quoted where needed.
    pub name: String,
    /// The mode in force.
    pub mode: Mode,
    /// The mode that the user asked for.
    pub requested_mode: RefreshMode,
    /// The reasons why the stream table is not incremental.
    pub mode_reason: Option<String>,
    /// The status in the catalog: `INITIALIZING`, `ACTIVE`, `SUSPENDED` or `ERROR`.
    pub status: Activity,
    /// The name of a suspended stream table that this stream table reads, directly or through others. Until
    /// that suspended stream table is resumed, this stream table is not refreshed on schedule.
    pub waits_for: Option<String>,
    /// The schedule of the stream table; `None` means that only refreshes by hand are made.
    pub schedule: Option<String>,
    /// The value `atomic` means that the stream table is refreshed together with the stream tables that it
    /// reads, over one snapshot. The value `none` means that it is refreshed in a transaction of its own,
    /// after the stream tables that it reads.
    pub diamond_consistency: &'static str,
    /// The time between two looks of a refresher, in milliseconds. The stream table's own period is used.
    /// For schedule `calculated`, the shortest period of its readers is used, or a default. `None` where
    /// only refreshes by hand are made.
    pub period_ms: Option<u64>,
    /// The shortest period that is in force, in milliseconds, if the last refresh took more than four fifths
    /// of the period of the schedule. `None` also for cron schedules, which have no period.
    pub slowed_to_ms: Option<u64>,
    /// Whether a source of the stream table is not captured. Such a stream table is recomputed at every look
    /// of a refresher.
    pub polls: bool,
    /// Whether rows enter and leave the result as time passes. Each refresh of such a stream table looks for
    /// these rows.
    pub reads_clock: bool,
    /// The milliseconds since `data_timestamp` if changes are pending, otherwise 0; `None` where the stream
    /// table was never filled.
    pub staleness_ms: Option<i64>,
    /// A time up to which the stream table has all committed changes. The stream table may have later
    /// changes too.
    pub data_timestamp: Option<String>,
    /// The time at which the last refresh ended. A refresh on schedule that found no changes does not count.
    pub last_refresh_at: Option<String>,
    /// The lag of the last refreshes on schedule, in milliseconds. The lag is an upper bound of the longest
    /// time from the commit of a change to its being visible. `None` where history has no lag of the last
    /// ten refreshes.
    pub lag_ms: Option<f64>,
    /// The last refresh that had changes to apply, if history still has such a refresh.
    pub last_refresh: Option<LastRefresh>,
    /// The number of failed refreshes since the last successful one.
    pub consecutive_errors: i32,
    /// The message of the last failed refresh.
    pub last_error: Option<String>,
    /// Whether a refresh would have changes to apply; `None` where this is unknown, for example for a stream
    /// table of another owner.
    pub pending: Option<bool>,
    /// The number of changed rows in all sources that are pending; `None` where a source is not captured.
    pub pending_changes: Option<i64>,
    /// Whether the stream table was ever filled.
    pub is_populated: bool,
    /// Whether the next refresh recomputes the stream table.
    pub needs_reinit: bool,
    /// The reason why the next refresh recomputes the stream table, if the reason is known.
    pub reinit_reason: Option<String>,
    /// Whether a relation or function that the stream table relies on was altered, so that the next refresh
    /// plans it again.
    pub sources_changed: bool,
    /// Whether the stored table exists.
    pub exists: bool,
    /// The owner of the stored table.
    pub owner: String,
    /// The defining query as it was typed.
    pub query: String,
    /// The relations that the stream table reads.
    pub sources: Vec<SourceStatus>,
}

/// The last refresh of a stream table, whether it succeeded or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastRefresh {
    /// The value of [`HistoryEntry::action`].
    pub action: Action,
    /// The value of [`HistoryEntry::status`].
    pub status: Ending,
    /// The milliseconds since the refresh ended, by the database's clock.
    pub age_ms: i64,
    /// The number of changed rows that the refresh read.
    pub delta_rows: Option<i64>,
    /// The number of rows that were inserted into the stream table.
    pub rows_inserted: Option<i64>,
    /// The number of rows that were updated.
    pub rows_updated: Option<i64>,
    /// The number of rows that were deleted.
    pub rows_deleted: Option<i64>,
    /// The time that all phases of the refresh took, in milliseconds.
    pub ms: Option<f64>,
}

/// The state of a source of a stream table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceStatus {
    /// `schema.name` of the source, quoted where needed.
    pub name: String,
    /// The kind of the source, as `pgt_dependencies.source_type` names it.
    pub kind: TableKind,
    /// The columns of the source that the plan reads.
    pub columns: Vec<String>,
    /// Whether changes of the source are captured.
    pub captured: bool,
    /// Whether the user holds the capture of the source off ([`Trickle::disable`]).
    pub held: bool,
    /// The number of pending changes of the source; `None` where these are not captured.
    pub pending_changes: Option<i64>,
    /// Whether the buffer of the source has reached its limit, so that the next refresh of each reader is a
    /// recompute.
    pub overflowed: bool,
}

/// The number of last refreshes that the lag is computed from.
const LATELY: u32 = 10;

/// Returns an SQL expression that writes an instant in ISO 8601.
fn instant(column: &str) -> String {
    format!("to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")
}

/// Facts about a stream table that [`Registry`] does not read.
struct CatalogFacts {
    is_populated: bool,
    needs_reinit: bool,
    reinit_reason: Option<String>,
    data_timestamp: Option<String>,
    last_refresh_at: Option<String>,
    age_ms: Option<i64>,
    exists: bool,
    lag_ms: Option<f64>,
    last_refresh: Option<LastRefresh>,
}

/// The [`LastRefresh`] of the stream table `s`.
const LAST_REFRESH: &str = "(SELECT jsonb_build_object('action', h.action, 'status', h.status, \
     'age_ms', greatest(0, (extract(epoch FROM clock_timestamp() - coalesce(h.end_time, h.start_time)) * 1000)::int8), \
     'delta_rows', h.delta_row_count, 'rows_inserted', h.rows_inserted, 'rows_updated', h.rows_updated, \
     'rows_deleted', h.rows_deleted, 'ms', (SELECT sum(p.value::float8) FROM jsonb_each_text(h.phase_ms) p)) \
     FROM pgtrickle.pgt_refresh_history h WHERE h.pgt_id = s.pgt_id AND h.action <> 'NO_DATA' AND h.status <> 'RUNNING' \
     ORDER BY h.start_time DESC, h.refresh_id DESC LIMIT 1)";

/// The reason why changes that the stream table `s` reads could not be captured; NULL where all were
/// captured.
const MARKED: &str = "LEFT JOIN LATERAL (\
     SELECT pg_catalog.format('changes of %s could not be captured: %s', m.source_relid::regclass, m.reason) AS why \
     FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_marks m ON m.source_relid = d.source_relid \
     WHERE d.pgt_id = s.pgt_id AND CASE s.refresh_mode WHEN 'IMMEDIATE' THEN m.pgt_id = s.pgt_id ELSE m.pgt_id IS NULL END \
     ORDER BY m.noted_at LIMIT 1) k ON true";

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the state of stream tables: of the named ones, or of all if there are no names.
    ///
    /// # Errors
    /// No stream table has one of the names; errors of the server.
    pub async fn status(&mut self, names: &[Name]) -> Result<Vec<Status>> {
        let registry = self.registry().await?;
        let mut wanted: Vec<&Entry> = Vec::new();
        for name in names {
            let e = registry.find(name, &self.search_path)?;
            if !wanted.iter().any(|w| w.id == e.id) {
                wanted.push(e);
            }
        }
        if names.is_empty() {
            wanted.extend(registry.entries());
        }
        let more = self.more().await?;
        // An altered stream table must be planned again first, and until then its pending changes are
        // unknown.
        let known = |e: &&Entry| e.own && e.unchanged && more.get(&e.id).is_some_and(|m| m.exists);
        let asked: Vec<Entry> = wanted.iter().copied().filter(known).cloned().collect();
        let pending = self.pending_changes(&registry, &more, &asked).await?;
        let (periods, dag) = (registry.periods(&schedule::Options::default())?, registry.dag()?);
        let of = |e: &Entry| {
            let told = status(e, more.get(&e.id)?, pending.get(&e.id), periods.get(&e.id).copied());
            let upstream = dag.refresh_set(&BTreeSet::from([e.relation.id])).into_iter();
            let mut upstream = upstream.filter_map(|id| registry.by_table(id)).filter(|u| u.id != e.id);
            let waits_for = upstream.find(|u| u.status == Activity::Suspended).map(shown);
            Some(Status { waits_for, ..told })
        };
        Ok(wanted.into_iter().filter_map(of).collect())
    }

    async fn more(&self) -> Result<BTreeMap<i64, CatalogFacts>> {
        let text = format!(
            "SELECT s.pgt_id, s.is_populated, s.needs_reinit OR s.frontier IS NULL OR k.why IS NOT NULL, {}, {}, \
             (extract(epoch FROM clock_timestamp() - s.data_timestamp) * 1000)::int8, \
             EXISTS (SELECT FROM pg_class c WHERE c.oid = s.pgt_relid), coalesce(k.why, s.reinit_reason), \
             (SELECT max(h.lag_ms) FROM (SELECT r.lag_ms FROM pgtrickle.pgt_refresh_history r WHERE r.pgt_id = s.pgt_id \
                 ORDER BY r.start_time DESC LIMIT {LATELY}) h), {LAST_REFRESH} FROM pgtrickle.pgt_stream_tables s {MARKED}",
            instant("s.data_timestamp"),
            instant("s.last_refresh_at")
        );
        let rows = self.db().query(&text, &[]).await;
        let rows = rows.map_err(|e| Error::server("read how stream tables stand", e))?;
        let more = |r: &Row| -> Result<CatalogFacts> {
            let last: Option<Json<Value>> = r.get(9);
            let unreadable =
                |e| Error::input(format!("the history holds a refresh that cannot be read: {e}"));
            let last_refresh =
                last.map(|json| serde_json::from_value(json.0).map_err(unreadable)).transpose()?;
            Ok(CatalogFacts {
                is_populated: r.get(1),
                needs_reinit: r.get(2),
                data_timestamp: r.get(3),
                last_refresh_at: r.get(4),
                age_ms: r.get(5),
                exists: r.get(6),
                reinit_reason: r.get(7),
                lag_ms: r.get(8),
                last_refresh,
            })
        };
        rows.iter().map(|r| Ok((r.get(0), more(r)?))).collect()
    }
}

fn status(e: &Entry, more: &CatalogFacts, pending: Option<&Pending>, period: Option<Duration>) -> Status {
    let sum = |p: &Pending| p.sources.values().map(|v| v.map(|w| w.rows)).sum::<Option<i64>>();
    let any =
        |p: &Pending| p.rebuild || p.sources.values().any(|v| v.is_none_or(|w| w.rows > 0 || w.truncated));
    let pending_now = match pending {
        _ if more.needs_reinit || !more.is_populated || !e.unchanged => Some(true),
        None => None,
        Some(p) => Some(any(p) || e.polls() || e.reads_clock),
    };
    let took = more.last_refresh.as_ref().and_then(|l| Duration::try_from_secs_f64(l.ms? / 1e3).ok());
    let by_period = |s: &str| !matches!(schedule::Schedule::parse(s), Ok(schedule::Schedule::Cron(_)));
    let period_alone = period.filter(|_| e.schedule.as_deref().is_some_and(by_period));
    let slowed =
        period_alone.zip(took).map(|(wanted, took)| (wanted, schedule::effective_period(wanted, took)));
    Status {
        name: shown(e),
        mode: e.mode,
        requested_mode: e.requested,
        mode_reason: e.mode_reason.clone(),
        status: e.status,
        waits_for: None,
        schedule: e.schedule.clone(),
        diamond_consistency: consistency(e.apart),
        period_ms: period.and_then(|p| u64::try_from(p.as_millis()).ok()),
        slowed_to_ms: slowed
            .filter(|(wanted, instead)| instead > wanted)
            .and_then(|(_, instead)| u64::try_from(instead.as_millis()).ok()),
        polls: e.polls(),
        reads_clock: e.reads_clock,
        staleness_ms: if pending_now == Some(false) { Some(0) } else { more.age_ms.map(|ms| ms.max(0)) },
        data_timestamp: more.data_timestamp.clone(),
        last_refresh_at: more.last_refresh_at.clone(),
        lag_ms: more.lag_ms,
        last_refresh: more.last_refresh.clone(),
        consecutive_errors: e.consecutive_errors,
        last_error: e.last_error.clone(),
        pending: pending_now,
        pending_changes: pending.and_then(sum),
        is_populated: more.is_populated,
        needs_reinit: more.needs_reinit,
        reinit_reason: more.reinit_reason.clone(),
        sources_changed: !e.unchanged,
        exists: more.exists,
        owner: e.owner.clone(),
        query: e.original.clone(),
        sources: sources(e, pending),
    }
}

fn sources(e: &Entry, pending: Option<&Pending>) -> Vec<SourceStatus> {
    let waiting = |d: &Dependency| pending.and_then(|p| *p.sources.get(&d.relation.id)?);
    let source = |d: &Dependency| SourceStatus {
        name: Qualified::new(&d.relation.schema, &d.relation.name).to_string(),
        kind: d.kind,
        columns: d.columns.clone(),
        captured: d.buffer.is_some(),
        held: d.held,
        pending_changes: waiting(d).map(|w| w.rows),
        overflowed: waiting(d).is_some_and(|w| w.overflowed),
    };
    e.dependencies.iter().map(source).collect()
}
