//! Finds the stream tables that are due and have changes. Its inputs are the clock and the catalog. The
//! process that has the scheduler runs the refreshes, in parallel on several connections or in several
//! processes of the server.
//!
//! A scheduler has no state that must be preserved. The frontiers are in the database, so a scheduler may be
//! dropped at any time. Several schedulers may run at once, and only one of them refreshes a stream table at
//! a time.

mod look;

use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::health::Concern;
use crate::registry::{self, Registry, shown};
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trickle_core::catalog::TableId;
use trickle_core::refresh::Lease;
use trickle_core::schedule::{self, Agenda, Schedule, TableFacts, Time};
use trickle_core::vocabulary::{Activity, Initiator};

pub use trickle_core::schedule::{Due, Outcome};

/// The options of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerOptions {
    /// The periods, the retries, and the number of groups that are refreshed in parallel.
    pub schedule: schedule::Options,
    /// The time between two searches for stream tables that were created, altered or resumed.
    pub reload: Duration,
    /// The time after which a buffer that gets no new changes is emptied. A look for changes costs less if
    /// buffers are empty.
    pub settle: Duration,
}

impl Default for SchedulerOptions {
    fn default() -> SchedulerOptions {
        SchedulerOptions {
            schedule: schedule::Options::default(),
            reload: Duration::from_secs(1),
            settle: Duration::from_secs(10),
        }
    }
}

impl RefreshOptions {
    /// Returns the options for the refresh of a group that is due, under the lease of this refresher.
    pub fn on_schedule(due: &Due, lease: Option<Lease>) -> RefreshOptions {
        RefreshOptions {
            initiated_by: Initiator::Scheduler,
            polled: Some(due.polled.clone()),
            lease,
            quiet_at: due.quiet_at,
            ..RefreshOptions::default()
        }
    }
}

/// Returns the outcome of a refresh in the form that the schedule needs.
pub fn outcome_of<T>(result: &Result<T>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(e) if e.is_busy() || e.is_transient() || e.is_connection() => Outcome::Later,
        Err(_) => Outcome::Failed,
    }
}

/// The result of a look for changes.
#[derive(Debug)]
pub struct Found {
    /// The groups to refresh now. The scheduler counts them as running from this moment on.
    pub due: Vec<Due>,
    /// The latest time for the next look; `None` if no stream table will become due.
    pub wake: Option<Time>,
    /// Stream tables whose last refresh took a large part of their period, so that a longer period is in
    /// force from now on. Each such stream table is reported at most once in ten minutes.
    pub slow: Vec<Slow>,
    /// An error since the last look that does not stop the scheduler.
    pub trouble: Option<Error>,
}

/// A stream table that is refreshed less often than its schedule demands, because its refreshes take too
/// long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// The name of the stream table.
    pub name: String,
    /// The period that the schedule demands.
    pub period: Duration,
    /// The longer period that is in force.
    pub instead: Duration,
}

/// A stream table that is not refreshed until somebody resumes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspended {
    /// The name of the stream table.
    pub name: String,
    /// The message of the last failed refresh; `None` where somebody suspended the stream table.
    pub why: Option<String>,
}

impl std::fmt::Display for Suspended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why =
            self.why.as_ref().map_or_else(|| "by hand".to_owned(), |why| format!("after errors: {why}"));
        write!(f, "{} is suspended, {why}", self.name)
    }
}

/// Stream tables for which a look found nothing to do.
#[derive(Debug)]
struct Still {
    /// The snapshot of that look, if the look read it.
    snapshot: Option<String>,
    tables: BTreeSet<TableId>,
}

/// A scheduler, as the [module](self) describes it.
#[derive(Debug)]
pub struct Scheduler {
    options: SchedulerOptions,
    registry: Registry,
    /// The [`STAMP`] of the catalog at the time when the registry was read.
    stamp: String,
    agenda: Agenda,
    /// The instant from which durations are measured.
    started: Instant,
    /// The stream tables for which the last look found no changes.
    still: Option<Still>,
    /// The instant at which each slow stream table was reported last.
    slow: BTreeMap<TableId, Instant>,
    /// The sources whose buffers have only changes that all readers have counted, each with the instant
    /// since which this is so.
    counted: BTreeMap<TableId, Instant>,
    /// The instant at which the scheduler last checked whether the catalog changed.
    looked: Option<Instant>,
    /// The instant at which the catalog was read last, and the time that reading it took.
    read: Option<(Instant, Duration)>,
    foreign: BTreeSet<String>,
    /// Stream tables that were found suspended and were not reported yet.
    suspended: Vec<Suspended>,
    /// The instant of the last check for conditions that harm the database.
    asked: Option<Instant>,
    /// The keys of the concerns that the last check found.
    held: BTreeSet<String>,
    /// The concerns that were not reported yet.
    concerns: Vec<Concern>,
    trouble: Option<Error>,
}

