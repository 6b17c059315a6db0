//! Values of arithmetic functions, with PostgreSQL's overflow and division errors.

use super::{dec, float, int, numeric};
use crate::error::{Error, Result};
use crate::types::{Datum, Numeric};
use num_integer::Integer;

/// Checks that a value fits into an integer of `BITS` bits.
pub(crate) fn fit<const BITS: u32>(n: i128) -> Result<Datum> {
    let name = match BITS {
        16 => "smallint",
        32 => "integer",
        _ => "bigint",
    };
    let limit = 1_i128 << (BITS - 1);
    match i64::try_from(n) {
        Ok(n) if (-limit..limit).contains(&i128::from(n)) => Ok(Datum::Int(n)),
        _ => Err(Error::data("22003", format!("{name} out of range"))),
    }
}

pub(crate) fn division_by_zero() -> Error {
    Error::data("22012", "division by zero")
}

fn pair(a: &[Datum]) -> Result<(i128, i128)> {
    Ok((i128::from(int(a, 0)?), i128::from(int(a, 1)?)))
}

pub(crate) fn add<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = pair(a)?;
    fit::<BITS>(x + y)
}
pub(crate) fn subtract<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = pair(a)?;
    fit::<BITS>(x - y)
}
pub(crate) fn multiply<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = pair(a)?;
    fit::<BITS>(x * y)
}
pub(crate) fn divide<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = pair(a)?;
    fit::<BITS>(x.checked_div(y).ok_or_else(division_by_zero)?)
}
pub(crate) fn modulo<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = pair(a)?;
    fit::<BITS>(x.checked_rem(y).ok_or_else(division_by_zero)?)
}
pub(crate) fn negate<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    fit::<BITS>(-i128::from(int(a, 0)?))
}
pub(crate) fn absolute<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    fit::<BITS>(i128::from(int(a, 0)?).abs())
}
pub(crate) fn gcd<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = pair(a)?;
    fit::<BITS>(x.gcd(&y))
}
pub(crate) fn lcm<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = pair(a)?;
    fit::<BITS>(x.lcm(&y).abs())
}
pub(crate) fn same(a: &[Datum]) -> Result<Datum> {
    Ok(super::arg(a, 0).clone())
}
pub(crate) fn bit_and(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int(int(a, 0)? & int(a, 1)?))
}
pub(crate) fn bit_or(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int(int(a, 0)? | int(a, 1)?))
}
pub(crate) fn bit_xor(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int(int(a, 0)? ^ int(a, 1)?))
}
pub(crate) fn bit_not(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int(!int(a, 0)?))
}

/// Shifts as C does on a two's-complement machine: the count is reduced modulo the width of the (promoted)
/// operand.
pub(crate) fn shift_left<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let (x, n) = (int(a, 0)?, int(a, 1)?);
    Ok(Datum::Int(truncate(BITS, x.wrapping_shl(shift_count(BITS, n)))))
}
pub(crate) fn shift_right<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let (x, n) = (int(a, 0)?, int(a, 1)?);
    Ok(Datum::Int(x.wrapping_shr(shift_count(BITS, n))))
}

fn shift_count(bits: u32, n: i64) -> u32 {
    u32::try_from(n.rem_euclid(if bits == 64 { 64 } else { 32 })).unwrap_or(0)
}

/// Returns the lowest `bits` bits of `n` as a signed number.
fn truncate(bits: u32, n: i64) -> i64 {
    let unused = 64 - bits;
    (n << unused) >> unused
}

pub(crate) fn dec_add(a: &[Datum]) -> Result<Datum> {
    dec(a, 0)?.add(dec(a, 1)?).map(numeric)
}
pub(crate) fn dec_subtract(a: &[Datum]) -> Result<Datum> {
    dec(a, 0)?.subtract(dec(a, 1)?).map(numeric)
}
pub(crate) fn dec_multiply(a: &[Datum]) -> Result<Datum> {
    dec(a, 0)?.multiply(dec(a, 1)?).map(numeric)
}
pub(crate) fn dec_divide(a: &[Datum]) -> Result<Datum> {
    dec(a, 0)?.divide(dec(a, 1)?).map(numeric)
}
pub(crate) fn dec_modulo(a: &[Datum]) -> Result<Datum> {
    dec(a, 0)?.remainder(dec(a, 1)?).map(numeric)
}
pub(crate) fn dec_whole(a: &[Datum]) -> Result<Datum> {
    dec(a, 0)?.divide_whole(dec(a, 1)?).map(numeric)
}
pub(crate) fn dec_negate(a: &[Datum]) -> Result<Datum> {
    Ok(numeric(dec(a, 0)?.negate()))
}
pub(crate) fn dec_absolute(a: &[Datum]) -> Result<Datum> {
    Ok(numeric(dec(a, 0)?.absolute()))
}
pub(crate) fn dec_sign(a: &[Datum]) -> Result<Datum> {
    Ok(numeric(dec(a, 0)?.sign()))
}
pub(crate) fn dec_ceiling(a: &[Datum]) -> Result<Datum> {
    Ok(numeric(dec(a, 0)?.ceiling()))
}
pub(crate) fn dec_floor(a: &[Datum]) -> Result<Datum> {
    Ok(numeric(dec(a, 0)?.floor()))
}
pub(crate) fn dec_sqrt(a: &[Datum]) -> Result<Datum> {
    dec(a, 0)?.square_root().map(numeric)
}

