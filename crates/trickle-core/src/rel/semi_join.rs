//! ⋉ and ▷: the rows that have a partner, and the rows that have none.

use super::{
    Accumulate, By, Carried, Class, Consolidate, Distinct, Formula, Join, Map, Negate, Pruned, Rel,
    Relational, Restriction, Rewrite, Union, arity, carried, check_positive, check_predicate, join_keys,
    lookups, pruned, restriction,
};
use crate::agg::Acc;
use crate::delta::{Differ, Differentiate, negate, sum};
use crate::error::Result;
use crate::eval::{Context, Evaluate, ZSet, group::Matcher};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Block, Body, Condition, Fragment, Render, RenderContext, Scalar, Weight};

/// `L ⋉on R` (EXISTS): the rows of L that have a partner. A partner is a row of R for which `on` is true.
/// `L ▷on R` (NOT EXISTS): the rows of L that have no partner. The rows of L keep their weights, and L may be
/// a change. R must be a state.
///
/// NOT IN is the anti-join with the condition `(l = r) IS NOT FALSE`, as three-valued logic requires.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SemiJoin {
    left: NodeId,
    right: NodeId,
    on: Expr,
    anti: bool,
}

impl SemiJoin {
    /// Makes `L ⋉on R`.
    pub fn semi(left: NodeId, right: NodeId, on: Expr) -> SemiJoin {
        SemiJoin { left, right, on, anti: false }
    }
    /// Makes `L ▷on R`.
    pub fn anti(left: NodeId, right: NodeId, on: Expr) -> SemiJoin {
        SemiJoin { left, right, on, anti: true }
    }
    /// Makes `R ⋉ K`: the rows of `input` in which the columns `cols` equal a row of `keys`. NULL is equal to
    /// NULL.
    pub fn restrict(graph: &Graph, input: NodeId, cols: &[usize], keys: NodeId) -> SemiJoin {
        let (l, k) = (graph.schema(input), graph.schema(keys));
        let on = Expr::and(cols.iter().enumerate().map(|(i, c)| {
            let (a, b) = (l.expr(*c), k.expr(i).shifted(l.len()));
            let nullable = |s: &Schema, i: usize| s.column(i).is_none_or(|c| c.nullable);
            if nullable(l, *c) && nullable(k, i) { a.same_as(b) } else { a.equals(b) }
        }));
        SemiJoin::semi(input, keys, on)
    }
    /// Returns the left input.
    pub fn left(&self) -> NodeId {
        self.left
    }
    /// Returns the right input.
    pub fn right(&self) -> NodeId {
        self.right
    }
    /// Returns the condition. It reads the columns of the left input and then the columns of the right input.
    pub fn on(&self) -> &Expr {
        &self.on
    }
    /// Whether the result has the rows without a partner, instead of the rows with a partner.
    pub fn is_anti(&self) -> bool {
        self.anti
    }
}

