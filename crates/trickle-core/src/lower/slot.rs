//! Positions that stand for columns, and for values that later steps of lowering join to the relation, such
//! as aggregates and subqueries.

use crate::expr::Expr;
use crate::types::Type;

/// The bit of a column position that stands for an aggregate call. Such a position is a placeholder for a
/// value that is joined later.
const AGGREGATE: usize = 1 << (usize::BITS - 2);

/// The bit of a position that stands for a subquery.
const SUBQUERY: usize = 1 << (usize::BITS - 3);

/// The bit of a position that stands for a column of the enclosing query.
const OUTER: usize = 1 << (usize::BITS - 4);

/// The bit of a position that stands for a window function call.
const WINDOW: usize = 1 << (usize::BITS - 5);

/// The bit of a position that stands for a call of GROUPING.
const GROUPING: usize = 1 << (usize::BITS - 6);

/// The bit of a position that stands for a column of a set-returning call.
const SET: usize = 1 << (usize::BITS - 7);

/// The number of bits, in a position with bit [`SET`], for the number of the column.
const SET_COLUMN: u32 = 12;

/// The meaning of a column position, which may be a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// A column of the current relation.
    Column(usize),
    /// The n-th aggregate call of the clause.
    Aggregate(usize),
    /// The n-th subquery of the clause.
    Subquery(usize),
    /// A column of the enclosing query's relation.
    Outer(usize),
    /// The n-th window function call of the clause.
    Window(usize),
    /// The n-th GROUPING of the clause.
    Grouping(usize),
    /// A column of the n-th set-returning call of the clause.
    Set(usize, usize),
}

impl Slot {
    pub(super) fn of(position: usize) -> Slot {
        match position {
            p if p & AGGREGATE != 0 => Slot::Aggregate(p & !AGGREGATE),
            p if p & SUBQUERY != 0 => Slot::Subquery(p & !SUBQUERY),
            p if p & OUTER != 0 => Slot::Outer(p & !OUTER),
            p if p & WINDOW != 0 => Slot::Window(p & !WINDOW),
            p if p & GROUPING != 0 => Slot::Grouping(p & !GROUPING),
            p if p & SET != 0 => {
                let at = p & !SET;
                Slot::Set(at >> SET_COLUMN, at & ((1 << SET_COLUMN) - 1))
            }
            p => Slot::Column(p),
        }
    }
    pub(super) fn expr(self, ty: Type) -> Expr {
        Expr::column(
            match self {
                Slot::Column(i) => i,
                Slot::Aggregate(i) => AGGREGATE | i,
                Slot::Subquery(i) => SUBQUERY | i,
                Slot::Outer(i) => OUTER | i,
                Slot::Window(i) => WINDOW | i,
                Slot::Grouping(i) => GROUPING | i,
                Slot::Set(i, column) => SET | i << SET_COLUMN | column,
            },
            ty,
        )
    }
}

/// Whether an expression reads a column of the enclosing query directly.
pub(super) fn reads_outer(e: &Expr) -> bool {
    e.columns().iter().any(|c| matches!(Slot::of(*c), Slot::Outer(_)))
}

/// Moves the real columns by `by`; placeholders stay.
pub(super) fn shift(e: &Expr, by: isize) -> Expr {
    if by == 0 {
        return e.clone();
    }
    e.map_columns(|c| match Slot::of(c) {
        Slot::Column(c) => c.wrapping_add_signed(by),
        _ => c,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_round_trip() {
        for s in [Slot::Column(3), Slot::Aggregate(0), Slot::Subquery(7), Slot::Outer(1), Slot::Window(2)] {
            assert_eq!(Slot::of(s.expr(Type::Bool).as_column().unwrap()), s);
        }
    }
}
