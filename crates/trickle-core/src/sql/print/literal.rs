//! Prints constants. PostgreSQL parses each constant as exactly this value of exactly this type, whatever its
//! settings are.

use super::Printer;
use crate::sql::ast::Scalar;
use crate::types::{Datum, Interval, Type};

/// Returns how tightly the printed constant binds: `None` for an atom, `Some(true)` for a cast, `Some(false)`
/// for a number with a sign.
pub(super) fn binds(d: &Datum, ty: &Type) -> Option<bool> {
    match (d, ty) {
        (Datum::Null, Type::Unknown) | (Datum::Bool(_), Type::Bool) | (_, Type::Unknown) => None,
        (Datum::Int(i), Type::Int4) if bare(*i) => (*i < 0).then_some(false),
        (Datum::Record(_), Type::Record(_)) => None,
        _ => Some(true),
    }
}

/// Whether PostgreSQL reads the digits alone as an `integer`. It reads 2147483648 as a `bigint`, so the least
/// integer cannot be written as a sign and digits.
fn bare(i: i64) -> bool {
    (-i64::from(i32::MAX)..=i64::from(i32::MAX)).contains(&i)
}

impl Printer {
    pub(super) fn literal(&mut self, d: &Datum, ty: &Type) {
        match (d, ty) {
            (Datum::Null, Type::Unknown) => self.word("NULL"),
            (Datum::Null, _) => self.put(format_args!("NULL::{ty}")),
            (Datum::Bool(b), Type::Bool) => self.word(if *b { "TRUE" } else { "FALSE" }),
            (Datum::Int(i), Type::Int4) if bare(*i) => self.show(i),
            (Datum::Int(i), Type::Int8 | Type::Int2) if (0..=32767).contains(i) => {
                self.put(format_args!("{i}::{ty}"));
            }
            (Datum::Array(items), _) => {
                let element = ty.element().unwrap_or(&Type::Unknown);
                let items: Vec<Scalar> =
                    items.iter().map(|i| Scalar::Literal(i.clone(), element.clone())).collect();
                self.scalar(&Scalar::Array(items));
                self.put(format_args!("::{ty}"));
            }
            (Datum::Record(fields), _) => {
                let types: &[Type] = if let Type::Record(types) = ty { types } else { &[] };
                let field = |(i, f): (usize, &Datum)| {
                    Scalar::Literal(f.clone(), types.get(i).cloned().unwrap_or(Type::Unknown))
                };
                self.scalar(&Scalar::Row(fields.iter().enumerate().map(field).collect()));
            }
            (_, Type::Unknown) => self.quoted(&text(d, ty)),
            _ => {
                self.quoted(&text(d, ty));
                self.put(format_args!("::{ty}"));
            }
        }
    }

    /// Writes a string constant. A text with a backslash is written as `E''`, whose meaning does not depend
    /// on `standard_conforming_strings`.
    pub(super) fn quoted(&mut self, s: &str) {
        let escape = s.contains('\\');
        self.word(if escape { "E'" } else { "'" });
        for c in s.chars() {
            match c {
                '\'' => self.word("''"),
                '\\' => self.word("\\\\"),
                // NUL characters are left out, since PostgreSQL would refuse a statement that contains one.
                '\0' => {}
                c => self.out.push(c),
            }
        }
        self.word("'");
    }
}

/// Returns the text from which PostgreSQL reads a value.
fn text(d: &Datum, ty: &Type) -> String {
    match d {
        Datum::Interval(i) => interval(i),
        _ => d.to_text(ty).unwrap_or_default(),
    }
}

/// Writes each part of an interval with its sign. Under some settings of `IntervalStyle`, a minus sign before
/// a part also applies to the following parts.
fn interval(i: &Interval) -> String {
    match (i.months, i.days, i.micros) {
        (i32::MAX, i32::MAX, i64::MAX) => "infinity".to_owned(),
        (i32::MIN, i32::MIN, i64::MIN) => "-infinity".to_owned(),
        (months, days, us) => format!("{months:+} months {days:+} days {us:+} microseconds"),
    }
}
