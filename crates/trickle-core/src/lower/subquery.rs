//! Lowers subqueries in expressions.
//!
//! EXISTS, IN and their negations become semi- and anti-joins where they are conjuncts of WHERE
//! ([`super::membership`]). Anywhere else, a subquery becomes a column that is joined to the outer rows. For
//! a scalar subquery, the column has the subquery's only value. For EXISTS, it says whether the subquery has
//! rows. For a comparison with all rows, it has the three-valued result.

use super::Lowerer;
use super::clause::ClauseContext;
use super::group::same;
use super::outer_column::{Domain, Outer};
use super::relation::Relation;
use super::slot::{Slot, reads_outer, shift};
use crate::agg::{AggCall, resolve};
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind};
use crate::graph::{ColSet, NodeId, Schema};
use crate::rel::{Distinct, Filter, Join, Map, OuterJoin, Reduce, Rel, Single};
use crate::syntax::{Cte, Expr as Ast, Node, Place, Query};
use crate::types::Type;

/// The kind of value that a subquery gives.
#[derive(Clone, Debug)]
pub(super) enum SubqueryForm {
    Scalar,
    /// Column `at` of the only row of a subquery with `of` columns.
    Field {
        at: usize,
        of: usize,
    },
    Exists,
    /// The comparison `lhs op ANY|ALL (subquery)`.
    Compare {
        lhs: Vec<Expr>,
        op: String,
        all: bool,
    },
}

/// A subquery that must still be joined to the outer rows.
#[derive(Clone, Debug)]
pub(super) struct Pending<'q> {
    pub(super) query: &'q Query,
    pub(super) kind: SubqueryForm,
    /// The outer columns that the subquery uses.
    pub(super) free: Vec<Outer>,
    /// The condition under which the value of the subquery is needed. `None` if the value is always needed,
    /// or if nothing in the subquery can raise an error. CASE, COALESCE, AND and OR skip the parts that they
    /// do not need, and a skipped part must not raise an error.
    pub(super) guard: Option<Expr>,
}

/// The result of examining a subquery.
pub(super) struct Examined {
    /// The outer columns that the subquery uses.
    pub(super) free: Vec<Outer>,
    /// The types of the subquery's own columns.
    pub(super) types: Vec<Type>,
    /// Whether computing the subquery's rows can raise.
    pub(super) raises: bool,
}

impl Pending<'_> {
    /// Returns the expressions of the subquery over the outer relation: the left operand of a comparison, and
    /// the guard.
    pub(super) fn operands(&self) -> impl Iterator<Item = &Expr> {
        let lhs = match &self.kind {
            SubqueryForm::Compare { lhs, .. } => lhs.as_slice(),
            SubqueryForm::Scalar | SubqueryForm::Field { .. } | SubqueryForm::Exists => &[],
        };
        lhs.iter().chain(&self.guard)
    }

    /// Rewrites the operands.
    pub(super) fn rewrite_operands(&mut self, mut f: impl FnMut(&Expr) -> Result<Expr>) -> Result<()> {
        let lhs = match &mut self.kind {
            SubqueryForm::Compare { lhs, .. } => lhs.as_mut_slice(),
            SubqueryForm::Scalar | SubqueryForm::Field { .. } | SubqueryForm::Exists => &mut [],
        };
        for e in lhs.iter_mut().chain(&mut self.guard) {
            *e = f(e)?;
        }
        Ok(())
    }

    /// Returns the columns of frame `frame` that the subquery and its operands read.
    pub(super) fn local_columns(&self, frame: usize) -> Vec<usize> {
        let local = self.operands().flat_map(Expr::columns);
        self.free.iter().filter(|o| o.frame == frame).map(|o| o.column).chain(local).collect()
    }
}

/// A subquery that can be joined. The field `values` has the outer values that the subquery reads, as
/// expressions over the relation to which it is joined.
pub(super) struct Ready<'q> {
    pub(super) pending: Pending<'q>,
    pub(super) values: Vec<Expr>,
}

