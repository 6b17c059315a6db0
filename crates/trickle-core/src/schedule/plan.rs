//! The scheduler: the refreshes to start now, and when to look again.

use super::{Schedule, Time, canonical_periods};
use crate::catalog::TableId;
use crate::dag::Dag;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

/// The facts about the refreshes of one stream table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The start of its first period: when the scheduler first knew the table or, for cron schedules, its
    /// last refresh.
    pub since: Time,
    /// The time when its last refresh started, whether or not it succeeded.
    pub last_start: Option<Time>,
    /// The time when its last refresh ended: its start plus its duration by a monotonic clock.
    pub last_end: Option<Time>,
    /// The time when the last successful refresh started: readers go by it while another refresh is running.
    pub last_done: Option<Time>,
    /// Whether a refresh that includes it is running.
    pub running: bool,
    /// Errors since the last success.
    pub consecutive_errors: u32,
    /// Suspended, paused or broken: not refreshed until the user resumes it.
    pub suspended: bool,
    /// Whether its last refresh met a lock or was cut off: it is tried again before its time.
    pub again: bool,
}

impl Status {
    fn last_duration(&self) -> Duration {
        match (self.last_start, self.last_end) {
            (Some(s), Some(e)) => e.since(s),
            _ => Duration::ZERO,
        }
    }

    /// Takes note that the table was looked at and has no changes.
    pub(super) fn found_quiet(&mut self, now: Time) {
        (self.last_start, self.last_end, self.last_done) = (Some(now), Some(now), Some(now));
        self.again = false;
    }

    /// Returns when a refresh that met a lock is tried again. The wait is that after a first error, and long
    /// enough that the table is being refreshed for four fifths of the time at most.
    fn again(&self, options: &Options) -> Option<Time> {
        let wait = options.backoff_first.max(self.last_duration() / 4);
        self.last_end.filter(|_| self.again).map(|end| end.after(wait))
    }
}

/// A stream table as the scheduler sees it.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// The schedule; `None` is manual (and for a table that its writers keep, IMMEDIATE).
    pub schedule: Option<Schedule>,
    /// The state of its refreshes.
    pub status: Status,
    /// Whether it reads a source without capture: nobody knows whether that source changed, so looking for
    /// changes means a recompute.
    pub polls: bool,
}

impl Task {
    /// Returns its own period or cron gap.
    fn asked(&self) -> Option<Duration> {
        self.schedule.as_ref().and_then(Schedule::period)
    }
}

/// Settings of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The least period (`min_schedule_seconds`).
    pub min_period: Duration,
    /// The period of 'calculated' where no reader has another.
    pub default_period: Duration,
    /// The default period of a table that [polls](Task::polls), where each look costs as much as a full
    /// refresh.
    pub poll_period: Duration,
    /// The greatest number of groups refreshed at one time (`max_concurrent_refreshes`).
    pub max_concurrent: usize,
    /// Errors in a row after which a stream table is suspended (`max_consecutive_errors`); 0 for never.
    pub max_consecutive_errors: u32,
    /// The wait after the first error; doubles with each further one.
    pub backoff_first: Duration,
    /// The longest wait after an error.
    pub backoff_cap: Duration,
    /// The share of a period, 0 to 1, by which a refresh may come early, so that tables with equal periods
    /// spread out.
    pub jitter: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            min_period: Duration::from_millis(10),
            default_period: Duration::from_secs(1),
            poll_period: Duration::from_secs(60),
            max_concurrent: 4,
            max_consecutive_errors: 5,
            backoff_first: Duration::from_secs(1),
            backoff_cap: Duration::from_secs(300),
            jitter: 0.1,
        }
    }
}

/// An action to take now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Refresh these together, over one snapshot, in this order (upstream first).
    Refresh {
        /// The group, named by the least stream table among all that are linked to these.
        group: TableId,
        /// The due ones, those that come with them since they have the same period, and all stream tables of
        /// the group upstream of any of these.
        members: Vec<TableId>,
        /// The members that are due, by their own schedule or for a reader in another group.
        due: Vec<TableId>,
        /// The members that [poll](Task::polls) and are to be recomputed: due themselves, or read by a due
        /// one with a schedule of its own. Other members that poll count as unchanged until their time comes.
        polled: Vec<TableId>,
    },
    /// Mark a stream table as suspended, since it failed too often in a row.
    Suspend {
        /// The stream table.
        id: TableId,
        /// Its errors in a row.
        errors: u32,
    },
}

