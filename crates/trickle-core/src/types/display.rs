//! Writes values as PostgreSQL writes them: output functions, ISO dates, UTC, `postgres` intervals, shortest
//! floats.

use super::calendar::{HOUR, MINUTE, SECOND, civil_from_days, split};
use super::{Datum, Interval, Type};
use serde_json::Value;
use std::fmt::{self, Write as _};

impl Datum {
    /// Returns the text that PostgreSQL's output function returns. Returns `None` for NULL.
    ///
    /// The type is needed for facts that are not in the value: whether the value, or an element of it, is a
    /// `timestamptz` (written in UTC) or a `real`.
    pub fn to_text(&self, ty: &Type) -> Option<String> {
        Some(match (self, ty) {
            (Datum::Null, _) => return None,
            (Datum::Timestamp(t), Type::Timestamptz) => {
                let text = timestamp_text(*t);
                match text.strip_suffix(" BC") {
                    Some(t) => format!("{t}+00 BC"),
                    None if is_infinite(*t) => text,
                    None => format!("{text}+00"),
                }
            }
            (Datum::Float(x), Type::Float4) => float_text(*x, true),
            (Datum::Array(items), Type::Array(element)) => array_text(items, element),
            (Datum::Record(fields), Type::Record(types)) => record_text(fields, types),
            (Datum::Array(items), _) => array_text(items, &Type::Unknown),
            (Datum::Record(fields), _) => record_text(fields, &[]),
            (Datum::Bool(b), _) => if *b { "t" } else { "f" }.to_owned(),
            (Datum::Int(i), _) => i.to_string(),
            (Datum::Numeric(n), _) => n.to_string(),
            (Datum::Float(x), _) => float_text(*x, false),
            (Datum::Text(s), _) => s.to_string(),
            (Datum::Bytes(b), _) => b.iter().fold("\\x".to_owned(), |mut out, byte| {
                let _ = write!(out, "{byte:02x}");
                out
            }),
            (Datum::Date(d), _) => date_text(*d),
            (Datum::Time(t), _) => time_text(*t),
            (Datum::Timestamp(t), _) => timestamp_text(*t),
            (Datum::Interval(i), _) => interval_text(*i),
            (Datum::Uuid(u), _) => uuid_text(*u),
            (Datum::Json(j), _) => jsonb_text(j),
        })
    }
}

/// Writes the text that PostgreSQL's output function returns, or `NULL` for NULL. A timestamp is written
/// without a time zone, since the value does not contain its type.
impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_text(&Type::Unknown).as_deref().unwrap_or("NULL"))
    }
}

fn is_infinite(t: i64) -> bool {
    t == i64::MAX || t == i64::MIN
}

fn date_text(days: i32) -> String {
    match days {
        i32::MAX => "infinity".to_owned(),
        i32::MIN => "-infinity".to_owned(),
        _ => {
            let (text, bc) = civil_text(i64::from(days));
            format!("{text}{bc}")
        }
    }
}

/// Returns the text of a date. Also returns ` BC` or an empty text, which is written after the time.
fn civil_text(days: i64) -> (String, &'static str) {
    let (y, m, d) = civil_from_days(days);
    let (year, bc) = if y > 0 { (y, "") } else { (1 - y, " BC") };
    (format!("{year:04}-{m:02}-{d:02}"), bc)
}

fn time_text(micros: i64) -> String {
    let (h, m, s) = (micros / HOUR, micros % HOUR / MINUTE, micros % MINUTE);
    format!("{h:02}:{m:02}:{}", seconds_text(s))
}

/// Returns the text of seconds: two digits before the point, and as many digits after it as the value needs.
fn seconds_text(micros: i64) -> String {
    let mut text = format!("{:02}.{:06}", micros / SECOND, micros % SECOND);
    let kept = text.trim_end_matches('0').trim_end_matches('.').len().max(2);
    text.truncate(kept);
    text
}

/// Returns the text of a timestamp without a time zone.
pub(crate) fn timestamp_text(t: i64) -> String {
    match t {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        _ => {
            let (days, micros) = split(t);
            let (date, bc) = civil_text(days);
            format!("{date} {}{bc}", time_text(micros))
        }
    }
}

