//! The growth of plans with their queries. Only this test catches a rule that copies the delta of its input.
//! With such a rule all results stay right, and small queries show no fault, but each level of nesting
//! doubles the statement. The assertions are about work and never about time: the operators of the delta, and
//! the bytes of its text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails as a test does")]

use std::fmt::Write as _;
use trickle_core::catalog::MemoryCatalog;
use trickle_core::graph::MAX_NODES;
use trickle_core::sql::print;
use trickle_core::stream_table::{MAX_DELTA, StreamTable, compile};
use trickle_core::{Options, Refresh, Verdict};

const DDL: &str = "CREATE TABLE t (id bigint PRIMARY KEY, a bigint, b bigint); \
                   CREATE TABLE u (id bigint PRIMARY KEY, a bigint, b bigint);";

fn verdict(sql: &str) -> Verdict {
    compile(sql, &MemoryCatalog::from_ddl(DDL).unwrap(), &Options::new("public", "result")).unwrap()
}

/// Returns the number of operators of the delta when all sources changed, and the number of bytes of its
/// text.
fn size(table: &StreamTable) -> (usize, usize) {
    let all = table.graph().props(table.query()).sources.clone();
    let (graph, roots) = table.delta(&all).unwrap();
    assert!(graph.len() <= MAX_NODES);
    let statements = table.refresh(Refresh::Delta, &all).unwrap();
    (graph.reachable_from(&roots).len(), statements.iter().map(|s| print(s).text.len()).sum())
}

/// Makes a part from each number from 1 to `count`, and joins the parts with `between`.
fn parts(count: usize, between: &str, part: impl Fn(usize) -> String) -> String {
    (1..=count).map(part).collect::<Vec<_>>().join(between)
}

fn scalars(n: usize) -> String {
    let value = |i| format!("(SELECT sum(u.b) FROM u WHERE u.a = t.a AND u.id > {i}) AS s{i}");
    format!("SELECT t.id, {} FROM t", parts(n, ", ", value))
}

fn exists(n: usize) -> String {
    let one = |i| format!("EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.id > {i})");
    format!("SELECT t.id FROM t WHERE {}", parts(n, " OR ", one))
}

fn nested_extrema(n: usize) -> String {
    let columns = |k| parts(k, ", ", |i| format!("k{i}"));
    let inner = format!("SELECT id AS v, {} FROM t", parts(n, ", ", |i| format!("a + {i} AS k{i}")));
    (1..=n).rev().fold(inner, |q, k| {
        format!("SELECT {c}, max(v) AS v FROM ({q}) AS q{k} GROUP BY {c}", c = columns(k))
    })
}

fn chained_excepts(n: usize) -> String {
    (1..=n).fold("SELECT id, a FROM t".to_owned(), |q, i| {
        format!("({q}) EXCEPT SELECT id, a FROM u WHERE b > {i}")
    })
}

fn nested_distincts(n: usize) -> String {
    (1..=n).fold("SELECT a, b FROM t".to_owned(), |q, i| {
        format!("SELECT DISTINCT q{i}.a, u.b FROM ({q}) AS q{i} JOIN u ON u.a = q{i}.b")
    })
}

fn joins(n: usize) -> String {
    let mut sql = "SELECT t.id FROM t".to_owned();
    for i in 1..=n {
        write!(sql, " JOIN u AS u{i} ON u{i}.id = t.a").unwrap();
    }
    sql
}

/// Asserts that doubling the query multiplies the operators of the delta by at most `times`.
fn grows(query: fn(usize) -> String, from: usize, times: f64) {
    let of = |n| size(&verdict(&query(n)).incremental().unwrap());
    let (small, large) = (of(from), of(2 * from));
    assert!(
        large.0 as f64 <= times * small.0 as f64,
        "{} operators for {from}, {} for {}: {}",
        small.0,
        large.0,
        2 * from,
        query(2)
    );
    // The length of the text of an operator grows with the number of its columns.
    let most = large.0 * (600 + 100 * from);
    assert!(large.1 <= most, "{} operators in {} bytes: {}", large.0, large.1, query(2));
}

