//! Converts expressions.

use super::Converter;
use super::call::bare;
use super::names::{ident, object_name, type_name};
use super::operators::unary;
use crate::error::Result;
use crate::parse::source::extent;
use crate::syntax::{Access, Case, Expr, Node, Subscript, Test, When};
use sqlparser::ast::{self, AccessExpr, CastKind, Expr as Ast, Spanned, Subscript as AstSubscript};

impl Converter<'_> {
    /// Converts an expression. An error without a position gets the position of the innermost expression that
    /// has a position.
    pub(super) fn expr(&self, e: &Ast) -> Result<Expr> {
        stacker::maybe_grow(256 << 10, 4 << 20, || match self.node(e) {
            Ok(node) => {
                // The position of a chain is computed from the positions of its parts. The parser crate would
                // walk the whole tree for each position.
                let extent = match &node {
                    Node::Binary { left, right, .. } | Node::IsDistinct { left, right, .. } => {
                        left.extent.union(right.extent)
                    }
                    Node::Nested(inner) => inner.extent,
                    Node::Unary { operand, .. } | Node::Is { operand, .. } | Node::Cast { operand, .. } => {
                        operand.extent
                    }
                    _ => extent(e.span()),
                };
                Ok(Expr { node, extent })
            }
            Err(error) if error.span().is_none() && !error.is_internal() => Err(self.at(error, e.span())),
            Err(error) => Err(error),
        })
    }

    pub(super) fn boxed(&self, e: &Ast) -> Result<Box<Expr>> {
        self.expr(e).map(Box::new)
    }

    pub(super) fn exprs<'e>(&self, list: impl IntoIterator<Item = &'e Ast>) -> Result<Vec<Expr>> {
        list.into_iter().map(|e| self.expr(e)).collect()
    }

    pub(super) fn optional(&self, e: Option<&Ast>) -> Result<Option<Expr>> {
        e.map(|e| self.expr(e)).transpose()
    }

    pub(super) fn optional_box(&self, e: Option<&Ast>) -> Result<Option<Box<Expr>>> {
        e.map(|e| self.boxed(e)).transpose()
    }

    fn node(&self, e: &Ast) -> Result<Node> {
        Ok(match e {
            Ast::Nested(inner) => Node::Nested(self.boxed(inner)?),
            Ast::Identifier(name) => bare(name).unwrap_or_else(|| Node::Name(vec![ident(name)])),
            Ast::CompoundIdentifier(names) => Node::Name(names.iter().map(ident).collect()),
            Ast::Value(v) => Node::Literal(self.literal(v)?),
            Ast::BinaryOp { left, op, right } => self.binary(e, left, op, right)?,
            Ast::UnaryOp { op, expr } => Node::Unary { op: unary(op), operand: self.boxed(expr)? },
            Ast::AnyOp { left, compare_op, right, is_some: _ } => {
                self.quantified(left, compare_op, right, false)?
            }
            Ast::AllOp { left, compare_op, right } => self.quantified(left, compare_op, right, true)?,
            Ast::Function(f) => self.function(f, e)?,
            Ast::Array(a) => Node::Array(self.exprs(&a.elem)?),
            Ast::Tuple(parts) => Node::Row(self.exprs(parts)?),
            Ast::CompoundFieldAccess { root, access_chain } => {
                let chain = access_chain.iter().map(|a| self.access(e, a)).collect::<Result<_>>()?;
                Node::Access { root: self.boxed(root)?, chain }
            }
            Ast::Cast { kind, expr, data_type, format: None }
                if !matches!(kind, CastKind::TryCast | CastKind::SafeCast) =>
            {
                Node::Cast { operand: self.boxed(expr)?, ty: type_name(data_type) }
            }
            Ast::Case { operand, conditions, else_result, case_token: _, end_token: _ } => {
                Node::Case(self.case(operand.as_deref(), conditions, else_result.as_deref())?)
            }
            Ast::Wildcard(_) => Node::Star,
            Ast::QualifiedWildcard(name, _) => Node::WholeRow(object_name(name)),
            _ => match self.test(e)? {
                Some(test) => test,
                None => self.special(e)?,
            },
        })
    }

    /// Converts IS, BETWEEN, IN and EXISTS; returns `None` for any other expression.
    fn test(&self, e: &Ast) -> Result<Option<Node>> {
        let is = |operand: &Ast, test, negated| Ok(Node::Is { operand: self.boxed(operand)?, test, negated });
        let distinct = |left: &Ast, right: &Ast, negated| {
            Ok(Node::IsDistinct { left: self.boxed(left)?, right: self.boxed(right)?, negated })
        };
        match e {
            Ast::IsNull(a) => is(a, Test::Null, false),
            Ast::IsNotNull(a) => is(a, Test::Null, true),
            Ast::IsTrue(a) => is(a, Test::True, false),
            Ast::IsNotTrue(a) => is(a, Test::True, true),
            Ast::IsFalse(a) => is(a, Test::False, false),
            Ast::IsNotFalse(a) => is(a, Test::False, true),
            Ast::IsUnknown(a) => is(a, Test::Unknown, false),
            Ast::IsNotUnknown(a) => is(a, Test::Unknown, true),
            Ast::IsDistinctFrom(l, r) => distinct(l, r, false),
            Ast::IsNotDistinctFrom(l, r) => distinct(l, r, true),
            Ast::Between { expr, negated, low, high } => Ok(Node::Between {
                operand: self.boxed(expr)?,
                low: self.boxed(low)?,
                high: self.boxed(high)?,
                negated: *negated,
            }),
            Ast::InList { expr, list, negated } => {
                Ok(Node::InList { operand: self.boxed(expr)?, list: self.exprs(list)?, negated: *negated })
            }
            Ast::InSubquery { expr, subquery, negated } => Ok(Node::InQuery {
                operand: self.boxed(expr)?,
                query: self.boxed_query(subquery)?,
                negated: *negated,
            }),
            Ast::Exists { subquery, negated } => {
                Ok(Node::Exists { query: self.boxed_query(subquery)?, negated: *negated })
            }
            Ast::Subquery(q) => Ok(Node::Subquery(self.boxed_query(q)?)),
            _ => return Ok(None),
        }
        .map(Some)
    }

    fn case(&self, operand: Option<&Ast>, whens: &[ast::CaseWhen], otherwise: Option<&Ast>) -> Result<Case> {
        let when = |w: &ast::CaseWhen| {
            Ok(When { condition: self.expr(&w.condition)?, result: self.expr(&w.result)? })
        };
        Ok(Case {
            operand: self.optional_box(operand)?,
            whens: whens.iter().map(when).collect::<Result<_>>()?,
            otherwise: self.optional_box(otherwise)?,
        })
    }

    fn access(&self, whole: &Ast, a: &AccessExpr) -> Result<Access> {
        Ok(match a {
            AccessExpr::Dot(Ast::Identifier(name)) => Access::Field(ident(name)),
            AccessExpr::Dot(_) => Access::AllFields,
            AccessExpr::Subscript(AstSubscript::Index { index }) => {
                Access::Subscript(Subscript::Index(self.expr(index)?))
            }
            AccessExpr::Subscript(AstSubscript::Slice { lower_bound, upper_bound, stride: None }) => {
                let lower = self.optional_box(lower_bound.as_ref())?;
                Access::Subscript(Subscript::Slice(lower, self.optional_box(upper_bound.as_ref())?))
            }
            AccessExpr::Subscript(AstSubscript::Slice { stride: Some(_), .. }) => {
                return self.refused("a slice has two bounds", whole);
            }
        })
    }
}
