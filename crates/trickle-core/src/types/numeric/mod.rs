//! Exact decimals with the display scales and special values of PostgreSQL (src/backend/utils/adt/numeric.c).

use crate::error::{Error, Result};
use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_traits::{Signed, ToPrimitive, Zero};
use std::cmp::Ordering;
use std::fmt;

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
    // 0.30103 is slightly greater than log10(2). The estimate is therefore the number of digits, or one less.
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
    /// 22003 where the number has more than 131072 digits before the decimal point.
    pub fn finite(unscaled: BigInt, scale: u16) -> Result<Numeric> {
        // A number has at most as many decimal digits as it has bits, and more than one digit for each four
        // bits. Digits are counted only where neither of these bounds decides.
        let (bits, most) = (unscaled.bits(), MAX_INTEGER_DIGITS + u64::from(scale));
        if bits > MAX_INTEGER_DIGITS && (bits > 4 * most || digits(&unscaled) > most) {
            return Err(overflow());
        }
        Ok(Numeric::Finite { unscaled, scale })
    }

    /// Compares two numbers by value, as SQL does; their scales do not count. NaN is equal to NaN and greater
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

    /// Returns the sign as −1, 0 or 1; `None` for NaN.
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

    /// Returns the sign as a numeric: −1, 0, 1 or NaN.
    #[must_use]
    pub fn sign(&self) -> Numeric {
        self.signum().map_or(Numeric::NaN, |s| Numeric::from(i64::from(s)))
    }

    /// Returns `self + other`, with the greater of the two scales.
    ///
    /// # Errors
    /// 22003 where the result overflows.
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

    /// Returns `self − other`, with the greater of the two scales.
    ///
    /// # Errors
    /// 22003 where the result overflows.
    pub fn subtract(&self, other: &Numeric) -> Result<Numeric> {
        self.add(&other.negate())
    }

    /// Returns `self × other`, with the sum of the two scales, but at most 16383.
    ///
    /// # Errors
    /// 22003 where the result overflows.
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

    /// Returns the weight and the value of the first digit in base 10000, as `select_div_scale` of PostgreSQL
    /// uses them. Both are 0 for zero.
    fn leading(&self) -> (i64, i64) {
        let Numeric::Finite { unscaled, scale } = self else { return (0, 0) };
        if unscaled.is_zero() {
            return (0, 0);
        }
        let exponent = i64::try_from(digits(unscaled)).unwrap_or(i64::MAX) - 1 - i64::from(*scale);
        let weight = exponent.div_euclid(4);
        // The value is |v| / 10000^weight, rounded down, computed by moving the point of the unscaled number.
        let shift = i64::from(*scale) + 4 * weight;
        let power = ten(u32::try_from(shift.abs()).unwrap_or(0));
        let first = if shift >= 0 { unscaled.abs() / power } else { unscaled.abs() * power };
        (weight, first.to_i64().unwrap_or(0))
    }

    /// Returns `self / other`, with the scale that PostgreSQL gives quotients: at least 16 significant
    /// digits, and at least the scale of each operand.
    ///
    /// # Errors
    /// 22012 where `other` is zero. 22003 where the result overflows.
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

    /// Returns the whole part of `self / other`, rounded towards zero.
    ///
    /// # Errors
    /// 22012 where `other` is zero. 22003 where the result overflows.
    pub fn divide_whole(&self, other: &Numeric) -> Result<Numeric> {
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
    /// 22012 where `other` is zero.
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

    /// Rounds to `scale` digits after the decimal point. Halves are rounded away from zero. A negative scale
    /// rounds to digits before the decimal point.
    #[must_use]
    pub fn round(&self, scale: i32) -> Numeric {
        self.rescale(scale, divide_rounded)
    }

    /// Drops the digits after the first `scale` digits behind the decimal point.
    #[must_use]
    pub fn truncate(&self, scale: i32) -> Numeric {
        self.rescale(scale, |a, b| a / b)
    }

    /// Returns the least integer that is not less than the value.
    #[must_use]
    pub fn ceiling(&self) -> Numeric {
        self.rescale(0, Integer::div_ceil)
    }

    /// Returns the greatest integer that is not greater than the value.
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

    /// Returns the square root, rounded to the scale that PostgreSQL gives square roots.
    ///
    /// # Errors
    /// 2201F where the number is negative.
    pub fn square_root(&self) -> Result<Numeric> {
        if self.signum() == Some(-1) {
            return Err(Error::data("2201F", "cannot take square root of a negative number"));
        }
        let Numeric::Finite { unscaled, scale } = self else { return Ok(self.clone()) };
        let weight = ((self.leading().0 + 1) * 4).div_euclid(2) - 1;
        let out = (MIN_SIGNIFICANT - weight).max(i64::from(*scale)).clamp(0, MAX_DISPLAY_SCALE);
        // The root is computed with one digit more than needed, and then rounded. The digits behind the extra
        // digit have no influence: halves are rounded up, so the extra digit alone decides.
        let shift = u32::try_from(2 * (out + 1) - i64::from(*scale)).unwrap_or(0);
        let root = (unscaled * ten(shift)).sqrt();
        Numeric::finite(divide_rounded(&root, &BigInt::from(10)), u16::try_from(out).unwrap_or(0))
    }

    /// Rounds the value to `numeric(precision, scale)`.
    ///
    /// # Errors
    /// 22003 for infinities, and where more than `precision − scale` digits stand before the decimal point.
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

    /// Returns the nearest integer of `bits` bits. Halves are rounded away from zero.
    ///
    /// # Errors
    /// 22003 where the integer does not fit into `bits` bits; 0A000 for NaN and infinities.
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

    /// Returns the nearest value of `double precision`.
    pub fn to_f64(&self) -> f64 {
        match self {
            Numeric::NaN => f64::NAN,
            Numeric::Infinity => f64::INFINITY,
            Numeric::NegInfinity => f64::NEG_INFINITY,
            Numeric::Finite { .. } => self.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    /// Reads a number in PostgreSQL's input syntax. Returns `None` for another text.
    ///
    /// # Errors
    /// 22003 where the number is too large.
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
        // The time to read digits is quadratic in their number, so the number of digits is checked first.
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
