//! Lowers the operators of expressions, and the tests with a syntax of their own, such as IS NULL and IN.

use super::clause::ClauseContext;
use super::subquery::{SubqueryForm, row, row_constructor, subquery_of};
use super::{Lowerer, literal};
use crate::error::{Error, Result};
use crate::expr::{Expr, ExprKind, IsTest};
use crate::syntax::{BinaryOperator, Expr as Ast, Node, Operator, Place, Query, UnaryOperator};
use crate::types::{Datum, Type};

impl Lowerer<'_> {
    pub(super) fn binary<'q>(
        &mut self,
        whole: &'q Ast,
        left: &'q Ast,
        op: &BinaryOperator,
        right: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        match op {
            BinaryOperator::And | BinaryOperator::Or => {
                let and = *op == BinaryOperator::And;
                let decisive = if and { IsTest::False } else { IsTest::True };
                let (mut terms, before) = (Vec::new(), cx.guards.len());
                for t in chain(whole, op) {
                    let value = self.expr(t, cx)?;
                    let term = self.boolean(value, t, if and { "AND" } else { "OR" })?;
                    let kind = ExprKind::Is { arg: term.clone(), test: decisive, negated: true };
                    cx.guards.push(Expr::new(kind, Type::Bool));
                    terms.push(term);
                }
                cx.guards.truncate(before);
                Ok(if and { Expr::and(terms) } else { Expr::or(terms) })
            }
            BinaryOperator::Overlaps => {
                let (l, r) = (row(left), row(right));
                if l.len() != 2 || r.len() != 2 {
                    let e = Error::syntax("wrong number of parameters on a side of OVERLAPS expression");
                    return Err(self.at(e, whole));
                }
                let periods = self.exprs(l.into_iter().chain(r), cx)?;
                self.builtin("overlaps", periods)
            }
            BinaryOperator::Operator(op) => {
                let (l, r) = (row(left), row(right));
                let name = op.qualified();
                if let ([_], Some(q)) = (l.as_slice(), subquery_of(right)) {
                    // In `x = (SELECT …)`, the right operand is a scalar subquery.
                    let lhs = self.expr(left, cx)?;
                    let rhs = self.subquery(q, SubqueryForm::Scalar, right, cx)?;
                    return self.compare(&name, lhs, rhs);
                }
                if l.len() > 1 || r.len() > 1 {
                    if let Some(q) = subquery_of(right) {
                        let of = l.len();
                        let l = self.exprs(l, cx)?;
                        let field = |at| self.subquery(q, SubqueryForm::Field { at, of }, whole, cx);
                        let r = (0..of).map(field).collect::<Result<Vec<_>>>()?;
                        return self.compare_rows(&name, l, r);
                    }
                    let (l, r) = (self.exprs(l, cx)?, self.exprs(r, cx)?);
                    return self.compare_rows(&name, l, r);
                }
                let (l, r) = (self.expr(left, cx)?, self.expr(right, cx)?);
                let types = [l.ty().clone(), r.ty().clone()];
                self.check_operator(&name, &types, whole)?;
                self.compare(&name, l, r)
            }
        }
    }

    pub(super) fn unary<'q>(
        &mut self,
        op: &UnaryOperator,
        arg: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let value = self.expr(arg, cx)?;
        match op {
            UnaryOperator::Not => Ok(self.boolean(value, arg, "NOT")?.negated()),
            UnaryOperator::Minus => {
                if let (Some(Datum::Int(i)), Node::Literal(_)) = (value.as_literal(), &arg.node) {
                    // The number −2147483648 fits `integer`, though 2147483648 does not.
                    if let (Some(n), Type::Int4 | Type::Int8) = (i.checked_neg(), value.ty()) {
                        return literal::number(&n.unsigned_abs().to_string())
                            .map(|p| Expr::literal(Datum::Int(n), p.ty().clone()));
                    }
                }
                let sig = self.operator("-", &[value.ty().clone()])?;
                self.call(sig, vec![value])
            }
            UnaryOperator::Plus => {
                if value.ty().is_number() {
                    return Ok(value);
                }
                let sig = self.operator("+", &[value.ty().clone()])?;
                self.call(sig, vec![value])
            }
            UnaryOperator::Other(name) => {
                let types = [value.ty().clone()];
                self.check_operator(name, &types, arg)?;
                let sig = self.operator(name, &types)?;
                self.call(sig, vec![value])
            }
        }
    }

    /// Checks that an operand is boolean.
    pub(super) fn boolean(&self, e: Expr, place: &impl Place, what: &str) -> Result<Expr> {
        if !matches!(e.ty(), Type::Bool | Type::Unknown) {
            let m = format!("argument of {what} must be type boolean, not type {}", e.ty());
            return Err(self.at(Error::type_mismatch(m), place));
        }
        self.coerce(e, &Type::Bool)
    }

    /// Lowers `IS [NOT] NULL`. For a row or a composite value, IS NULL tests whether all parts are NULL, and
    /// IS NOT NULL whether no part is NULL.
    pub(super) fn null_test<'q>(
        &mut self,
        a: &'q Ast,
        negated: bool,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let parts = match &a.node {
            Node::WholeRow(table) => self.columns_of(&table.folded(), a)?,
            Node::Name(names) => match names.as_slice() {
                [table] if self.names_row(table) => self.columns_of(&[table.folded()], a)?,
                _ => self.exprs([a], cx)?,
            },
            _ => self.exprs(row(a), cx)?,
        };
        let fields = match parts.as_slice() {
            [value] if row_constructor(a).is_none() => self.fields(value),
            _ => None,
        };
        let parts = fields.unwrap_or(parts);
        if parts.iter().any(|e| matches!(e.ty(), Type::Record(_))) {
            return Err(self.stop(a, "IS NULL on a composite value"));
        }
        let test = |e: Expr| if negated { e.is_not_null() } else { e.is_null() };
        Ok(Expr::and(parts.into_iter().map(test)))
    }

    pub(super) fn truth_test<'q>(
        &mut self,
        a: &'q Ast,
        test: IsTest,
        negated: bool,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let value = self.expr(a, cx)?;
        let arg = self.boolean(value, a, "IS")?;
        Ok(Expr::new(ExprKind::Is { arg, test, negated }, Type::Bool))
    }

    pub(super) fn is_distinct<'q>(
        &mut self,
        l: &'q Ast,
        r: &'q Ast,
        same: bool,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let (l, r) = (self.exprs(row(l), cx)?, self.exprs(row(r), cx)?);
        if l.len() != r.len() {
            return Err(Error::syntax("unequal number of entries in row expressions"));
        }
        let terms: Vec<Expr> =
            l.into_iter().zip(r).map(|(l, r)| self.distinct_from(l, r, same)).collect::<Result<_>>()?;
        Ok(if same { Expr::and(terms) } else { Expr::or(terms) })
    }

    pub(super) fn between<'q>(
        &mut self,
        operand: &'q Ast,
        low: &'q Ast,
        high: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let (v, l, h) = (self.expr(operand, cx)?, self.expr(low, cx)?, self.expr(high, cx)?);
        let (ge, le) = (self.compare(">=", v.clone(), l)?, self.compare("<=", v, h)?);
        Ok(Expr::and([ge, le]))
    }

    pub(super) fn in_query<'q>(
        &mut self,
        operand: &'q Ast,
        query: &'q Query,
        e: &'q Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let lhs = self.exprs(row(operand), cx)?;
        let kind = SubqueryForm::Compare { lhs, op: "=".to_owned(), all: false };
        self.subquery(query, kind, e, cx)
    }

    pub(super) fn among<'q>(
        &mut self,
        operand: &'q Ast,
        list: &'q [Ast],
        negated: bool,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let left = self.exprs(row(operand), cx)?;
        let rows: Result<Vec<_>> = list.iter().map(|item| self.list_row(item, left.len(), cx)).collect();
        self.in_list(left, rows?, negated)
    }

    fn list_row<'q>(&mut self, item: &'q Ast, width: usize, cx: &mut ClauseContext<'q>) -> Result<Vec<Expr>> {
        if width == 1 { Ok(vec![self.expr(item, cx)?]) } else { self.exprs(row(item), cx) }
    }

    pub(super) fn any_all<'q>(
        &mut self,
        whole: &'q Ast,
        left: &'q Ast,
        op: &Operator,
        right: &'q Ast,
        all: bool,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let name = op.qualified();
        if let Some(q) = subquery_of(right) {
            let lhs = self.exprs(row(left), cx)?;
            return self.subquery(q, SubqueryForm::Compare { lhs, op: name, all }, whole, cx);
        }
        let (l, array) = (self.expr(left, cx)?, self.expr(right, cx)?);
        if let Some(element) = array.ty().element() {
            self.check_operator(&name, &[l.ty().clone(), element.clone()], whole)?;
        }
        self.quantified(&name, l, array, all)
    }
}

/// Returns the terms of a chain of one operator, left to right, without recursion.
fn chain<'q>(e: &'q Ast, op: &BinaryOperator) -> Vec<&'q Ast> {
    let (mut terms, mut stack) = (Vec::new(), vec![e]);
    while let Some(e) = stack.pop() {
        match &e.node {
            Node::Binary { left, op: o, right } if o == op => stack.extend([&**right, &**left]),
            Node::Nested(inner) if matches!(&inner.node, Node::Binary { op: o, .. } if o == op) => {
                stack.push(inner);
            }
            _ => terms.push(e),
        }
    }
    terms
}
