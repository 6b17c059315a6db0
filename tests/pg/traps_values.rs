//! Values with an unusual text form, equality or type, from the source to the stream table. The tests catch
//! results that depend on the settings of writers or refreshers. The tests also catch columns of types that
//! cannot be compared and that make a refresh fail.

use crate::support::{
    Driver, assert_equal, assert_same_bag, count, create, each_server, mode, name, open, run,
};
use trickle_client::{Settings, Trickle};

/// A stream table is computed with some settings of its creation: the time zone, the search path, and the
/// formats of dates, floats and bytes. The settings of writers and refreshers have no effect.
#[test]
fn settings_of_writers_and_refreshers_do_not_matter() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE SCHEMA other; CREATE TABLE e (id int PRIMARY KEY, at timestamptz, d date, i interval, f float8, b bytea);
            CREATE TABLE other.e (id int PRIMARY KEY, at timestamptz);
            CREATE FUNCTION label(x int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'public ' || x $$;
            CREATE FUNCTION other.label(x int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'other ' || x $$;
            INSERT INTO e SELECT i, '2024-03-10 00:00+00'::timestamptz + i * interval '5 hours', '2024-01-01'::date + i,
                i * interval '26 hours', i / 3.0::float8, ('\\x' || repeat(lpad(to_hex(i), 2, '0'), 3))::bytea
            FROM generate_series(1, 40) i; INSERT INTO other.e VALUES (1, now())").await;
        run(&w, "SET TimeZone = 'Asia/Kolkata'").await;
        let set = t
            .connection()
            .client()
            .batch_execute(
                "SET TimeZone = 'America/New_York'; SET DateStyle = 'SQL, DMY';
            SET IntervalStyle = 'sql_standard'; SET bytea_output = 'escape'; SET extra_float_digits = 0",
            )
            .await;
        set.unwrap();
        for (what, query) in [
            ("days", "SELECT date_trunc('day', at) AS day, count(*) AS n FROM e GROUP BY 1"),
            (
                "texts",
                "SELECT id, at::text AS at, d::text AS d, i::text AS i, f::text AS f, b::text AS b FROM e",
            ),
            ("dates", "SELECT id, at::date AS d, extract(hour FROM at) AS h FROM e WHERE d > '05/01/2024'"),
            ("labels", "SELECT label(id) AS l, count(*) AS n FROM e GROUP BY 1"),
        ] {
            create(&mut t, what, query).await;
        }
        let mut u =
            Driver::beside_statements(Trickle::open(db.session().await, Settings::default()).await.unwrap())
                .await;
        let set = "SET TimeZone = 'Pacific/Auckland'; SET DateStyle = 'German'; SET IntervalStyle = 'iso_8601'; \
             SET bytea_output = 'hex'; SET extra_float_digits = 3";
        u.connection().client().batch_execute(set).await.unwrap();
        for change in [
            "SET DateStyle = 'Postgres, MDY'; UPDATE e SET at = at + interval '7 hours' WHERE id % 3 = 0",
            "SET search_path = other, public; INSERT INTO public.e VALUES (100, '2024-11-03 01:30:00 America/New_York',
                '2024-02-03', interval '-1 day 2 hours', 1e-7, 'a')",
            "SET TimeZone = 'UTC'; DELETE FROM public.e WHERE at < '2024-03-12'; UPDATE public.e SET f = f / 7, d = d + 1",
        ] {
            run(&w, change).await;
            for what in ["public.days", "public.texts", "public.dates", "public.labels"] {
                assert_equal(&mut u, what).await;
                assert_equal(&mut t, what).await;
            }
        }
        assert_full(&t, &[]).await;
        u.connection().client().batch_execute("SET search_path = other").await.unwrap();
        let mut v =
            Driver::beside_statements(Trickle::open(u_session(db).await, Settings::default()).await.unwrap())
                .await;
        run(&w, "UPDATE public.e SET id = id + 500").await;
        assert_equal(&mut v, "public.labels").await;
    });
}

