//! Typed scalar expressions over the columns of one input row.
//!
//! Columns are positions. Every node knows its type. There is no raw text: an unknown function is an
//! [`ExprKind::Call`] with typed arguments, a volatility and a strictness like any other.

mod func;
pub mod functions;
mod simplify;

pub use func::{FuncKind, FuncSig, Volatility};

use crate::graph::Schema;
use crate::types::{Datum, Type};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A scalar expression: what it computes and its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expr {
    kind: Arc<ExprKind>,
    ty: Type,
}

/// The forms of a scalar expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExprKind {
    /// The value of an input column.
    Column(usize),
    /// A constant.
    Literal(Datum),
    /// A function or operator applied to arguments.
    Call(Arc<FuncSig>, Vec<Expr>),
    /// `CAST(e AS type)`; the target is the node's type.
    Cast(Expr),
    /// Three-valued conjunction of at least two terms; evaluated left to right.
    And(Vec<Expr>),
    /// Three-valued disjunction of at least two terms; evaluated left to right.
    Or(Vec<Expr>),
    /// Three-valued negation.
    Not(Expr),
    /// `e IS [NOT] NULL | TRUE | FALSE`
    Is {
        /// What is tested.
        arg: Expr,
        /// Against what.
        test: IsTest,
        /// `IS NOT`.
        negated: bool,
    },
    /// `l IS [NOT] DISTINCT FROM r`: equality under which NULL equals NULL.
    Distinct {
        /// Left side.
        left: Expr,
        /// Right side.
        right: Expr,
        /// `IS NOT DISTINCT FROM`: true where the sides are the same.
        negated: bool,
    },
    /// `CASE WHEN c THEN v … ELSE e END`; a missing ELSE is a NULL literal.
    Case {
        /// Conditions with their values.
        whens: Vec<(Expr, Expr)>,
        /// The value where no condition is true.
        otherwise: Expr,
    },
    /// `COALESCE(…)`: the first that is not NULL; later ones are not evaluated.
    Coalesce(Vec<Expr>),
    /// `GREATEST(…)`, or `LEAST(…)`; NULLs are ignored.
    Extreme {
        /// `GREATEST`.
        greatest: bool,
        /// The candidates, of one type.
        args: Vec<Expr>,
    },
    /// `e op ANY (array)` or `e op ALL (array)`.
    Quantified {
        /// The comparison, a call signature of two arguments.
        op: Arc<FuncSig>,
        /// Left side.
        arg: Expr,
        /// The array.
        array: Expr,
        /// `ALL` rather than `ANY`.
        all: bool,
    },
    /// `ARRAY[…]`
    Array(Vec<Expr>),
    /// `ROW(…)`
    Row(Vec<Expr>),
    /// `array[index]`
    Subscript(Expr, Expr),
    /// What a scalar subquery of several rows is worth: whatever evaluates it raises 21000.
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

/// One key of an ordering.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SortKey {
    /// What to order by.
    pub expr: Expr,
    /// `DESC`.
    pub descending: bool,
    /// `NULLS FIRST`; PostgreSQL's default is last for ASC, first for DESC.
    pub nulls_first: bool,
}

