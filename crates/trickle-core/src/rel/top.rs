//! LIMIT, OFFSET, DISTINCT ON: the first rows of each partition.

use super::{
    By, Carried, Class, Formula, Negate, Positive, Pruned, Rel, Relational, Restriction, Rewrite, SemiJoin,
    Union, arity, carried, check_keys, check_positive, pruned, restriction, same,
};
use crate::delta::{Differ, Differentiate, negate, sum};
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, Row, ZSet, group, windows};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};
use crate::window::{self, OrderKey};

/// The rows that are taken from an ordered partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The number of rows that are skipped at the beginning.
    pub offset: u64,
    /// The number of rows that are taken after the skipped rows. `None` for all rows.
    pub limit: Option<u64>,
    /// Whether rows that equal the last taken row under ORDER BY are taken too (`WITH TIES`).
    pub ties: bool,
}

/// A slice of each partition of the input. The result has the columns of the input. The order must
/// distinguish all different rows, so that exactly one result is correct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Top {
    input: NodeId,
    partition: Vec<usize>,
    order: Vec<OrderKey>,
    slice: Slice,
}

impl Top {
    /// Takes `slice` from each partition.
    pub fn new(input: NodeId, partition: Vec<usize>, order: Vec<OrderKey>, slice: Slice) -> Top {
        // Without a taken row there is no last row, and so no rows equal to a last row.
        let slice = Slice { ties: slice.ties && slice.limit != Some(0), ..slice };
        Top { input, partition, order, slice }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the columns by which the rows are partitioned.
    pub fn partition(&self) -> &[usize] {
        &self.partition
    }
    /// Returns the order within a partition.
    pub fn order(&self) -> &[OrderKey] {
        &self.order
    }
    /// Returns the slice that is taken from each partition.
    pub fn slice(&self) -> Slice {
        self.slice
    }
}

impl Relational for Top {
    fn name(&self) -> &'static str {
        "Top"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Top { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Top", inputs)?;
        check_keys("Top", self.partition.iter().copied(), input.schema())?;
        for key in &self.order {
            if !input.schema().column(key.column).is_some_and(|c| c.ty.is_ordered()) {
                return Err(Error::plan(format!("Top orders by column {}, which it cannot", key.column)));
            }
        }
        check_positive("Top", input)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let mut p = inputs[0].props().clone();
        p.positive = true;
        if self.slice.limit == Some(1) && !self.slice.ties {
            let key: ColSet = self.partition.as_slice().into();
            p.fds.push(FunctionalDependency { from: key.clone(), to: ColSet::all(schema.len()) });
            p.add_key(key);
        }
        p.consolidated = !p.keys.is_empty();
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        let below = Unsettled::of_first(inputs);
        let mut keys = self.partition().iter().copied().chain(self.order().iter().map(|k| k.column));
        let moved = self.order().iter().any(|k| k.settles) || keys.any(|c| below.values.contains(c));
        Unsettled { rows: below.rows || moved, ..below }
    }
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}

    fn carried(&self, inputs: &[Carried], nodes: &[&Node]) -> Carried {
        carried::by_key(&self.class(nodes), inputs)
    }
    fn class(&self, _: &[&Node]) -> Class {
        if self.partition.is_empty() {
            return Class::Global;
        }
        Class::PerKey { keys: vec![self.partition.clone()], output: self.partition.clone() }
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_top(self, inputs)
    }
}

