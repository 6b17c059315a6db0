//! Set-returning functions: each input row is joined with the rows that the functions return for this row.

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, arity, carried, check_expr,
    pruned, restriction,
};
use crate::delta::Differentiate;
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, Row, ZSet, call, expr};
use crate::expr::functions::recordset;
use crate::expr::{Expr, FuncKind, FuncSig};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};
use crate::types::{Datum, Type};
use std::sync::Arc;

/// A function call in FROM, or a set-returning function's call in a select list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetCall {
    /// The function that is called. A function that returns no set gives one row.
    pub sig: Arc<FuncSig>,
    /// The arguments, over the columns of the input row.
    pub args: Vec<Expr>,
    /// Whether the columns of the call come from a column definition list after the call. The function's
    /// signature then has these columns too.
    pub defined: bool,
}

impl SetCall {
    /// Returns the types of the columns of the call.
    pub fn types(&self) -> &[Type] {
        match &self.sig.ret {
            Type::Record(fields) => fields,
            one => std::slice::from_ref(one),
        }
    }
    /// Whether evaluating the call can raise.
    pub fn can_raise(&self) -> bool {
        self.sig.raises || self.args.iter().any(Expr::can_raise)
    }
    /// Returns the call with `f` applied to each argument.
    #[must_use]
    pub fn map_exprs(&self, f: impl FnMut(&Expr) -> Expr) -> SetCall {
        SetCall { args: self.args.iter().map(f).collect(), ..self.clone() }
    }

    /// Returns the rows that the call returns for `row`.
    fn rows(&self, row: &Row) -> Result<Vec<Vec<Datum>>> {
        let args = self.args.iter().map(|a| expr(a, row)).collect::<Result<Vec<_>>>()?;
        if self.defined && args.iter().any(Datum::is_null) {
            return Ok(Vec::new());
        }
        let value = match recordset(&self.sig).filter(|_| self.defined) {
            Some(value) => value(&args, &self.sig)?,
            None => call(&self.sig, &args)?,
        };
        let columns = self.types().len();
        let apart = |d: &Datum| match (d, &self.sig.ret) {
            (Datum::Record(fields), Type::Record(_)) => fields.to_vec(),
            (Datum::Null, _) => vec![Datum::Null; columns],
            _ => vec![d.clone()],
        };
        Ok(match value {
            value if self.sig.kind != FuncKind::SetReturning => vec![apart(&value)],
            Datum::Array(rows) => rows.iter().map(apart).collect(),
            _ => Vec::new(),
        })
    }
}

/// Each input row, joined with the rows that its calls return. The first rows of all calls form one output
/// row, the second rows form the next output row, and so on. A call that returned fewer rows than another is
/// padded with NULLs. With ordinality, the last column numbers the rows of one input row from 1. An input row
/// for which no call returns a row is dropped; with `outer` it stays, padded with NULLs. The operator is
/// linear: `op(R + S) = op(R) + op(S)`. The operator's delta is therefore `op(ΔR)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expand {
    input: NodeId,
    calls: Vec<SetCall>,
    ordinality: bool,
    outer: bool,
}

impl Expand {
    /// Expands the rows of `input`; the SQL is `input, ROWS FROM (calls)`.
    pub fn new(input: NodeId, calls: Vec<SetCall>) -> Expand {
        Expand { input, calls, ordinality: false, outer: false }
    }
    /// Sets whether the rows of each input row are numbered: `WITH ORDINALITY`.
    #[must_use]
    pub fn numbered(mut self, ordinality: bool) -> Expand {
        self.ordinality = ordinality;
        self
    }
    /// Sets whether an input row without returned rows stays: `input LEFT JOIN LATERAL … ON true`.
    #[must_use]
    pub fn outer(mut self, outer: bool) -> Expand {
        self.outer = outer;
        self
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the calls.
    pub fn calls(&self) -> &[SetCall] {
        &self.calls
    }
    /// Whether the rows that the calls return for one input row are numbered.
    pub fn has_ordinality(&self) -> bool {
        self.ordinality
    }
    /// Whether an input row stays when no call returns a row for it.
    pub fn is_outer(&self) -> bool {
        self.outer
    }
    /// Returns the same operator over another input. Column `c` of the present input is column `place(c)` of
    /// `input`.
    #[must_use]
    pub fn over(&self, input: NodeId, place: impl Fn(usize) -> usize) -> Expand {
        let moved = |e: &Expr| e.map_columns(&place);
        Expand { input, calls: self.calls.iter().map(|c| c.map_exprs(moved)).collect(), ..*self }
    }
    fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.calls.iter().flat_map(|c| &c.args)
    }
}

