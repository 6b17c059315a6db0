//! A buffer that nobody drains stays near its limit. Above the limit, triggers write only a mark that the
//! source changed. The tests catch changes that are lost because they were not written, and buffers that grow
//! far above their limit.

use crate::support::{Db, Driver, assert_equal, count, create, open_with, refresh, run, todays_server};
use trickle_client::capture::CaptureOptions;
use trickle_client::{Session, Settings, Trickle};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;

const LIMIT: i64 = 32 << 10;

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int);
    CREATE TABLE b (id int PRIMARY KEY, k int);
    INSERT INTO a SELECT i, i % 4, i FROM generate_series(1, 200) i;
    INSERT INTO b SELECT i, i % 4 FROM generate_series(1, 8) i";

const TABLES: [(&str, &str); 3] = [
    ("rows", "SELECT id, v FROM a WHERE v % 3 <> 0"),
    ("sums", "SELECT a.k, count(*) AS n, sum(v) AS s FROM a JOIN b USING (k) GROUP BY a.k"),
    ("over", "SELECT k, s FROM sums WHERE s > 10"),
];

fn settings(mode: Mode, unlogged: bool) -> Settings {
    Settings {
        capture: CaptureOptions { mode, unlogged },
        segment_bytes: 8 << 10,
        buffer_limit_bytes: Some(LIMIT),
        force: Some(Force::Incremental),
        ..Settings::default()
    }
}

/// Returns bytes and rows of all segments of `a`.
async fn held(s: &Session) -> (i64, i64) {
    let oid = count(s, "SELECT 'a'::regclass::oid::int8").await;
    let bytes = format!(
        "SELECT sum(pg_relation_size(c.oid))::int8 FROM pg_class c WHERE relname LIKE 'changes\\_{oid}\\_%' AND relkind = 'r'"
    );
    let rows = format!("SELECT count(*) FROM pgtrickle_changes.changes_{oid}");
    (count(s, &bytes).await, count(s, &rows).await)
}

/// Fills the buffer of `a` past its limit.
async fn fill(w: &Session) {
    for _ in 0..20 {
        run(w, "UPDATE a SET v = v + 1").await;
    }
}

async fn stays_below(db: &Db, mode: Mode, unlogged: bool) {
    let mut t = open_with(db, settings(mode, unlogged)).await;
    let w = db.session().await;
    run(&w, SOURCES).await;
    for (what, query) in TABLES {
        create(&mut t, what, query).await;
    }
    for round in 0..3 {
        fill(&w).await;
        let (bytes, rows) = held(&w).await;
        // The buffer exceeds its limit by at most the changes of one statement.
        assert!(bytes <= LIMIT + (40 << 10), "{bytes}");
        // For later changes of each kind and in each transaction, the triggers write nothing.
        for later in [
            "INSERT INTO a VALUES (1000, 1, 1); DELETE FROM a WHERE id = 1000",
            "BEGIN; UPDATE a SET v = 0 WHERE k = 1; SAVEPOINT s; DELETE FROM a; ROLLBACK TO s; COMMIT",
            "UPDATE a SET v = v; UPDATE a SET v = 5 WHERE false",
            "BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE a SET v = v + 7 WHERE id % 10 = 0; COMMIT",
        ] {
            run(&w, later).await;
        }
        run(
            &w,
            &format!("INSERT INTO a SELECT 2000 + {round} * 100 + i, i, i FROM generate_series(1, 50) i"),
        )
        .await;
        assert_eq!(held(&w).await, (bytes, rows), "round {round}");
        let standing = t.status(&[]).await.unwrap();
        assert!(standing.iter().all(|s| s.pending == Some(true)), "{standing:?}");
        assert!(standing[0].sources.iter().any(|s| s.overflowed), "{standing:?}");
        assert!(t.buffers().await.unwrap().iter().any(|b| b.full && b.source == "public.a"));
        // The refresh of one reader notices that the buffer is full. The other readers are also recomputed,
        // each of them once.
        let done = refresh(&mut t, "rows").await;
        assert_eq!(done[0].report.action.name(), "REINITIALIZE", "{done:?}");
        assert_eq!(done[0].report.reason, "public.a was changed more than its buffer may hold");
        assert_eq!(held(&w).await.1, 0);
        run(&w, "UPDATE a SET v = v + 1 WHERE id = 3").await;
        let done = refresh(&mut t, "rows").await;
        assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
        let done = refresh(&mut t, "sums").await;
        assert_eq!(done[0].report.reason, "public.a was changed more than its buffer may hold");
        run(&w, "DELETE FROM a WHERE id = 4; UPDATE b SET k = 3 WHERE id = 1").await;
        for (what, _) in TABLES {
            let done = refresh(&mut t, what).await;
            assert!(done.iter().all(|d| d.report.action.name() != "REINITIALIZE"), "{done:?}");
            assert_equal(&mut t, what).await;
        }
        assert!(t.buffers().await.unwrap().iter().all(|b| !b.full));
    }
}