/// A due stream table that cannot be refreshed until it or another one is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The stream table that waits.
    pub id: TableId,
    /// The suspended stream table: itself, or one upstream.
    pub by: TableId,
}

/// The actions to take now, and when to ask again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Suspensions, then refreshes in the order in which to start them. No two share a stream table.
    pub actions: Vec<Action>,
    /// The time to call [`next`] again if nothing ends before; always later than now. `None` where only an
    /// event (the end of a refresh, a resume, a new stream table) can make something due.
    pub wake: Option<Time>,
    /// The due stream tables that wait for a suspended one.
    pub blocked: Vec<Blocked>,
    /// Stream tables whose last refresh took more than four fifths of their period, with the longer period in
    /// force.
    pub slow: Vec<(TableId, Duration)>,
}

/// Returns the wait after `errors` failures in a row: `first · 2^(errors − 1)`, at most `cap`; none after
/// success.
pub fn backoff(options: &Options, errors: u32) -> Duration {
    if errors == 0 {
        return Duration::ZERO;
    }
    let factor = 1u32.checked_shl(errors - 1).unwrap_or(u32::MAX);
    options.backoff_first.saturating_mul(factor).min(options.backoff_cap)
}

/// Returns the period in force: the wanted one, or a longer one of which a refresh takes four fifths.
pub fn effective_period(wanted: Duration, last_duration: Duration) -> Duration {
    wanted.max(last_duration.saturating_mul(5) / 4)
}

/// Returns a number in 0..1 that depends only on the group and its last start.
fn spread(id: TableId, start: Time) -> f64 {
    let mut key = [0u8; 12];
    key[..4].copy_from_slice(&id.0.to_le_bytes());
    key[4..].copy_from_slice(&start.0.to_le_bytes());
    (xxh64(&key, 0) >> 11) as f64 / (1u64 << 53) as f64
}

/// A time for a refresh.
#[derive(Clone, Copy)]
struct RefreshTime {
    /// The time when it is due.
    due: Time,
    /// A source refreshed since this time counts as fresh for it: the earliest time at which it could have
    /// been due.
    fresh: Time,
}

/// Returns when the schedule of a table next asks for a refresh, or for its last one to be tried again.
/// Missed times are not queued: there is one next time. All tables of a group get the same jitter.
fn wish(group: TableId, task: &Task, period: Duration, options: &Options, now: Time) -> Option<RefreshTime> {
    let status = &task.status;
    let from = status.last_start.unwrap_or(status.since);
    let (mut due, most) = if let Schedule::Cron(c) = task.schedule.as_ref()? {
        let busy_until = from.after(effective_period(Duration::ZERO, status.last_duration()));
        (c.next_after(from)?.max(busy_until), Duration::ZERO)
    } else {
        let most = period.mul_f64(options.jitter.clamp(0.0, 1.0));
        let early = most.mul_f64(spread(group, from));
        match status.last_start {
            // Never refreshed here: within the jitter from its first period's start, so that a thousand new
            // tables do not start together.
            None => (from.after(early), most),
            // At least a millisecond after the last: times are whole milliseconds, and a period may be of
            // one.
            Some(_) => {
                let period = effective_period(period - early, status.last_duration());
                (from.after(period.max(Duration::from_millis(1))), most)
            }
        }
    };
    due = status.again(options).map_or(due, |again| due.min(again));
    let mut fresh = due.before(most).max(from);
    // A clock that was set back by more than a period: nobody knows how long ago the last refresh was, so it
    // is due, once. Its sources count as fresh, unless their times lie in the future too.
    if is_lost(from, period, now) {
        (due, fresh) = (now, Time(i64::MIN));
    }
    Some(RefreshTime { due, fresh })
}

/// Whether a time lies so far ahead that waiting for it would take longer than `patience`. Then the clock was
/// set back since the time was noted, and the time says nothing. A wait counted from `now` instead would
/// begin anew at each look, and never end.
fn is_lost(noted: Time, patience: Duration, now: Time) -> bool {
    noted.since(now) > patience
}

/// The answer whether a table can be refreshed with its upstream.
enum Gate {
    Open,
    /// Not before this time: a wait after an error.
    Until(Time),
    Suspended(TableId),
}

