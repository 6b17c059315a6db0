//! Exact decimals with PostgreSQL's display scales and special values (src/backend/utils/adt/numeric.c).

use crate::error::{Error, Result};
use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{Signed, ToPrimitive, Zero};
use std::cmp::Ordering;
use std::fmt;

/// An exact decimal with its display scale, or a special value.
///
/// The derived order and equality are structural (1.0 and 1.00 differ); [`Numeric::compare`] is SQL's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Numeric {
    /// Negative infinity.
    NegInfinity,
    /// `unscaled × 10^−scale`, printed with exactly `scale` digits after the point.
    Finite {
        /// All digits as one integer.
        unscaled: BigInt,
        /// Digits after the decimal point.
        scale: u16,
    },
    /// Positive infinity.
    Infinity,
    /// NaN: equal to itself and greater than everything.
    NaN,
}

/// The greatest display scale of a stored value.
const MAX_SCALE: u32 = 16383;
/// The greatest display scale of a quotient.
const MAX_DISPLAY_SCALE: i64 = 1000;
/// The least number of significant digits of a quotient.
const MIN_SIGNIFICANT: i64 = 16;
/// The greatest number of digits before the point.
const MAX_INTEGER_DIGITS: u64 = 131_072;

/// Returns `10^n`.
fn ten(n: u32) -> BigInt {
    match 10_i64.checked_pow(n) {
        Some(p) => BigInt::from(p),
        None => BigInt::from(10).pow(n),
    }
}

/// Returns `a / b`, with halves rounded away from zero.
fn divide_rounded(a: &BigInt, b: &BigInt) -> BigInt {
    let (q, r) = a.div_rem(b);
    if r.abs() * 2 >= b.abs() {
        let away = if a.is_negative() == b.is_negative() { 1 } else { -1 };
        q + away
    } else {
        q
    }
}