impl Relational for SemiJoin {
    fn name(&self) -> &'static str {
        if self.anti { "AntiJoin" } else { "SemiJoin" }
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.left, self.right]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        match inputs {
            [left, right] => SemiJoin { left: *left, right: *right, ..self.clone() }.into(),
            _ => self.clone().into(),
        }
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [l, r] = arity("SemiJoin", inputs)?;
        check_predicate("SemiJoin", &self.on, &[l.schema(), r.schema()])?;
        check_positive("SemiJoin", r)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
        let (l, r) = (inputs[0].props(), inputs[1].props());
        let mut p = l.clone();
        p.add_sources(r);
        p.reads_delta |= r.reads_delta;
        p.volatility = p.volatility.max(r.volatility).max(self.on.volatility());
        p.empty = l.empty || (r.empty && !self.anti);
        p.bounded = l.bounded || (r.bounded && !self.anti);
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        let (pairs, decided) = Unsettled::of_pairs(inputs, self.on());
        Unsettled { rows: pairs.rows || decided, ..Unsettled::of_first(inputs) }
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        f(Formula::Scalar(self.on()));
    }

    fn carried(&self, inputs: &[Carried], nodes: &[&Node]) -> Carried {
        carried::from_left(&self.on, inputs, nodes)
    }
    fn class(&self, inputs: &[&Node]) -> Class {
        let keys = join_keys(&self.on, inputs[0].schema().len());
        let equality = |c: &usize| inputs[0].schema().columns()[*c].ty.has_equality();
        if keys.left.is_empty() || !keys.left.iter().all(equality) {
            return Class::Global;
        }
        Class::PerKey { output: keys.left.clone(), keys: vec![keys.left, keys.right] }
    }
    /// Returns `L ⋈ δ(π_keys R)` where the condition consists of column equalities. Otherwise returns
    /// `L ⋈≡ δ(π_L(δL ⋈on R))`, which joins L with its own matching rows. For the anti-join, returns
    /// `L ▷ R = L − L ⋉ R`.
    fn expand(&self, graph: &mut Graph) -> Result<Option<NodeId>> {
        let (l, r) = (graph.schema(self.left).clone(), graph.schema(self.right).clone());
        let keys = join_keys(&self.on, l.len());
        if (keys.residual.is_empty() && keys.left.is_empty()) || l.without_equality().is_some() {
            return Ok(None);
        }
        let (matched, on) = if keys.residual.is_empty() {
            let projected = graph.add(Map::columns(self.right, &r, &keys.right))?;
            let matched = graph.add(Distinct::by_value(graph, projected))?;
            let m = graph.schema(matched).clone();
            let on = keys.left.iter().enumerate().map(|(i, c)| {
                let (a, b) = (l.expr(*c), m.expr(i).shifted(l.len()));
                if keys.null_safe[i] { a.same_as(b) } else { a.equals(b) }
            });
            (matched, Expr::and(on))
        } else {
            if !graph.props(self.left).positive || !self.on.respects_equality() {
                return Ok(None);
            }
            let pairs = graph.add(Join::new(self.left, self.right, self.on.clone()))?;
            let all: Vec<usize> = (0..l.len()).collect();
            let projected = graph.add(Map::columns(pairs, &l, &all))?;
            let matched = graph.add(Distinct::by_value(graph, projected))?;
            (matched, Expr::and(all.iter().map(|c| l.expr(*c).same_as(l.expr(*c).shifted(l.len())))))
        };
        let joined = graph.add(Join::new(self.left, matched, on))?;
        let all: Vec<usize> = (0..l.len()).collect();
        let semi = graph.add(Map::columns(joined, &l, &all))?;
        if !self.anti {
            return Ok(Some(semi));
        }
        let minus = graph.add(Negate::new(semi))?;
        let rest = graph.add(Union::new([self.left, minus]))?;
        let state = graph.props(self.left).non_negative;
        graph.add(if state { Consolidate::state(rest) } else { Consolidate::change(rest) }).map(Some)
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_exprs(std::slice::from_ref(&self.on), inputs)
    }
}

impl Differentiate for SemiJoin {
    /// Computes the delta. The semi-join `L ⋉ R = Σ w(l)·[∃r]` is linear in L with R fixed. Let F be the
    /// change of `[∃r]` (see `flips`). Then `Δ(L ⋉ R) = ΔL ⋉ R′ + L′ ⋈ F − ΔL ⋈ F`, and
    /// `Δ(L ▷ R) = ΔL ▷ R′ − L′ ⋈ F + ΔL ⋈ F`.
    fn delta(&self, cx: &mut Differ<'_>, _node: NodeId) -> Result<Option<NodeId>> {
        let Some(flips) = flips(cx, self.left, self.right, &self.on)? else { return Ok(None) };
        let change = cx.delta(self.left)?;
        let mut terms = Vec::new();
        if !cx.graph.props(change).empty {
            let right = cx.after(self.right)?;
            terms.push(cx.graph.add(SemiJoin { left: change, right, ..self.clone() })?);
        }
        let mut flipped = Vec::new();
        if !cx.graph.props(flips.node).empty {
            let left = cx.after(self.left)?;
            flipped.push(flips.rows(cx, left)?);
            if !cx.graph.props(change).empty {
                let both = flips.rows(cx, change)?;
                flipped.push(negate(cx.graph, both)?);
            }
        }
        for f in flipped {
            terms.push(if self.anti { negate(cx.graph, f)? } else { f });
        }
        sum(cx.graph, self.left, terms).map(Some)
    }
}

/// The values of L for which the existence of a partner changes. Each value consists of the columns of L that
/// the condition reads.
pub(super) struct Flips {
    /// `[∃r ∈ R′] − [∃r ∈ R]` for the values of `cols`: +1 where the first partner came, −1 where the last
    /// partner left. Where the condition may tell equal values apart, the change is computed for each image
    /// of a value.
    pub(super) node: NodeId,
    cols: Vec<usize>,
    /// The images of `cols`, as expressions over the columns of L.
    images: Vec<Expr>,
}

