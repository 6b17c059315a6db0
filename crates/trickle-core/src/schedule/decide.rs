//! The scheduler, which decides which refreshes start now, and when the next look is made.

use super::due::{Gate, RefreshTime, effective_period, gate, gives_up, wish};
use super::plan::{Action, Blocked, Options, Plan, Task};
use super::{Schedule, Time, canonical_periods};
use crate::dag::Dag;
use crate::table::TableId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A group whose refresh could start now.
struct Ready<'d> {
    group: TableId,
    /// All stream tables of the group, sources before readers.
    members: &'d [TableId],
    due: BTreeSet<TableId>,
    /// The members that are refreshed together with the due members ([`Planning::companions`]).
    with: BTreeSet<TableId>,
    /// Whether one of the due members has been due for a whole period.
    overdue: bool,
    duration: Duration,
    /// The time when the first of the due members became due.
    since: Time,
}

impl Ready<'_> {
    /// Returns the rank by which groups are started. Overdue groups come first, in the order in which they
    /// became due. An overdue group therefore waits only for groups that were due before it. Among the other
    /// groups, the group whose refresh takes longest comes first, so that all refreshes end soonest.
    fn rank(&self) -> (bool, Option<Time>, Reverse<Duration>, Time, TableId) {
        let queued = self.overdue.then_some(self.since);
        (!self.overdue, queued, Reverse(self.duration), self.since, self.group)
    }
}

/// Decides which stream tables to refresh now, and when to decide again.
///
/// Stream tables that are connected by edges between stream tables form a group ([`Dag::groups`]). A group
/// has one refresh at a time. The refresh covers the due members, the members with the same period, and all
/// stream tables of the group upstream of these. A source in another group is refreshed earlier, in a refresh
/// of that other group. The source counts as due until it is refreshed, and its reader waits.
///
/// At most `max_concurrent` groups are refreshed at one time. Groups that have been due for a whole period
/// come first, in the order in which they became due, so that each gets its turn. Then the group whose
/// refresh takes longest comes first, so that all refreshes end soonest.
///
/// A table whose refresh failed waits for a delay that grows with each error, and is then tried without the
/// other members of its group. All stream tables downstream of the failed table wait too. Other refreshes are
/// not affected. A table whose refresh could not get a lock is tried again before the next time of its
/// schedule. A table whose refresh outlasts its period is refreshed less often ([`effective_period`]).
///
/// The cost is O(V + E), plus the length of the [chain](Dag::chain) of each due member.
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
    let mut planning =
        Planning { dag, tasks, options, now, wishes, periods, failing, called, plan: Plan::default() };
    planning.suspend();
    planning.ask_schedules();
    let mut running = 0;
    let mut ready: Vec<Ready<'_>> = Vec::new();
    // Readers come before their sources. A reader that waits for a source makes this source due.
    for group in dag.groups().iter().rev() {
        let busy = group.iter().any(|id| tasks.get(id).is_some_and(|t| t.status.running));
        running += usize::from(busy);
        let start = planning.group(group);
        ready.extend(start.filter(|_| !busy));
    }
    let mut plan = planning.plan;
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
struct Planning<'l> {
    dag: &'l Dag,
    tasks: &'l BTreeMap<TableId, Task>,
    options: &'l Options,
    now: Time,
    /// The time when each table must be refreshed, by its own schedule or for a reader that waits for the
    /// table.
    wishes: BTreeMap<TableId, RefreshTime>,
    /// The periods of the tables that have a period.
    periods: &'l BTreeMap<TableId, Duration>,
    /// Whether the last refresh of any table failed.
    failing: bool,
    /// The tables that are due for a reader in another group, earlier than by their own schedule.
    called: BTreeSet<TableId>,
    plan: Plan,
}

impl<'l> Planning<'l> {
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

    /// Returns the group with the due members that need not wait. Returns `None` if the group has no such
    /// member.
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
        // A table that failed is tried by itself, since in a common transaction each new error would undo the
        // work of the others. The other due members are refreshed before the failed table, until it has been
        // due for a whole period.
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

    /// Returns the members of a group that are refreshed together with the due members although they are not
    /// due. These are the members with the same period as a due member. From that refresh on, all these
    /// members have the same next time, so no member is refreshed more often than once per period. A query
    /// that reads all of them under one snapshot finds one state. A table that failed is refreshed without
    /// companions.
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

    /// Whether a refresh waits for a source in another group. Such a source is made due. Only tables with a
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
            // Otherwise, a source whose refresh is running at each look would keep its readers waiting for
            // ever.
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

/// Returns the members whose uncaptured sources count as changed (see [`Action::Refresh`]).
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
