//! The events of a run, as data. A seed determines the events, and a smaller run leaves parts of them out.

use std::time::Duration;
use trickle_core::catalog::TableId;
use trickle_core::schedule::{Options, Schedule, Time};
use trickle_core::testing::Choice;

/// Returns a random number that depends only on the seed and on the purpose `what` of the number. So a run
/// that leaves out one part has the same random numbers for the other parts.
pub(crate) fn thrown(seed: u64, what: &[u64]) -> u64 {
    what.iter().fold(seed ^ 0x9E37_79B9_7F4A_7C15, |h, n| {
        let h = (h ^ n).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (h ^ (h >> 29)).wrapping_mul(0x94D0_49BB_1331_11EB) ^ (h >> 32)
    })
}

/// The definition of a stream table.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) sources: Vec<TableId>,
    pub(crate) apart: bool,
    pub(crate) schedule: Option<Schedule>,
}

/// A stream table, and the true costs of its refreshes.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) id: TableId,
    pub(crate) definition: Definition,
    /// The milliseconds that a delta takes, that a full refresh takes, and that each changed row adds to a
    /// delta.
    pub(crate) costs: [f64; 3],
    /// The time at which the table is created. The time 0 means before the run.
    pub(crate) created: i64,
}

/// An event of a run. Times are milliseconds since the start of the run.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A transaction that writes at some times after its beginning, may refresh a stream table, and ends.
    Transaction {
        writes: Vec<(i64, TableId, i64)>,
        refresh: Option<(i64, TableId)>,
        length: i64,
        commits: bool,
    },
    /// A user truncates a table.
    Truncate(TableId),
    /// A refresher dies. The server rolls back its transactions after a while, and the refresher starts
    /// again.
    Kill {
        daemon: usize,
        linger: i64,
        down: i64,
    },
    /// The server restarts, and all open transactions are lost.
    Restart,
    /// The clock of a refresher's machine is set.
    Jump {
        daemon: usize,
        by: i64,
    },
    /// A refresher's machine stands still for a while.
    Stall {
        daemon: usize,
        length: i64,
    },
    /// The query of a stream table raises an error for a while.
    Raise {
        table: TableId,
        length: i64,
    },
    /// A user suspends or resumes a stream table.
    Suspend(TableId),
    Resume(TableId),
    /// A user refreshes a stream table by hand.
    Refresh(TableId),
    /// A user changes the schedule of a stream table.
    Reschedule(TableId, Option<Schedule>),
    Redefine(TableId),
    /// A user drops a stream table that has no readers.
    Drop(TableId),
}

/// The events and settings of one run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// The wall clock at the start of the run.
    pub(crate) start: Time,
    /// The unit of time of this run, in milliseconds: a second, a minute or an hour.
    pub(crate) unit: i64,
    /// The time at which the users stop. After that time, all stream tables must become right and have
    /// nothing left to do.
    pub(crate) length: i64,
    pub(crate) tables: Vec<Table>,
    pub(crate) options: Options,
    pub(crate) reload: i64,
    pub(crate) lock_timeout: i64,
    pub(crate) daemons: usize,
    /// Duration of a lease, or `None` if the refreshers have no lease.
    pub(crate) lease: Option<i64>,
    /// The number of statements among 10,000 that meet a broken connection, and the number that meet a
    /// serialization failure.
    pub(crate) faults: (u64, u64),
    /// Whether only writers disturb the refreshers. The times that the laws demand then hold without
    /// exceptions.
    pub(crate) calm: bool,
    pub(crate) events: Vec<(i64, Event)>,
}

/// The start times of two nights in which clocks in Berlin are set, and of an ordinary hour.
const STARTS: [i64; 3] = [1_774_738_800_000, 1_792_879_200_000, 1_780_300_800_000];

fn period(choice: &mut Choice, unit: i64) -> Option<Schedule> {
    let units = |n: usize| Schedule::Every(Duration::from_millis(n as u64 * unit as u64));
    let cron = match unit {
        1_000 => "*/7 * * * * *",
        60_000 => "TZ=Europe/Berlin */5 * * * *",
        _ => "TZ=Europe/Berlin 30 2,14 * * *",
    };
    match choice.below(10) {
        0 => None,
        1 | 2 => Some(Schedule::Calculated),
        3 => Schedule::parse(cron).ok(),
        4 | 5 => Some(units(1 + choice.below(3))),
        _ => Some(units(2 + choice.below(12))),
    }
}

