//! Drops columns that no reader needs.

use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{ColSet, Graph, NodeId, NodeMap};
use crate::rel::{Join, Map, OuterJoin, Reduce, Rel, Relational, SemiJoin, Top, Union, Window};
use crate::window::OrderKey;

/// A node that was pruned, in place of an old node.
struct Pruned {
    node: NodeId,
    /// The columns of the old node that the pruned node has, in the same order.
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
            // A relation whose rows are only counted keeps one column.
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
        let top =
            done.get_ref(*root).ok_or_else(|| crate::error::Error::internal("a root was not pruned"))?;
        made.push(exactly(graph, top, 0..graph.schema(*root).len())?);
    }
    Ok(made)
}

/// Calls `need` for each input of a node, with the columns of this input from which the node's columns `mine`
/// are computed.
fn required(graph: &Graph, id: NodeId, mine: &ColSet, mut need: impl FnMut(NodeId, &ColSet)) {
    let cols = |set: &mut ColSet, e: &Expr| e.each_column(|c| set.insert(c));
    let mut used = ColSet::new();
    match graph.rel(id) {
        Rel::Map(m) => {
            mine.iter().for_each(|i| cols(&mut used, &m.exprs()[i]));
            need(m.input(), &used);
        }
        Rel::Filter(f) => {
            used.extend(mine);
            cols(&mut used, f.predicate());
            need(f.input(), &used);
        }
        Rel::Expand(e) => {
            let width = graph.schema(e.input()).len();
            used.extend(&mine.iter().filter(|c| *c < width).collect());
            e.calls().iter().flat_map(|c| &c.args).for_each(|e| cols(&mut used, e));
            need(e.input(), &used);
        }
        Rel::Join(_) | Rel::OuterJoin(_) | Rel::SemiJoin(_) => {
            let (l, r, on) = match graph.rel(id) {
                Rel::Join(j) => (j.left(), j.right(), j.on()),
                Rel::OuterJoin(o) => (o.left_input(), o.right_input(), o.on()),
                Rel::SemiJoin(s) => (s.left(), s.right(), s.on()),
                _ => return,
            };
            used.extend(mine);
            cols(&mut used, on);
            let width = graph.schema(l).len();
            need(l, &used.iter().filter(|c| *c < width).collect());
            need(r, &used.iter().filter(|c| *c >= width).map(|c| c - width).collect());
        }
        Rel::Reduce(r) => {
            used.extend(&r.keys().into());
            for (i, agg) in r.aggs().iter().enumerate() {
                if mine.contains(r.keys().len() + i) || r.upkeep_reads(i) {
                    agg.exprs().for_each(|e| cols(&mut used, e));
                }
            }
            need(r.input(), &used);
        }
        Rel::Top(t) => {
            used.extend(mine);
            used.extend(&t.partition().into());
            used.extend(&t.order().iter().map(|k| k.column).collect());
            need(t.input(), &used);
        }
        Rel::Window(w) => {
            let width = graph.schema(w.input()).len();
            used.extend(&mine.iter().filter(|c| *c < width).collect());
            used.extend(&w.partition().into());
            used.extend(&w.order().iter().map(|k| k.column).collect());
            for (_, call) in w.calls().iter().enumerate().filter(|(i, _)| mine.contains(width + i)) {
                call.exprs().for_each(|e| cols(&mut used, e));
            }
            need(w.input(), &used);
        }
        Rel::Accumulate(a) => {
            used.extend(&a.keys().into());
            a.accs().iter().flat_map(|a| a.value.iter().chain(&a.filter)).for_each(|e| cols(&mut used, e));
            need(a.input(), &used);
        }
        Rel::Recursion(r) => {
            let width = graph.schema(r.base()).len();
            r.exprs().for_each(|e| cols(&mut used, e));
            let mut beside: ColSet = used.iter().filter(|c| *c >= width).map(|c| c - width).collect();
            // The delta of a recursion must tell the rows of the side apart. The smallest key of the side
            // does so with the fewest columns.
            if let Some(key) = graph.props(r.side()).keys.iter().min_by_key(|k| k.len()) {
                beside.extend(key);
            }
            need(r.side(), &beside);
            let rows = graph.inputs(id).iter().enumerate().filter(|(i, _)| *i != 1);
            rows.for_each(|(_, rows)| need(*rows, &ColSet::all(width)));
        }
        Rel::Revise(r) => {
            r.reads(&r.shown(mine)).for_each(|e| cols(&mut used, e));
            need(r.input(), &used);
        }
        Rel::Union(_) | Rel::Negate(_) => graph.inputs(id).iter().for_each(|i| need(*i, mine)),
        // All columns are needed: thresholds compare whole rows, keys are computed from whole changed rows,
        // and a Consolidate may serve either of these.
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

fn prune(graph: &mut Graph, id: NodeId, mine: &ColSet, done: &NodeMap<Pruned>) -> Result<Pruned> {
    let node = graph.shared(id);
    let (rel, inputs) = (node.rel(), node.inputs());
    let width = graph.schema(id).len();
    let stays = |i: &NodeId| done.get_ref(*i).is_some_and(|p| p.node == *i);
    // In most plans only some nodes are pruned.
    if mine.len() == width && inputs.iter().all(stays) {
        return Ok(Pruned { node: id, kept: ColSet::all(width) });
    }
    let at = |i: usize| done.get_ref(inputs[i]).ok_or_else(not_pruned);
    Ok(match rel {
        Rel::Table(t) if mine.len() < width => {
            Pruned { node: graph.add(t.select(mine.iter()))?, kept: mine.clone() }
        }
        Rel::Map(m) => {
            let input = at(0)?;
            let exprs = mine.iter().map(|i| input.expr(&m.exprs()[i])).collect();
            let labels = mine.iter().map(|i| node.schema().columns()[i].label.clone()).collect();
            let labelled = m.labels().is_some();
            let map = Map::new(input.node, exprs);
            Pruned { node: graph.add(if labelled { map.labelled(labels) } else { map })?, kept: mine.clone() }
        }
        Rel::Filter(f) => {
            let input = at(0)?;
            Pruned {
                node: graph.add(crate::rel::Filter::new(input.node, input.expr(f.predicate())))?,
                kept: input.kept.clone(),
            }
        }
        Rel::Expand(e) => {
            // The number of rows depends on every call, so all calls stay. The ordinality has no influence on
            // the number of rows.
            let input = at(0)?;
            let old = graph.schema(inputs[0]).len();
            let numbered = e.has_ordinality() && mine.contains(width - 1);
            let mut kept = input.kept.clone();
            (old..width - usize::from(e.has_ordinality() && !numbered)).for_each(|c| kept.insert(c));
            let expand = e.over(input.node, |c| input.at(c)).numbered(numbered);
            Pruned { node: graph.add(expand)?, kept }
        }
        Rel::Negate(_) => {
            Pruned { node: graph.add(crate::rel::Negate::new(at(0)?.node))?, kept: at(0)?.kept.clone() }
        }
        Rel::Union(_) => {
            let mut parts = Vec::new();
            for i in 0..inputs.len() {
                parts.push(exactly(graph, at(i)?, mine.iter())?);
            }
            Pruned { node: graph.add(Union::new(parts))?, kept: mine.clone() }
        }
        Rel::Join(_) | Rel::OuterJoin(_) | Rel::SemiJoin(_) => both_sides(graph, rel, at(0)?, at(1)?)?,
        Rel::Reduce(r) => {
            let input = at(0)?;
            let n = r.keys().len();
            let kept: ColSet =
                (0..width).filter(|c| *c < n || mine.contains(*c) || r.upkeep_reads(c - n)).collect();
            let aggs = kept.iter().skip(n).map(|c| r.aggs()[c - n].map_exprs(|e| input.expr(e))).collect();
            let keys = r.keys().iter().map(|k| input.at(*k)).collect();
            Pruned { node: graph.add(Reduce::new(input.node, keys, aggs))?, kept }
        }
        Rel::Top(t) => {
            let input = at(0)?;
            let partition = t.partition().iter().map(|c| input.at(*c)).collect();
            let order = t.order().iter().map(|k| OrderKey { column: input.at(k.column), ..*k }).collect();
            let top = Top::new(input.node, partition, order, t.slice());
            Pruned { node: graph.add(top)?, kept: input.kept.clone() }
        }
        Rel::Window(w) => window(graph, w, mine, at(0)?)?,
        Rel::Accumulate(a) => {
            let input = at(0)?;
            let accs = a.accs().iter().map(|x| crate::agg::Acc {
                value: x.value.as_ref().map(|e| input.expr(e)),
                filter: x.filter.as_ref().map(|e| input.expr(e)),
                ty: x.ty.clone(),
            });
            let keys = a.keys().iter().map(|k| input.at(*k)).collect();
            let node = graph.add(a.over(input.node, keys, accs.collect()))?;
            Pruned { node, kept: ColSet::all(width) }
        }
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

fn not_pruned() -> crate::error::Error {
    crate::error::Error::internal("an input was not pruned")
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
        return Err(crate::error::Error::internal("not a join"));
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
        _ => return Err(crate::error::Error::internal("not a join")),
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
