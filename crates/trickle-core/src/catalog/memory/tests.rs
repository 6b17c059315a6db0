//! Tests of the catalog in memory. They check the objects that DDL defines, and the resolution of names.

use super::*;
use crate::catalog::Catalog;
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
    assert_eq!([columns("i"), columns("l"), columns("p")], [of("id v x", 0), of("id v", 0), of("id v", 1)]);
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
    assert_eq!(names, ["public.citext", "public.citext", "ext.hstore", "public.vector(3)", "public.cube"]);
    assert!(ty("c").has_equality() && !ty("c").is_exact() && !ty("v").is_hashable() && ty("v").is_ordered());
    let operator = |op: &str, args: &[Type]| {
        let found = c.operator(None, op, args)?;
        Some((found.schema.as_deref().unwrap_or("none").to_owned(), found.ret.clone()))
    };
    let of = |schema: &str, ret: Type| Some((schema.to_owned(), ret));
    assert_eq!(operator("->", &[ty("h"), Type::Unknown]), of("ext", Type::Text));
    assert_eq!(operator("<->", &[ty("v"), Type::Unknown]), of("public", Type::Float8));
    assert_eq!(operator("~~", &[ty("c"), Type::Unknown]), of("public", Type::Bool));
    // PostgreSQL compares a citext and a text as texts, since it casts citext to text implicitly, but not
    // text to citext.
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
