//! The scheduler: what to start now, and when to look again.

use super::{Schedule, Time, canonical_periods};
use crate::catalog::TableId;
use crate::dag::Dag;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

/// What is known of one stream table's refreshes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The start of its first period: when it was first known to the scheduler or, by times of the clock, last refreshed.
    pub since: Time,
    /// When its last refresh started, whether or not it succeeded.
    pub last_start: Option<Time>,
    /// When its last refresh ended: its start and what it took by a clock that nobody sets.
    pub last_end: Option<Time>,
    /// When the last refresh that succeeded started: what a reader goes by while another one is running.
    pub last_done: Option<Time>,
    /// Whether a refresh that includes it is running.
    pub running: bool,
    /// Errors since the last success.
    pub consecutive_errors: u32,
    /// Suspended, paused or broken: not refreshed until the user resumes it.
    pub suspended: bool,
    /// Whether somebody was in the way of its last refresh, or that was cut off: it is tried again before its time.
    pub again: bool,
}

impl Status {
    fn last_duration(&self) -> Duration {
        match (self.last_start, self.last_end) {
            (Some(s), Some(e)) => e.since(s),
            _ => Duration::ZERO,
        }
    }

    /// It was looked at and has nothing to do.
    pub(super) fn found_quiet(&mut self, now: Time) {
        (self.last_start, self.last_end, self.last_done) = (Some(now), Some(now), Some(now));
        self.again = false;
    }

    /// When it is tried again where somebody was in the way: after as long as after a first error, and so that it is at work for
    /// four fifths of the time at most.
    fn again(&self, options: &Options) -> Option<Time> {
        let wait = options.backoff_first.max(self.last_duration() / 4);
        self.last_end.filter(|_| self.again).map(|end| end.after(wait))
    }
}

/// A stream table as the scheduler sees it.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// Its schedule; `None` is manual (and what is kept by its writers, IMMEDIATE).
    pub schedule: Option<Schedule>,
    /// Its state.
    pub status: Status,
    /// Whether something that it reads is not captured: whether that changed is not known, so looking for changes means
    /// computing it anew.
    pub polls: bool,
}

impl Task {
    /// Its own period or cron gap.
    fn asked(&self) -> Option<Duration> {
        self.schedule.as_ref().and_then(Schedule::period)
    }
}

/// Settings of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// No period is shorter (`min_schedule_seconds`).
    pub min_period: Duration,
    /// The period of 'calculated' where no consumer says otherwise.
    pub default_period: Duration,
    /// The same for what [polls](Task::polls), where each time costs as much as filling it.
    pub poll_period: Duration,
    /// Groups refreshed at one time (`max_concurrent_refreshes`).
    pub max_concurrent: usize,
    /// Errors in a row after which a stream table is suspended (`max_consecutive_errors`); 0 for never.
    pub max_consecutive_errors: u32,
    /// The wait after the first error; doubles with each further one.
    pub backoff_first: Duration,
    /// The longest wait after an error.
    pub backoff_cap: Duration,
    /// The share of a period, 0 to 1, by which a refresh may come early, so that tables with one period spread out.
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

/// Something to do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Refresh these together, over one snapshot, in this order (upstream first).
    Refresh {
        /// The group: least stream table among all that are linked to these.
        group: TableId,
        /// The due ones, those that come with them since they have the same period, and all stream tables of the group
        /// upstream of any of these.
        members: Vec<TableId>,
        /// Those whose schedule asked for it, or a reader's in another group.
        due: Vec<TableId>,
        /// Those that [poll](Task::polls) and are to be computed anew: due themselves, or read by a due one with a
        /// schedule of its own. The others of `members` that poll count as unchanged until their time comes.
        polled: Vec<TableId>,
    },
    /// Mark as suspended: it failed too often in a row.
    Suspend {
        /// Which stream table.
        id: TableId,
        /// Its errors in a row.
        errors: u32,
    },
}

/// A due stream table that cannot be refreshed until something else is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// What waits.
    pub id: TableId,
    /// What it waits for: itself, or a stream table upstream that is suspended.
    pub by: TableId,
}