/// Replaces the placeholders of placed subqueries by their values.
pub(super) fn put(e: &Expr, values: &[Expr]) -> Expr {
    e.rewrite(&mut |node| match node.as_column().map(Slot::of) {
        Some(Slot::Subquery(i)) => values.get(i).cloned().unwrap_or(node),
        _ => node,
    })
}

impl Lowerer<'_> {
    /// Returns the outer columns that a subquery uses, found by lowering it on trial.
    pub(super) fn free(&mut self, q: &Query) -> Result<Vec<Outer>> {
        self.examine(q).map(|found| found.free)
    }

    /// Returns the outer columns that a recursive query uses.
    pub(super) fn free_of_recursive(&mut self, cte: &Cte, name: &str) -> Result<Vec<Outer>> {
        self.probes.push(super::Probe { base: self.frames.len(), free: Vec::new() });
        let found = self.recursive(cte, name, &Domain::none());
        let probe = self.probes.pop();
        found?;
        Ok(probe.map(|p| p.free).unwrap_or_default())
    }

    /// Returns the outer columns and the types of a subquery, and whether it can raise, found by lowering it
    /// on trial.
    pub(super) fn examine(&mut self, q: &Query) -> Result<Examined> {
        self.probes.push(super::Probe { base: self.frames.len(), free: Vec::new() });
        let relation = self.query(q, &Domain::none());
        let probe = self.probes.pop();
        let relation = relation?;
        let schema = self.graph.schema(relation.node);
        let types = schema.columns().iter().map(|c| c.ty.clone()).collect();
        let raises = self.graph.reachable(relation.node).into_iter().any(|id| self.graph.rel(id).can_raise());
        Ok(Examined { free: probe.map(|p| p.free).unwrap_or_default(), types, raises })
    }

    /// Lowers a subquery in an expression to a placeholder for its value.
    pub(super) fn subquery<'q>(
        &mut self,
        q: &'q Query,
        kind: SubqueryForm,
        place: &Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let Examined { free, types: columns, mut raises } = self.examine(q)?;
        let columns_for = |n: usize| {
            let few = if n > columns.len() { "few" } else { "many" };
            let e = Error::syntax(format!("subquery has too {few} columns"));
            if n == columns.len() { Ok(()) } else { Err(self.at(e, place)) }
        };
        let ty = match &kind {
            SubqueryForm::Scalar => match columns.as_slice() {
                [ty] => ty.clone(),
                _ => return Err(self.at(Error::syntax("subquery must return only one column"), place)),
            },
            SubqueryForm::Field { at, of } => {
                columns_for(*of)?;
                columns.get(*at).cloned().unwrap_or(Type::Unknown)
            }
            SubqueryForm::Exists => Type::Bool,
            SubqueryForm::Compare { lhs, op, .. } => {
                columns_for(lhs.len())?;
                let right = columns.iter().map(|t| Expr::null(t.clone())).collect();
                let checked = self.compare_rows(op, lhs.clone(), right);
                raises |= self.located(checked, place)?.can_raise() || lhs.iter().any(Expr::can_raise);
                Type::Bool
            }
        };
        if self.probing() {
            return Ok(Expr::null(ty));
        }
        let guard = if raises { cx.guard() } else { None };
        cx.subqueries.push(Pending { query: q, kind, free, guard });
        Ok(Slot::Subquery(cx.subqueries.len() - 1).expr(ty))
    }

    /// Joins the pending subqueries to `node`, and puts their values into `exprs`.
    pub(super) fn settle(
        &mut self,
        node: NodeId,
        exprs: Vec<Expr>,
        cx: ClauseContext<'_>,
    ) -> Result<(NodeId, Vec<Expr>)> {
        if cx.subqueries.is_empty() {
            return Ok((node, exprs));
        }
        let mut ready = Vec::new();
        for p in &cx.subqueries {
            ready.push(self.translated(p, &|e| Ok(e.clone()))?);
        }
        let (node, values) = self.place_all(node, ready)?;
        Ok((node, exprs.iter().map(|e| put(e, &values)).collect()))
    }

    /// Filters by a condition that contains subqueries. The result has the columns of `node`.
    pub(super) fn filter(&mut self, node: NodeId, condition: Expr, cx: ClauseContext<'_>) -> Result<NodeId> {
        let width = self.graph.schema(node).len();
        if reads_outer(&condition) {
            return Err(self.fail_direct());
        }
        let (node, condition) = self.settle(node, vec![condition], cx)?;
        let node = self.filter_plain(node, Expr::and(condition))?;
        self.keep_first(node, width)
    }

    /// Makes a pending subquery ready: `apply` translates its outer columns to the current relation.
    pub(super) fn translated<'q>(
        &mut self,
        p: &Pending<'q>,
        apply: &dyn Fn(&Expr) -> Result<Expr>,
    ) -> Result<Ready<'q>> {
        let mut values = Vec::new();
        for o in &p.free {
            values.push(apply(&self.here(o)?)?);
        }
        let mut pending = p.clone();
        pending.rewrite_operands(apply)?;
        if pending.operands().any(reads_outer) {
            return Err(self.fail_direct());
        }
        Ok(Ready { pending, values })
    }

    /// Joins subqueries one after the other. The value of each subquery is an expression over the result.
    ///
    /// Each join keeps the rows and columns of `node`, so a subquery can read these rows and columns from
    /// `node` itself. A subquery that uses the value of an earlier subquery is computed over the result of
    /// the earlier joins.
    pub(super) fn place_all(&mut self, node: NodeId, ready: Vec<Ready<'_>>) -> Result<(NodeId, Vec<Expr>)> {
        let (first, width) = (node, self.graph.schema(node).len());
        let (mut node, mut values) = (node, Vec::new());
        for r in ready {
            // The left side of a comparison, and a guard, may themselves contain an earlier subquery.
            let mut r = r;
            r.pending.rewrite_operands(|e| Ok(put(e, &values)))?;
            let alone = r.pending.operands().flat_map(Expr::columns).all(|c| c < width);
            let (next, value) = self.place(node, if alone { first } else { node }, r)?;
            node = next;
            values.push(value);
        }
        Ok((node, values))
    }

    /// Joins a subquery to `node`. The subquery is computed for the values that it reads from the rows of
    /// `from`.
    fn place(&mut self, node: NodeId, from: NodeId, ready: Ready<'_>) -> Result<(NodeId, Expr)> {
        let Ready { pending, values } = ready;
        let width = self.graph.schema(node).len();
        let k = values.len();
        let asked = match &pending.guard {
            Some(guard) => self.add(Filter::new(from, guard.clone()))?,
            None => from,
        };
        let relation = self.over(asked, &pending, &values)?;
        let truth = || Expr::bool(true);
        match pending.kind {
            SubqueryForm::Scalar => self.scalar(node, relation.node, &values),
            SubqueryForm::Field { at, .. } => {
                let columns: Vec<usize> = (0..k).chain([k + at]).collect();
                let field = Map::columns(relation.node, self.graph.schema(relation.node), &columns);
                let field = self.add(field)?;
                self.scalar(node, field, &values)
            }
            SubqueryForm::Exists => {
                let schema = self.graph.schema(relation.node).clone();
                let exprs = (0..k).map(|i| schema.expr(i)).chain([truth()]).collect();
                let flagged = self.add(Map::new(relation.node, exprs))?;
                let flag = self.once(Distinct::by_value(&self.graph, flagged))?;
                let flag = if k == 0 { self.add(Single::new(flag, 0))? } else { flag };
                let node = self.beside(node, flag, &values)?;
                Ok((node, Expr::column(width + k, Type::Bool).is_not_null()))
            }
            SubqueryForm::Compare { lhs, op, all } => {
                // Each distinct left operand is joined to those rows of the subquery for which the comparison
                // is not false (for ALL: not true). A left operand without such rows has the value false (for
                // ALL: true).
                let n = lhs.len();
                let lhs: Vec<Expr> = lhs.into_iter().map(|e| only_where(pending.guard.as_ref(), e)).collect();
                let keys = values.iter().cloned().chain(lhs.iter().cloned()).collect::<Vec<_>>();
                let keyed = self.add(Map::new(asked, keys.clone()))?;
                let keyed = self.distinct(keyed)?;
                let (a, b) = (self.graph.schema(keyed).clone(), self.graph.schema(relation.node).clone());
                let right = (0..n).map(|i| shift(&b.expr(k + i), (k + n) as isize)).collect();
                let hit = self.compare_rows(&op, (0..n).map(|i| a.expr(k + i)).collect(), right)?;
                let hit = if all { hit.negated() } else { hit };
                let link = (0..k).map(|i| same(a.expr(i), shift(&b.expr(i), (k + n) as isize), &a, &b, i, i));
                let on = Expr::and(link.chain([hit.clone().is_not_false()]));
                let pairs = self.add(Join::new(keyed, relation.node, on))?;
                let exprs = a.identity().into_iter().chain([hit]).collect();
                let pairs = self.add(Map::new(pairs, exprs))?;
                let Some(sig) = resolve("bool_or", &[Type::Bool]) else {
                    return Err(Error::internal("bool_or is not known"));
                };
                let any = AggCall::new(sig, vec![Expr::column(k + n, Type::Bool)]);
                let reduced = self.add(Reduce::new(pairs, (0..k + n).collect(), vec![any]))?;
                let schema = self.graph.schema(reduced).clone();
                let exprs = schema.identity().into_iter().chain([truth()]).collect();
                let flagged = self.add(Map::new(reduced, exprs))?;
                let node = self.beside(node, flagged, &keys)?;
                let (any, flag) = (width + k + n, width + k + n + 1);
                let kind = ExprKind::Case {
                    whens: vec![(Expr::column(flag, Type::Bool).is_null(), Expr::bool(false))],
                    otherwise: Expr::column(any, Type::Bool),
                };
                let value = Expr::new(kind, Type::Bool);
                Ok((node, if all { value.negated() } else { value }))
            }
        }
    }

    /// Joins the only row of a subquery to the outer rows. If the subquery has several rows for an outer row,
    /// the expression that reads the value raises an error.
    fn scalar(&mut self, node: NodeId, rows: NodeId, values: &[Expr]) -> Result<(NodeId, Expr)> {
        let (width, k) = (self.graph.schema(node).len(), values.len());
        let ty = self.graph.schema(rows).column(k).map_or(Type::Unknown, |c| c.ty.clone());
        let several = Expr::new(ExprKind::ManyRows, ty.clone());
        if k == 0 && self.surely_several(rows) {
            return Ok((node, several));
        }
        let once = self.graph.props(rows).is_key(&ColSet::all(k));
        let single = self.add(Single::new(rows, k))?;
        let node = self.beside(node, single, values)?;
        let value = Expr::column(width + k, ty.clone());
        if once {
            return Ok((node, value));
        }
        let whens = vec![(Expr::column(width + k + 1, Type::Bool), several)];
        Ok((node, Expr::new(ExprKind::Case { whens, otherwise: value }, ty)))
    }

    /// Whether a relation is a list of several constant rows.
    fn surely_several(&self, node: NodeId) -> bool {
        match self.graph.rel(node) {
            Rel::Map(m) => !self.graph.rel(node).can_raise() && self.surely_several(m.input()),
            Rel::Values(v) => v.rows().len() > 1,
            _ => false,
        }
    }

    /// Lowers a subquery over the distinct values that it uses from `node`. If the subquery uses no values
    /// but has a guard, it is lowered under the condition that `node` has a row.
    pub(super) fn over(&mut self, node: NodeId, p: &Pending<'_>, values: &[Expr]) -> Result<Relation> {
        let mut domain = Domain::none();
        if !values.is_empty() {
            let mapped = self.add(Map::new(node, values.to_vec()))?;
            domain = Domain { refs: p.free.clone(), node: Some(self.domain(mapped, p.query)?) };
        } else if p.guard.is_some() {
            let rows = self.add(Map::new(node, vec![Expr::bool(true)]))?;
            let one = self.once(Distinct::by_value(&self.graph, rows))?;
            domain.node = Some(self.add(Map::new(one, Vec::new()))?);
        }
        self.query(p.query, &domain)
    }

    /// Returns the domain of a subquery: the distinct rows of `mapped`, which has the outer columns.
    pub(super) fn domain(&mut self, mapped: NodeId, place: &impl Place) -> Result<NodeId> {
        match self.graph.schema(mapped).without_equality().map(|c| c.ty.clone()) {
            Some(ty) => Err(self.stop(place, format!("a subquery that uses an outer column of type {ty}"))),
            None => self.once(Distinct::by_value(&self.graph, mapped)),
        }
    }

    /// Joins each row of `node` to the row of `other` whose first columns are the given values, or to NULLs.
    /// Without values, `other` has one row.
    fn beside(&mut self, node: NodeId, other: NodeId, values: &[Expr]) -> Result<NodeId> {
        if values.is_empty() {
            return self.add(Join::new(node, other, Expr::bool(true)));
        }
        let (l, r) = (self.graph.schema(node).clone(), self.graph.schema(other).clone());
        let on = Expr::and(values.iter().enumerate().map(|(i, v)| null_safe(v, i, &l, &r)));
        self.add(OuterJoin::left(node, other, on))
    }

    pub(super) fn fail_direct(&mut self) -> Error {
        if let Some(f) = self.frames.last_mut() {
            f.direct_failed = true;
        }
        Error::internal("an outer column is not at hand")
    }
}

