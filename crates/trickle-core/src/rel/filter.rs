//! σ: the rows on which a condition is true.

use super::{Class, Rel, Relational, arity, check_predicate};
use crate::delta::Differentiate;
use crate::error::Result;
use crate::eval::{Context, Evaluate, ZSet, is_true};
use crate::expr::Expr;
use crate::graph::{Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext, scalar};

/// `σ predicate (R)`; false and NULL both drop the row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    input: NodeId,
    predicate: Expr,
}

impl Filter {
    /// The rows of `input` on which `predicate` is true.
    pub fn new(input: NodeId, predicate: Expr) -> Filter {
        Filter { input, predicate }
    }
    /// The input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// The condition.
    pub fn predicate(&self) -> &Expr {
        &self.predicate
    }
}

impl Relational for Filter {
    fn name(&self) -> &'static str {
        "Filter"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Filter { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Filter", inputs)?;
        check_predicate("Filter", &self.predicate, &[input.schema()])
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], _: &Schema) -> Props {
        let mut p = inputs[0].props().clone();
        p.volatility = p.volatility.max(self.predicate.volatility());
        p.learn(&self.predicate);
        p
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Linear
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_exprs(std::slice::from_ref(&self.predicate), inputs)
    }
}

impl Differentiate for Filter {}

impl Evaluate for Filter {
    fn eval(&self, inputs: &[&ZSet], _: &Context<'_>) -> Result<ZSet> {
        let mut out = ZSet::new();
        for (row, w) in inputs[0].iter() {
            if is_true(&self.predicate, row)? {
                out.add(row.clone(), w);
            }
        }
        Ok(out)
    }
}

impl Render for Filter {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let (positive, consolidated) = (input.positive, input.consolidated);
        let block = cx.open(input, self.input);
        let predicate = std::slice::from_ref(&self.predicate);
        let mut block = cx.fit(block, self.input, predicate, true);
        block.filter.extend(self.predicate.conjuncts().iter().map(|t| scalar(t, &block.columns)));
        Ok(cx.once_per_row(predicate, Fragment::open(block, positive, consolidated)))
    }
}
