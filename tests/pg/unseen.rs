//! Refreshes notice changes that fired no capture trigger.

use crate::support::{assert_equal, count, create, name, open, open_with, refresh, run, todays_server};
use trickle_client::capture::CaptureOptions;
use trickle_client::{NewStreamTable, RefreshMode, RefreshOptions, Settings};
use trickle_core::cost::Force;
use trickle_core::refresh::Action;

const SOURCE: &str =
    "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 50) i";

/// Changes that fire no capture trigger. Writes after these changes are captured again.
const UNSEEN: [(&str, &str); 4] = [
    (
        "triggers switched off for a load",
        "ALTER TABLE t DISABLE TRIGGER ALL; INSERT INTO t VALUES (100, 7); ALTER TABLE t ENABLE TRIGGER ALL",
    ),
    (
        "a trigger dropped",
        "DO $$ BEGIN EXECUTE format('DROP TRIGGER trickle_capture_%s_update ON t', 't'::regclass::oid); END $$; \
         UPDATE t SET v = v + 1 WHERE id < 9",
    ),
    ("values rewritten under the same type", "ALTER TABLE t ALTER COLUMN v TYPE int USING v + 1000"),
    ("a key that may repeat", "ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t SELECT * FROM t"),
];

#[test]
fn changes_that_no_trigger_sees_are_noticed() {
    todays_server(async |db| {
        let mut t = open(db).await;
        for (what, change) in UNSEEN {
            run(t.connection(), SOURCE).await;
            create(&mut t, "st", "SELECT id, v * 2 AS w FROM t").await;
            create(&mut t, "st2", "SELECT sum(v) AS s FROM t").await;
            let writer = db.session().await;
            run(&writer, change).await;
            // The second reader notices the change too, although the refresh of the first reader has made the
            // triggers again.
            assert_equal(&mut t, "st").await;
            assert_equal(&mut t, "st2").await;
            run(&writer, "UPDATE t SET v = v + 3 WHERE id = 5").await;
            let done = refresh(&mut t, "st").await;
            assert_eq!(done[0].report.action, Action::Differential, "{what}");
            assert_equal(&mut t, "st").await;
            t.drop(&name("st"), false).await.unwrap();
            t.drop(&name("st2"), false).await.unwrap();
            run(t.connection(), "DROP TABLE t").await;
        }
    });
}

#[test]
fn every_reader_is_recomputed_after_a_crash_emptied_its_buffer() {
    todays_server(async |db| {
        let capture = CaptureOptions { unlogged: true, ..CaptureOptions::default() };
        let mut t =
            open_with(db, Settings { capture, force: Some(Force::Incremental), ..Settings::default() }).await;
        run(t.connection(), SOURCE).await;
        let views = [("st", "SELECT id, v FROM t"), ("st2", "SELECT count(*) AS n, sum(v) AS s FROM t")];
        for (name, query) in views {
            create(&mut t, name, query).await;
        }
        let writer = db.session().await;
        run(&writer, "UPDATE t SET v = 0 WHERE id < 20").await;
        // The TRUNCATE has the effect of a crash, which empties an unlogged table.
        let segment = "SELECT c.oid::regclass::text FROM pg_class c WHERE relname LIKE 'changes%1' AND relpersistence = 'u'";
        let segment: String = t.connection().client().query_one(segment, &[]).await.unwrap().get(0);
        run(&writer, &format!("TRUNCATE {segment}")).await;
        assert_equal(&mut t, "st").await;
        run(&writer, "DELETE FROM t WHERE id = 3").await;
        for (name, _) in views {
            assert_equal(&mut t, name).await;
        }
        run(&writer, "DELETE FROM t WHERE id = 4").await;
        let done = t.refresh_all(&RefreshOptions::default()).await.unwrap();
        assert!(done.iter().all(|d| d.report.action == Action::Differential), "{done:?}");
    });
}

