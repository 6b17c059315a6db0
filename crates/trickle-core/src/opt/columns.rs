//! Columns that nobody reads are not carried.

use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{ColSet, Graph, NodeId, Schema};
use crate::rel::{Join, Map, OuterJoin, Reduce, Rel, SemiJoin, Union};
use std::collections::HashMap;

/// What each node's readers need of it, and where those columns are after pruning.
struct Pruned {
    node: NodeId,
    /// For each old column its new position.
    place: Vec<Option<usize>>,
}

impl Pruned {
    fn at(&self, old: usize) -> usize {
        self.place.get(old).copied().flatten().unwrap_or(0)
    }
    fn expr(&self, e: &Expr) -> Expr {
        e.map_columns(|c| self.at(c))
    }
}

/// Prunes the plans under `roots`, whose own columns all stay.
pub(super) fn rule(graph: &mut Graph, roots: &[NodeId]) -> Result<Vec<NodeId>> {
    let order = graph.reachable_from(roots);
    let whole = |graph: &Graph, id: &NodeId| ColSet::all(graph.schema(*id).len());
    let mut needs: HashMap<NodeId, ColSet> = roots.iter().map(|r| (*r, whole(graph, r))).collect();
    for id in order.iter().rev() {
        let mine = needs.entry(*id).or_default();
        if mine.is_empty() && !graph.schema(*id).is_empty() {
            // A relation of which only the number of rows matters still has a column.
            *mine = ColSet::all(1);
        }
        let mine = mine.clone();
        for (input, cols) in required(graph, *id, &mine) {
            let entry = needs.entry(input).or_default();
            *entry = entry.union(&cols);
        }
    }
    let mut done: HashMap<NodeId, Pruned> = HashMap::new();
    for id in order {
        let mine = needs.remove(&id).unwrap_or_default();
        let pruned = prune(graph, id, &mine, &done)?;
        done.insert(id, pruned);
    }
    let mut made = Vec::new();
    for root in roots {
        let top = done.get(root).ok_or_else(|| crate::Error::internal("a root was not pruned"))?;
        let all: Vec<usize> = (0..graph.schema(*root).len()).collect();
        made.push(exactly(graph, top, &all)?);
    }
    Ok(made)
}

/// The columns of each input that a node needs to give `mine`.
fn required(graph: &Graph, id: NodeId, mine: &ColSet) -> Vec<(NodeId, ColSet)> {
    let cols = |exprs: &mut dyn Iterator<Item = &Expr>| exprs.flat_map(|e| e.columns()).collect::<ColSet>();
    let split = |l: NodeId, r: NodeId, on: &Expr, mine: &ColSet| {
        let width = graph.schema(l).len();
        let all = mine.union(&on.columns().into_iter().collect());
        let left = all.iter().filter(|c| *c < width).collect();
        let right = all.iter().filter(|c| *c >= width).map(|c| c - width).collect();
        vec![(l, left), (r, right)]
    };
    match graph.rel(id) {
        Rel::Map(m) => vec![(m.input(), cols(&mut mine.iter().map(|i| &m.exprs()[i])))],
        Rel::Filter(f) => vec![(f.input(), mine.union(&cols(&mut [f.predicate()].into_iter())))],
        Rel::Join(j) => split(j.left(), j.right(), j.on(), mine),
        Rel::OuterJoin(o) => split(o.left_input(), o.right_input(), o.on(), mine),
        Rel::SemiJoin(s) => split(s.left(), s.right(), s.on(), mine),
        Rel::Reduce(r) => {
            let aggs = r.aggs().iter().enumerate();
            let aggs = aggs.filter(|(i, _)| mine.contains(r.keys().len() + i) || r.upkeep_reads(*i));
            let used = cols(&mut aggs.flat_map(|(_, a)| a.exprs()));
            vec![(r.input(), used.union(&r.keys().into()))]
        }
        Rel::Accumulate(a) => {
            let used = cols(&mut a.accs().iter().flat_map(|a| a.value.iter().chain(&a.filter)));
            vec![(a.input(), used.union(&a.keys().into()))]
        }
        Rel::Union(_) | Rel::Negate(_) => graph.inputs(id).into_iter().map(|i| (i, mine.clone())).collect(),
        // Thresholds compare whole rows, keys are taken of whole rows that changed, a Consolidate may stand for either.
        _ => graph.inputs(id).into_iter().map(|i| (i, ColSet::all(graph.schema(i).len()))).collect(),
    }
}

