//! A refresher: the core's agenda over the model of a database. The core's own code holds the state of the
//! refresher, and notes the end of each refresh. Mutants cause faults in some steps.

use crate::database::Database;
use crate::mutants::Mutant;
use crate::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trickle_core::catalog::TableId;
use trickle_core::dag::{Dag, StreamTableNode};
use trickle_core::schedule::{
    Agenda, Due, Options, Outcome, Schedule, Seen, TableFacts, Task, Time, effective_period,
};

/// A refresher of the simulation.
#[derive(Debug)]
pub(crate) struct Daemon {
    mutant: Option<Mutant>,
    agenda: Agenda,
    pub(crate) dag: Dag,
    /// The version of the catalog from which `dag` and `groups` were made. For each stream table,
    /// `on_the_way` counts its own group and the groups for which it waits.
    epoch: Option<u64>,
    pub(crate) groups: Vec<Vec<TableId>>,
    pub(crate) on_the_way: BTreeMap<TableId, i64>,
    looked: Option<i64>,
    reload: i64,
    /// For each stream table, the last time at which the refresher started or examined it, or could not start
    /// it. The times are of a clock that nobody sets.
    pub(crate) seen: BTreeMap<TableId, i64>,
}

/// Builds the graph of the stream tables in the catalog.
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
            mutant,
            agenda: Agenda::new(mistaken(scenario.options, mutant)),
            dag: Dag::new(),
            epoch: None,
            groups: Vec::new(),
            on_the_way: BTreeMap::new(),
            looked: None,
            reload: scenario.reload,
            seen: BTreeMap::new(),
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn tasks(&self) -> &BTreeMap<TableId, Task> {
        &self.agenda.tasks
    }

    pub(crate) fn periods(&self) -> &BTreeMap<TableId, Duration> {
        self.agenda.periods()
    }

    /// Reads the catalog if the last reading is too old.
    fn read(&mut self, db: &Database, wall: Time, now: i64) {
        if self.looked.is_some_and(|at| now - at < self.reload) {
            return;
        }
        self.looked = Some(now);
        if self.epoch != Some(db.epoch) {
            self.draw(db);
        }
        let known = db.catalog.iter().map(|(id, e)| {
            let known = TableFacts {
                schedule: e.definition.schedule.clone(),
                suspended: e.state.suspended && !self.is(Mutant::SuspensionIgnored),
                errors: e.state.errors,
                ..TableFacts::default()
            };
            (*id, known)
        });
        let dag = if self.is(Mutant::ReaderDoesNotWait) { self.cut(db) } else { self.dag.clone() };
        self.agenda.learn(dag, known.collect(), wall);
        for id in db.catalog.keys() {
            self.seen.entry(*id).or_insert(now);
        }
        self.seen.retain(|id, _| db.catalog.contains_key(id));
    }

    fn draw(&mut self, db: &Database) {
        self.epoch = Some(db.epoch);
        self.dag = graph(db);
        self.groups = self.dag.groups().to_vec();
        let way = |id: &TableId| {
            let upstream = self.dag.upstream(*id);
            let on_it = |g: &&Vec<TableId>| g.iter().any(|m| m == id || upstream.contains(m));
            (*id, self.groups.iter().filter(on_it).count() as i64)
        };
        self.on_the_way = db.catalog.keys().map(way).collect();
    }

    /// Builds a graph in which sources in other groups are no stream tables, so that no reader waits for
    /// them.
    fn cut(&self, db: &Database) -> Dag {
        let of = |id: TableId| self.groups.iter().position(|g| g.contains(&id));
        let name = |id: TableId| id.to_string().into();
        let nodes = db.catalog.keys().map(|id| {
            let source = |s: TableId| if of(s) == of(*id) { s } else { TableId(s.0 + 5000) };
            let sources = self.dag.sources(*id).into_iter().map(|s| (source(s), name(s))).collect();
            StreamTableNode { id: *id, name: name(*id), sources, apart: false }
        });
        Dag::build(nodes).expect("sources are older than their readers")
    }

    /// Returns the number of groups that are being refreshed.
    fn running(&self) -> usize {
        let running = |id: &TableId| self.tasks().get(id).is_some_and(|t| t.status.running);
        self.groups.iter().filter(|g| g.iter().any(running)).count()
    }

    /// Returns the groups that are due and have changes. With some mutants, it returns other groups.
    fn ready(&self, most: usize, wall: Time) -> Vec<Due> {
        let mut due = self.agenda.ready(wall);
        let future = |id: &TableId| self.tasks()[id].status.last_start.is_some_and(|s| s > wall);
        match self.mutant {
            Some(Mutant::FutureWaited) => due.retain(|d| !d.asked.iter().any(future)),
            Some(Mutant::LeastGroupFirst) => {
                due.sort_by_key(|d| d.members.iter().min().copied());
                due.truncate(most.saturating_sub(self.running()));
            }
            _ => {}
        }
        due
    }

    /// Finds the groups that are due and have changes, and the time at which to look again. From then on the
    /// groups count as running.
    pub(crate) fn look(
        &mut self,
        db: &Database,
        most: usize,
        wall: Time,
        now: i64,
    ) -> (Vec<Due>, Option<Time>) {
        self.read(db, wall, now);
        if self.is(Mutant::RunningIgnored) {
            self.agenda.tasks.values_mut().for_each(|t| t.status.running = false);
        }
        let (mut due, mut plan) = self.agenda.unknown(wall);
        while !due.is_empty() {
            self.look_at(db, &due, wall);
            (due, plan) = self.agenda.unknown(wall);
        }
        let looked = |(id, t): (&TableId, &Task)| (t.status.last_start == Some(wall)).then_some((*id, now));
        self.seen.extend(self.agenda.tasks.iter().filter_map(looked));
        if !self.agenda.has_waiting() {
            return (due, plan.wake);
        }
        let mut due = self.ready(most, wall);
        for d in &due {
            let queued = |id: &TableId| {
                let period = self.periods().get(id).copied().unwrap_or_default();
                let last = self.tasks()[id].status.last_start?.after(period);
                (d.asked.contains(id) && last < wall).then_some((*id, last))
            };
            let queued: Vec<(TableId, Time)> = d.members.iter().filter_map(queued).collect();
            self.agenda.begin(d, wall, self.clock(wall, now));
            self.seen.extend(d.members.iter().map(|id| (*id, now)));
            if self.is(Mutant::MissedRunsQueued) {
                queued.into_iter().for_each(|(id, last)| self.status(id).last_start = Some(last));
            }
        }
        if self.is(Mutant::StartedWithoutRefresh) && now % 7 == 0 {
            due.clear();
        }
        // These mutants leave out groups that stay due. If these groups counted, the refresher would wake
        // again at once.
        let wake = match self.mutant {
            Some(Mutant::FutureWaited | Mutant::LeastGroupFirst) => None,
            _ => self.agenda.wake(wall),
        };
        (due, wake)
    }

    /// Examines whether the due stream tables have changes. Also examines all stream tables that are examined
    /// equally often.
    fn look_at(&mut self, db: &Database, due: &[Due], wall: Time) {
        let look = self.agenda.look(due);
        let has = |id: &TableId| db.has_changes(*id) || self.is(Mutant::NoLook);
        let stale: BTreeSet<TableId> = look.asked.iter().copied().filter(has).collect();
        let seen = Seen { changed: stale.clone(), stale };
        self.agenda.looked(due, &look, &seen, wall);
    }

    fn status(&mut self, id: TableId) -> &mut trickle_core::schedule::Status {
        &mut self.agenda.tasks.get_mut(&id).expect("it is known").status
    }

    /// Returns the time of the clock that measures durations.
    fn clock(&self, wall: Time, now: i64) -> Duration {
        Duration::from_millis(if self.is(Mutant::ClockMeasures) { wall.0 } else { now } as u64)
    }

    /// Notes the outcome of a refresh.
    pub(crate) fn ended(&mut self, due: &Due, outcome: Outcome, wall: Time, now: i64) {
        self.agenda.ended(due, outcome, wall, self.clock(wall, now));
        if self.is(Mutant::LaterIsAPeriodLater) {
            self.agenda.tasks.values_mut().for_each(|t| t.status.again = false);
        }
        if outcome == Outcome::Failed {
            self.looked = None;
        }
    }

    /// Returns the time at which the refresher last read the catalog.
    pub(crate) fn looked(&self) -> Option<i64> {
        self.looked
    }

    /// Returns the period in force of a stream table whose refreshes take up to `longest`.
    pub(crate) fn period(&self, id: TableId, longest: i64) -> Option<i64> {
        let own = match self.tasks().get(&id)?.schedule.as_ref()? {
            // The intervals of a cron schedule differ, because clocks are set and 60 may be no multiple of
            // the step.
            Schedule::Cron(c) => c.gap() * 2,
            _ => *self.periods().get(&id)?,
        };
        Some(effective_period(own, millis(longest)).as_millis() as i64)
    }
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0) as u64)
}

/// Returns the settings with the fault of a mutant.
fn mistaken(mut options: Options, mutant: Option<Mutant>) -> Options {
    match mutant {
        Some(Mutant::NoLimit | Mutant::LeastGroupFirst) => options.max_concurrent = usize::MAX,
        Some(Mutant::NoBackoff) => options.backoff_first = Duration::ZERO,
        Some(Mutant::EndlessBackoff) => {
            (options.backoff_first, options.backoff_cap) = (options.backoff_first * 20, Duration::MAX);
        }
        Some(Mutant::SuspensionIgnored) => options.max_consecutive_errors = 0,
        _ => {}
    }
    options
}
