//! Derives types from context: untyped literals, implicit casts, the common type of several values.

use super::Lowerer;
use super::literal;
use crate::error::{Error, Result};
use crate::expr::functions::{common_type, implicit_cast};
use crate::expr::{Expr, ExprKind, FuncSig};
use crate::types::{Datum, Type};
use std::sync::Arc;

impl Lowerer<'_> {
    /// Returns `e` as a value of type `to`, which the context of `e` requires. An untyped literal is read as
    /// a value of type `to`; any other expression is cast.
    pub(super) fn coerce(&self, e: Expr, to: &Type) -> Result<Expr> {
        if e.ty() == to {
            return Ok(e);
        }
        match (e.kind(), e.ty()) {
            (ExprKind::Literal(Datum::Null), Type::Unknown) => Ok(Expr::null(to.clone())),
            (ExprKind::Literal(Datum::Text(text)), Type::Unknown) => literal::read(text, to),
            _ => Ok(e.cast(to.clone())),
        }
    }

    /// Like [`Lowerer::coerce`], but fails if PostgreSQL has no implicit cast to `to`.
    pub(super) fn coerce_implicitly(&self, e: Expr, to: &Type, what: &str) -> Result<Expr> {
        if !implicit_cast(e.ty(), to) {
            let m = Error::type_mismatch(format!("{what} must be type {to}, not type {}", e.ty()));
            let (types, cast) = ([e.ty().clone(), to.clone()], format!("a cast from {} to {to}", e.ty()));
            return Err(m.doubted(cast, self.catalog.doubt("", &types)));
        }
        self.coerce(e, to)
    }

    /// Fails where PostgreSQL has no cast between two built-in types, not even an explicit one.
    pub(super) fn check_cast(&self, from: &Type, to: &Type) -> Result<()> {
        if castable(from, to) {
            return Ok(());
        }
        Err(Error::type_mismatch(format!("cannot cast type {from} to {to}")))
    }

    /// Casts the arguments to the types that the signature declares. If the type of an argument differs from
    /// the declared type only in modifiers, the argument is not cast. A text keeps its collation.
    pub(super) fn arguments(&self, sig: &FuncSig, args: Vec<Expr>) -> Result<Vec<Expr>> {
        args.into_iter()
            .enumerate()
            .map(|(i, e)| match sig.args.get(i) {
                Some(to) if *e.ty() == Type::Unknown => self.coerce(e, to),
                Some(to) if e.ty().uncollated().base() != to.uncollated().base() => {
                    let to = e.ty().recollated(to);
                    self.coerce(e, &to)
                }
                _ => Ok(e),
            })
            .collect()
    }

    /// Makes a call, with the arguments cast to the types that the signature declares. A text result gets the
    /// collation of the arguments.
    pub(super) fn call(&self, sig: Arc<FuncSig>, args: Vec<Expr>) -> Result<Expr> {
        let sig = under_collation(sig, &args);
        let args = self.arguments(&sig, args)?;
        Ok(Expr::call(sig, args))
    }

    /// Casts the values to one common type, as CASE, COALESCE, ARRAY and VALUES need it. Returns the cast
    /// values and the common type.
    pub(super) fn unified(&self, what: &str, exprs: Vec<Expr>) -> Result<(Vec<Expr>, Type)> {
        let types: Vec<Type> = exprs.iter().map(|e| e.ty().clone()).collect();
        let Some(ty) = common_type(&types) else {
            let mut names: Vec<String> = Vec::new();
            for t in types.iter().filter(|t| **t != Type::Unknown).map(ToString::to_string) {
                if !names.contains(&t) {
                    names.push(t);
                }
            }
            let e = Error::type_mismatch(format!("{what} types {} cannot be matched", names.join(" and ")))
                .hint("Cast the values to one type.");
            return Err(self.doubt_common(e, &types));
        };
        let exprs = exprs.into_iter().map(|e| self.coerce(e, &ty)).collect::<Result<Vec<_>>>()?;
        Ok((exprs, ty))
    }
}

/// Returns the signature with its result under the collation of the arguments, if the result is a text or an
/// array of texts.
pub(super) fn under_collation(sig: Arc<FuncSig>, args: &[Expr]) -> Arc<FuncSig> {
    let collated = args.iter().find(|e| e.ty().collation().is_some()).map(|e| e.ty().recollated(&sig.ret));
    match collated {
        Some(ret) if ret != sig.ret => Arc::new(FuncSig { ret, ..(*sig).clone() }),
        _ => sig,
    }
}

/// Whether PostgreSQL may have a cast between these types, implicit or explicit. Texts, json, records and
/// types that the engine does not know can be cast through text.
fn castable(from: &Type, to: &Type) -> bool {
    let timed = |t: &Type| matches!(t, Type::Date | Type::Timestamp | Type::Timestamptz);
    let open = |t: &Type| t.is_string() || matches!(t, Type::Unknown | Type::Other(_) | Type::Record(_));
    match (from, to) {
        _ if open(from) || open(to) || implicit_cast(from, to) => true,
        (Type::Array(a), Type::Array(b)) => castable(a, b),
        (Type::Bool, Type::Int4) | (Type::Int4, Type::Bool) => true,
        (Type::Json, Type::Jsonb) | (Type::Jsonb, Type::Json) => true,
        (Type::Jsonb, t) => t.is_number() || *t == Type::Bool,
        (f, Type::Time) => matches!(f, Type::Timestamp | Type::Timestamptz | Type::Interval),
        (Type::Bytea, t) | (t, Type::Bytea) => t.is_integer(),
        (f, t) => (f.is_number() && t.is_number()) || (timed(f) && timed(t)),
    }
}
