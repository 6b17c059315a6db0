//! Evaluates scalar expressions over one row, in three-valued logic.

use super::{Expr, ExprKind, FuncSig, IsTest, Subscript, functions, opaque};
use crate::error::{Error, Result};
use crate::types::{Datum, Type};
use crate::values::{cast, compare_as};
use std::cmp::Ordering;

/// Returns the value of `expr` over `row`.
///
/// AND and OR stop at the first term that decides the result. CASE and COALESCE evaluate only the parts that
/// they need. All arguments of a call are evaluated, from left to right, even if an earlier argument is NULL.
///
/// # Errors
/// Fails with the errors that PostgreSQL would raise for the parts that are evaluated.
pub fn expr(e: &Expr, row: &[Datum]) -> Result<Datum> {
    match e.kind() {
        ExprKind::Column(i) => row
            .get(*i)
            .cloned()
            .ok_or_else(|| Error::plan(format!("an expression reads column {i} of a shorter row"))),
        ExprKind::Literal(d) => Ok(d.clone()),
        ExprKind::Clock(_) => Err(Error::plan("the clock is read where no time is known")),
        // Deep expressions must not overflow the stack.
        _ => stacker::maybe_grow(64 * 1024, 1024 * 1024, || compound(e, row)),
    }
}

/// Whether a condition is true on `row`, and neither false nor NULL.
///
/// # Errors
/// Fails as [`expr`] does.
pub fn is_true(condition: &Expr, row: &[Datum]) -> Result<bool> {
    Ok(matches!(expr(condition, row)?, Datum::Bool(true)))
}

fn compound(e: &Expr, row: &[Datum]) -> Result<Datum> {
    match e.kind() {
        ExprKind::Column(_) | ExprKind::Literal(_) | ExprKind::Clock(_) => expr(e, row),
        ExprKind::Call(sig, args) => match args.as_slice() {
            [a, b] => call(sig, &[expr(a, row)?, expr(b, row)?]),
            _ => call(sig, &all(args, row)?),
        },
        ExprKind::Cast(from) => cast(&expr(from, row)?, from.ty(), e.ty()),
        ExprKind::And(terms) => connect(terms, row, false),
        ExprKind::Or(terms) => connect(terms, row, true),
        ExprKind::Not(arg) => Ok(match expr(arg, row)? {
            Datum::Bool(b) => Datum::Bool(!b),
            _ => Datum::Null,
        }),
        ExprKind::Is { arg, test, negated } => Ok(Datum::Bool(is(&expr(arg, row)?, *test, *negated))),
        ExprKind::Distinct { left, right, negated } => {
            let (l, r) = (expr(left, row)?, expr(right, row)?);
            Ok(Datum::Bool(compare_as(left.ty(), &l, &r).is_eq() == *negated))
        }
        ExprKind::Case { whens, otherwise } => case(whens, otherwise, row),
        ExprKind::Coalesce(args) => coalesce(args, row),
        ExprKind::Extreme { greatest, args } => extreme(e.ty(), *greatest, args, row),
        ExprKind::Quantified { op, arg, array, all } => {
            quantified(op, &expr(arg, row)?, &expr(array, row)?, *all)
        }
        ExprKind::Array(items) => Ok(Datum::Array(all(items, row)?.into())),
        ExprKind::Row(items) => Ok(Datum::Record(all(items, row)?.into())),
        ExprKind::Subscript { array, at } => {
            let array = expr(array, row)?;
            let at = at.iter().map(|at| bounds(at, row)).collect::<Result<Vec<_>>>()?;
            let at: Option<Vec<Bounds>> = at.into_iter().collect();
            Ok(at.map_or(Datum::Null, |at| subscript(array, &at)))
        }
        ExprKind::ManyRows => {
            Err(Error::data("21000", "more than one row returned by a subquery used as an expression"))
        }
    }
}

/// Whether a value passes a test of IS.
fn is(value: &Datum, test: IsTest, negated: bool) -> bool {
    match test {
        IsTest::Null => is_null(value, negated),
        IsTest::True => (*value == Datum::Bool(true)) != negated,
        IsTest::False => (*value == Datum::Bool(false)) != negated,
    }
}

