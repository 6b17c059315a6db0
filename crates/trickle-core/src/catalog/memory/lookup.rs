//! Name lookup in a catalog in memory: finds the object that a name denotes.

use super::{DEFAULT_SCHEMA, MemoryCatalog, Name, composite, quoted};
use crate::catalog::extensions::{self, Contents};
use crate::catalog::{Catalog, Collation, TableDef, TableId};
use crate::expr::functions::{implicit_cast, resolve_function, resolve_operator};
use crate::expr::{FuncKind, FuncSig};
use crate::types::Type;
use std::sync::{Arc, OnceLock};

/// The advice to run the command without `--schema`, so that the server decides.
const ASK: &str = "\"trickle explain\" without --schema asks the server.";

impl MemoryCatalog {
    /// Returns the qualified name of `schema.name`. Without a schema, the name is one of the schema
    /// [`DEFAULT_SCHEMA`].
    pub(super) fn qualified(schema: Option<&str>, name: &str) -> Name {
        (schema.unwrap_or(DEFAULT_SCHEMA).to_owned(), name.to_owned())
    }

    /// Returns the qualified names that `schema.name` may denote. Without a schema, names in the schemas of
    /// extensions are included. Users usually have the schemas of extensions in their search path.
    fn offered<'a>(&'a self, schema: Option<&'a str>, name: &'a str) -> impl Iterator<Item = Name> + 'a {
        let more = self.extensions.values().filter(move |_| schema.is_none());
        std::iter::once(Self::qualified(schema, name)).chain(more.map(move |s| (s.clone(), name.to_owned())))
    }

    /// Whether PostgreSQL accepts a value of type `given` where type `declared` is expected, without an
    /// explicit cast.
    fn takes(&self, given: &Type, declared: &Type) -> bool {
        let known = |(from, to): &(Type, Type)| is_same(given, from) && is_same(declared, to);
        is_same(given, declared) || implicit_cast(given, declared) || self.casts.iter().any(known)
    }

    /// Returns the function that accepts these arguments with the fewest casts. Among several such functions,
    /// it returns a function that reads the greatest number of untyped literals as text. Among several of
    /// these, it returns the first.
    fn pick<'a>(&self, all: impl Iterator<Item = &'a Arc<FuncSig>>, args: &[Type]) -> Option<Arc<FuncSig>> {
        let mut best: Option<((usize, usize), &Arc<FuncSig>)> = None;
        for f in all.filter(|f| f.args.len() == args.len()) {
            let mut pairs = args.iter().zip(&f.args);
            if !pairs.all(|(given, declared)| self.takes(given, declared)) {
                continue;
            }
            let pairs = || args.iter().zip(&f.args);
            let same = pairs().filter(|(given, declared)| is_same(given, declared)).count();
            let texts = pairs().filter(|(given, to)| **given == Type::Unknown && **to == Type::Text).count();
            if best.is_none_or(|(score, _)| score < (same, texts)) {
                best = Some(((same, texts), f));
            }
        }
        best.map(|(_, f)| f.clone())
    }

    /// Replaces each type that has an implicit cast to a built-in type, such as a type of an extension, by
    /// this built-in type. Returns `None` where no type is replaced.
    fn cast_away(&self, args: &[Type]) -> Option<Vec<Type>> {
        let away = |given: &Type| {
            let casts = self.casts.iter().filter(|(from, _)| is_same(given, from)).map(|(_, to)| to);
            casts.into_iter().find(|to| !matches!(to, Type::Other(_))).cloned()
        };
        let cast: Vec<Type> = args.iter().map(|t| away(t).unwrap_or_else(|| t.clone())).collect();
        (cast != args).then_some(cast)
    }
}

/// Whether two types are the same if modifiers are ignored.
fn is_same(a: &Type, b: &Type) -> bool {
    a.base() == b.base() || a.unmodified() == b.unmodified()
}

/// Returns a catalog with the listed types, functions and operators that are built into the server.
fn server() -> &'static MemoryCatalog {
    static SERVER: OnceLock<MemoryCatalog> = OnceLock::new();
    SERVER.get_or_init(|| {
        let mut server = MemoryCatalog::new();
        let none = |_: &str| None;
        let found = extensions::find("pg_catalog").map(|e| e.contents("pg_catalog", &none));
        let Contents { types, functions, operators, .. } = found.unwrap_or_default();
        let name = |name: &str| ("pg_catalog".to_owned(), name.to_owned());
        server.types = types.into_iter().map(|(n, ty)| (name(n), ty)).collect();
        for f in functions {
            let sig = FuncSig { schema: None, ..f };
            server.functions.entry(name(&sig.name)).or_default().push(Arc::new(sig));
        }
        for o in operators {
            server.operators.entry(name(&o.name)).or_default().push(Arc::new(o));
        }
        server
    })
}

pub(super) fn server_type(name: &str) -> Option<Type> {
    server().types.get(&("pg_catalog".to_owned(), name.to_owned())).cloned()
}

impl Catalog for MemoryCatalog {
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<TableDef>> {
        let id = self.names.get(&Self::qualified(schema, name)).copied()?;
        self.table_by_id(id)
    }

    fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>> {
        self.tables.iter().find(|t| t.id == id).cloned()
    }

    fn view(&self, schema: Option<&str>, name: &str) -> Option<String> {
        self.views.get(&Self::qualified(schema, name)).cloned()
    }

