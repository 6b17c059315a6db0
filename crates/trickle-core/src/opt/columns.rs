//! Drops columns that no reader needs.

use crate::agg::Acc;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::graph::{ColSet, Graph, NodeId, NodeMap, Schema};
use crate::rel::{
    Accumulate, Expand, Filter, Join, Map, Negate, OuterJoin, Recursion, Reduce, Rel, Relational, SemiJoin,
    Top, Union, Window,
};
use crate::window::OrderKey;

/// A node that was pruned, in place of an old node.
struct Pruned {
    node: NodeId,
    /// Those columns of the old node that the pruned node keeps, in the same order.
    kept: ColSet,
}

impl Pruned {
    fn at(&self, old: usize) -> usize {
        self.kept.rank(old).unwrap_or(0)
    }
    fn expr(&self, e: &Expr) -> Expr {
        e.map_columns(|c| self.at(c))
    }
}

/// Prunes the plans under `roots`. All columns of the roots stay.
pub(super) fn rule(graph: &mut Graph, roots: &[NodeId]) -> Result<Vec<NodeId>> {
    let order = graph.reachable_from(roots);
    let mut needs: NodeMap<ColSet> = NodeMap::new();
    for root in roots {
        needs.insert(*root, ColSet::all(graph.schema(*root).len()));
    }
    let mut whole = true;
    for id in order.iter().rev() {
        let width = graph.schema(*id).len();
        let mut mine = std::mem::take(needs.entry(*id));
        if mine.is_empty() && width > 0 {
            // If the rows of a relation are only counted, the relation keeps one column.
            mine = ColSet::all(1);
        }
        whole &= mine.len() == width;
        required(graph, *id, &mine, |input, cols| needs.entry(input).extend(cols));
        needs.insert(*id, mine);
    }
    if whole {
        return Ok(roots.to_vec());
    }
    let mut done: NodeMap<Pruned> = NodeMap::new();
    for id in order {
        let mine = needs.remove(id).unwrap_or_default();
        let pruned = prune(graph, id, &mine, &done)?;
        done.insert(id, pruned);
    }
    let mut made = Vec::new();
    for root in roots {
        let top = done.get_ref(*root).ok_or_else(|| Error::internal("a root was not pruned"))?;
        made.push(exactly(graph, top, 0..graph.schema(*root).len())?);
    }
    Ok(made)
}

/// Calls `need` for each input of a node, with the columns of this input from which the node's columns `mine`
/// are computed.
fn required(graph: &Graph, id: NodeId, mine: &ColSet, mut need: impl FnMut(NodeId, &ColSet)) {
    match graph.rel(id) {
        Rel::Map(m) => need(m.input(), &read(mine.iter().map(|i| &m.exprs()[i]))),
        Rel::Filter(f) => need(f.input(), &read([f.predicate()]).union(mine)),
        Rel::Expand(e) => {
            let passed = mine.iter().filter(|c| *c < graph.schema(e.input()).len()).collect();
            need(e.input(), &read(e.calls().iter().flat_map(|c| &c.args)).union(&passed));
        }
        Rel::Join(j) => of_sides(graph, (j.left(), j.right()), j.on(), mine, need),
        Rel::OuterJoin(o) => of_sides(graph, (o.left_input(), o.right_input()), o.on(), mine, need),
        Rel::SemiJoin(s) => of_sides(graph, (s.left(), s.right()), s.on(), mine, need),
        Rel::Reduce(r) => {
            let shown = |i: usize| mine.contains(r.keys().len() + i) || r.upkeep_reads(i);
            let aggs = r.aggs().iter().enumerate().filter(|(i, _)| shown(*i));
            need(r.input(), &read(aggs.flat_map(|(_, agg)| agg.exprs())).union(&r.keys().into()));
        }
        Rel::Top(t) => {
            let used = mine.union(&t.partition().into());
            need(t.input(), &used.union(&t.order().iter().map(|k| k.column).collect()));
        }
        Rel::Window(w) => {
            let width = graph.schema(w.input()).len();
            let calls = w.calls().iter().enumerate().filter(|(i, _)| mine.contains(width + i));
            let mut used = read(calls.flat_map(|(_, call)| call.exprs()));
            used.extend(&mine.iter().filter(|c| *c < width).collect());
            used.extend(&w.partition().into());
            used.extend(&w.order().iter().map(|k| k.column).collect());
            need(w.input(), &used);
        }
        Rel::Accumulate(a) => {
            let exprs = a.accs().iter().flat_map(|a| a.value.iter().chain(&a.filter));
            need(a.input(), &read(exprs).union(&a.keys().into()));
        }
        Rel::Recursion(r) => of_recursion(graph, id, r, need),
        Rel::Revise(r) => need(r.input(), &read(r.reads(&r.shown(mine)))),
        Rel::Union(_) | Rel::Negate(_) => graph.inputs(id).iter().for_each(|i| need(*i, mine)),
        // All columns are needed. Weight thresholds compare whole rows, and keys are computed from whole
        // changed rows. A Consolidate may be the input of either.
        Rel::Table(_)
        | Rel::Values(_)
        | Rel::State(_)
        | Rel::Consolidate(_)
        | Rel::Distinct(_)
        | Rel::Keys(_)
        | Rel::Positive(_)
        | Rel::Single(_)
        | Rel::Widen(_)
        | Rel::SetOp(_) => {
            graph.inputs(id).iter().for_each(|i| need(*i, &ColSet::all(graph.schema(*i).len())));
        }
    }
}