/// A constant in a query or a view keeps the meaning that it had under its author's settings. A new plan
/// under other settings does not change the meaning.
#[test]
fn constants_mean_the_same_under_all_settings() {
    each_server(async |db| {
        let mut t = open(db).await;
        run(&db.session().await, "CREATE TABLE e (id int PRIMARY KEY, d date, s text, f float8, i interval, b bit(4), v varbit);
            INSERT INTO e VALUES (1, '2024-02-01', E'a\\\\b', 0.1::float8 + 0.2::float8, '-1 day 2 hours', b'1010', b'101'),
                (2, '2024-01-20', E'a\\\\\\\\b', 0.3, '-1 day -2 hours', b'0011', b'1')").await;
        let set = "SET DateStyle = 'SQL, DMY'; SET IntervalStyle = sql_standard; SET extra_float_digits = 0; \
             SET standard_conforming_strings = off; SET bytea_output = escape";
        t.connection().client().batch_execute(set).await.unwrap();
        let wanted = [
            ("days", "d = '01/02/2024'"),
            ("texts", r"s = E'a\\b'"),
            ("floats", "f = 0.1::float8 + 0.2::float8 AND f = '0.30000000000000004'"),
            ("spans", "i = '-1 day +2 hours' AND i > '-1 2:00:00'"),
            (
                "bits",
                "b = b'1010' AND (b & b'0110') = b'0010' AND v = ANY (ARRAY[b'101', b'0']) AND v || b'1' = x'B'",
            ),
        ];
        for (what, condition) in wanted {
            let view = format!("CREATE VIEW v_{what} AS SELECT id, b FROM e WHERE {condition}");
            t.connection().client().batch_execute(&view).await.unwrap();
            create(&mut t, what, &format!("SELECT id, b FROM e WHERE {condition}")).await;
            create(&mut t, &format!("of_{what}"), &format!("SELECT id, b FROM v_{what}")).await;
        }
        let mut u =
            Driver::beside_statements(Trickle::open(db.session().await, Settings::default()).await.unwrap())
                .await;
        u.connection()
            .client()
            .batch_execute("SET DateStyle = 'ISO, MDY'; SET IntervalStyle = postgres_verbose")
            .await
            .unwrap();
        for (change, shown) in [
            ("UPDATE e SET b = b", vec![1]),
            (
                "ALTER TABLE e ADD COLUMN z int; INSERT INTO e SELECT 3, d, s, f, i, b, v FROM e WHERE id = 1",
                vec![1, 3],
            ),
            ("UPDATE e SET z = 1; DELETE FROM e WHERE id = 1", vec![3]),
        ] {
            run(&db.session().await, change).await;
            for (what, _) in wanted {
                for what in [what.to_owned(), format!("of_{what}")] {
                    assert_equal(&mut u, &what).await;
                    let rows = u
                        .connection()
                        .client()
                        .query(&format!("SELECT id FROM {what} ORDER BY 1"), &[])
                        .await
                        .unwrap();
                    let ids: Vec<i32> = rows.iter().map(|r| r.get(0)).collect();
                    assert_eq!(ids, shown, "{what} after {change}");
                }
            }
        }
        assert_full(&t, &[]).await;
    });
}

/// Asserts that these stream tables get full refreshes, and that all others are updated by deltas.
async fn assert_full(t: &Trickle, wanted: &[&str]) {
    let registry = t.registry().await.unwrap();
    let mut full: Vec<_> =
        registry.entries().filter(|e| e.mode != trickle_client::Mode::Differential).collect();
    full.sort_by(|a, b| a.relation.name.cmp(&b.relation.name));
    let found: Vec<&str> = full.iter().map(|e| &*e.relation.name).collect();
    let reasons: Vec<_> = full.iter().map(|e| &e.mode_reason).collect();
    assert_eq!(found, wanted, "{reasons:?}");
}

/// Opens a session whose search path has another schema first.
async fn u_session(db: &crate::support::Db) -> trickle_client::Session {
    let s = db.session().await;
    run(&s, "SET search_path = other, public").await;
    s
}

/// Rows are distinguished by their values, whatever bytes the values contain. Columns of types without
/// equality are allowed.
#[test]
fn any_byte_and_types_without_equality() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        // A server may be built without XML.
        let xml = w.client().batch_execute("SELECT '<a/>'::xml").await.is_ok();
        run(&w, &r#"CREATE TABLE x (id int PRIMARY KEY, j json, m xml, p point, c circle, t text, b bytea, k int);
            CREATE TABLE y (k int, j json, p point);
            INSERT INTO x SELECT i, '{"a": 1}', '<a/>', point(i, i), '<(1,1),2>', chr(1 + i % 126) || '|' || chr(31), '\x00', i % 3
            FROM generate_series(1, 30) i;
            INSERT INTO y VALUES (1, '[1]', '(1,1)'), (1, '[1]', '(1,1)'), (2, NULL, NULL)"#.replace("m xml", if xml { "m xml" } else { "m json" })
            .replace("'<a/>'", if xml { "'<a/>'" } else { "'[]'" })).await;
        create(&mut t, "whole", "SELECT * FROM x").await;
        create(&mut t, "kept", "SELECT id, j, m, p FROM x WHERE k > 0").await;
        create(&mut t, "pairs", "SELECT x.id, x.t, x.b, y.k FROM x JOIN y ON x.k = y.k").await;
        create(&mut t, "texts", "SELECT t, b, count(*) AS n FROM x GROUP BY t, b").await;
        create(&mut t, "loose", "SELECT j, p FROM y").await;
        create(&mut t, "inner_json", "SELECT k, count(j) AS n, max(j->>'a') AS a FROM x GROUP BY k").await;
        for change in [
            "UPDATE x SET j = '{\"a\": 2}', m = '12', p = '(9,9)' WHERE id < 5",
            "UPDATE x SET j = '{\"a\":  2}' WHERE id = 4; UPDATE x SET k = k + 1",
            "DELETE FROM y WHERE ctid = (SELECT min(ctid) FROM y)",
            "UPDATE x SET t = E'a\\x01b,\"c\"(d)\\\\N', b = '\\x000102ff' WHERE id % 2 = 0; INSERT INTO x (id, t) VALUES (99, ''), (98, NULL)",
            "UPDATE x SET t = 'ab' || chr(9) || 'c' WHERE id = 1; UPDATE x SET t = 'a' || chr(9) || 'bc' WHERE id = 2",
            "DELETE FROM x WHERE k IS NULL OR id < 4; UPDATE y SET j = '{}', p = NULL",
        ] {
            run(&w, change).await;
            for what in ["whole", "kept", "pairs", "texts", "loose", "inner_json"] {
                assert_equal(&mut t, what).await;
            }
        }
        assert_full(&t, &[]).await;
    });
}