fn case(whens: &[(Expr, Expr)], otherwise: &Expr, row: &[Datum]) -> Result<Datum> {
    for (condition, value) in whens {
        if is_true(condition, row)? {
            return expr(value, row);
        }
    }
    expr(otherwise, row)
}

fn coalesce(args: &[Expr], row: &[Datum]) -> Result<Datum> {
    for arg in args {
        let value = expr(arg, row)?;
        if !value.is_null() {
            return Ok(value);
        }
    }
    Ok(Datum::Null)
}

/// Returns the greatest or the least of the arguments, which are of type `ty`.
fn extreme(ty: &Type, greatest: bool, args: &[Expr], row: &[Datum]) -> Result<Datum> {
    let wanted = if greatest { Ordering::Greater } else { Ordering::Less };
    let mut best = Datum::Null;
    for arg in args {
        let value = expr(arg, row)?;
        if !value.is_null() && (best.is_null() || compare_as(ty, &value, &best) == wanted) {
            best = value;
        }
    }
    Ok(best)
}

/// An evaluated subscript.
enum Bounds {
    Index(i64),
    Slice(Option<i64>, Option<i64>),
}

/// Evaluates a subscript. Returns `None` if an index or a bound is NULL.
fn bounds(at: &Subscript, row: &[Datum]) -> Result<Option<Bounds>> {
    let at = at.map(|e| match expr(e, row)? {
        Datum::Int(i) => Ok(Some(i)),
        _ => Ok(None),
    });
    let bound = |e: Option<Result<Option<i64>>>| e.transpose().map(|e| e.map_or(Some(None), |i| i.map(Some)));
    Ok(match at {
        Subscript::Index(i) => i?.map(Bounds::Index),
        Subscript::Slice(lower, upper) => match (bound(lower)?, bound(upper)?) {
            (Some(lower), Some(upper)) => Some(Bounds::Slice(lower, upper)),
            _ => None,
        },
    })
}

/// Returns the element at an index, or NULL if there is no such element. For slices, returns the part of the
/// array, which may be `{}`. The lower bound of every dimension is 1.
fn subscript(array: Datum, at: &[Bounds]) -> Datum {
    if array.is_null() {
        return Datum::Null;
    }
    if let Some(Bounds::Slice(..)) = at.first() {
        return slice(&array, at).unwrap_or_else(|| Datum::Array([].into()));
    }
    let mut value = array;
    for bounds in at {
        let (Datum::Array(items), Bounds::Index(i)) = (&value, bounds) else { return Datum::Null };
        let at = usize::try_from(*i).ok().and_then(|i| i.checked_sub(1));
        value = at.and_then(|i| items.get(i)).cloned().unwrap_or(Datum::Null);
    }
    // If there are fewer subscripts than dimensions, there is no element.
    if matches!(value, Datum::Array(_)) { Datum::Null } else { value }
}

/// Returns the slice. Returns `None` if the slice is empty in any dimension. A dimension without a subscript
/// is included as a whole.
fn slice(array: &Datum, at: &[Bounds]) -> Option<Datum> {
    let Some((first, rest)) = at.split_first() else { return Some(array.clone()) };
    let (Datum::Array(items), Bounds::Slice(lower, upper)) = (array, first) else { return None };
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let (lower, upper) = (lower.unwrap_or(1).max(1), upper.unwrap_or(length).min(length));
    let from = usize::try_from(lower - 1).ok()?;
    let part = items.get(from..usize::try_from(upper).ok()?).filter(|p| !p.is_empty())?;
    Some(Datum::Array(part.iter().map(|item| slice(item, rest)).collect::<Option<Vec<_>>>()?.into()))
}

/// Whether a value is NULL, or not NULL if `negated`. A row IS NULL if every field is NULL, and IS NOT NULL
/// if no field is NULL.
fn is_null(value: &Datum, negated: bool) -> bool {
    match value {
        Datum::Record(fields) => fields.iter().all(|f| f.is_null() != negated),
        other => other.is_null() != negated,
    }
}