fn gate(set: &[TableId], tasks: &BTreeMap<TableId, Task>, options: &Options, now: Time) -> Gate {
    let mut until: Option<Time> = None;
    for id in set {
        let Some(status) = tasks.get(id).map(|t| &t.status) else { continue };
        if status.suspended || gives_up(status, options) {
            return Gate::Suspended(*id);
        }
        if status.consecutive_errors > 0 {
            let end = status.last_end.or(status.last_start).unwrap_or(status.since);
            let wait = backoff(options, status.consecutive_errors);
            // A clock that was set back at most doubles a wait.
            if !is_lost(end, wait, now) {
                until = until.max(Some(end.after(wait)).filter(|t| *t > now));
            }
        }
    }
    until.map_or(Gate::Open, Gate::Until)
}

fn gives_up(status: &Status, options: &Options) -> bool {
    options.max_consecutive_errors > 0 && status.consecutive_errors >= options.max_consecutive_errors
}

/// A group that could start now.
struct Ready<'d> {
    group: TableId,
    /// The members, upstream first.
    members: &'d [TableId],
    due: BTreeSet<TableId>,
    /// The members that come with the due ones ([`Look::companions`]).
    with: BTreeSet<TableId>,
    /// Whether one of them has waited for a whole period.
    overdue: bool,
    duration: Duration,
    /// The time when the first of them became due.
    since: Time,
}

impl Ready<'_> {
    /// Returns the rank by which groups are started. Overdue ones come first, in the order in which they
    /// became due: a queue, in which none waits for more than those before it. Then the group that takes
    /// longest comes first, so that all are done soonest.
    fn rank(&self) -> (bool, Option<Time>, Reverse<Duration>, Time, TableId) {
        let queued = self.overdue.then_some(self.since);
        (!self.overdue, queued, Reverse(self.duration), self.since, self.group)
    }
}

/// Decides which stream tables to refresh now and when to ask again.
///
/// Stream tables linked by stream-table edges are a group ([`Dag::groups`]). A group has one refresh at a
/// time. It covers the due members, the members with the same period, and everything upstream of these within
/// the group. Sources in another group are refreshed before, by themselves: such a source counts as due until
/// it is refreshed, and the reader waits.
///
/// At most `max_concurrent` groups run together. First come those that have waited for a whole period, in the
/// order in which they became due, so that none starves. The group that takes longest follows, so that all
/// are done soonest.
///
/// A table that failed waits ([`backoff`]) and is tried without the others of its group. Everything
/// downstream of it waits too; the rest goes on. A table that met a lock is tried again soon, and not a
/// period later. A table whose refresh outlasts its period is refreshed less often ([`effective_period`]).
///
/// The cost is O(V + E), and for each member of a group that is due its [chain](Dag::chain).
pub fn next(dag: &Dag, tasks: &BTreeMap<TableId, Task>, options: &Options, now: Time) -> Plan {
    next_of(dag, tasks, &periods(dag, tasks, options), options, now)
}

/// Returns the greatest age that each stream table with a schedule may reach.
pub(super) fn periods(
    dag: &Dag,
    tasks: &BTreeMap<TableId, Task>,
    options: &Options,
) -> BTreeMap<TableId, Duration> {
    let scheduled = |id| tasks.get(&id)?.schedule.as_ref();
    let default = |id| match tasks.get(&id) {
        Some(Task { polls: true, .. }) => options.poll_period,
        _ => options.default_period,
    };
    let mut periods = canonical_periods(dag, scheduled, default);
    periods.values_mut().for_each(|p| *p = (*p).max(options.min_period));
    periods
}