impl Flips {
    /// Returns `L ⋈ F`, projected to the columns of L.
    pub(super) fn rows(&self, cx: &mut Differ<'_>, left: NodeId) -> Result<NodeId> {
        let (l, f) = (cx.graph.schema(left).clone(), cx.graph.schema(self.node).clone());
        let on = Expr::and(self.cols.iter().enumerate().map(|(i, c)| {
            let (a, b) = (l.expr(*c), f.expr(i).shifted(l.len()));
            let nullable = |s: &Schema, i: usize| s.column(i).is_none_or(|c| c.nullable);
            if nullable(&l, *c) && nullable(&f, i) { a.same_as(b) } else { a.equals(b) }
        }));
        let images = self.images.iter().zip(self.cols.len()..);
        let images = images.map(|(image, i)| image.clone().equals(f.expr(i).shifted(l.len())));
        let on = Expr::and([on].into_iter().chain(images));
        let joined = cx.graph.add(Join::new(left, self.node, on))?;
        let all: Vec<usize> = (0..l.len()).collect();
        cx.graph.add(Map::columns(joined, &l, &all))
    }
}

/// Computes the flips of `L ⋉on R` from the number of partners of each value. The candidates are the values
/// of L that have a changed row of R as a partner. The flips are the candidates with a partner after the
/// change, minus the candidates with a partner before it. The count before is `c′ − Δc`, from the count c′
/// after the change. Returns `None` where the condition reads no column of L, or reads a column whose type
/// has no equality.
pub(super) fn flips(cx: &mut Differ<'_>, left: NodeId, right: NodeId, on: &Expr) -> Result<Option<Flips>> {
    let l = cx.graph.schema(left).clone();
    let cols: Vec<usize> = on.columns().into_iter().filter(|c| *c < l.len()).collect();
    if cols.is_empty() || cols.iter().any(|c| !l.columns()[*c].ty.has_equality()) {
        return Ok(None);
    }
    let told = if on.respects_equality() { &[][..] } else { &cols };
    let images: Vec<Expr> = told.iter().filter_map(|c| l.expr(*c).image()).collect();
    let change = cx.delta(right)?;
    if cx.graph.props(change).empty {
        return Ok(Some(Flips { node: change, cols, images }));
    }
    let candidates = candidates(cx, left, change, on, (&cols, &images))?;
    let width = cols.len() + images.len();
    let place = |c: usize| cols.iter().position(|x| *x == c).unwrap_or(0);
    let on = on.map_columns(|c| if c < l.len() { place(c) } else { c - l.len() + width });
    let right = cx.after(right)?;
    let (schema, all) = (cx.graph.schema(candidates).clone(), (0..width).collect::<Vec<_>>());
    let matched = |cx: &mut Differ<'_>, r: NodeId| {
        let pairs = cx.graph.add(Join::new(candidates, r, on.clone()))?;
        cx.graph.add(Map::columns(pairs, &schema, &all))
    };
    let (now, moved) = (matched(cx, right)?, matched(cx, change)?);
    let back = negate(cx.graph, moved)?;
    let was = cx.graph.add(Union::new([now, back]))?;
    let counts = Accumulate::new(was, all.clone(), vec![Acc::count(None)]).with_any_key(cx.graph);
    let was = cx.graph.add(counts)?;
    let was = cx.graph.add(Map::columns(was, &schema, &all))?;
    let now = cx.graph.add(Distinct::by_value(cx.graph, now))?;
    let node = cx.difference(now, was)?;
    Ok(Some(Flips { node, cols, images }))
}

/// Returns the values that may have a changed row of R as a partner. They are values of L's columns, and of
/// expressions over these columns. Where the condition consists of column equalities, the values are read
/// from the changed row of R. Otherwise they are read from the rows of L that match the changed row.
fn candidates(
    cx: &mut Differ<'_>,
    left: NodeId,
    change: NodeId,
    on: &Expr,
    (cols, images): (&[usize], &[Expr]),
) -> Result<NodeId> {
    let keys = join_keys(on, cx.graph.schema(left).len());
    if keys.residual.is_empty() && keys.left.len() == cols.len() {
        let partner = |c: &usize| keys.left.iter().position(|k| k == c).map(|i| keys.right[i]);
        if let Some(right) = cols.iter().map(partner).collect::<Option<Vec<_>>>() {
            return cx.keys(change, &right);
        }
    }
    let (current, moved) = (cx.after(left)?, cx.delta(left)?);
    let mut pairs = vec![cx.graph.add(Join::new(current, change, on.clone()))?];
    if !cx.graph.props(moved).empty {
        let both = cx.graph.add(Join::new(moved, change, on.clone()))?;
        pairs.push(negate(cx.graph, both)?);
    }
    let pairs = sum(cx.graph, pairs[0], pairs.clone())?;
    if images.is_empty() {
        return cx.keys(pairs, cols);
    }
    let l = cx.graph.schema(left).clone();
    let exprs = cols.iter().map(|c| l.expr(*c)).chain(images.iter().cloned()).collect();
    let told = cx.graph.add(Map::new(pairs, exprs))?;
    let all: Vec<usize> = (0..cols.len() + images.len()).collect();
    cx.keys(told, &all)
}

