//! Measures the planning of a query, from its SQL text to the SQL of its delta, by operator, without
//! PostgreSQL. A query costs this time once, when its plan is made.
//!
//! Each query has four figures. `parse` is the time of sqlparser. `plan` is the time of all work after the
//! parse: lower, prepare, delta, optimize, layout, render, print. `lower` and `delta` are parts of `plan`:
//! the lowering, and the differentiation with its optimisation. The target is that `plan` takes no longer
//! than `parse`. For a query that is not incremental, `verdict` takes the place of `plan` and `delta`: the
//! time until the compiler reports that the query is not incremental.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use trickle_core::catalog::MemoryCatalog;
use trickle_core::lower::lower_parsed;
use trickle_core::parse::{Parsed, parse_query};
use trickle_core::sql::print;
use trickle_core::stream_table::compile_parsed;
use trickle_core::{Options, Refresh, Result, Verdict};

/// Returns tables with a key and columns of types text and bigint by turns. `wide3`, `wide10` and `wide20`
/// have 3, 10 and 20 columns, and each of `t1` to `t10` has 5.
fn catalog() -> Result<MemoryCatalog> {
    let table = |name: &str, width: usize| {
        let columns: String =
            (1..width).map(|i| format!(", c{i} {}", if i % 2 == 0 { "bigint" } else { "text" })).collect();
        format!("CREATE TABLE {name} (id bigint PRIMARY KEY{columns});\n")
    };
    let mut ddl: String = [3, 10, 20].map(|w| table(&format!("wide{w}"), w)).concat();
    ddl += &(1..=10).map(|i| table(&format!("t{i}"), 5)).collect::<String>();
    MemoryCatalog::from_ddl(&ddl)
}

fn scan(width: usize) -> String {
    let columns: String = (1..width).map(|i| format!(", c{i}")).collect();
    format!("SELECT id{columns} FROM wide{width}")
}

fn union_all(n: usize) -> String {
    (1..=n).map(|i| format!("SELECT id, c1, c2 FROM t{i}")).collect::<Vec<_>>().join(" UNION ALL ")
}

fn queries() -> Vec<(&'static str, String)> {
    let fixed = [
        ("filter", "SELECT id, c1, c2 FROM t1 WHERE c2 > 5000"),
        ("project", "SELECT id, c2 * 2 AS twice, upper(c1) AS loud FROM t1"),
        ("aggregate_simple", "SELECT c1, sum(c2) AS s, count(*) AS n FROM t1 GROUP BY c1"),
        (
            "aggregate_complex",
            "SELECT c1, c3, sum(c2) AS s, count(*) AS n, avg(c4) AS a, min(c4) AS lo, max(c4) AS hi, \
             count(c3) AS m FROM t1 WHERE c2 > 0 GROUP BY c1, c3 HAVING count(*) > 1",
        ),
        ("inner_join", "SELECT a.id, a.c1, a.c2, b.c1 AS name FROM t1 a JOIN t2 b ON a.c2 = b.id"),
        ("left_join", "SELECT a.id, a.c1, a.c2, b.c1 AS name FROM t1 a LEFT JOIN t2 b ON a.c2 = b.id"),
        ("distinct", "SELECT DISTINCT c1, c2 FROM t1"),
        ("window", "SELECT id, c1, row_number() OVER (PARTITION BY c1 ORDER BY c2) AS rn FROM t1"),
        (
            "join_aggregate",
            "SELECT b.c1, sum(a.c2) AS s, count(*) AS n FROM t1 a JOIN t2 b ON a.c4 = b.id GROUP BY b.c1",
        ),
        (
            "cte",
            "WITH big AS (SELECT id, c1, c2 FROM t1 WHERE c2 > 10) \
             SELECT b.id, b.c1, d.c1 AS name FROM big b JOIN t2 d ON b.c2 = d.id",
        ),
        (
            "lateral",
            "SELECT a.id, l.n FROM t1 a CROSS JOIN LATERAL (SELECT count(*) AS n FROM t2 b WHERE b.c2 = a.id) l",
        ),
    ];
    let mut all: Vec<(&'static str, String)> =
        vec![("scan_3_columns", scan(3)), ("scan_10_columns", scan(10)), ("scan_20_columns", scan(20))];
    all.extend(fixed.map(|(name, sql)| (name, sql.to_owned())));
    all.extend([
        ("union_all_2", union_all(2)),
        ("union_all_5", union_all(5)),
        ("union_all_10", union_all(10)),
    ]);
    all
}

/// Does all planning after the parse, for a refresh in which every source changed. Returns `None` if the
/// query is not incremental.
fn plan(parsed: &Parsed, catalog: &MemoryCatalog, options: &Options) -> Result<Option<String>> {
    let Verdict::Incremental(table) = compile_parsed(parsed, catalog, options)? else { return Ok(None) };
    let all = table.graph().props(table.query()).sources.clone();
    let statements = table.refresh(Refresh::Delta, &all)?;
    Ok(Some(statements.iter().map(|s| print(s).text).collect()))
}

/// Ends the program with an error, since a benchmark that cannot run must not look like a fast one.
fn stop<T>(what: &str, e: &trickle_core::Error) -> T {
    eprintln!("{what}: {e}");
    std::process::exit(1)
}

fn operators(c: &mut Criterion) {
    let catalog = catalog().unwrap_or_else(|e| stop("tables", &e));
    let options = Options::new("public", "result");
    for (name, sql) in queries() {
        let parsed = parse_query(&sql).unwrap_or_else(|e| stop(name, &e));
        let planned = plan(&parsed, &catalog, &options).unwrap_or_else(|e| stop(name, &e));
        let mut group = c.benchmark_group(name);
        group.bench_function("parse", |b| b.iter(|| parse_query(black_box(&sql))));
        group.bench_function("lower", |b| b.iter(|| lower_parsed(black_box(&parsed), &catalog)));
        let what = if planned.is_some() { "plan" } else { "verdict" };
        group.bench_function(what, |b| b.iter(|| plan(black_box(&parsed), &catalog, &options)));
        if let Ok(Verdict::Incremental(table)) = compile_parsed(&parsed, &catalog, &options) {
            let all = table.graph().props(table.query()).sources.clone();
            group.bench_function("delta", |b| b.iter(|| table.delta(black_box(&all))));
        }
        group.finish();
    }
}

/// Measures the planning of all queries, one after the other.
fn differentiate_full(c: &mut Criterion) {
    let catalog = catalog().unwrap_or_else(|e| stop("tables", &e));
    let options = Options::new("public", "result");
    let queries = queries();
    let parsed: Vec<Parsed> =
        queries.iter().map(|(name, sql)| parse_query(sql).unwrap_or_else(|e| stop(name, &e))).collect();
    let mut group = c.benchmark_group("differentiate_full");
    group.bench_function("parse", |b| {
        b.iter(|| queries.iter().map(|(_, sql)| parse_query(sql).is_ok()).filter(|ok| *ok).count());
    });
    group.bench_function("plan", |b| {
        b.iter(|| parsed.iter().map(|p| plan(p, &catalog, &options).is_ok()).filter(|ok| *ok).count());
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(200).measurement_time(Duration::from_secs(10));
    targets = operators, differentiate_full
}
criterion_main!(benches);
