//! The forms of a scalar expression, with their operands.

use super::{Expr, FuncSig, Moment};
use crate::types::Datum;
use std::sync::Arc;

/// The forms of a scalar expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExprKind {
    /// The value of an input column.
    Column(usize),
    /// A constant.
    Literal(Datum),
    /// A time of the refresh, `timestamptz`.
    Clock(Moment),
    /// A function or operator applied to arguments.
    Call(Arc<FuncSig>, Vec<Expr>),
    /// `CAST(e AS type)`. The target type is the type of this expression.
    Cast(Expr),
    /// Three-valued conjunction of at least two terms, which are evaluated from left to right.
    And(Vec<Expr>),
    /// Three-valued disjunction of at least two terms, which are evaluated from left to right.
    Or(Vec<Expr>),
    /// Three-valued negation.
    Not(Expr),
    /// `e IS [NOT] NULL | TRUE | FALSE`
    Is {
        /// The tested expression.
        arg: Expr,
        /// The test.
        test: IsTest,
        /// Whether the test is `IS NOT`.
        negated: bool,
    },
    /// `l IS [NOT] DISTINCT FROM r`: equality in which NULL equals NULL.
    Distinct {
        /// The left operand.
        left: Expr,
        /// The right operand.
        right: Expr,
        /// Whether the comparison is `IS NOT DISTINCT FROM`, which is true where the operands are the same.
        negated: bool,
    },
    /// `CASE WHEN c THEN v … ELSE e END`; a missing ELSE is a NULL literal.
    Case {
        /// Conditions with their values.
        whens: Vec<(Expr, Expr)>,
        /// The value if no condition is true.
        otherwise: Expr,
    },
    /// `COALESCE(…)`: the first argument that is not NULL. Later arguments are not evaluated.
    Coalesce(Vec<Expr>),
    /// `GREATEST(…)` or `LEAST(…)`. Arguments that are NULL are ignored.
    Extreme {
        /// Whether the function is `GREATEST`.
        greatest: bool,
        /// The arguments, all of one type.
        args: Vec<Expr>,
    },
    /// `e op ANY (array)` or `e op ALL (array)`.
    Quantified {
        /// The operator, a signature of two arguments.
        op: Arc<FuncSig>,
        /// The left operand.
        arg: Expr,
        /// The array.
        array: Expr,
        /// Whether the quantifier is `ALL` rather than `ANY`.
        all: bool,
    },
    /// `ARRAY[…]`
    Array(Vec<Expr>),
    /// `ROW(…)`
    Row(Vec<Expr>),
    /// The element of an array at indexes, `array[i][j]…`, or the part of an array between bounds,
    /// `array[l:u][l:u]…`.
    Subscript {
        /// The array.
        array: Expr,
        /// One subscript per dimension, all indexes or all slices.
        at: Vec<Subscript>,
    },
    /// The value of a scalar subquery that has several rows. Evaluating this expression raises 21000.
    ManyRows,
}

/// The test after `IS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsTest {
    /// `IS NULL`
    Null,
    /// `IS TRUE`
    True,
    /// `IS FALSE`
    False,
}

/// A position or a range in one dimension of an array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subscript<T = Expr> {
    /// `[i]`
    Index(T),
    /// `[l:u]`. A bound that is left out is the bound of the array.
    Slice(Option<T>, Option<T>),
}

impl<T> Subscript<T> {
    /// Returns the operands, in order.
    pub fn operands(&self) -> impl Iterator<Item = &T> {
        let (first, second) = match self {
            Subscript::Index(i) => (Some(i), None),
            Subscript::Slice(lower, upper) => (lower.as_ref(), upper.as_ref()),
        };
        first.into_iter().chain(second)
    }
    /// Returns the operands, in order, as mutable references.
    pub fn operands_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let (first, second) = match self {
            Subscript::Index(i) => (Some(i), None),
            Subscript::Slice(lower, upper) => (lower.as_mut(), upper.as_mut()),
        };
        first.into_iter().chain(second)
    }
    /// Returns the same subscript with other operands.
    #[must_use]
    pub fn map<U>(&self, mut f: impl FnMut(&T) -> U) -> Subscript<U> {
        match self {
            Subscript::Index(i) => Subscript::Index(f(i)),
            Subscript::Slice(lower, upper) => {
                Subscript::Slice(lower.as_ref().map(&mut f), upper.as_ref().map(&mut f))
            }
        }
    }
}

/// A key of an ordering.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SortKey {
    /// The expression to order by.
    pub expr: Expr,
    /// Whether the order is `DESC`.
    pub descending: bool,
    /// Whether NULLs come first. By default in PostgreSQL, NULLs are last for ASC and first for DESC.
    pub nulls_first: bool,
}

impl ExprKind {
    /// Calls `f` with each direct operand, in order.
    pub(super) fn operands<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
        match self {
            ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::Clock(_) | ExprKind::ManyRows => {}
            ExprKind::Call(_, args)
            | ExprKind::And(args)
            | ExprKind::Or(args)
            | ExprKind::Coalesce(args)
            | ExprKind::Extreme { args, .. }
            | ExprKind::Array(args)
            | ExprKind::Row(args) => args.iter().for_each(f),
            ExprKind::Cast(e) | ExprKind::Not(e) | ExprKind::Is { arg: e, .. } => f(e),
            ExprKind::Distinct { left, right, .. } => [left, right].into_iter().for_each(f),
            ExprKind::Quantified { arg, array, .. } => [arg, array].into_iter().for_each(f),
            ExprKind::Subscript { array, at } => {
                std::iter::once(array).chain(at.iter().flat_map(Subscript::operands)).for_each(f);
            }
            ExprKind::Case { whens, otherwise } => {
                whens.iter().flat_map(|(c, v)| [c, v]).chain([otherwise]).for_each(f);
            }
        }
    }
}
