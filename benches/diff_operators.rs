//! From Q to an optimised ΔQ, by operator: what a query costs once, when its plan is made. No PostgreSQL.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;
use trickle_core::agg::{self, AggCall};
use trickle_core::catalog::{ColumnDef, TableDef, TableId, TableKind};
use trickle_core::delta::{Differ, Keep, Rules, prepare, stored};
use trickle_core::expr::Expr;
use trickle_core::graph::{Graph, NodeId};
use trickle_core::opt::optimize;
use trickle_core::rel::{Distinct, Filter, Join, Map, OuterJoin, Reduce, Table, Union};
use trickle_core::types::Type;
use trickle_core::{Error, Result};

type Query = fn(&mut Graph) -> Result<NodeId>;

/// The table `id` of so many columns: a key, then bigint and text by turns.
fn table(id: u32, width: usize) -> Table {
    let column = |i: usize| ColumnDef {
        name: format!("c{i}").into(),
        ty: if i.is_multiple_of(2) { Type::Int8 } else { Type::Text },
        nullable: i > 0,
    };
    Table::new(Arc::new(TableDef {
        id: TableId(id),
        schema: "public".into(),
        name: format!("t{id}").into(),
        columns: (0..width).map(column).collect(),
        keys: vec![vec![0]],
        foreign_keys: Vec::new(),
        kind: TableKind::Table,
    }))
}

fn call(name: &str, input: &Graph, node: NodeId, column: usize) -> Result<AggCall> {
    let arg = input.schema(node).expr(column);
    let sig = agg::resolve(name, std::slice::from_ref(arg.ty()));
    Ok(AggCall::new(sig.ok_or_else(|| Error::unknown_function(name))?, vec![arg]))
}

fn filter(g: &mut Graph) -> Result<NodeId> {
    let t = g.add(table(1, 5))?;
    let predicate = g.schema(t).expr(2).equals(Expr::int8(5));
    g.add(Filter::new(t, predicate))
}

fn project(g: &mut Graph) -> Result<NodeId> {
    let t = g.add(table(1, 5))?;
    let exprs = [4, 1].map(|i| g.schema(t).expr(i)).to_vec();
    g.add(Map::new(t, exprs))
}

fn aggregate_simple(g: &mut Graph) -> Result<NodeId> {
    let t = g.add(table(1, 5))?;
    let sum = call("sum", g, t, 2)?;
    g.add(Reduce::new(t, vec![1], vec![sum, AggCall::count_star()]))
}

fn aggregate_complex(g: &mut Graph) -> Result<NodeId> {
    let t = g.add(table(1, 8))?;
    let mut aggs = vec![AggCall::count_star()];
    for name in ["sum", "avg", "min", "max", "count"] {
        aggs.push(call(name, g, t, 4)?);
    }
    g.add(Reduce::new(t, vec![1, 2, 3], aggs))
}

/// `t1 ⋈ t2` on the third column of one and the key of the other.
fn on(g: &Graph, l: NodeId, r: NodeId) -> Expr {
    let key = g.schema(r).expr(0).shifted(g.schema(l).len());
    g.schema(l).expr(2).equals(key)
}

fn inner_join(g: &mut Graph) -> Result<NodeId> {
    let (l, r) = (g.add(table(1, 5))?, g.add(table(2, 3))?);
    let on = on(g, l, r);
    g.add(Join::new(l, r, on))
}

fn left_join(g: &mut Graph) -> Result<NodeId> {
    let (l, r) = (g.add(table(1, 5))?, g.add(table(2, 3))?);
    let on = on(g, l, r);
    g.add(OuterJoin::left(l, r, on))
}

fn distinct(g: &mut Graph) -> Result<NodeId> {
    let p = project(g)?;
    g.add(Distinct::new(p))
}

fn join_aggregate(g: &mut Graph) -> Result<NodeId> {
    let j = inner_join(g)?;
    let sum = call("sum", g, j, 4)?;
    g.add(Reduce::new(j, vec![6], vec![sum, AggCall::count_star()]))
}

fn union_all(g: &mut Graph, n: u32) -> Result<NodeId> {
    let tables = (1..=n).map(|id| g.add(table(id, 5))).collect::<Result<Vec<_>>>()?;
    g.add(Union::new(tables))
}

/// ΔQ with every source changed, as a stream table's first compilation needs it.
fn differentiate(mut graph: Graph, root: NodeId) -> Result<NodeId> {
    let query = prepare(&mut graph, root)?;
    let stored = stored(&graph, query, Keep::Nested);
    let delta = Differ::new(&mut graph, stored, None, Rules::Algebraic).delta(query)?;
    optimize(&mut graph, delta)
}

const QUERIES: &[(&str, Query)] = &[
    ("scan_3_columns", |g| g.add(table(1, 3))),
    ("scan_10_columns", |g| g.add(table(1, 10))),
    ("scan_20_columns", |g| g.add(table(1, 20))),
    ("filter", filter),
    ("project", project),
    ("aggregate_simple", aggregate_simple),
    ("aggregate_complex", aggregate_complex),
    ("inner_join", inner_join),
    ("left_join", left_join),
    ("distinct", distinct),
    ("union_all_2", |g| union_all(g, 2)),
    ("union_all_5", |g| union_all(g, 5)),
    ("union_all_10", |g| union_all(g, 10)),
    ("join_aggregate", join_aggregate),
];

fn operators(c: &mut Criterion) {
    let mut group = c.benchmark_group("diff_operators");
    for (name, query) in QUERIES {
        let mut graph = Graph::new();
        let root = match query(&mut graph).and_then(|root| differentiate(graph.clone(), root).map(|_| root)) {
            Ok(root) => root,
            // A benchmark that cannot run must not look like a fast one.
            Err(e) => {
                eprintln!("{name}: {e}");
                std::process::exit(1);
            }
        };
        group.bench_function(*name, |b| {
            b.iter_batched(
                || graph.clone(),
                |graph| differentiate(black_box(graph), black_box(root)),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(200).measurement_time(Duration::from_secs(10));
    targets = operators
}
criterion_main!(benches);
