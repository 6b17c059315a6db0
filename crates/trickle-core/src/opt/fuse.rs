//! Fuses maps and filters with each other, and moves filters below operators that pass on the columns that
//! the condition reads.

use crate::error::Result;
use crate::expr::{Expr, Volatility};
use crate::graph::{Graph, NodeId};
use crate::rel::{Expand, Filter, Join, Map, Negate, OuterJoin, Rel, Union, Window};

pub(super) fn rule(graph: &mut Graph, id: NodeId) -> Result<Option<NodeId>> {
    let node = graph.shared(id);
    match node.rel() {
        Rel::Map(m) => map(graph, m),
        Rel::Filter(f) => filter(graph, f),
        _ => Ok(None),
    }
}

fn map(graph: &mut Graph, m: &Map) -> Result<Option<NodeId>> {
    let input = m.input();
    let identity = m.exprs().len() == graph.schema(input).len()
        && m.exprs().iter().enumerate().all(|(i, e)| e.as_column() == Some(i));
    if identity {
        return Ok(Some(input));
    }
    let below = graph.shared(input);
    let Rel::Map(inner) = below.rel() else { return Ok(None) };
    // The fused map must not compute an expression more often than the two maps did.
    let mut uses = vec![0usize; inner.exprs().len()];
    m.exprs().iter().for_each(|e| e.each_column(|c| uses[c] += 1));
    let cheap = |i: usize, e: &Expr| e.as_column().is_some() || e.as_literal().is_some() || uses[i] <= 1;
    let still = |e: &Expr| e.volatility() == Volatility::Immutable;
    if !inner
        .exprs()
        .iter()
        .enumerate()
        .all(|(i, e)| cheap(i, e) && still(e) && (uses[i] > 0 || !e.can_raise()))
    {
        return Ok(None);
    }
    let labels = below.schema();
    let named =
        m.exprs().iter().enumerate().map(|(i, e)| match (m.labels().and_then(|l| l.get(i)), e.as_column()) {
            (Some(l), _) => l.clone(),
            (None, Some(c)) => labels.column(c).map_or_else(|| "column".into(), |c| c.label.clone()),
            (None, None) => "column".into(),
        });
    let exprs: Vec<Expr> = m.exprs().iter().map(|e| e.substitute(inner.exprs())).collect();
    if exprs.iter().any(|e| e.reads_clock() && e.can_raise()) {
        return Ok(None);
    }
    graph.add(Map::new(inner.input(), exprs).labelled(named.collect())).map(Some)
}

fn filter(graph: &mut Graph, f: &Filter) -> Result<Option<NodeId>> {
    if f.predicate().conjuncts().is_empty() {
        return Ok(Some(f.input()));
    }
    if f.predicate().volatility() == Volatility::Volatile {
        return Ok(None);
    }
    // A filter whose condition can raise is not moved. In its present place, the condition is not evaluated
    // for rows that are dropped below. Further down, or joined to another condition, the condition would be
    // evaluated for such rows.
    let moves = !f.predicate().can_raise();
    let input = graph.shared(f.input());
    match input.rel() {
        Rel::Filter(inner) if moves => graph
            .add(Filter::new(inner.input(), Expr::and([inner.predicate().clone(), f.predicate().clone()])))
            .map(Some),
        Rel::Map(m) if moves && f.predicate().reads_only(|c| m.exprs()[c].as_column().is_some()) => {
            let below = graph.add(Filter::new(m.input(), f.predicate().substitute(m.exprs())))?;
            let above = crate::rel::Relational::with_inputs(m, &[below]);
            graph.add(above).map(Some)
        }
        Rel::Union(u) if moves => {
            let mut parts = Vec::new();
            for s in u.summands() {
                parts.push(graph.add(Filter::new(*s, f.predicate().clone()))?);
            }
            graph.add(Union::new(parts)).map(Some)
        }
        Rel::Negate(n) if moves => {
            let below = graph.add(Filter::new(n.input(), f.predicate().clone()))?;
            graph.add(Negate::new(below)).map(Some)
        }
        Rel::Join(j) if moves => into_join(graph, f, j).map(Some),
        Rel::Expand(e) if moves => below_expand(graph, f, e),
        Rel::OuterJoin(o) if moves && !o.is_full() => into_kept_side(graph, f, o),
        Rel::Window(w) if moves => into_partitions(graph, f, w),
        Rel::SemiJoin(s) if moves => {
            let below = graph.add(Filter::new(s.left(), f.predicate().clone()))?;
            let above = crate::rel::Relational::with_inputs(s, &[below, s.right()]);
            graph.add(above).map(Some)
        }
        _ => Ok(None),
    }
}

