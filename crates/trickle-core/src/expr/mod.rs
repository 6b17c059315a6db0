//! Typed scalar expressions over the columns of one input row.
//!
//! Columns are positions. Every node knows its type. No expression is raw SQL text: an unknown function is an
//! [`ExprKind::Call`] with typed arguments, a volatility and a strictness, like any other function.

mod clock;
pub mod evaluate;
mod facts;
mod form;
mod func;
pub mod functions;
mod image;
pub(crate) mod opaque;
mod schema;
mod simplify;

pub use clock::Moment;
pub use form::FormPiece;
pub(crate) use form::spaced;
pub use func::{FuncKind, FuncSig, Volatility};
pub(crate) use image::compare_images;
pub use schema::{Column, Schema};

use crate::hash::hash_of;
use crate::types::{Datum, Type};
use facts::cast_can_raise;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A scalar expression with its type. Copies of an expression share one allocation.
#[derive(Clone)]
pub struct Expr(Arc<Form>);

/// The contents of an expression. Properties that are often needed are derived once, from the properties of
/// the operands.
struct Form {
    kind: ExprKind,
    ty: Type,
    hash: u64,
    volatility: Volatility,
    raises: bool,
    /// Whether [`Expr::simplified`] may change the expression.
    logical: bool,
    /// Whether the expression reads the time of a refresh.
    clock: bool,
    /// The number of nodes of the expression; a shared node counts once for each occurrence.
    size: u32,
}

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        let (a, b) = (&*self.0, &*other.0);
        Arc::ptr_eq(&self.0, &other.0) || (a.hash == b.hash && a.ty == b.ty && a.kind == b.kind)
    }
}
impl Eq for Expr {}
impl Hash for Expr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}
impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expr").field("kind", &self.0.kind).field("ty", &self.0.ty).finish()
    }
}

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
    /// `CAST(e AS type)`; the target type is the type of the expression.
    Cast(Expr),
    /// Three-valued conjunction of at least two terms; evaluated left to right.
    And(Vec<Expr>),
    /// Three-valued disjunction of at least two terms; evaluated left to right.
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
    /// `l IS [NOT] DISTINCT FROM r`: equality under which NULL equals NULL.
    Distinct {
        /// Left side.
        left: Expr,
        /// Right side.
        right: Expr,
        /// Whether the comparison is `IS NOT DISTINCT FROM`, which is true where the sides are the same.
        negated: bool,
    },
    /// `CASE WHEN c THEN v … ELSE e END`; a missing ELSE is a NULL literal.
    Case {
        /// Conditions with their values.
        whens: Vec<(Expr, Expr)>,
        /// The value if no condition is true.
        otherwise: Expr,
    },
    /// `COALESCE(…)`: the first argument that is not NULL; later arguments are not evaluated.
    Coalesce(Vec<Expr>),
    /// `GREATEST(…)`, or `LEAST(…)`; NULLs are ignored.
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
        /// Left side.
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

/// The right side of `IS`.
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
    /// `[l:u]`; a bound that is left out is the bound of the array.
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
    /// Whether NULLs come first. By PostgreSQL's default, NULLs are last for ASC and first for DESC.
    pub nulls_first: bool,
}

