//! A user alters or drops relations by ordinary SQL. The extension handles the alteration in the same
//! transaction. The tests catch writers that fire triggers made for the table before its alteration, and
//! objects that are left behind.

use super::{installed, rows};
use crate::partman::{EVENTS, MAINTENANCE, SUMS, is_there};
use crate::support::{count, is_todays, newest_server, run, todays_server};
use trickle_client::Session;

const MADE: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int, spare text);
    CREATE TABLE b (id int PRIMARY KEY, k int, w int);
    INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 40) i;
    INSERT INTO b SELECT i, i % 5, i FROM generate_series(1, 10) i;
    SELECT pgtrickle.create_stream_table('joined', 'SELECT a.id, b.id AS b, a.v, b.w FROM a JOIN b USING (k)', NULL);
    SELECT pgtrickle.create_stream_table('tops', 'SELECT k, max(v) AS top FROM a GROUP BY k HAVING count(*) > 1', NULL)";

const JOINED: &str = "SELECT a.id, b.id AS b, a.v, b.w FROM a JOIN b USING (k)";
const TOPS: &str = "SELECT k, max(v) AS top FROM a GROUP BY k HAVING count(*) > 1";

/// A query for the number of relations, functions, triggers and catalog rows that trickle has for any stream
/// table.
const LEFT: &str =
    "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace)
    + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'pgtrickle_changes'::regnamespace)
    + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'trickle%')
    + (SELECT count(*) FROM pgtrickle.pgt_stream_tables) + (SELECT count(*) FROM pgtrickle.pgt_buffers)";

async fn assert_equal(s: &Session, table: &str, query: &str) {
    let differ = format!(
        "SELECT count(*) FROM ((({query}) EXCEPT ALL TABLE {table}) UNION ALL (TABLE {table} EXCEPT ALL ({query}))) x"
    );
    assert_eq!(count(s, &differ).await, 0, "{table}");
}

async fn refresh(s: &Session, table: &str) {
    run(s, &format!("SELECT pgtrickle.refresh_stream_table('{table}')")).await;
}

/// Returns the reason for which a stream table is suspended, or None when it is not suspended.
async fn suspended(s: &Session, table: &str) -> Option<String> {
    let told = format!(
        "SELECT last_error_message FROM pgtrickle.pgt_stream_tables WHERE pgt_name = '{table}' AND status = 'SUSPENDED'"
    );
    rows(s, &told).await.pop().map(|r| r[0].clone().unwrap_or_default())
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_stream_table_that_is_dropped_leaves_nothing() {
    todays_server(async |db| {
        let s = installed(db).await;
        for drop in [
            "DROP TABLE joined; DROP TABLE tops",
            "DROP TABLE a, b, joined, tops",
            "BEGIN; DROP TABLE joined; DROP TABLE a; DROP TABLE tops; COMMIT",
            "CREATE SCHEMA gone; ALTER TABLE joined SET SCHEMA gone; ALTER TABLE tops SET SCHEMA gone; DROP SCHEMA gone CASCADE",
        ] {
            run(&s, MADE).await;
            run(&s, "UPDATE a SET v = v + 1").await;
            run(&s, drop).await;
            assert_eq!(count(&s, LEFT).await, 0, "{drop}");
            run(&s, "DROP TABLE IF EXISTS a, b").await;
        }
        // The objects stay when the transaction of the DROP is rolled back.
        run(&s, MADE).await;
        run(&s, "BEGIN; DROP TABLE joined; ROLLBACK; UPDATE a SET v = v + 1; DELETE FROM b WHERE id = 2")
            .await;
        refresh(&s, "joined").await;
        assert_equal(&s, "joined", JOINED).await;
        // A role that does not own the extension's objects may drop the table. The extension drops these
        // objects with the table all the same.
        run(&s, "DROP TABLE joined, tops, a, b; CREATE ROLE dropper; CREATE SCHEMA dropper AUTHORIZATION dropper; \
                 SELECT pgtrickle.grant_to('dropper'); SET ROLE dropper; SET search_path = dropper")
            .await;
        run(&s, MADE).await;
        run(&s, "DROP TABLE tops").await;
        run(&s, "RESET ROLE; RESET search_path; DROP OWNED BY dropper; DROP ROLE dropper").await;
        assert_eq!(count(&s, LEFT).await, 0);
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_stream_table_is_known_by_the_name_that_it_has() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, MADE).await;
        run(&s, "CREATE SCHEMA one; ALTER TABLE joined RENAME TO j; ALTER TABLE tops SET SCHEMA one").await;
        run(&s, "ALTER SCHEMA one RENAME TO two; UPDATE a SET v = 7 WHERE id < 9").await;
        let names = "SELECT pgt_schema || '.' || pgt_name FROM pgtrickle.pgt_stream_tables";
        let named = rows(&s, names).await;
        assert_eq!(named, [[Some("public.j".to_owned())], [Some("two.tops".to_owned())]]);
        refresh(&s, "j").await;
        refresh(&s, "two.tops").await;
        assert_equal(&s, "j", JOINED).await;
        assert_equal(&s, "two.tops", TOPS).await;
        run(&s, "DROP SCHEMA two CASCADE; DROP TABLE j").await;
        assert_eq!(count(&s, LEFT).await, 0);
    });
}

