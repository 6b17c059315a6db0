//! Random samples of plans on real servers, drawn as in tests/laws.rs (ring 1).
//!
//! For each sample PostgreSQL judges three parts. First, a run of the query judges the evaluator and the
//! renderer. Second, the deltas of several variants judge the rules. The deltas read stored results, and
//! changes in which a row can occur several times. Third, a stream table judges the apply path: it is filled,
//! refreshed by delta in two windows, and then refreshed by difference.
//!
//! The same people wrote the rules and the evaluator. So only this ring finds errors that the rules and the
//! evaluator share.

mod buffers;
mod immediate;
mod run;
mod script;
#[path = "../seeds/mod.rs"]
pub(crate) mod seeds;
mod sources;

use crate::support::{Db, each_server};
use run::{Counts, run};
use script::{More, script};
use seeds::Seeds;
use sources::{Namespace, sum};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio_postgres::Client;
use trickle_core::catalog::{TableDef, TableId};
use trickle_core::eval::{Database, Row, ZSet};
use trickle_core::graph::Graph;
use trickle_core::rel::{Negate, Positive, Table, Union, Values};
use trickle_core::testing::{self, Choice, Limits, Sample, VARIANTS};

/// Number of connections at a time. Each connection runs one sample.
const WORKERS: u64 = 2;

/// Number of samples after which the dead rows of rolled back samples are removed.
const SWEEP: u64 = 50;

/// The first seed whose samples have five operators or more.
const DEEP: u64 = 1 << 32;

/// Returns the seeds of a run. A long run has deep samples. A short run has more samples on the oldest server
/// than on the others.
fn seeds(db: &Db, part: u64) -> Vec<u64> {
    let seeds = Seeds { setting: "TRICKLE_PG_RANDOM", short: if db.is_oldest() { 1_500 } else { 500 } };
    let deep = if seeds.is_long() { DEEP } else { 0 };
    seeds.one_in(part).into_iter().map(|seed| deep + seed).collect()
}

struct Case {
    seed: u64,
    sample: Sample,
    db: Database,
    more: More,
    variants: Vec<usize>,
}

fn drawn(space: &Namespace, seed: u64, limits: &Limits, variants: Vec<usize>) -> Case {
    let mut choice = Choice::seeded(seed);
    let sample = testing::sample(&mut choice, &space.tables, limits).expect("the generator keeps contracts");
    let db = testing::change(&mut choice, &space.tables, 4);
    let later = (0..2).map(|_| {
        let db = testing::change(&mut choice, &space.tables, 4);
        sum(&db.before, &db.delta)
    });
    let later = later.collect();
    let noise = noise(&mut choice, space, &db);
    Case { seed, sample, db, more: More { noise, later }, variants }
}

/// Makes rows that are inserted and deleted within the first window. Some of these rows are also rows of the
/// state before or after the window, and some are rows of neither.
fn noise(choice: &mut Choice, space: &Namespace, db: &Database) -> HashMap<TableId, Vec<Row>> {
    let strange = testing::change(choice, &space.tables, 2);
    let rows = |t: &TableDef| {
        let known =
            [&strange.before, &db.before, &db.delta].map(|m| m.get(&t.id).cloned().unwrap_or_default());
        known.iter().flat_map(ZSet::iter).map(|(row, _)| row.clone()).collect::<Vec<Row>>()
    };
    let mut found = HashMap::new();
    for t in &space.tables {
        let some: Vec<Row> = rows(t).into_iter().filter(|_| choice.one_in(3)).collect();
        found.insert(t.id, some);
    }
    found
}

/// Whether some expression or scalar subquery of the plan can raise an error.
fn risky(sample: &Sample) -> bool {
    let graph = &sample.graph;
    graph.reachable(sample.root).into_iter().any(|id| graph.rel(id).can_raise())
}

/// A connection with a schema of its own.
struct Worker {
    runtime: tokio::runtime::Runtime,
    session: trickle_client::Session,
    space: Namespace,
}

