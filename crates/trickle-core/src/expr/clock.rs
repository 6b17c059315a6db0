//! Expressions over the time of a refresh.
//!
//! A query that reads the clock has another result at another time though no row changed. Its refresh at t1 continues
//! from results of t0, the time of the refresh before, so a delta reads both. Only a [`Filter`](crate::rel::Filter) may
//! read the clock: what that gains and loses from t0 to t1 can be told from the current rows, mostly through an index.

use super::{Expr, ExprKind, FuncSig, IsTest};
use crate::graph::Schema;
use crate::types::{Datum, Type};
use std::sync::Arc;

/// Which of the two times of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// t0: the time for which the stored results were computed.
    Then,
    /// t1: the time for which they are computed now. Nothing says that it is later.
    Now,
}

impl Expr {
    /// `now()`: the time of the refresh, `timestamptz`.
    pub fn now() -> Expr {
        Expr::new(ExprKind::Clock(Moment::Now), Type::Timestamptz)
    }

    /// Whether it reads the time of a refresh.
    pub fn reads_clock(&self) -> bool {
        self.0.clock
    }

    /// The same at another moment, wherever it reads the clock.
    #[must_use]
    pub fn at(&self, moment: Moment) -> Expr {
        self.with_clock(|_| Expr::new(ExprKind::Clock(moment), Type::Timestamptz))
    }

    /// The same with other values for the times that it reads.
    #[must_use]
    pub(crate) fn with_clock(&self, mut time: impl FnMut(Moment) -> Expr) -> Expr {
        if !self.reads_clock() {
            return self.clone();
        }
        self.rewrite(&mut |e| match e.kind() {
            ExprKind::Clock(moment) => time(*moment),
            _ => e,
        })
    }

    /// True where this condition is not: where a comparison of a value that may be NULL with one of the clock alone is
    /// known to be true at another moment, the opposite comparison, which an index serves; else `IS NOT TRUE`.
    ///
    /// Precondition: the result stands beside this condition at another moment, which is true. So the side that does not
    /// read the clock is not NULL, and of the other side it is known from its form.
    pub(crate) fn not_beside_itself(&self) -> Expr {
        let opposite = |sig: &FuncSig| match &*sig.name {
            _ if sig.schema.is_some() || !sig.args.iter().all(is_scalar) => None,
            "<" => Some(">="),
            "<=" => Some(">"),
            ">" => Some("<="),
            ">=" => Some("<"),
            "=" => Some("<>"),
            _ => None,
        };
        if let ExprKind::Call(sig, args) = self.kind()
            && let (Some(op), [l, r]) = (opposite(sig), args.as_slice())
            && l.reads_clock() != r.reads_clock()
        {
            let timed = if l.reads_clock() { l } else { r };
            if timed.columns().is_empty() && !timed.nullable(&Schema::new([])) {
                let sig = FuncSig { name: Arc::from(op), ..FuncSig::clone(sig) };
                return Expr::call(Arc::new(sig), args.clone());
            }
        }
        Expr::new(ExprKind::Is { arg: self.clone(), test: IsTest::True, negated: true }, Type::Bool)
    }

    /// Whether a row satisfies it only by the passage from t0 to t1, or from t1 to t0: one of its terms holds at one of
    /// them and does not at the other.
    pub(crate) fn crosses(&self) -> bool {
        let terms = self.terms();
        let timed = terms.iter().filter(|t| t.reads_clock());
        timed.flat_map(|t| [Moment::Then, Moment::Now].map(|m| (t, t.at(m)))).any(|(t, other)| {
            let passed = || terms.contains(&other.not_beside_itself());
            other != *t && passed()
        })
    }
}

/// Whether it is a time of the refresh, or the day of one.
pub(super) fn is_now(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Clock(_) => true,
        ExprKind::Cast(e) => matches!(e.kind(), ExprKind::Clock(_)),
        _ => false,
    }
}

/// Whether a call moves the time of the refresh by some constant centuries at most. No clock shows a time from which that
/// would lead out of the range of times: it raises nothing.
pub(super) fn is_near_now(sig: &FuncSig, args: &[Expr]) -> bool {
    const CENTURIES: u32 = 10;
    const DAYS: u32 = CENTURIES * 36_525;
    let near = |e: &Expr| match e.as_literal() {
        Some(Datum::Interval(i)) => {
            let micros = u64::from(DAYS) * 86_400_000_000;
            i.months.unsigned_abs() <= CENTURIES * 1_200
                && i.days.unsigned_abs() <= DAYS
                && i.micros.unsigned_abs() <= micros
        }
        Some(Datum::Int(days)) => days.unsigned_abs() <= u64::from(DAYS),
        _ => false,
    };
    sig.schema.is_none()
        && match (&*sig.name, args) {
            ("-", [time, by]) => is_now(time) && near(by),
            ("+", [a, b]) => (is_now(a) && near(b)) || (near(a) && is_now(b)),
            _ => false,
        }
}

/// Types whose values are in one order, over which `NOT (a < b)` is `a >= b`: rows and arrays with NULLs inside are not.
fn is_scalar(ty: &Type) -> bool {
    let time = matches!(ty, Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz | Type::Interval);
    time || ty.is_number() || ty.is_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::functions::resolve_operator;
    use crate::types::Interval;

    fn compared(op: &str, l: Expr, r: Expr) -> Expr {
        let sig = resolve_operator(op, &[l.ty().clone(), r.ty().clone()]).unwrap();
        Expr::call(sig, vec![l, r])
    }

    #[test]
    fn what_crosses_is_told_by_its_form() {
        let ts = Expr::column(0, Type::Timestamptz);
        let day = Expr::literal(Datum::Interval(Interval { months: 0, days: 1, micros: 0 }), Type::Interval);
        let ago = compared("-", Expr::now(), day);
        let recent = compared(">", ts.clone(), ago);
        let not_then = recent.at(Moment::Then).not_beside_itself();
        assert!(matches!(not_then.kind(), ExprKind::Call(sig, _) if &*sig.name == "<="));
        assert!(Expr::and([recent.clone(), not_then]).crosses());
        let past = compared("<=", ts.clone(), Expr::now());
        assert!(!Expr::and([recent.clone(), past.at(Moment::Then)]).crosses());
        let either = Expr::or([recent.clone(), ts.is_null()]);
        let not_then = either.at(Moment::Then).not_beside_itself();
        assert!(matches!(not_then.kind(), ExprKind::Is { .. }));
        assert!(Expr::and([either, not_then]).crosses());
        assert!(!recent.crosses() && recent.reads_clock() && !recent.can_raise());
    }
}
