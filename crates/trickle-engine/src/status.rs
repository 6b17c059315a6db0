//! The state of stream tables, their buffers and their refreshes, for people, and as JSON for programs.
//!
//! Instants are texts in ISO 8601, in UTC, by PostgreSQL's clock.

use crate::capture::HIDDEN;
use crate::create::consistency;
use crate::db::{Connection, Json, Row};
use crate::error::{Error, Result};
use crate::names::Name;
use crate::pending::{listed_sources, reader, sources_of};
use crate::refresh::RefreshOptions;
use crate::registry::{Dependency, Entry, Registry, shown};
use crate::trickle::Trickle;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trickle_core::catalog::{TableId, TableKind};
use trickle_core::refresh::{Reader, Source, pending_text};
use trickle_core::schedule;
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::{Action, Activity, Ending, Initiator, Mode, RefreshMode};

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

/// The state of the capture of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BufferStatus {
    /// `schema.name` of the table, or its oid where the table was dropped.
    pub source: String,
    /// The kind of the triggers, `STATEMENT` or `ROW`.
    pub trigger_mode: String,
    /// Whether changes of the table are not captured at present, for any reason.
    pub disabled: bool,
    /// Whether the user holds capture off ([`Trickle::disable`]) until [`Trickle::enable`] is called.
    pub held: bool,
    /// The bytes of all segments on disk.
    pub bytes: i64,
    /// The number of segments that the buffer has.
    pub segments: i32,
    /// The number of bytes above which new changes are left out.
    pub limit_bytes: i64,
    /// Whether the buffer has reached this limit.
    pub full: bool,
}

impl BufferStatus {
    /// Whether the buffer has a quarter of its limit or more, which means that it is drained too seldom.
    pub fn is_large(&self) -> bool {
        self.bytes >= self.limit_bytes / 4
    }
}

/// A refresh in history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryEntry {
    /// The number of the refresh. Later refreshes have greater numbers.
    pub refresh_id: i64,
    /// The time at which the transaction of the refresh began.
    pub start_time: String,
    /// The time at which the refresh ended.
    pub end_time: Option<String>,
    /// A time up to which the stream table has all committed changes after the refresh.
    pub data_timestamp: Option<String>,
    /// The action of the refresh.
    pub action: Action,
    /// The way in which the refresh ended.
    pub status: Ending,
    /// The origin of the refresh.
    pub initiated_by: Initiator,
    /// The number of changed rows that the refresh read.
    pub delta_row_count: Option<i64>,
    /// The number of rows that were inserted into the stream table.
    pub rows_inserted: Option<i64>,
    /// The number of rows that were updated.
    pub rows_updated: Option<i64>,
    /// The number of rows that were deleted.
    pub rows_deleted: Option<i64>,
    /// The reason why the refresh used the delta or a recompute.
    pub strategy_reason: Option<String>,
    /// The time that was predicted for the refresh, in milliseconds.
    pub predicted_ms: Option<f64>,
    /// The time of each phase, in milliseconds.
    pub phase_ms: Option<Value>,
    /// An upper bound of the time from the commit of the changes to their being visible, in milliseconds,
    /// for a refresh on schedule.
    pub lag_ms: Option<f64>,
    /// The message of the error with which the refresh failed.
    pub error_message: Option<String>,
}

/// The refresher, with the facts that another session can find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refresher {
    /// The processes of sessions of `trickle run` in this database.
    pub pids: Vec<i32>,
    /// The holder of the lease on the current role's stream tables.
    pub leader: Option<String>,
    /// The milliseconds since the last refresh on schedule, if history still has one.
    pub last_ms: Option<i64>,
}

/// The `application_name` of a refresher's sessions.
pub const REFRESHER: &str = "trickle run";

impl Refresher {
    /// Whether a refresher seems to be at work, because one is connected or has refreshed within the last 10
    /// seconds.
    pub fn is_running(&self) -> bool {
        !self.pids.is_empty() || self.last_ms.is_some_and(|ms| ms < 10_000)
    }
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

/// The pending changes of a stream table and of all stream tables that it reads.
#[derive(Default)]
struct Pending {
    /// The pending changes of each source; `None` where a source is not captured.
    sources: BTreeMap<TableId, Option<Waiting>>,
    /// Whether one of these stream tables will be planned again or recomputed in any case.
    rebuild: bool,
}

/// The pending changes in a buffer: the number of rows, and whether a TRUNCATE or an overflow makes the rows
/// useless.
#[derive(Clone, Copy)]
struct Waiting {
    rows: i64,
    truncated: bool,
    overflowed: bool,
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

impl<C: Connection> Trickle<C> {
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

