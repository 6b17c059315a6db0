//! Refreshes while other transactions are open, commit late, are rolled back or are prepared. Locks and open
//! transactions fix the order of all statements. The tests catch changes that a frontier passes before they
//! commit. A test of one connection cannot show such changes.

use crate::support::{
    Driver, assert_equal, blocked, count, create, name, open, open_with, pid, refresh, run, todays_server,
    try_refresh,
};
use std::pin::Pin;
use trickle_client::{Alteration, Plans, RefreshOptions, Refreshed, Result, Session, Settings, Watch};
use trickle_core::cost::Force;
use trickle_core::refresh::{Kind, Statement};

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int);
    CREATE TABLE b (id int PRIMARY KEY, k int, w int);
    INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 40) i;
    INSERT INTO b SELECT i, i % 5, i FROM generate_series(1, 10) i";

const TABLES: [(&str, &str); 3] = [
    ("joined", "SELECT a.id, a.v, b.w FROM a JOIN b USING (k)"),
    ("grouped", "SELECT k, sum(v) AS s, count(*) AS n FROM a GROUP BY k"),
    ("over", "SELECT g.k, g.s, count(b.id) AS n FROM grouped g LEFT JOIN b ON b.k = g.k GROUP BY g.k, g.s"),
];

/// A transaction writes before a refresh and commits after the refresh. The next refresh applies the changes
/// of the transaction, whatever its isolation level.
#[test]
fn a_transaction_open_across_two_refreshes_is_counted_once() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let (early, repeatable, other) = (db.session().await, db.session().await, db.session().await);
        run(&other, SOURCES).await;
        for (what, query) in TABLES {
            create(&mut t, what, query).await;
        }
        run(&early, "BEGIN; INSERT INTO a VALUES (100, 1, 1000); UPDATE b SET w = -w WHERE id = 1").await;
        run(
            &repeatable,
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a; DELETE FROM a WHERE id = 3",
        )
        .await;
        for i in 200..202 {
            run(&other, &format!("INSERT INTO a VALUES ({i}, 2, 2)")).await;
            for (what, _) in TABLES {
                assert_equal(&mut t, what).await;
            }
            run(&early, &format!("INSERT INTO a VALUES ({}, 1, 1000)", i + 100)).await;
        }
        run(&repeatable, "INSERT INTO a VALUES (400, 1, 1); COMMIT").await;
        for (what, _) in TABLES {
            assert_equal(&mut t, what).await;
        }
        run(&early, "COMMIT").await;
        for (what, _) in TABLES {
            assert_equal(&mut t, what).await;
        }
    });
}

/// The order of commits may differ from the order of writes and from the order of transaction numbers, and
/// some writes are never committed.
#[test]
fn late_commits_savepoints_and_prepared_changes_count_once() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let (first, second, other) = (db.session().await, db.session().await, db.session().await);
        run(&other, SOURCES).await;
        for (what, query) in TABLES {
            create(&mut t, what, query).await;
        }
        run(&first, "BEGIN; UPDATE a SET v = v + 1 WHERE id = 1").await;
        run(&second, "BEGIN; UPDATE a SET v = v + 2 WHERE id = 2").await;
        run(&second, "COMMIT").await;
        assert_equal(&mut t, "over").await;
        run(&first, "COMMIT").await;
        assert_equal(&mut t, "over").await;
        run(
            &first,
            "BEGIN; UPDATE a SET v = 7 WHERE id = 5; SAVEPOINT s; DELETE FROM a WHERE k = 1; SAVEPOINT u;
            INSERT INTO a VALUES (500, 1, 1); ROLLBACK TO s; INSERT INTO a VALUES (501, 3, 3); RELEASE s",
        )
        .await;
        assert_equal(&mut t, "over").await;
        run(&first, "COMMIT").await;
        assert_equal(&mut t, "joined").await;
        run(
            &first,
            "BEGIN; DELETE FROM a WHERE k = 2; PREPARE TRANSACTION 'kept';
            BEGIN; DELETE FROM a WHERE k = 3; PREPARE TRANSACTION 'lost'",
        )
        .await;
        run(&other, "INSERT INTO a VALUES (600, 4, 4)").await;
        assert_equal(&mut t, "over").await;
        run(&other, "ROLLBACK PREPARED 'lost'").await;
        assert_equal(&mut t, "joined").await;
        run(&other, "COMMIT PREPARED 'kept'").await;
        // The deferred key is checked at commit, so the statement fails after its trigger wrote to the
        // buffer.
        run(&other, "CREATE TABLE c (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, k int)").await;
        create(&mut t, "late", "SELECT k, count(*) AS n FROM c GROUP BY k").await;
        run(&other, "INSERT INTO c VALUES (1, 1)").await;
        let failed = other.client().batch_execute("BEGIN; INSERT INTO c VALUES (1, 2); COMMIT").await;
        assert!(failed.is_err());
        for what in ["joined", "grouped", "over", "late"] {
            assert_equal(&mut t, what).await;
        }
    });
}

