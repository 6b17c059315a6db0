//! Lowers the trees of joins with ON, USING and NATURAL.

use super::Lowerer;
use super::from::Build;
use super::functions::FunctionItem;
use super::outer_join::{Middle, On, Start};
use super::relation::RowOrder;
use super::scope::{Item, Named, Scope};
use crate::error::{Error, Result};
use crate::expr::functions::common_type;
use crate::expr::{Expr, ExprKind};
use crate::syntax::{
    Constraint, FromItem, Ident, Join as AstJoin, JoinSide as Side, Literal, Node, Place, TableKind, TableRef,
};
use std::sync::Arc;

impl Lowerer<'_> {
    pub(super) fn item_of_from(&mut self, t: &FromItem, build: &mut Build) -> Result<Scope> {
        let mut start = Start {
            factor: build.factors.len(),
            conjunct: build.conjuncts.len(),
            later: build.later.len(),
            absorbed: false,
        };
        let mut scope = self.table_ref(&t.first, build)?;
        start.reach(build.factors.len());
        for join in &t.joins {
            scope = stacker::maybe_grow(256 << 10, 4 << 20, || self.join(join, scope, &mut start, build))?;
            self.set_order(RowOrder::Any);
        }
        Ok(scope)
    }

    /// Returns the condition of a join, and the scope of the joined items.
    fn constraint(&mut self, join: &AstJoin, left: Scope, right: Scope) -> Result<(On, Scope)> {
        let both = self.side_by_side(left.clone(), right.clone(), &join.table)?;
        let (terms, scope) = match &join.constraint {
            Constraint::On(e) => {
                let (terms, asked) = self.on(e, &both)?;
                return Ok((On { terms, asked }, both));
            }
            Constraint::Using { columns, alias } => {
                let names: Vec<String> = columns.iter().map(Ident::folded).collect();
                let (terms, scope) = self.merged(join.side, &names, left, right, &join.table)?;
                match alias {
                    None => (terms, scope),
                    Some(alias) => {
                        let merged = scope.star[..names.len()].to_vec();
                        let item = Item::of(Arc::from(alias.folded()), merged);
                        let named = Scope { star: Vec::new(), items: vec![item] };
                        (terms, self.side_by_side(scope, named, &join.table)?)
                    }
                }
            }
            Constraint::Natural => {
                let shared = left.star.iter().filter(|l| right.star.iter().any(|r| r.name == l.name));
                let names: Vec<String> = shared.map(|l| l.name.to_string()).collect();
                self.merged(join.side, &names, left, right, &join.table)?
            }
            Constraint::None => (Vec::new(), both),
        };
        Ok((On { terms, asked: Vec::new() }, scope))
    }

    /// Joins one more item to the factors from `start` on.
    fn join(&mut self, join: &AstJoin, left: Scope, start: &mut Start, build: &mut Build) -> Result<Scope> {
        let (side, constraint) = (join.side, &join.constraint);
        let functions = FunctionItem::of(&join.table);
        if let (Side::Left, Some(f), true) = (side, &functions, is_true(constraint)) {
            let before = self.take_scope();
            self.set_scope(before.clone().and(left.clone()));
            let right = self.functions_or_nulls(f, build);
            self.set_scope(before);
            if let Some(right) = right? {
                start.reach(build.factors.len());
                return self.side_by_side(left, right, &join.table);
            }
        }
        let later = build.later.len();
        let mut middle = (build.factors.len(), build.conjuncts.len());
        let floor = build.floor;
        if side != Side::Inner {
            build.floor = build.factors.len();
        }
        let right = self.right_operand(&join.table, &left, side, build)?;
        build.floor = floor;
        if build.factors.len() <= middle.0 {
            // The items that the right operand uses were merged into one factor. A LATERAL subquery is the
            // next factor after the merged factor. A function is part of the merged factor.
            let own = usize::from(build.links > 0);
            middle = (build.factors.len() - own, build.conjuncts.len() - build.links);
            start.reach(middle.0);
        }
        let (On { terms: on, asked }, scope) = self.constraint(join, left, right)?;
        if side == Side::Inner {
            build.conjuncts.extend(on);
            build.later.extend(asked);
            return Ok(scope);
        }
        let middle = Middle { factor: middle.0, conjunct: middle.1, later };
        self.outer_join(side, On { terms: on, asked }, start, middle, build, &join.table)?;
        Ok(scope)
    }

    /// Lowers the right operand. Inside LATERAL, the left operand and the items before the join are visible.
    fn right_operand(&mut self, t: &TableRef, left: &Scope, side: Side, build: &mut Build) -> Result<Scope> {
        let lateral = match &t.kind {
            TableKind::Named { .. } => false,
            TableKind::Query { lateral, .. } => *lateral,
            TableKind::Nested(_) | TableKind::Functions { .. } => true,
        };
        if !lateral || matches!(side, Side::Right | Side::Full) {
            return self.table_ref(t, build);
        }
        let before = self.take_scope();
        self.set_scope(before.clone().and(left.clone()));
        let right = self.table_ref(t, build);
        self.set_scope(before);
        right
    }

    /// Returns the condition and scope of a join on columns of equal name. The merged column is the left
    /// column; in a RIGHT JOIN it is the right column. In a FULL JOIN the merged value is the first of the
    /// two values that is not NULL. Merged columns come first in `*`.
    fn merged(
        &mut self,
        side: Side,
        names: &[String],
        left: Scope,
        right: Scope,
        place: &TableRef,
    ) -> Result<(Vec<Expr>, Scope)> {
        let (mut on, mut star) = (Vec::new(), Vec::new());
        for name in names {
            let l = self.only(&left, name, "left", place)?;
            let r = self.only(&right, name, "right", place)?;
            let equal = self.compare("=", l.clone(), r.clone());
            on.push(self.located(equal, place)?);
            let types = [l.ty().clone(), r.ty().clone()];
            let Some(ty) = common_type(&types) else {
                let e = format!("JOIN/USING types {} and {} cannot be matched", l.ty(), r.ty());
                return Err(self.at(self.doubt_common(Error::type_mismatch(e), &types), place));
            };
            let (l, r) = (self.coerce(l, &ty)?, self.coerce(r, &ty)?);
            let expr = match side {
                Side::Inner | Side::Left => l,
                Side::Right => r,
                Side::Full => Expr::new(ExprKind::Coalesce(vec![l, r]), ty),
            };
            star.push(Named { name: Arc::from(name.as_str()), expr });
        }
        let rest = |n: &Named| !names.iter().any(|m| **m == *n.name);
        star.extend(left.star.into_iter().filter(rest));
        star.extend(right.star.into_iter().filter(rest));
        let items = left.items.into_iter().chain(right.items).collect();
        Ok((on, Scope { star, items }))
    }

    fn only(&self, scope: &Scope, name: &str, side: &str, place: &impl Place) -> Result<Expr> {
        let mut found = scope.star.iter().filter(|n| &*n.name == name);
        match (found.next(), found.next()) {
            (Some(n), None) => Ok(n.expr.clone()),
            (None, _) => {
                let e = Error::unknown_column(format!(
                    "column \"{name}\" specified in USING clause does not exist in {side} table"
                ));
                let e = super::scope::hint(e, name, scope.star.iter().map(|n| &*n.name));
                Err(self.at(e, place))
            }
            _ => {
                let e = format!("common column name \"{name}\" appears more than once in {side} table");
                Err(self.at(Error::ambiguous(e), place))
            }
        }
    }
}

/// Whether the condition is `ON true`.
fn is_true(constraint: &Constraint) -> bool {
    let Constraint::On(e) = constraint else { return false };
    matches!(e.bare().node, Node::Literal(Literal::Boolean(true)))
}
