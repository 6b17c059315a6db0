//! Takes a recursive term apart into expressions over pairs of rows.

use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, NodeId};
use crate::rel::{Expand, Filter, Fixpoint, Join, OuterJoin, Rel, SemiJoin, SetCall, SetOpKind, Values};
use std::collections::BTreeSet;

/// The reason why a recursive term is not a step.
pub(super) enum Refusal {
    /// SQL forbids a reference to the recursive query in this place.
    Forbidden(&'static str),
    /// The term's rows cannot be computed from pairs of rows.
    Unknown(&'static str),
}

/// The relation `π_exprs σ_on (own × side)`. The expressions are over the columns of `own`, followed by the
/// columns of `side`.
pub(super) struct Pairs {
    side: Option<NodeId>,
    on: Vec<Expr>,
    pub(super) exprs: Vec<Expr>,
}

impl Pairs {
    /// Returns the side and the remaining conditions. The side is restricted by the conditions that read only
    /// the side.
    pub(super) fn beside(self, graph: &mut Graph, width: usize) -> Result<(NodeId, Expr)> {
        let side = side(graph, self.side)?;
        let alone = |e: &Expr| !e.is_constant() && e.columns().iter().all(|c| *c >= width);
        let (alone, on): (Vec<Expr>, Vec<Expr>) = self.on.into_iter().partition(alone);
        if alone.is_empty() {
            return Ok((side, Expr::and(on)));
        }
        let alone = alone.iter().map(|e| e.map_columns(|c| c - width));
        Ok((graph.add(Filter::new(side, Expr::and(alone)))?, Expr::and(on)))
    }
}

fn side(graph: &mut Graph, side: Option<NodeId>) -> Result<NodeId> {
    side.map_or_else(|| graph.add(Values::unit()), Ok)
}

/// Takes the plan under `root` apart into pairs. A pair is a row of `own` and a row of the other relations
/// that the plan reads.
pub(super) fn take_apart(
    graph: &mut Graph,
    root: NodeId,
    own: NodeId,
    fixpoint: Fixpoint,
) -> Result<Result<Pairs, Refusal>> {
    let mut over = BTreeSet::from([own]);
    for id in graph.reachable(root) {
        if graph.inputs(id).iter().any(|i| over.contains(i)) {
            over.insert(id);
        }
    }
    let mut root = root;
    // Under UNION, duplicate rows count once anyway, so a δ at the root of the term has no effect.
    while let (Rel::Distinct(d), Fixpoint::Distinct) = (graph.rel(root), fixpoint) {
        root = d.input();
    }
    Apart { graph, own, over }.pairs(root)
}

struct Apart<'g> {
    graph: &'g mut Graph,
    own: NodeId,
    /// The nodes that are computed from own rows.
    over: BTreeSet<NodeId>,
}

type Taken = Result<Result<Pairs, Refusal>>;

fn unknown(what: &'static str) -> Taken {
    Ok(Err(Refusal::Unknown(what)))
}

fn forbidden(place: &'static str) -> Taken {
    Ok(Err(Refusal::Forbidden(place)))
}

macro_rules! taken {
    ($e:expr) => {
        match $e? {
            Ok(pairs) => pairs,
            Err(refusal) => return Ok(Err(refusal)),
        }
    };
}

impl Apart<'_> {
    fn width(&self) -> usize {
        self.graph.schema(self.own).len()
    }

    fn side_width(&self, pairs: &Pairs) -> usize {
        pairs.side.map_or(0, |s| self.graph.schema(s).len())
    }

    fn pairs(&mut self, node: NodeId) -> Taken {
        stacker::maybe_grow(64 * 1024, 1024 * 1024, || self.pairs_of(node))
    }

    fn pairs_of(&mut self, node: NodeId) -> Taken {
        if node == self.own {
            let exprs = self.graph.schema(node).identity();
            return Ok(Ok(Pairs { side: None, on: Vec::new(), exprs }));
        }
        if !self.over.contains(&node) {
            return unknown("a recursive term that does not read the query's own rows");
        }
        let shared = self.graph.shared(node);
        match shared.rel() {
            Rel::Map(m) => {
                let pairs = taken!(self.pairs(m.input()));
                let exprs = m.exprs().iter().map(|e| e.substitute(&pairs.exprs)).collect();
                Ok(Ok(Pairs { exprs, ..pairs }))
            }
            Rel::Filter(f) => {
                let mut pairs = taken!(self.pairs(f.input()));
                let terms = f.predicate().conjuncts();
                pairs.on.extend(terms.iter().map(|e| e.substitute(&pairs.exprs)));
                Ok(Ok(pairs))
            }
            Rel::Join(j) => self.join(j),
            Rel::SemiJoin(s) => self.semi(s),
            Rel::Expand(e) => self.expanded(e),
            Rel::OuterJoin(o) if self.is_padded(o) => forbidden("within an outer join"),
            Rel::OuterJoin(_) => unknown("a recursive term with an outer join"),
            Rel::SetOp(s) if s.kind() == SetOpKind::Intersect => forbidden("within INTERSECT"),
            Rel::SetOp(_) => forbidden("within EXCEPT"),
            Rel::Single(_) => forbidden("within a subquery"),
            Rel::Reduce(_) => unknown("a recursive term with groups"),
            Rel::Window(_) => unknown("a recursive term with window functions"),
            Rel::Top(_) => unknown("a recursive term with LIMIT or DISTINCT ON"),
            Rel::Distinct(_) => unknown("a recursive term with DISTINCT"),
            _ => unknown("a recursive term of this form"),
        }
    }