/// Any name works: a name that trickle uses itself, a keyword, a quoted name, or a name of 63 bytes. NULL
/// differs from the empty text.
#[test]
fn wide_tables_and_odd_names() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        let columns: Vec<String> = (0..200).map(|i| format!("c{i} text")).collect();
        let long = "n".repeat(63);
        run(&w, &format!(r#"CREATE SCHEMA "Sch.é""";
            CREATE TABLE wide (id int PRIMARY KEY, {});
            CREATE TABLE "Sch.é"""."group by" ("action" int PRIMARY KEY, "xid" text, "w" numeric, "cmin_" int, "select" int,
                "A" int, "a" int, "q""uote" text, "d.ot" text, "日本" text, "{long}" text, "_w" int, "c0" int, "trickle_n" int);
            INSERT INTO wide (id, c0, c199) SELECT i, 'a', 'b' FROM generate_series(1, 10) i;
            INSERT INTO "Sch.é"""."group by" SELECT i, 'x' || i, i, i, i % 2, i, -i, 'q', 'd', 'j', 'l', i, i, i FROM generate_series(1, 10) i"#,
            columns.join(", "))).await;
        create(&mut t, "copy", "SELECT * FROM wide").await;
        create(&mut t, r#""Sch.é"""."Stored ""x.y""""#, r#"SELECT * FROM "Sch.é"""."group by""#).await;
        create(&mut t, "odd", &format!(r#"SELECT "select" AS "order", sum("w") AS "w", count("xid") AS "xid", max("{long}") AS "{long}",
            min("日本") AS "A", max("q""uote") AS "a" FROM "Sch.é"""."group by" GROUP BY "select""#)).await;
        create(&mut t, &long, r#"SELECT l."A", r."a" FROM "Sch.é"""."group by" l JOIN "Sch.é"""."group by" r ON l."A" = -r."a""#).await;
        for change in [
            r#"UPDATE wide SET c5 = '' WHERE id = 1; UPDATE wide SET c5 = NULL, c199 = '' WHERE id = 2; UPDATE wide SET c5 = NULL WHERE id = 1"#,
            r#"UPDATE "Sch.é"""."group by" SET "w" = "w" + 1, "xid" = NULL WHERE "A" < 4; DELETE FROM wide WHERE id = 3"#,
            r#"UPDATE "Sch.é"""."group by" SET "select" = NULL, "{L}" = '', "日本" = NULL, "a" = "A" WHERE "action" > 7"#,
            r#"DELETE FROM "Sch.é"""."group by" WHERE "_w" = 2; INSERT INTO "Sch.é"""."group by" ("action", "A") VALUES (77, 1)"#,
        ] {
            run(&w, &change.replace("{L}", &long)).await;
            for what in ["copy", r#""Sch.é"""."Stored ""x.y""""#, "odd", &long] {
                assert_equal(&mut t, what).await;
            }
        }
        assert_full(&t, &[]).await;
    });
}

/// Columns may be generated, stored out of line or dropped, and may have types of every kind, also of
/// extensions.
#[test]
fn generated_toasted_dropped_columns_and_types_of_every_kind() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE DOMAIN small AS int CHECK (VALUE < 1000);
            CREATE TYPE pair AS (a int, b text);
            CREATE TABLE g (gone int, id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED,
                big text, m mood, s small, l int[], c pair, r int4range, x jsonb, mr int4multirange, i inet, u uuid);
            ALTER TABLE g DROP COLUMN gone; ALTER TABLE g ALTER COLUMN big SET STORAGE EXTERNAL;
            INSERT INTO g (n, big, m, s, l, c, r, x, mr, i, u) SELECT i, repeat('x' || i, 3000), 'ok', i, ARRAY[i, NULL], (i, 'b')::pair,
                int4range(i, i + 5), jsonb_build_object('k', i), int4multirange(int4range(i, i + 2)), '10.0.0.1'::inet + i, gen_random_uuid()
            FROM generate_series(1, 20) i").await;
        // A server may be built without its extensions.
        let extended =
            w.client().batch_execute("CREATE EXTENSION ltree; CREATE EXTENSION hstore").await.is_ok();
        if extended {
            run(&w, "CREATE TABLE ext (id int PRIMARY KEY, p ltree, h hstore);
                INSERT INTO ext SELECT i, ('a.b' || i % 3)::ltree, hstore('k', (i % 2)::text) FROM generate_series(1, 9) i").await;
            create(&mut t, "paths", "SELECT p, count(*) AS n, count(h) AS hs FROM ext GROUP BY p").await;
            create(&mut t, "stores", "SELECT DISTINCT h FROM ext WHERE p <> 'a.b1'").await;
            create(&mut t, "below", "SELECT id, h FROM ext WHERE p <@ 'a'").await;
            create(&mut t, "ext_copy", "SELECT l.id, l.p, r.h FROM ext l JOIN ext r ON l.p = r.p").await;
        }
        create(&mut t, "copy", "SELECT * FROM g").await;
        create(
            &mut t,
            "moods",
            "SELECT m, s, count(*) AS n, sum(twice) AS t, count(r) AS r FROM g GROUP BY m, s",
        )
        .await;
        create(&mut t, "arrays", "SELECT l, x, mr, count(*) AS n FROM g GROUP BY l, x, mr").await;
        create(&mut t, "pairs", "SELECT c, count(*) AS n FROM g GROUP BY c").await;
        create(&mut t, "long", "SELECT id, big, twice FROM g WHERE twice > 6").await;
        create(&mut t, "lengths", "SELECT length(big) AS n, count(*) AS c FROM g GROUP BY 1").await;
        for change in [
            "UPDATE g SET n = n + 1",
            "UPDATE g SET m = 'happy', s = s + 1, l = l || 7, c = ((c).a + 1, NULL)::pair WHERE id % 2 = 0",
            "UPDATE g SET big = big || 'y' WHERE id < 4; UPDATE g SET x = x || '{\"z\": null}', r = NULL WHERE id = 5",
            "DELETE FROM g WHERE id IN (2, 3); INSERT INTO g (n) VALUES (NULL), (7)",
            "ALTER TYPE mood ADD VALUE 'great'",
            "UPDATE g SET m = 'great', big = repeat('z', 100000) WHERE id = 7",
        ] {
            run(&w, change).await;
            for what in ["copy", "moods", "arrays", "pairs", "long", "lengths"] {
                assert_equal(&mut t, what).await;
            }
        }
        for change in [
            "UPDATE ext SET p = p || 'c' WHERE id < 4; UPDATE ext SET h = h || 'x=>NULL' WHERE id = 5",
            "DELETE FROM ext WHERE id = 9; UPDATE ext SET p = NULL, h = NULL WHERE id = 6; INSERT INTO ext VALUES (10, '', '')",
            "UPDATE ext SET id = id + 20; UPDATE ext SET p = 'z' WHERE p ~ 'a.*.c'",
        ] {
            if extended {
                run(&w, change).await;
                for what in ["paths", "stores", "below", "ext_copy"] {
                    assert_equal(&mut t, what).await;
                }
            }
        }
        // Composite values can only be compared field by field.
        assert_full(&t, &["pairs"]).await;
    });
}

