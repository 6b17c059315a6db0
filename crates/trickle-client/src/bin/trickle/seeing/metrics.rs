//! The refresher's counters for Prometheus. `metrics!` is the only list of metrics, and the table in
//! docs/seeing.md is made from this list.

use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, Result};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use trickle_client::Refreshed;
use trickle_client::daemon::Event;
use trickle_core::refresh::{Action, Phases};

/// A metric, as it is documented and made.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    /// The meaning, in one sentence.
    pub(super) help: &'static str,
}

/// The kind of a metric, as Prometheus defines kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    /// A histogram with these upper bounds of its buckets.
    Histogram(&'static [f64]),
}

const COSTS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 300.0];
const LAGS: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 3600.0];

macro_rules! metrics {
    ($($CONST:ident: $kind:expr, $name:literal, [$($label:literal),*], $help:literal;)*) => {
        $(pub(super) const $CONST: Metric =
            Metric { name: $name, kind: $kind, labels: &[$($label),*], help: $help };)*
        /// All metrics, in the order of their documentation, which a test compares with this list.
        #[cfg(test)]
        pub(super) const METRICS: &[&Metric] = &[$(&$CONST),*];
    };
}

metrics! {
    REFRESHES: Kind::Counter, "trickle_refreshes_total", ["table", "action", "outcome"],
        "Refreshes by action (as in history; none if the refresh failed) and outcome: completed, failed, or later (another session was in the way, and the refresh is tried again)";
    DURATION: Kind::Histogram(COSTS), "trickle_refresh_duration_seconds", ["table"],
        "Time of a refresh of a stream table that had work to do, all its phases together";
    PHASES: Kind::Histogram(COSTS), "trickle_refresh_phase_seconds", ["phase"],
        "Time of each phase of a run, of all stream tables refreshed in it: wait (for locks), decide, generate, execute, cleanup";
    LAG: Kind::Histogram(LAGS), "trickle_lag_seconds", ["table"],
        "Time from the commit of a change until it is visible: exact if the server keeps the times of commits; if not, counted from when the stream table was last known to show everything, which is longer";
    ROWS: Kind::Counter, "trickle_rows_total", ["table", "change"],
        "Rows that refreshes inserted, updated and deleted in a stream table";
    DELTA_ROWS: Kind::Counter, "trickle_delta_rows_total", ["table"],
        "Rows of changes of its sources that the refreshes of a stream table read";
    ERRORS: Kind::Counter, "trickle_errors_total", ["kind"],
        "Errors by kind: refresh (a refresh failed, or is tried again later), look (an error that kept no refresh from being done), connection";
    CONNECTED: Kind::Gauge, "trickle_connected", [],
        "1 if the refresher is connected to the database";
    LEADER: Kind::Gauge, "trickle_leader", [],
        "1 if this refresher holds the lease and works, 0 if it waits for another one";
    INFO: Kind::Gauge, "trickle_build_info", ["version"],
        "1, with the version of the program";
    READ: Kind::Gauge, "trickle_status_read", [],
        "1 if the state of the stream tables could be read; if not, the metrics below are absent";
    TABLES: Kind::Gauge, "trickle_stream_tables", ["health"],
        "Stream tables by health: fresh, manual (changes wait for a refresh by hand), due, late (behind for more than two periods), failed";
    STALENESS: Kind::Gauge, "trickle_staleness_seconds", ["table"],
        "Greatest age of a committed change that a stream table may not show; 0 if it shows everything, absent if it was never filled";
    PERIOD: Kind::Gauge, "trickle_period_seconds", ["table"],
        "Period of a stream table; absent if its schedule is manual";
    SLOWED: Kind::Gauge, "trickle_slowed_period_seconds", ["table"],
        "Least period of a stream table after a refresh that took more than four fifths of its period; absent otherwise";
    PENDING: Kind::Gauge, "trickle_pending_rows", ["table"],
        "Rows of changes that wait for a stream table; absent if its sources are not captured";
    STATUS: Kind::Gauge, "trickle_status", ["table", "status"],
        "1 for the status that a stream table has: INITIALIZING, ACTIVE, SUSPENDED or ERROR";
    CONSECUTIVE: Kind::Gauge, "trickle_consecutive_errors", ["table"],
        "Failed refreshes of a stream table since the last success";
    BUFFER: Kind::Gauge, "trickle_buffer_bytes", ["source"],
        "Bytes on disk of the buffer that holds the changes of a source";
    LIMIT: Kind::Gauge, "trickle_buffer_limit_bytes", ["source"],
        "Size in bytes from which a buffer keeps no more changes, and its readers are recomputed";
    OLDEST: Kind::Gauge, "trickle_oldest_transaction_seconds", [],
        "Age of the oldest open transaction; while it is open, old rows of stream tables and applied changes cannot be removed";
}