/// Computes the delta over the stored result: `Δ = redone + extended − old`. If a stored row of a partition
/// left, the partition is redone from the current rows. Otherwise the partition's new result is taken from
/// its stored rows and the rows that came. Rows that left and that were after the last stored row change
/// nothing.
impl Differentiate for Top {
    fn delta(&self, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
        // Rows that came and rows that left are compared by value. If only the image of a row changed, the
        // row would be in neither of the two sets. This rule is therefore used only if equal rows always have
        // the same image.
        let told = |c: &Column| c.ty.is_exact() && c.ty.has_equality();
        let told = cx.graph.schema(self.input).columns().iter().all(told);
        if self.slice.offset > 0 || self.slice.limit.is_none() || !told {
            return Ok(None);
        }
        let Some(state) = cx.state(node)? else { return Ok(None) };
        let change = cx.delta(self.input)?;
        let change = cx.net(change, true)?;
        let back = negate(cx.graph, change)?;
        let (added, removed) = (cx.graph.add(Positive::new(change))?, cx.graph.add(Positive::new(back))?);
        let old = match self.partition.as_slice() {
            [] => state,
            keys => {
                let touched = cx.keys(change, keys)?;
                cx.restrict(state, keys, touched)?
            }
        };
        let lost = lost(cx.graph, removed, old)?;
        let current = cx.after(self.input)?;
        let candidates = cx.graph.add(Union::new([old, added]))?;
        // Partitions that lost a stored row are redone; the others are extended.
        let (redone, kept) = match self.partition.as_slice() {
            // The semi-join is above `first`, so that an index can find the first rows.
            [] => {
                let first = cx.graph.add(self.with_inputs(&[current]))?;
                let spoiled = Expr::bool(true);
                let redone = cx.graph.add(SemiJoin::semi(first, lost, spoiled.clone()))?;
                (redone, SemiJoin::anti(candidates, lost, spoiled))
            }
            keys => {
                let spoiled = cx.keys(lost, keys)?;
                let current = cx.restrict(current, keys, spoiled)?;
                let places: Vec<usize> = (0..keys.len()).collect();
                let on = same(cx.graph.schema(candidates), keys, cx.graph.schema(spoiled), &places);
                let redone = cx.graph.add(self.with_inputs(&[current]))?;
                (redone, SemiJoin::anti(candidates, spoiled, on))
            }
        };
        let candidates = cx.graph.add(kept)?;
        let extended = cx.graph.add(self.with_inputs(&[candidates]))?;
        let minus = cx.graph.add(Negate::new(old))?;
        sum(cx.graph, node, [redone, extended, minus]).map(Some)
    }
}

/// Returns the rows of `removed` that equal a row of `old`. NULL is equal to NULL.
fn lost(graph: &mut Graph, removed: NodeId, old: NodeId) -> Result<NodeId> {
    let all: Vec<usize> = (0..graph.schema(removed).len()).collect();
    let on = same(graph.schema(removed), &all, graph.schema(old), &all);
    graph.add(SemiJoin::semi(removed, old, on))
}

impl Rewrite for Top {
    fn needed(&self, columns: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        let order = self.order.iter().map(|k| k.column).collect();
        vec![columns.union(&self.partition.as_slice().into()).union(&order)]
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let input = pruned::only(inputs)?;
        let partition = self.partition.iter().map(|c| input.at(*c)).collect();
        let order = self.order.iter().map(|k| OrderKey { column: input.at(k.column), ..*k }).collect();
        Pruned::add(graph, Top::new(input.node, partition, order, self.slice), input.kept.clone())
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
        vec![by.through(|c| self.partition.contains(&c).then_some(c))]
    }
}

impl Evaluate for Top {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        inputs[0].require_state("Top")?;
        let schema = cx.graph.schema(self.input);
        let mut out = ZSet::new();
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        for group in group::groups(inputs[0], &self.partition, schema) {
            let rows: Vec<&Row> = windows::ordered(&group.rows, &self.order, schema);
            let start = count(self.slice.offset).min(rows.len());
            let mut end = match self.slice.limit {
                Some(limit) => start.saturating_add(count(limit)).min(rows.len()),
                None => rows.len(),
            };
            if self.slice.ties && end > start {
                let keys = window::asked(&self.order);
                let last = rows[end - 1];
                while end < rows.len() && windows::are_peers(keys, schema, last, rows[end]) {
                    end += 1;
                }
            }
            rows[start..end].iter().for_each(|row| out.add(Row::clone(row), 1));
        }
        Ok(out)
    }
}

impl Render for Top {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        input.require_positive("Top")?;
        let consolidated = cx.is_consolidated();
        let block = cx.open(input, self.input);
        let block = cx.unit(block, self.input);
        let block = cx.top(block, self);
        Ok(Fragment::open(block, true, consolidated))
    }
}
