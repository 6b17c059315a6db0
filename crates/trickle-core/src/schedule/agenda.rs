//! What a scheduler knows between two looks: when each stream table was last refreshed or seen to have nothing to do, what is at
//! work, and what has changes and waits for its turn.

use super::{Action, Options, Plan, Schedule, Status, Task, Time, plan};
use crate::catalog::TableId;
use crate::dag::Dag;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What the catalog says of a stream table.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Its schedule; `None` is manual.
    pub schedule: Option<Schedule>,
    /// See [`Task::polls`].
    pub polls: bool,
    /// Whether it is refreshed by nobody until somebody resumes it.
    pub suspended: bool,
    /// Errors since the last success.
    pub errors: u32,
    /// When it was last refreshed, as far as others noted.
    pub refreshed: Option<Time>,
}

/// What is to be refreshed together, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The stream tables.
    pub members: Vec<TableId>,
    /// Those whose time came, or that of a reader in another group: the others come with them.
    pub asked: Vec<TableId>,
    /// Those that are to be computed anew because nobody can tell whether they changed.
    pub polled: BTreeSet<TableId>,
    /// When all of them were last seen to have nothing to do, if that was seen.
    pub quiet_at: Option<Time>,
}

impl Due {
    /// Whether a member's time came, in which it is looked at with all that it reads.
    fn asks(&self, id: TableId, task: &Task) -> bool {
        !task.polls || self.polled.contains(&id)
    }
}

/// How a refresh ended, as far as its schedule goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// Somebody was in the way, or it was cut off: it is tried again before its next time.
    Later,
    /// It failed.
    Failed,
}

/// What is looked at together.
#[derive(Clone, Debug)]
pub struct Look {
    /// What is due.
    pub members: BTreeSet<TableId>,
    /// Those of them that count as changed if nobody can tell.
    pub polled: BTreeSet<TableId>,
    /// The longest of their periods.
    pub longest: Option<Duration>,
    /// What is looked at as often or more, whether or not it is due: its next look comes a period later then. Else a thousand
    /// stream tables, whose times differ, would be a thousand looks in each period.
    pub beside: BTreeSet<TableId>,
    /// All of these, with what they read, upstream first.
    pub asked: Vec<TableId>,
}

/// What was seen there.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Those that have changes, or may have.
    pub stale: BTreeSet<TableId>,
    /// Those of the due ones that have.
    pub changed: BTreeSet<TableId>,
}

/// See the module. It is pure as [`next`](super::next) is: the time of the clock comes in as a parameter, and so does a time that nobody sets,
/// since any fixed moment, by which durations are measured: a clock that was set forward during a refresh would make that a
/// long one, and put the next one off for as long.
///
/// Who drives it looks at what is [`unknown`](Agenda::unknown) until nothing is, [begins](Agenda::begin) what is
/// [`ready`](Agenda::ready), and says how that [ended](Agenda::ended). Nothing of it has to outlive the process: what was consumed
/// is in the database.
#[derive(Clone, Debug)]
pub struct Agenda {
    /// Periods, waits, and how many groups at a time.
    pub options: Options,
    /// What reads what.
    pub dag: Dag,
    /// The stream tables.
    pub tasks: BTreeMap<TableId, Task>,
    /// How old each may become.
    periods: BTreeMap<TableId, Duration>,
    /// Those that have changes and wait for their turn.
    changed: BTreeSet<TableId>,
    /// When each was last known to have none: at a look, or when its last refresh began.
    quiet: BTreeMap<TableId, Time>,
    /// When those at work were begun, by the time that nobody sets.
    begun: BTreeMap<TableId, Duration>,
}

impl Agenda {
    /// Knows nothing yet.
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

    /// Goes by what the catalog says from now on; what is known of refreshes stays. Gives those that were suspended since.
    pub fn learn(&mut self, dag: Dag, known: BTreeMap<TableId, Known>, now: Time) -> Vec<TableId> {
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
        self.periods = plan::periods(&self.dag, &self.tasks, &self.options);
        self.changed.retain(|id| self.tasks.contains_key(id));
        self.quiet.retain(|id, _| self.tasks.contains_key(id));
        suspended
    }

    /// How old each stream table with a schedule may become.
    pub fn periods(&self) -> &BTreeMap<TableId, Duration> {
        &self.periods
    }

    /// What is due, whether or not it has changes, and what else the plan says, however many may be at work.
    pub fn due(&self, now: Time) -> (Vec<Due>, Plan) {
        self.plan(usize::MAX, now)
    }

