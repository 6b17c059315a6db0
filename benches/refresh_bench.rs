//! Measures the work around a delta, without PostgreSQL: names, printed lists, hashes, frontiers, schedules,
//! dependency graphs.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use trickle_core::catalog::{MemoryCatalog, TableId};
use trickle_core::dag::{Dag, StreamTableNode};
use trickle_core::frontier::{Frontier, Snapshot};
use trickle_core::schedule::{Schedule, canonical_periods};
use trickle_core::sql::{Ident, print};
use trickle_core::{Options, Refresh, Verdict, compile};
use xxhash_rust::xxh64::xxh64;

/// Measures the printing of three identifiers: one that needs no quotes, one that needs quotes, and a
/// keyword.
fn quote_ident(c: &mut Criterion) {
    let mut group = c.benchmark_group("quote_ident");
    for (what, name) in [("plain", "order_id"), ("odd", "Order \"Id\""), ("keyword", "select")] {
        let ident = Ident::new(name);
        group.bench_function(what, |b| b.iter(|| black_box(&ident).to_string()));
    }
    group.finish();
}

/// Measures the printing of a wide table's columns as a list, with and without the name of the table.
fn col_list(c: &mut Criterion) {
    let columns: Vec<Ident> = (0..20).map(|i| Ident::new(format!("column_{i}"))).collect();
    let list = |prefix: &str| {
        let mut text = String::new();
        for column in black_box(&columns) {
            if !text.is_empty() {
                text += ", ";
            }
            text += prefix;
            text += &column.to_string();
        }
        text
    };
    c.bench_function("col_list_20", |b| b.iter(|| list("")));
    c.bench_function("prefixed_col_list_20", |b| b.iter(|| list("t.")));
}

/// Measures the work on a compiled stream table: printing an expression, and listing the columns and sources
/// of its query.
fn plans(c: &mut Criterion) {
    let ddl = "CREATE TABLE t (id bigint PRIMARY KEY, a bigint, b numeric(10,2), c text);
               CREATE TABLE u (id bigint PRIMARY KEY, d text)";
    let sql = "SELECT t.id, CASE WHEN t.a > 10 AND t.c LIKE 'x%' THEN coalesce(t.b, 0) * 2 ELSE abs(t.b) END AS e, \
               u.d FROM t JOIN u ON t.a = u.id";
    let compiled = MemoryCatalog::from_ddl(ddl)
        .and_then(|catalog| compile(sql, &catalog, &Options::new("public", "st")));
    let Some(table) = compiled.ok().and_then(Verdict::incremental) else {
        eprintln!("the query of the benchmark does not compile");
        std::process::exit(1);
    };
    let all = table.graph().props(table.query()).sources.clone();
    // The last statement is one SELECT with this expression, so printing it is mostly the work of the printer
    // of scalars.
    let replace = table.refresh(Refresh::Replace, &all).unwrap_or_default();
    c.bench_function("expr_to_sql", |b| b.iter(|| replace.last().map(|s| print(black_box(s)).text)));
    c.bench_function("output_columns", |b| {
        b.iter(|| black_box(&table).columns().iter().map(|c| Ident::new(c).to_string()).collect::<Vec<_>>());
    });
    c.bench_function("source_oids", |b| {
        b.iter(|| black_box(&table).sources().iter().map(|(t, _)| t.id).collect::<Vec<_>>());
    });
}

