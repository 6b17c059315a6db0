//! Ring 3: what is printed is read back as the same query.
//!
//! What it alone can catch: a rendering that PostgreSQL would read otherwise than meant (precedence, scope of a name,
//! a lost cast), and a front end that does not read what the renderer writes. Both are judged by the evaluator.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

use std::path::Path;
use std::sync::Arc;
use trickle_core::catalog::{Catalog, MemoryCatalog};
use trickle_core::eval::{self, Database, ZSet, same_bag};
use trickle_core::graph::{Format, Graph, NodeId, explain};
use trickle_core::lower::{Lowered, Query, lower};
use trickle_core::sql::{BufferSources, Names, Profile, print_query, render_query};
use trickle_core::testing::{self, Case, Choice, Limits, Sample};

/// How many random queries a run draws: `TRICKLE_ROUND_TRIPS`, else 20,000.
fn trips() -> u64 {
    std::env::var("TRICKLE_ROUND_TRIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

fn print(graph: &Graph, root: NodeId) -> Result<String, String> {
    let names: Vec<Arc<str>> =
        Names::of(graph.schema(root)).columns.iter().map(|c| c.as_str().into()).collect();
    let sources = BufferSources::new("pgtrickle_changes");
    let query = render_query(graph, root, &sources, &Profile::default(), &names)
        .map_err(|e| format!("cannot be rendered: {e}\n{}", explain(graph, root, Format::Text)))?;
    Ok(print_query(&query).text)
}

fn read(sql: &str, catalog: &dyn Catalog) -> Result<Query, String> {
    match lower(sql, catalog) {
        Ok(Lowered::Query(q)) => Ok(q),
        Ok(Lowered::Unsupported(reasons)) => Err(format!("is not incremental: {reasons:?}\n{sql}")),
        Err(e) => Err(format!("cannot be read: {e}\n{sql}")),
    }
}

/// The rows, or the SQLSTATE of the data error that evaluation raised.
fn result(graph: &Graph, root: NodeId, db: &Database) -> Result<Result<ZSet, &'static str>, String> {
    match eval::eval(graph, root, db) {
        Ok(rows) => Ok(Ok(rows)),
        Err(e) if e.is_data() => Ok(Err(e.sqlstate())),
        Err(e) => Err(e.to_string()),
    }
}

/// The text of the query reads back with the same columns and the same rows; the text of what was read reads back as
/// the same plan.
fn trip(sample: &Sample, catalog: &dyn Catalog, databases: &[Database]) -> Result<(), String> {
    let text = print(&sample.graph, sample.root)?;
    let back = read(&text, catalog)?;
    let shown = || {
        let plan = |g: &Graph, n| explain(g, n, Format::Text);
        format!(
            "{text}\nquery:\n{}read back:\n{}",
            plan(&sample.graph, sample.root),
            plan(&back.graph, back.root)
        )
    };
    if !back.graph.schema(back.root).same_types(sample.graph.schema(sample.root)) {
        return Err(format!("column types changed:\n{}", shown()));
    }
    for db in databases {
        let expected = result(&sample.graph, sample.root, db)?;
        let found = result(&back.graph, back.root, db)?;
        let same = match (&expected, &found) {
            (Ok(a), Ok(b)) => same_bag(a, b),
            // Which of several errors is met first is the server's choice.
            (a, b) => a.is_err() && b.is_err(),
        };
        if !same {
            return Err(format!("{expected:?} became {found:?}:\n{}", shown()));
        }
    }
    let again = print(&back.graph, back.root)?;
    let third = read(&again, catalog)?;
    let plan = |q: &Query| explain(&q.graph, q.root, Format::Text);
    if plan(&back) != plan(&third) {
        return Err(format!(
            "no fixpoint:\n{text}\nthen\n{again}\nplans:\n{}then\n{}",
            plan(&back),
            plan(&third)
        ));
    }
    Ok(())
}

/// Runs `check` for the seeds `0..n` on all cores; the failures, by seed.
fn for_seeds(n: u64, check: impl Fn(u64) -> Result<(), String> + Sync) -> Vec<(u64, String)> {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let mut failures: Vec<(u64, String)> = std::thread::scope(|scope| {
        let check = &check;
        let each = |worker: u64| {
            scope.spawn(move || {
                let seeds = (worker..n).step_by(workers as usize);
                seeds.filter_map(|s| check(s).err().map(|e| (s, e))).take(50).collect::<Vec<_>>()
            })
        };
        let handles: Vec<_> = (0..workers).map(each).collect();
        handles.into_iter().flat_map(|h| h.join().unwrap()).collect()
    });
    failures.sort_by_key(|(_, e)| e.len());
    failures
}

#[test]
fn random_queries_read_back() {
    let tables = testing::tables();
    let mut catalog = MemoryCatalog::new();
    for table in &tables {
        catalog.add_table((**table).clone()).unwrap();
    }
    let failures = for_seeds(trips(), |seed| {
        let limits = Limits { operators: 1 + (seed % 6) as usize, opaque: false, raising: seed % 8 == 0 };
        let mut choice = Choice::seeded(seed);
        let sample = testing::sample(&mut choice, &tables, &limits).expect("the generator keeps contracts");
        let databases: Vec<Database> = (0..2).map(|_| testing::change(&mut choice, &tables, 4)).collect();
        trip(&sample, &catalog, &databases)
    });
    let shown: Vec<String> = failures.iter().take(5).map(|(s, e)| format!("seed {s}: {e}")).collect();
    assert!(failures.is_empty(), "{} failures, the shortest:\n{}", failures.len(), shown.join("\n\n"));
}

#[test]
fn case_queries_read_back() {
    let mut failures = Vec::new();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    for area in std::fs::read_dir(cases).unwrap() {
        for file in std::fs::read_dir(area.unwrap().path()).unwrap() {
            let file = file.unwrap().path();
            let case = Case::parse(&std::fs::read_to_string(&file).unwrap()).expect("a case file");
            if case.windows.is_empty() {
                continue;
            }
            let catalog = MemoryCatalog::from_ddl(&case.tables).unwrap();
            let checked = read(&case.query, &catalog).and_then(|q| {
                let databases = testing::databases(&case, &catalog).map_err(|e| e.to_string())?;
                trip(&Sample { graph: q.graph, root: q.root }, &catalog, &databases)
            });
            if let Err(e) = checked {
                failures.push(format!("{}: {e}", file.file_name().unwrap().to_string_lossy()));
            }
        }
    }
    failures.sort_by_key(String::len);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n\n"));
}