/// Returns the text of an interval in the `postgres` style.
pub(crate) fn interval_text(i: Interval) -> String {
    let mut out = String::new();
    let mut before = false;
    for (n, unit) in [(i.months / 12, "year"), (i.months % 12, "mon"), (i.days, "day")] {
        if n != 0 {
            let sep = if out.is_empty() { "" } else { " " };
            let plus = if before && n > 0 { "+" } else { "" };
            let s = if n == 1 { "" } else { "s" };
            let _ = write!(out, "{sep}{plus}{n} {unit}{s}");
            before = n < 0;
        }
    }
    if out.is_empty() || i.micros != 0 {
        let sep = if out.is_empty() { "" } else { " " };
        let sign = match i.micros {
            m if m < 0 => "-",
            _ if before => "+",
            _ => "",
        };
        let abs = i128::from(i.micros).abs();
        let (hours, rest) = (abs / i128::from(HOUR), i64::try_from(abs % i128::from(HOUR)).unwrap_or(0));
        let _ = write!(out, "{sep}{sign}{hours:02}:{:02}:{}", rest / MINUTE, seconds_text(rest % MINUTE));
    }
    out
}

/// Returns the shortest text that reads back as the same float. Exponents are written as by C's `%g`.
pub(crate) fn float_text(x: f64, single: bool) -> String {
    if x.is_nan() {
        return "NaN".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    #[allow(clippy::cast_possible_truncation)]
    let scientific = if single { format!("{:e}", x as f32) } else { format!("{x:e}") };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit = if single { 6 } else { 15 };
    if !(-4..limit).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    #[allow(clippy::cast_possible_truncation)]
    if single { format!("{}", x as f32) } else { format!("{x}") }
}

fn uuid_text(u: u128) -> String {
    let hex = format!("{u:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Returns the text of an array, such as `{1,NULL,"a b"}`.
pub(crate) fn array_text(items: &[Datum], element: &Type) -> String {
    let items: Vec<String> = items
        .iter()
        .map(|d| match d.to_text(element) {
            None => "NULL".to_owned(),
            // A nested array is written without quotes.
            Some(text) if matches!(d, Datum::Array(_)) => text,
            Some(text) => {
                let plain = !text.is_empty()
                    && !text.eq_ignore_ascii_case("null")
                    && !text.contains(|c: char| matches!(c, '{' | '}' | ',' | '"' | '\\') || is_space(c));
                if plain { text } else { quoted(&text, |c| matches!(c, '"' | '\\'), '\\') }
            }
        })
        .collect();
    format!("{{{}}}", items.join(","))
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// Returns the text of a record, such as `(1,,"a b")`.
fn record_text(fields: &[Datum], types: &[Type]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .enumerate()
        .map(|(i, d)| {
            let text = d.to_text(types.get(i).unwrap_or(&Type::Unknown)).unwrap_or_default();
            let special = |c: char| matches!(c, '(' | ')' | ',' | '"' | '\\') || is_space(c);
            if d.is_null() || !(text.is_empty() || text.contains(special)) {
                text
            } else {
                let doubled = text.replace('\\', "\\\\").replace('"', "\"\"");
                format!("\"{doubled}\"")
            }
        })
        .collect();
    format!("({})", fields.join(","))
}

/// Returns the text in double quotes. `escape` is written before each character for which `special` is true.
fn quoted(text: &str, special: impl Fn(char) -> bool, escape: char) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        if special(c) {
            out.push(escape);
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// Returns the text of a jsonb. Keys are ordered by length and then by bytes, and a space follows each `:`
/// and `,`.
pub(crate) fn jsonb_text(value: &Value) -> String {
    let mut out = String::new();
    write_jsonb(&mut out, value);
    out
}

fn write_jsonb(out: &mut String, value: &Value) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                write_jsonb(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (i, (key, item)) in sorted_pairs(map).into_iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                let _ = write!(out, "{}: ", Value::String(key.clone()));
                write_jsonb(out, item);
            }
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// Returns the pairs of a JSON object in the order in which jsonb stores the keys.
pub(crate) fn sorted_pairs(map: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut pairs: Vec<_> = map.iter().collect();
    pairs.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes())));
    pairs
}
