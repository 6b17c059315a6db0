//! The capture triggers in C, which copy rows into a segment, write the same rows as the triggers in
//! PL/pgSQL. The copy bypasses the executor. The tests catch a row, a value or a check of rights that is
//! missing for that reason.

use super::{ORDERS, TOTALS, assert_totals, installed, refused, rows};
use crate::support::{Db, count, is_todays, open, refresh, run, todays_server};
use trickle_client::Session;

/// Columns of every kind: passed by value and by reference, of fixed and of variable length, packed, stored
/// out of line, of a domain, of an enum, and generated.
const TABLE: &str = "(id int, k smallint, big bigint, x float8, n numeric, t text, f text, c \"char\", a int[], j jsonb, \
     d email, m mood, b bool, at timestamptz, u uuid, p point, js json, g int GENERATED ALWAYS AS (id * 2) STORED, PRIMARY KEY (id))";
const COLUMNS: &str = "id, k, big, x, n, t, f, c, a, j::text, d, m, b, at, u, p::text, js::text, g";

/// Returns the column list and the SELECT of an INSERT that makes one row for each number.
fn made(numbers: &str) -> String {
    format!(
        "(id, k, big, x, n, t, f, c, a, j, d, m, b, at, u, p, js) SELECT i, i % 7, i * 10000000000, i / 3.0, i / 7.0, \
         CASE WHEN i % 3 > 0 THEN 'text ' || i END, \
         CASE WHEN i % 4 = 0 THEN (SELECT string_agg(md5((i * 100 + s)::text), '') FROM generate_series(1, 300) s) END, \
         'x', ARRAY[i, NULL, 3], jsonb_build_object('k', i), 'a@b' || i, CASE i % 2 WHEN 0 THEN 'well'::mood END, i % 2 = 0, \
         timestamptz '2024-01-01' + i * interval '1 day', md5(i::text)::uuid, point(i, 1), '{{\"a\": 1}}' FROM {numbers} i"
    )
}

/// Returns changes of a table, with `$` for its name. Each change is one statement or several.
fn changes() -> Vec<String> {
    let some = [
        "UPDATE $ SET n = n + 1 WHERE id % 3 = 0",
        "UPDATE $ SET k = k",
        "UPDATE $ SET id = id + 10000 WHERE id % 5 = 0",
        "UPDATE $ SET id = -id; UPDATE $ SET id = -id",
        "UPDATE $ SET n = n * 1.0, a = a || id, p = point(id, 2) WHERE id % 2 = 0",
        "UPDATE $ SET f = f || 'more' WHERE id % 8 = 0",
        "UPDATE $ SET t = NULL, x = '-0', js = '{\"a\":1}' WHERE id % 6 = 0",
        "DELETE FROM $ WHERE id % 7 = 1",
        "INSERT INTO $ (id, n, t) VALUES (7, 1, 'here'), (5001, 1, 'new') ON CONFLICT (id) DO UPDATE SET n = 5, t = excluded.t",
        "INSERT INTO $ (id) VALUES (5001) ON CONFLICT DO NOTHING; DELETE FROM $ WHERE false; UPDATE $ SET k = 1 WHERE false",
        "MERGE INTO $ USING (SELECT i FROM generate_series(1, 60) i) s ON $.id = s.i WHEN MATCHED AND s.i % 2 = 0 THEN DELETE \
         WHEN MATCHED THEN UPDATE SET big = big + 1 WHEN NOT MATCHED THEN INSERT (id, k) VALUES (s.i, 3)",
        "WITH gone AS (DELETE FROM $ WHERE id % 9 = 0 RETURNING id, k) INSERT INTO $ (id, k) SELECT id + 9000, k FROM gone",
        "BEGIN; SAVEPOINT s; DELETE FROM $; ROLLBACK TO s; UPDATE $ SET k = 2 WHERE id < 20; COMMIT",
        "DO $body$ BEGIN FOR i IN 1..40 LOOP UPDATE $ SET big = i WHERE id = i; \
         BEGIN DELETE FROM $ WHERE id = i; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN END; END LOOP; END $body$",
    ];
    let mut all = vec![format!("INSERT INTO $ {}", made("generate_series(1, 1200)"))];
    all.extend(some.map(str::to_owned));
    all
}

