//! User-defined types. The tests catch composite values to which IS NULL is applied field by field, and
//! domains whose collation or length is forgotten. The tests also catch operators that are not on the search
//! path, and triggers that name a type outside their search path.

use crate::support::{assert_equal, create, mode, open, open_with, refresh, run, todays_server};
use trickle_client::Settings;
use trickle_core::cost::Force;

#[test]
fn a_composite_with_nulls_in_it_is_a_value() {
    todays_server(async |db| {
        let mut t = open_with(db, Settings::default()).await;
        let w = db.session().await;
        run(&w, "CREATE TYPE pair AS (x int, y int); CREATE TABLE c (id int PRIMARY KEY, p pair)").await;
        run(&w, "INSERT INTO c VALUES (1, '(1,)'), (2, '(,)'), (3, NULL)").await;
        create(&mut t, "counted", "SELECT p, count(*) AS n FROM c GROUP BY p").await;
        create(&mut t, "once", "SELECT DISTINCT p FROM c").await;
        create(&mut t, "beside", "SELECT id, count(*) OVER (PARTITION BY p) AS n FROM c").await;
        let again = "SELECT id, EXISTS (SELECT FROM c d WHERE d.p = c.p AND d.id > c.id) AS again FROM c";
        create(&mut t, "again", again).await;
        create(&mut t, "rows", "SELECT id, p FROM c").await;
        let values = "SELECT k, count(p) AS n, count(*) FILTER (WHERE p IS NULL) AS no, count(*) FILTER (WHERE p IS NOT NULL) AS
            whole, count(*) FILTER (WHERE ROW(p) IS NULL) AS none, count(*) FILTER (WHERE p IS DISTINCT FROM NULL) AS some
            FROM (SELECT p, id % 2 AS k FROM c) c GROUP BY k";
        create(&mut t, "values", values).await;
        for what in ["rows", "values"] {
            let (mode, reason) = mode(&t, what).await;
            assert_eq!(mode, "DIFFERENTIAL", "{what}: {reason}");
        }
        for change in ["INSERT INTO c VALUES (4, NULL), (5, '(,)')", "UPDATE c SET p = '(1,)' WHERE id > 3"] {
            run(&w, change).await;
            for st in ["counted", "once", "beside", "again", "rows", "values"] {
                refresh(&mut t, st).await;
                assert_equal(&mut t, st).await;
            }
        }
    });
}

