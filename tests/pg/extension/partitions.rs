//! Partitions that are attached with rows, and partitions that are detached or dropped. The extension
//! captures their rows as changes. The tests catch rows that are counted twice or not at all, and triggers
//! that stay on a detached table. The tests also catch readers that are recomputed although nothing else
//! changed.

use super::{installed, rows};
use crate::support::{count, is_todays, newest_server, run, todays_server};
use std::time::{Duration, Instant};
use trickle_client::Session;

/// The stream tables over `p`. Each has its name, its query, and the same query over `p` alone.
const QUERIES: [(&str, &str, &str); 4] = [
    ("sums", "SELECT v, count(*) AS n, max(id) AS m FROM p GROUP BY v", ""),
    ("kept", "SELECT id, v FROM p WHERE v > 0", ""),
    ("many", "SELECT count(*) AS n FROM p", ""),
    (
        "above",
        "SELECT count(*) AS g, sum(n) AS n FROM sums",
        "SELECT count(*) AS g, sum(n) AS n FROM (SELECT v, count(*) AS n FROM p GROUP BY v) x",
    ),
];

const TABLES: &str = "
    CREATE TABLE p (id int NOT NULL, v int, spare text) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
    CREATE TABLE \"P 2\" (spare text, v int, id int NOT NULL);
    ALTER TABLE p ATTACH PARTITION \"P 2\" FOR VALUES FROM (10) TO (20);
    CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (40) PARTITION BY RANGE (id);
    CREATE TABLE p31 PARTITION OF p3 FOR VALUES FROM (20) TO (30);
    CREATE TABLE p32 PARTITION OF p3 DEFAULT;
    CREATE TABLE rest PARTITION OF p DEFAULT;
    INSERT INTO p SELECT i, i % 4 FROM generate_series(0, 44) i;
    CREATE TABLE q (LIKE p); INSERT INTO q SELECT i, i % 3 FROM generate_series(50, 59) i;
    CREATE TABLE q3 (LIKE p) PARTITION BY LIST (v); CREATE TABLE q31 PARTITION OF q3 FOR VALUES IN (1, 2);
    CREATE TABLE q32 PARTITION OF q3 DEFAULT; INSERT INTO q3 SELECT i, i % 5 FROM generate_series(60, 69) i";

/// Commands that attach or remove partitions with rows. All readers are still updated by deltas.
const FOLLOWED: &[&str] = &[
    "ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60)",
    "ALTER TABLE p ATTACH PARTITION q3 FOR VALUES FROM (60) TO (70); UPDATE q31 SET v = 2",
    "BEGIN; INSERT INTO q VALUES (55, 9); ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); \
        UPDATE p SET v = v + 1 WHERE id > 53; DELETE FROM q WHERE id = 51; COMMIT",
    "DO $$ BEGIN BEGIN ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); INSERT INTO p VALUES (52, 7); \
        RAISE EXCEPTION 'no'; EXCEPTION WHEN raise_exception THEN NULL; END; \
        ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); INSERT INTO p VALUES (53, 7); END $$",
    "ALTER TABLE p DETACH PARTITION \"P 2\"; UPDATE \"P 2\" SET v = 7; INSERT INTO \"P 2\" VALUES ('', 3, 99); TRUNCATE \"P 2\"",
    "BEGIN; UPDATE p SET v = 5 WHERE id > 12; ALTER TABLE p DETACH PARTITION \"P 2\"; DELETE FROM \"P 2\"; UPDATE p SET v = v + 1; COMMIT",
    "BEGIN; ALTER TABLE p DETACH PARTITION \"P 2\"; DELETE FROM \"P 2\"; ROLLBACK; DELETE FROM \"P 2\" WHERE id = 13",
    "ALTER TABLE p DETACH PARTITION p3; UPDATE p31 SET v = 8; INSERT INTO p3 VALUES (33, 3); TRUNCATE p3",
    "ALTER TABLE p3 DETACH PARTITION p31; UPDATE p31 SET v = 8",
    "BEGIN; ALTER TABLE p DETACH PARTITION p3; UPDATE p3 SET v = 2; ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (40); \
        INSERT INTO p VALUES (22, 2); COMMIT",
    "ALTER TABLE p DETACH PARTITION p1; INSERT INTO p1 VALUES (3, 3); ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (5 + 5); UPDATE p1 SET v = 1",
    "DROP TABLE p1",
    "DROP TABLE IF EXISTS nowhere, \"P 2\", p31 CASCADE",
    "BEGIN; DELETE FROM p WHERE id % 2 = 0; DROP TABLE p3; INSERT INTO p VALUES (25, 5); COMMIT",
    "DO $$ BEGIN BEGIN DROP TABLE p1; RAISE EXCEPTION 'no'; EXCEPTION WHEN raise_exception THEN NULL; END; \
        INSERT INTO p VALUES (4, 4); END $$",
    "DROP TABLE rest; INSERT INTO p VALUES (1, 1)",
    "TRUNCATE p1",
    "TRUNCATE p1, \"P 2\" RESTART IDENTITY; INSERT INTO p VALUES (11, 1), (1, 1); TRUNCATE p1; TRUNCATE p1",
    "BEGIN; INSERT INTO p VALUES (2, 9); TRUNCATE p1; INSERT INTO p VALUES (3, 8); SAVEPOINT s; TRUNCATE p1; ROLLBACK TO s; COMMIT; \
        DELETE FROM p1 WHERE v = 8",
    "TRUNCATE p31; DROP TABLE p32",
    "SET session_replication_role = replica; DROP TABLE p1; RESET session_replication_role; INSERT INTO p VALUES (11, 3)",
    "SET ROLE TEST_keeper; TRUNCATE p1; ALTER TABLE p DETACH PARTITION \"P 2\"; DROP TABLE p3; ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); RESET ROLE",
    "SET ROLE TEST_emptier; TRUNCATE p1; RESET ROLE",
];

