//! Properties of an expression that are derived without evaluating it.

use super::{Expr, ExprKind, FuncSig, Volatility};
use crate::expr::Schema;
use crate::types::{Datum, Type};

impl Expr {
    /// Returns the input columns that the expression reads, in ascending order, each once.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let mut found = Vec::new();
        self.each_column(|c| found.push(c));
        found.sort_unstable();
        found.dedup();
        found
    }
    /// Calls `f` with every input column that the expression reads, once for each occurrence.
    pub(crate) fn each_column(&self, mut f: impl FnMut(usize)) {
        self.visit(&mut |e| {
            if let ExprKind::Column(i) = e.kind() {
                f(*i);
            }
        });
    }

    /// Whether `test` returns true for every input column that the expression reads.
    pub(crate) fn reads_only(&self, test: impl Fn(usize) -> bool) -> bool {
        let mut holds = true;
        self.each_column(|c| holds &= test(c));
        holds
    }

    /// Whether the expression reads neither a column nor the clock.
    pub(crate) fn is_constant(&self) -> bool {
        !self.reads_clock() && self.reads_only(|_| false)
    }

    /// Returns the volatility of the most volatile function or cast inside the expression.
    pub(crate) fn volatility(&self) -> Volatility {
        self.0.volatility
    }

    /// Whether evaluating the expression can raise an error for some input: division, overflow, casts from
    /// text, unknown calls, a second row of a scalar subquery.
    pub(crate) fn can_raise(&self) -> bool {
        self.0.raises
    }

    /// Whether the expression contains a condition or a choice whose outcome may follow from properties of
    /// the columns.
    pub(crate) fn is_logical(&self) -> bool {
        self.0.logical
    }

    /// Whether the expression may be NULL on rows of `input`.
    pub(crate) fn nullable(&self, input: &Schema) -> bool {
        match self.kind() {
            ExprKind::Column(i) => input.column(*i).is_none_or(|c| c.nullable),
            ExprKind::Literal(d) => d.is_null(),
            ExprKind::Is { .. } | ExprKind::Distinct { .. } | ExprKind::Array(_) | ExprKind::Row(_) => false,
            ExprKind::Clock(_) => false,
            ExprKind::Call(sig, args) => !sig.never_null || args.iter().any(|a| a.nullable(input)),
            ExprKind::Not(e) => e.nullable(input),
            // The function of a user's cast may return NULL for any value.
            ExprKind::Cast(e) => {
                let users = e.ty() != self.ty() && (e.ty().is_users() || self.ty().is_users());
                users || e.nullable(input)
            }
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

    /// Returns the number of fractional digits that every finite value of this numeric expression has, if the
    /// plan determines this number. [`Expr::scales`] then has exactly one element.
    pub(crate) fn fixed_scale(&self) -> Option<u16> {
        match self.scales()?.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// Returns the numbers of fractional digits that finite values of this numeric expression can have, in
    /// ascending order. Returns them only if the plan determines these numbers and they are few. A sum of
    /// such values can be kept up to date by additions and subtractions: its number of digits then shows no
    /// trace of removed values.
    ///
    /// A column `numeric(p,s)` has the scale `s`. The results of `+` and `−` have the larger scale of the
    /// operands. The result of `*` has the sum of the scales (src/backend/utils/adt/numeric.c of PostgreSQL).
    /// Integers have scale 0, as do the integral fields of a date (timestamp.c).
    pub(crate) fn scales(&self) -> Option<Vec<u16>> {
        match self.ty() {
            ty if ty.is_integer() => return Some(vec![0]),
            Type::Numeric(Some((_, s))) => return u16::try_from(*s).ok().map(|s| vec![s]),
            Type::Numeric(None) => {}
            _ => return None,
        }
        let mut scales = match self.kind() {
            ExprKind::Literal(Datum::Numeric(n)) => match &**n {
                crate::types::Numeric::Finite { scale, .. } => vec![*scale],
                _ => return None,
            },
            ExprKind::Cast(e) if e.ty().is_integer() || matches!(e.ty(), Type::Numeric(_)) => e.scales()?,
            ExprKind::Call(sig, args) if sig.schema.is_none() => called_scales(sig, args)?,
            ExprKind::Case { whens, otherwise } => {
                any_scales(whens.iter().map(|(_, value)| value).chain([otherwise]))?
            }
            ExprKind::Coalesce(args) => any_scales(args.iter())?,
            _ => return None,
        };
        scales.sort_unstable();
        scales.dedup();
        (!scales.is_empty() && scales.len() <= MOST_SCALES).then_some(scales)
    }

    /// Whether an expression with known [`Expr::scales`] may be infinite. For example, fields of an infinite
    /// time are infinite.
    pub(crate) fn may_be_infinite(&self) -> bool {
        let mut found = false;
        self.visit(&mut |e| found |= matches!(e.kind(), ExprKind::Call(sig, _) if &*sig.name == "extract"));
        found
    }
}

/// The greatest number of scales that [`Expr::scales`] returns.
const MOST_SCALES: usize = 4;

/// The date/time fields that are integers.
const WHOLE_FIELDS: &[&str] = &[
    "century",
    "day",
    "decade",
    "dow",
    "doy",
    "hour",
    "isodow",
    "isoyear",
    "millennium",
    "minute",
    "month",
    "quarter",
    "week",
    "year",
];

fn any_scales<'e>(values: impl Iterator<Item = &'e Expr>) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for value in values.filter(|v| !matches!(v.as_literal(), Some(Datum::Null))) {
        all.extend(value.scales()?);
    }
    Some(all)
}

