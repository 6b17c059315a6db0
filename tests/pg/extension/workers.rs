//! The server refreshes on schedule. The tests catch a scheduler that misses a change or a database, that
//! stays in a database without the extension, or that obstructs a user.

use super::crashes::cast;
use super::deaths::Death;
use super::rows;
use super::stops::{At, STOPS, flat, make, writes};
use crate::support::private::{connect, newest_version, start_with};
use crate::support::{count, newest_server, run};
use std::path::Path;
use std::time::{Duration, Instant};
use trickle_client::Session;
use trickle_client::throwaway::Server;

pub(super) async fn scheduled(binaries: &Path, name: &str) -> Server {
    let settings = [
        "shared_preload_libraries=pg_trickle",
        "pg_trickle.scheduler_interval_ms=50",
        "pg_trickle.min_schedule_seconds=0.01",
        "pg_trickle.max_consecutive_errors=2",
        "max_prepared_transactions=2",
    ];
    start_with(binaries, name, &settings).await
}

/// A query for the processes, stream tables, newest history and leases, for the message of a wait that timed
/// out.
const STANDING: &str = "SELECT concat_ws(E'\\n',
    (SELECT string_agg(concat_ws(' ', backend_type, application_name, state, wait_event, now() - backend_start, left(query, 80)), E'\\n')
        FROM pg_stat_activity WHERE backend_type LIKE 'pg_trickle%'),
    (SELECT string_agg(to_jsonb(s)::text, E'\\n') FROM pgtrickle.pgt_stream_tables s),
    (SELECT string_agg(to_jsonb(h)::text, E'\\n') FROM (SELECT * FROM pgtrickle.pgt_refresh_history ORDER BY refresh_id DESC LIMIT 5) h),
    (SELECT string_agg(to_jsonb(l)::text, E'\\n') FROM pgtrickle.pgt_leases l))";

