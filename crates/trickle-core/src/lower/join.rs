//! Lowers joins: trees with ON, USING and NATURAL, and the order in which a list of items is joined.

use super::Lowerer;
use super::from::{Build, Factor};
use super::functions::FunctionItem;
use super::on::{DeferredTerm, Operand};
use super::relation::RowOrder;
use super::scope::{Item, Named, Scope};
use super::slot::{Slot, shift};
use super::subquery::put;
use crate::error::{Error, Result};
use crate::expr::functions::common_type;
use crate::expr::{Expr, ExprKind};
use crate::graph::NodeId;
use crate::rel::{Filter, Join, Map, OuterJoin};
use crate::syntax::{
    Constraint, FromItem, Ident, Join as AstJoin, JoinSide as Side, Literal, Node, Place, TableKind, TableRef,
};
use std::sync::Arc;

/// The position in FROM where the left operand of a join begins.
struct Start {
    factor: usize,
    conjunct: usize,
    later: usize,
    /// Whether the left operand also contains items from before the join, because a LATERAL subquery or a
    /// condition uses them.
    absorbed: bool,
}

/// The position in FROM where the right operand of a join begins.
struct Middle {
    factor: usize,
    conjunct: usize,
    later: usize,
}

/// The condition of an outer join, split into terms without and terms with subqueries.
struct On {
    terms: Vec<Expr>,
    asked: Vec<DeferredTerm>,
}