/// Returns the columns that expressions read.
fn read<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> ColSet {
    let mut used = ColSet::new();
    exprs.into_iter().for_each(|e| e.each_column(|c| used.insert(c)));
    used
}

/// Calls `need` for both inputs of a join. The columns of the join are those of the left input, then those of
/// the right.
fn of_sides(
    graph: &Graph,
    (left, right): (NodeId, NodeId),
    on: &Expr,
    mine: &ColSet,
    mut need: impl FnMut(NodeId, &ColSet),
) {
    let used = read([on]).union(mine);
    let width = graph.schema(left).len();
    need(left, &used.iter().filter(|c| *c < width).collect());
    need(right, &used.iter().filter(|c| *c >= width).map(|c| c - width).collect());
}

/// Calls `need` for the inputs of a recursion. All inputs but the side contain rows of the result. All
/// columns of these inputs are needed.
fn of_recursion(graph: &Graph, id: NodeId, r: &Recursion, mut need: impl FnMut(NodeId, &ColSet)) {
    let width = graph.schema(r.base()).len();
    let used = read(r.exprs());
    let mut beside: ColSet = used.iter().filter(|c| *c >= width).map(|c| c - width).collect();
    // The delta of a recursion must tell the rows of the side apart. The smallest key of the side does so
    // with the fewest columns.
    if let Some(key) = graph.props(r.side()).keys.iter().min_by_key(|k| k.len()) {
        beside.extend(key);
    }
    need(r.side(), &beside);
    let rows = graph.inputs(id).iter().enumerate().filter(|(i, _)| *i != 1);
    rows.for_each(|(_, rows)| need(*rows, &ColSet::all(width)));
}