#[test]
fn an_undrained_buffer_stays_below_its_limit_by_statement() {
    todays_server(async |db| stays_below(db, Mode::Statement, false).await);
}

#[test]
fn a_buffer_that_nobody_drains_stays_below_its_limit_by_row() {
    todays_server(async |db| stays_below(db, Mode::Row, false).await);
}

#[test]
fn a_buffer_that_nobody_drains_stays_below_its_limit_unlogged() {
    todays_server(async |db| stays_below(db, Mode::Statement, true).await);
}

/// A writer whose changes the triggers did not write may commit after the recompute. The readers of the table
/// must then be recomputed again.
#[test]
fn a_silent_writer_that_commits_late_is_not_lost() {
    todays_server(async |db| {
        for late in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"] {
            let mut t = open_with(db, settings(Mode::Statement, false)).await;
            let (w, open) = (db.session().await, db.session().await);
            run(&w, SOURCES).await;
            for (what, query) in TABLES {
                create(&mut t, what, query).await;
            }
            fill(&w).await;
            run(&open, &format!("{late}; UPDATE a SET v = -1 WHERE id = 7")).await;
            run(&w, "DELETE FROM a WHERE id = 8").await;
            for _ in 0..3 {
                let done = refresh(&mut t, "rows").await;
                assert_eq!(done[0].report.action.name(), "FULL", "{done:?}");
                assert_eq!(done[0].report.reason, "public.a was changed more than its buffer may hold");
                assert_equal(&mut t, "rows").await;
                run(&w, "UPDATE a SET v = v + 1 WHERE id = 9").await;
            }
            run(&open, "COMMIT").await;
            for (what, _) in TABLES {
                refresh(&mut t, what).await;
                assert_equal(&mut t, what).await;
            }
            run(&w, "UPDATE a SET v = v + 1 WHERE id = 9").await;
            refresh(&mut t, "rows").await;
            run(&w, "UPDATE a SET v = v + 1 WHERE id = 9").await;
            let done = refresh(&mut t, "rows").await;
            assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
            for (what, _) in TABLES.iter().rev() {
                assert_equal(&mut t, what).await;
                t.drop(&crate::support::name(what), false).await.unwrap();
            }
            run(&w, "DROP TABLE a, b").await;
        }
    });
}

/// The buffer is emptied after the snapshot of a session. The session still sees the removed mark of the full
/// buffer, and must not rely on that mark.
#[test]
fn an_old_snapshot_does_not_believe_in_a_mark_that_is_gone() {
    todays_server(async |db| {
        let mut t = open_with(db, settings(Mode::Statement, false)).await;
        let (w, old) = (db.session().await, db.session().await);
        run(&w, SOURCES).await;
        create(&mut t, "rows", TABLES[0].1).await;
        fill(&w).await;
        run(&old, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        // This query takes the session's snapshot, under which the buffer is full, and loads `b` with its
        // triggers.
        assert_eq!(count(&old, "SELECT count(*) FROM b").await, 8);
        refresh(&mut t, "rows").await;
        assert_equal(&mut t, "rows").await;
        fill(&w).await;
        run(&old, "UPDATE b SET k = 9; INSERT INTO a VALUES (5000, 1, 1); COMMIT").await;
        assert_equal(&mut t, "rows").await;
        run(&w, "INSERT INTO a VALUES (5001, 1, 1)").await;
        assert_equal(&mut t, "rows").await;
    });
}

/// A reader of more columns is created while the buffer is full, and the limit is changed later.
#[test]
fn a_full_buffer_is_widened_and_its_limit_moves() {
    todays_server(async |db| {
        let mut t = open_with(db, settings(Mode::Statement, false)).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut t, "rows", TABLES[0].1).await;
        fill(&w).await;
        create(&mut t, "sums", TABLES[1].1).await;
        run(&w, "UPDATE a SET k = k + 1 WHERE id % 5 = 0").await;
        assert_equal(&mut t, "sums").await;
        assert_equal(&mut t, "rows").await;
        run(&w, "UPDATE a SET k = k + 1 WHERE id % 5 = 0").await;
        let done = refresh(&mut t, "sums").await;
        assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
        assert_equal(&mut t, "rows").await;
        let limits = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'capture%' AND prosrc LIKE '%65536%'";
        assert_eq!(count(&w, limits).await, 0);
        let wide = Settings { buffer_limit_bytes: Some(64 << 10), ..settings(Mode::Statement, false) };
        let mut t = open_with(db, wide).await;
        fill(&w).await;
        // The buffer is full by the old limit, so the stream tables are recomputed. After that the new limit
        // applies.
        for what in ["rows", "sums"] {
            let done = refresh(&mut t, what).await;
            assert_eq!(done[0].report.action.name(), "REINITIALIZE", "{done:?}");
            assert_equal(&mut t, what).await;
        }
        assert_eq!(count(&w, limits).await, 4 * 2);
        run(&w, "UPDATE a SET v = v + 1; UPDATE a SET v = v + 1").await;
        let done = refresh(&mut t, "rows").await;
        assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
        for what in ["rows", "sums"] {
            assert_equal(&mut t, what).await;
        }
    });
}

