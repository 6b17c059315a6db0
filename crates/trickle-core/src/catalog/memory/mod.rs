//! A catalog without a server, made from DDL text or by calls of its methods.

use super::extensions::{self, Contents};
use super::{Catalog, Collation, ColumnDef, TableDef, TableId};
use crate::error::{Error, Result};
use crate::expr::functions::{implicit_cast, resolve_function, resolve_operator};
use crate::expr::{FuncKind, FuncSig};
use crate::types::{OtherType, Type};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

/// A name with its schema: the schema, then the name.
pub(super) type Name = (String, String);

/// A catalog in memory: tables, views, types and functions. The search path is `public` unless
/// [`MemoryCatalog::set_search_path`] sets another one.
#[derive(Clone, Debug)]
pub struct MemoryCatalog {
    tables: Vec<Arc<TableDef>>,
    names: BTreeMap<Name, TableId>,
    views: HashMap<Name, String>,
    types: HashMap<Name, Type>,
    /// The fields of composite types. The map's key is PostgreSQL's name of the type.
    fields: HashMap<String, Vec<(Arc<str>, Type)>>,
    /// The collations under which equal texts may be written differently.
    inexact: BTreeSet<Name>,
    /// The domains that have constraints.
    constrained: BTreeSet<Name>,
    functions: HashMap<Name, Vec<Arc<FuncSig>>>,
    operators: HashMap<Name, Vec<Arc<FuncSig>>>,
    /// The implicit casts of extensions' types, from the first type to the second.
    casts: Vec<(Type, Type)>,
    /// The created extensions, each with its schema.
    extensions: BTreeMap<String, String>,
    /// The extension to which a type, function or operator with this name belongs.
    owners: HashMap<Name, String>,
    /// The types of which only the name is known. The set has PostgreSQL's names of the types.
    opaque: BTreeSet<String>,
    /// The names of functions over pseudo-types. The argument and result types of these functions are not
    /// recorded.
    vague: BTreeSet<String>,
    /// One error for each type that nothing defines, with the place at which a statement first names the
    /// type.
    doubts: Vec<Error>,
    /// The columns of each index, by name, since dropping a column changes the positions of others.
    indexes: Vec<(TableId, Vec<Arc<str>>)>,
    search_path: Vec<String>,
}

impl Default for MemoryCatalog {
    fn default() -> Self {
        MemoryCatalog {
            tables: Vec::new(),
            names: BTreeMap::new(),
            views: HashMap::new(),
            types: HashMap::new(),
            fields: HashMap::new(),
            inexact: BTreeSet::new(),
            constrained: BTreeSet::new(),
            functions: HashMap::new(),
            operators: HashMap::new(),
            casts: Vec::new(),
            extensions: BTreeMap::new(),
            owners: HashMap::new(),
            opaque: BTreeSet::new(),
            vague: BTreeSet::new(),
            doubts: Vec::new(),
            indexes: Vec::new(),
            search_path: vec!["public".to_owned()],
        }
    }
}

impl MemoryCatalog {
    /// Makes an empty catalog.
    pub fn new() -> MemoryCatalog {
        MemoryCatalog::default()
    }

    /// Makes a catalog from DDL statements: CREATE TABLE, VIEW, TYPE … AS ENUM, DOMAIN, COLLATION, FUNCTION,
    /// AGGREGATE, UNIQUE INDEX and EXTENSION, and ALTER TABLE. Other statements, such as comments, grants and
    /// data, are skipped: they define neither types nor keys.
    ///
    /// # Errors
    /// Errors in the syntax, unknown tables and columns, and tables that are defined twice. Each error names
    /// its place in the text. A type that nothing defines is not an error (see
    /// [`MemoryCatalog::take_doubts`]).
    pub fn from_ddl(sql: &str) -> Result<MemoryCatalog> {
        let mut catalog = MemoryCatalog::new();
        catalog.run(sql)?;
        Ok(catalog)
    }

