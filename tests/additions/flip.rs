//! Flip: a relation with its columns in reverse order. An operator for a test.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, pruned, restriction,
};
use crate::delta::Differentiate;
use crate::error::Result;
use crate::eval::{Context, Evaluate, ZSet};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};

/// The rows of the input, with the last column first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flip {
    input: NodeId,
    width: usize,
}

impl Flip {
    /// Reverses the columns of `input`, which has `width` columns.
    pub fn new(input: NodeId, width: usize) -> Flip {
        Flip { input, width }
    }
    fn place(&self, column: usize) -> Option<usize> {
        self.width.checked_sub(column + 1)
    }
    fn places(&self, columns: &ColSet) -> ColSet {
        columns.iter().filter_map(|c| self.place(c)).collect()
    }
}

impl Relational for Flip {
    fn name(&self) -> &'static str {
        "Flip"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Flip { input: inputs.first().copied().unwrap_or(self.input), ..*self }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Flip", inputs)?;
        assert_eq!(input.schema().len(), self.width);
        Ok(())
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        Schema::new(inputs[0].schema().columns().iter().rev().cloned())
    }
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
        let input = inputs[0].props();
        let image: Vec<Option<usize>> = (0..self.width).map(|c| self.place(c)).collect();
        Props { consolidated: input.consolidated, ..input.project(&image) }
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        let below = Unsettled::of_first(inputs);
        Unsettled {
            written: self.places(&below.written),
            values: self.places(&below.values),
            rounded: self.places(&below.rounded),
            shuffled: self.places(&below.shuffled),
            rows: below.rows,
        }
    }
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}
    fn carried(&self, inputs: &[Carried], _: &[&Node]) -> Carried {
        inputs[0].moved(|c| self.place(c))
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Linear
    }
}

impl Differentiate for Flip {}

impl Rewrite for Flip {
    fn needed(&self, columns: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        vec![self.places(columns)]
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let input = pruned::only(inputs)?;
        Pruned::add(graph, Flip::new(input.node, input.kept.len()), self.places(&input.kept))
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        restriction::first_input(self, graph, to, |c| self.place(c))
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.through(|c| self.place(c))]
    }
}

impl Evaluate for Flip {
    fn eval(&self, inputs: &[&ZSet], _: &Context<'_>) -> Result<ZSet> {
        Ok(inputs[0].iter().map(|(row, w)| (row.iter().rev().cloned().collect(), w)).collect())
    }
}

impl Render for Flip {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let (positive, consolidated) = (input.positive, input.consolidated);
        let mut block = cx.open(input, self.input);
        block.columns.reverse();
        Ok(Fragment::open(block, positive, consolidated))
    }
}

#[cfg(test)]
mod additions {
    use super::Flip;
    use crate::rel::{Distinct, Filter, Map};
    use crate::testing::{self, Choice, Limits, Outcome, Sample};

    /// Puts the operator above a random plan, and another operator above it.
    fn flipped(choice: &mut Choice, limits: &Limits) -> Sample {
        let Sample { mut graph, root } = testing::sample(choice, &testing::tables(), limits).unwrap();
        let width = graph.schema(root).len();
        let flip = graph.add(Flip::new(root, width)).unwrap();
        let schema = graph.schema(flip).clone();
        let root = match choice.below(4) {
            0 => graph.add(Map::columns(flip, &schema, &[0])).unwrap(),
            1 => graph.add(Filter::new(flip, schema.expr(0).is_not_null())).unwrap(),
            2 => graph.add(Distinct::new(flip)).unwrap(),
            _ => flip,
        };
        Sample { graph, root }
    }

    #[test]
    fn an_operator_that_is_one_file_and_one_line_obeys_the_laws() {
        let mut changed = 0;
        for seed in 0..4_000 {
            let mut choice = Choice::seeded(seed);
            let operators = 1 + seed as usize % 4;
            let limits = Limits { operators, opaque: true, raising: false, clock: false };
            let sample = flipped(&mut choice, &limits);
            let db = testing::change(&mut choice, &testing::tables(), 4);
            match testing::check_all(&sample, &db) {
                Ok(Outcome::Held { changed: true }) => changed += 1,
                Ok(_) => {}
                Err(e) => panic!("seed {seed}: {e}"),
            }
            testing::check_rewrites(&sample, &db).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            testing::check_properties(&sample.graph, sample.root, &db).unwrap();
        }
        assert!(changed > 500, "{changed}");
    }
}
