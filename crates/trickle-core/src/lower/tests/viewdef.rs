//! Tests that the text printed by `pg_get_viewdef` for a query has the same plan as the query that the user
//! typed.

use super::*;

/// The text that PostgreSQL prints for a view means the same as the query that the user typed.
#[test]
fn canonical_text_means_the_same() {
    for (typed, printed) in [
        (
            "SELECT lower(t) AS x, k + 1 AS n, GROUPING(k + 1, lower(t)), count(*) FROM a GROUP BY GROUPING SETS (1, (n, lower(t)), ROLLUP (v, (k, id)), CUBE (v), ()), k",
            " SELECT lower(t) AS x,\n    (k + 1) AS n,\n    GROUPING((k + 1), lower(t)) AS \"grouping\",\n    count(*) AS count\n   FROM a\n  GROUP BY GROUPING SETS (((lower(t))), ((k + 1), (lower(t))), ROLLUP(v, (k, id)), CUBE(v), ()), k;",
        ),
        (
            "SELECT k, count(*) FROM a GROUP BY DISTINCT ROLLUP (k, v), CUBE (k), t, ()",
            " SELECT a.k,\n    count(*) AS count\n   FROM a\n  GROUP BY DISTINCT ROLLUP(a.k, a.v), CUBE(a.k), a.t;",
        ),
        (
            "SELECT id, t FROM a WHERE t = 'x' AND k IN (1, 2)",
            " SELECT a.id,\n    a.t\n   FROM a\n  WHERE ((a.t = 'x'::text) AND (a.k = ANY (ARRAY[1, 2])));",
        ),
        (
            "SELECT a.id, b.w FROM a JOIN b ON a.k = b.k LEFT JOIN n ON n.x = a.id",
            " SELECT a.id,\n    b.w\n   FROM ((public.a\n     JOIN public.b ON ((a.k = b.k)))\n     LEFT JOIN public.n ON ((n.x = a.id)));",
        ),
        (
            "SELECT k, sum(v) AS s FROM a GROUP BY k HAVING count(*) > 1",
            " SELECT a.k,\n    sum(a.v) AS s\n   FROM a\n  GROUP BY a.k\n HAVING (count(*) > 1);",
        ),
        (
            "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
            " SELECT a.id\n   FROM a\n  WHERE (EXISTS ( SELECT 1\n           FROM b\n          WHERE (b.k = a.k)));",
        ),
        (
            "SELECT id FROM a WHERE k NOT IN (SELECT k FROM b)",
            " SELECT a.id\n   FROM a\n  WHERE (NOT (a.k IN ( SELECT b.k\n           FROM b)));",
        ),
        (
            "SELECT id FROM a WHERE t LIKE 'a%' AND t NOT LIKE 'b%'",
            " SELECT a.id\n   FROM a\n  WHERE ((a.t ~~ 'a%'::text) AND (a.t !~~ 'b%'::text));",
        ),
        (
            "SELECT CASE WHEN v > 0 THEN 'p' ELSE 'n' END AS s FROM a",
            " SELECT\n        CASE\n            WHEN (a.v > 0) THEN 'p'::text\n            ELSE 'n'::text\n        END AS s\n   FROM a;",
        ),
        (
            "SELECT id FROM a UNION ALL SELECT x FROM n",
            " SELECT a.id\n   FROM a\nUNION ALL\n SELECT n.x AS id\n   FROM n;",
        ),
        (
            "SELECT id FROM b WHERE d > '2020-01-01'",
            " SELECT b.id\n   FROM b\n  WHERE (b.d > '2020-01-01'::date);",
        ),
        (
            "SELECT id FROM a WHERE k BETWEEN 1 AND 2",
            " SELECT a.id\n   FROM a\n  WHERE ((a.k >= 1) AND (a.k <= 2));",
        ),
        (
            "WITH c AS (SELECT k FROM a) SELECT c.k FROM c JOIN b USING (k)",
            " WITH c AS (\n         SELECT a.k\n           FROM a\n        )\n SELECT c.k\n   FROM (c\n     JOIN b USING (k));",
        ),
        (
            "SELECT id FROM a WHERE (k, v) IN (SELECT x, y FROM n)",
            " SELECT a.id\n   FROM a\n  WHERE ((a.k, a.v) IN ( SELECT n.x,\n            n.y\n           FROM n));",
        ),
        (
            "SELECT nullif(v, 0) AS z, coalesce(k, 0) AS c FROM a",
            " SELECT NULLIF(a.v, 0) AS z,\n    COALESCE(a.k, 0) AS c\n   FROM a;",
        ),
        (
            "SELECT extract(year FROM d) AS y, d + interval '1 day' AS n FROM b",
            " SELECT EXTRACT(year FROM b.d) AS y,\n    (b.d + '1 day'::interval) AS n\n   FROM b;",
        ),
        (
            "SELECT id FROM a WHERE v IS DISTINCT FROM k",
            " SELECT a.id\n   FROM a\n  WHERE (a.v IS DISTINCT FROM a.k);",
        ),
        (
            "SELECT sum(v) FILTER (WHERE k > 0) AS s, count(DISTINCT k) AS c FROM a",
            " SELECT sum(a.v) FILTER (WHERE (a.k > 0)) AS s,\n    count(DISTINCT a.k) AS c\n   FROM a;",
        ),
        ("SELECT id FROM m WHERE f = 'ok'", " SELECT m.id\n   FROM m\n  WHERE (m.f = 'ok'::mood);"),
        (
            "SELECT a.id, s.c FROM a CROSS JOIN LATERAL (SELECT count(*) c FROM b WHERE b.k = a.k) s",
            " SELECT a.id,\n    s.c\n   FROM a,\n    LATERAL ( SELECT count(*) AS c\n           FROM b\n          WHERE (b.k = a.k)) s;",
        ),
        (
            "SELECT arr[1] AS x, arr[2:3] AS y, jb['k'] AS z FROM n",
            " SELECT n.arr[1] AS x,\n    n.arr[2:3] AS y,\n    n.jb['k'::text] AS z\n   FROM n;",
        ),
        ("SELECT x.id FROM ONLY a x", " SELECT x.id\n   FROM ONLY a x;"),
        ("SELECT k FROM a GROUP BY DISTINCT k", " SELECT a.k\n   FROM a\n  GROUP BY DISTINCT a.k;"),
        ("SELECT count(a) AS n FROM a", " SELECT count(a.*) AS n\n   FROM a;"),
        ("SELECT u.k FROM a JOIN b USING (k) AS u", " SELECT u.k\n   FROM (a\n     JOIN b USING (k) AS u);"),
    ] {
        assert_eq!(plan(typed), plan(printed), "{printed}");
        assert_eq!(names(typed), names(printed), "{printed}");
    }
}