    /// Adds the objects that a DDL text defines (see [`MemoryCatalog::from_ddl`]).
    ///
    /// # Errors
    /// Errors of [`MemoryCatalog::from_ddl`].
    pub fn run(&mut self, sql: &str) -> Result<()> {
        crate::parse::each_definition(sql, |d, source| super::ddl::apply(self, d, source))
    }

    /// Sets the schemas in which unqualified names are looked up, in the order of the look-ups.
    pub fn set_search_path(&mut self, schemas: impl IntoIterator<Item = impl Into<String>>) {
        self.search_path = schemas.into_iter().map(Into::into).collect();
    }

    /// Makes an ordinary table in schema `public`, with an identity that no table of the catalog has. Callers
    /// can set its keys and foreign keys before they call [`MemoryCatalog::add_table`].
    pub fn new_table(&self, name: &str, columns: Vec<ColumnDef>) -> TableDef {
        TableDef::new(self.next_id(), "public", name, columns)
    }

    /// Adds a table. It replaces the table with the same identity, if there is one.
    ///
    /// # Errors
    /// An error where another table, or a view, has the table's name.
    pub fn add_table(&mut self, table: TableDef) -> Result<()> {
        let name = (table.schema.to_string(), table.name.to_string());
        let taken = self.names.get(&name).is_some_and(|id| *id != table.id) || self.views.contains_key(&name);
        if taken {
            return Err(Error::setting(format!("relation \"{}\" already exists", table.name)));
        }
        self.names.retain(|_, id| *id != table.id);
        self.names.insert(name, table.id);
        match self.tables.iter_mut().find(|t| t.id == table.id) {
            Some(old) => *old = Arc::new(table),
            None => self.tables.push(Arc::new(table)),
        }
        Ok(())
    }

    /// Adds a view with the text of its query. It replaces the view with the same name, if there is one.
    pub fn add_view(&mut self, schema: &str, name: &str, query: impl Into<String>) {
        self.views.insert((schema.to_owned(), name.to_owned()), query.into());
    }

    /// Adds a type under a name.
    pub fn add_type(&mut self, schema: &str, name: &str, ty: Type) {
        self.opaque.remove(&ty.sql_name());
        self.types.insert((schema.to_owned(), name.to_owned()), ty);
    }

    /// Adds a domain under a name. `constrained` tells whether the domain has constraints.
    pub(super) fn add_domain(&mut self, name: Name, ty: Type, constrained: bool) {
        if constrained {
            self.constrained.insert(name.clone());
        }
        self.types.insert(name, ty);
    }

    /// Adds a composite type and its fields under a name.
    pub(super) fn add_composite(&mut self, name: Name, fields: Vec<(Arc<str>, Type)>) {
        let ty = composite(&name);
        self.fields.insert(ty.sql_name(), fields);
        self.types.insert(name, ty);
    }

    /// Adds a nondeterministic collation. Under such a collation, equal texts may be written differently.
    pub(super) fn add_inexact_collation(&mut self, name: Name) {
        self.inexact.insert(name);
    }

    /// Whether equal texts are always written alike under a collation.
    pub(super) fn is_exact_collation(&self, schema: Option<&str>, name: &str) -> bool {
        !self.candidates(schema, name).any(|n| self.inexact.contains(&n))
    }

    /// Adds a function or an aggregate. It replaces the one with the same name and the same argument types,
    /// if there is one. A signature without a schema gets the first schema of the search path.
    pub fn add_function(&mut self, sig: FuncSig) {
        let schema = sig.schema.as_deref().unwrap_or(self.default_schema()).to_owned();
        let name = sig.name.to_string();
        let sig = FuncSig { schema: Some(Arc::from(schema.as_str())), ..sig };
        let list = self.functions.entry((schema, name)).or_default();
        list.retain(|f| f.args != sig.args);
        list.push(Arc::new(sig));
    }

