//! Plans and data for a table that references another table: every pair of states that satisfies the foreign
//! key.

use super::Sample;
use crate::catalog::{ColumnDef, ForeignKey, TableDef, TableId};
use crate::error::Result;
use crate::eval::{Database, Row, ZSet};
use crate::expr::Expr;
use crate::graph::Graph;
use crate::rel::{Filter, Join, Table};
use crate::types::{Datum, Type};
use std::sync::Arc;

fn table(id: u32, name: &str, columns: [(&str, bool); 2], foreign_keys: Vec<ForeignKey>) -> Arc<TableDef> {
    let column = |(name, nullable): (&str, bool)| ColumnDef::new(name, Type::Int4, nullable);
    let table = TableDef::new(TableId(id), "public", name, columns.map(column).to_vec());
    Arc::new(TableDef { keys: vec![vec![0]], foreign_keys, ..table })
}

/// Makes `child ⋈ parent` on the foreign key in both orders, with and without a filter on the referencing
/// table.
///
/// # Errors
/// Fails if a plan breaks an operator's contract.
pub fn foreign_key_plans() -> Result<Vec<Sample>> {
    let parent = table(1, "parent", [("id", false), ("v", true)], vec![]);
    let reference =
        ForeignKey { columns: vec![1], target: TableId(1), target_columns: vec![0], validated: true };
    let child = table(2, "child", [("id", false), ("parent_id", true)], vec![reference]);
    let mut plans = Vec::new();
    for filtered in [false, true] {
        for swapped in [false, true] {
            let mut graph = Graph::new();
            let (p, mut c) = (graph.add(Table::new(parent.clone()))?, graph.add(Table::new(child.clone()))?);
            if filtered {
                let zero = graph.schema(c).expr(0).equals(Expr::literal(Datum::Int(0), Type::Int4));
                c = graph.add(Filter::new(c, zero))?;
            }
            let (l, r, a, b) = if swapped { (p, c, 0, 3) } else { (c, p, 1, 2) };
            let both = graph.schema(l).concat(graph.schema(r));
            let root = graph.add(Join::new(l, r, both.expr(a).equals(both.expr(b))))?;
            plans.push(Sample { graph, root });
        }
    }
    Ok(plans)
}

/// Makes every pair of states with at most two parents and two children in which every reference has its
/// parent.
pub fn foreign_key_databases() -> Vec<Database> {
    let values = [Datum::Null, Datum::Int(0), Datum::Int(1)];
    let side = || -> Vec<ZSet> {
        let choices: Vec<Option<&Datum>> = [None].into_iter().chain(values.iter().map(Some)).collect();
        let row = |id: i64, v: &Datum| -> Row { [Datum::Int(id), v.clone()].into_iter().collect() };
        let pairs = choices.iter().flat_map(|a| choices.iter().map(move |b| (*a, *b)));
        pairs
            .map(|(a, b)| [(0, a), (1, b)].into_iter().filter_map(|(id, v)| Some((row(id, v?), 1))).collect())
            .collect()
    };
    let (parents, children) = (side(), side());
    let honoured = |p: &ZSet, c: &ZSet| {
        c.iter().all(|(row, _)| row[1].is_null() || p.iter().any(|(parent, _)| parent[0] == row[1]))
    };
    let states: Vec<(&ZSet, &ZSet)> = parents
        .iter()
        .flat_map(|p| children.iter().map(move |c| (p, c)))
        .filter(|(p, c)| honoured(p, c))
        .collect();
    let mut all = Vec::new();
    for before in &states {
        for after in &states {
            let mut db = Database::default();
            for (id, old, new) in [(1, before.0, after.0), (2, before.1, after.1)] {
                let mut delta = new.clone();
                delta.add_zset(&old.negate());
                db.before.insert(TableId(id), old.clone());
                db.delta.insert(TableId(id), delta);
            }
            all.push(db);
        }
    }
    all
}