/// What to do now and when to ask again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Suspensions, then refreshes in the order in which to start them. No two share a stream table.
    pub actions: Vec<Action>,
    /// When to call [`next`] again if nothing ends before; always later than now. `None` where only an event (the end
    /// of a refresh, a resume, a new stream table) can make something due.
    pub wake: Option<Time>,
    /// Due, but upstream of them something is suspended.
    pub blocked: Vec<Blocked>,
    /// Stream tables whose last refresh took more than four fifths of their period, with the period in force instead.
    pub slow: Vec<(TableId, Duration)>,
}

/// The wait after `errors` failures in a row: `first · 2^(errors − 1)`, at most `cap`; none after success.
pub fn backoff(options: &Options, errors: u32) -> Duration {
    if errors == 0 {
        return Duration::ZERO;
    }
    let factor = 1u32.checked_shl(errors - 1).unwrap_or(u32::MAX);
    options.backoff_first.saturating_mul(factor).min(options.backoff_cap)
}

/// The period in force: the wanted one, but a refresh never takes more than four fifths of it.
pub fn effective_period(wanted: Duration, last_duration: Duration) -> Duration {
    wanted.max(last_duration.saturating_mul(5) / 4)
}

/// A number in 0..1 that depends on the group and its last start alone.
fn spread(id: TableId, start: Time) -> f64 {
    let mut key = [0u8; 12];
    key[..4].copy_from_slice(&id.0.to_le_bytes());
    key[4..].copy_from_slice(&start.0.to_le_bytes());
    (xxh64(&key, 0) >> 11) as f64 / (1u64 << 53) as f64
}

/// A time for a refresh.
#[derive(Clone, Copy)]
struct Wish {
    /// When it is due.
    due: Time,
    /// What was refreshed since then counts as refreshed for it: the earliest that it could have been due.
    fresh: Time,
}

/// When a table's own schedule next asks for a refresh, or for the last one once more. Missed times are not queued: there is one
/// next time. Those of a group come as early as each other.
fn wish(group: TableId, task: &Task, period: Duration, options: &Options, now: Time) -> Option<Wish> {
    let status = &task.status;
    let from = status.last_start.unwrap_or(status.since);
    let (mut due, most) = if let Schedule::Cron(c) = task.schedule.as_ref()? {
        let busy_until = from.after(effective_period(Duration::ZERO, status.last_duration()));
        (c.next_after(from)?.max(busy_until), Duration::ZERO)
    } else {
        let most = period.mul_f64(options.jitter.clamp(0.0, 1.0));
        let early = most.mul_f64(spread(group, from));
        match status.last_start {
            // Never refreshed here: within the jitter of now, so that a thousand new tables do not start together.
            None => (from.after(early), most),
            // Never again at the very time of the last: times are whole milliseconds, and a period may be of one.
            Some(_) => {
                let period = effective_period(period - early, status.last_duration());
                (from.after(period.max(Duration::from_millis(1))), most)
            }
        }
    };
    due = status.again(options).map_or(due, |again| due.min(again));
    let mut fresh = due.before(most).max(from);
    // A clock that was set back by more than a period: how long ago that was is not known, so it is due, once. What
    // it reads is as fresh as is known, unless that lies in the future too.
    if is_lost(from, period, now) {
        (due, fresh) = (now, Time(i64::MIN));
    }
    Some(Wish { due, fresh })
}

/// Whether a time lies so far ahead that waiting for it would take longer than `patience`: the clock was set back since it was
/// noted. It says nothing then. A wait counted from `now` instead would begin anew with each look, and never end.
fn is_lost(noted: Time, patience: Duration, now: Time) -> bool {
    noted.since(now) > patience
}

/// What stands in the way of refreshing a table with its upstream.
enum Gate {
    Open,
    /// A wait after an error, until then.
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
            // A clock that was set back prolongs a wait by itself at most.
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
    /// Upstream first.
    members: &'d [TableId],
    due: BTreeSet<TableId>,
    /// Those that come with them ([`Look::companions`]).
    with: BTreeSet<TableId>,
    /// Whether one of them has waited for a whole period.
    overdue: bool,
    duration: Duration,
    /// Since when the first of them is due.
    since: Time,
}