fn tables(choice: &mut Choice, unit: i64, calm: bool) -> Vec<Table> {
    let apart = choice.below(3);
    let shape = choice.below(4);
    let mut all: Vec<Table> = Vec::new();
    for i in 0..1 + choice.below(6) {
        let mut sources = Vec::new();
        for k in 0..1 + choice.below(3) {
            let earlier = match shape {
                0 => all.last(),
                1 => all.first(),
                _ => choice.pick(&all),
            };
            let base = TableId(1 + choice.below(3) as u32);
            sources.push(earlier.filter(|_| k == 0 || shape > 1).map_or(base, |t| t.id));
        }
        if choice.one_in(3) {
            sources = vec![TableId(1 + choice.below(3) as u32)];
        }
        sources.sort_unstable();
        sources.dedup();
        // A delta takes from a hundredth of a unit to one unit, and a full refresh takes at most three units.
        let delta = unit as f64 / [100.0, 20.0, 5.0, 1.0][choice.below(if calm { 3 } else { 4 })];
        let full = (delta * [0.2, 2.0, 10.0][choice.below(3)]).min(3.0 * unit as f64);
        let definition = Definition {
            sources,
            apart: apart == 2 || (apart == 1 && choice.one_in(2)),
            schedule: period(choice, unit),
        };
        let created = if choice.one_in(6) && !calm { choice.below(20) as i64 * unit } else { 0 };
        let row = delta / [4.0, 40.0][choice.below(2)];
        all.push(Table { id: TableId(10 + i as u32), definition, costs: [delta, full, row], created });
    }
    // A reader is not created before its sources.
    for i in 0..all.len() {
        let created = |id: &TableId| all.iter().find(|t| t.id == *id).map_or(0, |t| t.created);
        let latest = all[i].definition.sources.iter().map(created).max().unwrap_or(0);
        all[i].created = all[i].created.max(latest);
    }
    all
}

fn transaction(choice: &mut Choice, scenario: &Scenario) -> Event {
    let unit = scenario.unit;
    let long = choice.one_in(8) && !scenario.calm;
    let length = 1 + choice.below((if long { 15 } else { 1 } * unit) as usize) as i64;
    let mut writes = Vec::new();
    for _ in 0..1 + choice.below(3) {
        let at = choice.below(length as usize) as i64;
        writes.push((at, TableId(1 + choice.below(3) as u32), if choice.one_in(4) { -1 } else { 1 }));
    }
    writes.sort_unstable();
    let within = choice.one_in(10) && !scenario.calm;
    let refresh = choice.pick(&scenario.tables).filter(|_| within);
    let refresh = refresh.map(|t| (choice.below(length as usize) as i64, t.id));
    Event::Transaction { writes, refresh, length, commits: !choice.one_in(6) }
}

fn disturbance(choice: &mut Choice, scenario: &Scenario) -> Event {
    let unit = scenario.unit;
    let daemon = choice.below(scenario.daemons);
    let table = choice.pick(&scenario.tables).map_or(TableId(10), |t| t.id);
    match choice.below(16) {
        0 | 1 => Event::Kill {
            daemon,
            linger: [0, unit / 2, 3 * unit][choice.below(3)],
            down: 1 + choice.below(4 * unit as usize) as i64,
        },
        2 => Event::Restart,
        3 => Event::Jump { daemon, by: [-500, -20, -2, 2, 20, 500][choice.below(6)] * unit },
        4 | 5 => Event::Stall { daemon, length: [3, 12, 30][choice.below(3)] * unit },
        6..=8 => Event::Raise { table, length: [2, 6, 20][choice.below(3)] * unit },
        9 => Event::Suspend(table),
        10 => Event::Resume(table),
        11 => Event::Refresh(table),
        12 => Event::Reschedule(table, period(choice, unit)),
        13 => Event::Redefine(table),
        14 => Event::Drop(table),
        _ => Event::Truncate(TableId(1 + choice.below(3) as u32)),
    }
}