/// When another trigger refuses a statement, the statement's changes in the buffer are rolled back with the
/// statement. Other changes of the transaction stay.
#[test]
fn captured_changes_of_a_failed_statement_are_rolled_back() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(
            &w,
            "CREATE TABLE c (id int PRIMARY KEY, k int); INSERT INTO c SELECT i, i % 3 FROM generate_series(1, 9) i;
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                BEGIN IF current_setting('test.refuse', true) = 'yes' THEN RAISE 'refused'; END IF; RETURN NULL; END $$;
             CREATE TRIGGER zz AFTER INSERT OR UPDATE OR DELETE ON c FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
        )
        .await;
        create(&mut t, "kept", "SELECT k, count(*) AS n, sum(id) AS ids FROM c GROUP BY k").await;
        let last = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'c'::regclass AND tgname > 'zz'";
        assert_eq!(count(&w, last).await, 0, "capture comes first");
        for refused in ["INSERT INTO c VALUES (20, 1)", "UPDATE c SET k = k + 1", "DELETE FROM c WHERE k = 1"]
        {
            run(&w, "BEGIN; UPDATE c SET k = k + 5 WHERE id = 4; SAVEPOINT s; SET LOCAL test.refuse = 'yes'")
                .await;
            let e = w.client().batch_execute(refused).await.unwrap_err();
            assert!(
                e.to_string().contains("refused")
                    || e.as_db_error().is_some_and(|e| e.message() == "refused"),
                "{e:?}"
            );
            run(&w, "ROLLBACK TO s; UPDATE c SET k = 2 WHERE id = 5; COMMIT").await;
            assert_equal(&mut t, "kept").await;
            let caught = format!(
                "DO $$ BEGIN UPDATE c SET k = k - 1 WHERE id < 3;
                    BEGIN PERFORM set_config('test.refuse', 'yes', true); {refused};
                    EXCEPTION WHEN raise_exception THEN UPDATE c SET k = 7 WHERE id = 8; END;
                    DELETE FROM c WHERE id = (SELECT max(id) FROM c); END $$"
            );
            run(&w, &caught).await;
            assert_equal(&mut t, "kept").await;
        }
        assert_eq!(count(&w, "SELECT count(*) FROM c WHERE id = 20").await, 0);
    });
}

/// A refresh that collects the server's plans has the same effect as a refresh that collects none. A refresh
/// that collects plans also reports the number of written rows, and stream tables that read its result are
/// right.
#[test]
fn a_refresh_whose_plans_are_kept_is_what_it_is_without() {
    todays_server(async |db| {
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open_with(db, settings).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        for (table, query) in TABLES {
            create(&mut t, table, query).await;
        }
        for full in [false, true] {
            run(&w, "UPDATE a SET v = v + 1 WHERE id < 9; DELETE FROM a WHERE id % 10 = 9").await;
            let mut plans = Plans::default();
            let options = RefreshOptions { full, ..RefreshOptions::default() };
            let done = t.refresh_watched(&[name("over")], &options, &mut plans).await.unwrap();
            let written = |r: &Refreshed| r.report.rows_inserted + r.report.rows_updated;
            assert!(done.len() == 2 && done.iter().all(|r| written(r) > 0), "{done:?}");
            // A recompute has at least two plans. The number of its statements depends on the durations of
            // earlier refreshes.
            assert!(plans.taken.len() >= 2, "{:?}", plans.taken);
            assert!(plans.taken.iter().all(|(_, plan)| plan[0]["Execution Time"].is_number()), "{plans:?}");
            for (table, _) in &TABLES[1..] {
                assert_equal(&mut t, table).await;
            }
        }
    });
}

/// A watch on a refresh. The watch commits a change before the statement with index `at`. The change must not
/// be lost or applied in part. Both arms of a diamond must show the same state.
struct Meanwhile<'s> {
    writer: &'s Session,
    at: usize,
    seen: usize,
}

