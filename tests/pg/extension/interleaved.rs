//! Other sessions write and commit between any two statements of a refresh through the SQL API. All linked
//! stream tables equal their queries at one moment: the snapshot of the refresh, with the writes of the
//! caller's own transaction. The next refresh counts each later change once. The tests catch statements of a
//! refresh that do not read under the snapshot of its first statement. The tests also catch changes that are
//! counted by no refresh or by two refreshes.

use super::stops::{ALL, At, Cast, SOURCES, STOPS, Stop, TABLES, make, stored, wanted, writes};
use super::{installed, rows};
use crate::support::{Db, assert_same_bag, count, is_todays, newest_server, run};
use std::cell::Cell;
use std::collections::BTreeSet;
use trickle_client::Session;

const REFRESH: &str = "SELECT pgtrickle.refresh_stream_table('public.large')";
const APART: &str = "SELECT pgtrickle.refresh_stream_table('apart')";

/// A statement that fires the deferred triggers. A refresh is refused while deferred triggers for the writes
/// of an earlier refresh have not fired.
const AT_ONCE: &str = "SET CONSTRAINTS late IMMEDIATE";

/// The number for writes of the user who refreshes. Writes with different numbers change different rows.
const USER: u32 = 0;
/// The number for writes of another session.
const OTHER: u32 = 1;
/// The number for writes of the session that makes a refresh wait.
const BLOCKER: u32 = 2;

struct Play {
    cast: Cast,
    /// Number of writes so far.
    n: Cell<u32>,
}

impl Play {
    async fn of(db: &Db) -> Play {
        make(&installed(db).await).await;
        Play { cast: Cast::of(db).await, n: Cell::new(0) }
    }

    async fn write(&self, s: &Session, party: u32) {
        self.n.set(self.n.get() + 1);
        run(s, &writes(self.n.get(), party)).await;
    }

    /// Refreshes, while other sessions write at one stop of the refresh. Returns the step of the refresh at
    /// that stop.
    async fn refresh(&self, s: &Session, stop: &Stop) -> At {
        let cast = &self.cast;
        let seen = Cell::new(None);
        let done = cast.stopped(s, stop.block, REFRESH, async |at| {
            seen.set(Some(at));
            if stop.open {
                self.write(&cast.writer, OTHER).await;
            }
            if matches!(at, At::Locking | At::Holding | At::First | At::Second) {
                run(&cast.writer, APART).await;
                let (name, query) = TABLES[2];
                assert_same_bag(&cast.writer, &format!("TABLE {name}"), query).await;
            }
            self.write(&cast.blocker, BLOCKER).await;
            run(&cast.blocker, "COMMIT").await;
        });
        done.await.unwrap_or_else(|e| panic!("{}: {e:?}", stop.block));
        seen.get().unwrap_or_else(|| panic!("nobody waits for {}", stop.block))
    }

    /// Refreshes once more, and asserts that no change is missing or counted twice.
    async fn settle(&self, s: &Session) {
        run(s, &format!("{REFRESH}; {APART}")).await;
        for (name, query) in TABLES {
            assert_same_bag(s, &format!("TABLE {name}"), query).await;
        }
        assert_eq!(stored(s).await, wanted(s).await);
    }
}

/// Opens a session of a user who refreshes by one strategy.
async fn user(db: &Db, way: &str) -> Session {
    let s = db.session().await;
    run(&s, &format!("SET pg_trickle.refresh_strategy = '{way}'")).await;
    s
}

