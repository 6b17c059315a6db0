//! Finds the entry of the list of built-in functions that a call means. The choice follows PostgreSQL's rules
//! for overloaded functions (manual, chapter "Type Conversion").

use super::{Entry, Pattern};
use crate::expr::{FuncSig, Volatility};
use crate::types::{OtherType, Type};
use std::sync::Arc;

/// PostgreSQL's type categories. An implicit cast stays within one category.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Category {
    Bool,
    Number,
    Text,
    DateTime,
    Timespan,
    Array,
    Unknown,
    Other,
}

fn category(ty: &Type) -> Category {
    match ty {
        Type::Bool => Category::Bool,
        t if t.is_number() => Category::Number,
        t if t.is_string() => Category::Text,
        Type::Date | Type::Time | Type::Timestamp | Type::Timestamptz => Category::DateTime,
        Type::Interval => Category::Timespan,
        Type::Array(_) => Category::Array,
        Type::Unknown => Category::Unknown,
        _ => Category::Other,
    }
}

/// Whether the type is the preferred type of its category.
fn preferred(ty: &Type) -> bool {
    matches!(ty, Type::Bool | Type::Float8 | Type::Text | Type::Timestamptz | Type::Interval)
}

/// Whether two types are the same except for modifiers. `varchar` counts as `text`, since a `varchar` is read
/// as `text` without conversion.
fn same(from: &Type, to: &Type) -> bool {
    match (from, to) {
        (Type::Varchar(_), Type::Text) => true,
        (Type::Array(a), Type::Array(b)) => same(a, b),
        _ => from.base() == to.base(),
    }
}

/// Whether the type is `bit` or `bit varying`, with or without a length. PostgreSQL casts each of the two
/// implicitly to the other.
fn is_bits(ty: &OtherType) -> bool {
    let name = ty.sql_name.split('(').next().unwrap_or_default();
    matches!(name, "bit" | "\"bit\"" | "bit varying")
}

/// Whether PostgreSQL casts `from` to `to` implicitly. Modifiers do not matter, and every type has an
/// implicit cast to itself.
pub fn implicit_cast(from: &Type, to: &Type) -> bool {
    let rank = |t: &Type| match t {
        Type::Int2 => 1,
        Type::Int4 => 2,
        Type::Int8 => 3,
        Type::Numeric(_) => 4,
        Type::Float4 => 5,
        Type::Float8 => 6,
        _ => 0,
    };
    if from.collation().is_some() || to.collation().is_some() {
        return implicit_cast(&from.uncollated(), &to.uncollated());
    }
    match (from, to) {
        (Type::Unknown, _) => true,
        _ if same(from, to) => true,
        _ if rank(from) > 0 => rank(from) < rank(to),
        _ if from.is_string() => to.is_string(),
        (Type::Date, Type::Timestamp | Type::Timestamptz) | (Type::Timestamp, Type::Timestamptz) => true,
        (Type::Time, Type::Interval) => true,
        (Type::Other(a), Type::Other(b)) => {
            a.sql_name == "cidr" && b.sql_name == "inet" || is_bits(a) && is_bits(b)
        }
        (Type::Array(a), Type::Array(b)) => implicit_cast(a, b),
        _ => false,
    }
}

/// Returns the common type of values in CASE, COALESCE, UNION, VALUES and ARRAY (manual, "UNION, CASE, and
/// Related Constructs"). The result is the first type, or a later type of the same category if the first type
/// has an implicit cast to it. If all values are untyped literals, the result is `text`. The result has a
/// modifier only if all types have the same modifier. If the texts have only one collation, the result has
/// this collation; texts without a collation do not matter.
pub fn common_type(types: &[Type]) -> Option<Type> {
    let mut collated = types.iter().filter(|t| t.collation().is_some());
    let Some(like) = collated.next() else { return plain_common_type(types) };
    let name = |t: &Type| t.collation().map(|(_, name)| name.to_owned());
    let one = collated.all(|t| name(t) == name(like));
    let plain: Vec<Type> = types.iter().map(Type::uncollated).collect();
    plain_common_type(&plain).filter(|_| one).map(|ty| like.recollated(&ty))
}

fn plain_common_type(types: &[Type]) -> Option<Type> {
    // NULL::record counts as a row of any fields.
    let fields = types.iter().any(|t| matches!(t, Type::Record(f) if !f.is_empty()));
    let open = |t: &&Type| **t == Type::Unknown || fields && matches!(t, Type::Record(f) if f.is_empty());
    let mut known = types.iter().filter(|t| !open(t));
    let Some(first) = known.next() else { return Some(Type::Text) };
    if known.clone().all(|t| t == first) {
        return Some(first.clone());
    }
    let mut best = first.base();
    for t in known.map(Type::base) {
        if category(&t) != category(&best) {
            return None;
        }
        if !preferred(&best) && implicit_cast(&best, &t) && !implicit_cast(&t, &best) {
            best = t;
        }
    }
    types.iter().filter(|t| !open(t)).all(|t| implicit_cast(t, &best)).then_some(best)
}

