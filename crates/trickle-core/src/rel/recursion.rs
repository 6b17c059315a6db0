//! WITH RECURSIVE: in each round, a step derives rows from the rows of the previous round.

mod change;

use super::{
    By, Carried, Class, Formula, Pruned, Rel, Relational, Restriction, Rewrite, carried, check_expr,
    check_keys, check_positive, check_predicate, lookups, pruned,
};
use crate::error::{Error, Result};
use crate::eval::{Context, Evaluate, Row, ZSet, expr, group::Matcher};
use crate::expr::Expr;
use crate::graph::settled::{Input, Unsettled};
use crate::graph::{ColSet, Column, FunctionalDependency, Graph, Node, NodeId, Props, Schema};
use crate::sql::{Fragment, Render, RenderContext};

/// The rule that chooses the rows from which the next round starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fixpoint {
    /// UNION ALL: all rows of the previous round, with their weights.
    All,
    /// UNION: the rows that no earlier round had.
    Distinct,
}

/// A step `S(W) = π_exprs(W ⋈on T)`, which derives rows from the rows W of the previous round. The step reads
/// W once. The step also reads a relation T, the *side*, which does not depend on W. The step is therefore
/// linear in W and in T.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The condition over a pair: the columns of W, then the columns of T.
    pub on: Expr,
    /// The columns of the derived rows, as expressions over a pair.
    pub exprs: Vec<Expr>,
}

/// The rows that a step derives from a base B. With [`Fixpoint::All`] the result is `B + S(B) + S(S(B)) + …`,
/// up to the first empty term. With [`Fixpoint::Distinct`] the result is the least set R that contains B and
/// S(R). The recursion may also have *known* and *forgotten* rows. Let K be the known rows that are not
/// forgotten. The result is then the least set R that contains those rows of B and of S(R) that are not in K.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recursion {
    base: NodeId,
    side: NodeId,
    known: Option<(NodeId, NodeId)>,
    step: Step,
    fixpoint: Fixpoint,
}

impl Recursion {
    /// Starts from `base`, and applies `step` to the rows of each round, joined with `side`.
    pub fn new(base: NodeId, side: NodeId, step: Step, fixpoint: Fixpoint) -> Recursion {
        Recursion { base, side, known: None, step, fixpoint }
    }
    /// Leaves out the rows of `known` that are not in `forgotten`. Known rows are valid only for
    /// [`Fixpoint::Distinct`].
    #[must_use]
    pub fn beyond(mut self, known: NodeId, forgotten: NodeId) -> Recursion {
        self.known = Some((known, forgotten));
        self
    }
    /// Returns the rows that the first round starts from.
    pub fn base(&self) -> NodeId {
        self.base
    }
    /// Returns the relation that the step joins with the rows of the previous round.
    pub fn side(&self) -> NodeId {
        self.side
    }
    /// Returns the step.
    pub fn step(&self) -> &Step {
        &self.step
    }
    /// Returns the rule for the rows that a round starts from.
    pub fn fixpoint(&self) -> Fixpoint {
        self.fixpoint
    }
    /// Returns the known rows and the forgotten rows. The result leaves out the known rows, except those that
    /// are forgotten.
    pub fn known(&self) -> Option<(NodeId, NodeId)> {
        self.known
    }
    /// Returns the same operator with another side. Column `c` of the present side is column `place(c)` of
    /// `side`. The first `width` columns of a pair belong to the row of the previous round. The other columns
    /// belong to the side.
    #[must_use]
    pub fn beside(&self, width: usize, side: NodeId, place: impl Fn(usize) -> usize) -> Recursion {
        let moved = |e: &Expr| e.map_columns(|c| if c < width { c } else { width + place(c - width) });
        let step = Step { on: moved(&self.step.on), exprs: self.step.exprs.iter().map(moved).collect() };
        Recursion { side, step, ..self.clone() }
    }
    /// Returns all expressions that are computed for a pair: the columns of derived rows, and the condition.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        self.step.exprs.iter().chain([&self.step.on])
    }
}