impl Worker {
    fn new(db: &Db, index: u64, tables: &[Arc<TableDef>]) -> Worker {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let space = Namespace::of(&format!("w{index}"), db.major(), tables);
        let session = runtime.block_on(async {
            let session = db.session().await;
            let settings = "SET jit = off; SET client_min_messages = error;";
            session.client().batch_execute(&format!("{settings}{}", space.create())).await.unwrap();
            session
        });
        Worker { runtime, session, space }
    }

    fn client(&self) -> &Client {
        self.session.client()
    }

    fn check(
        &self,
        sample: &Sample,
        db: &Database,
        more: &More,
        variants: &[usize],
    ) -> Result<Counts, String> {
        let Some(steps) = script(&self.space, sample, db, more, variants)? else {
            return Ok(Counts::default());
        };
        self.runtime.block_on(run(self.client(), &steps, risky(sample)))
    }

    fn sweep(&self) {
        self.runtime.block_on(self.client().batch_execute(&self.space.truncate())).unwrap();
    }

    /// Runs a case, and returns the counts. An error contains the smallest counterexample that was found.
    fn judge(&self, case: &Case) -> Result<Counts, String> {
        let Case { seed, sample, db, more, variants } = case;
        let first = match self.check(sample, db, more, variants) {
            Ok(counts) => return Ok(counts),
            Err(e) => e,
        };
        // The sample may fail even without the later windows and the noise. Then these parts are left out of
        // the counterexample.
        let alone = |v: &[usize]| self.check(sample, db, &More::default(), v).is_err();
        let (more, variants) = match () {
            () if alone(&[]) => (More::default(), Vec::new()),
            () if alone(variants) => (More::default(), variants.clone()),
            () => (more.clone(), variants.clone()),
        };
        let fails = |s: &Sample, d: &Database| self.check(s, d, &more, &variants).err();
        let (sample, db) = testing::shrink(sample.clone(), db.clone(), 1_000, |s, d| fails(s, d).is_some());
        let detail = fails(&sample, &db).unwrap_or(first);
        Err(format!("seed {seed}: {detail}\n{}", testing::reproduction(&sample, &db)))
    }
}

/// Returns the variants whose deltas are also run by themselves for a seed. Over all seeds, each variant is
/// run equally often. The first variant refreshes the stream table, so its delta is always run.
fn some(seed: u64) -> Vec<usize> {
    let first = usize::try_from(seed / 6).unwrap() % VARIANTS.len();
    vec![first, (first + 3) % VARIANTS.len()]
}