/// Waits until a query returns the wanted number.
pub(super) async fn until(s: &Session, question: &str, wanted: i64) {
    let began = Instant::now();
    while count(s, question).await != wanted {
        if began.elapsed() > Duration::from_secs(60) {
            panic!(
                "not {wanted}: {question}\n{:?}",
                s.client().query(STANDING, &[]).await.map(|r| r[0].get::<_, String>(0))
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) const SCHEDULERS: &str = "SELECT count(*) FROM pg_stat_activity \
    WHERE backend_type = 'pg_trickle scheduler' AND datname = current_database()";

pub(super) const MADE: &str = "CREATE EXTENSION pg_trickle; CREATE TABLE t (id int PRIMARY KEY, k int);
    INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 30) i;
    SELECT pgtrickle.create_stream_table('counts', 'SELECT k, count(*) AS n FROM t GROUP BY k', '1s');
    SELECT pgtrickle.create_stream_table('many', 'SELECT k FROM counts WHERE n > 10', 'calculated')";

/// A query for the number of missing and surplus rows in the stream tables.
pub(super) const STALE: &str =
    "SELECT count(*) FROM ((SELECT k, count(*) AS n FROM t GROUP BY k) EXCEPT ALL TABLE counts) x";

#[test]
#[ignore = "needs the extension: ./x extension"]
fn the_server_refreshes_on_schedule_before_and_after_a_crash() {
    newest_version(async |binaries| {
        let mut server = scheduled(binaries, "sched").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        until(&s, SCHEDULERS, 1).await;
        run(&s, "UPDATE t SET k = 1 WHERE id < 20").await;
        until(&s, STALE, 0).await;
        let by = "SELECT count(DISTINCT initiated_by) FROM pgtrickle.get_refresh_history('counts') WHERE initiated_by = 'SCHEDULER'";
        assert_eq!(count(&s, by).await, 1);
        // After all processes died and were started again, each committed change is applied once.
        run(&s, "UPDATE t SET k = 2 WHERE id % 2 = 0").await;
        server.crash().unwrap();
        server.ready().await.unwrap();
        let s = connect(&server, "postgres").await;
        until(&s, STALE, 0).await;
        // The server starts a killed scheduler again.
        let killed = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'pg_trickle scheduler'";
        assert_eq!(count(&s, killed).await, 1);
        run(&s, "DELETE FROM t WHERE k = 1").await;
        until(&s, STALE, 0).await;
        until(&s, SCHEDULERS, 1).await;
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_failing_stream_table_is_suspended_and_delays_no_other() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "fails").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        run(&s, "SELECT pgtrickle.create_stream_table('ratio', 'SELECT id, 10 / k AS r FROM t WHERE k > 0', '1s')").await;
        run(&s, "ALTER TABLE t ADD CHECK (true); SELECT pgtrickle.create_stream_table('bad', 'SELECT id, 10 / (k - 7) AS r FROM t', '1s')")
            .await;
        run(&s, "UPDATE t SET k = 7 WHERE id = 5").await;
        let suspended = "SELECT count(*) FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED'";
        until(&s, suspended, 1).await;
        until(&s, STALE, 0).await;
        let told = "SELECT name, consecutive_errors, last_error_message FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED'";
        let told = rows(&s, told).await;
        assert_eq!(told[0][1].as_deref(), Some("2"), "{told:?}");
        assert!(told[0][2].as_deref().is_some_and(|m| m.contains("division by zero")), "{told:?}");
        run(&s, "UPDATE t SET k = 3 WHERE id = 5; SELECT pgtrickle.resume_stream_table('bad')").await;
        until(&s, "SELECT count(*) FROM bad WHERE id = 5 AND r = -2", 1).await;
        // The server does not run the query of a stream table whose owner has no rights by `grant_to`.
        run(&s, "CREATE ROLE other; ALTER TABLE ratio OWNER TO other; UPDATE t SET k = 2").await;
        until(&s, STALE, 0).await;
        assert_ne!(count(&s, "SELECT count(*) FROM ratio WHERE r = 5").await, 30);
        server.stop();
    });
}

/// A statement that runs too long is cancelled and counts as a failure. The reason is recorded, and later
/// statements run as usual.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_statement_that_takes_too_long_is_cancelled_and_told() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "toolong").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        run(
            &s,
            "CREATE FUNCTION slow(k int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
             $$ BEGIN IF k = 7 THEN PERFORM pg_sleep(60); END IF; RETURN k; END $$; \
             SELECT pgtrickle.create_stream_table('waits', 'SELECT id, slow(k) AS k FROM t', '1s')",
        )
        .await;
        run(&s, "ALTER SYSTEM SET pg_trickle.statement_timeout_ms = 300").await;
        run(&s, "SELECT pg_reload_conf()").await;
        run(&s, "UPDATE t SET k = 7 WHERE id = 5").await;
        until(&s, "SELECT count(*) FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED'", 1).await;
        let told = "SELECT name, last_error_message FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED'";
        let told = rows(&s, told).await;
        assert!(told[0][1].as_deref().is_some_and(|m| m.contains("statement timeout")), "{told:?}");
        until(&s, STALE, 0).await;
        run(&s, "UPDATE t SET k = 3 WHERE id = 5; SELECT pgtrickle.resume_stream_table('waits')").await;
        until(&s, "SELECT count(*) FROM waits WHERE id = 5 AND k = 3", 1).await;
        server.stop();
    });
}

