//! The scheduler, which decides on the refreshes to start now and on the time of the next look.

use super::{Schedule, Time, canonical_periods};
use crate::dag::Dag;
use crate::table::TableId;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

/// The refresh status of one stream table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The start of the first period: the time when the scheduler first knew the stream table. For a cron
    /// schedule, the period starts at the last recorded refresh, if there is one.
    pub since: Time,
    /// The time when the last refresh started, whether or not it succeeded.
    pub last_start: Option<Time>,
    /// The time when the last refresh ended: its start plus its duration by a monotonic clock.
    pub last_end: Option<Time>,
    /// The time when the last successful refresh started, by which readers decide while another refresh is
    /// running.
    pub last_done: Option<Time>,
    /// Whether a refresh that includes the stream table is running.
    pub running: bool,
    /// The number of errors since the last successful refresh.
    pub consecutive_errors: u32,
    /// Whether the stream table is suspended: not refreshed until somebody resumes it.
    pub suspended: bool,
    /// Whether the last refresh met a lock or was cut off, so that the scheduler tries again before the next
    /// time of the schedule.
    pub again: bool,
}

impl Status {
    fn last_duration(&self) -> Duration {
        match (self.last_start, self.last_end) {
            (Some(s), Some(e)) => e.since(s),
            _ => Duration::ZERO,
        }
    }

    /// Records that a look found no changes for the stream table.
    pub(super) fn found_quiet(&mut self, now: Time) {
        (self.last_start, self.last_end, self.last_done) = (Some(now), Some(now), Some(now));
        self.again = false;
    }

    /// Returns when to try again a refresh that met a lock. The wait is that after a first error, or a
    /// quarter of the last refresh if this is longer. The table is therefore being refreshed for four fifths
    /// of the time at most.
    fn again(&self, options: &Options) -> Option<Time> {
        let wait = options.backoff_first.max(self.last_duration() / 4);
        self.last_end.filter(|_| self.again).map(|end| end.after(wait))
    }
}

/// The schedule and the refresh status of a stream table.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// The schedule of the stream table. `None` is a manual schedule, or mode IMMEDIATE, in which triggers
    /// keep the table up to date.
    pub schedule: Option<Schedule>,
    /// The refresh status of the stream table.
    pub status: Status,
    /// Whether the stream table reads a source without capture. Nobody knows whether such a source changed,
    /// so looking for changes means a recompute.
    pub polls: bool,
}

impl Task {
    /// Returns the period or the cron gap of the stream table's own schedule.
    fn asked(&self) -> Option<Duration> {
        self.schedule.as_ref().and_then(Schedule::period)
    }
}

/// Settings of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The shortest period (`min_schedule_seconds`).
    pub min_period: Duration,
    /// The period of a 'calculated' schedule where no reader has a period.
    pub default_period: Duration,
    /// The default period of a stream table that [polls](Task::polls), for which each look costs as much as a
    /// full refresh.
    pub poll_period: Duration,
    /// The greatest number of groups refreshed at one time (`max_concurrent_refreshes`).
    pub max_concurrent: usize,
    /// The number of errors in a row after which a stream table is suspended (`max_consecutive_errors`); 0
    /// for never.
    pub max_consecutive_errors: u32,
    /// The wait after the first error; each further error doubles the wait.
    pub backoff_first: Duration,
    /// The longest wait after an error.
    pub backoff_cap: Duration,
    /// The share of a period, 0 to 1, by which a refresh may come early, so that the refreshes of tables with
    /// equal periods spread out.
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