impl Ready<'_> {
    /// Overdue ones in the order in which they became due: a queue, in which none waits for more than those before it.
    /// Then the one that takes longest, so that all are done soonest.
    fn rank(&self) -> (bool, Option<Time>, Reverse<Duration>, Time, TableId) {
        let queued = self.overdue.then_some(self.since);
        (!self.overdue, queued, Reverse(self.duration), self.since, self.group)
    }
}

/// What to refresh now and when to ask again.
///
/// Stream tables linked by stream-table edges are a group ([`Dag::groups`]); a group has one refresh at a time, of its due
/// members, of those that have the same period, and of everything upstream of them within the group. What is read from
/// another group is refreshed before, by itself: it counts as due until it was, and the reader waits for that. At most
/// `max_concurrent` run together: first those that have waited for a whole period, in the order in which they became due,
/// so that none starves; then the group that takes longest, so that all are done soonest. A table that failed waits
/// ([`backoff`]), is tried without the others of its group, and what is downstream of it waits for it; the rest goes on. One
/// that found somebody in its way is tried again soon, and not a period later. A table whose refresh outlasts its period is asked
/// for less often ([`effective_period`]). O(V + E), and for each member of a group that is due its [chain](Dag::chain).
pub fn next(dag: &Dag, tasks: &BTreeMap<TableId, Task>, options: &Options, now: Time) -> Plan {
    next_of(dag, tasks, &periods(dag, tasks, options), options, now)
}

/// How old each stream table with a schedule may become.
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

/// [`next`] where the periods are known.
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
    // Readers first: what they wait for is asked for by them.
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
    /// When each is to be refreshed, for itself or for a reader that waits for it.
    wishes: BTreeMap<TableId, Wish>,
    /// The periods of those that have one.
    periods: &'l BTreeMap<TableId, Duration>,
    /// Whether the last refresh of any failed.
    failing: bool,
    /// Those that a reader in another group asks for sooner than their own schedule does.
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

    /// What the schedules ask for.
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

    /// The due members of a group that wait for nothing.
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
        // What failed is tried by itself: together it would undo what the others do, again and again. They go before it, unless
        // that would be for ever.
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

    /// Whether its last refresh failed, or that of something upstream.
    fn has_failed(&self, id: TableId) -> bool {
        let failed = |id: &TableId| self.tasks.get(id).is_some_and(|t| t.status.consecutive_errors > 0);
        self.failing && self.dag.chain(id).iter().any(failed)
    }

    /// Those of a group that come with the ones that are due, though their own times have not come: that have the period of one
    /// of them. From then on their times are the same, so they come no more often, and who reads them all over one snapshot
    /// finds that they agree. What has failed is tried by itself.
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
    fn is_overdue(&self, id: TableId, wish: Wish) -> bool {
        let period = self.periods.get(&id).copied().unwrap_or(self.options.default_period);
        self.now.since(wish.due) >= period.max(self.options.min_period).max(Duration::from_millis(1))
    }

    /// Whether something upstream, in other groups, is to be refreshed first; that is asked for. What [polls](Task::polls) is
    /// waited for by those alone that have a schedule of their own.
    fn waits<'u>(&mut self, task: &Task, wish: Wish, upstream: impl Iterator<Item = &'u TableId>) -> bool {
        let mut waits = false;
        for id in upstream {
            let Some(source) = self.tasks.get(id) else { continue };
            let status = &source.status;
            let fresh =
                |start: Time| (wish.fresh..=self.now).contains(&start) && status.consecutive_errors == 0;
            // One that is always at work would else keep its readers waiting for ever.
            let last = if status.running { status.last_done } else { status.last_start };
            if source.polls && task.asked().is_none() || last.is_some_and(fresh) {
                continue;
            }
            waits = true;
            if self.wishes.get(id).is_none_or(|own| wish.due < own.due) {
                self.called.insert(*id);
            }
            let asked = self.wishes.entry(*id).or_insert(wish);
            *asked = Wish { due: asked.due.min(wish.due), fresh: asked.fresh.min(wish.fresh) };
        }
        waits
    }

    fn wake(&mut self, at: Time) {
        self.plan.wake = Some(self.plan.wake.map_or(at, |t| t.min(at)));
    }
}

/// The members whose uncaptured sources count as changed: see [`Action::Refresh`].
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
