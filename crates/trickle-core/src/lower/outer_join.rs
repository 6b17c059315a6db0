//! Makes the outer joins of FROM. Their operands are parts of FROM, which become one part.

use super::Lowerer;
use super::from::{Build, Factor};
use super::on::{DeferredTerm, Operand};
use super::slot::{Slot, shift};
use super::subquery::put;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::graph::NodeId;
use crate::rel::{Map, OuterJoin};
use crate::syntax::{JoinSide as Side, Place};

/// The position in FROM where the left operand of a join begins.
pub(super) struct Start {
    pub(super) factor: usize,
    pub(super) conjunct: usize,
    pub(super) later: usize,
    /// Whether the left operand also contains items from before the join, because a LATERAL subquery or a
    /// condition uses them.
    pub(super) absorbed: bool,
}

impl Start {
    /// Moves the start to the last factor, if the factor at the start was merged into the last factor.
    /// `factors` is the number of factors.
    pub(super) fn reach(&mut self, factors: usize) {
        if let Some(last) = factors.checked_sub(1).filter(|last| *last < self.factor) {
            *self = Start { factor: last, conjunct: 0, absorbed: true, ..*self };
        }
    }
}

/// The position in FROM where the right operand of a join begins.
pub(super) struct Middle {
    pub(super) factor: usize,
    pub(super) conjunct: usize,
    pub(super) later: usize,
}

/// The condition of an outer join, split into terms without and terms with subqueries.
pub(super) struct On {
    pub(super) terms: Vec<Expr>,
    pub(super) asked: Vec<DeferredTerm>,
}

impl Lowerer<'_> {
    /// Replaces the factors from `start` to the end by one factor, an outer join. The factors from `middle`
    /// to the end are its right operand.
    ///
    /// A condition on the operand that is padded with NULLs moves into ON. A condition on the other operand
    /// moves above the join. Neither move changes the result. The left operand of a LEFT JOIN may also absorb
    /// the items before the operand: `X × (L ⟕ R) = (X × L) ⟕ R`.
    pub(super) fn outer_join(
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

    fn stop_unless_direct(&mut self, place: &impl Place, construct: &str) -> Error {
        if self.frames.iter().any(|f| f.direct_failed) {
            return Error::internal("an outer column is not at hand");
        }
        self.stop(place, construct)
    }
}
