//! Ring 1: the delta law and related laws over random plans, states and changes.
//!
//! Each test alone can catch some bugs:
//! - `random_*`: a rule that is wrong for some nesting;
//! - `tiny_*`: a rule that is wrong for a rare combination of NULLs and duplicates;
//! - `coverage`: a generator that never draws some combination;
//! - `mutants`: laws that do not notice a fault.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

#[path = "seeds/mod.rs"]
mod seeds;

use seeds::Seeds;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use trickle_core::agg::{self, AggCall};
use trickle_core::catalog::{ColumnDef, TableDef, TableId};
use trickle_core::delta::{Keep, Rules};
use trickle_core::eval::{Row, ZSet};
use trickle_core::expr::Expr;
use trickle_core::graph::{Format, Graph, NodeId};
use trickle_core::rel::{Keys, Rel, Table, Union, Version, Window};
use trickle_core::testing::{
    self, Checker, Choice, Coverage, Limits, MUTANTS, Mutant, Outcome, Sample, Variant,
};
use trickle_core::types::{Datum, Type};
use trickle_core::window::{self, Bound, Exclusion, OrderKey, Units, WindowCall, WindowFrame};

/// The random triples (plan, state, change) of a run.
const TRIPLES: Seeds = Seeds { setting: "TRICKLE_LAWS", short: 60_000 };

/// Runs `check` for the numbers below `n`, as [`for_seeds`] does.
fn for_each(n: usize, check: impl Fn(u64) -> Result<(), String> + Sync) {
    for_seeds(&(0..n as u64).collect::<Vec<_>>(), check);
}

