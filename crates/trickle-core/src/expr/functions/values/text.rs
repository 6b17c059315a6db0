//! Values of functions on strings. Positions and lengths count characters; a change of case maps one
//! character to one character, as PostgreSQL's libc provider does.

use super::{arg, count, int, mistyped, size, text};
use crate::error::{Error, Result};
use crate::types::Datum;

/// The greatest length, in bytes, of a string that a function of this module builds. PostgreSQL's limit of 1
/// GB is far greater.
const LIMIT: usize = 64 << 20;

pub(crate) fn concatenate(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::text([text(a, 0)?, text(a, 1)?].concat()))
}
pub(crate) fn bytes_concatenate(a: &[Datum]) -> Result<Datum> {
    match (arg(a, 0), arg(a, 1)) {
        (Datum::Bytes(x), Datum::Bytes(y)) => Ok(Datum::Bytes([&**x, &**y].concat().into())),
        (other, _) => Err(mistyped(other)),
    }
}

/// Whether `s` matches the LIKE pattern `p`, in which `\` escapes.
fn like(s: &[char], p: &[char]) -> Result<bool> {
    let (mut si, mut pi) = (0, 0);
    // The positions from which matching resumes after a mismatch: the last `%` then matches one more
    // character of the string.
    let mut resume: Option<(usize, usize)> = None;
    loop {
        match p.get(pi) {
            Some('%') => {
                resume = Some((si, pi + 1));
                pi += 1;
                continue;
            }
            Some('_') if si < s.len() => {
                (si, pi) = (si + 1, pi + 1);
                continue;
            }
            Some('\\') if si < s.len() => {
                let Some(literal) = p.get(pi + 1) else {
                    return Err(Error::data("22025", "LIKE pattern must not end with escape character"));
                };
                if *literal == s[si] {
                    (si, pi) = (si + 1, pi + 2);
                    continue;
                }
            }
            Some(c) if si < s.len() && *c == s[si] && *c != '\\' && *c != '_' => {
                (si, pi) = (si + 1, pi + 1);
                continue;
            }
            None if si == s.len() => return Ok(true),
            _ => {}
        }
        match resume {
            Some((at, after)) if at < s.len() => {
                resume = Some((at + 1, after));
                (si, pi) = (at + 1, after);
            }
            _ => return Ok(false),
        }
    }
}

fn chars(a: &[Datum], i: usize) -> Result<Vec<char>> {
    Ok(text(a, i)?.chars().collect())
}

/// Maps a character to its lower or upper case. A character whose other case consists of several characters
/// stays unchanged.
fn case(c: char, upper: bool) -> char {
    let mut mapped = c.to_lowercase();
    let mut raised = c.to_uppercase();
    let (first, more) = if upper { (raised.next(), raised.next()) } else { (mapped.next(), mapped.next()) };
    if more.is_some() { c } else { first.unwrap_or(c) }
}
fn lowered(a: &[Datum], i: usize) -> Result<Vec<char>> {
    Ok(text(a, i)?.chars().map(|c| case(c, false)).collect())
}

pub(crate) fn is_like(a: &[Datum]) -> Result<Datum> {
    like(&chars(a, 0)?, &chars(a, 1)?).map(Datum::Bool)
}
pub(crate) fn is_not_like(a: &[Datum]) -> Result<Datum> {
    like(&chars(a, 0)?, &chars(a, 1)?).map(|b| Datum::Bool(!b))
}
pub(crate) fn is_ilike(a: &[Datum]) -> Result<Datum> {
    like(&lowered(a, 0)?, &lowered(a, 1)?).map(Datum::Bool)
}
pub(crate) fn is_not_ilike(a: &[Datum]) -> Result<Datum> {
    like(&lowered(a, 0)?, &lowered(a, 1)?).map(|b| Datum::Bool(!b))
}
pub(crate) fn starts_with(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Bool(text(a, 0)?.starts_with(text(a, 1)?)))
}
pub(crate) fn lower(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::text(lowered(a, 0)?.iter().collect::<String>()))
}
pub(crate) fn upper(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::text(text(a, 0)?.chars().map(|c| case(c, true)).collect::<String>()))
}
pub(crate) fn initcap(a: &[Datum]) -> Result<Datum> {
    let mut inside = false;
    let capital = |c: char| {
        let mapped = case(c, !inside);
        inside = c.is_alphanumeric();
        mapped
    };
    Ok(Datum::text(text(a, 0)?.chars().map(capital).collect::<String>()))
}
pub(crate) fn length(a: &[Datum]) -> Result<Datum> {
    Ok(count(text(a, 0)?.chars().count()))
}
/// Returns the length of a `char(n)` value without its padding.
pub(crate) fn bpchar_length(a: &[Datum]) -> Result<Datum> {
    Ok(count(text(a, 0)?.trim_end_matches(' ').chars().count()))
}
pub(crate) fn octet_length(a: &[Datum]) -> Result<Datum> {
    match arg(a, 0) {
        Datum::Bytes(b) => Ok(count(b.len())),
        _ => Ok(count(text(a, 0)?.len())),
    }
}
pub(crate) fn bit_length(a: &[Datum]) -> Result<Datum> {
    Ok(count(text(a, 0)?.len() * 8))
}