/// A result shows a value that some row has. Under DISTINCT and in groups, it shows one of the equal values,
/// with the text of that value.
#[test]
fn equal_but_differently_written() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        // A server that was built without ICU or without its extensions lacks such a collation or type.
        let icu = "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
        if w.client().batch_execute(icu).await.is_err() {
            run(&w, "CREATE COLLATION ci FROM \"C\"").await;
        }
        let citext =
            if w.client().batch_execute("CREATE EXTENSION citext").await.is_ok() { "citext" } else { "text" };
        run(&w, &format!("CREATE TABLE n (id int PRIMARY KEY, v numeric, f float8, c char(5), b bpchar, t text COLLATE ci, x {citext},
                i interval, j jsonb, a numeric[]);
            CREATE TABLE loose (v numeric, f float8, b bpchar, x {citext});
            CREATE TABLE p (v numeric, n int); CREATE TABLE texts (s text);
            INSERT INTO n VALUES (1, 1.0, '-0', 'a', 'a', 'Abc', 'X', '1 day', '[1.0]', '{{1.0}}'),
                (2, 1.00, 0, 'a  ', 'a  ', 'ABC', 'x', '24:00', '[1.00]', '{{1.00}}'), (3, 'NaN', 'NaN', 'b', 'b', 'x', 'y', NULL, NULL, NULL);
            INSERT INTO n VALUES (4, 2, 'Infinity');
            INSERT INTO loose SELECT v, f, b, x FROM n; INSERT INTO loose SELECT v, f, b, x FROM n WHERE id < 3;
            INSERT INTO p VALUES (1.000, 1), (2, 2); INSERT INTO texts VALUES ('1.0'), ('1.0'), ('NaN')")).await;
        let shown = [
            ("same", "SELECT * FROM n"),
            ("mapped", "SELECT id, v * 2 AS v, -f AS f, b::text || '!' AS b FROM n WHERE v <> 5"),
            ("glued", "SELECT id, t || '!' AS t FROM n WHERE t <> 'x'"),
            ("bag", "SELECT * FROM loose"),
            ("both", "SELECT v, b, i FROM n UNION ALL SELECT v, b, NULL FROM loose"),
            ("joined", "SELECT n.id, n.v, p.v AS other, n.x FROM n JOIN p ON n.v = p.v"),
            ("padded_out", "SELECT p.n, p.v AS other, n.v, n.f, n.b FROM p LEFT JOIN n ON n.v = p.v"),
            ("sums", "SELECT sum(v) AS v, sum(f) AS f, avg(v) AS a, sum(i) AS i FROM n"),
            ("matched", "SELECT id, v FROM n WHERE EXISTS (SELECT FROM texts WHERE s = n.v::text)"),
            (
                "unmatched",
                "SELECT v, f, x FROM loose WHERE NOT EXISTS (SELECT FROM texts WHERE s = loose.v::text)",
            ),
            ("told", "SELECT id, (SELECT count(*) FROM texts WHERE s = n.v::text) AS n FROM n"),
        ];
        let chosen = [
            ("counted", "SELECT v, count(*) AS n FROM n GROUP BY v", vec!["v"]),
            ("floats", "SELECT f, count(*) AS n, sum(id) AS ids FROM n GROUP BY f", vec!["f"]),
            ("most", "SELECT x, max(v) AS v, min(i) AS i FROM n GROUP BY x", vec!["x", "v", "i"]),
            (
                "listed",
                "SELECT x, array_agg(DISTINCT v ORDER BY v) AS vs, count(DISTINCT v) AS n FROM n GROUP BY x",
                vec!["x"],
            ),
            ("intervals", "SELECT i, count(*) + 1 AS n FROM n GROUP BY i", vec!["i"]),
            ("folded", "SELECT t, count(*) AS n FROM n GROUP BY t", vec!["t"]),
            ("padded", "SELECT DISTINCT c, b FROM n", vec!["b"]),
            ("documents", "SELECT DISTINCT j, a FROM n", vec!["j", "a"]),
            ("pairs", "SELECT DISTINCT v, f FROM n", vec!["v", "f"]),
            ("left_over", "SELECT f FROM n EXCEPT SELECT 1", vec!["f"]),
            ("common", "SELECT v, x FROM n INTERSECT SELECT v, x FROM loose", vec!["v", "x"]),
            ("written", "SELECT v::text AS t, v, i::text AS u FROM n GROUP BY v, i", vec!["v"]),
            ("narrow", "SELECT v FROM n GROUP BY v HAVING v::text = '1.00'", vec!["v"]),
        ];
        for (what, query) in shown.into_iter().chain(chosen.iter().map(|(what, query, _)| (*what, *query))) {
            create(&mut t, what, query).await;
        }
        for change in [
            "UPDATE n SET v = 1.000 WHERE id = 1; UPDATE texts SET s = '1.00' WHERE ctid = (SELECT min(ctid) FROM texts)",
            "UPDATE n SET f = -f WHERE id < 3; UPDATE n SET t = 'aBC', x = lower(x), j = '[1.000]', i = '24:00' WHERE id = 1; UPDATE p SET v = 1.0 WHERE n = 1",
            "DELETE FROM loose WHERE ctid = (SELECT min(ctid) FROM loose WHERE v::text = '1.00'); UPDATE loose SET v = 1.0000 WHERE f::text = '-0'",
            "DELETE FROM n WHERE id = 1",
            "UPDATE n SET v = 'NaN' WHERE id = 2; UPDATE n SET v = 5 WHERE id = 3;
             INSERT INTO n VALUES (9, 1, '-Infinity', 'a', 'a ', 'abc', 'X', '1 day', '[1]', '{1}'); INSERT INTO texts VALUES ('1')",
            "UPDATE n SET v = 5.0, b = b || ' ', x = upper(x), a = '{1.0}', f = '-0' WHERE id > 2; UPDATE loose SET f = 0, v = 1.0",
            "DELETE FROM n WHERE id IN (4, 9); UPDATE p SET v = 5.00",
        ] {
            run(&w, change).await;
            for (what, _) in shown {
                assert_equal(&mut t, what).await;
            }
            for (what, _, columns) in &chosen {
                assert_equal(&mut t, what).await;
                for c in columns {
                    let stray = format!("SELECT count(*) FROM (SELECT concat({c}) FROM {what} EXCEPT SELECT concat({c}) FROM n) s");
                    assert_eq!(count(&w, &stray).await, 0, "{what}.{c} shows what is not there after {change}");
                }
            }
        }
        assert_full(&t, &[]).await;
    });
}

