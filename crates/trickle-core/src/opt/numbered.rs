//! Limits the input of a window whose row number is compared with a bound: `σ number ≤ k (windows(R)) = σ
//! number ≤ k (windows(top k (R)))`.
//!
//! The number and the rank of a row depend only on the rows before this row. The limit keeps those rows too.

use crate::error::Result;
use crate::expr::evaluate;
use crate::expr::{Expr, ExprKind};
use crate::graph::{Graph, NodeId};
use crate::rel::{Filter, Rel, Relational, Slice, Top, Window};
use crate::types::Datum;

pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let node = graph.shared(id);
    let Rel::Filter(f) = node.rel() else { return Ok(None) };
    let below = graph.shared(f.input());
    let Rel::Window(w) = below.rel() else { return Ok(None) };
    let counts = |name: &str| matches!(name, "row_number" | "rank" | "dense_rank");
    let plain = w.calls().iter().all(|c| c.is_window_function() && counts(&c.call.sig.name));
    if !plain || matches!(graph.rel(w.input()), Rel::Top(_)) {
        return Ok(None);
    }
    let width = graph.schema(w.input()).len();
    let Some(slice) = f.predicate().conjuncts().iter().find_map(|term| most(term, w, width)) else {
        return Ok(None);
    };
    let first = graph.add(Top::new(w.input(), w.partition().to_vec(), w.order().to_vec(), slice))?;
    let windows = graph.add(w.with_inputs(&[first]))?;
    graph.add(Filter::new(windows, f.predicate().clone())).map(Some)
}

/// Returns the slice that contains all rows for which a condition on a row number or a rank can be true.
fn most(term: &Expr, w: &Window, width: usize) -> Option<Slice> {
    let ExprKind::Call(sig, args) = term.kind() else { return None };
    let ([column, bound], None) = (args.as_slice(), &sig.schema) else { return None };
    let call = w.calls().get(column.as_column()?.checked_sub(width)?)?;
    let ties = match &*call.call.sig.name {
        "row_number" => false,
        "rank" => true,
        _ => return None,
    };
    if !bound.is_constant() {
        return None;
    }
    let Ok(Datum::Int(n)) = evaluate::expr(bound, &[]) else { return None };
    let n = match &*sig.name {
        "<=" | "=" => n,
        "<" => n.checked_sub(1)?,
        _ => return None,
    };
    Some(Slice { offset: 0, limit: Some(u64::try_from(n).unwrap_or(0)), ties })
}
