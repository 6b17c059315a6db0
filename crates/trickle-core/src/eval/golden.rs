//! Tests over `golden.txt`: expressions, and the values that PostgreSQL gives for them. For an error, the
//! value is the SQLSTATE.
//!
//! Each line is SQL of a small grammar: `'text'::type` literals, NULL, one operator or function, and casts of
//! the whole expression. A reader of the file thus needs no SQL parser. Only these tests catch a function
//! that is consistently wrong.

use super::expr;
use crate::error::Result;
use crate::expr::{Expr, FuncSig, functions};
use crate::types::{Datum, Type};
use crate::values::{cast, input};
use std::sync::Arc;

/// Reads one literal: `'text'::type`, `NULL::type` or `'text'`, which is untyped.
fn literal(text: &mut &str) -> Result<Expr> {
    *text = text.trim_start();
    let value = if let Some(rest) = text.strip_prefix('\'') {
        let mut value = String::new();
        let mut rest = rest;
        loop {
            let end = rest.find('\'').expect("an open literal");
            value.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix('\'') {
                Some(more) => {
                    value.push('\'');
                    rest = more;
                }
                None => break,
            }
        }
        *text = rest;
        Some(value)
    } else {
        *text = text.strip_prefix("NULL").unwrap_or_else(|| panic!("no literal: {text}"));
        None
    };
    let ty = type_name(text).unwrap_or(Type::Unknown);
    let value = value.map_or(Ok(Datum::Null), |v| input(&v, &ty))?;
    Ok(Expr::literal(value, ty))
}

/// Reads `::type`.
fn type_name(text: &mut &str) -> Option<Type> {
    let rest = text.strip_prefix("::")?;
    let mut end = rest.find([' ', ',', ')', '(']).unwrap_or(rest.len());
    if rest[end..].starts_with('(') {
        end += rest[end..].find(')').expect("an open modifier") + 1;
        if rest[end..].starts_with("[]") {
            end += 2;
        }
    }
    let (name, tail) = rest.split_at(end);
    // In a chain of casts such as `::type::type`, the name of a type ends where the next cast begins.
    let (name, tail) = match name.find("::") {
        Some(i) => rest.split_at(i),
        None => (name, tail),
    };
    *text = tail;
    Some(Type::parse(name).unwrap_or_else(|| panic!("no type: {name}")))
}

/// Makes a call with its arguments cast to the types of the signature.
fn applied(sig: Option<Arc<FuncSig>>, args: Vec<Expr>, whole: &str) -> Result<Expr> {
    let sig = sig.unwrap_or_else(|| panic!("does not resolve: {whole}"));
    let mut cast_args = Vec::new();
    for (arg, ty) in args.into_iter().zip(&sig.args) {
        cast_args.push(match (arg.as_literal(), arg.ty()) {
            (Some(Datum::Text(s)), Type::Unknown) => Expr::literal(input(s, ty)?, ty.clone()),
            _ if arg.ty().base() == ty.base() => arg,
            _ => arg.cast(ty.clone()),
        });
    }
    Ok(Expr::call(sig, cast_args))
}

fn types(args: &[Expr]) -> Vec<Type> {
    args.iter().map(|a| a.ty().clone()).collect()
}

fn parse(whole: &str) -> Result<Expr> {
    let mut text = whole;
    let mut e = if let Some(rest) = text.strip_prefix('(') {
        let end = rest.find(")::").expect("an open parenthesis");
        text = &rest[end + 1..];
        parse(&rest[..end])?
    } else if text.starts_with(|c: char| c.is_ascii_lowercase()) {
        let (name, rest) = text.split_once('(').expect("a call");
        text = rest;
        let mut args = Vec::new();
        while !text.starts_with(')') {
            args.push(literal(&mut text)?);
            text = text.strip_prefix(", ").unwrap_or(text);
        }
        text = &text[1..];
        applied(functions::resolve_function(name, &types(&args)), args, whole)?
    } else if text.starts_with(['\'', 'N']) {
        let left = literal(&mut text)?;
        match text.strip_prefix(' ').and_then(|t| t.split_once(' ')) {
            Some((op, rest)) => {
                text = rest;
                let args = vec![left, literal(&mut text)?];
                applied(functions::resolve_operator(op, &types(&args)), args, whole)?
            }
            None => left,
        }
    } else {
        let (op, rest) = text.split_once(' ').expect("an operator");
        text = rest;
        let args = vec![literal(&mut text)?];
        applied(functions::resolve_operator(op, &types(&args)), args, whole)?
    };
    while let Some(ty) = type_name(&mut text) {
        e = match (e.as_literal(), e.ty()) {
            (Some(Datum::Text(s)), Type::Unknown) => Expr::literal(input(s, &ty)?, ty),
            _ => e.cast(ty),
        };
    }
    assert!(text.is_empty(), "left over in {whole}: {text}");
    Ok(e)
}

fn found(text: &str) -> String {
    let value = parse(text).and_then(|e| {
        let value = expr(&e, &[])?;
        cast(&value, e.ty(), &Type::Text)
    });
    match value {
        Ok(Datum::Null) => "NULL".to_owned(),
        Ok(d) => d.to_string(),
        Err(e) => format!("ERROR {}", e.sqlstate()),
    }
}

#[test]
fn expressions_are_worth_what_postgres_says() {
    let mut wrong = String::new();
    let lines = include_str!("golden.txt").lines().filter(|l| !l.is_empty());
    let mut count = 0;
    for line in lines {
        let (text, expected) = line.split_once(" ⇒ ").expect(line);
        let found = found(text);
        if found != expected {
            wrong.push_str(&format!("{text}\n  postgres {expected}\n  here     {found}\n"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count >= 150, "only {count} expressions");
}
