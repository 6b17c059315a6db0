//! Ring 1: the delta law and its companions over random plans, states and changes.
//!
//! What each test alone can catch: `random_*` a rule that is wrong for some nesting; `tiny_*` a rule that is wrong for
//! a rare combination of NULLs and duplicates; `coverage` a generator that no longer reaches some combination;
//! `mutants` laws that no longer notice.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use trickle_core::delta::{Keep, Rules};
use trickle_core::graph::{Format, Graph, NodeId};
use trickle_core::rel::{Keys, Rel, Union, Version};
use trickle_core::testing::{
    self, Checker, Choice, Coverage, Limits, MUTANTS, Mutant, Outcome, Sample, Variant,
};

/// How many random triples a run draws: `TRICKLE_LAWS`, else 200,000.
fn triples() -> u64 {
    std::env::var("TRICKLE_LAWS").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000)
}

/// Runs `check` for the seeds `0..n` on all cores; the first failure, if any.
fn for_seeds(n: u64, check: impl Fn(u64) -> Result<(), String> + Sync) {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let failure: Mutex<Option<(u64, String)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (check, failure) = (&check, &failure);
            scope.spawn(move || {
                for seed in (worker..n).step_by(workers as usize) {
                    if failure.lock().unwrap().is_some() {
                        return;
                    }
                    if let Err(e) = check(seed) {
                        failure.lock().unwrap().get_or_insert((seed, e));
                        return;
                    }
                }
            });
        }
    });
    if let Some((seed, e)) = failure.into_inner().unwrap() {
        panic!("seed {seed}: {e}");
    }
}

/// Some seeds draw over tables in which equal values are written differently.
fn drawn(seed: u64, limits: &Limits) -> (Sample, trickle_core::eval::Database) {
    let mut choice = Choice::seeded(seed);
    let tables = if seed / 36 % 3 == 2 { testing::inexact_tables() } else { testing::tables() };
    let sample = testing::sample(&mut choice, &tables, limits).expect("the generator keeps contracts");
    let db = testing::change(&mut choice, &tables, 4);
    (sample, db)
}

/// The smallest counterexample found, as SQL where the plan can be written as such.
fn report(
    seed: u64,
    limits: &Limits,
    fails: impl Fn(&Sample, &trickle_core::eval::Database) -> Option<String>,
) -> String {
    let (sample, db) = drawn(seed, limits);
    let (sample, db) = testing::shrink(sample, db, 2_000, |s, d| fails(s, d).is_some());
    let detail = fails(&sample, &db).unwrap_or_default();
    format!("{detail}\n{}", testing::reproduction(&sample, &db))
}

#[test]
fn random_plans_satisfy_the_delta_law() {
    let counts = Mutex::new(BTreeMap::<&str, u64>::new());
    for_seeds(triples(), |seed| {
        let limits =
            Limits { operators: 1 + (seed % 6) as usize, opaque: true, raising: seed % 8 == 0, clock: true };
        let (sample, db) = drawn(seed, &limits);
        let variant = &testing::VARIANTS[(seed / 6) as usize % testing::VARIANTS.len()];
        let outcome = testing::check_delta(&sample, &db, variant);
        let kind = match &outcome {
            Ok(Outcome::Held { changed: true }) => "held, result changed",
            Ok(Outcome::Held { changed: false }) => "held, result unchanged",
            Ok(Outcome::QueryRaised) => "query raised",
            Ok(Outcome::DeltaRaised) if limits.raising => "delta raised, recomputed",
            Ok(Outcome::DeltaRaised) => {
                return Err(report(seed, &limits, |s, d| match testing::check_delta(s, d, variant) {
                    Ok(Outcome::DeltaRaised) => {
                        Some("the delta raised though nothing in the query can".into())
                    }
                    _ => None,
                }));
            }
            Err(_) => {
                return Err(report(seed, &limits, |s, d| {
                    testing::check_delta(s, d, variant).err().map(|v| v.to_string())
                }));
            }
        };
        *counts.lock().unwrap().entry(kind).or_default() += 1;
        Ok(())
    });
    let counts = counts.into_inner().unwrap();
    println!("{counts:#?}");
    assert!(
        counts.get("held, result changed").copied().unwrap_or(0) > triples() / 4,
        "too few triples say something"
    );
}