/// Moves a conjunct to an input of the join if the conjunct reads only this input. Moves the other conjuncts
/// into the join condition. Conjuncts that read the clock stay above the join, since a join must not read the
/// clock.
fn into_join(graph: &mut Graph, f: &Filter, j: &Join) -> Result<NodeId> {
    let width = graph.schema(j.left()).len();
    let (mut left, mut right, mut both, mut above) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for term in f.predicate().conjuncts() {
        let reads = !term.reads_only(|_| false);
        if reads && term.reads_only(|c| c < width) {
            left.push(term);
        } else if reads && term.reads_only(|c| c >= width) {
            right.push(term.map_columns(|c| c - width));
        } else if term.reads_clock() {
            above.push(term);
        } else {
            both.push(term);
        }
    }
    let mut side = |node: NodeId, terms: Vec<Expr>| {
        if terms.is_empty() { Ok(node) } else { graph.add(Filter::new(node, Expr::and(terms))) }
    };
    let (l, r) = (side(j.left(), left)?, side(j.right(), right)?);
    let joined = graph.add(Join::new(l, r, Expr::and([j.on().clone()].into_iter().chain(both))))?;
    if above.is_empty() { Ok(joined) } else { graph.add(Filter::new(joined, Expr::and(above))) }
}

/// Moves a conjunct below the window if it reads only partition columns. Such a conjunct keeps or drops whole
/// partitions.
fn into_partitions(graph: &mut Graph, f: &Filter, w: &Window) -> Result<Option<NodeId>> {
    let (below, above): (Vec<Expr>, Vec<Expr>) = f
        .predicate()
        .conjuncts()
        .into_iter()
        .partition(|t| t.respects_equality() && t.reads_only(|c| w.partition().contains(&c)));
    if below.is_empty() {
        return Ok(None);
    }
    let input = graph.add(Filter::new(w.input(), Expr::and(below)))?;
    let windows = graph.add(crate::rel::Relational::with_inputs(w, &[input]))?;
    match above.is_empty() {
        true => Ok(Some(windows)),
        false => graph.add(Filter::new(windows, Expr::and(above))).map(Some),
    }
}

/// Moves a conjunct below the expansion if it reads only columns of the input. Such a conjunct keeps or drops
/// all output rows of an input row together.
fn below_expand(graph: &mut Graph, f: &Filter, e: &Expand) -> Result<Option<NodeId>> {
    let width = graph.schema(e.input()).len();
    let (below, above): (Vec<Expr>, Vec<Expr>) =
        f.predicate().conjuncts().into_iter().partition(|t| t.reads_only(|c| c < width));
    if below.is_empty() {
        return Ok(None);
    }
    let input = graph.add(Filter::new(e.input(), Expr::and(below)))?;
    let expanded = graph.add(crate::rel::Relational::with_inputs(e, &[input]))?;
    match above.is_empty() {
        true => Ok(Some(expanded)),
        false => graph.add(Filter::new(expanded, Expr::and(above))).map(Some),
    }
}

/// Moves a conjunct below a left join, to the left input, if the conjunct reads only this input. A left row
/// for which such a conjunct is not true has no output row in either plan.
fn into_kept_side(graph: &mut Graph, f: &Filter, o: &OuterJoin) -> Result<Option<NodeId>> {
    let width = graph.schema(o.left_input()).len();
    let (below, above): (Vec<Expr>, Vec<Expr>) =
        f.predicate().conjuncts().into_iter().partition(|t| t.reads_only(|c| c < width));
    if below.is_empty() {
        return Ok(None);
    }
    let left = graph.add(Filter::new(o.left_input(), Expr::and(below)))?;
    let joined = graph.add(OuterJoin::left(left, o.right_input(), o.on().clone()))?;
    if above.is_empty() {
        Ok(Some(joined))
    } else {
        graph.add(Filter::new(joined, Expr::and(above))).map(Some)
    }
}