/// Decides as [`next`] does, with known periods.
pub(super) fn next_of(
    dag: &Dag,
    tasks: &BTreeMap<TableId, Task>,
    periods: &BTreeMap<TableId, Duration>,
    options: &Options,
    now: Time,
) -> Plan {
    let (wishes, called) = (BTreeMap::new(), BTreeSet::new());
    let failing = tasks.values().any(|t| t.status.consecutive_errors > 0);
    let mut look = Look { dag, tasks, options, now, wishes, periods, failing, called, plan: Plan::default() };
    look.suspend();
    look.ask_schedules();
    let mut running = 0;
    let mut ready: Vec<Ready<'_>> = Vec::new();
    // Readers come first, since they ask for the refreshes that they wait for.
    for group in dag.groups().iter().rev() {
        let busy = group.iter().any(|id| tasks.get(id).is_some_and(|t| t.status.running));
        running += usize::from(busy);
        let start = look.group(group);
        ready.extend(start.filter(|_| !busy));
    }
    let mut plan = look.plan;
    plan.blocked.sort_by_key(|b| b.id);
    ready.sort_by_key(Ready::rank);
    for r in ready.into_iter().take(options.max_concurrent.max(1).saturating_sub(running)) {
        let started: BTreeSet<TableId> = r.due.union(&r.with).copied().collect();
        let taken: BTreeSet<TableId> = started.iter().flat_map(|id| dag.chain(*id)).copied().collect();
        let members: Vec<TableId> = r.members.iter().copied().filter(|id| taken.contains(id)).collect();
        let polled = polled(dag, tasks, &members, &started);
        let due = r.due.into_iter().collect();
        plan.actions.push(Action::Refresh { group: r.group, members, due, polled });
    }
    plan
}

/// One look at everything.
struct Look<'l> {
    dag: &'l Dag,
    tasks: &'l BTreeMap<TableId, Task>,
    options: &'l Options,
    now: Time,
    /// The time when each table is to be refreshed, for itself or for a reader that waits for it.
    wishes: BTreeMap<TableId, RefreshTime>,
    /// The periods of the tables that have one.
    periods: &'l BTreeMap<TableId, Duration>,
    /// Whether the last refresh of any table failed.
    failing: bool,
    /// The tables that a reader in another group asks for sooner than their own schedule does.
    called: BTreeSet<TableId>,
    plan: Plan,
}

impl<'l> Look<'l> {
    fn suspend(&mut self) {
        for (id, task) in self.tasks {
            if !task.status.suspended && gives_up(&task.status, self.options) {
                self.plan.actions.push(Action::Suspend { id: *id, errors: task.status.consecutive_errors });
            }
        }
    }

    /// Collects the wishes of the schedules.
    fn ask_schedules(&mut self) {
        for members in self.dag.groups() {
            let Some(group) = members.iter().min().copied() else { continue };
            for id in members {
                let (Some(task), Some(period)) = (self.tasks.get(id), self.periods.get(id)) else { continue };
                let Some(wish) = wish(group, task, *period, self.options, self.now) else { continue };
                self.wishes.insert(*id, wish);
                note_slow(&mut self.plan, *id, task, *period);
            }
        }
    }