#[test]
fn operators_with_a_schema_and_odd_identifiers() {
    let mut c = catalog();
    c.run("CREATE TABLE \"Odd Table\" (\"select\" int, \"a.b\" text, \"ÄÖ\" int)").unwrap();
    let sql = "SELECT \"Odd Table\".\"select\", o.\"a.b\" AS \"X\" FROM \"Odd Table\", \"Odd Table\" o
               WHERE \"Odd Table\".\"select\" OPERATOR(pg_catalog.=) o.\"select\" AND o.\"ÄÖ\" = 1";
    match lower(sql, &c) {
        Ok(Lowered::Query(q)) => assert_eq!(q.columns.join(","), "select,X"),
        other => panic!("{other:?}"),
    }
}

/// Catches a view whose text is stored with PostgreSQL's rewriting, but read as if a person had written it.
#[test]
fn a_view_of_a_script_may_have_rewritten_syntax() {
    for body in [
        "SELECT id FROM ONLY a",
        "SELECT JSON_OBJECT('k': k) AS o FROM a",
        "SELECT k FROM a GROUP BY DISTINCT ROLLUP (k)",
        "SELECT sum(v) OVER (ORDER BY id ROWS 1 PRECEDING EXCLUDE TIES) AS s FROM a",
        "SELECT concat(VARIADIC ARRAY[t]) AS c FROM a",
    ] {
        let ddl = format!("{DDL} CREATE VIEW made AS {body};");
        let catalog = MemoryCatalog::from_ddl(&ddl).unwrap_or_else(|e| panic!("{body}: {e}"));
        let read = |sql: &str| match lower(sql, &catalog) {
            Ok(Lowered::Query(q)) => explain(&q.graph, q.root, Format::Text),
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(read("SELECT * FROM made"), read(body), "{body}");
    }
}

#[test]
fn a_constraint_that_goes_takes_the_keys_along() {
    let before = "ALTER TABLE IF EXISTS ONLY a DROP CONSTRAINT IF EXISTS a_pkey;";
    let ddl = format!("{before} {DDL} ALTER TABLE a DROP CONSTRAINT a_pkey;");
    let catalog = MemoryCatalog::from_ddl(&ddl).unwrap();
    let Ok(Lowered::Query(q)) = lower("SELECT id, v FROM a", &catalog) else { panic!("{ddl}") };
    assert!(q.graph.props(q.root).keys.is_empty());
    let kept = query("SELECT id, v FROM a");
    assert!(!kept.graph.props(kept.root).keys.is_empty());
}

#[test]
fn national_strings_are_refused_with_what_they_mean() {
    assert!(error("SELECT N'a' AS x FROM a").hint_text().is_some_and(|h| h.contains("bpchar")));
}
