//! A refresher, as `trickle_engine::scheduler` and `trickle_client::daemon` are: what it knows, how it looks, and what it
//! notes of the end of a refresh. It calls the core's scheduler; nothing of what it knows outlives it.

use crate::database::Database;
use crate::mutants::Mutant;
use crate::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trickle_core::catalog::TableId;
use trickle_core::dag::{Dag, StreamTableNode};
use trickle_core::schedule::{
    Action, Options, Plan, Schedule, Status, Task, Time, canonical_periods, effective_period, next,
};

/// How a refresh ended, as far as its schedule goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Later,
    Failed,
}

/// What is to be refreshed together, and what of it asked for that.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub(crate) members: Vec<TableId>,
    pub(crate) due: Vec<TableId>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Daemon {
    options: Options,
    mutant: Option<Mutant>,
    pub(crate) dag: Dag,
    /// Of which state of the catalog that is, what is refreshed together in it, and with how many other groups on the way.
    epoch: Option<u64>,
    pub(crate) groups: Vec<Vec<TableId>>,
    pub(crate) on_the_way: BTreeMap<TableId, i64>,
    pub(crate) tasks: BTreeMap<TableId, Task>,
    pub(crate) periods: BTreeMap<TableId, Duration>,
    changed: BTreeSet<TableId>,
    looked: Option<i64>,
    reload: i64,
    /// When each was last started or looked at, or found in no state to be, on a clock that nobody sets.
    pub(crate) seen: BTreeMap<TableId, i64>,
}

/// The graph of the stream tables in the catalog.
pub(crate) fn graph(db: &Database) -> Dag {
    let name = |id: &TableId| id.to_string().into();
    let nodes = db.catalog.iter().map(|(id, e)| StreamTableNode {
        id: *id,
        name: name(id),
        sources: e.definition.sources.iter().map(|s| (*s, name(s))).collect(),
        apart: e.definition.apart,
    });
    Dag::build(nodes).expect("sources are older than their readers")
}