    /// Returns, by `pgt_id`, the pending changes of these stream tables and of the stream tables that they
    /// read, by one query for all. Stream tables that the query cannot cover are left out.
    async fn pending_changes(
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

    /// Returns the sources of a stream table whose changes count as pending. The catalog lists no columns in
    /// two cases: the plan reads the source but none of its columns, or the plan does not read the source.
    /// The plan itself decides between the two cases.
    async fn counted_sources(&mut self, e: &Entry) -> Result<Vec<Source>> {
        let unsure = |d: &Dependency| d.buffer.is_some() && d.columns.is_empty();
        if e.mode == Mode::Full || !e.read().any(unsure) {
            return Ok(listed_sources(e));
        }
        let runnable = self.runnable(e).await?;
        sources_of(e, &runnable)
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

    /// Returns the last refreshes of a stream table, the newest first.
    ///
    /// # Errors
    /// No stream table has that name; errors of the server.
    pub async fn history(&self, name: &Name, limit: u32) -> Result<Vec<HistoryEntry>> {
        let e = self.find(name).await?;
        let text = format!(
            "SELECT refresh_id, {}, {}, {}, action, status, initiated_by, delta_row_count, rows_inserted, rows_updated, \
             rows_deleted, strategy_reason, predicted_ms, phase_ms, error_message, lag_ms FROM pgtrickle.pgt_refresh_history \
             WHERE pgt_id = $1 ORDER BY start_time DESC, refresh_id DESC LIMIT $2",
            instant("start_time"),
            instant("end_time"),
            instant("data_timestamp")
        );
        let rows = self.db().query(&text, &[&e.id, &i64::from(limit)]).await;
        let rows = rows.map_err(|e| Error::server("read history", e))?;
        rows.iter().map(history_entry).collect()
    }

    /// Returns the state of the capture of each source.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn buffers(&self) -> Result<Vec<BufferStatus>> {
        // Each segment is looked up by its name, since a scan of pg_class for each buffer would take seconds
        // in a database with thousands of buffers.
        let text = "SELECT CASE WHEN c.oid IS NULL THEN b.source_relid::text ELSE pg_catalog.format('%I.%I', n.nspname, c.relname) END, \
             b.trigger_mode, b.capture <> 'ON', coalesce(g.bytes, 0), jsonb_array_length(b.segments), b.limit_bytes, \
             coalesce(g.last >= b.limit_bytes, false), b.capture = 'HELD' \
             FROM pgtrickle.pgt_buffers b LEFT JOIN pg_class c ON c.oid = b.source_relid \
             LEFT JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL ( \
                SELECT sum(pg_total_relation_size(t.oid))::int8, \
                    (array_agg(pg_relation_size(t.oid) ORDER BY s.place DESC))[1] \
                FROM jsonb_array_elements(b.segments) WITH ORDINALITY s(segment, place) \
                CROSS JOIN LATERAL to_regclass(pg_catalog.format('%I.%I', $1::text, \
                    pg_catalog.format('changes_%s_%s', b.source_relid, s.segment->>'number'))) t(oid)) g(bytes, last) \
             ORDER BY 1";
        let rows = self.db().query(text, &[&HIDDEN]).await;
        let rows = rows.map_err(|e| Error::server("read how changes are captured", e))?;
        let buffer = |r: &Row| BufferStatus {
            source: r.get(0),
            trigger_mode: r.get(1),
            disabled: r.get(2),
            bytes: r.get(3),
            segments: r.get(4),
            limit_bytes: r.get(5),
            full: r.get(6),
            held: r.get(7),
        };
        Ok(rows.iter().map(buffer).collect())
    }

    /// Returns the refresher, with the facts that this session can find out.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn refresher(&self) -> Result<Refresher> {
        let text = "SELECT ARRAY(SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = $1 AND pid <> pg_backend_pid() ORDER BY pid), \
             (SELECT (extract(epoch FROM clock_timestamp() - max(end_time)) * 1000)::int8 \
                FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER'), \
             (SELECT l.holder FROM pgtrickle.pgt_leases l JOIN pgtrickle.pgt_lease_terms t USING (role) \
                WHERE l.role = quote_ident(current_user)::regrole AND t.expires_at > clock_timestamp())";
        let row = self.db().query_one(text, &[&REFRESHER]).await;
        let row = row.map_err(|e| Error::server("look who refreshes", e))?;
        Ok(Refresher { pids: row.get(0), last_ms: row.get(1), leader: row.get(2) })
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

fn history_entry(r: &Row) -> Result<HistoryEntry> {
    Ok(HistoryEntry {
        refresh_id: r.get(0),
        start_time: r.get(1),
        end_time: r.get(2),
        data_timestamp: r.get(3),
        action: Action::parse(r.get(4))?,
        status: Ending::parse(r.get(5))?,
        initiated_by: Initiator::parse(r.get(6))?,
        delta_row_count: r.get(7),
        rows_inserted: r.get(8),
        rows_updated: r.get(9),
        rows_deleted: r.get(10),
        strategy_reason: r.get(11),
        predicted_ms: r.get(12),
        phase_ms: r.get::<Option<Json<Value>>>(13).map(|j| j.0),
        error_message: r.get(14),
        lag_ms: r.get(15),
    })
}
