//! σ: the rows for which a condition is true.
//!
//! The condition may read the clock. Rows then enter and leave the result as time passes, although no row of
//! the input changes (see the delta).

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried, check_timed,
    lookups, pruned, restriction,
};
use crate::delta::{Differ, Differentiate, negate, sum};
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, ZSet, is_true};
use crate::expr::functions::resolve_function;
use crate::expr::{Expr, Moment};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext, scalar};
use crate::table::TableId;
use std::cmp::Ordering;

/// `σ predicate (R)`: a row for which the condition is false or NULL is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    input: NodeId,
    predicate: Expr,
}

impl Filter {
    /// Denotes the rows of `input` for which `predicate` is true.
    pub fn new(input: NodeId, predicate: Expr) -> Filter {
        Filter { input, predicate }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the condition of the filter.
    pub fn predicate(&self) -> &Expr {
        &self.predicate
    }
    /// Returns the filter with its condition evaluated at another moment.
    #[must_use]
    pub(crate) fn at(&self, moment: Moment) -> Filter {
        Filter { predicate: self.predicate.at(moment), ..self.clone() }
    }
}

/// Returns the plan of `root`, with the start time of the server's transaction instead of the time of the
/// refresh. In the transaction of a refresh the two times are equal.
///
/// # Errors
/// Errors of [`Graph::add`].
pub fn with_servers_clock(graph: &Graph, root: NodeId) -> Result<(Graph, NodeId)> {
    let mut graph = graph.clone();
    let now = resolve_function("now", &[]).ok_or_else(|| Error::internal("now() is not known"))?;
    let now = Expr::call(now, Vec::new());
    let root = graph.rebuild(root, |g, _, rel| match &rel {
        Rel::Filter(f) => g.add(Filter::new(f.input, f.predicate.with_clock(|_| now.clone()))),
        Rel::Map(m) => g.add(m.with_clock(|_| now.clone())),
        _ => g.add(rel),
    })?;
    Ok((graph, root))
}

impl Relational for Filter {
    fn name(&self) -> &'static str {
        "Filter"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Filter { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Filter", inputs)?;
        check_timed("Filter", &self.predicate, &[input.schema()])
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
        let mut p = inputs[0].props().clone();
        p.volatility = p.volatility.max(self.predicate.volatility());
        p.learn(&self.predicate);
        if self.predicate.reads_clock() {
            p.add_source(TableId::CLOCK);
            p.bounded |= self.predicate.crosses();
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        let below = Unsettled::of_first(inputs);
        Unsettled { rows: below.rows || below.decides(&self.predicate), ..below }
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        f(Formula::Scalar(&self.predicate));
    }

    fn carried(&self, inputs: &[Carried], _: &[&Node]) -> Carried {
        carried::unmoved(inputs)
    }
    fn class(&self, _: &[&Node]) -> Class {
        if self.predicate.reads_clock() { Class::Global } else { Class::Linear }
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_exprs(std::slice::from_ref(&self.predicate), inputs)
    }
}

impl Differentiate for Filter {
    /// Computes the delta for a condition p that reads the clock, from time t0 to t1. Let p(t) be the
    /// conjunction of s, which does not read the clock, and of c₁(t) … cₙ(t), which read it.
    ///
    /// `Δσ_p(R) = σ_p(t0)(ΔR) + Σᵢ (σ_eᵢ(R′) − σ_lᵢ(R′))`, with `oᵢ = s ∧ c₁(t0) … cᵢ₋₁(t0) ∧ cᵢ₊₁(t1) …
    /// cₙ(t1)`. Condition cᵢ lets rows enter where `eᵢ = oᵢ ∧ cᵢ(t1) ∧ ¬cᵢ(t0)`, and leave where `lᵢ = oᵢ ∧
    /// cᵢ(t0) ∧ ¬cᵢ(t1)`.
    ///
    /// Proof: `p(t1) − p(t0)` telescopes into `Σᵢ oᵢ (cᵢ(t1) − cᵢ(t0))`, and `σ_p(t0)(R′) − σ_p(t0)(ΔR)` is
    /// the previous result. Where cᵢ compares a column with a time, eᵢ and lᵢ are ranges of this column.
    /// Whichever of t0 and t1 is later, one of the two ranges is empty.
    fn delta(&self, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
        if !self.predicate.reads_clock() {
            return Ok(None);
        }
        let delta = cx.delta(self.input)?;
        let delta = cx.net(delta, self.predicate.can_raise())?;
        if !cx.is_changed(TableId::CLOCK) {
            return cx.graph.add(Filter::new(delta, self.predicate.clone())).map(Some);
        }
        let mut parts = vec![cx.graph.add(self.at(Moment::Then).with_inputs(&[delta]))?];
        let after = cx.after(self.input)?;
        let terms = self.predicate.conjuncts();
        for (i, timed) in terms.iter().enumerate().filter(|(_, t)| t.reads_clock()) {
            let crossing = |from: Moment, to: Moment| {
                let term = |(j, t): (usize, &Expr)| match j.cmp(&i) {
                    Ordering::Less => vec![t.at(Moment::Then)],
                    Ordering::Equal => vec![timed.at(to), timed.at(from).not_beside_itself()],
                    Ordering::Greater => vec![t.at(Moment::Now)],
                };
                Filter::new(after, Expr::and(terms.iter().enumerate().flat_map(term)))
            };
            parts.push(cx.graph.add(crossing(Moment::Then, Moment::Now))?);
            let left = cx.graph.add(crossing(Moment::Now, Moment::Then))?;
            parts.push(negate(cx.graph, left)?);
        }
        sum(cx.graph, node, parts).map(Some)
    }
}

impl Rewrite for Filter {
    fn needed(&self, columns: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        vec![pruned::read([&self.predicate]).union(columns)]
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let input = pruned::only(inputs)?;
        Pruned::add(graph, Filter::new(input.node, input.expr(&self.predicate)), input.kept.clone())
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::first_input(self, graph, to, Some)
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits || self.predicate.can_raise()
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        match self.predicate.crosses() {
            true => vec![by.clone().within(lookups::ranged(&self.predicate))],
            false => vec![by.clone()],
        }
    }
}

impl Evaluate for Filter {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        let predicate = self.predicate.with_clock(|moment| cx.time(moment));
        let mut out = ZSet::new();
        for (row, w) in inputs[0].iter() {
            if is_true(&predicate, row)? {
                out.add(row.clone(), w);
            }
        }
        Ok(out)
    }
}

impl Render for Filter {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let (positive, consolidated) = (input.positive, input.consolidated);
        let block = cx.open(input, self.input);
        let raises = self.predicate.can_raise();
        let block = if raises && block.narrows() { cx.fenced(block, self.input) } else { block };
        let predicate = std::slice::from_ref(&self.predicate);
        let mut block = cx.fit(block, self.input, predicate, true);
        block.filter.extend(self.predicate.conjuncts().iter().map(|t| scalar(t, &block.columns)));
        Ok(cx.once_per_row(predicate, Fragment::open(block, positive, consolidated)))
    }
}