/// Returns the volatility of a cast. Casts between text and dates or times depend on `DateStyle` and
/// `TimeZone`.
pub fn cast_volatility(from: &Type, to: &Type) -> Volatility {
    let timed = |t: &Type| category(t) == Category::DateTime || *t == Type::Interval;
    let stable = match (from, to) {
        // An image serves only to tell values apart, and under every setting it tells the same values apart.
        (_, t) if crate::types::is_written(t) => false,
        (Type::Array(a), Type::Array(b)) => return cast_volatility(a, b),
        (Type::Unknown, _) => false,
        (f, t) if timed(f) && timed(t) => (*f == Type::Timestamptz) != (*t == Type::Timestamptz),
        (f, t) => {
            let text = |x: &Type| x.is_string() || matches!(x, Type::Other(_));
            (timed(f) && text(t)) || (text(f) && timed(t)) || matches!((f, t), (Type::Record(_), _))
        }
    };
    if stable { Volatility::Stable } else { Volatility::Immutable }
}

/// Resolves a comparison. Operands are not cast if PostgreSQL has an operator for the pair of types.
pub(super) fn comparison(op: &str, l: &Type, r: &Type) -> Option<Arc<FuncSig>> {
    let (l, r) = match (l, r) {
        (Type::Unknown, Type::Unknown) => (Type::Text, Type::Text),
        (Type::Unknown, t) => (t.base(), t.clone()),
        (t, Type::Unknown) => (t.clone(), t.base()),
        _ => (l.clone(), r.clone()),
    };
    let supported = |t: &Type| if matches!(op, "=" | "<>") { t.has_equality() } else { t.is_ordered() };
    let both = |t: Type| Some((t.clone(), t));
    let timed = |t: &Type| matches!(t, Type::Date | Type::Timestamp | Type::Timestamptz);
    let text = |t: &Type| matches!(t, Type::Text | Type::Varchar(_));
    let float = |t: &Type| matches!(t, Type::Float4 | Type::Float8);
    let pair = match (&l, &r) {
        (a, b) if a.base() == b.base() => Some((l.clone(), r.clone())),
        // A text with a collation and a text without a collation are compared under that collation.
        (a, b) if a.collation().is_some() || b.collation().is_some() => {
            common_type(&[l.clone(), r.clone()]).filter(|t| t.collation().is_some()).and_then(both)
        }
        (a, b) if a.is_integer() && b.is_integer() => Some((l.clone(), r.clone())),
        (a, b) if text(a) && text(b) => Some((l.clone(), r.clone())),
        (a, b) if a.is_string() && b.is_string() => both(Type::Text),
        (a, b) if timed(a) && timed(b) => Some((l.clone(), r.clone())),
        (a, b) if float(a) && float(b) => Some((l.clone(), r.clone())),
        (a, b) if a.is_number() && b.is_number() => {
            both(if float(a) || float(b) { Type::Float8 } else { Type::Numeric(None) })
        }
        (Type::Time, Type::Interval) | (Type::Interval, Type::Time) => both(Type::Interval),
        (Type::Record(a), Type::Record(b)) if a.len() == b.len() => Some((l.clone(), r.clone())),
        _ => None,
    };
    let (l, r) = pair.filter(|(l, r)| supported(l) && supported(r))?;
    // Comparing a time with time zone and a time without time zone reads the setting `TimeZone`.
    let stable = timed(&l) && (l == Type::Timestamptz) != (r == Type::Timestamptz);
    let sig = FuncSig::comparison(op, l, r);
    Some(if stable { Arc::new(FuncSig { volatility: Volatility::Stable, ..(*sig).clone() }) } else { sig })
}

/// Returns the operand types with which `||` is resolved. If one operand is a text, the other operand counts
/// as a text if its text does not depend on a setting. (PostgreSQL declares `text || anynonarray` as stable,
/// because the text of some types depends on settings. PostgreSQL inlines the operator to the same
/// expression.)
pub(super) fn concatenated(op: &str, args: &[Type]) -> Vec<Type> {
    let fixed = |t: &Type| t.is_number() || matches!(t, Type::Bool | Type::Uuid);
    match (op, args) {
        ("||", [l, r]) if (l.is_string() || *l == Type::Unknown) && fixed(r) => vec![l.clone(), Type::Text],
        ("||", [l, r]) if (r.is_string() || *r == Type::Unknown) && fixed(l) => vec![Type::Text, r.clone()],
        _ => args.to_vec(),
    }
}

/// Whether an entry declares exactly these argument types.
pub(super) fn is_exact(entry: &Entry, args: &[Type]) -> bool {
    let mut element: Option<Type> = None;
    let mut bind = |t: Type| match &element {
        Some(e) => same(&t, e),
        None => {
            element = Some(t);
            true
        }
    };
    args.iter().enumerate().all(|(i, t)| match entry.arg(i) {
        Some(Pattern::Is(p)) => same(t, p),
        Some(Pattern::Any) => true,
        Some(Pattern::Element) => bind(t.base()),
        Some(Pattern::Array) => t.element().is_some_and(|e| bind(e.base())),
        None => false,
    })
}

