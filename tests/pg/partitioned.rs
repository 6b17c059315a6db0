//! Partitions and child tables that are attached and detached. The tests catch captured rows of a partition
//! that is detached or dropped before a refresh reads the rows. The tests also catch rows of a partition that
//! are not captured or count twice.

use crate::program::Role;
use crate::support::{
    Driver, assert_equal, count, create, each_server, is_todays, name, open_with, run, todays_server,
    try_refresh,
};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;
use trickle_client::capture::CaptureOptions;
use trickle_client::{NewStreamTable, RefreshOptions, Result, Session, Settings, Watch};
use trickle_core::cdc::Mode;
use trickle_core::cost::{Force, Strategy};
use trickle_core::refresh::{Action, Kind, Statement};

const TABLES: &str = "
    CREATE TABLE p (id int PRIMARY KEY, v int, w text) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);
    CREATE TABLE p2a PARTITION OF p2 FOR VALUES FROM (10) TO (20);
    CREATE TABLE d (v int PRIMARY KEY, name text); INSERT INTO d SELECT i, 'd' || i FROM generate_series(0, 9) i;
    INSERT INTO p SELECT i, i % 5, 'w' || i FROM generate_series(1, 19) i;
    CREATE TABLE h (id int, v int) PARTITION BY HASH (id);
    CREATE TABLE h0 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 0);
    CREATE TABLE l (\"w\" text, xid int, v int) PARTITION BY LIST (\"w\"); CREATE TABLE la PARTITION OF l FOR VALUES IN ('a');
    INSERT INTO l VALUES ('a', 1, 1), ('a', 1, 1), ('a', 2, 2);
    CREATE TABLE parent (id int PRIMARY KEY, v int); INSERT INTO parent SELECT i, i FROM generate_series(1, 9) i";

const READERS: [(&str, &str); 9] = [
    ("shown", "SELECT id, v, w FROM p WHERE v < 4"),
    ("keyed", "SELECT p.id, count(*) AS n, max(d.name) AS m FROM p LEFT JOIN d ON d.v >= p.v GROUP BY p.id"),
    ("lists", "SELECT \"w\", v, rank() OVER (PARTITION BY \"w\" ORDER BY v) AS r FROM l"),
    ("total", "SELECT count(*) AS n, sum(v) AS s FROM p"),
    ("joined", "SELECT p.id, d.name FROM p JOIN d ON d.v = p.v"),
    ("grouped", "SELECT v, count(*) AS n, max(id) AS m FROM p GROUP BY v"),
    ("hashed", "SELECT v % 2 AS g, count(*) AS n FROM h GROUP BY v % 2"),
    ("listed", "SELECT \"w\", xid, count(*) AS n FROM l GROUP BY \"w\", xid"),
    ("inherited", "SELECT count(*) AS n, sum(v) AS s FROM parent"),
];

const GONE: &str = "DROP SCHEMA public CASCADE; CREATE SCHEMA public";

fn settings(mode: Mode) -> Settings {
    let capture = CaptureOptions { mode, ..CaptureOptions::default() };
    Settings { force: Some(Force::Incremental), capture, ..Settings::default() }
}

async fn made(s: &Session, t: &mut Driver) {
    run(s, GONE).await;
    run(s, TABLES).await;
    for (table, query) in READERS {
        create(t, table, query).await;
    }
}

async fn gone(t: &mut Driver) {
    for (table, _) in READERS {
        t.drop(&name(table), true).await.unwrap();
    }
}

/// Rows are captured through a table while it has a certain partition or child. That partition or child is
/// dropped or detached before the next refresh.
#[test]
fn a_partition_that_came_and_went_leaves_no_row() {
    todays_server(async |db| {
        let s = db.session().await;
        for mode in Mode::PLAIN {
            let mut t = open_with(db, settings(mode)).await;
            let all = [
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p SELECT i, 1 FROM generate_series(30, 35) i; DROP TABLE p3",
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p SELECT i, 1 FROM generate_series(30, 35) i; \
                 ALTER TABLE p DETACH PARTITION p3",
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p SELECT i, 1 FROM generate_series(30, 35) i; \
                 DROP TABLE p3; CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p VALUES (31, 1)",
                "CREATE TABLE p2b PARTITION OF p2 FOR VALUES FROM (20) TO (30); INSERT INTO p SELECT i, 1 FROM generate_series(20, 25) i; DROP TABLE p2b",
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (50) PARTITION BY RANGE (id); \
                 CREATE TABLE p3a PARTITION OF p3 FOR VALUES FROM (30) TO (40); INSERT INTO p VALUES (30, 1); \
                 CREATE TABLE p3b PARTITION OF p3 FOR VALUES FROM (40) TO (50); INSERT INTO p VALUES (40, 1), (41, 1); DROP TABLE p3b",
                "CREATE TABLE h1 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 1); INSERT INTO h SELECT i, i FROM generate_series(1, 20) i; DROP TABLE h1",
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p VALUES (35, 1); ALTER TABLE p DETACH PARTITION p3; \
                 UPDATE p3 SET id = id + 10; ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (40) TO (50)",
                "CREATE TABLE lb PARTITION OF l FOR VALUES IN ('b', NULL); INSERT INTO l VALUES ('b', 1, 1), (NULL, 2, 2); DROP TABLE lb",
                "CREATE TABLE child () INHERITS (parent); INSERT INTO child VALUES (100, 100), (101, 101); UPDATE parent SET v = v + 1; DROP TABLE child",
                "CREATE TABLE child () INHERITS (parent); INSERT INTO child VALUES (100, 100); DELETE FROM parent WHERE id > 8; \
                 ALTER TABLE child NO INHERIT parent",
            ];
            for (_, change) in all.into_iter().enumerate().filter(|(nth, _)| is_todays(*nth, 5)) {
                made(&s, &mut t).await;
                // Both sessions have fired the triggers before the change, and `old` has an older snapshot.
                let (writer, old) = (db.session().await, db.session().await);
                run(&old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").await;
                run(&writer, "INSERT INTO p VALUES (0, 1, 'w'); UPDATE parent SET v = v WHERE id = 1").await;
                for (at, statement) in change.split("; ").enumerate() {
                    run(&writer, statement).await;
                    if at == 0 && change.contains("INHERITS") {
                        run(
                            &old,
                            "UPDATE parent SET v = v WHERE id < 0; COMMIT; UPDATE parent SET v = v + 1",
                        )
                        .await;
                    }
                }
                for (table, _) in READERS {
                    try_refresh(&mut t, table).await.unwrap_or_else(|e| panic!("{change}: {e:?}"));
                    assert_equal(&mut t, table).await;
                }
                run(
                    &writer,
                    "UPDATE p SET v = v + 1; UPDATE parent SET v = v + 1; DELETE FROM l WHERE xid = 1",
                )
                .await;
                for (table, _) in READERS {
                    assert_equal(&mut t, table).await;
                }
                gone(&mut t).await;
            }
        }
    });
}

/// Rows of a partition that is attached count once. The rows may have been written through the table, into
/// the partition, or before the partition was attached.
#[test]
fn rows_of_a_partition_that_comes_count_once() {
    todays_server(async |db| {
        let s = db.session().await;
        for mode in Mode::PLAIN {
            let all = [
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40)",
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p SELECT i, 1 FROM generate_series(30, 35) i; \
                 INSERT INTO p3 VALUES (36, 2), (37, 3); UPDATE p SET v = 4 WHERE id IN (31, 36, 3); DELETE FROM p3 WHERE id = 30; \
                 UPDATE p SET id = 39 WHERE id = 5; UPDATE p3 SET v = 0 WHERE id = 39",
                "CREATE TABLE p3 (id int PRIMARY KEY, w text, v int); INSERT INTO p3 SELECT i, 'x', 2 FROM generate_series(30, 38) i; \
                 ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (30) TO (40); DELETE FROM p WHERE id = 33; INSERT INTO p VALUES (39, 1)",
                "CREATE TABLE p2b PARTITION OF p2 FOR VALUES FROM (20) TO (30); INSERT INTO p SELECT i, 1 FROM generate_series(20, 25) i; \
                 INSERT INTO p2b VALUES (26, 1); INSERT INTO p2 VALUES (27, 1)",
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); CREATE TABLE p2b PARTITION OF p2 FOR VALUES FROM (20) TO (30); \
                 INSERT INTO p SELECT i, 1 FROM generate_series(23, 39) i; UPDATE p SET id = id + 10 WHERE id BETWEEN 10 AND 12; DELETE FROM p2b WHERE id = 22",
                "CREATE TABLE h1 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 1); INSERT INTO h SELECT i, i FROM generate_series(1, 20) i; \
                 INSERT INTO h SELECT i, i FROM generate_series(1, 20) i; DELETE FROM h WHERE id = 7",
                "CREATE TABLE rest PARTITION OF p DEFAULT; INSERT INTO p VALUES (99, 1)",
                "ALTER TABLE p DETACH PARTITION p1; CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (3, 3)",
                "DROP TABLE p1; CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (0) TO (5); INSERT INTO p3 VALUES (4, 1)",
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40) PARTITION BY RANGE (id); \
                 CREATE TABLE p3a PARTITION OF p3 FOR VALUES FROM (30) TO (35); INSERT INTO p VALUES (31, 1)",
                "ALTER TABLE p1 ADD CONSTRAINT c CHECK (v < 100); ALTER TABLE p ALTER v TYPE bigint; \
                 CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p VALUES (31, 1)",
                "CREATE TABLE lb PARTITION OF l FOR VALUES IN ('b', NULL); INSERT INTO l VALUES ('b', 1, 1), (NULL, 2, 2), ('a', 1, 1); \
                 INSERT INTO lb VALUES (NULL, 2, 2), ('b', 1, 1); UPDATE l SET \"w\" = 'a' WHERE \"w\" = 'b' AND xid = 1",
            ];
            for (_, change) in all.into_iter().enumerate().filter(|(nth, _)| is_todays(*nth, 6)) {
                let mut t = open_with(db, settings(mode)).await;
                made(&s, &mut t).await;
                run(&s, "INSERT INTO p VALUES (0, 1, 'w'); INSERT INTO l VALUES ('a', 3, 3)").await;
                for (at, statement) in change.split("; ").enumerate() {
                    run(&s, statement).await;
                    // In the middle of the change, one stream table is refreshed before the others, and
                    // another one is created.
                    if at == 2 {
                        assert_equal(&mut t, "joined").await;
                        create(&mut t, "late", "SELECT v, sum(id) AS s FROM p GROUP BY v").await;
                    }
                }
                for _ in 0..2 {
                    for (table, _) in READERS {
                        try_refresh(&mut t, table).await.unwrap_or_else(|e| panic!("{change}: {e:?}"));
                        assert_equal(&mut t, table).await;
                    }
                    run(&s, "UPDATE p SET v = v + 1; DELETE FROM l WHERE xid = 1; UPDATE h SET v = v + 1")
                        .await;
                }
                if t.find(&name("late")).await.is_ok() {
                    assert_equal(&mut t, "late").await;
                    t.drop(&name("late"), true).await.unwrap();
                }
                gone(&mut t).await;
            }
        }
    });
}

