//! Signed sums of groups: the linear part of aggregation.

use super::{
    By, Carried, Class, Formula, Map, Negate, Pruned, Reduce, Rel, Relational, Restriction, Rewrite, Union,
    arity, carried, check_expr, check_keys, image, pruned, restriction, totals,
};
use crate::agg::{Acc, Upkeep};
use crate::delta::{Differ, Differentiate};
use crate::error::Result;
use crate::eval::{Context, Evaluate, Row, ZSet, aggregates, group};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled, groups};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema, images};
use crate::sql::{Fragment, Render, RenderContext, Scalar, accumulator};

/// One row for each key for which some accumulator is not 0. The row has the key columns, then `Σ w × value`
/// for each accumulator. Without key columns the result always has exactly one row.
///
/// The input may be any Z-set, also one with negative weights. Where the input is a change, the result is the
/// amounts by which the accumulators change. Each output row has weight 1. Callers include a count of rows in
/// the accumulators. Where the input is a state, a group without rows therefore gives no row. Where several
/// keys are equal, the result has the key with the least images (byte-wise spellings).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Accumulate {
    input: NodeId,
    keys: Vec<usize>,
    accs: Vec<Acc>,
    any: bool,
}

impl Accumulate {
    /// Accumulates `input` by the columns `keys`.
    pub fn new(input: NodeId, keys: Vec<usize>, accs: Vec<Acc>) -> Accumulate {
        Accumulate { input, keys, accs, any: false }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the positions of the key columns in the input.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }
    /// Returns the accumulators.
    pub fn accs(&self) -> &[Acc] {
        &self.accs
    }
    /// Returns the same accumulation for a reader that compares keys by value alone. PostgreSQL may then
    /// output any of several equal keys. Where equal keys always have the same image, this accumulation is
    /// returned unchanged.
    #[must_use]
    pub fn with_any_key(self, graph: &Graph) -> Accumulate {
        let any = !graph.schema(self.input).select(&self.keys).is_exact();
        Accumulate { any, ..self }
    }
    /// Whether the result may have any of several equal keys. This is so if the readers compare keys by value
    /// alone, or if equal keys always have the same image.
    pub(crate) fn shows_any(&self, graph: &Graph) -> bool {
        self.any || image::identify(graph, self.input, &self.keys)
    }
    /// Returns this accumulation with another input, other keys and other accumulators.
    pub(crate) fn over(&self, input: NodeId, keys: Vec<usize>, accs: Vec<Acc>) -> Accumulate {
        Accumulate { input, keys, accs, any: self.any }
    }
    /// Returns the accumulation that adds up the rows of `input`, each of which has this accumulation's
    /// columns.
    #[must_use]
    pub fn merging(&self, input: NodeId) -> Accumulate {
        let n = self.keys.len();
        Accumulate {
            input,
            keys: (0..n).collect(),
            accs: self.accs.iter().enumerate().map(|(i, a)| a.merge(n + i)).collect(),
            any: self.any,
        }
    }
}

/// Rewrites a grouped reduce as `γ = finish ∘ accumulate`; returns `None` where an aggregate is not linear.
pub(super) fn expand(reduce: &Reduce, graph: &mut Graph) -> Result<Option<NodeId>> {
    let input = graph.schema(reduce.input()).clone();
    let mut accs = vec![Acc::count(None)];
    let mut plans = Vec::new();
    for call in reduce.aggs() {
        let Upkeep::Linear(linear) = call.upkeep() else { return Ok(None) };
        let places: Vec<usize> =
            linear.accs.into_iter().map(|acc| place(&mut accs, acc.simplified(&input))).collect();
        plans.push((call, linear.finish, places));
    }
    let keys = reduce.keys().len();
    let node = image::accumulated(graph, reduce.input(), reduce.keys(), accs)?;
    let schema = graph.schema(node).clone();
    let mut out: Vec<Expr> = (0..keys).map(|i| schema.expr(i)).collect();
    for (call, finish, places) in plans {
        let columns: Vec<Expr> = places.iter().map(|p| schema.expr(keys + p)).collect();
        let mut value = finish(call, &columns).cast(call.sig.ret.clone());
        if keys > 0 {
            value = of_a_group(&value, keys).simplified(&schema);
        }
        out.push(value);
    }
    let labels = graph.schema(reduce.input()).select(reduce.keys());
    let labels = labels.columns().iter().map(|c| c.label.clone()).collect::<Vec<_>>();
    let labels = labels.into_iter().chain(reduce.aggs().iter().map(|a| a.sig.name.clone())).collect();
    graph.add(Map::new(node, out).labelled(labels)).map(Some)
}

