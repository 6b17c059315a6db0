//! ⋈: the pairs of rows for which a condition is true.

use super::foreign_key::{self, Side};
use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried,
    check_predicate, lookups, pruned,
};
use crate::delta::{Differ, Differentiate, negate, sum};
use crate::error::Result;
use crate::eval::{Context, Evaluate, ZSet, group::Matcher};
use crate::expr::{Expr, ExprKind};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Condition, Fragment, Render, RenderContext};

/// `L ⋈on R`: the columns of L and then the columns of R. The weight of a pair is the product of its rows'
/// weights. With the condition `true` the join is the cross product.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Join {
    left: NodeId,
    right: NodeId,
    on: Expr,
}

impl Join {
    /// Denotes the pairs for which `on` is true.
    pub fn new(left: NodeId, right: NodeId, on: Expr) -> Join {
        Join { left, right, on }
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
}

/// A join condition in parts: equalities that compare a left column with a right column, and the other
/// conjuncts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinKeys {
    /// The columns of the left side that are compared.
    pub left: Vec<usize>,
    /// The columns of the right side that are compared, in the order of `left`. Positions count from the
    /// right side's first column.
    pub right: Vec<usize>,
    /// For each pair of columns, whether NULL equals NULL.
    pub null_safe: Vec<bool>,
    /// The other conjuncts of the condition, over the columns of both sides.
    pub residual: Vec<Expr>,
}

/// Splits a join condition into equalities and the remaining conjuncts. The left side has `left_width`
/// columns.
pub fn join_keys(on: &Expr, left_width: usize) -> JoinKeys {
    let mut keys = JoinKeys { left: vec![], right: vec![], null_safe: vec![], residual: vec![] };
    for term in on.terms() {
        let (sides, safe) = match term.kind() {
            ExprKind::Call(sig, args) if sig.is_equality() && args[0].ty() == args[1].ty() => {
                (Some((&args[0], &args[1])), false)
            }
            ExprKind::Distinct { left, right, negated: true } => (Some((left, right)), true),
            _ => (None, false),
        };
        let pair = sides.and_then(|(l, r)| Some((l.as_column()?, r.as_column()?)));
        let (l, r) = match pair {
            Some((a, b)) if a < left_width && b >= left_width => (a, b - left_width),
            Some((a, b)) if b < left_width && a >= left_width => (b, a - left_width),
            _ => {
                keys.residual.push(term.clone());
                continue;
            }
        };
        keys.left.push(l);
        keys.right.push(r);
        keys.null_safe.push(safe);
    }
    keys
}

impl Relational for Join {
    fn name(&self) -> &'static str {
        "Join"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.left, self.right]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        match inputs {
            [left, right] => Join { left: *left, right: *right, on: self.on.clone() }.into(),
            _ => self.clone().into(),
        }
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [l, r] = arity("Join", inputs)?;
        check_predicate("Join", &self.on, &[l.schema(), r.schema()])
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().concat(inputs[1].schema())
    }
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
        let by = inputs[0].schema().len();
        let mut p = Props::product(inputs[0].props(), inputs[1].props(), by);
        p.volatility = p.volatility.max(self.on.volatility());
        p.learn(&self.on);
        p.pair_keys(inputs[0].props(), inputs[1].props(), by);
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
        match inputs {
            [Carried::Absent, right] => right.moved(|c| Some(c + nodes[0].schema().len())),
            _ => carried::from_left(&self.on, inputs, nodes),
        }
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Bilinear
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_exprs(std::slice::from_ref(&self.on), inputs)
    }
}