impl ExprKind {
    /// Calls `f` with each direct operand, in order.
    fn operands<'a>(&'a self, f: &mut dyn FnMut(&'a Expr)) {
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

impl Expr {
    /// Makes an expression of the given form and type. The caller must make sure that an expression of this
    /// form has type `ty`.
    pub fn new(kind: ExprKind, ty: Type) -> Expr {
        let (mut volatility, mut raises) = (Volatility::Immutable, false);
        match &kind {
            ExprKind::Call(sig, args) => {
                let safe = clock::is_in_range(sig, args) || facts::divides_by_constant(sig, args);
                (volatility, raises) = (sig.volatility, sig.raises && !safe);
            }
            ExprKind::Quantified { op: sig, .. } => {
                (volatility, raises) = (sig.volatility, sig.raises);
            }
            ExprKind::ManyRows => raises = true,
            ExprKind::Cast(from) => {
                volatility = functions::cast_volatility(from.ty(), &ty);
                raises = cast_can_raise(from.ty(), &ty)
                    && !clock::is_now(from)
                    && clock::written_time(from, &ty).is_none();
            }
            _ => {}
        }
        let mut logical = matches!(
            kind,
            ExprKind::Is { .. }
                | ExprKind::Not(_)
                | ExprKind::And(_)
                | ExprKind::Or(_)
                | ExprKind::Case { .. }
                | ExprKind::Coalesce(_)
        );
        let mut clock = matches!(kind, ExprKind::Clock(_));
        let mut size = 1u32;
        kind.operands(&mut |e| {
            size = size.saturating_add(e.0.size);
            volatility = volatility.max(e.0.volatility);
            raises |= e.0.raises;
            logical |= e.0.logical;
            clock |= e.0.clock;
        });
        let hash = hash_of(&(&kind, &ty));
        Expr(Arc::new(Form { kind, ty, hash, volatility, raises, logical, clock, size }))
    }
    /// Returns the number of nodes of the expression. Operands may be shared, but every walk or print of an
    /// expression meets an operand once for each occurrence. The size of `n` nested NULLIFs is therefore
    /// about 2ⁿ.
    pub fn size(&self) -> usize {
        self.0.size as usize
    }
    /// Returns the form of the expression.
    pub fn kind(&self) -> &ExprKind {
        &self.0.kind
    }
    /// Returns the type of the expression.
    pub fn ty(&self) -> &Type {
        &self.0.ty
    }

    /// Makes a reference to input column `index` of type `ty`.
    pub fn column(index: usize, ty: Type) -> Expr {
        Expr::new(ExprKind::Column(index), ty)
    }
    /// Makes a constant of type `ty`.
    pub fn literal(value: Datum, ty: Type) -> Expr {
        Expr::new(ExprKind::Literal(value), ty)
    }
    /// Makes a NULL of type `ty`.
    pub fn null(ty: Type) -> Expr {
        Expr::literal(Datum::Null, ty)
    }
    /// Makes a boolean constant.
    pub fn bool(value: bool) -> Expr {
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
    /// Casts to `ty`; adds no cast to an expression that is of type `ty` already.
    #[must_use]
    pub fn cast(self, ty: Type) -> Expr {
        if *self.ty() == ty { self } else { Expr::new(ExprKind::Cast(self), ty) }
    }
    /// Makes a conjunction. Nested conjunctions are flattened, and a conjunction without terms is TRUE.
    pub fn and(terms: impl IntoIterator<Item = Expr>) -> Expr {
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
    pub fn or(terms: impl IntoIterator<Item = Expr>) -> Expr {
        let mut flat: Vec<Expr> = terms.into_iter().collect();
        match flat.len() {
            0 => Expr::bool(false),
            1 => flat.swap_remove(0),
            _ => Expr::new(ExprKind::Or(flat), Type::Bool),
        }
    }
    /// Makes `NOT self`.
    #[must_use]
    pub fn negated(self) -> Expr {
        Expr::new(ExprKind::Not(self), Type::Bool)
    }
    /// Makes `self IS NULL`.
    #[must_use]
    pub fn is_null(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::Null, negated: false }, Type::Bool)
    }
    /// Makes `self IS NOT NULL`.
    #[must_use]
    pub fn is_not_null(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::Null, negated: true }, Type::Bool)
    }
    /// Makes `self IS TRUE`, for a boolean.
    #[must_use]
    pub fn is_true(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::True, negated: false }, Type::Bool)
    }
    /// Makes `self IS NOT FALSE`, for a boolean.
    #[must_use]
    pub fn is_not_false(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::False, negated: true }, Type::Bool)
    }
    /// Makes `self = other`, SQL's equality, which is NULL if a side is NULL.
    #[must_use]
    pub fn equals(self, other: Expr) -> Expr {
        let sig = FuncSig::comparison("=", self.ty().clone(), other.ty().clone());
        Expr::call(sig, vec![self, other])
    }
    /// Makes `self IS NOT DISTINCT FROM other`, the equality under which rows are the same row.
    #[must_use]
    pub fn same_as(self, other: Expr) -> Expr {
        Expr::new(ExprKind::Distinct { left: self, right: other, negated: true }, Type::Bool)
    }

    /// Returns the terms of a top-level conjunction. Any other expression is its own only term, and TRUE has
    /// none.
    pub fn terms(&self) -> &[Expr] {
        match self.kind() {
            ExprKind::And(terms) => terms,
            ExprKind::Literal(Datum::Bool(true)) => &[],
            _ => std::slice::from_ref(self),
        }
    }
    /// Copies the [`Expr::terms`].
    pub fn conjuncts(&self) -> Vec<Expr> {
        self.terms().to_vec()
    }

    /// Returns the column position, if the expression is a bare column.
    pub fn as_column(&self) -> Option<usize> {
        match self.kind() {
            ExprKind::Column(i) => Some(*i),
            _ => None,
        }
    }
    /// Returns the value, if the expression is a literal.
    pub fn as_literal(&self) -> Option<&Datum> {
        match self.kind() {
            ExprKind::Literal(d) => Some(d),
            _ => None,
        }
    }

    /// Returns the direct operands, in order.
    pub fn children(&self) -> Vec<&Expr> {
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
    pub fn rewrite(&self, f: &mut impl FnMut(Expr) -> Expr) -> Expr {
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
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
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
    pub fn map_columns(&self, mut map: impl FnMut(usize) -> usize) -> Expr {
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
    pub fn shifted(&self, by: usize) -> Expr {
        if by == 0 { self.clone() } else { self.map_columns(|i| i + by) }
    }

    /// Replaces each column `i` by `exprs[i]`, which composes two maps.
    #[must_use]
    pub fn substitute(&self, exprs: &[Expr]) -> Expr {
        self.rewrite(&mut |e| match e.kind() {
            ExprKind::Column(i) => exprs.get(*i).cloned().unwrap_or(e),
            _ => e,
        })
    }
}
