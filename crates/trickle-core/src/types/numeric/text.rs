//! Reading and writing numerics as text.

use super::{MAX_INTEGER_DIGITS, MAX_SCALE, Numeric, overflow, ten};
use crate::error::Result;
use num_bigint::BigInt;
use num_traits::Signed;
use std::fmt;

impl Numeric {
    /// Returns the nearest value of `double precision`.
    pub fn to_f64(&self) -> f64 {
        match self {
            Numeric::NaN => f64::NAN,
            Numeric::Infinity => f64::INFINITY,
            Numeric::NegInfinity => f64::NEG_INFINITY,
            Numeric::Finite { .. } => self.to_string().parse().unwrap_or(f64::NAN),
        }
    }

    /// Reads a number in PostgreSQL's input syntax. Returns `None` for any other text.
    ///
    /// # Errors
    /// Fails with 22003 if the number is too large.
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
        // Reading n digits takes a time that grows with n², so the number of digits is checked first.
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