/// Many writers reach the limit while refreshes run.
#[test]
fn writers_and_refreshes_meet_at_the_limit() {
    todays_server(async |db| {
        let mut t = open_with(db, settings(Mode::Statement, false)).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        for (what, query) in TABLES {
            create(&mut t, what, query).await;
        }
        let writers: Vec<Session> = vec![db.session().await, db.session().await, db.session().await];
        let write = async |n: usize, s: &Session| {
            for i in 0..60 {
                run(s, &format!("UPDATE a SET v = v + {i} WHERE id % 3 = {n}")).await;
                run(
                    s,
                    &format!(
                        "BEGIN; INSERT INTO a VALUES ({0}, {i}, 1); DELETE FROM a WHERE id = {0} - 7; COMMIT",
                        10_000 * (n + 1) + i
                    ),
                )
                .await;
            }
        };
        let keep = async {
            for _ in 0..12 {
                for (what, _) in TABLES {
                    crate::support::try_refresh(&mut t, what).await.unwrap_or_else(|e| panic!("{e:?}"));
                }
            }
        };
        tokio::join!(write(0, &writers[0]), write(1, &writers[1]), write(2, &writers[2]), keep);
        for (what, _) in TABLES {
            assert_equal(&mut t, what).await;
        }
        run(&w, "UPDATE a SET v = v + 1 WHERE id = 3").await;
        for (what, _) in TABLES {
            refresh(&mut t, what).await;
            refresh(&mut t, what).await;
            assert_equal(&mut t, what).await;
        }
        assert!(t.buffers().await.unwrap().iter().all(|b| !b.full));
    });
}

/// Clients with different limits must not make the triggers again and again. The limit of the last `init`
/// applies to all clients.
#[test]
fn the_limit_is_one_for_all_clients() {
    todays_server(async |db| {
        // A new segment would have a new trigger function too. So the segments are so large that this test
        // rotates none.
        let one = Settings { segment_bytes: 1 << 20, ..settings(Mode::Statement, false) };
        let mut t = open_with(db, one.clone()).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        create(&mut t, "rows", TABLES[0].1).await;
        let other = Settings { buffer_limit_bytes: Some(64 << 10), ..one };
        let mut other = Driver::of(Trickle::open(db.session().await, other).await.unwrap());
        let triggers = "SELECT coalesce(sum(p.xmin::text::int8 * p.oid::int8), 0)::int8 FROM pg_proc p WHERE proname LIKE 'capture%'";
        let made = count(&w, triggers).await;
        for _ in 0..3 {
            for client in [&mut t, &mut other] {
                run(&w, "UPDATE a SET v = v + 1 WHERE id = 3").await;
                refresh(client, "rows").await;
                assert_eq!(count(&w, triggers).await, made);
            }
        }
        create(&mut other, "sums", TABLES[1].1).await;
        assert!(t.buffers().await.unwrap().iter().all(|b| b.limit_bytes == LIMIT));
        other.init().await.unwrap();
        refresh(&mut t, "rows").await;
        refresh(&mut t, "sums").await;
        assert!(t.buffers().await.unwrap().iter().all(|b| b.limit_bytes == 64 << 10));
        assert_equal(&mut t, "sums").await;
    });
}
