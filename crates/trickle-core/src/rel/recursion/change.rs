//! The delta of a recursion, computed from its stored result.
//!
//! A *derivation* of a row consists of a row of the base and of rows of the side. Step by step, these rows
//! lead from the row of the base to the derived row. A derivation is *lost* if one of its rows left, and
//! *gained* if one of its rows came. Let K be a key of the side T, or all columns of T. Let *touched* be the
//! values of K in rows of ΔT.
//!
//! - T₌ = T′ ▷ touched: the rows of T with an untouched key, which have the same weight in both states. S₌ is
//!   the step with side T₌.
//! - T₋ = T ⋉ touched = (T′ ⋉ touched) − ΔT, and T₊ = T′ ⋉ touched. S₋ and S₊ are the steps with these sides.
//!   Hence T = T₌ + T₋ and T′ = T₌ + T₊.
//!
//! Lost derivations are followed over the old side, and gained derivations over the new side. Following a
//! signed change D with the new step alone, `D = ΔB + ΔS(R) + S′(D)`, would be wrong. If a row that left
//! leads into a cycle that came, this equation has several solutions, and iteration does not converge.

use super::{Fixpoint, Recursion, labels};
use crate::delta::{Differ, Differentiate, negate, sum};
use crate::error::Result;
use crate::expr::Expr;
use crate::graph::{Graph, NodeId, Schema};
use crate::rel::{Join, Map, Positive, SemiJoin, join_keys, same};

impl Differentiate for Recursion {
    fn delta(&self, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
        if self.known.is_some() {
            return Ok(None);
        }
        let Some(stored) = cx.state(node)? else { return Ok(None) };
        let Some(side) = Sides::of(cx, self.side)? else { return Ok(None) };
        let Some((added, removed)) = changes(cx, self.base)? else { return Ok(None) };
        match self.fixpoint {
            Fixpoint::All => self.all(cx, node, stored, &side, (added, removed)),
            Fixpoint::Distinct => self.distinct(cx, node, stored, &side, (added, removed)),
        }
        .map(Some)
    }
}

/// The relations T₌ (`kept`), T₋ and T₊ (`touched`) and T′ (`current`) of a side. T₋ and T₊ are present only
/// where the side changed.
struct Sides {
    kept: NodeId,
    touched: Option<(NodeId, NodeId)>,
    current: NodeId,
}

impl Sides {
    fn of(cx: &mut Differ<'_>, side: NodeId) -> Result<Option<Sides>> {
        let current = cx.after(side)?;
        let change = cx.delta(side)?;
        if cx.graph.props(change).empty {
            return Ok(Some(Sides { kept: current, touched: None, current }));
        }
        let schema = cx.graph.schema(side).clone();
        let comparable = |cols: &[usize]| cols.iter().all(|c| schema.columns()[*c].ty.has_equality());
        let keys = cx.graph.props(side).keys.iter().map(|k| k.iter().collect::<Vec<_>>());
        let shortest = keys.filter(|k| !k.is_empty() && comparable(k)).min_by_key(Vec::len);
        let key = shortest.unwrap_or_else(|| (0..schema.len()).collect());
        if key.is_empty() || !comparable(&key) {
            return Ok(None);
        }
        let touched = cx.keys(change, &key)?;
        let places: Vec<usize> = (0..key.len()).collect();
        let on = same(cx.graph.schema(current), &key, cx.graph.schema(touched), &places);
        let kept = cx.graph.add(SemiJoin::anti(current, touched, on))?;
        let new = cx.restrict(current, &key, touched)?;
        let old = cx.minus(new, change)?;
        Ok(Some(Sides { kept, touched: Some((old, new)), current }))
    }
}

/// Returns the rows of the base that came, (B′ − B)⁺, and those that left, (B − B′)⁺. Where equal rows may
/// have different images, returns the rows of B′ and the rows of B that equal a row of ΔB.
fn changes(cx: &mut Differ<'_>, base: NodeId) -> Result<Option<(NodeId, NodeId)>> {
    let change = cx.delta(base)?;
    if cx.graph.props(change).empty {
        return Ok(Some((change, change)));
    }
    let schema = cx.graph.schema(base);
    if schema.is_exact() && schema.without_equality().is_none() {
        let change = cx.net(change, true)?;
        let back = negate(cx.graph, change)?;
        return Ok(Some((cx.graph.add(Positive::new(change))?, cx.graph.add(Positive::new(back))?)));
    }
    if schema.without_equality().is_some() {
        return Ok(None);
    }
    let all: Vec<usize> = (0..schema.len()).collect();
    let current = cx.after(base)?;
    let touched = cx.keys(change, &all)?;
    let added = cx.restrict(current, &all, touched)?;
    let removed = cx.minus(added, change)?;
    Ok(Some((added, removed)))
}