impl Watch for Meanwhile<'_> {
    fn before<'s>(&'s mut self, statement: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(async move {
            if self.seen == self.at && !matches!(statement.kind, Kind::Rollback) {
                let n = 10_000 + self.at;
                run(
                    self.writer,
                    &format!("INSERT INTO a VALUES ({n}, {}, 1); DELETE FROM a WHERE id = {}", n % 5, n - 1),
                )
                .await;
            }
            self.seen += 1;
            Ok(())
        })
    }
}

#[test]
fn writers_commit_between_any_two_statements_of_a_refresh() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let writer = db.session().await;
        run(&writer, SOURCES).await;
        create(&mut t, "one", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        create(&mut t, "two", "SELECT k, count(*) AS n FROM a GROUP BY k").await;
        create(&mut t, "both", "SELECT one.k, one.s, two.n FROM one FULL JOIN two ON one.k = two.k").await;
        let mut at = 0;
        loop {
            run(&writer, "UPDATE a SET v = v + 1 WHERE id < 9").await;
            let mut meanwhile = Meanwhile { writer: &writer, at, seen: 0 };
            t.refresh_watched(&[name("both")], &RefreshOptions::default(), &mut meanwhile).await.unwrap();
            let last = meanwhile.seen <= at;
            // `torn` counts rows that show two different states of the source `a`.
            let torn =
                "SELECT count(*) FROM one FULL JOIN two USING (k) WHERE (one.k IS NULL) <> (two.k IS NULL)";
            assert_eq!(count(&writer, torn).await, 0);
            let torn = "SELECT count(*) FROM (SELECT k, s, n FROM one FULL JOIN two USING (k) EXCEPT SELECT * FROM \"both\") d";
            assert_eq!(count(&writer, torn).await, 0, "step {at}");
            for what in ["one", "two", "both"] {
                assert_equal(&mut t, what).await;
            }
            if last {
                break;
            }
            at += 1;
        }
        assert!(at > 5);
    });
}

/// A writer began before capture of its table, or of another column of the table, began. The creation waits
/// for that writer.
#[test]
fn creations_wait_for_writers_that_began_before_capture() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let (writer, admin) = (db.session().await, db.session().await);
        run(&admin, SOURCES).await;
        let creator = pid(t.connection().client()).await;
        for (i, query) in
            ["SELECT id FROM a WHERE id > 2", "SELECT k, sum(v) AS s, max(id) AS m FROM a GROUP BY k"]
                .into_iter()
                .enumerate()
        {
            run(
                &writer,
                &format!(
                    "BEGIN; INSERT INTO a VALUES ({}, 1, 1); UPDATE a SET v = v + 1 WHERE k = 2",
                    1000 + i
                ),
            )
            .await;
            let what = format!("t{i}");
            let commit = async {
                blocked(&admin, creator).await;
                run(&writer, "INSERT INTO a VALUES (2000 + (SELECT count(*) FROM a), 2, 2); DELETE FROM a WHERE id = 4; COMMIT").await;
            };
            tokio::join!(create(&mut t, &what, query), commit);
            run(&admin, "UPDATE a SET v = v * 2, id = id + 10000 WHERE k = 3").await;
            for what in (0..=i).map(|i| format!("t{i}")) {
                assert_equal(&mut t, &what).await;
            }
        }
    });
}