impl Scenario {
    /// Draws a scenario from a seed.
    pub(crate) fn of(seed: u64) -> Scenario {
        let mut choice = Choice::seeded(seed);
        let unit = [1_000, 1_000, 60_000, 3_600_000][choice.below(4)];
        let calm = choice.below(3) == 0;
        let daemons = if !calm && choice.one_in(3) { 2 } else { 1 };
        let span = |n: usize| Duration::from_millis(n as u64 * unit as u64);
        let options = Options {
            min_period: Duration::from_secs(1),
            default_period: span(1 + choice.below(4)),
            poll_period: span(20),
            max_concurrent: 1 + choice.below(3),
            max_consecutive_errors: [0, 2, 4][choice.below(3)],
            backoff_first: span(1),
            backoff_cap: span(6),
            jitter: [0.0, 0.1, 0.3][choice.below(3)],
        };
        let faults = if calm || choice.one_in(2) { (0, 0) } else { (60, 100) };
        // In a busy run there are so many writes, and refreshes take so long, that some stream table always
        // waits.
        let busy = calm && choice.one_in(5);
        let mut scenario = Scenario {
            seed,
            start: Time(STARTS[choice.below(3)]),
            unit,
            length: unit * (15 + choice.below(15) as i64),
            tables: tables(&mut choice, unit, calm),
            options,
            reload: unit * (1 + choice.below(3) as i64),
            lock_timeout: unit / [2, 10][choice.below(2)],
            daemons,
            lease: (daemons > 1 && choice.one_in(2)).then_some(2 * unit),
            faults,
            calm,
            events: Vec::new(),
        };
        let mut events = Vec::new();
        if busy {
            scenario.load();
        }
        for _ in 0..if busy { 40 } else { 4 + choice.below(14) } {
            let at = choice.below(scenario.length as usize) as i64;
            events.push((at, transaction(&mut choice, &scenario)));
        }
        for _ in 0..if calm { 0 } else { choice.below(6) } {
            let at = choice.below(scenario.length as usize) as i64;
            events.push((at, disturbance(&mut choice, &scenario)));
        }
        events.sort_by_key(|(at, _)| *at);
        scenario.events = events;
        scenario
    }

    /// Makes all stream tables due at all times, and lets only one refresh run at a time.
    fn load(&mut self) {
        self.options.max_concurrent = 1;
        for (i, t) in self.tables.iter_mut().enumerate() {
            if i < 4 {
                t.definition.sources = vec![TableId(1 + i as u32 % 3)];
            }
            t.definition.schedule = Some(Schedule::Every(Duration::from_millis(self.unit as u64)));
            t.costs = [self.unit as f64, 2.0 * self.unit as f64, 1.0];
        }
    }

    /// Returns smaller scenarios. Each of them leaves out one part of this scenario.
    pub(crate) fn smaller(&self) -> Vec<Scenario> {
        let mut all = Vec::new();
        for i in (0..self.tables.len()).rev() {
            let id = self.tables[i].id;
            if self.tables.iter().all(|t| !t.definition.sources.contains(&id)) {
                let mut less = self.clone();
                less.tables.remove(i);
                all.push(less);
            }
        }
        let half = self.events.len() / 2;
        for range in [0..half, half..self.events.len()] {
            let mut less = self.clone();
            less.events.drain(range);
            all.push(less);
        }
        for i in 0..self.events.len() {
            let mut less = self.clone();
            less.events.remove(i);
            all.push(less);
            if let Event::Transaction { writes, refresh, .. } = &self.events[i].1 {
                for k in 0..writes.len() + usize::from(refresh.is_some()) {
                    let mut less = self.clone();
                    let Event::Transaction { writes, refresh, .. } = &mut less.events[i].1 else { continue };
                    if k < writes.len() {
                        writes.remove(k);
                    } else {
                        *refresh = None;
                    }
                    all.push(less);
                }
            }
        }
        for part in 0..3 {
            let mut less = self.clone();
            match part {
                0 if self.faults != (0, 0) => less.faults = (0, 0),
                1 if self.daemons > 1 && self.lease.is_none() => less.daemons = 1,
                2 if self.length > self.unit => less.length -= self.length / 3,
                _ => continue,
            }
            all.push(less);
        }
        all
    }
}