    fn is_padded(&self, o: &OuterJoin) -> bool {
        o.is_full() || self.over.contains(&o.right_input())
    }

    fn join(&mut self, j: &Join) -> Taken {
        let (l, r) = (j.left(), j.right());
        if self.over.contains(&l) && self.over.contains(&r) {
            return unknown("a subquery over rows of the recursive query");
        }
        let own_first = self.over.contains(&l);
        let (own, other) = if own_first { (l, r) } else { (r, l) };
        let pairs = taken!(self.pairs(own));
        let (width, before) = (self.width(), self.side_width(&pairs));
        let new = self.graph.schema(other).clone();
        let (sides, at, by) = match (pairs.side, own_first) {
            (None, _) => (None, width, 0),
            (Some(side), true) => (Some((side, other)), width + before, 0),
            (Some(side), false) => (Some((other, side)), width, new.len()),
        };
        let side = match sides {
            Some((a, b)) => self.graph.add(Join::new(a, b, Expr::bool(true)))?,
            None => other,
        };
        let moved = |e: &Expr| e.map_columns(|c| if c < width { c } else { c + by });
        let others = (0..new.len()).map(|i| new.expr(i).shifted(at));
        let own: Vec<Expr> = pairs.exprs.iter().map(moved).collect();
        let exprs: Vec<Expr> =
            if own_first { own.into_iter().chain(others).collect() } else { others.chain(own).collect() };
        let mut on: Vec<Expr> = pairs.on.iter().map(moved).collect();
        on.extend(j.on().conjuncts().iter().map(|e| e.substitute(&exprs)));
        Ok(Ok(Pairs { side: Some(side), on, exprs }))
    }

    /// Takes a semi-join apart. A semi-join that reads only the side restricts the side.
    fn semi(&mut self, s: &SemiJoin) -> Taken {
        if self.over.contains(&s.right()) {
            if self.over.contains(&s.left()) {
                return unknown("a subquery over rows of the recursive query");
            }
            return forbidden("within a subquery");
        }
        let pairs = taken!(self.pairs(s.left()));
        let (width, before) = (self.width(), self.side_width(&pairs));
        let right = self.graph.schema(s.right()).clone();
        let both: Vec<Expr> = pairs
            .exprs
            .iter()
            .cloned()
            .chain((0..right.len()).map(|i| right.expr(i).shifted(width + before)))
            .collect();
        let on = s.on().substitute(&both);
        if on.columns().iter().any(|c| *c < width) {
            return unknown("a subquery over rows of the recursive query");
        }
        let on = on.map_columns(|c| c - width);
        let side = side(self.graph, pairs.side)?;
        let semi = if s.is_anti() {
            SemiJoin::anti(side, s.right(), on)
        } else {
            SemiJoin::semi(side, s.right(), on)
        };
        Ok(Ok(Pairs { side: Some(self.graph.add(semi)?), ..pairs }))
    }

    /// Takes functions in FROM apart. Functions that read only the side become part of the side.
    fn expanded(&mut self, e: &Expand) -> Taken {
        let pairs = taken!(self.pairs(e.input()));
        let (width, before) = (self.width(), self.side_width(&pairs));
        let calls: Vec<SetCall> =
            e.calls().iter().map(|c| c.map_exprs(|a| a.substitute(&pairs.exprs))).collect();
        if calls.iter().flat_map(|c| &c.args).any(|a| a.columns().iter().any(|c| *c < width)) {
            return unknown("a set-returning function of rows of the recursive query");
        }
        let calls = calls.iter().map(|c| c.map_exprs(|a| a.map_columns(|c| c - width))).collect();
        let side = side(self.graph, pairs.side)?;
        let expand = Expand::new(side, calls).numbered(e.has_ordinality()).outer(e.is_outer());
        let side = self.graph.add(expand)?;
        let schema = self.graph.schema(side).clone();
        let new = (before..schema.len()).map(|i| schema.expr(i).shifted(width));
        let exprs = pairs.exprs.into_iter().chain(new).collect();
        Ok(Ok(Pairs { side: Some(side), on: pairs.on, exprs }))
    }
}
