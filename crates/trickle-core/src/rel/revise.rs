//! Changes as pairs: an old row and a new row, both computed from one input row.

use super::{
    By, Carried, Class, Filter, Formula, Map, Pruned, Rel, Relational, Restriction, Rewrite, arity,
    check_columns, check_predicate, pruned,
};
use crate::delta::Differentiate;
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, Row, ZSet, expr};
use crate::expr::{Expr, ExprKind};
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Column, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext, Scalar, differs, scalar};
use crate::types::Datum;
use std::sync::Arc;

/// The change `Σ w × ([has] · is(r) − [had] · was(r))`, over the rows r of the input with their weights w.
/// For each r, the row `was(r)` leaves, and the row `is(r)` comes in its place. A pair of two identical rows
/// adds nothing to the change.
///
/// The operator is linear. Suppose that a key of the input passes unchanged into both the old and the new
/// row. Then each row of the change occurs once, without a merge. The change of groups, or of values computed
/// from groups, therefore takes one pass over the groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Revise {
    input: NodeId,
    was: Side,
    is: Side,
    labels: Vec<Arc<str>>,
}

/// The old or the new row of a revision, and whether the row exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Side {
    /// The values of the row, as expressions over the columns of the input.
    pub row: Vec<Expr>,
    /// Whether the row exists: true or false, never NULL.
    pub there: Expr,
}

impl Side {
    fn mapped(&self, map: &Map) -> Side {
        let row = map.exprs().iter().map(|e| e.substitute(&self.row)).collect();
        Side { row, there: self.there.clone() }
    }
    fn filtered(&self, filter: &Filter, input: &Schema) -> Side {
        let passes = filter.predicate().substitute(&self.row);
        let passes = if passes.nullable(input) { passes.is_true() } else { passes };
        Side { row: self.row.clone(), there: Expr::and([self.there.clone(), passes]) }
    }
    fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.row.iter().chain([&self.there])
    }
}

/// The greatest number of nodes in an expression that counts as cheap.
const CHEAP: usize = 24;

/// Whether computing the expression twice costs next to nothing: it has few nodes, and calls only built-in
/// operators.
fn is_cheap(e: &Expr) -> bool {
    let mut operators = true;
    e.visit(&mut |e| {
        if let ExprKind::Call(sig, _) = e.kind() {
            operators &= sig.is_operator() && sig.schema.is_none();
        }
    });
    operators && e.size() <= CHEAP
}

