//! Converts constants, and expressions that have a special syntax.

use super::Converter;
use super::names::{object_name, type_name};
use crate::error::{Error, Result};
use crate::parse::forms::{is_document, is_local};
use crate::syntax::{Expr, Interval, Literal, Node};
use sqlparser::ast::{self, CeilFloorKind, DateTimeField, Expr as Ast, TrimWhereField, Value, ValueWithSpan};

impl Converter<'_> {
    pub(super) fn special(&self, e: &Ast) -> Result<Node> {
        Ok(match e {
            Ast::Like { negated, any: false, expr, pattern, escape_char } => Node::Like {
                operand: self.boxed(expr)?,
                pattern: self.boxed(pattern)?,
                escape: self.optional_box(escape_char.as_deref())?,
                ignores_case: false,
                negated: *negated,
            },
            Ast::ILike { negated, any: false, expr, pattern, escape_char } => Node::Like {
                operand: self.boxed(expr)?,
                pattern: self.boxed(pattern)?,
                escape: self.optional_box(escape_char.as_deref())?,
                ignores_case: true,
                negated: *negated,
            },
            Ast::SimilarTo { negated, expr, pattern, escape_char } => Node::SimilarTo {
                operand: self.boxed(expr)?,
                pattern: self.boxed(pattern)?,
                escape: self.optional_box(escape_char.as_deref())?,
                negated: *negated,
            },
            Ast::TypedString(t) => {
                self.plain(t.uses_odbc_syntax, e)?;
                Node::TypedLiteral { ty: type_name(&t.data_type), literal: self.literal(&t.value)? }
            }
            Ast::Interval(i) => Node::Interval(interval(i)),
            Ast::AtTimeZone { timestamp, time_zone } => {
                let zone = Some(&**time_zone).filter(|zone| !is_local(zone));
                Node::AtTimeZone { operand: self.boxed(timestamp)?, zone: self.optional_box(zone)? }
            }
            Ast::Extract { field: f, expr, syntax: _ } => {
                Node::Extract { field: field(f), operand: self.boxed(expr)? }
            }
            Ast::Position { expr, r#in } => {
                Node::Position { part: self.boxed(expr)?, text: self.boxed(r#in)? }
            }
            Ast::Collate { expr, collation } => {
                Node::Collate { operand: self.boxed(expr)?, collation: object_name(collation) }
            }
            Ast::IsJson { expr, kind, unique_keys, negated } => {
                let words = match is_document(unique_keys.as_ref()) {
                    true => vec!["DOCUMENT".to_owned()],
                    false => std::iter::once("JSON".to_owned())
                        .chain(kind.iter().map(ToString::to_string))
                        .chain(unique_keys.iter().map(ToString::to_string))
                        .collect(),
                };
                Node::IsForm { operand: self.boxed(expr)?, form: words.join(" "), negated: *negated }
            }
            Ast::IsNormalized { expr, form, negated } => {
                let form = form.iter().map(|f| format!("{f} ")).chain(["NORMALIZED".to_owned()]).collect();
                Node::IsForm { operand: self.boxed(expr)?, form, negated: *negated }
            }
            _ => self.builtin(e)?,
        })
    }

    /// Converts the calls that are written with keywords of the SQL standard. Refuses any other expression.
    fn builtin(&self, e: &Ast) -> Result<Node> {
        let (function, args) = match e {
            Ast::Ceil { expr, field } => ("ceil", vec![self.rounded("ceil", expr, field, e)?]),
            Ast::Floor { expr, field } => ("floor", vec![self.rounded("floor", expr, field, e)?]),
            Ast::Substring { expr, substring_from, substring_for, shorthand, special: _ } => {
                let mut args = vec![self.expr(expr)?];
                match (substring_from, substring_for) {
                    (None, Some(count)) => {
                        let (node, extent) = (Node::Literal(Literal::Number("1".into())), args[0].extent);
                        args.push(Expr { node, extent });
                        args.push(self.expr(count)?);
                    }
                    (from, count) => args.extend(self.exprs(from.iter().chain(count).map(|a| &**a))?),
                }
                (if *shorthand { "substr" } else { "substring" }, args)
            }
            Ast::Trim { trim_where, trim_what, expr, trim_characters } => {
                let function = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    Some(TrimWhereField::Both) | None => "btrim",
                };
                let characters = trim_what.as_deref().into_iter().chain(trim_characters.iter().flatten());
                (function, self.exprs(std::iter::once(&**expr).chain(characters))?)
            }
            Ast::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let parts = [Some(expr), Some(overlay_what), Some(overlay_from), overlay_for.as_ref()];
                ("overlay", self.exprs(parts.into_iter().flatten().map(|b| &**b))?)
            }
            _ => return Err(Error::syntax("an expression that PostgreSQL does not have")),
        };
        Ok(Node::Builtin { function, args })
    }

    fn rounded(&self, name: &str, arg: &Ast, kind: &CeilFloorKind, place: &Ast) -> Result<Expr> {
        match kind {
            CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) => self.expr(arg),
            _ => self.refused(format!("{name} takes one argument"), place),
        }
    }

    pub(super) fn literal(&self, v: &ValueWithSpan) -> Result<Literal> {
        Ok(match &v.value {
            Value::Number(digits, _) => Literal::Number(digits.clone()),
            Value::Boolean(b) => Literal::Boolean(*b),
            Value::Null => Literal::Null,
            Value::Placeholder(name) => Literal::Parameter(name.clone()),
            Value::HexStringLiteral(text) => {
                let digit = |c: char| c.to_digit(16).map(|d| format!("{d:04b}"));
                Literal::Bits(self.bits(text, text.chars().map(digit).collect(), v)?)
            }
            Value::SingleQuotedByteStringLiteral(text) => {
                let bits = Some(text.clone()).filter(|t| t.chars().all(|c| matches!(c, '0' | '1')));
                Literal::Bits(self.bits(text, bits, v)?)
            }
            Value::SingleQuotedString(_)
            | Value::EscapedStringLiteral(_)
            | Value::UnicodeStringLiteral(_)
            | Value::DollarQuotedString(_) => match v.value.clone().into_string() {
                Some(text) => Literal::Text(text),
                None => return self.refused("a constant without a text", v),
            },
            // The server reads such a constant as a constant of type bpchar.
            Value::NationalStringLiteral(_) => {
                let e = Error::unsupported("N'…' is not implemented")
                    .hint("Write '…'::bpchar, which is the same.");
                return Err(self.at(e, v.span));
            }
            _ => return self.refused("a constant that PostgreSQL does not have", v),
        })
    }

    fn bits(&self, text: &str, bits: Option<String>, place: &ValueWithSpan) -> Result<String> {
        match bits {
            Some(bits) => Ok(bits),
            None => self.refused(format!("\"{text}\" is no bit string"), place),
        }
    }
}

fn interval(i: &ast::Interval) -> Interval {
    let text = match &*i.value {
        Ast::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text.clone()),
        _ => None,
    };
    Interval {
        text,
        first: i.leading_field.as_ref().map(field),
        last: i.last_field.as_ref().map(field),
        // For SECOND(3), the parser crate stores the digits as the leading precision.
        digits: i.fractional_seconds_precision.or(i.leading_precision),
    }
}

/// Returns a field of EXTRACT or INTERVAL, in lower case.
fn field(f: &DateTimeField) -> String {
    let text = match f {
        DateTimeField::Custom(i) => i.value.clone(),
        other => other.to_string(),
    };
    text.trim_matches('\'').to_ascii_lowercase()
}
