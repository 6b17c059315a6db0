//! Lowers expressions with a syntax of their own: LIKE, EXTRACT, TRIM, typed literals and others. Such an
//! expression becomes a call of the function by which PostgreSQL evaluates it.

use super::Lowerer;
use super::expr::ClauseContext;
use super::literal;
use super::names::field;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::ast::{
    CeilFloorKind, DateTimeField, Expr as Ast, Interval, ObjectName, TrimWhereField, Value, ValueWithSpan,
};
use crate::parse::{Place, is_document, is_local, parts, qualified};
use crate::types::{Datum, Type};
use std::fmt::Display;

impl Lowerer<'_> {
    pub(super) fn special<'q>(&mut self, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        match e {
            Ast::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like("~~", *negated, expr, pattern, escape_char.as_deref(), cx)
            }
            Ast::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like("~~*", *negated, expr, pattern, escape_char.as_deref(), cx)
            }
            Ast::SimilarTo { negated, expr, pattern, escape_char } => {
                let (l, p) = (self.expr(expr, cx)?, self.expr(pattern, cx)?);
                let mut args = vec![p];
                args.extend(escape_char.as_deref().map(|c| self.expr(c, cx)).transpose()?);
                let pattern = self.builtin("similar_to_escape", args)?;
                self.compare(if *negated { "!~" } else { "~" }, l, pattern)
            }
            Ast::TypedString(t) => {
                let value = self.value(&t.value)?;
                self.cast_to(value, &t.data_type, e)
            }
            Ast::Interval(i) => self.interval(i, e),
            Ast::AtTimeZone { timestamp, time_zone } if is_local(time_zone) => {
                let time = self.expr(timestamp, cx)?;
                self.builtin("timezone", vec![time])
            }
            Ast::AtTimeZone { timestamp, time_zone } => {
                let (t, z) = (self.expr(timestamp, cx)?, self.expr(time_zone, cx)?);
                self.builtin("timezone", vec![z, t])
            }
            Ast::Extract { field: f, expr, .. } => {
                let value = self.expr(expr, cx)?;
                let name = Expr::literal(Datum::text(field(f)), Type::Text);
                self.builtin("extract", vec![name, value])
            }
            Ast::Ceil { expr, field } => self.rounding("ceil", expr, field, e, cx),
            Ast::Floor { expr, field } => self.rounding("floor", expr, field, e, cx),
            Ast::Position { expr, r#in } => {
                let (what, text) = (self.expr(expr, cx)?, self.expr(r#in, cx)?);
                self.builtin("position", vec![text.clone(), what.clone()])
                    .or_else(|_| self.builtin("strpos", vec![text, what]))
            }
            Ast::Substring { expr, substring_from, substring_for, shorthand, .. } => {
                let mut args = vec![self.expr(expr, cx)?];
                match (substring_from, substring_for) {
                    (None, Some(n)) => {
                        args.push(Expr::literal(Datum::Int(1), Type::Int4));
                        args.push(self.expr(n, cx)?);
                    }
                    (from, count) => {
                        for a in from.iter().chain(count) {
                            args.push(self.expr(a, cx)?);
                        }
                    }
                }
                self.builtin(if *shorthand { "substr" } else { "substring" }, args)
            }
            Ast::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    _ => "btrim",
                };
                let mut args = vec![self.expr(expr, cx)?];
                for a in trim_what.iter().map(|b| &**b).chain(trim_characters.iter().flatten()) {
                    args.push(self.expr(a, cx)?);
                }
                self.builtin(name, args)
            }
            Ast::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let parts = [Some(expr), Some(overlay_what), Some(overlay_from), overlay_for.as_ref()];
                let args = self.exprs(parts.into_iter().flatten().map(|b| &**b), cx)?;
                self.builtin("overlay", args)
            }
            Ast::Collate { expr, collation } => self.collate(expr, collation, e, cx),
            Ast::IsJson { expr, unique_keys, negated, .. } if is_document(unique_keys.as_ref()) => {
                let xml = Type::parse("xml").unwrap_or(Type::Text);
                self.is_form(expr, &[&"DOCUMENT"], *negated, &xml, cx)
            }
            Ast::IsJson { expr, kind, unique_keys, negated } => {
                let mut words: Vec<&dyn Display> = vec![&"JSON"];
                words.extend(kind.iter().map(|k| k as &dyn Display));
                words.extend(unique_keys.iter().map(|k| k as &dyn Display));
                self.is_form(expr, &words, *negated, &Type::Text, cx)
            }
            Ast::IsNormalized { expr, form, negated } => {
                let mut words: Vec<&dyn Display> = form.iter().map(|f| f as &dyn Display).collect();
                words.push(&"NORMALIZED");
                self.is_form(expr, &words, *negated, &Type::Text, cx)
            }
            other => self.refused(other),
        }
    }

    /// Lowers `text COLLATE name`: the same value, with a type that compares under the collation.
    fn collate<'q>(
        &mut self,
        value: &'q Ast,
        collation: &ObjectName,
        place: &Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let value = self.expr(value, cx)?;
        let value = if *value.ty() == Type::Unknown { self.coerce(value, &Type::Text)? } else { value };
        let (schema, name) = qualified(collation);
        let Some(found) = self.catalog.collation(schema.as_deref(), &name) else {
            return Err(self.stop(place, format!("the collation {collation}")));
        };
        let ty = value.ty().collated(&found.sql_name, found.deterministic);
        if ty.collation().is_none() {
            return Err(self.stop(place, format!("COLLATE over type {ty}")));
        }
        Ok(value.cast(ty))
    }

    fn refused(&mut self, e: &Ast) -> Result<Expr> {
        match e {
            Ast::QualifiedWildcard(name, _) => self.row_of(&parts(name), e),
            Ast::Wildcard(_) => Err(self.whole_row(e)),
            _ => Err(Error::syntax("an expression that PostgreSQL does not have")),
        }
    }

    fn like<'q>(
        &mut self,
        op: &str,
        negated: bool,
        value: &'q Ast,
        pattern: &'q Ast,
        escape: Option<&ValueOrExpr>,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        let (l, mut p) = (self.expr(value, cx)?, self.expr(pattern, cx)?);
        if let Some(c) = escape {
            let c = self.escape_text(c)?;
            p = self.builtin("like_escape", vec![p, c])?;
        }
        let op = if negated { format!("!{op}") } else { op.to_owned() };
        self.compare(&op, l, p)
    }

    fn escape_text(&mut self, e: &ValueOrExpr) -> Result<Expr> {
        match e {
            Ast::Value(v) => self.value(v),
            other => Err(self.stop(other, "ESCAPE with a computed character")),
        }
    }

    /// Lowers an interval literal: `interval '1' day` becomes `interval '1 day'`.
    fn interval(&mut self, i: &Interval, place: &Ast) -> Result<Expr> {
        let Ast::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) = &*i.value else {
            return Err(self.stop(place, "INTERVAL with a computed value"));
        };
        let text = literal::untyped(text);
        let Some(first) = &i.leading_field else { return self.cast(text, &Type::Interval, place) };
        let (first, last) = (field(first), i.last_field.as_ref().map(field));
        let last = last.as_ref().unwrap_or(&first);
        self.interval_of(text, (&first, last), i.fractional_seconds_precision, place)
    }

    /// Casts to an interval that keeps the fields from the first to the last one. Larger fields stay, too.
    /// `digits` is the number of fractional digits of the seconds.
    pub(super) fn interval_of(
        &mut self,
        value: Expr,
        (first, last): (&str, &str),
        digits: Option<u64>,
        place: &impl Place,
    ) -> Result<Expr> {
        let Some(mask) = fields_mask(first, last) else {
            return Err(self.stop(place, format!("INTERVAL {first} TO {last}")));
        };
        let value = match (value.as_literal(), value.ty()) {
            // A bare number is in the unit of the last field. PostgreSQL reads `1:30` as minutes and seconds
            // for MINUTE TO SECOND alone.
            (Some(Datum::Text(text)), Type::Unknown) if text.trim().parse().is_ok_and(f64::is_finite) => {
                literal::untyped(&format!("{} {last}", text.trim()))
            }
            (Some(Datum::Text(text)), Type::Unknown)
                if (first, last) == ("minute", "second") && text.matches(':').count() == 1 =>
            {
                return Err(self.stop(place, format!("INTERVAL {first} TO {last} of a text with a colon")));
            }
            _ => value,
        };
        let value = self.cast(value, &Type::Interval, place)?;
        let digits = digits.and_then(|d| i64::try_from(d).ok()).map_or(0xFFFF, |d| d.min(6));
        self.builtin("interval", vec![value, Expr::literal(Datum::Int(mask << 16 | digits), Type::Int4)])
    }

    fn rounding<'q>(
        &mut self,
        name: &str,
        arg: &'q Ast,
        kind: &CeilFloorKind,
        place: &Ast,
        cx: &mut ClauseContext<'q>,
    ) -> Result<Expr> {
        match kind {
            CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) => {
                let value = self.expr(arg, cx)?;
                self.builtin(name, vec![value])
            }
            _ => Err(self.at(Error::syntax(format!("{name} takes one argument")), place)),
        }
    }

    /// Makes a call of a built-in function by its name.
    pub(super) fn builtin(&mut self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        let types: Vec<Type> = args.iter().map(|e| e.ty().clone()).collect();
        match self.signature(Some("pg_catalog"), name, &types) {
            Some(sig) => self.call(sig, args),
            None => Err(super::call::unknown(self.catalog, name, &types)),
        }
    }
}

type ValueOrExpr = Ast;

/// The fields of an interval type, from the largest to the smallest, each with its bit in the type modifier
/// (`INTERVAL_MASK` in PostgreSQL's `utils/timestamp.h`).
const INTERVAL_FIELDS: [(&str, i64); 6] = [
    ("year", 1 << 2),
    ("month", 1 << 1),
    ("day", 1 << 3),
    ("hour", 1 << 10),
    ("minute", 1 << 11),
    ("second", 1 << 12),
];

/// Returns the bits of the fields from the first to the last one.
fn fields_mask(first: &str, last: &str) -> Option<i64> {
    let place = |name| INTERVAL_FIELDS.iter().position(|(field, _)| *field == name);
    let fields = INTERVAL_FIELDS.get(place(first)?..=place(last)?)?;
    Some(fields.iter().map(|(_, bit)| bit).sum())
}

/// Returns a field of EXTRACT or INTERVAL, in lower case.
pub(super) fn field_name(f: &DateTimeField) -> String {
    let text = match f {
        DateTimeField::Custom(i) => i.value.clone(),
        other => other.to_string(),
    };
    text.trim_matches('\'').to_ascii_lowercase()
}
