//! Lowers scalar expressions. Each kind of expression has a function, here or in another file.

use super::Lowerer;
use super::clause::ClauseContext;
use super::literal;
use super::subquery::SubqueryForm;
use crate::error::{Error, Result};
use crate::expr::{Expr, IsTest};
use crate::syntax::{BinaryOperator, Expr as Ast, Ident, Literal, Node, Place, Test};
use crate::types::{Datum, Type};

/// The greatest number of nodes in an expression. NULLIF, BETWEEN and CASE with an operand become expressions
/// that contain an operand more than once. Each level of nesting therefore multiplies the size of the
/// expression. A few hundred levels would exhaust any memory.
const MAX_SIZE: usize = 1 << 18;

/// Whether the expression is a comparison.
fn compares(e: &Ast) -> bool {
    match &e.node {
        Node::Binary { op: BinaryOperator::Operator(op), .. } => op.compares(),
        Node::Between { .. } | Node::IsDistinct { .. } => true,
        _ => false,
    }
}

impl Lowerer<'_> {
    /// Lowers an expression. Each aggregate and subquery in the expression becomes a placeholder, and is
    /// collected in `cx`.
    pub(super) fn expr<'q>(&mut self, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        stacker::maybe_grow(256 << 10, 4 << 20, || {
            let outside = cx.allows_clock;
            cx.allows_clock |= cx.allows_timed_conditions && compares(e);
            let lowered = self.expr_here(e, cx);
            cx.allows_clock = outside;
            let result = lowered.and_then(|made| match made.size() > MAX_SIZE {
                true => Err(self.stop(e, format!("an expression of more than {MAX_SIZE} parts"))),
                false => Ok(made),
            });
            match result {
                Err(err) if err.span().is_none() && !err.is_internal() => Err(self.at(err, e)),
                other => other,
            }
        })
    }

    pub(super) fn exprs<'q>(
        &mut self,
        list: impl IntoIterator<Item = &'q Ast>,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Vec<Expr>> {
        list.into_iter().map(|e| self.expr(e, cx)).collect()
    }

    fn expr_here<'q>(&mut self, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        match &e.node {
            Node::Nested(inner) => self.expr(inner, cx),
            Node::Name(names) => self.name(names, cx),
            Node::Literal(literal) => self.literal(literal, e),
            Node::Binary { left, op, right } => self.binary(e, left, op, right, cx),
            Node::Unary { op, operand } => self.unary(op, operand, cx),
            Node::Is { operand, test, negated } => match test {
                Test::Null => self.null_test(operand, *negated, cx),
                Test::True => self.truth_test(operand, IsTest::True, *negated, cx),
                Test::False => self.truth_test(operand, IsTest::False, *negated, cx),
                Test::Unknown => self.truth_test(operand, IsTest::Null, *negated, cx),
            },
            Node::IsDistinct { left, right, negated } => self.is_distinct(left, right, *negated, cx),
            Node::Between { operand, low, high, negated } => {
                let both = self.between(operand, low, high, cx)?;
                Ok(if *negated { both.negated() } else { both })
            }
            Node::InList { operand, list, negated } => self.among(operand, list, *negated, cx),
            Node::InQuery { operand, query, negated } => {
                let value = self.in_query(operand, query, e, cx)?;
                Ok(if *negated { value.negated() } else { value })
            }
            Node::Exists { query, negated } => {
                let value = self.subquery(query, SubqueryForm::Exists, e, cx)?;
                Ok(if *negated { value.negated() } else { value })
            }
            Node::Subquery(q) => self.subquery(q, SubqueryForm::Scalar, e, cx),
            Node::Quantified { left, op, right, all } => self.any_all(e, left, op, right, *all, cx),
            Node::Cast { operand, ty } => {
                let value = self.expr(operand, cx)?;
                self.cast_to(value, ty, e)
            }
            Node::Case(case) => self.case(case, cx),
            Node::Call(call) => self.function(call, e, cx),
            Node::Array(elements) => {
                let elements = self.exprs(elements, cx)?;
                self.array(elements)
            }
            Node::ArrayOfQuery(aggregate) => self.expr(aggregate, cx),
            Node::Row(parts) => {
                let parts = self.exprs(parts, cx)?;
                self.row_value(parts)
            }
            Node::Access { root, chain } => self.access(e, root, chain, cx),
            Node::Form(form) => self.form(form, e, cx),
            Node::FormOverQuery(name) => Err(self.stop(e, format!("{name}(SELECT …)"))),
            Node::WholeRow(table) => self.row_of(&table.folded(), e),
            Node::Star => Err(self.whole_row(e)),
            Node::TypedLiteral { .. }
            | Node::Interval(_)
            | Node::IsForm { .. }
            | Node::Like { .. }
            | Node::SimilarTo { .. }
            | Node::Collate { .. }
            | Node::AtTimeZone { .. }
            | Node::Extract { .. }
            | Node::Position { .. }
            | Node::Builtin { .. } => self.special(e, cx),
        }
    }

    pub(super) fn name(&mut self, names: &[Ident], cx: &mut ClauseContext<'_>) -> Result<Expr> {
        let e = self.column(names)?;
        if !cx.inside_aggregate && cx.allows_aggregates {
            let text = names.iter().map(Ident::folded).collect::<Vec<_>>().join(".");
            let span = match (names.first(), names.last()) {
                (Some(a), Some(b)) => self.span(&a.extent.union(b.extent)),
                _ => None,
            };
            for c in e.columns() {
                cx.columns.push((c, text.clone(), span));
            }
        }
        Ok(e)
    }

    pub(super) fn literal(&mut self, literal: &Literal, place: &impl Place) -> Result<Expr> {
        match literal {
            Literal::Number(n) => literal::number(n).map_err(|e| self.at(e, place)),
            Literal::Boolean(b) => Ok(Expr::bool(*b)),
            Literal::Null => Ok(Expr::null(Type::Unknown)),
            Literal::Parameter(p) => {
                let e = Error::syntax(format!("there is no parameter {p}"));
                Err(self.at(e.hint("Write the value into the query."), place))
            }
            Literal::Bits(bits) => match Type::parse("\"bit\"") {
                Some(ty) => Ok(Expr::literal(Datum::text(bits.as_str()), ty)),
                None => Err(Error::internal("the type bit is not known")),
            },
            Literal::Text(text) => Ok(literal::untyped(text)),
        }
    }
}
