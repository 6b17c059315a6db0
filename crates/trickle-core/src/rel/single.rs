//! The only row of a scalar subquery, and whether the subquery has several rows.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried, check_keys,
    check_positive, pruned, restriction,
};
use crate::delta::Differentiate;
use crate::error::Result;
use crate::eval::{Context, Evaluate, Row, ZSet, group::groups};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};
use crate::types::{Datum, Type};

/// One row for each value of the key. The last column says whether the input has several rows with this
/// value. If the input has several such rows, the columns outside the key are NULL. Otherwise they have the
/// values of the only row. Without a key there is always exactly one row, all NULL where the input has no
/// row. The key is the first `keys` columns of the input.
///
/// A scalar subquery with several rows is an error only where its value is needed. The expression that reads
/// the value therefore raises the error ([`crate::expr::ExprKind::ManyRows`]). This operator raises no error,
/// since it also computes rows for keys whose value is not needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Single {
    input: NodeId,
    keys: usize,
}

impl Single {
    /// Denotes the only row of `input` for each value of its first `keys` columns.
    pub fn new(input: NodeId, keys: usize) -> Single {
        Single { input, keys }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the number of key columns, which come first.
    pub fn keys(&self) -> usize {
        self.keys
    }
}

impl Relational for Single {
    fn name(&self) -> &'static str {
        "Single"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Single { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Single", inputs)?;
        check_keys("Single", 0..self.keys, input.schema())?;
        check_positive("Single", input)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        let mut columns = inputs[0].schema().columns().to_vec();
        columns.iter_mut().skip(self.keys).for_each(|c| c.nullable = true);
        columns.push(Column { label: "several".into(), ty: Type::Bool, nullable: false });
        Schema::new(columns)
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let mut p = inputs[0].props().clone();
        let key = ColSet::all(self.keys);
        p.fds.clear();
        p.keys.clear();
        p.consolidated = true;
        p.empty = p.empty && self.keys > 0;
        p.fds.push(FunctionalDependency { from: key.clone(), to: ColSet::all(schema.len()) });
        p.add_key(key);
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], schema: &Schema) -> Unsettled {
        Unsettled::of_one_row_of_each(inputs, schema)
    }
    // If a subquery has a second row, an expression above this operator raises the error. A refresh in which
    // this error is raised becomes a recompute.
    fn formulas<'a>(&'a self, _: &mut dyn FnMut(Formula<'a>)) {}

    fn carried(&self, inputs: &[Carried], nodes: &[&Node]) -> Carried {
        carried::by_key(&self.class(nodes), inputs)
    }
    fn class(&self, _: &[&Node]) -> Class {
        if self.keys == 0 {
            return Class::Global;
        }
        let keys: Vec<usize> = (0..self.keys).collect();
        Class::PerKey { keys: vec![keys.clone()], output: keys }
    }
    fn describe(&self, _: &[&Node]) -> String {
        if self.keys == 0 { String::new() } else { format!("per first {} columns", self.keys) }
    }
}

impl Differentiate for Single {}

impl Rewrite for Single {
    fn needed(&self, _: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
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
        vec![by.through(|c| (c < self.keys).then_some(c))]
    }
}

impl Evaluate for Single {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        inputs[0].require_state("Single")?;
        let schema = cx.graph.schema(self.input);
        let keys: Vec<usize> = (0..self.keys).collect();
        let mut out = ZSet::new();
        for group in groups(inputs[0], &keys, schema) {
            let several = !matches!(group.rows.as_slice(), [(_, 1)]);
            let Some((row, _)) = group.rows.first() else { continue };
            let value =
                |(i, d): (usize, &Datum)| if several && i >= self.keys { Datum::Null } else { d.clone() };
            let row: Row = row.iter().enumerate().map(value).chain([Datum::Bool(several)]).collect();
            out.add(row, 1);
        }
        if self.keys == 0 && out.is_empty() {
            out.add(std::iter::repeat_n(Datum::Null, schema.len()).chain([Datum::Bool(false)]).collect(), 1);
        }
        Ok(out)
    }
}

impl Render for Single {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        input.require_positive("Single")?;
        let block = cx.open(input, self.input);
        let once = cx.graph().props(self.input).is_key(&ColSet::all(self.keys));
        let body = cx.single(block, self.input, self.keys, once);
        Ok(Fragment { body, positive: true, consolidated: true })
    }
}
