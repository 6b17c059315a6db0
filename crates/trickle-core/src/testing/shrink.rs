//! The reduction of a counterexample to a small one.

use super::Sample;
use crate::eval::{Database, ZSet};
use crate::graph::NodeId;

/// Returns the smallest sample and data found for which `fails` is still true. The search drops rows, cuts
/// the plan to a part of it, and bypasses operators. The search makes at most `budget` attempts.
pub fn shrink(
    sample: Sample,
    db: Database,
    budget: usize,
    fails: impl Fn(&Sample, &Database) -> bool,
) -> (Sample, Database) {
    let (mut sample, mut db) = (sample, db);
    let mut left = budget;
    loop {
        let next = smaller_plans(&sample)
            .into_iter()
            .map(|s| (s, db.clone()))
            .chain(smaller_data(&db).into_iter().map(|d| (sample.clone(), d)));
        let mut found = None;
        for (s, d) in next {
            if left == 0 {
                return (sample, db);
            }
            left -= 1;
            if fails(&s, &d) {
                found = Some((s, d));
                break;
            }
        }
        match found {
            Some((s, d)) => (sample, db) = (s, d),
            None => return (sample, db),
        }
    }
}

/// Returns the parts of the plan, smallest first, then the plans with one operator bypassed.
pub(super) fn smaller_plans(sample: &Sample) -> Vec<Sample> {
    let nodes = sample.graph.reachable(sample.root);
    let mut plans: Vec<Sample> = nodes
        .iter()
        .filter(|n| **n != sample.root && sample.graph.props(**n).non_negative)
        .map(|n| Sample { graph: sample.graph.clone(), root: *n })
        .collect();
    for target in &nodes {
        for input in sample.graph.inputs(*target).iter().copied() {
            if sample.graph.schema(input).same_types(sample.graph.schema(*target)) {
                plans.extend(bypass(sample, *target, input));
            }
        }
    }
    plans
}

fn bypass(sample: &Sample, target: NodeId, by: NodeId) -> Option<Sample> {
    let mut graph = sample.graph.clone();
    let root = graph.rebuild(sample.root, |g, id, rel| {
        if id == target {
            rel.as_operator()
                .inputs()
                .into_iter()
                .find(|i| g.schema(*i).same_types(g.schema(by)))
                .map_or_else(|| g.add(rel.clone()), Ok)
        } else {
            g.add(rel)
        }
    });
    root.ok().filter(|r| *r != sample.root).map(|root| Sample { graph, root })
}

/// Returns databases with one row less, in the state before the change or in the change. A row that the
/// change deletes is removed from both.
pub(super) fn smaller_data(db: &Database) -> Vec<Database> {
    let mut out = Vec::new();
    for (table, rows) in &db.before {
        for (row, w) in rows.iter() {
            let mut d = db.clone();
            d.before.insert(*table, without(rows, row));
            if let Some(delta) = d.delta.get(table) {
                let deleted = delta.iter().any(|(r, dw)| r == row && dw == -w);
                let changed = delta.iter().any(|(r, _)| r == row);
                if changed && !deleted {
                    continue;
                }
                let rest = without(delta, row);
                d.delta.insert(*table, rest);
            }
            out.push(d);
        }
    }
    for (table, rows) in &db.delta {
        for (row, _) in rows.iter() {
            let mut d = db.clone();
            d.delta.insert(*table, without(rows, row));
            out.push(d);
        }
    }
    out
}

fn without(rows: &ZSet, row: &crate::eval::Row) -> ZSet {
    let mut out = ZSet::new();
    for (r, w) in rows.iter() {
        if r != row {
            out.add(r.clone(), w);
        }
    }
    out
}
