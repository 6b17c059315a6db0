//! The positive part of a signed relation.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried, check_keys,
    identify, pruned, restriction,
};
use crate::delta::Differentiate;
use crate::error::Result;
use crate::eval::{Context, Evaluate, ZSet, group::row_groups};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext, Same};

/// Every row of the input, with its weight w replaced by `max(w, 0)`. NULL is equal to NULL. Where several
/// rows are equal and have a positive weight, the result has the row with the least images. EXCEPT ALL is the
/// positive part of a difference, and the other set operations are derived from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Positive {
    input: NodeId,
}

impl Positive {
    /// Denotes the positive part of `input`.
    pub fn new(input: NodeId) -> Positive {
        Positive { input }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
}

impl Relational for Positive {
    fn name(&self) -> &'static str {
        "Positive"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Positive { input: inputs.first().copied().unwrap_or(self.input) }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Positive", inputs)?;
        check_keys("Positive", 0..input.schema().len(), input.schema())
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
        let i = inputs[0].props();
        Props {
            non_negative: true,
            positive: true,
            consolidated: true,
            keys: Vec::new(),
            fds: Vec::new(),
            ..i.clone()
        }
    }
    fn unsettled(&self, inputs: &[Input<'_>], schema: &Schema) -> Unsettled {
        Unsettled::of_one_row_of_each(inputs, schema)
    }
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}

    fn carried(&self, inputs: &[Carried], nodes: &[&Node]) -> Carried {
        carried::by_key(&self.class(nodes), inputs)
    }
    fn class(&self, inputs: &[&Node]) -> Class {
        let all: Vec<usize> = (0..inputs[0].schema().len()).collect();
        Class::PerKey { keys: vec![all.clone()], output: all }
    }
}

impl Differentiate for Positive {}

impl Rewrite for Positive {
    fn needed(&self, _: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        // The weights of whole rows are compared with 0.
        pruned::all(inputs)
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        pruned::over_whole_inputs(self, graph, inputs)
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::per_key(self, graph, to)
    }
    fn needs_merged(&self, _: &Graph, _: usize, _: bool) -> bool {
        // The operator merges the rows itself.
        false
    }
    fn pays_to_store(&self) -> bool {
        true
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.clone()]
    }
}

impl Evaluate for Positive {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        let schema = cx.graph.schema(self.input);
        Ok(row_groups(inputs[0], schema).into_iter().map(|(row, w)| (row, w.max(0))).collect())
    }
}

impl Render for Positive {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        if input.positive && input.consolidated && cx.is_one_per_value(self.input) {
            return Ok(input);
        }
        let all: Vec<usize> = (0..cx.graph().schema(self.input).len()).collect();
        if identify(cx.graph(), self.input, &all) {
            let block = cx.open(input, self.input);
            return Ok(Fragment::closed(cx.merged(block, self.input, Same::Value, ">"), true, true));
        }
        // Weights are first summed up by image. For each row, one of the remaining images is then chosen.
        let input = cx.consolidate(input, self.input);
        let block = cx.open(input, self.input);
        let block = cx.settled_rows(block, self.input, true);
        Ok(Fragment::closed(cx.merged(block, self.input, Same::Value, ">"), true, true))
    }
}
