//! −: the negation of a relation, which changes the sign of every weight.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried, pruned,
    restriction,
};
use crate::delta::Differentiate;
use crate::error::Result;
use crate::eval::{Context, Evaluate, ZSet};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};

/// The negation `−R`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Negate {
    input: NodeId,
}

impl Negate {
    /// Makes `−input`.
    pub fn new(input: NodeId) -> Negate {
        Negate { input }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
}

impl Relational for Negate {
    fn name(&self) -> &'static str {
        "Negate"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Negate { input: inputs.first().copied().unwrap_or(self.input) }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        arity::<1>("Negate", inputs).map(|_| ())
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
        let i = inputs[0].props();
        Props { non_negative: i.empty, positive: i.empty, keys: Vec::new(), fds: Vec::new(), ..i.clone() }
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        Unsettled::of_inputs(inputs)
    }
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}

    fn carried(&self, inputs: &[Carried], _: &[&Node]) -> Carried {
        carried::unmoved(inputs)
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Linear
    }
}

impl Differentiate for Negate {}

impl Rewrite for Negate {
    fn needed(&self, columns: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        vec![columns.clone()]
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let input = pruned::only(inputs)?;
        Pruned::add(graph, Negate::new(input.node), input.kept.clone())
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::first_input(self, graph, to, Some)
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.clone()]
    }
}

impl Evaluate for Negate {
    fn eval(&self, inputs: &[&ZSet], _: &Context<'_>) -> Result<ZSet> {
        Ok(inputs[0].negate())
    }
}

impl Render for Negate {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let consolidated = input.consolidated;
        let mut block = cx.open(input, self.input);
        block.weight = block.weight.negated();
        Ok(Fragment::open(block, false, consolidated))
    }
}
