//! Rendering of joins between blocks.

use super::ast::{FromItem, JoinKind, Query, Scalar, SelectItem};
use super::condition::{Condition, Pattern};
use super::expr::scalar;
use super::fragment::{Block, Body, Names, Weight};
use super::leaves::one;
use super::render::RenderContext;
use crate::expr::{Expr, ExprKind, IsTest};
use crate::graph::NodeId;

/// The method that finds rows without a partner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// PostgreSQL chooses the method. It may choose an anti-join, which may hash the whole right input.
    AsPlanned,
    /// An index lookup is made for each row. An OFFSET in the subquery keeps PostgreSQL from turning the
    /// subquery into an anti-join.
    ByRow,
}

/// An operand of a join: its block, and the node that the block computes.
type Side = (Block, NodeId);

/// Returns the weight that one operand of an outer join contributes to a row. A missing partner contributes
/// weight 1.
fn padded(weight: Weight) -> Weight {
    if weight.is_one() { weight } else { Weight::of(weight.scalar().coalesce(Scalar::int8(1))) }
}

impl RenderContext<'_> {
    /// Renders each pattern of a condition with `each`, and returns the sum of the results. If there is one
    /// pattern, the result is an open block. If there are several, both operands are read once for each
    /// pattern.
    fn per_pattern(
        &mut self,
        (left, l): Side,
        (right, r): Side,
        on: &Condition,
        names: impl FnOnce(&Self) -> Names,
        mut each: impl FnMut(&mut Self, Side, Side, Pattern) -> Block,
    ) -> Body {
        let columns = |a: &Block, b: &Block| [&*a.columns, &b.columns].concat();
        if on.is_simple() {
            let pattern = on.pattern(0, &columns(&left, &right));
            return Body::Open(each(self, (left, l), (right, r), pattern));
        }
        let (left, right) = (self.shareable(left, l), self.shareable(right, r));
        let mut arms = Vec::new();
        for index in 0..on.patterns() {
            let (a, b) = (self.copy_block(&left), self.copy_block(&right));
            let pattern = on.pattern(index, &columns(&a, &b));
            arms.push(each(self, (a, l), (b, r), pattern));
        }
        let weighted = arms.iter().any(|b| !b.weight.is_one());
        let names = names(self);
        Body::Closed(self.union(arms, names, weighted))
    }

    /// Renders `left ⋈ right`. An operand that reads a change comes first in FROM.
    pub(crate) fn join(&mut self, left: Side, right: Side, on: &Condition) -> Body {
        self.per_pattern(left, right, on, |cx| cx.output(), Self::pairs)
    }

    /// Renders `left ⋉ right` as a join. Each row of `left` must have at most one partner.
    pub(crate) fn join_keeping_left(&mut self, left: Side, right: Side, on: &Condition) -> Body {
        let width = left.0.columns.len();
        self.per_pattern(
            left,
            right,
            on,
            |cx| cx.output(),
            |cx, l, r, pattern| {
                let mut block = cx.pairs(l, r, pattern);
                block.columns.truncate(width);
                block
            },
        )
    }

    fn pairs(&mut self, (left, l): Side, (right, r): Side, pattern: Pattern) -> Block {
        let delta = |id| self.graph().props(id).reads_delta;
        let right_first = delta(r) && !delta(l);
        let (width, right_width) = (left.columns.len(), right.columns.len());
        let mut block = if right_first { right.join(left) } else { left.join(right) };
        if right_first {
            block.columns.rotate_left(right_width);
        }
        debug_assert_eq!(block.columns.len(), width + right_width);
        block.filter.extend(pattern.both.into_iter().chain(pattern.nulls));
        block
    }

    /// Renders the rows of `left` that have a partner in `right`. If `anti`, renders the rows without a
    /// partner.
    pub(crate) fn exists(&mut self, left: Side, right: Side, on: &Condition, anti: bool) -> Body {
        let of = left.1;
        let names = move |cx: &Self| Names::of(cx.graph().schema(of));
        self.per_pattern(left, right, on, names, |_, (mut left, _), (mut right, _), pattern| {
            left.filter.extend(pattern.nulls);
            if anti {
                // A row with a NULL in one of these keys belongs to another pattern.
                left.filter.extend(pattern.not_nulls);
            }
            right.filter.extend(pattern.both);
            let query = Box::new(Query::select(right.select(one())));
            left.filter.push(Scalar::Exists { query, negated: anti });
            left
        })
    }

    /// Renders the rows of `left` that have no partner in `right`. `left` may be large, since it is read only
    /// once, even if keys may be NULL.
    pub(crate) fn unmatched(&mut self, (mut left, _): Side, (right, r): Side, on: &Condition) -> Body {
        let right = self.shareable(right, r);
        let none = self.no_partner(&left.columns, &right, on, Lookup::AsPlanned, |_, _| Vec::new());
        left.filter.extend(none);
        Body::Open(left)
    }

    /// Returns conditions that together say that a row has no partner in `right`. Rows of `right` count as
    /// partners only if they also satisfy `more`. Each pattern has a separate condition, so that a lookup can
    /// test each condition.
    pub(super) fn no_partner(
        &mut self,
        row: &[Scalar],
        right: &Block,
        on: &Condition,
        lookup: Lookup,
        mut more: impl FnMut(&mut Self, &[Scalar]) -> Vec<Scalar>,
    ) -> Vec<Scalar> {
        let mut all = Vec::new();
        for index in 0..on.patterns() {
            let mut right = self.copy_block(right);
            let pattern = on.pattern(index, &[row, &right.columns].concat());
            right.filter.extend(pattern.nulls.into_iter().chain(pattern.both));
            let more = more(self, &right.columns);
            right.filter.extend(more);
            let mut query = Query::select(right.select(one()));
            query.offset = (lookup == Lookup::ByRow).then(|| Scalar::int8(0));
            all.push(Scalar::Exists { query: Box::new(query), negated: true });
        }
        all
    }

    /// Turns the block into an operand that an outer join may pad with NULLs. The columns of such an operand
    /// must be plain columns of a relation. An expression that is computed after the join might not be NULL
    /// in padded rows. A condition with a subquery stays inside the relation, where it is a semi-join of this
    /// operand only.
    fn operand(&mut self, block: Block, of: NodeId) -> Block {
        let simple = |f: &Scalar| !matches!(f, Scalar::Exists { .. } | Scalar::InQuery { .. });
        if block.is_bare() && block.filter.iter().all(simple) { block } else { self.enclosed(block, of) }
    }

    /// Renders `left ⟕ right`. The conditions of `right` become part of ON, and the conditions of `left` stay
    /// in WHERE.
    pub(crate) fn left_join(&mut self, left: Side, right: Side, on: &Condition) -> Body {
        let right = (self.operand(right.0, right.1), right.1);
        let left = if left.0.from.is_empty() { (self.enclosed(left.0, left.1), left.1) } else { left };
        self.per_pattern(
            left,
            right,
            on,
            |cx| cx.output(),
            |_, (mut left, _), (right, _), pattern| {
                left.filter.extend(pattern.nulls);
                left.filter.extend(pattern.not_nulls);
                let on = Scalar::and(right.filter.iter().cloned().chain(pattern.both));
                joined(JoinKind::Left, left, right, on)
            },
        )
    }

    /// Renders `left ⟗ right` for a condition that contains a plain equality between columns. PostgreSQL can
    /// use a hash table for such a condition.
    pub(crate) fn full_join(&mut self, left: Side, right: Side, on: &Condition) -> Body {
        let left = (self.enclosed(left.0, left.1), left.1);
        let right = (self.enclosed(right.0, right.1), right.1);
        self.per_pattern(
            left,
            right,
            on,
            |cx| cx.output(),
            |_, (mut left, _), (right, _), pattern| {
                left.weight = padded(left.weight);
                joined(JoinKind::Full, left, right, Scalar::and(pattern.both))
            },
        )
    }

    /// Renders `left ⟗ right = (left ⟕ right) + NULLs × (right ▷ left)`, which works for every condition.
    /// `swapped` is the condition `on` with the two inputs exchanged.
    pub(crate) fn full_join_by_parts(
        &mut self,
        (left, l): Side,
        (right, r): Side,
        on: &Condition,
        swapped: &Condition,
    ) -> Body {
        let (left, right) = (self.shareable(left, l), self.shareable(right, r));
        let again = ((self.copy_block(&right), r), (self.copy_block(&left), l));
        let with = self.left_join((left, l), (right, r), on);
        let with = self.opened(with);
        let without = self.exists(again.0, again.1, swapped, true);
        let mut without = self.opened(without);
        let nulls = self.graph().schema(l).columns().iter().map(|c| Scalar::null(c.ty.clone()));
        without.columns = nulls.chain(without.columns).collect();
        let weighted = !(with.weight.is_one() && without.weight.is_one());
        let names = self.output();
        Body::Closed(self.union(vec![with, without], names, weighted))
    }
}