impl Revise {
    /// Makes a pair of an old and a new row for each row of `input`. Old and new rows have as many columns as
    /// there are `labels`.
    pub fn new(input: NodeId, was: Side, is: Side, labels: Vec<Arc<str>>) -> Revise {
        Revise { input, was, is, labels }
    }
    /// Returns the input.
    pub fn input(&self) -> NodeId {
        self.input
    }
    /// Returns the side of the old rows.
    pub fn was(&self) -> &Side {
        &self.was
    }
    /// Returns the side of the new rows.
    pub fn is(&self) -> &Side {
        &self.is
    }
    /// Returns the revision of the same input with other sides.
    #[must_use]
    pub fn with_sides(&self, was: Side, is: Side) -> Revise {
        Revise { was, is, ..self.clone() }
    }
    /// Returns all expressions that are computed for a row of the input.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.was.exprs().chain(self.is.exprs())
    }
    /// Returns the column of the input that is column `i` of both the old and the new row, if there is one.
    pub(crate) fn kept(&self, i: usize) -> Option<usize> {
        let column = |side: &Side| side.row.get(i).and_then(Expr::as_column);
        column(&self.was).filter(|c| column(&self.is) == Some(*c))
    }
    /// Returns the revision that results from mapping the rows of this revision. `schema` is the schema of
    /// the map. Returns `None` where an expensive expression would be computed more than once for each row.
    /// The SQL of a revision uses each value twice: to compare old with new, and as output.
    pub(crate) fn mapped(&self, map: &Map, schema: &Schema) -> Option<Revise> {
        let labels = schema.columns().iter().map(|c| c.label.clone()).collect();
        let made = Revise { input: self.input, was: self.was.mapped(map), is: self.is.mapped(map), labels };
        let cheap = made.exprs().all(is_cheap);
        cheap.then_some(made)
    }
    /// Returns the revision that results from filtering the rows of this revision. `input` is the schema of
    /// this revision's input. Returns `None` where the condition is expensive, for the reason given at
    /// [`Revise::mapped`]. Returns `None` also where the condition can raise an error, since it would be
    /// evaluated for rows that do not exist.
    pub(crate) fn filtered(&self, filter: &Filter, input: &Schema) -> Option<Revise> {
        let (was, is) = (self.was.filtered(filter, input), self.is.filtered(filter, input));
        let fits = [&was, &is].iter().all(|side| is_cheap(&side.there) && !side.there.can_raise());
        fits.then(|| Revise { was, is, ..self.clone() })
    }
    /// Returns the columns that the revision must output if readers need only the columns `read`. Input
    /// columns that pass unchanged into both rows are always output, since they tell the rows apart.
    pub(crate) fn shown(&self, read: &ColSet) -> ColSet {
        (0..self.is.row.len()).filter(|i| read.contains(*i) || self.kept(*i).is_some()).collect()
    }
    /// Returns the expressions that are computed for the columns `shown` and for the two existence
    /// conditions.
    pub(crate) fn reads(&self, shown: &ColSet) -> impl Iterator<Item = &Expr> {
        let rows = [&self.was, &self.is].into_iter().flat_map(|s| s.row.iter().enumerate());
        let rows = rows.filter(|(i, _)| shown.contains(*i)).map(|(_, e)| e);
        rows.chain([&self.was.there, &self.is.there])
    }
    /// Returns the revision with only the columns `shown`, over an input with fewer columns. `expr` rewrites
    /// an expression for this input.
    pub(crate) fn over(&self, input: NodeId, shown: &ColSet, expr: impl Fn(&Expr) -> Expr) -> Revise {
        let side =
            |s: &Side| Side { row: shown.iter().map(|i| expr(&s.row[i])).collect(), there: expr(&s.there) };
        let labels = shown.iter().map(|i| self.labels[i].clone()).collect();
        Revise { input, was: side(&self.was), is: side(&self.is), labels }
    }
    /// Returns the values and conditions by which PostgreSQL computes this revision. `columns` are the SQL
    /// expressions for the input's columns.
    pub(crate) fn read(&self, input: &Schema, columns: &[Scalar]) -> Read {
        let values = |side: &Side| side.row.iter().map(|e| scalar(e, columns)).collect::<Vec<_>>();
        let (was, is) = (values(&self.was), values(&self.is));
        let (had, has) = (scalar(&self.was.there, columns), scalar(&self.is.there, columns));
        let moved = (0..was.len()).filter(|i| self.was.row[*i] != self.is.row[*i]).map(|i| {
            let nullable = [&self.was, &self.is].iter().any(|s| s.row[i].nullable(input));
            differs(was[i].clone(), is[i].clone(), self.is.row[i].ty(), nullable)
        });
        let moved: Vec<Scalar> = moved.collect();
        // Values are compared only where both rows exist. Hence they are computed only there.
        let both = Scalar::and([had.clone(), has.clone()]);
        let changes = match moved.is_empty() {
            true => both.negated(),
            false => Scalar::Case {
                whens: vec![(both, Scalar::or(moved))],
                otherwise: Some(Box::new(Scalar::bool(true))),
            },
        };
        Read {
            was,
            is,
            leaves: vec![had.clone(), changes.clone()],
            comes: vec![has.clone(), changes],
            vanishes: vec![had, has.negated()],
        }
    }
}

/// The SQL of a revision: conditions and values over the rows of its input.
pub(crate) struct Read {
    /// The values of the old row.
    pub(crate) was: Vec<Scalar>,
    /// The values of the new row.
    pub(crate) is: Vec<Scalar>,
    /// The conditions under which the old row leaves.
    pub(crate) leaves: Vec<Scalar>,
    /// The conditions under which the new row comes.
    pub(crate) comes: Vec<Scalar>,
    /// The conditions under which the old row leaves and no new row comes.
    pub(crate) vanishes: Vec<Scalar>,
}