/// Two refreshes wait for the same writer. A partition that is attached while a creation waits is captured
/// too.
#[test]
fn partitions_come_while_others_wait() {
    todays_server(async |db| {
        let s = db.session().await;
        let (mut one, mut other) =
            (open_with(db, settings(Mode::Statement)).await, open_with(db, settings(Mode::Statement)).await);
        made(&s, &mut one).await;
        let writer = db.session().await;
        let soon = || tokio::time::sleep(std::time::Duration::from_millis(300));
        run(&writer, "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); BEGIN; INSERT INTO p3 VALUES (31, 1); INSERT INTO p VALUES (32, 2)")
            .await;
        let waited = async {
            soon().await;
            run(&writer, "COMMIT").await;
        };
        let (a, b, ()) =
            tokio::join!(try_refresh(&mut one, "total"), try_refresh(&mut other, "grouped"), waited);
        a.unwrap();
        b.unwrap();
        for table in ["total", "grouped", "joined"] {
            assert_equal(&mut one, table).await;
        }
        run(
            &writer,
            "CREATE TABLE p4 (id int PRIMARY KEY, v int, w text); INSERT INTO p4 VALUES (41, 1); BEGIN; \
            ALTER TABLE p ATTACH PARTITION p4 FOR VALUES FROM (40) TO (50)",
        )
        .await;
        let attached = async {
            soon().await;
            run(&writer, "COMMIT; INSERT INTO p4 VALUES (42, 2); INSERT INTO p VALUES (43, 3)").await;
        };
        let new = NewStreamTable::new(name("wide"), "SELECT w, count(*) AS n FROM p GROUP BY w");
        // The creation may fail with the error that partitions come and go. Then the test creates the stream
        // table again.
        let (_, ()) = tokio::join!(one.create(&new), attached);
        if one.find(&name("wide")).await.is_err() {
            one.create(&new).await.unwrap();
        }
        for _ in 0..2 {
            for table in ["wide", "total", "grouped", "joined"] {
                assert_equal(&mut one, table).await;
            }
            run(&writer, "UPDATE p4 SET v = v + 1; DELETE FROM p4 WHERE id = 41").await;
        }
        one.drop(&name("wide"), true).await.unwrap();
        // While DETACH CONCURRENTLY waits for readers of the table, the partition does not count as a
        // partition. No stream table is suspended.
        let reader = db.session().await;
        run(&reader, "BEGIN; SELECT count(*) FROM p").await;
        let detached = run(&writer, "ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY");
        let meanwhile = async {
            soon().await;
            try_refresh(&mut one, "total").await.unwrap();
        };
        let ended = async {
            soon().await;
            soon().await;
            run(&reader, "INSERT INTO p VALUES (35, 5); COMMIT").await;
        };
        tokio::join!(detached, meanwhile, ended);
        for table in ["total", "grouped", "joined"] {
            assert_equal(&mut one, table).await;
        }
        gone(&mut one).await;
    });
}

