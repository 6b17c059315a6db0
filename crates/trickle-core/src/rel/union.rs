//! +: the sum of relations, which is UNION ALL.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, carried, restriction,
};
use crate::delta::Differentiate;
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, ZSet};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};
use crate::types::Datum;

/// `R₁ + R₂ + …`: the weights of equal rows add up. There is at least one input, and all inputs have the same
/// column types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Union {
    inputs: Vec<NodeId>,
}

impl Union {
    /// Denotes the sum of `inputs`.
    pub fn new(inputs: impl IntoIterator<Item = NodeId>) -> Union {
        Union { inputs: inputs.into_iter().collect() }
    }
    /// Returns the summands.
    pub fn summands(&self) -> &[NodeId] {
        &self.inputs
    }
}

impl Relational for Union {
    fn name(&self) -> &'static str {
        "Union"
    }
    fn inputs(&self) -> Vec<NodeId> {
        self.inputs.clone()
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Union { inputs: inputs.to_vec() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let Some(first) = inputs.first() else { return Err(Error::plan("Union of nothing")) };
        match inputs.iter().find(|i| !i.schema().same_types(first.schema())) {
            Some(_) => Err(Error::plan("Union of relations with different column types")),
            None => Ok(()),
        }
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        Schema::new(inputs[0].schema().columns().iter().enumerate().map(|(i, c)| Column {
            nullable: inputs.iter().any(|n| n.schema().columns()[i].nullable),
            ..c.clone()
        }))
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        if let [only] = inputs {
            return only.props().clone();
        }
        let mut p = Props { empty: true, bounded: true, ..Props::state() };
        for i in inputs.iter().map(|n| n.props()) {
            p.non_negative &= i.non_negative;
            p.positive &= i.positive;
            p.add_sources(i);
            p.reads_delta |= i.reads_delta;
            p.volatility = p.volatility.max(i.volatility);
            p.empty &= i.empty;
            p.bounded &= i.bounded;
        }
        if let Some(key) = key(inputs).filter(|_| p.non_negative) {
            p.fds.push(FunctionalDependency { from: key.clone(), to: ColSet::all(schema.len()) });
            p.add_key(key);
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        Unsettled::of_inputs(inputs)
    }
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}

    fn carried(&self, inputs: &[Carried], nodes: &[&Node]) -> Carried {
        let filled = inputs.iter().zip(nodes).filter(|(_, node)| !node.props().empty);
        carried::agreed(filled.map(|(input, _)| input.clone()))
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Linear
    }
}

/// A fact that is known about all values in a column of a summand.
#[derive(PartialEq)]
enum ColumnFact<'n> {
    Null,
    Value(&'n Datum),
    NotNull,
    Nothing,
}

impl ColumnFact<'_> {
    fn of(input: &Node, column: usize) -> ColumnFact<'_> {
        let literal = match input.rel() {
            Rel::Map(m) => m.exprs().get(column).and_then(Expr::as_literal),
            _ => None,
        };
        let Some(c) = input.schema().column(column) else { return ColumnFact::Nothing };
        match literal {
            Some(Datum::Null) => ColumnFact::Null,
            Some(value) if c.ty.is_exact() => ColumnFact::Value(value),
            _ if !c.nullable => ColumnFact::NotNull,
            _ => ColumnFact::Nothing,
        }
    }

    /// Whether the two facts prove that the two columns have no value in common.
    fn differs(&self, other: &ColumnFact<'_>) -> bool {
        match (self, other) {
            (ColumnFact::Null, ColumnFact::Value(_) | ColumnFact::NotNull)
            | (ColumnFact::Value(_) | ColumnFact::NotNull, ColumnFact::Null) => true,
            (ColumnFact::Value(a), ColumnFact::Value(b)) => a != b,
            _ => false,
        }
    }
}

/// The greatest number of summands for which a key is derived, since each pair of summands is compared.
const COMPARED: usize = 1_000;

/// Returns a key of a sum whose summands are disjoint. For each pair of summands, some column must tell the
/// two summands apart. Such a column has different constants in the two summands, or is NULL in one summand
/// and NOT NULL in the other. Rows that agree on these columns come from the same summand. These columns and
/// a key of each summand are therefore together a key of the sum.
fn key(inputs: &[&Node]) -> Option<ColSet> {
    if inputs.len() > COMPARED {
        return None;
    }
    let mut key = ColSet::new();
    for input in inputs {
        key = key.union(input.props().keys.iter().min_by_key(|k| k.len())?);
    }
    let mut pairs: Vec<(usize, usize)> =
        (0..inputs.len()).flat_map(|i| (0..i).map(move |j| (i, j))).collect();
    for column in 0..inputs[0].schema().len() {
        let known: Vec<ColumnFact<'_>> = inputs.iter().map(|i| ColumnFact::of(i, column)).collect();
        let before = pairs.len();
        pairs.retain(|(i, j)| !known[*i].differs(&known[*j]));
        if pairs.len() < before {
            key.insert(column);
        }
    }
    pairs.is_empty().then_some(key)
}

impl Differentiate for Union {}

impl Rewrite for Union {
    fn needed(&self, columns: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        vec![columns.clone(); inputs.len()]
    }
    fn pruned(&self, graph: &mut Graph, columns: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let mut parts = Vec::new();
        for input in inputs {
            parts.push(input.exactly(graph, columns.iter())?);
        }
        Pruned::add(graph, Union::new(parts), columns.clone())
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::all_inputs(self, graph, to)
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.clone(); self.summands().len()]
    }
}

impl Evaluate for Union {
    fn eval(&self, inputs: &[&ZSet], _: &Context<'_>) -> Result<ZSet> {
        let mut sum = ZSet::new();
        inputs.iter().for_each(|i| sum.add_zset(i));
        Ok(sum)
    }
}

impl Render for Union {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        if inputs.len() == 1 {
            return cx.arity(inputs).map(|[only]| only);
        }
        let positive = inputs.iter().all(|f| f.positive);
        let blocks = inputs.into_iter().zip(&self.inputs).collect();
        Ok(Fragment::closed(cx.union_all(blocks), positive, false))
    }
}
