//! Subqueries in expressions.
//!
//! As a conjunct of WHERE, EXISTS, IN and their negations are semi- and anti-joins. Anywhere else a subquery is a
//! column joined to the outer rows: its only value, a flag that it has rows, or the three-valued result of a
//! comparison with all its rows.

use super::Lowerer;
use super::expr::Cx;
use super::from::Build;
use super::group::same;
use super::relation::Relation;
use super::scope::{Domain, Frame, Outer, Slot, reads_outer, shift};
use super::select::conjuncts;
use crate::agg::{AggCall, resolve};
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind, IsTest};
use crate::graph::{NodeId, Schema};
use crate::parse::ast::{
    BinaryOperator, Distinct as AstDistinct, Expr as Ast, GroupByExpr, Query, SelectItem, SetExpr,
    UnaryOperator,
};
use crate::rel::{Distinct, Join, Map, OuterJoin, Reduce, SemiJoin, Single};
use crate::types::Type;

/// What a subquery is worth.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Scalar,
    Exists,
    /// `lhs op ANY|ALL (subquery)`
    Compare {
        lhs: Vec<Expr>,
        op: String,
        all: bool,
    },
}

/// A subquery that is still to be placed.
#[derive(Clone, Debug)]
pub(super) struct Pending<'q> {
    pub(super) query: &'q Query,
    pub(super) kind: Kind,
    /// The outer columns that it uses.
    pub(super) free: Vec<Outer>,
}

impl Pending<'_> {
    /// The columns that it reads of the relation of frame `frame`.
    pub(super) fn local_columns(&self, frame: usize) -> Vec<usize> {
        let lhs = match &self.kind {
            Kind::Compare { lhs, .. } => lhs.iter().flat_map(|e| e.columns()).collect(),
            _ => Vec::new(),
        };
        self.free.iter().filter(|o| o.frame == frame).map(|o| o.column).chain(lhs).collect()
    }
}

/// A subquery with what it reads of the relation that it is joined to.
pub(super) struct Ready<'q> {
    pending: Pending<'q>,
    values: Vec<Expr>,
}

/// Puts the values of placed subqueries where they stand.
pub(super) fn put(e: &Expr, values: &[Expr]) -> Expr {
    e.rewrite(&mut |node| match node.as_column().map(Slot::of) {
        Some(Slot::Subquery(i)) => values.get(i).cloned().unwrap_or(node),
        _ => node,
    })
}

