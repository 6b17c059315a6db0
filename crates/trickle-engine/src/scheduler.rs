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
use trickle_core::dag::Dag;
use trickle_core::refresh::Lease;
use trickle_core::schedule::{self, Action, Plan, Schedule, Status, Task, Time};

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

/// What is to be refreshed together, now.
#[derive(Clone, Debug)]
pub struct Due {
    /// The stream tables.
    pub members: Vec<TableId>,
    /// Those that are to be computed anew because nobody can tell whether they changed.
    pub polled: BTreeSet<TableId>,
    /// When all of them were last seen to have nothing to do, if that was seen.
    pub quiet_at: Option<Time>,
}

impl Due {
    /// How they are refreshed, by who holds this lease.
    pub fn options(&self, lease: Option<Lease>) -> RefreshOptions {
        RefreshOptions {
            initiated_by: Some("SCHEDULER"),
            polled: Some(self.polled.clone()),
            lease,
            quiet_at: self.quiet_at,
            ..RefreshOptions::default()
        }
    }

    /// Whether a member's time came, in which it is looked at with all that it reads.
    fn asks(&self, id: TableId, task: &Task) -> bool {
        !task.polls || self.polled.contains(&id)
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

/// How a refresh ended, as far as its schedule goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// Somebody was in the way: it is tried again.
    Later,
    /// It failed.
    Failed,
}

impl Outcome {
    /// Of a refresh that ended so.
    pub fn of<T>(result: &Result<T>) -> Outcome {
        match result {
            Ok(_) => Outcome::Done,
            Err(e) if e.is_busy() || e.is_transient() || e.is_connection() => Outcome::Later,
            Err(_) => Outcome::Failed,
        }
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
    tasks: BTreeMap<TableId, Task>,
    /// How old each may become.
    periods: BTreeMap<TableId, Duration>,
    /// Those that have changes and wait for their turn.
    changed: BTreeSet<TableId>,
    /// What the last look at them found to have none.
    still: Option<Still>,
    /// When each was last known to have none: at a look, or when its last refresh began.
    quiet: BTreeMap<TableId, Time>,
    /// When some were told to be slow.
    slow: BTreeMap<TableId, Instant>,
    /// When those at work were started, by a clock that nobody sets: a duration over which the clock of the machine was set
    /// forward would pass for a long refresh, and the next one be put off for as long.
    begun: BTreeMap<TableId, Instant>,
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
            tasks: BTreeMap::new(),
            periods: BTreeMap::new(),
            changed: BTreeSet::new(),
            still: None,
            quiet: BTreeMap::new(),
            slow: BTreeMap::new(),
            begun: BTreeMap::new(),
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
        (self.looked, self.read) = (None, None);
    }

    /// How many stream tables it knows.
    pub fn known(&self) -> usize {
        self.tasks.len()
    }

    /// The names of stream tables, of those that it knows.
    pub fn names(&self, ids: &[TableId]) -> Vec<String> {
        ids.iter().filter_map(|id| self.registry.by_table(*id)).map(shown).collect()
    }

    /// Reads the catalog again where it changed, or the last reading is old.
    ///
    /// # Errors
    /// Those of the questions.
    pub async fn reload<C: Connection>(&mut self, watch: &mut Trickle<C>) -> Result<()> {
        if self.looked.is_some_and(|at| at.elapsed() < self.options.reload) {
            return Ok(());
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
            return Ok(());
        }
        let started = Instant::now();
        self.registry = watch.registry().await?;
        self.stamp = stamp;
        self.read = Some((Instant::now(), started.elapsed()));
        self.still = None;
        let (mut tasks, time) = (BTreeMap::new(), now());
        for e in self.registry.entries().filter(|e| e.own && e.exists) {
            let old = self.tasks.remove(&e.relation.id).map(|t| t.status);
            if e.status == "SUSPENDED" && old.is_some_and(|o| !o.suspended) {
                self.suspended.push(Suspended { name: shown(e), why: e.last_error.clone() });
            }
            tasks.insert(e.relation.id, task(e, old, time));
        }
        self.tasks = tasks;
        let periods = self.registry.periods(&self.options.schedule)?;
        let table = |(id, p)| Some((self.registry.get(id)?.relation.id, p));
        self.periods = periods.into_iter().filter_map(table).collect();
        self.changed.retain(|id| self.tasks.contains_key(id));
        self.quiet.retain(|id, _| self.tasks.contains_key(id));
        Ok(())
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
        let dag = self.registry.dag()?;
        // What was found to have changes waits for its turn; whatever else is due is looked at, many or few.
        let all = schedule::Options { max_concurrent: usize::MAX, ..self.options.schedule };
        let (mut due, Plan { wake, slow, .. }) = self.due(&dag, &all, time);
        let slow = self.slow(&slow);
        if due.is_empty() {
            return Ok(Found { due, wake, slow, trouble: None });
        }
        // What is found to have none is not due any more; what waited for it is, and is looked at in its turn.
        loop {
            due.retain(|d| !self.has_changes(d));
            if due.is_empty() {
                break;
            }
            self.look_at(watch, &dag, &due, time).await?;
            (due, _) = self.due(&dag, &all, time);
        }
        let (due, _) = self.due(&dag, &self.options.schedule, time);
        let due: Vec<Due> = due.into_iter().filter(|d| self.has_changes(d)).collect();
        for due in &due {
            for id in &due.members {
                self.changed.remove(id);
                let Some(t) = self.tasks.get_mut(id) else { continue };
                t.status.running = true;
                if due.asks(*id, t) {
                    (t.status.last_start, t.status.last_end) = (Some(time), None);
                    self.begun.insert(*id, Instant::now());
                }
            }
        }
        // What became due meanwhile is looked at at once.
        let time = now();
        let next = schedule::next(&dag, &self.tasks, &self.options.schedule, time);
        let startable = next.actions.iter().any(|a| matches!(a, Action::Refresh { .. }));
        let wake = if startable { Some(time) } else { next.wake };
        Ok(Found { due, wake, slow, trouble: self.trouble.take() })
    }

