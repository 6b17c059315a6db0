//! Expressions over the time of a refresh.
//!
//! A query that reads the clock has another result at another time though no row changed. Its refresh at t1 continues
//! from results of t0, the time of the refresh before, so a delta reads both. Only a [`Filter`](crate::rel::Filter) may
//! read the clock, and a [`Map`](crate::rel::Map) within conditions that it shows: what changes from t0 to t1 can be told
//! from the current rows, mostly through an index.

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
        let test =
            || Expr::new(ExprKind::Is { arg: self.clone(), test: IsTest::True, negated: true }, Type::Bool);
        self.opposite().unwrap_or_else(test)
    }

    /// What is true where a comparison of a value with one of the clock alone, which is not NULL, is false.
    fn opposite(&self) -> Option<Expr> {
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
                return Some(Expr::call(Arc::new(sig), args.clone()));
            }
        }
        None
    }

    /// Conditions of which one is true where this condition is another at t1 than it was at t0, and no two are.
    ///
    /// A comparison with the clock is NULL by the row alone, at both times: it came to hold, or ceased to.
    pub(crate) fn turns(&self) -> Vec<Expr> {
        let (then, now) = (self.at(Moment::Then), self.at(Moment::Now));
        match (then.opposite(), now.opposite()) {
            (Some(not_then), Some(not_now)) => {
                vec![Expr::and([now, not_then]), Expr::and([then, not_now])]
            }
            _ => vec![then.same_as(now).negated()],
        }
    }

    /// True where this condition is the same at t0 and t1.
    pub(crate) fn holds_still(&self) -> Expr {
        self.at(Moment::Then).same_as(self.at(Moment::Now))
    }

    /// The least conditions in it that read the clock; `None` where it reads it outside of them too.
    pub(crate) fn timed_conditions(&self) -> Option<Vec<Expr>> {
        if !self.reads_clock() {
            return Some(Vec::new());
        }
        let mut inner = Vec::new();
        let parts = stacker::maybe_grow(64 << 10, 1 << 20, || {
            self.children().into_iter().map(Expr::timed_conditions).collect::<Option<Vec<_>>>()
        });
        for condition in parts.iter().flatten().flatten() {
            if !inner.contains(condition) {
                inner.push(condition.clone());
            }
        }
        match parts {
            Some(_) if !inner.is_empty() => Some(inner),
            _ => (*self.ty() == Type::Bool).then(|| vec![self.clone()]),
        }
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

/// The time or interval that a cast of a constant to this type writes out, in a form that every server reads.
pub(super) fn written_time(from: &Expr, to: &Type) -> Option<Datum> {
    let Some(Datum::Text(text)) = from.as_literal() else { return None };
    match to {
        Type::Date | Type::Timestamp | Type::Timestamptz | Type::Interval => {
            crate::eval::input(text, to).ok()
        }
        _ => None,
    }
}

/// Whether a call gives a time, and every value of its arguments' types is far from the ends of the range of times.
pub(super) fn is_in_range(sig: &FuncSig, args: &[Expr]) -> bool {
    // So many seconds after 1970, which an integer of four bytes counts to 2038.
    let seconds = |e: &Expr| match e.kind() {
        ExprKind::Cast(from) => matches!(from.ty(), Type::Int2 | Type::Int4) && *e.ty() == Type::Float8,
        _ => false,
    };
    let counted = sig.schema.is_none() && &*sig.name == "to_timestamp" && matches!(args, [e] if seconds(e));
    counted || is_near_now(sig, args)
}

/// Whether a call moves the time of the refresh by some constant centuries at most. No clock shows a time from which that
/// would lead out of the range of times: it raises nothing.
fn is_near_now(sig: &FuncSig, args: &[Expr]) -> bool {
    const CENTURIES: u32 = 10;
    const DAYS: u32 = CENTURIES * 36_525;
    let written = |e: &Expr| match e.kind() {
        ExprKind::Cast(from) => written_time(from, e.ty()),
        _ => e.as_literal().cloned(),
    };
    let near = |e: &Expr| match written(e) {
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
