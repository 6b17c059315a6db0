//! Types, values of enums, attributes, functions and the stream table itself get new names, or names that
//! other objects had. Operators, casts, collations and similar objects are dropped and made again. The tests
//! catch stream tables whose old rows follow the former meaning and whose new rows follow the new meaning.
//! The tests also catch triggers that make writers fail.

use crate::support::{
    Db, Driver, assert_equal, count, is_todays, name, newest_server, open, run, todays_server, try_refresh,
};
use trickle_client::{NewStreamTable, RefreshMode, Session};

const TABLES: &str = "
    CREATE TYPE mood AS ENUM ('low', 'high'); CREATE TYPE pair AS (x int, y int); CREATE TABLE part (a int, b int);
    CREATE SCHEMA app; CREATE FUNCTION app.twice(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i * 2';
    CREATE TABLE t (id int PRIMARY KEY, m mood NOT NULL, p pair, r part, v int);
    INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN 'low' ELSE 'high' END::mood, ROW(i, -i)::pair, ROW(i % 3, -i)::part, i
        FROM generate_series(1, 12) i";

const GONE: &str =
    "DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP SCHEMA IF EXISTS app, former CASCADE";

const QUERIES: [(&str, &str); 6] = [
    ("moods", "SELECT id, m::text AS m FROM t WHERE m = 'low'"),
    ("labels", "SELECT m, count(*) AS n FROM t GROUP BY m"),
    ("attributes", "SELECT id, (p).x AS x FROM t"),
    ("documents", "SELECT id, to_jsonb(p) AS p, to_jsonb(r) AS r FROM t"),
    ("called", "SELECT id, app.twice(v) AS d FROM t"),
    ("parts", "SELECT (r).a AS a, count(*) AS n FROM t GROUP BY (r).a"),
];

const CHANGES: [&str; 14] = [
    "ALTER TYPE mood RENAME VALUE 'low' TO 'mid'",
    "ALTER TYPE mood RENAME VALUE 'low' TO 'between'; ALTER TYPE mood RENAME VALUE 'high' TO 'low'; \
     ALTER TYPE mood RENAME VALUE 'between' TO 'high'",
    "ALTER TYPE mood RENAME TO feeling",
    "ALTER TYPE pair RENAME ATTRIBUTE x TO z",
    "ALTER TYPE pair RENAME ATTRIBUTE x TO z; ALTER TYPE pair RENAME ATTRIBUTE y TO x; ALTER TYPE pair RENAME ATTRIBUTE z TO y",
    "ALTER TYPE pair ADD ATTRIBUTE z int",
    "ALTER TABLE part RENAME a TO c",
    "ALTER TABLE part RENAME a TO c; ALTER TABLE part RENAME b TO a; ALTER TABLE part RENAME c TO b",
    "ALTER TABLE part ADD c int",
    "ALTER FUNCTION app.twice(int) RENAME TO thrice",
    "ALTER SCHEMA app RENAME TO former; CREATE SCHEMA app; \
     CREATE FUNCTION app.twice(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i * 3'",
    "ALTER FUNCTION app.twice(int) SET SCHEMA public",
    "CREATE OR REPLACE FUNCTION app.twice(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i * 5'",
    "ALTER FUNCTION app.twice(int) RENAME TO thrice; \
     CREATE FUNCTION app.twice(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i * 7'",
];

const WRITES: &str = "UPDATE t SET v = v + 1 WHERE id < 4; DELETE FROM t WHERE id = 5; \
    INSERT INTO t SELECT id + 20, m, p, r, v FROM t WHERE id IN (2, 7); UPDATE t SET m = (SELECT m FROM t WHERE id = 7) WHERE id = 2";

async fn kept(t: &mut Driver, table: &str, query: &str) {
    let immediate = NewStreamTable {
        mode: Some(RefreshMode::Immediate),
        ..NewStreamTable::new(name(&format!("kept_{table}")), query)
    };
    t.create(&immediate).await.unwrap();
}

/// Whether the catalog says that an IMMEDIATE stream table may be behind its sources.
async fn is_marked(s: &Session, table: &str) -> bool {
    let stopped = format!(
        "SELECT count(*) FROM pgtrickle.pgt_stream_tables s WHERE pgt_name = '{table}' AND (needs_reinit OR status = 'SUSPENDED' \
         OR NOT EXISTS (SELECT FROM pgtrickle.unchanged(ARRAY[s.pgt_id])))"
    );
    count(s, &stopped).await > 0
}

/// Refreshes a stream table. Asserts that it equals its query, or that an error of the query made the refresh
/// fail and is noted in the catalog.
async fn right_or_suspended(t: &mut Driver, table: &str, change: &str) {
    match try_refresh(t, table).await {
        Ok(_) => assert_equal(t, table).await,
        Err(e) => {
            assert!(
                e.is_input()
                    || e.sqlstate().is_some_and(|c| c.starts_with("42") || ["22P02", "3F000"].contains(&c)),
                "{change}: {e:?}"
            );
            let e = t.find(&name(table)).await.unwrap();
            // With the extension, the failed call is rolled back together with the note of its error.
            let noted = e.last_error.is_some() || Driver::is_the_servers();
            assert!(noted, "{change}: {table} does not say why");
        }
    }
}

/// Asserts that writers do not fail after any of these alterations. Asserts also that each stream table,
/// IMMEDIATE or not, is right or has an error or a mark in the catalog.
async fn survive(db: &Db, tables: &str, queries: &[(&str, &str)], changes: &[&str], days: u64) {
    let s = db.session().await;
    for (_, change) in changes.iter().enumerate().filter(|(nth, _)| is_todays(*nth, days)) {
        run(&s, GONE).await;
        run(&s, tables).await;
        let mut t = open(db).await;
        for (table, query) in queries {
            kept(&mut t, table, query).await;
            t.create(&NewStreamTable::new(name(table), *query)).await.unwrap();
        }
        run(&s, change).await;
        run(&s, WRITES).await;
        for &(table, query) in queries {
            let kept = format!("kept_{table}");
            // The stored query contains the new names of renamed relations.
            let stored = format!(
                "SELECT rtrim(defining_query, ';') FROM pgtrickle.pgt_stream_tables WHERE pgt_name = '{kept}'"
            );
            let stored: String = s.client().query_one(&stored, &[]).await.unwrap().get(0);
            let mut right = false;
            for query in [query, stored.as_str()] {
                let different = format!(
                    "SELECT count(*) FROM ((TABLE {kept} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL TABLE {kept})) d"
                );
                right |= s.client().query_one(&different, &[]).await.is_ok_and(|r| r.get::<_, i64>(0) == 0);
            }
            assert!(right || is_marked(&s, &kept).await, "{change}: {kept} is behind and does not say so");
        }
        for (table, _) in queries {
            right_or_suspended(&mut t, table, change).await;
            right_or_suspended(&mut t, &format!("kept_{table}"), change).await;
        }
        run(&s, "DELETE FROM t WHERE id IN (1, 2)").await;
        for (table, _) in queries {
            right_or_suspended(&mut t, table, change).await;
            right_or_suspended(&mut t, &format!("kept_{table}"), change).await;
            for table in [table.to_string(), format!("kept_{table}")] {
                t.drop(&name(&table), true).await.unwrap();
            }
        }
    }
}

#[test]
fn values_attributes_and_functions_may_be_renamed() {
    todays_server(async |db| survive(db, TABLES, &QUERIES, &CHANGES, 7).await);
}

const RESTING: &str = "
    CREATE SCHEMA app; CREATE TYPE mood AS ENUM ('low', 'high'); CREATE TYPE pair AS (x int, y int); CREATE TYPE part AS (a int, b int);
    CREATE FUNCTION app.plus(a int, b int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT a + b';
    CREATE FUNCTION app.minus(a int, b int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT a - b';
    CREATE OPERATOR app.<+> (LEFTARG = int, RIGHTARG = int, FUNCTION = app.plus);
    CREATE AGGREGATE app.total(int) (SFUNC = app.plus, STYPE = int, INITCOND = '0');
    CREATE FUNCTION app.first(pair) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1.x';
    CREATE FUNCTION app.second(pair) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1.y';
    CREATE CAST (pair AS int) WITH FUNCTION app.first(pair);
    CREATE FUNCTION app.inner(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN i * 2;
    CREATE FUNCTION app.outer(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN app.inner(i) + (i OPERATOR(app.<+>) 1);
    CREATE COLLATION app.sorted FROM \"C\"; CREATE TEXT SEARCH CONFIGURATION app.words (COPY = pg_catalog.simple);
    CREATE FUNCTION app.more(i int, by int DEFAULT 1) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i + by';
    CREATE TYPE app.box AS (x int, y int); CREATE FUNCTION app.boxed(i int) RETURNS jsonb LANGUAGE sql IMMUTABLE RETURN to_jsonb(ROW(i, -i)::app.box);
    CREATE TABLE t (id int PRIMARY KEY, m mood NOT NULL, p pair, r part, v int, s text COLLATE app.sorted DEFAULT 'b');
    CREATE VIEW app.seen AS SELECT id, v OPERATOR(app.<+>) 2 AS d FROM t;
    INSERT INTO t SELECT i, CASE WHEN i % 2 = 0 THEN 'low' ELSE 'high' END::mood, ROW(i, -i)::pair, ROW(i % 3, -i)::part, i
        FROM generate_series(1, 12) i";

const RESTING_QUERIES: [(&str, &str); 10] = [
    ("operators", "SELECT id, v OPERATOR(app.<+>) 1 AS d FROM t"),
    ("aggregates", "SELECT m, app.total(v) AS n FROM t GROUP BY m"),
    ("casts", "SELECT id, p::int AS d FROM t"),
    ("bodies", "SELECT id, app.outer(v) AS d FROM t"),
    ("collations", "SELECT m, min('a' || v::text COLLATE app.sorted) AS d FROM t GROUP BY m"),
    ("searched", "SELECT id, to_tsvector('app.words'::regconfig, 'running ' || v)::text AS d FROM t"),
    ("views", "SELECT id, d FROM app.seen"),
    ("defaults", "SELECT id, app.more(v) AS d FROM t"),
    ("typed", "SELECT m, min(s) AS d FROM t GROUP BY m"),
    ("bodied", "SELECT id, app.boxed(v) AS d FROM t"),
];

const REMADE: [&str; 21] = [
    "CREATE OR REPLACE FUNCTION app.plus(a int, b int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT a + b + 5'",
    "DROP OPERATOR app.<+> (int, int) CASCADE; CREATE OPERATOR app.<+> (LEFTARG = int, RIGHTARG = int, FUNCTION = app.minus)",
    "CREATE SCHEMA former; ALTER OPERATOR app.<+> (int, int) SET SCHEMA former",
    "CREATE SCHEMA former; ALTER OPERATOR app.<+> (int, int) SET SCHEMA former; CREATE OPERATOR app.<+> (LEFTARG = int, RIGHTARG = int, FUNCTION = app.minus)",
    "DROP OPERATOR app.<+> (int, int) CASCADE",
    "DROP AGGREGATE app.total(int); CREATE AGGREGATE app.total(int) (SFUNC = app.minus, STYPE = int, INITCOND = '0')",
    "ALTER AGGREGATE app.total(int) RENAME TO sum",
    "CREATE OR REPLACE FUNCTION app.first(pair) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1.x + $1.y'",
    "DROP CAST (pair AS int); CREATE CAST (pair AS int) WITH FUNCTION app.second(pair)",
    "DROP CAST (pair AS int)",
    "CREATE OR REPLACE FUNCTION app.inner(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN i * 3",
    "ALTER COLLATION app.sorted RENAME TO other; CREATE COLLATION app.sorted FROM \"POSIX\"",
    "CREATE SCHEMA former; ALTER COLLATION app.sorted SET SCHEMA former",
    "ALTER TEXT SEARCH CONFIGURATION app.words ALTER MAPPING FOR asciiword WITH english_stem",
    "ALTER TEXT SEARCH CONFIGURATION app.words RENAME TO other; CREATE TEXT SEARCH CONFIGURATION app.words (COPY = pg_catalog.english)",
    "ALTER SCHEMA app RENAME TO former",
    "CREATE OR REPLACE FUNCTION app.more(i int, by int DEFAULT 9) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i + by'",
    "CREATE OR REPLACE AGGREGATE app.total(int) (SFUNC = app.plus, STYPE = int, INITCOND = '100')",
    "CREATE OR REPLACE AGGREGATE app.total(int) (SFUNC = app.minus, STYPE = int, INITCOND = '0')",
    "ALTER TYPE app.box RENAME ATTRIBUTE x TO z",
    "ALTER COLLATION app.sorted RENAME TO other",
];

/// Catches unnoticed changes of code that the query uses but does not name. Such code is the function of an
/// operator, of a cast or of an aggregate, or a function that another function calls.
#[test]
fn functions_behind_the_names_of_a_query_may_be_replaced() {
    todays_server(async |db| survive(db, RESTING, &RESTING_QUERIES, &REMADE, 10).await);
}

const NAMED: &str = "
    CREATE SCHEMA app; CREATE TEXT SEARCH DICTIONARY app.stop (TEMPLATE = pg_catalog.simple, ACCEPT = true);
    CREATE TEXT SEARCH CONFIGURATION app.words (COPY = pg_catalog.simple);
    CREATE TEXT SEARCH CONFIGURATION app.others (COPY = pg_catalog.simple);
    ALTER TEXT SEARCH CONFIGURATION app.words ALTER MAPPING FOR asciiword WITH app.stop;
    CREATE TYPE app.pt AS ENUM ('a', 'b', 'c', 'd'); CREATE TYPE app.cut AS (w text);
    CREATE FUNCTION app.rank(app.pt) RETURNS int LANGUAGE sql IMMUTABLE STRICT RETURN ascii($1::text) / 2;
    CREATE FUNCTION app.less(app.pt, app.pt) RETURNS bool LANGUAGE sql IMMUTABLE STRICT RETURN app.rank($1) < app.rank($2);
    CREATE FUNCTION app.equal(app.pt, app.pt) RETURNS bool LANGUAGE sql IMMUTABLE STRICT RETURN app.rank($1) = app.rank($2);
    CREATE FUNCTION app.order(app.pt, app.pt) RETURNS int LANGUAGE sql IMMUTABLE STRICT RETURN sign(app.rank($1) - app.rank($2))::int;
    CREATE OPERATOR app.= (LEFTARG = app.pt, RIGHTARG = app.pt, FUNCTION = app.equal, HASHES, MERGES);
    CREATE OPERATOR app.< (LEFTARG = app.pt, RIGHTARG = app.pt, FUNCTION = app.less);
    CREATE TYPE app.ps AS ENUM ('a', 'b', 'c', 'd');
    CREATE FUNCTION app.rank(app.ps) RETURNS int LANGUAGE sql IMMUTABLE STRICT RETURN ascii($1::text) / 2;
    CREATE FUNCTION app.less(app.ps, app.ps) RETURNS bool LANGUAGE sql IMMUTABLE STRICT RETURN ascii($1::text) / 2 < ascii($2::text) / 2;
    CREATE FUNCTION app.equal(app.ps, app.ps) RETURNS bool LANGUAGE sql IMMUTABLE STRICT RETURN ascii($1::text) / 2 = ascii($2::text) / 2;
    CREATE FUNCTION app.order(app.ps, app.ps) RETURNS int LANGUAGE sql IMMUTABLE STRICT
        RETURN sign(ascii($1::text) / 2 - ascii($2::text) / 2)::int;
    CREATE OPERATOR public.= (LEFTARG = app.ps, RIGHTARG = app.ps, FUNCTION = app.equal, HASHES, MERGES);
    CREATE OPERATOR public.< (LEFTARG = app.ps, RIGHTARG = app.ps, FUNCTION = app.less);
    CREATE OPERATOR CLASS app.sorted DEFAULT FOR TYPE app.ps USING btree AS OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 app.order(app.ps, app.ps);
    CREATE OPERATOR CLASS app.hashed_too DEFAULT FOR TYPE app.ps USING hash AS OPERATOR 1 =, FUNCTION 1 app.rank(app.ps);
    CREATE TABLE t (id int PRIMARY KEY, m regconfig NOT NULL, p app.pt, r int, v int, l text DEFAULT 'app.words', s app.ps DEFAULT 'b');
    INSERT INTO t SELECT i, 'app.words', chr(97 + i % 4)::app.pt, i, i, 'app.words', chr(97 + i % 4)::app.ps FROM generate_series(1, 12) i;
    UPDATE t SET m = 'app.others' WHERE id % 2 = 0";

const NAMED_QUERIES: [(&str, &str); 6] = [
    ("searched", "SELECT id, to_tsvector(m, 'running ' || v)::text AS d FROM t"),
    ("found", "SELECT id FROM t WHERE to_tsvector(m, 'running ' || v) @@ to_tsquery(m, 'running')"),
    ("spoken", "SELECT id, to_tsvector(l::regconfig, 'running ' || v)::text AS d FROM t"),
    ("distinct", "SELECT v / 4 AS x, count(DISTINCT p) AS n FROM t GROUP BY v / 4"),
    ("classed", "SELECT v / 4 AS x, count(DISTINCT s) AS n FROM t GROUP BY v / 4"),
    ("cut", "SELECT id, (ROW('running ' || v)::app.cut).w AS w FROM t"),
];

const RETAUGHT: [&str; 7] = [
    "CREATE OR REPLACE FUNCTION app.order(app.ps, app.ps) RETURNS int LANGUAGE sql IMMUTABLE STRICT \
     RETURN sign(ascii($1::text) - ascii($2::text))::int; \
     CREATE OR REPLACE FUNCTION app.equal(app.ps, app.ps) RETURNS bool LANGUAGE sql IMMUTABLE STRICT RETURN $1::text = $2::text",
    "ALTER TEXT SEARCH CONFIGURATION app.words ALTER MAPPING FOR asciiword WITH english_stem",
    "ALTER TEXT SEARCH DICTIONARY app.stop (ACCEPT = false)",
    "CREATE TEXT SEARCH CONFIGURATION app.later (COPY = pg_catalog.simple); UPDATE t SET m = 'app.later'; \
     ALTER TEXT SEARCH CONFIGURATION app.later ALTER MAPPING FOR asciiword WITH english_stem",
    "CREATE OPERATOR CLASS app.by_x DEFAULT FOR TYPE app.pt USING btree AS OPERATOR 1 app.<, OPERATOR 3 app.=, \
     FUNCTION 1 app.order(app.pt, app.pt)",
    "CREATE OPERATOR CLASS app.hashed DEFAULT FOR TYPE app.pt USING hash AS OPERATOR 1 app.=, FUNCTION 1 app.rank(app.pt)",
    "ALTER TYPE app.cut ALTER ATTRIBUTE w TYPE varchar(3)",
];

/// Catches unnoticed alterations of code that rows name, or that PostgreSQL uses by itself. Examples are a
/// text search configuration in a column, the operators that compare values of a type, and the length of an
/// attribute.
#[test]
fn code_that_rows_or_types_choose_may_be_altered() {
    todays_server(async |db| survive(db, NAMED, &NAMED_QUERIES, &RETAUGHT, 3).await);
}

/// The owner alters the stream table. Writers of its sources do not fail, and the next refresh restores the
/// stream table.
#[test]
fn an_immediate_stream_table_may_be_altered_itself() {
    todays_server(async |db| {
        let s = db.session().await;
        for change in [
            "ALTER TABLE kept RENAME d TO e",
            "ALTER TABLE kept ALTER d TYPE bigint",
            "ALTER TABLE kept DROP d",
            "DO $$ BEGIN EXECUTE (SELECT format('ALTER TABLE kept DROP CONSTRAINT %I', conname) FROM pg_constraint \
             WHERE conrelid = 'kept'::regclass AND contype = 'p'); END $$",
        ] {
            run(&s, GONE).await;
            run(&s, TABLES).await;
            let mut t = open(db).await;
            let query = "SELECT id, v AS d FROM t";
            let new = NewStreamTable {
                mode: Some(RefreshMode::Immediate),
                ..NewStreamTable::new(name("kept"), query)
            };
            t.create(&new).await.unwrap();
            run(&s, change).await;
            run(&s, WRITES).await;
            if is_marked(&s, "kept").await {
                try_refresh(&mut t, "kept").await.unwrap_or_else(|e| panic!("{change}: {e:?}"));
            }
            assert_equal(&mut t, "kept").await;
            run(&s, "DELETE FROM t WHERE id IN (1, 2)").await;
            assert_equal(&mut t, "kept").await;
            assert_eq!(
                count(&s, "SELECT count(*) FROM kept").await,
                count(&s, "SELECT count(*) FROM t").await
            );
            t.drop(&name("kept"), true).await.unwrap();
        }
    });
}

/// The fields of a whole-row value of a view have the view's own column names, even if a query gives the
/// columns other aliases.
#[test]
fn rows_of_views_keep_the_names_of_their_columns() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10), (2, 20); CREATE VIEW w AS SELECT id, v FROM t")
            .await;
        let mut t = open(db).await;
        for (table, query) in [
            ("viewed", "SELECT to_jsonb(x) AS j FROM w x(i)"),
            ("whole", "SELECT x::text AS j, i FROM w x(i, k)"),
            ("derived", "SELECT to_jsonb(x) AS j FROM (SELECT id, v FROM w) x(i)"),
            ("tables", "SELECT to_jsonb(x) AS j FROM t x(i)"),
        ] {
            t.create(&NewStreamTable::new(name(table), query)).await.unwrap();
            run(&s, "UPDATE t SET v = v + 1 WHERE id = 1").await;
            try_refresh(&mut t, table).await.unwrap();
            let different = format!(
                "SELECT count(*) FROM ((TABLE {table} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL TABLE {table})) d"
            );
            assert_eq!(count(&s, &different).await, 0, "{query}");
        }
    });
}