/// The state of a stream table after an alteration of its sources.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// The stream table equals its query as the user typed the query.
    Kept,
    /// The stream table equals its query with the new names.
    Followed,
    Suspended,
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn writers_of_an_altered_table_go_on_at_once() {
    use Then::{Followed, Kept, Suspended};
    todays_server(async |db| {
        let s = installed(db).await;
        for (change, write, then) in [
            ("ALTER TABLE a ADD COLUMN more int DEFAULT 3", "UPDATE a SET v = v + more", Kept),
            ("ALTER TABLE a DROP COLUMN spare", "DELETE FROM a WHERE id < 4", Kept),
            ("ALTER TABLE a ALTER COLUMN v TYPE bigint", "UPDATE a SET v = 5000000000", Kept),
            ("ALTER TABLE a RENAME COLUMN spare TO v2", "UPDATE a SET v = id", Kept),
            ("ALTER TABLE a RENAME COLUMN v TO value", "UPDATE a SET value = value + 1", Followed),
            ("ALTER TABLE a DROP COLUMN v", "UPDATE a SET k = 2", Suspended),
            ("ALTER TABLE a RENAME TO a2", "UPDATE a2 SET v = 3", Followed),
            (
                "ALTER TABLE a ALTER COLUMN k TYPE text USING k::text",
                "UPDATE a SET k = 'x', v = v + 1",
                Suspended,
            ),
            ("CREATE SCHEMA other; ALTER TABLE a SET SCHEMA other", "UPDATE other.a SET v = 3", Followed),
            ("DROP TABLE a", "UPDATE b SET w = 9; CREATE TABLE a (id int)", Suspended),
            (
                "BEGIN; DROP TABLE a; CREATE TABLE a AS SELECT i AS id, i % 5 AS k, i AS v FROM generate_series(1, 9) i; COMMIT",
                "UPDATE a SET v = 8; INSERT INTO a VALUES (1, 1, 1)",
                Kept,
            ),
        ] {
            run(&s, MADE).await;
            run(&s, "UPDATE a SET v = v + 1 WHERE k = 1; DELETE FROM b WHERE id = 3").await;
            run(&s, change).await;
            run(&s, write).await;
            run(&s, "UPDATE b SET w = w + 1 WHERE id = 4").await;
            if then != Suspended {
                for (table, typed) in [("joined", JOINED), ("tops", TOPS)] {
                    refresh(&s, table).await;
                    let now = format!(
                        "SELECT defining_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = '{table}'"
                    );
                    let now: String = s.client().query_one(&now, &[]).await.unwrap().get(0);
                    let query = if then == Kept { typed } else { now.trim_end_matches(';') };
                    assert_equal(&s, table, query).await;
                }
            } else {
                let refused =
                    s.client().batch_execute("SELECT pgtrickle.refresh_stream_table('joined')").await;
                assert!(refused.is_err(), "{change}");
                let why = suspended(&s, "joined").await;
                assert!(
                    why.as_ref().is_some_and(|w| !w.is_empty()) || change.starts_with("DROP TABLE"),
                    "{change}: {why:?}"
                );
            }
            run(&s, "DROP TABLE IF EXISTS joined, tops, a, a2, b; DROP SCHEMA IF EXISTS other CASCADE").await;
            assert_eq!(count(&s, LEFT).await, 0, "{change}");
        }
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn writers_go_on_when_the_schema_of_a_table_gets_another_name() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(
            &s,
            "CREATE SCHEMA home; CREATE TABLE home.a (id int PRIMARY KEY, v int); INSERT INTO home.a VALUES (1, 1); \
             SELECT pgtrickle.create_stream_table('later', 'SELECT id, v FROM home.a', NULL); \
             SELECT pgtrickle.create_stream_table('kept', 'SELECT id, v FROM home.a', NULL, 'IMMEDIATE')",
        )
        .await;
        run(
            &s,
            "ALTER SCHEMA home RENAME TO other; UPDATE other.a SET v = 2; INSERT INTO other.a VALUES (2, 2)",
        )
        .await;
        for table in ["later", "kept"] {
            refresh(&s, table).await;
            assert_equal(&s, table, "SELECT id, v FROM other.a").await;
        }
        run(&s, "UPDATE other.a SET v = v + 1").await;
        assert_equal(&s, "kept", "SELECT id, v FROM other.a").await;
        run(&s, "ALTER SCHEMA other RENAME TO home; UPDATE home.a SET v = v + 1").await;
        for table in ["later", "kept"] {
            refresh(&s, table).await;
            assert_equal(&s, table, "SELECT id, v FROM home.a").await;
        }
        run(&s, "DELETE FROM home.a WHERE id = 1").await;
        assert_equal(&s, "kept", "SELECT id, v FROM home.a").await;
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_partition_is_captured_from_when_it_is_one() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); \
                 SELECT pgtrickle.create_stream_table('sums', 'SELECT v, count(*) AS n FROM p GROUP BY v', NULL)")
            .await;
        let query = "SELECT v, count(*) AS n FROM p GROUP BY v";
        let later = "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)";
        let there = "CREATE TABLE p3 (id int, v int); INSERT INTO p3 VALUES (25, 5); \
                     ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)";
        for change in [
            later,
            "INSERT INTO p2 VALUES (11, 1)",
            there,
            "INSERT INTO p3 VALUES (26, 1)",
            "ALTER TABLE p DETACH PARTITION p1",
        ] {
            run(&s, change).await;
            let triggers = "SELECT count(*) FROM pg_inherits h WHERE h.inhparent = 'p'::regclass AND NOT EXISTS \
                 (SELECT FROM pg_trigger g WHERE g.tgrelid = h.inhrelid AND g.tgname LIKE 'trickle%')";
            assert_eq!(count(&s, triggers).await, 0, "{change}");
            refresh(&s, "sums").await;
            assert_equal(&s, "sums", query).await;
        }
        run(&s, "DROP TABLE p, sums, p1").await;
        assert_eq!(count(&s, LEFT).await, 0);
    });
}

