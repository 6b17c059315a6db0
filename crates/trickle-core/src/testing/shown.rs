//! The law about the value that a query returns when several values are equal.

use super::{Sample, Violation};
use crate::delta;
use crate::eval::{self, Database, ZSet, is_true};
use crate::graph::{Format, Graph, NodeId, explain};
use crate::rel::{Reduce, Rel};
use crate::types::Datum;
use std::collections::BTreeSet;

/// Checks the row, key or extremum that an operator returns when several are equal. The operator's input must
/// contain a value with the same image. The check is made for the query and for the plan that is
/// differentiated.
///
/// # Errors
/// Fails with the operator that returns another value.
pub fn check_shown(sample: &Sample, db: &Database) -> Result<(), Violation> {
    let mut graph = sample.graph.clone();
    let law = |what: &str| format!("what {what} shows is there");
    let bug = |e: crate::Error| Violation { law: law("prepare"), detail: e.to_string() };
    let prepared = delta::prepare(&mut graph, sample.root).map_err(bug)?;
    let mut evaluator = super::laws::within(&graph, db);
    for id in graph.reachable_from(&[sample.root, prepared]) {
        let Some(keys) = grouped(&graph, id) else { continue };
        let (Ok(rows), Ok(input)) = (evaluator.eval(id), evaluator.eval(graph.inputs(id)[0])) else {
            continue;
        };
        let there: BTreeSet<Vec<Datum>> =
            present(&input, |row| keys.iter().map(|k| row[*k].clone()).collect());
        let strange = |row: &[Datum]| !keys.is_empty() && !there.contains(&row[..keys.len()]);
        let extremes = match graph.rel(id) {
            Rel::Reduce(r) => extremes(r, &input),
            _ => Vec::new(),
        };
        let odd = |row: &[Datum]| extremes.iter().any(|(c, values)| !values.contains(&row[*c]));
        if rows.iter().any(|(row, _)| strange(row) || odd(row)) {
            let plan = explain(&graph, id, Format::Text);
            let detail = format!("input:\n{input}shown:\n{rows}{plan}");
            return Err(Violation { law: law(graph.node(id).op().name()), detail });
        }
    }
    Ok(())
}

/// Returns the columns of an operator's first input whose equal values the operator merges. These columns are
/// also the first columns of the operator's rows.
fn grouped(graph: &Graph, id: NodeId) -> Option<Vec<usize>> {
    match graph.rel(id) {
        Rel::Distinct(_) | Rel::Positive(_) | Rel::SetOp(_) => Some((0..graph.schema(id).len()).collect()),
        Rel::Reduce(r) => Some(r.keys().to_vec()),
        Rel::Accumulate(a) => Some(a.keys().to_vec()),
        _ => None,
    }
}

fn present<T: Ord>(input: &ZSet, f: impl Fn(&[Datum]) -> T) -> BTreeSet<T> {
    input.iter().filter(|(_, w)| *w > 0).map(|(row, _)| f(row)).collect()
}

/// Returns, for each `min` or `max` of an operator, the position of its column, and the values that the call
/// may return. NULL is one of these values.
fn extremes(r: &Reduce, input: &ZSet) -> Vec<(usize, BTreeSet<Datum>)> {
    let calls = r.aggs().iter().enumerate().filter(|(_, c)| matches!(&*c.sig.name, "min" | "max"));
    let values = |call: &crate::agg::AggCall| {
        let counts = |row: &[Datum]| call.filter.as_ref().is_none_or(|f| is_true(f, row).unwrap_or(true));
        let value = |row: &[Datum]| call.args.first().and_then(|e| eval::expr(e, row).ok());
        let one = |row: &[Datum]| value(row).filter(|_| counts(row)).unwrap_or(Datum::Null);
        present(input, one).into_iter().chain([Datum::Null]).collect()
    };
    calls.map(|(i, call)| (r.keys().len() + i, values(call))).collect()
}