/// Returns the number of fractional digits to which a value is rounded: the second argument, or 0 if there is
/// none.
fn places(a: &[Datum]) -> Result<i32> {
    if a.len() < 2 { Ok(0) } else { Ok(i32::try_from(int(a, 1)?).unwrap_or(i32::MAX)) }
}
pub(crate) fn dec_round(a: &[Datum]) -> Result<Datum> {
    Ok(numeric(dec(a, 0)?.round(places(a)?)))
}
pub(crate) fn dec_trunc(a: &[Datum]) -> Result<Datum> {
    Ok(numeric(dec(a, 0)?.truncate(places(a)?)))
}
pub(crate) fn scale(a: &[Datum]) -> Result<Datum> {
    Ok(match dec(a, 0)? {
        Numeric::Finite { scale, .. } => Datum::Int(i64::from(*scale)),
        _ => Datum::Null,
    })
}
pub(crate) fn min_scale(a: &[Datum]) -> Result<Datum> {
    scale(&[numeric(dec(a, 0)?.normalized())])
}
pub(crate) fn trim_scale(a: &[Datum]) -> Result<Datum> {
    Ok(numeric(dec(a, 0)?.normalized()))
}

/// Returns a float result in single or double precision. Unless `infinite` is true, an infinite result is an
/// overflow. Unless `zero` is true, a result of 0 is an underflow.
fn checked(single: bool, x: f64, infinite: bool, zero: bool) -> Result<Datum> {
    #[allow(clippy::cast_possible_truncation)]
    let x = if single { f64::from(x as f32) } else { x };
    if x.is_infinite() && !infinite {
        return Err(Error::data("22003", "value out of range: overflow"));
    }
    if x == 0.0 && !zero {
        return Err(Error::data("22003", "value out of range: underflow"));
    }
    Ok(Datum::Float(x))
}

pub(crate) fn float_add<const SINGLE: bool>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (float(a, 0)?, float(a, 1)?);
    checked(SINGLE, x + y, x.is_infinite() || y.is_infinite(), true)
}
pub(crate) fn float_subtract<const SINGLE: bool>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (float(a, 0)?, float(a, 1)?);
    checked(SINGLE, x - y, x.is_infinite() || y.is_infinite(), true)
}
pub(crate) fn float_multiply<const SINGLE: bool>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (float(a, 0)?, float(a, 1)?);
    checked(SINGLE, x * y, x.is_infinite() || y.is_infinite(), x == 0.0 || y == 0.0)
}
pub(crate) fn float_divide<const SINGLE: bool>(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (float(a, 0)?, float(a, 1)?);
    if y == 0.0 && !x.is_nan() {
        return Err(division_by_zero());
    }
    checked(SINGLE, x / y, x.is_infinite(), x == 0.0 || y.is_infinite())
}
pub(crate) fn power(a: &[Datum]) -> Result<Datum> {
    let (x, y) = (float(a, 0)?, float(a, 1)?);
    if x == 0.0 && y < 0.0 {
        return Err(Error::data("2201F", "zero raised to a negative power is undefined"));
    }
    if x < 0.0 && y.is_finite() && y.fract() != 0.0 {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(Error::data("2201F", message));
    }
    let infinite = x.is_infinite() || y.is_infinite();
    checked(false, x.powf(y), infinite, infinite || x == 0.0)
}
pub(crate) fn sqrt(a: &[Datum]) -> Result<Datum> {
    let x = float(a, 0)?;
    if x < 0.0 {
        return Err(Error::data("2201F", "cannot take square root of a negative number"));
    }
    Ok(Datum::Float(x.sqrt()))
}
pub(crate) fn exp(a: &[Datum]) -> Result<Datum> {
    let x = float(a, 0)?;
    checked(false, x.exp(), x.is_infinite(), x.is_infinite())
}
fn positive(x: f64) -> Result<f64> {
    match x {
        0.0 => Err(Error::data("2201E", "cannot take logarithm of zero")),
        x if x < 0.0 => Err(Error::data("2201E", "cannot take logarithm of a negative number")),
        x => Ok(x),
    }
}
pub(crate) fn ln(a: &[Datum]) -> Result<Datum> {
    positive(float(a, 0)?).map(|x| Datum::Float(x.ln()))
}
pub(crate) fn log10(a: &[Datum]) -> Result<Datum> {
    positive(float(a, 0)?).map(|x| Datum::Float(x.log10()))
}
pub(crate) fn cbrt(a: &[Datum]) -> Result<Datum> {
    float(a, 0).map(|x| Datum::Float(x.cbrt()))
}
pub(crate) fn pi(_: &[Datum]) -> Result<Datum> {
    Ok(Datum::Float(std::f64::consts::PI))
}
pub(crate) fn float_negate(a: &[Datum]) -> Result<Datum> {
    float(a, 0).map(|x| Datum::Float(-x))
}
pub(crate) fn float_absolute(a: &[Datum]) -> Result<Datum> {
    float(a, 0).map(|x| Datum::Float(x.abs()))
}
pub(crate) fn float_ceil(a: &[Datum]) -> Result<Datum> {
    float(a, 0).map(|x| Datum::Float(x.ceil()))
}
pub(crate) fn float_floor(a: &[Datum]) -> Result<Datum> {
    float(a, 0).map(|x| Datum::Float(x.floor()))
}
/// Rounds a float. Halves are rounded to the even neighbour.
pub(crate) fn float_round(a: &[Datum]) -> Result<Datum> {
    float(a, 0).map(|x| Datum::Float(x.round_ties_even()))
}
pub(crate) fn float_trunc(a: &[Datum]) -> Result<Datum> {
    float(a, 0).map(|x| Datum::Float(x.trunc()))
}
pub(crate) fn float_sign(a: &[Datum]) -> Result<Datum> {
    float(a, 0).map(|x| {
        Datum::Float(if x > 0.0 {
            1.0
        } else if x < 0.0 {
            -1.0
        } else {
            0.0
        })
    })
}