/// The time after which a slow stream table is reported again, since the durations of refreshes vary.
const SLOW_AGAIN: Duration = Duration::from_secs(600);

/// The time between two checks for conditions that harm the database.
const CONCERN: Duration = Duration::from_secs(60);

/// Returns the present time by this machine's clock.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A hash of the facts in the catalog that the scheduler uses, without those that refreshes themselves
/// write.
const STAMP: &str = "SELECT coalesce(md5(string_agg(concat_ws('|', pgt_id, pgt_relid, schedule, refresh_mode, \
     layout_hash, status IN ('SUSPENDED', 'ERROR'), needs_reinit, diamond_consistency, md5(defining_query)), ',' ORDER BY pgt_id)), '') \
     FROM pgtrickle.pgt_stream_tables";

/// The greatest age of the registry, and so the greatest time until an altered source is noticed.
const REREAD: Duration = Duration::from_secs(5);

/// The greatest age of the registry where reading it takes long, as for thousands of stream tables. The age
/// is this multiple of the last reading time, up to this limit.
const REREAD_SLOWLY: (u32, Duration) = (20, Duration::from_secs(20));

impl Scheduler {
    /// Makes a scheduler that knows no stream tables yet.
    pub fn new(options: SchedulerOptions) -> Scheduler {
        Scheduler {
            options,
            registry: Registry::default(),
            stamp: "unread".to_owned(),
            agenda: Agenda::new(options.schedule),
            started: Instant::now(),
            still: None,
            slow: BTreeMap::new(),
            counted: BTreeMap::new(),
            looked: None,
            read: None,
            foreign: BTreeSet::new(),
            suspended: Vec::new(),
            asked: None,
            held: BTreeSet::new(),
            concerns: Vec::new(),
            trouble: None,
        }
    }

    /// Replaces the options of the scheduler. The scheduler still knows which refreshes are running.
    pub fn set_options(&mut self, options: SchedulerOptions) {
        self.options = options;
        self.agenda.options = options.schedule;
        (self.looked, self.read) = (None, None);
    }

    /// Returns the number of stream tables that the scheduler knows.
    pub fn known(&self) -> usize {
        self.agenda.tasks.len()
    }

    /// Returns the names of those stream tables that the scheduler knows.
    pub fn names(&self, ids: &[TableId]) -> Vec<String> {
        ids.iter().filter_map(|id| self.registry.by_table(*id)).map(shown).collect()
    }

    /// Reads the catalog again if the catalog has changed or the registry is too old. Returns whether the
    /// scheduler checked the catalog, which it does once in [`SchedulerOptions::reload`].
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn reload<C: RefreshDriver>(&mut self, watch: &mut Trickle<C>) -> Result<bool> {
        if self.looked.is_some_and(|at| at.elapsed() < self.options.reload) {
            return Ok(false);
        }
        self.looked = Some(Instant::now());
        let fail = |e| Error::server("look at the catalog", e);
        let rows = watch.db().query(STAMP, &[]).await.map_err(fail)?;
        let stamp: String = rows.first().map(|r| r.get(0)).unwrap_or_default();
        watch.prune_history().await?;
        self.concern(watch).await?;
        if self.registry.entries().any(|e| e.own && e.is_beside()) {
            watch.drop_left(None).await?;
        }
        let is_recent = |(at, took): (Instant, Duration)| {
            at.elapsed() < (took * REREAD_SLOWLY.0).clamp(REREAD, REREAD_SLOWLY.1)
        };
        if stamp == self.stamp && self.read.is_some_and(is_recent) {
            return Ok(true);
        }
        let started = Instant::now();
        self.registry = watch.registry().await?;
        self.stamp = stamp;
        self.read = Some((Instant::now(), started.elapsed()));
        self.still = None;
        let known = self.registry.entries().filter(|e| e.own && e.exists).map(|e| (e.relation.id, known(e)));
        let suspended = self.agenda.learn(self.registry.dag()?, known.collect(), now());
        let told = |e: &registry::Entry| Suspended { name: shown(e), why: e.last_error.clone() };
        self.suspended.extend(suspended.iter().filter_map(|id| self.registry.by_table(*id)).map(told));
        Ok(true)
    }

    /// Checks for conditions that harm the database, once in [`CONCERN`]. If a fifth of
    /// [`crate::Settings::long_transaction`] is shorter than [`CONCERN`], checks once in that shorter time.
    async fn concern<C: RefreshDriver>(&mut self, watch: &Trickle<C>) -> Result<()> {
        let often = (watch.settings.long_transaction / 5).min(CONCERN);
        if self.asked.is_some_and(|at| at.elapsed() < often) {
            return Ok(());
        }
        self.asked = Some(Instant::now());
        let all = match watch.concerns().await {
            Err(e) if e.is_connection() => return Err(e),
            Err(e) => {
                self.trouble = Some(e);
                return Ok(());
            }
            Ok(all) => all,
        };
        let before = std::mem::replace(&mut self.held, all.iter().map(Concern::key).collect());
        self.concerns.extend(all.into_iter().filter(|c| !before.contains(&c.key())));
        Ok(())
    }