/// A stream table with a schedule of milliseconds costs few transactions while nobody writes. Soon after a
/// write the stream table is up to date.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn idle_schedulers_start_few_transactions() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "still").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        run(&s, "SELECT pgtrickle.alter_stream_table('counts', schedule => '20ms')").await;
        for round in 0..3 {
            run(&s, &format!("UPDATE t SET k = {round} WHERE id < 10")).await;
            until(&s, STALE, 0).await;
        }
        // A transaction that writes and then refreshes leaves no new changes for the scheduler.
        run(
            &s,
            "BEGIN; UPDATE t SET k = 1 WHERE id < 9; SELECT pgtrickle.refresh_stream_table('many'); COMMIT",
        )
        .await;
        // The scheduler first empties buffers that have no new changes, and this takes transactions too.
        let empty = "SELECT count(*) FROM pgtrickle.change_buffer_sizes() WHERE bytes > 0";
        until(&s, empty, 0).await;
        let ended =
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        let wait = Duration::from_secs(4);
        tokio::time::sleep(wait).await;
        let before = count(&s, ended).await;
        tokio::time::sleep(wait).await;
        let after = count(&s, ended).await;
        assert!(after - before < 60, "{} transactions, of 200 looks", after - before);
        run(&s, "UPDATE t SET k = 4 WHERE id < 10").await;
        until(&s, STALE, 0).await;
        // The scheduler also notices the changes of a COMMIT PREPARED.
        run(&s, "BEGIN; UPDATE t SET k = 5 WHERE id < 10; PREPARE TRANSACTION 'two'").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        run(&s, "COMMIT PREPARED 'two'").await;
        until(&s, STALE, 0).await;
        assert_eq!(count(&s, "SELECT n FROM counts WHERE k = 5").await, 9);
        // With this schedule the scheduler checks the stream table less often than it reads the catalog.
        // Reading the catalog does not show whether the stream table has changes.
        run(&s, "SELECT pgtrickle.alter_stream_table('counts', schedule => '1s')").await;
        let seen = seen_after(&s, 7, 150).await;
        assert!(seen.iter().all(|d| *d < Duration::from_secs(4)), "{seen:?}");
        server.stop();
    });
}

/// Returns the times from the commits of changes until the changes were visible, the shortest first. The
/// pause between two commits grows by `step` milliseconds, up to a second. So the commits fall at different
/// points of the scheduler's round.
async fn seen_after(s: &Session, commits: u64, step: u64) -> Vec<Duration> {
    let mut all = Vec::new();
    for n in 0..commits {
        tokio::time::sleep(Duration::from_millis(n * step % 1000)).await;
        run(s, &format!("UPDATE t SET k = {n} WHERE id < 10")).await;
        let committed = Instant::now();
        until(s, STALE, 0).await;
        all.push(committed.elapsed());
    }
    all.sort_unstable();
    all
}

/// The scheduler notices a commit at the period of the stream table's schedule, and not only when it reads
/// the catalog. The test compares the median of many times, since the machine also does other work. The limit
/// is 25 periods, a twentieth of the interval between two readings of the catalog.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_commit_is_seen_long_before_the_catalog_is_looked_at() {
    newest_version(async |binaries| {
        let preload = ["shared_preload_libraries=pg_trickle", "pg_trickle.scheduler_interval_ms=10000"];
        let server = start_with(binaries, "soon", &preload).await;
        let s = connect(&server, "postgres").await;
        run(&s, &MADE.replace("1s", "20ms")).await;
        // The scheduler refreshes the stream table only after it has read the catalog.
        let looked = "SELECT count(*) WHERE EXISTS (SELECT FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER')";
        run(&s, "UPDATE t SET k = 5 WHERE id < 3").await;
        until(&s, looked, 1).await;
        let seen = seen_after(&s, 41, 3).await;
        assert!(seen[seen.len() / 2] < Duration::from_millis(500), "{seen:?}");
        server.stop();
    });
}

