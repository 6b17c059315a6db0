//! Types, modifiers and collations of expressions and of stored columns. The tests catch a plan that computes
//! with another type than PostgreSQL does. The tests also catch a stream table whose columns have other types
//! than its query.

use crate::support::{assert_equal, count, create, mode, name, newest_server, open, run};
use trickle_client::{NewStreamTable, RefreshMode, Session};

/// A case: its tables, the queries over them with the mode of each query, and the changes between refreshes.
struct Case(&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

const DELTAS: &str = "DIFFERENTIAL";
const FULL: &str = "FULL";

const CASES: &[Case] = &[
    Case(
        "CREATE FUNCTION app.rank(int) RETURNS int STABLE LANGUAGE sql AS 'SELECT $1';
         CREATE FUNCTION app.twice(int) RETURNS SETOF int IMMUTABLE ROWS 2 LANGUAGE sql AS 'SELECT 1 UNION ALL SELECT $1';
         CREATE TABLE n (y int); INSERT INTO n VALUES (1), (2), (NULL)",
        &[
            ("SELECT y FROM n ORDER BY y, generate_series(1, 3)", DELTAS),
            ("SELECT count(*) AS c FROM (SELECT y FROM n ORDER BY y, generate_series(1, 3)) s", DELTAS),
            ("SELECT y, count(*) AS c FROM n GROUP BY y ORDER BY y, generate_series(1, 3)", DELTAS),
            ("SELECT y FROM n ORDER BY abs(y), lower(y::text), app.rank(y)", DELTAS),
            ("SELECT y FROM n ORDER BY y, app.twice(y)", DELTAS),
        ],
        &["INSERT INTO n VALUES (3), (1); DELETE FROM n WHERE y = 2"],
    ),
    Case(
        "CREATE TABLE n (i int, c cidr, f real, k name, t text COLLATE \"C\", u text, p text COLLATE \"POSIX\" DEFAULT 'p');
         INSERT INTO n (i, c, f, k, t, u) VALUES (1, '10.1.0.0/16', -1.1, 'ß', 'ß', 'ß'), (2, NULL, 2.5, 'b', 'b', 'B')",
        &[
            ("SELECT i, abbrev(c) AS a, set_masklen(c, 8) AS s, abbrev(c::inet) AS b FROM n", DELTAS),
            ("SELECT i, @ f AS a, (@ f)::text AS b FROM n", DELTAS),
            ("SELECT i, k, k::text AS t, lower(k::text) AS l, k::text || 'x' AS x FROM n", DELTAS),
            ("SELECT i, upper(t || u COLLATE \"pg_unicode_fast\") AS x FROM n", FULL),
            ("SELECT i, length(t || k::text || p) AS x, (t || p) IS NULL AS y FROM n", DELTAS),
            ("SELECT u::varchar(3) AS x FROM n UNION SELECT t || u FROM n", DELTAS),
            ("SELECT i, u::char(4) AS x FROM n UNION ALL SELECT i, u FROM n", DELTAS),
            ("SELECT i, x, regexp_split_to_table(t, 'x') AS y FROM n, string_to_table(t, ',') x", DELTAS),
            ("SELECT i, bpchar(u) AS b, u::varchar(3) AS v, i::numeric(5,2) AS n, u::char(5) AS c FROM n", DELTAS),
        ],
        &["INSERT INTO n (i, c, f, k, t, u) VALUES (3, '10.0.0.0/8', 3.3, 'X', 'X', 'ß')", "UPDATE n SET f = f * 3, u = u || t WHERE i < 3"],
    ),
    Case(
        "CREATE TABLE n (i int, s timestamp, z timestamptz, d date, a int2vector, o oidvector, x xid, m money);
         INSERT INTO n VALUES (1, '2020-01-01 01:02:03.4567', now(), '2020-02-02', '1 2', '3 4', '5', 6)",
        &[
            ("SELECT i, s::timestamp(0) AS a, z::timestamptz(1) AS b, z::time(1) AS c, d::timestamp AS e FROM n", DELTAS),
            ("SELECT i, a, o, '1 2 3'::int2vector AS l FROM n", DELTAS),
            ("SELECT i, a::text AS t, o::text AS u, o = '3' AS e FROM n", DELTAS),
            ("SELECT o, count(*) AS n, min(i) AS i FROM n GROUP BY o", DELTAS),
            ("SELECT i, a[1] AS x, o[0] AS y FROM n", FULL),
            ("SELECT x, m, a FROM n", DELTAS),
            ("SELECT x, m FROM n", DELTAS),
            ("SELECT i, d - INTERVAL '90' DAY AS a, s + INTERVAL '1-2' YEAR TO MONTH AS b FROM n", DELTAS),
            ("SELECT i, (s - timestamp '2019-01-01')::interval day to minute AS a, (s - timestamp '2019-01-01')::interval hour AS b, s + INTERVAL '90' MINUTE AS c FROM n", DELTAS),
            ("SELECT i, (s - timestamp '2019-01-01')::interval second(1) AS a, age(s)::interval month IS NULL AS b FROM n WHERE i > 0", FULL),
        ],
        &[
            "INSERT INTO n VALUES (2, '2021-01-01 01:02:03.6567', now(), '2021-02-02', '1 2', '3', '5', 6)",
            "INSERT INTO n SELECT * FROM n; DELETE FROM n WHERE i = 1",
        ],
    ),
    Case(
        "CREATE DOMAIN app.pos AS int CHECK (value > 0); CREATE DOMAIN app.label AS text; CREATE DOMAIN app.list AS int[]; CREATE DOMAIN app.lists AS app.pos[];
         CREATE FUNCTION app.f(text) RETURNS bpchar IMMUTABLE LANGUAGE sql AS 'SELECT $1::bpchar';
         CREATE TABLE n (i int PRIMARY KEY, d jsonb, p app.pos NOT NULL, l app.label, a app.list[], q app.list, m app.lists, o app.pos[]);
         CREATE VIEW v AS SELECT i, p + 1 AS q FROM n;
         INSERT INTO n VALUES (1, '{\"a\": 5}', 1, 'x', ARRAY['{1,2}'::app.list], '{5}', '{3}', '{4}'), (2, '{\"a\": 7}', 2, NULL, NULL, NULL, NULL, NULL)",
        &[
            ("SELECT i, JSON_VALUE(d, '$.a' RETURNING app.pos) AS v FROM n", FULL),
            ("SELECT i, p, l FROM n", DELTAS),
            ("SELECT l, q, i % 2 AS r FROM n", DELTAS),
            ("SELECT m, o, i % 2 AS r FROM n", DELTAS),
            ("SELECT q, l, count(*) AS c FROM n GROUP BY q, l", DELTAS),
            ("SELECT n.i, m.p, m.l FROM n LEFT JOIN n m ON m.i = n.i + 1", DELTAS),
            ("SELECT i, a, a[1] AS b FROM n", FULL),
            ("SELECT i, app.f('abcd' || i) AS f FROM n", DELTAS),
            ("SELECT v AS r, to_jsonb(v) AS j FROM v", DELTAS),
            ("SELECT n.i, v AS r, v.q FROM n LEFT JOIN v ON v.q = n.i", DELTAS),
            ("SELECT count(v) AS c, count(w.*) AS d FROM n LEFT JOIN v ON v.q = n.i LEFT JOIN v w ON w.i = n.i + 1", DELTAS),
        ],
        &["INSERT INTO n VALUES (3, '{\"a\": -9}', 3, 'y', ARRAY['{3}'::app.list], '{6,7}', '{8}', NULL)", "ALTER DOMAIN app.pos ADD CHECK (value > 2) NOT VALID; UPDATE n SET l = 'z'", "DELETE FROM n WHERE i = 2"],
    ),
    Case(
        "CREATE TABLE n (i int, b bytea, v varbit, t timetz, z timestamptz);
         INSERT INTO n VALUES (1, '\\x01020304', B'10101', '10:00+02', '2020-01-01 10:00+00')",
        &[
            (
                "SELECT i, substring(b from 2 for 2) AS s, position('\\x02'::bytea in b) AS p, overlay(b placing '\\xff'::bytea from 2) AS o, \
                 btrim(b, '\\x01'::bytea) AS t FROM n",
                DELTAS,
            ),
            ("SELECT i, substring(v from 2 for 2) AS s, position(B'1' in v) AS p, overlay(v placing B'0' from 1) AS o FROM n", DELTAS),
            ("SELECT i, extract(timezone from z) AS a, extract(timezone_hour from t) AS b, t AT TIME ZONE 'UTC' AS c FROM n", DELTAS),
            ("SELECT i, array_fill(i, ARRAY[2, 2]) AS a, substring('abcdef', i, 2) AS b FROM n", DELTAS),
        ],
        &["INSERT INTO n VALUES (2, '\\x0202', B'111', '11:00-03', '2021-01-01 10:00+00')", "UPDATE n SET b = b || b WHERE i = 1"],
    ),
    Case(
        "CREATE FUNCTION app.d(a int, b int DEFAULT 10, c int DEFAULT 100) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT a + b * c';
         CREATE FUNCTION app.d(a text, c text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1 || $2';
         CREATE FUNCTION app.s(s int, VARIADIC x int[]) RETURNS int IMMUTABLE LANGUAGE sql
             AS 'SELECT coalesce($1, 0) + coalesce((SELECT sum(v)::int FROM unnest($2) v), 0)';
         CREATE AGGREGATE app.total(VARIADIC int[]) (SFUNC = app.s, STYPE = int, INITCOND = '0');
         CREATE TABLE n (i int PRIMARY KEY, g int, t text);
         INSERT INTO n VALUES (1, 1, 'cats'), (2, 1, 'dogs'), (3, 2, NULL), (4, NULL, 'cat')",
        &[
            ("SELECT i, app.d(g) AS a, app.d(g, c => 3) AS b, app.d(c => i, a => g) AS c, app.d(b => i, a => 1, c => g) AS d FROM n", DELTAS),
            ("SELECT i, app.d(c => t, a => 'a') AS a, app.d('a', c => t) AS b FROM n", DELTAS),
            ("SELECT i FROM n WHERE app.d(g, c => i) > 20", DELTAS),
            ("SELECT i, make_timestamptz(year => 2020, month => g, mday => i, hour => 1, min => 2, sec => 3) AS m FROM n", DELTAS),
            ("SELECT g, app.total(i, g) AS a, app.total(i) FILTER (WHERE t LIKE 'c%') AS b, app.total(VARIADIC ARRAY[i, i]) AS c FROM n GROUP BY g", DELTAS),
            ("SELECT i, t @@ 'cat'::tsquery AS a, t @@ 'cat' AS b, t @@ to_tsquery('cats & !dog') AS c FROM n", DELTAS),
        ],
        &["INSERT INTO n VALUES (5, 2, 'a cat'), (6, 3, 'x')", "UPDATE n SET g = i, t = t || ' cat' WHERE i < 3; DELETE FROM n WHERE i = 4"],
    ),
    Case(
        "CREATE FUNCTION app.u(numeric) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'numeric ' || $1 $$;
         CREATE FUNCTION app.u(float8) RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT 'float8 ' || $1 $$;
         CREATE FUNCTION app.late(a int, t timestamptz DEFAULT clock_timestamp()) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1';
         CREATE FUNCTION app.less(int, int) RETURNS bool STABLE LANGUAGE sql AS 'SELECT $1 < $2';
         CREATE OPERATOR app.<~ (LEFTARG = int, RIGHTARG = int, FUNCTION = app.less);
         CREATE DOMAIN app.present AS int NOT NULL;
         CREATE TABLE n (i int PRIMARY KEY, g int); CREATE TABLE app.m (i int PRIMARY KEY, p app.present);
         CREATE VIEW v AS SELECT n.i, m.p FROM n LEFT JOIN app.m USING (i);
         INSERT INTO n VALUES (1, 2), (2, 3), (3, NULL); INSERT INTO app.m VALUES (1, 7)",
        &[
            ("SELECT i, app.u(i) AS u FROM n", DELTAS),
            ("SELECT i, app.u(i) AS u, app.u(i::numeric) AS w FROM n", DELTAS),
            ("SELECT i, app.late(g) AS a, app.late(a => g) AS b FROM n", FULL),
            ("SELECT i, to_jsonb(v) AS j FROM v", DELTAS),
            ("SELECT i FROM n WHERE i OPERATOR(app.<~) ANY (SELECT g FROM n)", FULL),
        ],
        &["INSERT INTO n VALUES (4, 9); UPDATE n SET g = 0 WHERE i = 2", "DELETE FROM app.m; DELETE FROM n WHERE i = 1"],
    ),
];

/// Returns the columns of a relation, with their types, modifiers and collations.
pub(crate) async fn columns(s: &Session, relation: &str) -> String {
    let text = "SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), nullif(attcollation, 0)::regcollation), ', ' \
         ORDER BY attnum) FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped";
    s.client().query_one(text, &[&relation]).await.unwrap().get(0)
}

/// Returns `types` with the base type of each domain in place of the domain. A stream table that is updated
/// by deltas has these types instead of the domains of these cases.
fn without_domains(types: &str) -> String {
    let bases = [
        ("app.pos", "integer"),
        ("app.label", "text"),
        ("app.lists", "integer[]"),
        ("app.list", "integer[]"),
    ];
    bases.iter().fold(types.to_owned(), |types, (domain, base)| types.replace(domain, base))
}

#[test]
fn expressions_have_the_types_that_postgresql_gives() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        for Case(tables, queries, changes) in CASES {
            run(&w, "CREATE SCHEMA app").await;
            run(&w, tables).await;
            let made: Vec<String> = (0..queries.len()).map(|i| format!("st{i}")).collect();
            for (what, (query, expected)) in made.iter().zip(*queries) {
                create(&mut t, what, query).await;
                let (found, reason) = mode(&t, what).await;
                assert_eq!(found, *expected, "{query}: {reason}");
                run(&w, &format!("CREATE VIEW of_{what} AS {query}")).await;
                let (stored, meant) = (columns(&w, what).await, columns(&w, &format!("of_{what}")).await);
                let meant = if found == DELTAS { without_domains(&meant) } else { meant };
                assert_eq!(stored, meant, "{query}");
                assert_equal(&mut t, what).await;
            }
            for change in *changes {
                run(&w, change).await;
                for what in &made {
                    assert_equal(&mut t, what).await;
                }
            }
            for what in &made {
                t.drop(&name(what), true).await.unwrap();
            }
            run(&w, "SET client_min_messages = error; DROP SCHEMA app CASCADE; DROP TABLE n CASCADE").await;
        }
    });
}