impl Relational for Recursion {
    fn name(&self) -> &'static str {
        match self.fixpoint {
            Fixpoint::All => "RecursionAll",
            Fixpoint::Distinct => "Recursion",
        }
    }
    fn inputs(&self) -> Vec<NodeId> {
        let known = self.known.into_iter().flat_map(|(known, forgotten)| [known, forgotten]);
        [self.base, self.side].into_iter().chain(known).collect()
    }
    fn with_inputs(&self, inputs: &[NodeId]) -> Rel {
        let (base, side, known) = match inputs {
            [base, side, known, forgotten] => (*base, *side, Some((*known, *forgotten))),
            [base, side] => (*base, *side, None),
            _ => (self.base, self.side, self.known),
        };
        Recursion { base, side, known, ..self.clone() }.into()
    }
    fn check(&self, inputs: &[&Node]) -> Result<()> {
        let [base, side, known @ ..] = inputs else { return Err(Error::plan("Recursion takes two inputs")) };
        let (rows, beside) = (base.schema(), side.schema());
        let fits = self.step.exprs.len() == rows.len()
            && self.step.exprs.iter().zip(rows.columns()).all(|(e, c)| *e.ty() == c.ty);
        if !fits || known.iter().any(|k| !k.schema().same_types(rows)) {
            return Err(Error::plan("Recursion over rows of different types"));
        }
        self.step.exprs.iter().try_for_each(|e| check_expr("Recursion", e, &[rows, beside]))?;
        check_predicate("Recursion", &self.step.on, &[rows, beside])?;
        inputs.iter().try_for_each(|i| check_positive("Recursion", i))?;
        match self.fixpoint {
            Fixpoint::All if known.is_empty() => Ok(()),
            // Among several equal rows, the recursion would continue with the first row only.
            Fixpoint::Distinct if rows.is_exact() => check_keys("Recursion", 0..rows.len(), rows),
            _ => Err(Error::plan("Recursion compares rows that may be equal and written differently")),
        }
    }
    /// A column is nullable in two cases. It is nullable in the base, or the step's expression for it is
    /// nullable over the nullable columns that were found so far.
    fn schema(&self, inputs: &[&Node]) -> Schema {
        let mut columns = inputs[0].schema().columns().to_vec();
        loop {
            let pairs = Schema::new(columns.iter().cloned()).concat(inputs[1].schema());
            let before = columns.clone();
            for (c, e) in columns.iter_mut().zip(&self.step.exprs) {
                c.nullable |= e.nullable(&pairs);
            }
            if before == columns {
                return Schema::new(columns);
            }
        }
    }
    fn props(&self, inputs: &[&Node], schema: &Schema) -> Props {
        let mut p = Props {
            empty: inputs[0].props().empty,
            bounded: inputs[0].props().bounded,
            consolidated: self.fixpoint == Fixpoint::Distinct,
            ..Props::state()
        };
        for i in inputs.iter().map(|n| n.props()) {
            p.add_sources(i);
            p.reads_delta |= i.reads_delta;
            p.volatility = p.volatility.max(i.volatility);
        }
        p.volatility = self.exprs().map(Expr::volatility).fold(p.volatility, Ord::max);
        if self.fixpoint == Fixpoint::Distinct {
            let all = ColSet::all(schema.len());
            p.fds.push(FunctionalDependency { from: all.clone(), to: all.clone() });
            p.add_key(all);
        }
        p
    }
    fn unsettled(&self, inputs: &[Input<'_>], schema: &Schema) -> Unsettled {
        let open = inputs.iter().any(|i| !i.open.columns().is_empty() || i.open.rows);
        let values = if open { ColSet::all(schema.len()) } else { ColSet::new() };
        let sums = inputs.iter().any(|i| !i.open.rounded.is_empty());
        let float = |c: &usize| schema.columns()[*c].ty.is_float();
        let rounded = (0..schema.len()).filter(|c| sums && float(c)).collect();
        Unsettled { values, rounded, rows: open, ..Unsettled::default() }
    }
    fn formulas<'a>(&'a self, f: &mut dyn FnMut(Formula<'a>)) {
        self.exprs().for_each(|e| f(Formula::Scalar(e)));
    }

    fn carried(&self, inputs: &[Carried], _: &[&Node]) -> Carried {
        carried::mixed(inputs)
    }
    fn class(&self, _: &[&Node]) -> Class {
        Class::Global
    }
    fn describe(&self, inputs: &[&Node]) -> String {
        let (on, exprs) = (std::slice::from_ref(&self.step.on), &self.step.exprs);
        let describe = crate::graph::describe_exprs;
        format!("{} ⇒ {}", describe(on, &inputs[..2]), describe(exprs, &inputs[..2]))
    }
}

/// The greatest number of rounds that the evaluator computes. PostgreSQL would continue for ever, or until
/// its disk is full.
const ROUNDS: usize = 1 << 15;

