//! Each construct lowers, to the plan one expects; what does not says why and where.

mod errors;
mod plans;
mod soup;
mod subqueries;
mod viewdef;

use super::{Lowered, Query, lower};
use crate::catalog::MemoryCatalog;
use crate::error::Error;
use crate::graph::{Format, explain};
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

/// The plan, one operator a line, without the root's blank line.
fn plan(sql: &str) -> String {
    let q = query(sql);
    explain(&q.graph, q.root, Format::Text).trim_end().to_owned()
}

/// The output types.
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
    let all = reasons("SELECT now(),\n random(), row_number() OVER () FROM a\n LIMIT 3");
    let at = |what: &str| {
        let r = all.iter().find(|r| r.construct.contains(what)).unwrap_or_else(|| panic!("{what}: {all:?}"));
        (r.span.unwrap().line, r.span.unwrap().column, r.kind)
    };
    assert_eq!(at("now()"), (1, 8, ReasonKind::NotYet));
    assert_eq!(at("random()"), (2, 2, ReasonKind::Never));
    assert_eq!(at("window"), (2, 12, ReasonKind::NotYet));
    assert_eq!(at("LIMIT"), (3, 8, ReasonKind::NotYet));
    assert!(all.iter().all(|r| !r.help.is_empty()));
}

#[test]
fn every_construct_that_is_not_kept_says_so() {
    use ReasonKind::{Never, NotYet};
    for (sql, what, kind) in [
        ("SELECT id FROM a LIMIT 1", "LIMIT", NotYet),
        ("SELECT id FROM a OFFSET 1", "LIMIT", NotYet),
        ("SELECT id FROM a FETCH FIRST 1 ROW ONLY", "FETCH", NotYet),
        ("SELECT id FROM a FOR UPDATE", "FOR UPDATE", Never),
        ("SELECT DISTINCT ON (k) k, v FROM a ORDER BY k", "DISTINCT ON", NotYet),
        ("SELECT k, count(*) FROM a GROUP BY ROLLUP (k)", "ROLLUP", NotYet),
        ("SELECT k, count(*) FROM a GROUP BY CUBE (k)", "CUBE", NotYet),
        ("SELECT k, count(*) FROM a GROUP BY GROUPING SETS ((k), ())", "GROUPING SETS", NotYet),
        ("WITH RECURSIVE r AS (SELECT 1 x UNION ALL SELECT x FROM r) SELECT * FROM r", "RECURSIVE", NotYet),
        ("SELECT unnest(arr) FROM n", "set-returning", NotYet),
        ("SELECT * FROM generate_series(1, 3) g", "set-returning", NotYet),
        ("SELECT * FROM n, unnest(n.arr) u", "set-returning", NotYet),
        ("SELECT * FROM a TABLESAMPLE SYSTEM (10)", "TABLESAMPLE", Never),
        ("WITH x AS (DELETE FROM a RETURNING id) SELECT * FROM x", "DELETE", Never),
        ("SELECT rank() OVER (ORDER BY v) FROM a", "window", NotYet),
        ("SELECT sum(v) OVER w FROM a WINDOW w AS (PARTITION BY k)", "window", NotYet),
        ("SELECT current_date FROM a", "current_date", NotYet),
        ("SELECT current_user FROM a", "current_user", NotYet),
        ("SELECT 'now'::timestamp FROM a", "'now'", Never),
        ("SELECT nextval('s') FROM a", "nextval", Never),
        ("SELECT roll() FROM a", "roll()", Never),
        ("SELECT look(id) FROM a", "look()", NotYet),
        ("SELECT stddev(v) FROM a", "stddev", NotYet),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FROM a", "percentile_cont", NotYet),
        ("SELECT ARRAY(SELECT id FROM b) FROM a", "ARRAY", NotYet),
        ("SELECT a FROM a", "whole row", NotYet),
        ("SELECT t COLLATE \"C\" FROM a", "COLLATE", NotYet),
        ("SELECT (SELECT max(a.k) FROM b) FROM a", "an aggregate over columns of an enclosing query", NotYet),
        ("SELECT (SELECT min(CASE WHEN false THEN a.k ELSE 0 END) FROM b) FROM a", "enclosing query", NotYet),
        ("SELECT (SELECT count(*) FILTER (WHERE a.k > 0) FROM b) FROM a", "enclosing query", NotYet),
        ("SELECT (SELECT max((SELECT x FROM n WHERE y = a.k)) FROM b) FROM a", "enclosing query", NotYet),
        ("SELECT id FROM a WHERE id IN (SELECT max(a.k + 1) FROM b)", "enclosing query", NotYet),
        ("SELECT a.id FROM a LEFT JOIN b ON b.id IN (SELECT x FROM n)", "ON", NotYet),
    ] {
        let all = reasons(sql);
        let found = all.iter().find(|r| r.construct.contains(what) && r.kind == kind);
        assert!(found.is_some_and(|r| r.span.is_some()), "{sql}: {all:?}");
    }
}