impl Metric {
    fn options(&self) -> Opts {
        Opts::new(self.name, self.help)
    }
    fn added<C: Collector + Clone + 'static>(made: Result<C>, to: &Registry) -> Result<C> {
        let made = made?;
        to.register(Box::new(made.clone()))?;
        Ok(made)
    }
    pub(super) fn counter(&self, to: &Registry) -> Result<IntCounterVec> {
        Metric::added(IntCounterVec::new(self.options(), self.labels), to)
    }
    pub(super) fn gauge(&self, to: &Registry) -> Result<GaugeVec> {
        Metric::added(GaugeVec::new(self.options(), self.labels), to)
    }
    pub(super) fn count(&self, to: &Registry) -> Result<IntGaugeVec> {
        Metric::added(IntGaugeVec::new(self.options(), self.labels), to)
    }
    pub(super) fn histogram(&self, to: &Registry) -> Result<HistogramVec> {
        let mut options = HistogramOpts::new(self.name, self.help);
        if let Kind::Histogram(buckets) = self.kind {
            options = options.buckets(buckets.to_vec());
        }
        Metric::added(HistogramVec::new(options, self.labels), to)
    }
}

/// The outcomes of a refresh, as labels.
const OUTCOMES: [&str; 3] = ["completed", "failed", "later"];

/// The actions of a refresh, as labels.
const ACTIONS: [&str; 5] = ["NO_DATA", "DIFFERENTIAL", "FULL", "REINITIALIZE", "none"];

const CHANGES: [&str; 3] = ["inserted", "updated", "deleted"];

/// All counts since the program started. The refresher and the HTTP server share them.
pub(crate) struct Metrics {
    registry: Registry,
    refreshes: IntCounterVec,
    duration: HistogramVec,
    phases: HistogramVec,
    lag: HistogramVec,
    rows: IntCounterVec,
    delta_rows: IntCounterVec,
    errors: IntCounterVec,
    connected: IntGaugeVec,
    leader: IntGaugeVec,
    /// The names of the stream tables for which any metric has a value.
    known: Mutex<BTreeSet<String>>,
}

const NONE: [&str; 0] = [];

impl Metrics {
    /// Makes all metrics, at zero.
    ///
    /// # Errors
    /// The list of metrics is invalid, which a test would show.
    pub(crate) fn new() -> Result<Metrics> {
        let registry = Registry::new();
        let r = &registry;
        let metrics = Metrics {
            refreshes: REFRESHES.counter(r)?,
            duration: DURATION.histogram(r)?,
            phases: PHASES.histogram(r)?,
            lag: LAG.histogram(r)?,
            rows: ROWS.counter(r)?,
            delta_rows: DELTA_ROWS.counter(r)?,
            errors: ERRORS.counter(r)?,
            connected: CONNECTED.count(r)?,
            leader: LEADER.count(r)?,
            known: Mutex::default(),
            registry,
        };
        let version = INFO.count(&metrics.registry)?;
        version.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        for kind in ["refresh", "look", "connection"] {
            metrics.errors.with_label_values(&[kind]);
        }
        metrics.set_connected(false);
        Ok(metrics)
    }

