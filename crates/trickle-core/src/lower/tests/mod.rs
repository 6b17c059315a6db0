//! Each supported construct is lowered to the expected plan. Any other construct gives a reason with its
//! position.

mod errors;
mod plans;
mod soup;
mod subqueries;
mod viewdef;

use super::{Lowered, Query, lower};
use crate::catalog::MemoryCatalog;
use crate::error::Error;
use crate::graph::{Format, explain};
use crate::types::Type;
use crate::verdict::{Reason, ReasonKind};

const DDL: &str = "CREATE TABLE a (id int PRIMARY KEY, k int, v int, t text);
    CREATE TABLE b (id int PRIMARY KEY, k int, w numeric(10,2), d date);
    CREATE TABLE n (x int NOT NULL, y int NOT NULL, j json, jb jsonb, arr int[]);
    CREATE VIEW va AS SELECT id, k FROM a WHERE v > 0;
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE TABLE m (id int PRIMARY KEY, f mood NOT NULL);
    CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS 'select $1 * 2';
    CREATE FUNCTION look(int) RETURNS int LANGUAGE sql STABLE AS 'select $1';
    CREATE FUNCTION roll() RETURNS int LANGUAGE sql AS 'select 4';";

fn catalog() -> MemoryCatalog {
    MemoryCatalog::from_ddl(DDL).unwrap()
}

fn query(sql: &str) -> Query {
    match lower(sql, &catalog()) {
        Ok(Lowered::Query(q)) => q,
        Ok(Lowered::Unsupported(reasons)) => panic!("{sql}: {reasons:?}"),
        Err(e) => panic!("{sql}: {e}"),
    }
}

/// Returns the plan, one operator a line, without the root's blank line.
fn plan(sql: &str) -> String {
    let q = query(sql);
    explain(&q.graph, q.root, Format::Text).trim_end().to_owned()
}

/// Returns the output types.
fn types(sql: &str) -> String {
    let q = query(sql);
    let types: Vec<String> = q.graph.schema(q.root).columns().iter().map(|c| c.ty.to_string()).collect();
    types.join(", ")
}

fn names(sql: &str) -> String {
    query(sql).columns.join(", ")
}

fn error(sql: &str) -> Error {
    match lower(sql, &catalog()) {
        Err(e) => e,
        other => panic!("{sql}: {other:?}"),
    }
}

fn reasons(sql: &str) -> Vec<Reason> {
    match lower(sql, &catalog()) {
        Ok(Lowered::Unsupported(reasons)) => reasons,
        other => panic!("{sql}: {other:?}"),
    }
}

#[test]
fn reasons_carry_place_and_kind() {
    let all = reasons("SELECT now(),\n random(), array_agg(v) OVER (ORDER BY k) FROM a\n LIMIT (SELECT 3)");
    let at = |what: &str| {
        let r = all.iter().find(|r| r.construct.contains(what)).unwrap_or_else(|| panic!("{what}: {all:?}"));
        (r.span.unwrap().line, r.span.unwrap().column, r.kind)
    };
    assert_eq!(at("now()"), (1, 8, ReasonKind::NotYet));
    assert_eq!(at("random()"), (2, 2, ReasonKind::Never));
    assert_eq!(at("array_agg() over a frame"), (2, 12, ReasonKind::NotYet));
    assert_eq!(at("LIMIT"), (3, 9, ReasonKind::NotYet));
    assert!(all.iter().all(|r| !r.help.is_empty()));
    // Even full refreshes cannot keep a result equal to a value that depends on the user's search path.
    let path = reasons("SELECT current_schema AS s FROM a");
    assert!(path[0].refusal().is_some_and(|e| e.message().contains("current_schema()")), "{path:?}");
}