/// A query for the number of refreshes by hand that recomputed a stream table.
const ANEW: &str = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action IN ('FULL', 'REINITIALIZE') AND initiated_by = 'MANUAL'";

/// Statements that attach an empty partition, some with a write in the same transaction.
const EMPTY: &[&str] = &[
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
    "CREATE TABLE p2 (LIKE p INCLUDING ALL); ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
    "CREATE TABLE p2 (LIKE p); BEGIN; INSERT INTO p VALUES (3, 3); ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20); INSERT INTO p2 VALUES (12, 3); COMMIT",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY LIST (v); CREATE TABLE p21 PARTITION OF p2 DEFAULT",
    "CREATE TABLE p2 (LIKE p) PARTITION BY LIST (v); CREATE TABLE p21 PARTITION OF p2 DEFAULT; ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
    "DO $$ BEGIN CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); BEGIN CREATE TABLE p3 (LIKE p); \
        ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30); EXCEPTION WHEN others THEN NULL; END; END $$",
    "CREATE TABLE p2 (LIKE p); INSERT INTO p2 VALUES (15, 5); TRUNCATE p2; ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
];

/// No reader is recomputed when an empty partition is attached. The partition is captured from its first row
/// on.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn an_empty_partition_costs_its_readers_nothing() {
    const QUERIES: [(&str, &str); 3] = [
        ("sums", "SELECT v, count(*) AS n FROM p GROUP BY v"),
        ("kept", "SELECT id, v FROM p WHERE v > 0"),
        ("above", "SELECT count(*) AS n, sum(n) AS s FROM sums"),
    ];
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, "SET pg_trickle.refresh_strategy = 'differential'").await;
        const MODES: [&str; 3] = [
            "SET pg_trickle.cdc_trigger_mode = 'statement'; SET pg_trickle.native_capture = on",
            "SET pg_trickle.cdc_trigger_mode = 'statement'; SET pg_trickle.native_capture = off",
            "SET pg_trickle.cdc_trigger_mode = 'row'",
        ];
        let ways = EMPTY.iter().flat_map(|way| MODES.map(|mode| (mode, way))).enumerate();
        for (_, (mode, way)) in ways.filter(|(nth, _)| is_todays(*nth, 4)) {
            run(&s, mode).await;
            run(&s, "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); \
                     INSERT INTO p SELECT i, i % 3 FROM generate_series(0, 9) i").await;
            for (name, query) in QUERIES {
                run(&s, &format!("SELECT pgtrickle.create_stream_table('{name}', '{query}', NULL)")).await;
            }
            run(&s, "UPDATE p SET v = v + 1 WHERE id < 3").await;
            let before = count(&s, ANEW).await;
            for change in [
                way,
                "INSERT INTO p VALUES (11, 1), (1, 1)",
                "INSERT INTO p2 VALUES (13, 3)",
                "UPDATE p SET v = 0 WHERE v = 1",
                "DELETE FROM p2 WHERE id = 11",
            ] {
                run(&s, change).await;
                refresh(&s, "above").await;
                refresh(&s, "kept").await;
                let flat =
                    "SELECT count(*) AS n, sum(n) AS s FROM (SELECT v, count(*) AS n FROM p GROUP BY v) x";
                for (name, query) in QUERIES {
                    assert_equal(&s, name, if name == "above" { flat } else { query }).await;
                }
            }
            assert_eq!(count(&s, ANEW).await, before, "{mode}: {way}");
            // The readers notice that a partition was dropped.
            run(&s, "DROP TABLE p2; INSERT INTO p VALUES (5, 1)").await;
            refresh(&s, "kept").await;
            assert_equal(&s, "kept", QUERIES[1].1).await;
            run(&s, "DROP TABLE above, sums, kept, p").await;
            assert_eq!(count(&s, LEFT).await, 0);
        }
    });
}

