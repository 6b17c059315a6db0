//! The state of the stream tables of a database, as it is shown to people.

use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use trickle_client::{Activity, Ending, Mode};
use trickle_client::{BufferStatus, LastRefresh, Refresher, Status};
use trickle_core::catalog::TableId;
use trickle_core::catalog::TableKind;
use trickle_core::dag::{Dag, StreamTableNode};
use trickle_engine::health::OpenTransaction;
use trickle_engine::words::duration;

/// The number of periods after which a stream table that is behind counts as late. One period passes until
/// the refresher looks at the stream table, and one is for the refresh.
const LATE: u32 = 2;

/// The shortest time for which a stream table must be behind to count as late, however short its period is.
const PATIENCE: Duration = Duration::from_secs(3);

/// The state of a database at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Snapshot {
    /// The stream tables. The one in the worst state comes first.
    pub(crate) tables: Vec<Table>,
    /// The buffers of all sources.
    pub(crate) buffers: Vec<Buffer>,
    /// The names of tables by level. A stream table is on a higher level than all its sources, and the tables
    /// that are no stream tables are on level 0.
    pub(crate) levels: Vec<Vec<String>>,
    /// Pairs of a source and a stream table that reads this source.
    pub(crate) edges: Vec<(String, String)>,
    /// The process that refreshes on schedule.
    pub(crate) refresher: Refresher,
    /// Open transactions, the oldest first.
    pub(crate) open: Vec<Open>,
}

/// The state of a stream table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) mode_reason: Option<String>,
    pub(crate) status: Activity,
    pub(crate) schedule: Option<String>,
    pub(crate) health: Health,
    /// The greatest age in milliseconds of a committed change that the stream table does not show. Zero if
    /// the stream table shows all changes, `None` if it was never filled.
    pub(crate) behind_ms: Option<u64>,
    pub(crate) period_ms: Option<u64>,
    /// The period in force in milliseconds, if refreshes take too long for the period of the schedule.
    pub(crate) slowed_to_ms: Option<u64>,
    pub(crate) pending_changes: Option<i64>,
    pub(crate) last_refresh: Option<LastRefresh>,
    pub(crate) consecutive_errors: i32,
    pub(crate) last_error: Option<String>,
    /// Problems other than errors, and facts that make the next refresh expensive.
    pub(crate) remarks: Vec<String>,
    /// The number of bytes in the buffers of the stream table's sources.
    pub(crate) buffer_bytes: i64,
    pub(crate) sources: Vec<String>,
}

/// The buffer of a source, with changes that wait for refreshes or will soon be drained.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Buffer {
    pub(crate) source: String,
    pub(crate) bytes: i64,
    pub(crate) limit_bytes: i64,
    pub(crate) captured: bool,
}

/// An open transaction.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Open {
    pub(crate) pid: i32,
    pub(crate) ms: u64,
    /// A description of the transaction, for people.
    pub(crate) told: String,
    /// Whether the transaction has been open for so long that it is reported.
    pub(crate) long: bool,
}

impl Open {
    /// Describes a transaction. The transaction is reported if its age is at least `long`.
    pub(crate) fn new(of: &OpenTransaction, long: Duration) -> Open {
        let ms = u64::try_from(of.age.as_millis()).unwrap_or(u64::MAX);
        Open { pid: of.pid, ms, told: of.to_string(), long: of.age >= long }
    }
}

/// The health of a stream table, which says how well it keeps up with its sources. The best comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    /// The stream table shows all committed changes.
    Fresh,
    /// Changes are pending, and a refresh by hand will apply them.
    Manual,
    /// Changes are pending, and the time of the refresh has not come.
    Due,
    /// The stream table is behind for longer than its schedule allows, or not filled yet.
    Late,
    /// The last refresh of the stream table failed, the stream table is suspended, or its table is gone.
    Failed,
}

impl Health {
    /// All values of health, the best first.
    pub(crate) const ALL: [Health; 5] =
        [Health::Fresh, Health::Manual, Health::Due, Health::Late, Health::Failed];

    /// Returns the health in one word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Health::Fresh => "fresh",
            Health::Manual => "manual",
            Health::Due => "due",
            Health::Late => "late",
            Health::Failed => "failed",
        }
    }

    fn of(s: &Status, behind: Option<Duration>) -> Health {
        let period = s.period_ms.map(Duration::from_millis);
        match (behind, period) {
            _ if !s.exists || s.consecutive_errors > 0 => Health::Failed,
            _ if matches!(s.status, Activity::Suspended | Activity::Error) => Health::Failed,
            (None, Some(_)) => Health::Late,
            (None, None) => Health::Manual,
            (Some(Duration::ZERO), _) => Health::Fresh,
            (Some(_), None) => Health::Manual,
            (Some(behind), Some(period)) if behind > (period * LATE).max(PATIENCE) => Health::Late,
            (Some(_), Some(_)) => Health::Due,
        }
    }
}