/// An action that the scheduler's caller takes now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Refresh the members together, over one snapshot, in their order (sources before readers).
    Refresh {
        /// The consistency group that the members belong to, named by its least stream table.
        group: TableId,
        /// The due stream tables, those with the same period that are refreshed with them, and all stream
        /// tables of the group upstream of any of these.
        members: Vec<TableId>,
        /// The members that are due, by their own schedule or for a reader in another group.
        due: Vec<TableId>,
        /// The members that [poll](Task::polls) and are to be recomputed. Such a member is due itself, or is
        /// read by a due stream table that has a period. Other members that poll count as unchanged until
        /// they are due.
        polled: Vec<TableId>,
    },
    /// Mark a stream table as suspended, since it failed too often in a row.
    Suspend {
        /// The stream table.
        id: TableId,
        /// The number of its errors in a row.
        errors: u32,
    },
}

/// A due stream table that cannot be refreshed until a suspended stream table is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The stream table that waits.
    pub id: TableId,
    /// The suspended stream table: [`Blocked::id`] itself, or one upstream of it.
    pub by: TableId,
}

/// The actions to take now, and the time of the next call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Suspensions, then refreshes in the order in which to start them. No two refreshes share a stream
    /// table.
    pub actions: Vec<Action>,
    /// The time for the next call of [`next`], if no refresh ends before it; always later than now. `None`
    /// where only an event (the end of a refresh, a resume, a new stream table) can make a stream table due.
    pub wake: Option<Time>,
    /// The due stream tables that cannot be refreshed until a suspended one is resumed.
    pub blocked: Vec<Blocked>,
    /// Stream tables whose last refresh took more than four fifths of their period, each with the longer
    /// period in force.
    pub slow: Vec<(TableId, Duration)>,
}

/// Returns the wait after `errors` failures in a row: `first · 2^(errors − 1)`, at most `cap`; zero for no
/// errors.
pub fn backoff(options: &Options, errors: u32) -> Duration {
    if errors == 0 {
        return Duration::ZERO;
    }
    let factor = 1u32.checked_shl(errors - 1).unwrap_or(u32::MAX);
    options.backoff_first.saturating_mul(factor).min(options.backoff_cap)
}

/// Returns the period in force: the wanted one, or a longer period, of which the last refresh takes four
/// fifths.
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

/// The time of a refresh, and the age that its sources may have.
#[derive(Clone, Copy)]
struct RefreshTime {
    /// The time when the refresh is due.
    due: Time,
    /// The earliest time at which the refresh could have been due. A source that was refreshed since this
    /// time counts as fresh for the refresh.
    fresh: Time,
}

/// Returns the next time of a table's refresh by its schedule, or the time to try its last refresh again.
/// Missed times are not queued, so there is only one next time. All tables of a group get the same jitter.
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
            // A table that was not refreshed since the scheduler knows it is due within the jitter from the
            // start of its first period. A thousand new tables then do not start together.
            None => (from.after(early), most),
            // The next refresh is at least a millisecond after the last, since times are whole milliseconds
            // and a period may be one millisecond.
            Some(_) => {
                let period = effective_period(period - early, status.last_duration());
                (from.after(period.max(Duration::from_millis(1))), most)
            }
        }
    };
    due = status.again(options).map_or(due, |again| due.min(again));
    let mut fresh = due.before(most).max(from);
    // The clock was set back by more than a period, so nobody knows how long ago the last refresh was. The
    // table is due once. Its sources count as fresh, unless their times lie in the future too.
    if is_lost(from, period, now) {
        (due, fresh) = (now, Time(i64::MIN));
    }
    Some(RefreshTime { due, fresh })
}

/// Whether a noted time lies so far in the future that waiting for it would take longer than `patience`. In
/// that case the clock was set back after the time was noted, and the noted time is useless. A wait counted
/// from `now` instead would begin anew at each look, and never end.
fn is_lost(noted: Time, patience: Duration, now: Time) -> bool {
    noted.since(now) > patience
}