/// Commands after which some readers are recomputed.
const RECOMPUTED: &[&str] = &[
    "TRUNCATE p3",
    "TRUNCATE p",
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; DROP TABLE p1; COMMIT",
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); COMMIT",
    "CREATE SCHEMA gone; ALTER TABLE p1 SET SCHEMA gone; DROP SCHEMA gone CASCADE",
    "ALTER TABLE p1 ENABLE ROW LEVEL SECURITY; TRUNCATE p1",
    "SET session_replication_role = replica; ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); RESET session_replication_role; \
        UPDATE q SET v = 1; DROP TABLE q",
    "SET session_replication_role = replica; ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); INSERT INTO p VALUES (55, 5); \
        DROP TABLE q; RESET session_replication_role",
    "SET session_replication_role = replica; ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); DELETE FROM p WHERE id = 55; \
        DROP TABLE q; RESET session_replication_role",
    // Code of users writes the partition while a command takes it.
    "CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM p1 WHERE id < 5; RETURN NULL; END $$; \
        CREATE TRIGGER b BEFORE TRUNCATE ON p1 EXECUTE FUNCTION f(); TRUNCATE p1",
    "CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO p VALUES (1, 7); RETURN NULL; END $$; \
        CREATE TRIGGER b BEFORE TRUNCATE ON p1 EXECUTE FUNCTION f(); CREATE TRIGGER a AFTER TRUNCATE ON p1 EXECUTE FUNCTION f(); TRUNCATE p1",
    "CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pgtrickle.refresh_stream_table('sums'); \
        RETURN NULL; END $$; CREATE TRIGGER a AFTER TRUNCATE ON p1 EXECUTE FUNCTION f(); TRUNCATE p1",
    "CREATE OR REPLACE FUNCTION e() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM public.p1 WHERE id < 5; \
        INSERT INTO public.p VALUES (3, 3); END $$; \
        CREATE EVENT TRIGGER z ON ddl_command_start WHEN TAG IN ('DROP TABLE') EXECUTE FUNCTION e(); DROP TABLE p1; DROP EVENT TRIGGER z",
    "CREATE OR REPLACE FUNCTION e() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.p VALUES (3, 3); END $$; \
        CREATE EVENT TRIGGER z ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION e(); \
        ALTER TABLE p DETACH PARTITION p1; DROP EVENT TRIGGER z",
    "CREATE OR REPLACE FUNCTION e() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN IF NOT EXISTS (SELECT FROM public.p WHERE v = 77) THEN \
        INSERT INTO public.p VALUES (55, 77); END IF; END $$; CREATE EVENT TRIGGER aa ON ddl_command_end WHEN TAG IN ('ALTER TABLE') \
        EXECUTE FUNCTION e(); ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); DROP EVENT TRIGGER aa",
    "CREATE OR REPLACE FUNCTION e() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN IF NOT EXISTS (SELECT FROM public.q WHERE v = 77) THEN \
        INSERT INTO public.q VALUES (55, 77); END IF; END $$; CREATE EVENT TRIGGER zz ON ddl_command_end WHEN TAG IN ('ALTER TABLE', 'CREATE TRIGGER') \
        EXECUTE FUNCTION e(); ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60); DROP EVENT TRIGGER zz",
    "CREATE OR REPLACE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ALTER TABLE p DETACH PARTITION \"P 2\"; RETURN NULL; END $$; \
        CREATE TRIGGER aa AFTER INSERT ON \"P 2\" FOR EACH ROW EXECUTE FUNCTION f(); INSERT INTO \"P 2\" (id, v) VALUES (15, 5)",
    "DROP TABLE rest; ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY; INSERT INTO p1 VALUES (3, 9)",
];