/// A watch on a refresh. The watch attaches a partition with rows before the statement with index `at`.
struct Attaches<'s> {
    writer: &'s Session,
    at: usize,
    seen: usize,
}

impl Watch for Attaches<'_> {
    fn before<'s>(&'s mut self, statement: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(async move {
            if self.seen == self.at && !matches!(statement.kind, Kind::Rollback) {
                // In a session with `session_replication_role` replica, the extension's event triggers do not
                // fire. These event triggers would make the ATTACH wait for the refresh.
                run(
                    self.writer,
                    "SET session_replication_role = replica; ALTER TABLE p ATTACH PARTITION p4 FOR VALUES FROM (40) TO (50); \
                     RESET session_replication_role",
                )
                .await;
            }
            self.seen += 1;
            Ok(())
        })
    }
}

/// A partition is attached between two statements of a refresh. The rows of the partition are in all stream
/// tables of the refresh, or in none. If the ATTACH had to wait for the refresh, the test would hang. The
/// refresh waits for the ATTACH only in the test, so the server would see no deadlock.
#[test]
fn partitions_come_between_any_two_statements_of_a_refresh() {
    todays_server(async |db| {
        let s = db.session().await;
        let mut t = open_with(db, settings(Mode::Statement)).await;
        made(&s, &mut t).await;
        create(&mut t, "sums", "SELECT v, sum(id) AS s FROM p GROUP BY v").await;
        create(&mut t, "both", "SELECT v, g.n, s.s FROM grouped g FULL JOIN sums s USING (v)").await;
        create(&mut t, "again", "SELECT p.id, b.n, b.s FROM p JOIN \"both\" b USING (v)").await;
        let torn = "SELECT count(*) FROM (SELECT v, g.n, s.s FROM grouped g FULL JOIN sums s USING (v) EXCEPT TABLE \"both\") d";
        let apart = "SELECT (abs((SELECT sum(n) FROM grouped) - (SELECT count(*) FROM again)) + abs((SELECT sum(s) FROM sums) - (SELECT sum(id) FROM again)))::int8";
        let mut partly = BTreeSet::new();
        for at in (0..).filter(|at| is_todays(*at, 6)) {
            run(
                &s,
                "UPDATE p SET v = (v + 1) % 5 WHERE id < 9; CREATE TABLE p4 (id int PRIMARY KEY, v int, w text); \
                 INSERT INTO p4 SELECT i, i % 5 FROM generate_series(40, 49) i",
            )
            .await;
            let mut meanwhile = Attaches { writer: &s, at, seen: 0 };
            t.refresh_watched(&[name("again")], &RefreshOptions::default(), &mut meanwhile).await.unwrap();
            let last = meanwhile.seen <= at;
            assert_eq!(count(&s, torn).await + count(&s, apart).await, 0, "step {at}");
            partly.insert(count(&s, "SELECT count(*) FROM again WHERE id = 40").await);
            for table in ["grouped", "sums", "both", "again"] {
                assert_equal(&mut t, table).await;
            }
            run(&s, "DROP TABLE p4").await;
            if last {
                break;
            }
        }
        assert_eq!(partly.len(), 2, "it was in none, or in each");
        for table in ["again", "both", "sums"] {
            t.drop(&name(table), true).await.unwrap();
        }
        gone(&mut t).await;
    });
}

