//! Simplifies expressions by properties of the input's columns.

use super::{Expr, ExprKind, IsTest};
use crate::expr::Schema;
use crate::types::{Datum, Type};

impl Expr {
    /// Returns an expression that has the same value on every row of `input`. A NULL test of a value that is
    /// never NULL becomes a constant. Parts that a constant condition makes unreachable are dropped. No part
    /// that can raise an error is dropped or moved.
    #[must_use]
    pub(crate) fn simplified(&self, input: &Schema) -> Expr {
        if !self.is_logical() {
            return self.clone();
        }
        self.rewrite(&mut |e| match e.kind() {
            ExprKind::Is { arg, test: IsTest::Null, negated } if !arg.nullable(input) && !arg.can_raise() => {
                Expr::bool(*negated)
            }
            ExprKind::Is { arg, test, negated } => match (arg.as_literal(), test) {
                (Some(d), IsTest::Null) => Expr::bool(d.is_null() != *negated),
                (Some(d), IsTest::True) => Expr::bool((*d == Datum::Bool(true)) != *negated),
                (Some(d), IsTest::False) => Expr::bool((*d == Datum::Bool(false)) != *negated),
                (None, _) => e,
            },
            ExprKind::Not(arg) => match arg.as_literal() {
                Some(Datum::Bool(b)) => Expr::bool(!b),
                _ => e,
            },
            ExprKind::And(terms) => {
                let safe = terms.iter().all(|t| !t.can_raise());
                if safe && terms.iter().any(|t| is(t, false)) {
                    Expr::bool(false)
                } else {
                    Expr::and(terms.clone())
                }
            }
            ExprKind::Or(terms) => {
                let safe = terms.iter().all(|t| !t.can_raise());
                if safe && terms.iter().any(|t| is(t, true)) {
                    Expr::bool(true)
                } else {
                    Expr::or(terms.iter().filter(|t| !is(t, false)).cloned())
                }
            }
            ExprKind::Case { whens, otherwise } => case(whens, otherwise, e.ty()),
            ExprKind::Coalesce(args) => {
                let end = args.iter().position(|a| !a.nullable(input)).map_or(args.len(), |i| i + 1);
                match &args[..end] {
                    [one] => one.clone(),
                    some => Expr::new(ExprKind::Coalesce(some.to_vec()), e.ty().clone()),
                }
            }
            _ => e,
        })
    }
}

fn is(e: &Expr, value: bool) -> bool {
    e.as_literal() == Some(&Datum::Bool(value))
}

/// Drops the branches of a CASE that are never evaluated.
fn case(whens: &[(Expr, Expr)], otherwise: &Expr, ty: &Type) -> Expr {
    let mut kept = Vec::new();
    let mut last = otherwise;
    for (condition, value) in whens {
        if is(condition, true) {
            last = value;
            break;
        }
        if !is(condition, false) && !condition.as_literal().is_some_and(Datum::is_null) {
            kept.push((condition.clone(), value.clone()));
        }
    }
    if kept.is_empty() {
        return last.clone();
    }
    Expr::new(ExprKind::Case { whens: kept, otherwise: last.clone() }, ty.clone())
}