/// Returns the node with its columns `mine` over the pruned inputs.
fn prune(graph: &mut Graph, id: NodeId, mine: &ColSet, done: &NodeMap<Pruned>) -> Result<Pruned> {
    let node = graph.shared(id);
    let (rel, inputs) = (node.rel(), node.inputs());
    let width = graph.schema(id).len();
    let stays = |i: &NodeId| done.get_ref(*i).is_some_and(|p| p.node == *i);
    // In most plans, pruning changes only some nodes.
    if mine.len() == width && inputs.iter().all(stays) {
        return Ok(Pruned { node: id, kept: ColSet::all(width) });
    }
    let at = |i: usize| done.get_ref(inputs[i]).ok_or_else(not_pruned);
    Ok(match rel {
        Rel::Table(t) if mine.len() < width => {
            Pruned { node: graph.add(t.select(mine.iter()))?, kept: mine.clone() }
        }
        Rel::Map(m) => map(graph, m, node.schema(), mine, at(0)?)?,
        Rel::Filter(f) => {
            let input = at(0)?;
            let filter = Filter::new(input.node, input.expr(f.predicate()));
            Pruned { node: graph.add(filter)?, kept: input.kept.clone() }
        }
        Rel::Expand(e) => expand(graph, e, width, mine, at(0)?)?,
        Rel::Negate(_) => Pruned { node: graph.add(Negate::new(at(0)?.node))?, kept: at(0)?.kept.clone() },
        Rel::Union(_) => {
            let mut parts = Vec::new();
            for i in 0..inputs.len() {
                parts.push(exactly(graph, at(i)?, mine.iter())?);
            }
            Pruned { node: graph.add(Union::new(parts))?, kept: mine.clone() }
        }
        Rel::Join(_) | Rel::OuterJoin(_) | Rel::SemiJoin(_) => both_sides(graph, rel, at(0)?, at(1)?)?,
        Rel::Reduce(r) => reduce(graph, r, width, mine, at(0)?)?,
        Rel::Top(t) => top(graph, t, at(0)?)?,
        Rel::Window(w) => window(graph, w, mine, at(0)?)?,
        Rel::Accumulate(a) => accumulate(graph, a, width, at(0)?)?,
        Rel::Revise(r) => {
            let (input, kept) = (at(0)?, r.shown(mine));
            Pruned { node: graph.add(r.over(input.node, &kept, |e| input.expr(e)))?, kept }
        }
        Rel::Recursion(r) => {
            // Every column of a row may influence which rows are derived from the row.
            let side = at(1)?;
            let moved = r.beside(graph.schema(r.base()).len(), side.node, |c| side.at(c));
            let mut nodes = Vec::new();
            for i in 0..inputs.len() {
                nodes.push(if i == 1 { side.node } else { exactly(graph, at(i)?, 0..width)? });
            }
            Pruned { node: graph.add(moved.with_inputs(&nodes))?, kept: ColSet::all(width) }
        }
        Rel::Table(_)
        | Rel::Values(_)
        | Rel::State(_)
        | Rel::Consolidate(_)
        | Rel::Distinct(_)
        | Rel::Keys(_)
        | Rel::Positive(_)
        | Rel::Single(_)
        | Rel::Widen(_)
        | Rel::SetOp(_) => of_whole_inputs(graph, id, done)?,
    })
}

fn map(graph: &mut Graph, m: &Map, schema: &Schema, mine: &ColSet, input: &Pruned) -> Result<Pruned> {
    let exprs = mine.iter().map(|i| input.expr(&m.exprs()[i])).collect();
    let labels = mine.iter().map(|i| schema.columns()[i].label.clone()).collect();
    let labelled = m.labels().is_some();
    let map = Map::new(input.node, exprs);
    Ok(Pruned { node: graph.add(if labelled { map.labelled(labels) } else { map })?, kept: mine.clone() })
}

/// Keeps all calls of the operator, since the number of rows depends on every call. The ordinality column
/// does not influence the number of rows.
fn expand(graph: &mut Graph, e: &Expand, width: usize, mine: &ColSet, input: &Pruned) -> Result<Pruned> {
    let old = graph.schema(e.input()).len();
    let numbered = e.has_ordinality() && mine.contains(width - 1);
    let mut kept = input.kept.clone();
    (old..width - usize::from(e.has_ordinality() && !numbered)).for_each(|c| kept.insert(c));
    let expand = e.over(input.node, |c| input.at(c)).numbered(numbered);
    Ok(Pruned { node: graph.add(expand)?, kept })
}

fn reduce(graph: &mut Graph, r: &Reduce, width: usize, mine: &ColSet, input: &Pruned) -> Result<Pruned> {
    let n = r.keys().len();
    let kept: ColSet = (0..width).filter(|c| *c < n || mine.contains(*c) || r.upkeep_reads(c - n)).collect();
    let aggs = kept.iter().skip(n).map(|c| r.aggs()[c - n].map_exprs(|e| input.expr(e))).collect();
    let keys = r.keys().iter().map(|k| input.at(*k)).collect();
    Ok(Pruned { node: graph.add(Reduce::new(input.node, keys, aggs))?, kept })
}

fn top(graph: &mut Graph, t: &Top, input: &Pruned) -> Result<Pruned> {
    let partition = t.partition().iter().map(|c| input.at(*c)).collect();
    let order = t.order().iter().map(|k| OrderKey { column: input.at(k.column), ..*k }).collect();
    let top = Top::new(input.node, partition, order, t.slice());
    Ok(Pruned { node: graph.add(top)?, kept: input.kept.clone() })
}