/// Texts that run a MERGE. `{m}` stands for the MERGE.
const PLACES: [&str; 6] = [
    "{m}",
    "DO $$ BEGIN {m}; END $$",
    "DO $$ BEGIN EXECUTE $m${m}$m$; END $$",
    "CREATE OR REPLACE FUNCTION moves() RETURNS void LANGUAGE sql AS $$ {m} $$; SELECT moves()",
    "PREPARE moves AS {m}; EXECUTE moves; DEALLOCATE moves",
    "BEGIN; INSERT INTO p VALUES (4, 4); {m}; COMMIT",
];

/// The server shows no statement trigger the row that a MERGE moves to another partition. The test checks
/// that the row is noticed all the same.
#[test]
fn a_merge_that_moves_rows_between_partitions_is_noticed() {
    const MOVES: [&str; 3] = [
        "MERGE INTO p USING (VALUES (2)) x(a) ON id = a WHEN MATCHED THEN UPDATE SET id = 13",
        "MERGE INTO p USING (VALUES (13), (3), (27)) x(a) ON id = a WHEN MATCHED AND a = 3 THEN DELETE WHEN MATCHED THEN UPDATE SET id = 2 \
         WHEN NOT MATCHED THEN INSERT VALUES (a % 9, 1)",
        "MERGE INTO p2 USING (VALUES (11)) x(a) ON id = a WHEN MATCHED THEN UPDATE SET id = 21",
    ];
    const STAYS: &str = "MERGE INTO p USING (VALUES (1), (15)) x(a) ON id = a WHEN MATCHED THEN UPDATE SET v = v + 1 WHEN NOT MATCHED THEN INSERT VALUES (a, 1)";
    const PARTS: &str = "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); \
        CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id); CREATE TABLE p2a PARTITION OF p2 FOR VALUES FROM (10) TO (20); \
        CREATE TABLE p2b PARTITION OF p2 FOR VALUES FROM (20) TO (30); INSERT INTO p VALUES (1, 1), (2, 2), (3, 3), (11, 1), (15, 5)";
    todays_server(async |db| {
        for mode in [Mode::Statement, Mode::Row] {
            let s = db.session().await;
            let mut t = open_with(db, settings(mode)).await;
            for (nth, place) in PLACES.iter().enumerate().filter(|(nth, _)| is_todays(*nth, 2)) {
                run(&s, PARTS).await;
                create(&mut t, "rows", "SELECT id, v FROM p").await;
                create(&mut t, "groups", "SELECT id % 10 AS g, count(*) AS n FROM p GROUP BY id % 10").await;
                create(&mut t, "counted", "SELECT count(*) AS n FROM p").await;
                // The counters of deleted rows in a session outlive the transaction, so each text has a new
                // session.
                let session = db.session().await;
                let s = &session;
                for (i, merge) in [STAYS, MOVES[0], STAYS, MOVES[1], MOVES[2], STAYS].into_iter().enumerate()
                {
                    for text in place.replace("{m}", merge).split("; ").filter(|_| nth > 3) {
                        run(s, text).await;
                    }
                    if nth <= 3 {
                        run(s, &place.replace("{m}", merge)).await;
                    }
                    for table in ["rows", "groups", "counted"] {
                        let done = try_refresh(&mut t, table).await.unwrap();
                        if i == 0 && !Driver::is_the_servers() {
                            let action = done.last().unwrap().report.action;
                            assert_eq!(action, Action::Differential, "{place}: {merge}");
                        }
                        assert_equal(&mut t, table).await;
                    }
                }
                for table in ["counted", "groups", "rows"] {
                    t.drop(&name(table), true).await.unwrap();
                }
                run(s, "DROP TABLE p").await;
            }
        }
    });
}

