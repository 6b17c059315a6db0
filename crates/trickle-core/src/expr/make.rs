//! The functions that make expressions.

use super::{Expr, ExprKind, FuncSig, IsTest};
use crate::types::{Datum, Type};
use std::sync::Arc;

#[expect(clippy::wrong_self_convention, reason = "an expression is made from its argument, not asked")]
impl Expr {
    /// Makes a reference to input column `index` of type `ty`.
    pub fn column(index: usize, ty: Type) -> Expr {
        Expr::new(ExprKind::Column(index), ty)
    }
    /// Makes a constant of type `ty`.
    pub fn literal(value: Datum, ty: Type) -> Expr {
        Expr::new(ExprKind::Literal(value), ty)
    }
    /// Makes a NULL of type `ty`.
    pub(crate) fn null(ty: Type) -> Expr {
        Expr::literal(Datum::Null, ty)
    }
    /// Makes a boolean constant.
    pub(crate) fn bool(value: bool) -> Expr {
        Expr::literal(Datum::Bool(value), Type::Bool)
    }
    /// Makes a `bigint` constant.
    pub fn int8(value: i64) -> Expr {
        Expr::literal(Datum::Int(value), Type::Int8)
    }
    /// Makes a call, whose type is the signature's return type.
    pub fn call(sig: Arc<FuncSig>, args: Vec<Expr>) -> Expr {
        let ty = sig.ret.clone();
        Expr::new(ExprKind::Call(sig, args), ty)
    }
    /// Casts to `ty`. If the expression has type `ty` already, no cast is added.
    #[must_use]
    pub(crate) fn cast(self, ty: Type) -> Expr {
        if *self.ty() == ty { self } else { Expr::new(ExprKind::Cast(self), ty) }
    }
    /// Makes a conjunction. Nested conjunctions are flattened, and a conjunction without terms is TRUE.
    pub(crate) fn and(terms: impl IntoIterator<Item = Expr>) -> Expr {
        let mut flat = Vec::new();
        for t in terms {
            match t.kind() {
                ExprKind::And(inner) => flat.extend(inner.iter().cloned()),
                ExprKind::Literal(Datum::Bool(true)) => {}
                _ => flat.push(t),
            }
        }
        match flat.len() {
            0 => Expr::bool(true),
            1 => flat.swap_remove(0),
            _ => Expr::new(ExprKind::And(flat), Type::Bool),
        }
    }
    /// Makes a disjunction; a disjunction without terms is FALSE.
    pub(crate) fn or(terms: impl IntoIterator<Item = Expr>) -> Expr {
        let mut flat: Vec<Expr> = terms.into_iter().collect();
        match flat.len() {
            0 => Expr::bool(false),
            1 => flat.swap_remove(0),
            _ => Expr::new(ExprKind::Or(flat), Type::Bool),
        }
    }
    /// Makes `NOT self`.
    #[must_use]
    pub(crate) fn negated(self) -> Expr {
        Expr::new(ExprKind::Not(self), Type::Bool)
    }
    /// Makes `self IS NULL`.
    #[must_use]
    pub(crate) fn is_null(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::Null, negated: false }, Type::Bool)
    }
    /// Makes `self IS NOT NULL`.
    #[must_use]
    pub(crate) fn is_not_null(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::Null, negated: true }, Type::Bool)
    }
    /// Makes `self IS TRUE`, for a boolean.
    #[must_use]
    pub(crate) fn is_true(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::True, negated: false }, Type::Bool)
    }
    /// Makes `self IS NOT FALSE`, for a boolean.
    #[must_use]
    pub(crate) fn is_not_false(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::False, negated: true }, Type::Bool)
    }
    /// Makes `self = other`, SQL's equality, which is NULL if an operand is NULL.
    #[must_use]
    pub(crate) fn equals(self, other: Expr) -> Expr {
        let sig = FuncSig::comparison("=", self.ty().clone(), other.ty().clone());
        Expr::call(sig, vec![self, other])
    }
    /// Makes `self IS NOT DISTINCT FROM other`, the equality that decides whether two rows are the same row.
    #[must_use]
    pub(crate) fn same_as(self, other: Expr) -> Expr {
        Expr::new(ExprKind::Distinct { left: self, right: other, negated: true }, Type::Bool)
    }
}