/// Returns the number of counterexamples after which a run stops. `TRICKLE_PG_FAILURES` sets the number, and
/// its default is one.
fn failures() -> usize {
    std::env::var("TRICKLE_PG_FAILURES").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Checks the cases of the given seeds on one server, and prints the counts.
fn check_seeds(
    db: &Db,
    tables: &[Arc<TableDef>],
    seeds: &[u64],
    limits: impl Fn(u64) -> Limits + Sync,
    all: bool,
) -> Counts {
    let total = Mutex::new((Counts::default(), Vec::<String>::new()));
    std::thread::scope(|scope| {
        for index in 0..WORKERS {
            let (total, limits) = (&total, &limits);
            scope.spawn(move || {
                let worker = Worker::new(db, index, tables);
                let mine = seeds.iter().skip(usize::try_from(index).unwrap()).step_by(WORKERS as usize);
                for (done, seed) in mine.enumerate() {
                    if total.lock().unwrap().1.len() >= failures() {
                        return;
                    }
                    let variants = if all { (0..VARIANTS.len()).collect() } else { some(*seed) };
                    let case = drawn(&worker.space, *seed, &limits(*seed), variants);
                    let judged = worker.judge(&case);
                    let mut total = total.lock().unwrap();
                    match judged {
                        Ok(counts) => total.0.add(&counts),
                        Err(e) => total.1.push(e),
                    }
                    drop(total);
                    if done as u64 % SWEEP == SWEEP - 1 {
                        worker.sweep();
                    }
                }
            });
        }
    });
    let (counts, failed) = total.into_inner().unwrap();
    println!("PostgreSQL {}: {counts}", db.major());
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    counts
}

fn usual(seed: u64) -> Limits {
    Limits {
        operators: if seed < DEEP { 1 + (seed % 6) as usize } else { 5 + (seed % 4) as usize },
        opaque: false,
        raising: seed.is_multiple_of(8),
        clock: false,
    }
}

#[test]
fn random_samples() {
    each_server(async |db| {
        let counts = check_seeds(db, &testing::tables(), &seeds(db, 1), usual, false);
        let raised = counts.only_server + counts.only_evaluator + counts.delta_raises;
        assert!(raised * 20 <= counts.cases.max(100), "too many samples raise on one side alone: {raised}");
    });
}

/// Checks samples over tables in which equal values are written differently.
#[test]
fn random_samples_written_differently() {
    each_server(async |db| {
        check_seeds(db, &testing::inexact_tables(), &seeds(db, 3), usual, false);
    });
}

/// Checks samples that failed in earlier runs, with every variant.
#[test]
fn samples_that_once_failed() {
    let seeds =
        [571, 600, 615, 704, 785, 866, 1098, 1620, 2084, 2301, 2645, 2666, 2721, 2736, 2785, 2925, 2950];
    let limits = |seed: u64| Limits {
        operators: 1 + (seed % 7) as usize,
        opaque: false,
        raising: false,
        clock: false,
    };
    each_server(async |db| {
        check_seeds(db, &testing::tables(), &seeds, limits, true);
    });
}

/// Checks samples that failed in earlier runs, over tables in which equal values are written differently.
#[test]
fn samples_written_differently_that_once_failed() {
    each_server(async |db| {
        check_seeds(db, &testing::inexact_tables(), &[681, 731, 1_323_606_550], usual, true);
    });
}

/// A part without rows is subtracted. The engine treats the part as positive, and as distinct however its
/// values are written. Operators over the part are rendered as if it were absent.
#[test]
fn an_empty_part_may_be_subtracted() {
    each_server(async |db| {
        let (mut graph, space) = (Graph::new(), Namespace::new("w0", db.major()));
        let table = graph.add(Table::new(space.tables[0].clone())).unwrap();
        let empty = Values::empty(graph.schema(table).clone());
        let empty = graph.add(empty).unwrap();
        let minus = graph.add(Negate::new(empty)).unwrap();
        let both = graph.add(Union::new([table, minus])).unwrap();
        let root = graph.add(Positive::new(both)).unwrap();
        let data = testing::change(&mut Choice::seeded(1), &space.tables, 4);
        let all: Vec<usize> = (0..VARIANTS.len()).collect();
        let check = || {
            let worker = Worker::new(db, 0, &testing::tables());
            for root in [both, root] {
                let sample = Sample { graph: graph.clone(), root };
                worker.check(&sample, &data, &More::default(), &all).unwrap();
            }
        };
        std::thread::scope(|scope| scope.spawn(check).join().unwrap());
    });
}

/// Checks samples that are refreshed from change buffers with frontiers, while transactions of writers are
/// open.
#[test]
fn random_samples_from_buffers() {
    each_server(async |db| {
        let seeds = Seeds { setting: "TRICKLE_PG_BUFFERED", short: 20 };
        let counts = buffers::check(db, &seeds.one_in(1)).await;
        println!("PostgreSQL {}, from buffers: {counts}", db.major());
    });
}

/// Checks samples as IMMEDIATE stream tables.
#[test]
fn random_samples_kept_by_triggers() {
    each_server(async |db| {
        let seeds = Seeds { setting: "TRICKLE_PG_IMMEDIATE", short: if db.is_oldest() { 80 } else { 40 } };
        let counts = immediate::check(db, &seeds.one_in(1)).await;
        println!("PostgreSQL {}, kept by triggers: {counts}", db.major());
    });
}
