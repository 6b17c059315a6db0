//! Lowers expressions that have a special syntax: LIKE, EXTRACT, TRIM, typed literals and others. Such an
//! expression becomes a call of the function by which PostgreSQL evaluates it.

use super::Lowerer;
use super::clause::ClauseContext;
use super::literal;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::syntax::{Expr as Ast, Interval, Node, ObjectName, Place};
use crate::types::{Datum, Type};

impl Lowerer<'_> {
    pub(super) fn special<'q>(&mut self, e: &'q Ast, cx: &mut ClauseContext<'q>) -> Result<Expr> {
        match &e.node {
            Node::Like { operand, pattern, escape, ignores_case, negated } => {
                let op = if *ignores_case { "~~*" } else { "~~" };
                self.like(op, *negated, (operand, pattern), escape.as_deref(), cx)
            }
            Node::SimilarTo { operand, pattern, escape, negated } => {
                let (l, p) = (self.expr(operand, cx)?, self.expr(pattern, cx)?);
                let mut args = vec![p];
                args.extend(escape.as_deref().map(|c| self.expr(c, cx)).transpose()?);
                let pattern = self.builtin("similar_to_escape", args)?;
                self.compare(if *negated { "!~" } else { "~" }, l, pattern)
            }
            Node::TypedLiteral { ty, literal } => {
                let value = self.literal(literal, e)?;
                self.cast_to(value, ty, e)
            }
            Node::Interval(i) => self.interval(i, e),
            Node::AtTimeZone { operand, zone: None } => {
                let time = self.expr(operand, cx)?;
                self.builtin("timezone", vec![time])
            }
            Node::AtTimeZone { operand, zone: Some(zone) } => {
                let (t, z) = (self.expr(operand, cx)?, self.expr(zone, cx)?);
                self.builtin("timezone", vec![z, t])
            }
            Node::Extract { field, operand } => {
                let value = self.expr(operand, cx)?;
                let name = Expr::literal(Datum::text(field.as_str()), Type::Text);
                self.builtin("extract", vec![name, value])
            }
            Node::Position { part, text } => {
                let (part, text) = (self.expr(part, cx)?, self.expr(text, cx)?);
                self.builtin("position", vec![text.clone(), part.clone()])
                    .or_else(|_| self.builtin("strpos", vec![text, part]))
            }
            Node::Builtin { function, args } => {
                let args = self.exprs(args, cx)?;
                self.builtin(function, args)
            }
            Node::Collate { operand, collation } => self.collate(operand, collation, e, cx),
            Node::IsForm { operand, form, negated } => {
                let untyped = match form.as_str() {
                    "DOCUMENT" => Type::parse("xml").unwrap_or(Type::Text),
                    _ => Type::Text,
                };
                self.is_form(operand, form, *negated, &untyped, cx)
            }
            _ => Err(Error::internal("an expression without a syntax of its own")),
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
        let (schema, name) = collation.qualified();
        let Some(found) = self.catalog.collation(schema.as_deref(), &name) else {
            return Err(self.stop(place, format!("the collation {collation}")));
        };
        let ty = value.ty().collated(&found.sql_name, found.deterministic);
        if ty.collation().is_none() {
            return Err(self.stop(place, format!("COLLATE over type {ty}")));
        }
        Ok(value.cast(ty))
    }

    fn like<'q>(
        &mut self,
        op: &str,
        negated: bool,
        (value, pattern): (&'q Ast, &'q Ast),
        escape: Option<&Ast>,
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

    fn escape_text(&mut self, e: &Ast) -> Result<Expr> {
        match &e.node {
            Node::Literal(literal) => self.literal(literal, e),
            _ => Err(self.stop(e, "ESCAPE with a computed character")),
        }
    }

    /// Lowers an interval literal: `interval '1' day` becomes `interval '1 day'`.
    fn interval(&mut self, i: &Interval, place: &Ast) -> Result<Expr> {
        let Some(text) = &i.text else {
            return Err(self.stop(place, "INTERVAL with a computed value"));
        };
        let text = literal::untyped(text);
        let Some(first) = &i.first else { return self.cast(text, &Type::Interval, place) };
        let last = i.last.as_ref().unwrap_or(first);
        self.interval_of(text, (first, last), i.digits, place)
    }

    /// Casts to an interval that keeps the fields from the first to the last. Larger fields stay, too.
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
            // only for MINUTE TO SECOND.
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

    /// Makes a call of a built-in function by its name.
    pub(super) fn builtin(&mut self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        let types: Vec<Type> = args.iter().map(|e| e.ty().clone()).collect();
        match self.signature(Some("pg_catalog"), name, &types) {
            Some(sig) => self.call(sig, args),
            None => Err(super::signature::unknown(self.catalog, name, &types)),
        }
    }
}

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

/// Returns the bits of the fields from `first` to `last`.
fn fields_mask(first: &str, last: &str) -> Option<i64> {
    let place = |name| INTERVAL_FIELDS.iter().position(|(field, _)| *field == name);
    let fields = INTERVAL_FIELDS.get(place(first)?..=place(last)?)?;
    Some(fields.iter().map(|(_, bit)| bit).sum())
}