    /// Returns the due members of a group that wait for nothing.
    fn group(&mut self, members: &'l [TableId]) -> Option<Ready<'l>> {
        let mut due = BTreeSet::new();
        let (mut since, mut overdue) = (self.now, false);
        let mut duration = Duration::ZERO;
        for id in members {
            let (Some(task), Some(wish)) = (self.tasks.get(id), self.wishes.get(id).copied()) else {
                continue;
            };
            if wish.due > self.now {
                self.wake(wish.due);
                continue;
            }
            let set = self.dag.chain(*id);
            match gate(set, self.tasks, self.options, self.now) {
                Gate::Suspended(by) => self.plan.blocked.push(Blocked { id: *id, by }),
                Gate::Until(t) => self.wake(t),
                Gate::Open if self.waits(task, wish, set.iter().filter(|u| !members.contains(u))) => {}
                Gate::Open => {
                    since = since.min(wish.due);
                    overdue |= self.is_overdue(*id, wish);
                    due.insert(*id);
                    duration += task.status.last_duration();
                }
            }
        }
        // A table that failed is tried by itself: in a common transaction it would undo the work of the
        // others, again and again. The others go before it, unless they would do so for ever.
        let (failed, clean): (BTreeSet<TableId>, BTreeSet<TableId>) =
            due.iter().copied().partition(|id| self.has_failed(*id));
        let overdue_failed =
            failed.iter().any(|id| self.wishes.get(id).is_some_and(|w| self.is_overdue(*id, *w)));
        due = if clean.is_empty() || overdue_failed { failed } else { clean };
        let with = self.companions(members, &due);
        duration +=
            with.iter().filter_map(|id| Some(self.tasks.get(id)?.status.last_duration())).sum::<Duration>();
        let group = members.iter().min().copied()?;
        (!due.is_empty()).then_some(Ready { group, members, due, with, overdue, duration, since })
    }

    /// Whether the last refresh of the table, or of one upstream of it, failed.
    fn has_failed(&self, id: TableId) -> bool {
        let failed = |id: &TableId| self.tasks.get(id).is_some_and(|t| t.status.consecutive_errors > 0);
        self.failing && self.dag.chain(id).iter().any(failed)
    }

    /// Returns the members of a group that come with the due ones although they are not due: those with the
    /// period of one of them. After that their times are equal. So they are not refreshed more often, and a
    /// query that reads them all under one snapshot finds that they agree. A table that failed is tried by
    /// itself.
    fn companions(&self, members: &[TableId], due: &BTreeSet<TableId>) -> BTreeSet<TableId> {
        let period = |id: &TableId| self.periods.get(id).copied();
        let by_period = |id: &TableId| {
            self.tasks.get(id).is_some_and(|t| !matches!(t.schedule, None | Some(Schedule::Cron(_))))
        };
        if due.len() == members.len() || due.iter().any(|id| self.has_failed(*id)) {
            return BTreeSet::new();
        }
        let own = due.iter().filter(|id| by_period(id) && !self.called.contains(id));
        let periods: BTreeSet<Duration> = own.filter_map(period).collect();
        let comes = |id: &&TableId| {
            if due.contains(id) || !by_period(id) || period(id).is_none_or(|p| !periods.contains(&p)) {
                return false;
            }
            let set = self.dag.chain(**id);
            let within = set.iter().all(|u| members.contains(u));
            within
                && !self.has_failed(**id)
                && matches!(gate(set, self.tasks, self.options, self.now), Gate::Open)
        };
        members.iter().filter(comes).copied().collect()
    }

    /// Whether a table has been due for a whole period.
    fn is_overdue(&self, id: TableId, wish: RefreshTime) -> bool {
        let period = self.periods.get(&id).copied().unwrap_or(self.options.default_period);
        self.now.since(wish.due) >= period.max(self.options.min_period).max(Duration::from_millis(1))
    }

    /// Whether a source in another group is to be refreshed first; if so, asks for that. Only tables with a
    /// schedule of their own wait for a source that [polls](Task::polls).
    fn waits<'u>(
        &mut self,
        task: &Task,
        wish: RefreshTime,
        upstream: impl Iterator<Item = &'u TableId>,
    ) -> bool {
        let mut waits = false;
        for id in upstream {
            let Some(source) = self.tasks.get(id) else { continue };
            let status = &source.status;
            let fresh =
                |start: Time| (wish.fresh..=self.now).contains(&start) && status.consecutive_errors == 0;
            // A source that is always being refreshed would otherwise keep its readers waiting for ever.
            let last = if status.running { status.last_done } else { status.last_start };
            if source.polls && task.asked().is_none() || last.is_some_and(fresh) {
                continue;
            }
            waits = true;
            if self.wishes.get(id).is_none_or(|own| wish.due < own.due) {
                self.called.insert(*id);
            }
            let asked = self.wishes.entry(*id).or_insert(wish);
            *asked = RefreshTime { due: asked.due.min(wish.due), fresh: asked.fresh.min(wish.fresh) };
        }
        waits
    }

    fn wake(&mut self, at: Time) {
        self.plan.wake = Some(self.plan.wake.map_or(at, |t| t.min(at)));
    }
}

/// Returns the members whose uncaptured sources count as changed: see [`Action::Refresh`].
fn polled(
    dag: &Dag,
    tasks: &BTreeMap<TableId, Task>,
    members: &[TableId],
    due: &BTreeSet<TableId>,
) -> Vec<TableId> {
    let task = |id: &TableId| tasks.get(id);
    if !members.iter().any(|id| task(id).is_some_and(|t| t.polls)) {
        return Vec::new();
    }
    let asking = due.iter().copied().filter(|id| task(id).is_some_and(|t| t.asked().is_some()));
    let asked_for = dag.refresh_set(&asking.collect());
    let polled =
        |id: &TableId| task(id).is_some_and(|t| t.polls) && (due.contains(id) || asked_for.contains(id));
    members.iter().copied().filter(polled).collect()
}

fn note_slow(plan: &mut Plan, id: TableId, task: &Task, period: Duration) {
    let instead = effective_period(period, task.status.last_duration());
    if instead > period {
        plan.slow.push((id, instead));
    }
}