/// Sums of numeric with and without a fixed scale, of intervals and of money are compared after thousands of
/// small updates. The sums have the same digits as the sums of a recompute. The test compares texts, since
/// 1.50 equals 1.5.
#[test]
fn sums_and_averages_are_exact_after_thousands_of_small_updates() {
    const QUERY: &str = "SELECT g, count(*) AS n, sum(c) AS c, avg(c) AS ac, sum(v) AS v, avg(v) AS av, sum(i) AS i, avg(i) AS ai,
        sum(m) AS m, sum(b) AS b, avg(b) AS ab, sum(c * v) AS cv FROM s GROUP BY g";
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE s (id int PRIMARY KEY, g int, c numeric(12,4), v numeric, i interval, m money, b bigint);
            INSERT INTO s SELECT i, i % 3, i / 7.0, round(i / 7.0, i % 9), i * interval '1 hour 1 us', i::money, 9007199254740993 + i
            FROM generate_series(1, 60) i").await;
        create(&mut t, "sums", QUERY).await;
        create(&mut t, "total", "SELECT sum(c) AS c, avg(v) AS v, sum(g) AS g FROM s").await;
        assert_full(&t, &[]).await;
        for window in 0..12 {
            let many = format!(
                "DO $$ BEGIN FOR n IN 1..250 LOOP
                    UPDATE s SET c = c + 0.0001, v = v + ('0.' || repeat('0', (n + {window}) % 7) || '1')::numeric, i = i + interval '7 us',
                        m = m * 1.01, b = b - n, g = CASE WHEN n % 50 = {window} THEN NULL ELSE n % 3 END WHERE id = 1 + (n * 7 + {window}) % 60;
                END LOOP; END $$"
            );
            run(&w, &many).await;
            let special = ["NaN", "Infinity", "-Infinity", "0.00000000000000000001"][window % 4];
            run(&w, &format!("UPDATE s SET v = '{special}' WHERE id = 1 + {window}; UPDATE s SET v = 1 WHERE id = {window}")).await;
            for (what, query) in
                [("sums", QUERY), ("total", "SELECT sum(c) AS c, avg(v) AS v, sum(g) AS g FROM s")]
            {
                assert_equal(&mut t, what).await;
                let (stored, afresh) =
                    (format!("SELECT x::text FROM {what} x"), format!("SELECT x::text FROM ({query}) x"));
                assert_same_bag(&w, &stored, &afresh).await;
            }
        }
    });
}

