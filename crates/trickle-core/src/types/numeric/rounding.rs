//! Numerics rounded to a scale, to a type with a precision, and to integers.

use super::{Numeric, digits, divide_rounded, out_of_range, ten};
use crate::error::{Error, Result};
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{ToPrimitive, Zero};

impl Numeric {
    /// Rounds to `scale` digits after the decimal point. Halves are rounded away from zero. A negative scale
    /// rounds to digits before the decimal point.
    #[must_use]
    pub(crate) fn round(&self, scale: i32) -> Numeric {
        self.rescale(scale, divide_rounded)
    }

    /// Keeps only the first `scale` digits after the decimal point.
    #[must_use]
    pub(crate) fn truncate(&self, scale: i32) -> Numeric {
        self.rescale(scale, |a, b| a / b)
    }

    /// Returns the least integer that is not less than the value.
    #[must_use]
    pub(crate) fn ceiling(&self) -> Numeric {
        self.rescale(0, Integer::div_ceil)
    }

    /// Returns the greatest integer that is not greater than the value.
    #[must_use]
    pub(crate) fn floor(&self) -> Numeric {
        self.rescale(0, Integer::div_floor)
    }

    fn rescale(&self, to: i32, divide: impl Fn(&BigInt, &BigInt) -> BigInt) -> Numeric {
        let Numeric::Finite { unscaled, scale } = self else { return self.clone() };
        let to = to.clamp(-2000, 2000);
        let drop = i32::from(*scale) - to;
        let power = ten(drop.unsigned_abs());
        let display = u16::try_from(to.max(0)).unwrap_or(0);
        if drop <= 0 {
            return Numeric::Finite { unscaled: unscaled * power, scale: display };
        }
        let kept = divide(unscaled, &power);
        let back = ten((-to).max(0).unsigned_abs());
        Numeric::Finite { unscaled: kept * back, scale: display }
    }

    /// Rounds the value to `numeric(precision, scale)`.
    ///
    /// # Errors
    /// Fails with 22003 for infinities, and if there are more than `precision − scale` digits before the
    /// decimal point.
    pub(crate) fn with_typmod(&self, precision: u16, scale: i16) -> Result<Numeric> {
        let overflow = |detail: String| Error::data("22003", "numeric field overflow").detail(detail);
        let rounded = match self {
            Numeric::NaN => return Ok(Numeric::NaN),
            Numeric::Finite { .. } => self.round(i32::from(scale)),
            _ => {
                return Err(overflow(format!(
                    "A field with precision {precision}, scale {scale} cannot hold an infinite value."
                )));
            }
        };
        let Numeric::Finite { unscaled, scale: shown } = &rounded else { return Ok(rounded) };
        let whole = i64::from(precision) - i64::from(scale);
        if i64::try_from(digits(unscaled)).unwrap_or(i64::MAX) - i64::from(*shown) > whole
            && !unscaled.is_zero()
        {
            let (power, exponent) =
                if whole == 0 { ("", "1".to_owned()) } else { ("10^", whole.to_string()) };
            return Err(overflow(format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than \
                 {power}{exponent}."
            )));
        }
        Ok(rounded)
    }

    /// Returns the nearest integer of `bits` bits. Halves are rounded away from zero.
    ///
    /// # Errors
    /// Fails with 22003 if the integer does not fit into `bits` bits, and with 0A000 for NaN and infinities.
    pub(crate) fn to_integer(&self, bits: u32, type_name: &str) -> Result<i64> {
        let Numeric::Finite { unscaled, .. } = self.round(0) else {
            let what = if *self == Numeric::NaN { "NaN" } else { "infinity" };
            return Err(Error::data("0A000", format!("cannot convert {what} to {type_name}")));
        };
        let limit = 1_i128 << (bits - 1);
        unscaled
            .to_i128()
            .filter(|n| (-limit..limit).contains(n))
            .and_then(|n| i64::try_from(n).ok())
            .ok_or_else(|| out_of_range(type_name))
    }
}