    /// Something may have been committed since the last look, so what that saw to have nothing to do may have.
    pub fn forget_still(&mut self) {
        self.still = None;
    }

    /// What a look at a time finds where nothing was committed between the last [`forget_still`](Scheduler::forget_still) and that
    /// time. It asks nobody; `None` where it would have to: something was not looked at since, what reads a clock is due, or
    /// a buffer is to be emptied.
    pub fn look_again(&mut self, time: Time) -> Option<Found> {
        if !self.changed.is_empty() || !self.counted.is_empty() {
            return None;
        }
        let dag = self.registry.dag().ok()?;
        let all = schedule::Options { max_concurrent: usize::MAX, ..self.options.schedule };
        let (mut due, mut plan) = self.due(&dag, &all, time);
        while !due.is_empty() {
            let members = due.iter().flat_map(|d| &d.members).copied().collect();
            if !self.are_still(&dag.refresh_set(&members)) {
                return None;
            }
            self.found_quiet(&due, time);
            self.quiet.extend(members.iter().map(|id| (*id, time)));
            (due, plan) = self.due(&dag, &all, time);
        }
        Some(Found { due, wake: plan.wake, slow: self.slow(&plan.slow), trouble: None })
    }

    /// Those that are slow and were not told to be lately.
    fn slow(&mut self, all: &[(TableId, Duration)]) -> Vec<Slow> {
        let tasks = &self.tasks;
        self.slow.retain(|id, told| tasks.contains_key(id) && told.elapsed() < SLOW_AGAIN);
        let mut new = Vec::new();
        for slow in all {
            if let Entry::Vacant(e) = self.slow.entry(slow.0) {
                e.insert(Instant::now());
                new.push(slow);
            }
        }
        let told = |(id, instead): &(TableId, Duration)| {
            let period = self.periods.get(id)?.max(&self.options.schedule.min_period);
            Some(Slow { name: shown(self.registry.by_table(*id)?), period: *period, instead: *instead })
        };
        new.into_iter().filter_map(told).collect()
    }

    /// What is due, and what else the plan says.
    fn due(&self, dag: &Dag, options: &schedule::Options, time: Time) -> (Vec<Due>, Plan) {
        let mut plan = schedule::next(dag, &self.tasks, options, time);
        let due = std::mem::take(&mut plan.actions).into_iter().filter_map(|a| match a {
            Action::Refresh { members, polled, .. } => {
                let quiet = members.iter().map(|id| self.quiet.get(id).copied());
                let quiet_at = quiet.min().flatten();
                Some(Due { members, polled: polled.into_iter().collect(), quiet_at })
            }
            Action::Suspend { .. } => None,
        });
        (due.collect(), plan)
    }

    /// Notes how a refresh ended.
    pub fn ended(&mut self, due: &Due, outcome: Outcome) {
        let time = now();
        let mut again = false;
        for id in &due.members {
            let took = self.begun.remove(id).map(|at| at.elapsed());
            let Some(t) = self.tasks.get_mut(id) else { continue };
            t.status.running = false;
            if due.asks(*id, t) {
                let measured = t.status.last_start.zip(took).map(|(start, took)| start.after(took));
                t.status.last_end = measured.or(Some(time));
            }
            match outcome {
                Outcome::Done => {
                    t.status.consecutive_errors = 0;
                    t.status.last_done = t.status.last_start;
                    // What was committed when it was begun is shown now, and nothing of that is left.
                    self.quiet.extend(t.status.last_start.map(|start| (*id, start)));
                }
                Outcome::Later => {}
                Outcome::Failed => {
                    t.status.consecutive_errors += 1;
                    again = true;
                }
            }
        }
        if again {
            // Whether it is suspended now is in the catalog.
            (self.looked, self.read) = (None, None);
        }
    }
}

/// A stream table as the scheduler sees it; what it knew of refreshes stays. A time of the clock that passed while nobody looked
/// is made good: what others noted of it counts as its last.
fn task(e: &registry::Entry, old: Option<Status>, time: Time) -> Task {
    let schedule = e.schedule.as_deref().and_then(|s| Schedule::parse(s).ok());
    let noted = e.data_at.filter(|at| matches!(schedule, Some(Schedule::Cron(_))) && *at < time);
    let fresh = Status { since: noted.unwrap_or(time), ..Status::default() };
    let status = Status {
        suspended: e.status == "SUSPENDED",
        consecutive_errors: u32::try_from(e.consecutive_errors).unwrap_or(0),
        ..old.unwrap_or(fresh)
    };
    Task { schedule, status, polls: e.polls() }
}
