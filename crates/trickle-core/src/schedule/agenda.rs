//! The state that a scheduler keeps between two looks. A *look* finds out which stream tables have changes.
//! For each stream table, the agenda holds the time when it was last refreshed or last found without changes.
//! The agenda also holds the stream tables that are being refreshed, and those that have changes and wait for
//! their turn.

use super::{Action, Options, Plan, Schedule, Status, Task, Time, decide};
use crate::dag::Dag;
use crate::table::TableId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The facts about a stream table that the catalog holds.
#[derive(Clone, Debug, Default)]
pub struct TableFacts {
    /// The schedule of the stream table. `None` means a manual schedule.
    pub schedule: Option<Schedule>,
    /// See [`Task::polls`].
    pub polls: bool,
    /// Whether the stream table is suspended: not refreshed until somebody resumes it.
    pub suspended: bool,
    /// The number of errors since the last successful refresh.
    pub errors: u32,
    /// The time of the stream table's last refresh, as recorded in the catalog. Any process may have made the
    /// refresh.
    pub refreshed: Option<Time>,
}

/// Stream tables that must be refreshed together now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The stream tables.
    pub members: Vec<TableId>,
    /// The members that are due, by their own schedule or for a reader in another group. The other members
    /// are refreshed with them.
    pub asked: Vec<TableId>,
    /// The members that are recomputed because nobody knows whether their sources changed.
    pub polled: BTreeSet<TableId>,
    /// The time since which all members are known to have no changes. `None` where there is no such time.
    pub quiet_at: Option<Time>,
}

impl Due {
    /// Whether this refresh considers all sources of a member, including those without capture.
    fn asks(&self, id: TableId, task: &Task) -> bool {
        !task.polls || self.polled.contains(&id)
    }
}

/// The outcome of a refresh, as far as it matters for the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The refresh succeeded.
    Done,
    /// The refresh had to wait too long for a lock, or was interrupted. The scheduler tries again before the
    /// next time of the schedule.
    Later,
    /// The refresh failed.
    Failed,
}

/// The stream tables that one look covers. A look finds out which stream tables have changes.
#[derive(Clone, Debug)]
pub struct Look {
    /// The stream tables that are due.
    pub members: BTreeSet<TableId>,
    /// The due stream tables that count as changed, since nobody knows whether their sources changed.
    pub polled: BTreeSet<TableId>,
    /// The longest period of the due stream tables.
    pub longest: Option<Duration>,
    /// The stream tables with a period of at most [`Look::longest`], due or not. If such a table has no
    /// changes, its next look comes one period after this look. Without this rule, a thousand stream tables
    /// with different times would cause a thousand looks in each period.
    pub beside: BTreeSet<TableId>,
    /// The stream tables of [`Look::members`] and [`Look::beside`], and all stream tables that they read,
    /// sources before readers.
    pub asked: Vec<TableId>,
}

/// The result of a look.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The stream tables that have changes, or may have changes.
    pub stale: BTreeSet<TableId>,
    /// The due stream tables that have changes.
    pub changed: BTreeSet<TableId>,
}

/// A scheduler without I/O, which holds the state that the module describes. Like [`next`](super::next), the
/// agenda has no effects: the time of day is a parameter. Another parameter is the time of a monotonic clock,
/// counted from any fixed moment. Durations are measured by this clock. By the time of day, a refresh would
/// seem long if the clock is set forward during it, and the next refresh would be late.
///
/// The caller makes looks at the [`unknown`](Agenda::unknown) refreshes until there are none. It then
/// [begins](Agenda::begin) the [`ready`](Agenda::ready) refreshes, and reports each refresh that
/// [ended](Agenda::ended). The agenda need not outlive the process, since the database records the changes
/// that were applied.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// The settings: periods, waits, and the greatest number of groups refreshed at one time.
    pub options: Options,
    /// The graph of sources and readers.
    pub dag: Dag,
    /// The schedule and the refresh status of each stream table.
    pub tasks: BTreeMap<TableId, Task>,
    /// The greatest age that each stream table may reach.
    periods: BTreeMap<TableId, Duration>,
    /// The stream tables that have changes and wait for their turn.
    changed: BTreeSet<TableId>,
    /// The time when each stream table was last known to have no changes. This is the time of a look, or the
    /// start of the last refresh.
    quiet: BTreeMap<TableId, Time>,
    /// For each stream table that is being refreshed, the time when its refresh began, by the monotonic
    /// clock.
    begun: BTreeMap<TableId, Duration>,
}

