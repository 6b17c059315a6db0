//! The law of a recomputed part ([`delta::part`]).

use super::Sample;
use super::laws::{Violation, tolerate};
use crate::catalog::{ColumnDef, TableDef, TableId};
use crate::delta::{self, Captured, Differ, Keep, Rules};
use crate::error::Result;
use crate::eval::{self, Database, Row, ZSet};
use crate::expr::Expr;
use crate::graph::{Column, Format, NodeId, explain};
use crate::opt::optimize;
use crate::rel::{Rel, Table};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Checks the law of [`delta::part`] for every column of every table that the query reads. The changes of
/// rows with one value in the column are captured. All other rows of the table come or go without being
/// captured. Returns whether the query shows such a column.
///
/// # Errors
/// Fails with the violation, or if a plan breaks an operator's contract.
pub fn check_part(sample: &Sample, db: &Database) -> Result<bool, Violation> {
    let broken =
        |e: crate::Error| Violation { law: "plans keep their contracts".into(), detail: e.to_string() };
    let mut found = false;
    let mut tables = BTreeSet::new();
    for id in sample.graph.reachable(sample.root) {
        let Rel::Table(t) = sample.graph.rel(id) else { continue };
        if !tables.insert(t.def().id) {
            continue;
        }
        for column in t.columns() {
            for came in [false, true] {
                let Some(case) = PartCase::new(t.def(), *column, came, db) else { continue };
                for keep in [Keep::Result, Keep::Nested] {
                    found |= case.check(sample, keep).map_err(broken)??;
                }
            }
        }
    }
    Ok(found)
}

/// A table, of which some changes are captured and others are not.
struct PartCase {
    captured: Captured,
    /// The state that is stored.
    former: Database,
    /// The captured changes, and the present rows.
    db: Database,
}

impl PartCase {
    fn new(def: &Arc<TableDef>, column: usize, came: bool, db: &Database) -> Option<PartCase> {
        let (source, ty) = (def.id, def.columns.get(column)?.ty.clone());
        let old = db.before.get(&source)?;
        let value = old.iter().next()?.0.get(column)?.clone();
        if !ty.has_equality() {
            return None;
        }
        let stays = Expr::column(column, ty.clone()).same_as(Expr::literal(value, ty));
        let is_captured = |row: &Row| eval::is_true(&stays, row).unwrap_or(false);
        let delta = db.delta.get(&source).cloned().unwrap_or_default();
        // If other rows came, the other rows of the table are those that the change inserts. Otherwise all
        // other rows have gone.
        let mut now = ZSet::new();
        let both = old.iter().chain(delta.iter()).filter(|(row, _)| is_captured(row));
        both.for_each(|(row, w)| now.add(row.clone(), w));
        let other = delta.iter().filter(|(row, w)| came && *w > 0 && !is_captured(row));
        other.for_each(|(row, w)| now.add(row.clone(), w));
        let former = db.before();
        let mut db = db.clone();
        db.before.insert(source, now.minus(&delta));
        let others = came.then(|| stays.clone().is_true().negated());
        Some(PartCase { captured: Captured { source, stays, others }, former, db })
    }

    fn check(&self, sample: &Sample, keep: Keep) -> Result<std::result::Result<bool, Violation>> {
        let mut graph = sample.graph.clone();
        let query = optimize(&mut graph, sample.root)?;
        let query = delta::prepare(&mut graph, query)?;
        let query = optimize(&mut graph, query)?;
        let kept = delta::kept(&mut graph, query, keep)?;
        let nodes: Vec<NodeId> = kept.stored.iter().copied().collect();
        let mut differ = Differ::new(&mut graph, kept, None, Rules::Algebraic);
        let Some(mut changes) = delta::part(&mut differ, &nodes, &self.captured)? else {
            return Ok(Ok(false));
        };
        // The stored rows are those of the former state, which the tables do not show any more.
        let (mut db, mut stored) = (self.db.clone(), Vec::new());
        for (n, id) in nodes.iter().zip((0..u32::MAX).rev().map(TableId)) {
            let Some(rows) = tolerate(eval::eval(&graph, *n, &self.former))? else { return Ok(Ok(true)) };
            let column = |c: &Column| ColumnDef::new(&*c.label, c.ty.clone(), c.nullable);
            let columns = graph.schema(*n).columns().iter().map(column).collect();
            let table = graph.add(Table::new(Arc::new(TableDef::new(id, "", "stored", columns))))?;
            db.before.insert(id, rows.clone());
            stored.push((*n, table, rows));
        }
        for change in &mut changes {
            *change = graph.rebuild(*change, |g, _, rel| match &rel {
                Rel::State(s) => Ok(stored.iter().find(|(n, ..)| *n == s.of()).map_or(query, |(_, t, _)| *t)),
                _ => g.add(rel),
            })?;
        }
        let changes = crate::opt::Optimizer::default().optimize(&mut graph, &changes)?;
        for ((node, _, rows), change) in stored.iter().zip(changes) {
            let change = tolerate(eval::eval(&graph, change, &db))?;
            let after = tolerate(eval::eval(&graph, *node, &self.db))?;
            let (Some(change), Some(after)) = (change, after) else { return Ok(Ok(true)) };
            let mut made = rows.clone();
            made.add_zset(&change);
            if made != after {
                let text = explain(&graph, *node, Format::Text);
                let detail = format!(
                    "captured: {:?}\nstored:\n{rows}change:\n{change}after:\n{after}query:\n{text}",
                    self.captured
                );
                return Ok(Err(Violation {
                    law: "the part of uncaptured rows is recomputed".into(),
                    detail,
                }));
            }
        }
        Ok(Ok(true))
    }
}
