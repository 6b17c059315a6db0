//! Window functions: each row gets values that are computed over rows of its partition.

use super::near::Near;
use super::{
    By, Carried, Class, Formula, Map, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried,
    check_expr, check_keys, check_positive, pruned, restriction,
};
use crate::delta::{Differ, Differentiate};
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, Row, ZSet, group, windows};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled, windows};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext, over};
use crate::window::{OrderKey, WindowCall};

/// The rows of the input. After the input's columns, each row has one column for the value of each call. A
/// partition consists of the rows that agree on the columns `partition`, where NULL is equal to NULL.
///
/// ORDER BY may leave the order of some rows undetermined, although a call depends on their order
/// ([`crate::window::Order`]). SQL allows any such order, but the result of a plan must not depend on the
/// choice. The code that builds a window therefore adds order keys that determine the order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    input: NodeId,
    partition: Vec<usize>,
    order: Vec<OrderKey>,
    calls: Vec<WindowCall>,
}

impl Window {
    /// Appends the columns `calls OVER (PARTITION BY partition ORDER BY order)` to the columns of `input`.
    pub fn new(input: NodeId, partition: Vec<usize>, order: Vec<OrderKey>, calls: Vec<WindowCall>) -> Window {
        Window { input, partition, order, calls }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the columns by whose values rows are put into partitions.
    pub fn partition(&self) -> &[usize] {
        &self.partition
    }
    /// Returns the order within a partition.
    pub fn order(&self) -> &[OrderKey] {
        &self.order
    }
    /// Returns the calls.
    pub fn calls(&self) -> &[WindowCall] {
        &self.calls
    }
    /// Whether a changed row affects only the values of rows near the changed row, and an index can find
    /// these rows.
    pub fn is_local(&self, graph: &Graph) -> bool {
        Near::of(self, graph).is_some()
    }
}

impl Relational for Window {
    fn name(&self) -> &'static str {
        "Window"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Window { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Window", inputs)?;
        let schema = input.schema();
        check_keys("Window", self.partition.iter().copied(), schema)?;
        for key in &self.order {
            if !schema.column(key.column).is_some_and(|c| c.ty.is_ordered()) {
                return Err(Error::plan(format!("Window orders by column {}, which it cannot", key.column)));
            }
        }
        let offsets = || self.calls.iter().flat_map(|c| c.frame.offsets());
        if !offsets().all(Expr::is_constant) {
            return Err(Error::plan("Window has a frame whose bounds differ from row to row"));
        }
        self.calls
            .iter()
            .flat_map(WindowCall::exprs)
            .try_for_each(|e| check_expr("Window", e, &[input.schema()]))?;
        check_positive("Window", input)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        let input = inputs[0].schema();
        let values = self.calls.iter().map(|c| Column {
            label: c.call.sig.name.clone(),
            ty: c.call.sig.ret.clone(),
            nullable: c.nullable(input),
        });
        Schema::new(input.columns().iter().cloned().chain(values))
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let mut p = inputs[0].props().clone();
        let width = inputs[0].schema().len();
        p.positive = true;
        // Equal input rows may get different values, and different input rows may get equal values.
        p.consolidated = !p.keys.is_empty();
        let exprs = self.calls.iter().flat_map(WindowCall::exprs);
        p.volatility = exprs.map(Expr::volatility).fold(p.volatility, Ord::max);
        for key in p.keys.clone() {
            p.fds.push(FunctionalDependency { from: key, to: ColSet::all(schema.len()) });
        }
        for (i, call) in self.calls.iter().enumerate() {
            if &*call.call.sig.name == "row_number" && call.is_window_function() {
                let mut numbered: ColSet = self.partition.as_slice().into();
                numbered.insert(width + i);
                p.consolidated = true;
                p.fds.push(FunctionalDependency { from: numbered.clone(), to: ColSet::all(schema.len()) });
                p.add_key(numbered);
            }
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], schema: &Schema) -> Unsettled {
        windows(self, Unsettled::of_first(inputs), schema)
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        self.calls().iter().for_each(|c| f(Formula::Window(c)));
    }

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
        crate::graph::describe_window(self, inputs)
    }
}