/// Up to the allowed number of refreshers, groups without a common stream table do not wait for each other.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_slow_refresh_keeps_no_other_group_waiting() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "beside").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        run(
            &s,
            "CREATE FUNCTION slow(k int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
                     $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN k; END $$; \
                 CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY, v int); \
                 SELECT pgtrickle.create_stream_table('slow_a', 'SELECT id, slow(v) AS v FROM a', '1s'); \
                 SELECT pgtrickle.create_stream_table('slow_b', 'SELECT id, slow(v) AS v FROM b', '1s')",
        )
        .await;
        let holder = connect(&server, "postgres").await;
        run(&holder, "SELECT pg_advisory_lock(42)").await;
        run(&s, "INSERT INTO a VALUES (1, 1); INSERT INTO b VALUES (1, 1)").await;
        let both = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
             WHERE a.backend_type = 'pg_trickle refresher' AND l.locktype = 'advisory' AND NOT l.granted";
        until(&s, both, 2).await;
        for id in 1..4 {
            run(&s, &format!("UPDATE t SET k = 9 WHERE id = {id}")).await;
            until(&s, STALE, 0).await;
        }
        // One of two refreshers is killed, and a new refresher does the work of the killed one.
        let killed = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
             WHERE a.backend_type = 'pg_trickle refresher' AND l.locktype = 'advisory' AND NOT l.granted LIMIT 1) x";
        assert_eq!(count(&s, killed).await, 1);
        until(&s, both, 2).await;
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        until(&s, "SELECT count(*) FROM (TABLE slow_a UNION ALL TABLE slow_b) x", 2).await;
        // With `parallel_refresh_mode` off, refreshes run one after the other, with the same result.
        run(&s, "ALTER SYSTEM SET pg_trickle.parallel_refresh_mode = off").await;
        run(&s, "SELECT pg_reload_conf()").await;
        run(&holder, "SELECT pg_advisory_lock(42)").await;
        run(&s, "UPDATE a SET v = 2; UPDATE b SET v = 3; UPDATE t SET k = 5").await;
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        until(&s, waiting, 1).await;
        for _ in 0..20 {
            assert_eq!(count(&s, waiting).await, 1);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        until(&s, "SELECT sum(v) FROM (TABLE slow_a UNION ALL TABLE slow_b) x", 5).await;
        until(&s, STALE, 0).await;
        server.stop();
    });
}

/// A migration does not wait for the end of a long refresh. The refresh rolls back, and begins again after
/// the migration.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_refresh_gives_way_to_a_migration_and_comes_back() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "yields").await;
        let s = connect(&server, "postgres").await;
        run(&s, "CREATE EXTENSION pg_trickle").await;
        run(&s, "ALTER SYSTEM SET pg_trickle.give_way_ms = 300").await;
        run(&s, "SELECT pg_reload_conf()").await;
        run(
            &s,
            "CREATE FUNCTION slow(k int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
                     $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN k; END $$; \
                 CREATE TABLE a (id int PRIMARY KEY, v int); \
                 SELECT pgtrickle.create_stream_table('slow_a', 'SELECT id, slow(v) AS v FROM a', '1s')",
        )
        .await;
        let holder = connect(&server, "postgres").await;
        run(&holder, "SELECT pg_advisory_lock(42)").await;
        run(&s, "INSERT INTO a VALUES (1, 1)").await;
        let at_work = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
             WHERE a.backend_type = 'pg_trickle refresher' AND l.locktype = 'advisory' AND NOT l.granted";
        for change in ["ADD more int", "DROP more", "ADD more int"] {
            until(&s, at_work, 1).await;
            // If the refresh kept its locks, ALTER TABLE would wait for ever, since nobody releases the lock
            // that the refresh waits for.
            run(&s, &format!("ALTER TABLE a {change}")).await;
        }
        let gave_way = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'SKIPPED' \
             AND strategy_reason LIKE 'gave way to process %, which waits for an exclusive lock on %a'";
        until(&s, gave_way, 3).await;
        let told = "SELECT count(*) FROM pgtrickle.health_check() h WHERE h::text LIKE '%gave way to process%pg_trickle.give_way_ms%'";
        assert_eq!(count(&s, told).await, 1);
        assert_eq!(
            count(&s, "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE consecutive_errors > 0").await,
            0
        );
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        until(&s, "SELECT count(*) FROM slow_a", 1).await;
        server.stop();
    });
}

