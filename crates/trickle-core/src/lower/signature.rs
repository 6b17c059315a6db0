//! Finds the signature of a call by the name of the function and the types of the arguments.

use super::Lowerer;
use super::scope::hint;
use crate::agg::FAMILIES;
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::expr::functions::{resolve_function, signatures};
use crate::expr::{FormPiece, FuncKind, FuncSig, Volatility};
use crate::syntax::Place;
use crate::types::Type;
use crate::verdict::{Cause, ReasonKind};
use std::sync::Arc;

/// Set-returning functions whose columns are the fields of a composite type.
const SETS: &[&str] = &["json_populate_recordset", "jsonb_populate_recordset"];

/// Makes the error that a function does not exist for arguments of these types.
pub(super) fn unknown(catalog: &dyn Catalog, name: &str, types: &[Type]) -> Error {
    let list: Vec<String> = types.iter().map(ToString::to_string).collect();
    let call = format!("function {name}({})", list.join(", "));
    let e = Error::unknown_function(format!("{call} does not exist"))
        .hint("No function matches the name and argument types; a cast may help.")
        .doubted(call, catalog.doubt(name, types));
    let mut near: Vec<&str> = signatures().map(|(name, _)| name).collect();
    near.extend(FAMILIES.iter().flat_map(|f| f.names()));
    near.dedup();
    hint(e, name, near.into_iter())
}

/// Makes a signature whose calls are always printed as `f(…, VARIADIC a)`.
pub(super) fn variadic_form(sig: &FuncSig) -> Arc<FuncSig> {
    let last = sig.args.len().saturating_sub(1);
    with_form(sig, |at| (at == last).then(|| vec![FormPiece::Word("VARIADIC".into())]))
}

/// Makes a signature whose calls are always printed with these names of arguments, as `f(…, name => a)`.
pub(super) fn named_form(sig: &FuncSig, names: &[Option<&str>]) -> Arc<FuncSig> {
    let name = |at: usize| Some(FormPiece::Name((*names.get(at)?)?.into()));
    with_form(sig, |at| Some(vec![name(at)?, FormPiece::Word("=>".into())]))
}

/// Makes a signature whose calls have pieces before some arguments.
fn with_form(sig: &FuncSig, before: impl Fn(usize) -> Option<Vec<FormPiece>>) -> Arc<FuncSig> {
    let word = |text: &str| FormPiece::Word(text.into());
    let mut form = Vec::new();
    if let Some(schema) = &sig.schema {
        form.extend([FormPiece::Name(schema.clone()), word(".")]);
    }
    form.extend([FormPiece::Name(sig.name.clone()), word("(")]);
    for at in 0..sig.args.len() {
        form.extend(before(at).into_iter().flatten());
        form.push(FormPiece::Argument);
        form.push(word(if at + 1 == sig.args.len() { ")" } else { "," }));
    }
    Arc::new(FuncSig { form, ..sig.clone() })
}

impl Lowerer<'_> {
    /// Finds the signature for a call of the function `name` with arguments of these types.
    pub(super) fn signature(&self, schema: Option<&str>, name: &str, types: &[Type]) -> Option<Arc<FuncSig>> {
        let builtin = schema.is_none_or(|s| s == "pg_catalog");
        let found = if builtin { resolve_function(name, types) } else { None };
        found
            .map(|sig| self.by_fields(sig))
            .or_else(|| self.recordset(name, types).filter(|_| builtin))
            .or_else(|| self.catalog.function(schema, name, types))
    }

    /// Turns the signature of a function that returns a set of composite values into a signature that returns
    /// rows. Thus `unnest(array)` returns one column for each field of the array's elements.
    fn by_fields(&self, sig: Arc<FuncSig>) -> Arc<FuncSig> {
        if sig.kind != FuncKind::SetReturning || !matches!(&sig.ret, Type::Other(_)) {
            return sig;
        }
        match self.record_of(&sig.ret) {
            Some((columns, ret)) => Arc::new(FuncSig { columns, ret, ..(*sig).clone() }),
            None => sig,
        }
    }

    /// Returns the names of a composite type's fields, and the record type that they form.
    fn record_of(&self, row: &Type) -> Option<(Vec<Arc<str>>, Type)> {
        let (columns, fields): (_, Vec<Type>) = self.catalog.fields(row)?.into_iter().unzip();
        Some((columns, Type::Record(fields.into())))
    }

    /// Makes the signature of `jsonb_populate_recordset(NULL::type, …)`. The columns of the result are the
    /// fields of `type`.
    fn recordset(&self, name: &str, types: &[Type]) -> Option<Arc<FuncSig>> {
        let [row, json] = types else { return None };
        if !SETS.contains(&name) {
            return None;
        }
        let (columns, ret) = self.record_of(row)?;
        let json = if *json != Type::Unknown { json.clone() } else { Type::Jsonb };
        let sig = FuncSig::unknown(None, name, vec![row.clone(), json], ret);
        let (kind, volatility) = (FuncKind::SetReturning, Volatility::Stable);
        Some(Arc::new(FuncSig { kind, columns, volatility, ..sig }))
    }

    /// Stops lowering at an unknown function or operator, if the engine knows only the name of an operand's
    /// type, since PostgreSQL may have this function or operator. If no server was asked, the noted reason
    /// says that a server may have it.
    pub(super) fn known_types(&mut self, name: &str, types: &[Type], place: &impl Place) -> Result<()> {
        fn foreign(t: &Type) -> bool {
            matches!(t, Type::Other(_)) || t.element().is_some_and(foreign)
        }
        let Some(t) = types.iter().find(|t| foreign(t)) else { return Ok(()) };
        let construct = format!("{name} over type {t}");
        match self.catalog.doubt(name, types) {
            Some(why) => {
                self.because(ReasonKind::NotYet, Cause::Undecided, place, construct, &why);
                Err(Error::internal("lowering stopped at what only a server knows"))
            }
            None => Err(self.stop(place, construct)),
        }
    }
}