/// Facts that only the server knows: types of bit strings, defaults of arguments, variadic functions, and the
/// operators of users and extensions, also in the form `x op ANY (…)`.
#[test]
fn names_that_only_the_server_resolves_are_kept_by_deltas() {
    todays_server(async |db| {
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open_with(db, settings).await;
        let w = db.session().await;
        run(
            &w,
            "CREATE EXTENSION citext;
             CREATE FUNCTION plus(a int, b int DEFAULT 5, c int DEFAULT 7) RETURNS int LANGUAGE sql IMMUTABLE
                RETURN a + b * 10 + c;
             CREATE FUNCTION most(VARIADIC v int[]) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT max(x) FROM unnest(v) x';
             CREATE FUNCTION alike(a text, b text) RETURNS bool LANGUAGE sql IMMUTABLE RETURN lower(a) = lower(b);
             CREATE OPERATOR === (FUNCTION = alike, LEFTARG = text, RIGHTARG = text);
             CREATE FUNCTION second(anyelement, anyelement) RETURNS anyelement LANGUAGE sql IMMUTABLE STRICT AS 'SELECT $2';
             CREATE AGGREGATE last(anyelement) (SFUNC = second, STYPE = anyelement);
             CREATE TYPE mood AS ENUM ('low', 'high'); CREATE TYPE pair AS (x int, y text);
             CREATE TABLE c (id int PRIMARY KEY, b bit(4), e citext, es citext[], s text, j jsonb, m mood[], p pair[], i inet);
             INSERT INTO c SELECT n, n::bit(4), 'E' || n, ARRAY['e1', 'e' || n], ' s ', jsonb_build_object('a', n), '{low,high}',
                ARRAY[ROW(n, 'y')::pair], '10.0.0.1' FROM generate_series(1, 6) n",
        )
        .await;
        for (st, query) in [
            (
                "bits",
                "SELECT id, b & B'0011' AS low, ~b AS other, CASE WHEN id > 1 THEN b END AS some, coalesce(b, B'1111') AS known FROM c",
            ),
            (
                "defaults",
                "SELECT id, plus(id) AS a, plus(id, 1) AS b, jsonb_insert(j, '{b}', '1') AS i, \
                jsonb_path_exists(j, '$.a ? (@ > 2)') AS large, make_interval(0, 0, 0, id) AS days FROM c",
            ),
            ("variadic", "SELECT id, most(id, 4) AS m, jsonb_extract_path_text(j, 'a') AS a FROM c"),
            (
                "any",
                "SELECT id, e IN ('e1', 'E2') AS listed, e = ANY (es) AS own, e <> ALL (es) AS other, s === ' S ' AS alike, \
                i <<= ANY (ARRAY['10.0.0.0/8'::inet]) AS inside, trim(s) AS cut FROM c \
                WHERE e IN (SELECT d.e FROM c d WHERE d.id % 2 = 1) OR e LIKE ANY ('{E2,E4}'::citext[])",
            ),
            (
                "elements",
                "SELECT c.id, u.m, v.x, v.y FROM c, unnest(c.m) AS u(m), unnest(c.p) AS v WHERE u.m > 'low'",
            ),
            ("fields", "SELECT id, (unnest(p)).x AS x FROM c"),
            (
                "last",
                "SELECT id % 2 AS k, last(b ORDER BY id) AS b, last(e ORDER BY id DESC) AS e, last(m ORDER BY id) AS m \
                FROM c GROUP BY 1",
            ),
        ] {
            create(&mut t, st, query).await;
            assert_eq!(mode(&t, st).await.0, "DIFFERENTIAL", "{st}: {:?}", mode(&t, st).await);
            run(&w, "UPDATE c SET b = b << 1, e = e || 'x', j = '{\"a\": 3}', p = p || p WHERE id = 2; DELETE FROM c WHERE id = 3").await;
            run(
                &w,
                "INSERT INTO c VALUES (3, B'0001', 'e1', '{E1}', 'S', '{}', '{high,high}', NULL, '11.0.0.1')",
            )
            .await;
            refresh(&mut t, st).await;
            assert_equal(&mut t, st).await;
        }
    });
}

#[test]
fn an_operator_off_the_search_path_is_not_taken_for_another() {
    todays_server(async |db| {
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open_with(db, settings).await;
        let w = db.session().await;
        run(&w, "CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext").await;
        run(&w, "CREATE TABLE c (id int PRIMARY KEY, m ext.citext); INSERT INTO c VALUES (1, 'a')").await;
        create(&mut t, "counted", "SELECT m, count(*) AS n FROM c GROUP BY m").await;
        create(&mut t, "first", "SELECT DISTINCT ON (m) m, id FROM c ORDER BY m, id").await;
        create(&mut t, "beside", "SELECT id, count(*) OVER (PARTITION BY m) AS n FROM c").await;
        let alike = "SELECT id, (SELECT count(*) FROM c d WHERE d.m OPERATOR(ext.=) c.m) AS n FROM c";
        create(&mut t, "alike", alike).await;
        run(&w, "INSERT INTO c VALUES (2, 'A'), (3, 'b')").await;
        for st in ["counted", "first", "beside", "alike"] {
            refresh(&mut t, st).await;
            assert_equal(&mut t, st).await;
        }
    });
}

#[test]
fn a_table_with_an_enum_can_be_truncated() {
    todays_server(async |db| {
        let mut t = open_with(db, Settings::default()).await;
        let w = db.session().await;
        run(&w, "CREATE TYPE mood AS ENUM ('low', 'high'); CREATE TABLE c (id int PRIMARY KEY, m mood)")
            .await;
        run(&w, "INSERT INTO c VALUES (1, 'low'), (2, 'high')").await;
        create(&mut t, "moods", "SELECT m, count(*) AS n FROM c GROUP BY m").await;
        assert_eq!(mode(&t, "moods").await.0, "DIFFERENTIAL");
        run(&w, "TRUNCATE c; INSERT INTO c VALUES (3, 'high')").await;
        refresh(&mut t, "moods").await;
        assert_equal(&mut t, "moods").await;
    });
}

