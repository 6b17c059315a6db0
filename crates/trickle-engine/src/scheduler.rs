//! Finds the stream tables that are due and have changes: a refresher's knowledge of the clock and the
//! catalog. The scheduler's owner runs the refreshes, side by side on connections or in processes of the
//! server.
//!
//! It holds no state that must be kept: the frontiers are in the database, so the scheduler may be forgotten
//! at any time. There may be several, and one of them refreshes a table at a time.

mod look;

use crate::db::Connection;
use crate::health::Concern;
use crate::registry::{self, Registry, shown};
use crate::{Error, RefreshOptions, Result, Trickle};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trickle_core::catalog::TableId;
use trickle_core::refresh::Lease;
use trickle_core::schedule::{self, Agenda, Known, Schedule, Time};
use trickle_core::vocabulary::{Activity, Initiator};

pub use trickle_core::schedule::{Due, Outcome};

/// The options of a scheduler.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerOptions {
    /// Periods, retries, and the number of groups that are refreshed at a time.
    pub schedule: schedule::Options,
    /// The time between two looks for stream tables that were created, altered or resumed.
    pub reload: Duration,
    /// The time for which a buffer holds no new changes before it is emptied. A look costs less where buffers
    /// are empty.
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
    /// Returns the options to refresh a group that is due, under the lease of this refresher.
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

/// Returns the outcome of a refresh for its schedule.
pub fn outcome_of<T>(result: &Result<T>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(e) if e.is_busy() || e.is_transient() || e.is_connection() => Outcome::Later,
        Err(_) => Outcome::Failed,
    }
}

/// The result of a look.
#[derive(Debug)]
pub struct Found {
    /// The groups to refresh now, which count as running from now on.
    pub due: Vec<Due>,
    /// The latest time for the next look; `None`: nothing is known to become due.
    pub wake: Option<Time>,
    /// Stream tables whose last refresh took most of their period, which is longer from now on. Each is
    /// reported at most every ten minutes.
    pub slow: Vec<Slow>,
    /// An error since the last look that does not keep the scheduler from going on.
    pub trouble: Option<Error>,
}

/// A stream table that is refreshed less often than its schedule says, since a refresh takes too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Its name.
    pub name: String,
    /// The period of its schedule.
    pub period: Duration,
    /// The period in force instead.
    pub instead: Duration,
}

/// A stream table that is not refreshed until somebody resumes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspended {
    /// Its name.
    pub name: String,
    /// The message of its last failure; `None` where somebody suspended it.
    pub why: Option<String>,
}

impl std::fmt::Display for Suspended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why =
            self.why.as_ref().map_or_else(|| "by hand".to_owned(), |why| format!("after errors: {why}"));
        write!(f, "{} is suspended, {why}", self.name)
    }
}

/// Stream tables that a look found to have nothing to do.
#[derive(Debug)]
struct Still {
    /// The snapshot of that look, if it was asked for.
    snapshot: Option<String>,
    tables: BTreeSet<TableId>,
}

/// A scheduler: see the [module](self).
#[derive(Debug)]
pub struct Scheduler {
    options: SchedulerOptions,
    registry: Registry,
    /// The [`STAMP`] of the catalog from which the registry was read.
    stamp: String,
    agenda: Agenda,
    /// The instant from which durations are measured.
    started: Instant,
    /// The stream tables that the last look found to have no changes.
    still: Option<Still>,
    /// The instant at which each slow stream table was last reported.
    slow: BTreeMap<TableId, Instant>,
    /// Sources whose buffers hold only counted changes, and since when.
    counted: BTreeMap<TableId, Instant>,
    /// The instant at which the catalog was last checked for changes.
    looked: Option<Instant>,
    /// The instant at which the catalog was last read, and the time that the reading took.
    read: Option<(Instant, Duration)>,
    foreign: BTreeSet<String>,
    /// Stream tables that were found suspended, and are not reported yet.
    suspended: Vec<Suspended>,
    /// The instant of the last check for conditions that hold the database back.
    asked: Option<Instant>,
    /// The keys of the concerns that this check found.
    held: BTreeSet<String>,
    /// The concerns that are not reported yet.
    concerns: Vec<Concern>,
    trouble: Option<Error>,
}

/// The time after which a slow stream table is reported again: some refreshes are slower than others.
const SLOW_AGAIN: Duration = Duration::from_secs(600);

