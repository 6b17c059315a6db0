//! The extension, through its SQL API alone. The tests have three subjects. These are refreshes in the
//! caller's transaction, work without a caller, and a catalog that moves from the program to the extension
//! and back. The tests catch errors in code that the two drivers do not share. The tests that both drivers
//! share run through the extension too, by [`Driver`].
//!
//! [`Driver`]: crate::support::Driver
//! The servers must have the extension installed. `./x extension` installs the extension and runs these
//! tests.

mod api;
mod copy;
mod crashes;
mod deaths;
mod follow;
mod interleaved;
mod objects;
mod partitions;
mod restored;
mod rights;
mod roles;
mod served;
mod shares;
mod standby;
mod stops;
mod taken_over;
mod upgrade;
mod workers;

use crate::support::{Db, count, create, is_nightly, open, refresh, run, todays_server};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::ErrorPosition;
use trickle_client::Session;

/// Opens a session of a database that has the extension.
async fn installed(db: &Db) -> Session {
    let s = db.session().await;
    // The extension is not in schema `public`, since tests drop that schema.
    run(&s, "CREATE SCHEMA extensions; CREATE EXTENSION pg_trickle SCHEMA extensions").await;
    s
}

/// Returns the rows of a query in the server's text format, sorted.
async fn rows(s: &Session, query: &str) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    for message in s.client().simple_query(query).await.unwrap_or_else(|e| panic!("{e:?}\n{query}")) {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect());
        }
    }
    rows.sort();
    rows
}

const ORDERS: &str = "CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int); \
     INSERT INTO orders SELECT i, i % 10, i FROM generate_series(1, 1000) i";
const TOTALS: &str = "SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer";