/// Returns the number of decimal digits of `|n|`; 0 for 0.
fn digits(n: &BigInt) -> u64 {
    if n.is_zero() {
        return 0;
    }
    if let Some(small) = n.magnitude().to_u64() {
        return u64::from(small.ilog10()) + 1;
    }
    // Since 0.30103 ≥ log10(2), the estimate is exact or one too high.
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
    /// Makes `unscaled × 10^−scale`.
    ///
    /// # Errors
    /// 22003 where the value has more than 131072 digits before the point.
    pub fn finite(unscaled: BigInt, scale: u16) -> Result<Numeric> {
        // A number has at most as many digits as bits, and more than one for four bits. So digits are counted
        // only where neither bound decides.
        let (bits, most) = (unscaled.bits(), MAX_INTEGER_DIGITS + u64::from(scale));
        if bits > MAX_INTEGER_DIGITS && (bits > 4 * most || digits(&unscaled) > most) {
            return Err(overflow());
        }
        Ok(Numeric::Finite { unscaled, scale })
    }

    /// Compares in SQL's order: by value, whatever the scales. NaN is the greatest and equal to itself.
    pub fn compare(&self, other: &Numeric) -> Ordering {
        match (self, other) {
            (Numeric::Finite { unscaled: a, scale: s }, Numeric::Finite { unscaled: b, scale: t }) => {
                match s.cmp(t) {
                    Ordering::Equal => a.cmp(b),
                    Ordering::Less => (a * ten(u32::from(t - s))).cmp(b),
                    Ordering::Greater => a.cmp(&(b * ten(u32::from(s - t)))),
                }
            }
            // The variants are declared in this order.
            _ => self.cmp(other),
        }
    }

    /// Returns the representative of all values equal to this one, which has no trailing zeros.
    #[must_use]
    pub fn normalized(&self) -> Numeric {
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

    /// Returns −1, 0 or 1; `None` for NaN.
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

    /// Whether it is neither NaN nor infinite.
    pub fn is_finite(&self) -> bool {
        matches!(self, Numeric::Finite { .. })
    }

    /// Returns `−self`.
    #[must_use]
    pub fn negate(&self) -> Numeric {
        match self {
            Numeric::Finite { unscaled, scale } => Numeric::Finite { unscaled: -unscaled, scale: *scale },
            Numeric::Infinity => Numeric::NegInfinity,
            Numeric::NegInfinity => Numeric::Infinity,
            Numeric::NaN => Numeric::NaN,
        }
    }

    /// Returns `|self|`.
    #[must_use]
    pub fn absolute(&self) -> Numeric {
        if self.signum() == Some(-1) { self.negate() } else { self.clone() }
    }

    /// Returns the sign as a numeric; NaN for NaN.
    #[must_use]
    pub fn sign(&self) -> Numeric {
        self.signum().map_or(Numeric::NaN, |s| Numeric::from(i64::from(s)))
    }

    /// Returns `self + other`, with the larger scale.
    ///
    /// # Errors
    /// Overflow (22003).
    pub fn add(&self, other: &Numeric) -> Result<Numeric> {
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

    /// Returns `self − other`, with the larger scale.
    ///
    /// # Errors
    /// Overflow (22003).
    pub fn subtract(&self, other: &Numeric) -> Result<Numeric> {
        self.add(&other.negate())
    }

    /// Returns `self × other`, with the sum of the scales.
    ///
    /// # Errors
    /// Overflow (22003).
    pub fn multiply(&self, other: &Numeric) -> Result<Numeric> {
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

    /// Returns the weight and value of the first digit in base 10000, as `select_div_scale` uses them; both
    /// are 0 for zero.
    fn leading(&self) -> (i64, i64) {
        let Numeric::Finite { unscaled, scale } = self else { return (0, 0) };
        if unscaled.is_zero() {
            return (0, 0);
        }
        let exponent = i64::try_from(digits(unscaled)).unwrap_or(i64::MAX) - 1 - i64::from(*scale);
        let weight = exponent.div_euclid(4);
        // The value is |v| / 10000^weight, rounded down: the point of the unscaled number is shifted.
        let shift = i64::from(*scale) + 4 * weight;
        let power = ten(u32::try_from(shift.abs()).unwrap_or(0));
        let first = if shift >= 0 { unscaled.abs() / power } else { unscaled.abs() * power };
        (weight, first.to_i64().unwrap_or(0))
    }

    /// Returns `self / other` with PostgreSQL's scale for quotients: at least 16 significant digits, and at
    /// least the scale of each operand.
    ///
    /// # Errors
    /// Division by zero (22012).
    pub fn divide(&self, other: &Numeric) -> Result<Numeric> {
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

    /// Returns the whole part of `self / other`, truncated towards zero.
    ///
    /// # Errors
    /// Division by zero (22012).
    pub fn divide_whole(&self, other: &Numeric) -> Result<Numeric> {
        match (self, other) {
            (Numeric::Finite { .. }, Numeric::Finite { unscaled, .. }) if !unscaled.is_zero() => {
                let (a, b, _) = self.aligned(other);
                Numeric::finite(a / b, 0)
            }
            _ => self.divide(other),
        }
    }

    /// Returns both unscaled numbers at the larger scale, and that scale.
    fn aligned(&self, other: &Numeric) -> (BigInt, BigInt, u16) {
        match (self, other) {
            (Numeric::Finite { unscaled: a, scale: s }, Numeric::Finite { unscaled: b, scale: t }) => {
                let m = *s.max(t);
                (a * ten(u32::from(m - s)), b * ten(u32::from(m - t)), m)
            }
            _ => (BigInt::zero(), BigInt::zero(), 0),
        }
    }

    /// Returns `self mod other`, with the sign of `self` and the larger scale.
    ///
    /// # Errors
    /// Division by zero (22012).
    pub fn remainder(&self, other: &Numeric) -> Result<Numeric> {
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

    /// Rounds to `scale` digits after the point, halves away from zero. A negative scale rounds before the
    /// point.
    #[must_use]
    pub fn round(&self, scale: i32) -> Numeric {
        self.rescale(scale, divide_rounded)
    }

    /// Truncates after `scale` digits after the point.
    #[must_use]
    pub fn truncate(&self, scale: i32) -> Numeric {
        self.rescale(scale, |a, b| a / b)
    }

    /// Returns the least integer that is not below it.
    #[must_use]
    pub fn ceiling(&self) -> Numeric {
        self.rescale(0, Integer::div_ceil)
    }

    /// Returns the greatest integer that is not above it.
    #[must_use]
    pub fn floor(&self) -> Numeric {
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

    /// Returns the square root, rounded to PostgreSQL's scale for it.
    ///
    /// # Errors
    /// 2201F for a negative number.
    pub fn square_root(&self) -> Result<Numeric> {
        if self.signum() == Some(-1) {
            return Err(Error::data("2201F", "cannot take square root of a negative number"));
        }
        let Numeric::Finite { unscaled, scale } = self else { return Ok(self.clone()) };
        let weight = ((self.leading().0 + 1) * 4).div_euclid(2) - 1;
        let out = (MIN_SIGNIFICANT - weight).max(i64::from(*scale)).clamp(0, MAX_DISPLAY_SCALE);
        // One more digit than needed is computed and then rounded. A root lies exactly between two digits
        // only if it ends there.
        let shift = u32::try_from(2 * (out + 1) - i64::from(*scale)).unwrap_or(0);
        let root = (unscaled * ten(shift)).sqrt();
        Numeric::finite(divide_rounded(&root, &BigInt::from(10)), u16::try_from(out).unwrap_or(0))
    }

    /// Fits the value into `numeric(precision, scale)`.
    ///
    /// # Errors
    /// 22003 where more than `precision − scale` digits stand before the point, and for infinities.
    pub fn with_typmod(&self, precision: u16, scale: i16) -> Result<Numeric> {
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

    /// Returns the nearest integer, halves rounded away from zero, if it fits into `bits`.
    ///
    /// # Errors
    /// 22003 out of range; 0A000 for NaN and infinities.
    pub fn to_integer(&self, bits: u32, type_name: &str) -> Result<i64> {
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

    /// Returns the nearest `double precision`.
    pub fn to_f64(&self) -> f64 {
        match self {
            Numeric::NaN => f64::NAN,
            Numeric::Infinity => f64::INFINITY,
            Numeric::NegInfinity => f64::NEG_INFINITY,
            Numeric::Finite { .. } => self.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    /// Reads PostgreSQL's input syntax; `None` for any other text.
    ///
    /// # Errors
    /// 22003 where the value is too large.
    pub fn parse(text: &str) -> Result<Option<Numeric>> {
        let text = text.trim();
        let (negative, body) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        match body.to_ascii_lowercase().as_str() {
            "nan" if body.len() == text.len() => return Ok(Some(Numeric::NaN)),
            "infinity" | "inf" => return Ok(Some(Numeric::infinity(if negative { -1 } else { 1 }))),
            _ => {}
        }
        let (mantissa, exponent) = match body.find(['e', 'E']) {
            Some(i) => {
                let Ok(e) = body[i + 1..].parse::<i64>() else { return Ok(None) };
                (&body[..i], e)
            }
            None => (body, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        if all.is_empty() || !all.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(None);
        }
        if exponent.abs() > i64::from(i32::MAX / 2) {
            return Err(overflow());
        }
        let scale = i64::try_from(fraction.len()).unwrap_or(i64::MAX) - exponent;
        if scale < -131_072 || scale > i64::from(MAX_SCALE) {
            return Err(overflow());
        }
        // Reading digits takes time that is quadratic in their number.
        let significant = all.trim_start_matches('0').len();
        if u64::try_from(significant).unwrap_or(u64::MAX) > MAX_INTEGER_DIGITS + u64::from(MAX_SCALE) {
            return Err(overflow());
        }
        let mut n: BigInt = all.parse().unwrap_or_default();
        if scale < 0 {
            n *= ten(u32::try_from(-scale).unwrap_or(0));
        }
        if negative {
            n = -n;
        }
        Numeric::finite(n, u16::try_from(scale.max(0)).unwrap_or(0)).map(Some)
    }
}

impl fmt::Display for Numeric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unscaled, scale) = match self {
            Numeric::NaN => return f.write_str("NaN"),
            Numeric::Infinity => return f.write_str("Infinity"),
            Numeric::NegInfinity => return f.write_str("-Infinity"),
            Numeric::Finite { unscaled, scale } => (unscaled, usize::from(*scale)),
        };
        if unscaled.is_negative() {
            f.write_str("-")?;
        }
        let text = format!("{:0>width$}", unscaled.magnitude().to_string(), width = scale + 1);
        let (whole, fraction) = text.split_at(text.len() - scale);
        f.write_str(whole)?;
        if scale > 0 { write!(f, ".{fraction}") } else { Ok(()) }
    }
}