/// A partitioned table is captured while it has no partition, and gets its first partition later.
#[test]
fn a_table_may_get_its_first_partition_later() {
    todays_server(async |db| {
        for mode in [Mode::Statement, Mode::Row] {
            let s = db.session().await;
            let mut t = open_with(db, settings(mode)).await;
            run(&s, "CREATE TABLE p (id int, v int) PARTITION BY RANGE (id)").await;
            create(&mut t, "rows", "SELECT id, v FROM p").await;
            for change in [
                "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1, 1)",
                "DROP TABLE p1",
                "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (2, 2); DROP TABLE p1",
                "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p1 VALUES (3, 3)",
            ] {
                for text in change.split("; ") {
                    run(&s, text).await;
                }
                try_refresh(&mut t, "rows").await.unwrap();
                assert_equal(&mut t, "rows").await;
            }
            let called = "SELECT count(*) FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid WHERE g.tgrelid = 'p'::regclass \
                 AND g.tgtype & 1 = 1 AND NOT has_function_privilege('public', p.oid, 'EXECUTE')";
            assert_eq!(count(&s, called).await, 0, "a role that makes a partition needs it");
            t.drop(&name("rows"), true).await.unwrap();
            run(&s, "DROP TABLE p").await;
        }
    });
}

const DAYS: &str = "
    CREATE TABLE e (id int, day date NOT NULL, v int) PARTITION BY RANGE (day);
    CREATE TABLE e1 PARTITION OF e FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
    CREATE TABLE e2 PARTITION OF e FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
    CREATE TABLE e3 PARTITION OF e FOR VALUES FROM ('2024-03-01') TO ('2024-04-01') PARTITION BY LIST (v);
    CREATE TABLE e3a PARTITION OF e3 FOR VALUES IN (0, 1, 2); CREATE TABLE e3b PARTITION OF e3 FOR VALUES IN (3, 4, 5, 6);
    CREATE TABLE d (v int PRIMARY KEY, name text); INSERT INTO d SELECT i, 'd' || i FROM generate_series(0, 6) i;
    INSERT INTO e SELECT i, date '2024-01-01' + i % 90, i % 7 FROM generate_series(1, 900) i";

/// Readers whose result shows the columns by which the table is partitioned.
const IN_PARTS: [(&str, &str); 4] = [
    ("rows", "SELECT id, day, v FROM e WHERE id % 3 = 0"),
    ("daily", "SELECT day, v, count(*) AS n, sum(id) AS s FROM e GROUP BY day, v"),
    ("ranks", "SELECT id, day, v, rank() OVER (PARTITION BY day, v ORDER BY id) AS r FROM e"),
    ("names", "SELECT e.id, e.day, e.v, d.name FROM e LEFT JOIN d USING (v)"),
];