async fn assert_totals(s: &Session) {
    let wrong = format!(
        "SELECT count(*) FROM ((TABLE totals EXCEPT ALL {TOTALS}) UNION ALL ({TOTALS} EXCEPT ALL TABLE totals)) x"
    );
    assert_eq!(count(s, &wrong).await, 0);
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn own_writes_of_a_refreshing_transaction_count_once() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        run(&s, &format!("SET pg_trickle.refresh_strategy = 'differential'; SELECT pgtrickle.create_stream_table('totals', '{TOTALS}')")).await;
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            run(&s, &format!("BEGIN ISOLATION LEVEL {level}; UPDATE orders SET amount = amount + 1 WHERE id < 20; SELECT pgtrickle.refresh_stream_table('totals')")).await;
            assert_totals(&s).await;
            run(&s, "SELECT pgtrickle.refresh_stream_table('totals'); DELETE FROM orders WHERE id = (SELECT max(id) FROM orders); SAVEPOINT a; \
                 INSERT INTO orders SELECT max(id) + 1, 3, 5 FROM orders; SELECT pgtrickle.refresh_stream_table('totals')").await;
            assert_totals(&s).await;
            run(&s, "ROLLBACK TO a; SELECT pgtrickle.refresh_stream_table('totals')").await;
            assert_totals(&s).await;
            run(&s, "UPDATE orders SET customer = 4 WHERE id < 3; COMMIT; SELECT pgtrickle.refresh_stream_table('totals')").await;
            assert_totals(&s).await;
        }
        let ways = rows(
            &s,
            "SELECT DISTINCT action, status FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'MANUAL'",
        )
        .await;
        assert_eq!(ways, [[Some("DIFFERENTIAL".to_owned()), Some("COMPLETED".to_owned())]]);
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_snapshot_that_is_older_than_the_stream_table_is_refused() {
    todays_server(async |db| {
        let (s, other) = (installed(db).await, db.session().await);
        run(&s, ORDERS).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('totals', '{TOTALS}')")).await;
        run(&s, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders").await;
        run(
            &other,
            "UPDATE orders SET amount = 0 WHERE id = 1; SELECT pgtrickle.refresh_stream_table('totals')",
        )
        .await;
        let e =
            s.client().batch_execute("SELECT pgtrickle.refresh_stream_table('totals')").await.unwrap_err();
        assert_eq!(e.code().map(|c| c.code().to_owned()), Some("40001".to_owned()), "{e:?}");
        run(&s, "ROLLBACK; SELECT pgtrickle.refresh_stream_table('totals')").await;
        assert_totals(&s).await;
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_caught_error_rolls_back_the_failed_refresh() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        // A refresh turns the setting `jit` off. After the refresh the session has its own value of `jit`
        // again.
        run(&s, "SET jit = on").await;
        run(&s, "SELECT pgtrickle.create_stream_table('q', 'SELECT id, 100 / amount AS q FROM orders')")
            .await;
        run(
            &s,
            "UPDATE orders SET amount = 0 WHERE id = 7; CREATE TABLE caught (code text); \
             DO $$ BEGIN \
               INSERT INTO caught VALUES ('before'); \
               BEGIN PERFORM pgtrickle.refresh_stream_table('q'); \
               EXCEPTION WHEN division_by_zero THEN INSERT INTO caught VALUES (SQLSTATE); END; \
               INSERT INTO caught VALUES ('after'); \
             END $$; UPDATE orders SET amount = 5 WHERE id = 7; SELECT pgtrickle.refresh_stream_table('q')",
        )
        .await;
        let caught: Vec<_> = rows(&s, "SELECT code FROM caught").await.concat();
        assert_eq!(caught, ["22012", "after", "before"].map(|s| Some(s.to_owned())));
        let (stored, expected) =
            (rows(&s, "TABLE q").await, rows(&s, "SELECT id, 100 / amount FROM orders").await);
        assert_eq!(stored, expected);
        assert_eq!(rows(&s, "SHOW jit").await, [[Some("on".to_owned())]]);
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn errors_say_what_why_and_what_to_do() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        let e = s
            .client()
            .batch_execute("SELECT pgtrickle.create_stream_table('x', 'SELECT nope FROM orders')")
            .await
            .unwrap_err();
        let e = e.as_db_error().unwrap();
        assert_eq!((e.code().code(), e.message()), ("42703", "column \"nope\" does not exist"));
        assert!(e.hint().is_some_and(|h| h.contains("FROM")), "{e:?}");
        // Each entry is a query with the position of its error, in characters from 1.
        for (query, at) in [
            ("SELECT 'é', nope FROM orders", 13),
            ("SELECT 1 FROM orders WHERE", 27),
            ("SELECT id FROM orders, nowhere", 24),
        ] {
            let make = "SELECT pgtrickle.create_stream_table('x', $1::text)";
            let e = s.client().query_one(make, &[&query]).await.unwrap_err();
            let place = e.as_db_error().unwrap().position().cloned();
            let wanted = ErrorPosition::Internal { position: at, query: query.to_owned() };
            assert_eq!(place, Some(wanted), "{query}: {e:?}");
        }
        run(
            &s,
            "CREATE FUNCTION own(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
             $$ BEGIN IF x = 7 THEN RAISE 'no sevens' USING ERRCODE = 'AB123'; END IF; RETURN x; END $$",
        )
        .await;
        let own = "SELECT pgtrickle.create_stream_table('x', 'SELECT own(id) AS o FROM orders')";
        assert_eq!(refused(&s, own).await, "AB123");
        let e =
            s.client().batch_execute("SELECT pgtrickle.refresh_stream_table('nothing')").await.unwrap_err();
        assert!(e.as_db_error().unwrap().message().contains("there is no stream table nothing"), "{e:?}");
        let refused = "SELECT pgtrickle.create_stream_table('totals', 'SELECT count(*) FROM orders'); INSERT INTO totals VALUES (1)";
        let e = s.client().batch_execute(refused).await.unwrap_err();
        assert!(e.as_db_error().unwrap().message().contains("directly"), "{e:?}");
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn the_extension_adopts_the_catalog_of_the_program() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let s = db.session().await;
        run(&s, ORDERS).await;
        create(&mut t, "totals", TOTALS).await;
        run(&s, "CREATE ROLE let_in_before; SELECT pgtrickle.grant_to('let_in_before')").await;
        let filled = rows(&s, "SELECT xmin, ctid FROM totals").await;
        run(&s, "CREATE EXTENSION pg_trickle").await;
        let copies = "SELECT has_language_privilege('let_in_before', 'pgtrickle_copy', 'USAGE')::int::bigint";
        assert_eq!(count(&s, copies).await, 0, "a role that was let in makes no functions that copy rows");
        run(&s, "DROP OWNED BY let_in_before; DROP ROLE let_in_before").await;
        assert_eq!(rows(&s, "SELECT xmin, ctid FROM totals").await, filled, "nothing is made anew");
        run(&s, "UPDATE orders SET amount = 7 WHERE id = 7; SELECT pgtrickle.refresh_stream_table('totals')")
            .await;
        assert_totals(&s).await;
        run(&s, "UPDATE orders SET amount = 8 WHERE id = 8").await;
        refresh(&mut t, "totals").await;
        assert_totals(&s).await;
        let members = "SELECT count(*) FROM pg_depend d JOIN pg_class c ON c.oid = d.objid WHERE d.classid = 'pg_class'::regclass \
             AND d.deptype = 'e' AND c.relnamespace = 'pgtrickle'::regnamespace AND c.relkind = 'r'";
        assert_eq!(count(&s, members).await, count(&s, "SELECT count(*) FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace AND relkind = 'r'").await);
        let filled = rows(&s, "SELECT xmin, ctid FROM totals").await;
        run(&s, "SELECT pgtrickle.release_catalog()").await;
        run(&s, "DROP EXTENSION pg_trickle").await;
        assert_eq!(rows(&s, "SELECT xmin, ctid FROM totals").await, filled, "nothing is made anew");
        run(&s, "UPDATE orders SET amount = 9 WHERE id = 9").await;
        refresh(&mut t, "totals").await;
        assert_totals(&s).await;
        run(&s, "CREATE EXTENSION pg_trickle; UPDATE orders SET amount = 10 WHERE id = 10").await;
        run(&s, "SELECT pgtrickle.refresh_stream_table('totals')").await;
        assert_totals(&s).await;
    });
}

/// Runs a statement that must fail, and returns its SQLSTATE.
async fn refused(s: &Session, sql: &str) -> String {
    let e = s.client().batch_execute(sql).await.unwrap_err();
    e.code().map(|c| c.code().to_owned()).unwrap_or_default()
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_refresh_in_the_middle_of_a_change_is_refused() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('totals', '{TOTALS}')")).await;
        // The trigger `a_refresh` fires before the trigger that captures.
        run(
            &s,
            "CREATE FUNCTION eager() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN PERFORM pgtrickle.refresh_stream_table('totals'); RETURN NULL; END $$; \
             CREATE TRIGGER a_refresh AFTER INSERT ON orders EXECUTE FUNCTION eager()",
        )
        .await;
        assert_eq!(refused(&s, "INSERT INTO orders VALUES (5000, 1, 1)").await, "55006");
        assert_eq!(refused(&s, "SELECT pgtrickle.refresh_stream_table('totals') FROM orders").await, "55006");
        run(&s, "DROP TRIGGER a_refresh ON orders; INSERT INTO orders VALUES (5000, 1, 1)").await;
        run(&s, "SELECT pgtrickle.refresh_stream_table('totals')").await;
        assert_totals(&s).await;
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_query_is_one_statement() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        for call in [
            "create_stream_table('x', 'SELECT id FROM orders; DELETE FROM orders')",
            "validate_query('SELECT 1; SELECT 2')",
        ] {
            assert_eq!(refused(&s, &format!("SELECT pgtrickle.{call}")).await, "42601", "{call}");
        }
        assert_eq!(count(&s, "SELECT count(*) FROM orders").await, 1000);
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_cancelled_call_leaves_nothing() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        run(&s, "CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM pg_sleep(0.01); RETURN $1; END $$").await;
        let make = "SET statement_timeout = '300ms'; SELECT pgtrickle.create_stream_table('x', 'SELECT slow(id) AS s FROM orders')";
        assert_eq!(refused(&s, make).await, "57014");
        run(&s, "RESET statement_timeout").await;
        assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_stream_tables").await, 0);
        assert_eq!(count(&s, "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid <> ALL (ARRAY['pgtrickle.pgt_catalog_version', 'pgtrickle.pgt_stream_tables']::regclass[])").await, 0);
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn an_old_snapshot_captures_and_drains_no_unseen_changes() {
    todays_server(async |db| {
        let (s, other) = (installed(db).await, db.session().await);
        run(&s, ORDERS).await;
        run(&s, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders").await;
        let make = format!("SELECT pgtrickle.create_stream_table('totals', '{TOTALS}')");
        assert_eq!(refused(&s, &make).await, "22023");
        run(&s, "ROLLBACK").await;
        run(&s, &make).await;
        run(&s, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders").await;
        run(&other, "INSERT INTO orders SELECT i, i % 10, i FROM generate_series(2000, 60000) i").await;
        run(&s, "UPDATE orders SET amount = 1 WHERE id = 1; SELECT pgtrickle.refresh_stream_table('totals'); COMMIT").await;
        run(&s, "SELECT pgtrickle.refresh_stream_table('totals')").await;
        assert_totals(&s).await;
    });
}

/// Catches rows that only the caller's session sees, and that a refresh by this session would store for all
/// sessions.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_refresh_beside_a_temporary_child_of_a_source_is_refused() {
    todays_server(async |db| {
        let (s, other) = (installed(db).await, db.session().await);
        run(&s, ORDERS).await;
        // A child that all sessions see is no obstacle.
        run(&s, "CREATE TABLE late () INHERITS (orders); INSERT INTO late VALUES (6000, 2, 5)").await;
        let make = |name: &str, mode: &str| {
            format!("SELECT pgtrickle.create_stream_table('{name}', $${TOTALS}$$, refresh_mode => '{mode}')")
        };
        run(&s, &make("totals", "DIFFERENTIAL")).await;
        run(&s, &make("at_once", "IMMEDIATE")).await;
        let child = "CREATE TEMP TABLE c () INHERITS (orders); INSERT INTO c VALUES (7000, 1, 5)";
        run(&s, &format!("{child}; UPDATE orders SET amount = 9")).await;
        for name in ["totals", "at_once"] {
            for call in ["refresh", "repair"] {
                let call = format!("SELECT pgtrickle.{call}_stream_table('{name}')");
                assert_eq!(refused(&s, &call).await, "55000", "{call}");
            }
            run(&other, &format!("SELECT pgtrickle.refresh_stream_table('{name}')")).await;
        }
        assert_totals(&other).await;
        let differs = "SELECT count(*) FROM ((TABLE totals EXCEPT TABLE at_once) UNION ALL (TABLE at_once EXCEPT TABLE totals)) x";
        assert_eq!(count(&other, differs).await, 0);
        run(
            &s,
            "UPDATE orders SET amount = 8; DROP TABLE c; SELECT pgtrickle.refresh_stream_table('totals')",
        )
        .await;
        assert_totals(&s).await;
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn health_check_finds_broken_triggers_and_rebuild_repairs_them() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('totals', $${TOTALS}$$)")).await;
        let problems = "SELECT check_name, result, advice IS NOT NULL FROM pgtrickle.health_check() WHERE result = 'problem'";
        assert!(rows(&s, problems).await.is_empty());
        run(
            &s,
            "DO $$ BEGIN EXECUTE (SELECT format('DROP TRIGGER %I ON orders', tgname) FROM pg_trigger \
                 WHERE tgrelid = 'orders'::regclass LIMIT 1); END $$",
        )
        .await;
        run(&s, "UPDATE orders SET amount = 70; DELETE FROM orders WHERE id = 3; INSERT INTO orders VALUES (5000, 1, 1)").await;
        let found = rows(&s, problems).await;
        assert_eq!(found, [["triggers", "problem", "t"].map(|c| Some(c.to_owned()))]);
        let rebuilt = "SELECT pgtrickle.rebuild_cdc_triggers()";
        assert_eq!(rows(&s, rebuilt).await, [[Some("public.orders".to_owned())]]);
        assert!(rows(&s, problems).await.is_empty());
        run(&s, "SELECT pgtrickle.refresh_stream_table('totals')").await;
        assert_totals(&s).await;
        assert!(rows(&s, rebuilt).await.is_empty(), "all is well");
        run(&s, "SET pg_trickle.cdc_trigger_mode = 'row'").await;
        assert_eq!(rows(&s, rebuilt).await.len(), 1);
        assert_eq!(
            count(&s, "SELECT count(*) FROM pgtrickle.change_buffer_sizes() WHERE trigger_mode = 'ROW'")
                .await,
            1
        );
        run(
            &s,
            "UPDATE orders SET amount = 71 WHERE id = 4; SELECT pgtrickle.refresh_stream_table('totals')",
        )
        .await;
        assert_totals(&s).await;
        run(&s, "ALTER TABLE totals DISABLE TRIGGER trickle_guard; DELETE FROM totals; ALTER TABLE totals ENABLE TRIGGER trickle_guard")
            .await;
        run(&s, "SELECT pgtrickle.repair_stream_table('totals')").await;
        assert_totals(&s).await;
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn sql_functions_tell_dependencies_and_reasons_for_recomputes() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('totals', $${TOTALS}$$)")).await;
        run(&s, "SELECT pgtrickle.create_stream_table('over', 'SELECT * FROM totals', NULL)").await;
        run(
            &s,
            "SELECT pgtrickle.create_stream_table('anew', 'SELECT * FROM orders', refresh_mode => 'FULL')",
        )
        .await;
        let tree = "SELECT stream_table, level, reads, read_by FROM pgtrickle.dependency_tree() ORDER BY 1";
        let tree: Vec<Vec<String>> =
            rows(&s, tree).await.into_iter().map(|r| r.into_iter().map(Option::unwrap).collect()).collect();
        assert_eq!(
            tree,
            [
                ["public.anew", "1", "{public.orders}", "{}"],
                ["public.over", "2", "{public.totals}", "{}"],
                ["public.totals", "1", "{public.orders}", "{public.over}"],
            ]
        );
        let threshold =
            "SELECT count(*) FROM pgtrickle.st_auto_threshold('totals') t WHERE t BETWEEN 0 AND 2";
        assert_eq!(count(&s, threshold).await, 1);
        assert_eq!(count(&s, "SELECT count(pgtrickle.st_auto_threshold('anew'))").await, 0);
        assert_eq!(count(&s, "SELECT pgtrickle.pause_scheduler()::int8").await, 3);
        assert_eq!(count(&s, "SELECT pgtrickle.resume_scheduler(ARRAY['totals'])::int8").await, 1);
        let active = "SELECT count(*) FROM pgtrickle.pgt_status() WHERE status = 'ACTIVE'";
        assert_eq!(count(&s, active).await, 1);
        assert_eq!(count(&s, "SELECT pgtrickle.resume_scheduler()::int8").await, 2);
        let silent = "SELECT count(*) FROM pg_proc p JOIN pg_language l ON l.oid = prolang WHERE lanname = 'c' \
             AND pronamespace = 'pgtrickle'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL";
        assert_eq!(count(&s, silent).await, 0, "every function says what it is for");
    });
}

const SETTINGS: &str = "SELECT format('| `%s` | %s | %s | %s | %s %s |', name, \
    coalesce(nullif(boot_val, ''), 'none'), \
    coalesce(array_to_string(enumvals, ', '), nullif(concat_ws(' to ', min_val, max_val), ''), 'on, off'), \
    CASE context WHEN 'user' THEN 'anybody' WHEN 'sighup' THEN 'the configuration' ELSE context END, short_desc, extra_desc) \
    FROM pg_settings WHERE name LIKE 'pg\\_trickle.%' ORDER BY name COLLATE \"C\"";

/// The reference documentation describes each setting in the words of the server's own description.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn the_reference_of_settings_is_the_servers() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/extension.md");
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, "SELECT pgtrickle.version()").await;
        let settings: Vec<String> =
            rows(&s, SETTINGS).await.into_iter().flatten().map(Option::unwrap).collect();
        let header = "| setting | default | values | set by | meaning |\n|---|---|---|---|---|";
        let made = format!("\n{header}\n{}\n", settings.join("\n"));
        let text = std::fs::read_to_string(&file).unwrap();
        let (before, rest) = text.split_once("<!-- settings").unwrap();
        let (mark, rest) = rest.split_once("-->").unwrap();
        let (written, after) = rest.split_once("<!-- end of settings -->").unwrap();
        if std::env::var_os("TRICKLE_BLESS").is_some() {
            let text = format!("{before}<!-- settings{mark}-->{made}<!-- end of settings -->{after}");
            std::fs::write(&file, text).unwrap();
        } else {
            assert_eq!(written, made);
        }
    });
}