/// Rewrites `value` for a group that has rows. The test whether the count in column `count` is 0 becomes
/// false.
fn of_a_group(value: &Expr, count: usize) -> Expr {
    let empty = Expr::column(count, crate::types::Type::Int8).equals(Expr::int8(0));
    value.rewrite(&mut |e| if e == empty { Expr::bool(false) } else { e })
}

/// Returns the position of `acc` in `accs`. An accumulator that `accs` lacks is appended, so that each occurs
/// once.
fn place(accs: &mut Vec<Acc>, acc: Acc) -> usize {
    accs.iter().position(|a| *a == acc).unwrap_or_else(|| {
        accs.push(acc);
        accs.len() - 1
    })
}

impl Relational for Accumulate {
    fn name(&self) -> &'static str {
        "Accumulate"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Accumulate { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Accumulate", inputs)?;
        check_keys("Accumulate", self.keys.iter().copied(), input.schema())?;
        let mut exprs = self.accs.iter().flat_map(|a| a.value.iter().chain(&a.filter));
        exprs.try_for_each(|e| check_expr("Accumulate", e, &[input.schema()]))
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        let input = inputs[0].schema();
        let accs = self.accs.iter().map(|a| {
            let label = match (&a.value, &a.filter) {
                (Some(v), _) => match super::label(v, input) {
                    // An accumulator that merges stored sums keeps the label of the column that it merges.
                    l if l.starts_with("sum_") || l.starts_with("count") => l,
                    l => format!("sum_{l}").into(),
                },
                (None, None) => "count".into(),
                (None, Some(_)) => "count_if".into(),
            };
            Column { label, ty: a.ty.clone(), nullable: false }
        });
        Schema::new(input.select(&self.keys).columns().iter().cloned().chain(accs))
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let image = images(inputs[0].schema().len(), self.keys.iter().copied().map(Some));
        let mut p = inputs[0].props().project(&image);
        p.non_negative = true;
        p.positive = true;
        p.consolidated = true;
        p.empty = p.empty && !self.keys.is_empty();
        let exprs = self.accs.iter().flat_map(|a| a.value.iter().chain(&a.filter));
        p.volatility = exprs.map(Expr::volatility).fold(p.volatility, Ord::max);
        let key = ColSet::all(self.keys.len());
        p.keys.clear();
        p.fds.push(FunctionalDependency { from: key.clone(), to: ColSet::all(schema.len()) });
        p.add_key(key);
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], schema: &Schema) -> Unsettled {
        groups(&Unsettled::of_first(inputs), schema, self.keys(), self.accs().len(), &|i, open| {
            let mut exprs = self.accs()[i].value.iter().chain(&self.accs()[i].filter);
            (exprs.clone().any(|e| open.reads(e)), exprs.any(|e| open.decides(e)))
        })
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        self.accs().iter().flat_map(|x| x.value.iter().chain(&x.filter)).for_each(|e| f(Formula::Scalar(e)));
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
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_accumulators(&self.keys, &self.accs, inputs)
    }
}