fn accumulate(graph: &mut Graph, a: &Accumulate, width: usize, input: &Pruned) -> Result<Pruned> {
    let accs = a.accs().iter().map(|x| Acc {
        value: x.value.as_ref().map(|e| input.expr(e)),
        filter: x.filter.as_ref().map(|e| input.expr(e)),
        ty: x.ty.clone(),
    });
    let keys = a.keys().iter().map(|k| input.at(*k)).collect();
    let node = graph.add(a.over(input.node, keys, accs.collect()))?;
    Ok(Pruned { node, kept: ColSet::all(width) })
}

/// Returns the node over all columns of its inputs.
fn of_whole_inputs(graph: &mut Graph, id: NodeId, done: &NodeMap<Pruned>) -> Result<Pruned> {
    let node = graph.shared(id);
    let mut whole = Vec::new();
    for input in node.inputs() {
        let all = 0..graph.schema(*input).len();
        let pruned = done.get_ref(*input).ok_or_else(not_pruned)?;
        whole.push(exactly(graph, pruned, all)?);
    }
    let made = graph.add(node.op().with_inputs(&whole))?;
    Ok(Pruned { node: made, kept: ColSet::all(node.schema().len()) })
}

fn not_pruned() -> Error {
    Error::internal("an input was not pruned")
}

/// Drops the calls of a window that no reader needs. A window without calls is replaced by its input.
fn window(graph: &mut Graph, w: &Window, mine: &ColSet, input: &Pruned) -> Result<Pruned> {
    let old = graph.schema(w.input()).len();
    let mut kept = input.kept.clone();
    let mut calls = Vec::new();
    for (i, call) in w.calls().iter().enumerate().filter(|(i, _)| mine.contains(old + i)) {
        kept.insert(old + i);
        calls.push(call.map_exprs(|e| input.expr(e)));
    }
    if calls.is_empty() {
        return Ok(Pruned { node: input.node, kept });
    }
    let partition = w.partition().iter().map(|c| input.at(*c)).collect();
    let order = w.order().iter().map(|k| OrderKey { column: input.at(k.column), ..*k }).collect();
    Ok(Pruned { node: graph.add(Window::new(input.node, partition, order, calls))?, kept })
}

fn both_sides(graph: &mut Graph, rel: &Rel, l: &Pruned, r: &Pruned) -> Result<Pruned> {
    let [old, _] = rel.as_operator().inputs()[..] else {
        return Err(Error::internal("not a join"));
    };
    let old = graph.schema(old).len();
    let kept = l.kept.union(&r.kept.shifted(old));
    let place = |c: usize| kept.rank(c).unwrap_or(0);
    Ok(match rel {
        Rel::Join(j) => {
            Pruned { node: graph.add(Join::new(l.node, r.node, j.on().map_columns(place)))?, kept }
        }
        Rel::OuterJoin(o) => {
            let on = o.on().map_columns(place);
            let made = if o.is_full() {
                OuterJoin::full(l.node, r.node, on)
            } else {
                OuterJoin::left(l.node, r.node, on)
            };
            Pruned { node: graph.add(made)?, kept }
        }
        Rel::SemiJoin(s) => {
            let on = s.on().map_columns(place);
            let made = if s.is_anti() {
                SemiJoin::anti(l.node, r.node, on)
            } else {
                SemiJoin::semi(l.node, r.node, on)
            };
            Pruned { node: graph.add(made)?, kept: l.kept.clone() }
        }
        _ => return Err(Error::internal("not a join")),
    })
}

/// Returns the pruned node with exactly the columns `old` of the old node, in this order.
fn exactly(graph: &mut Graph, pruned: &Pruned, old: impl Iterator<Item = usize>) -> Result<NodeId> {
    let positions: Vec<usize> = old.map(|c| pruned.at(c)).collect();
    let schema = graph.schema(pruned.node);
    if positions.len() == schema.len() && positions.iter().enumerate().all(|(i, p)| i == *p) {
        return Ok(pruned.node);
    }
    let map = Map::columns(pruned.node, schema, &positions);
    graph.add(map)
}
