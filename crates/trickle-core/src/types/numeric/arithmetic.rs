//! Sums, products, quotients and roots of numerics, with the scales that PostgreSQL gives them.

use super::{MAX_DISPLAY_SCALE, MAX_SCALE, MIN_SIGNIFICANT, Numeric, digits, divide_rounded, ten};
use crate::error::{Error, Result};
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use std::cmp::Ordering;

impl Numeric {
    /// Returns `self + other`, with the greater of the two scales.
    ///
    /// # Errors
    /// Fails with 22003 if the result overflows.
    pub(crate) fn add(&self, other: &Numeric) -> Result<Numeric> {
        match (self, other) {
            (Numeric::Finite { unscaled: a, scale: s }, Numeric::Finite { unscaled: b, scale: t }) => {
                let sum = match s.cmp(t) {
                    Ordering::Equal => a + b,
                    Ordering::Less => a * ten(u32::from(t - s)) + b,
                    Ordering::Greater => a + b * ten(u32::from(s - t)),
                };
                Numeric::finite(sum, *s.max(t))
            }
            (Numeric::NaN, _) | (_, Numeric::NaN) => Ok(Numeric::NaN),
            (Numeric::Infinity, Numeric::NegInfinity) | (Numeric::NegInfinity, Numeric::Infinity) => {
                Ok(Numeric::NaN)
            }
            (Numeric::Finite { .. }, special) | (special, _) => Ok(special.clone()),
        }
    }

    /// Returns `self − other`, with the greater of the two scales.
    ///
    /// # Errors
    /// Fails with 22003 if the result overflows.
    pub(crate) fn subtract(&self, other: &Numeric) -> Result<Numeric> {
        self.add(&other.negate())
    }

    /// Returns `self × other`, with the sum of the two scales, but at most 16383.
    ///
    /// # Errors
    /// Fails with 22003 if the result overflows.
    pub(crate) fn multiply(&self, other: &Numeric) -> Result<Numeric> {
        let (Numeric::Finite { unscaled: a, scale: s }, Numeric::Finite { unscaled: b, scale: t }) =
            (self, other)
        else {
            let signs = self.signum().zip(other.signum());
            return Ok(signs.map_or(Numeric::NaN, |(a, b)| Numeric::infinity(a * b)));
        };
        let scale = u32::from(*s) + u32::from(*t);
        let product = a * b;
        if scale > MAX_SCALE {
            let product = divide_rounded(&product, &ten(scale - MAX_SCALE));
            return Numeric::finite(product, u16::try_from(MAX_SCALE).unwrap_or(u16::MAX));
        }
        Numeric::finite(product, u16::try_from(scale).unwrap_or(u16::MAX))
    }

    /// Returns the weight and the value of the first digit in base 10000, as `select_div_scale` of PostgreSQL
    /// uses them. Both are 0 for zero.
    fn leading(&self) -> (i64, i64) {
        let Numeric::Finite { unscaled, scale } = self else { return (0, 0) };
        if unscaled.is_zero() {
            return (0, 0);
        }
        let exponent = i64::try_from(digits(unscaled)).unwrap_or(i64::MAX) - 1 - i64::from(*scale);
        let weight = exponent.div_euclid(4);
        // The value is |v| / 10000^weight, rounded down. It is computed by moving the point of the unscaled
        // number.
        let shift = i64::from(*scale) + 4 * weight;
        let power = ten(u32::try_from(shift.abs()).unwrap_or(0));
        let first = if shift >= 0 { unscaled.abs() / power } else { unscaled.abs() * power };
        (weight, first.to_i64().unwrap_or(0))
    }