/// The partitions that pg_partman makes in advance are empty. The rows of partitions that pg_partman drops
/// become a delta.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn partitions_of_pg_partman_are_followed_at_no_cost() {
    todays_server(async |db| {
        let s = installed(db).await;
        if !is_there(&s).await {
            return;
        }
        run(&s, "SET pg_trickle.refresh_strategy = 'differential'").await;
        run(&s, EVENTS).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('sums', '{SUMS}', NULL)")).await;
        for change in MAINTENANCE {
            let before = count(&s, ANEW).await;
            run(&s, change).await;
            refresh(&s, "sums").await;
            assert_equal(&s, "sums", SUMS).await;
            assert_eq!(count(&s, ANEW).await, before, "{change}");
        }
    });
}

/// A partition was attached while event triggers were off. Later it does not count as a new empty partition,
/// even if it is empty at that time.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_partition_that_came_unseen_is_not_taken_for_an_empty_one() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)").await;
        let query = "SELECT v, count(*) AS n FROM p GROUP BY v";
        run(&s, &format!("SELECT pgtrickle.create_stream_table('sums', '{query}', NULL)")).await;
        run(&s, "SET session_replication_role = replica; CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); RESET session_replication_role").await;
        for change in [
            "INSERT INTO p VALUES (11, 1); TRUNCATE p2",
            "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30); INSERT INTO p VALUES (12, 2), (22, 2)",
            "INSERT INTO p VALUES (1, 1); DELETE FROM p2",
        ] {
            run(&s, change).await;
            refresh(&s, "sums").await;
            assert_equal(&s, "sums", query).await;
        }
    });
}