/// For each stop, runs a refresh in a new session, and a refresh in a session that refreshed before. Other
/// sessions write while the refresh stops. A session that refreshed before reads less of the catalog, and
/// takes other locks.
async fn between_statements(db: &Db, way: &str) {
    let play = Play::of(db).await;
    let known = user(db, way).await;
    play.settle(&known).await;
    let mut passed = BTreeSet::new();
    for knows in [false, true] {
        for stop in STOPS {
            let new = user(db, way).await;
            let s = if knows { &known } else { &new };
            play.write(&play.cast.writer, OTHER).await;
            let before = wanted(&play.cast.eye).await;
            let at = play.refresh(s, stop).await;
            assert!(knows || at == stop.at, "{at:?}: {}", stop.block);
            let after = wanted(&play.cast.eye).await;
            assert!(before[0] != after[0] && before[1] != after[1], "nothing was written: {}", stop.block);
            let expected = if at < At::Deciding { after } else { before };
            assert_eq!(stored(&play.cast.eye).await, expected, "{way}, {at:?}: {}", stop.block);
            play.settle(s).await;
            passed.insert(at);
        }
    }
    assert!(passed.iter().eq(&ALL), "{passed:?}");
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_delta_is_of_its_snapshot_wherever_others_write() {
    newest_server(async |db| between_statements(db, "differential").await);
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_full_refresh_is_of_its_snapshot_wherever_others_write() {
    newest_server(async |db| between_statements(db, "full").await);
}

/// Returns the stops of the first refresh in a transaction. The first component says whether the session
/// refreshed before.
fn within() -> impl Iterator<Item = (bool, &'static Stop)> {
    let stops = || STOPS.iter().filter(|s| s.at != At::Ending);
    stops().map(|s| (false, s)).chain(stops().map(|s| (true, s)))
}

/// Returns the stops that also work for the second refresh in a transaction. The session of such a refresh
/// holds most locks already.
fn again() -> impl Iterator<Item = &'static Stop> + Clone {
    STOPS.iter().filter(|s| s.block.contains("advisory") && s.at != At::Ending)
}

/// Refreshes twice in a READ COMMITTED transaction, and writes before each refresh.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_transaction_counts_its_own_writes_and_others_once() {
    newest_server(async |db| {
        let play = Play::of(db).await;
        let mut agains = again().cycle();
        for (i, (knows, stop)) in within().enumerate() {
            let s = user(db, "differential").await;
            run(&s, if knows { REFRESH } else { "SELECT" }).await;
            play.write(&play.cast.writer, OTHER).await;
            run(&s, &format!("BEGIN; {AT_ONCE}")).await;
            for (round, stop) in [stop, agains.next().unwrap()].into_iter().enumerate() {
                if stop.open {
                    play.write(&s, USER).await;
                }
                // A session that reads a table keeps a lock on it to the end of its transaction, and the
                // blocker would wait for that lock.
                let before = wanted(if stop.open { &s } else { &play.cast.eye }).await;
                let at = play.refresh(&s, stop).await;
                let expected = if round == 0 && at < At::Deciding { wanted(&s).await } else { before };
                assert_eq!(stored(&s).await, expected, "{round}, {at:?}: {}", stop.block);
                run(&s, ["SAVEPOINT between", "SAVEPOINT after"][round]).await;
            }
            if i % 2 == 0 {
                run(&s, &format!("ROLLBACK TO between; {REFRESH}")).await;
                assert_eq!(stored(&s).await, wanted(&s).await, "rolled back: {}", stop.block);
            }
            run(&s, if i % 3 == 2 { "ROLLBACK" } else { "COMMIT" }).await;
            play.settle(&s).await;
        }
    });
}

/// Refreshes twice in a transaction that has one snapshot. The transaction also writes.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_snapshot_stays_the_transactions_wherever_others_write() {
    newest_server(async |db| {
        let play = Play::of(db).await;
        let mut agains = again().cycle();
        for (nth, level) in ["REPEATABLE READ", "SERIALIZABLE"].into_iter().enumerate() {
            for (knows, stop) in within().filter(|_| is_todays(nth, 2)) {
                let s = user(db, "differential").await;
                run(&s, if knows { REFRESH } else { "SELECT" }).await;
                play.write(&play.cast.writer, OTHER).await;
                run(&s, &format!("BEGIN ISOLATION LEVEL {level}; {AT_ONCE}; SELECT")).await;
                for stop in [stop, agains.next().unwrap()] {
                    if stop.open {
                        play.write(&s, USER).await;
                    }
                    play.refresh(&s, stop).await;
                    assert_eq!(stored(&s).await, wanted(&s).await, "{level}: {}", stop.block);
                }
                run(&s, "COMMIT").await;
                play.settle(&s).await;
            }
        }
    });
}

