//! Changes by every kind of statement that writes a table are each captured once. The tests use both trigger
//! modes, and logged and unlogged buffers. The tests also check the cost of capture. The tests catch changed
//! rows that fire no capture trigger.

use crate::support::{Db, assert_equal, count, create, each_server, mode, open, open_with, refresh, run};
use futures_util::SinkExt;
use std::pin::pin;
use trickle_client::capture::CaptureOptions;
use trickle_client::{RefreshOptions, Session, Settings};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;

const SOURCES: &str = "
    CREATE TABLE p (id int PRIMARY KEY, k int, v int);
    CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE, w int);
    CREATE TABLE bag (k int, note text, j json DEFAULT '{}', at point);
    CREATE TABLE late (id int PRIMARY KEY DEFERRABLE, v int, big text);
    ALTER TABLE late ALTER COLUMN big SET STORAGE EXTERNAL;
    CREATE TABLE root (id int PRIMARY KEY);
    CREATE TABLE l (id int PRIMARY KEY, root int REFERENCES root ON DELETE CASCADE ON UPDATE CASCADE, v int);
    CREATE TABLE r (id int PRIMARY KEY, root int REFERENCES root ON DELETE CASCADE ON UPDATE SET NULL, w int);
    INSERT INTO late SELECT i, i * 10, repeat('x' || i, 4000) FROM generate_series(1, 3) i;
    INSERT INTO root SELECT generate_series(1, 6);
    INSERT INTO l SELECT i, 1 + i % 6, i FROM generate_series(1, 12) i;
    INSERT INTO r SELECT i, 1 + i % 6, i FROM generate_series(1, 9) i;
    INSERT INTO p SELECT i, i % 4, i FROM generate_series(1, 20) i;
    INSERT INTO c SELECT i, 1 + i % 20, i FROM generate_series(1, 60) i;
    INSERT INTO bag VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, NULL)";

const TABLES: [(&str, &str); 8] = [
    ("joined", "SELECT p.id, p.v, c.w FROM p JOIN c ON c.p = p.id"),
    ("sums", "SELECT p.k, count(c.id) AS n, sum(c.w) AS s FROM p LEFT JOIN c ON c.p = p.id GROUP BY p.k"),
    ("rows", "SELECT * FROM bag"),
    ("kinds", "SELECT DISTINCT k FROM bag"),
    ("over", "SELECT k, n FROM sums WHERE n > 3"),
    ("lates", "SELECT * FROM late"),
    ("sides", "SELECT l.id, l.v, r.id AS other, r.w FROM l JOIN r ON r.root = l.root"),
    (
        "padded",
        "SELECT l.root, count(l.id) AS ls, count(r.id) AS rs FROM l FULL JOIN r ON r.root = l.root GROUP BY l.root",
    ),
];

