//! The scheduler, the cost model and the frontier under a simulated clock, over a model of a database.
//! Graphs, durations, failures, restarts and clocks are random. The laws of [`laws`] are checked at each
//! step.
//!
//! Only this test catches bugs that need a *sequence* of events. One example is a table that is never free
//! when its reader wants to be refreshed. Others are a change that is dropped between two readers, and a
//! refresher that acts after it lost the lease.
//!
//! The seed determines a run. A run that breaks a law is made smaller, and is printed with its trace.
//! `TRICKLE_SEED=n` runs one seed alone, and `TRICKLE_SIMULATE=n` runs n seeds. The simulation needs only
//! public items of the core, so it is not part of the core's `testing`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

mod daemon;
mod database;
mod laws;
mod lease;
mod looks;
mod mutants;
mod plan;
mod refresh;
mod run;
mod scenario;
#[path = "../seeds/mod.rs"]
mod seeds;
mod story;
mod users;
mod work;

use laws::{Law, Violation};
use mutants::{MUTANTS, Mutant};
use scenario::Scenario;
use seeds::Seeds;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The random runs of this test.
const RUNS: Seeds = Seeds { setting: "TRICKLE_SIMULATE", short: 2_000 };

/// Leaves out parts of a scenario as long as the run still breaks the same law.
fn shrink(mut scenario: Scenario, mutant: Option<Mutant>, law: Law) -> Scenario {
    let fails = |s: &Scenario| run::run(s, mutant, false).broken.is_some_and(|v| v.law == law);
    let mut tries = 600;
    'smaller: loop {
        for less in scenario.smaller() {
            tries -= 1;
            if tries == 0 {
                return scenario;
            }
            if fails(&less) {
                scenario = less;
                continue 'smaller;
            }
        }
        return scenario;
    }
}

/// Describes the smallest run that was found to break the law, with its trace.
fn report(seed: u64, mutant: Option<Mutant>, violation: &Violation) -> String {
    let small = shrink(Scenario::of(seed), mutant, violation.law);
    let told = run::run(&small, mutant, true);
    let Some(broken) = told.broken else { return format!("seed {seed}: {violation}") };
    format!("{broken}\n\n{small}\n{}\nTRICKLE_SEED={seed} runs it", told.trace.join("\n"))
}

#[test]
fn all_laws_hold_in_every_run() {
    let (seeds, refreshes) = (RUNS.one_in(1), AtomicU64::new(0));
    let failure: Mutex<Option<(u64, Violation)>> = Mutex::new(None);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (seeds, failure, refreshes) = (&seeds, &failure, &refreshes);
            scope.spawn(move || {
                for seed in seeds.iter().copied().skip(worker).step_by(workers) {
                    if failure.lock().unwrap().is_some() {
                        return;
                    }
                    let summary = run::run(&Scenario::of(seed), None, false);
                    refreshes.fetch_add(summary.refreshes, Ordering::Relaxed);
                    if let Some(v) = summary.broken {
                        failure.lock().unwrap().get_or_insert((seed, v));
                    }
                }
            });
        }
    });
    println!("{} refreshes in the runs of {} seeds", refreshes.into_inner(), seeds.len());
    if let Some((seed, violation)) = failure.into_inner().unwrap() {
        panic!("{}", report(seed, None, &violation));
    }
}

/// Two numbers of runs. Within the first number of runs, some law must notice a mutant. The second number of
/// runs is always used, to find all laws that notice the mutant.
const ENOUGH: (u64, u64) = (1_500, 100);

/// Laws that no mutant can break, since the simulation runs the core's own machine.
const WITHOUT_MUTANT: &[Law] = &[Law::MachineUnderstands];

#[test]
fn every_mutant_is_noticed_and_every_law_notices_one() {
    let mut by_law: BTreeMap<Law, BTreeSet<String>> = BTreeMap::new();
    let mut missed = Vec::new();
    for mutant in MUTANTS {
        let mut laws = BTreeSet::new();
        for seed in 0..ENOUGH.0 {
            if seed >= ENOUGH.1 && !laws.is_empty() {
                break;
            }
            laws.extend(run::run(&Scenario::of(seed), Some(*mutant), false).broken.map(|v| v.law));
        }
        println!("{mutant:?}: {laws:?}");
        if laws.is_empty() {
            missed.push(mutant);
        }
        for law in laws {
            by_law.entry(law).or_default().insert(format!("{mutant:?}"));
        }
    }
    assert!(missed.is_empty(), "not noticed within {} runs: {missed:?}", ENOUGH.0);
    let idle = |law: &&Law| !by_law.contains_key(law) && !WITHOUT_MUTANT.contains(law);
    let idle: Vec<&Law> = Law::ALL.iter().filter(idle).collect();
    assert!(idle.is_empty(), "laws that notice no mutant: {idle:?}");
}

#[test]
fn a_run_is_its_seed() {
    for seed in 0..20 {
        let told = || run::run(&Scenario::of(seed), None, true).trace;
        assert_eq!(told(), told());
    }
}