impl Rewrite for Recursion {
    fn needed(&self, _: &ColSet, inputs: &[&Node]) -> Vec<ColSet> {
        let [base, side, ..] = inputs else { return pruned::all(inputs) };
        // All inputs but the side contain rows of the result, and every column of a row may influence which
        // rows are derived from the row.
        let width = base.schema().len();
        let used = pruned::read(self.exprs());
        let mut beside: ColSet = used.iter().filter(|c| *c >= width).map(|c| c - width).collect();
        // The delta of a recursion must tell the rows of the side apart. The smallest key of the side does so
        // with the fewest columns.
        if let Some(key) = side.props().keys.iter().min_by_key(|k| k.len()) {
            beside.extend(key);
        }
        let mut needed = pruned::all(inputs);
        needed[1] = beside;
        needed
    }
    fn pruned(&self, graph: &mut Graph, _: &ColSet, inputs: &[&Pruned]) -> Result<Pruned> {
        let [_, side, ..] = inputs else { return Err(Error::internal("a recursion has two inputs")) };
        let width = graph.schema(self.base).len();
        let moved = self.beside(width, side.node, |c| side.at(c));
        let mut nodes = Vec::new();
        for (i, input) in inputs.iter().enumerate() {
            nodes.push(if i == 1 { side.node } else { input.exactly(graph, 0..width)? });
        }
        Pruned::add(graph, moved.with_inputs(&nodes), ColSet::all(width))
    }
    fn restricted(&self, _: &mut Graph, _: &Restriction) -> Result<Option<NodeId>> {
        Ok(None)
    }
    fn needs_merged(&self, _: &Graph, _: usize, _: bool) -> bool {
        true
    }
    fn pays_to_store(&self) -> bool {
        true
    }
    fn looks_up(&self, graph: &Graph, _: &By) -> Vec<By> {
        // A recursion joins the rows of each round with its side. It looks up the derived rows among the rows
        // that it already has.
        let width = graph.schema(self.base).len();
        let (_, of_side) = lookups::equalities(&self.step.on, width);
        let side = if graph.props(self.base).bounded { of_side } else { By::default() };
        let known = self.known.map_or(0, |_| 2);
        let known = std::iter::repeat_with(|| By::values(0..width)).take(known);
        [By::default(), side].into_iter().chain(known).collect()
    }
}

impl Evaluate for Recursion {
    fn eval(&self, inputs: &[&ZSet], cx: &Context<'_>) -> Result<ZSet> {
        inputs.iter().try_for_each(|i| i.require_state("Recursion"))?;
        let matcher =
            Matcher::new(&self.step.on, cx.graph.schema(self.base), inputs[1], cx.graph.schema(self.side));
        let known = match inputs {
            [_, _, known, forgotten] => known.minus(forgotten),
            _ => ZSet::new(),
        };
        let mut out = ZSet::new();
        let mut round = self.fresh(inputs[0], &out, &known);
        let (mut earlier, mut copies) = (ZSet::new(), 0u64);
        for n in 0..ROUNDS {
            if round.is_empty() {
                return Ok(out);
            }
            // Each round depends only on the round before. Once a round equals an earlier round, the rounds
            // therefore repeat for ever.
            if round == earlier {
                break;
            }
            if n.is_power_of_two() {
                earlier = round.clone();
            }
            copies = copies.saturating_add(round.copies());
            cx.allows(copies)?;
            out.add_zset(&round);
            round = self.fresh(&self.next(&round, &matcher)?, &out, &known);
        }
        Err(endless())
    }
}

fn endless() -> Error {
    Error::data("54000", format!("the recursion does not come to an end in {ROUNDS} rounds"))
}

impl Recursion {
    /// Returns the rows that the step derives from the rows of a round.
    fn next(&self, round: &ZSet, matcher: &Matcher<'_>) -> Result<ZSet> {
        let mut next = ZSet::new();
        for (row, w) in round.iter() {
            let mut pairs: Vec<(Row, i64)> = Vec::new();
            matcher.pairs(row, |pair, _, v| {
                pairs.push((pair, v));
                true
            })?;
            for (pair, v) in pairs {
                let to = self.step.exprs.iter().map(|e| expr(e, &pair)).collect::<Result<Vec<_>>>()?;
                next.add(to.into(), w.checked_mul(v).ok_or_else(endless)?);
            }
        }
        Ok(next)
    }

    /// Returns those derived rows with which the next round starts.
    fn fresh(&self, rows: &ZSet, found: &ZSet, known: &ZSet) -> ZSet {
        match self.fixpoint {
            Fixpoint::All => rows.clone(),
            Fixpoint::Distinct => {
                let new = |row: &Row| found.weight(row) == 0 && known.weight(row) <= 0;
                rows.iter().filter(|(row, _)| new(row)).map(|(row, _)| (row.clone(), 1)).collect()
            }
        }
    }
}

impl Render for Recursion {
    fn render(&self, inputs: Vec<Fragment>, cx: &mut RenderContext<'_>) -> Result<Fragment> {
        inputs.iter().try_for_each(|i| i.require_positive("Recursion"))?;
        let block = cx.recursion(self, inputs)?;
        Ok(Fragment::open(block, true, self.fixpoint == Fixpoint::Distinct))
    }
}

/// Returns the column labels for derived rows. A map over pairs computes these rows.
pub(super) fn labels(rows: &Schema) -> Vec<std::sync::Arc<str>> {
    rows.columns().iter().map(|c: &Column| c.label.clone()).collect()
}
