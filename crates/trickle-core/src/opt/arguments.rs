//! Moves the arguments of aggregates from a map into the aggregate above it: `γ sum(e) (π … e … (R))` becomes
//! `γ sum(e') (π … (R))`. Here `e'` reads columns of R that the map passes on.
//!
//! Sums can be accumulated only if the scales of their values are known. The scales can be derived from an
//! expression, but not from a column.

use crate::agg::{AggCall, NullValue, ValueOf, facts};
use crate::error::Result;
use crate::expr::{Expr, Volatility};
use crate::graph::{Graph, NodeId};
use crate::rel::{Map, Reduce, Rel};
use crate::types::Type;

pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let node = graph.shared(id);
    let Rel::Reduce(r) = node.rel() else { return Ok(None) };
    let below = graph.shared(r.input());
    let Rel::Map(m) = below.rel() else { return Ok(None) };
    if !r.aggs().iter().any(|a| argument(a, m).is_some()) {
        return Ok(None);
    }
    let inner = graph.shared(m.input());
    let mut exprs = m.exprs().to_vec();
    let mut labels: Vec<_> = below.schema().columns().iter().map(|c| c.label.clone()).collect();
    let mut aggs = Vec::with_capacity(r.aggs().len());
    for call in r.aggs() {
        let Some(argument) = argument(call, m) else {
            aggs.push(call.clone());
            continue;
        };
        let mut place = |column: usize| {
            exprs.iter().position(|e| e.as_column() == Some(column)).unwrap_or_else(|| {
                exprs.push(inner.schema().expr(column));
                labels.extend(inner.schema().column(column).map(|c| c.label.clone()));
                exprs.len() - 1
            })
        };
        aggs.push(AggCall { args: vec![argument.map_columns(&mut place)], ..call.clone() });
    }
    let map = graph.add(Map::new(m.input(), exprs).labelled(labels))?;
    graph.add(Reduce::new(map, r.keys().to_vec(), aggs)).map(Some)
}

/// Returns the argument of a sum if the map's expression determines the scales of the values, and the map's
/// column does not.
fn argument(call: &AggCall, map: &Map) -> Option<Expr> {
    let facts = facts(&call.sig);
    // A count does not depend on the scales of the values.
    let totals = facts.value == ValueOf::Total && facts.null == NullValue::WithoutValues && !call.distinct;
    let [arg] = call.args.as_slice() else { return None };
    if !totals || *arg.ty() != Type::Numeric(None) || arg.scales().is_some() {
        return None;
    }
    let computed = arg.substitute(map.exprs());
    let moves = !computed.reads_clock()
        && computed.volatility() == Volatility::Immutable
        && (call.filter.is_none() || !computed.can_raise());
    (moves && computed.scales().is_some() && !computed.may_be_infinite()).then_some(computed)
}