impl Expr {
    /// An expression of the given form and type. Callers keep the two consistent.
    pub fn new(kind: ExprKind, ty: Type) -> Expr {
        Expr { kind: Arc::new(kind), ty }
    }
    /// The form.
    pub fn kind(&self) -> &ExprKind {
        &self.kind
    }
    /// The type.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// Input column `index` of type `ty`.
    pub fn column(index: usize, ty: Type) -> Expr {
        Expr::new(ExprKind::Column(index), ty)
    }
    /// A constant of type `ty`.
    pub fn literal(value: Datum, ty: Type) -> Expr {
        Expr::new(ExprKind::Literal(value), ty)
    }
    /// NULL of type `ty`.
    pub fn null(ty: Type) -> Expr {
        Expr::literal(Datum::Null, ty)
    }
    /// A boolean constant.
    pub fn bool(value: bool) -> Expr {
        Expr::literal(Datum::Bool(value), Type::Bool)
    }
    /// A `bigint` constant.
    pub fn int8(value: i64) -> Expr {
        Expr::literal(Datum::Int(value), Type::Int8)
    }
    /// A call; its type is the signature's return type.
    pub fn call(sig: Arc<FuncSig>, args: Vec<Expr>) -> Expr {
        let ty = sig.ret.clone();
        Expr::new(ExprKind::Call(sig, args), ty)
    }
    /// A cast to `ty`; none where the type is that already.
    #[must_use]
    pub fn cast(self, ty: Type) -> Expr {
        if self.ty == ty { self } else { Expr::new(ExprKind::Cast(self), ty) }
    }
    /// Conjunction; nested conjunctions are flattened, none is TRUE.
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
    /// Disjunction; none is FALSE.
    pub fn or(terms: impl IntoIterator<Item = Expr>) -> Expr {
        let mut flat: Vec<Expr> = terms.into_iter().collect();
        match flat.len() {
            0 => Expr::bool(false),
            1 => flat.swap_remove(0),
            _ => Expr::new(ExprKind::Or(flat), Type::Bool),
        }
    }
    /// Negation.
    #[must_use]
    pub fn negated(self) -> Expr {
        Expr::new(ExprKind::Not(self), Type::Bool)
    }
    /// `self IS NULL`
    #[must_use]
    pub fn is_null(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::Null, negated: false }, Type::Bool)
    }
    /// `self IS NOT NULL`
    #[must_use]
    pub fn is_not_null(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::Null, negated: true }, Type::Bool)
    }
    /// `self IS NOT FALSE`, for a boolean.
    #[must_use]
    pub fn is_not_false(self) -> Expr {
        Expr::new(ExprKind::Is { arg: self, test: IsTest::False, negated: true }, Type::Bool)
    }
    /// `self = other` under SQL equality: NULL where a side is NULL.
    #[must_use]
    pub fn equals(self, other: Expr) -> Expr {
        let sig = FuncSig::comparison("=", self.ty.clone(), other.ty.clone());
        Expr::call(sig, vec![self, other])
    }
    /// `self IS NOT DISTINCT FROM other`: the equality under which rows are the same row.
    #[must_use]
    pub fn same_as(self, other: Expr) -> Expr {
        Expr::new(ExprKind::Distinct { left: self, right: other, negated: true }, Type::Bool)
    }

    /// The terms of the top-level conjunction (the expression itself where it is none; empty for TRUE).
    pub fn conjuncts(&self) -> Vec<Expr> {
        match self.kind() {
            ExprKind::And(terms) => terms.clone(),
            ExprKind::Literal(Datum::Bool(true)) => Vec::new(),
            _ => vec![self.clone()],
        }
    }

    /// The column position, where this is a bare column.
    pub fn as_column(&self) -> Option<usize> {
        match self.kind() {
            ExprKind::Column(i) => Some(*i),
            _ => None,
        }
    }
    /// The value, where this is a constant.
    pub fn as_literal(&self) -> Option<&Datum> {
        match self.kind() {
            ExprKind::Literal(d) => Some(d),
            _ => None,
        }
    }

    /// The direct operands, in order.
    pub fn children(&self) -> Vec<&Expr> {
        match self.kind() {
            ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::ManyRows => Vec::new(),
            ExprKind::Call(_, args)
            | ExprKind::And(args)
            | ExprKind::Or(args)
            | ExprKind::Coalesce(args)
            | ExprKind::Extreme { args, .. }
            | ExprKind::Array(args)
            | ExprKind::Row(args) => args.iter().collect(),
            ExprKind::Cast(e) | ExprKind::Not(e) | ExprKind::Is { arg: e, .. } => vec![e],
            ExprKind::Distinct { left, right, .. } => vec![left, right],
            ExprKind::Quantified { arg, array, .. } => vec![arg, array],
            ExprKind::Subscript(a, i) => vec![a, i],
            ExprKind::Case { whens, otherwise } => {
                whens.iter().flat_map(|(c, v)| [c, v]).chain([otherwise]).collect()
            }
        }
    }

    /// The same form with other operands (as many as [`Expr::children`] gave).
    pub(crate) fn with_children(&self, new: Vec<Expr>) -> Expr {
        let mut it = new.into_iter();
        let mut next = |old: &Expr| it.next().unwrap_or_else(|| old.clone());
        let kind = match self.kind() {
            ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::ManyRows => return self.clone(),
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
            ExprKind::Subscript(a, i) => ExprKind::Subscript(next(a), next(i)),
            ExprKind::Case { whens, otherwise } => ExprKind::Case {
                whens: whens.iter().map(|(c, v)| (next(c), next(v))).collect(),
                otherwise: next(otherwise),
            },
        };
        Expr::new(kind, self.ty.clone())
    }

    /// Rewrites bottom-up: operands first, then `f` on the node that holds them.
    pub fn rewrite(&self, f: &mut impl FnMut(Expr) -> Expr) -> Expr {
        stacker::maybe_grow(64 * 1024, 1024 * 1024, || {
            let children: Vec<Expr> = self.children().into_iter().map(|c| c.rewrite(f)).collect();
            f(if children.is_empty() { self.clone() } else { self.with_children(children) })
        })
    }

    /// Visits every node, parents first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        stacker::maybe_grow(64 * 1024, 1024 * 1024, || {
            f(self);
            for c in self.children() {
                c.visit(f);
            }
        });
    }

    /// Replaces each column `i` by `map(i)`.
    #[must_use]
    pub fn map_columns(&self, mut map: impl FnMut(usize) -> usize) -> Expr {
        self.rewrite(&mut |e| match e.kind() {
            ExprKind::Column(i) => Expr::column(map(*i), e.ty.clone()),
            _ => e,
        })
    }

    /// Moves every column by `by` positions to the right.
    #[must_use]
    pub fn shifted(&self, by: usize) -> Expr {
        if by == 0 { self.clone() } else { self.map_columns(|i| i + by) }
    }

    /// Replaces each column `i` by `exprs[i]`: composes two maps.
    #[must_use]
    pub fn substitute(&self, exprs: &[Expr]) -> Expr {
        self.rewrite(&mut |e| match e.kind() {
            ExprKind::Column(i) => exprs.get(*i).cloned().unwrap_or(e),
            _ => e,
        })
    }

    /// The input columns it reads.
    pub fn columns(&self) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        self.visit(&mut |e| {
            if let ExprKind::Column(i) = e.kind() {
                found.insert(*i);
            }
        });
        found
    }

    /// The most volatile function or cast inside.
    pub fn volatility(&self) -> Volatility {
        let mut v = Volatility::Immutable;
        self.visit(&mut |e| match e.kind() {
            ExprKind::Call(sig, _) | ExprKind::Quantified { op: sig, .. } => v = v.max(sig.volatility),
            ExprKind::Cast(from) => v = v.max(functions::cast_volatility(from.ty(), e.ty())),
            _ => {}
        });
        v
    }

    /// Whether evaluating it can raise an error for some input (division, overflow, casts from text, unknown
    /// calls, a second row).
    pub fn can_raise(&self) -> bool {
        let mut raises = false;
        self.visit(&mut |e| match e.kind() {
            ExprKind::Call(sig, _) | ExprKind::Quantified { op: sig, .. } => raises |= sig.raises,
            ExprKind::Cast(from) => raises |= cast_can_raise(from.ty(), e.ty()),
            ExprKind::ManyRows => raises = true,
            _ => {}
        });
        raises
    }

    /// Whether the value may be NULL on rows of `input`.
    pub fn nullable(&self, input: &Schema) -> bool {
        match self.kind() {
            ExprKind::Column(i) => input.column(*i).is_none_or(|c| c.nullable),
            ExprKind::Literal(d) => d.is_null(),
            ExprKind::Is { .. } | ExprKind::Distinct { .. } | ExprKind::Array(_) | ExprKind::Row(_) => false,
            ExprKind::Call(sig, args) => !sig.never_null || args.iter().any(|a| a.nullable(input)),
            ExprKind::Cast(e) | ExprKind::Not(e) => e.nullable(input),
            ExprKind::And(args) | ExprKind::Or(args) => args.iter().any(|a| a.nullable(input)),
            ExprKind::Coalesce(args) | ExprKind::Extreme { args, .. } => {
                args.iter().all(|a| a.nullable(input))
            }
            ExprKind::Case { whens, otherwise } => {
                otherwise.nullable(input) || whens.iter().any(|(_, v)| v.nullable(input))
            }
            ExprKind::Quantified { .. } | ExprKind::Subscript(..) | ExprKind::ManyRows => true,
        }
    }

    /// The number of fractional digits that every non-NULL value of this numeric expression is written with, where
    /// that is a constant of the plan. Sums of such values can be added and subtracted without trace.
    ///
    /// `numeric(p,s)` columns have `s`; `+`, `−` the larger, `*` the sum of their operands' (PostgreSQL's numeric
    /// rules, src/backend/utils/adt/numeric.c); integers 0.
    pub fn fixed_scale(&self) -> Option<u16> {
        if self.ty.is_integer() {
            return Some(0);
        }
        if !matches!(self.ty, Type::Numeric(_)) {
            return None;
        }
        if let Type::Numeric(Some((_, s))) = self.ty {
            return u16::try_from(s).ok();
        }
        match self.kind() {
            ExprKind::Literal(Datum::Numeric(n)) => match &**n {
                crate::types::Numeric::Finite { scale, .. } => Some(*scale),
                _ => None,
            },
            ExprKind::Cast(e) if e.ty.is_integer() || matches!(e.ty, Type::Numeric(_)) => e.fixed_scale(),
            ExprKind::Call(sig, args) if sig.is_operator() && args.len() == 2 => {
                let (l, r) = (args[0].fixed_scale()?, args[1].fixed_scale()?);
                match &*sig.name {
                    "+" | "-" => Some(l.max(r)),
                    "*" => l.checked_add(r).filter(|s| *s <= 1000),
                    _ => None,
                }
            }
            ExprKind::Case { whens, otherwise } => {
                let mut values = whens
                    .iter()
                    .map(|(_, v)| v)
                    .chain([otherwise])
                    .filter(|v| !matches!(v.as_literal(), Some(Datum::Null)));
                let first = values.next()?.fixed_scale()?;
                values.all(|v| v.fixed_scale() == Some(first)).then_some(first)
            }
            ExprKind::Coalesce(args) => {
                let first = args.first()?.fixed_scale()?;
                args.iter().all(|v| v.fixed_scale() == Some(first)).then_some(first)
            }
            _ => None,
        }
    }
}

/// Whether a cast between these types can fail for some value.
fn cast_can_raise(from: &Type, to: &Type) -> bool {
    match (from, to) {
        (Type::Int2, Type::Int4 | Type::Int8) | (Type::Int4, Type::Int8) => false,
        (f, Type::Numeric(None) | Type::Float8) if f.is_integer() => false,
        (Type::Numeric(_), Type::Numeric(None)) => false,
        (Type::Float4, Type::Float8) | (Type::Date, Type::Timestamp) => false,
        (_, Type::Text | Type::Varchar(None)) => matches!(from, Type::Other(_)),
        (f, t) => f.base() != t.base() || matches!(t, Type::Numeric(Some(_))),
    }
}
