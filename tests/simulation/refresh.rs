//! A refresh: the core's own machine, whose statements the model database answers by their kind. The SQL
//! texts are for PostgreSQL, and tests with PostgreSQL cover them. This module does the work that the texts
//! describe: locks, snapshot, counts, windows and frontier.

use crate::database::{Bag, Change, Database, OID, SYSTEM, State, add, defined};
use crate::mutants::Mutant;
use crate::plan::{delta, low, plan};
use crate::scenario::{Scenario, Table, thrown};
use std::collections::BTreeMap;
use trickle_core::ServerError;
use trickle_core::catalog::TableId;
use trickle_core::frontier::{ALL_COMMANDS, Command, Frontier, Snapshot, Xid, window};
use trickle_core::refresh::{Answer, Kind, Machine, Outcome, Statement, Value};

/// The result of sending a batch.
pub(crate) enum Sent {
    /// The outcome arrives after this number of milliseconds.
    After(i64),
    /// The batch waits for a lock of another session.
    Waits,
}

/// A refresh of the simulation.
#[derive(Debug)]
pub(crate) struct Refresh {
    pub(crate) id: u64,
    pub(crate) machine: Machine,
    pub(crate) members: Vec<TableId>,
    /// The holder of the refresh's locks: the refresh itself, or the user's transaction in which the refresh
    /// runs.
    pub(crate) holder: u64,
    pub(crate) within: bool,
    pub(crate) fence: Option<u64>,
    pub(crate) started: i64,
    batch: Vec<Statement>,
    at: usize,
    pub(crate) outcome: Outcome,
    pub(crate) xid: Option<Xid>,
    pub(crate) snapshot: Option<Snapshot>,
    /// Milliseconds that the batch has taken so far.
    taken: f64,
    /// The stream tables that the last batch committed.
    pub(crate) committed: Vec<TableId>,
    /// The time since which the refresh waits for a lock.
    pub(crate) waits: Option<i64>,
    /// The milliseconds that the chosen strategies took, and the milliseconds that the best strategies would
    /// have taken.
    pub(crate) spent: (f64, f64),
}

fn error(sqlstate: &str) -> ServerError {
    ServerError::new(sqlstate, "simulated")
}

impl Refresh {
    pub(crate) fn new(
        db: &Database,
        scenario: &Scenario,
        (id, members, started): (u64, Vec<TableId>, i64),
        within: Option<(u64, Option<Xid>)>,
        fence: Option<u64>,
    ) -> Refresh {
        Refresh {
            id,
            machine: Machine::new(plan(db, &members, scenario, within.is_some())),
            members,
            holder: within.map_or(id, |(holder, _)| holder),
            within: within.is_some(),
            fence,
            started,
            batch: Vec::new(),
            at: 0,
            outcome: Outcome::start(),
            xid: within.and_then(|(_, xid)| xid),
            snapshot: None,
            taken: 0.0,
            committed: Vec::new(),
            waits: None,
            spent: (0.0, 0.0),
        }
    }

    /// Makes `batch` the batch that runs next.
    pub(crate) fn load(&mut self, batch: Vec<Statement>) {
        (self.batch, self.at, self.taken) = (batch, 0, 0.0);
        self.outcome = Outcome::default();
        self.committed.clear();
    }

    /// Releases the locks of the transaction.
    pub(crate) fn release(&mut self, db: &mut Database) {
        if !self.within {
            db.locks.retain(|_, holder| *holder != self.holder);
        }
        self.waits = None;
    }

    /// Rolls the transaction back, as the server does when its client is gone.
    pub(crate) fn roll_back(&mut self, db: &mut Database) {
        if let Some(xid) = self.xid.take_if(|_| !self.within) {
            db.abort(xid);
        }
        self.release(db);
    }