/// Partitions are attached and detached with their rows, and an IMMEDIATE stream table is right at the end of
/// each command.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn immediate_tables_follow_partitions_at_once() {
    const QUERY: &str = "SELECT v, count(*) AS n, sum(id) AS s FROM p GROUP BY v";
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); \
                 CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY LIST (v); \
                 CREATE TABLE p21 PARTITION OF p2 DEFAULT; INSERT INTO p SELECT i, i % 3 FROM generate_series(0, 19) i")
            .await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('kept', '{QUERY}', NULL, 'IMMEDIATE')")).await;
        for change in [
            "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30)",
            "INSERT INTO p3 VALUES (21, 1), (22, 2)",
            "CREATE TABLE p4 (id int, v int)",
            "INSERT INTO p4 VALUES (31, 1)",
            "ALTER TABLE p ATTACH PARTITION p4 FOR VALUES FROM (30) TO (40)",
            "UPDATE p4 SET v = 2",
            "ALTER TABLE p DETACH PARTITION p1",
            "UPDATE p1 SET v = 7",
            "ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10)",
            "ALTER TABLE p DETACH PARTITION p4 CONCURRENTLY",
            "INSERT INTO p4 VALUES (32, 1)",
            "TRUNCATE p3",
            "INSERT INTO p3 VALUES (23, 1)",
            "DROP TABLE p3",
            "DROP TABLE p21",
            "INSERT INTO p VALUES (5, 5)",
        ] {
            run(&s, change).await;
            assert_equal(&s, "kept", QUERY).await;
            assert_eq!(suspended(&s, "kept").await, None, "{change}");
        }
        run(&s, "DROP TABLE p, p4, kept").await;
        assert_eq!(count(&s, LEFT).await, 0);
    });
}

/// The server shows no trigger the row that a MERGE moves to another partition. Such a MERGE leaves a mark
/// for an IMMEDIATE stream table, and the next refresh recomputes the stream table.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn immediate_tables_note_a_merge_that_moves_rows() {
    const QUERY: &str = "SELECT v, count(*) AS n, sum(id) AS s FROM p GROUP BY v";
    const MARKED: &str = "SELECT count(*) FROM pgtrickle.pgt_marks WHERE reason LIKE 'a MERGE%'";
    newest_server(async |db| {
        let s = installed(db).await;
        run(&s, "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); \
                 CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); INSERT INTO p SELECT i, i % 3 FROM generate_series(0, 19) i")
            .await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('kept', '{QUERY}', NULL, 'IMMEDIATE')")).await;
        run(&s, "MERGE INTO p USING (VALUES (2), (12)) x(a) ON id = a WHEN MATCHED THEN UPDATE SET v = 9")
            .await;
        assert_eq!(count(&s, MARKED).await, 0);
        assert_equal(&s, "kept", QUERY).await;
        for _ in 0..2 {
            run(&s, "MERGE INTO p USING (VALUES (3)) x(a) ON id = a WHEN MATCHED THEN UPDATE SET id = 13, v = 7; INSERT INTO p VALUES (3, 1)").await;
            assert_eq!(count(&s, MARKED).await, 1);
            refresh(&s, "kept").await;
            assert_eq!(count(&s, MARKED).await, 0);
            assert_equal(&s, "kept", QUERY).await;
        }
    });
}

