//! IMMEDIATE stream tables: each statement that writes a source also applies its delta. Locks and open
//! transactions fix the order of all statements. The tests catch two errors that tests of one writer cannot
//! show. The first error can arise when another writer changes a result at the same time. The second error
//! can arise when one statement changes several sources together. The tests also catch objects that remain
//! after a drop or a change of mode.

use crate::support::{
    Db, Driver, assert_equal, blocked, count, create, mode, name, open, pid, refresh, run, todays_server,
};
use futures_util::SinkExt;
use std::pin::pin;
use std::time::Duration;
use trickle_client::{Alteration, NewStreamTable, RefreshMode, RefreshOptions, Session};
use trickle_core::refresh::Action;

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int);
    CREATE TABLE b (id int PRIMARY KEY, k int, w int);
    INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 40) i;
    INSERT INTO b SELECT i, i % 5, i FROM generate_series(1, 10) i";

/// One stream table for each kind of lock by which writers exclude each other, and one stream table that
/// reads `by_group`.
const TABLES: [(&str, &str); 6] = [
    ("by_key", "SELECT id, v FROM a WHERE v > 2"),
    ("by_group", "SELECT k, sum(v) AS s, count(*) AS n FROM a GROUP BY k"),
    ("joined", "SELECT a.id, a.v, b.w FROM a JOIN b USING (k)"),
    ("bag", "SELECT k % 2 AS odd FROM a"),
    ("extrema", "SELECT k, min(v) AS least, max(v) AS most FROM a GROUP BY k"),
    ("above", "SELECT g.k, g.s, count(b.id) AS n FROM by_group g LEFT JOIN b ON b.k = g.k GROUP BY g.k, g.s"),
];

async fn keep(t: &mut Driver, what: &str, query: &str) {
    let new = NewStreamTable { mode: Some(RefreshMode::Immediate), ..NewStreamTable::new(name(what), query) };
    let made = t.create(&new).await.unwrap_or_else(|e| panic!("{what}: {e:?}"));
    assert_eq!(made.mode, trickle_client::Mode::Immediate);
}

async fn keep_all(db: &Db) -> Driver {
    let mut t = open(db).await;
    run(t.connection(), SOURCES).await;
    for (what, query) in TABLES {
        keep(&mut t, what, query).await;
    }
    t
}

async fn assert_all(t: &mut Driver) {
    for (what, _) in TABLES {
        assert_equal(t, what).await;
    }
}

/// Runs a statement that must fail, and returns its SQLSTATE.
async fn fails(s: &Session, sql: &str) -> String {
    let e = s.client().batch_execute(sql).await.expect_err(sql);
    e.code().unwrap_or_else(|| panic!("{e:?}")).code().to_owned()
}

