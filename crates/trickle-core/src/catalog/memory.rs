//! A catalog without a server, from DDL text or built by hand.

use super::{Catalog, Collation, ColumnDef, TableDef, TableId};
use crate::error::{Error, Result};
use crate::expr::FuncSig;
use crate::expr::functions::implicit_cast;
use crate::types::{OtherType, Type};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A schema-qualified name.
pub(super) type Name = (String, String);

/// Tables, views, types and functions in memory. The search path is `public` unless set.
#[derive(Clone, Debug)]
pub struct MemoryCatalog {
    tables: Vec<Arc<TableDef>>,
    names: BTreeMap<Name, TableId>,
    views: HashMap<Name, String>,
    types: HashMap<Name, Type>,
    /// The fields of composite types, by what PostgreSQL calls the type.
    fields: HashMap<String, Vec<(Arc<str>, Type)>>,
    /// The nondeterministic collations.
    inexact: BTreeSet<Name>,
    /// Domains with constraints.
    constrained: BTreeSet<Name>,
    functions: HashMap<Name, Vec<Arc<FuncSig>>>,
    /// The columns of each index, by name: positions move when a column is dropped.
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
            indexes: Vec::new(),
            search_path: vec!["public".to_owned()],
        }
    }
}

impl MemoryCatalog {
    /// An empty catalog.
    pub fn new() -> MemoryCatalog {
        MemoryCatalog::default()
    }

    /// From CREATE TABLE, VIEW, TYPE … AS ENUM, DOMAIN, COLLATION, FUNCTION, AGGREGATE, UNIQUE INDEX and ALTER TABLE
    /// statements; other statements (comments, grants, data) say nothing about types and keys and are passed over.
    ///
    /// # Errors
    /// Syntax errors, unknown types, tables and columns, and tables defined twice, with their place.
    pub fn from_ddl(sql: &str) -> Result<MemoryCatalog> {
        let mut catalog = MemoryCatalog::new();
        catalog.run(sql)?;
        Ok(catalog)
    }

    /// Adds what the DDL text defines; see [`MemoryCatalog::from_ddl`].
    ///
    /// # Errors
    /// Those of [`MemoryCatalog::from_ddl`].
    pub fn run(&mut self, sql: &str) -> Result<()> {
        crate::parse::each_definition(sql, |d, source| super::ddl::apply(self, d, source))
    }

    /// The schemas that unqualified names are looked up in, in order.
    pub fn set_search_path(&mut self, schemas: impl IntoIterator<Item = impl Into<String>>) {
        self.search_path = schemas.into_iter().map(Into::into).collect();
    }

    /// An ordinary table in schema `public` with a number of its own; its keys and foreign keys can be filled in
    /// before [`MemoryCatalog::add_table`].
    pub fn new_table(&self, name: &str, columns: Vec<ColumnDef>) -> TableDef {
        TableDef::new(self.next_id(), "public", name, columns)
    }

    /// Adds a table, or replaces the one with its id.
    ///
    /// # Errors
    /// Where another table has its name.
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

    /// Adds a view by the text of its query, or replaces it.
    pub fn add_view(&mut self, schema: &str, name: &str, query: impl Into<String>) {
        self.views.insert((schema.to_owned(), name.to_owned()), query.into());
    }

    /// Adds a type under a name.
    pub fn add_type(&mut self, schema: &str, name: &str, ty: Type) {
        self.types.insert((schema.to_owned(), name.to_owned()), ty);
    }

    /// Adds a domain under a name; `constrained` where it has constraints.
    pub(super) fn add_domain(&mut self, name: Name, ty: Type, constrained: bool) {
        if constrained {
            self.constrained.insert(name.clone());
        }
        self.types.insert(name, ty);
    }

    /// Adds a composite type under a name, with its fields.
    pub(super) fn add_composite(&mut self, name: Name, fields: Vec<(Arc<str>, Type)>) {
        let ty = composite(&name);
        self.fields.insert(ty.sql_name(), fields);
        self.types.insert(name, ty);
    }

    /// Adds a nondeterministic collation: texts that it takes for equal may be written differently.
    pub(super) fn add_inexact_collation(&mut self, name: Name) {
        self.inexact.insert(name);
    }