/// The time between two checks for conditions that hold the database back.
const CONCERN: Duration = Duration::from_secs(60);

/// Returns the time of this machine's clock.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A hash of the facts that the scheduler knows of the catalog, without those that refreshes write
/// themselves.
const STAMP: &str = "SELECT coalesce(md5(string_agg(concat_ws('|', pgt_id, pgt_relid, schedule, refresh_mode, \
     layout_hash, status IN ('SUSPENDED', 'ERROR'), needs_reinit, diamond_consistency, md5(defining_query)), ',' ORDER BY pgt_id)), '') \
     FROM pgtrickle.pgt_stream_tables";

/// The greatest age of the registry: an altered source is noticed within this time.
const REREAD: Duration = Duration::from_secs(5);

/// The greatest age of the registry where reading it takes long, for thousands of stream tables: this
/// multiple of the last reading time, up to this limit.
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

    /// Sets the options from now on. Running refreshes stay known.
    pub fn set_options(&mut self, options: SchedulerOptions) {
        self.options = options;
        self.agenda.options = options.schedule;
        (self.looked, self.read) = (None, None);
    }

    /// Returns the number of stream tables that it knows.
    pub fn known(&self) -> usize {
        self.agenda.tasks.len()
    }

    /// Returns the names of stream tables, without those that it does not know.
    pub fn names(&self, ids: &[TableId]) -> Vec<String> {
        ids.iter().filter_map(|id| self.registry.by_table(*id)).map(shown).collect()
    }

    /// Reads the catalog again if it has changed or the last reading is old. Returns whether it was time to
    /// check.
    ///
    /// # Errors
    /// The errors of the statements.
    pub async fn reload<C: Connection>(&mut self, watch: &mut Trickle<C>) -> Result<bool> {
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

    /// Checks for conditions that hold the database back, once in [`CONCERN`]. It checks more often if a
    /// fifth of the age at which an open transaction is reported is shorter.
    async fn concern<C: Connection>(&mut self, watch: &Trickle<C>) -> Result<()> {
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

    /// Returns the conditions that began to hold the database back, each once while it lasts.
    pub fn concerns(&mut self) -> Vec<Concern> {
        std::mem::take(&mut self.concerns)
    }

    /// Returns the stream tables of other owners, which are left alone, each once.
    pub fn foreign(&mut self) -> Vec<String> {
        let names: Vec<String> = self.registry.entries().filter(|e| !e.own).map(shown).collect();
        names.into_iter().filter(|n| self.foreign.insert(n.clone())).collect()
    }

    /// Returns the stream tables that were suspended, each once.
    pub fn suspended(&mut self) -> Vec<Suspended> {
        std::mem::take(&mut self.suspended)
    }

    /// Finds the groups that are due and have something to do, and the time of the next look.
    ///
    /// # Errors
    /// The errors of the statements.
    pub async fn look<C: Connection>(&mut self, watch: &mut Trickle<C>) -> Result<Found> {
        let time = now();
        // Groups with changes wait for their turn. All other groups that are due are looked at, many or few.
        // A group without changes is no longer due; then groups that waited for it are due, and are looked at
        // next.
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

    /// Forgets which stream tables had nothing to do, since something may have been committed since the last
    /// look.
    pub fn forget_still(&mut self) {
        self.still = None;
    }

    /// Returns the result of a look at `time`, if nothing was committed between the last
    /// [`forget_still`](Scheduler::forget_still) and that time. Asks the server nothing. Returns `None` where
    /// it would have to ask: a stream table was not looked at since, one that reads a clock is due, or a
    /// buffer is to be emptied.
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

    /// Returns the slow stream tables that were not reported lately.
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

    /// Notes the outcome of a refresh.
    pub fn ended(&mut self, due: &Due, outcome: Outcome) {
        self.agenda.ended(due, outcome, now(), self.started.elapsed());
        if outcome == Outcome::Failed {
            // The failure may have suspended it, so the catalog is read again.
            (self.looked, self.read) = (None, None);
        }
    }
}

fn known(e: &registry::Entry) -> Known {
    Known {
        schedule: e.schedule.as_deref().and_then(|s| Schedule::parse(s).ok()),
        polls: e.polls(),
        suspended: e.status == Activity::Suspended,
        errors: u32::try_from(e.consecutive_errors).unwrap_or(0),
        refreshed: e.data_at,
    }
}