#[test]
fn nested_operators_add_the_same_at_every_level() {
    grows(nested_extrema, 6, 2.1);
    grows(chained_excepts, 8, 2.1);
    grows(nested_distincts, 4, 4.0);
    grows(joins, 50, 2.1);
}

#[test]
fn subqueries_side_by_side_pair_at_most() {
    grows(scalars, 4, 4.0);
    grows(exists, 6, 4.0);
}

/// No delta has more operators than the limit. Queries that people write have far fewer operators.
#[test]
fn what_is_too_large_is_said() {
    for (query, n) in [
        (scalars as fn(usize) -> String, 40),
        (exists, 60),
        (nested_extrema, 30),
        (chained_excepts, 150),
        (nested_distincts, 60),
        (joins, 300),
    ] {
        match verdict(&query(n)) {
            Verdict::Incremental(table) => assert!(size(&table).0 <= MAX_DELTA, "{}", query(2)),
            Verdict::FullRefresh(reasons) => {
                let [reason] = reasons.as_slice() else { panic!("{reasons:?}") };
                assert!(reason.construct.starts_with("a plan of more than "), "{reason}");
                assert!(!reason.help.is_empty());
            }
        }
    }
    assert!(verdict(&scalars(40)).incremental().is_none());
}

/// Writes a query with several levels. Each level reads the level before it twice.
fn doubled(n: usize, body: &str) -> String {
    let ctes = (1..=n).fold("WITH q0 AS (SELECT a, b FROM t)".to_owned(), |mut sql, i| {
        write!(sql, ", q{i} AS ({})", body.replace("{q}", &format!("q{}", i - 1))).unwrap();
        sql
    });
    format!("{ctes} SELECT a, b FROM q{n}")
}

fn inside_each_other(n: usize, form: &str) -> String {
    format!("SELECT {} AS x FROM t", (0..n).fold("a".to_owned(), |e, _| form.replace("{e}", &e)))
}

/// The plan of a short text may need more memory than a machine has. Even such a text gets a verdict.
#[test]
fn what_doubles_at_every_level_is_bounded() {
    for body in [
        "SELECT a, b FROM {q} UNION ALL SELECT a, b FROM {q}",
        "SELECT a, b FROM {q} INTERSECT SELECT b, a FROM {q}",
        "SELECT x.a, y.b FROM {q} AS x JOIN {q} AS y ON y.a = x.b WHERE x.b > 1",
        "SELECT x.a, y.b FROM {q} AS x LEFT JOIN {q} AS y ON y.a = x.b",
        "SELECT a, b FROM {q} AS x WHERE EXISTS (SELECT 1 FROM {q} AS y WHERE y.a = x.b)",
        "SELECT x.a, sum(y.b)::int AS b FROM {q} AS x JOIN {q} AS y ON y.a = x.b GROUP BY x.a",
    ] {
        for n in [12, 25, 40] {
            if let Verdict::Incremental(table) = verdict(&doubled(n, body)) {
                assert!(size(&table).0 <= MAX_DELTA, "{n}: {body}");
            }
        }
    }
    for form in ["NULLIF({e}, 1)", "({e} BETWEEN 1 AND 2)::int", "CASE {e} WHEN 1 THEN 2 WHEN 2 THEN 3 END"] {
        let Verdict::FullRefresh(reasons) = verdict(&inside_each_other(40, form)) else { panic!("{form}") };
        let [reason] = reasons.as_slice() else { panic!("{reasons:?}") };
        assert!(
            reason.construct.starts_with("an expression of more than ") && reason.span.is_some(),
            "{reason}"
        );
    }
    let arrays = |n: usize| {
        format!("SELECT {}a{} AS x", "ARRAY(SELECT ".repeat(n), " FROM t ORDER BY 1 LIMIT 2)".repeat(n))
    };
    assert!(verdict(&arrays(3)).incremental().is_some());
    verdict(&arrays(100));
}