impl Differentiate for Window {
    /// Computes the delta if the reach of every call is bounded. Let N be the rows near a change
    /// (`rel/near.rs`). Then `Δ = windows(N′) − windows(N′ − ΔR)`. For each row whose values change, N has
    /// all the rows that its calls read. Rows at the edges of N may get wrong values. The rows that these
    /// values depend on do not change, so the wrong values cancel in the subtraction.
    fn delta(&self, cx: &mut Differ<'_>, _: NodeId) -> Result<Option<NodeId>> {
        let Some(near) = Near::of(self, cx.graph) else { return Ok(None) };
        let after = near.rows(self, cx)?;
        let change = cx.delta(self.input)?;
        let before = cx.minus(after, change)?;
        let after = cx.graph.add(self.with_inputs(&[after]))?;
        let before = cx.graph.add(self.with_inputs(&[before]))?;
        cx.difference(after, before).map(Some)
    }
}

/// Computes the delta of a stored map over a window, if the map passes on the partition columns. The map is
/// then per key, and its own previous rows are stored. The window's rows therefore need not be stored:
/// `Δ = map(windows(R′ ⋉ K)) − State(map) ⋉ K`.
pub(super) fn shown(map: &Map, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
    let below = cx.graph.shared(map.input());
    let Rel::Window(w) = below.rel() else { return Ok(None) };
    let (false, Some(output)) = (cx.is_kept(map.input()), shown_partition(map, w)) else { return Ok(None) };
    if w.is_local(cx.graph) {
        return Ok(None);
    }
    let Some(mut before) = cx.state(node)? else { return Ok(None) };
    let mut current = cx.after(w.input())?;
    if !w.partition.is_empty() {
        let change = cx.delta(w.input())?;
        let touched = cx.keys(change, &w.partition)?;
        current = cx.restrict(current, &w.partition, touched)?;
        before = cx.restrict(before, &output, touched)?;
    }
    let windows = cx.graph.add(w.with_inputs(&[current]))?;
    let after = cx.graph.add(map.with_inputs(&[windows]))?;
    cx.difference(after, before).map(Some)
}

/// Returns the columns of the map that pass on the window's partition columns. Returns `None` where the map
/// does not pass on one of them.
pub(crate) fn shown_partition(map: &Map, w: &Window) -> Option<Vec<usize>> {
    let place = |c: &usize| map.exprs().iter().position(|e| e.as_column() == Some(*c));
    w.partition.iter().map(place).collect()
}

impl Rewrite for Window {
    fn needed(&self, columns: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        let width = inputs[0].schema().len();
        let calls = self.calls.iter().enumerate().filter(|(i, _)| columns.contains(width + i));
        let mut used = pruned::read(calls.flat_map(|(_, call)| call.exprs()));
        used.extend(&columns.iter().filter(|c| *c < width).collect());
        used.extend(&self.partition.as_slice().into());
        used.extend(&self.order.iter().map(|k| k.column).collect());
        vec![used]
    }
    fn pruned(&self, graph: &mut Graph, columns: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let input = pruned::only(inputs)?;
        let old = graph.schema(self.input).len();
        let mut kept = input.kept.clone();
        let mut calls = Vec::new();
        for (i, call) in self.calls.iter().enumerate().filter(|(i, _)| columns.contains(old + i)) {
            kept.insert(old + i);
            calls.push(call.map_exprs(|e| input.expr(e)));
        }
        if calls.is_empty() {
            return Ok(Pruned { node: input.node, kept });
        }
        let partition = self.partition.iter().map(|c| input.at(*c)).collect();
        let order = self.order.iter().map(|k| OrderKey { column: input.at(k.column), ..*k }).collect();
        Pruned::add(graph, Window::new(input.node, partition, order, calls), kept)
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

impl Evaluate for Window {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        inputs[0].require_state("Window")?;
        let schema = cx.graph.schema(self.input);
        let mut out = ZSet::new();
        for group in group::groups(inputs[0], &self.partition, schema) {
            let rows = windows::ordered(&group.rows, &self.order, schema);
            let mut values: Vec<Row> = rows.iter().map(|r| Row::clone(r)).collect();
            for call in &self.calls {
                let column = windows::over(call, &rows, &self.order, schema)?;
                for (row, value) in values.iter_mut().zip(column) {
                    *row = row.iter().cloned().chain([value]).collect();
                }
            }
            values.into_iter().for_each(|row| out.add(row, 1));
        }
        Ok(out)
    }
}

impl Render for Window {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        input.require_positive("Window")?;
        let consolidated = cx.is_consolidated();
        let block = cx.open(input, self.input);
        let block = cx.unit(block, self.input);
        let block = cx.fit(block, self.input, self.calls.iter().flat_map(WindowCall::exprs), true);
        let call = |c| over(c, &self.partition, &self.order, &block.columns);
        let values = self.calls.iter().map(call).collect();
        Ok(Fragment::closed(cx.windowed(block, values), true, consolidated))
    }
}