/// A query for the number of refreshes by hand that recomputed a stream table.
const ANEW: &str = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action IN ('FULL', 'REINITIALIZE') AND initiated_by = 'MANUAL'";

/// A query for the number of triggers of trickle on tables that are no partitions of `p`.
const STRAY: &str = "SELECT count(*) FROM pg_trigger g WHERE g.tgname LIKE 'trickle_capture_%' AND NOT EXISTS \
    (SELECT FROM pg_partition_tree('p') t WHERE t.relid = g.tgrelid) AND g.tgrelid <> ALL (SELECT pgt_relid FROM pgtrickle.pgt_stream_tables)";

const MODES: [&str; 3] = [
    "SET pg_trickle.cdc_trigger_mode = 'statement'; SET pg_trickle.native_capture = on",
    "SET pg_trickle.cdc_trigger_mode = 'statement'; SET pg_trickle.native_capture = off",
    "SET pg_trickle.cdc_trigger_mode = 'row'",
];

/// Makes two roles under names of this test: the owner of the tables, and a role that may only empty them.
async fn make_roles(s: &Session, test: &str) {
    run(s, &format!("CREATE ROLE {test}_keeper; CREATE ROLE {test}_emptier; GRANT ALL ON SCHEMA public TO {test}_keeper; \
                     SELECT pgtrickle.grant_to('{test}_keeper')")).await;
}

async fn make(s: &Session, test: &str) {
    run(s, TABLES).await;
    let owned = "DO $$ DECLARE t regclass; BEGIN FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') LOOP \
            EXECUTE format('ALTER TABLE %s OWNER TO TEST_keeper', t); EXECUTE format('GRANT TRUNCATE ON %s TO TEST_emptier', t); END LOOP; END $$";
    run(s, &owned.replace("TEST", test)).await;
    for (name, query, _) in QUERIES {
        run(s, &format!("SELECT pgtrickle.create_stream_table('{name}', '{query}', NULL)")).await;
    }
    run(s, "UPDATE p SET v = v + 1 WHERE id % 3 = 0").await;
}

/// Refreshes all stream tables, and compares each with its query.
async fn compare(s: &Session, about: &str) {
    for (name, _, _) in QUERIES {
        run(s, &format!("SELECT pgtrickle.refresh_stream_table('{name}')")).await;
    }
    for (name, query, flat) in QUERIES {
        let query = if flat.is_empty() { query } else { flat };
        let differ = format!(
            "SELECT count(*) FROM ((({query}) EXCEPT ALL TABLE {name}) UNION ALL (TABLE {name} EXCEPT ALL ({query}))) x"
        );
        assert_eq!(count(s, &differ).await, 0, "{name} after {about}");
    }
}