/// Large and small values alternate, so their sum depends on the order. A refresh sums a whole group again,
/// as the query does.
#[test]
fn float_sums_are_those_of_the_query() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE f (id int PRIMARY KEY, g int, v float8, r real);
            INSERT INTO f SELECT i, i % 7, CASE i % 2 WHEN 0 THEN 1e16 ELSE 1.0 END, 0.1 * i FROM generate_series(1, 2000) i;
            INSERT INTO f SELECT i, 100 + i % 3, 1e9 + i % 4, 1e7 + i FROM generate_series(3001, 3600) i; ANALYZE f").await;
        for (what, query) in [
            ("sums", "SELECT g, sum(v) AS s, avg(v) AS a, sum(r) AS r, avg(r) AS ar FROM f GROUP BY g"),
            (
                "spread",
                "SELECT g, stddev(v) AS s, var_pop(v) AS p, stddev_pop(r) AS r, corr(v, r) AS c FROM f GROUP BY g",
            ),
            ("total", "SELECT sum(v) AS s, avg(v) AS a, variance(v) AS p FROM f WHERE g < 100"),
        ] {
            create(&mut t, what, query).await;
        }
        assert_full(&t, &[]).await;
        for change in [
            "UPDATE f SET v = -v WHERE id % 100 = 4",
            "DELETE FROM f WHERE id BETWEEN 200 AND 210; INSERT INTO f VALUES (5000, 1, 1e16, 1), (5001, 1, 1, 1e-20)",
            "UPDATE f SET v = v + 1 WHERE g > 100 AND id % 50 = 1; UPDATE f SET g = 3 WHERE id = 11",
            "DELETE FROM f WHERE v > 1e15 AND g = 2",
            "UPDATE f SET v = 1e-300 WHERE id = 5; UPDATE f SET v = 1e100, r = 'NaN' WHERE id = 6; UPDATE f SET v = '-Infinity' WHERE id = 7",
            "DELETE FROM f WHERE id IN (6, 7)",
        ] {
            run(&w, change).await;
            for what in ["sums", "spread", "total"] {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

/// Lists that a query aggregates without an order count as equal if their elements are equal. Their order
/// depends on how the server reads the rows. A check finds a missing element.
#[test]
fn lists_in_any_order_are_equal_by_their_parts() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE f (id int PRIMARY KEY, g int, v float8, s text);
            INSERT INTO f SELECT i, i % 3, 0.1 * i / 7, 'n' || i FROM generate_series(1, 30) i; CREATE INDEX ON f (g)")
            .await;
        let tables = [
            (
                "plain",
                "SELECT g, array_agg(s) AS a, string_agg(s, ',') AS t, json_agg(s) AS j FROM f GROUP BY g",
            ),
            ("beside", "SELECT g, sum(v) AS v, array_agg(s ORDER BY g) AS a FROM f GROUP BY g"),
            (
                "ordered",
                "SELECT g, array_agg(s ORDER BY id) AS a, array_agg(s ORDER BY s) AS b FROM f GROUP BY g",
            ),
            ("above", "SELECT a FROM (SELECT g, array_agg(id) AS a FROM f GROUP BY g) x WHERE g > 0"),
        ];
        for (what, query) in tables {
            create(&mut t, what, query).await;
            assert_eq!(mode(&t, what).await.0, "DIFFERENTIAL");
        }
        run(&w, "UPDATE f SET v = v + 1 WHERE id % 7 = 0; CLUSTER f USING f_pkey").await;
        let turned = "SET pgtrickle.refreshing = on;
            UPDATE plain SET a = (SELECT array_agg(x ORDER BY x DESC) FROM unnest(a) x),
                t = (SELECT string_agg(x, ',' ORDER BY x DESC) FROM regexp_split_to_table(t, ',') x),
                j = (SELECT json_agg(x ORDER BY x DESC) FROM json_array_elements_text(j) x);
            UPDATE beside SET a = (SELECT array_agg(x ORDER BY x DESC) FROM unnest(a) x), v = v * (1 + 1e-13);
            UPDATE above SET a = (SELECT array_agg(x ORDER BY x DESC) FROM unnest(a) x)";
        for (what, _) in tables {
            assert_equal(&mut t, what).await;
        }
        run(&w, turned).await;
        for (what, _) in tables {
            let e = t.find(&name(what)).await.unwrap();
            let found = t.check(&e, 5).await.unwrap();
            assert_eq!(found.different, 0, "{what}: {:?}", found.differences);
        }
        run(
            &w,
            "UPDATE plain SET a = a[2:] WHERE g = 1; UPDATE beside SET a = a || 'n1'::text WHERE g = 2;
            UPDATE ordered SET a = (SELECT array_agg(x ORDER BY x DESC) FROM unnest(a) x) WHERE g = 0;
            UPDATE above SET a = a[2:] WHERE a[1] = 29",
        )
        .await;
        for (what, different) in [("plain", 2), ("beside", 2), ("ordered", 2), ("above", 2)] {
            let e = t.find(&name(what)).await.unwrap();
            let found = t.check(&e, 5).await.unwrap();
            assert_eq!(found.different, different, "{what}: {:?}", found.differences);
        }
    });
}

