//! π: one output row for each input row.
//!
//! The expressions may contain conditions on the clock. Rows of the result then change as time passes,
//! although no row of the input changes.

use super::{
    By, Carried, Class, Filter, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, check_columns,
    label, pruned, restriction,
};
use crate::delta::{Differ, Differentiate, negate, sum};
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, Row, ZSet, expr};
use crate::expr::{Expr, Moment, Volatility};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema, images};
use crate::sql::{Fragment, Render, RenderContext, scalar};
use crate::table::TableId;
use std::sync::Arc;

/// `π exprs (R)`: each output column is computed from one input row. Duplicates stay.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Map {
    input: NodeId,
    exprs: Vec<Expr>,
    labels: Option<Vec<Arc<str>>>,
}

impl Map {
    /// Computes the expressions `exprs` over each row of `input`.
    pub fn new(input: NodeId, exprs: Vec<Expr>) -> Map {
        Map { input, exprs, labels: None }
    }
    /// Selects the columns of `input` at `positions`, in this order. The schema of `input` is `schema`.
    pub fn columns(input: NodeId, schema: &Schema, positions: &[usize]) -> Map {
        Map::new(input, positions.iter().map(|p| schema.expr(*p)).collect())
    }
    /// Sets the labels of the output columns.
    #[must_use]
    pub fn labelled(mut self, labels: Vec<Arc<str>>) -> Map {
        self.labels = Some(labels);
        self
    }
    /// Returns the map with its expressions evaluated at another moment.
    #[must_use]
    pub(crate) fn at(&self, moment: Moment) -> Map {
        Map { exprs: self.exprs.iter().map(|e| e.at(moment)).collect(), ..self.clone() }
    }
    /// Returns the map with `time(moment)` in place of each time that its expressions read.
    #[must_use]
    pub(crate) fn with_clock(&self, mut time: impl FnMut(Moment) -> Expr) -> Map {
        Map { exprs: self.exprs.iter().map(|e| e.with_clock(&mut time)).collect(), ..self.clone() }
    }
    fn reads_clock(&self) -> bool {
        self.exprs.iter().any(Expr::reads_clock)
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the output expressions.
    pub fn exprs(&self) -> &[Expr] {
        &self.exprs
    }
    /// Returns the labels, if they were set.
    pub fn labels(&self) -> Option<&[Arc<str>]> {
        self.labels.as_deref()
    }
}

impl Relational for Map {
    fn name(&self) -> &'static str {
        "Map"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Map { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Map", inputs)?;
        self.exprs.iter().try_for_each(|e| match e.reads_clock() {
            true if e.can_raise() || e.timed_conditions().is_none() => Err(Error::timed("Map")),
            _ => check_columns("Map", e, &[input.schema()]),
        })
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        let input = inputs[0].schema();
        Schema::new(self.exprs.iter().enumerate().map(|(i, e)| Column {
            label: self.labels.as_ref().and_then(|l| l.get(i)).cloned().unwrap_or_else(|| label(e, input)),
            ty: e.ty().clone(),
            nullable: e.nullable(input),
        }))
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let input = inputs[0];
        let image = images(input.schema().len(), self.exprs.iter().map(Expr::as_column));
        let mut p = input.props().project(&image);
        // Equal values of the columns that an expression reads give equal values of the expression. A
        // computed column, or a second copy of a column, therefore depends on the columns that it reads.
        let known = p.fds.len();
        for (i, e) in self.exprs.iter().enumerate() {
            let same = e.as_column().is_some_and(|c| image[c] == Some(i));
            if same || e.volatility() != Volatility::Immutable || !e.respects_equality() {
                continue;
            }
            let (mut from, mut whole) = (ColSet::new(), true);
            e.each_column(|c| match image[c] {
                Some(place) => from.insert(place),
                None => whole = false,
            });
            if whole {
                p.fds.push(FunctionalDependency { from, to: [i].into_iter().collect() });
            }
        }
        if p.fds.len() > known {
            for key in std::mem::take(&mut p.keys) {
                p.add_key(key);
            }
        }
        debug_assert_eq!(schema.len(), self.exprs.len());
        p.volatility = self.exprs.iter().map(Expr::volatility).fold(p.volatility, Ord::max);
        // Different input rows surely stay different in two cases only. The map passes on every column, or it
        // passes on a key and the input is a state.
        let injective = image.iter().all(Option::is_some);
        p.consolidated = input.props().consolidated && (injective || (p.positive && !p.keys.is_empty()));
        if self.reads_clock() {
            p.add_source(TableId::CLOCK);
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        let below = Unsettled::of_first(inputs);
        let all = |holds: &dyn Fn(&Expr) -> bool| {
            (0..self.exprs.len()).filter(|i| holds(&self.exprs[*i])).collect::<ColSet>()
        };
        Unsettled {
            written: all(&|e| below.reads(e) && !e.is_exact()),
            values: all(&|e| below.decides(e)),
            rounded: all(&|e| below.rounds(e)),
            shuffled: all(&|e| e.as_column().is_some_and(|c| below.shuffled.contains(c))),
            rows: below.rows,
        }
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        self.exprs.iter().for_each(|e| f(Formula::Scalar(e)));
    }

    fn carried(&self, inputs: &[Carried], _: &[&Node]) -> Carried {
        match inputs {
            [input] => input.moved(|c| self.exprs.iter().position(|e| e.as_column() == Some(c))),
            _ => Carried::Mixed,
        }
    }
    fn class(&self, _: &[&Node]) -> Class {
        if self.reads_clock() { Class::Global } else { Class::Linear }
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_exprs(&self.exprs, inputs)
    }
}

impl Differentiate for Map {
    /// Computes the delta for a map f that reads the clock, from time t0 to t1. Here c₁(t) … cₙ(t) are the
    /// conditions on the clock that f contains.
    ///
    /// `Δπ_f(R) = π_f(t0)(ΔR) + Σᵢ (π_f(t1)(σ_dᵢ(R′)) − π_f(t0)(σ_dᵢ(R′)))`. Condition dᵢ is true where cᵢ
    /// differs between t0 and t1 and none of c₁ … cᵢ₋₁ differs. For a row that fulfils no dᵢ, f has the same
    /// value at both times.
    fn delta(&self, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
        if !self.reads_clock() {
            return super::window::shown(self, cx, node);
        }
        let delta = cx.delta(self.input)?;
        let delta = cx.net(delta, self.exprs.iter().any(Expr::can_raise))?;
        if !cx.is_changed(TableId::CLOCK) {
            return cx.graph.add(self.with_inputs(&[delta])).map(Some);
        }
        let then: Rel = self.at(Moment::Then).into();
        let now: Rel = self.at(Moment::Now).into();
        let mut parts = vec![cx.graph.add(then.as_operator().with_inputs(&[delta]))?];
        let after = cx.after(self.input)?;
        let conditions = self.exprs.iter().filter_map(Expr::timed_conditions).flatten();
        let mut still = Vec::new();
        for condition in conditions {
            if still.contains(&condition.holds_still()) {
                continue;
            }
            for turn in condition.turns() {
                let turned = Filter::new(after, Expr::and([turn].into_iter().chain(still.iter().cloned())));
                let turned = cx.graph.add(turned)?;
                parts.push(cx.graph.add(now.as_operator().with_inputs(&[turned]))?);
                let old = cx.graph.add(then.as_operator().with_inputs(&[turned]))?;
                parts.push(negate(cx.graph, old)?);
            }
            still.push(condition.holds_still());
        }
        sum(cx.graph, node, parts).map(Some)
    }
}

impl Rewrite for Map {
    fn needed(&self, columns: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        vec![pruned::read(columns.iter().map(|i| &self.exprs[i]))]
    }
    fn pruned(&self, graph: &mut Graph, columns: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let input = pruned::only(inputs)?;
        let exprs = columns.iter().map(|i| input.expr(&self.exprs[i])).collect();
        let schema = self.schema(&[graph.node(self.input)]);
        let of = |_: &Vec<Arc<str>>| columns.iter().map(|i| schema.columns()[i].label.clone()).collect();
        let labels = self.labels.as_ref().map(of);
        Pruned::add(graph, Map { input: input.node, exprs, labels }, columns.clone())
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::first_input(self, graph, to, |c| self.exprs[c].as_column())
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits || self.exprs.iter().any(Expr::can_raise)
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.through(|c| self.exprs.get(c)?.as_column())]
    }
}

impl Evaluate for Map {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        let exprs: Vec<Expr> = self.exprs.iter().map(|e| e.with_clock(|moment| cx.time(moment))).collect();
        let image = |row: &Row| exprs.iter().map(|e| expr(e, row)).collect::<Result<Row>>();
        inputs[0].iter().map(|(row, w)| Ok((image(row)?, w))).collect()
    }
}

impl Render for Map {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let (positive, consolidated) = (input.positive, input.consolidated && cx.is_consolidated());
        let block = cx.open(input, self.input);
        let mut block = cx.fit(block, self.input, &self.exprs, false);
        block.columns = self.exprs.iter().map(|e| scalar(e, &block.columns)).collect();
        Ok(cx.once_per_row(&self.exprs, Fragment::open(block, positive, consolidated)))
    }
}