impl Lowerer<'_> {
    /// The outer columns that a subquery uses, found by lowering it for nothing.
    pub(super) fn free(&mut self, q: &Query) -> Result<Vec<Outer>> {
        self.examine(q).map(|(free, _)| free)
    }

    /// The outer columns that a subquery uses, and the types of its columns.
    fn examine(&mut self, q: &Query) -> Result<(Vec<Outer>, Vec<(Type, String)>)> {
        self.probes.push(super::Probe { base: self.frames.len(), free: Vec::new() });
        let relation = self.query(q, &Domain::none());
        let probe = self.probes.pop();
        let relation = relation?;
        let schema = self.graph.schema(relation.node);
        let types = schema.columns().iter().map(|c| (c.ty.clone(), c.label.to_string())).collect();
        Ok((probe.map(|p| p.free).unwrap_or_default(), types))
    }

    /// A subquery in an expression: a placeholder for its value.
    pub(super) fn subquery<'q>(
        &mut self,
        q: &'q Query,
        kind: Kind,
        place: &Ast,
        cx: &mut Cx<'q>,
    ) -> Result<Expr> {
        let (free, columns) = self.examine(q)?;
        let ty = match &kind {
            Kind::Scalar => match columns.as_slice() {
                [(ty, _)] => ty.clone(),
                _ => return Err(self.at(Error::syntax("subquery must return only one column"), place)),
            },
            Kind::Exists => Type::Bool,
            Kind::Compare { lhs, op, .. } => {
                if lhs.len() != columns.len() {
                    let few = if lhs.len() > columns.len() { "few" } else { "many" };
                    return Err(self.at(Error::syntax(format!("subquery has too {few} columns")), place));
                }
                let right = columns.iter().map(|(t, _)| Expr::null(t.clone())).collect();
                let checked = self.compare_rows(op, lhs.clone(), right);
                self.located(checked, place)?;
                Type::Bool
            }
        };
        if self.probing() {
            return Ok(Expr::null(ty));
        }
        cx.subqueries.push(Pending { query: q, kind, free });
        Ok(Slot::Subquery(cx.subqueries.len() - 1).expr(ty))
    }

    /// Joins the pending subqueries to `node` and puts their values into `exprs`.
    pub(super) fn settle(
        &mut self,
        node: NodeId,
        exprs: Vec<Expr>,
        cx: Cx<'_>,
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

    /// σ with a condition that holds subqueries; the columns stay as they were.
    pub(super) fn filter(&mut self, node: NodeId, condition: Expr, cx: Cx<'_>) -> Result<NodeId> {
        let width = self.graph.schema(node).len();
        if reads_outer(&condition) {
            return Err(self.fail_direct());
        }
        let (node, condition) = self.settle(node, vec![condition], cx)?;
        let node = self.filter_plain(node, Expr::and(condition))?;
        self.keep_first(node, width)
    }

    /// A pending subquery with its outer columns found through `apply` in the relation at hand.
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
        if let Kind::Compare { lhs, .. } = &mut pending.kind {
            for e in lhs.iter_mut() {
                *e = apply(e)?;
            }
            if lhs.iter().any(reads_outer) {
                return Err(self.fail_direct());
            }
        }
        Ok(Ready { pending, values })
    }

    /// Joins subqueries one after the other; the value of each is an expression over the result.
    pub(super) fn place_all(&mut self, node: NodeId, ready: Vec<Ready<'_>>) -> Result<(NodeId, Vec<Expr>)> {
        let (mut node, mut values) = (node, Vec::new());
        for r in ready {
            // The left side of a comparison may itself hold an earlier subquery.
            let mut r = r;
            if let Kind::Compare { lhs, .. } = &mut r.pending.kind {
                lhs.iter_mut().for_each(|e| *e = put(e, &values));
            }
            let (next, value) = self.place(node, r)?;
            node = next;
            values.push(value);
        }
        Ok((node, values))
    }

    fn place(&mut self, node: NodeId, ready: Ready<'_>) -> Result<(NodeId, Expr)> {
        let Ready { pending, values } = ready;
        let width = self.graph.schema(node).len();
        let k = values.len();
        let (domain, relation) = self.over(node, &pending, &values)?;
        let truth = || Expr::bool(true);
        match pending.kind {
            Kind::Scalar => {
                let one = self.add(Single::new(relation.node, k))?;
                let ty = self.graph.schema(one).column(k).map_or(Type::Unknown, |c| c.ty.clone());
                let node = self.beside(node, one, &values)?;
                Ok((node, Expr::column(width + k, ty)))
            }
            Kind::Exists => {
                let schema = self.graph.schema(relation.node).clone();
                let exprs = (0..k).map(|i| schema.expr(i)).chain([truth()]).collect();
                let flagged = self.add(Map::new(relation.node, exprs))?;
                let flag = self.add(Distinct::new(flagged))?;
                let flag = if k == 0 { self.add(Single::new(flag, 0))? } else { flag };
                let node = self.beside(node, flag, &values)?;
                Ok((node, Expr::column(width + k, Type::Bool).is_not_null()))
            }
            Kind::Compare { lhs, op, all } => {
                // The distinct left sides, each with the rows of the subquery that do not clearly differ.
                let n = lhs.len();
                let keys = values.iter().cloned().chain(lhs.iter().cloned()).collect::<Vec<_>>();
                let keyed = self.add(Map::new(node, keys.clone()))?;
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
                drop(domain);
                Ok((node, if all { value.negated() } else { value }))
            }
        }
    }

    /// The subquery over the distinct values that it uses of `node`.
    fn over(&mut self, node: NodeId, p: &Pending<'_>, values: &[Expr]) -> Result<(Domain, Relation)> {
        let mut domain = Domain::none();
        if !values.is_empty() {
            let mapped = self.add(Map::new(node, values.to_vec()))?;
            domain = Domain { refs: p.free.clone(), node: Some(self.distinct(mapped)?) };
        }
        let relation = self.query(p.query, &domain)?;
        Ok((domain, relation))
    }

    /// Each row of `node` beside the row of `other` whose first columns are the given values, or NULLs; without
    /// values `other` has one row.
    fn beside(&mut self, node: NodeId, other: NodeId, values: &[Expr]) -> Result<NodeId> {
        if values.is_empty() {
            return self.add(Join::new(node, other, Expr::bool(true)));
        }
        let (l, r) = (self.graph.schema(node).clone(), self.graph.schema(other).clone());
        let on = Expr::and(values.iter().enumerate().map(|(i, v)| null_safe(v, i, &l, &r)));
        self.add(OuterJoin::left(node, other, on))
    }

    fn fail_direct(&mut self) -> Error {
        if let Some(f) = self.frames.last_mut() {
            f.direct_failed = true;
        }
        Error::internal("an outer column is not at hand")
    }

    /// Whether a conjunct is EXISTS, IN (subquery), ANY or ALL (subquery), or a negation.
    pub(super) fn is_membership(&self, e: &Ast) -> bool {
        // Examined subqueries only need their columns found.
        !self.probing() && Membership::of(e).is_some()
    }

    /// ⋉ or ▷ for such a conjunct.
    pub(super) fn membership(&mut self, node: NodeId, e: &Ast) -> Result<NodeId> {
        let Some(m) = Membership::of(e) else { return Err(Error::internal("no membership")) };
        let mut cx = Cx::new("WHERE");
        let mut lhs = Vec::new();
        for l in &m.lhs {
            lhs.push(self.expr(l, &mut cx)?);
        }
        if !cx.subqueries.is_empty() {
            let mut cx = Cx::new("WHERE");
            let condition = self.condition(e, &mut cx)?;
            return self.filter(node, condition, cx);
        }
        if lhs.iter().any(reads_outer) {
            return Err(self.fail_direct());
        }
        let (free, columns) = self.examine(m.query)?;
        if m.op.is_some() && lhs.len() != columns.len() {
            let few = if lhs.len() > columns.len() { "few" } else { "many" };
            return Err(self.at(Error::syntax(format!("subquery has too {few} columns")), e));
        }
        let left = self.graph.schema(node).clone();
        let width = left.len();
        let (right, outs, mut on) = match self.direct(m.query, &free, m.op.is_some())? {
            Some(found) if !free.is_empty() => self.correlated(width, found),
            _ => {
                let pending = Pending { query: m.query, kind: Kind::Exists, free };
                let ready = self.translated(&pending, &|e| Ok(e.clone()))?;
                let (_, relation) = self.over(node, &pending, &ready.values)?;
                let (k, r) = (ready.values.len(), self.graph.schema(relation.node).clone());
                let on = ready.values.iter().enumerate().map(|(i, v)| null_safe(v, i, &left, &r)).collect();
                let outs = (k..r.len()).map(|i| shift(&r.expr(i), width as isize)).collect();
                (relation.node, outs, on)
            }
        };
        let both = left.concat(self.graph.schema(right));
        if let Some(op) = &m.op {
            let compared = self.compare_rows(op, lhs, outs);
            let compared = self.located(compared, e)?;
            // ANY looks for a row where it is true; NOT ANY and ALL for one that is in the way; NOT ALL for a counterexample.
            on.push(match (m.all, m.negated) {
                (false, false) => compared,
                (false, true) => not_false(compared, &both),
                (true, false) => is(compared, IsTest::True, true),
                (true, true) => is(compared, IsTest::False, false),
            });
        }
        let on = Expr::and(on);
        // `x op ALL` holds where no row fails it; NOT turns it round.
        if m.negated != m.all {
            self.add(SemiJoin::anti(node, right, on))
        } else {
            self.add(SemiJoin::semi(node, right, on))
        }
    }

    /// The subquery's rows with its correlated conditions kept apart, where the outer columns stand in top-level
    /// conjuncts of its WHERE and in its outputs alone.
    fn direct(&mut self, q: &Query, free: &[Outer], outputs: bool) -> Result<Option<Direct>> {
        let SetExpr::Select(s) = &*q.body else { return Ok(None) };
        let grouped = !matches!(&s.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
        let distinct = matches!(s.distinct, Some(AstDistinct::On(_)));
        let plain = free.is_empty() || q.with.is_some() || q.limit_clause.is_some() || q.fetch.is_some();
        if plain || grouped || distinct || s.having.is_some() || s.from.is_empty() {
            return Ok(None);
        }
        let reasons = self.reasons.len();
        self.frames.push(Frame { direct: true, ..Frame::default() });
        let result = self.direct_in_frame(s, outputs);
        let failed = self.frames.pop().is_none_or(|f| f.direct_failed);
        if failed {
            self.reasons.truncate(reasons);
            return Ok(None);
        }
        result
    }

    fn direct_in_frame(&mut self, s: &crate::parse::ast::Select, outputs: bool) -> Result<Option<Direct>> {
        let mut build = Build::default();
        self.from_list(&s.from, &mut build)?;
        let mut later = Vec::new();
        for term in s.selection.as_ref().map(conjuncts).unwrap_or_default() {
            if self.is_membership(term) {
                later.push((term, None));
                continue;
            }
            let mut cx = Cx::new("WHERE");
            let e = self.condition(term, &mut cx)?;
            if cx.subqueries.is_empty() {
                build.conjuncts.extend(e.conjuncts());
            } else {
                later.push((term, Some((e, cx))));
            }
        }
        let (outer, inner): (Vec<Expr>, Vec<Expr>) = build.conjuncts.drain(..).partition(reads_outer);
        build.conjuncts = inner;
        let mut node = self.finish(build)?;
        for (term, lowered) in later {
            node = match lowered {
                Some((e, cx)) => self.filter(node, e, cx)?,
                None => self.membership(node, term)?,
            };
        }
        let mut outs = Vec::new();
        let mut cx = Cx::grouping("SELECT");
        for item in &s.projection {
            match item {
                SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => {
                    outs.push(self.expr(e, &mut cx)?);
                }
                _ if outputs => return Err(self.fail_direct()),
                _ => {}
            }
        }
        if !cx.aggregates.is_empty() || (outputs && !cx.subqueries.is_empty()) {
            return Err(self.fail_direct());
        }
        Ok(Some(Direct { node, outs, outer }))
    }

    /// A direct subquery's outputs and conditions over the left columns and then its own.
    fn correlated(&mut self, width: usize, d: Direct) -> (NodeId, Vec<Expr>, Vec<Expr>) {
        let place = |e: &Expr| {
            e.map_columns(|c| match Slot::of(c) {
                Slot::Outer(c) => c,
                _ => c + width,
            })
        };
        (d.node, d.outs.iter().map(place).collect(), d.outer.iter().map(place).collect())
    }
}