impl Differentiate for Accumulate {
    /// Computes the delta in one of three ways. Let `d = accumulate(ΔR)`.
    ///
    /// - Where stored groups can be looked up, each changed group is looked up (`rel/totals.rs`).
    /// - Where the groups are stored but cannot be looked up, `old` is the stored rows whose key occurs in
    ///   `d`. Then `new = merge(old + d)`.
    /// - Where the groups are not stored, `new` accumulates the touched groups again from the current rows.
    ///   Then `old = merge(new − d)`.
    ///
    /// If equal values of a key may have different images, the delta follows the class rule, which reads the
    /// current rows.
    fn delta(&self, cx: &mut Differ<'_>, node: NodeId) -> Result<Option<NodeId>> {
        if !self.shows_any(cx.graph) {
            return Ok(None);
        }
        let raises = Rel::from(self.clone()).can_raise();
        let change = cx.delta(self.input)?;
        let change = cx.net(change, raises)?;
        let d = cx.graph.add(Accumulate { input: change, ..self.clone() })?;
        if let Some(parts) = cx.parts(node)?
            && let Some(revised) = totals::beside_stored(self, cx.graph, node, d, &parts)?
        {
            return Ok(Some(revised));
        }
        let keys: Vec<usize> = (0..self.keys.len()).collect();
        let scalar = self.keys.is_empty();
        let (old, new) = match cx.state(node)? {
            Some(state) => {
                let old = if scalar {
                    state
                } else {
                    let touched = cx.keys(d, &keys)?;
                    cx.restrict(state, &keys, touched)?
                };
                let both = cx.graph.add(Union::new([old, d]))?;
                (old, cx.graph.add(self.merging(both))?)
            }
            None => {
                let mut current = cx.after(self.input)?;
                if !scalar {
                    let touched = cx.keys(change, &self.keys)?;
                    current = cx.restrict(current, &self.keys, touched)?;
                }
                let new = cx.graph.add(Accumulate { input: current, ..self.clone() })?;
                let minus = cx.graph.add(Negate::new(d))?;
                let back = cx.graph.add(Union::new([new, minus]))?;
                (cx.graph.add(self.merging(back))?, new)
            }
        };
        cx.difference(new, old).map(Some)
    }
}

impl Rewrite for Accumulate {
    fn needed(&self, _: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        let exprs = self.accs.iter().flat_map(|a| a.value.iter().chain(&a.filter));
        vec![pruned::read(exprs).union(&self.keys.as_slice().into())]
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let input = pruned::only(inputs)?;
        let accs = self.accs.iter().map(|a| Acc {
            value: a.value.as_ref().map(|e| input.expr(e)),
            filter: a.filter.as_ref().map(|e| input.expr(e)),
            ty: a.ty.clone(),
        });
        let keys = self.keys.iter().map(|k| input.at(*k)).collect();
        let made = self.over(input.node, keys, accs.collect());
        Pruned::add(graph, made, ColSet::all(self.keys.len() + self.accs.len()))
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::per_key(self, graph, to)
    }
    fn needs_merged(&self, graph: &Graph, _: usize, _: bool) -> bool {
        // Where a group has several equal keys, the output key must be the key of a present row. Rows that
        // cancel must therefore be merged first.
        Rel::from(self.clone()).can_raise() || !self.shows_any(graph)
    }
    fn pays_to_store(&self) -> bool {
        true
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.through(|c| self.keys.get(c).copied())]
    }
}

impl Evaluate for Accumulate {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        let mut groups = group::groups(inputs[0], &self.keys, cx.graph.schema(self.input));
        if self.keys.is_empty() && groups.is_empty() {
            groups.push(group::Group::default());
        }
        let mut out = ZSet::new();
        for group in groups {
            let totals =
                self.accs.iter().map(|a| aggregates::total(a, &group.rows)).collect::<Result<Vec<_>>>()?;
            if self.keys.is_empty() || !totals.iter().all(aggregates::is_zero) {
                out.add(group.key.into_iter().chain(totals).collect::<Row>(), 1);
            }
        }
        Ok(out)
    }
}

impl Render for Accumulate {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let signed = !input.positive;
        let block = cx.open(input, self.input);
        let (block, keys) = match self.shows_any(cx.graph()) {
            true => (block, self.keys.clone()),
            false => cx.settled_keys(block, self.input, &self.keys, signed),
        };
        let exprs = self.accs.iter().flat_map(|a| a.value.iter().chain(&a.filter));
        let block = cx.fit(block, self.input, exprs, false);
        let grouped = !self.keys.is_empty();
        let totals: Vec<Scalar> = self.accs.iter().map(|a| accumulator(a, &block, grouped)).collect();
        // Every group with rows has a count other than 0. If an accumulator counts rows, the SQL therefore
        // needs no HAVING.
        let counted = block.weight.is_one() && self.accs.contains(&Acc::count(None));
        let some = || Scalar::or(totals.iter().map(|t| t.clone().op("<>", Scalar::int4(0))));
        let having = if grouped && !counted { vec![some()] } else { Vec::new() };
        Ok(Fragment::closed(cx.grouped(block, &keys, totals, having), true, true))
    }
}
