//! Objects of users that look like PostgreSQL's own in the text of a query, and facts that a catalog does not
//! contain. The tests catch a plan that takes an operator, a cast, a function or an aggregate for another
//! one, and so has wrong rows.

use crate::support::{assert_equal, create, mode, name, newest_server, open, run, todays_server};
use trickle_client::{NewStreamTable, RefreshMode};

/// The objects of a case, the queries over them, and the changes between refreshes.
struct Case(&'static str, &'static [&'static str], &'static [&'static str]);

const CASES: &[Case] = &[
    Case(
        "CREATE FUNCTION app.eqf(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT abs($1) OPERATOR(pg_catalog.=) abs($2)';
         CREATE FUNCTION app.nef(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT abs($1) OPERATOR(pg_catalog.<>) abs($2)';
         CREATE OPERATOR app.= (LEFTARG = int, RIGHTARG = int, FUNCTION = app.eqf);
         CREATE OPERATOR app.<> (LEFTARG = int, RIGHTARG = int, FUNCTION = app.nef);
         CREATE TABLE n (id int PRIMARY KEY, k int NOT NULL); INSERT INTO n VALUES (1, -1), (2, 3)",
        &[
            "SELECT id FROM n WHERE k OPERATOR(app.=) ANY (ARRAY[1, 4])",
            "SELECT id FROM n WHERE k OPERATOR(app.<>) ALL (ARRAY[1, 4])",
            "SELECT id FROM n WHERE k OPERATOR(app.=) ANY (SELECT id FROM n)",
            "SELECT id, k OPERATOR(app.=) 1 AS x FROM n",
        ],
        &["INSERT INTO n VALUES (3, -4), (4, 4)", "UPDATE n SET k = -k", "DELETE FROM n WHERE id = 1"],
    ),
    Case(
        "CREATE FUNCTION app.ie(inet, inet) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
         CREATE FUNCTION app.none(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT NULL::text';
         CREATE OPERATOR app.= (LEFTARG = inet, RIGHTARG = inet, FUNCTION = app.ie);
         CREATE OPERATOR app.<< (LEFTARG = inet, RIGHTARG = inet, FUNCTION = app.ie);
         CREATE OPERATOR app.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = app.none);
         CREATE TABLE n (id int PRIMARY KEY, a inet NOT NULL, b text COLLATE \"C\" NOT NULL); INSERT INTO n VALUES (1, '10.0.0.1', 'x')",
        &[
            "SELECT id, a OPERATOR(app.=) '1.1.1.1' AS x, a OPERATOR(app.<<) '1.1.1.1' AS y FROM n",
            "SELECT id, b OPERATOR(app.||) b AS x FROM n",
            "SELECT n.id FROM n JOIN n m ON n.a OPERATOR(app.=) m.a",
        ],
        &["INSERT INTO n VALUES (2, '10.0.0.2', 'y')", "DELETE FROM n WHERE id = 1"],
    ),
    Case(
        "CREATE TYPE app.mood AS ENUM ('a', 'b');
         CREATE FUNCTION app.meq(app.mood, app.mood) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT NULL::bool';
         CREATE OPERATOR public.= (LEFTARG = app.mood, RIGHTARG = app.mood, FUNCTION = app.meq);
         CREATE TABLE n (id int PRIMARY KEY, k app.mood NOT NULL); INSERT INTO n VALUES (1, 'b')",
        &["SELECT id FROM n WHERE (k = k) IS NULL", "SELECT DISTINCT k FROM n", "SELECT k, count(*) AS c FROM n GROUP BY k"],
        &["INSERT INTO n VALUES (2, 'b'), (3, 'a')", "UPDATE n SET k = 'a' WHERE id = 1", "DELETE FROM n WHERE id = 2"],
    ),
    Case(
        "CREATE FUNCTION app.ceq(cidr, cidr) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
         CREATE OPERATOR public.= (LEFTARG = cidr, RIGHTARG = cidr, FUNCTION = app.ceq);
         CREATE TABLE n (id int PRIMARY KEY, v cidr NOT NULL);
         INSERT INTO n VALUES (1, '10.0.0.0/8'), (2, '11.0.0.0/8'), (3, '11.0.0.0/8')",
        &["SELECT id, count(*) OVER (PARTITION BY v) AS c FROM n", "SELECT v FROM n EXCEPT SELECT v FROM n WHERE id = 1"],
        &["INSERT INTO n VALUES (4, '11.0.0.0/8'), (5, '12.0.0.0/8')", "DELETE FROM n WHERE id = 3"],
    ),
    Case(
        "CREATE FUNCTION app.i2t(int) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT CASE WHEN $1 > 2 THEN NULL ELSE textcat(''v'', int4out($1)::text) END';
         CREATE CAST (int AS text) WITH FUNCTION app.i2t(int);
         CREATE TABLE n (id int PRIMARY KEY, v int NOT NULL); INSERT INTO n VALUES (1, 3), (2, 2)",
        &["SELECT id FROM n WHERE v::text IS NULL", "SELECT count(v::text) AS c FROM n", "SELECT id, coalesce(v::text, 'none') AS t FROM n"],
        &["INSERT INTO n VALUES (3, 4), (4, 1)", "UPDATE n SET v = v + 1"],
    ),
    Case(
        "CREATE TYPE app.mood AS ENUM ('a', 'b');
         CREATE FUNCTION app.m2i(app.mood) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT CASE $1::text WHEN ''a'' THEN 1 END';
         CREATE CAST (app.mood AS int) WITH FUNCTION app.m2i(app.mood) AS IMPLICIT;
         CREATE TABLE n (id int PRIMARY KEY, m app.mood NOT NULL); INSERT INTO n VALUES (1, 'a'), (2, 'b')",
        &["SELECT id FROM n WHERE m::int IS NULL", "SELECT count(m::int) AS c FROM n", "SELECT id, abs(m) AS x FROM n"],
        &["INSERT INTO n VALUES (3, 'a'), (4, 'b')", "UPDATE n SET m = CASE m::text WHEN 'a' THEN 'b' ELSE 'a' END::app.mood"],
    ),
    Case(
        "CREATE TABLE rates (f int); INSERT INTO rates VALUES (10);
         CREATE FUNCTION app.s(bigint, int) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT coalesce($1, 0) + $2 * (SELECT f FROM public.rates)';
         CREATE AGGREGATE app.weighed(int) (SFUNC = app.s, STYPE = bigint);
         CREATE TABLE n (id int PRIMARY KEY, v int); INSERT INTO n VALUES (1, 1)",
        &["SELECT app.weighed(v) AS x FROM n", "SELECT id, to_regclass('later') IS NULL AS x FROM n", "SELECT id, obj_description('n'::regclass, 'pg_class') AS x FROM n"],
        &["UPDATE rates SET f = 20", "CREATE TABLE later (); COMMENT ON TABLE n IS 'all'"],
    ),
    Case(
        "CREATE DOMAIN app.dom AS int;
         CREATE FUNCTION app.h(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
         CREATE FUNCTION app.h(app.dom) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 100';
         CREATE FUNCTION app.unnest(int, int) RETURNS SETOF int LANGUAGE sql IMMUTABLE AS 'SELECT $1 UNION ALL SELECT $2';
         CREATE FUNCTION app.unnest(int) RETURNS SETOF int LANGUAGE sql IMMUTABLE AS 'SELECT -$1';
         CREATE TABLE n (id int PRIMARY KEY, k int NOT NULL, d app.dom, a int[]); INSERT INTO n VALUES (1, 5, 1, '{1,2}')",
        &[
            "SELECT id, app.h(d) AS x FROM n",
            "SELECT id, app.h(k) AS x FROM n",
            "SELECT id, x FROM n, app.unnest(n.id, n.k) x",
            "SELECT DISTINCT pg_typeof(k) AS x FROM n",
            "SELECT k, unnest(array_agg(a)) AS x FROM n GROUP BY k",
            "SELECT k, (array_agg(a))[1][2] AS x FROM n GROUP BY k",
        ],
        &["UPDATE n SET d = 2", "INSERT INTO n VALUES (2, 5, 7, '{3,4}')", "DELETE FROM n WHERE id = 1"],
    ),
];

#[test]
fn objects_like_the_servers_are_not_taken_for_them() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        for Case(tables, queries, changes) in CASES {
            run(&w, "CREATE SCHEMA app").await;
            run(&w, tables).await;
            let made: Vec<String> = (0..queries.len()).map(|i| format!("st{i}")).collect();
            for (what, query) in made.iter().zip(*queries) {
                create(&mut t, what, query).await;
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
            run(&w, "SET client_min_messages = error; DROP SCHEMA app CASCADE; DROP TABLE n; DROP TABLE IF EXISTS rates, later")
                .await;
        }
    });
}

#[test]
fn errors_of_other_rows_fail_no_immediate_writer() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE n (id int PRIMARY KEY, d date NOT NULL, j json NOT NULL, ok bool NOT NULL)")
            .await;
        for (what, value) in [("far", "m.d::timestamp::text"), ("escaped", "m.j ->> 'a'")] {
            let query = format!(
                "SELECT n.id, CASE WHEN n.ok THEN (SELECT {value} FROM n m WHERE m.id = n.id) END AS x FROM n"
            );
            let new = NewStreamTable::new(name(what), query);
            t.create(&NewStreamTable { mode: Some(RefreshMode::Immediate), ..new }).await.unwrap();
            assert_eq!(mode(&t, what).await.0, "IMMEDIATE");
        }
        run(&w, r#"INSERT INTO n VALUES (1, '5874897-12-31', '{"a": "\u0000"}', false), (2, '2026-01-01', '{"a": "b"}', true)"#)
            .await;
        for what in ["far", "escaped"] {
            assert_equal(&mut t, what).await;
        }
    });
}