impl Differentiate for Join {
    /// Computes the delta over a trusted foreign key from R to S. The foreign key guarantees that in every
    /// state, every row of R has its partner in S. A key that left S therefore has no rows in R′, and a key
    /// that came to S had none in R. In `R′ ⋈ ΔS − ΔR ⋈ ΔS`, the first term therefore needs only the rows of
    /// ΔS whose key stayed. The second term needs the rows of ΔS whose key stayed or left.
    fn delta(&self, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
        let width = cx.graph.schema(self.left).len();
        let Some((side, key)) = foreign_key::referenced_side(cx, self, width) else { return Ok(None) };
        let (l, r) = (self.left, self.right);
        let (dl, dr) = (cx.delta(l)?, cx.delta(r)?);
        let (referencing, referenced) = if side == Side::Left { (dr, dl) } else { (dl, dr) };
        if cx.graph.props(referenced).empty {
            return Ok(None);
        }
        let kept = foreign_key::kept(cx, referenced, &key)?;
        let (after_l, after_r) = (cx.after(l)?, cx.after(r)?);
        let join = |cx: &mut Differ<'_>, referencing: NodeId, referenced: NodeId| {
            let (a, b) =
                if side == Side::Left { (referenced, referencing) } else { (referencing, referenced) };
            cx.graph.add(Join::new(a, b, self.on.clone()))
        };
        let (now_referencing, now_referenced) =
            if side == Side::Left { (after_r, after_l) } else { (after_l, after_r) };
        let mut terms = vec![join(cx, now_referencing, kept.stayed)?];
        if !cx.graph.props(referencing).empty {
            terms.push(join(cx, referencing, now_referenced)?);
            let both = join(cx, referencing, kept.stayed_or_left)?;
            terms.push(negate(cx.graph, both)?);
        }
        sum(cx.graph, node, terms).map(Some)
    }
}

impl Rewrite for Join {
    fn needed(&self, columns: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        pruned::of_sides(&self.on, columns, inputs)
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let width = graph.schema(self.left).len();
        let (left, right, on, kept) = pruned::paired(&self.on, width, inputs)?;
        Pruned::add(graph, Join::new(left, right, on), kept)
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        let (l, r) = (graph.schema(self.left).len(), graph.schema(self.right).len());
        let (mut a, mut b) = (self.left, self.right);
        // A restriction by columns of both inputs first restricts the left input by the left input's columns.
        // The whole restriction is then applied to the pairs. The join condition may carry the restriction
        // over to the right input.
        let (left, right) = (to.part(0..l), to.part(l..l + r));
        let whole = left.is_none() || right.is_none();
        if let Some(left) = left {
            if graph.props(a).bounded {
                return Ok(None);
            }
            a = left.of(graph, a)?;
        } else if let Some(right) = right {
            if graph.props(b).bounded {
                return Ok(None);
            }
            b = right.of(graph, b)?;
        }
        let joined = graph.add(Join::new(a, b, self.on.clone()))?;
        if whole { Ok(Some(joined)) } else { to.above(graph, joined).map(Some) }
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, graph: &Graph, by: &By) -> Vec<By> {
        lookups::join(graph, (self.left, self.right), &self.on, by, true)
    }
}

impl Evaluate for Join {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        let matcher =
            Matcher::new(&self.on, cx.graph.schema(self.left), inputs[1], cx.graph.schema(self.right));
        let mut out = ZSet::new();
        for (row, w) in inputs[0].iter() {
            matcher.pairs(row, |pair, _, v| {
                out.add(pair, w.wrapping_mul(v));
                true
            })?;
        }
        Ok(out)
    }
}

impl Render for Join {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [left, right] = cx.arity(inputs)?;
        let positive = left.positive && right.positive;
        let consolidated = left.consolidated && right.consolidated;
        let (l, r) = (cx.graph().schema(self.left), cx.graph().schema(self.right));
        let on = Condition::new(&self.on, l, r);
        let left = cx.open(left, self.left);
        let right = cx.open(right, self.right);
        let left = cx.fit(left, self.left, [&self.on], true);
        let right = cx.fit(right, self.right, [&self.on.map_columns(|c| c.wrapping_sub(l.len()))], true);
        let body = cx.join((left, self.left), (right, self.right), &on);
        let body = cx.once_per_row([&self.on], Fragment { body, positive, consolidated });
        Ok(body)
    }
}