    /// Counts an event of the refresher.
    pub(crate) fn note(&self, event: &Event<'_>) {
        let error = |kind| self.errors.with_label_values(&[kind]).inc();
        match event {
            Event::Connected(_) => self.set_connected(true),
            Event::Disconnected(..) => {
                self.set_connected(false);
                error("connection");
            }
            Event::Trouble(_) => error("look"),
            Event::Failed { tables, error: e } => {
                error("refresh");
                let outcome = if e.is_busy() || e.is_transient() { "later" } else { "failed" };
                for table in *tables {
                    self.know(table);
                    self.refreshes.with_label_values(&[table, "none", outcome]).inc();
                }
            }
            Event::Refreshed(done) => self.refreshed(done),
            Event::Waiting(_) => {
                self.connected.with_label_values(&NONE).set(1);
                self.leader.with_label_values(&NONE).set(0);
            }
            Event::Disabled
            | Event::Foreign(_)
            | Event::Slow(_)
            | Event::Suspended(_)
            | Event::Concerns(_) => {}
        }
    }

    fn refreshed(&self, done: &[Refreshed]) {
        let mut run = done.first().map(|d| d.shared).unwrap_or_default();
        for report in done.iter().map(|d| &d.report) {
            let table = report.name.as_str();
            self.know(table);
            self.refreshes.with_label_values(&[table, report.action.name(), "completed"]).inc();
            run = sum(&run, &report.phases);
            if report.action == Action::NoData {
                continue;
            }
            self.duration.with_label_values(&[table]).observe(seconds(report.phases.total()));
            if let Some(ms) = report.lag_ms {
                self.lag.with_label_values(&[table]).observe(ms / 1e3);
            }
            let changed = [report.rows_inserted, report.rows_updated, report.rows_deleted];
            for (change, rows) in CHANGES.into_iter().zip(changed) {
                self.rows.with_label_values(&[table, change]).inc_by(u64::try_from(rows).unwrap_or(0));
            }
            let delta_rows = u64::try_from(report.delta_rows).unwrap_or(0);
            self.delta_rows.with_label_values(&[table]).inc_by(delta_rows);
        }
        for (phase, micros) in phases(&run) {
            self.phases.with_label_values(&[phase]).observe(seconds(micros));
        }
    }

    fn set_connected(&self, connected: bool) {
        self.connected.with_label_values(&NONE).set(i64::from(connected));
        self.leader.with_label_values(&NONE).set(i64::from(connected));
    }

    /// Whether the refresher is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.connected.with_label_values(&NONE).get() == 1
    }

    fn know(&self, table: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(table) {
            known.insert(table.to_owned());
        }
    }

    /// Forgets the counts of stream tables that are not in `there`. Otherwise stream tables that are made and
    /// dropped all day would fill the memory.
    pub(super) fn keep(&self, there: &BTreeSet<&str>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|table| {
            let stays = there.contains(table.as_str());
            if !stays {
                self.forget(table);
            }
            stays
        });
    }

    /// Forgets the counts of one stream table. An error of a removal means only that the count had no value.
    fn forget(&self, table: &str) {
        for (action, outcome) in ACTIONS.iter().flat_map(|a| OUTCOMES.iter().map(move |o| (a, o))) {
            let _ = self.refreshes.remove_label_values(&[table, action, outcome]);
        }
        for change in CHANGES {
            let _ = self.rows.remove_label_values(&[table, change]);
        }
        let _ = self.duration.remove_label_values(&[table]);
        let _ = self.lag.remove_label_values(&[table]);
        let _ = self.delta_rows.remove_label_values(&[table]);
    }

    /// Returns all counts.
    pub(super) fn gather(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.registry.gather()
    }
}

/// Returns the durations of the phases in microseconds, with the names of the phases, in order.
pub(super) fn phases(p: &Phases) -> [(&'static str, u64); 5] {
    [
        ("wait", p.wait),
        ("decide", p.decide),
        ("generate", p.generate),
        ("execute", p.execute),
        ("cleanup", p.cleanup),
    ]
}

fn sum(a: &Phases, b: &Phases) -> Phases {
    Phases {
        wait: a.wait.saturating_add(b.wait),
        decide: a.decide.saturating_add(b.decide),
        generate: a.generate.saturating_add(b.generate),
        execute: a.execute.saturating_add(b.execute),
        cleanup: a.cleanup.saturating_add(b.cleanup),
    }
}

fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests;