impl Recursion {
    /// Computes the delta of UNION ALL, whose result is a bag of derivations. A lost derivation is split at
    /// the last of its rows that left. The part before this row is empty, or is a derivation of a row of R.
    /// The part after this row contains only rows that stayed. Hence `lost = Σₖ S₌ᵏ(B₋ + S₋(R))`. The rows R₌
    /// = R − lost remain. A gained derivation is split at the first of its rows that came. Hence `gained = Σₖ
    /// S′ᵏ(B₊ + S₊(R₌))`. Both sums are finite if the query ends, since their terms are parts of the terms of
    /// R and R′. The delta is `ΔR = gained − lost`.
    fn all(
        &self,
        cx: &mut Differ<'_>,
        node: NodeId,
        stored: NodeId,
        side: &Sides,
        (added, removed): (NodeId, NodeId),
    ) -> Result<NodeId> {
        let lost = self.lost(cx, node, stored, side, removed)?;
        let mut seed = vec![added];
        if let Some((_, new)) = side.touched {
            let kept = self.asked_by(cx, stored, new)?;
            let gone = self.asked_by(cx, lost, new)?;
            let kept = cx.minus(kept, gone)?;
            seed.push(self.pairs(cx, kept, new)?);
        }
        let gained = self.follow(cx, node, seed, side.current)?;
        cx.difference(gained, lost)
    }

    /// Computes the delta of UNION, whose result is a set, by deleting rows and deriving some of them again.
    /// `over` has the rows with a lost derivation, computed as for UNION ALL. Each other row, in R₌ = R ▷
    /// over, has a derivation that stayed. A row of R′ outside R₌ is in B₊, or is derived in one of three
    /// ways. It may be derived from R₌ by a row of the side that came, or from another row of R′ outside R₌.
    /// If it is derived from R₌ by a row of the side that stayed, then it is in `over`.
    fn distinct(
        &self,
        cx: &mut Differ<'_>,
        node: NodeId,
        stored: NodeId,
        side: &Sides,
        (added, removed): (NodeId, NodeId),
    ) -> Result<NodeId> {
        let over = self.lost(cx, node, stored, side, removed)?;
        let mut seed = vec![added];
        if let Some((_, new)) = side.touched {
            let asked = self.asked_by(cx, stored, new)?;
            let kept = without(cx.graph, asked, over)?;
            seed.push(self.pairs(cx, kept, new)?);
        }
        if !cx.graph.props(over).empty {
            let all: Vec<usize> = (0..cx.graph.schema(node).len()).collect();
            let base = cx.after(self.base)?;
            seed.push(cx.restrict(base, &all, over)?);
            seed.push(self.rederived(cx, over, stored, side.current)?);
        }
        let seed = sum(cx.graph, node, seed)?;
        if cx.graph.props(seed).empty {
            return negate(cx.graph, over);
        }
        let step = self.step.clone();
        let gained = Recursion::new(seed, side.current, step, Fixpoint::Distinct).beyond(stored, over);
        let gained = cx.graph.add(gained)?;
        cx.difference(gained, over)
    }

    /// Returns the rows of the stored result that have a lost derivation. The lost part of such a derivation
    /// begins in one of two ways: with a row that left the base (`removed`), or with a step that uses a row
    /// that left the side. All later steps use rows of the side that stayed.
    fn lost(
        &self,
        cx: &mut Differ<'_>,
        node: NodeId,
        stored: NodeId,
        side: &Sides,
        removed: NodeId,
    ) -> Result<NodeId> {
        let mut seed = vec![removed];
        if let Some((old, _)) = side.touched {
            seed.push(self.pairs(cx, stored, old)?);
        }
        self.follow(cx, node, seed, side.kept)
    }