/// At most `max_concurrent_refreshes` groups are refreshed at the same time, however many are due.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn no_more_than_so_many_are_refreshed_at_a_time() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "bounded").await;
        let s = connect(&server, "postgres").await;
        run(&s, "ALTER SYSTEM SET pg_trickle.max_concurrent_refreshes = 2").await;
        run(&s, "SELECT pg_reload_conf()").await;
        run(
            &s,
            "CREATE EXTENSION pg_trickle; CREATE FUNCTION slow(k int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
                 $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN k; END $$",
        )
        .await;
        for t in ["a", "b", "c", "d"] {
            run(
                &s,
                &format!(
                    "CREATE TABLE {t} (id int PRIMARY KEY, v int); INSERT INTO {t} VALUES (1, 1); \
                 SELECT pgtrickle.create_stream_table('slow_{t}', 'SELECT id, slow(v) AS v FROM {t}', '1s')"
                ),
            )
            .await;
        }
        let holder = connect(&server, "postgres").await;
        run(&holder, "SELECT pg_advisory_lock(42)").await;
        run(&s, "UPDATE a SET v = 2; UPDATE b SET v = 2; UPDATE c SET v = 2; UPDATE d SET v = 2").await;
        let at_work = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
             WHERE a.backend_type LIKE 'pg_trickle %' AND l.locktype = 'advisory' AND NOT l.granted";
        until(&s, at_work, 2).await;
        for _ in 0..15 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(count(&s, at_work).await, 2);
        }
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        let sum = "SELECT sum(v) FROM (TABLE slow_a UNION ALL TABLE slow_b UNION ALL TABLE slow_c UNION ALL TABLE slow_d) x";
        until(&s, sum, 8).await;
        server.stop();
    });
}

/// A stream table that is not linked to its source waits for that source, and for no other reader of the
/// source.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn server_refreshes_unlinked_tables_after_their_own_sources() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "apart").await;
        let s = connect(&server, "postgres").await;
        run(
            &s,
            "CREATE EXTENSION pg_trickle; CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1); \
                 CREATE FUNCTION slow(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
                     $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN v; END $$; \
                 SELECT pgtrickle.create_stream_table('base', 'SELECT id, v FROM t', '1s'); \
                 SELECT pgtrickle.create_stream_table('slow_half', 'SELECT id, slow(v) AS v FROM base', '1s', diamond_consistency => 'none'); \
                 SELECT pgtrickle.create_stream_table('quick_half', 'SELECT id, v FROM base', '1s', diamond_consistency => 'none'); \
                 SELECT pgtrickle.create_stream_table('wide', 'SELECT a.id, a.v AS slow, b.v AS quick FROM slow_half a JOIN quick_half b USING (id)', \
                     '1s', diamond_consistency => 'none')",
        )
        .await;
        let holder = connect(&server, "postgres").await;
        run(&holder, "SELECT pg_advisory_lock(42)").await;
        let done_before = "SELECT count(*) FROM pgtrickle.get_refresh_history('wide')";
        let refreshes = count(&s, done_before).await;
        run(&s, "UPDATE t SET v = 2").await;
        let waits = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) \
             WHERE a.backend_type LIKE 'pg_trickle %' AND l.locktype = 'advisory' AND NOT l.granted";
        until(&s, waits, 1).await;
        for v in 3..6 {
            until(&s, &format!("SELECT count(*) FROM quick_half WHERE v = {v} - 1"), 1).await;
            run(&s, &format!("UPDATE t SET v = {v}")).await;
        }
        until(&s, "SELECT count(*) FROM quick_half WHERE v = 5", 1).await;
        assert_eq!(count(&s, "SELECT count(*) FROM slow_half WHERE v = 1").await, 1);
        assert_eq!(count(&s, done_before).await, refreshes, "it waits for the slow half");
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        until(&s, "SELECT count(*) FROM wide WHERE slow = 5 AND quick = 5", 1).await;
        assert_eq!(
            rows(&s, "SELECT name FROM pgtrickle.pgt_status() WHERE status <> 'ACTIVE'").await.len(),
            0
        );
        // The stream tables are linked again, so one transaction refreshes all of them, at one snapshot.
        run(&s, "SELECT pgtrickle.alter_stream_table(name, diamond_consistency => 'atomic') FROM pgtrickle.pgt_status()")
            .await;
        run(&s, "UPDATE t SET v = 6").await;
        until(&s, "SELECT count(*) FROM wide WHERE slow = 6 AND quick = 6", 1).await;
        let moments = "SELECT count(DISTINCT data_timestamp) FROM (SELECT DISTINCT ON (pgt_id) data_timestamp \
             FROM pgtrickle.pgt_refresh_history ORDER BY pgt_id, refresh_id DESC) x";
        assert_eq!(count(&s, moments).await, 1);
        server.stop();
    });
}

