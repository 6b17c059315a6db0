//! Lowers subqueries that are conjuncts of WHERE: EXISTS, IN, ANY, ALL and their negations become semi- and
//! anti-joins.

use super::Lowerer;
use super::expr::ClauseContext;
use super::from::Build;
use super::scope::{Frame, Outer, Slot, reads_outer, shift};
use super::select::conjuncts;
use super::subquery::{Examined, Pending, SubqueryForm, compared_with, null_safe, row};
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind, IsTest};
use crate::graph::{NodeId, Schema};
use crate::parse::ast::{
    Distinct as AstDistinct, Expr as Ast, GroupByExpr, Query, Select, SelectItem, SetExpr, TableFactor,
    TableWithJoins, UnaryOperator,
};
use crate::rel::SemiJoin;
use crate::types::Type;

impl Lowerer<'_> {
    /// Whether a conjunct is EXISTS, IN (subquery), ANY or ALL (subquery), or a negation.
    pub(super) fn is_membership(&self, e: &Ast) -> bool {
        // While a subquery is examined, only its columns have to be found.
        !self.probing() && Membership::of(e).is_some()
    }

    /// Adds the ⋉ or ▷ of such a conjunct.
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
            // ANY looks for a row for which the comparison is true. NOT ANY and ALL look for a row that
            // prevents them, NOT ALL for a counterexample.
            on.push(match (m.all, m.negated) {
                (false, false) => compared,
                (false, true) => not_false(compared, &both),
                (true, false) => is(compared, IsTest::True, true),
                (true, true) => is(compared, IsTest::False, false),
            });
        }
        let on = Expr::and(on);
        // `x op ALL` holds where no row fails it; NOT inverts it.
        if m.negated != m.all {
            self.add(SemiJoin::anti(node, right, on))
        } else {
            self.add(SemiJoin::semi(node, right, on))
        }
    }

    /// Lowers a subquery with its correlated conditions kept apart. Returns `None` unless the outer columns
    /// occur only in top-level conjuncts of its WHERE and in its outputs.
    fn direct(&mut self, q: &Query, free: &[Outer], outputs: bool) -> Result<Option<Direct>> {
        let SetExpr::Select(s) = &*q.body else { return Ok(None) };
        let grouped = !matches!(&s.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
        let distinct = matches!(s.distinct, Some(AstDistinct::On(_)));
        // For existence alone, the first row answers as well as all rows.
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
        for item in &s.projection {
            match item {
                SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => {
                    outs.push(self.expr(e, &mut cx)?);
                }
                _ if outputs => return Err(self.fail_direct()),
                _ => {}
            }
        }
        let placed = !cx.aggregates.is_empty() || !cx.windows.is_empty() || !cx.sets.is_empty();
        if placed || (outputs && !cx.subqueries.is_empty()) {
            return Err(self.fail_direct());
        }
        // Obstacles are found before nested subqueries are lowered, so that no work is done twice.
        for (term, lowered) in &later {
            self.check_local(term, lowered.as_ref())?;
        }
        let (outer, inner): (Vec<Expr>, Vec<Expr>) = build.conjuncts.drain(..).partition(reads_outer);
        // Over a domain, such a condition is a filter, which may read the clock; here it would be a join
        // condition.
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

    /// Returns a direct subquery's outputs and conditions over the left columns followed by its own.
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

/// Whether a FROM item may have a direct form. Outer columns inside it still prevent that, which is noticed
/// where they are lowered.
fn only_tables(t: &TableWithJoins) -> bool {
    let plain = |f: &TableFactor| match f {
        TableFactor::Table { .. } | TableFactor::Function { .. } | TableFactor::UNNEST { .. } => true,
        TableFactor::Derived { lateral, .. } => !lateral,
        TableFactor::NestedJoin { table_with_joins, .. } => only_tables(table_with_joins),
        _ => false,
    };
    plain(&t.relation) && t.joins.iter().all(|j| plain(&j.relation))
}

/// A subquery whose outer columns are [`Slot::Outer`].
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
                    let (op, query, _) = compared_with(compare_op, right);
                    let query = query?;
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

/// Returns `e IS NOT FALSE`, or `e` alone where it is never NULL.
fn not_false(e: Expr, schema: &Schema) -> Expr {
    if e.nullable(schema) { e.is_not_false() } else { e }
}

/// Returns `e IS [NOT] TRUE|FALSE`.
fn is(e: Expr, test: IsTest, negated: bool) -> Expr {
    Expr::new(ExprKind::Is { arg: e, test, negated }, Type::Bool)
}