async fn pair(db: &Db) -> Session {
    let s = installed(db).await;
    run(&s, "CREATE DOMAIN email AS text CHECK (value LIKE '%@%'); CREATE TYPE mood AS ENUM ('well', 'ill')")
        .await;
    for (table, native) in [("by_copy", "on"), ("by_statement", "off")] {
        run(&s, &format!("CREATE TABLE {table} {TABLE}")).await;
        captured(&s, table, native).await;
    }
    s
}

async fn captured(s: &Session, table: &str, native: &str) {
    run(
        s,
        &format!(
            "SET pg_trickle.native_capture = {native}; SET pg_trickle.refresh_strategy = 'differential'; \
             SELECT pgtrickle.create_stream_table('of_{table}', 'SELECT * FROM {table}')"
        ),
    )
    .await;
}

/// Returns the rows of a table's buffer with their net weights.
async fn net(s: &Session, table: &str) -> Vec<Vec<Option<String>>> {
    let text = format!(
        "SELECT r, sum(w) FROM (SELECT ROW({COLUMNS})::text AS r, w FROM {}) v GROUP BY r HAVING sum(w) <> 0",
        buffer(s, table).await
    );
    rows(s, &text).await
}

/// Returns the name of the view over the buffer of a table.
async fn buffer(s: &Session, table: &str) -> String {
    let text = "SELECT 'pgtrickle_changes.changes_' || $1::text::regclass::oid";
    s.client().query_one(text, &[&table]).await.unwrap().get(0)
}

async fn assert_same(s: &Session, after: &str) {
    let (copied, stated) = (net(s, "by_copy").await, net(s, "by_statement").await);
    assert_eq!(copied.len(), stated.len(), "after {after}");
    for (c, s) in copied.iter().zip(&stated) {
        assert_eq!(c, s, "after {after}");
    }
}