/// Facts about types that only the server knows: their operators, the fields of composites, functions over
/// any range, and collations.
#[test]
fn properties_of_types_are_asked_of_the_server() {
    todays_server(async |db| {
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open_with(db, settings).await;
        let w = db.session().await;
        run(&w, "CREATE SCHEMA ext; CREATE EXTENSION hstore SCHEMA ext; CREATE EXTENSION citext SCHEMA ext")
            .await;
        run(&w, "CREATE TYPE pair AS (x int, y text); CREATE TYPE span AS RANGE (subtype = float8)").await;
        run(&w, "CREATE FUNCTION weigh(t pair) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT coalesce(t.x, 0) * 2'").await;
        run(
            &w,
            "CREATE TABLE c (id int PRIMARY KEY, h ext.hstore, m ext.citext, p pair, s span, v text COLLATE \"C\");
             CREATE TABLE d (id int PRIMARY KEY, c_id int, u text);
             INSERT INTO c SELECT i, ext.hstore('k', (i % 3)::text), CASE i % 2 WHEN 0 THEN 'Ab' ELSE 'aB' END,
                 CASE WHEN i < 8 THEN ROW(i % 3, 'y' || i % 2)::pair END, span(i, i + 2), chr(60 + i) FROM generate_series(1, 9) i;
             INSERT INTO d SELECT i, i % 4, 'u' || i FROM generate_series(1, 6) i",
        )
        .await;
        let kept = [
            (
                "of_hstore",
                "SELECT h OPERATOR(ext.->) 'k' AS k, count(*) AS n FROM c WHERE h OPERATOR(ext.?) 'k' GROUP BY 1",
            ),
            ("of_citext", "SELECT id FROM c WHERE m OPERATOR(ext.~~) 'ab%'::ext.citext"),
            (
                "of_spans",
                "SELECT a.id, b.id AS other, lower(a.s * b.s) AS low FROM c a JOIN c b ON a.s && b.s AND a.id < b.id",
            ),
            ("of_fields", "SELECT (p).y, sum((p).x) AS s, count((p).x) AS n FROM c GROUP BY (p).y"),
            ("of_function", "SELECT id, weigh(p) AS w FROM c WHERE (p).x > 0"),
            ("of_equal", "SELECT id FROM c WHERE p = ROW(1, 'y1')::pair"),
            (
                "of_rows",
                "SELECT c.id, d IS NULL AS none, row_to_json(d) AS j FROM c LEFT JOIN d ON d.c_id = c.id",
            ),
            (
                "of_groups",
                "SELECT c_id, jsonb_agg(x ORDER BY x.id) AS j FROM (SELECT id, c_id, u FROM d) x GROUP BY c_id",
            ),
            (
                "of_arrays",
                "SELECT id, ARRAY(SELECT u FROM d WHERE d.c_id = c.id ORDER BY u DESC) AS us FROM c",
            ),
            (
                "of_order",
                "SELECT v COLLATE \"POSIX\" AS v, id FROM c ORDER BY v COLLATE \"POSIX\" DESC LIMIT 3",
            ),
            (
                "of_texts",
                "SELECT lower(v) || coalesce(v, 'none') AS t, count(*) AS n, max(v) AS top FROM c GROUP BY 1",
            ),
        ];
        for (st, query) in kept {
            create(&mut t, st, query).await;
            let (how, why) = mode(&t, st).await;
            assert_eq!(how, "DIFFERENTIAL", "{st}: {why}");
        }
        for change in [
            "UPDATE c SET h = ext.hstore('k', '9'), p = ROW(1, NULL)::pair, s = 'empty', v = 'q' WHERE id IN (2, 5); DELETE FROM d WHERE id = 3",
            "UPDATE c SET p = NULL, m = 'xx', v = NULL WHERE id = 1; INSERT INTO d VALUES (10, 8, 'u0'), (11, 1, NULL)",
            "DELETE FROM c WHERE id > 6; UPDATE d SET c_id = 2; INSERT INTO c (id, p) VALUES (20, '(,)'), (21, '(1,y1)')",
        ] {
            run(&w, change).await;
            for (st, _) in kept {
                refresh(&mut t, st).await;
                assert_equal(&mut t, st).await;
            }
        }
    });
}