fn prune(graph: &mut Graph, id: NodeId, mine: &ColSet, done: &HashMap<NodeId, Pruned>) -> Result<Pruned> {
    let rel = graph.rel(id).clone();
    let inputs = rel.as_operator().inputs();
    let width = graph.schema(id).len();
    let some = |kept: &[usize]| (0..width).map(|c| kept.iter().position(|k| *k == c)).collect::<Vec<_>>();
    let at = |i: usize| done.get(&inputs[i]).ok_or_else(|| crate::Error::internal("an input was not pruned"));
    Ok(match &rel {
        Rel::Table(t) if mine.len() < width => {
            Pruned { node: graph.add(t.select(mine.as_slice()))?, place: some(mine.as_slice()) }
        }
        Rel::Map(m) => {
            let input = at(0)?;
            let exprs = mine.iter().map(|i| input.expr(&m.exprs()[i])).collect();
            let schema = graph.schema(id).clone();
            let labels = mine.iter().map(|i| schema.columns()[i].label.clone()).collect();
            let labelled = m.labels().is_some();
            let map = Map::new(input.node, exprs);
            Pruned {
                node: graph.add(if labelled { map.labelled(labels) } else { map })?,
                place: some(mine.as_slice()),
            }
        }
        Rel::Filter(f) => {
            let input = at(0)?;
            Pruned {
                node: graph.add(crate::rel::Filter::new(input.node, input.expr(f.predicate())))?,
                place: input.place.clone(),
            }
        }
        Rel::Negate(_) => {
            Pruned { node: graph.add(crate::rel::Negate::new(at(0)?.node))?, place: at(0)?.place.clone() }
        }
        Rel::Union(_) => {
            let mut parts = Vec::new();
            for i in 0..inputs.len() {
                parts.push(exactly(graph, at(i)?, mine.as_slice())?);
            }
            Pruned { node: graph.add(Union::new(parts))?, place: some(mine.as_slice()) }
        }
        Rel::Join(_) | Rel::OuterJoin(_) | Rel::SemiJoin(_) => both_sides(graph, &rel, at(0)?, at(1)?)?,
        Rel::Reduce(r) => {
            let input = at(0)?;
            let n = r.keys().len();
            let kept: Vec<usize> =
                (0..width).filter(|c| *c < n || mine.contains(*c) || r.upkeep_reads(c - n)).collect();
            let aggs = kept[n..].iter().map(|c| r.aggs()[c - n].map_exprs(|e| input.expr(e))).collect();
            let keys = r.keys().iter().map(|k| input.at(*k)).collect();
            Pruned { node: graph.add(Reduce::new(input.node, keys, aggs))?, place: some(&kept) }
        }
        Rel::Accumulate(a) => {
            let input = at(0)?;
            let accs = a.accs().iter().map(|x| crate::agg::Acc {
                value: x.value.as_ref().map(|e| input.expr(e)),
                filter: x.filter.as_ref().map(|e| input.expr(e)),
                ty: x.ty.clone(),
            });
            let keys = a.keys().iter().map(|k| input.at(*k)).collect();
            let node = graph.add(crate::rel::Accumulate::new(input.node, keys, accs.collect()))?;
            Pruned { node, place: (0..width).map(Some).collect() }
        }
        _ => {
            let mut whole = Vec::new();
            for (i, input) in inputs.iter().enumerate() {
                let all: Vec<usize> = (0..graph.schema(*input).len()).collect();
                whole.push(exactly(graph, at(i)?, &all)?);
            }
            Pruned {
                node: graph.add(rel.as_operator().with_inputs(&whole))?,
                place: (0..width).map(Some).collect(),
            }
        }
    })
}

fn both_sides(graph: &mut Graph, rel: &Rel, l: &Pruned, r: &Pruned) -> Result<Pruned> {
    let (old, new) = (l.place.len(), graph.schema(l.node).len());
    let place = |c: usize| if c < old { l.at(c) } else { new + r.at(c - old) };
    let both: Vec<Option<usize>> =
        l.place.iter().copied().chain(r.place.iter().map(|p| p.map(|p| p + new))).collect();
    Ok(match rel {
        Rel::Join(j) => {
            Pruned { node: graph.add(Join::new(l.node, r.node, j.on().map_columns(place)))?, place: both }
        }
        Rel::OuterJoin(o) => {
            let on = o.on().map_columns(place);
            let made = if o.is_full() {
                OuterJoin::full(l.node, r.node, on)
            } else {
                OuterJoin::left(l.node, r.node, on)
            };
            Pruned { node: graph.add(made)?, place: both }
        }
        Rel::SemiJoin(s) => {
            let on = s.on().map_columns(place);
            let made = if s.is_anti() {
                SemiJoin::anti(l.node, r.node, on)
            } else {
                SemiJoin::semi(l.node, r.node, on)
            };
            Pruned { node: graph.add(made)?, place: l.place.clone() }
        }
        _ => return Err(crate::Error::internal("not a join")),
    })
}

/// The pruned node with exactly the given old columns, in that order.
fn exactly(graph: &mut Graph, pruned: &Pruned, old: &[usize]) -> Result<NodeId> {
    let positions: Vec<usize> = old.iter().map(|c| pruned.at(*c)).collect();
    let schema: Schema = graph.schema(pruned.node).clone();
    if positions.len() == schema.len() && positions.iter().enumerate().all(|(i, p)| i == *p) {
        return Ok(pruned.node);
    }
    graph.add(Map::columns(pruned.node, &schema, &positions))
}
