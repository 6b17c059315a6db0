//! Random well-typed expressions.

use super::{Choice, Limits, data::value};
use crate::expr::{Expr, ExprKind, FuncKind, FuncSig, Volatility};
use crate::graph::Schema;
use crate::types::Type;
use std::sync::Arc;

/// Makes a random scalar of type `ty` over the columns of `schema`.
pub(super) fn scalar(choice: &mut Choice, schema: &Schema, ty: &Type, depth: usize, limits: &Limits) -> Expr {
    let same: Vec<usize> = (0..schema.len()).filter(|i| schema.columns()[*i].ty == *ty).collect();
    if depth == 0 || choice.one_in(3) {
        return match choice.pick(&same) {
            Some(c) if !choice.one_in(4) => schema.expr(*c),
            _ => constant(choice, ty),
        };
    }
    let sub = |choice: &mut Choice| scalar(choice, schema, ty, depth - 1, limits);
    match choice.below(if limits.opaque { 5 } else { 4 }) {
        0 if ty.is_integer() => {
            let ops: &[&str] = if limits.raising { &["+", "-", "/"] } else { &["+", "-"] };
            let op = choice.pick(ops).copied().unwrap_or("+");
            Expr::call(
                FuncSig::operator(op, vec![ty.clone(), ty.clone()], ty.clone()),
                vec![sub(choice), sub(choice)],
            )
        }
        1 => {
            let whens = vec![(condition(choice, schema, depth - 1, limits), sub(choice))];
            Expr::new(ExprKind::Case { whens, otherwise: sub(choice) }, ty.clone())
        }
        2 => Expr::new(ExprKind::Coalesce(vec![sub(choice), sub(choice)]), ty.clone()),
        4 => Expr::call(opaque(ty), vec![sub(choice)]),
        _ if *ty == Type::Bool => condition(choice, schema, depth - 1, limits),
        _ => choice.pick(&same).map_or_else(|| constant(choice, ty), |c| schema.expr(*c)),
    }
}

/// Makes a function that is known only to be strict and immutable, so the evaluator invents its values.
fn opaque(ty: &Type) -> Arc<FuncSig> {
    let known = FuncSig::unknown(Some("lib"), "f", vec![ty.clone()], ty.clone());
    Arc::new(FuncSig {
        kind: FuncKind::Scalar,
        volatility: Volatility::Immutable,
        strict: true,
        raises: false,
        ..known
    })
}

/// Makes a function like [`opaque`] that returns a set of integers.
pub(super) fn opaque_set() -> Arc<FuncSig> {
    let known = FuncSig::unknown(Some("lib"), "s", vec![Type::Int4], Type::Int4);
    Arc::new(FuncSig {
        kind: FuncKind::SetReturning,
        volatility: Volatility::Immutable,
        strict: true,
        raises: false,
        ..known
    })
}

/// Makes a random constant, or NULL.
pub(super) fn constant(choice: &mut Choice, ty: &Type) -> Expr {
    let v = value(choice, ty, true);
    Expr::literal(v, ty.clone())
}

/// Makes a random condition over the columns of `schema`.
pub(super) fn condition(choice: &mut Choice, schema: &Schema, depth: usize, limits: &Limits) -> Expr {
    let sub = |choice: &mut Choice| condition(choice, schema, depth.saturating_sub(1), limits);
    match if depth == 0 { choice.below(3) } else { choice.below(7) } {
        0 | 3 => compare(choice, schema, depth, limits),
        1 => {
            let e = any(choice, schema, depth, limits);
            if choice.below(2) == 0 { e.is_null() } else { e.is_not_null() }
        }
        2 => {
            let l = any(choice, schema, depth, limits);
            let r = scalar(choice, schema, l.ty(), 0, limits);
            let same = l.same_as(r);
            if choice.below(2) == 0 { same } else { same.negated() }
        }
        4 => Expr::and([sub(choice), sub(choice)]),
        5 => Expr::or([sub(choice), sub(choice)]),
        _ => sub(choice).negated(),
    }
}

fn any(choice: &mut Choice, schema: &Schema, depth: usize, limits: &Limits) -> Expr {
    let ty = match schema.len() {
        0 => Type::Int4,
        n => schema.columns()[choice.below(n)].ty.clone(),
    };
    scalar(choice, schema, &ty, depth.min(1), limits)
}

fn compare(choice: &mut Choice, schema: &Schema, depth: usize, limits: &Limits) -> Expr {
    let l = any(choice, schema, depth, limits);
    if !l.ty().is_ordered() {
        return l.is_null();
    }
    let r = scalar(choice, schema, l.ty(), depth.min(1), limits);
    let op = choice.pick(&["=", "<>", "<", ">="]).copied().unwrap_or("=");
    Expr::call(FuncSig::comparison(op, l.ty().clone(), r.ty().clone()), vec![l, r])
}

/// Makes a random join condition over two schemas. Mostly the condition consists of column equalities, some
/// of them NULL-safe. Sometimes it has other terms, and sometimes no terms.
pub(super) fn join_condition(choice: &mut Choice, left: &Schema, right: &Schema, limits: &Limits) -> Expr {
    let both = left.concat(right);
    let mut terms = Vec::new();
    for _ in 0..choice.below(3) {
        let pairs: Vec<(usize, usize)> = (0..left.len())
            .flat_map(|l| (0..right.len()).map(move |r| (l, r)))
            .filter(|(l, r)| {
                left.columns()[*l].ty == right.columns()[*r].ty && left.columns()[*l].ty.has_equality()
            })
            .collect();
        if let Some((l, r)) = choice.pick(&pairs).copied() {
            let (a, b) = (both.expr(l), both.expr(left.len() + r));
            terms.push(if choice.one_in(4) { a.same_as(b) } else { a.equals(b) });
        }
    }
    if choice.one_in(4) {
        terms.push(condition(choice, &both, 1, limits));
    }
    Expr::and(terms)
}
