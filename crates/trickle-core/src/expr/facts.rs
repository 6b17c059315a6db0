//! What is known of an expression without evaluating it.

use super::{Expr, ExprKind, Volatility};
use crate::graph::Schema;
use crate::types::{Datum, Type};

impl Expr {
    /// The input columns it reads, ascending, each once.
    pub fn columns(&self) -> Vec<usize> {
        let mut found = Vec::new();
        self.each_column(|c| found.push(c));
        found.sort_unstable();
        found.dedup();
        found
    }
    /// Calls `f` with every input column that it reads, as often as it stands there.
    pub(crate) fn each_column(&self, mut f: impl FnMut(usize)) {
        self.visit(&mut |e| {
            if let ExprKind::Column(i) = e.kind() {
                f(*i);
            }
        });
    }

    /// Whether it reads no column.
    pub fn is_constant(&self) -> bool {
        let mut reads = false;
        self.each_column(|_| reads = true);
        !reads
    }

    /// The most volatile function or cast inside.
    pub fn volatility(&self) -> Volatility {
        self.0.volatility
    }

    /// Whether evaluating it can raise an error for some input (division, overflow, casts from text, unknown calls,
    /// a second row).
    pub fn can_raise(&self) -> bool {
        self.0.raises
    }

    /// Whether it holds a condition or a choice that columns may decide.
    pub(crate) fn is_logical(&self) -> bool {
        self.0.logical
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
            ExprKind::Quantified { .. } | ExprKind::Subscript { .. } | ExprKind::ManyRows => true,
        }
    }

    /// The number of fractional digits that every non-NULL value of this numeric expression is written with, where
    /// that is a constant of the plan. Sums of such values can be added and subtracted without trace.
    ///
    /// `numeric(p,s)` columns have `s`; `+`, `−` the larger, `*` the sum of their operands' (PostgreSQL's numeric
    /// rules, src/backend/utils/adt/numeric.c); integers 0.
    pub fn fixed_scale(&self) -> Option<u16> {
        match self.ty() {
            ty if ty.is_integer() => return Some(0),
            Type::Numeric(Some((_, s))) => return u16::try_from(*s).ok(),
            Type::Numeric(None) => {}
            _ => return None,
        }
        match self.kind() {
            ExprKind::Literal(Datum::Numeric(n)) => match &**n {
                crate::types::Numeric::Finite { scale, .. } => Some(*scale),
                _ => None,
            },
            ExprKind::Cast(e) if e.ty().is_integer() || matches!(e.ty(), Type::Numeric(_)) => e.fixed_scale(),
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
pub(super) fn cast_can_raise(from: &Type, to: &Type) -> bool {
    match (from, to) {
        (_, to) if super::is_written(to) => false,
        (Type::Int2, Type::Int4 | Type::Int8) | (Type::Int4, Type::Int8) => false,
        (f, Type::Numeric(None) | Type::Float8) if f.is_integer() => false,
        (Type::Numeric(_), Type::Numeric(None)) => false,
        (Type::Float4, Type::Float8) | (Type::Date, Type::Timestamp) => false,
        (_, Type::Text | Type::Varchar(None)) => matches!(from, Type::Other(_)),
        (f, t) => f.base() != t.base() || matches!(t, Type::Numeric(Some(_))),
    }
}
