//! The types, casts, functions and operators of well-known extensions, for a catalog without a server.
//! `extensions.txt` lists them.

use super::memory::quoted;
use crate::expr::{FuncKind, FuncSig, Volatility};
use crate::types::{OtherType, Type};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// An extension, with its lines from `extensions.txt`.
#[derive(Default)]
pub(super) struct Extension {
    /// Whether the extension has functions that are not in the list.
    pub(super) partly: bool,
    /// The extensions that `CREATE EXTENSION … CASCADE` would create together with this one.
    pub(super) requires: Vec<&'static str>,
    lines: Vec<(&'static str, &'static str)>,
}

/// The types, functions and operators of an extension that is created in a schema.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The types by name. A domain is listed with its base type.
    pub(super) types: Vec<(&'static str, Type)>,
    /// The names of the types that are domains. Each of these domains may have constraints.
    pub(super) domains: Vec<&'static str>,
    /// The implicit casts, from the first type to the second.
    pub(super) casts: Vec<(Type, Type)>,
    /// The functions, including aggregates and set-returning functions.
    pub(super) functions: Vec<FuncSig>,
    /// The operators.
    pub(super) operators: Vec<FuncSig>,
}

fn extensions() -> &'static BTreeMap<&'static str, Extension> {
    static ALL: OnceLock<BTreeMap<&'static str, Extension>> = OnceLock::new();
    ALL.get_or_init(|| {
        let (mut all, mut last) = (BTreeMap::new(), None);
        for line in include_str!("extensions.txt").lines().filter(|l| !l.starts_with('#')) {
            let Some((kind, rest)) = line.split_once(' ') else { continue };
            if kind == "extension" {
                let (name, partly) = rest.split_once(' ').map_or((rest, false), |(name, _)| (name, true));
                last = Some(name);
                all.insert(name, Extension { partly, ..Extension::default() });
            } else if let Some(extension) = last.and_then(|l| all.get_mut(l)) {
                match kind {
                    "requires" => extension.requires.push(rest),
                    _ => extension.lines.push((kind, rest)),
                }
            }
        }
        all
    })
}

/// Returns the extension with a name. Returns `None` where the list does not have it.
pub(super) fn find(name: &str) -> Option<&'static Extension> {
    extensions().get(name)
}

/// Returns the name of a listed extension that has a type with this name, if there is one.
pub(super) fn that_has(ty: &str) -> Option<&'static str> {
    let has = |e: &Extension| e.names().any(|name| name == ty);
    extensions().iter().find(|(_, e)| has(e)).map(|(name, _)| *name)
}

impl Extension {
    /// Returns the names of the extension's types.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        let types = self.lines.iter().filter(|(kind, _)| matches!(*kind, "type" | "domain"));
        types.filter_map(|(_, rest)| rest.split(' ').next())
    }

    /// Returns the types, functions and operators of the extension when it is created in `schema`. `others`
    /// returns a type of the required extensions by its name.
    pub(super) fn contents(&self, schema: &str, others: &dyn Fn(&str) -> Option<Type>) -> Contents {
        let mut found = Contents::default();
        for (kind, rest) in &self.lines {
            // A test checks that every line of the list is understood, so the result is ignored here.
            let _understood = found.take(schema, kind, rest, others);
        }
        found
    }
}

impl Contents {
    fn take(
        &mut self,
        schema: &str,
        kind: &str,
        rest: &'static str,
        others: &dyn Fn(&str) -> Option<Type>,
    ) -> Option<()> {
        let mut words = rest.split(' ');
        match kind {
            "type" => {
                let name = words.next()?;
                let classes: Vec<&str> = words.collect();
                self.types.push((name, named(schema, name, &classes)));
            }
            "domain" => {
                let name = words.next()?;
                let base = self.ty(words.next()?, others)?;
                self.types.push((name, base));
                self.domains.push(name);
            }
            "cast" => {
                let (from, to) = rest.split_once(" -> ")?;
                self.casts.push((self.ty(from, others)?, self.ty(to, others)?));
            }
            "operator" => {
                let (call, ret) = rest.rsplit_once(" -> ")?;
                let (left, right) = call.rsplit_once(' ')?;
                let (left, op) = left.rsplit_once(' ').map_or((None, left), |(l, op)| (Some(l), op));
                let args = left.into_iter().chain([right]).map(|t| self.ty(t, others));
                let mut sig = self.signature(schema, op, args.collect::<Option<_>>()?, ret, others)?;
                sig.kind = FuncKind::Operator;
                self.operators.push(sig);
            }
            "function" | "aggregate" | "set" => {
                let (call, ret) = rest.split_once(" -> ")?;
                let (name, args) = call.strip_suffix(')')?.split_once('(')?;
                let args: Vec<&str> = args.split(", ").filter(|a| !a.is_empty()).collect();
                let least = args.iter().position(|a| a.starts_with('?')).unwrap_or(args.len());
                let args = args.iter().map(|a| self.ty(a.trim_start_matches('?'), others));
                let args = args.collect::<Option<Vec<Type>>>()?;
                let mut sig = self.signature(schema, name, args, ret, others)?;
                sig.kind = match kind {
                    "aggregate" => FuncKind::Aggregate,
                    "set" => FuncKind::SetReturning,
                    _function => FuncKind::Scalar,
                };
                let cut = |n: usize| FuncSig { args: sig.args[..n].to_vec(), ..sig.clone() };
                self.functions.extend((least..=sig.args.len()).map(cut));
            }
            _unknown => return None,
        }
        Some(())
    }