/// Joins two blocks into one FROM item. Each block must have FROM items. The conditions of the right block
/// are not used here: the caller puts them into `on`.
fn joined(kind: JoinKind, left: Block, right: Block, on: Scalar) -> Block {
    let from = match (left.tree(), right.tree()) {
        (Some(a), Some(b)) => {
            vec![FromItem::Join { kind, left: Box::new(a), right: Box::new(b), on: Some(on) }]
        }
        (a, b) => a.into_iter().chain(b).collect(),
    };
    let columns = left.columns.into_iter().chain(right.columns).collect();
    Block { from, filter: left.filter, columns, weight: left.weight.times(padded(right.weight)) }
}

/// Returns `(a, …) NOT IN (SELECT b, … FROM right)` for an anti-join with the condition `(a = b AND …) IS NOT
/// FALSE`. Both conditions have the same three-valued logic, but PostgreSQL can use a hash table only for NOT
/// IN. Returns `None` for any other condition.
pub(crate) fn not_in(on: &Expr, left: &[Scalar], right: &Block) -> Option<Scalar> {
    let ExprKind::Is { arg, test: IsTest::False, negated: true } = on.kind() else { return None };
    let width = left.len();
    let columns = [left, &right.columns].concat();
    let mut args = Vec::new();
    let mut items = Vec::new();
    for term in arg.conjuncts() {
        let ExprKind::Call(sig, sides) = term.kind() else { return None };
        let [a, b] = sides.as_slice() else { return None };
        let on_left = |e: &Expr| e.reads_only(|c| c < width);
        let on_right = |e: &Expr| e.reads_only(|c| c >= width);
        let (a, b) = if on_left(a) && on_right(b) { (a, b) } else { (b, a) };
        if !(sig.is_equality() && on_left(a) && on_right(b)) {
            return None;
        }
        args.push(scalar(a, &columns));
        items.push(SelectItem { expr: scalar(b, &columns), name: None });
    }
    if args.is_empty() {
        return None;
    }
    let query = Box::new(Query::select(right.clone().select(items)));
    Some(Scalar::InQuery { args, query, negated: true })
}
