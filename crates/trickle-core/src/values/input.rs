//! Reads values from text as PostgreSQL's input functions do.

use super::input_time;
use crate::error::{Error, Result};
use crate::types::{Datum, Numeric, Type};
use std::sync::Arc;

/// Makes the error 22P02 with PostgreSQL's message.
pub(super) fn invalid(ty: &Type, text: &str) -> Error {
    Error::data("22P02", format!("invalid input syntax for type {}: \"{text}\"", ty.base()))
}

/// Reads `text` as a value of type `ty`, as `CAST('text' AS ty)` does. A text that is too long for
/// `varchar(n)` or `char(n)` is cut silently.
///
/// Dates and times are read in ISO form (or as `infinity`). If the type has a zone, an offset or `Z` is read;
/// without one, the time is in UTC. Intervals are read in the `postgres` style. A value of a type that the
/// evaluator does not know stays a text.
///
/// # Errors
/// Fails with 22P02, 22007 or 22008 if the text is not a value of type `ty`, and with 22003 if the value is
/// out of the type's range.
pub fn input(text: &str, ty: &Type) -> Result<Datum> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    Ok(match ty {
        Type::Bool => Datum::Bool(boolean(trimmed).ok_or_else(|| invalid(ty, text))?),
        Type::Int2 | Type::Int4 | Type::Int8 => Datum::Int(integer(trimmed, text, ty)?),
        Type::Numeric(mods) => {
            let n = Numeric::parse(trimmed)?.ok_or_else(|| invalid(ty, text))?;
            let n = match mods {
                Some((p, s)) => n.with_typmod(*p, *s)?,
                None => n,
            };
            Datum::Numeric(Arc::new(n))
        }
        Type::Float4 | Type::Float8 => Datum::Float(float(trimmed, text, ty)?),
        Type::Text
        | Type::Unknown
        | Type::Other(_)
        | Type::Record(_)
        | Type::Varchar(_)
        | Type::Bpchar(_) => fit_string(text, ty),
        Type::Bytea => bytes(text)?,
        Type::Date => Datum::Date(input_time::date(text)?),
        Type::Time => Datum::Time(input_time::time(text)?),
        Type::Timestamp => Datum::Timestamp(input_time::timestamp(text, false)?),
        Type::Timestamptz => Datum::Timestamp(input_time::timestamp(text, true)?),
        Type::Interval => Datum::Interval(input_time::interval(text)?),
        Type::Uuid => Datum::Uuid(uuid(text).ok_or_else(|| invalid(ty, text))?),
        Type::Json => {
            json(text, ty)?;
            Datum::text(text)
        }
        Type::Jsonb => Datum::Json(Arc::new(json(text, ty)?)),
        Type::Array(element) => Datum::Array(array(trimmed, element)?.into()),
    })
}

/// Cuts a text to the limit of `varchar(n)` and `bit varying(n)`. For `char(n)` and `bit(n)`, cuts or pads
/// the text to the length of the type.
pub(super) fn fit_string(text: &str, ty: &Type) -> Datum {
    let cut = |n: u32| text.chars().take(usize::try_from(n).unwrap_or(usize::MAX)).collect::<String>();
    match ty {
        Type::Varchar(Some(n)) => Datum::text(cut(*n)),
        Type::Bpchar(Some(n)) => {
            let width = usize::try_from(*n).unwrap_or(0);
            Datum::text(format!("{:<width$}", cut(*n)))
        }
        Type::Other(o) => match modified(&o.sql_name) {
            ("bit", n) => {
                let n = n.unwrap_or(1);
                let width = usize::try_from(n).unwrap_or(0);
                Datum::text(format!("{:0<width$}", cut(n)))
            }
            ("bit varying" | "varbit", Some(n)) => Datum::text(cut(n)),
            _ => Datum::text(text),
        },
        _ => Datum::text(text),
    }
}

/// Splits a type's name into the name without its modifier, and the modifier. The modifier is `None` if it is
/// not one number.
fn modified(name: &str) -> (&str, Option<u32>) {
    match name.split_once('(') {
        Some((base, rest)) => (base, rest.strip_suffix(')').and_then(|n| n.parse().ok())),
        None => (name, None),
    }
}

/// Reads a boolean word, or a prefix that only one boolean word has.
fn boolean(text: &str) -> Option<bool> {
    let t = text.to_ascii_lowercase();
    match t.as_str() {
        "" | "o" => None,
        "1" | "on" => Some(true),
        "0" | "of" | "off" => Some(false),
        t if "true".starts_with(t) || "yes".starts_with(t) => Some(true),
        t if "false".starts_with(t) || "no".starts_with(t) => Some(false),
        _ => None,
    }
}