    fn returns_set(&self, schema: Option<&str>, name: &str) -> bool {
        let listed = ("pg_catalog".to_owned(), name.to_owned());
        let builtin = server().functions.get(&listed).filter(|_| schema.is_none_or(|s| s == "pg_catalog"));
        let own = self.offered(schema, name).filter_map(|n| self.functions.get(&n));
        own.chain(builtin).flatten().any(|f| f.kind == FuncKind::SetReturning)
    }

    fn function(&self, schema: Option<&str>, name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
        let own = self.offered(schema, name).filter_map(|n| self.functions.get(&n)).flatten();
        let builtin = schema.is_none_or(|s| s == "pg_catalog");
        let listed = || {
            let name = ("pg_catalog".to_owned(), name.to_owned());
            self.pick(server().functions.get(&name)?.iter(), args)
        };
        let cast = || {
            let args = self.cast_away(args)?;
            resolve_function(name, &args).or_else(|| crate::agg::resolve(name, &args))
        };
        let found = self.pick(own, args);
        found.or_else(|| listed().filter(|_| builtin)).or_else(|| cast().filter(|_| builtin))
    }

    fn operator(&self, schema: Option<&str>, name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
        let own = || self.offered(schema, name).filter_map(|n| self.operators.get(&n)).flatten();
        let builtin = schema.is_none_or(|s| s == "pg_catalog");
        let key = ("pg_catalog".to_owned(), name.to_owned());
        let all = || own().chain(server().operators.get(&key).into_iter().flatten().filter(|_| builtin));
        // An untyped operand is first assumed to have the type of the other operand.
        let guess = match args {
            [l, r] if *l == Type::Unknown => [r.clone(), r.clone()],
            [l, r] if *r == Type::Unknown => [l.clone(), l.clone()],
            [l, r] => [l.clone(), r.clone()],
            _ => return self.pick(all(), args),
        };
        let same = |o: &&Arc<FuncSig>| {
            o.args.len() == 2 && o.args.iter().zip(&guess).all(|(declared, given)| is_same(given, declared))
        };
        let found = all().find(same).cloned().or_else(|| self.pick(all(), args));
        let cast = || {
            let plain: Vec<Type> = args.iter().map(Type::unmodified).collect();
            let other = self.cast_away(args).and_then(|args| resolve_operator(name, &args));
            resolve_operator(name, &plain).filter(|_| plain != args).or(other)
        };
        found.or_else(|| cast().filter(|_| builtin))
    }

    fn fields(&self, ty: &Type) -> Option<Vec<(Arc<str>, Type)>> {
        let Type::Other(other) = ty else { return None };
        let row = |t: &&Arc<TableDef>| composite(&(t.schema.to_string(), t.name.to_string())) == *ty;
        let of_row = |t: &Arc<TableDef>| t.columns.iter().map(|c| (c.name.clone(), c.ty.clone())).collect();
        self.fields.get(&other.sql_name).cloned().or_else(|| self.tables.iter().find(row).map(of_row))
    }

    fn collation(&self, schema: Option<&str>, name: &str) -> Option<Collation> {
        let deterministic = self.is_exact_collation(schema, name);
        let sql_name = match schema.filter(|s| *s != "pg_catalog") {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(name)),
            None => quoted(name),
        };
        Some(Collation { sql_name, deterministic })
    }

    fn named_type(&self, schema: Option<&str>, name: &str) -> Option<Type> {
        let row = |n: Name| self.names.contains_key(&n).then(|| composite(&n));
        let found = self.offered(schema, name).find_map(|n| self.types.get(&n).cloned().or_else(|| row(n)));
        found.or_else(|| server_type(name).filter(|_| schema.is_none_or(|s| s == "pg_catalog")))
    }

    fn is_constrained(&self, schema: Option<&str>, name: &str) -> bool {
        let known = Some(Self::qualified(schema, name)).filter(|n| self.types.contains_key(n));
        known.is_some_and(|n| self.constrained.contains(&n))
    }

    fn is_opaque(&self, ty: &Type) -> bool {
        let ty = ty.element().unwrap_or(ty).unmodified();
        matches!(&ty, Type::Other(o) if self.opaque.contains(&o.sql_name))
    }

    fn doubt(&self, name: &str, types: &[Type]) -> Option<String> {
        fn foreign(t: &Type) -> bool {
            match t {
                Type::Array(e) => foreign(e),
                Type::Other(_) => matches!(t.uncollated(), Type::Other(_)),
                _ => false,
            }
        }
        if let Some(ty) = types.iter().find(|t| self.is_opaque(t)) {
            return Some(format!("Nothing but the name is known of type {ty}; {ASK}"));
        }
        if let Some(ty) = types.iter().find(|t| foreign(t)) {
            return Some(format!("Not all is known of what type {ty} has; {ASK}"));
        }
        if self.vague.contains(name) {
            return Some(format!("{name} takes values of several types; {ASK}"));
        }
        let more = |name: &&str| extensions::find(name).is_none_or(|e| e.partly);
        let extension = self.extensions().find(more);
        extension.map(|name| format!("Extension \"{name}\" may have it; {ASK}"))
    }

    fn table_names(&self) -> Vec<String> {
        self.names.keys().chain(self.views.keys()).map(|(_, n)| n.clone()).collect()
    }
}