/// A query for the private memory of a server process plus the size of its memory contexts, in KiB.
const MEMORY: &str = "SELECT coalesce(substring(pg_read_file('/proc/self/status', 0, 10000, true) FROM 'RssAnon:\\s+(\\d+)'), '0')::int8 \
    + (SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts)::int8";

const SPELLS: usize = 16;

/// Number of series at the beginning of the test whose growth is not counted. In these series the process
/// still prepares statements that it stores for later.
const LEARNING: usize = 6;

/// A statement that turns autovacuum off for all tables. New statistics make the server plan stored
/// statements again, and such a new plan takes memory once.
const UNATTENDED: &str = "DO $$ DECLARE t regclass; BEGIN
    FOR t IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace::regnamespace::text IN ('public', 'pgtrickle', 'pgtrickle_changes')
    LOOP EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', t); END LOOP; END $$";

/// Catches memory that each refresh leaves in its process. Of several series of refreshes, only the series
/// with the smallest growth counts, since the process sometimes takes more memory for good. The environment
/// variable `TRICKLE_REFRESHES` sets a greater number of refreshes.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn refreshes_leave_no_memory_behind() {
    let usual = if is_nightly() { 2400 } else { 960usize };
    let times = std::env::var("TRICKLE_REFRESHES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual);
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('totals', $${TOTALS}$$)")).await;
        let by_hand = "schedule => 'manual', refresh_mode => 'FULL'";
        run(&s, "CREATE TABLE one (v int); INSERT INTO one VALUES (1)").await;
        run(
            &s,
            &format!(
                "SELECT pgtrickle.create_stream_table('ratio', 'SELECT 100 / v AS r FROM one', {by_hand})"
            ),
        )
        .await;
        run(&s, UNATTENDED).await;
        let spell = times / SPELLS;
        let (mut before, mut grown) = (0, Vec::new());
        for i in 0..times {
            if i % spell == 0 {
                let now = count(&s, MEMORY).await;
                grown.push(now - std::mem::replace(&mut before, now));
            }
            run(
                &s,
                &format!(
                    "UPDATE orders SET amount = amount + 1, customer = customer + 1 WHERE id = {}",
                    i % 1000
                ),
            )
            .await;
            run(&s, "SELECT pgtrickle.refresh_stream_table('totals')").await;
            // Half of the refreshes of `ratio` recompute it, and the other half fail by a division by zero.
            run(&s, &format!("UPDATE one SET v = {}", i % 2)).await;
            let computed = s.client().batch_execute("SELECT pgtrickle.refresh_stream_table('ratio')").await;
            assert_eq!(computed.is_ok(), i % 2 == 1, "{computed:?}");
        }
        let thriftiest = *grown[LEARNING..].iter().min().unwrap();
        let told = format!("{grown:?} KiB more after {spell} refreshes each");
        println!("{told}");
        // The smallest memory context has 1 KiB. If each second refresh left a context, the growth in KiB
        // would be half the number of refreshes.
        assert!(thriftiest < i64::try_from(spell).unwrap() * 2 / 5, "{told}");
        assert_totals(&s).await;
    });
}

