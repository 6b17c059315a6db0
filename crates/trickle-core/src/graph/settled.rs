//! Which columns a query leaves open in how they are written.

use super::{ColSet, Graph, NodeId, NodeMap};
use crate::agg::AggCall;
use crate::expr::Expr;
use crate::graph::Schema;
use crate::rel::Rel;

/// The columns of `root` whose values may be written in several ways, all of them right: of the equal values in a group,
/// under DISTINCT or in a set operation PostgreSQL shows any one, and so `max` may be 1.0 or 1.00.
///
/// Everywhere else the image of a result is a function of the images of the tables.
pub fn unsettled(graph: &Graph, root: NodeId) -> ColSet {
    let mut open: NodeMap<ColSet> = NodeMap::new();
    for id in graph.reachable(root) {
        let inputs: Vec<(ColSet, &Schema)> = graph
            .inputs(id)
            .iter()
            .map(|i| (open.get_ref(*i).cloned().unwrap_or_default(), graph.schema(*i)))
            .collect();
        let mine = of(graph.rel(id), &inputs, graph.schema(id));
        open.insert(id, mine);
    }
    open.remove(root).unwrap_or_default()
}

/// Whether the rows of `root` depend on an order that the query leaves open: which of several equal rows LIMIT keeps, or a
/// window function numbers first.
pub fn leaves_order_open(graph: &Graph, root: NodeId) -> bool {
    graph.reachable(root).into_iter().any(|id| match graph.rel(id) {
        Rel::Top(t) => t.order().iter().any(|k| k.settles),
        Rel::Window(w) => w.order().iter().any(|k| k.settles),
        _ => false,
    })
}

fn of(rel: &Rel, inputs: &[(ColSet, &Schema)], schema: &Schema) -> ColSet {
    let inexact = || (0..schema.len()).filter(|c| !schema.columns()[*c].ty.is_exact()).collect::<ColSet>();
    let reads = |e: &Expr| {
        let mut any = false;
        e.each_column(|c| any |= inputs.first().is_some_and(|(open, _)| open.contains(c)));
        any
    };
    let chosen = |keys: &[usize], values: &mut dyn Iterator<Item = bool>| {
        let keys = keys.iter().map(|k| {
            inputs.first().is_none_or(|(open, s)| open.contains(*k) || !s.columns()[*k].ty.is_exact())
        });
        let all: Vec<bool> = keys.chain(values).collect();
        (0..all.len()).filter(|i| all[*i]).collect::<ColSet>()
    };
    match (rel, inputs) {
        (Rel::Map(m), _) => (0..m.exprs().len()).filter(|i| reads(&m.exprs()[*i])).collect(),
        (Rel::Join(_) | Rel::OuterJoin(_), [(left, l), (right, _)]) => left.union(&right.shifted(l.len())),
        (Rel::Distinct(_) | Rel::SetOp(_) | Rel::Positive(_) | Rel::Keys(_) | Rel::Single(_), _) => {
            let below = inputs.iter().fold(ColSet::new(), |all, (open, _)| all.union(open));
            inexact().union(&below)
        }
        (Rel::Reduce(r), _) => {
            chosen(r.keys(), &mut r.aggs().iter().map(|call| chooses(call) || call.exprs().any(reads)))
        }
        (Rel::Accumulate(a), _) => {
            chosen(a.keys(), &mut a.accs().iter().map(|acc| acc.value.iter().chain(&acc.filter).any(reads)))
        }
        (Rel::Window(w), [(below, s)]) => {
            let calls = w
                .calls()
                .iter()
                .map(|c| (!c.is_window_function() && chooses(&c.call)) || c.exprs().any(reads));
            let open = calls.enumerate().filter(|(_, open)| *open).map(|(i, _)| s.len() + i);
            below.iter().chain(open).collect()
        }
        (Rel::SemiJoin(_), [(left, _), _]) => left.clone(),
        _ => inputs.iter().fold(ColSet::new(), |all, (open, _)| all.union(open)),
    }
}

/// Whether the call picks one of several equal values, or an order among them.
fn chooses(call: &AggCall) -> bool {
    let total = matches!(&*call.sig.name, "sum" | "avg" | "count") && !call.distinct;
    !total && call.exprs().any(|e| !e.is_exact())
}
