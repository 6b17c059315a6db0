//! Refreshes on schedule in a server with several databases. The tests have several refreshes at the same
//! time, refreshes that fail, refreshes of tables that somebody drops, and settings for the frequency of
//! refreshes. The tests catch a refresh that disturbs the server, and a setting without effect.

use super::rows;
use super::workers::{MADE, SCHEDULERS, STALE, scheduled, until};
use crate::support::private::{connect, newest_version, start_with};
use crate::support::{count, run};
use std::time::{Duration, Instant};
use trickle_client::Session;

/// A query for the process id of the scheduler, and for the time at which the server started.
const STANDING: &str = "SELECT (SELECT min(pid) FROM pg_stat_activity WHERE backend_type = 'pg_trickle scheduler' \
    AND datname = current_database()), pg_postmaster_start_time()";

/// Sets a setting by ALTER SYSTEM. ALTER SYSTEM cannot change a setting that the server's start command
/// gives.
async fn set(s: &Session, setting: &str, value: &str) {
    run(s, &format!("ALTER SYSTEM SET pg_trickle.{setting} = '{value}'")).await;
    run(s, "SELECT pg_reload_conf()").await;
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn failing_refreshes_are_retried_less_often_in_the_same_process() {
    newest_version(async |binaries| {
        let settings = ["shared_preload_libraries=pg_trickle", "pg_trickle.scheduler_interval_ms=50"];
        let server = start_with(binaries, "unhurt", &settings).await;
        let s = connect(&server, "postgres").await;
        set(&s, "max_consecutive_errors", "4").await;
        run(&s, MADE).await;
        run(
            &s,
            "SELECT pgtrickle.create_stream_table('bad', 'SELECT id, 10 / (k - 7) AS r FROM t', '100ms')",
        )
        .await;
        until(&s, SCHEDULERS, 1).await;
        let standing = rows(&s, STANDING).await;
        run(&s, "UPDATE t SET k = 7 WHERE id = 5").await;
        until(&s, "SELECT count(*) FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED'", 1).await;
        until(&s, STALE, 0).await;
        assert_eq!(rows(&s, STANDING).await, standing);
        let gaps = "SELECT (extract(epoch FROM start_time - lag(start_time) OVER (ORDER BY refresh_id)) * 1000)::int8 AS gap \
             FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'";
        let gaps = format!("SELECT gap FROM ({gaps} ORDER BY refresh_id) g WHERE gap IS NOT NULL");
        let gaps: Vec<i64> = s.client().query(&gaps, &[]).await.unwrap().iter().map(|r| r.get(0)).collect();
        assert!(gaps.len() == 3 && gaps.is_sorted() && gaps[2] > 2 * gaps[0], "{gaps:?}");
        server.stop();
    });
}

/// Makes a process of the server start a refresh that waits for an advisory lock.
async fn in_the_middle(s: &Session, holder: &Session) {
    run(
        s,
        "CREATE FUNCTION slow(k int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN k; END $$; \
         CREATE TABLE a (id int PRIMARY KEY, v int); \
         SELECT pgtrickle.create_stream_table('slow_a', 'SELECT id, slow(v) AS v FROM a', '1s')",
    )
    .await;
    run(holder, "SELECT pg_advisory_lock(42)").await;
    run(s, "INSERT INTO a VALUES (1, 1)").await;
    let waits = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
         WHERE a.backend_type LIKE 'pg_trickle %' AND l.locktype = 'advisory' AND NOT l.granted";
    until(s, waits, 1).await;
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_database_is_dropped_in_the_middle_of_a_refresh() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "midst").await;
        let admin = connect(&server, "postgres").await;
        run(&admin, MADE).await;
        let began = rows(&admin, "SELECT pg_postmaster_start_time()").await;
        run(&admin, "CREATE DATABASE one").await;
        let (s, holder) = (connect(&server, "one").await, connect(&server, "one").await);
        run(&s, MADE).await;
        in_the_middle(&s, &holder).await;
        let asked = Instant::now();
        run(&admin, "DROP DATABASE one WITH (FORCE)").await;
        assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
        run(&admin, "UPDATE t SET k = k + 1 WHERE id < 9").await;
        until(&admin, STALE, 0).await;
        assert_eq!(rows(&admin, "SELECT pg_postmaster_start_time()").await, began);
        server.stop();
    });
}