    /// Adds the listed objects of an extension, and the extensions that it requires.
    pub(super) fn add_extension(&mut self, name: &str, schema: &str) {
        if self.extensions.contains_key(name) {
            return;
        }
        self.extensions.insert(name.to_owned(), schema.to_owned());
        let Some(extension) = extensions::find(name) else { return };
        for required in &extension.requires {
            self.add_extension(required, schema);
        }
        let others = |ty: &str| {
            let here = self.extensions.values().find_map(|s| self.types.get(&(s.clone(), ty.to_owned())));
            here.cloned().or_else(|| server_type(ty))
        };
        let Contents { types, domains, casts, functions, operators } = extension.contents(schema, &others);
        let mut own = |what: &str| {
            self.owners.insert((schema.to_owned(), what.to_owned()), name.to_owned());
        };
        types.iter().for_each(|(ty, _)| own(ty));
        functions.iter().chain(&operators).for_each(|f| own(&f.name));
        for (ty, found) in types {
            self.add_type(schema, ty, found);
        }
        self.constrained.extend(domains.into_iter().map(|d| (schema.to_owned(), d.to_owned())));
        self.casts.extend(casts);
        functions.into_iter().for_each(|f| self.add_function(f));
        for sig in operators {
            let name = (schema.to_owned(), sig.name.to_string());
            self.operators.entry(name).or_default().push(Arc::new(sig));
        }
    }

    /// Returns the extension to which a type, function or operator with this name belongs; `None` where the
    /// catalog knows of none.
    pub fn extension_of(&self, schema: &str, name: &str) -> Option<&str> {
        self.owners.get(&(schema.to_owned(), name.to_owned())).map(String::as_str)
    }

    /// Returns the extension to which a type belongs. For an array, returns the extension of its element
    /// type.
    pub fn extension_of_type(&self, ty: &Type) -> Option<&str> {
        let ty = ty.element().unwrap_or(ty).unmodified();
        let mut named = self.types.iter().filter(|(_, t)| **t == ty);
        named.find_map(|((schema, name), _)| self.extension_of(schema, name))
    }

    /// Returns the names of the created extensions.
    pub fn extensions(&self) -> impl Iterator<Item = &str> {
        self.extensions.keys().map(String::as_str)
    }

    /// Adds a type of which only the name is known. Values of such a type can be stored and shown, like the
    /// values of every type.
    pub(super) fn add_opaque(&mut self, name: Name, doubt: Error) {
        let ty = composite(&name);
        self.opaque.insert(ty.sql_name());
        self.types.insert(name, ty);
        self.doubts.push(doubt);
    }

    /// Adds a function of which only the name is known.
    pub(super) fn add_vague(&mut self, name: String) {
        self.vague.insert(name);
    }

