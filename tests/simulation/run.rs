//! One run: a clock that jumps from event to event, and the effect of each event.

use crate::daemon::{Daemon, graph};
use crate::database::{Database, Entry, State};
use crate::laws::{Law, Violation};
use crate::mutants::Mutant;
use crate::refresh::Refresh;
use crate::scenario::Scenario;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use trickle_core::catalog::TableId;
use trickle_core::frontier::Xid;
use trickle_core::refresh::FailureKind;
use trickle_core::schedule::{Due, Outcome, Time};

/// A scheduled step of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    Event(usize),
    Create(usize),
    Write(usize, usize),
    Within(usize),
    End(usize),
    /// A refresher looks for due stream tables, unless it has planned another look since then.
    Look(usize, u64),
    Up(usize),
    /// The outcome of a batch arrives.
    Answer(u64),
    TimeOut(u64, i64),
    /// The server notices that a client is gone.
    Gone(u64),
    Resume(TableId),
    Sample,
    Quiet,
    Finish,
}

/// The side that asked for a refresh.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    Daemon(usize, Due),
    User,
    Transaction(usize),
    /// The refresher that asked for the refresh has died.
    Nobody,
}

/// A refresh, the groups that are refreshed after it, and the side that asked for it.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) refresh: Refresh,
    pub(crate) owner: Owner,
    pub(crate) rest: VecDeque<Vec<TableId>>,
    pub(crate) stored: bool,
}

/// The place of a refresher and the clock of its machine. The place may be empty.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) daemon: Option<Daemon>,
    pub(crate) ahead: i64,
    /// Whether the clock was ever set back. A period can then last twice as long.
    pub(crate) set_back: bool,
    pub(crate) stalled: i64,
    pub(crate) looks: u64,
    pub(crate) fence: Option<u64>,
    /// The time at which the clock, the machine or the task of the refresher last changed.
    pub(crate) disturbed: i64,
    /// For each stream table whose last refresh failed here: the time of the failure, and the number of
    /// errors that the stream table had then.
    pub(crate) failed: BTreeMap<TableId, (i64, u32)>,
    /// The time at which the last refresh of each stream table started, if that refresh succeeded.
    pub(crate) started: BTreeMap<TableId, i64>,
    /// For each stream table whose last refresh met another session's lock or change: the time at which that
    /// refresh ended.
    pub(crate) later: BTreeMap<TableId, i64>,
    /// For each stream table, the last time at which it had an excuse for not being started.
    pub(crate) excused: BTreeMap<TableId, i64>,
}

/// A run and its state.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) scenario: Scenario,
    pub(crate) db: Database,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) now: i64,
    pub(crate) seats: Vec<Seat>,
    pub(crate) works: BTreeMap<u64, Work>,
    /// The open transactions of users, with their transaction ids.
    pub(crate) open: BTreeMap<usize, Option<Xid>>,
    queue: BTreeMap<(i64, u64), Do>,
    queued: u64,
    /// The tables that are refreshed together with a table, as planned when the refresh began. The key is a
    /// pair: the holder of the locks, and the table.
    pub(crate) together: BTreeMap<(u64, TableId), BTreeSet<TableId>>,
    pub(crate) suspended: BTreeMap<TableId, i64>,
    pub(crate) failures: BTreeMap<TableId, u32>,
    pub(crate) spent: BTreeMap<TableId, (usize, f64, f64)>,
    /// Duration of the longest refresh so far.
    pub(crate) longest: i64,
    pub(crate) refreshes: u64,
    /// Refreshes that a refresher left behind when it died.
    pub(crate) orphans: Vec<u64>,
    /// Whether the users have stopped and the faults have ended.
    pub(crate) is_quiet: bool,
    pub(crate) broken: Option<Violation>,
    pub(crate) trace: Option<Vec<String>>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) broken: Option<Violation>,
    pub(crate) refreshes: u64,
    pub(crate) trace: Vec<String>,
}

/// Runs a scenario to its end, or to the first law that it breaks.
pub(crate) fn run(scenario: &Scenario, mutant: Option<Mutant>, traced: bool) -> Summary {
    let mut run = Run::new(scenario.clone(), mutant, traced);
    while run.broken.is_none() {
        let Some(((at, _), what)) = run.queue.pop_first() else { break };
        run.now = at;
        if run.happens(what) {
            break;
        }
    }
    Summary { broken: run.broken, refreshes: run.refreshes, trace: run.trace.unwrap_or_default() }
}

impl Run {
    fn new(scenario: Scenario, mutant: Option<Mutant>, traced: bool) -> Run {
        let mut run = Run {
            db: Database::new(mutant),
            mutant,
            now: 0,
            seats: Vec::new(),
            works: BTreeMap::new(),
            open: BTreeMap::new(),
            queue: BTreeMap::new(),
            queued: 0,
            together: BTreeMap::new(),
            suspended: BTreeMap::new(),
            failures: BTreeMap::new(),
            spent: BTreeMap::new(),
            longest: 0,
            refreshes: 0,
            orphans: Vec::new(),
            is_quiet: false,
            broken: None,
            trace: traced.then(Vec::new),
            scenario,
        };
        for (i, t) in run.scenario.tables.clone().iter().enumerate() {
            if t.created == 0 { run.create(i) } else { run.at(t.created, Do::Create(i)) }
        }
        for i in 0..run.scenario.events.len() {
            run.at(run.scenario.events[i].0, Do::Event(i));
        }
        for d in 0..run.scenario.daemons {
            run.seats.push(Seat {
                daemon: None,
                ahead: 0,
                set_back: false,
                stalled: 0,
                looks: 0,
                fence: None,
                disturbed: 0,
                failed: BTreeMap::new(),
                started: BTreeMap::new(),
                later: BTreeMap::new(),
                excused: BTreeMap::new(),
            });
            run.at(d as i64, Do::Up(d));
        }
        if run.scenario.calm {
            run.at(run.scenario.unit * 2, Do::Sample);
        }
        run.at(run.scenario.length, Do::Quiet);
        run
    }