/// Measures the hash of one row, from a short key to a wide row.
fn xxh64_rows(c: &mut Criterion) {
    let mut group = c.benchmark_group("xxh64");
    for size in [16_usize, 64, 256, 1024, 4096] {
        let row = vec![0x5a_u8; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(format!("{size}_bytes"), |b| b.iter(|| xxh64(black_box(&row), 0)));
    }
    group.finish();
}

/// Returns a frontier after a busy second. The number of transactions that are still open is `open`: every
/// third one of the latest transactions.
fn busy(open: u64) -> Frontier {
    let first = 1_000_000;
    let snapshot = Snapshot::new(first + 3 * open, (0..open).map(|i| first + 3 * i));
    Frontier::new(7, 16_384, &snapshot, Some((first + 3 * open + 1, 4)))
}

fn frontier(c: &mut Criterion) {
    let mut group = c.benchmark_group("frontier");
    for open in [0, 10, 100] {
        let (low, high) = (busy(open), busy(open + 1));
        group.bench_function(format!("compare_{open}_open"), |b| {
            b.iter(|| black_box(&low).partial_cmp(black_box(&high)));
        });
        group.bench_function(format!("to_json_{open}_open"), |b| b.iter(|| black_box(&high).to_json()));
        if let Ok(text) = high.to_json() {
            group.bench_function(format!("from_json_{open}_open"), |b| {
                b.iter(|| Frontier::from_json(black_box(&text)));
            });
        }
    }
    group.finish();
}

/// Returns stream table `i`, which reads `sources`. Source 0 is the only table that is no stream table.
fn stream_table(i: u32, sources: impl IntoIterator<Item = u32>) -> StreamTableNode {
    let named = |i: u32| (TableId(i), Arc::from(format!("t{i}")));
    let (id, name) = named(i);
    StreamTableNode { id, name, sources: sources.into_iter().map(named).collect(), apart: false }
}

/// Returns a chain of stream tables: each reads the stream table with the preceding number.
fn chain(n: u32) -> Vec<StreamTableNode> {
    (1..=n).map(|i| stream_table(i, [i - 1])).collect()
}

/// Returns stream tables that all read table 0.
fn fan(n: u32) -> Vec<StreamTableNode> {
    (1..=n).map(|i| stream_table(i, [0])).collect()
}

/// Returns a fan of stream tables, and one stream table that reads all of the fan.
fn diamond(n: u32) -> Vec<StreamTableNode> {
    (1..n).map(|i| stream_table(i, [0])).chain([stream_table(n, 1..n)]).collect()
}

type Shape = fn(u32) -> Vec<StreamTableNode>;

fn dag_operations(c: &mut Criterion) {
    let shapes: [(&str, Shape); 3] = [("chain", chain), ("fan", fan), ("diamond", diamond)];
    let mut group = c.benchmark_group("dag_operations");
    for (shape, tables) in shapes {
        for n in [10, 100, 1000] {
            let tables = tables(n);
            let build = |tables: Vec<StreamTableNode>| Dag::build(tables).unwrap_or_default();
            let dag = build(tables.clone());
            group.bench_function(format!("build_{shape}_{n}"), |b| {
                b.iter_batched(|| tables.clone(), build, BatchSize::SmallInput);
            });
            group.bench_function(format!("levels_{shape}_{n}"), |b| b.iter(|| black_box(&dag).levels()));
            group.bench_function(format!("groups_{shape}_{n}"), |b| b.iter(|| black_box(&dag).groups()));
            group.bench_function(format!("downstream_{shape}_{n}"), |b| {
                b.iter(|| black_box(&dag).downstream(TableId(0)));
            });
        }
    }
    group.finish();
}

/// Measures the periods of a chain of stream tables with the schedule 'calculated'. Only the last stream
/// table has a schedule with a period.
fn canonical_period(c: &mut Criterion) {
    let mut group = c.benchmark_group("canonical_period");
    let every = Schedule::Every(Duration::from_secs(30));
    for n in [10, 100, 1000] {
        let dag = Dag::build(chain(n)).unwrap_or_default();
        let schedule = |id: TableId| Some(if id.0 == n { &every } else { &Schedule::Calculated });
        group.bench_function(format!("chain_{n}"), |b| {
            b.iter(|| canonical_periods(black_box(&dag), schedule, |_| Duration::from_secs(60)));
        });
    }
    group.bench_function("parse", |b| b.iter(|| Schedule::parse(black_box("1h30m"))));
    group.finish();
}

criterion_group!(
    benches,
    quote_ident,
    col_list,
    plans,
    xxh64_rows,
    frontier,
    dag_operations,
    canonical_period
);
criterion_main!(benches);