/// A TRUNCATE or a refresh may lock the table first. In both orders the refresh sees the whole effect of the
/// other transaction or none of it.
#[test]
fn truncate_and_rewriting_alter_while_a_refresh_starts() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let (writer, admin) = (db.session().await, db.session().await);
        run(&admin, SOURCES).await;
        for (what, query) in TABLES {
            create(&mut t, what, query).await;
        }
        let refresher = pid(t.connection().client()).await;
        for change in [
            "TRUNCATE a",
            "TRUNCATE b; INSERT INTO b VALUES (1, 1, 1)",
            "INSERT INTO a VALUES (1, 1, 1), (2, 2, 2); ALTER TABLE a ALTER COLUMN v TYPE bigint USING v * 2",
            "TRUNCATE a; INSERT INTO a VALUES (5, 1, 5)",
            "ALTER TABLE b ALTER COLUMN w TYPE numeric USING w + 0.5",
            "ALTER TABLE a ADD COLUMN extra int DEFAULT 7; UPDATE a SET extra = 1, v = v + 1",
        ] {
            run(&admin, "INSERT INTO a VALUES (900, 1, 1) ON CONFLICT DO NOTHING").await;
            run(&writer, &format!("BEGIN; {change}")).await;
            let finish = async {
                blocked(&admin, refresher).await;
                run(&writer, "COMMIT").await;
            };
            let (done, ()) = tokio::join!(try_refresh(&mut t, "over"), finish);
            done.unwrap_or_else(|e| panic!("{change}: {e:?}"));
            for (what, _) in TABLES {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

/// A watch on a refresh. From another connection, the watch alters the query of the stream table before the
/// first lock of the refresh.
struct AltersBeforeLock(Option<Driver>);

impl Watch for AltersBeforeLock {
    fn before<'s>(&'s mut self, statement: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(async move {
            if statement.kind == Kind::Lock
                && let Some(mut other) = self.0.take()
            {
                let query = Some("SELECT k, count(*) AS n FROM a WHERE id > 3 GROUP BY k".to_owned());
                other.alter(&name("kept"), &Alteration { query, ..Alteration::default() }).await?;
            }
            Ok(())
        })
    }
}

/// A query is altered before a refresh has its locks. The refresh runs the new query.
#[test]
fn a_query_is_altered_after_a_refresh_was_planned() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let (other, admin) = (open(db).await, db.session().await);
        run(&admin, SOURCES).await;
        create(&mut t, "kept", "SELECT k, count(*) AS n FROM a GROUP BY k").await;
        run(&admin, "UPDATE a SET k = 1 WHERE id < 5").await;
        let mut watch = AltersBeforeLock(Some(other));
        let options = RefreshOptions { full: true, ..RefreshOptions::default() };
        t.refresh_watched(&[name("kept")], &options, &mut watch).await.unwrap();
        assert!(watch.0.is_none());
        assert_equal(&mut t, "kept").await;
    });
}

/// Two refreshes run at the same time: one waits for the other, and no change is counted twice.
#[test]
fn two_refreshers_meet() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let mut u = open(db).await;
        let (admin, blocker) = (db.session().await, db.session().await);
        run(&admin, SOURCES).await;
        for (what, query) in TABLES {
            create(&mut t, what, query).await;
        }
        let second = pid(u.connection().client()).await;
        run(&admin, "UPDATE a SET v = v + 1; DELETE FROM b WHERE id = 3").await;
        run(&blocker, "BEGIN; LOCK TABLE grouped IN SHARE UPDATE EXCLUSIVE MODE").await;
        let first = pid(t.connection().client()).await;
        let free = async {
            blocked(&admin, first).await;
            blocked(&admin, second).await;
            run(&admin, "INSERT INTO a VALUES (300, 1, 1)").await;
            run(&blocker, "COMMIT").await;
        };
        let (one, two, ()) = tokio::join!(try_refresh(&mut t, "over"), try_refresh(&mut u, "over"), free);
        let (one, two) = (one.unwrap(), two.unwrap());
        let counted: i64 = one.iter().chain(&two).map(|r| r.report.delta_rows).sum();
        assert!(counted > 0, "{one:?}\n{two:?}");
        for (what, _) in TABLES {
            assert_equal(&mut t, what).await;
            assert_equal(&mut u, what).await;
        }
    });
}