    /// Whether texts that are equal under a collation are written the same.
    pub(super) fn is_exact_collation(&self, schema: Option<&str>, name: &str) -> bool {
        !self.candidates(schema, name).any(|n| self.inexact.contains(&n))
    }

    /// Adds a function or aggregate, or replaces the one with the same arguments. A signature without a schema goes
    /// into the first schema of the search path.
    pub fn add_function(&mut self, sig: FuncSig) {
        let schema = sig.schema.as_deref().unwrap_or(self.default_schema()).to_owned();
        let name = sig.name.to_string();
        let sig = FuncSig { schema: Some(Arc::from(schema.as_str())), ..sig };
        let list = self.functions.entry((schema, name)).or_default();
        list.retain(|f| f.args != sig.args);
        list.push(Arc::new(sig));
    }

    /// Adds an index that finds rows by these columns (positions), which PostgreSQL may use for lookups.
    pub(super) fn add_index(&mut self, table: &TableDef, columns: &[usize]) {
        let names = columns.iter().map(|c| table.columns[*c].name.clone()).collect();
        self.indexes.push((table.id, names));
    }

    /// The indexes of a table beside its keys, each as the columns (positions) that it starts with.
    pub fn indexes(&self, table: &TableDef) -> Vec<Vec<usize>> {
        let of = self.indexes.iter().filter(|(id, _)| *id == table.id);
        of.filter_map(|(_, names)| names.iter().map(|n| table.column(n)).collect()).collect()
    }

    /// All tables, in the order in which they were added.
    pub fn tables(&self) -> &[Arc<TableDef>] {
        &self.tables
    }

    /// The schema that unqualified names are created in.
    pub(super) fn default_schema(&self) -> &str {
        self.search_path.first().map_or("public", String::as_str)
    }

    fn next_id(&self) -> TableId {
        TableId(self.tables.iter().map(|t| t.id.0 + 1).max().unwrap_or(1))
    }

    /// The names that `schema.name` may stand for.
    fn candidates<'a>(&'a self, schema: Option<&'a str>, name: &'a str) -> impl Iterator<Item = Name> + 'a {
        let path = self.search_path.iter().map(String::as_str).filter(move |_| schema.is_none());
        schema.into_iter().chain(path).map(move |s| (s.to_owned(), name.to_owned()))
    }
}

/// An identifier as PostgreSQL reads it, if it is no keyword.
pub(super) fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true if name != "default" => name.to_owned(),
        _ => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// A type of several fields. Comparisons and keys of it are not known to the engine.
fn composite((schema, name): &Name) -> Type {
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

    fn function(&self, schema: Option<&str>, name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
        let all: Vec<&Arc<FuncSig>> =
            self.candidates(schema, name).filter_map(|n| self.functions.get(&n)).flatten().collect();
        let fits = |f: &FuncSig, same: fn(&Type, &Type) -> bool| {
            f.args.len() == args.len() && args.iter().zip(&f.args).all(|(a, p)| same(a, p))
        };
        let exact = all.iter().find(|f| fits(f, |a, p| a.base() == p.base()));
        exact.or_else(|| all.iter().find(|f| fits(f, implicit_cast))).map(|f| (*f).clone())
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
        self.candidates(schema, name).find_map(|n| self.types.get(&n).cloned().or_else(|| row(n)))
    }

    fn is_constrained(&self, schema: Option<&str>, name: &str) -> bool {
        let known = self.candidates(schema, name).find(|n| self.types.contains_key(n));
        known.is_some_and(|n| self.constrained.contains(&n))
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

    #[test]
    fn errors_name_the_object() {
        let e = |sql: &str| MemoryCatalog::from_ddl(sql).unwrap_err().to_string();
        assert!(e("CREATE TABLE t (a nonsense)").contains("\"nonsense\" does not exist"));
        assert!(e("CREATE TABLE t (a int, UNIQUE (b))").contains("column \"b\""));
        assert!(e("CREATE TABLE t (a int REFERENCES u)").contains("\"u\" does not exist"));
        assert!(e("CREATE TABLE t (a int); CREATE TABLE t (a int)").contains("already exists"));
        assert!(e("CREATE TABLE t (a int, a int)").contains("more than once"));
        assert!(e("CREATE AGGREGATE a(int) (SFUNC = f)").contains("STYPE"));
        assert!(e("CRAETE TABLE t (a int)").contains("\"CRAETE\""));
    }
}
