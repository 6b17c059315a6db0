//! For every case file, docs/sql-support.md says how its query is refreshed and what the refresh costs.
//! `TRICKLE_BLESS=1` writes the document.
//!
//! Only this test catches a document that promises more than the cases show. Only this test also catches a
//! query whose cost class changed although its result did not change.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

#[path = "case_files/mod.rs"]
mod case_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use trickle_core::access::{Cost, costs};
use trickle_core::catalog::MemoryCatalog;
use trickle_core::graph::{ColSet, Graph, NodeId};
use trickle_core::rel::Rel;
use trickle_core::stream_table::{Options, StreamTable, Verdict};
use trickle_core::testing::Case;
use trickle_core::{Reason, compile};

const HEAD: &str = "# SQL support

<!-- Written by `TRICKLE_BLESS=1 cargo test -p trickle-core --all-features --test sql_support` from the case files. -->

Each line of the tables stands for a case file. The file has a query, changes of the tables that the query reads, and
the rows of the result after each change, checked by PostgreSQL. The column \"cost\" has the cost of a refresh after a
change of one table or, for a query that reads the clock, after time has passed. This cost presumes indexes on the
columns by which the refresh looks rows up:

- **Δ**: the cost follows the change.
- **group**: the groups that the change touches are recomputed from their rows.
- **range**: the windows over the rows near the change, in the order of their partition, are recomputed.
- **partition**: whole partitions of windows and of first rows are recomputed.
- **scan**: a table, or a stored part of the query, is read as a whole, since no index on its columns finds the rows
  that the refresh needs.
- **refill**: a table is read as a whole only when one of the first rows is removed; otherwise the cost is Δ.
- **result**: all groups, windows or rounds of a recursion are recomputed. Such a refresh costs as much as a full
  refresh, and is reported as one.
";

/// The cost of a refresh besides the change itself. A worse class is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Change,
    Group,
    Range,
    Partition,
    Refill,
    Scan,
    Result,
}

fn class(table: &StreamTable) -> Class {
    let query = table.graph();
    let windows = query.reachable(table.query()).into_iter().filter_map(|n| match query.rel(n) {
        Rel::Window(w) => Some(w.is_local(query)),
        Rel::Top(_) => Some(false),
        _ => None,
    });
    let partition = if windows.into_iter().all(|local| local) { Class::Range } else { Class::Partition };
    let worst = |changed| {
        let (graph, roots) = table.delta(&BTreeSet::from([changed])).unwrap();
        let all = costs(&graph, &roots);
        let found: BTreeSet<Class> =
            all.iter().map(|(id, cost)| of_node(&graph, *id, *cost, partition)).collect();
        // An operator that refills its rows reads all rows, but only in a refresh in which it refills.
        let refills = found.contains(&Class::Refill) && !found.contains(&Class::Result);
        if refills { Class::Refill } else { found.last().copied().unwrap_or(Class::Change) }
    };
    table.changing().into_iter().map(worst).max().unwrap_or(Class::Change)
}

fn of_node(graph: &Graph, id: NodeId, cost: Cost, partition: Class) -> Class {
    let one_row = || graph.props(id).is_key(&ColSet::new());
    match (graph.rel(id), cost) {
        (Rel::Table(_) | Rel::State(_), Cost::Whole) if !one_row() => Class::Scan,
        (Rel::Top(_), Cost::Whole) => Class::Refill,
        (
            Rel::Reduce(_) | Rel::Distinct(_) | Rel::SetOp(_) | Rel::Window(_) | Rel::Recursion(_),
            Cost::Whole,
        ) => Class::Result,
        (Rel::Window(_) | Rel::Top(_), _) => partition,
        (Rel::Reduce(_) | Rel::Distinct(_) | Rel::SetOp(_), _) => Class::Group,
        _ => Class::Change,
    }
}

/// Returns how the query of a case is refreshed, and the cost of the refresh.
fn kept(case: &Case) -> (String, &'static str) {
    let refused = case.snapshots.get("error").or_else(|| case.snapshots.get("verdict"));
    let words = |s: &str| s.lines().next().unwrap_or_default().replace('|', "\\|");
    if let Some(error) = case.snapshots.get("error") {
        return (format!("refused: {}", words(error)), "");
    }
    let catalog = MemoryCatalog::from_ddl(&case.tables).unwrap();
    match compile(&case.query, &catalog, &Options::new("public", "st")).unwrap() {
        Verdict::FullRefresh(reasons) => match reasons.iter().find_map(Reason::refusal) {
            Some(e) => (format!("refused: {}", words(e.message())), ""),
            None => (format!("full refresh: {}", words(refused.map_or("", String::as_str))), "result"),
        },
        Verdict::Incremental(table) => match class(&table) {
            Class::Change => ("deltas".to_owned(), "Δ"),
            Class::Group => ("deltas".to_owned(), "group"),
            Class::Range => ("deltas".to_owned(), "range"),
            Class::Partition => ("deltas".to_owned(), "partition"),
            Class::Refill => ("deltas".to_owned(), "refill"),
            Class::Scan => ("deltas".to_owned(), "scan"),
            Class::Result => ("full refresh: all of it is computed and compared".to_owned(), "result"),
        },
    }
}

/// Returns the first comment of a case.
fn about(text: &str) -> String {
    let lines = text.lines().map_while(|l| l.strip_prefix("# "));
    lines.collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn document() -> String {
    let mut areas: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, file) in case_files::case_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let case = Case::parse(&text).unwrap();
        let (kept, cost) = kept(&case);
        let (area, title) = name.split_once('/').unwrap();
        let title = title.trim_end_matches(".case");
        let link = format!("[{}](../tests/cases/{name})", title.replace('-', " "));
        let line = format!("| {link} | {} | {kept} | {cost} |", about(&text));
        areas.entry(area.to_owned()).or_default().push(line);
    }
    let mut out = HEAD.to_owned();
    for (area, lines) in areas {
        let (first, rest) = area.split_at(1);
        write!(
            out,
            "\n## {}{rest}\n\n| case | behaviour | kept by | cost |\n|---|---|---|---|\n",
            first.to_uppercase()
        )
        .unwrap();
        lines.iter().for_each(|l| writeln!(out, "{l}").unwrap());
    }
    out
}

#[test]
fn the_document_says_what_the_cases_show() {
    if std::env::var_os("TRICKLE_CASE").is_some() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql-support.md");
    let found = document();
    if std::env::var_os("TRICKLE_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(stored.lines().chain(std::iter::repeat(""))).find(|(a, b)| a != b);
    assert!(
        found == stored,
        "docs/sql-support.md is not of these cases: {differs:?}; TRICKLE_BLESS=1 writes it"
    );
}