/// A TRUNCATE is captured and rolled back like other changes.
#[test]
fn truncate_alone_with_inserts_and_of_one_side() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        for (what, query) in TABLES {
            create(&mut t, what, query).await;
        }
        for change in [
            "TRUNCATE a",
            "BEGIN; INSERT INTO a VALUES (1, 1, 1); TRUNCATE a; INSERT INTO a VALUES (2, 2, 2); COMMIT",
            "TRUNCATE b",
            "INSERT INTO b VALUES (1, 2, 3); INSERT INTO a VALUES (7, 2, 9)",
            "BEGIN; TRUNCATE a, b; ROLLBACK",
            "BEGIN; SAVEPOINT s; TRUNCATE a; ROLLBACK TO s; DELETE FROM a WHERE id = 7; COMMIT",
            "TRUNCATE a, b; INSERT INTO b VALUES (1, 1, 1)",
        ] {
            run(&w, change).await;
            for (what, _) in TABLES {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

/// A source has two readers, and one of these has a reader. Segments are rotated and dropped as often as
/// possible.
#[test]
fn segment_rotation_loses_no_change_of_a_slow_reader() {
    todays_server(async |db| {
        let mut t = open_with(db, Settings { segment_bytes: 1, ..Settings::default() }).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut t, "fast", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        create(&mut t, "slow", "SELECT id, v FROM a WHERE k < 3").await;
        create(&mut t, "below", "SELECT s FROM fast WHERE k <> 4").await;
        for i in 0..8 {
            run(&w, &format!("INSERT INTO a VALUES ({}, {i}, {i}); DELETE FROM a WHERE id = {i}; UPDATE a SET v = v + 1 WHERE k = 1", 100 + i)).await;
            refresh(&mut t, "fast").await;
        }
        assert_equal(&mut t, "slow").await;
        t.refresh(&[name("fast")], &RefreshOptions { full: true, ..RefreshOptions::default() })
            .await
            .unwrap();
        assert_equal(&mut t, "below").await;
        run(&w, "UPDATE a SET k = 4 WHERE k = 2; DELETE FROM a WHERE k = 1").await;
        t.refresh(&[name("fast")], &RefreshOptions { full: true, ..RefreshOptions::default() })
            .await
            .unwrap();
        for what in ["below", "slow", "fast"] {
            assert_equal(&mut t, what).await;
        }
        for _ in 0..4 {
            run(&w, "UPDATE a SET v = v + 1").await;
            t.refresh_all(&RefreshOptions::default()).await.unwrap();
        }
        let segments = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'changes\\_%' \
             AND relnamespace = 'pgtrickle_changes'::regnamespace";
        let buffers = count(&w, "SELECT count(*) FROM pgtrickle.pgt_buffers").await;
        assert!(count(&w, segments).await <= 2 * buffers);
    });
}

/// A statement began before its segment was closed and emptied, in a session that knows only the old trigger
/// function. The source has no index, since opening an index would make the session load the new function.
#[test]
fn a_writer_outlives_the_segment_that_its_session_knows() {
    todays_server(async |db| {
        let mut t = open_with(db, Settings { segment_bytes: 1, ..Settings::default() }).await;
        let (w, admin, gate) = (db.session().await, db.session().await, db.session().await);
        run(
            &admin,
            "CREATE TABLE a (k int, v int); CREATE FUNCTION wait(x int) RETURNS int LANGUAGE sql VOLATILE AS
            'SELECT x FROM (SELECT pg_advisory_xact_lock_shared(1)) s'",
        )
        .await;
        create(&mut t, "sums", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        for i in 0..3 {
            run(&w, "INSERT INTO a SELECT wait(1), 1").await;
            run(&gate, "SELECT pg_advisory_lock(1)").await;
            let writer = pid(w.client()).await;
            let meanwhile = async {
                blocked(&admin, writer).await;
                for i in 0..4 {
                    run(&admin, &format!("INSERT INTO a VALUES ({i}, 2)")).await;
                    refresh(&mut t, "sums").await;
                }
                run(&gate, "SELECT pg_advisory_unlock(1)").await;
            };
            let late = format!("INSERT INTO a SELECT wait(1 + {i}), 1");
            let (written, ()) = tokio::join!(w.client().batch_execute(&late), meanwhile);
            written.unwrap();
            assert_equal(&mut t, "sums").await;
        }
    });
}

/// The history reports the time that a refresh waited for locks, and separately the time of its work.
#[test]
fn waiting_for_a_lock_is_told_in_history() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let (holder, watch) = (db.session().await, db.session().await);
        run(&holder, "CREATE TABLE a (id int PRIMARY KEY, v int); INSERT INTO a VALUES (1, 1)").await;
        create(&mut t, "copy", "SELECT id, v FROM a").await;
        run(&holder, "UPDATE a SET v = 2; BEGIN; LOCK TABLE copy IN SHARE UPDATE EXCLUSIVE MODE").await;
        let waiting = pid(t.connection().client()).await;
        let release = async {
            blocked(&watch, waiting).await;
            // The wait of the refresh is at least as long as this sleep.
            run(&holder, "SELECT pg_sleep(0.05); COMMIT").await;
        };
        let (done, ()) = tokio::join!(refresh(&mut t, "copy"), release);
        let shared = done[0].shared;
        assert!(shared.wait >= 50_000 && shared.decide < shared.wait, "{shared:?}");
        let history = t.history(&name("copy"), 1).await.unwrap();
        let phases = history[0].phase_ms.as_ref().unwrap();
        assert!(phases["wait"].as_f64().unwrap() >= 50.0, "{phases}");
    });
}