    pub(crate) fn at(&mut self, time: i64, what: Do) {
        self.queued += 1;
        self.queue.insert((time.max(self.now), self.queued), what);
    }

    pub(crate) fn say(&mut self, what: impl FnOnce(&Run) -> String) {
        if self.trace.is_some() {
            let line = format!("{:>8}  {}", self.now, what(self));
            self.trace.get_or_insert_default().push(line);
        }
    }

    pub(crate) fn breaks(&mut self, law: Law, detail: impl Into<String>) {
        let at = self.now;
        self.broken.get_or_insert(Violation { law, at, detail: detail.into() });
    }

    /// Returns the time of a refresher's clock.
    pub(crate) fn wall(&self, seat: usize) -> Time {
        Time(self.scenario.start.0 + self.now + self.seats[seat].ahead)
    }

    /// Runs one step, and returns whether the run is over.
    fn happens(&mut self, what: Do) -> bool {
        match what {
            Do::Event(i) => {
                let (_, event) = self.scenario.events[i].clone();
                self.say(|_| format!("{event:?}"));
                self.event(i, event);
            }
            Do::Create(i) => self.create(i),
            Do::Write(i, k) => self.write(i, k),
            Do::Within(i) => self.refresh_within(i),
            Do::End(i) => self.end(i),
            Do::Look(seat, number) if self.seats[seat].looks == number => self.look(seat),
            Do::Look(..) => {}
            Do::Up(seat) => self.up(seat),
            Do::Answer(id) => self.answered(id),
            Do::TimeOut(id, since) => {
                let Some(mut work) = self.works.remove(&id) else { return false };
                if work.refresh.waits == Some(since) {
                    work.refresh.time_out();
                    self.at(self.now + 1, Do::Answer(id));
                }
                self.works.insert(id, work);
            }
            Do::Gone(id) => self.gone(id),
            Do::Resume(id) => self.resume(id),
            Do::Sample => self.sample(),
            Do::Quiet => self.calm_down(),
            Do::Finish => return self.finish(),
        }
        false
    }

    /// Adds a stream table to the catalog. At the beginning of the run the refresher fills the stream table,
    /// and later on a user fills it.
    fn create(&mut self, i: usize) {
        let table = self.scenario.tables[i].clone();
        let exists = |s: &TableId| s.0 < 10 || self.db.catalog.contains_key(s);
        if !table.definition.sources.iter().all(exists) {
            return;
        }
        let entry = Entry {
            definition: table.definition,
            version: 1,
            state: State::default(),
            writer: 0,
            pending: None,
        };
        self.db.catalog.insert(table.id, entry);
        self.db.epoch += 1;
        if self.now > 0 {
            self.say(|_| format!("{} is created", table.id));
            self.disturb();
            self.begin(Owner::User, &[table.id], true);
        }
    }

    /// Notes that the tasks of the refreshers changed.
    pub(crate) fn disturb(&mut self) {
        for seat in &mut self.seats {
            seat.disturbed = seat.disturbed.max(self.now);
        }
    }

    /// Stops users, faults and everything else that hinders refreshes.
    fn calm_down(&mut self) {
        self.say(|_| "everybody leaves".into());
        self.is_quiet = true;
        self.scenario.faults = (0, 0);
        self.db.raising.clear();
        for i in self.open.clone().into_keys() {
            self.end(i);
        }
        for id in self.db.catalog.clone().into_keys() {
            self.resume(id);
        }
        for seat in 0..self.seats.len() {
            self.seats[seat].stalled = self.now;
            self.seats[seat].disturbed = self.now;
            if self.seats[seat].daemon.is_none() {
                self.up(seat);
            }
            self.look_soon(seat);
        }
        self.at(self.now + self.scenario.unit, Do::Finish);
    }
}

/// Returns the number under which a user's transaction holds locks.
pub(crate) fn holder(i: usize) -> u64 {
    1_000_000 + i as u64
}

/// Returns the groups in which these stream tables are refreshed. With `all`, the groups of their sources are
/// included.
pub(crate) fn groups(db: &Database, wanted: &[TableId], all: bool) -> VecDeque<Vec<TableId>> {
    let dag = graph(db);
    let wanted: BTreeSet<TableId> = wanted.iter().copied().filter(|id| db.catalog.contains_key(id)).collect();
    let set = dag.refresh_set(&wanted);
    let groups = dag.groups().iter().filter(|g| all || g.iter().any(|id| wanted.contains(id)));
    let within = groups.map(|g| set.iter().copied().filter(|id| g.contains(id)).collect::<Vec<_>>());
    within.filter(|g| !g.is_empty()).collect()
}

/// Returns how the core's agenda counts a failure: as a refresh to try again later, or as an error.
pub(crate) fn how(kind: FailureKind) -> Outcome {
    match kind {
        FailureKind::Busy | FailureKind::Conflict | FailureKind::Connection => Outcome::Later,
        FailureKind::Stale | FailureKind::Statement => Outcome::Failed,
    }
}