impl Table {
    /// Describes how far the stream table is behind, for people.
    pub(crate) fn behind(&self) -> String {
        match self.behind_ms {
            None => "never filled".to_owned(),
            Some(0) => "fresh".to_owned(),
            Some(ms) => duration(Duration::from_millis(ms)),
        }
    }

    /// Returns the schedule of the stream table, for people.
    pub(crate) fn schedule(&self) -> &str {
        self.schedule.as_deref().unwrap_or("manual")
    }

    /// Describes the age and the action of the last refresh: `3 s ago, DIFFERENTIAL`.
    pub(crate) fn last(&self) -> String {
        let Some(last) = &self.last_refresh else { return "never".to_owned() };
        let what = if last.status == Ending::Failed { last.status.name() } else { last.action.name() };
        format!("{} ago, {what}", ago(last.age_ms))
    }

    /// Describes the rows that the last refresh wrote: `+3 ~1 -0`.
    pub(crate) fn rows(&self) -> String {
        let last = self.last_refresh.as_ref();
        let rows = last.and_then(|l| Some((l.rows_inserted?, l.rows_updated?, l.rows_deleted?)));
        rows.map_or_else(|| "–".to_owned(), |(i, u, d)| format!("+{i} ~{u} -{d}"))
    }

    /// Describes how long the last refresh took.
    pub(crate) fn cost(&self) -> String {
        let ms = self.last_refresh.as_ref().and_then(|l| l.ms);
        let took = ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
        took.map_or_else(|| "–".to_owned(), duration)
    }
}

/// Writes an age, to the second.
fn ago(ms: i64) -> String {
    let s = Duration::from_millis(ms.unsigned_abs()).as_secs();
    if s < 60 { format!("{s} s") } else { duration(Duration::from_secs(s)) }
}