/// A subquery lowered with its outer columns as [`Slot::Outer`].
struct Direct {
    node: NodeId,
    outs: Vec<Expr>,
    outer: Vec<Expr>,
}

/// `[NOT] EXISTS`, `[NOT] IN`, `op ANY|ALL` on a subquery.
struct Membership<'q> {
    query: &'q Query,
    lhs: Vec<&'q Ast>,
    op: Option<String>,
    all: bool,
    negated: bool,
}

impl<'q> Membership<'q> {
    fn of(e: &'q Ast) -> Option<Membership<'q>> {
        let (mut e, mut not) = (e, false);
        loop {
            match e {
                Ast::Nested(inner) => e = inner,
                Ast::UnaryOp { op: UnaryOperator::Not, expr } => {
                    not = !not;
                    e = expr;
                }
                Ast::Exists { subquery, negated } => {
                    let negated = *negated != not;
                    return Some(Membership {
                        query: subquery,
                        lhs: Vec::new(),
                        op: None,
                        all: false,
                        negated,
                    });
                }
                Ast::InSubquery { expr, subquery, negated } => {
                    return Some(Membership {
                        query: subquery,
                        lhs: row(expr),
                        op: Some("=".to_owned()),
                        all: false,
                        negated: *negated != not,
                    });
                }
                Ast::AnyOp { left, compare_op, right, .. } | Ast::AllOp { left, compare_op, right } => {
                    let all = matches!(e, Ast::AllOp { .. });
                    let query = subquery_of(right)?;
                    let op = operator_name(compare_op);
                    // `x <> ALL (…)` is NOT IN.
                    let not_in = all && op == "<>";
                    let op = Some(if not_in { "=".to_owned() } else { op });
                    let (all, negated) = (all && !not_in, not != not_in);
                    return Some(Membership { query, lhs: row(left), op, all, negated });
                }
                _ => return None,
            }
        }
    }
}

/// The parts of a row value, or the value alone.
pub(super) fn row(e: &Ast) -> Vec<&Ast> {
    match e {
        Ast::Nested(inner) => row(inner),
        Ast::Tuple(parts) => parts.iter().collect(),
        Ast::Function(f) => super::call::row_constructor(f).unwrap_or_else(|| vec![e]),
        _ => vec![e],
    }
}

pub(super) fn subquery_of(e: &Ast) -> Option<&Query> {
    match e {
        Ast::Subquery(q) => Some(q),
        Ast::Nested(inner) => subquery_of(inner),
        _ => None,
    }
}

/// An operator as PostgreSQL spells it.
pub(super) fn operator_name(op: &BinaryOperator) -> String {
    match op {
        BinaryOperator::PGCustomBinaryOperator(parts) => parts.last().cloned().unwrap_or_default(),
        BinaryOperator::NotEq => "<>".to_owned(),
        other => other.to_string(),
    }
}

fn null_safe(value: &Expr, i: usize, left: &Schema, right: &Schema) -> Expr {
    let other = shift(&right.expr(i), left.len() as isize);
    let nullable = right.column(i).is_none_or(|c| c.nullable);
    if nullable && value.nullable(left) { value.clone().same_as(other) } else { value.clone().equals(other) }
}

/// `e IS NOT FALSE`, or `e` alone where it is never NULL.
fn not_false(e: Expr, schema: &Schema) -> Expr {
    if e.nullable(schema) { e.is_not_false() } else { e }
}

/// `e IS [NOT] TRUE|FALSE`
fn is(e: Expr, test: IsTest, negated: bool) -> Expr {
    Expr::new(ExprKind::Is { arg: e, test, negated }, Type::Bool)
}