/// Runs `check` for these seeds on all cores. Panics with the first failure.
fn for_seeds(seeds: &[u64], check: impl Fn(u64) -> Result<(), String> + Sync) {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let failure: Mutex<Option<(u64, String)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (check, failure) = (&check, &failure);
            scope.spawn(move || {
                for seed in seeds.iter().copied().skip(worker).step_by(workers) {
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

/// Draws a plan and a database from a seed. Some seeds draw over tables in which equal values are written
/// differently.
fn drawn(seed: u64, limits: &Limits) -> (Sample, trickle_core::eval::Database) {
    let mut choice = Choice::seeded(seed);
    let tables = if seed / 36 % 3 == 2 { testing::inexact_tables() } else { testing::tables() };
    let sample = testing::sample(&mut choice, &tables, limits).expect("the generator keeps contracts");
    let db = testing::change(&mut choice, &tables, 4);
    (sample, db)
}

/// Describes the smallest counterexample found, as SQL if the plan can be written as SQL.
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
    for_seeds(&TRIPLES.one_in(1), |seed| {
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
        counts.get("held, result changed").copied().unwrap_or(0) >= TRIPLES.count() / 4,
        "too few triples say something"
    );
}

#[test]
fn random_plans_have_the_properties_they_claim() {
    for_seeds(&TRIPLES.one_in(10), |seed| {
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

/// Checks the affected keys of a table with a key, and the rows that a lookup by these keys shows. Most
/// samples have no such table, so the test counts the samples with one.
#[test]
fn affected_keys_and_their_rows_are_the_change() {
    let found = AtomicU64::new(0);
    for_seeds(&TRIPLES.one_in(2), |seed| {
        let limits =
            Limits { operators: 1 + (seed % 5) as usize, opaque: true, raising: seed % 8 == 0, clock: false };
        let (sample, db) = drawn(seed, &limits);
        match testing::check_affected(&sample, &db) {
            Ok(with_a_path) => found.fetch_add(u64::from(with_a_path), Ordering::Relaxed),
            Err(_) => {
                return Err(report(seed, &limits, |s, d| {
                    testing::check_affected(s, d).err().map(|v| v.to_string())
                }));
            }
        };
        Ok(())
    });
    let found = found.into_inner();
    println!("{found} of {} samples have a path", TRIPLES.count() / 2);
    assert!(found >= TRIPLES.count() / 40, "too few samples say something: {found}");
}

/// Checks the part of a result that depends on uncaptured changes of a table. Most samples do not show the
/// column that distinguishes these changes, so the test counts the samples that do.
#[test]
fn the_part_of_uncaptured_rows_is_recomputed() {
    let found = AtomicU64::new(0);
    for_seeds(&TRIPLES.one_in(2), |seed| {
        let limits =
            Limits { operators: 1 + (seed % 5) as usize, opaque: true, raising: seed % 8 == 0, clock: false };
        let (sample, db) = drawn(seed, &limits);
        match testing::check_part(&sample, &db) {
            Ok(with_a_part) => found.fetch_add(u64::from(with_a_part), Ordering::Relaxed),
            Err(_) => {
                return Err(report(seed, &limits, |s, d| {
                    testing::check_part(s, d).err().map(|v| v.to_string())
                }));
            }
        };
        Ok(())
    });
    let found = found.into_inner();
    println!("{found} of {} samples have a part", TRIPLES.count() / 2);
    assert!(found >= TRIPLES.count() / 40, "too few samples say something: {found}");
}

/// Checks that two mutants are noticed. Each of them leaves out a part of the affected keys: the keys that
/// are looked up, or the keys of the table's own rows.
#[test]
fn affected_keys_that_are_forgotten_are_noticed() {
    fn part(graph: &Graph, keys: NodeId, which: fn(&[NodeId]) -> Option<&NodeId>) -> NodeId {
        let Rel::Keys(all) = graph.rel(keys) else { return keys };
        let Rel::Union(u) = graph.rel(all.input()) else { return keys };
        which(u.summands()).copied().unwrap_or(keys)
    }
    let spoils: [fn(&Graph, NodeId) -> NodeId; 2] =
        [|g, k| part(g, k, <[NodeId]>::first), |g, k| part(g, k, <[NodeId]>::last)];
    for spoil in spoils {
        let limits = |seed: u64| Limits { operators: 1 + (seed % 5) as usize, ..Limits::default() };
        let noticed = (0..50_000).any(|seed| {
            let (sample, db) = drawn(seed, &limits(seed));
            testing::check_affected_keys(&sample, &db, spoil).is_err()
        });
        assert!(noticed);
    }
}

#[test]
fn rewrites_are_identities() {
    for_seeds(&TRIPLES.one_in(10), |seed| {
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
    for_seeds(&TRIPLES.one_in(20), |seed| {
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

/// A rendering may give more keys than `Keys` denotes. The readers of the keys restrict both sides of a
/// difference to these keys, so keys of unchanged rows change nothing.
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
    for_seeds(&TRIPLES.one_in(10), |seed| {
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

/// Replaces every `keys(ΔR)` by the union of `keys(ΔR)` itself, of the keys of each part of ΔR, and of the
/// keys of R′.
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
        // An input with a subtraction takes the previous state from the current one. With whole tables in
        // place of their changes, such an input gives no state.
        let taken = |n: &NodeId| matches!(g.rel(*n), Rel::Negate(_));
        if !g.reachable(keys.input()).iter().any(taken) {
            parts.push(g.add(Keys::new(current, keys.cols().to_vec()))?);
        }
        let cols: Vec<usize> = (0..keys.cols().len()).collect();
        let all = g.add(Union::new(parts))?;
        g.add(Keys::new(all, cols))
    })
}

/// Returns the nodes whose rows a node adds or subtracts. A rendering that merges no nodes has these nodes.
fn parts_of(graph: &Graph, node: NodeId) -> Vec<NodeId> {
    match graph.rel(node) {
        Rel::Union(_) | Rel::Negate(_) | Rel::Consolidate(_) => {
            graph.inputs(node).iter().flat_map(|i| parts_of(graph, *i)).collect()
        }
        _ => vec![node],
    }
}

/// Checks every pair of states of up to `rows` rows over `{NULL, 0, 1}`, for every small plan.
#[test]
fn tiny_domains_exhaustively() {
    let plans = testing::small_plans().expect("small plans are well formed");
    let checked = AtomicU64::new(0);
    for_each(plans.len(), |i| {
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

/// Makes queries with frames and functions that read a row or two beside the current row. The rows are
/// ordered by the first column, and two rows may be equal in it.
fn windows_of_near_rows() -> Vec<Sample> {
    let columns = ["o", "v"].map(|name| ColumnDef::new(name, Type::Int4, false));
    let table = Arc::new(TableDef::new(TableId(1), "public", "r", columns.to_vec()));
    let (by, far) = (Expr::int8, |n| Expr::literal(Datum::Int(n), Type::Int4));
    let frame = |units, start, end, exclude| WindowFrame { units, start, end, exclude };
    let (all, ties) = (Exclusion::NoOthers, Exclusion::Ties);
    let frames = [
        frame(Units::Rows, Bound::Preceding(by(1)), Bound::CurrentRow, all),
        frame(Units::Rows, Bound::CurrentRow, Bound::Following(by(1)), ties),
        frame(Units::Rows, Bound::Preceding(by(1)), Bound::Following(by(2)), all),
        frame(Units::Rows, Bound::Preceding(by(2)), Bound::Preceding(by(1)), all),
        frame(Units::Rows, Bound::Following(by(1)), Bound::Following(by(2)), all),
        frame(Units::Groups, Bound::Preceding(by(1)), Bound::Following(by(1)), all),
        frame(Units::Range, Bound::CurrentRow, Bound::CurrentRow, all),
        frame(Units::Range, Bound::Preceding(far(1)), Bound::Following(far(1)), all),
        frame(Units::Range, Bound::Preceding(far(2)), Bound::Preceding(far(1)), all),
    ];
    let column = |c| Expr::column(c, Type::Int4);
    let listed = agg::resolve("array_agg", &[Type::Int4]).unwrap();
    let framed =
        frames.map(|frame| WindowCall { call: AggCall::new(listed.clone(), vec![column(0)]), frame });
    let neighbour = |name, by| {
        let sig = window::resolve(name, &[Type::Int4, Type::Int4]).unwrap();
        WindowCall { call: AggCall::new(sig, vec![column(0), far(by)]), frame: WindowFrame::default() }
    };
    let neighbours = [neighbour("lag", 1), neighbour("lead", 2), neighbour("lag", -1), neighbour("lead", 0)];
    let mut samples = Vec::new();
    for (call, descending) in
        framed.into_iter().chain(neighbours).flat_map(|c| [(c.clone(), false), (c, true)])
    {
        let mut graph = Graph::new();
        let rows = graph.add(Table::new(table.clone())).unwrap();
        let key = OrderKey { column: 0, descending, nulls_first: false, settles: false };
        let order = match call.frame.offsets().next() {
            Some(_) if call.frame.units == Units::Range => vec![key],
            _ => vec![key, OrderKey::settling(1)],
        };
        let root = graph.add(Window::new(rows, Vec::new(), order, vec![call])).unwrap();
        samples.push(Sample { graph, root });
    }
    samples
}

/// Checks every pair of states. A state has six places in a fixed order. Each place has one row or none, and
/// one place may also have two rows.
#[test]
fn windows_are_computed_near_what_changed() {
    let row = |o: i64, v: i64| Row::from(vec![Datum::Int(o), Datum::Int(v)]);
    let mut states = vec![ZSet::new()];
    for place in 0..6 {
        let with = |rows: &[Row]| {
            let rows = rows.to_vec();
            move |state: &ZSet| {
                rows.iter().fold(state.clone(), |mut s, r| {
                    s.add(r.clone(), 1);
                    s
                })
            }
        };
        let one: Vec<ZSet> = states.iter().map(with(&[row(place, 0)])).collect();
        let two = states.iter().filter(|_| place == 2).map(with(&[row(place, 0), row(place, 1)])).collect();
        states = [states.clone(), one, two].concat();
    }
    let samples = windows_of_near_rows();
    let narrowed = &testing::VARIANTS[..1];
    for_each(samples.len(), |i| {
        let sample = &samples[i as usize];
        let changed = Some([TableId(1)].into());
        let (graph, delta) = testing::delta_plan(sample, changed, &narrowed[0]).unwrap();
        let near = |n: &NodeId| graph.node(*n).op().describe(&[]).contains("min");
        assert!(graph.reachable(delta).iter().any(near), "computed whole");
        let mut checker = Checker::new(sample, narrowed);
        for (before, after) in states.iter().flat_map(|b| states.iter().map(move |a| (b, a))) {
            let mut delta = after.clone();
            delta.add_zset(&before.negate());
            let mut db = testing::empty_database();
            db.before.insert(TableId(1), before.clone());
            db.delta.insert(TableId(1), delta);
            checker.check(&db).map_err(|v| format!("{v}\n{}", testing::reproduction(sample, &db)))?;
        }
        Ok(())
    });
}

#[test]
fn every_operator_occurs_under_every_other_with_a_change() {
    let total = Mutex::new(Coverage::default());
    for_each(100_000, |seed| {
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

/// Checks that a term which a trusted foreign key prunes is empty wherever the data obey the key. A mutant
/// that prunes another term is noticed.
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
