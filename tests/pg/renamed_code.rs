//! Types, values of enums, attributes, functions and the stream table itself under other names, and under
//! names that others had. Catches old rows that say one thing and new rows another, and triggers that fail
//! for writers.

use crate::support::{
    Driver, assert_equal, count, each_server, is_todays, name, newest_server, open, run, try_refresh,
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

/// Whether a stream table that writers keep says that it may be behind.
async fn is_marked(s: &Session, table: &str) -> bool {
    let stopped = format!(
        "SELECT count(*) FROM pgtrickle.pgt_stream_tables s WHERE pgt_name = '{table}' AND (needs_reinit OR status = 'SUSPENDED' \
         OR NOT EXISTS (SELECT FROM pgtrickle.unchanged(ARRAY[s.pgt_id])))"
    );
    count(s, &stopped).await > 0
}

/// Equal to its query, or suspended with a reason of the query's.
async fn right_or_suspended(t: &mut Driver, table: &str, change: &str) {
    match try_refresh(t, table).await {
        Ok(_) => assert_equal(t, table).await,
        Err(e) => {
            assert!(
                e.is_input() || e.sqlstate().is_some_and(|c| c.starts_with("42") || c == "22P02"),
                "{change}: {e:?}"
            );
            let e = t.find(&name(table)).await.unwrap();
            // A call inside the server that fails is rolled back with what it noted.
            let noted = e.last_error.is_some() || Driver::is_the_servers();
            assert!(noted, "{change}: {table} does not say why");
        }
    }
}

#[test]
fn values_attributes_and_functions_may_be_renamed() {
    each_server(async |db| {
        let s = db.session().await;
        for (_, change) in CHANGES.into_iter().enumerate().filter(|(nth, _)| is_todays(*nth, 4)) {
            run(&s, GONE).await;
            run(&s, TABLES).await;
            let mut t = open(db).await;
            for (table, query) in QUERIES {
                kept(&mut t, table, query).await;
                t.create(&NewStreamTable::new(name(table), query)).await.unwrap();
            }
            run(&s, change).await;
            run(&s, WRITES).await;
            for (table, query) in QUERIES {
                let kept = format!("kept_{table}");
                let right = format!(
                    "SELECT count(*) FROM ((TABLE {kept} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL TABLE {kept})) d"
                );
                let right = s.client().query_one(&right, &[]).await.is_ok_and(|r| r.get::<_, i64>(0) == 0);
                assert!(
                    right || is_marked(&s, &kept).await,
                    "{change}: {kept} is behind and does not say so"
                );
            }
            for (table, _) in QUERIES {
                right_or_suspended(&mut t, table, change).await;
                right_or_suspended(&mut t, &format!("kept_{table}"), change).await;
            }
            run(&s, "DELETE FROM t WHERE id IN (1, 2)").await;
            for (table, _) in QUERIES {
                right_or_suspended(&mut t, table, change).await;
                right_or_suspended(&mut t, &format!("kept_{table}"), change).await;
                for table in [table.to_owned(), format!("kept_{table}")] {
                    t.drop(&name(&table), true).await.unwrap();
                }
            }
        }
    });
}

/// Its owner may alter the table: its writers go on, and the next refresh makes it fit.
#[test]
fn an_immediate_stream_table_may_be_altered_itself() {
    each_server(async |db| {
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

/// A row of a view as a value has the names of the view for its columns, whatever aliases these got.
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
