//! γ: one output row for each group.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried, check_expr,
    check_keys, check_positive, extend, pruned, restriction,
};
use crate::agg::AggCall;
use crate::delta::{Differ, Differentiate};
use crate::error::Result;
use crate::eval::{Context, Evaluate, Row, ZSet, aggregates, group};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled, adds, chooses, depends, groups, lists, made_of_rounded};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema, images};
use crate::sql::{Fragment, Render, RenderContext, aggregate};

/// `γ keys; aggs (R)`: for each group that has a row, the key columns and then the aggregates. Without key
/// columns the result always has exactly one row. NULL keys are equal to each other. Where several keys are
/// equal, the result has the key with the least images. An aggregate that picks one of several equal values
/// follows the same rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    input: NodeId,
    keys: Vec<usize>,
    aggs: Vec<AggCall>,
}

impl Reduce {
    /// Groups `input` by the columns `keys`.
    pub fn new(input: NodeId, keys: Vec<usize>, aggs: Vec<AggCall>) -> Reduce {
        Reduce { input, keys, aggs }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the positions of the key columns in the input.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }
    /// Whether updating the stored groups reads the `i`-th aggregate, even if no reader of the result needs
    /// the aggregate.
    pub(crate) fn upkeep_reads(&self, i: usize) -> bool {
        i == 0 && extend::is_extended(self)
    }
    /// Returns the aggregates.
    pub fn aggs(&self) -> &[AggCall] {
        &self.aggs
    }
}

impl Relational for Reduce {
    fn name(&self) -> &'static str {
        "Reduce"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Reduce { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Reduce", inputs)?;
        check_keys("Reduce", self.keys.iter().copied(), input.schema())?;
        self.aggs
            .iter()
            .flat_map(AggCall::exprs)
            .try_for_each(|e| check_expr("Reduce", e, &[input.schema()]))?;
        check_positive("Reduce", input)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        let input = inputs[0].schema();
        let aggs = self.aggs.iter().map(|a| Column {
            label: a.sig.name.clone(),
            ty: a.sig.ret.clone(),
            nullable: a.nullable(!self.keys.is_empty(), input),
        });
        Schema::new(input.select(&self.keys).columns().iter().cloned().chain(aggs))
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let image = images(inputs[0].schema().len(), self.keys.iter().copied().map(Some));
        let mut p = inputs[0].props().project(&image);
        p.positive = true;
        p.consolidated = true;
        p.empty = p.empty && !self.keys.is_empty();
        p.volatility =
            self.aggs.iter().flat_map(AggCall::exprs).map(Expr::volatility).fold(p.volatility, Ord::max);
        let key = ColSet::all(self.keys.len());
        p.keys.clear();
        p.fds.push(FunctionalDependency { from: key.clone(), to: ColSet::all(schema.len()) });
        p.add_key(key);
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], schema: &Schema) -> Unsettled {
        let below = Unsettled::of_first(inputs);
        let mut open = groups(&below, schema, &self.keys, self.aggs.len(), &|i, open| {
            let call = &self.aggs[i];
            (chooses(call) || call.exprs().any(|e| open.reads(e)), depends(call, open))
        });
        let keys = self.keys.iter().map(|k| below.rounded.contains(*k));
        let sums = self.aggs.iter().map(|call| adds(call) || made_of_rounded(call, &below));
        let rounded = keys.chain(sums).enumerate().filter(|(_, rounded)| *rounded);
        open.rounded = rounded.map(|(c, _)| c).collect();
        for (i, call) in self.aggs.iter().enumerate().filter(|(_, call)| lists(call)) {
            let column = self.keys.len() + i;
            let given = call.order_by.iter().filter_map(|k| k.expr.as_column());
            let given = given.chain(self.keys.iter().copied()).collect();
            let ordered = inputs.first().is_some_and(|input| input.node.props().is_key(&given));
            if !ordered && !call.is_ordered_by_itself() {
                // A column counts as shuffled only if the query determines which elements its lists have.
                if !open.values.contains(column) {
                    open.shuffled.insert(column);
                }
                open.values.insert(column);
            }
        }
        open
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        self.aggs().iter().for_each(|a| f(Formula::Aggregate(a)));
    }

    fn carried(&self, inputs: &[Carried], nodes: &[&Node]) -> Carried {
        carried::by_key(&self.class(nodes), inputs)
    }
    fn class(&self, _: &[&Node]) -> Class {
        if self.keys.is_empty() {
            return Class::Global;
        }
        Class::PerKey { keys: vec![self.keys.clone()], output: (0..self.keys.len()).collect() }
    }
    fn expand(&self, graph: &mut crate::graph::Graph) -> Result<Option<NodeId>> {
        super::accumulate::expand(self, graph)
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_groups(&self.keys, &self.aggs, inputs)
    }
}

impl Differentiate for Reduce {
    fn delta(&self, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
        extend::delta(self, cx, node)
    }
}

impl Rewrite for Reduce {
    fn needed(&self, columns: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        let shown = |i: usize| columns.contains(self.keys.len() + i) || self.upkeep_reads(i);
        let aggs = self.aggs.iter().enumerate().filter(|(i, _)| shown(*i));
        vec![pruned::read(aggs.flat_map(|(_, agg)| agg.exprs())).union(&self.keys.as_slice().into())]
    }
    fn pruned(&self, graph: &mut Graph, columns: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let input = pruned::only(inputs)?;
        let n = self.keys.len();
        let shown = |c: &usize| *c < n || columns.contains(*c) || self.upkeep_reads(*c - n);
        let kept: ColSet = (0..n + self.aggs.len()).filter(shown).collect();
        let aggs = kept.iter().skip(n).map(|c| self.aggs[c - n].map_exprs(|e| input.expr(e))).collect();
        let keys = self.keys.iter().map(|k| input.at(*k)).collect();
        Pruned::add(graph, Reduce::new(input.node, keys, aggs), kept)
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::per_key(self, graph, to)
    }
    fn needs_merged(&self, _: &Graph, _: usize, _: bool) -> bool {
        true
    }
    fn pays_to_store(&self) -> bool {
        true
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.through(|c| self.keys.get(c).copied())]
    }
}

impl Evaluate for Reduce {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        inputs[0].require_state("Reduce")?;
        let mut groups = group::groups(inputs[0], &self.keys, cx.graph.schema(self.input));
        if self.keys.is_empty() && groups.is_empty() {
            groups.push(group::Group::default());
        }
        let mut out = ZSet::new();
        for group in groups {
            let values = self.aggs.iter().map(|call| aggregates::over(call, &group.rows));
            let row = group.key.into_iter().map(Ok).chain(values).collect::<Result<Row>>()?;
            out.add(row, 1);
        }
        Ok(out)
    }
}

impl Render for Reduce {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        input.require_positive("Reduce")?;
        let block = cx.open(input, self.input);
        let (block, keys, calls) = cx.settled_groups(block, self.input, &self.keys, &self.aggs, false);
        let block = cx.unit(block, self.input);
        let block = cx.fit(block, self.input, calls.iter().flat_map(AggCall::exprs), false);
        let aggs = calls.iter().map(|a| aggregate(a, &block.columns)).collect();
        Ok(Fragment::closed(cx.grouped(block, &keys, aggs, Vec::new()), true, true))
    }
}