/// A process of the server could take any role. So functions that a query calls must not change the role of
/// the process.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn functions_of_a_query_cannot_change_the_workers_role() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "acts").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        run(
            &s,
            "CREATE FUNCTION climb(k int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
                 $$ BEGIN PERFORM set_config('role', 'none', false); RETURN k; END $$; \
                 SELECT pgtrickle.create_stream_table('climbed', 'SELECT id, climb(k) AS k FROM t', '1s'); \
                 UPDATE t SET k = 8 WHERE id = 8",
        )
        .await;
        until(&s, "SELECT count(*) FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED'", 1).await;
        let told =
            rows(&s, "SELECT last_error_message FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED'")
                .await;
        assert!(told[0][0].as_deref().is_some_and(|m| m.contains("\"role\"")), "{told:?}");
        server.stop();
    });
}

/// The owner of a database can set the search_path of every session in that database.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn names_of_a_database_are_not_those_that_its_scheduler_goes_by() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "names").await;
        let admin = connect(&server, "postgres").await;
        run(&admin, "CREATE DATABASE one").await;
        let s = connect(&server, "one").await;
        run(&s, "CREATE SCHEMA evil; \
                 CREATE FUNCTION evil.same(name, name) RETURNS bool LANGUAGE plpgsql AS \
                 $$ BEGIN CREATE TABLE IF NOT EXISTS evil.ran (); RETURN $1::text OPERATOR(pg_catalog.=) $2::text; END $$; \
                 CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = name, FUNCTION = evil.same)")
            .await;
        run(&s, "ALTER DATABASE one SET search_path = evil, pg_catalog, public").await;
        run(&s, MADE).await;
        until(&s, SCHEDULERS, 1).await;
        run(&s, "UPDATE t SET k = 4").await;
        until(&s, STALE, 0).await;
        assert_eq!(count(&s, "SELECT count(to_regclass('evil.ran'))").await, 0);
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_deferred_constraint_fails_only_its_own_refresh() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "put").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        run(&s, "SELECT pgtrickle.create_stream_table('ones', 'SELECT id, k FROM t WHERE k = 1', '1s'); \
                 CREATE TABLE refers (id int REFERENCES ones DEFERRABLE INITIALLY DEFERRED); INSERT INTO refers VALUES (1)")
            .await;
        run(&s, "UPDATE t SET k = 2 WHERE id = 1").await;
        until(&s, "SELECT count(*) FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED'", 1).await;
        until(&s, STALE, 0).await;
        let told =
            rows(&s, "SELECT last_error_message FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED'")
                .await;
        assert!(told[0][0].as_deref().is_some_and(|m| m.contains("foreign key")), "{told:?}");
        assert_eq!(count(&s, "SELECT count(*) FROM ones WHERE id = 1").await, 1, "it is undone");
        run(&s, "DELETE FROM refers; SELECT pgtrickle.resume_stream_table('ones')").await;
        until(&s, "SELECT count(*) FROM ones WHERE id = 1", 0).await;
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn schedulers_follow_extension_setting_and_database() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "comes").await;
        let admin = connect(&server, "postgres").await;
        run(&admin, "CREATE DATABASE one").await;
        let s = connect(&server, "one").await;
        run(&s, MADE).await;
        until(&s, SCHEDULERS, 1).await;
        run(&admin, "ALTER SYSTEM SET pg_trickle.enabled = off").await;
        run(&admin, "SELECT pg_reload_conf()").await;
        until(&s, SCHEDULERS, 0).await;
        run(&admin, "ALTER SYSTEM RESET pg_trickle.enabled").await;
        run(&admin, "SELECT pg_reload_conf()").await;
        run(&s, "DELETE FROM t WHERE id < 10").await;
        until(&s, STALE, 0).await;
        run(&s, "DROP EXTENSION pg_trickle CASCADE").await;
        until(&s, SCHEDULERS, 0).await;
        run(&s, "DROP TABLE IF EXISTS many, counts, t CASCADE").await;
        run(&s, MADE).await;
        until(&s, SCHEDULERS, 1).await;
        drop(s);
        let others =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = 'one' AND backend_type = 'client backend'";
        until(&admin, others, 0).await;
        run(&admin, "DROP DATABASE one").await;
        server.stop();
    });
}