impl Rewrite for SemiJoin {
    fn needed(&self, columns: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        pruned::of_sides(&self.on, columns, inputs)
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let width = graph.schema(self.left).len();
        let (left, right, on, _) = pruned::paired(&self.on, width, inputs)?;
        let kept = inputs[0].kept.clone();
        Pruned::add(graph, SemiJoin { left, right, on, anti: self.anti }, kept)
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::first_input(self, graph, to, Some)
    }
    fn needs_merged(&self, _: &Graph, input: usize, inherits: bool) -> bool {
        input == 1 || inherits
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, graph: &Graph, by: &By) -> Vec<By> {
        lookups::join(graph, (self.left, self.right), &self.on, by, !self.anti)
    }
}

impl Evaluate for SemiJoin {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        inputs[1].require_state("SemiJoin")?;
        let matcher =
            Matcher::new(&self.on, cx.graph.schema(self.left), inputs[1], cx.graph.schema(self.right));
        let mut out = ZSet::new();
        for (row, w) in inputs[0].iter() {
            if matcher.matches(row)? != self.anti {
                out.add(row.clone(), w);
            }
        }
        Ok(out)
    }
}

impl Render for SemiJoin {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [left, right] = cx.arity(inputs)?;
        right.require_positive("SemiJoin")?;
        let (positive, consolidated) = (left.positive, left.consolidated);
        let (l, r) = (cx.graph().schema(self.left), cx.graph().schema(self.right));
        let on = Condition::new(&self.on, l, r);
        let left = cx.open(left, self.left);
        let mut right = cx.open(right, self.right);
        right.weight = Weight::one();
        let left = cx.fit(left, self.left, [&self.on], true);
        let [small_left, small_right] = [self.left, self.right].map(|n| cx.graph().props(n).bounded);
        let body = if self.anti && !small_left && small_right && !on.is_simple() {
            cx.unmatched((left, self.left), (right, self.right), &on)
        } else if let Some(condition) = self.not_reached(&left, &right, cx) {
            let mut left = left;
            left.filter.push(condition);
            Body::Open(left)
        } else if !self.anti && self.matches_once(cx.graph()) {
            // A row of L has at most one partner, so each pair stands for one row of L. Rendered as a join,
            // the SQL lets PostgreSQL start from the smaller input.
            cx.join_keeping_left((left, self.left), (right, self.right), &on)
        } else {
            match crate::sql::not_in(&self.on, &left.columns, &right) {
                Some(condition) if self.anti => {
                    let mut left = left;
                    left.filter.push(condition);
                    Body::Open(left)
                }
                _ => cx.exists((left, self.left), (right, self.right), &on, self.anti),
            }
        };
        Ok(cx.once_per_row([&self.on], Fragment { body, positive, consolidated }))
    }
}

impl SemiJoin {
    /// Returns the condition that a row of L is not in the result of the recursion R. Requires that `on`
    /// equates all columns of R.
    fn not_reached(&self, left: &Block, right: &Block, cx: &mut RenderContext<'_>) -> Option<Scalar> {
        let (l, r) = (cx.graph().schema(self.left), cx.graph().schema(self.right));
        let keys = join_keys(&self.on, l.len());
        let all = (0..r.len()).eq(keys.right.iter().copied()) && keys.residual.is_empty();
        let present = |s: &Schema, of: &[usize]| of.iter().all(|c| !s.columns()[*c].nullable);
        let reached = matches!(cx.graph().rel(self.right), Rel::Recursion(_));
        if !(self.anti && reached && all && present(l, &keys.left) && present(r, &keys.right)) {
            return None;
        }
        let row: Vec<Scalar> = keys.left.iter().map(|c| left.columns[*c].clone()).collect();
        Some(cx.not_hashed(&row, right))
    }

    /// Whether the columns of R that the condition equates contain a key of R.
    fn matches_once(&self, graph: &Graph) -> bool {
        let keys = join_keys(&self.on, graph.schema(self.left).len());
        graph.props(self.right).is_key(&keys.right.into_iter().collect())
    }
}