/// An IMMEDIATE stream table is right at the end of the command that altered its source. No refresh is
/// necessary.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn immediate_tables_are_rebuilt_by_the_command_that_alters() {
    todays_server(async |db| {
        let s = installed(db).await;
        let query = "SELECT a.k, sum(f(a.v) + b.w) AS s FROM a JOIN v_b b USING (k) GROUP BY a.k";
        for change in [
            "ALTER TABLE a ADD COLUMN more int",
            "ALTER TABLE a ALTER COLUMN v TYPE bigint",
            "CREATE OR REPLACE FUNCTION f(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x * 2'",
            "CREATE OR REPLACE VIEW v_b AS SELECT id, k, w FROM b WHERE w > 3",
            "ALTER TABLE b DROP CONSTRAINT b_pkey",
        ] {
            run(&s, "CREATE TABLE a (id int PRIMARY KEY, k int, v int); CREATE TABLE b (id int PRIMARY KEY, k int, w int); \
                     INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 40) i; INSERT INTO b SELECT i, i % 5, i FROM generate_series(1, 10) i; \
                     CREATE FUNCTION f(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x + 1'; \
                     CREATE FUNCTION f(x bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT x + 1'; \
                     CREATE VIEW v_b AS SELECT id, k, w FROM b")
                .await;
            run(&s, &format!("SELECT pgtrickle.create_stream_table('kept', '{query}', NULL, 'IMMEDIATE')"))
                .await;
            run(&s, "UPDATE a SET v = v + 1 WHERE k < 3").await;
            assert_equal(&s, "kept", query).await;
            run(&s, change).await;
            if suspended(&s, "kept").await.is_none() {
                assert_equal(&s, "kept", query).await;
            }
            run(&s, "UPDATE a SET v = v + 1 WHERE k > 1; UPDATE b SET w = w + 1; DELETE FROM a WHERE id = 9")
                .await;
            if suspended(&s, "kept").await.is_none() {
                assert_equal(&s, "kept", query).await;
            } else {
                assert!(change.contains("TYPE bigint"), "{change}: {:?}", suspended(&s, "kept").await);
            }
            run(&s, "DROP TABLE b CASCADE; UPDATE a SET v = 1; DROP TABLE a; DROP TABLE kept; DROP FUNCTION f(int), f(bigint)").await;
            assert_eq!(count(&s, LEFT).await, 0, "{change}");
        }
    });
}

/// Somebody drops a function that only the triggers need. The drop must not make writers fail.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn dropping_a_called_function_fails_no_writer() {
    todays_server(async |db| {
        let s = installed(db).await;
        let made = "CREATE FUNCTION f(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x + 1'";
        let query = "SELECT id, f(v) AS v FROM a";
        run(&s, "CREATE TABLE a (id int PRIMARY KEY, v int); INSERT INTO a VALUES (1, 1), (2, 2)").await;
        run(&s, made).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('kept', '{query}', NULL, 'IMMEDIATE')")).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('later', '{query}', NULL)")).await;
        run(&s, "UPDATE a SET v = v + 1").await;
        run(&s, "DROP FUNCTION f(int)").await;
        let told = suspended(&s, "kept").await;
        assert!(told.as_ref().is_some_and(|m| m.contains("f(integer)")), "{told:?}");
        run(&s, "UPDATE a SET v = v + 1; INSERT INTO a VALUES (3, 3)").await;
        run(&s, made).await;
        run(&s, "SELECT pgtrickle.resume_stream_table('kept')").await;
        for table in ["kept", "later"] {
            refresh(&s, table).await;
            assert_equal(&s, table, query).await;
        }
        run(&s, "DELETE FROM a WHERE id = 1").await;
        assert_equal(&s, "kept", query).await;
    });
}