/// A data error makes a delta fail. The recompute in its place is stopped while another session writes, and
/// still reads the snapshot of the delta.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_recompute_after_a_failed_delta_reads_the_same_snapshot() {
    const FAILS: &str = "CREATE SEQUENCE calls; CREATE FUNCTION fails(x bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS \
         $$ BEGIN IF nextval('public.calls') = 1 THEN RAISE division_by_zero; END IF; RETURN x; END $$";
    const QUERY: &str = "SELECT a.id, gate(1, fails(a.v)) AS v, b.w FROM a JOIN b ON a.k = b.k";
    const CALL: &str = "SELECT pgtrickle.refresh_stream_table('fickle')";
    newest_server(async |db| {
        let play = Play::of(db).await;
        let (s, cast) = (user(db, "differential").await, &play.cast);
        run(&s, &format!("{FAILS}; SELECT setval('calls', 1); SELECT pgtrickle.create_stream_table('fickle', $${QUERY}$$)")).await;
        for level in ["READ COMMITTED", "REPEATABLE READ"] {
            play.write(&cast.writer, OTHER).await;
            let before = rows(&cast.eye, QUERY).await;
            run(&s, &format!("BEGIN ISOLATION LEVEL {level}; SELECT setval('calls', 1, false)")).await;
            let done = cast.stopped(&s, "SELECT pg_advisory_xact_lock(1)", CALL, async |_| {
                play.write(&cast.writer, OTHER).await;
                run(&cast.blocker, "COMMIT").await;
            });
            done.await.unwrap();
            assert_eq!(rows(&s, "TABLE fickle").await, before, "{level}");
            let way = "SELECT action FROM pgtrickle.pgt_refresh_history ORDER BY refresh_id DESC LIMIT 1";
            assert_eq!(rows(&s, way).await, [[Some("FULL".to_owned())]], "{level}");
            run(&s, &format!("COMMIT; {CALL}")).await;
            assert_same_bag(&s, "TABLE fickle", QUERY).await;
        }
    });
}

/// A stream table is marked for a recompute while a refresh waits. That refresh or the next refresh
/// recomputes the stream table.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_mark_for_a_rebuild_is_not_lost() {
    const MARK: &str = "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, reinit_reason = 'so be it' WHERE pgt_name = 'total'";
    const MARKED: &str = "SELECT needs_reinit::int, (SELECT count(*) FROM pgtrickle.pgt_refresh_history h WHERE h.pgt_id = s.pgt_id \
         AND action = 'REINITIALIZE') FROM pgtrickle.pgt_stream_tables s WHERE pgt_name = 'total'";
    newest_server(async |db| {
        let play = Play::of(db).await;
        let cast = &play.cast;
        for level in ["READ COMMITTED", "REPEATABLE READ"] {
            for stop in
                STOPS.iter().filter(|s| s.at <= At::Holding && s.open && !s.block.contains("'large' FOR"))
            {
                let s = user(db, "differential").await;
                play.write(&cast.writer, OTHER).await;
                let before = rows(&cast.eye, MARKED).await[0][1].clone().unwrap();
                run(&s, &format!("BEGIN ISOLATION LEVEL {level}; SELECT")).await;
                let done = cast.stopped(&s, stop.block, REFRESH, async |_| {
                    run(&cast.blocker, &format!("{MARK}; COMMIT")).await;
                });
                match done.await {
                    Ok(()) => run(&s, "COMMIT").await,
                    Err(e) => {
                        assert_eq!(e.code().map(|c| c.code()), Some("40001"), "{}: {e:?}", stop.block);
                        assert_eq!(level, "REPEATABLE READ", "{}: {e:?}", stop.block);
                        run(&s, "ROLLBACK").await;
                    }
                }
                play.settle(&s).await;
                let after = rows(&cast.eye, MARKED).await;
                let times = before.parse::<u32>().unwrap() + 1;
                assert_eq!(
                    after,
                    [[Some("0".to_owned()), Some(times.to_string())]],
                    "{level}: {}",
                    stop.block
                );
            }
        }
    });
}

/// A refresh takes locks on objects that all refreshes share, to delete old history and to check unlogged
/// buffers. The refresh gives these locks up at its end, although the caller's transaction goes on.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn shared_locks_end_with_the_refresh_and_not_the_transaction() {
    newest_server(async |db| {
        let (s, other) = (installed(db).await, db.session().await);
        run(&s, "SET pg_trickle.change_buffer_unlogged = on; CREATE TABLE u (id int PRIMARY KEY, v int); CREATE TABLE p (id int PRIMARY KEY); \
                 SELECT pgtrickle.create_stream_table('u1', 'SELECT id FROM u'); \
                 SELECT pgtrickle.create_stream_table('u2', 'SELECT count(*) AS n FROM u'); \
                 SELECT pgtrickle.create_stream_table('apart', 'SELECT count(*) AS n FROM p')")
            .await;
        let old = "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, action, status, initiated_by) \
             SELECT pgt_id, now() - interval '60 days', 'FULL', 'COMPLETED', 'MANUAL' FROM pgtrickle.pgt_stream_tables";
        for begin in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"] {
            run(&s, old).await;
            // The first refresh of each new session deletes old history.
            let (a, b) = (db.session().await, db.session().await);
            run(&other, "INSERT INTO u SELECT coalesce(max(id), 0) + 1 FROM u; INSERT INTO p SELECT coalesce(max(id), 0) + 1 FROM p").await;
            run(&a, begin).await;
            run(&a, "SELECT pgtrickle.refresh_stream_table('u1')").await;
            run(&b, "SET statement_timeout = '20s'").await;
            run(&b, "SELECT pgtrickle.refresh_stream_table('u2'), pgtrickle.refresh_stream_table('apart')")
                .await;
            run(&a, "COMMIT").await;
            let wrong = "SELECT (SELECT count(*) FROM u) - (SELECT n FROM u2) + (SELECT count(*) FROM u) - (SELECT count(*) FROM u1) \
                 + (SELECT count(*) FROM p) - (SELECT n FROM apart)";
            assert_eq!(count(&s, wrong).await, 0);
        }
        assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE start_time < now() - interval '50 days'").await, 0);
    });
}