fn called_scales(sig: &FuncSig, args: &[Expr]) -> Option<Vec<u16>> {
    let pairs = |of: fn(u16, u16) -> Option<u16>| {
        let (left, right) = (args[0].scales()?, args[1].scales()?);
        left.iter().flat_map(|l| right.iter().map(move |r| of(*l, *r))).collect()
    };
    match (&*sig.name, args) {
        ("+" | "-", [_, _]) => pairs(|l, r| Some(l.max(r))),
        ("*", [_, _]) => pairs(|l, r| l.checked_add(r).filter(|s| *s <= 1000)),
        ("+" | "-", [one]) => one.scales(),
        ("abs", [one]) => one.scales(),
        ("round" | "trunc", [value, digits]) => match digits.as_literal() {
            Some(Datum::Int(n)) => value.scales().and(u16::try_from(*n).ok()).map(|n| vec![n]),
            _ => None,
        },
        ("extract", [field, _]) => match field.as_literal() {
            Some(Datum::Text(field)) if WHOLE_FIELDS.contains(&&**field) => Some(vec![0]),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a call divides integers by a constant other than 0 and −1. Such a call cannot raise an error. (A
/// division by 0 fails, and the division of the least integer by −1 overflows.)
pub(super) fn divides_by_constant(sig: &FuncSig, args: &[Expr]) -> bool {
    let constant = |e: &Expr| match e.kind() {
        ExprKind::Cast(from) if from.ty().is_integer() => from.as_literal().cloned(),
        _ => e.as_literal().cloned(),
    };
    let [dividend, divisor] = args else { return false };
    sig.is_operator()
        && sig.schema.is_none()
        && matches!(&*sig.name, "/" | "%")
        && dividend.ty().is_integer()
        && divisor.ty().is_integer()
        && matches!(constant(divisor), Some(Datum::Int(n)) if !matches!(n, 0 | -1))
}

/// Whether a cast between these types can fail for some value.
pub(super) fn cast_can_raise(from: &Type, to: &Type) -> bool {
    match (from, to) {
        (_, to) if crate::types::is_written(to) => false,
        (f, t) if f.collation().is_some() || t.collation().is_some() => {
            cast_can_raise(&f.uncollated(), &t.uncollated())
        }
        (Type::Int2, Type::Int4 | Type::Int8) | (Type::Int4, Type::Int8) => false,
        (f, Type::Numeric(None) | Type::Float8) if f.is_integer() => false,
        (Type::Numeric(_), Type::Numeric(None)) => false,
        (Type::Float4, Type::Float8) => false,
        (Type::Timestamp | Type::Timestamptz, Type::Date) => false,
        (_, Type::Text | Type::Varchar(None)) => matches!(from, Type::Other(_)),
        (f, t) => f.base() != t.base() || matches!(t, Type::Numeric(Some(_))),
    }
}