    /// Makes the signature of a function. The signature states nothing about the function's values.
    fn signature(
        &self,
        schema: &str,
        name: &str,
        args: Vec<Type>,
        ret: &str,
        others: &dyn Fn(&str) -> Option<Type>,
    ) -> Option<FuncSig> {
        let (ret, flags) = match ret.split_once(')') {
            Some((columns, flags)) => (columns, flags),
            None => ret.split_once(' ').unwrap_or((ret, "")),
        };
        let (columns, ret) = match ret.strip_prefix('(') {
            None => (Vec::new(), self.ty(ret, others)?),
            Some(columns) => {
                let column = |c: &str| {
                    let (name, ty) = c.split_once(' ')?;
                    Some((Arc::from(name), self.ty(ty, others)?))
                };
                let columns: Option<Vec<(Arc<str>, Type)>> = columns.split(", ").map(column).collect();
                let (names, types): (Vec<_>, Vec<_>) = columns?.into_iter().unzip();
                (names, Type::Record(types.into()))
            }
        };
        let has = |flag| flags.split(' ').any(|f| f == flag);
        let mut sig = FuncSig::unknown(Some(schema), name, args, ret);
        sig.columns = columns;
        sig.strict = !has("lax");
        sig.volatility = match (has("stable"), has("volatile")) {
            (_, true) => Volatility::Volatile,
            (true, false) => Volatility::Stable,
            (false, false) => Volatility::Immutable,
        };
        Some(sig)
    }

    /// Returns the type that a line of the list names.
    fn ty(&self, name: &str, others: &dyn Fn(&str) -> Option<Type>) -> Option<Type> {
        if let Some(element) = name.strip_suffix("[]") {
            return self.ty(element, others).map(Type::array);
        }
        let own = self.types.iter().find(|(n, _)| *n == name).map(|(_, ty)| ty.clone());
        own.or_else(|| others(name)).or_else(|| Type::parse(name))
    }
}

/// Makes a type of an extension. The list does not say whether equal values of the type always have the same
/// image. The type therefore counts as inexact, as citext is.
fn named(schema: &str, name: &str, classes: &[&str]) -> Type {
    let (ordered, hashable) = (classes.contains(&"btree"), classes.contains(&"hash"));
    let sql_name = match schema {
        "pg_catalog" => name.to_owned(),
        schema => format!("{}.{}", quoted(schema), quoted(name)),
    };
    Type::Other(Arc::new(OtherType {
        sql_name,
        equality: ordered || hashable,
        hashable,
        ordered,
        exact: false,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_understood() {
        let mut cube = Vec::new();
        for (name, extension) in extensions() {
            let mut found = Contents::default();
            for (kind, rest) in &extension.lines {
                let others = |t: &str| match t {
                    "cube" => cube.first().cloned(),
                    t => t.starts_with("reg").then(|| named("pg_catalog", t, &[])),
                };
                assert!(found.take("s", kind, rest, &others).is_some(), "{name}: {kind} {rest}");
            }
            if *name == "cube" {
                cube.extend(found.types.first().map(|(_, ty)| ty.clone()));
            }
        }
        let of = |name: &str| extensions()[name].contents("s", &|_| None);
        let buffers = of("postgis").functions;
        let buffers: Vec<usize> =
            buffers.iter().filter(|f| &*f.name == "st_makeenvelope").map(|f| f.args.len()).collect();
        assert_eq!(buffers, [4, 5]);
        let each = of("hstore").functions.into_iter().find(|f| &*f.name == "each").unwrap();
        assert_eq!((each.kind, each.columns.len(), each.strict), (FuncKind::SetReturning, 2, true));
    }
}