/// A rewritten table looks empty under a snapshot from before the rewrite. A refresh under such a snapshot
/// fails, even if the stream table reads no altered column.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_refresh_from_before_a_table_was_rewritten_does_not_finish() {
    newest_server(async |db| {
        let s = installed(db).await;
        run(
            &s,
            "CREATE TABLE a (id int PRIMARY KEY, k int); CREATE TABLE b (k int PRIMARY KEY, v int); \
             INSERT INTO a SELECT i, i % 5 FROM generate_series(1, 100) i; INSERT INTO b SELECT i, i FROM generate_series(0, 4) i; \
             SELECT pgtrickle.create_stream_table('joined', 'SELECT a.id, b.v FROM a JOIN b USING (k)')",
        )
        .await;
        let old = user(db, "differential").await;
        run(&s, "UPDATE b SET v = v + 1 WHERE k = 1").await;
        run(&old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await;
        run(&s, "ALTER TABLE a ADD x float8 DEFAULT random()").await;
        let refused = old.client().batch_execute("SELECT pgtrickle.refresh_stream_table('joined')").await;
        assert_eq!(refused.unwrap_err().code().unwrap().code(), "40001");
        run(&old, "ROLLBACK; SELECT pgtrickle.refresh_stream_table('joined')").await;
        assert_same_bag(&s, "TABLE joined", "SELECT a.id, b.v FROM a JOIN b USING (k)").await;
        let anew = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'REINITIALIZE' AND initiated_by <> 'INITIAL'";
        assert_eq!(count(&s, anew).await, 0, "it was computed anew");
    });
}

/// A partition is attached between two reads of a refresh: the read for the first stream table, and the read
/// for the second. The refresh fails with a serialization failure, and the next refresh has all rows. Event
/// triggers would make the ATTACH wait for the refresh. So the session that attaches has
/// `session_replication_role` replica, in which event triggers do not fire.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_partition_that_comes_within_a_refresh_is_not_half_read() {
    newest_server(async |db| {
        let s = installed(db).await;
        run(&s, SOURCES).await;
        run(&s, "CREATE TABLE p (id int, k int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); \
                 INSERT INTO p SELECT i, i % 3 FROM generate_series(1, 9) i; SET pg_trickle.refresh_strategy = 'differential'").await;
        let halves = [
            ("half", "SELECT k, gate(1, count(*)) AS n FROM p GROUP BY k"),
            ("whole", "SELECT p.id, h.n FROM p JOIN half h USING (k)"),
        ];
        for (name, query) in halves {
            run(
                &s,
                &format!("SELECT pgtrickle.create_stream_table('{name}', $${query}$$, schedule => 'manual')"),
            )
            .await;
        }
        run(&s, "CREATE TABLE p2 AS SELECT i AS id, i % 3 AS k FROM generate_series(10, 19) i; UPDATE p SET k = 0 WHERE id < 6").await;
        let cast = Cast::of(db).await;
        let refresh = "SELECT pgtrickle.refresh_stream_table('whole')";
        let done = cast.stopped(&s, "SELECT pg_advisory_xact_lock(1)", refresh, async |at| {
            assert_eq!(at, At::First);
            run(&cast.writer, "SET session_replication_role = replica; ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)").await;
            run(&cast.blocker, "COMMIT").await;
        });
        let refused = done.await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "40001", "{refused:?}");
        run(&s, refresh).await;
        for (name, query) in halves {
            assert_same_bag(&s, &format!("TABLE {name}"), query).await;
        }
    });
}