/// Runs statements in a new session, and returns the notices that the server sent.
async fn notices(db: &Db, statements: &[&str]) -> Vec<String> {
    let config: tokio_postgres::Config = db.settings().parse().unwrap();
    let (client, mut connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    let driven = async {
        let mut told = Vec::new();
        while let Some(message) = futures_util::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let Ok(tokio_postgres::AsyncMessage::Notice(n)) = message {
                told.push(format!("{} {}", n.severity(), n.message()));
            }
        }
        told
    };
    let asked = async move {
        for s in statements {
            client.batch_execute(s).await.unwrap_or_else(|e| panic!("{e:?}\n{s}"));
        }
    };
    futures_util::future::join(driven, asked).await.0
}

/// Calls the functions that no other test calls, with the documented names of their arguments.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn the_rest_of_the_sql_api_does_what_it_says() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 9) i").await;
        let query = "SELECT k, count(*) AS n FROM t GROUP BY k";
        let make = |function: &str, query: &str, more: &str| {
            format!("SELECT pgtrickle.{function}(name => 'counts', query => '{query}'{more})")
        };
        run(&s, &make("create_stream_table", query, ", schedule => 'manual'")).await;
        let manual = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE schedule IS NULL";
        assert_eq!(count(&s, manual).await, 1);
        run(&s, &make("create_stream_table_if_not_exists", "SELECT 1 AS x", "")).await;
        assert_eq!(count(&s, "SELECT sum(n)::int8 FROM counts").await, 9, "the one that is there stays");
        run(&s, "CREATE INDEX kept ON counts (n); UPDATE t SET k = 7 WHERE id = 1").await;
        assert_ne!(count(&s, "SELECT pgtrickle.get_staleness('counts')").await, 0);
        run(&s, "SELECT pgtrickle.refresh_stream_table('counts')").await;
        assert_eq!(count(&s, "SELECT pgtrickle.get_staleness('counts')").await, 0);
        let more = "SELECT k, count(*) AS n, max(id) AS last FROM t GROUP BY k";
        run(&s, &make("create_or_replace_stream_table", more, "")).await;
        assert_eq!(count(&s, "SELECT max(last)::int8 FROM counts").await, 9);
        assert_eq!(count(&s, "SELECT count(*) FROM pg_indexes WHERE indexname = 'kept'").await, 1);
        for (function, found) in [
            ("explain_st('counts')", "public.t"),
            ("explain_delta('counts')", "changes_"),
            ("explain_delta('SELECT k FROM t WHERE k > 1')", "changes_"),
            ("(SELECT mode FROM pgtrickle.explain_refresh_mode('counts'))", "DIFFERENTIAL"),
        ] {
            let call =
                if function.starts_with('(') { function.to_owned() } else { format!("pgtrickle.{function}") };
            let text: String = s.client().query_one(&format!("SELECT {call}"), &[]).await.unwrap().get(0);
            assert!(text.to_lowercase().contains(&found.to_lowercase()), "{function}: {text}");
        }
        let same = "SELECT pgtrickle.pg_trickle_hash('a') = pgtrickle.pg_trickle_hash('a') AND \
             pgtrickle.pg_trickle_hash('a') <> pgtrickle.pg_trickle_hash('b') AND \
             pgtrickle.pg_trickle_hash_multi(ARRAY['a', 'b']) <> pgtrickle.pg_trickle_hash_multi(ARRAY['ab', '']) AND \
             pgtrickle.pg_trickle_hash_multi(ARRAY['a', NULL]) <> pgtrickle.pg_trickle_hash_multi(ARRAY['a', ''])";
        assert!(s.client().query_one(same, &[]).await.unwrap().get::<_, bool>(0));
        // A hash must be the same in all versions, since callers compare stored hashes with hashes of a later
        // version.
        assert_eq!(count(&s, "SELECT pgtrickle.pg_trickle_hash('')").await, -1_205_034_819_632_174_695);
        let known = i64::from_ne_bytes(xxhash_rust::xxh64::xxh64("größer".as_bytes(), 0).to_ne_bytes());
        assert_eq!(count(&s, "SELECT pgtrickle.pg_trickle_hash('größer')").await, known);
        for (statement, said) in [
            (
                "SELECT pgtrickle.create_stream_table('x', 'SELECT id FROM t', cdc_mode => 'wal')",
                "WAL is not built yet",
            ),
            (
                "SET pg_trickle.cdc_mode = wal; SELECT pgtrickle.rebuild_cdc_triggers()",
                "WAL is not built yet",
            ),
            (
                "SET pg_trickle.cdc_mode = wal; SELECT pgtrickle.repair_stream_table('counts')",
                "WAL is not built yet",
            ),
            ("SET pg_trickle.cdc_mod = trigger", "invalid configuration parameter name"),
        ] {
            let e = s.client().batch_execute(statement).await.unwrap_err();
            let message = e.as_db_error().unwrap().message();
            assert!(message.contains(said), "{statement}: {message}");
        }
        // In mode AUTO a notice names the stream table that cannot be updated by deltas, and gives the
        // reason. Another notice names an argument that has no effect.
        let told = notices(
            db,
            &[
                "SELECT pgtrickle.create_stream_table('at', 'SELECT id, now() AS at FROM t')",
                "SELECT pgtrickle.create_stream_table('app', 'SELECT id FROM t', append_only => true)",
            ],
        )
        .await;
        let now = |table: &str, n: &String| {
            n.starts_with(&format!("NOTICE public.{table} is kept by full refreshes: "))
                && n.contains("now()")
        };
        assert!(told.iter().any(|n| now("at", n)), "{told:?}");
        assert!(told.iter().any(|n| n.contains("append_only")), "{told:?}");
        // The same notice is sent when a stream table gets a new query without a delta.
        for change in [
            "alter_stream_table('app', query => 'SELECT id, now() AS at FROM t')",
            "create_or_replace_stream_table('counts', 'SELECT k, now() AS at FROM t')",
        ] {
            let told = notices(db, &[&format!("SELECT pgtrickle.{change}")]).await;
            let table = change.split('\'').nth(1).unwrap();
            assert!(told.iter().any(|n| now(table, n)), "{change}: {told:?}");
            let full = format!(
                "SELECT count(*) FROM pgtrickle.pgt_status() WHERE mode = 'FULL' AND name = 'public.{table}' AND mode_reason LIKE '%now()%'"
            );
            assert_eq!(count(&s, &full).await, 1, "{change}");
        }
    });
}