async fn drop_all(s: &Session) {
    run(s, "DROP TABLE above, sums, kept, many; DROP TABLE IF EXISTS p, p1, \"P 2\", p3, p31, q, q3").await;
    let left = "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace) \
         + (SELECT count(*) FROM pgtrickle.pgt_buffers) + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'trickle%')";
    assert_eq!(count(s, left).await, 0);
}

/// Runs a list of commands in each mode of capture. After each command, the test writes all partitions.
async fn play(s: &Session, test: &str, commands: &[&str], share: u64, followed: bool) {
    run(s, "SET pg_trickle.refresh_strategy = 'differential'").await;
    let all = MODES.iter().flat_map(|mode| commands.iter().map(move |c| (mode, c))).enumerate();
    for (_, (mode, command)) in all.filter(|(nth, _)| is_todays(*nth, share)) {
        let about = format!("{mode}: {command}");
        run(s, mode).await;
        make(s, test).await;
        let before = count(s, ANEW).await;
        // A block is sent as one message. The statements of other commands commit one by one.
        let block = command.contains("BEGIN");
        let messages: Vec<&str> = if block { vec![command] } else { command.split("; ").collect() };
        for message in messages {
            run(s, &message.replace("TEST", test)).await;
        }
        assert!(!followed || count(s, STRAY).await == 0, "{about}");
        compare(s, &about).await;
        run(
            s,
            "UPDATE p SET v = v + 1 WHERE id % 2 = 0; INSERT INTO p SELECT id, 0 FROM p ORDER BY id LIMIT 1",
        )
        .await;
        compare(s, &format!("{about}; UPDATE")).await;
        let anew = count(s, ANEW).await - before;
        // Whether a partition that no event trigger saw leaves a mark depends on the mode and on the writes.
        let unseen = command.contains("session_replication_role");
        assert!(unseen && !followed || (anew > 0) != followed, "{about}: {anew} readers were recomputed");
        drop_all(s).await;
    }
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn rows_of_partitions_that_come_and_go_are_deltas() {
    todays_server(async |db| {
        let s = installed(db).await;
        make_roles(&s, "followed").await;
        play(&s, "followed", FOLLOWED, 4, true).await;
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn partitions_that_cannot_be_followed_are_recomputed() {
    todays_server(async |db| {
        let s = installed(db).await;
        make_roles(&s, "recomputed").await;
        play(&s, "recomputed", RECOMPUTED, 3, false).await;
    });
}

/// A role that may not run a command cannot use the command to get its locks.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_refused_command_locks_no_partition() {
    newest_server(async |db| {
        let s = installed(db).await;
        make_roles(&s, "refused").await;
        make(&s, "refused").await;
        run(&s, "BEGIN; DECLARE c CURSOR FOR TABLE p; FETCH c").await;
        let stranger = db.session().await;
        run(&stranger, "SET lock_timeout = '100ms'; SET ROLE refused_emptier").await;
        for command in ["DROP TABLE p1", "ALTER TABLE p DETACH PARTITION p1"] {
            let refused = stranger.client().batch_execute(command).await.unwrap_err();
            assert_eq!(refused.code().map(|c| c.code()), Some("42501"), "{command}: {refused}");
        }
        run(&s, "COMMIT").await;
        let told = rows(&s, "SELECT reason FROM pgtrickle.pgt_marks").await;
        assert!(told.is_empty(), "{told:?}");
        compare(&s, "refused commands").await;
    });
}

/// TRUNCATE empties a table for older snapshots too. A refresh with a snapshot from before a TRUNCATE would
/// read the emptied partition, and the next refresh would take its rows away once more.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_snapshot_from_before_a_truncate_is_refused() {
    newest_server(async |db| {
        let s = installed(db).await;
        make_roles(&s, "old").await;
        let other = db.session().await;
        for (command, strategy) in [
            ("TRUNCATE p1", "differential"),
            ("TRUNCATE p1", "full"),
            (
                "ALTER TABLE p DETACH PARTITION p1; TRUNCATE p1; ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10)",
                "differential",
            ),
        ] {
            make(&s, "old").await;
            run(&s, "UPDATE p SET v = v + 1 WHERE id IN (3, 13)").await;
            run(&s, &format!("SET pg_trickle.refresh_strategy = '{strategy}'")).await;
            run(&s, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").await;
            run(&other, command).await;
            let refused = s.client().batch_execute("SELECT pgtrickle.refresh_stream_table('sums')").await;
            let refused = refused.unwrap_err();
            assert_eq!(refused.code().map(|c| c.code()), Some("40001"), "{command}: {refused}");
            run(&s, "ROLLBACK").await;
            compare(&s, command).await;
            drop_all(&s).await;
        }
    });
}

/// A command waits for locks as it would without the extension: for the same locks, in the same order, and
/// once.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn commands_on_partitions_wait_for_no_other_lock() {
    newest_server(async |db| {
        let s = installed(db).await;
        make_roles(&s, "waiting").await;
        make(&s, "waiting").await;
        let other = db.session().await;
        run(&other, "SET lock_timeout = '1s'").await;
        run(&s, "BEGIN; LOCK TABLE ONLY p1 IN ACCESS SHARE MODE").await;
        for command in
            ["DROP TABLE p1", "ALTER TABLE p DETACH PARTITION p1", "TRUNCATE p1", "DROP TABLE q, p1"]
        {
            let began = Instant::now();
            let refused = other.client().batch_execute(command).await.unwrap_err();
            assert_eq!(refused.code().map(|c| c.code()), Some("55P03"), "{command}: {refused}");
            assert!(began.elapsed() < Duration::from_millis(1800), "{command}: {:?}", began.elapsed());
        }
        run(&s, "COMMIT; BEGIN; TRUNCATE p1").await;
        run(&other, "TRUNCATE \"P 2\"").await;
        run(&s, "COMMIT").await;
        compare(&s, "waiting commands").await;
    });
}

/// A role that owns a schema renames it while a command of another session follows a partition in it. No
/// object of the same name in another schema is read instead.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_schema_keeps_its_name_while_rows_are_copied() {
    newest_server(async |db| {
        let s = installed(db).await;
        run(&s, "CREATE SCHEMA home; CREATE TABLE p (id int, v int) PARTITION BY RANGE (id); \
                 CREATE TABLE home.p1 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1, 1); \
                 SELECT pgtrickle.create_stream_table('many', 'SELECT count(*) AS n FROM p', NULL)")
            .await;
        let other = db.session().await;
        run(&other, "SET lock_timeout = '300ms'").await;
        run(&s, "BEGIN; TRUNCATE home.p1").await;
        let refused = other.client().batch_execute("ALTER SCHEMA home RENAME TO away").await.unwrap_err();
        assert_eq!(refused.code().map(|c| c.code()), Some("55P03"), "{refused}");
        run(&s, "COMMIT").await;
        // While another session renames the schema, readers are recomputed.
        run(&other, "BEGIN; ALTER SCHEMA home RENAME TO away").await;
        run(&s, "INSERT INTO p VALUES (2, 2); BEGIN; TRUNCATE home.p1; COMMIT").await;
        run(&other, "COMMIT").await;
        run(&s, "SELECT pgtrickle.refresh_stream_table('many')").await;
        assert_eq!(count(&s, "SELECT n FROM many").await, 0);
    });
}

/// A buffer that is gone, and a server that does not count rows, cost a recompute and fail no command.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn commands_on_partitions_go_on_without_a_buffer() {
    newest_server(async |db| {
        let s = installed(db).await;
        make_roles(&s, "bare").await;
        for ruined in [
            "DO $$ BEGIN EXECUTE format('DROP TABLE pgtrickle_changes.changes_%s_1 CASCADE', 'p'::regclass::oid); END $$",
            "SET track_counts = off",
        ] {
            for command in [
                "CREATE TABLE p9 PARTITION OF p FOR VALUES FROM (90) TO (99)",
                "ALTER TABLE p ATTACH PARTITION q FOR VALUES FROM (50) TO (60)",
                "TRUNCATE p1",
                "DROP TABLE p1",
                "ALTER TABLE p DETACH PARTITION p1",
            ] {
                make(&s, "bare").await;
                run(&s, ruined).await;
                run(&s, command).await;
                run(&s, "RESET track_counts").await;
                compare(&s, command).await;
                run(&s, "DROP TABLE IF EXISTS p9").await;
                drop_all(&s).await;
            }
        }
    });
}