    /// Returns the concerns that were found since the last call. A concern that lasts is returned once.
    pub fn concerns(&mut self) -> Vec<Concern> {
        std::mem::take(&mut self.concerns)
    }

    /// Returns the stream tables of other owners, which the scheduler does not refresh. Each of them is
    /// returned once.
    pub fn foreign(&mut self) -> Vec<String> {
        let names: Vec<String> = self.registry.entries().filter(|e| !e.own).map(shown).collect();
        names.into_iter().filter(|n| self.foreign.insert(n.clone())).collect()
    }

    /// Returns the stream tables that were found suspended since the last call, each once.
    pub fn suspended(&mut self) -> Vec<Suspended> {
        std::mem::take(&mut self.suspended)
    }

    /// Finds the groups that are due and have changes to apply, and the time of the next look.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn look<C: RefreshDriver>(&mut self, watch: &mut Trickle<C>) -> Result<Found> {
        let time = now();
        // Groups with known changes wait for their turn. All other groups that are due are looked at,
        // whatever their number. A group without changes is then no longer due. Groups that waited for such
        // a group become due, and are looked at next.
        let (mut due, mut plan) = self.agenda.unknown(time);
        let slow = self.slow(&plan.slow);
        while !due.is_empty() {
            self.look_at(watch, &due, time).await?;
            (due, plan) = self.agenda.unknown(time);
        }
        if !self.agenda.has_waiting() {
            return Ok(Found { due, wake: plan.wake, slow, trouble: self.trouble.take() });
        }
        let due = self.agenda.ready(time);
        let clock = self.started.elapsed();
        due.iter().for_each(|d| self.agenda.begin(d, time, clock));
        Ok(Found { due, wake: self.agenda.wake(now()), slow, trouble: self.trouble.take() })
    }

    /// Forgets which stream tables had nothing to do, since another session may have committed changes since
    /// the last look.
    pub fn forget_still(&mut self) {
        self.still = None;
    }

    /// Returns the result that a look at `time` would have, if no transaction was committed between the last
    /// [`forget_still`](Scheduler::forget_still) and `time`. Sends no statement to the server. Returns `None`
    /// where a look would need a statement. The reason may be a buffer to empty. It may also be a due stream
    /// table that reads the clock, or that was not looked at since that call of `forget_still`.
    pub fn look_again(&mut self, time: Time) -> Option<Found> {
        if self.agenda.has_waiting() || !self.counted.is_empty() {
            return None;
        }
        let (mut due, mut plan) = self.agenda.due(time);
        while !due.is_empty() {
            let members = due.iter().flat_map(|d| &d.members).copied().collect();
            if !self.are_still(&self.agenda.dag.refresh_set(&members)) {
                return None;
            }
            self.agenda.still_quiet(&due, time);
            (due, plan) = self.agenda.due(time);
        }
        Some(Found { due, wake: plan.wake, slow: self.slow(&plan.slow), trouble: None })
    }

    /// Returns the slow stream tables that were not reported within [`SLOW_AGAIN`].
    fn slow(&mut self, all: &[(TableId, Duration)]) -> Vec<Slow> {
        let tasks = &self.agenda.tasks;
        self.slow.retain(|id, told| tasks.contains_key(id) && told.elapsed() < SLOW_AGAIN);
        let mut new = Vec::new();
        for slow in all {
            if let Entry::Vacant(e) = self.slow.entry(slow.0) {
                e.insert(Instant::now());
                new.push(slow);
            }
        }
        let told = |(id, instead): &(TableId, Duration)| {
            let period = *self.agenda.periods().get(id)?;
            Some(Slow { name: shown(self.registry.by_table(*id)?), period, instead: *instead })
        };
        new.into_iter().filter_map(told).collect()
    }

    /// Notes the outcome of a refresh in the agenda.
    pub fn ended(&mut self, due: &Due, outcome: Outcome) {
        self.agenda.ended(due, outcome, now(), self.started.elapsed());
        if outcome == Outcome::Failed {
            // The failure may have suspended a stream table, so the catalog is read again.
            (self.looked, self.read) = (None, None);
        }
    }
}

fn known(e: &registry::Entry) -> TableFacts {
    TableFacts {
        schedule: e.schedule.as_deref().and_then(|s| Schedule::parse(s).ok()),
        polls: e.polls(),
        suspended: e.status == Activity::Suspended,
        errors: u32::try_from(e.consecutive_errors).unwrap_or(0),
        refreshed: e.data_at,
    }
}