    /// Returns an error for each type that statements named since the last call, but that nothing defines.
    /// The error has the place at which the type was first named. Only a server can tell whether such a type
    /// exists.
    pub fn take_doubts(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.doubts)
    }

    /// Adds an index that PostgreSQL can use to look up rows by the columns at these positions.
    pub(super) fn add_index(&mut self, table: &TableDef, columns: &[usize]) {
        let names = columns.iter().map(|c| table.columns[*c].name.clone()).collect();
        self.indexes.push((table.id, names));
    }

    /// Returns the indexes of a table, except the indexes of its keys. Each index is returned as the
    /// positions of its leading columns.
    pub fn indexes(&self, table: &TableDef) -> Vec<Vec<usize>> {
        let of = self.indexes.iter().filter(|(id, _)| *id == table.id);
        of.filter_map(|(_, names)| names.iter().map(|n| table.column(n)).collect()).collect()
    }

    /// Returns all tables, in the order in which they were added.
    pub fn tables(&self) -> &[Arc<TableDef>] {
        &self.tables
    }

    /// Returns the schema in which objects with unqualified names are created.
    pub(super) fn default_schema(&self) -> &str {
        self.search_path.first().map_or("public", String::as_str)
    }

    fn next_id(&self) -> TableId {
        TableId(self.tables.iter().map(|t| t.id.0 + 1).max().unwrap_or(1))
    }

    /// Returns the qualified names that `schema.name` may stand for. Without a schema, these are the names in
    /// the schemas of the search path.
    fn candidates<'a>(&'a self, schema: Option<&'a str>, name: &'a str) -> impl Iterator<Item = Name> + 'a {
        let path = self.search_path.iter().map(String::as_str).filter(move |_| schema.is_none());
        schema.into_iter().chain(path).map(move |s| (s.to_owned(), name.to_owned()))
    }

    /// Returns the qualified names that `schema.name` may stand for. Without a schema, names in the schemas
    /// of extensions are among them. Users usually have the schemas of extensions in their search path.
    fn offered<'a>(&'a self, schema: Option<&'a str>, name: &'a str) -> impl Iterator<Item = Name> + 'a {
        let more = self.extensions.values().filter(move |_| schema.is_none());
        self.candidates(schema, name).chain(more.map(move |s| (s.clone(), name.to_owned())))
    }

    /// Whether PostgreSQL accepts a value of type `given` where type `declared` is expected, without an
    /// explicit cast.
    fn takes(&self, given: &Type, declared: &Type) -> bool {
        let known = |(from, to): &(Type, Type)| is_same(given, from) && is_same(declared, to);
        is_same(given, declared) || implicit_cast(given, declared) || self.casts.iter().any(known)
    }

    /// Returns the function that accepts these arguments with the fewest casts. Of several such functions,
    /// returns the one that reads the greatest number of untyped literals as text. If there are still
    /// several, returns the first.
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

    /// Replaces each extension's type that has a cast to a built-in type by this built-in type. Returns
    /// `None` where no type is replaced.
    fn cast_away(&self, args: &[Type]) -> Option<Vec<Type>> {
        let away = |given: &Type| {
            let casts = self.casts.iter().filter(|(from, _)| is_same(given, from)).map(|(_, to)| to);
            casts.into_iter().find(|to| !matches!(to, Type::Other(_))).cloned()
        };
        let cast: Vec<Type> = args.iter().map(|t| away(t).unwrap_or_else(|| t.clone())).collect();
        (cast != args).then_some(cast)
    }
}

/// Whether two types are the same when their modifiers are left out.
fn is_same(a: &Type, b: &Type) -> bool {
    a.base() == b.base() || a.unmodified() == b.unmodified()
}

/// Returns a catalog with the server's own types, functions and operators that the list has.
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

fn server_type(name: &str) -> Option<Type> {
    server().types.get(&("pg_catalog".to_owned(), name.to_owned())).cloned()
}

/// The advice to run the command without `--schema`, so that the server decides.
const ASK: &str = "\"trickle explain\" without --schema asks the server.";

/// Returns an identifier, in quotes where PostgreSQL requires them. Keywords get no quotes.
pub(super) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true if name != "default" => name.to_owned(),
        _ => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// Makes a composite type. The engine does not compare values of such a type, so a column of the type cannot
/// be part of a key.
pub(super) fn composite((schema, name): &Name) -> Type {
    Type::Other(Arc::new(OtherType {
        sql_name: format!("{}.{}", quoted(schema), quoted(name)),
        equality: false,
        hashable: false,
        ordered: false,
        exact: false,
    }))
}

impl Catalog for MemoryCatalog {
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<TableDef>> {
        let id = self.candidates(schema, name).find_map(|n| self.names.get(&n).copied())?;
        self.table_by_id(id)
    }

    fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>> {
        self.tables.iter().find(|t| t.id == id).cloned()
    }