/// DROP waits for a refresh that uses the dropped object, as it waits for any query.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn the_extension_is_dropped_in_the_middle_of_a_refresh() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "amidst").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        let began = rows(&s, "SELECT pg_postmaster_start_time()").await;
        let (holder, other) = (connect(&server, "postgres").await, connect(&server, "postgres").await);
        for _ in 0..2 {
            in_the_middle(&s, &holder).await;
            let dropped = run(&other, "DROP EXTENSION pg_trickle CASCADE");
            let let_go = async {
                let waits = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DROP EXTENSION%' AND wait_event_type = 'Lock'";
                until(&s, waits, 1).await;
                run(&holder, "SELECT pg_advisory_unlock(42)").await;
                Instant::now()
            };
            let ((), from) = tokio::join!(dropped, let_go);
            assert!(from.elapsed() < Duration::from_secs(5), "{:?}", from.elapsed());
            let left = "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_trickle %' AND datname = current_database()";
            until(&s, left, 0).await;
            run(&s, "DROP TABLE many, counts, t, slow_a, a; DROP FUNCTION slow(int)").await;
            run(&s, MADE).await;
        }
        run(&s, "UPDATE t SET k = k + 1 WHERE id < 9").await;
        until(&s, STALE, 0).await;
        assert_eq!(rows(&s, "SELECT pg_postmaster_start_time()").await, began);
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn two_databases_are_refreshed_at_once() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "twice").await;
        let admin = connect(&server, "postgres").await;
        run(&admin, "CREATE DATABASE one").await;
        run(&admin, "CREATE DATABASE two").await;
        let both = [connect(&server, "one").await, connect(&server, "two").await];
        for s in &both {
            run(s, MADE).await;
            until(s, SCHEDULERS, 1).await;
        }
        // A refresh that waits in one database does not delay refreshes in the other database.
        let holder = connect(&server, "one").await;
        in_the_middle(&both[0], &holder).await;
        for round in 3..6 {
            for s in &both {
                run(s, &format!("UPDATE t SET k = {round} WHERE id % {round} = 0")).await;
            }
            for s in &both {
                until(s, STALE, 0).await;
            }
        }
        // The end of the scheduler in one database does not affect the other database either.
        let standing = rows(&both[1], STANDING).await;
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'pg_trickle scheduler' AND datname = current_database()";
        assert_eq!(count(&both[0], ended).await, 1);
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        until(&both[0], "SELECT count(*) FROM slow_a", 1).await;
        for s in &both {
            run(s, "DELETE FROM t WHERE id < 9").await;
            until(s, STALE, 0).await;
        }
        assert_eq!(rows(&both[1], STANDING).await, standing);
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn the_shortest_period_and_the_interval_of_looks_are_kept() {
    newest_version(async |binaries| {
        let server = start_with(binaries, "paces", &["shared_preload_libraries=pg_trickle"]).await;
        let s = connect(&server, "postgres").await;
        set(&s, "scheduler_interval_ms", "50").await;
        set(&s, "min_schedule_seconds", "2").await;
        run(&s, MADE).await;
        run(&s, "SELECT pgtrickle.alter_stream_table('counts', schedule => '20ms')").await;
        until(&s, SCHEDULERS, 1).await;
        // Returns the number of refreshes while a session writes for four seconds.
        let refreshed = async || {
            let done = "SELECT count(*) FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) \
                 WHERE s.pgt_name = 'counts' AND h.initiated_by = 'SCHEDULER' AND h.delta_row_count > 0";
            let before = count(&s, done).await;
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(4) {
                run(&s, "UPDATE t SET k = (k + 1) % 5 WHERE id = 1").await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            count(&s, done).await - before
        };
        let seldom = refreshed().await;
        set(&s, "min_schedule_seconds", "0.01").await;
        let often = refreshed().await;
        assert!((1..=4).contains(&seldom) && often > 12, "{seldom}, then {often}");
        // The scheduler finds a new stream table only when it next looks at the catalog.
        run(&s, "SELECT pgtrickle.drop_stream_table('counts', cascade => true)").await;
        set(&s, "scheduler_interval_ms", "3600000").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        run(&s, "SELECT pgtrickle.create_stream_table('ones', 'SELECT id FROM t WHERE k = 9', '50ms'); UPDATE t SET k = 9 WHERE id = 2").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(count(&s, "SELECT count(*) FROM ones").await, 0, "nobody has looked");
        set(&s, "scheduler_interval_ms", "50").await;
        until(&s, "SELECT count(*) FROM ones", 1).await;
        server.stop();
    });
}