/// Returns an expression whose value is that of `e` where the guard is true, and NULL elsewhere.
fn only_where(guard: Option<&Expr>, e: Expr) -> Expr {
    match guard.filter(|_| e.can_raise()) {
        Some(guard) => {
            let (ty, otherwise) = (e.ty().clone(), Expr::null(e.ty().clone()));
            Expr::new(ExprKind::Case { whens: vec![(guard.clone(), e)], otherwise }, ty)
        }
        None => e,
    }
}

/// Returns the parts of a row value. For any other value, returns the value itself.
pub(super) fn row(e: &Ast) -> Vec<&Ast> {
    row_constructor(e).unwrap_or_else(|| vec![e])
}

/// Returns the parts of an expression that is written as a row. Returns `None` for any other expression.
pub(super) fn row_constructor(e: &Ast) -> Option<Vec<&Ast>> {
    match &e.node {
        Node::Nested(inner) => row_constructor(inner),
        Node::Row(parts) => Some(parts.iter().collect()),
        Node::Call(call) => super::construct::row_constructor(call),
        _ => None,
    }
}

pub(super) fn subquery_of(e: &Ast) -> Option<&Query> {
    match &e.node {
        Node::Subquery(q) => Some(q),
        Node::Nested(inner) => subquery_of(inner),
        _ => None,
    }
}

pub(super) fn null_safe(value: &Expr, i: usize, left: &Schema, right: &Schema) -> Expr {
    let other = shift(&right.expr(i), left.len() as isize);
    let nullable = right.column(i).is_none_or(|c| c.nullable);
    if nullable && value.nullable(left) { value.clone().same_as(other) } else { value.clone().equals(other) }
}