fn integer(trimmed: &str, text: &str, ty: &Type) -> Result<i64> {
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid(ty, text));
    }
    let limit = match ty {
        Type::Int2 => i64::from(i16::MAX),
        Type::Int4 => i64::from(i32::MAX),
        _ => i64::MAX,
    };
    let range = || Error::data("22003", format!("value \"{text}\" is out of range for type {ty}"));
    let n: i64 = trimmed.parse().map_err(|_| range())?;
    if (-limit - 1..=limit).contains(&n) { Ok(n) } else { Err(range()) }
}

fn float(trimmed: &str, text: &str, ty: &Type) -> Result<f64> {
    let word = trimmed.to_ascii_lowercase();
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(&word);
    // Words such as `infinity` are recognized first. All other texts that are numbers for PostgreSQL are the
    // same numbers for Rust.
    let special = matches!(unsigned, "inf" | "infinity" | "nan");
    if !special && !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(invalid(ty, text));
    }
    let (x, zero) = if *ty == Type::Float4 {
        let x: f32 = word.parse().map_err(|_| invalid(ty, text))?;
        (f64::from(x), x == 0.0)
    } else {
        let x: f64 = word.parse().map_err(|_| invalid(ty, text))?;
        (x, x == 0.0)
    };
    let mantissa = unsigned.split('e').next().unwrap_or_default();
    let underflow = zero && mantissa.contains(|c: char| ('1'..='9').contains(&c));
    if !special && (x.is_infinite() || underflow) {
        return Err(Error::data("22003", format!("\"{text}\" is out of range for type {ty}")));
    }
    Ok(x)
}

fn bytes(text: &str) -> Result<Datum> {
    let bad = || Error::data("22P02", "invalid input syntax for type bytea");
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        if !digits.len().is_multiple_of(2) {
            return Err(Error::data("22023", "invalid hexadecimal data: odd number of digits"));
        }
        let invalid =
            |b: u8| Error::data("22023", format!("invalid hexadecimal digit: \"{}\"", char::from(b)));
        let byte = |p: &[u8]| {
            let high = digit(p[0]).ok_or_else(|| invalid(p[0]))?;
            Ok(high * 16 + digit(p[1]).ok_or_else(|| invalid(p[1]))?)
        };
        return Ok(Datum::Bytes(digits.chunks_exact(2).map(byte).collect::<Result<_>>()?));
    }
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        (rest, _) = match (first, tail) {
            (b'\\', [b'\\', tail @ ..]) => (tail, out.push(b'\\')),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                (tail, out.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0')))
            }
            (b'\\', _) => return Err(bad()),
            (byte, tail) => (tail, out.push(*byte)),
        };
    }
    Ok(Datum::Bytes(out.into()))
}

/// Reads 32 hexadecimal digits, with an optional hyphen after every fourth digit and optional braces around
/// the whole.
fn uuid(text: &str) -> Option<u128> {
    let body = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    let mut digits = String::new();
    let mut hyphen = true;
    for c in body.chars() {
        if c == '-' {
            if hyphen || !digits.len().is_multiple_of(4) {
                return None;
            }
            hyphen = true;
        } else {
            digits.push(c);
            hyphen = false;
        }
    }
    let valid = digits.len() == 32 && !hyphen && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if valid { u128::from_str_radix(&digits, 16).ok() } else { None }
}

fn json(text: &str, ty: &Type) -> Result<serde_json::Value> {
    serde_json::from_str(text).map_err(|e| {
        Error::data("22P02", format!("invalid input syntax for type {ty}")).detail(e.to_string())
    })
}

/// Reads the elements of `{1,NULL,"a b"}`.
fn array(text: &str, element: &Type) -> Result<Vec<Datum>> {
    let bad = |why: &str| Error::data("22P02", format!("malformed array literal: \"{text}\"")).detail(why);
    let inner = text
        .strip_prefix('{')
        .and_then(|t| t.strip_suffix('}'))
        .ok_or_else(|| bad("Array value must start with \"{\" and end with \"}\"."))?;
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut items = Vec::new();
    let mut chars = inner.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        let (mut item, mut quoted) = (String::new(), false);
        if chars.next_if_eq(&'"').is_some() {
            quoted = true;
            loop {
                match chars.next() {
                    Some('"') => break,
                    Some('\\') => item.extend(chars.next()),
                    Some(c) => item.push(c),
                    None => return Err(bad("Unexpected end of input.")),
                }
            }
            while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',') {
                match c {
                    '{' | '}' | '"' => return Err(bad("Nested arrays are not read here.")),
                    '\\' => item.extend(chars.next()),
                    c => item.push(c),
                }
            }
            item.truncate(item.trim_end().len());
            if item.is_empty() {
                return Err(bad("Unexpected \",\" character."));
            }
        }
        let null = !quoted && item.eq_ignore_ascii_case("null");
        items.push(if null { Datum::Null } else { input(&item, element)? });
        match chars.next() {
            None => return Ok(items),
            Some(',') => {}
            Some(_) => return Err(bad("Unexpected array element.")),
        }
    }
}