/// An entry of the list of built-in functions that accepts the given arguments, and the types to which the
/// call casts these arguments.
struct Candidate<'a> {
    entry: &'a Entry,
    args: Vec<Type>,
    element: Option<Type>,
}

/// Returns the candidate for `entry`. Returns `None` if its function cannot be called with arguments of these
/// types.
fn fit<'a>(entry: &'a Entry, args: &[Type]) -> Option<Candidate<'a>> {
    if !entry.takes(args.len()) {
        return None;
    }
    let mut elements = Vec::new();
    for (i, t) in args.iter().enumerate() {
        match entry.arg(i)? {
            Pattern::Element => elements.push(t.clone()),
            Pattern::Array if *t != Type::Unknown => elements.push(t.element()?.clone()),
            _ => {}
        }
    }
    let generic = entry.args.iter().any(|p| matches!(p, Pattern::Element | Pattern::Array));
    if generic && elements.iter().all(|t| *t == Type::Unknown) && elements.len() < args.len() {
        return None;
    }
    let element = if generic { Some(common_type(&elements)?.base()) } else { None };
    let mut taken = Vec::new();
    for (i, t) in args.iter().enumerate() {
        taken.push(match (entry.arg(i)?, &element) {
            (Pattern::Is(p), _) if implicit_cast(t, p) => p.clone(),
            (Pattern::Any, _) if *t == Type::Unknown => Type::Text,
            (Pattern::Any, _) => t.clone(),
            (Pattern::Element, Some(e)) => e.clone(),
            (Pattern::Array, Some(e)) => e.clone().array(),
            _ => return None,
        });
    }
    Some(Candidate { entry, args: taken, element })
}

/// Keeps the candidates with the highest score.
fn keep_best(candidates: &mut Vec<Candidate<'_>>, score: impl Fn(&Candidate<'_>) -> usize) {
    let best = candidates.iter().map(&score).max().unwrap_or(0);
    candidates.retain(|c| score(c) == best);
}

/// Returns the row that PostgreSQL would choose for these argument types.
pub(super) fn select<'a>(entries: impl Iterator<Item = &'a Entry>, args: &[Type]) -> Option<FuncSig> {
    let mut found: Vec<Candidate<'_>> = entries.filter_map(|e| fit(e, args)).collect();
    let matches = |c: &Candidate<'_>, guess: &[Type]| (0..guess.len()).all(|i| same(&guess[i], &c.args[i]));
    // If one operand of an operator is untyped, the type of the other operand is tried first.
    if let [l, r] = args {
        let guess = match (l, r) {
            (Type::Unknown, t) | (t, Type::Unknown) if *t != Type::Unknown => Some([t.clone(), t.clone()]),
            _ => None,
        };
        if let Some(guess) = guess
            && let Some(c) = found.iter().position(|c| c.entry.has(super::OPERATOR) && matches(c, &guess))
        {
            return sign(found.swap_remove(c));
        }
    }
    let known = |i: usize| args[i] != Type::Unknown;
    keep_best(&mut found, |c| (0..args.len()).filter(|i| known(*i) && same(&args[*i], &c.args[*i])).count());
    keep_best(&mut found, |c| {
        let good = |i: &usize| known(*i) && (same(&args[*i], &c.args[*i]) || preferred(&c.args[*i]));
        (0..args.len()).filter(good).count()
    });
    for i in (0..args.len()).filter(|i| !known(*i)) {
        if found.len() > 1 {
            settle_unknown(&mut found, i);
        }
    }
    if found.len() > 1 {
        let mut types = args.iter().filter(|t| **t != Type::Unknown);
        let first = types.next()?.clone();
        if types.all(|t| *t == first) {
            let guess = vec![first; args.len()];
            found.retain(|c| matches(c, &guess));
        }
    }
    if found.len() == 1 { found.pop().and_then(sign) } else { None }
}

/// Gives an untyped argument a category: text if a candidate accepts text, otherwise the category that all
/// candidates accept.
fn settle_unknown(found: &mut Vec<Candidate<'_>>, i: usize) {
    let first = category(&found[0].args[i]);
    let chosen = if found.iter().any(|c| category(&c.args[i]) == Category::Text) {
        Category::Text
    } else if found.iter().all(|c| category(&c.args[i]) == first) {
        first
    } else {
        return;
    };
    found.retain(|c| category(&c.args[i]) == chosen);
    if found.iter().any(|c| preferred(&c.args[i])) {
        found.retain(|c| preferred(&c.args[i]));
    }
}

fn sign(c: Candidate<'_>) -> Option<FuncSig> {
    c.entry.signature(c.args, c.element.as_ref())
}