impl Start {
    /// Moves the start to the last factor, if the factor at the start was merged into the last factor.
    /// `factors` is the number of factors.
    fn reach(&mut self, factors: usize) {
        if let Some(last) = factors.checked_sub(1).filter(|last| *last < self.factor) {
            *self = Start { factor: last, conjunct: 0, absorbed: true, ..*self };
        }
    }
}

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

    /// Replaces the factors from `start` to the end by one factor, an outer join. The factors from `middle`
    /// to the end are its right operand.
    ///
    /// A condition on the operand that is padded with NULLs moves into ON. A condition on the other operand
    /// moves above the join. Neither move changes the result. The left operand of a LEFT JOIN may also absorb
    /// the items before the operand: `X × (L ⟕ R) = (X × L) ⟕ R`.
    fn outer_join(
        &mut self,
        side: Side,
        on: On,
        start: &mut Start,
        middle: Middle,
        build: &mut Build,
        place: &impl Place,
    ) -> Result<()> {
        if start.absorbed && side != Side::Left {
            return Err(self.stop_unless_direct(place, "a RIGHT or FULL JOIN after LATERAL"));
        }
        let mut right_later = build.later.split_off(middle.later);
        let mut left_later = Vec::new();
        match side {
            Side::Right => {
                left_later = build.later.split_off(start.later);
                build.later.append(&mut right_later);
            }
            Side::Full => left_later = build.later.split_off(start.later),
            _ => {}
        }
        let right_conjuncts = build.conjuncts.split_off(middle.conjunct);
        let right_factors = build.factors.split_off(middle.factor);
        if side == Side::Left {
            let used = on.terms.iter().chain(&right_conjuncts).flat_map(Expr::columns);
            let used = used.chain(on.asked.iter().chain(&right_later).flat_map(DeferredTerm::columns));
            let first = used.filter_map(|c| build.factors.iter().rposition(|f| f.holds(c))).min();
            if first.is_some_and(|f| f < start.factor) {
                *start = Start { factor: first.unwrap_or(0), conjunct: 0, absorbed: true, ..*start };
            }
        }
        let left_conjuncts = build.conjuncts.split_off(start.conjunct.min(build.conjuncts.len()));
        let left_factors = build.factors.split_off(start.factor);
        let (left, left_rest, left_open) = self.operand(&left_factors, left_conjuncts, left_later)?;
        let (right, right_rest, right_open) = self.operand(&right_factors, right_conjuncts, right_later)?;
        let asked: Vec<DeferredTerm> = left_open.into_iter().chain(right_open).chain(on.asked).collect();
        let (padded, kept) = match side {
            Side::Right => (left_rest, right_rest),
            Side::Full => (left_rest.into_iter().chain(right_rest).collect(), Vec::new()),
            _ => (right_rest, left_rest),
        };
        let whole = left.offset..right.offset + right.width;
        let full = side == Side::Full && !padded.is_empty();
        let terms: Vec<Expr> = on.terms.into_iter().chain(padded).collect();
        let apart = terms.iter().any(|e| !e.columns().iter().all(|c| whole.contains(c)));
        if full || apart || asked.iter().any(|l| !l.within(whole.clone())) {
            if let Some(f) = self.frames.last_mut() {
                f.direct_failed |= f.direct;
            }
            return Err(self.stop_unless_direct(place, "an outer join on columns of an enclosing query"));
        }
        let node = self.outer_join_of(side, [left, right], terms, asked)?;
        build.factors.push(Factor { node, offset: whole.start, width: whole.len() });
        build.conjuncts.extend(kept);
        Ok(())
    }

    /// Joins the factors of one operand into one relation. Returns the relation, and the conditions and terms
    /// that also read columns outside the operand.
    fn operand(
        &mut self,
        factors: &[Factor],
        conjuncts: Vec<Expr>,
        later: Vec<DeferredTerm>,
    ) -> Result<(Operand, Vec<Expr>, Vec<DeferredTerm>)> {
        let Some(first) = factors.first() else { return Err(Error::internal("a join without operands")) };
        let (mut node, rest) = self.join_all(factors, conjuncts)?;
        let width = self.graph.schema(node).len();
        let whole = first.offset..first.offset + width;
        let (own, open): (Vec<DeferredTerm>, Vec<DeferredTerm>) =
            later.into_iter().partition(|l| l.within(whole.clone()));
        for term in &own {
            node = self.filter_later(node, term, first.offset)?;
        }
        Ok((Operand { node, offset: first.offset, width }, rest, open))
    }

    /// Makes the outer join of two operands. The terms of its condition are over the columns of FROM. The
    /// output has the columns of the left operand, then those of the right operand.
    fn outer_join_of(
        &mut self,
        side: Side,
        mut operands: [Operand; 2],
        terms: Vec<Expr>,
        asked: Vec<DeferredTerm>,
    ) -> Result<NodeId> {
        let padded = match side {
            Side::Right => Some(0),
            Side::Full => None,
            _ => Some(1),
        };
        let mut placed = Vec::new();
        for term in &asked {
            match padded.map(|p| &mut operands[p]) {
                Some(o) if term.within(o.offset..o.offset + o.width) => {
                    o.node = self.filter_later(o.node, term, o.offset)?;
                }
                _ => placed.push(self.place_later(term, &mut operands)?),
            }
        }
        // A term that reads only the padded operand can filter this operand. A term that reads the clock must
        // become such a filter, since a join cannot read the clock.
        let mut terms = terms;
        if let Some(o) = padded.map(|p| &mut operands[p]) {
            let own = |e: &Expr| e.reads_clock() && e.columns().iter().all(|c| o.holds(*c));
            let (timed, rest): (Vec<Expr>, Vec<Expr>) = terms.into_iter().partition(own);
            let timed = Expr::and(timed.iter().map(|e| shift(e, -(o.offset as isize))));
            o.node = self.filter_plain(o.node, timed)?;
            terms = rest;
        }
        let [left, right] = operands;
        let (lw, rw) = (self.graph.schema(left.node).len(), self.graph.schema(right.node).len());
        let position = |c: usize| if c < right.offset { c - left.offset } else { c - right.offset + lw };
        let mut on: Vec<Expr> = terms.iter().map(|e| e.map_columns(position)).collect();
        for (term, values) in placed {
            let values: Vec<Expr> =
                values.into_iter().map(|(side, v)| if side == 0 { v } else { v.shifted(lw) }).collect();
            let over = |c: usize| match Slot::of(c) {
                Slot::Column(c) => position(c),
                _ => c,
            };
            on.push(put(&term.map_columns(over), &values));
        }
        let on = Expr::and(on);
        let (node, first) = match side {
            Side::Left | Side::Inner => (self.add(OuterJoin::left(left.node, right.node, on))?, lw),
            Side::Full => (self.add(OuterJoin::full(left.node, right.node, on))?, lw),
            Side::Right => {
                let on = on.map_columns(|i| if i < lw { i + rw } else { i - lw });
                (self.add(OuterJoin::left(right.node, left.node, on))?, rw)
            }
        };
        let (l, r) = if side == Side::Right { (first, 0) } else { (0, first) };
        let order: Vec<usize> = (l..l + left.width).chain(r..r + right.width).collect();
        let schema = self.graph.schema(node).clone();
        if order.len() == schema.len() && order.iter().enumerate().all(|(i, c)| i == *c) {
            return Ok(node);
        }
        self.add(Map::columns(node, &schema, &order))
    }

    pub(super) fn stop_unless_direct(&mut self, place: &impl Place, construct: &str) -> Error {
        if self.frames.iter().any(|f| f.direct_failed) {
            return Error::internal("an outer column is not at hand");
        }
        self.stop(place, construct)
    }

    /// Joins all factors from `first` to the end into one.
    pub(super) fn merge(&mut self, build: &mut Build, first: usize) -> Result<()> {
        let factors = build.factors.split_off(first);
        let Some(offset) = factors.first().map(|f| f.offset) else { return Ok(()) };
        // Constant conditions stay in the list, so that the other conditions keep their order.
        let all = std::mem::take(&mut build.conjuncts);
        let fits = |e: &Expr| {
            !e.columns().is_empty() && e.columns().iter().all(|c| factors.iter().any(|f| f.holds(*c)))
        };
        let (fitting, rest): (Vec<Expr>, Vec<Expr>) = all.into_iter().partition(fits);
        build.conjuncts = rest;
        let (node, _) = self.join_all(&factors, fitting)?;
        let width = self.graph.schema(node).len();
        build.factors.push(Factor { node, offset, width });
        Ok(())
    }

    /// Joins neighbouring factors. A condition on one factor filters this factor. Any other condition is
    /// applied by the first join that has all its columns. A factor is joined before others if a condition
    /// links it to the factors joined so far. Columns keep their order. Returns the conditions that read
    /// columns outside the list.
    pub(super) fn join_all(
        &mut self,
        factors: &[Factor],
        conjuncts: Vec<Expr>,
    ) -> Result<(NodeId, Vec<Expr>)> {
        let Some(base) = factors.first().map(|f| f.offset) else {
            return Err(Error::internal("a join of nothing"));
        };
        let end = factors.last().map_or(base, |f| f.offset + f.width);
        let mut plan = Plan::default();
        let mut rest = Vec::new();
        for e in conjuncts {
            let columns = e.columns();
            if !columns.iter().all(|c| (base..end).contains(c)) {
                rest.push(e);
                continue;
            }
            let mut touched: Vec<usize> = columns
                .iter()
                .filter_map(|c| {
                    factors.iter().rposition(|f| f.offset <= *c && f.width > 0 && *c < f.offset + f.width)
                })
                .collect();
            touched.dedup();
            match touched.as_slice() {
                [] => plan.constant.push(e),
                [one] => plan.own.entry(*one).or_default().push(e),
                _ => plan.pending.push((touched, e)),
            }
        }
        let node = self.join_in_order(factors, plan)?;
        Ok((node, rest))
    }

    fn join_in_order(&mut self, factors: &[Factor], mut plan: Plan) -> Result<NodeId> {
        let base = factors.first().map_or(0, |f| f.offset);
        let width: usize = factors.iter().map(|f| f.width).sum();
        let mut place = vec![0usize; width];
        let mut done = vec![false; factors.len()];
        let mut current: Option<(NodeId, usize)> = None;
        for _ in 0..factors.len() {
            let next = current.and_then(|_| plan.linked(&done)).or_else(|| done.iter().position(|d| !d));
            let Some(i) = next else { break };
            done[i] = true;
            let f = &factors[i];
            let own = plan.own.remove(&i).unwrap_or_default();
            let own = Expr::and(own.iter().map(|e| shift(e, -(f.offset as isize))));
            let node = self.filter_plain(f.node, own)?;
            let (joined, filled) = match current {
                None => (node, 0),
                Some((left, filled)) => {
                    for c in 0..f.width {
                        place[f.offset - base + c] = filled + c;
                    }
                    let on = plan.take(&done);
                    let on = on.iter().map(|e| e.map_columns(|c| place[c - base]));
                    let (timed, on): (Vec<Expr>, Vec<Expr>) = on.partition(Expr::reads_clock);
                    let joined = self.add(Join::new(left, node, Expr::and(on)))?;
                    (self.filter_plain(joined, Expr::and(timed))?, filled)
                }
            };
            for c in 0..f.width {
                place[f.offset - base + c] = filled + c;
            }
            current = Some((joined, filled + f.width));
        }
        let Some((node, _)) = current else { return Err(Error::internal("a join of nothing")) };
        let node = if place.iter().enumerate().all(|(i, p)| i == *p) {
            node
        } else {
            let schema = self.graph.schema(node).clone();
            self.add(Map::columns(node, &schema, &place))?
        };
        self.filter_plain(node, Expr::and(plan.constant))
    }

    pub(super) fn filter_plain(&mut self, node: NodeId, condition: Expr) -> Result<NodeId> {
        match condition.as_literal() {
            Some(crate::types::Datum::Bool(true)) => Ok(node),
            _ => self.add(Filter::new(node, condition)),
        }
    }
}