#[test]
fn a_domain_gets_constraints_over_a_stale_stream_table() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE DOMAIN d AS int; CREATE TABLE x (i int PRIMARY KEY, m d); INSERT INTO x VALUES (1, 5), (2, -6)")
            .await;
        create(&mut t, "plain", "SELECT i, m FROM x").await;
        create(&mut t, "padded", "SELECT y.i, x.m FROM x y LEFT JOIN x ON x.i = y.i + 1").await;
        run(&w, "UPDATE x SET m = 6 WHERE i = 2; ALTER DOMAIN d ADD CHECK (value > 0)").await;
        run(&w, "ALTER DOMAIN d SET NOT NULL; INSERT INTO x VALUES (3, 7)").await;
        for what in ["plain", "padded"] {
            assert_equal(&mut t, what).await;
            assert_eq!(mode(&t, what).await.0, DELTAS);
        }
    });
}

#[test]
fn writers_go_on_where_a_source_gets_other_modifiers() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE x (i int PRIMARY KEY, v varchar(5), n numeric(5,2), d timestamp(0))").await;
        run(&w, "INSERT INTO x VALUES (1, 'a', 1.25, '2026-01-01 10:00')").await;
        let queries = [
            ("rows", "SELECT i, v, n, d FROM x"),
            ("groups", "SELECT v, max(n) AS n, max(d) AS d FROM x GROUP BY v"),
        ];
        for (what, query) in queries {
            let new = NewStreamTable::new(name(what), query);
            t.create(&NewStreamTable { mode: Some(RefreshMode::Immediate), ..new }).await.unwrap();
        }
        run(
            &w,
            "ALTER TABLE x ALTER v TYPE varchar(9), ALTER n TYPE numeric(8,4), ALTER d TYPE timestamp(3)",
        )
        .await;
        run(&w, "INSERT INTO x VALUES (2, 'longer77', 12.3456, '2026-01-01 10:00:00.125')").await;
        for (what, _) in queries {
            assert_equal(&mut t, what).await;
        }
        run(&w, "INSERT INTO x VALUES (3, 'longer78', 12.3457, '2026-01-01 10:00:00.126')").await;
        let equal = "SELECT count(*) FROM (TABLE rows EXCEPT SELECT i, v, n, d FROM x) d";
        assert_eq!(count(&w, equal).await, 0, "applied by the triggers again");
    });
}