/// A statement fires only the statement triggers of the table that it names. Rows that are written through a
/// parent are captured for the child all the same. The rows are captured even if the parent is captured too,
/// or became the parent later.
#[test]
fn writes_through_a_parent_are_seen_on_the_child() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let tables = "CREATE TABLE ev (id int, day int) PARTITION BY RANGE (day);
            CREATE TABLE ev_1 PARTITION OF ev FOR VALUES FROM (0) TO (10);
            CREATE TABLE ev_2 PARTITION OF ev FOR VALUES FROM (10) TO (20);
            CREATE TABLE p (id int); CREATE TABLE c () INHERITS (p); CREATE TABLE late (id int);
            INSERT INTO ev SELECT i, i FROM generate_series(0, 19) i; INSERT INTO c VALUES (1); INSERT INTO late VALUES (1)";
        run(t.connection(), tables).await;
        for (name, query) in [
            ("of_ev", "SELECT day, count(*) AS n FROM ev GROUP BY day"),
            ("of_ev_1", "SELECT day, count(*) AS n FROM ev_1 GROUP BY day"),
            ("of_c", "SELECT id FROM c"),
            ("of_p", "SELECT id FROM p"),
            ("of_late", "SELECT id FROM late"),
        ] {
            create(&mut t, name, query).await;
        }
        let writer = db.session().await;
        for change in [
            "INSERT INTO ev VALUES (100, 1), (101, 11); UPDATE p SET id = id + 1",
            "INSERT INTO ev_1 VALUES (102, 2); UPDATE ev SET day = day + 10 WHERE id = 3; INSERT INTO c VALUES (7)",
            "ALTER TABLE late INHERIT p; UPDATE p SET id = id + 1",
            "UPDATE p SET id = id + 1; DELETE FROM ev WHERE day = 1",
            "TRUNCATE ev; TRUNCATE p",
            "INSERT INTO ev VALUES (1, 1)",
        ] {
            run(&writer, change).await;
            t.refresh_all(&RefreshOptions::default()).await.unwrap();
            for name in ["of_ev", "of_ev_1", "of_c", "of_p", "of_late"] {
                assert_equal(&mut t, name).await;
            }
        }
    });
}

#[test]
fn a_lagging_reader_is_recomputed_and_buffers_stay_small() {
    todays_server(async |db| {
        let limits =
            Settings { segment_bytes: 8 << 10, buffer_limit_bytes: Some(64 << 10), ..Settings::default() };
        let mut t = open_with(db, limits).await;
        run(t.connection(), SOURCE).await;
        for name in ["st", "st2"] {
            create(&mut t, name, "SELECT id, v FROM t").await;
        }
        let writer = db.session().await;
        for _ in 0..60 {
            run(&writer, "UPDATE t SET v = v + 1").await;
            refresh(&mut t, "st").await;
        }
        let sizes = "SELECT sum(pg_relation_size(c.oid))::int8 FROM pg_class c WHERE relname LIKE 'changes%' AND relkind = 'r'";
        let bytes = count(t.connection(), sizes).await;
        assert!(bytes <= 96 << 10, "{bytes}");
        assert_equal(&mut t, "st2").await;
    });
}

/// Catches rows of a temporary child in a result. Only the session that made the child sees its rows, and
/// statements of that session on the parent write them too. A refresh runs the query in another session, so
/// the result must have none of these rows.
#[test]
fn rows_of_a_temporary_child_are_in_no_result() {
    todays_server(async |db| {
        for mode in [RefreshMode::Differential, RefreshMode::Immediate] {
            let mut t = open(db).await;
            run(t.connection(), SOURCE).await;
            run(
                t.connection(),
                "CREATE TABLE u (v int); INSERT INTO u SELECT i FROM generate_series(1, 60) i",
            )
            .await;
            let new = NewStreamTable::new(
                name("st"),
                "SELECT t.v % 7 AS k, count(*) AS n, sum(t.v) AS s FROM t JOIN u USING (v) GROUP BY t.v % 7",
            );
            t.create(&NewStreamTable { mode: Some(mode), ..new }).await.unwrap();
            let (a, b) = (db.session().await, db.session().await);
            run(&a, "CREATE TEMP TABLE c () INHERITS (t); INSERT INTO c VALUES (100, 3), (101, 4)").await;
            for change in [
                "UPDATE t SET v = v + 1",
                "DELETE FROM t WHERE id IN (5, 100)",
                "INSERT INTO c VALUES (102, 3); INSERT INTO t VALUES (200, 3)",
                "INSERT INTO u VALUES (3), (4), (5)",
                "DELETE FROM u WHERE v = 4",
                "UPDATE ONLY t SET v = v + 1 WHERE id < 9",
            ] {
                run(&a, change).await;
                refresh(&mut t, "st").await;
                assert_equal(&mut t, "st").await;
            }
            run(&b, "UPDATE t SET v = v + 1 WHERE id = 7").await;
            if mode == RefreshMode::Differential {
                let done = refresh(&mut t, "st").await;
                assert_eq!(
                    done[0].report.action,
                    Action::Differential,
                    "other sessions write no row of the child"
                );
            }
            assert_equal(&mut t, "st").await;
            run(&a, "DROP TABLE c").await;
            run(&b, "UPDATE t SET v = v + 1 WHERE id = 8").await;
            refresh(&mut t, "st").await;
            assert_equal(&mut t, "st").await;
            t.drop(&name("st"), false).await.unwrap();
            run(t.connection(), "DROP TABLE t, u").await;
        }
    });
}
