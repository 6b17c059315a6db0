//! Walks over expressions: visits to all nodes, and copies in which parts are replaced.

use super::{Expr, ExprKind};
use std::sync::Arc;

impl Expr {
    /// Returns the direct operands, in order.
    pub(crate) fn children(&self) -> Vec<&Expr> {
        let mut found = Vec::new();
        self.kind().operands(&mut |e| found.push(e));
        found
    }

    /// Returns the expression with the operands replaced by `new`, as many as [`Expr::children`] returns.
    pub(crate) fn with_children(&self, new: Vec<Expr>) -> Expr {
        let mut it = new.into_iter();
        let mut next = |old: &Expr| it.next().unwrap_or_else(|| old.clone());
        let kind = match self.kind() {
            ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::Clock(_) | ExprKind::ManyRows => {
                return self.clone();
            }
            ExprKind::Call(sig, args) => ExprKind::Call(sig.clone(), args.iter().map(next).collect()),
            ExprKind::And(args) => ExprKind::And(args.iter().map(next).collect()),
            ExprKind::Or(args) => ExprKind::Or(args.iter().map(next).collect()),
            ExprKind::Coalesce(args) => ExprKind::Coalesce(args.iter().map(next).collect()),
            ExprKind::Extreme { greatest, args } => {
                ExprKind::Extreme { greatest: *greatest, args: args.iter().map(next).collect() }
            }
            ExprKind::Array(args) => ExprKind::Array(args.iter().map(next).collect()),
            ExprKind::Row(args) => ExprKind::Row(args.iter().map(next).collect()),
            ExprKind::Cast(e) => ExprKind::Cast(next(e)),
            ExprKind::Not(e) => ExprKind::Not(next(e)),
            ExprKind::Is { arg, test, negated } => {
                ExprKind::Is { arg: next(arg), test: *test, negated: *negated }
            }
            ExprKind::Distinct { left, right, negated } => {
                ExprKind::Distinct { left: next(left), right: next(right), negated: *negated }
            }
            ExprKind::Quantified { op, arg, array, all } => {
                ExprKind::Quantified { op: op.clone(), arg: next(arg), array: next(array), all: *all }
            }
            ExprKind::Subscript { array, at } => {
                ExprKind::Subscript { array: next(array), at: at.iter().map(|s| s.map(&mut next)).collect() }
            }
            ExprKind::Case { whens, otherwise } => ExprKind::Case {
                whens: whens.iter().map(|(c, v)| (next(c), next(v))).collect(),
                otherwise: next(otherwise),
            },
        };
        Expr::new(kind, self.ty().clone())
    }

    /// Rewrites an expression bottom-up: first the operands of a node, then the node itself by `f`.
    pub(crate) fn rewrite(&self, f: &mut impl FnMut(Expr) -> Expr) -> Expr {
        if self.is_leaf() {
            return f(self.clone());
        }
        stacker::maybe_grow(64 * 1024, 1024 * 1024, || {
            let (mut children, mut changed) = (Vec::new(), false);
            self.kind().operands(&mut |c| {
                let new = c.rewrite(f);
                changed |= !Arc::ptr_eq(&new.0, &c.0);
                children.push(new);
            });
            f(if changed { self.with_children(children) } else { self.clone() })
        })
    }

    /// Visits every node, parents first.
    pub(crate) fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        f(self);
        if !self.is_leaf() {
            stacker::maybe_grow(64 * 1024, 1024 * 1024, || {
                self.kind().operands(&mut |c| c.visit(f));
            });
        }
    }

    fn is_leaf(&self) -> bool {
        matches!(self.kind(), ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::Clock(_))
    }

    /// Replaces each column `i` by `map(i)`.
    #[must_use]
    pub(crate) fn map_columns(&self, mut map: impl FnMut(usize) -> usize) -> Expr {
        self.rewrite(&mut |e| match e.kind() {
            ExprKind::Column(i) => match map(*i) {
                same if same == *i => e,
                new => Expr::column(new, e.ty().clone()),
            },
            _ => e,
        })
    }

    /// Moves every column by `by` positions to the right.
    #[must_use]
    pub(crate) fn shifted(&self, by: usize) -> Expr {
        if by == 0 { self.clone() } else { self.map_columns(|i| i + by) }
    }

    /// Replaces each column `i` by `exprs[i]`. This composes two maps.
    #[must_use]
    pub(crate) fn substitute(&self, exprs: &[Expr]) -> Expr {
        self.rewrite(&mut |e| match e.kind() {
            ExprKind::Column(i) => exprs.get(*i).cloned().unwrap_or(e),
            _ => e,
        })
    }
}
