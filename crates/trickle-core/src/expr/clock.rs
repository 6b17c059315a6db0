//! Expressions over the time of a refresh.
//!
//! The result of a query that reads the clock changes with time, though no row changes. A refresh at time t1
//! continues from results of the previous refresh, at time t0, so a delta reads both times. Only two
//! operators may read the clock: a [`Filter`](crate::rel::Filter), and a [`Map`](crate::rel::Map). A Map may
//! read it only inside conditions in its output expressions. The changes of such an operator from t0 to t1
//! can be computed from the current rows, mostly through an index.

use super::{Expr, ExprKind, FuncSig, IsTest};
use crate::expr::Schema;
use crate::types::{Datum, Type};
use std::sync::Arc;

/// One of the two times of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Moment {
    /// t0: the time for which the stored results were computed.
    Then,
    /// t1: the time of this refresh. The time t1 need not be later than t0.
    Now,
}

impl Expr {
    /// Makes `now()`: the time of the refresh, `timestamptz`.
    pub(crate) fn now() -> Expr {
        Expr::new(ExprKind::Clock(Moment::Now), Type::Timestamptz)
    }

    /// Whether the expression reads the time of a refresh.
    pub(crate) fn reads_clock(&self) -> bool {
        self.0.clock
    }

    /// Returns the expression with every time that it reads replaced by `moment`.
    #[must_use]
    pub(crate) fn at(&self, moment: Moment) -> Expr {
        self.with_clock(|_| Expr::new(ExprKind::Clock(moment), Type::Timestamptz))
    }

    /// Returns the expression with every time `m` that it reads replaced by `time(m)`.
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

    /// Returns a condition that is true where this condition is not true. For a comparison with a value that
    /// depends only on the clock, the result is the opposite comparison, since the opposite comparison can
    /// use an index. Otherwise the result is `IS NOT TRUE`.
    ///
    /// Precondition: the result is used in a conjunction with this condition at the other moment. Let a row
    /// satisfy this condition at the other moment. Then the operand that does not read the clock is not NULL.
    /// The operand that reads the clock is never NULL; this is checked before the opposite comparison is
    /// used.
    pub(crate) fn not_beside_itself(&self) -> Expr {
        let test =
            || Expr::new(ExprKind::Is { arg: self.clone(), test: IsTest::True, negated: true }, Type::Bool);
        self.opposite().unwrap_or_else(test)
    }

    /// Returns the opposite of a comparison if one operand depends only on the clock and is never NULL.
    /// Otherwise returns `None`. The opposite is true where the comparison is false.
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

    /// Returns conditions on rows. If this condition differs between t0 and t1 for a row, exactly one of the
    /// returned conditions is true. Otherwise none of them is true.
    ///
    /// A comparison with the clock is NULL at both times or at neither time, since only the row determines
    /// whether it is NULL. A comparison that differs between the times therefore either became true or became
    /// false.
    pub(crate) fn turns(&self) -> Vec<Expr> {
        let (then, now) = (self.at(Moment::Then), self.at(Moment::Now));
        match (then.opposite(), now.opposite()) {
            (Some(not_then), Some(not_now)) => {
                vec![Expr::and([now, not_then]), Expr::and([then, not_now])]
            }
            _ => vec![then.same_as(now).negated()],
        }
    }

    /// Returns a condition that is true where this condition is the same at t0 and t1.
    pub(crate) fn holds_still(&self) -> Expr {
        self.at(Moment::Then).same_as(self.at(Moment::Now))
    }

    /// Returns the smallest conditions inside the expression that read the clock. Returns `None` if the
    /// expression also reads the clock outside conditions.
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

    /// Whether a row can satisfy the condition only if some term of the condition changes for this row
    /// between t0 and t1. The condition then contains a term at one of these times, and the negation of this
    /// term at the other time.
    pub(crate) fn crosses(&self) -> bool {
        let terms = self.terms();
        let timed = terms.iter().filter(|t| t.reads_clock());
        timed.flat_map(|t| [Moment::Then, Moment::Now].map(|m| (t, t.at(m)))).any(|(t, other)| {
            let passed = || terms.contains(&other.not_beside_itself());
            other != *t && passed()
        })
    }
}

/// Whether the expression is a time of the refresh, or a cast of such a time.
pub(super) fn is_now(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Clock(_) => true,
        ExprKind::Cast(e) => matches!(e.kind(), ExprKind::Clock(_)),
        _ => false,
    }
}

/// Returns the time or interval that results from casting a constant to this type. Returns `None` if servers
/// may read the text differently.
pub(super) fn written_time(from: &Expr, to: &Type) -> Option<Datum> {
    let Some(Datum::Text(text)) = from.as_literal() else { return None };
    match to {
        Type::Date | Type::Timestamp | Type::Timestamptz | Type::Interval => {
            crate::values::input(text, to).ok()
        }
        _ => None,
    }
}

/// Whether a call returns a time that is far from the ends of the range of times, for all values of the
/// arguments' types.
pub(super) fn is_in_range(sig: &FuncSig, args: &[Expr]) -> bool {
    // The argument of `to_timestamp` is a number of seconds after 1970. An integer of four bytes reaches the
    // year 2038.
    let seconds = |e: &Expr| match e.kind() {
        ExprKind::Cast(from) => matches!(from.ty(), Type::Int2 | Type::Int4) && *e.ty() == Type::Float8,
        _ => false,
    };
    let counted = sig.schema.is_none() && &*sig.name == "to_timestamp" && matches!(args, [e] if seconds(e));
    counted || is_near_now(sig, args)
}

/// Whether a call moves the time of the refresh by a constant of some centuries at most. The result stays
/// inside the range of times for any time of a clock, so the call raises no error.
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

/// Whether the values of a type are totally ordered, so that `NOT (a < b)` is `a >= b`. Rows and arrays are
/// not totally ordered, since they may contain NULLs.
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