impl Daemon {
    pub(crate) fn new(scenario: &Scenario, mutant: Option<Mutant>) -> Daemon {
        Daemon {
            options: scenario.options,
            mutant,
            dag: Dag::new(),
            epoch: None,
            groups: Vec::new(),
            on_the_way: BTreeMap::new(),
            tasks: BTreeMap::new(),
            periods: BTreeMap::new(),
            changed: BTreeSet::new(),
            looked: None,
            reload: scenario.reload,
            seen: BTreeMap::new(),
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Reads the catalog where the last reading is old.
    pub(crate) fn read(&mut self, db: &Database, wall: Time, now: i64) {
        if self.looked.is_some_and(|at| now - at < self.reload) {
            return;
        }
        self.looked = Some(now);
        if self.epoch != Some(db.epoch) {
            self.draw(db);
        }
        let mut tasks = BTreeMap::new();
        for (id, e) in &db.catalog {
            let fresh = Status { since: wall, ..Status::default() };
            let status = Status {
                suspended: e.state.suspended && !self.is(Mutant::SuspensionIgnored),
                consecutive_errors: e.state.errors,
                ..self.tasks.remove(id).map_or(fresh, |t| t.status)
            };
            tasks.insert(*id, Task { schedule: e.definition.schedule.clone(), status, polls: false });
            self.seen.entry(*id).or_insert(now);
        }
        self.tasks = tasks;
        let schedule = |id| self.tasks.get(&id)?.schedule.as_ref();
        self.periods = canonical_periods(&self.dag, schedule, |_| self.options.default_period);
        self.changed.retain(|id| self.tasks.contains_key(id));
        self.seen.retain(|id, _| self.tasks.contains_key(id));
    }

    fn draw(&mut self, db: &Database) {
        self.epoch = Some(db.epoch);
        self.dag = graph(db);
        self.groups = self.dag.groups();
        let way = |id: &TableId| {
            let upstream = self.dag.upstream(*id);
            let on_it = |g: &&Vec<TableId>| g.iter().any(|m| m == id || upstream.contains(m));
            (*id, self.groups.iter().filter(on_it).count() as i64)
        };
        self.on_the_way = db.catalog.keys().map(way).collect();
    }

    /// The core's plan; mutants ask for another, or do not do what it says.
    fn plan(&self, most: usize, wall: Time) -> Plan {
        let mut options = Options { max_concurrent: most, ..self.options };
        let (mut dag, mut tasks) = (None, None);
        match self.mutant {
            Some(Mutant::NoLimit) => options.max_concurrent = usize::MAX,
            Some(Mutant::LeastGroupFirst) => options.max_concurrent = usize::MAX,
            Some(Mutant::NoBackoff) => options.backoff_first = Duration::ZERO,
            Some(Mutant::EndlessBackoff) => {
                (options.backoff_first, options.backoff_cap) = (options.backoff_first * 20, Duration::MAX);
            }
            Some(Mutant::SuspensionIgnored) => options.max_consecutive_errors = 0,
            Some(Mutant::RunningIgnored) => {
                let tasks = tasks.insert(self.tasks.clone());
                tasks.values_mut().for_each(|t| t.status.running = false);
            }
            Some(Mutant::ReaderDoesNotWait) => dag = self.cut(),
            _ => {}
        }
        let (dag, tasks) = (dag.as_ref().unwrap_or(&self.dag), tasks.as_ref().unwrap_or(&self.tasks));
        let mut plan = next(dag, tasks, &options, wall);
        let future = |id: &TableId| self.tasks[id].status.last_start.is_some_and(|s| s > wall);
        if self.is(Mutant::FutureWaited) {
            plan.actions.retain(|a| matches!(a, Action::Refresh { due, .. } if !due.iter().any(future)));
        }
        if self.is(Mutant::LeastGroupFirst) {
            let group = |a: &Action| match a {
                Action::Refresh { group, .. } => *group,
                Action::Suspend { id, .. } => *id,
            };
            plan.actions.retain(|a| matches!(a, Action::Refresh { .. }));
            plan.actions.sort_by_key(group);
            plan.actions.truncate(most.saturating_sub(self.running()));
        }
        plan
    }

    /// The graph in which what stands apart reads base tables only.
    fn cut(&self) -> Option<Dag> {
        let of: BTreeMap<TableId, usize> = self
            .dag
            .groups()
            .iter()
            .enumerate()
            .flat_map(|(i, g)| g.iter().map(move |id| (*id, i)))
            .collect();
        let name = |id: TableId| id.to_string().into();
        let nodes = self.tasks.keys().map(|id| {
            let source = |s: TableId| if of.get(&s) == of.get(id) { s } else { TableId(s.0 + 5000) };
            let sources = self.dag.sources(*id).into_iter().map(|s| (source(s), name(s))).collect();
            StreamTableNode { id: *id, name: name(*id), sources, apart: false }
        });
        Dag::build(nodes).ok()
    }

    /// How many groups are at work.
    fn running(&self) -> usize {
        let running = |id: &TableId| self.tasks.get(id).is_some_and(|t| t.status.running);
        self.groups.iter().filter(|g| g.iter().any(running)).count()
    }

    fn due(&self, most: usize, wall: Time) -> (Vec<Due>, Option<Time>) {
        let plan = self.plan(most, wall);
        let due = plan.actions.into_iter().filter_map(|a| match a {
            Action::Refresh { members, due, .. } => Some(Due { members, due }),
            Action::Suspend { .. } => None,
        });
        (due.collect(), plan.wake)
    }

    fn has_changes(&self, due: &Due) -> bool {
        due.members.iter().any(|id| self.changed.contains(id))
    }

    /// Finds what is due and has anything to do, which counts as running from now on, and when to look again.
    pub(crate) fn look(&mut self, db: &Database, wall: Time, now: i64) -> (Vec<Due>, Option<Time>) {
        self.read(db, wall, now);
        let (mut due, wake) = self.due(usize::MAX, wall);
        if due.is_empty() {
            return (due, wake);
        }
        if self.is(Mutant::NoLook) {
            self.changed.extend(self.tasks.keys());
        }
        loop {
            due.retain(|d| !self.has_changes(d));
            if due.is_empty() {
                break;
            }
            self.look_at(db, &due, wall, now);
            due = self.due(usize::MAX, wall).0;
        }
        let (mut due, _) = self.due(self.options.max_concurrent, wall);
        due.retain(|d| self.has_changes(d));
        for d in &due {
            for id in &d.members {
                self.changed.remove(id);
                let period = self.periods.get(id).copied().unwrap_or_default();
                let Some(t) = self.tasks.get_mut(id) else { continue };
                let queued = t.status.last_start.map(|s| s.after(period)).filter(|_| d.due.contains(id));
                t.status.running = true;
                t.status.last_start = Some(match queued.filter(|q| *q < wall) {
                    Some(queued) if self.mutant == Some(Mutant::MissedRunsQueued) => queued,
                    _ => wall,
                });
                t.status.last_end = None;
                self.seen.insert(*id, now);
            }
        }
        if self.is(Mutant::StartedWithoutRefresh) && now % 7 == 0 {
            due.clear();
        }
        let wake = self.plan(self.options.max_concurrent, wall).wake;
        (due, wake)
    }

    /// Looks whether these have changes, and at whatever is looked at as often with them.
    fn look_at(&mut self, db: &Database, due: &[Due], wall: Time, now: i64) {
        let members: BTreeSet<TableId> = due.iter().flat_map(|d| &d.members).copied().collect();
        let longest = members.iter().filter_map(|id| self.periods.get(id)).max();
        let beside: BTreeSet<TableId> =
            self.periods.iter().filter(|(_, p)| Some(*p) <= longest).map(|(id, _)| *id).collect();
        let asked = self.dag.refresh_set(&members.union(&beside).copied().collect());
        let found: BTreeSet<TableId> = asked.into_iter().filter(|id| db.has_changes(*id)).collect();
        self.changed.extend(found.intersection(&members));
        let idle: Vec<&Due> = due.iter().filter(|d| !self.has_changes(d)).collect();
        for id in idle.into_iter().flat_map(|d| &d.members) {
            let Some(t) = self.tasks.get_mut(id) else { continue };
            (t.status.last_start, t.status.last_end) = (Some(wall), Some(wall));
            self.seen.insert(*id, now);
        }
        let mut stale = found;
        for id in stale.clone() {
            stale.extend(self.dag.downstream(id));
        }
        for id in beside.iter().filter(|id| !members.contains(id) && !stale.contains(id)) {
            let Some(t) = self.tasks.get_mut(id) else { continue };
            let quiet = !t.status.running && t.status.consecutive_errors == 0;
            if quiet && !matches!(t.schedule, None | Some(Schedule::Cron(_))) {
                (t.status.last_start, t.status.last_end) = (Some(wall), Some(wall));
                self.seen.insert(*id, now);
            }
        }
    }

    /// Notes how a refresh ended.
    pub(crate) fn ended(&mut self, due: &Due, end: End, wall: Time, now: i64) {
        for id in &due.members {
            let took = Duration::from_millis((now - self.seen.get(id).copied().unwrap_or(now)) as u64);
            let by_the_clock = self.is(Mutant::ClockMeasures);
            let Some(t) = self.tasks.get_mut(id) else { continue };
            t.status.running = false;
            let measured = t.status.last_start.filter(|_| !by_the_clock).map(|s| s.after(took));
            t.status.last_end = measured.or(Some(wall));
            match end {
                End::Done => {
                    t.status.consecutive_errors = 0;
                    t.status.last_done = t.status.last_start;
                }
                End::Later => {}
                End::Failed => {
                    t.status.consecutive_errors += 1;
                    self.looked = None;
                }
            }
        }
    }

    /// When it last read the catalog.
    pub(crate) fn looked(&self) -> Option<i64> {
        self.looked
    }

    /// The period in force for something that takes so long.
    pub(crate) fn period(&self, id: TableId, longest: i64) -> Option<i64> {
        let own = match self.tasks.get(&id)?.schedule.as_ref()? {
            // Gaps differ: by the clock, and where 60 is no multiple.
            Schedule::Cron(c) => c.gap() * 2,
            _ => *self.periods.get(&id)?,
        };
        let longest = Duration::from_millis(longest.max(0) as u64);
        Some(effective_period(own.max(self.options.min_period), longest).as_millis() as i64)
    }
}
