//! Lowers constants. The size of a number decides its type; the context of an untyped literal decides its
//! type.

use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::types::{Datum, Numeric, Type};
use num_bigint::BigInt;
use std::sync::Arc;

/// Lowers a number: to `integer` if its value fits, else to `bigint` if the value fits, else to `numeric`
/// with the digits as written.
pub(super) fn number(text: &str) -> Result<Expr> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let radix = match digits.get(..2) {
        Some("0x" | "0X") => 16,
        Some("0o" | "0O") => 8,
        Some("0b" | "0B") => 2,
        _ => 10,
    };
    let body = if radix == 10 { digits.as_str() } else { digits.get(2..).unwrap_or_default() };
    let unknown = || Error::syntax(format!("\"{text}\" is not a number"));
    if radix == 10 {
        return match body.parse() {
            Ok(n) => Ok(integer(n)),
            Err(_) => decimal(body)?.ok_or_else(unknown),
        };
    }
    let n = BigInt::parse_bytes(body.as_bytes(), radix).ok_or_else(unknown)?;
    match i64::try_from(&n) {
        Ok(n) => Ok(integer(n)),
        Err(_) => Numeric::finite(n, 0).map(exact),
    }
}

fn integer(n: i64) -> Expr {
    let ty = if i32::try_from(n).is_ok() { Type::Int4 } else { Type::Int8 };
    Expr::literal(Datum::Int(n), ty)
}

fn exact(n: Numeric) -> Expr {
    Expr::literal(Datum::Numeric(Arc::new(n)), Type::Numeric(None))
}

/// Reads `12.50`, `.5`, `1e-3` as an exact numeric; `None` for any other text, NaN and infinity included.
fn decimal(text: &str) -> Result<Option<Expr>> {
    Ok(Numeric::parse(text)?.filter(|n| matches!(n, Numeric::Finite { .. })).map(exact))
}

/// Reads an untyped literal as a value of type `to`. If the engine does not read values of this type, the
/// literal becomes a cast of its text.
pub(super) fn read(text: &str, to: &Type) -> Result<Expr> {
    let invalid = || Error::data("22P02", format!("invalid input syntax for type {}: \"{text}\"", to.base()));
    let trimmed = text.trim();
    let value = match to {
        Type::Unknown => return Ok(Expr::literal(Datum::text(text), Type::Unknown)),
        Type::Text | Type::Varchar(None) => Datum::text(text),
        Type::Bool => Datum::Bool(boolean(trimmed).ok_or_else(invalid)?),
        Type::Int2 | Type::Int4 | Type::Int8 => {
            let n: std::result::Result<i64, _> = trimmed.parse();
            let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(invalid());
            }
            let fits = |n: i64| match to {
                Type::Int2 => i16::try_from(n).is_ok(),
                Type::Int4 => i32::try_from(n).is_ok(),
                _ => true,
            };
            match n {
                Ok(n) if fits(n) => Datum::Int(n),
                _ => {
                    let e = format!("value \"{trimmed}\" is out of range for type {to}");
                    return Err(Error::data("22003", e));
                }
            }
        }
        Type::Numeric(modifier) => match (decimal(trimmed)?, modifier) {
            (Some(e), None) => return Ok(e),
            (Some(e), Some(_)) => return Ok(e.cast(to.clone())),
            (None, _) if special(trimmed) => return Ok(untyped(text).cast(to.clone())),
            (None, _) => return Err(invalid()),
        },
        Type::Float4 | Type::Float8 => {
            let plain = trimmed.bytes().all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
            match trimmed.parse::<f64>() {
                Ok(x) if plain && *to == Type::Float8 && x.is_finite() => Datum::Float(x),
                Ok(_) if plain => return Ok(untyped(text).cast(to.clone())),
                _ if special(trimmed) => return Ok(untyped(text).cast(to.clone())),
                _ => return Err(invalid()),
            }
        }
        _ => return Ok(untyped(text).cast(to.clone())),
    };
    Ok(Expr::literal(value, to.clone()))
}

/// Makes a text whose type is still open.
pub(super) fn untyped(text: &str) -> Expr {
    Expr::literal(Datum::text(text), Type::Unknown)
}

fn special(text: &str) -> bool {
    let text = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    matches!(text.as_str(), "nan" | "inf" | "infinity")
}

/// Reads `boolean` input: a case-insensitive prefix of true, false, yes or no; on, off, 1, 0.
fn boolean(text: &str) -> Option<bool> {
    let t = text.to_ascii_lowercase();
    let prefix = |word: &str| !t.is_empty() && word.starts_with(&t);
    match t.as_str() {
        "on" | "1" => Some(true),
        "off" | "of" | "0" => Some(false),
        _ if prefix("true") || prefix("yes") => Some(true),
        _ if prefix("false") || prefix("no") => Some(false),
        _ => None,
    }
}

/// Whether a date or time literal, such as `now`, denotes another moment each time it is read.
pub(super) fn is_clock(text: &str, to: &Type) -> bool {
    let timed = matches!(to, Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz);
    let word = text.trim().to_ascii_lowercase();
    timed && word.split_whitespace().any(|w| matches!(w, "now" | "today" | "tomorrow" | "yesterday"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_smallest_type() {
        let ty = |s: &str| number(s).unwrap().ty().clone();
        assert_eq!(ty("2147483647"), Type::Int4);
        assert_eq!(ty("2147483648"), Type::Int8);
        assert_eq!(ty("9223372036854775808"), Type::Numeric(None));
        assert_eq!(ty("1_000"), Type::Int4);
        assert_eq!(ty("0xff"), Type::Int4);
        assert_eq!(number("1.50").unwrap().fixed_scale(), Some(2));
        assert_eq!(number("1e-3").unwrap().fixed_scale(), Some(3));
        assert_eq!(number("1e3").unwrap().fixed_scale(), Some(0));
        assert!(number("abc").is_err());
    }

    #[test]
    fn literals_are_read_as_their_type() {
        assert_eq!(read(" 42 ", &Type::Int4).unwrap(), Expr::literal(Datum::Int(42), Type::Int4));
        assert_eq!(read("t", &Type::Bool).unwrap(), Expr::bool(true));
        assert_eq!(read("x", &Type::Int4).unwrap_err().sqlstate(), "22P02");
        assert_eq!(read("70000", &Type::Int2).unwrap_err().sqlstate(), "22003");
        assert!(read("NaN", &Type::Numeric(None)).is_ok());
        assert!(is_clock("Today", &Type::Date) && !is_clock("today", &Type::Text));
    }
}