/// Under a nondeterministic collation different texts can be equal. Texts computed from them can then be
/// equal too.
#[test]
fn texts_computed_from_collated_texts_compare_like_them() {
    todays_server(async |db| {
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open_with(db, settings).await;
        let w = db.session().await;
        // Only servers that are built with ICU have nondeterministic collations.
        let nd = "CREATE COLLATION nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
        if w.client().batch_execute(nd).await.is_err() {
            return;
        }
        run(&w, "CREATE TABLE c (id int PRIMARY KEY, g int, v text COLLATE nd); CREATE TABLE d (id int PRIMARY KEY, u text)").await;
        run(&w, "INSERT INTO c SELECT i, i % 2, (ARRAY['ab', 'AB', 'Ab', 'c'])[1 + i % 4] FROM generate_series(1, 9) i").await;
        run(&w, "INSERT INTO d VALUES (1, 'aB'), (2, 'C'), (3, 'x')").await;
        let kept = [
            ("cast", "SELECT v::varchar AS v, count(*) AS n FROM c GROUP BY 1"),
            ("made", "SELECT lower(v) || '!' AS v, count(*) AS n FROM c GROUP BY 1"),
            ("or_else", "SELECT coalesce(v, 'AB') AS v, count(*) AS n FROM c GROUP BY 1"),
            ("in_case", "SELECT CASE WHEN id > 3 THEN v ELSE 'x' END AS v, sum(id) AS n FROM c GROUP BY 1"),
            ("constant", "SELECT id FROM c WHERE v = 'aB' OR v IN ('C', 'q')"),
            ("of_others", "SELECT d.id, count(c.id) AS n FROM d LEFT JOIN c ON c.v = d.u GROUP BY d.id"),
            ("exists_there", "SELECT id FROM d WHERE EXISTS (SELECT FROM c WHERE c.v = d.u)"),
            ("less", "SELECT u FROM d EXCEPT SELECT v FROM c"),
            (
                "arrays",
                "SELECT g, array_agg(v ORDER BY id) AS vs, string_agg(v, ',' ORDER BY id) AS s FROM c GROUP BY g",
            ),
            ("as_keys", "SELECT ARRAY[v] AS v, count(*) AS n FROM c GROUP BY 1"),
            ("by_bytes", "SELECT v COLLATE \"C\" AS v, count(*) AS n FROM c GROUP BY 1"),
        ];
        for (st, query) in kept {
            create(&mut t, st, query).await;
            let (how, why) = mode(&t, st).await;
            assert_eq!(how, "DIFFERENTIAL", "{st}: {why}");
        }
        for change in [
            "UPDATE c SET v = upper(v) WHERE id < 4; DELETE FROM d WHERE id = 2",
            "DELETE FROM c WHERE v = 'ab' AND id > 2; INSERT INTO d VALUES (4, 'C'), (5, NULL); UPDATE c SET v = NULL WHERE id = 3",
            "UPDATE c SET v = initcap(v), g = g + 1; UPDATE d SET u = upper(u)",
        ] {
            run(&w, change).await;
            for (st, _) in kept {
                refresh(&mut t, st).await;
                assert_equal(&mut t, st).await;
            }
        }
    });
}