impl Agenda {
    /// Makes an agenda without stream tables.
    pub fn new(options: Options) -> Agenda {
        Agenda {
            options,
            dag: Dag::new(),
            tasks: BTreeMap::new(),
            periods: BTreeMap::new(),
            changed: BTreeSet::new(),
            quiet: BTreeMap::new(),
            begun: BTreeMap::new(),
        }
    }

    /// Replaces the graph and the facts from the catalog. The status of refreshes stays. Returns the stream
    /// tables that were suspended since the last call.
    pub fn learn(&mut self, dag: Dag, known: BTreeMap<TableId, TableFacts>, now: Time) -> Vec<TableId> {
        let mut before = std::mem::take(&mut self.tasks);
        let mut suspended = Vec::new();
        for (id, known) in known {
            let old = before.remove(&id).map(|t| t.status);
            if known.suspended && old.is_some_and(|o| !o.suspended) {
                suspended.push(id);
            }
            self.tasks.insert(id, task(known, old, now));
        }
        self.dag = dag;
        self.periods = decide::periods(&self.dag, &self.tasks, &self.options);
        self.changed.retain(|id| self.tasks.contains_key(id));
        self.quiet.retain(|id, _| self.tasks.contains_key(id));
        suspended
    }

    /// Returns the greatest age that each stream table with a schedule may reach.
    pub fn periods(&self) -> &BTreeMap<TableId, Duration> {
        &self.periods
    }

    /// Returns the refreshes that are due, with or without changes, as if no limit applied to their number.
    /// Also returns the rest of the plan.
    pub fn due(&self, now: Time) -> (Vec<Due>, Plan) {
        self.plan(usize::MAX, now)
    }

    /// Returns the due refreshes that are not known to have changes. Also returns the rest of the plan.
    pub fn unknown(&self, now: Time) -> (Vec<Due>, Plan) {
        let (mut due, plan) = self.due(now);
        due.retain(|d| !self.has_changes(d));
        (due, plan)
    }

    /// Returns the refreshes that are due, have changes, and may begin, in the order in which to begin them.
    pub fn ready(&self, now: Time) -> Vec<Due> {
        let (mut due, _) = self.plan(self.options.max_concurrent, now);
        due.retain(|d| self.has_changes(d));
        due
    }

    /// Returns the time of the next look, if no refresh ends before it. The time is `now` if a refresh is due
    /// already. Returns `None` if no refresh is known to become due.
    pub fn wake(&self, now: Time) -> Option<Time> {
        let (due, plan) = self.plan(self.options.max_concurrent, now);
        if due.is_empty() { plan.wake } else { Some(now) }
    }

    /// Whether a stream table has changes and waits for its turn.
    pub fn has_waiting(&self) -> bool {
        !self.changed.is_empty()
    }

    fn has_changes(&self, due: &Due) -> bool {
        due.members.iter().any(|id| self.changed.contains(id))
    }

    fn plan(&self, most: usize, now: Time) -> (Vec<Due>, Plan) {
        let options = Options { max_concurrent: most, ..self.options };
        let mut plan = decide::next_of(&self.dag, &self.tasks, &self.periods, &options, now);
        let due = std::mem::take(&mut plan.actions).into_iter().filter_map(|a| match a {
            Action::Refresh { members, due, polled, .. } => {
                let quiet_at = members.iter().map(|id| self.quiet.get(id).copied()).min().flatten();
                Some(Due { members, asked: due, polled: polled.into_iter().collect(), quiet_at })
            }
            Action::Suspend { .. } => None,
        });
        (due.collect(), plan)
    }

    /// Returns the stream tables that a look for these due refreshes covers.
    pub fn look(&self, due: &[Due]) -> Look {
        let members: BTreeSet<TableId> = due.iter().flat_map(|d| &d.members).copied().collect();
        let polled = due.iter().flat_map(|d| &d.polled).copied().collect();
        let longest = members.iter().filter_map(|id| self.periods.get(id)).max().copied();
        let often = self.periods.iter().filter(|(_, p)| Some(**p) <= longest);
        let beside: BTreeSet<TableId> = often.map(|(id, _)| *id).collect();
        let asked = self.dag.refresh_set(&members.union(&beside).copied().collect());
        Look { members, polled, longest, beside, asked }
    }