#[test]
fn random_plans_have_the_properties_they_claim() {
    for_seeds(triples() / 10, |seed| {
        let limits = Limits { operators: 1 + (seed % 6) as usize, opaque: true, raising: false, clock: true };
        let (sample, db) = drawn(seed, &limits);
        let check = |s: &Sample, d: &trickle_core::eval::Database| {
            let held = testing::check_properties(&s.graph, s.root, d);
            held.and_then(|()| testing::check_shown(s, d)).err().map(|v| v.to_string())
        };
        if check(&sample, &db).is_some() {
            return Err(report(seed, &limits, check));
        }
        let variant = &testing::VARIANTS[(seed % 5) as usize];
        let (graph, delta) = testing::delta_plan(&sample, None, variant).map_err(|e| e.to_string())?;
        testing::check_properties(&graph, delta, &db).map_err(|v| v.to_string())
    });
}

#[test]
fn rewrites_are_identities() {
    for_seeds(triples() / 10, |seed| {
        let limits =
            Limits { operators: 1 + (seed % 6) as usize, opaque: true, raising: seed % 8 == 0, clock: true };
        let (sample, db) = drawn(seed, &limits);
        let check = |s: &Sample, d: &trickle_core::eval::Database| {
            testing::check_rewrites(s, d).err().map(|v| v.to_string())
        };
        if check(&sample, &db).is_some() {
            return Err(report(seed, &limits, check));
        }
        Ok(())
    });
}

#[test]
fn deltas_read_current_states_only() {
    for_seeds(triples() / 20, |seed| {
        let (sample, _) = drawn(seed, &Limits::default());
        let (graph, delta) =
            testing::delta_plan(&sample, None, &testing::VARIANTS[0]).map_err(|e| e.to_string())?;
        let old = graph.reachable(delta).into_iter().find(|n| graph.node(*n).op().name() == "TableBefore");
        match old {
            None => Ok(()),
            Some(_) => Err(format!(
                "the delta reads a previous table state:\n{}",
                trickle_core::graph::explain(&graph, delta, Format::Text)
            )),
        }
    });
}

/// A rendering may give more keys than `Keys` denotes; its readers restrict both sides of a difference to them, so keys
/// of unchanged rows change nothing.
#[test]
fn more_keys_than_needed_change_nothing() {
    let more =
        |rules, keep| Mutant { name: "the keys of all current rows too", rules, keep, apply: more_keys };
    let more = [
        more(Rules::Algebraic, Keep::Nested),
        more(Rules::Algebraic, Keep::Result),
        more(Rules::Class, Keep::Nested),
        more(Rules::Class, Keep::Result),
    ];
    for_seeds(triples() / 10, |seed| {
        let mutant = &more[(seed / 6) as usize % more.len()];
        let variant = Variant {
            rules: mutant.rules,
            keep: mutant.keep,
            optimize: seed % 4 < 2,
            trust_foreign_keys: false,
            mutant: Some(mutant),
        };
        let limits =
            Limits { operators: 1 + (seed % 6) as usize, opaque: false, raising: false, clock: true };
        let (sample, db) = drawn(seed, &limits);
        let check = |s: &Sample, d: &trickle_core::eval::Database| {
            testing::check_delta(s, d, &variant).err().map(|v| v.to_string())
        };
        if check(&sample, &db).is_some() {
            return Err(report(seed, &limits, check));
        }
        Ok(())
    });
}

/// Adds to every `keys(ΔR)` the keys of R′, and of each part of ΔR for itself.
fn more_keys(graph: &mut Graph, root: NodeId) -> trickle_core::Result<NodeId> {
    graph.rebuild(root, |g, _, rel| {
        let Rel::Keys(keys) = &rel else { return g.add(rel) };
        let mut parts = vec![g.add(rel.clone())?];
        for part in parts_of(g, keys.input()) {
            parts.push(g.add(Keys::new(part, keys.cols().to_vec()))?);
        }
        let current = g.rebuild(keys.input(), |g, _, rel| match &rel {
            Rel::Table(t) if t.version() == Version::Delta => g.add(t.at(Version::After)),
            _ => g.add(rel),
        })?;
        // What takes the past from the present is no state where the change is everything.
        let taken = |n: &NodeId| matches!(g.rel(*n), Rel::Negate(_));
        if !g.reachable(keys.input()).iter().any(taken) {
            parts.push(g.add(Keys::new(current, keys.cols().to_vec()))?);
        }
        let cols: Vec<usize> = (0..keys.cols().len()).collect();
        let all = g.add(Union::new(parts))?;
        g.add(Keys::new(all, cols))
    })
}

