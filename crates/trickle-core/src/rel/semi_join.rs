//! ⋉ and ▷: rows that have, or have no, partner.

use super::{
    Class, Consolidate, Distinct, Join, Map, Negate, Rel, Relational, Union, arity, check_positive,
    check_predicate, join_keys,
};
use crate::delta::Differentiate;
use crate::error::Result;
use crate::eval::{Context, Evaluate, ZSet, group::Matcher};
use crate::expr::Expr;
use crate::graph::{Graph, Node, NodeId, Props, Schema};
use crate::sql::Render;

/// `L ⋉on R` (EXISTS): the rows of L for which `on` is true with some row of R; `▷` (NOT EXISTS) where with none.
/// L keeps its weights and may be a change; R is a state.
///
/// NOT IN is the anti-join whose condition is `(l = r) IS NOT FALSE`, which is three-valued logic read off directly.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SemiJoin {
    left: NodeId,
    right: NodeId,
    on: Expr,
    anti: bool,
}

impl SemiJoin {
    /// `L ⋉on R`
    pub fn semi(left: NodeId, right: NodeId, on: Expr) -> SemiJoin {
        SemiJoin { left, right, on, anti: false }
    }
    /// `L ▷on R`
    pub fn anti(left: NodeId, right: NodeId, on: Expr) -> SemiJoin {
        SemiJoin { left, right, on, anti: true }
    }
    /// `R ⋉ K`: the rows of `input` whose columns `cols` are the same (NULL equal to NULL) as the columns of a row
    /// of `keys`.
    pub fn restrict(graph: &Graph, input: NodeId, cols: &[usize], keys: NodeId) -> SemiJoin {
        let (l, k) = (graph.schema(input), graph.schema(keys));
        let on = Expr::and(cols.iter().enumerate().map(|(i, c)| {
            let (a, b) = (l.expr(*c), k.expr(i).shifted(l.len()));
            let nullable = |s: &Schema, i: usize| s.column(i).is_none_or(|c| c.nullable);
            if nullable(l, *c) && nullable(k, i) { a.same_as(b) } else { a.equals(b) }
        }));
        SemiJoin::semi(input, keys, on)
    }
    /// Left input.
    pub fn left(&self) -> NodeId {
        self.left
    }
    /// Right input.
    pub fn right(&self) -> NodeId {
        self.right
    }
    /// The condition, over the columns of both.
    pub fn on(&self) -> &Expr {
        &self.on
    }
    /// Whether it keeps the rows without a partner.
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
        check_predicate("SemiJoin", &self.on, &l.schema().concat(r.schema()))?;
        check_positive("SemiJoin", r)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
        let (l, r) = (inputs[0].props(), inputs[1].props());
        let mut p = l.clone();
        p.sources.extend(&r.sources);
        p.reads_delta |= r.reads_delta;
        p.volatility = p.volatility.max(r.volatility).max(self.on.volatility());
        p.empty = l.empty || (r.empty && !self.anti);
        p
    }
    fn class(&self, inputs: &[&Node]) -> Class {
        let keys = join_keys(&self.on, inputs[0].schema().len());
        let equality = |c: &usize| inputs[0].schema().columns()[*c].ty.has_equality();
        if keys.left.is_empty() || !keys.left.iter().all(equality) {
            return Class::Global;
        }
        Class::PerKey { output: keys.left.clone(), keys: vec![keys.left, keys.right] }
    }
    /// With a condition of column equalities alone, `L ⋈ δ(π_keys R)`; else through the rows of L that match,
    /// `L ⋈≡ δ(π_L(δL ⋈on R))`; and `L ▷ R = L − L ⋉ R`.
    fn expand(&self, graph: &mut Graph) -> Result<Option<NodeId>> {
        let (l, r) = (graph.schema(self.left).clone(), graph.schema(self.right).clone());
        let keys = join_keys(&self.on, l.len());
        if (keys.residual.is_empty() && keys.left.is_empty()) || l.without_equality().is_some() {
            return Ok(None);
        }
        let (matched, on) = if keys.residual.is_empty() {
            let projected = graph.add(Map::columns(self.right, &r, &keys.right))?;
            let matched = graph.add(Distinct::new(projected))?;
            let m = graph.schema(matched).clone();
            let on = keys.left.iter().enumerate().map(|(i, c)| {
                let (a, b) = (l.expr(*c), m.expr(i).shifted(l.len()));
                if keys.null_safe[i] { a.same_as(b) } else { a.equals(b) }
            });
            (matched, Expr::and(on))
        } else {
            if !graph.props(self.left).positive {
                return Ok(None);
            }
            let pairs = graph.add(Join::new(self.left, self.right, self.on.clone()))?;
            let all: Vec<usize> = (0..l.len()).collect();
            let projected = graph.add(Map::columns(pairs, &l, &all))?;
            let matched = graph.add(Distinct::new(projected))?;
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

impl Differentiate for SemiJoin {}

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

impl Render for SemiJoin {}