    /// What is due and is not known to have changes, and what else the plan says.
    pub fn unknown(&self, now: Time) -> (Vec<Due>, Plan) {
        let (mut due, plan) = self.due(now);
        due.retain(|d| !self.has_changes(d));
        (due, plan)
    }

    /// What is due, has changes, and may be begun, in this order.
    pub fn ready(&self, now: Time) -> Vec<Due> {
        let (mut due, _) = self.plan(self.options.max_concurrent, now);
        due.retain(|d| self.has_changes(d));
        due
    }

    /// When to look again, where nothing ends before; `None`: nothing is known to become due. Something that became due meanwhile
    /// is looked at at once.
    pub fn wake(&self, now: Time) -> Option<Time> {
        let (due, plan) = self.plan(self.options.max_concurrent, now);
        if due.is_empty() { plan.wake } else { Some(now) }
    }

    /// Whether something has changes and waits for its turn.
    pub fn has_waiting(&self) -> bool {
        !self.changed.is_empty()
    }

    fn has_changes(&self, due: &Due) -> bool {
        due.members.iter().any(|id| self.changed.contains(id))
    }

    fn plan(&self, most: usize, now: Time) -> (Vec<Due>, Plan) {
        let options = Options { max_concurrent: most, ..self.options };
        let mut plan = plan::next_of(&self.dag, &self.tasks, &self.periods, &options, now);
        let due = std::mem::take(&mut plan.actions).into_iter().filter_map(|a| match a {
            Action::Refresh { members, due, polled, .. } => {
                let quiet_at = members.iter().map(|id| self.quiet.get(id).copied()).min().flatten();
                Some(Due { members, asked: due, polled: polled.into_iter().collect(), quiet_at })
            }
            Action::Suspend { .. } => None,
        });
        (due.collect(), plan)
    }

    /// What to look at where these are due.
    pub fn look(&self, due: &[Due]) -> Look {
        let members: BTreeSet<TableId> = due.iter().flat_map(|d| &d.members).copied().collect();
        let polled = due.iter().flat_map(|d| &d.polled).copied().collect();
        let longest = members.iter().filter_map(|id| self.periods.get(id)).max().copied();
        let often = self.periods.iter().filter(|(_, p)| Some(**p) <= longest);
        let beside: BTreeSet<TableId> = often.map(|(id, _)| *id).collect();
        let asked = self.dag.refresh_set(&members.union(&beside).copied().collect());
        Look { members, polled, longest, beside, asked }
    }

    /// What was seen at a look at what is due.
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
            // What has a time of the clock has it whether or not it was looked at before.
            if is_quiet && !matches!(t.schedule, None | Some(Schedule::Cron(_))) {
                t.status.found_quiet(now);
            }
        }
    }

    /// Nothing was committed since these were seen to have nothing to do.
    pub fn still_quiet(&mut self, due: &[Due], now: Time) {
        self.found_quiet(due, now);
        self.quiet.extend(due.iter().flat_map(|d| &d.members).map(|id| (*id, now)));
    }

    /// Those of these that have no changes were looked at.
    fn found_quiet(&mut self, due: &[Due], now: Time) {
        let idle: Vec<&Due> = due.iter().filter(|d| !self.has_changes(d)).collect();
        for d in idle {
            for id in &d.members {
                let Some(t) = self.tasks.get_mut(id).filter(|t| d.asks(*id, t)) else { continue };
                t.status.found_quiet(now);
            }
        }
    }

    /// A refresh begins; `clock` is the time that nobody sets.
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

    /// It ended.
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
                    // What was committed when it was begun is shown now, and nothing of that is left.
                    self.quiet.extend(status.last_start.map(|start| (*id, start)));
                }
                Outcome::Later => {}
                Outcome::Failed => status.consecutive_errors += 1,
            }
        }
    }
}

/// What the catalog says, and what is known of refreshes. A time of the clock that passed while nobody looked is made good: what
/// others noted of it counts as its last.
fn task(known: Known, old: Option<Status>, now: Time) -> Task {
    let is_cron = matches!(known.schedule, Some(Schedule::Cron(_)));
    let noted = known.refreshed.filter(|at| is_cron && *at < now);
    let fresh = Status { since: noted.unwrap_or(now), ..Status::default() };
    let status =
        Status { suspended: known.suspended, consecutive_errors: known.errors, ..old.unwrap_or(fresh) };
    Task { schedule: known.schedule, status, polls: known.polls }
}