    fn view(&self, schema: Option<&str>, name: &str) -> Option<String> {
        self.candidates(schema, name).find_map(|n| self.views.get(&n).cloned())
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
        let known = self.candidates(schema, name).find(|n| self.types.contains_key(n));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::{FuncKind, Volatility};

    #[test]
    fn tables_keys_and_foreign_keys() {
        let c = MemoryCatalog::from_ddl(
            "CREATE TABLE a (id int PRIMARY KEY, k int UNIQUE, v numeric(10,2) NOT NULL UNIQUE, \"Odd\" text[]);
             CREATE TABLE s.b (x bigint, y varchar(3) NOT NULL, a_id int REFERENCES a, PRIMARY KEY (x, y),
                               FOREIGN KEY (a_id) REFERENCES a (id));
             ALTER TABLE s.b ADD CONSTRAINT u UNIQUE (y);
             CREATE UNIQUE INDEX ON a (id, v); CREATE INDEX ON a (k, lower(\"Odd\"[1])); CREATE INDEX ON a (k) WHERE k > 0;
             COMMENT ON TABLE a IS 'x';",
        )
        .unwrap();
        let a = c.table(None, "a").unwrap();
        assert_eq!(a.keys, vec![vec![0], vec![2], vec![0, 2]]);
        assert!(a.columns[1].nullable && !a.columns[0].nullable);
        assert_eq!(a.columns[3].name.as_ref(), "Odd");
        assert_eq!(a.columns[3].ty, Type::Text.array());
        assert_eq!(c.indexes(&a), [vec![0, 2], vec![1]]);
        assert!(c.table(None, "b").is_none());
        let b = c.table(Some("s"), "b").unwrap();
        assert_eq!(b.keys, vec![vec![0, 1], vec![1]]);
        assert_eq!(b.foreign_keys.len(), 2);
        assert_eq!((b.foreign_keys[0].target, &b.foreign_keys[0].target_columns), (a.id, &vec![0]));
    }

    #[test]
    fn columns_come_from_parents_and_dumps_alter_what_is_no_table() {
        let c = MemoryCatalog::from_ddl(
            "CREATE TABLE a (id int PRIMARY KEY, v text);
             CREATE TABLE i (x int) INHERITS (a); CREATE TABLE l (LIKE a);
             CREATE TABLE p PARTITION OF a FOR VALUES IN (1);
             ALTER TABLE some_view OWNER TO me; ALTER TABLE ONLY i ALTER COLUMN nowhere SET DEFAULT 1;",
        )
        .unwrap();
        let columns = |t: &str| {
            let t = c.table(None, t).unwrap();
            (t.columns.iter().map(|c| c.name.to_string()).collect::<Vec<_>>().join(" "), t.keys.len())
        };
        let of = |columns: &str, keys| (columns.to_owned(), keys);
        assert_eq!(
            [columns("i"), columns("l"), columns("p")],
            [of("id v x", 0), of("id v", 0), of("id v", 1)]
        );
        let e = MemoryCatalog::from_ddl("ALTER TABLE t ADD COLUMN a int").unwrap_err();
        assert_eq!(e.sqlstate(), "42P01");
    }

    #[test]
    fn views_types_and_functions() {
        let c = MemoryCatalog::from_ddl(
            "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN posint AS int;
             CREATE TABLE t (m mood, p posint);
             CREATE VIEW v AS SELECT m FROM t; CREATE VIEW w (q) AS SELECT m FROM t;
             CREATE FUNCTION f(a int, b text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS 'select 1';
             CREATE FUNCTION g() RETURNS SETOF int LANGUAGE sql AS 'select 1';",
        )
        .unwrap();
        assert_eq!(c.view(None, "v").unwrap(), "SELECT m FROM t");
        assert_eq!(c.view(None, "w").unwrap(), "SELECT * FROM (SELECT m FROM t) AS w (q)");
        let f = c.function(None, "f", &[Type::Int2, Type::Unknown]).unwrap();
        assert_eq!((f.volatility, f.strict, &f.ret), (Volatility::Immutable, true, &Type::Int8));
        let g = c.function(Some("public"), "g", &[]).unwrap();
        assert_eq!((g.kind, g.volatility), (FuncKind::SetReturning, Volatility::Volatile));
        assert!(c.function(None, "f", &[Type::Text]).is_none());
        assert!(c.table(None, "t").unwrap().columns[0].ty.has_equality());
        assert!(c.named_type(None, "mood").is_some());
    }

    #[test]
    fn aggregates_and_collations() {
        let c = MemoryCatalog::from_ddl(
            "COMMENT ON EXTENSION nothing IS 'CREATE TABLE';
             CREATE FUNCTION last(int) RETURNS text LANGUAGE sql AS 'select 1';
             CREATE OR REPLACE AGGREGATE product(IN factor numeric, int) (SFUNC = numeric_mul, STYPE = numeric(10, 2),
                 INITCOND = '1', PARALLEL = SAFE);
             CREATE AGGREGATE final(*) (SFUNC = f, STYPE = int, FINALFUNC_EXTRA, FINALFUNC = last);
             CREATE AGGREGATE mid(float8 ORDER BY VARIADIC ints int[]) (SFUNC = f, STYPE = int);
             CREATE AGGREGATE all_of(VARIADIC ints int[]) (SFUNC = f, STYPE = int);
             CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
             CREATE DOMAIN word AS text COLLATE loose NOT NULL;
             CREATE DOMAIN plain AS text COLLATE pg_catalog.\"C\" CONSTRAINT c NOT NULL DEFAULT 'x' CHECK (value <> '');
             CREATE DOMAIN last AS int CONSTRAINT n NOT NULL; CREATE DOMAIN amount AS numeric(10, 2);
             CREATE TABLE t (a text COLLATE \"C\", b text COLLATE loose NOT NULL, c text COLLATE \"default\", d word[]);",
        )
        .unwrap();
        let product = c.function(None, "product", &[Type::Numeric(None), Type::Int4]).unwrap();
        assert_eq!((product.kind, &product.ret), (FuncKind::Aggregate, &Type::Numeric(None)));
        assert_eq!(c.function(None, "final", &[]).unwrap().ret, Type::Text);
        assert!(c.function(None, "mid", &[Type::Float8, Type::Int4.array()]).is_some());
        assert!(c.function(None, "all_of", &[Type::Int4.array()]).is_some());
        let columns = &c.table(None, "t").unwrap().columns;
        assert_eq!(columns[0].ty.sql_name(), "text COLLATE \"C\"");
        assert!(columns[0].ty.is_exact() && !columns[1].ty.is_exact() && columns[2].ty == Type::Text);
        assert_eq!(columns[3].ty, columns[1].ty.clone().array());
        assert_eq!(c.named_type(None, "amount").unwrap().sql_name(), "numeric(10,2)");
        assert_eq!(c.named_type(None, "plain").unwrap().sql_name(), "text COLLATE \"C\"");
        assert!(c.is_constrained(None, "word") && !c.is_constrained(None, "amount"));
    }

    const EXTENSIONS: &str = "
        CREATE EXTENSION IF NOT EXISTS citext WITH SCHEMA public; CREATE EXTENSION hstore WITH SCHEMA ext;
        CREATE EXTENSION vector; CREATE EXTENSION earthdistance WITH CASCADE;
        CREATE DOMAIN mail AS public.citext CHECK (VALUE <> '');
        CREATE TABLE t (id int PRIMARY KEY, c public.citext NOT NULL, m mail, h ext.hstore, v vector(3), e earth);";

    #[test]
    fn extensions_have_types_functions_and_operators() {
        let c = MemoryCatalog::from_ddl(EXTENSIONS).unwrap();
        let ty = |name: &str| {
            let t = c.table(None, "t").unwrap();
            t.columns[t.column(name).unwrap()].ty.clone()
        };
        let names: Vec<String> = ["c", "m", "h", "v", "e"].iter().map(|n| ty(n).sql_name()).collect();
        assert_eq!(
            names,
            ["public.citext", "public.citext", "ext.hstore", "public.vector(3)", "public.cube"]
        );
        assert!(
            ty("c").has_equality() && !ty("c").is_exact() && !ty("v").is_hashable() && ty("v").is_ordered()
        );
        let operator = |op: &str, args: &[Type]| {
            let found = c.operator(None, op, args)?;
            Some((found.schema.as_deref().unwrap_or("none").to_owned(), found.ret.clone()))
        };
        let of = |schema: &str, ret: Type| Some((schema.to_owned(), ret));
        assert_eq!(operator("->", &[ty("h"), Type::Unknown]), of("ext", Type::Text));
        assert_eq!(operator("<->", &[ty("v"), Type::Unknown]), of("public", Type::Float8));
        assert_eq!(operator("~~", &[ty("c"), Type::Unknown]), of("public", Type::Bool));
        // PostgreSQL compares a citext with a text as texts, since it casts citext to text implicitly, but
        // not text to citext.
        assert_eq!(c.operator(None, "=", &[ty("c"), Type::Text]).unwrap().args, [Type::Text, Type::Text]);
        assert_eq!(c.function(None, "lower", &[ty("c")]).unwrap().args, [Type::Text]);
        assert_eq!(c.function(None, "avg", &[ty("v")]).unwrap().kind, FuncKind::Aggregate);
        assert_eq!(c.function(Some("ext"), "each", &[ty("h")]).unwrap().columns.len(), 2);
        assert_eq!(
            (c.extension_of("ext", "each"), c.extension_of_type(&ty("v"))),
            (Some("hstore"), Some("vector"))
        );
    }

    #[test]
    fn a_text_is_a_text_search_configuration() {
        let c = MemoryCatalog::new();
        let vector = |args: &[Type]| c.function(None, "to_tsvector", args).unwrap();
        let f = vector(&[Type::Unknown, Type::Text]);
        assert_eq!((f.args[0].sql_name().as_str(), f.volatility), ("regconfig", Volatility::Immutable));
        assert_eq!(vector(&[Type::Text]).volatility, Volatility::Stable);
        let query = c.function(Some("pg_catalog"), "to_tsquery", &[Type::Unknown, Type::Unknown]).unwrap();
        assert_eq!(c.operator(None, "@@", &[f.ret.clone(), query.ret.clone()]).unwrap().ret, Type::Bool);
    }

    #[test]
    fn a_type_that_nothing_defines_is_opaque() {
        let mut c = MemoryCatalog::from_ddl(
            "CREATE TABLE t (a nonsense, b other.nonsense[]); CREATE DOMAIN d AS nonsense;
             CREATE FUNCTION f(nonsense) RETURNS int LANGUAGE sql IMMUTABLE AS 'select 1';
             CREATE FUNCTION g(anyelement) RETURNS anyelement LANGUAGE sql IMMUTABLE AS 'select $1';
             CREATE FUNCTION h() RETURNS trigger LANGUAGE plpgsql AS ''; CREATE TABLE u (c public.citext);",
        )
        .unwrap();
        let columns = c.table(None, "t").unwrap().columns.clone();
        assert_eq!(columns[0].ty.sql_name(), "public.nonsense");
        assert!(c.is_opaque(&columns[0].ty) && c.is_opaque(&columns[1].ty) && !columns[0].ty.has_equality());
        assert!(c.function(None, "f", &[columns[0].ty.clone()]).is_some());
        assert!(c.function(None, "g", &[Type::Int4]).is_none() && c.doubt("g", &[Type::Int4]).is_some());
        assert!(c.doubt("h", &[Type::Int4]).is_none() && c.doubt("f", &[columns[0].ty.clone()]).is_some());
        let doubts: Vec<String> = c.take_doubts().iter().map(ToString::to_string).collect();
        assert_eq!(doubts.len(), 3, "{doubts:?}");
        assert!(doubts[0].starts_with("1:19: type \"nonsense\" is not known offline"), "{}", doubts[0]);
        assert!(doubts[2].contains("CREATE EXTENSION"), "{}", doubts[2]);
        assert!(c.take_doubts().is_empty());
    }

    #[test]
    fn errors_name_the_object() {
        let e = |sql: &str| MemoryCatalog::from_ddl(sql).unwrap_err().to_string();
        assert!(e("CREATE TABLE t (a int, UNIQUE (b))").contains("column \"b\""));
        assert!(e("CREATE TABLE t (a int REFERENCES u)").contains("\"u\" does not exist"));
        assert!(e("CREATE TABLE t (a int); CREATE TABLE t (a int)").contains("already exists"));
        assert!(e("CREATE TABLE t (a int, a int)").contains("more than once"));
        assert!(e("CREATE AGGREGATE a(int) (SFUNC = f)").contains("STYPE"));
        assert!(e("CRAETE TABLE t (a int)").contains("\"CRAETE\""));
    }
}