impl Relational for Expand {
    fn name(&self) -> &'static str {
        "Expand"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Expand { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Expand", inputs)?;
        if self.calls.is_empty() || self.calls.iter().any(|c| c.types().is_empty()) {
            return Err(Error::plan("Expand has no call, or one without columns"));
        }
        self.exprs().try_for_each(|e| check_expr("Expand", e, &[input.schema()]))
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        let padded = self.outer || self.calls.len() > 1;
        let columns = self.calls.iter().flat_map(|c| {
            c.types().iter().enumerate().map(move |(i, ty)| Column {
                label: c.sig.columns.get(i).unwrap_or(&c.sig.name).clone(),
                ty: ty.clone(),
                nullable: padded || !c.sig.never_null || c.sig.kind != FuncKind::SetReturning,
            })
        });
        let number = Column { label: "ordinality".into(), ty: Type::Int8, nullable: self.outer };
        let number = self.ordinality.then_some(number);
        Schema::new(inputs[0].schema().columns().iter().cloned().chain(columns).chain(number))
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let mut p = inputs[0].props().clone();
        let volatility = |c: &SetCall| c.args.iter().map(Expr::volatility).fold(c.sig.volatility, Ord::max);
        p.volatility = self.calls.iter().map(volatility).fold(p.volatility, Ord::max);
        p.consolidated &= self.ordinality;
        for key in std::mem::take(&mut p.keys).into_iter().filter(|_| self.ordinality) {
            let mut numbered = key;
            numbered.insert(schema.len() - 1);
            p.fds.push(FunctionalDependency { from: numbered.clone(), to: ColSet::all(schema.len()) });
            p.add_key(numbered);
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], schema: &Schema) -> Unsettled {
        // A function's result, and the number of rows that it returns, may depend on the image of an
        // argument.
        let below = Unsettled::of_first(inputs);
        let open = self.exprs().any(|e| below.reads(e));
        let before = inputs.first().map_or(0, |input| input.node.schema().len());
        let new: ColSet = (before..schema.len()).filter(|_| open).collect();
        Unsettled { values: below.values.union(&new), rows: below.rows || open, ..below }
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        self.calls().iter().for_each(|c| f(Formula::Set(c)));
    }

    fn carried(&self, inputs: &[Carried], _: &[&Node]) -> Carried {
        carried::unmoved(inputs)
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Linear
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        crate::graph::describe_expand(self, inputs)
    }
}

impl Differentiate for Expand {}

impl Rewrite for Expand {
    fn needed(&self, columns: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        let width = inputs[0].schema().len();
        let passed = columns.iter().filter(|c| *c < width).collect();
        vec![pruned::read(self.exprs()).union(&passed)]
    }
    fn pruned(&self, graph: &mut Graph, columns: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let input = pruned::only(inputs)?;
        // The number of rows depends on every call, but not on the column that numbers them.
        let old = graph.schema(self.input).len();
        let returned = old + self.calls.iter().map(|c| c.types().len()).sum::<usize>();
        let numbered = self.ordinality && columns.contains(returned);
        let mut kept = input.kept.clone();
        (old..returned + usize::from(numbered)).for_each(|c| kept.insert(c));
        Pruned::add(graph, self.over(input.node, |c| input.at(c)).numbered(numbered), kept)
    }
    fn restricted(&self, graph: &mut Graph, to: &Restriction) -> Result<Option<NodeId>> {
        let width = graph.schema(self.input).len();
        restriction::first_input(self, graph, to, |c| (c < width).then_some(c))
    }
    fn needs_merged(&self, _: &Graph, _: usize, inherits: bool) -> bool {
        inherits || self.calls.iter().any(SetCall::can_raise)
    }
    fn pays_to_store(&self) -> bool {
        false
    }
    fn looks_up(&self, graph: &Graph, by: &By) -> Vec<By> {
        let width = graph.schema(self.input).len();
        vec![by.through(|c| (c < width).then_some(c))]
    }
}

impl Evaluate for Expand {
    fn eval(&self, inputs: &[&ZSet], _: &Context<'_>) -> Result<ZSet> {
        let mut out = ZSet::new();
        for (row, w) in inputs[0].iter() {
            let sets = self.calls.iter().map(|c| c.rows(row)).collect::<Result<Vec<_>>>()?;
            let most = sets.iter().map(Vec::len).max().unwrap_or(0);
            for i in 0..most.max(usize::from(self.outer)) {
                let mut wide = row.to_vec();
                for (call, set) in self.calls.iter().zip(&sets) {
                    let nulls = || vec![Datum::Null; call.types().len()];
                    wide.extend(set.get(i).cloned().unwrap_or_else(nulls));
                }
                if self.ordinality {
                    let number = i64::try_from(i + 1).unwrap_or(i64::MAX);
                    wide.push(if i < most { Datum::Int(number) } else { Datum::Null });
                }
                out.add(wide.into(), w);
            }
        }
        Ok(out)
    }
}

impl Render for Expand {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let (positive, consolidated) = (input.positive, input.consolidated && self.ordinality);
        let block = cx.open(input, self.input);
        let block = cx.fit(block, self.input, self.exprs(), true);
        let block = cx.expanded(block, self);
        Ok(cx.once_per_row(self.exprs(), Fragment::open(block, positive, consolidated)))
    }
}
