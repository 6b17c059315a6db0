//! +: the sum of relations (UNION ALL).

use super::{Class, Rel, Relational};
use crate::delta::Differentiate;
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, ZSet};
use crate::graph::{Column, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};

/// `R₁ + R₂ + …`: weights add up. At least one input; all have the same column types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Union {
    inputs: Vec<NodeId>,
}

impl Union {
    /// The sum of `inputs`.
    pub fn new(inputs: impl IntoIterator<Item = NodeId>) -> Union {
        Union { inputs: inputs.into_iter().collect() }
    }
    /// The summands.
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
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
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
        p
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Linear
    }
}

impl Differentiate for Union {}

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