/// Returns the text of a query for the number of missing and surplus rows in the stream tables.
fn stale() -> String {
    let differ =
        |name| format!("(TABLE {name} EXCEPT ALL {0}) UNION ALL ({0} EXCEPT ALL TABLE {name})", flat(name));
    format!(
        "SELECT (SELECT count(*) FROM ({}) x) + (SELECT count(*) FROM ({}) x)",
        differ("total"),
        differ("large")
    )
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_refresher_that_dies_is_replaced_and_its_refresh_done() {
    newest_version(async |binaries| {
        let mut server = scheduled(binaries, "sdies").await;
        let s = connect(&server, "postgres").await;
        run(&s, "CREATE EXTENSION pg_trickle").await;
        make(&s).await;
        run(&s, "SELECT pgtrickle.alter_stream_table('large', schedule => '1s')").await;
        run(&s, "ALTER SYSTEM SET pg_trickle.refresh_strategy = 'differential'").await;
        run(&s, "SELECT pg_reload_conf()").await;
        let stale = stale();
        let stops = STOPS
            .iter()
            .filter(|s| s.at > At::Locking && s.open && s.block != "SELECT bar('total', 'ACCESS EXCLUSIVE')");
        for (n, (stop, death)) in
            (1..).zip(stops.zip([Death::Process, Death::All, Death::Process, Death::Head].iter().cycle()))
        {
            let cast = cast(&server).await;
            until(&cast.eye, SCHEDULERS, 1).await;
            until(&cast.eye, &stale, 0).await;
            let process = cast.held(stop.block, &writes(2 * n, 1)).await;
            run(&cast.writer, &writes(2 * n + 1, 1)).await;
            death.of(&mut server, process, &cast).await;
            let s = connect(&server, "postgres").await;
            until(&s, &stale, 0).await;
            assert_eq!(
                rows(&s, "SELECT name FROM pgtrickle.pgt_status() WHERE status <> 'ACTIVE'").await.len(),
                0
            );
        }
        server.stop();
    });
}

/// The server's scheduler and `trickle run` work on one database. One of them refreshes. When that one stops,
/// the other one refreshes.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn trickle_run_takes_over_when_the_servers_scheduler_stops() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "both").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        let held = |holder: &str| {
            format!("SELECT count(*) FROM pgtrickle.pgt_leases WHERE starts_with(holder, '{holder}')")
        };
        until(&s, &held("pg_trickle in this server"), 1).await;
        let to = format!("host={} user=postgres dbname=postgres", server.directory().display());
        let mut outside = std::process::Command::new(env!("CARGO_BIN_EXE_trickle"))
            .args(["run", "--quiet", "--database-url", &to])
            .spawn()
            .unwrap();
        let applied = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER' \
             AND delta_row_count > 0 AND pgt_id = (SELECT min(pgt_id) FROM pgtrickle.pgt_stream_tables)";
        for round in 1..4 {
            run(&s, &format!("UPDATE t SET k = {round} WHERE id % 7 = {round}")).await;
            until(&s, STALE, 0).await;
            assert_eq!(count(&s, applied).await, round);
        }
        assert_eq!(count(&s, &held("pg_trickle in this server")).await, 1);
        run(&s, "ALTER SYSTEM SET pg_trickle.enabled = off").await;
        run(&s, "SELECT pg_reload_conf()").await;
        until(&s, &held("trickle run on"), 1).await;
        run(&s, "UPDATE t SET k = 9 WHERE id = 9").await;
        until(&s, STALE, 0).await;
        assert_eq!(count(&s, applied).await, 4);
        outside.kill().unwrap();
        outside.wait().unwrap();
        server.stop();
    });
}