/// Changes. Each text is the window of one refresh. Keys are updated, deleted, and exchanged. Where a key is
/// checked at the end of a statement, a single statement exchanges keys. One of several equal rows without a
/// key changes. Every kind of statement writes, and one cascade changes both sides of a join.
const CHANGES: &[&str] = &[
    "UPDATE p SET id = id + 1000",
    "UPDATE p SET id = CASE id WHEN 1001 THEN -1 WHEN 1002 THEN -2 ELSE id END WHERE id IN (1001, 1002);
     UPDATE p SET id = CASE id WHEN -1 THEN 1002 ELSE 1001 END WHERE id IN (-1, -2)",
    "UPDATE late SET id = 3 - id WHERE id < 3",
    "UPDATE late SET id = 4 - id; DELETE FROM late WHERE id = 3",
    "UPDATE p SET id = 5000 WHERE id = 1003; DELETE FROM p WHERE id = 5000",
    "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE note = 'x')",
    "DELETE FROM p WHERE k = 2",
    "DELETE FROM root WHERE id IN (1, 2)",
    "UPDATE root SET id = id + 10 WHERE id < 5; DELETE FROM root WHERE id = 13",
    "DELETE FROM root",
    "INSERT INTO root VALUES (1); INSERT INTO l VALUES (1, 1, 1); INSERT INTO r VALUES (101, 1, 1), (102, NULL, 2)",
    "TRUNCATE root CASCADE",
    "SET session_replication_role = replica; INSERT INTO p VALUES (1, 1, 1), (2, 2, 2); UPDATE bag SET k = 7;
     RESET session_replication_role",
    "MERGE INTO p USING (VALUES (1, 10), (2, 20), (3, 30)) m(id, v) ON p.id = m.id
     WHEN MATCHED AND m.v = 20 THEN DELETE WHEN MATCHED THEN UPDATE SET v = m.v
     WHEN NOT MATCHED THEN INSERT (id, k, v) VALUES (m.id, 0, m.v)",
    "INSERT INTO p VALUES (1, 3, 99), (8, 3, 8) ON CONFLICT (id) DO UPDATE SET v = p.v + excluded.v, k = excluded.k",
    "INSERT INTO p VALUES (1, 3, 99) ON CONFLICT DO NOTHING",
    "WITH gone AS (DELETE FROM c WHERE w % 3 = 0 RETURNING *), moved AS (UPDATE p SET v = v + 1 WHERE k = 3 RETURNING id)
     INSERT INTO bag SELECT p, 'gone' FROM gone UNION ALL SELECT id, 'moved' FROM moved",
    "UPDATE p SET v = 0 WHERE false; DELETE FROM c WHERE false; INSERT INTO bag SELECT 1, 'n' WHERE false;
     MERGE INTO p USING (SELECT 1 WHERE false) m(id) ON p.id = m.id WHEN MATCHED THEN DELETE",
    "CREATE RULE r AS ON INSERT TO bag WHERE new.k = 42 DO INSTEAD INSERT INTO p VALUES (42, 42, 42);
     INSERT INTO bag VALUES (42, 'ruled'), (43, 'not'); DROP RULE r ON bag",
    "BEGIN; INSERT INTO bag VALUES (1, 'a'); DELETE FROM bag WHERE k = 1; INSERT INTO bag VALUES (1, 'b'); COMMIT",
    "UPDATE bag SET note = NULL WHERE note IS NOT NULL; UPDATE bag SET note = '' WHERE k = 7",
    "UPDATE bag SET j = '[1]', at = '(1,2)' WHERE k = 7; UPDATE bag SET j = '[ 1]', at = NULL WHERE ctid = (SELECT min(ctid) FROM bag)",
    "BEGIN; INSERT INTO bag VALUES (5, 'gone'); TRUNCATE bag; INSERT INTO bag VALUES (6, 'there', NULL, '(0,0)'); COMMIT",
];

async fn copy_in(s: &Session, sql: &str, rows: &'static [u8]) {
    let mut sink = pin!(s.client().copy_in::<_, &'static [u8]>(sql).await.unwrap());
    sink.send(rows).await.unwrap();
    sink.close().await.unwrap();
}

async fn every_road(db: &Db, capture: CaptureOptions) {
    let force = Some(Force::Incremental);
    let mut t = open_with(db, Settings { capture, force, segment_bytes: 8192, ..Settings::default() }).await;
    let w = db.session().await;
    run(&w, SOURCES).await;
    for (what, query) in TABLES {
        create(&mut t, what, query).await;
        assert_eq!(mode(&t, what).await.0, "DIFFERENTIAL", "{what}");
    }
    for change in CHANGES {
        run(&w, change).await;
        for (what, _) in TABLES {
            assert_equal(&mut t, what).await;
        }
    }
    copy_in(&w, "COPY bag (k, note) FROM STDIN", b"9\tcopied\n9\tcopied\n\\N\t\\N\n").await;
    copy_in(&w, "COPY p FROM STDIN", b"700\t1\t1\n701\t1\t\\N\n").await;
    for (what, _) in TABLES {
        assert_equal(&mut t, what).await;
    }
}

#[test]
fn every_road_into_a_table_by_statement() {
    each_server(async |db| every_road(db, CaptureOptions::default()).await);
}

#[test]
fn every_road_into_a_table_by_row() {
    each_server(async |db| every_road(db, CaptureOptions { mode: Mode::Row, unlogged: false }).await);
}

#[test]
fn every_road_into_a_table_unlogged() {
    each_server(async |db| every_road(db, CaptureOptions { mode: Mode::Statement, unlogged: true }).await);
}

/// A crash empties an unlogged buffer. The crash also removes the row that shows that the buffer is intact,
/// and the next refresh notices the missing row.
#[test]
fn an_unlogged_buffer_emptied_by_a_crash_is_noticed() {
    each_server(async |db| {
        let capture = CaptureOptions { mode: Mode::Statement, unlogged: true };
        let mut t =
            open_with(db, Settings { capture, force: Some(Force::Incremental), ..Settings::default() }).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut t, "rows", "SELECT * FROM bag").await;
        create(&mut t, "kinds", "SELECT DISTINCT k FROM bag").await;
        run(&w, "INSERT INTO bag VALUES (77, 'lost')").await;
        run(&w, &format!("TRUNCATE {}", segment(&w, "bag").await)).await;
        let all: Vec<_> = t.registry().await.unwrap().entries().cloned().collect();
        assert_eq!(t.pending(&all, &RefreshOptions::default()).await.unwrap().len(), 2);
        assert_equal(&mut t, "rows").await;
        assert_equal(&mut t, "kinds").await;
        run(&w, "INSERT INTO bag VALUES (78, 'found')").await;
        let done = refresh(&mut t, "rows").await;
        assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
        assert_equal(&mut t, "rows").await;
    });
}