fn all(args: &[Expr], row: &[Datum]) -> Result<Vec<Datum>> {
    args.iter().map(|a| expr(a, row)).collect()
}

/// Evaluates AND (`decisive` false) or OR (`decisive` true): the first decisive term, or else NULL if a term
/// is NULL.
fn connect(terms: &[Expr], row: &[Datum], decisive: bool) -> Result<Datum> {
    let mut unknown = false;
    for term in terms {
        match expr(term, row)? {
            Datum::Bool(b) if b == decisive => return Ok(Datum::Bool(decisive)),
            Datum::Bool(_) => {}
            _ => unknown = true,
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(!decisive) })
}

/// Returns the value of a call over evaluated arguments. The value of a function that the evaluator does not
/// know is a hash of its name and arguments.
///
/// # Errors
/// Fails with the errors that the function raises.
pub fn call(sig: &FuncSig, args: &[Datum]) -> Result<Datum> {
    if sig.strict && args.iter().any(Datum::is_null) {
        return Ok(Datum::Null);
    }
    if let Some(holds) = comparison(sig, args) {
        return Ok(holds);
    }
    match functions::value_of(sig) {
        Some(value) => value(args),
        None => Ok(opaque::value(sig, args)),
    }
}

/// Returns the value of a call of a comparison operator. Returns `None` for any other function.
fn comparison(sig: &FuncSig, args: &[Datum]) -> Option<Datum> {
    if !sig.is_operator() || sig.schema.is_some() {
        return None;
    }
    let [a, b] = args else { return None };
    let holds: fn(Ordering) -> bool = match sig.name.as_bytes() {
        b"=" => Ordering::is_eq,
        b"<>" => Ordering::is_ne,
        b"<" => Ordering::is_lt,
        b"<=" => Ordering::is_le,
        b">" => Ordering::is_gt,
        b">=" => Ordering::is_ge,
        _ => return None,
    };
    let ty = sig.args.first().unwrap_or(&Type::Unknown);
    Some(match (a, b) {
        (Datum::Record(l), Datum::Record(r)) => compare_records(ty, l, r, holds),
        _ => Datum::Bool(holds(compare_as(ty, a, b))),
    })
}

/// Compares rows of type `ty` field by field, from left to right. If a NULL field leaves the result
/// undetermined, the result is NULL.
fn compare_records(ty: &Type, l: &[Datum], r: &[Datum], holds: fn(Ordering) -> bool) -> Datum {
    // The type `record` itself does not tell the types of the fields.
    let types = if let Type::Record(types) = ty { types } else { &[][..] };
    let field = |i: usize| types.get(i).unwrap_or(&Type::Unknown);
    // `=` and `<>` compare all fields, since one difference decides the result. Other comparisons stop at the
    // first NULL.
    let equality = holds(Ordering::Less) == holds(Ordering::Greater);
    let mut unknown = false;
    for (i, (a, b)) in l.iter().zip(r).enumerate() {
        if a.is_null() || b.is_null() {
            if !equality {
                return Datum::Null;
            }
            unknown = true;
            continue;
        }
        let order = compare_as(field(i), a, b);
        if order.is_ne() {
            return Datum::Bool(holds(order));
        }
    }
    if unknown { Datum::Null } else { Datum::Bool(holds(Ordering::Equal)) }
}

/// Evaluates `arg op ANY (array)` or `ALL`: NULL for a NULL array, otherwise the result of the first decisive
/// element.
fn quantified(op: &FuncSig, arg: &Datum, array: &Datum, all: bool) -> Result<Datum> {
    let Datum::Array(items) = array else { return Ok(Datum::Null) };
    let mut unknown = false;
    for item in items.iter() {
        match call(op, &[arg.clone(), item.clone()])? {
            Datum::Bool(b) if b != all => return Ok(Datum::Bool(b)),
            Datum::Bool(_) => {}
            _ => unknown = true,
        }
    }
    Ok(if unknown { Datum::Null } else { Datum::Bool(all) })
}