/// What a node adds up or takes away, as it is rendered where nobody merges it.
fn parts_of(graph: &Graph, node: NodeId) -> Vec<NodeId> {
    match graph.rel(node) {
        Rel::Union(_) | Rel::Negate(_) | Rel::Consolidate(_) => {
            graph.inputs(node).iter().flat_map(|i| parts_of(graph, *i)).collect()
        }
        _ => vec![node],
    }
}

/// Every pair of states of up to `rows` rows over `{NULL, 0, 1}`, for every small plan.
#[test]
fn tiny_domains_exhaustively() {
    let plans = testing::small_plans().expect("small plans are well formed");
    let checked = AtomicU64::new(0);
    for_seeds(plans.len() as u64, |i| {
        let (name, sample) = &plans[i as usize];
        let mut checker = Checker::new(sample, testing::VARIANTS);
        for db in testing::tiny_databases(sample) {
            checker.check(&db).map_err(|v| format!("{name}: {v}\n{}", testing::reproduction(sample, &db)))?;
            checked.fetch_add(testing::VARIANTS.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    });
    let checked = checked.into_inner();
    println!("{checked} triples checked");
    assert!(checked > 100_000);
}

#[test]
fn every_operator_occurs_under_every_other_with_a_change() {
    let total = Mutex::new(Coverage::default());
    for_seeds(100_000, |seed| {
        let (sample, db) = drawn(seed, &Limits { operators: 5, opaque: false, raising: false, clock: true });
        let mut seen = Coverage::default();
        testing::record_changes(&sample, &db, &mut seen);
        total.lock().unwrap().merge(&seen);
        Ok(())
    });
    let total = total.into_inner().unwrap();
    println!("{total}");
    let above = testing::QUERY_OPERATORS.iter().filter(|a| **a != "Table");
    let pairs = above.flat_map(|a| testing::QUERY_OPERATORS.iter().map(move |b| (*a, *b)));
    let missing: Vec<_> = pairs.filter(|(a, b)| total.count(a, b) == 0).collect();
    assert!(missing.is_empty(), "never changed in this run (above, below): {missing:?}");
}

#[test]
fn every_mutant_is_killed() {
    let seeds = 20_000;
    let mut survivors = Vec::new();
    for mutant in MUTANTS {
        let variant = Variant {
            rules: mutant.rules,
            keep: mutant.keep,
            optimize: false,
            trust_foreign_keys: false,
            mutant: Some(mutant),
        };
        let killed = (0..seeds).find(|seed| {
            let (sample, db) = drawn(
                *seed,
                &Limits { operators: 1 + (seed % 4) as usize, opaque: false, raising: false, clock: true },
            );
            testing::check_delta(&sample, &db, &variant).is_err_and(|v| v.law.starts_with("the delta law"))
        });
        match killed {
            Some(seed) => println!("{:>6}  {}", seed + 1, mutant.name),
            None => survivors.push(mutant.name),
        }
    }
    assert!(MUTANTS.len() >= 25);
    assert!(survivors.is_empty(), "not noticed within {seeds} seeds: {survivors:#?}");
}

/// Terms that a trusted foreign key prunes are nothing wherever the key is honoured, and pruning any other is noticed.
#[test]
fn foreign_keys_prune_what_is_nothing() {
    let variant = |mutant| Variant {
        rules: Rules::Algebraic,
        keep: Keep::Nested,
        optimize: true,
        trust_foreign_keys: true,
        mutant,
    };
    let plans = testing::foreign_key_plans().expect("the plans are well formed");
    let databases = testing::foreign_key_databases();
    for sample in &plans {
        let variants = [variant(None)];
        let mut checker = Checker::new(sample, &variants);
        for db in &databases {
            if let Err(v) = checker.check(db) {
                panic!("{v}\n{}", testing::reproduction(sample, db));
            }
        }
    }
    for mutant in testing::FOREIGN_KEY_MUTANTS {
        let variants = [variant(Some(mutant))];
        let killed = plans.iter().any(|sample| {
            let mut checker = Checker::new(sample, &variants);
            databases.iter().any(|db| checker.check(db).is_err())
        });
        assert!(killed, "not noticed: {}", mutant.name);
    }
}
