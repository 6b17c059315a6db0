//! The reach of a window function call: how far from its own row the call reads other rows.

use super::{Bound, Units, WindowCall};
use crate::expr::{Expr, Volatility, evaluate};
use crate::types::{Datum, Interval};

/// The greatest distance at which a call reads rows, counted from the call's own row. Rows beyond this
/// distance do not affect the call's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The number of rows, or of groups of peers, before the call's row.
    pub before: u64,
    /// The number of rows, or of groups of peers, after the call's row.
    pub after: u64,
    /// The distance in the order key between the call's row and the rows that the call reads. The type of the
    /// distance is that of a RANGE offset.
    pub distance: Option<Datum>,
}

impl Reach {
    /// Returns a reach that covers both reaches. Returns `None` if their distances cannot be added.
    #[must_use]
    pub fn and(self, other: Reach) -> Option<Reach> {
        let distance = match (self.distance, other.distance) {
            (Some(a), Some(b)) => Some(together(&a, &b)?),
            (a, b) => a.or(b),
        };
        Some(Reach { before: self.before.max(other.before), after: self.after.max(other.after), distance })
    }
}

/// Returns the sum of two distances, which covers each of them. Returns `None` if the sum overflows or the
/// types differ.
fn together(a: &Datum, b: &Datum) -> Option<Datum> {
    match (a, b) {
        (Datum::Int(a), Datum::Int(b)) => a.checked_add(*b).map(Datum::Int),
        (Datum::Interval(a), Datum::Interval(b)) => Some(Datum::Interval(Interval {
            months: a.months.checked_add(b.months)?,
            days: a.days.checked_add(b.days)?,
            micros: a.micros.checked_add(b.micros)?,
        })),
        _ => None,
    }
}

/// Returns the value of an expression that has the same value for all rows and at all times. Returns `None`
/// for any other expression.
fn constant(e: &Expr) -> Option<Datum> {
    let fixed = e.is_constant() && e.volatility() == Volatility::Immutable;
    fixed.then(|| evaluate::expr(e, &[]).ok()).flatten()
}

impl WindowCall {
    /// Returns the reach of the call. Returns `None` where no number bounds the reach.
    pub fn reach(&self) -> Option<Reach> {
        if !self.is_window_function() {
            return self.framed();
        }
        match &*self.call.sig.name {
            name @ ("lag" | "lead") => {
                let by = match self.call.args.get(1) {
                    None => 1,
                    Some(by) => match constant(by)? {
                        Datum::Int(by) => by,
                        _ => return None,
                    },
                };
                let (back, rows) = ((name == "lag") == (by >= 0), by.unsigned_abs());
                let (before, after) = if back { (rows, 0) } else { (0, rows) };
                Some(Reach { before, after, distance: None })
            }
            "first_value" | "last_value" | "nth_value" => self.framed(),
            _ => None,
        }
    }

    /// Returns the reach of the call's frame. Returns `None` if no number bounds the reach.
    fn framed(&self) -> Option<Reach> {
        let end = |bound: &Bound| {
            let (by, preceding) = match bound {
                Bound::Unbounded => return None,
                Bound::CurrentRow => return Some(Reach::default()),
                Bound::Preceding(by) => (constant(by)?, true),
                Bound::Following(by) => (constant(by)?, false),
            };
            match (self.frame.units, by) {
                (
                    Units::Range,
                    by
                    @ (Datum::Int(0..) | Datum::Interval(Interval { months: 0.., days: 0.., micros: 0.. })),
                ) => Some(Reach { distance: Some(by), ..Reach::default() }),
                (Units::Rows | Units::Groups, Datum::Int(by)) => {
                    let by = u64::try_from(by).ok()?;
                    let (before, after) = if preceding { (by, 0) } else { (0, by) };
                    Some(Reach { before, after, distance: None })
                }
                _ => None,
            }
        };
        end(&self.frame.start)?.and(end(&self.frame.end)?)
    }
}