    /// Returns `self / other`, with the scale that PostgreSQL gives quotients: at least 16 significant
    /// digits, and at least the scale of each operand.
    ///
    /// # Errors
    /// Fails with 22012 if `other` is zero, and with 22003 if the result overflows.
    pub(crate) fn divide(&self, other: &Numeric) -> Result<Numeric> {
        let zero = || Error::data("22012", "division by zero");
        let (Numeric::Finite { unscaled: a, scale: s }, Numeric::Finite { unscaled: b, scale: t }) =
            (self, other)
        else {
            return match (self, other) {
                (Numeric::NaN, _) | (_, Numeric::NaN) => Ok(Numeric::NaN),
                (Numeric::Finite { .. }, _) => Ok(Numeric::from(0)),
                (_, Numeric::Finite { .. }) => match (self.signum(), other.signum()) {
                    (_, Some(0)) => Err(zero()),
                    (Some(a), Some(b)) => Ok(Numeric::infinity(a * b)),
                    _ => Ok(Numeric::NaN),
                },
                _ => Ok(Numeric::NaN),
            };
        };
        if b.is_zero() {
            return Err(zero());
        }
        let ((w1, d1), (w2, d2)) = (self.leading(), other.leading());
        let weight = w1 - w2 - i64::from(d1 <= d2);
        let scale =
            (MIN_SIGNIFICANT - weight * 4).max(i64::from(*s)).max(i64::from(*t)).min(MAX_DISPLAY_SCALE);
        // The quotient is a/10^s ÷ b/10^t × 10^scale.
        let shift = scale + i64::from(*t) - i64::from(*s);
        let power = ten(u32::try_from(shift.abs()).unwrap_or(0));
        let quotient =
            if shift >= 0 { divide_rounded(&(a * power), b) } else { divide_rounded(a, &(b * power)) };
        Numeric::finite(quotient, u16::try_from(scale).unwrap_or(0))
    }

    /// Returns the whole part of `self / other`, rounded towards zero.
    ///
    /// # Errors
    /// Fails with 22012 if `other` is zero, and with 22003 if the result overflows.
    pub(crate) fn divide_whole(&self, other: &Numeric) -> Result<Numeric> {
        match (self, other) {
            (Numeric::Finite { .. }, Numeric::Finite { unscaled, .. }) if !unscaled.is_zero() => {
                let (a, b, _) = self.aligned(other);
                Numeric::finite(a / b, 0)
            }
            _ => self.divide(other),
        }
    }

    /// Returns the unscaled numbers of both values at the greater of the two scales, and this scale.
    fn aligned(&self, other: &Numeric) -> (BigInt, BigInt, u16) {
        match (self, other) {
            (Numeric::Finite { unscaled: a, scale: s }, Numeric::Finite { unscaled: b, scale: t }) => {
                let m = *s.max(t);
                (a * ten(u32::from(m - s)), b * ten(u32::from(m - t)), m)
            }
            _ => (BigInt::zero(), BigInt::zero(), 0),
        }
    }

    /// Returns `self mod other`, with the sign of `self` and the greater of the two scales.
    ///
    /// # Errors
    /// Fails with 22012 if `other` is zero.
    pub(crate) fn remainder(&self, other: &Numeric) -> Result<Numeric> {
        match (self, other) {
            (Numeric::NaN, _) | (_, Numeric::NaN) => Ok(Numeric::NaN),
            (_, Numeric::Finite { unscaled, .. }) if unscaled.is_zero() => {
                Err(Error::data("22012", "division by zero"))
            }
            (Numeric::Finite { .. }, Numeric::Finite { .. }) => {
                let (a, b, scale) = self.aligned(other);
                Numeric::finite(a % b, scale)
            }
            (Numeric::Finite { .. }, _) => Ok(self.clone()),
            _ => Ok(Numeric::NaN),
        }
    }

    /// Returns the square root, rounded to the scale that PostgreSQL gives square roots.
    ///
    /// # Errors
    /// Fails with 2201F if the number is negative.
    pub(crate) fn square_root(&self) -> Result<Numeric> {
        if self.signum() == Some(-1) {
            return Err(Error::data("2201F", "cannot take square root of a negative number"));
        }
        let Numeric::Finite { unscaled, scale } = self else { return Ok(self.clone()) };
        let weight = ((self.leading().0 + 1) * 4).div_euclid(2) - 1;
        let out = (MIN_SIGNIFICANT - weight).max(i64::from(*scale)).clamp(0, MAX_DISPLAY_SCALE);
        // The root is computed with one more digit than needed, and is then rounded. The digits after the
        // extra digit do not matter: halves are rounded up, so the extra digit alone decides.
        let shift = u32::try_from(2 * (out + 1) - i64::from(*scale)).unwrap_or(0);
        let root = (unscaled * ten(shift)).sqrt();
        Numeric::finite(divide_rounded(&root, &BigInt::from(10)), u16::try_from(out).unwrap_or(0))
    }
}