/// A partition comes or goes, and other partitions and tables change too. Readers that show the bounds
/// recompute the rows of that partition alone, and other readers recompute everything. The test catches rows
/// that are lost, doubled or out of date, and a recompute of more than the partition.
#[test]
fn a_part_alone_is_recomputed_where_partitions_come_and_go() {
    todays_server(async |db| {
        for mode in Mode::PLAIN {
            let s = db.session().await;
            let mut t =
                open_with(db, Settings { capture: settings(mode).capture, ..Settings::default() }).await;
            run(&s, DAYS).await;
            let whole = ("whole", "SELECT v, sum(id) AS s FROM e GROUP BY v");
            for (table, query) in IN_PARTS.iter().chain([&whole]) {
                create(&mut t, table, query).await;
            }
            for change in [
                "CREATE TABLE e4 PARTITION OF e FOR VALUES FROM ('2024-04-01') TO ('2024-05-01'); INSERT INTO e VALUES (1000, '2024-04-02', 1)",
                "INSERT INTO e4 VALUES (1003, '2024-04-03', 2); DROP TABLE e1; UPDATE e SET id = id + 3 WHERE day = '2024-02-05'",
                "ALTER TABLE e DETACH PARTITION e2; UPDATE d SET name = name || '+' WHERE v = 3; DELETE FROM e WHERE id = 1000",
                "ALTER TABLE e ATTACH PARTITION e2 FOR VALUES FROM ('2024-01-01') TO ('2024-03-01'); DELETE FROM e2 WHERE id % 2 = 0",
                "ALTER TABLE e3 DETACH PARTITION e3a; INSERT INTO e VALUES (2001, '2024-03-07', 5); CREATE TABLE e3c PARTITION OF e3 FOR VALUES IN (1); \
                 INSERT INTO e VALUES (2004, '2024-03-07', 1)",
                "CREATE TABLE e5 PARTITION OF e FOR VALUES FROM ('2024-05-01') TO ('2024-06-01'); INSERT INTO e VALUES (3000, '2024-05-02', 1); DROP TABLE e5; \
                 UPDATE e SET id = id + 3 WHERE day = '2024-03-08'",
                "CREATE TABLE e6 PARTITION OF e FOR VALUES FROM ('2024-06-01') TO ('2024-07-01')",
                "CREATE TABLE rest PARTITION OF e DEFAULT; INSERT INTO e VALUES (4000, '2025-01-01', 1), (4001, '2025-02-01', 2)",
                "DELETE FROM e WHERE day = '2025-01-01'; CREATE TABLE e7 PARTITION OF e FOR VALUES FROM ('2025-01-01') TO ('2025-02-01'); \
                 INSERT INTO e VALUES (4003, '2025-01-01', 2); UPDATE e SET v = 3 WHERE id = 4001; DROP TABLE e6",
                "DROP TABLE e7; INSERT INTO e VALUES (4006, '2025-01-01', 2)",
            ] {
                for text in change.split("; ") {
                    run(&s, text).await;
                }
                let parted = |t: &(&str, &str)| IN_PARTS.contains(t);
                for (table, query) in IN_PARTS.iter().chain([&whole]) {
                    let done = try_refresh(&mut t, table).await.unwrap_or_else(|e| panic!("{change}: {e:?}"));
                    let r = &done.last().unwrap().report;
                    if !Driver::is_the_servers() {
                        assert_eq!(
                            r.strategy == Strategy::Part,
                            parted(&(table, query)),
                            "{change}: {table}: {r:?}"
                        );
                        assert_eq!(r.action, Action::Reinitialize, "{change}: {table}");
                        assert!(r.reason.contains("partitions of public.e came or went"), "{}", r.reason);
                    }
                    assert_equal(&mut t, table).await;
                    let again = try_refresh(&mut t, table).await.unwrap();
                    assert_eq!(again.last().unwrap().report.action, Action::NoData, "{change}: {table}");
                }
                run(
                    &s,
                    "UPDATE e SET id = id + 6 WHERE id % 50 = 0; UPDATE d SET name = name || '-' WHERE v = 4",
                )
                .await;
                for (table, _) in IN_PARTS.iter().chain([&whole]) {
                    let done = try_refresh(&mut t, table).await.unwrap();
                    assert_ne!(done.last().unwrap().report.action, Action::Reinitialize, "{change}: {table}");
                    assert_equal(&mut t, table).await;
                }
            }
            for (table, _) in IN_PARTS.iter().chain([&whole]) {
                t.drop(&name(table), true).await.unwrap();
            }
            run(&s, "DROP TABLE e, d, e3a").await;
        }
    });
}