#[test]
fn every_construct_that_is_not_kept_says_so() {
    use ReasonKind::{Never, NotYet};
    for (sql, what, kind) in [
        ("SELECT id FROM a LIMIT (SELECT 1)", "LIMIT", NotYet),
        ("SELECT id FROM a FOR UPDATE", "FOR UPDATE", Never),
        ("SELECT current_schema AS s FROM a", "current_schema()", Never),
        ("SELECT id FROM a WHERE current_schemas(true) IS NULL", "current_schemas()", Never),
        ("SELECT (SELECT GROUPING(a.k)) FROM a GROUP BY ROLLUP (k)", "GROUPING()", NotYet),
        ("SELECT 'x'::text AS x FROM a GROUP BY CUBE (x)", "a constant as key", NotYet),
        ("SELECT 1 AS x FROM a GROUP BY CUBE (id, k, v, t, id + 1, k + 1, v + 1)", "128 sets", NotYet),
        (
            "WITH RECURSIVE r AS (SELECT 1 x UNION ALL SELECT DISTINCT x FROM r) SELECT * FROM r",
            "DISTINCT in the recursive term",
            NotYet,
        ),
        (
            "WITH RECURSIVE r AS (SELECT 1.5 x UNION SELECT x FROM r) SELECT * FROM r",
            "equal and written differently",
            NotYet,
        ),
        (
            "SELECT (WITH RECURSIVE r AS (SELECT a.k x UNION SELECT x FROM r) SELECT count(*) FROM r) FROM a",
            "outer columns",
            NotYet,
        ),
        (
            "WITH RECURSIVE r AS (SELECT 1 x UNION ALL SELECT x + 1 FROM r WHERE x < 5) SEARCH DEPTH FIRST BY x SET o
            SELECT o FROM r",
            "computed where it is read",
            NotYet,
        ),
        ("SELECT * FROM a TABLESAMPLE SYSTEM (10)", "TABLESAMPLE", Never),
        ("WITH x AS (DELETE FROM a RETURNING id) SELECT * FROM x", "DELETE", Never),
        ("SELECT id, last_value(v) OVER (ORDER BY k) FROM a", "last_value() over a frame", NotYet),
        ("SELECT id, lag(v) IGNORE NULLS OVER (ORDER BY id) FROM a", "IGNORE NULLS", NotYet),
        ("SELECT current_date FROM a", "current_date", NotYet),
        ("SELECT current_user FROM a", "current_user", NotYet),
        ("SELECT 'now'::timestamp FROM a", "'now'", Never),
        ("SELECT nextval('s') FROM a", "nextval", Never),
        ("SELECT roll() FROM a", "roll()", Never),
        ("SELECT look(id) FROM a", "look()", NotYet),
        ("SELECT count(DISTINCT a) FROM a", "composite type", NotYet),
        ("SELECT ARRAY(SELECT DISTINCT id FROM b ORDER BY k) FROM a", "ARRAY", NotYet),
        ("SELECT a.id FROM a LEFT JOIN b ON b.id IN (SELECT x FROM n WHERE y = a.k)", "ON", NotYet),
        ("SELECT jsonb_each(jb) FROM n", "rows of a set-returning function", NotYet),
        ("SELECT jsonb_each(jb)::text FROM n", "rows of a set-returning function", NotYet),
        ("SELECT k AS x, k AS y, count(*) FROM a GROUP BY ROLLUP (1, 2)", "a column that is shown twice", NotYet),
        ("SELECT * FROM a TABLESAMPLE BERNOULLI (5) REPEATABLE (1)", "TABLESAMPLE", Never),
        ("SELECT id FROM a FOR SHARE", "FOR UPDATE", Never),
        ("SELECT id FROM a FOR NO KEY UPDATE SKIP LOCKED", "FOR UPDATE", Never),
        ("SELECT id FROM (SELECT id FROM a for /* the */ key share OF a) x", "FOR UPDATE", Never),
        ("WITH x AS (INSERT INTO a VALUES (1) RETURNING id) SELECT * FROM x", "INSERT", Never),
        ("WITH x AS (UPDATE a SET k = 1 RETURNING id) SELECT * FROM x", "UPDATE", Never),
        ("SELECT (SELECT max(a.k) FROM b) FROM a", "an aggregate over columns of an enclosing query", NotYet),
        ("SELECT (SELECT min(CASE WHEN false THEN a.k ELSE 0 END) FROM b) FROM a", "enclosing query", NotYet),
        ("SELECT (SELECT count(*) FILTER (WHERE a.k > 0) FROM b) FROM a", "enclosing query", NotYet),
        ("SELECT (SELECT max((SELECT x FROM n WHERE y = a.k)) FROM b) FROM a", "enclosing query", NotYet),
        ("SELECT id FROM a WHERE id IN (SELECT max(a.k + 1) FROM b)", "enclosing query", NotYet),
    ] {
        let all = reasons(sql);
        assert!(all.iter().all(|r| !r.help.is_empty()), "{sql}: {all:?}");
        let found = all.iter().find(|r| r.construct.contains(what) && r.kind == kind);
        assert!(found.is_some_and(|r| r.span.is_some()), "{sql}: {all:?}");
    }
}

