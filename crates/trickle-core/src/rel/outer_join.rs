//! ⟕ and ⟗: joins that also give the rows without a partner.

use super::{
    By, Carried, Class, Formula, Join, Map, Pruned, Rel, Relational, Restriction, Rewrite, SemiJoin, Union,
    arity, carried, check_positive, check_predicate, join_keys, lookups, pruned, restriction,
    semi_join::flips,
};
use crate::delta::{Differ, Differentiate, negate, sum};
use crate::error::Result;
use crate::eval::{Context, Evaluate, Row, ZSet, group::Matcher};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Condition, Fragment, Render, RenderContext};
use crate::types::Datum;
use std::collections::BTreeSet;

/// `L ⟕on R`: the pairs for which `on` is true, and each row of L without a partner, padded with NULLs.
/// `L ⟗on R` also has the rows of R without a partner, padded with NULLs. (A right join is a left join with
/// exchanged inputs.)
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OuterJoin {
    left: NodeId,
    right: NodeId,
    on: Expr,
    full: bool,
}

impl OuterJoin {
    /// Makes `L ⟕on R`.
    pub fn left(left: NodeId, right: NodeId, on: Expr) -> OuterJoin {
        OuterJoin { left, right, on, full: false }
    }
    /// Makes `L ⟗on R`.
    pub fn full(left: NodeId, right: NodeId, on: Expr) -> OuterJoin {
        OuterJoin { left, right, on, full: true }
    }
    /// Returns the left input.
    pub fn left_input(&self) -> NodeId {
        self.left
    }
    /// Returns the right input.
    pub fn right_input(&self) -> NodeId {
        self.right
    }
    /// Returns the condition. It reads the columns of the left input and then the columns of the right input.
    pub fn on(&self) -> &Expr {
        &self.on
    }
    /// Returns `rows`, which are rows of L, padded with NULLs for the columns of R.
    fn padded_left(&self, graph: &mut Graph, rows: NodeId) -> Result<NodeId> {
        let (l, r) = (graph.schema(self.left).clone(), graph.schema(self.right).clone());
        graph
            .add(Map::new(rows, l.identity().into_iter().chain(nulls(&r)).collect()).labelled(labels(&l, &r)))
    }
    /// Returns `NULL × (R ▷ L)`: the rows of R without a partner, padded with NULLs for the columns of L.
    fn lonely_right(&self, graph: &mut Graph) -> Result<NodeId> {
        let (l, r) = (graph.schema(self.left).clone(), graph.schema(self.right).clone());
        let on = swap_sides(&self.on, l.len(), r.len());
        let lonely = graph.add(SemiJoin::anti(self.right, self.left, on))?;
        graph.add(Map::new(lonely, nulls(&l).chain(r.identity()).collect()).labelled(labels(&l, &r)))
    }
    /// Whether the result also has those rows of the right input that have no partner.
    pub fn is_full(&self) -> bool {
        self.full
    }
}

fn nulls(schema: &Schema) -> impl Iterator<Item = Expr> {
    schema.columns().iter().map(|c| Expr::null(c.ty.clone()))
}

fn labels(left: &Schema, right: &Schema) -> Vec<std::sync::Arc<str>> {
    left.columns().iter().chain(right.columns()).map(|c| c.label.clone()).collect()
}

/// Returns `on` with the columns of its two sides exchanged.
pub(crate) fn swap_sides(on: &Expr, left: usize, right: usize) -> Expr {
    on.map_columns(|i| if i < left { i + right } else { i - left })
}