/// A partition is detached and given to a role of which the owner of the table is no member. The owner cannot
/// drop its triggers any more. Refreshes of all readers go on, and no trigger stays on the partition.
#[test]
fn a_detached_partition_may_be_given_to_another_role() {
    todays_server(async |db| {
        if Driver::is_the_servers() {
            return;
        }
        let (owner, archive) = (Role::create(db, "owner").await.name, Role::create(db, "archive").await.name);
        let s = db.session().await;
        run(
            &s,
            &format!(
                "CREATE SCHEMA kept AUTHORIZATION {owner}; GRANT USAGE, CREATE ON SCHEMA kept TO {archive}"
            ),
        )
        .await;
        let mut t = Driver::open_as(db, &owner, Settings::default()).await;
        run(
            t.connection(),
            "CREATE TABLE kept.e (id int, k int) PARTITION BY LIST (k); CREATE TABLE kept.e1 PARTITION OF kept.e FOR VALUES IN (1); \
             CREATE TABLE kept.e2 PARTITION OF kept.e FOR VALUES IN (2); INSERT INTO kept.e VALUES (1, 1), (2, 2)",
        )
        .await;
        let readers =
            [("kept.rows", "SELECT id, k FROM kept.e"), ("kept.total", "SELECT count(*) AS n FROM kept.e")];
        for (table, query) in readers {
            create(&mut t, table, query).await;
        }
        run(
            &s,
            &format!("ALTER TABLE kept.e DETACH PARTITION kept.e1; ALTER TABLE kept.e1 OWNER TO {archive}"),
        )
        .await;
        run(&s, "INSERT INTO kept.e1 VALUES (3, 1); INSERT INTO kept.e VALUES (4, 2)").await;
        for (table, _) in readers {
            try_refresh(&mut t, table).await.unwrap();
            assert_equal(&mut t, table).await;
        }
        let triggers = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'kept.e1'::regclass";
        assert_eq!(count(&s, triggers).await, 0);
        for (table, _) in readers {
            t.drop(&name(table), true).await.unwrap();
        }
        run(&s, &format!("DROP SCHEMA kept CASCADE; DROP OWNED BY {archive}")).await;
    });
}

/// A detached table keeps its triggers until the next refresh, and no bound holds for its rows any more. The
/// test catches rows of such a table that are taken for rows of a partition that stayed.
#[test]
fn rows_of_a_detached_table_count_for_no_partition() {
    each_server(async |db| {
        let s = db.session().await;
        for mode in Mode::PLAIN {
            let mut t =
                open_with(db, Settings { capture: settings(mode).capture, ..Settings::default() }).await;
            for change in [
                "ALTER TABLE g DETACH PARTITION g2; UPDATE g2 SET id = 1",
                "ALTER TABLE g DETACH PARTITION g2; INSERT INTO g2 VALUES (5, 5); INSERT INTO g VALUES (6, 6)",
                "BEGIN; ALTER TABLE g DETACH PARTITION g2; INSERT INTO g2 VALUES (5, 5); DELETE FROM g2 WHERE id = 11; COMMIT",
                "ALTER TABLE g DETACH PARTITION g2; INSERT INTO g2 VALUES (7, 7); DROP TABLE g2",
                "ALTER TABLE g DETACH PARTITION g3; INSERT INTO g3a VALUES (32, 3); INSERT INTO g3 VALUES (33, 3)",
                "ALTER TABLE g3 DETACH PARTITION g3a; INSERT INTO g3a VALUES (3, 3); UPDATE g SET v = v + 1",
                "INSERT INTO g2 VALUES (12, 1); ALTER TABLE g DETACH PARTITION g2 CONCURRENTLY; ALTER TABLE g2 DROP CONSTRAINT g2_id_check; INSERT INTO g2 VALUES (8, 8)",
                "ALTER TABLE g DETACH PARTITION g2; INSERT INTO g2 VALUES (13, 1); ALTER TABLE g ATTACH PARTITION g2 FOR VALUES FROM (10) TO (20)",
            ] {
                run(
                    &s,
                    "CREATE TABLE g (id int, v int) PARTITION BY RANGE (id); CREATE TABLE g1 PARTITION OF g FOR VALUES FROM (0) TO (10);
                     CREATE TABLE g2 PARTITION OF g FOR VALUES FROM (10) TO (20);
                     CREATE TABLE g3 PARTITION OF g FOR VALUES FROM (30) TO (50) PARTITION BY RANGE (id);
                     CREATE TABLE g3a PARTITION OF g3 FOR VALUES FROM (30) TO (40); INSERT INTO g VALUES (1, 1), (2, 2), (11, 11), (31, 31)",
                )
                .await;
                let readers = [
                    ("bag", "SELECT id, v FROM g"),
                    ("groups", "SELECT id, count(*) AS n FROM g GROUP BY id"),
                ];
                for (table, query) in readers {
                    create(&mut t, table, query).await;
                }
                for text in change.split("; ") {
                    run(&s, text).await;
                }
                for (table, _) in readers {
                    try_refresh(&mut t, table).await.unwrap_or_else(|e| panic!("{change}: {e:?}"));
                    assert_equal(&mut t, table).await;
                }
                run(&s, "INSERT INTO g VALUES (4, 4); DELETE FROM g WHERE id = 1").await;
                for (table, _) in readers {
                    try_refresh(&mut t, table).await.unwrap();
                    assert_equal(&mut t, table).await;
                    t.drop(&name(table), true).await.unwrap();
                }
                run(&s, "DROP TABLE g; DROP TABLE IF EXISTS g2, g3, g3a").await;
            }
        }
    });
}

