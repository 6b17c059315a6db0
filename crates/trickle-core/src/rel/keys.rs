//! The values of some columns in a relation.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, check_keys, pruned,
};
use crate::delta::{Differ, Differentiate};
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, ZSet, group};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext, Weight};

/// `keys cols (R)`: the values of `cols` in rows whose weight is not 0. Each value occurs once. The weights
/// are taken from whole rows, *before* the projection to `cols`. An update that keeps the key therefore
/// counts as a change of the key, although the update's two rows cancel in the projection.
///
/// The rendered SQL may also give keys of rows whose weights cancel. Such keys do no harm, since readers
/// restrict both operands of a subtraction to the keys. The rows of unchanged keys then cancel in the
/// subtraction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keys {
    input: NodeId,
    cols: Vec<usize>,
}

impl Keys {
    /// Denotes the values of the columns `cols` in the rows of `input`.
    pub fn new(input: NodeId, cols: Vec<usize>) -> Keys {
        Keys { input, cols }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the columns.
    pub fn cols(&self) -> &[usize] {
        &self.cols
    }
}

impl Relational for Keys {
    fn name(&self) -> &'static str {
        "Keys"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Keys { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Keys", inputs)?;
        check_keys("Keys", self.cols.iter().copied(), input.schema())
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().select(&self.cols)
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let i = inputs[0].props();
        let mut p = Props {
            non_negative: true,
            positive: true,
            consolidated: true,
            keys: Vec::new(),
            fds: Vec::new(),
            ..i.clone()
        };
        p.add_key(ColSet::all(schema.len()));
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], schema: &Schema) -> Unsettled {
        Unsettled::of_one_row_of_each(inputs, schema)
    }
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}

    fn carried(&self, inputs: &[Carried], _: &[&Node]) -> Carried {
        match inputs {
            [input] => input.moved(|c| self.cols.iter().position(|k| *k == c)),
            _ => Carried::Mixed,
        }
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Global
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_groups(&self.cols, &[], inputs)
    }
}

impl Differentiate for Keys {
    fn delta(&self, _: &mut Differ<'_>, _: NodeId) -> Result<Option<NodeId>> {
        Err(Error::plan(
            "Keys in a query: their delta would be one of exactly these keys, which a rendering need not give",
        ))
    }
}

impl Rewrite for Keys {
    fn needed(&self, _: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        // The keys are read from whole changed rows.
        pruned::all(inputs)
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        pruned::over_whole_inputs(self, graph, inputs)
    }
    fn restricted(&self, _: &mut Graph, _: &Restriction) -> Result<Option<NodeId>> {
        Ok(None)
    }
    fn needs_merged(&self, _: &Graph, _: usize, _: bool) -> bool {
        // The result may contain keys of rows that cancel. A change is therefore not merged just to compute
        // its keys.
        false
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.through(|c| self.cols.get(c).copied())]
    }
}

impl Evaluate for Keys {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        let groups = group::groups(inputs[0], &self.cols, cx.graph.schema(self.input));
        Ok(groups.into_iter().map(|g| (g.key.into(), 1)).collect())
    }
}

impl Render for Keys {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let mut block = cx.open(input, self.input);
        block.columns = self.cols.iter().filter_map(|c| block.columns.get(*c)).cloned().collect();
        block.weight = Weight::one();
        let mut closed = block.close(cx.output(), false);
        closed.distinct();
        Ok(Fragment::closed(closed, true, true))
    }
}