    /// Runs the batch up to its end, an error, or a lock of another session.
    pub(crate) fn send(&mut self, db: &mut Database, scenario: &Scenario, now: i64) -> Sent {
        while let Some(statement) = self.batch.get(self.at).cloned() {
            let luck = |what| thrown(scenario.seed, &[self.id, statement.step as u64, what]) % 10_000;
            let breaks = !self.within && statement.kind != Kind::Rollback && luck(1) < scenario.faults.0;
            if breaks && luck(2) < 5_000 {
                self.roll_back(db);
                self.outcome.error = Some(error("08006"));
                break;
            }
            let conflict =
                matches!(statement.kind, Kind::Program | Kind::Decide) && luck(3) < scenario.faults.1;
            let done = if conflict { Err(error("40001")) } else { self.run(db, scenario, &statement, now) };
            match done {
                Ok(None) => {
                    self.waits.get_or_insert(now);
                    return Sent::Waits;
                }
                Ok(Some(_)) if breaks => {
                    // The statement took effect, but its client never receives the result.
                    self.roll_back(db);
                    self.outcome.error = Some(error("08006"));
                    break;
                }
                Ok(Some(answer)) => self.outcome.answers.push(answer),
                Err(e) => {
                    self.outcome.error = Some(e);
                    break;
                }
            }
            self.at += 1;
        }
        self.waits = None;
        Sent::After((self.taken as i64).max(1))
    }

    /// Ends the wait for a lock with an error.
    pub(crate) fn time_out(&mut self) {
        self.waits = None;
        self.outcome.error = Some(error("55P03"));
    }

    /// Runs one statement. Returns `None` if the statement has to wait.
    fn run(
        &mut self,
        db: &mut Database,
        scenario: &Scenario,
        s: &Statement,
        now: i64,
    ) -> Result<Option<Answer>, ServerError> {
        let mut answer = Answer { affected: 1, micros: 10, ..Answer::default() };
        match s.kind {
            Kind::Begin if db.is(Mutant::NoMutualExclusion) => self.snapshot = Some(db.snapshot(None)),
            Kind::Lock if !db.is(Mutant::NoMutualExclusion) => {
                let mut wanted = self.members.clone();
                wanted.sort_unstable();
                for id in wanted {
                    if *db.locks.entry(id).or_insert(self.holder) != self.holder {
                        return Ok(None);
                    }
                }
            }
            Kind::Decide => {
                answer.rows = self.decide(db, scenario);
                self.taken += scenario.unit as f64 / 200.0;
            }
            Kind::Program => answer.rows = self.apply(db, scenario, s, now, &mut answer.micros)?,
            Kind::Command => {
                let next = self.xid.and_then(|x| db.commands.get(&x)).copied().unwrap_or(0);
                answer.rows = vec![vec![Value::Int8(i64::from(next) - 1)]];
            }
            Kind::Frontier => {
                if self.fence.is_some_and(|f| !db.lease.admits(f)) && !db.is(Mutant::NoFence) {
                    return Err(error("55P03"));
                }
                self.store(db, s)?;
                self.taken += scenario.unit as f64 / 200.0;
            }
            Kind::Commit => {
                if let Some(xid) = self.xid.take() {
                    self.committed = db.commit(xid, now);
                }
                self.release(db);
            }
            Kind::Rollback => self.roll_back(db),
            _ => {}
        }
        Ok(Some(answer))
    }