impl Relational for OuterJoin {
    fn name(&self) -> &'static str {
        if self.full { "FullJoin" } else { "LeftJoin" }
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.left, self.right]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        match inputs {
            [left, right] => OuterJoin { left: *left, right: *right, ..self.clone() }.into(),
            _ => self.clone().into(),
        }
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [l, r] = arity("OuterJoin", inputs)?;
        check_predicate("OuterJoin", &self.on, &[l.schema(), r.schema()])?;
        if self.full {
            check_positive("FullJoin", l)?;
        }
        check_positive("OuterJoin", r)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        let (l, r) = (inputs[0].schema(), inputs[1].schema());
        if self.full { l.all_nullable().concat(&r.all_nullable()) } else { l.concat(&r.all_nullable()) }
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let (l, r) = (inputs[0], inputs[1]);
        let by = l.schema().len();
        let mut p = Props::product(l.props(), r.props(), by);
        p.volatility = p.volatility.max(self.on.volatility());
        p.empty = l.props().empty && (!self.full || r.props().empty);
        p.bounded = l.props().bounded && (!self.full || r.props().bounded);
        // Padding adds rows that are NULL in all columns of one input. A functional dependency between
        // columns of this input still holds only if a column of its determinant was never NULL.
        p.fds.retain(|f| {
            let inner = |c: usize| if c < by { !self.full } else { false };
            let never_null = |c: usize| {
                !if c < by { l.schema() } else { r.schema() }.columns()[if c < by { c } else { c - by }]
                    .nullable
            };
            f.from.iter().chain(f.to.iter()).all(inner) || f.from.iter().any(never_null)
        });
        let keys = join_keys(&self.on, by);
        let one = |side: &Node, cols: &[usize]| side.props().is_key(&cols.iter().copied().collect());
        if !self.full && one(r, &keys.right) {
            // Each row of L has at most one partner here, so the keys of L stay keys.
            for k in &l.props().keys {
                let from = k.clone();
                p.fds.push(crate::graph::FunctionalDependency {
                    from,
                    to: crate::graph::ColSet::all(schema.len()),
                });
                p.add_key(k.clone());
            }
        }
        // A padded row and an input row can agree on a key of the input only if all key columns can be NULL.
        let sound = |side: &Node| {
            side.props()
                .keys
                .iter()
                .filter(|k| k.iter().any(|c| !side.schema().columns()[c].nullable))
                .cloned()
                .collect::<Vec<_>>()
        };
        let (lk, rk) = (sound(l), sound(r));
        // A row of L that is all NULL and a row of R that is all NULL give the same row when each is padded.
        p.consolidated &= !self.full || !lk.is_empty() || !rk.is_empty();
        for a in if self.full { &lk } else { &l.props().keys } {
            for b in &rk {
                p.add_key(a.union(&b.shifted(by)));
            }
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        let (pairs, decided) = Unsettled::of_pairs(inputs, self.on());
        Unsettled { rows: pairs.rows || decided, ..pairs }
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        f(Formula::Scalar(self.on()));
    }

    fn carried(&self, inputs: &[Carried], nodes: &[&Node]) -> Carried {
        if self.full { carried::mixed(inputs) } else { carried::from_left(&self.on, inputs, nodes) }
    }
    fn class(&self, inputs: &[&Node]) -> Class {
        let by = inputs[0].schema().len();
        let keys = join_keys(&self.on, by);
        let equality = |c: &usize| inputs[0].schema().columns()[*c].ty.has_equality();
        // A padded row of the right input has its key in the right input's columns. Other rows have their key
        // in the left input's columns. `Class::PerKey` names only one set of output columns, so ⟕ is per key
        // and ⟗ is not.
        if self.full || keys.left.is_empty() || !keys.left.iter().all(equality) {
            return Class::Global;
        }
        Class::PerKey { output: keys.left.clone(), keys: vec![keys.left, keys.right] }
    }
    /// Returns `L ⟕ R = L ⋈ R + (L ▷ R) × NULL`. For ⟗, `NULL × (R ▷ L)` is added.
    fn expand(&self, graph: &mut Graph) -> Result<Option<NodeId>> {
        let pairs = graph.add(Join::new(self.left, self.right, self.on.clone()))?;
        let lonely = graph.add(SemiJoin::anti(self.left, self.right, self.on.clone()))?;
        let mut parts = vec![pairs, self.padded_left(graph, lonely)?];
        if self.full {
            parts.push(self.lonely_right(graph)?);
        }
        graph.add(Union::new(parts)).map(Some)
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_exprs(std::slice::from_ref(&self.on), inputs)
    }
}