/// PostgreSQL computes the generated columns of an inserted row in the partition. If the partition has its
/// columns at other places, a trigger for statements gets NULL for them.
#[test]
fn generated_columns_of_partitions_of_any_layout_are_right() {
    each_server(async |db| {
        let s = db.session().await;
        for mode in Mode::PLAIN {
            let mut t =
                open_with(db, Settings { capture: settings(mode).capture, ..Settings::default() }).await;
            for (layout, same) in [
                ("v int, a int, w int GENERATED ALWAYS AS (v * 2) STORED", false),
                ("a int, x text, v int, w int GENERATED ALWAYS AS (v * 2) STORED", false),
                ("a int, v int, w int GENERATED ALWAYS AS (v * 2) STORED, x text", false),
                ("a int, v int, w int GENERATED ALWAYS AS (v * 2) STORED", true),
            ] {
                let dropped = if layout.contains('x') { "ALTER TABLE q1 DROP COLUMN x;" } else { "" };
                run(
                    &s,
                    &format!(
                        "CREATE TABLE q (a int, v int, w int GENERATED ALWAYS AS (v * 2) STORED) PARTITION BY RANGE (a);
                         CREATE TABLE q2 PARTITION OF q FOR VALUES FROM (10) TO (20);
                         CREATE TABLE q1 ({layout}); {dropped} ALTER TABLE q ATTACH PARTITION q1 FOR VALUES FROM (0) TO (10)"
                    ),
                )
                .await;
                create(&mut t, "seen", "SELECT a, v, w FROM q").await;
                create(&mut t, "plain", "SELECT a, v FROM q").await;
                for change in [
                    "INSERT INTO q VALUES (1, 5), (11, 5)",
                    "INSERT INTO q1 (a, v) VALUES (2, 6)",
                    "UPDATE q SET a = a - 10, v = v + 1 WHERE a > 10",
                    "DELETE FROM q WHERE a = 1",
                    "COPY q (a, v) FROM PROGRAM 'printf \"3\\\\t7\\\\n\"'",
                ] {
                    run(&s, change).await;
                    for table in ["seen", "plain"] {
                        let done = try_refresh(&mut t, table).await.unwrap();
                        assert_equal(&mut t, table).await;
                        let action = done.last().unwrap().report.action;
                        if same {
                            assert_ne!(action, Action::Reinitialize, "{layout}: {change}: {table}");
                        }
                    }
                }
                for table in ["seen", "plain"] {
                    t.drop(&name(table), true).await.unwrap();
                }
                run(&s, "DROP TABLE q").await;
            }
        }
    });
}

/// To read the bounds of a partition, the server locks the partition and then the tables above it. A command
/// that drops or detaches a partition locks the tables above it first. The test catches a deadlock between a
/// refresh and such a command.
#[test]
fn a_refresh_locks_tables_above_a_partition_first() {
    each_server(async |db| {
        if Driver::is_the_servers() {
            return;
        }
        let s = db.session().await;
        let mut t = open_with(db, Settings::default()).await;
        run(
            &s,
            "CREATE TABLE u (id int, b text) PARTITION BY RANGE (id);
             CREATE TABLE u1 PARTITION OF u FOR VALUES FROM (0) TO (10) PARTITION BY LIST (b);
             CREATE TABLE u1a PARTITION OF u1 FOR VALUES IN ('a'); CREATE TABLE u1b PARTITION OF u1 FOR VALUES IN ('b');
             CREATE TABLE u3 PARTITION OF u FOR VALUES FROM (30) TO (40)",
        )
        .await;
        create(&mut t, "first", "SELECT id, b FROM u").await;
        create(&mut t, "second", "SELECT id, b FROM u").await;
        run(&s, "DROP TABLE u3").await;
        try_refresh(&mut t, "first").await.unwrap();
        // A session that has read the bounds before needs no lock to read them again.
        let mut fresh = open_with(db, Settings::default()).await;
        run(&s, "BEGIN; LOCK TABLE ONLY u1 IN ACCESS EXCLUSIVE MODE").await;
        let taken = async {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            run(&s, "ALTER TABLE u1 DETACH PARTITION u1a; COMMIT").await;
        };
        let (refreshed, ()) = tokio::join!(try_refresh(&mut fresh, "second"), taken);
        drop((refreshed, fresh));
        // The bounds can be read by a role that may read one column alone.
        let reader = Role::create(db, "reader").await.name;
        run(&s, &format!("GRANT SELECT (id) ON u TO {reader}; GRANT USAGE ON SCHEMA pgtrickle TO {reader}; SET ROLE {reader}")).await;
        assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.part_conditions('u'::regclass)").await, 1);
        run(&s, &format!("RESET ROLE; REVOKE ALL ON SCHEMA pgtrickle FROM {reader}")).await;
        for table in ["first", "second"] {
            try_refresh(&mut t, table).await.unwrap();
            assert_equal(&mut t, table).await;
            t.drop(&name(table), true).await.unwrap();
        }
        run(&s, "DROP TABLE u, u1a").await;
    });
}