    /// Returns the rows of the decision query. The transaction gets its id before the snapshot, or after it.
    fn decide(&mut self, db: &mut Database, scenario: &Scenario) -> Vec<Vec<Value>> {
        let chance = thrown(scenario.seed, &[self.id, self.started as u64, 4]);
        if chance.is_multiple_of(2) && self.xid.is_none() {
            self.xid = Some(db.assign(chance / 2 % 3));
        }
        if !db.is(Mutant::NoMutualExclusion) || self.snapshot.is_none() {
            self.snapshot = Some(db.snapshot(self.xid));
        }
        let own = *self.xid.get_or_insert_with(|| db.assign(chance / 2 % 3));
        let Some(snapshot) = &self.snapshot else { return Vec::new() };
        let shown = |xid: Xid| db.shows(snapshot, Some(own), xid);
        let mut rows = Vec::new();
        for member in &self.machine.plan().members {
            let id = TableId(member.id as u32);
            let Some(entry) = db.catalog.get(&id) else { continue };
            let state = entry.seen_by(Some(own));
            let held = member.definition.as_deref() == Some(&*entry.version.to_string());
            let stored = db.contents(id, |xid, _| shown(xid)).len();
            let reinit = match &state.frontier {
                None => Value::text("never filled"),
                Some(_) if state.must_rebuild => Value::text("redefined"),
                Some(_) => Value::Null,
            };
            // In every other run a stream table with readers is watched. A full refresh then writes only the
            // differences, and the readers get these as changes. In the other runs the readers are
            // recomputed.
            let is_read = || db.catalog.values().any(|e| e.definition.sources.contains(&id));
            let watched = state.frontier.is_some() && scenario.seed.is_multiple_of(2) && is_read();
            for s in &entry.definition.sources {
                let counted = state.frontier.as_ref().map(|(_, f)| db.pending(*s, f, shown));
                let (pending, cut) = counted.unwrap_or((0, false));
                rows.push(vec![
                    Value::text(snapshot.to_string()),
                    Value::text(own.to_string()),
                    Value::Int8(SYSTEM),
                    Value::Int8(i64::from(OID)),
                    Value::Int8(member.id),
                    state.frontier.as_ref().map_or(Value::Null, |(text, _)| Value::text(text)),
                    reinit.clone(),
                    Value::Int8(stored as i64),
                    Value::Bool(watched),
                    Value::Bool(held),
                    Value::Int8(i64::from(s.0)),
                    Value::Bool(true),
                    Value::Int8(db.tables.get(s).map_or(0, Vec::len) as i64),
                    Value::Int8(pending),
                    if cut { Value::Bool(false) } else { Value::Null },
                    Value::Null,
                    Value::text("now"),
                    Value::text("then"),
                    state.model.as_ref().map_or(Value::Null, Value::text),
                ]);
            }
        }
        rows
    }