/// Whether the condition is `ON true`.
fn is_true(constraint: &Constraint) -> bool {
    let Constraint::On(e) = constraint else { return false };
    matches!(e.bare().node, Node::Literal(Literal::Boolean(true)))
}

/// The conditions of a list of factors, sorted by the place where each is applied.
#[derive(Default)]
struct Plan {
    constant: Vec<Expr>,
    own: std::collections::HashMap<usize, Vec<Expr>>,
    pending: Vec<(Vec<usize>, Expr)>,
}

impl Plan {
    /// Returns the first factor that a condition links to the factors joined so far. The condition must read
    /// no other factor that is still to be joined.
    fn linked(&self, done: &[bool]) -> Option<usize> {
        let missing = |t: &[usize]| -> Option<usize> {
            let mut open = t.iter().filter(|i| !done[**i]);
            let one = open.next()?;
            open.next().is_none().then_some(*one)
        };
        self.pending.iter().filter_map(|(t, _)| missing(t)).min()
    }

    /// Removes and returns the pending conditions whose columns all belong to factors joined so far.
    fn take(&mut self, done: &[bool]) -> Vec<Expr> {
        let (ready, pending) =
            std::mem::take(&mut self.pending).into_iter().partition(|(t, _)| t.iter().all(|i| done[*i]));
        self.pending = pending;
        let ready: Vec<(Vec<usize>, Expr)> = ready;
        ready.into_iter().map(|(_, e)| e).collect()
    }
}