async fn both(s: &Session, change: &str) {
    for table in ["by_copy", "by_statement"] {
        run(s, &change.replace('$', table).replace(&format!("{table}body{table}"), "$body$")).await;
    }
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn copied_rows_equal_the_rows_that_a_statement_writes() {
    todays_server(async |db| {
        let s = pair(db).await;
        let modes = rows(&s, "SELECT source_relid::regclass, trigger_mode FROM pgtrickle.pgt_buffers").await;
        let modes: Vec<String> = modes.into_iter().flatten().map(Option::unwrap).collect();
        assert_eq!(modes, ["by_copy", "COPY", "by_statement", "STATEMENT"]);
        for change in changes() {
            both(&s, &change).await;
            assert_same(&s, &change).await;
        }
        for table in ["of_by_copy", "of_by_statement"] {
            run(&s, &format!("SELECT pgtrickle.refresh_stream_table('{table}')")).await;
        }
        let same = format!(
            "SELECT count(*) FROM (SELECT ROW({COLUMNS})::text FROM of_by_copy EXCEPT ALL SELECT ROW({COLUMNS})::text FROM by_copy) x"
        );
        assert_eq!(count(&s, &same).await, 0);
        // An update that leaves all bytes of the captured columns as they were is not captured.
        run(
            &s,
            "SET pg_trickle.native_capture = on; CREATE TABLE few (id int PRIMARY KEY, k numeric, more text)",
        )
        .await;
        run(&s, "INSERT INTO few SELECT i, i, repeat('x', i) FROM generate_series(1, 2000) i").await;
        run(&s, "SELECT pgtrickle.create_stream_table('of_few', 'SELECT k FROM few')").await;
        run(&s, "UPDATE few SET more = more || 'y', k = CASE WHEN id < 4 THEN k * 1.0 ELSE k END").await;
        let held = format!("SELECT count(*) FROM {} WHERE w IS NOT NULL", buffer(&s, "few").await);
        assert_eq!(count(&s, &held).await, 6);
    });
}

/// The segment is altered: it has another index, check, column or owner. The trigger writes such a segment by
/// a statement, which honours the alteration.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn an_altered_segment_is_written_by_the_statement() {
    todays_server(async |db| {
        let altered = [
            "CREATE INDEX lookup ON $segment (id)",
            "ALTER TABLE $segment ADD CHECK (id <> 5003)",
            "ALTER TABLE $segment ADD COLUMN more int DEFAULT 5",
            "CREATE ROLE strange_$ SUPERUSER; ALTER TABLE $segment OWNER TO strange_$",
            "ALTER TABLE $segment ALTER COLUMN id SET NOT NULL",
        ];
        for (_, what) in altered.into_iter().enumerate().filter(|(nth, _)| is_todays(*nth, 2)) {
            let s = pair(db).await;
            let segment = format!("{}_1", buffer(&s, "by_copy").await);
            run(&s, &what.replace("$segment", &segment).replace('$', &s_name(db))).await;
            for change in changes().into_iter().take(9) {
                both(&s, &change).await;
                assert_same(&s, &format!("{what}, {change}")).await;
            }
            if what.contains("INDEX") {
                let by = |path: &str| format!("SET enable_{path} = off; SELECT 1");
                run(&s, &by("seqscan")).await;
                let found = count(&s, &format!("SELECT count(*) FROM {segment} WHERE id > 0")).await;
                run(&s, &format!("RESET enable_seqscan; {}; SET enable_bitmapscan = off", by("indexscan")))
                    .await;
                assert_eq!(count(&s, &format!("SELECT count(*) FROM {segment} WHERE id > 0")).await, found);
                assert!(found > 1200, "{found}");
                run(&s, "RESET ALL").await;
            }
            if what.contains("CHECK") {
                assert_eq!(refused(&s, "INSERT INTO by_copy (id) VALUES (5003)").await, "23514");
            }
            run(&s, "DROP EXTENSION pg_trickle CASCADE; DROP SCHEMA extensions").await;
            run(&s, "DROP TABLE by_copy, by_statement, of_by_copy, of_by_statement; DROP DOMAIN email CASCADE; DROP TYPE mood CASCADE")
                .await;
        }
    });
}

/// A column of the source gets another type. The trigger reads no value of that source, since the owner could
/// have made a cast from that type.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_change_of_an_altered_source_is_marked_and_not_copied() {
    todays_server(async |db| {
        let s = pair(db).await;
        let altered =
            "ALTER EVENT TRIGGER pg_trickle_alters DISABLE; ALTER TABLE by_copy ALTER COLUMN k TYPE bigint";
        run(&s, altered).await;
        run(&s, "INSERT INTO by_copy (id, k) VALUES (7000, 5000000000); UPDATE by_copy SET k = 1; DELETE FROM by_copy").await;
        assert_eq!(net(&s, "by_copy").await.len(), 0);
        let reasons = rows(&s, "SELECT DISTINCT reason FROM pgtrickle.pgt_marks").await;
        assert_eq!(reasons, [[Some("column k is of type bigint now".into())]]);
    });
}

/// A renamed column of a source is captured as before.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_renamed_column_is_copied_as_before() {
    todays_server(async |db| {
        let s = pair(db).await;
        run(&s, "ALTER EVENT TRIGGER pg_trickle_alters DISABLE; ALTER TABLE by_copy RENAME COLUMN k TO kk")
            .await;
        run(&s, "INSERT INTO by_copy (id, kk) VALUES (7000, 5)").await;
        let copied =
            format!("SELECT count(*) FROM {} WHERE id = 7000 AND k = 5", buffer(&s, "by_copy").await);
        assert_eq!(count(&s, &copied).await, 1);
        assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_marks").await, 0);
    });
}

