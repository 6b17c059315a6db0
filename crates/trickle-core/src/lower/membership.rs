//! Lowers subqueries that are conjuncts of WHERE: EXISTS, IN, ANY, ALL and their negations become semi- and
//! anti-joins.

use super::Lowerer;
use super::clause::ClauseContext;
use super::from::Build;
use super::outer_column::Outer;
use super::scope::Frame;
use super::select::conjuncts;
use super::slot::{Slot, reads_outer, shift};
use super::subquery::{Examined, Pending, SubqueryForm, null_safe, row, subquery_of};
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind, IsTest};
use crate::graph::{NodeId, Schema};
use crate::rel::SemiJoin;
use crate::syntax::{
    Body, Distinct as AstDistinct, Expr as Ast, FromItem, Node, Query, Select, SelectItem, TableKind,
    TableRef, UnaryOperator,
};
use crate::types::Type;

impl Lowerer<'_> {
    /// Whether a conjunct is EXISTS, or IN, ANY or ALL with a subquery, or the negation of one of these.
    pub(super) fn is_membership(&self, e: &Ast) -> bool {
        // A subquery that is examined is lowered only to find the columns that it uses, so no semi-joins are
        // needed.
        !self.probing() && Membership::of(e).is_some()
    }

    /// Adds the ⋉ or ▷ for a conjunct of the kind that [`Self::is_membership`] finds.
    pub(super) fn membership(&mut self, node: NodeId, e: &Ast) -> Result<NodeId> {
        let Some(m) = Membership::of(e) else { return Err(Error::internal("no membership")) };
        let mut cx = ClauseContext::condition("WHERE");
        let mut lhs = Vec::new();
        for l in &m.lhs {
            lhs.push(self.expr(l, &mut cx)?);
        }
        if !cx.subqueries.is_empty() {
            let mut cx = ClauseContext::condition("WHERE");
            let condition = self.condition(e, &mut cx)?;
            return self.filter(node, condition, cx);
        }
        if lhs.iter().any(reads_outer) {
            return Err(self.fail_direct());
        }
        let Examined { free, types: columns, .. } = self.examine(m.query)?;
        if m.op.is_some() && lhs.len() != columns.len() {
            let few = if lhs.len() > columns.len() { "few" } else { "many" };
            return Err(self.at(Error::syntax(format!("subquery has too {few} columns")), e));
        }
        let left = self.graph.schema(node).clone();
        let width = left.len();
        let (right, outs, mut on) = match self.direct(m.query, &free, m.op.is_some())? {
            Some(found) if !free.is_empty() => self.correlated(width, found),
            _ => {
                let pending = Pending { query: m.query, kind: SubqueryForm::Exists, free, guard: None };
                let ready = self.translated(&pending, &|e| Ok(e.clone()))?;
                let relation = self.over(node, &ready.pending, &ready.values)?;
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
            // A row proves ANY if the comparison is true. A row proves NOT ALL if the comparison is false. A
            // row refutes NOT ANY if the comparison is true or NULL. A row refutes ALL if the comparison is
            // false or NULL.
            on.push(match (m.all, m.negated) {
                (false, false) => compared,
                (false, true) => not_false(compared, &both),
                (true, false) => is(compared, IsTest::True, true),
                (true, true) => is(compared, IsTest::False, false),
            });
        }
        let on = Expr::and(on);
        // ALL and NOT ANY are true if no row refutes them, so they become anti-joins. ANY and NOT ALL become
        // semi-joins.
        if m.negated != m.all {
            self.add(SemiJoin::anti(node, right, on))
        } else {
            self.add(SemiJoin::semi(node, right, on))
        }
    }

    /// Lowers a subquery, and returns its conditions on outer columns separately. Outer columns may occur
    /// only in its outputs and in top-level conjuncts of its WHERE. If they occur elsewhere, returns `None`.
    fn direct(&mut self, q: &Query, free: &[Outer], outputs: bool) -> Result<Option<Direct>> {
        let Body::Select(s) = &q.body else { return Ok(None) };
        let grouped = !s.group_by.is_absent();
        let distinct = matches!(s.distinct, Some(AstDistinct::On(_)));
        // EXISTS needs only one row, so the value of EXISTS is the same with a LIMIT above 0 and no OFFSET.
        let sliced = match self.slice(q)? {
            Some(slice) => outputs || slice.offset > 0 || slice.limit == Some(0),
            None => false,
        };
        let plain = free.is_empty() || q.with.is_some() || sliced;
        let tables = s.from.iter().all(only_tables);
        if plain || grouped || distinct || s.having.is_some() || s.from.is_empty() || !tables {
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

    fn direct_in_frame(&mut self, s: &Select, outputs: bool) -> Result<Option<Direct>> {
        let mut build = Build::default();
        self.list(&s.from, &mut build)?;
        if !build.later.is_empty() {
            return Err(self.fail_direct());
        }
        let mut later = Vec::new();
        for term in s.selection.as_ref().map(conjuncts).unwrap_or_default() {
            if self.is_membership(term) {
                later.push((term, None));
                continue;
            }
            let mut cx = ClauseContext::condition("WHERE");
            let e = self.condition(term, &mut cx)?;
            if cx.subqueries.is_empty() {
                build.conjuncts.extend(e.conjuncts());
            } else {
                later.push((term, Some((e, cx))));
            }
        }
        let mut outs = Vec::new();
        let mut cx = ClauseContext::select_list(s);
        for item in &s.items {
            match item {
                SelectItem::Value { expr, .. } => outs.push(self.expr(expr, &mut cx)?),
                SelectItem::Star(_) | SelectItem::TableStar(..) | SelectItem::FieldsStar(..) => {
                    if outputs {
                        return Err(self.fail_direct());
                    }
                }
            }
        }
        let placed = !cx.aggregates.is_empty() || !cx.windows.is_empty() || !cx.sets.is_empty();
        if placed || (outputs && !cx.subqueries.is_empty()) {
            return Err(self.fail_direct());
        }
        // Obstacles to the direct form are found before nested subqueries are lowered, so no work is done
        // twice.
        for (term, lowered) in &later {
            self.check_local(term, lowered.as_ref())?;
        }
        let (outer, inner): (Vec<Expr>, Vec<Expr>) = build.conjuncts.drain(..).partition(reads_outer);
        // In the direct form a condition on outer columns is a join condition, which cannot read the clock.
        // Over a domain, the condition is a filter, and a filter can read the clock.
        if outer.iter().any(Expr::reads_clock) {
            return Err(self.fail_direct());
        }
        build.conjuncts = inner;
        let mut node = self.finish(build)?;
        for (term, lowered) in later {
            node = match lowered {
                Some((e, cx)) => self.filter(node, e, cx)?,
                None => self.membership(node, term)?,
            };
        }
        Ok(Some(Direct { node, outs, outer }))
    }

    /// Fails where a condition with subqueries uses columns of the enclosing query.
    fn check_local(&mut self, term: &Ast, lowered: Option<&(Expr, ClauseContext<'_>)>) -> Result<()> {
        let mut free = Vec::new();
        match lowered {
            Some((e, cx)) => {
                if reads_outer(e) || cx.subqueries.iter().flat_map(Pending::operands).any(reads_outer) {
                    return Err(self.fail_direct());
                }
                free.extend(cx.subqueries.iter().flat_map(|p| p.free.clone()));
            }
            None => {
                if let Some(m) = Membership::of(term) {
                    free = self.free(m.query)?;
                }
            }
        }
        free.iter().try_for_each(|o| self.here(o).map(drop))
    }

    /// Returns the node, the outputs and the conditions of a subquery in the direct form. The expressions are
    /// over the left columns, followed by the columns of the subquery.
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

/// Whether a subquery with this item of FROM may have the direct form ([`Direct`]). Outer columns inside the
/// item prevent the direct form too, but they are found only when the item is lowered.
fn only_tables(t: &FromItem) -> bool {
    let plain = |t: &TableRef| match &t.kind {
        TableKind::Named { .. } | TableKind::Functions { .. } => true,
        TableKind::Query { lateral, .. } => !lateral,
        TableKind::Nested(item) => only_tables(item),
    };
    plain(&t.first) && t.joins.iter().all(|j| plain(&j.table))
}

/// A subquery in the direct form: outer columns are placeholders [`Slot::Outer`], not columns of a domain.
struct Direct {
    node: NodeId,
    outs: Vec<Expr>,
    outer: Vec<Expr>,
}

/// A conjunct `[NOT] EXISTS`, `[NOT] IN` or `op ANY|ALL` with a subquery.
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
            match &e.node {
                Node::Nested(inner) => e = inner,
                Node::Unary { op: UnaryOperator::Not, operand } => {
                    not = !not;
                    e = operand;
                }
                Node::Exists { query, negated } => {
                    let negated = *negated != not;
                    return Some(Membership { query, lhs: Vec::new(), op: None, all: false, negated });
                }
                Node::InQuery { operand, query, negated } => {
                    return Some(Membership {
                        query,
                        lhs: row(operand),
                        op: Some("=".to_owned()),
                        all: false,
                        negated: *negated != not,
                    });
                }
                Node::Quantified { left, op, right, all } => {
                    let (op, query) = (op.qualified(), subquery_of(right)?);
                    // `x <> ALL (…)` is NOT IN.
                    let not_in = *all && op == "<>";
                    let op = Some(if not_in { "=".to_owned() } else { op });
                    let (all, negated) = (*all && !not_in, not != not_in);
                    return Some(Membership { query, lhs: row(left), op, all, negated });
                }
                _ => return None,
            }
        }
    }
}

/// Returns `e IS NOT FALSE`, or only `e` if `e` is never NULL.
fn not_false(e: Expr, schema: &Schema) -> Expr {
    if e.nullable(schema) { e.is_not_false() } else { e }
}

/// Returns `e IS [NOT] TRUE|FALSE`.
fn is(e: Expr, test: IsTest, negated: bool) -> Expr {
    Expr::new(ExprKind::Is { arg: e, test, negated }, Type::Bool)
}
