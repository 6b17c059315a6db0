//! Exact decimals with the display scales and special values of PostgreSQL (src/backend/utils/adt/numeric.c).

mod arithmetic;
mod rounding;
mod text;

use crate::error::{Error, Result};
use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{Signed, ToPrimitive, Zero};
use std::cmp::Ordering;

/// An exact decimal with its display scale, or a special value.
///
/// The derived order and equality are structural: 1.0 and 1.00 differ. [`Numeric::compare`] compares as SQL
/// does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Numeric {
    /// Negative infinity.
    NegInfinity,
    /// The number `unscaled × 10^−scale`, printed with exactly `scale` digits after the point.
    Finite {
        /// All digits of the number, as one integer.
        unscaled: BigInt,
        /// The number of digits after the decimal point.
        scale: u16,
    },
    /// Positive infinity.
    Infinity,
    /// NaN, which is equal to itself and greater than all other values.
    NaN,
}

/// The greatest display scale of a stored value.
const MAX_SCALE: u32 = 16383;
/// The greatest display scale that a quotient gets.
const MAX_DISPLAY_SCALE: i64 = 1000;
/// The least number of significant digits that a quotient gets.
const MIN_SIGNIFICANT: i64 = 16;
/// The greatest number of digits before the decimal point.
const MAX_INTEGER_DIGITS: u64 = 131_072;

/// Returns `10^n`.
fn ten(n: u32) -> BigInt {
    match 10_i64.checked_pow(n) {
        Some(p) => BigInt::from(p),
        None => BigInt::from(10).pow(n),
    }
}

/// Returns `a / b`, rounded to an integer. Halves are rounded away from zero.
fn divide_rounded(a: &BigInt, b: &BigInt) -> BigInt {
    let (q, r) = a.div_rem(b);
    if r.abs() * 2 >= b.abs() {
        let away = if a.is_negative() == b.is_negative() { 1 } else { -1 };
        q + away
    } else {
        q
    }
}

/// Returns the number of decimal digits of `|n|`, and 0 for 0.
fn digits(n: &BigInt) -> u64 {
    if n.is_zero() {
        return 0;
    }
    if let Some(small) = n.magnitude().to_u64() {
        return u64::from(small.ilog10()) + 1;
    }
    // The factor 0.30103 is slightly greater than log10(2). The estimate is therefore the number of digits,
    // or one less.
    let estimate = (n.bits() * 30103) / 100_000;
    match u32::try_from(estimate) {
        Ok(e) if *n.magnitude() < *ten(e).magnitude() => estimate,
        _ => estimate + 1,
    }
}

fn overflow() -> Error {
    Error::data("22003", "value overflows numeric format")
}

fn out_of_range(ty: &str) -> Error {
    Error::data("22003", format!("{ty} out of range"))
}

impl From<i64> for Numeric {
    fn from(n: i64) -> Numeric {
        Numeric::Finite { unscaled: BigInt::from(n), scale: 0 }
    }
}

impl Numeric {
    /// Makes the number `unscaled × 10^−scale`.
    ///
    /// # Errors
    /// Fails with 22003 if the number has more than 131072 digits before the decimal point.
    pub fn finite(unscaled: BigInt, scale: u16) -> Result<Numeric> {
        // A number has at most as many decimal digits as it has bits, and more than one digit for each four
        // bits. Digits are counted only where neither of these bounds decides.
        let (bits, most) = (unscaled.bits(), MAX_INTEGER_DIGITS + u64::from(scale));
        if bits > MAX_INTEGER_DIGITS && (bits > 4 * most || digits(&unscaled) > most) {
            return Err(overflow());
        }
        Ok(Numeric::Finite { unscaled, scale })
    }

    /// Compares two numbers by value, as SQL does. Their scales are ignored. NaN is equal to NaN and greater
    /// than all other values.
    pub fn compare(&self, other: &Numeric) -> Ordering {
        match (self, other) {
            (Numeric::Finite { unscaled: a, scale: s }, Numeric::Finite { unscaled: b, scale: t }) => {
                match s.cmp(t) {
                    Ordering::Equal => a.cmp(b),
                    Ordering::Less => (a * ten(u32::from(t - s))).cmp(b),
                    Ordering::Greater => a.cmp(&(b * ten(u32::from(s - t)))),
                }
            }
            // The variants are declared in SQL's order, from negative infinity to NaN.
            _ => self.cmp(other),
        }
    }

    /// Returns the number without trailing zeros after the point. All equal numbers have the same result.
    #[must_use]
    pub(crate) fn normalized(&self) -> Numeric {
        let Numeric::Finite { unscaled, scale } = self else { return self.clone() };
        if *scale == 0 {
            return self.clone();
        }
        let (mut n, mut s) = (unscaled.clone(), *scale);
        while s > 0 {
            let (q, r) = n.div_rem(&BigInt::from(10));
            if !r.is_zero() {
                break;
            }
            (n, s) = (q, s - 1);
        }
        Numeric::Finite { unscaled: n, scale: s }
    }

    /// Returns the sign as −1, 0 or 1. Returns `None` for NaN.
    fn signum(&self) -> Option<i8> {
        match self {
            Numeric::NaN => None,
            Numeric::Infinity => Some(1),
            Numeric::NegInfinity => Some(-1),
            Numeric::Finite { unscaled, .. } => Some(match unscaled.sign() {
                Sign::Minus => -1,
                Sign::NoSign => 0,
                Sign::Plus => 1,
            }),
        }
    }

    fn infinity(sign: i8) -> Numeric {
        match sign {
            1 => Numeric::Infinity,
            -1 => Numeric::NegInfinity,
            _ => Numeric::NaN,
        }
    }

    /// Whether the value is neither NaN nor infinite.
    pub fn is_finite(&self) -> bool {
        matches!(self, Numeric::Finite { .. })
    }

    /// Returns `−self`.
    #[must_use]
    pub(crate) fn negate(&self) -> Numeric {
        match self {
            Numeric::Finite { unscaled, scale } => Numeric::Finite { unscaled: -unscaled, scale: *scale },
            Numeric::Infinity => Numeric::NegInfinity,
            Numeric::NegInfinity => Numeric::Infinity,
            Numeric::NaN => Numeric::NaN,
        }
    }

    /// Returns `|self|`.
    #[must_use]
    pub(crate) fn absolute(&self) -> Numeric {
        if self.signum() == Some(-1) { self.negate() } else { self.clone() }
    }

    /// Returns the sign as a numeric: −1, 0, 1 or NaN.
    #[must_use]
    pub(crate) fn sign(&self) -> Numeric {
        self.signum().map_or(Numeric::NaN, |s| Numeric::from(i64::from(s)))
    }
}
