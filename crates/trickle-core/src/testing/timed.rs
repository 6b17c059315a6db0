//! Random conditions on the clock, and random times for the clock.

use super::{Choice, Limits, exprs};
use crate::eval::Clock;
use crate::expr::functions::{resolve_function, resolve_operator};
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::graph::Schema;
use crate::types::{Datum, Interval, Type};

/// The time 1970-01-01, in microseconds since 2000-01-01.
const EPOCH: i64 = -946_684_800_000_000;
const SECOND: i64 = 1_000_000;

/// Draws the two times of a refresh from the first seconds of 1970. The numbers in tables, as seconds after
/// 1970 began, denote times in the same range. The times are equal, or either is later than the other.
pub(super) fn clock(choice: &mut Choice) -> Clock {
    let mut time = || EPOCH + choice.below(4) as i64 * SECOND;
    Clock { then: time(), now: time() }
}

/// Makes one to three terms. At least one of them reads the clock. Mostly this term has a form that can use
/// an index.
pub(super) fn condition(choice: &mut Choice, schema: &Schema, limits: &Limits) -> Expr {
    let mut terms = vec![term(choice, schema, limits)];
    while terms.len() < 3 && choice.one_in(3) {
        terms.push(match choice.one_in(3) {
            true => exprs::condition(choice, schema, 1, limits),
            false => term(choice, schema, limits),
        });
    }
    Expr::and(terms)
}

fn term(choice: &mut Choice, schema: &Schema, limits: &Limits) -> Expr {
    let compared = compared(choice, schema);
    match choice.below(8) {
        0 => Expr::or([compared, exprs::condition(choice, schema, 1, limits)]),
        1 => compared.negated(),
        2 => compared.is_null(),
        3 => compared.is_not_false(),
        _ => compared,
    }
}

/// Compares a column, or a time computed from the column, with the clock minus some seconds.
fn compared(choice: &mut Choice, schema: &Schema) -> Expr {
    let integers: Vec<usize> = (0..schema.len()).filter(|i| schema.columns()[*i].ty == Type::Int4).collect();
    let seconds = match choice.pick(&integers) {
        Some(c) => schema.expr(*c),
        None => exprs::constant(choice, &Type::Int4),
    };
    let ago = Interval { months: 0, days: 0, micros: choice.below(3) as i64 * SECOND };
    let time = called("-", vec![Expr::now(), Expr::literal(Datum::Interval(ago), Type::Interval)]);
    let (value, mut time) = match choice.below(3) {
        0 => {
            let field = Expr::literal(Datum::text("epoch"), Type::Text);
            (seconds, called("extract", vec![field, time]).cast(Type::Int4))
        }
        _ => (moment(seconds), time),
    };
    if choice.one_in(8) {
        // This CASE makes a time that may be NULL.
        let known = called(">", vec![Expr::now(), moment(Expr::literal(Datum::Int(1), Type::Int4))]);
        let ty = time.ty().clone();
        let whens = vec![(known, time)];
        time = Expr::new(ExprKind::Case { whens, otherwise: Expr::null(ty.clone()) }, ty);
    }
    let op = choice.pick(&["<", "<=", ">", ">=", "=", "<>"]).copied().unwrap_or("<");
    let (l, r) = if choice.one_in(2) { (value, time) } else { (time, value) };
    Expr::call(FuncSig::comparison(op, l.ty().clone(), r.ty().clone()), vec![l, r])
}

/// Returns the expression for the time `seconds` seconds after 1970 began.
fn moment(seconds: Expr) -> Expr {
    called("to_timestamp", vec![seconds.cast(Type::Float8)])
}

/// Makes the call of a built-in operator or function that exists.
fn called(name: &str, args: Vec<Expr>) -> Expr {
    let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
    let sig = resolve_operator(name, &types).or_else(|| resolve_function(name, &types));
    match sig {
        Some(sig) => Expr::call(sig, args),
        None => Expr::null(Type::Timestamptz),
    }
}