    /// Returns the rows of `seed`, and the rows that the step derives from them with `side` in all following
    /// rounds.
    fn follow(&self, cx: &mut Differ<'_>, like: NodeId, seed: Vec<NodeId>, side: NodeId) -> Result<NodeId> {
        let seed = sum(cx.graph, like, seed)?;
        if cx.graph.props(seed).empty {
            return Ok(seed);
        }
        cx.graph.add(Recursion::new(seed, side, self.step.clone(), self.fixpoint))
    }

    /// Returns the rows that one step derives from `rows` with `side`: `π(rows ⋈ side)`.
    fn pairs(&self, cx: &mut Differ<'_>, rows: NodeId, side: NodeId) -> Result<NodeId> {
        let labels = labels(cx.graph.schema(self.base));
        let pairs = cx.graph.add(Join::new(rows, side, self.step.on.clone()))?;
        cx.graph.add(Map::new(pairs, self.step.exprs.clone()).labelled(labels))
    }

    /// Returns the part of `rows` that could have a partner in `side`. A small `side` makes this part small.
    fn asked_by(&self, cx: &mut Differ<'_>, rows: NodeId, side: NodeId) -> Result<NodeId> {
        let keys = join_keys(&self.step.on, cx.graph.schema(self.base).len());
        if keys.left.is_empty() || cx.graph.props(rows).empty {
            return Ok(rows);
        }
        let asked = cx.keys(side, &keys.right)?;
        let (r, a) = (cx.graph.schema(rows), cx.graph.schema(asked));
        let on = keys.left.iter().zip(&keys.null_safe).enumerate().map(|(i, (c, safe))| {
            let (row, key) = (r.expr(*c), a.expr(i).shifted(r.len()));
            if *safe { row.same_as(key) } else { row.equals(key) }
        });
        let semi = SemiJoin::semi(rows, asked, Expr::and(on));
        cx.graph.add(semi)
    }

    /// Returns the rows of `over` that one step derives from rows of `stored` outside `over`. The result may
    /// contain other derived rows too, if they agree with a row of `over` in the columns that the step passes
    /// on unchanged. The search goes backwards: it starts from the rows of `over`.
    fn rederived(&self, cx: &mut Differ<'_>, over: NodeId, stored: NodeId, side: NodeId) -> Result<NodeId> {
        let width = cx.graph.schema(self.base).len();
        let [o, t, r] = [over, side, stored].map(|n| cx.graph.schema(n).clone());
        let passed = |e: &Expr| e.as_column();
        // A triple has the columns of `over`, of `side` and of `stored`, in this order.
        let place = |c: usize| if c < width { width + t.len() + c } else { c };
        let of = |schema: &Schema, c: usize, at: usize| schema.expr(c).shifted(at);
        let mut beside = Vec::new();
        let mut behind = vec![self.step.on.map_columns(place)];
        for (i, c) in self.step.exprs.iter().enumerate().filter_map(|(i, e)| Some((i, passed(e)?))) {
            if c < width {
                behind.push(o.expr(i).same_as(of(&r, c, width + t.len())));
            } else {
                beside.push(o.expr(i).same_as(of(&t, c - width, width)));
            }
        }
        let led = cx.graph.add(Join::new(over, side, Expr::and(beside)))?;
        let led = cx.graph.add(Join::new(led, stored, Expr::and(behind)))?;
        let at: Vec<usize> = (0..width).map(place).collect();
        let all: Vec<usize> = (0..width).collect();
        let on = same(cx.graph.schema(led), &at, cx.graph.schema(over), &all);
        let led = cx.graph.add(SemiJoin::anti(led, over, on))?;
        let exprs = self.step.exprs.iter().map(|e| e.map_columns(place)).collect();
        cx.graph.add(Map::new(led, exprs).labelled(labels(&o)))
    }
}

/// Returns the rows of `left` that equal no row of `right`.
fn without(graph: &mut Graph, left: NodeId, right: NodeId) -> Result<NodeId> {
    if graph.props(right).empty {
        return Ok(left);
    }
    let all: Vec<usize> = (0..graph.schema(left).len()).collect();
    let on = same(graph.schema(left), &all, graph.schema(right), &all);
    graph.add(SemiJoin::anti(left, right, on))
}
