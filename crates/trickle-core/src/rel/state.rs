//! A stored result, which is read instead of being recomputed.

use super::{By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, pruned};
use crate::delta::Differentiate;
use crate::error::Result;
use crate::eval::{Context, Evaluate, ZSet};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};
use std::hash::{Hash, Hasher};

/// `State(n)` denotes the result of n over the *previous* state of the sources. A state table has this result
/// until the refresh that reads the table is applied. Reading the table equals recomputing n, so plans that
/// read state tables can be tested without stored tables.
#[derive(Clone, Debug)]
pub struct State {
    of: NodeId,
    schema: Schema,
    props: Props,
}

impl State {
    /// Reads the stored result of `of`.
    pub fn new(graph: &Graph, of: NodeId) -> State {
        let mut props = graph.props(of).clone();
        props.positive = true;
        props.consolidated = !props.keys.is_empty();
        State { of, schema: graph.schema(of).clone(), props }
    }
    /// Returns the node whose result is stored.
    pub fn of(&self) -> NodeId {
        self.of
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.of == other.of
    }
}
impl Eq for State {}
impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.of.hash(state);
    }
}

impl Relational for State {
    fn name(&self) -> &'static str {
        "State"
    }
    fn inputs(&self) -> Vec<NodeId> {
        Vec::new()
    }
    fn with_inputs(&self, _: &[NodeId]) -> Rel {
        self.clone().into()
    }
    fn check(&self, _: &[&Node]) -> Result<()> {
        Ok(())
    }
    fn schema(&self, _: &[&Node]) -> Schema {
        self.schema.clone()
    }
    fn props(&self, _: &[&Node], _: &Schema) -> Props {
        self.props.clone()
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        Unsettled::of_inputs(inputs)
    }
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}

    // Only deltas read states.
    fn carried(&self, _: &[Carried], _: &[&Node]) -> Carried {
        Carried::Mixed
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Leaf
    }
    fn describe(&self, _: &[&Node]) -> String {
        format!("of {}", self.of)
    }
}

impl Differentiate for State {}

impl Rewrite for State {
    fn needed(&self, _: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        Vec::new()
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        pruned::over_whole_inputs(self, graph, inputs)
    }
    fn restricted(&self, _: &mut Graph, _: &Restriction) -> Result<Option<NodeId>> {
        Ok(None)
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, _: &By) -> Vec<By> {
        Vec::new()
    }
}

impl Evaluate for State {
    fn eval(&self, _: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        cx.stored(self.of).cloned()
    }
}

impl Render for State {
    fn render(&self, _: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let block = cx.stored(self.of)?;
        Ok(Fragment::open(block, true, self.props.consolidated))
    }
}