    /// Records the result of a look at the due refreshes.
    pub fn looked(&mut self, due: &[Due], look: &Look, seen: &Seen, now: Time) {
        let known = |id: &&TableId| self.tasks.get(*id).is_some_and(|t| !t.polls);
        let quiet = look.asked.iter().filter(|id| !seen.stale.contains(id)).filter(known);
        self.quiet.extend(quiet.map(|id| (*id, now)));
        self.changed.extend(seen.changed.intersection(&look.members));
        self.found_quiet(due, now);
        let mut stale = seen.stale.clone();
        for id in &seen.stale {
            stale.extend(self.dag.downstream(*id));
        }
        for id in look.beside.iter().filter(|id| !look.members.contains(id) && !stale.contains(id)) {
            let Some(t) = self.tasks.get_mut(id) else { continue };
            let is_quiet = !t.polls && !t.status.running && t.status.consecutive_errors == 0;
            // The next time of a cron schedule stays, even if a look before that time finds no changes.
            if is_quiet && !matches!(t.schedule, None | Some(Schedule::Cron(_))) {
                t.status.found_quiet(now);
            }
        }
    }

    /// Records that nothing was committed since the members of `due` were last found without changes.
    pub fn still_quiet(&mut self, due: &[Due], now: Time) {
        self.found_quiet(due, now);
        self.quiet.extend(due.iter().flat_map(|d| &d.members).map(|id| (*id, now)));
    }

    /// Records that a look found no changes for some of the `due` refreshes.
    fn found_quiet(&mut self, due: &[Due], now: Time) {
        let idle: Vec<&Due> = due.iter().filter(|d| !self.has_changes(d)).collect();
        for d in idle {
            for id in &d.members {
                let Some(t) = self.tasks.get_mut(id).filter(|t| d.asks(*id, t)) else { continue };
                t.status.found_quiet(now);
            }
        }
    }

    /// Records that a refresh begins. `clock` is the time of the monotonic clock.
    pub fn begin(&mut self, due: &Due, now: Time, clock: Duration) {
        for id in &due.members {
            self.changed.remove(id);
            let Some(t) = self.tasks.get_mut(id) else { continue };
            t.status.running = true;
            if due.asks(*id, t) {
                (t.status.last_start, t.status.last_end) = (Some(now), None);
                self.begun.insert(*id, clock);
            }
        }
    }

    /// Records that a refresh ended. `clock` is the time of the monotonic clock.
    pub fn ended(&mut self, due: &Due, outcome: Outcome, now: Time, clock: Duration) {
        for id in &due.members {
            let took = self.begun.remove(id).map(|at| clock.saturating_sub(at));
            let Some(t) = self.tasks.get_mut(id) else { continue };
            let asked = due.asks(*id, t);
            let status = &mut t.status;
            status.running = false;
            if asked {
                let measured = status.last_start.zip(took).map(|(start, took)| start.after(took));
                status.last_end = measured.or(Some(now));
                status.again = outcome == Outcome::Later;
            }
            match outcome {
                Outcome::Done => {
                    status.consecutive_errors = 0;
                    status.last_done = status.last_start;
                    // The table contains all changes that were committed before the refresh began, so it had
                    // no pending changes at that time.
                    self.quiet.extend(status.last_start.map(|start| (*id, start)));
                }
                Outcome::Later => {}
                Outcome::Failed => status.consecutive_errors += 1,
            }
        }
    }
}

/// Builds a task from the catalog's facts and the known status of its refreshes. If a cron time passed while
/// no scheduler ran, the refresh is made later: the first period begins at the last refresh that the catalog
/// records.
fn task(known: TableFacts, old: Option<Status>, now: Time) -> Task {
    let is_cron = matches!(known.schedule, Some(Schedule::Cron(_)));
    let noted = known.refreshed.filter(|at| is_cron && *at < now);
    let fresh = Status { since: noted.unwrap_or(now), ..Status::default() };
    let status =
        Status { suspended: known.suspended, consecutive_errors: known.errors, ..old.unwrap_or(fresh) };
    Task { schedule: known.schedule, status, polls: known.polls }
}