impl Relational for Revise {
    fn name(&self) -> &'static str {
        "Revise"
    }
    fn inputs(&self) -> Vec<NodeId> {
        vec![self.input]
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        Revise { input: inputs.first().copied().unwrap_or(self.input), ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [input] = arity("Revise", inputs)?;
        for side in [&self.was, &self.is] {
            check_predicate("Revise", &side.there, &[input.schema()])?;
            // The SQL negates this condition, so the condition must never be NULL.
            if side.there.nullable(input.schema()) {
                return Err(Error::plan("Revise does not know of some row whether it is there"));
            }
            side.row.iter().try_for_each(|e| check_columns("Revise", e, &[input.schema()]))?;
        }
        let types = |side: &Side| side.row.iter().map(|e| e.ty().clone()).collect::<Vec<_>>();
        if types(&self.was) != types(&self.is) || self.labels.len() != self.is.row.len() {
            return Err(Error::plan("Revise has sides of different columns"));
        }
        Ok(())
    }
    fn schema(&self, inputs: &[&Node]) -> Schema {
        let input = inputs[0].schema();
        Schema::new(self.is.row.iter().zip(&self.was.row).zip(&self.labels).map(|((is, was), label)| {
            Column {
                label: label.clone(),
                ty: is.ty().clone(),
                nullable: is.nullable(input) || was.nullable(input),
            }
        }))
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let i = inputs[0].props();
        let passed: ColSet = (0..schema.len()).filter_map(|c| self.kept(c)).collect();
        Props {
            non_negative: i.empty,
            positive: i.empty,
            consolidated: i.non_negative && i.consolidated && i.is_key(&passed),
            keys: Vec::new(),
            fds: Vec::new(),
            volatility: self.exprs().map(Expr::volatility).fold(i.volatility, Ord::max),
            ..i.clone()
        }
    }
    fn unsettled(&self, inputs: &[Input<'_>], _: &Schema) -> Unsettled {
        Unsettled::of_inputs(inputs)
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        self.exprs().for_each(|e| f(Formula::Scalar(e)));
    }

    fn carried(&self, inputs: &[Carried], _: &[&Node]) -> Carried {
        match inputs {
            [input] => input.moved(|c| (0..self.was.row.len()).find(|o| self.kept(*o) == Some(c))),
            _ => Carried::Mixed,
        }
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Linear
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        let side = |s: &Side| {
            let there = crate::graph::describe_exprs(std::slice::from_ref(&s.there), inputs);
            format!("{} if {there}", crate::graph::describe_exprs(&s.row, inputs))
        };
        format!("{} → {}", side(&self.was), side(&self.is))
    }
}

impl Differentiate for Revise {}

impl Rewrite for Revise {
    fn needed(&self, columns: &ColSet, _: &[&Node]) -> Vec<ColSet> {
        vec![pruned::read(self.reads(&self.shown(columns)))]
    }
    fn pruned(&self, graph: &mut Graph, columns: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let (input, kept) = (pruned::only(inputs)?, self.shown(columns));
        Pruned::add(graph, self.over(input.node, &kept, |e| input.expr(e)), kept)
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
    fn looks_up(&self, _: &Graph, by: &By) -> Vec<By> {
        vec![by.through(|c| self.kept(c))]
    }
}

impl Evaluate for Revise {
    fn eval(&self, inputs: &[&ZSet], _: &Context<'_>) -> Result<ZSet> {
        let mut out = ZSet::new();
        for (row, w) in inputs[0].iter() {
            for (side, w) in [(&self.was, w.wrapping_neg()), (&self.is, w)] {
                if expr(&side.there, row)? == Datum::Bool(true) {
                    out.add(side.row.iter().map(|e| expr(e, row)).collect::<Result<Row>>()?, w);
                }
            }
        }
        Ok(out)
    }
}

impl Render for Revise {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        let [input] = cx.arity(inputs)?;
        let consolidated = input.consolidated && cx.is_consolidated();
        let block = cx.open(input, self.input);
        let block = cx.shareable(block, self.input);
        let mut arms = Vec::new();
        for comes in [true, false] {
            let mut arm = cx.copy_block(&block);
            let read = self.read(cx.graph().schema(self.input), &arm.columns);
            let (row, there) = if comes { (read.is, read.comes) } else { (read.was, read.leaves) };
            arm.filter.extend(there);
            arm.columns = row;
            arm.weight = if comes { arm.weight } else { arm.weight.negated() };
            arms.push(arm);
        }
        let names = cx.output();
        Ok(Fragment::closed(cx.union(arms, names, true), false, consolidated))
    }
}
