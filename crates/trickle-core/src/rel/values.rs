//! Relations of constant rows.

use super::{By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, pruned};
use crate::delta::Differentiate;
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, Row, ZSet, expr};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Column, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};
use std::sync::Arc;

/// A bag of constant rows. The expressions in the rows read no column. Without rows, the bag is the empty
/// relation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Values {
    schema: Schema,
    rows: Arc<[Vec<Expr>]>,
}

impl Values {
    /// Makes a relation with the columns `columns` and the rows `rows`.
    pub fn new(columns: impl IntoIterator<Item = Column>, rows: Vec<Vec<Expr>>) -> Values {
        Values { schema: Schema::new(columns), rows: rows.into() }
    }
    /// Makes the empty relation with this schema.
    pub fn empty(schema: Schema) -> Values {
        Values { schema, rows: Arc::from([]) }
    }
    /// Makes a relation with one row and no columns, the neutral element of the product.
    pub fn unit() -> Values {
        Values { schema: Schema::new([]), rows: Arc::from([Vec::new()]) }
    }
    /// Returns the rows.
    pub fn rows(&self) -> &[Vec<Expr>] {
        &self.rows
    }
}

impl Relational for Values {
    fn name(&self) -> &'static str {
        "Values"
    }
    fn inputs(&self) -> Vec<NodeId> {
        Vec::new()
    }
    fn with_inputs(&self, _: &[NodeId]) -> Rel {
        self.clone().into()
    }
    fn check(&self, _: &[&Node]) -> Result<()> {
        for row in self.rows.iter() {
            if row.len() != self.schema.len() {
                return Err(Error::plan("VALUES lists must all be the same length"));
            }
            for (e, c) in row.iter().zip(self.schema.columns()) {
                if *e.ty() != c.ty || !e.columns().is_empty() {
                    return Err(Error::plan("a VALUES row does not fit its columns"));
                }
            }
        }
        Ok(())
    }
    fn schema(&self, _: &[&Node]) -> Schema {
        self.schema.clone()
    }
    fn props(&self, _: &[&Node], _: &Schema) -> Props {
        let mut p = Props {
            empty: self.rows.is_empty(),
            consolidated: self.rows.len() <= 1,
            bounded: true,
            ..Props::state()
        };
        p.volatility = self.rows.iter().flatten().map(Expr::volatility).max().unwrap_or(p.volatility);
        if self.rows.len() <= 1 {
            p.add_key(crate::graph::ColSet::new());
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        Unsettled::of_inputs(inputs)
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        self.rows.iter().flatten().for_each(|e| f(Formula::Scalar(e)));
    }

    fn carried(&self, _: &[Carried], _: &[&Node]) -> Carried {
        Carried::Absent
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Leaf
    }
    fn describe(&self, _: &[&Node]) -> String {
        format!("{} rows", self.rows.len())
    }
}

impl Differentiate for Values {}

impl Rewrite for Values {
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

impl Evaluate for Values {
    fn eval(&self, _: &[&ZSet], _: &Context<'_>) -> Result<ZSet> {
        let row = |exprs: &Vec<Expr>| exprs.iter().map(|e| expr(e, &[])).collect::<Result<Row>>();
        self.rows.iter().map(|exprs| Ok((row(exprs)?, 1))).collect()
    }
}

impl Render for Values {
    fn render(&self, _: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let block = cx.constant(&self.rows);
        Ok(Fragment::open(block, true, self.rows.len() <= 1))
    }
}
