//! The identity on Z-sets, which merges physical rows. Rows with the same image become one row, and rows of
//! weight 0 are dropped.

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

/// The same Z-set as the input, whose rendered SQL gives each row once, with its whole weight. Weight
/// thresholds, upserts and expressions that may raise an error need such rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Consolidate {
    input: NodeId,
    state: bool,
    keys: Vec<ColSet>,
}

impl Consolidate {
    /// Merges the rows of a change.
    pub fn change(input: NodeId) -> Consolidate {
        Consolidate { input, state: false, keys: Vec::new() }
    }
    /// Merges the rows of a signed sum, such as `R′ − ΔR`. The caller guarantees that the sum denotes a
    /// state.
    pub fn state(input: NodeId) -> Consolidate {
        Consolidate { input, state: true, keys: Vec::new() }
    }
    /// Declares these keys on the merged state. The caller guarantees the keys. For example, the previous
    /// rows of a query have the same keys as its current rows.
    #[must_use]
    pub fn keyed(self, keys: Vec<ColSet>) -> Consolidate {
        Consolidate { keys, ..self }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Whether the merged rows are known to denote a state.
    pub fn is_state(&self) -> bool {
        self.state
    }
}

impl Relational for Consolidate {
    fn name(&self) -> &'static str {
        "Consolidate"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Consolidate { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        arity::<1>("Consolidate", inputs).map(|_| ())
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
        let i = inputs[0].props();
        let state = self.state || i.non_negative;
        let mut p = Props { non_negative: state, positive: state, consolidated: true, ..i.clone() };
        self.keys.iter().for_each(|k| p.add_key(k.clone()));
        p
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

impl Differentiate for Consolidate {}

impl Rewrite for Consolidate {
    fn needed(&self, _: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        // The reader may compare whole rows.
        pruned::all(inputs)
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        pruned::over_whole_inputs(self, graph, inputs)
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::first_input(self, graph, to, Some)
    }
    fn needs_merged(&self, _: &Graph, _: usize, _: bool) -> bool {
        // The operator merges the rows itself.
        false
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.clone()]
    }
}

impl Evaluate for Consolidate {
    fn eval(&self, inputs: &[&ZSet], _: &Context<'_>) -> Result<ZSet> {
        if self.state {
            inputs[0].require_state("Consolidate")?;
        }
        Ok(inputs[0].clone())
    }
}

impl Render for Consolidate {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let state = self.state;
        let merged = cx.consolidate(input, self.input);
        // A state has only positive weights once its rows are merged.
        Ok(Fragment { positive: merged.positive || state || cx.is_state(), ..merged })
    }
}