#[test]
fn a_domain_compares_under_its_collation() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        let loose = "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
        if w.client().batch_execute(loose).await.is_err() {
            // This server was built without ICU.
            return;
        }
        run(
            &w,
            "CREATE DOMAIN word AS text COLLATE ci; CREATE DOMAIN short AS word;
            CREATE TABLE c (id int PRIMARY KEY, w word, s short, l word[], k int);
            CREATE TABLE d (w word, t text COLLATE ci, v varchar(9) COLLATE ci);
            INSERT INTO c VALUES (1, 'Abc', 'x', '{a,B}', 1), (2, 'ABC', 'X', '{A,b}', 2), (3, 'z', NULL, NULL, 3),
                (4, NULL, 'y', '{}', 4);
            INSERT INTO d VALUES ('abc', 'ABC', 'Abc'), ('abC', 'aBC', 'Abc'), ('Q', 'z', NULL)",
        )
        .await;
        let tables = [
            ("counted", "SELECT w, count(*) AS n, max(s) AS m FROM c GROUP BY w"),
            ("once", "SELECT DISTINCT s, l FROM c"),
            ("listed", "SELECT l, count(DISTINCT w) AS n FROM c GROUP BY l"),
            ("joined", "SELECT c.id, c.w, d.w AS other FROM c FULL JOIN d ON d.w = c.w"),
            ("mixed", "SELECT c.id, d.t FROM c LEFT JOIN d ON d.t = c.w"),
            ("cast_to_it", "SELECT DISTINCT v::word AS v FROM d"),
            ("cast", "SELECT v::text AS v, count(*) FROM d GROUP BY v::text"),
            ("without", "SELECT w FROM c EXCEPT ALL SELECT w FROM d"),
            ("shared", "SELECT s FROM c INTERSECT SELECT w FROM d"),
            ("beside", "SELECT id, rank() OVER (PARTITION BY s ORDER BY w) AS r FROM c"),
            ("matched", "SELECT id, w FROM c WHERE EXISTS (SELECT FROM d WHERE d.w = c.s)"),
            ("rows", "SELECT w, s, l FROM c"),
        ];
        for (what, query) in tables {
            create(&mut t, what, query).await;
            let (mode, reason) = mode(&t, what).await;
            assert_eq!(mode, "DIFFERENTIAL", "{what}: {reason}");
        }
        for change in [
            "UPDATE c SET w = 'aBc', s = 'x' WHERE id = 2; INSERT INTO c VALUES (5, 'Z', 'Y', '{a,b}', 5)",
            "UPDATE d SET w = upper(w), v = 'ABC' WHERE w = 'abc' AND t::text = 'ABC';
             UPDATE c SET l = '{A,B}' WHERE id = 1",
            "DELETE FROM c WHERE id = 2; INSERT INTO d VALUES ('X', 'x', 'x')",
            "UPDATE c SET w = 'q', s = 'Q' WHERE id > 2; DELETE FROM d WHERE w = 'ABC' AND v::text = 'Abc'",
            "UPDATE c SET w = 'Q' WHERE id = 3; UPDATE d SET t = 'Q' WHERE w = 'q'",
        ] {
            run(&w, change).await;
            for (what, _) in tables {
                refresh(&mut t, what).await;
                assert_equal(&mut t, what).await;
            }
        }
    });
}

#[test]
fn a_cast_to_a_domain_does_what_the_domain_says() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(
            &w,
            "CREATE DOMAIN price AS numeric(10, 2); CREATE DOMAIN code AS varchar(3); CREATE DOMAIN below AS int CHECK (VALUE < 100);
            CREATE DOMAIN lower_still AS below; CREATE TABLE c (id int PRIMARY KEY, n numeric, s text, below below);
            INSERT INTO c VALUES (1, 1.004, 'abcde', 7), (2, 1.001, 'abcd', 8)",
        )
        .await;
        let tables = [
            ("rounded", "SELECT n::price AS p, count(*) FROM c GROUP BY n::price"),
            ("cut", "SELECT DISTINCT s::code AS code, below FROM c"),
            ("checked", "SELECT id, (id * 3)::lower_still AS small FROM c"),
        ];
        for (what, query) in tables {
            create(&mut t, what, query).await;
            let (mode, reason) = mode(&t, what).await;
            assert_eq!(mode, if what == "checked" { "FULL" } else { "DIFFERENTIAL" }, "{what}: {reason}");
        }
        for change in [
            "INSERT INTO c VALUES (3, 1.0049, 'abcxyz', 9), (4, 1.005, 'ab', NULL)",
            "UPDATE c SET n = n + 0.001, s = s || 'q'; DELETE FROM c WHERE id = 2",
        ] {
            run(&w, change).await;
            for (what, _) in tables {
                refresh(&mut t, what).await;
                assert_equal(&mut t, what).await;
            }
        }
    });
}