    /// Does the task of a program: computes a delta from buffers and sources, or the whole result from the
    /// sources.
    #[expect(
        clippy::too_many_lines,
        reason = "the steps share two snapshots, one of which a mutant replaces"
    )]
    fn apply(
        &mut self,
        db: &mut Database,
        scenario: &Scenario,
        s: &Statement,
        now: i64,
        micros: &mut u64,
    ) -> Result<Vec<Vec<Value>>, ServerError> {
        let mut words = s.text.split(' ');
        let strategy = words.next().unwrap_or_default().to_owned();
        let mut ids = words.filter_map(|w| w.parse().ok().map(TableId));
        let (Some(id), Some(xid), Some(s1)) = (ids.next(), self.xid, self.snapshot.clone()) else {
            return Err(error("XX000"));
        };
        let changed: Vec<TableId> = ids.collect();
        let Some(sources) = db.catalog.get(&id).map(|e| e.definition.sources.clone()) else {
            return Err(error("42P01"));
        };
        let low = low(&s.params);
        let later = db.snapshot(Some(xid));
        let read = if db.is(Mutant::ReadLater) { &later } else { &s1 };
        let windowed = if db.is(Mutant::WindowLater) { &later } else { &s1 };
        let high = Frontier::new(SYSTEM, OID, windowed, Some((xid, ALL_COMMANDS)));
        let seen =
            |c: &Change| db.shows(windowed, Some(xid), c.xid) && window(&low, &high).contains(c.xid, c.cmin);
        let changes = |s: &TableId| db.buffers.get(s).into_iter().flatten().filter(|c| seen(c));
        let mut windows: BTreeMap<TableId, Bag> = BTreeMap::new();
        let mut rows = 0;
        for source in changed.iter().filter(|_| strategy == "delta") {
            let bag = windows.entry(*source).or_default();
            for c in changes(source).filter(|c| c.w != 0) {
                add(bag, c.row, c.w);
                rows += 1;
            }
        }
        let table = scenario.tables.iter().find(|t| t.id == id);
        // A delta cannot be computed over a source that was emptied or replaced.
        let has_choice = !sources.iter().any(|s| changes(s).any(|c| c.w == 0));
        *micros = self.take(scenario, table, &strategy, (rows, has_choice), s.step);
        if db.raising.get(&id).is_some_and(|until| now < *until) {
            return Err(error("P0001"));
        }
        let throws = || thrown(scenario.seed, &[self.id, 5]).is_multiple_of(40);
        if scenario.faults.0 > 0 && strategy == "delta" && throws() {
            return Err(error("22012"));
        }
        let shown = |x: Xid, _: Command| db.shows(read, Some(xid), x);
        let state = |s: &TableId| db.contents(*s, shown);
        let change = if strategy == "delta" {
            delta(id, &sources, &windows, state)
        } else {
            let mut all = defined(id, &sources.iter().map(state).collect::<Vec<_>>());
            for (row, w) in db.contents(id, |x, _| db.shows(&s1, Some(xid), x)) {
                add(&mut all, row, -w);
            }
            all
        };
        let cmin = db.command(xid);
        for (row, w) in &change {
            let c = Change { xid, cmin, row: *row, w: *w };
            db.put(id, c);
            if strategy != "full" {
                db.capture(id, c);
            }
        }
        if strategy == "full" && !db.is(Mutant::ReplacedUntold) {
            db.capture(id, Change { xid, cmin, row: 0, w: 0 });
        }
        let count = |f: fn(&i64) -> bool| Value::Int8(change.values().filter(|w| f(w)).count() as i64);
        Ok(vec![vec![count(|w| *w > 0), Value::Int8(0), count(|w| *w < 0)]])
    }

    /// Lets the true time of a strategy pass. Returns the time that the machine learns, in microseconds. One
    /// unit of the run counts as one second.
    fn take(
        &mut self,
        scenario: &Scenario,
        table: Option<&Table>,
        way: &str,
        (rows, has_choice): (u64, bool),
        step: usize,
    ) -> u64 {
        let costs = table.map_or([1.0; 3], |t| t.costs);
        let noise = 0.9 + (thrown(scenario.seed, &[self.id, step as u64, 6]) % 100) as f64 / 500.0;
        let [delta, full] = [costs[0] + costs[2] * rows as f64, costs[1]];
        let ms = noise * if way == "delta" { delta } else { full };
        self.taken += ms;
        self.spent.0 += ms;
        self.spent.1 += match (has_choice, way) {
            (false, _) => ms,
            (true, "delta") => noise * delta.min(full),
            (true, _) => ms.min(costs[0]),
        };
        (ms * 1e6 / scenario.unit as f64) as u64
    }

    /// Stores frontier and cost models, unless another transaction wrote the catalog's rows since the
    /// snapshot.
    fn store(&self, db: &mut Database, s: &Statement) -> Result<(), ServerError> {
        let text = |i: usize| s.params.get(i).and_then(Value::as_text).unwrap_or_default();
        let stored = Frontier::from_json(text(0)).map_err(|_| error("22P02"))?;
        let models: Vec<serde_json::Value> = serde_json::from_str(text(1)).map_err(|_| error("22P02"))?;
        let (Some(xid), Some(snapshot)) = (self.xid, &self.snapshot) else { return Err(error("XX000")) };
        let stored = match db.mutant {
            Some(Mutant::FrontierIsXmax) => {
                Frontier::new(SYSTEM, OID, &Snapshot::new(stored.snapshot().xmax(), []), None)
            }
            Some(Mutant::OwnForgotten) => Frontier::new(SYSTEM, OID, snapshot, None),
            Some(Mutant::OwnCountedWhole) => Frontier::new(SYSTEM, OID, snapshot, Some((xid, ALL_COMMANDS))),
            _ => stored,
        };
        let json = stored.to_json().map_err(|_| error("XX000"))?;
        let checks = !self.within && !db.is(Mutant::NoMutualExclusion);
        for m in models {
            let id = TableId(m["id"].as_u64().unwrap_or(0) as u32);
            let Some(entry) = db.catalog.get_mut(&id) else { return Err(error("40001")) };
            if checks && entry.writer != xid && !snapshot.sees(entry.writer) {
                return Err(error("40001"));
            }
            let old = entry.seen_by(Some(xid));
            let state = State {
                frontier: Some((json.clone(), stored.clone())),
                model: Some(m["model"].to_string()),
                errors: 0,
                suspended: old.suspended && old.errors == 0,
                must_rebuild: false,
            };
            entry.pending = Some((xid, state));
        }
        Ok(())
    }
}