/// A server adds floats in the order in which it reads the rows, and rounds after each addition. The sum of a
/// group may have other last digits when the server reads the group by an index instead of a scan. Different
/// last digits do not count as a difference, but a wrong value does.
#[test]
fn sums_of_floats_are_equal_but_for_rounding() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE f (id int PRIMARY KEY, g int, v float8);
            INSERT INTO f SELECT i, i % 3, 0.1 * i / 7 FROM generate_series(1, 300) i; CREATE INDEX ON f (g, v)").await;
        let tables = [
            ("by_group", "SELECT g, sum(v) AS s, avg(v) AS a, stddev(v) AS d, max(v) AS m FROM f GROUP BY g"),
            ("alone", "SELECT sum(v) AS s FROM f"),
            ("derived", "SELECT g, sum(v) * 2 AS s, count(*) AS n FROM f GROUP BY g"),
        ];
        for (what, query) in tables {
            create(&mut t, what, query).await;
            assert_eq!(mode(&t, what).await.0, "DIFFERENTIAL");
        }
        // The updates move the rows within the table, so the stored sums were added in another order.
        run(&w, "UPDATE f SET v = v WHERE id % 7 = 0; UPDATE f SET v = v WHERE id % 5 = 1").await;
        let nudge = "UPDATE by_group SET s = s * (1 + 1e-13), a = a * (1 - 1e-14);
            UPDATE alone SET s = s * (1 - 1e-13); UPDATE derived SET s = s * (1 + 1e-14)";
        let mut entries = Vec::new();
        for (what, _) in tables {
            assert_equal(&mut t, what).await;
            entries.push(t.find(&name(what)).await.unwrap());
        }
        run(&w, "SET pgtrickle.refreshing = on").await;
        run(&w, nudge).await;
        for e in &entries {
            let found = t.check(e, 5).await.unwrap();
            assert_eq!(
                (found.different, found.rounded > 0),
                (0, true),
                "{}: {:?}",
                found.name,
                found.differences
            );
        }
        run(&w, "UPDATE by_group SET s = s * 1.001 WHERE g = 1; UPDATE derived SET n = n + 1 WHERE g = 2")
            .await;
        for (e, expected) in entries.iter().zip([2, 0, 2]) {
            let found = t.check(e, 5).await.unwrap();
            assert_eq!(found.different, expected, "{}: {:?}", found.name, found.differences);
        }
    });
}