async fn segment(s: &Session, source: &str) -> String {
    let text = "SELECT c.oid::regclass::text FROM pg_class c WHERE relkind = 'r' \
         AND c.relname LIKE 'changes\\_' || $1::text::regclass::oid || '\\_%' ORDER BY c.oid DESC LIMIT 1";
    s.client().query_one(text, &[&source]).await.unwrap().get(0)
}

/// A bulk UPDATE fires the capture trigger once, and writes two rows to the buffer for each changed row.
#[test]
fn capture_of_a_bulk_update_is_linear() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE big (id int PRIMARY KEY, v int); INSERT INTO big SELECT i, i FROM generate_series(1, 50000) i").await;
        create(&mut t, "sums", "SELECT v % 10 AS k, count(*) AS n FROM big GROUP BY 1").await;
        let mut work = Vec::new();
        for n in [4000, 40000] {
            let row = w
                .client()
                .query(
                    &format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT TEXT) UPDATE big SET v = v + 1 WHERE id <= {n}"),
                    &[],
                )
                .await
                .unwrap();
            let calls =
                row.iter().map(|r| r.get::<_, String>(0)).filter(|l| l.contains("trickle_capture")).count();
            assert_eq!(calls, 1);
            let buffered = format!("SELECT count(*) FROM {}", segment(&w, "big").await);
            work.push(count(&w, &buffered).await);
        }
        assert_eq!(work, [2 * 4000, 2 * 44000]);
        assert_equal(&mut t, "sums").await;
    });
}

/// Buffers do not grow while refreshes keep up with the changes, and a reader that lags loses no changes.
#[test]
fn buffers_are_drained_behind_the_slowest_reader() {
    each_server(async |db| {
        let mut t = open_with(db, Settings { segment_bytes: 8192, ..Settings::default() }).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE s (id int PRIMARY KEY, v int); INSERT INTO s SELECT i, i FROM generate_series(1, 500) i").await;
        create(&mut t, "quick", "SELECT v % 7 AS k, count(*) AS n FROM s GROUP BY 1").await;
        create(&mut t, "slow", "SELECT * FROM s WHERE v % 2 = 0").await;
        let rows = "SELECT count(*) FROM pgtrickle_changes.";
        let view: String = w
            .client()
            .query_one(
                "SELECT relname::text FROM pg_class WHERE relkind = 'v' AND relname LIKE 'changes\\_%'",
                &[],
            )
            .await
            .unwrap()
            .get(0);
        for _ in 0..10 {
            run(&w, "UPDATE s SET v = v + 1").await;
            refresh(&mut t, "quick").await;
        }
        assert_eq!(count(&w, &format!("{rows}{view}")).await, 10_000);
        assert_equal(&mut t, "slow").await;
        for _ in 0..10 {
            run(&w, "UPDATE s SET v = v + 1").await;
            refresh(&mut t, "quick").await;
            refresh(&mut t, "slow").await;
            assert!(count(&w, &format!("{rows}{view}")).await <= 10_000 + 3000);
        }
        assert!(count(&w, &format!("{rows}{view}")).await <= 3000);
        assert_equal(&mut t, "quick").await;
        assert_equal(&mut t, "slow").await;
    });
}

/// Capture is switched off, and then on again by `enable`. No change in between is missed, even if a new
/// stream table is created in between.
#[test]
fn changes_while_capture_is_off_are_not_missed() {
    each_server(async |db| {
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open_with(db, settings).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut t, "rows", "SELECT * FROM bag").await;
        t.disable(&crate::support::name("bag")).await.unwrap();
        run(&w, "INSERT INTO bag VALUES (50, 'while off')").await;
        let done = refresh(&mut t, "rows").await;
        assert_eq!(done[0].report.action.name(), "FULL", "{done:?}");
        run(&w, "INSERT INTO bag VALUES (51, 'between')").await;
        create(&mut t, "kinds", "SELECT DISTINCT k FROM bag").await;
        assert_equal(&mut t, "rows").await;
        t.disable(&crate::support::name("bag")).await.unwrap();
        run(&w, "INSERT INTO bag VALUES (52, 'while off again')").await;
        t.enable(&crate::support::name("bag")).await.unwrap();
        for what in ["rows", "kinds"] {
            assert_equal(&mut t, what).await;
        }
        run(&w, "DELETE FROM bag WHERE k > 50").await;
        let done = refresh(&mut t, "rows").await;
        assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
        assert_equal(&mut t, "kinds").await;
    });
}