impl Differentiate for OuterJoin {
    /// Computes `Δ(L ⟕ R) = ΔL ⟕ R′ + L′ ⋈ ΔR − ΔL ⋈ ΔR − (L′ ⋈ F − ΔL ⋈ F) × NULL`. F is the change of
    /// `[∃r]`, which says whether a row of L has a partner. For ⟗, `Δ(NULL × (R ▷ L))` is added.
    fn delta(&self, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
        if self.full {
            let left = cx.graph.add(OuterJoin { full: false, ..self.clone() })?;
            let lonely = self.lonely_right(cx.graph)?;
            let (left, lonely) = (cx.delta(left)?, cx.delta(lonely)?);
            return sum(cx.graph, node, [left, lonely]).map(Some);
        }
        let Some(flips) = flips(cx, self.left, self.right, &self.on)? else { return Ok(None) };
        let (dl, dr) = (cx.delta(self.left)?, cx.delta(self.right)?);
        let (moved_l, moved_r) = (!cx.graph.props(dl).empty, !cx.graph.props(dr).empty);
        let mut terms = Vec::new();
        if moved_l {
            let right = cx.after(self.right)?;
            terms.push(cx.graph.add(OuterJoin { left: dl, right, ..self.clone() })?);
        }
        if moved_r {
            let left = cx.after(self.left)?;
            terms.push(cx.graph.add(Join::new(left, dr, self.on.clone()))?);
            let flipped = flips.rows(cx, left)?;
            let padded = self.padded_left(cx.graph, flipped)?;
            terms.push(negate(cx.graph, padded)?);
        }
        if moved_l && moved_r {
            let both = cx.graph.add(Join::new(dl, dr, self.on.clone()))?;
            terms.push(negate(cx.graph, both)?);
            let flipped = flips.rows(cx, dl)?;
            terms.push(self.padded_left(cx.graph, flipped)?);
        }
        sum(cx.graph, node, terms).map(Some)
    }
}

impl Rewrite for OuterJoin {
    fn needed(&self, columns: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        pruned::of_sides(&self.on, columns, inputs)
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let width = graph.schema(self.left).len();
        let (left, right, on, kept) = pruned::paired(&self.on, width, inputs)?;
        Pruned::add(graph, OuterJoin { left, right, on, full: self.full }, kept)
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        let width = graph.schema(self.left).len();
        if self.full {
            return Ok(None);
        }
        restriction::first_input(self, graph, to, |c| (c < width).then_some(c))
    }
    fn needs_merged(&self, _: &Graph, input: usize, inherits: bool) -> bool {
        input == 1 || self.full || inherits
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, graph: &Graph, by: &By) -> Vec<By> {
        match self.full {
            true => vec![By::default(), By::default()],
            false => lookups::join(graph, (self.left, self.right), &self.on, by, false),
        }
    }
}

impl Evaluate for OuterJoin {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        if self.full {
            inputs[0].require_state("FullJoin")?;
        }
        inputs[1].require_state("OuterJoin")?;
        let (left, right) = (cx.graph.schema(self.left), cx.graph.schema(self.right));
        let matcher = Matcher::new(&self.on, left, inputs[1], right);
        let nulls = |n: usize| std::iter::repeat_n(Datum::Null, n);
        let (mut out, mut matched) = (ZSet::new(), BTreeSet::new());
        for (row, w) in inputs[0].iter() {
            let mut lonely = true;
            matcher.pairs(row, |pair, partner, v| {
                out.add(pair, w.wrapping_mul(v));
                lonely = false;
                if self.full {
                    matched.insert(partner);
                }
                true
            })?;
            if lonely {
                out.add(row.iter().cloned().chain(nulls(right.len())).collect::<Row>(), w);
            }
        }
        for (row, w) in inputs[1].iter().filter(|(r, _)| self.full && !matched.contains(r)) {
            out.add(nulls(left.len()).chain(row.iter().cloned()).collect::<Row>(), w);
        }
        Ok(out)
    }
}

impl Render for OuterJoin {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [left, right] = cx.arity(inputs)?;
        right.require_positive(self.name())?;
        if self.full {
            left.require_positive(self.name())?;
        }
        let positive = left.positive && right.positive;
        let consolidated = left.consolidated && right.consolidated && cx.is_consolidated();
        let (l, r) = (cx.graph().schema(self.left), cx.graph().schema(self.right));
        let on = Condition::new(&self.on, l, r);
        let hashable = !join_keys(&self.on, l.len()).left.is_empty() && on.is_simple();
        let left = (cx.open(left, self.left), self.left);
        let right = (cx.open(right, self.right), self.right);
        let body = match (self.full, hashable) {
            (false, _) => cx.left_join(left, right, &on),
            (true, true) => cx.full_join(left, right, &on),
            (true, false) => {
                let swapped = Condition::new(&swap_sides(&self.on, l.len(), r.len()), r, l);
                cx.full_join_by_parts(left, right, &on, &swapped)
            }
        };
        Ok(cx.once_per_row([&self.on], Fragment { body, positive, consolidated }))
    }
}