#[test]
fn set_returning_functions_stand_where_postgresql_lets_them() {
    for (sql, message) in [
        ("SELECT 1 FROM a WHERE generate_series(1, 2) = 1", "not allowed in WHERE"),
        ("SELECT k FROM a GROUP BY k HAVING generate_series(1, 2) = 1", "not allowed in HAVING"),
        ("SELECT 1 FROM a JOIN b ON generate_series(1, 2) = 1", "not allowed in JOIN/ON"),
        ("SELECT CASE WHEN k > 0 THEN generate_series(1, 2) END FROM a", "not allowed in CASE"),
        ("SELECT coalesce(generate_series(1, 2), 0) FROM a", "not allowed in COALESCE"),
        ("SELECT sum(generate_series(1, 2)) FROM a", "aggregate function calls cannot contain"),
        (
            "SELECT rank() OVER (ORDER BY generate_series(1, 2)) FROM a",
            "window function calls cannot contain",
        ),
        ("SELECT * FROM unnest(ARRAY[generate_series(1, 2)]) u", "not allowed in functions in FROM"),
        ("SELECT * FROM jsonb_to_recordset('[]')", "a column definition list is required"),
        ("SELECT * FROM unnest(ARRAY[1]) AS u (x int)", "a column definition list is only allowed"),
        ("SELECT * FROM unnest(ARRAY[1]) AS u (x, y)", "1 columns available but 2 columns specified"),
        ("SELECT unnest(arr) AS u, y FROM n GROUP BY 1", "\"y\""),
    ] {
        let e = error(sql);
        assert!(e.message().contains(message), "{sql}: {e:?}");
        assert!(e.span().is_some(), "{sql}: {e:?}");
    }
}

#[test]
fn recursion_that_sql_forbids_is_an_error_with_a_place() {
    let recursive = |query: &str| format!("WITH RECURSIVE r AS ({query}) SELECT * FROM r");
    for (sql, state, message) in [
        (recursive("SELECT x FROM r UNION SELECT 1 x"), "42P19", "within its non-recursive term"),
        (recursive("SELECT 1 x INTERSECT SELECT x FROM r"), "42P19", "does not have the form"),
        (recursive("SELECT 1 x UNION SELECT r.x FROM r, r s"), "42P19", "more than once"),
        (recursive("SELECT 1 x UNION SELECT k FROM a LEFT JOIN r ON x = k"), "42P19", "within an outer join"),
        (recursive("SELECT 1 x UNION SELECT k FROM a WHERE k IN (SELECT x FROM r)"), "42P19", "within a subquery"),
        (recursive("SELECT 1 x UNION SELECT x FROM r ORDER BY 1"), "0A000", "ORDER BY in a recursive query"),
        (recursive("SELECT 1 x UNION SELECT x FROM r LIMIT 1"), "0A000", "LIMIT in a recursive query"),
        (recursive("SELECT 1 x UNION SELECT x::bigint FROM r"), "42804", "has type integer in non-recursive term"),
        (recursive("SELECT 1 x UNION SELECT x, 2 FROM r"), "42601", "same number of columns"),
        ("WITH RECURSIVE r AS (SELECT x FROM s), s AS (SELECT x FROM r) SELECT * FROM r".to_owned(), "0A000", "mutual"),
        ("WITH r AS (SELECT 1 x) SEARCH DEPTH FIRST BY x SET o SELECT x FROM r".to_owned(), "42601", "not recursive"),
        (
            "WITH RECURSIVE r AS (SELECT 1 x UNION ALL SELECT x FROM r) CYCLE y SET c USING p SELECT x FROM r".to_owned(),
            "42601",
            "cycle column \"y\" not in",
        ),
    ] {
        let e = error(&sql);
        assert!(e.sqlstate() == state && e.message().contains(message), "{sql}: {e:?}");
        assert!(e.span().is_some(), "{sql}: {e:?}");
    }
}

#[test]
fn functions_over_types_that_are_only_named_are_not_errors() {
    let mut catalog = MemoryCatalog::from_ddl("CREATE TABLE p (id int PRIMARY KEY, m money, x int)").unwrap();
    for (sql, what) in [
        ("SELECT m + m FROM p", "the operator + over type money"),
        ("SELECT cash_words(m) FROM p", "cash_words over type money"),
    ] {
        match lower(sql, &catalog) {
            Ok(Lowered::Unsupported(all)) => {
                assert!(all.iter().any(|r| r.construct == what && r.span.is_some()), "{sql}: {all:?}");
            }
            other => panic!("{sql}: {other:?}"),
        }
    }
    // A user-defined aggregate is recomputed for the groups that changed.
    let mut product = crate::expr::FuncSig::unknown(Some("public"), "product", vec![Type::Int4], Type::Int4);
    product.kind = crate::expr::FuncKind::Aggregate;
    product.volatility = crate::expr::Volatility::Immutable;
    catalog.add_function(product);
    match lower("SELECT x, product(x) AS q FROM p GROUP BY x", &catalog) {
        Ok(Lowered::Query(q)) => {
            let text = explain(&q.graph, q.root, Format::Text);
            assert!(text.contains("Reduce by (x#2): product(x#2)"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}