/// Writes a number of bytes for people: `0 B`, `8.0 KiB`, `1.2 GiB`.
pub(crate) fn bytes(n: i64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (n.max(0) as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// The memory of earlier reads of the state, for a caller that reads the state again and again.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The time of the last read in which each stream table showed all changes, by name.
    fresh: BTreeMap<String, Instant>,
}

impl Seen {
    /// Makes the model from the engine's answers. A stream table is behind by the smaller of two times. The
    /// first is the age of its data. The second is the time since the last read in which the stream table
    /// showed all changes. So a stream table with old data does not count as far behind because of a change
    /// that was committed a moment ago.
    pub(crate) fn snapshot(
        &mut self,
        all: &[Status],
        buffers: &[BufferStatus],
        refresher: Refresher,
        open: Vec<Open>,
        now: Instant,
    ) -> Snapshot {
        let bytes: BTreeMap<&str, i64> = buffers.iter().map(|b| (b.source.as_str(), b.bytes)).collect();
        let there: BTreeSet<&str> = all.iter().map(|s| s.name.as_str()).collect();
        self.fresh.retain(|name, _| there.contains(name.as_str()));
        let mut tables: Vec<Table> = all.iter().map(|s| table(s, self.behind(s, now), &bytes)).collect();
        let ratio = |t: &Table| t.behind_ms.unwrap_or(0) / t.period_ms.unwrap_or(u64::MAX).max(1);
        tables.sort_by(|a, b| {
            let worst = |t: &Table| (t.health, ratio(t), t.behind_ms);
            Reverse(worst(a)).cmp(&Reverse(worst(b))).then_with(|| a.name.cmp(&b.name))
        });
        let (levels, edges) = graph(all);
        let buffers = buffers.iter().map(|b| Buffer {
            source: b.source.clone(),
            bytes: b.bytes,
            limit_bytes: b.limit_bytes,
            captured: !b.disabled,
        });
        Snapshot { tables, buffers: buffers.collect(), levels, edges, refresher, open }
    }

    fn behind(&mut self, s: &Status, now: Instant) -> Option<Duration> {
        let age = Duration::from_millis(u64::try_from(s.staleness_ms?).unwrap_or(0));
        if age.is_zero() {
            self.fresh.insert(s.name.clone(), now);
            return Some(age);
        }
        let seen = self.fresh.get(&s.name).map(|at| now.duration_since(*at));
        // The stream table is behind, so the time is never zero, even if it is too short to be measured.
        Some(seen.map_or(age, |seen| seen.min(age)).max(Duration::from_millis(1)))
    }
}

fn table(s: &Status, behind: Option<Duration>, bytes: &BTreeMap<&str, i64>) -> Table {
    let mut sources: Vec<String> = s.sources.iter().map(|s| s.name.clone()).collect();
    sources.dedup();
    Table {
        name: s.name.clone(),
        mode: s.mode,
        mode_reason: s.mode_reason.clone(),
        status: s.status,
        schedule: s.schedule.clone(),
        health: Health::of(s, behind),
        behind_ms: behind.map(|b| u64::try_from(b.as_millis()).unwrap_or(u64::MAX)),
        period_ms: s.period_ms,
        slowed_to_ms: s.slowed_to_ms,
        pending_changes: s.pending_changes,
        last_refresh: s.last_refresh.clone(),
        consecutive_errors: s.consecutive_errors,
        last_error: s.last_error.clone(),
        remarks: remarks(s),
        buffer_bytes: sources.iter().filter_map(|s| bytes.get(s.as_str())).sum(),
        sources,
    }
}

fn remarks(s: &Status) -> Vec<String> {
    let mut remarks = Vec::new();
    if !s.exists {
        remarks.push("its table is gone; trickle drop forgets it".to_owned());
    }
    if s.sources_changed {
        remarks.push("something that it reads was altered; its next refresh plans it anew".to_owned());
    }
    if s.needs_reinit && s.is_populated {
        let why = s.reinit_reason.as_deref().map_or_else(String::new, |why| format!(": {why}"));
        remarks.push(format!("its next refresh computes it anew{why}"));
    }
    if let Some(instead) = s.slowed_to_ms {
        let instead = duration(Duration::from_millis(instead));
        remarks.push(format!(
            "its last refresh took most of its period, so it is refreshed every {instead} instead"
        ));
    }
    let suspended = s.waits_for.iter();
    remarks
        .extend(suspended.map(|s| format!("waits for {s}, which is suspended; trickle alter {s} --resume")));
    let overflowed = s.sources.iter().filter(|s| s.overflowed);
    remarks.extend(overflowed.map(|s| format!("{} was changed more than its buffer may hold", s.name)));
    let held = s.sources.iter().filter(|s| s.held);
    remarks.extend(held.map(|s| format!("{} is not captured until trickle enable {}", s.name, s.name)));
    remarks
}

/// Returns the levels, and the edges from sources to their readers. Views are left out: a stream table that
/// reads a view counts as a reader of the view's own sources.
fn graph(all: &[Status]) -> (Vec<Vec<String>>, Vec<(String, String)>) {
    let mut ids: BTreeMap<&str, TableId> = BTreeMap::new();
    let mut names: Vec<Arc<str>> = Vec::new();
    let read = |s: &Status| -> Vec<String> {
        s.sources.iter().filter(|s| s.kind != TableKind::View).map(|s| s.name.clone()).collect()
    };
    let every = all.iter().flat_map(|s| {
        let sources = s.sources.iter().filter(|s| s.kind != TableKind::View).map(|s| s.name.as_str());
        std::iter::once(s.name.as_str()).chain(sources)
    });
    for name in every {
        ids.entry(name).or_insert_with(|| {
            names.push(name.into());
            TableId(u32::try_from(names.len() - 1).unwrap_or(u32::MAX))
        });
    }
    let node = |s: &Status| {
        let sources =
            read(s).iter().filter_map(|n| Some((*ids.get(n.as_str())?, n.as_str().into()))).collect();
        Some(StreamTableNode {
            id: *ids.get(s.name.as_str())?,
            name: s.name.as_str().into(),
            sources,
            apart: false,
        })
    };
    let dag = Dag::build(all.iter().filter_map(node)).unwrap_or_default();
    let name = |id: &TableId| names.get(id.0 as usize).map(|n| n.to_string());
    let stream: BTreeSet<&str> = all.iter().map(|s| s.name.as_str()).collect();
    let mut levels = vec![ids.keys().filter(|n| !stream.contains(*n)).map(|n| (*n).to_owned()).collect()];
    levels.extend(dag.levels().iter().map(|level| level.iter().filter_map(name).collect()));
    let mut edges: Vec<(String, String)> =
        all.iter().flat_map(|s| read(s).into_iter().map(|from| (from, s.name.clone()))).collect();
    edges.sort();
    edges.dedup();
    (levels, edges)
}

#[cfg(test)]
pub(crate) mod tests;
