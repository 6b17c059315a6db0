//! δ: the rows of a relation, each of them once.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried, check_keys,
    check_positive, pruned, restriction,
};
use crate::delta::Differentiate;
use crate::error::Result;
use crate::eval::{Context, Evaluate, ZSet, group::row_groups};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, FunctionalDependency, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext, Weight};

/// Gives the weight 1 to each row with w > 0. NULL is equal to NULL. Where several rows are equal, the result
/// has the row with the least images.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Distinct {
    input: NodeId,
    any: bool,
}

impl Distinct {
    /// Denotes the rows of `input`, each of them once.
    pub fn new(input: NodeId) -> Distinct {
        Distinct { input, any: false }
    }
    /// Denotes the rows of `input`, each of them once. The readers of the result compare rows by value alone.
    /// PostgreSQL may then output any of several equal rows. Where equal rows always have the same image, the
    /// operator is the same as [`Distinct::new`].
    pub fn by_value(graph: &Graph, input: NodeId) -> Distinct {
        Distinct { input, any: !graph.schema(input).is_exact() }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
}

impl Relational for Distinct {
    fn name(&self) -> &'static str {
        "Distinct"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Distinct { input: inputs.first().copied().unwrap_or(self.input), ..*self }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Distinct", inputs)?;
        check_keys("Distinct", 0..input.schema().len(), input.schema())?;
        check_positive("Distinct", input)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let mut p = inputs[0].props().clone();
        p.consolidated = true;
        let all = ColSet::all(schema.len());
        p.fds.push(FunctionalDependency { from: all.clone(), to: all.clone() });
        p.add_key(all);
        p
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

impl Differentiate for Distinct {}

impl Rewrite for Distinct {
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
        true
    }
    fn pays_to_store(&self) -> bool {
        true
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.clone()]
    }
}

impl Evaluate for Distinct {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        inputs[0].require_state("Distinct")?;
        let schema = cx.graph.schema(self.input);
        Ok(row_groups(inputs[0], schema).into_iter().map(|(row, _)| (row, 1)).collect())
    }
}

impl Render for Distinct {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        input.require_positive("Distinct")?;
        let once = input.consolidated && cx.is_one_per_value(self.input);
        let mut block = cx.open(input, self.input);
        block.weight = Weight::one();
        if once {
            return Ok(Fragment::open(block, true, true));
        }
        if !self.any {
            block = cx.settled_rows(block, self.input, false);
        }
        let mut closed = block.close(cx.output(), false);
        closed.distinct();
        Ok(Fragment::closed(closed, true, true))
    }
}