/// PostgreSQL's text of a query has the whole row of a join's alias as ROW(…), so its fields lose their
/// names.
#[test]
fn whole_rows_of_joins_keep_their_names_or_are_refused() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE x (i int PRIMARY KEY, a int); CREATE TABLE y (i int PRIMARY KEY, b int)").await;
        run(&w, "INSERT INTO x VALUES (1, 2); INSERT INTO y VALUES (1, 3)").await;
        run(&w, "CREATE VIEW j AS SELECT row_to_json(s) AS r FROM x JOIN y USING (i) AS s").await;
        let new = NewStreamTable::new(name("named"), "SELECT to_jsonb(s) AS r FROM x JOIN y USING (i) AS s");
        let e = t.create(&new).await.unwrap_err();
        assert_eq!(e.sqlstate(), Some("0A000"), "{e:?}");
        assert!(e.message().contains("the whole row of JOIN … USING (…) AS a name"), "{e:?}");
        assert!(e.detail_text().unwrap_or_default().contains(r#"The fields of the row are "i"."#), "{e:?}");
        create(&mut t, "by_hand", "SELECT row_to_json((i, a)) AS r FROM x").await;
        create(&mut t, "through", "SELECT r FROM j").await;
        create(&mut t, "nested", "SELECT row_to_json(s) AS r FROM (SELECT * FROM x JOIN y USING (i)) AS s")
            .await;
        run(&w, "INSERT INTO x VALUES (2, 4); INSERT INTO y VALUES (2, 5)").await;
        let (full, reason) = mode(&t, "through").await;
        assert_eq!(full, "FULL");
        assert!(reason.contains("in the view public.j"), "{reason}");
        for (what, expected) in [
            ("by_hand", r#"{"f1":1,"f2":2} {"f1":2,"f2":4}"#),
            ("through", r#"{"i":1} {"i":2}"#),
            ("nested", r#"{"i":1,"a":2,"b":3} {"i":2,"a":4,"b":5}"#),
        ] {
            assert_equal(&mut t, what).await;
            let text = format!("SELECT string_agg(r::text, ' ' ORDER BY r::text) FROM {what}");
            let rows: String = w.client().query_one(&text, &[]).await.unwrap().get(0);
            assert_eq!(rows, expected, "{what}");
        }
        for what in ["by_hand", "nested"] {
            assert_eq!(mode(&t, what).await.0, DELTAS);
        }
    });
}
