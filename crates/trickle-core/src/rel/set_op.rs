//! INTERSECT and EXCEPT, with and without ALL.

use super::{
    By, Carried, Class, Distinct, Formula, Negate, Positive, Pruned, Rel, Relational, Restriction, Rewrite,
    Union, arity, carried, check_keys, check_positive, pruned, restriction,
};
use crate::delta::Differentiate;
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, Row, ZSet, group::row_groups, group::unpadded};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext, SetOperator};
use crate::values::SqlKey;
use std::collections::BTreeMap;

/// A set operation. (UNION ALL is [`Union`], and UNION is the [`Distinct`] of a UNION ALL.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetOpKind {
    /// `INTERSECT [ALL]`
    Intersect,
    /// `EXCEPT [ALL]`
    Except,
}

/// With ALL the weights are `min(l, r)` or `max(l − r, 0)`. Without ALL each row of the result has weight 1.
/// NULL is equal to NULL. Where rows of the left input are equal, the result has the row with the least
/// images. The image of a value is how the value is written, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetOp {
    left: NodeId,
    right: NodeId,
    kind: SetOpKind,
    all: bool,
}

impl SetOp {
    /// Makes `left INTERSECT|EXCEPT [ALL] right`.
    pub fn new(kind: SetOpKind, all: bool, left: NodeId, right: NodeId) -> SetOp {
        SetOp { left, right, kind, all }
    }
    /// Returns the kind of the set operation.
    pub fn kind(&self) -> SetOpKind {
        self.kind
    }
    /// Whether duplicates count: `ALL`.
    pub fn is_all(&self) -> bool {
        self.all
    }
}

impl Relational for SetOp {
    fn name(&self) -> &'static str {
        match (self.kind, self.all) {
            (SetOpKind::Intersect, false) => "Intersect",
            (SetOpKind::Intersect, true) => "IntersectAll",
            (SetOpKind::Except, false) => "Except",
            (SetOpKind::Except, true) => "ExceptAll",
        }
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.left, self.right]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        match inputs {
            [left, right] => SetOp { left: *left, right: *right, ..self.clone() }.into(),
            _ => self.clone().into(),
        }
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [l, r] = arity("SetOp", inputs)?;
        if !l.schema().same_types(r.schema()) {
            return Err(Error::plan("a set operation over relations with different column types"));
        }
        check_keys("SetOp", 0..l.schema().len(), l.schema())?;
        check_positive("SetOp", l)?;
        check_positive("SetOp", r)
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        inputs[0].schema().clone()
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let (l, r) = (inputs[0].props(), inputs[1].props());
        let mut p = l.clone();
        p.add_sources(r);
        p.reads_delta |= r.reads_delta;
        p.volatility = p.volatility.max(r.volatility);
        p.bounded = l.bounded && r.bounded;
        p.empty = l.empty || (r.empty && self.kind == SetOpKind::Intersect);
        p.consolidated = !self.all;
        if !self.all {
            p.add_key(ColSet::all(schema.len()));
        }
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
        Class::PerKey { keys: vec![all.clone(), all.clone()], output: all }
    }
    /// Expands EXCEPT ALL to `(L − R)⁺`, with `x⁺ = max(x, 0)` for weights. Expands INTERSECT ALL to `L − (L
    /// − R)⁺`. Without ALL, the expansion is over the distinct rows of each side.
    fn expand(&self, graph: &mut Graph) -> Result<Option<NodeId>> {
        let (l, r) = match self.all {
            true => (self.left, self.right),
            false => (graph.add(Distinct::new(self.left))?, graph.add(Distinct::new(self.right))?),
        };
        let minus = graph.add(Negate::new(r))?;
        let difference = graph.add(Union::new([l, minus]))?;
        let except = graph.add(Positive::new(difference))?;
        match self.kind {
            SetOpKind::Except => Ok(Some(except)),
            SetOpKind::Intersect => {
                let minus = graph.add(Negate::new(except))?;
                let least = graph.add(Union::new([l, minus]))?;
                // Equal rows with different images may have weights of different signs, although the sum of
                // their weights is never negative. This step cancels such rows.
                graph.add(Positive::new(least)).map(Some)
            }
        }
    }
}

impl Differentiate for SetOp {}

impl Rewrite for SetOp {
    fn needed(&self, _: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        // The weights of whole rows are compared.
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
        vec![by.clone(); 2]
    }
}

impl Evaluate for SetOp {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        let [l, r] = [inputs[0], inputs[1]];
        l.require_state("SetOp")?;
        r.require_state("SetOp")?;
        let schema = cx.graph.schema(self.left);
        let right: BTreeMap<SqlKey<Row>, i64> =
            row_groups(r, schema).into_iter().map(|(row, w)| (SqlKey(unpadded(&row, schema)), w)).collect();
        let weight = |row: &Row, l: i64| {
            let r = right.get(&SqlKey(unpadded(row, schema))).copied().unwrap_or(0);
            match (self.kind, self.all) {
                (SetOpKind::Intersect, true) => l.min(r),
                (SetOpKind::Except, true) => (l - r).max(0),
                (SetOpKind::Intersect, false) => i64::from(r > 0),
                (SetOpKind::Except, false) => i64::from(r == 0),
            }
        };
        Ok(row_groups(l, schema).into_iter().map(|(row, l)| (row.clone(), weight(&row, l))).collect())
    }
}

impl Render for SetOp {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [left, right] = cx.arity(inputs)?;
        left.require_positive(self.name())?;
        right.require_positive(self.name())?;
        let op = match self.kind {
            SetOpKind::Intersect => SetOperator::Intersect,
            SetOpKind::Except => SetOperator::Except,
        };
        let (left, right) = ((left, self.left), (right, self.right));
        let closed = match cx.graph().schema(self.left).is_exact() {
            true => cx.set_op(op, self.all, left, right),
            false => cx.set_op_by_value(op, self.all, left, right),
        };
        Ok(Fragment::closed(closed, true, !self.all))
    }
}