/// `trickle bench --latency --extension` measures refreshes by the server, without the program.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn bench_measures_the_latency_of_the_servers_workers() {
    let idle = crate::program::bench::latency(&["--extension"]);
    assert!(idle["refresher_cpu_ms_per_second"].is_null(), "{idle}");
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn an_unplannable_table_stays_suspended_after_the_error() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, "CREATE EXTENSION pg_trickle; CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t VALUES (1, 1)").await;
        for name in ["kept", "caught", "read"] {
            let make = format!("SELECT pgtrickle.create_stream_table('{name}', 'SELECT k FROM t', 'manual')");
            run(&s, &make).await;
        }
        run(&s, "DROP TABLE t").await;
        let standing = |name: &str| {
            format!(
                "SELECT count(*) FROM pgtrickle.pgt_stream_tables s JOIN pgtrickle.pgt_refresh_history h USING (pgt_id) \
                 WHERE pgt_name = '{name}' AND s.status = 'SUSPENDED' AND last_error_message LIKE '%\"public.t\" does not exist%' \
                 AND h.status = 'FAILED' AND h.initiated_by = 'MANUAL'"
            )
        };
        let failed = s.client().batch_execute("SELECT pgtrickle.refresh_stream_table('kept')").await;
        assert!(failed.is_err());
        until(&s, &standing("kept"), 1).await;
        // While the transaction is open, the planner is not started yet.
        let caught = "BEGIN; DO $$ BEGIN PERFORM pgtrickle.refresh_stream_table('caught'); RAISE 'no error'; \
             EXCEPTION WHEN undefined_table THEN NULL; END $$";
        run(&s, caught).await;
        let other = db.session().await;
        assert_eq!(count(&other, &standing("caught")).await, 0);
        run(&s, "COMMIT").await;
        until(&other, &standing("caught"), 1).await;
        // The planner waits only for a short time for a lock, and can be terminated.
        let planners = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_trickle planner'";
        until(&other, planners, 0).await;
        run(&s, "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t VALUES (2, 2)").await;
        run(&s, "SELECT pgtrickle.refresh_stream_table('read'); DROP TABLE t").await;
        run(&other, &caught.replace("'caught'", "'read'")).await;
        run(&s, "BEGIN; LOCK TABLE pgtrickle.pgt_stream_tables IN EXCLUSIVE MODE").await;
        run(&other, "COMMIT").await;
        until(&other, planners, 1).await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pg_trickle planner'";
        run(&other, end).await;
        until(&other, planners, 0).await;
        run(&s, "COMMIT; CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t VALUES (2, 2)").await;
        for name in ["kept", "caught", "read"] {
            run(&s, &format!("SELECT pgtrickle.resume_stream_table('{name}')")).await;
            run(&s, &format!("SELECT pgtrickle.refresh_stream_table('{name}')")).await;
            assert_eq!(count(&s, &format!("SELECT sum(k) FROM {name}")).await, 2);
        }
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn refreshes_by_hand_beside_the_scheduler_do_not_deadlock() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "byhand").await;
        let s = connect(&server, "postgres").await;
        run(&s, MADE).await;
        run(
            &s,
            "CREATE TABLE u (id int PRIMARY KEY, k int); INSERT INTO u SELECT i, i % 3 FROM generate_series(1, 30) i;
             SELECT pgtrickle.create_stream_table('pairs', 'SELECT t.k, count(*) AS n FROM t JOIN u USING (id) GROUP BY t.k', '50ms');
             SELECT pgtrickle.create_stream_table('over', 'SELECT c.k, b.n FROM counts c JOIN pairs b USING (k)', '50ms')",
        )
        .await;
        let again = async |statements: &str| {
            let s = connect(&server, "postgres").await;
            for _ in 0..60 {
                run(&s, statements).await;
            }
        };
        tokio::join!(
            again("UPDATE t SET k = (k + 1) % 3 WHERE id % 7 = 1"),
            again(
                "BEGIN; UPDATE u SET k = 1 - k WHERE id = 3; SELECT pgtrickle.refresh_stream_table('over'); \
                 UPDATE t SET k = 1 WHERE id = 2; SELECT pgtrickle.refresh_stream_table('many'); COMMIT"
            ),
            again("SELECT pgtrickle.refresh_stream_table('pairs')"),
            again("SELECT pgtrickle.refresh_stream_table('over'), pgtrickle.refresh_stream_table('counts')"),
        );
        let failed = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'";
        assert_eq!(count(&s, failed).await, 0);
        until(&s, STALE, 0).await;
    });
}