/// The answer whether a table and all stream tables upstream of it can be refreshed.
enum Gate {
    Open,
    /// The refresh must wait until this time, because of an error.
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
            // If the clock was set back by at most the wait, the wait at most doubles. If the clock was set
            // back further, there is no wait.
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

/// A group whose refresh could start now.
struct Ready<'d> {
    group: TableId,
    /// All stream tables of the group, sources before readers.
    members: &'d [TableId],
    due: BTreeSet<TableId>,
    /// The members that are refreshed with the due ones ([`Look::companions`]).
    with: BTreeSet<TableId>,
    /// Whether one of the due members has been due for a whole period.
    overdue: bool,
    duration: Duration,
    /// The time when the first of the due members became due.
    since: Time,
}

impl Ready<'_> {
    /// Returns the rank by which groups are started. Overdue groups come first, in the order in which they
    /// became due, so an overdue group waits only for those that were due before it. Of the other groups, the
    /// one whose refresh takes longest comes first, so that all refreshes end soonest.
    fn rank(&self) -> (bool, Option<Time>, Reverse<Duration>, Time, TableId) {
        let queued = self.overdue.then_some(self.since);
        (!self.overdue, queued, Reverse(self.duration), self.since, self.group)
    }
}

/// Decides which stream tables to refresh now, and when to decide again.
///
/// Stream tables that are linked by edges between stream tables are a group ([`Dag::groups`]). A group has
/// one refresh at a time. The refresh covers the due members, the members with the same period, and all
/// stream tables of the group upstream of these. A source in another group is refreshed before, in a refresh
/// of that group: the source counts as due until it is refreshed, and its reader waits.
///
/// At most `max_concurrent` groups are refreshed at one time. Groups that have been due for a whole period
/// come first, in the order in which they became due, so that each gets its turn. Then the group whose
/// refresh takes longest comes first, so that all refreshes end soonest.
///
/// A table whose refresh failed waits ([`backoff`]) and is tried without the others of its group. All stream
/// tables downstream of the failed one wait too; other refreshes are not affected. A table whose refresh met
/// a lock is tried again before the next time of its schedule. A table whose refresh outlasts its period is
/// refreshed less often ([`effective_period`]).
///
/// The cost is O(V + E), and the [chain](Dag::chain) of each due member.
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

/// Decides as [`next`] does, for periods that the caller has computed.
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
    // Readers come before their sources, since a reader makes the sources that it waits for due.
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

/// The state of one call of [`next_of`].
struct Look<'l> {
    dag: &'l Dag,
    tasks: &'l BTreeMap<TableId, Task>,
    options: &'l Options,
    now: Time,
    /// The time when each table is to be refreshed, by its own schedule or for a reader that waits for it.
    wishes: BTreeMap<TableId, RefreshTime>,
    /// The periods of the tables that have one.
    periods: &'l BTreeMap<TableId, Duration>,
    /// Whether the last refresh of any table failed.
    failing: bool,
    /// The tables that are due for a reader in another group, earlier than by their own schedule.
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

    /// Collects the next times of all tables by their schedules.
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

    /// Returns the group with those due members that wait for nothing; `None` if it has no such member.
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
        // A table that failed is tried by itself, since a common transaction would undo the work of the
        // others at each new error. The other due members are refreshed before it, until it has been due for
        // a whole period.
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

    /// Whether the last refresh of the table, or of a table upstream, failed.
    fn has_failed(&self, id: TableId) -> bool {
        let failed = |id: &TableId| self.tasks.get(id).is_some_and(|t| t.status.consecutive_errors > 0);
        self.failing && self.dag.chain(id).iter().any(failed)
    }

    /// Returns the members of a group that are refreshed with the due ones although they are not due: those
    /// with the period of a due member. From that refresh on, all these members have the same next time, so
    /// none is refreshed more often than its period says. A query that reads all of them under one snapshot
    /// finds one state. Nothing is refreshed with a table that failed.
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

    /// Whether a refresh waits for a source in another group; such a source is made due. Only tables with a
    /// period wait for a source that [polls](Task::polls).
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
            // A source that is being refreshed whenever the scheduler looks would otherwise keep its readers
            // waiting for ever.
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