fn s_name(db: &Db) -> String {
    db.settings().rsplit('=').next().unwrap().to_owned()
}

/// The trigger cannot copy the bytes of some rows unchanged. These are rows of partitions with another order
/// of columns, and rows with virtual generated columns.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn reordered_partitions_and_virtual_columns_are_captured() {
    todays_server(async |db| {
        let s = installed(db).await;
        let computed = if db.major() >= 18 {
            ", g int GENERATED ALWAYS AS (v * 2) VIRTUAL"
        } else {
            ", g int DEFAULT 3"
        };
        run(&s, &format!("CREATE TABLE p (gone int, id int, k int, v int{computed}, PRIMARY KEY (id)) PARTITION BY RANGE (id); \
             ALTER TABLE p DROP COLUMN gone; CREATE TABLE low PARTITION OF p FOR VALUES FROM (0) TO (100); \
             CREATE TABLE high (k int, id int NOT NULL, other text, v int{computed}, PRIMARY KEY (id)); ALTER TABLE high DROP COLUMN other; \
             ALTER TABLE p ATTACH PARTITION high FOR VALUES FROM (100) TO (1000); \
             INSERT INTO p (id, k, v) SELECT i, i % 5, i FROM generate_series(1, 200) i; SET pg_trickle.refresh_strategy = 'differential'; \
             SELECT pgtrickle.create_stream_table('sums', 'SELECT k, sum(v) AS s, count(*) AS n, sum(g) AS g FROM p GROUP BY k')")).await;
        for change in [
            "UPDATE p SET id = id + 500 WHERE id < 50",
            "UPDATE high SET v = v + 1",
            "INSERT INTO low (id, k, v) VALUES (1, 1, 1), (2, 2, NULL)",
            "DELETE FROM p WHERE k = 3",
            "CREATE FUNCTION drop_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$; \
             CREATE TRIGGER lose BEFORE INSERT ON low FOR EACH ROW EXECUTE FUNCTION drop_it(); \
             UPDATE p SET id = CASE WHEN id > 500 THEN id - 480 ELSE id END, v = v + 1 WHERE id % 2 = 0",
        ] {
            run(&s, change).await;
            run(&s, "SELECT pgtrickle.refresh_stream_table('sums')").await;
            let query = "SELECT k, sum(v) AS s, count(*) AS n, sum(g) AS g FROM p GROUP BY k";
            let wrong = format!(
                "SELECT count(*) FROM ((TABLE sums EXCEPT ALL {query}) UNION ALL ({query} EXCEPT ALL TABLE sums)) x"
            );
            assert_eq!(count(&s, &wrong).await, 0, "{change}");
        }
    });
}

/// The extension can be dropped while sources have its capture triggers. DROP EXTENSION drops the language of
/// these triggers too.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn triggers_go_on_where_the_extension_goes() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('totals', '{TOTALS}')")).await;
        run(&s, "UPDATE orders SET amount = 3 WHERE id = 3").await;
        // While the extension is installed, the program also makes the next segment's function in the
        // extension's language.
        let mut t = open(db).await;
        run(&s, "UPDATE orders SET amount = 4 WHERE id = 4").await;
        refresh(&mut t, "totals").await;
        let native = "SELECT count(*) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE l.lanname = 'pgtrickle_copy'";
        assert_eq!(count(&s, native).await, 3);
        run(&s, "UPDATE orders SET amount = 5 WHERE id = 5; SELECT pgtrickle.release_catalog()").await;
        run(&s, "DROP EXTENSION pg_trickle").await;
        assert_eq!(count(&s, native).await, 0);
        run(&s, "UPDATE orders SET amount = 6, customer = 6 WHERE id = 6").await;
        refresh(&mut t, "totals").await;
        assert_totals(&s).await;
    });
}
