//! What is due and has anything to do: what a refresher knows of the clock and the catalog. How refreshes are run, side by
//! side on connections or in processes of the server's, is its owner's.
//!
//! It holds no state that matters: what was consumed is in the database, so it may be forgotten at any time, and there may
//! be several, of which one refreshes a table at a time.

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

/// How a scheduler looks.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerOptions {
    /// Periods, retries, and how many groups are refreshed at a time.
    pub schedule: schedule::Options,
    /// How often to look whether stream tables were made, altered or resumed.
    pub reload: Duration,
    /// How long a buffer holds nothing new before it is emptied, since a look opens what is not empty.
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
    /// How what is due is refreshed, by who holds this lease.
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

/// How a refresh ended, for its schedule.
pub fn outcome_of<T>(result: &Result<T>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(e) if e.is_busy() || e.is_transient() || e.is_connection() => Outcome::Later,
        Err(_) => Outcome::Failed,
    }
}

/// What a look found.
#[derive(Debug)]
pub struct Found {
    /// What is to be refreshed now, and counts as running from now on.
    pub due: Vec<Due>,
    /// When to look again at the latest; `None`: nothing is known to become due.
    pub wake: Option<Time>,
    /// Stream tables whose last refresh took most of their period, which is longer from now on; of each it is told every ten
    /// minutes at most.
    pub slow: Vec<Slow>,
    /// What went wrong meanwhile and keeps nobody from going on.
    pub trouble: Option<Error>,
}

/// A stream table that is refreshed less often than its schedule says, since a refresh takes longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slow {
    /// Which.
    pub name: String,
    /// What its schedule says.
    pub period: Duration,
    /// The period in force instead.
    pub instead: Duration,
}

/// A stream table that is not refreshed any more until somebody resumes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspended {
    /// Which.
    pub name: String,
    /// What its last failure said; `None` where somebody suspended it.
    pub why: Option<String>,
}

impl std::fmt::Display for Suspended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why =
            self.why.as_ref().map_or_else(|| "by hand".to_owned(), |why| format!("after errors: {why}"));
        write!(f, "{} is suspended, {why}", self.name)
    }
}

/// Stream tables that were seen to have nothing to do.
#[derive(Debug)]
struct Still {
    /// Under which snapshot, if that was asked.
    snapshot: Option<String>,
    tables: BTreeSet<TableId>,
}

/// See the module.
#[derive(Debug)]
pub struct Scheduler {
    options: SchedulerOptions,
    registry: Registry,
    /// What the registry was read from.
    stamp: String,
    agenda: Agenda,
    /// What durations are measured from.
    started: Instant,
    /// What the last look found to have no changes.
    still: Option<Still>,
    /// When some were told to be slow.
    slow: BTreeMap<TableId, Instant>,
    /// Sources whose buffers hold nothing but what was counted, since when.
    counted: BTreeMap<TableId, Instant>,
    /// When the catalog was last looked at.
    looked: Option<Instant>,
    /// When it was last read, and what that took.
    read: Option<(Instant, Duration)>,
    foreign: BTreeSet<String>,
    /// Those that were found suspended, and not told yet.
    suspended: Vec<Suspended>,
    /// When it was last asked what holds the database back.
    asked: Option<Instant>,
    /// What does, as was found then.
    held: BTreeSet<String>,
    /// What of that was not told yet.
    concerns: Vec<Concern>,
    trouble: Option<Error>,
}

/// How long nothing is said again of one that is slow: some refreshes are slower than others.
const SLOW_AGAIN: Duration = Duration::from_secs(600);

/// How often it is asked what holds the database back.
const CONCERN: Duration = Duration::from_secs(60);

/// The time of this machine's clock.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Identifies what the scheduler knows of the catalog. What refreshes write themselves is left out.
const STAMP: &str = "SELECT coalesce(md5(string_agg(concat_ws('|', pgt_id, pgt_relid, schedule, refresh_mode, \
     layout_hash, status IN ('SUSPENDED', 'ERROR'), needs_reinit, diamond_consistency, md5(defining_query)), ',' ORDER BY pgt_id)), '') \
     FROM pgtrickle.pgt_stream_tables";

/// How old the reading of the catalog may be: sources that were altered are noticed within this time.
const REREAD: Duration = Duration::from_secs(5);

/// Where reading the catalog takes long, for thousands of stream tables, it is read less often: after so many times what it
/// took, but not later than this.
const REREAD_SLOWLY: (u32, Duration) = (20, Duration::from_secs(20));

impl Scheduler {
    /// Knows nothing yet.
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

    /// Looks otherwise from now on; what is at work stays known.
    pub fn set_options(&mut self, options: SchedulerOptions) {
        self.options = options;
        self.agenda.options = options.schedule;
        (self.looked, self.read) = (None, None);
    }

    /// How many stream tables it knows.
    pub fn known(&self) -> usize {
        self.agenda.tasks.len()
    }

    /// The names of stream tables, of those that it knows.
    pub fn names(&self, ids: &[TableId]) -> Vec<String> {
        ids.iter().filter_map(|id| self.registry.by_table(*id)).map(shown).collect()
    }

    /// Reads the catalog again where it changed, or the last reading is old; whether it was time to ask.
    ///
    /// # Errors
    /// Those of the questions.
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

    /// Asks what holds the database back, each minute or so: within a fifth of the time after which a transaction is told.
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

    /// What began to hold the database back, each once while it does.
    pub fn concerns(&mut self) -> Vec<Concern> {
        std::mem::take(&mut self.concerns)
    }

    /// Stream tables of other owners, which are left alone: those that were not told yet.
    pub fn foreign(&mut self) -> Vec<String> {
        let names: Vec<String> = self.registry.entries().filter(|e| !e.own).map(shown).collect();
        names.into_iter().filter(|n| self.foreign.insert(n.clone())).collect()
    }

    /// Stream tables that were suspended, each once.
    pub fn suspended(&mut self) -> Vec<Suspended> {
        std::mem::take(&mut self.suspended)
    }

    /// Finds what is due and has anything to do, and when to look again.
    ///
    /// # Errors
    /// Those of the questions.
    pub async fn look<C: Connection>(&mut self, watch: &mut Trickle<C>) -> Result<Found> {
        let time = now();
        // What was found to have changes waits for its turn; whatever else is due is looked at, many or few. What is found to have
        // none is not due any more; what waited for it is, and is looked at in its turn.
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

    /// Something may have been committed since the last look, so what that saw to have nothing to do may have.
    pub fn forget_still(&mut self) {
        self.still = None;
    }

    /// What a look at a time finds where nothing was committed between the last [`forget_still`](Scheduler::forget_still) and that
    /// time. It asks nobody; `None` where it would have to: something was not looked at since, what reads a clock is due, or
    /// a buffer is to be emptied.
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

    /// Those that are slow and were not told to be lately.
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

    /// Notes how a refresh ended.
    pub fn ended(&mut self, due: &Due, outcome: Outcome) {
        self.agenda.ended(due, outcome, now(), self.started.elapsed());
        if outcome == Outcome::Failed {
            // Whether it is suspended now is in the catalog.
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