/// Returns `len` characters from position `start`. Positions count from 1, and `start` may lie before the
/// string.
pub(crate) fn substring(a: &[Datum]) -> Result<Datum> {
    let (s, start) = (text(a, 0)?, int(a, 1)?);
    let end = if a.len() > 2 {
        let len = int(a, 2)?;
        if len < 0 {
            return Err(Error::data("22011", "negative substring length not allowed"));
        }
        start + len
    } else {
        i64::MAX
    };
    let from = start.max(1);
    Ok(Datum::text(s.chars().skip(size(from - 1)).take(size(end.saturating_sub(from))).collect::<String>()))
}
pub(crate) fn left(a: &[Datum]) -> Result<Datum> {
    let (s, n) = (chars(a, 0)?, int(a, 1)?);
    let keep = if n < 0 { s.len().saturating_sub(size(-n)) } else { size(n) };
    Ok(Datum::text(s.iter().take(keep).collect::<String>()))
}
pub(crate) fn right(a: &[Datum]) -> Result<Datum> {
    let (s, n) = (chars(a, 0)?, int(a, 1)?);
    let skip = if n < 0 { size(-n) } else { s.len().saturating_sub(size(n)) };
    Ok(Datum::text(s.iter().skip(skip).collect::<String>()))
}

/// Returns the characters to trim: blanks if none are given.
fn trimmed(a: &[Datum]) -> Result<Vec<char>> {
    if a.len() > 1 { chars(a, 1) } else { Ok(vec![' ']) }
}
pub(crate) fn btrim(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::text(text(a, 0)?.trim_matches(trimmed(a)?.as_slice())))
}
pub(crate) fn ltrim(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::text(text(a, 0)?.trim_start_matches(trimmed(a)?.as_slice())))
}
pub(crate) fn rtrim(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::text(text(a, 0)?.trim_end_matches(trimmed(a)?.as_slice())))
}
pub(crate) fn replace(a: &[Datum]) -> Result<Datum> {
    let (s, from, to) = (text(a, 0)?, text(a, 1)?, text(a, 2)?);
    Ok(if from.is_empty() { Datum::text(s) } else { Datum::text(s.replace(from, to)) })
}
pub(crate) fn translate(a: &[Datum]) -> Result<Datum> {
    let (s, from, to) = (text(a, 0)?, chars(a, 1)?, chars(a, 2)?);
    let map = |c: char| match from.iter().position(|f| *f == c) {
        Some(i) => to.get(i).copied(),
        None => Some(c),
    };
    Ok(Datum::text(s.chars().filter_map(map).collect::<String>()))
}
pub(crate) fn position(a: &[Datum]) -> Result<Datum> {
    let (s, wanted) = (text(a, 0)?, text(a, 1)?);
    Ok(s.find(wanted).map_or(Datum::Int(0), |at| count(s[..at].chars().count() + 1)))
}
pub(crate) fn reverse(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::text(text(a, 0)?.chars().rev().collect::<String>()))
}

fn too_long() -> Error {
    Error::data("54000", "requested length too large")
}
pub(crate) fn repeat(a: &[Datum]) -> Result<Datum> {
    let (s, n) = (text(a, 0)?, size(int(a, 1)?));
    if s.len().saturating_mul(n) > LIMIT {
        return Err(too_long());
    }
    Ok(Datum::text(s.repeat(n)))
}

fn pad(a: &[Datum], before: bool) -> Result<Datum> {
    let (s, n) = (chars(a, 0)?, size(int(a, 1)?));
    if n > LIMIT {
        return Err(too_long());
    }
    let fill = if a.len() > 2 { chars(a, 2)? } else { vec![' '] };
    let missing = n.saturating_sub(s.len());
    let padding = fill.iter().cycle().take(missing);
    let kept = s.iter().take(n);
    Ok(Datum::text(if before {
        padding.chain(kept).collect::<String>()
    } else {
        kept.chain(padding).collect()
    }))
}
pub(crate) fn lpad(a: &[Datum]) -> Result<Datum> {
    pad(a, true)
}
pub(crate) fn rpad(a: &[Datum]) -> Result<Datum> {
    pad(a, false)
}
pub(crate) fn split_part(a: &[Datum]) -> Result<Datum> {
    let (s, delimiter, n) = (text(a, 0)?, text(a, 1)?, int(a, 2)?);
    if n == 0 {
        return Err(Error::data("22023", "field position must not be zero"));
    }
    let fields: Vec<&str> = match (s, delimiter) {
        ("", _) => Vec::new(),
        (s, "") => vec![s],
        (s, d) => s.split(d).collect(),
    };
    let at = if n > 0 { size(n).checked_sub(1) } else { fields.len().checked_sub(size(-n)) };
    Ok(Datum::text(at.and_then(|i| fields.get(i)).copied().unwrap_or("")))
}
pub(crate) fn ascii(a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int(text(a, 0)?.chars().next().map_or(0, |c| i64::from(u32::from(c)))))
}
pub(crate) fn chr(a: &[Datum]) -> Result<Datum> {
    let n = int(a, 0)?;
    if n == 0 {
        return Err(Error::data("54000", "null character not permitted"));
    }
    if n < 0 {
        return Err(Error::data("22023", "character number must be positive"));
    }
    match u32::try_from(n).ok().and_then(char::from_u32) {
        Some(c) => Ok(Datum::text(c.to_string())),
        None => Err(Error::data("54000", format!("requested character too large for encoding: {n}"))),
    }
}
/// Writes an integer in hexadecimal. A negative integer is written as its two's complement of `BITS` bits.
pub(crate) fn to_hex<const BITS: u32>(a: &[Datum]) -> Result<Datum> {
    let n = int(a, 0)?;
    let mask = if BITS == 64 { u64::MAX } else { u64::from(u32::MAX) };
    Ok(Datum::text(format!("{:x}", n.cast_unsigned() & mask)))
}