#[test]
fn each_kind_of_statement_is_applied_as_it_ends() {
    todays_server(async |db| {
        let mut t = keep_all(db).await;
        for statement in [
            "INSERT INTO a VALUES (100, 1, 7), (101, 9, -7), (102, NULL, NULL)",
            "UPDATE a SET v = v + 1 WHERE k = 1",
            "UPDATE a SET k = k + 1 WHERE id < 5",
            "UPDATE a SET id = -id",
            "UPDATE a SET v = v",
            "DELETE FROM a WHERE k = 9",
            "DELETE FROM a WHERE false",
            "INSERT INTO a VALUES (-1, 3, 3), (103, 3, 3) ON CONFLICT (id) DO UPDATE SET v = 1000",
            "MERGE INTO a USING (VALUES (-2, 4), (-3, 4), (104, 4)) x(id, k) ON a.id = x.id \
             WHEN MATCHED AND x.id = -2 THEN DELETE WHEN MATCHED THEN UPDATE SET k = x.k \
             WHEN NOT MATCHED THEN INSERT VALUES (x.id, x.k, 0)",
            "WITH gone AS (DELETE FROM a WHERE id = -4 RETURNING *), moved AS (UPDATE b SET k = 2 WHERE id = 1) \
             INSERT INTO b SELECT 20, k, v FROM gone",
            "WITH gone AS (DELETE FROM a WHERE id = -5 RETURNING *) INSERT INTO a SELECT 105, k, v FROM gone",
            "TRUNCATE b",
            "INSERT INTO b SELECT i, i % 3, i FROM generate_series(1, 9) i",
            "TRUNCATE a, b",
            "INSERT INTO a SELECT i, i % 7, i FROM generate_series(1, 3000) i",
            "DELETE FROM a WHERE id % 2 = 0",
        ] {
            run(t.connection(), statement).await;
            assert_all(&mut t).await;
        }
        let mut sink =
            pin!(t.connection().client().copy_in::<_, &'static [u8]>("COPY a FROM STDIN").await.unwrap());
        sink.send(b"5000\t1\t1\n5001\t2\t2\n").await.unwrap();
        assert_eq!(sink.finish().await.unwrap(), 2);
        assert_all(&mut t).await;
        assert_eq!(count(t.connection(), "SELECT count(*) FROM by_key WHERE id > 4999").await, 0);
        // Writes of a session with `session_replication_role` replica are applied too.
        run(t.connection(), "SET session_replication_role = replica; DELETE FROM a WHERE k = 1; RESET session_replication_role").await;
        assert_all(&mut t).await;
    });
}

/// Runs cascades, and a user's triggers that write within a statement. The user's triggers fire before and
/// after trickle's triggers.
#[test]
fn cascades_and_triggers_of_a_statement_are_applied_once() {
    todays_server(async |db| {
        let mut t = open(db).await;
        run(
            t.connection(),
            "CREATE TABLE high (id int PRIMARY KEY);
             CREATE TABLE mid (id int PRIMARY KEY, high int REFERENCES high ON DELETE CASCADE ON UPDATE CASCADE);
             CREATE TABLE low (id int PRIMARY KEY, mid int REFERENCES mid ON DELETE SET NULL ON UPDATE CASCADE);
             CREATE TABLE log (what text, id int);
             CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
                 INSERT INTO log VALUES (TG_OP, (CASE WHEN TG_OP = 'DELETE' THEN OLD.id ELSE NEW.id END)); RETURN coalesce(NEW, OLD); END$$;
             CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
                 IF pg_trigger_depth() < 3 THEN INSERT INTO low SELECT coalesce(max(id), 1000) + 1, NULL FROM low; END IF; RETURN NULL; END$$;
             CREATE TRIGGER before BEFORE INSERT OR UPDATE OR DELETE ON mid FOR EACH ROW EXECUTE FUNCTION noted();
             CREATE TRIGGER row_after AFTER INSERT OR DELETE ON low FOR EACH ROW EXECUTE FUNCTION noted();
             CREATE TRIGGER a_first AFTER INSERT OR DELETE ON mid FOR EACH STATEMENT EXECUTE FUNCTION more();
             CREATE TRIGGER z_last AFTER UPDATE ON mid FOR EACH STATEMENT EXECUTE FUNCTION more();
             INSERT INTO high SELECT generate_series(1, 9); INSERT INTO mid SELECT i, i % 9 + 1 FROM generate_series(1, 30) i;
             INSERT INTO low SELECT i, i % 30 + 1 FROM generate_series(1, 90) i",
        )
        .await;
        let all = [
            (
                "chain",
                "SELECT low.id, mid.id AS mid, high.id AS high FROM low LEFT JOIN mid ON mid.id = low.mid LEFT JOIN high ON high.id = mid.high",
            ),
            (
                "logged",
                "SELECT log.what, count(*) AS n, count(mid.id) AS there FROM log LEFT JOIN mid USING (id) GROUP BY 1",
            ),
            ("tops", "SELECT high, count(*) AS n FROM mid GROUP BY high"),
            ("rest", "SELECT id FROM high WHERE id NOT IN (SELECT high FROM mid WHERE high IS NOT NULL)"),
        ];
        for (what, query) in all {
            keep(&mut t, what, query).await;
        }
        for statement in [
            "DELETE FROM high WHERE id = 3",
            "UPDATE high SET id = id + 100",
            "UPDATE mid SET id = -id WHERE id < 9",
            "INSERT INTO mid VALUES (1000, 105), (1001, NULL)",
            "WITH t AS (DELETE FROM high WHERE id IN (101, 102)), l AS (INSERT INTO low VALUES (5000, 10)) DELETE FROM mid WHERE id = 12",
            "DELETE FROM low WHERE id % 2 = 0",
            "DELETE FROM high",
        ] {
            run(t.connection(), statement).await;
            for (what, _) in all {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

/// A statement of a user's trigger ends before the statement that fired the trigger. The inner statement can
/// update or delete rows that the outer statement inserted, before this insert is applied.
#[test]
fn changes_by_triggers_of_a_statement_are_applied_with_it() {
    todays_server(async |db| {
        let mut t = open(db).await;
        run(
            t.connection(),
            "CREATE TABLE fixed (id int PRIMARY KEY, g int, v int);
             CREATE FUNCTION fix() RETURNS trigger LANGUAGE plpgsql AS
                 $$BEGIN UPDATE fixed SET v = v + 100 WHERE id = NEW.id; RETURN NULL; END$$;
             CREATE TRIGGER fix AFTER INSERT ON fixed FOR EACH ROW EXECUTE FUNCTION fix();
             CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree ON DELETE CASCADE, o int REFERENCES tree ON DELETE SET NULL, v int);
             INSERT INTO tree VALUES (1, NULL, NULL, 1), (2, 1, 1, 2), (3, 1, 2, 3), (4, 2, 3, 4), (5, 4, 2, 5), (6, NULL, 5, 6), (7, NULL, 4, 7);
             CREATE TABLE narrow (id int, g int, v int); INSERT INTO narrow VALUES (1, 1, 30000)",
        )
        .await;
        let all = [
            ("totals", "SELECT g, count(*) AS n, sum(v) AS s FROM fixed GROUP BY g"),
            ("each", "SELECT id, v FROM fixed WHERE v > 50"),
            ("others", "SELECT o, sum(v) AS s, count(*) AS n FROM tree GROUP BY o"),
            // The sum 50,000 does not fit smallint, and no state between two statements has this sum.
            ("small", "SELECT g, sum(v)::int2 AS s FROM narrow GROUP BY g"),
        ];
        for (what, query) in all {
            keep(&mut t, what, query).await;
        }
        for statement in [
            "INSERT INTO fixed VALUES (1, 1, 1)",
            "INSERT INTO fixed VALUES (2, 1, 1), (3, 2, 2)",
            "DELETE FROM tree WHERE id = 2",
            "WITH gone AS (DELETE FROM narrow WHERE v = 30000) INSERT INTO narrow VALUES (2, 1, 20000)",
        ] {
            run(t.connection(), statement).await;
            for (what, _) in all {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

#[test]
fn immediate_tables_follow_rollbacks_and_prepared_transactions() {
    todays_server(async |db| {
        let mut t = keep_all(db).await;
        keep(&mut t, "divided", "SELECT a.id, 100 / b.w AS q FROM a JOIN b USING (k)").await;
        let s = db.session().await;
        run(
            &s,
            "BEGIN; SAVEPOINT x; DELETE FROM a; SAVEPOINT y; INSERT INTO a VALUES (1, 1, 1); ROLLBACK TO x;
             UPDATE b SET w = 2; DELETE FROM a WHERE id = 1; COMMIT",
        )
        .await;
        assert_all(&mut t).await;
        // If the query raises an error at the end of a statement, only that statement fails.
        assert_eq!(fails(&s, "UPDATE b SET w = 0 WHERE id = 1").await, "22012");
        run(
            &s,
            "DO $$BEGIN DELETE FROM a WHERE id = 2; BEGIN UPDATE b SET w = 0; EXCEPTION WHEN division_by_zero THEN NULL; END;
             DELETE FROM a WHERE id = 3; END$$",
        )
        .await;
        assert_all(&mut t).await;
        assert_equal(&mut t, "divided").await;
        assert_eq!(count(&s, "SELECT count(*) FROM b WHERE w = 0").await, 0);
        // The query raises no error here, but a delta would raise one. A row of the join is deleted, and the
        // divisor in its partner row becomes 0.
        run(&s, "BEGIN; WITH gone AS (DELETE FROM a WHERE k = 4) UPDATE b SET w = 0 WHERE k = 4; COMMIT")
            .await;
        assert_equal(&mut t, "divided").await;
        run(
            &s,
            "ALTER TABLE b ADD CONSTRAINT late UNIQUE (w, id) DEFERRABLE INITIALLY DEFERRED;
             CREATE FUNCTION at_end() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN DELETE FROM a WHERE id = 10; RETURN NULL; END$$;
             CREATE CONSTRAINT TRIGGER at_end AFTER UPDATE ON b DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_end();
             BEGIN; UPDATE b SET w = 5 WHERE id = 5; UPDATE a SET v = 9 WHERE id = 11; COMMIT",
        )
        .await;
        assert_eq!(count(&s, "SELECT count(*) FROM a WHERE id = 10").await, 0);
        assert_all(&mut t).await;
        run(&s, "BEGIN; DELETE FROM a WHERE id = 20; PREPARE TRANSACTION 'p'").await;
        assert_all(&mut t).await;
        run(&s, "COMMIT PREPARED 'p'").await;
        assert_all(&mut t).await;
    });
}

/// A writer of any source of a stream table waits for earlier writers of all its sources, and then reads
/// their changes.
#[test]
fn writers_of_both_sides_of_a_join_wait_for_each_other() {
    todays_server(async |db| {
        let mut t = open(db).await;
        run(t.connection(), SOURCES).await;
        keep(&mut t, "joined", "SELECT a.id, a.v, b.w FROM a JOIN b USING (k)").await;
        let (first, second) = (db.session().await, db.session().await);
        run(&first, "BEGIN; INSERT INTO a VALUES (100, 1, 100)").await;
        let waiting = run(&second, "INSERT INTO b VALUES (100, 1, 100)");
        let (second_pid, by) = (pid(second.client()).await, db.session().await);
        tokio::join!(waiting, async {
            blocked(&by, second_pid).await;
            run(&first, "COMMIT").await;
        });
        assert_equal(&mut t, "joined").await;
        assert_eq!(count(&by, "SELECT count(*) FROM joined WHERE v = 100 AND w = 100").await, 1);
        // A statement that was rolled back makes no other writer wait.
        run(&first, "BEGIN; SAVEPOINT s; DELETE FROM a; ROLLBACK TO s").await;
        run(&second, "DELETE FROM b WHERE id = 100").await;
        run(&first, "DELETE FROM a WHERE id = 100; COMMIT").await;
        assert_equal(&mut t, "joined").await;
    });
}

#[test]
fn a_snapshot_that_does_not_show_the_last_writer_is_refused() {
    todays_server(async |db| {
        let mut t = keep_all(db).await;
        let (old, other) = (db.session().await, db.session().await);
        let writes = [
            // For a join, the snapshot must show the last writer of each source, whichever row that writer
            // wrote.
            ("INSERT INTO b VALUES (50, 1, 1)", "DELETE FROM b WHERE id = 3", Some("40001")),
            // For totals, the snapshot must show the last writer of the group that the statement changes.
            ("INSERT INTO a VALUES (200, 3, 1)", "INSERT INTO a VALUES (201, 3, 1)", Some("40001")),
            ("TRUNCATE a", "INSERT INTO a VALUES (1, 3, 1)", Some("40001")),
        ];
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            for (theirs, ours, fate) in writes {
                run(&old, &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class")).await;
                run(&other, &format!("BEGIN; {theirs}; COMMIT")).await;
                assert_eq!(Some(fails(&old, ours).await.as_str()), fate, "{ours}");
                run(&old, "ROLLBACK").await;
                run(
                    &other,
                    "TRUNCATE a, b; INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 40) i; \
                             INSERT INTO b SELECT i, i % 5, i FROM generate_series(1, 10) i",
                )
                .await;
                assert_all(&mut t).await;
            }
        }
    });
}

/// A row is inserted with the key of a row that another session deleted after the snapshot. The snapshot
/// shows the deleted row and the new row.
#[test]
fn a_snapshot_that_shows_two_rows_of_one_key_is_refused() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let (old, other) = (db.session().await, db.session().await);
        run(&other, SOURCES).await;
        keep(&mut t, "by_key", TABLES[0].1).await;
        run(&old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a").await;
        run(&other, "DELETE FROM a WHERE id = 9; DELETE FROM a WHERE id = 1").await;
        for sql in ["INSERT INTO a VALUES (9, 1, 99)", "UPDATE a SET id = 1 WHERE id = 8"] {
            run(&old, "SAVEPOINT s").await;
            assert_eq!(fails(&old, sql).await, "40001");
            run(&old, "ROLLBACK TO s").await;
        }
        run(&old, "INSERT INTO a VALUES (900, 1, 99); DELETE FROM a WHERE id = 7; COMMIT").await;
        assert_equal(&mut t, "by_key").await;
    });
}

/// A refresh computes the stream tables while nobody writes. A later write under a snapshot from before the
/// refresh is refused, since the delta of the write would not fit the refreshed rows.
#[test]
fn a_snapshot_from_before_a_refresh_is_refused() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let (old, other) = (db.session().await, db.session().await);
        run(&other, SOURCES).await;
        for (what, query) in TABLES.iter().take(5) {
            run(&old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").await;
            keep(&mut t, what, query).await;
            assert_eq!(fails(&old, "DELETE FROM a WHERE id = 1").await, "40001", "{what}");
            run(&old, "ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM a").await;
            let full = RefreshOptions { full: true, ..RefreshOptions::default() };
            t.refresh(&[name(what)], &full).await.unwrap();
            assert_eq!(fails(&old, "INSERT INTO a VALUES (1000, 77, 1)").await, "40001", "{what}");
            run(&old, "ROLLBACK").await;
            run(&other, "UPDATE a SET v = v + 1").await;
            assert_equal(&mut t, what).await;
            t.drop(&name(what), false).await.unwrap();
        }
        // The session `old` has written, and the refresh waits for the end of its transaction.
        run(&old, "BEGIN; DELETE FROM a WHERE id = 2").await;
        let (by, waits) = (db.session().await, pid(t.connection().client()).await);
        tokio::join!(keep(&mut t, "bag", "SELECT k FROM a"), async {
            blocked(&by, waits).await;
            run(&old, "DELETE FROM a WHERE id = 3; COMMIT").await;
        });
        assert_equal(&mut t, "bag").await;
    });
}

/// Writers of rows with different keys or of different groups do not wait for each other. About one pair of
/// groups in a thousand is an exception.
#[test]
fn writers_of_different_groups_do_not_wait_for_each_other() {
    todays_server(async |db| {
        let mut t = open(db).await;
        run(t.connection(), SOURCES).await;
        for (what, query) in &TABLES[..2] {
            keep(&mut t, what, query).await;
        }
        let (first, second, third) = (db.session().await, db.session().await, db.session().await);
        run(&first, "BEGIN; INSERT INTO a VALUES (100, 1, 100), (101, 70, 1)").await;
        run(
            &second,
            "SET lock_timeout = '10s'; BEGIN; INSERT INTO a VALUES (102, 2, 1), (103, 71, 1); COMMIT",
        )
        .await;
        // The third writer writes to group 70, which the first writer has made and not committed.
        let (waits, by) = (pid(third.client()).await, db.session().await);
        let same = run(&third, "INSERT INTO a VALUES (104, 70, 5)");
        tokio::join!(same, async {
            blocked(&by, waits).await;
            run(&first, "UPDATE a SET k = 71 WHERE id = 101; COMMIT").await;
        });
        for (what, _) in &TABLES[..2] {
            assert_equal(&mut t, what).await;
        }
        assert_eq!(count(&by, "SELECT s FROM by_group WHERE k = 70").await, 5);
    });
}

/// Many writers write all tables at every isolation level. A refused writer tries another write.
#[test]
fn after_a_storm_of_writers_all_are_equal() {
    todays_server(async |db| {
        let mut t = keep_all(db).await;
        let writer = async |n: u64| {
            let s = db.session().await;
            let (mut done, mut refused, mut x) = (0, 0, n);
            let until = tokio::time::Instant::now() + Duration::from_secs(4);
            while tokio::time::Instant::now() < until {
                let mut next = |below: u64| {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (x >> 33) % below
                };
                let level =
                    ["READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"][next(4) as usize];
                let mut text = format!("BEGIN ISOLATION LEVEL {level};");
                for _ in 0..=next(3) {
                    let (id, k, v) = (next(60), next(8), next(20));
                    text += &match next(6) {
                        0 => format!(
                            "INSERT INTO a VALUES ({id}, {k}, {v}) ON CONFLICT (id) DO UPDATE SET k = {k};"
                        ),
                        1 => format!("DELETE FROM a WHERE id = {id};"),
                        2 => format!("UPDATE a SET v = {v} WHERE k = {k};"),
                        3 => format!("INSERT INTO b VALUES ({id}, {k}, {v}) ON CONFLICT DO NOTHING;"),
                        4 => format!(
                            "WITH x AS (UPDATE b SET k = {k} WHERE id < {v}) DELETE FROM a WHERE id = {id};"
                        ),
                        _ => format!("SAVEPOINT s; UPDATE a SET k = {k} WHERE id = {id}; ROLLBACK TO s;"),
                    };
                }
                match s.client().batch_execute(&format!("{text} COMMIT")).await {
                    Ok(()) => done += 1,
                    Err(e) => {
                        assert!(["40001", "40P01"].contains(&e.code().unwrap().code()), "{e:?}\n{text}");
                        run(&s, "ROLLBACK").await;
                        refused += 1;
                    }
                }
            }
            (done, refused)
        };
        let all = futures_util::future::join_all((1..=8).map(writer)).await;
        println!("committed and refused, by writer: {all:?}");
        assert!(all.iter().all(|(done, _)| *done > 0), "{all:?}");
        assert_all(&mut t).await;
    });
}

/// An IMMEDIATE stream table may read another IMMEDIATE stream table and a table. All writers take the locks
/// for the stream tables over these tables in the same order.
#[test]
fn writers_under_stacked_immediate_tables_do_not_deadlock() {
    todays_server(async |db| {
        let mut t = open(db).await;
        run(t.connection(), SOURCES).await;
        let all = [
            ("extrema", "SELECT k, max(v) AS most FROM a GROUP BY k"),
            ("beside", "SELECT e.k, e.most, b.w FROM extrema e JOIN b ON b.k = e.k"),
            ("joined", "SELECT a.id, b.w FROM a JOIN b ON b.k = a.k"),
        ];
        for (what, query) in all {
            keep(&mut t, what, query).await;
        }
        let writer = async |n: i64| {
            let s = db.session().await;
            let until = tokio::time::Instant::now() + Duration::from_secs(2);
            let mut id = 1000 * n;
            while tokio::time::Instant::now() < until {
                id += 1;
                // Each writer has rows of its own, so it can wait for another writer only at the locks for
                // the stream tables.
                let (table, value) = if id % 2 == 0 { ("a", "v") } else { ("b", "w") };
                let (k, last) = (id % 5, id - 2);
                run(&s, &format!("INSERT INTO {table} VALUES ({id}, {k}, {id})")).await;
                let change = match id % 6 {
                    0 | 1 => {
                        format!("UPDATE {table} SET k = (k + 1) % 5, {value} = {value} + 7 WHERE id = {last}")
                    }
                    2 | 3 => format!("DELETE FROM {table} WHERE id = {last}"),
                    _ => format!("UPDATE {table} SET {value} = 1 WHERE id IN ({id}, {last})"),
                };
                run(&s, &change).await;
            }
        };
        futures_util::future::join_all((1..=4).map(writer)).await;
        for (what, _) in all {
            assert_equal(&mut t, what).await;
        }
    });
}

/// When an IMMEDIATE stream table is dropped or gets another mode, its triggers and functions are dropped
/// too. No write fails in the meantime.
#[test]
fn modes_come_and_go_with_all_that_belongs_to_them() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let s = db.session().await;
        run(&s, SOURCES).await;
        let own = "SELECT (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'trickle\\_immediate%') \
             + (SELECT count(*) FROM pg_class WHERE relname LIKE 'immediate\\_%' AND relkind = 'r') \
             + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'immediate\\_%' AND pronamespace = 'pgtrickle_changes'::regnamespace)";
        let captures = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'trickle\\_capture%'";
        keep(&mut t, "joined", TABLES[2].1).await;
        assert!(count(&s, own).await > 0);
        assert_eq!(count(&s, captures).await, 0);
        let alter = |mode| Alteration { mode: Some(mode), ..Alteration::default() };
        t.alter(&name("joined"), &alter(RefreshMode::Differential)).await.unwrap();
        assert_eq!((count(&s, own).await, mode(&t, "joined").await.0.as_str()), (0, "DIFFERENTIAL"));
        assert!(count(&s, captures).await > 0);
        run(&s, "DELETE FROM a WHERE id = 7").await;
        t.alter(&name("joined"), &alter(RefreshMode::Immediate)).await.unwrap();
        assert_eq!(count(&s, captures).await, 0);
        run(&s, "DELETE FROM b WHERE id = 7").await;
        assert_equal(&mut t, "joined").await;
        // A suspended stream table has no triggers, and is recomputed after it is resumed.
        let suspended = |yes| Alteration { suspended: Some(yes), ..Alteration::default() };
        t.alter(&name("joined"), &suspended(true)).await.unwrap();
        assert_eq!(count(&s, own).await, 0);
        run(&s, "DELETE FROM a WHERE id = 8").await;
        t.alter(&name("joined"), &suspended(false)).await.unwrap();
        run(&s, "DELETE FROM a WHERE id = 9").await;
        assert_equal(&mut t, "joined").await;
        // `disable` removes the triggers from the source. A user can call `disable` when the triggers make
        // writes fail.
        t.disable(&name("a")).await.unwrap();
        assert_eq!(count(&s, own).await, 0);
        run(&s, "DELETE FROM a WHERE id = 10").await;
        refresh(&mut t, "joined").await;
        run(&s, "DELETE FROM a WHERE id = 12").await;
        assert_eq!(refresh(&mut t, "joined").await[0].report.action, Action::Full);
        assert_equal(&mut t, "joined").await;
        t.enable(&name("a")).await.unwrap();
        run(&s, "DELETE FROM a WHERE id = 11").await;
        assert_equal(&mut t, "joined").await;
        // The query of the stream table is altered.
        let query =
            Alteration { query: Some("SELECT a.id, a.v FROM a WHERE v > 5".into()), ..Alteration::default() };
        t.alter(&name("joined"), &query).await.unwrap();
        run(&s, "UPDATE a SET v = v + 3 WHERE k = 3").await;
        assert_equal(&mut t, "joined").await;
        t.drop(&name("joined"), false).await.unwrap();
        assert_eq!(count(&s, own).await, 0);
        keep(&mut t, "flat", "SELECT id, v FROM a").await;
        t.alter(&name("flat"), &query).await.unwrap();
        run(&s, "UPDATE a SET v = 5 - v").await;
        assert_equal(&mut t, "flat").await;
        t.uninstall(false).await.unwrap();
        assert_eq!(count(&s, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'trickle%'").await, 0);
    });
}

/// The next refresh notices a disabled trigger, an altered source, and a renamed column or stream table, and
/// makes the stream table right again.
#[test]
fn the_next_refresh_repairs_broken_immediate_tables() {
    todays_server(async |db| {
        let mut t = keep_all(db).await;
        let s = db.session().await;
        for broken in [
            "ALTER TABLE a DISABLE TRIGGER ALL; DELETE FROM a WHERE id = 5; ALTER TABLE a ENABLE TRIGGER ALL",
            "ALTER TABLE a ADD COLUMN more int DEFAULT 3",
            "ALTER TABLE b ALTER COLUMN w TYPE bigint",
            "ALTER TABLE extrema RENAME COLUMN most TO largest",
        ] {
            run(&s, broken).await;
            for (what, _) in TABLES {
                refresh(&mut t, what).await;
            }
            assert_all(&mut t).await;
            run(&s, "UPDATE a SET v = v + 1; DELETE FROM b WHERE id = (SELECT min(id) FROM b)").await;
            assert_all(&mut t).await;
        }
        // The stream table `bag` is renamed, and then dropped, by ordinary SQL.
        run(&s, "ALTER TABLE bag RENAME TO sack").await;
        // With the extension, an event trigger makes the triggers use the new name at once. Without the
        // extension the next refresh does so, and writers do not fail in the meantime.
        run(&s, "UPDATE a SET v = v + 1").await;
        refresh(&mut t, "sack").await;
        run(&s, "UPDATE a SET k = k + 1").await;
        assert_equal(&mut t, "sack").await;
        run(&s, "DROP TABLE sack; CREATE TABLE sack (odd int); UPDATE a SET k = k - 1 WHERE id = 20; INSERT INTO a VALUES (2000, 1, 1)").await;
        assert_eq!(count(&s, "SELECT count(*) FROM sack").await, 0);
        run(&s, "DROP TABLE sack").await;
        // Without an event trigger the drop is not noticed, and the catalog still has the name `bag`.
        match Driver::is_told_of_drops() {
            true => assert_eq!(
                count(
                    &s,
                    "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_name IN ('bag', 'sack')"
                )
                .await,
                0
            ),
            false => drop(t.drop(&name("bag"), false).await.unwrap()),
        }
        keep(&mut t, "bag", TABLES[3].1).await;
        // A refresh of an IMMEDIATE stream table without marks changes nothing and waits for no writer.
        let writer = db.session().await;
        run(&writer, "BEGIN; UPDATE a SET v = v + 1 WHERE id = 20").await;
        let done = refresh(&mut t, "joined").await;
        assert_eq!(done[0].report.action, Action::NoData);
        run(&writer, "COMMIT").await;
        assert_all(&mut t).await;
    });
}

#[test]
fn readers_of_immediate_tables_refresh_by_deltas() {
    todays_server(async |db| {
        let mut t = keep_all(db).await;
        let s = db.session().await;
        create(&mut t, "deltas", "SELECT s, count(*) AS n FROM by_group GROUP BY s").await;
        assert_eq!(mode(&t, "deltas").await.0, "DIFFERENTIAL");
        run(&s, "UPDATE a SET v = v + 1 WHERE k = 2").await;
        assert_equal(&mut t, "deltas").await;
        // The source of `later` is written by refreshes and not by statements of users, so `later` cannot be
        // IMMEDIATE.
        let new = NewStreamTable {
            mode: Some(RefreshMode::Immediate),
            ..NewStreamTable::new(name("later"), "SELECT s FROM deltas")
        };
        let e = t.create(&new).await.unwrap_err();
        assert!(e.detail_text().unwrap().contains("that refreshes keep"), "{e:?}");
        let away = Alteration { mode: Some(RefreshMode::Differential), ..Alteration::default() };
        let e = t.alter(&name("by_group"), &away).await.unwrap_err();
        assert!(e.message().contains("must stay IMMEDIATE"), "{e:?}");
        run(&s, "CREATE TABLE p (id int, k int) PARTITION BY LIST (k); CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)").await;
        let parts = NewStreamTable {
            mode: Some(RefreshMode::Immediate),
            ..NewStreamTable::new(name("parts"), "SELECT id FROM p")
        };
        if Driver::is_the_servers() {
            t.create(&parts).await.unwrap();
            run(&s, "INSERT INTO p1 VALUES (1, 1); INSERT INTO p VALUES (2, 1); DELETE FROM p1 WHERE id = 1")
                .await;
            assert_equal(&mut t, "parts").await;
        } else {
            // Only the extension notices that partitions are attached or detached.
            let e = t.create(&parts).await.unwrap_err();
            assert!(e.detail_text().unwrap().contains("public.p, a partitioned table"), "{e:?}");
        }
        for query in
            ["SELECT id FROM p1", "SELECT id FROM a WHERE now() > '2020-01-01'", "SELECT random() FROM a"]
        {
            let new = NewStreamTable {
                mode: Some(RefreshMode::Immediate),
                ..NewStreamTable::new(name("no"), query)
            };
            t.create(&new).await.expect_err(query);
        }
    });
}

/// A role that may write a source needs no right on the stream tables over the source, and gets no such
/// right.
#[test]
fn writers_need_no_rights_and_get_none() {
    todays_server(async |db| {
        let mut t = keep_all(db).await;
        let s = db.session().await;
        run(
            &s,
            "DROP ROLE IF EXISTS immediate_stranger; CREATE ROLE immediate_stranger; GRANT INSERT, UPDATE, DELETE, SELECT ON a, b TO immediate_stranger;
             SET ROLE immediate_stranger;
             SET \"pgtrickle.immediate_3\" = '(7,7)'",
        )
        .await;
        run(
            &s,
            "CREATE TEMP TABLE trickle_new (id int); CREATE TEMP TABLE trickle_changed_1 (w int);
             CREATE FUNCTION pg_temp.count(bigint) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE 'ran as %', current_user; END$$;
             CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (current_user = 'immediate_stranger');
             INSERT INTO a VALUES (300, 1, 5); UPDATE b SET w = 4 WHERE id = 2; DELETE FROM a WHERE id = 4",
        )
        .await;
        assert_eq!(fails(&s, "SELECT * FROM by_group").await, "42501");
        assert_eq!(fails(&s, "SELECT * FROM pgtrickle_changes.immediate_3").await, "42501");
        run(&s, "RESET ROLE; REVOKE ALL ON a, b FROM immediate_stranger").await;
        assert_all(&mut t).await;
        assert_eq!(fails(&s, "INSERT INTO by_key VALUES (1, 1)").await, "55000");
        run(&s, "DROP OWNED BY immediate_stranger; DROP ROLE immediate_stranger").await;
    });
}
