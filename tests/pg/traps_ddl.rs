//! The columns, name, rights or server of a source change under a stream table. The stream table is planned
//! again, recomputed, or suspended with a reason, and a broken trigger never makes a writer fail. The tests
//! catch a plan that runs over a table for which it was not made.

use crate::support::{
    Db, Driver, assert_equal, count, create, each_server, mode, name, open, open_with, refresh, run,
    try_refresh,
};
use std::cell::RefCell;
use std::pin::Pin;
use std::time::Duration;
use trickle_client::capture::CaptureOptions;
use trickle_client::daemon::{self, DaemonOptions, Event};
use trickle_client::{
    Alteration, Connect, IfExists, NewStreamTable, RefreshMode, Session, Settings, Trickle,
};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int, spare text DEFAULT 's');
    CREATE TABLE b (id int PRIMARY KEY, k int, w int);
    INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 40) i;
    INSERT INTO b SELECT i, i % 5, i FROM generate_series(1, 10) i";

const JOINED: &str = "SELECT a.id, a.v, b.w FROM a JOIN b USING (k)";
const STAR: &str = "SELECT * FROM b";

async fn prepared(db: &Db) -> (Driver, Session) {
    let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
    let mut t = open_with(db, settings).await;
    let w = db.session().await;
    run(&w, SOURCES).await;
    create(&mut t, "joined", JOINED).await;
    create(&mut t, "star", STAR).await;
    (t, w)
}

/// A source has pending changes, is altered, and is changed again. The stream tables have all changes.
#[test]
fn sources_change_shape_and_are_followed() {
    each_server(async |db| {
        for change in [
            "ALTER TABLE a ADD COLUMN more int DEFAULT 3",
            "ALTER TABLE a DROP COLUMN spare",
            "ALTER TABLE a RENAME COLUMN spare TO other",
            "ALTER TABLE a ALTER COLUMN v TYPE bigint",
            "ALTER TABLE b ALTER COLUMN w TYPE numeric(10,2) USING w * 1.5",
            "ALTER TABLE a ALTER COLUMN k SET NOT NULL",
            "ALTER TABLE b DROP CONSTRAINT b_pkey",
            "ALTER TABLE b ADD COLUMN w2 int GENERATED ALWAYS AS (w * 2) STORED; ALTER TABLE b ADD UNIQUE (id, w)",
            "DROP TABLE b; CREATE TABLE b (id int, k int, w int); INSERT INTO b VALUES (1, 1, 1)",
            "ALTER TABLE b RENAME TO old_b; CREATE TABLE b (id int, k int, w int); INSERT INTO b VALUES (7, 1, 1)",
            "CLUSTER a USING a_pkey",
            "VACUUM FULL b",
        ] {
            let (mut t, w) = prepared(db).await;
            run(&w, "UPDATE a SET v = v + 1 WHERE k = 1; DELETE FROM b WHERE id = 3").await;
            run(&w, change).await;
            for what in ["joined", "star"] {
                if let Err(e) = try_refresh(&mut t, what).await {
                    panic!("{change}: {what}: {e:?}");
                }
            }
            run(&w, "UPDATE a SET v = v + 1 WHERE k = 1; INSERT INTO b (id, k, w) VALUES (77, 2, 5)").await;
            for what in ["joined", "star"] {
                assert_equal(&mut t, what).await;
            }
            run(&w, "DELETE FROM a WHERE k = 1; UPDATE b SET w = w + 1").await;
            for what in ["joined", "star"] {
                let done = refresh(&mut t, what).await;
                assert_ne!(done[0].report.action.name(), "REINITIALIZE", "{change}: {done:?}");
                assert_equal(&mut t, what).await;
            }
            clean(&mut t, &w).await;
        }
    });
}

async fn clean(t: &mut Driver, w: &Session) {
    for what in ["joined", "star"] {
        t.drop(&name(what), true).await.unwrap();
    }
    let left = "SELECT count(*) FROM pg_class c WHERE relnamespace = 'pgtrickle_changes'::regnamespace";
    assert_eq!(count(w, left).await, 0);
    run(w, "DROP TABLE IF EXISTS a, b, old_b CASCADE; DROP SCHEMA IF EXISTS elsewhere CASCADE").await;
}

/// A session that plans again may have other settings than the creator's session. The meaning of the query
/// stays the same.
#[test]
fn settings_of_whoever_plans_it_anew_do_not_matter() {
    each_server(async |db| {
        let w = db.session().await;
        run(
            &w,
            "CREATE TABLE a (id int PRIMARY KEY, at timestamptz, spare text); \
                 INSERT INTO a VALUES (1, '2024-01-01 16:00Z'), (2, '2024-01-01 14:00Z')",
        )
        .await;
        let set = "SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET array_nulls = off; SET transform_null_equals = on";
        let mut maker = open(db).await;
        run(maker.connection(), set).await;
        let query = "SELECT id, at::date AS day, at >= '2.1.2024' AS late, '{NULL}'::text[] AS n, spare = NULL AS u FROM a";
        create(&mut maker, "days", query).await;
        run(&w, set).await;
        let mut other = open(db).await;
        run(other.connection(), "SET DateStyle = 'SQL, MDY'; SET TimeZone = 'America/New_York'").await;
        for change in [
            "ALTER TABLE a ADD COLUMN more int",
            "UPDATE a SET at = at + interval '1 hour'",
            "ALTER TABLE a DROP COLUMN more",
        ] {
            run(&w, change).await;
            refresh(&mut other, "days").await;
            let same = format!("SELECT count(*) FROM (({query}) EXCEPT ALL SELECT * FROM days) x");
            assert_eq!(count(&w, &same).await, 0, "{change}");
        }
        let full = Alteration { mode: Some(RefreshMode::Full), ..Alteration::default() };
        other.alter(&name("days"), &full).await.unwrap();
        let same = format!("SELECT count(*) FROM (({query}) EXCEPT ALL SELECT * FROM days) x");
        assert_eq!(count(&w, &same).await, 0);
    });
}

/// When a column or table that the query needs is dropped, the stream table is suspended with the reason, and
/// writers do not fail.
#[test]
fn sources_that_the_query_cannot_do_without() {
    each_server(async |db| {
        for (change, write) in [
            ("ALTER TABLE a DROP COLUMN v", "UPDATE a SET k = k + 1"),
            (
                "ALTER TABLE a RENAME TO a2; ALTER TABLE a2 RENAME k TO v2; ALTER TABLE a2 DROP COLUMN v",
                "UPDATE a2 SET v2 = v2 + 1; DROP TABLE a2",
            ),
            ("DROP TABLE a", "UPDATE b SET w = 0"),
            ("ALTER TABLE a ALTER COLUMN k TYPE text", "UPDATE a SET k = 'x'"),
        ] {
            let (mut t, w) = prepared(db).await;
            run(&w, "UPDATE a SET v = v + 1 WHERE k = 1; DELETE FROM b WHERE id = 3").await;
            run(&w, change).await;
            let e = try_refresh(&mut t, "joined").await.expect_err(change);
            assert!(e.message().contains("cannot be kept") && e.hint_text().is_some(), "{change}: {e:?}");
            // With the extension, event triggers note an alteration at once. The refresh notices a drop, but
            // its note is rolled back with the failed call.
            if Driver::notes_failures() || !change.starts_with("DROP") {
                let entry = t.find(&name("joined")).await.unwrap();
                assert_eq!(entry.status, trickle_client::Activity::Suspended, "{change}");
                assert!(entry.last_error.is_some_and(|e| !e.is_empty()), "{change}");
                let history = t.history(&name("joined"), 1).await.unwrap();
                assert_eq!(
                    (entry.consecutive_errors, history[0].status),
                    (1, trickle_client::Ending::Failed),
                    "{change}"
                );
                assert!(
                    history[0].error_message.is_some()
                        && history[0].initiated_by == trickle_client::Initiator::Manual,
                    "{history:?}"
                );
            }
            run(&w, write).await;
            // A stream table that does not read the altered source is still refreshed.
            run(&w, "UPDATE b SET w = w + 1").await;
            assert_equal(&mut t, "star").await;
            clean(&mut t, &w).await;
        }
    });
}

/// A writer that writes the altered table before any refresh does not fail, and its change is not lost.
#[test]
fn writers_of_a_renamed_column_go_on() {
    each_server(async |db| {
        let (mut t, w) = prepared(db).await;
        run(&w, "ALTER TABLE a RENAME COLUMN v TO value").await;
        run(&w, "UPDATE a SET value = value + 1; INSERT INTO a VALUES (900, 1, 1)").await;
        assert_equal(&mut t, "joined").await;
        run(&w, "UPDATE a SET value = value + 1").await;
        run(&w, "ALTER TABLE a RENAME COLUMN value TO v; UPDATE a SET v = v + 1").await;
        assert_equal(&mut t, "joined").await;
        run(&w, "UPDATE a SET v = v + 1").await;
        let done = refresh(&mut t, "joined").await;
        assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
        assert_equal(&mut t, "joined").await;
    });
}

/// CREATE OR REPLACE of a view or a function changes the meaning of a query, although no table of the query
/// changes.
#[test]
fn views_and_functions_are_replaced() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, SOURCES).await;
        run(&w, "CREATE VIEW inner_v AS SELECT id, k, v FROM a WHERE v > 5; CREATE VIEW v AS SELECT k, v FROM inner_v;
            CREATE FUNCTION f(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x + 1';
            CREATE FUNCTION g(x int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN f(x); END'").await;
        create(&mut t, "viewed", "SELECT k, sum(v) AS s FROM v GROUP BY k").await;
        create(&mut t, "called", "SELECT f(v) AS f, count(*) AS n FROM a GROUP BY 1").await;
        for change in [
            "CREATE OR REPLACE VIEW inner_v AS SELECT id, k, v FROM a WHERE v > 20",
            "UPDATE a SET v = v + 1; CREATE OR REPLACE VIEW v AS SELECT k, v * 2 AS v FROM inner_v",
            "INSERT INTO a VALUES (100, 1, 100); CREATE OR REPLACE FUNCTION f(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x / 10'",
            "CREATE OR REPLACE VIEW inner_v AS SELECT a.id, a.k, b.w AS v FROM a JOIN b USING (k)",
            "UPDATE b SET w = w + 1",
        ] {
            run(&w, change).await;
            for what in ["viewed", "called"] {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

/// Rows are written through the parent or directly into the partition, and are moved between partitions.
/// Partitions are attached and detached. The test does the same with inheritance.
#[test]
fn partitions_and_children_by_statement() {
    each_server(async |db| partitions_and_children(db, Mode::Statement).await);
}

#[test]
fn partitions_and_children_by_row() {
    each_server(async |db| partitions_and_children(db, Mode::Row).await);
}

async fn partitions_and_children(db: &Db, mode: Mode) {
    let capture = CaptureOptions { mode, unlogged: false };
    let mut t = open_with(db, Settings { capture, ..Settings::default() }).await;
    let w = db.session().await;
    run(&w, "CREATE TABLE p (id int, k int, v int, PRIMARY KEY (id, k)) PARTITION BY RANGE (k);
            CREATE TABLE p0 PARTITION OF p FOR VALUES FROM (0) TO (10);
            CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (10) TO (20) PARTITION BY LIST (k);
            CREATE TABLE p10 PARTITION OF p1 FOR VALUES IN (10); CREATE TABLE p1d PARTITION OF p1 DEFAULT;
            CREATE TABLE other (v int, id int NOT NULL, k int NOT NULL); INSERT INTO other VALUES (5, 900, 25);
            CREATE TABLE h (id int, v int); CREATE TABLE h1 (extra int) INHERITS (h); CREATE TABLE h2 () INHERITS (h1);
            INSERT INTO p SELECT i, i % 20, i FROM generate_series(1, 60) i;
            INSERT INTO h VALUES (1, 1); INSERT INTO h1 VALUES (2, 2, 2); INSERT INTO h2 VALUES (3, 3, 3)").await;
    create(&mut t, "parts", "SELECT k, sum(v) AS s, count(*) AS n FROM p GROUP BY k").await;
    create(&mut t, "whole", "SELECT * FROM p WHERE v > 3").await;
    create(&mut t, "tree", "SELECT * FROM h").await;
    create(&mut t, "leaf", "SELECT v, count(*) AS n FROM p0 GROUP BY v").await;
    create(&mut t, "child", "SELECT * FROM h1").await;
    for change in [
        "UPDATE p SET v = v + 1 WHERE id < 10; UPDATE p0 SET v = v * 2; DELETE FROM p10",
        "UPDATE p SET k = 19 - k",
        "INSERT INTO p1d VALUES (500, 15, 1); INSERT INTO p1 VALUES (501, 16, 1); TRUNCATE p10",
        "INSERT INTO p0 VALUES (550, 1, 1); ALTER TABLE p ATTACH PARTITION other FOR VALUES FROM (20) TO (30)",
        "UPDATE other SET v = v + 1; INSERT INTO p VALUES (901, 26, 1)",
        "DELETE FROM p WHERE k = 1; ALTER TABLE p DETACH PARTITION p0; UPDATE p0 SET v = 0",
        "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (30) TO (40); INSERT INTO p VALUES (930, 30, 3); UPDATE p3 SET v = 4",
        "ALTER TABLE p1 DETACH PARTITION p10; DROP TABLE p3",
        "TRUNCATE p1d",
        "UPDATE h SET v = v + 1; UPDATE ONLY h SET v = 50; DELETE FROM h2; INSERT INTO h1 VALUES (4, 4, 4)",
        "INSERT INTO h2 VALUES (6, 6, 6); CREATE TABLE h3 () INHERITS (h2); INSERT INTO h3 VALUES (7, 7, 7)",
        "UPDATE h3 SET v = 70; INSERT INTO h3 VALUES (8, 8, 8)",
        "ALTER TABLE h3 NO INHERIT h2; INSERT INTO h3 VALUES (9, 9, 9)",
        "ALTER TABLE h1 NO INHERIT h; DELETE FROM h1",
    ] {
        run(&w, change).await;
        for what in ["parts", "whole", "tree", "leaf", "child"] {
            assert_equal(&mut t, what).await;
        }
    }
    assert_eq!(crate::support::mode(&t, "parts").await.0, "DIFFERENTIAL");
}

/// A full refresh that costs much does not make every later change a full refresh.
#[test]
fn after_a_full_refresh_a_small_change_is_a_delta_again() {
    each_server(async |db| {
        let mut t = open_with(db, Settings::default()).await;
        let w = db.session().await;
        run(
            &w,
            "CREATE TABLE m (id int PRIMARY KEY, k int, v int);
            INSERT INTO m SELECT i, i % 1000, i FROM generate_series(1, 100000) i; ANALYZE m",
        )
        .await;
        create(&mut t, "sums", "SELECT k, sum(v) AS s FROM m GROUP BY k").await;
        run(&w, "UPDATE m SET v = v + 1").await;
        refresh(&mut t, "sums").await;
        let full = trickle_client::RefreshOptions { full: true, ..Default::default() };
        t.refresh(&[name("sums")], &full).await.unwrap();
        run(&w, "UPDATE m SET v = v + 1 WHERE id = 7").await;
        let done = refresh(&mut t, "sums").await;
        assert_eq!(done[0].report.action.name(), "DIFFERENTIAL", "{done:?}");
        assert_equal(&mut t, "sums").await;
    });
}

/// A stored frontier with the identifier of another server or database is not used.
#[test]
fn a_frontier_of_another_cluster_is_not_believed() {
    each_server(async |db| {
        let (mut t, w) = prepared(db).await;
        let stored: String = w
            .client()
            .query_one(
                "SELECT frontier::text FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'joined'",
                &[],
            )
            .await
            .unwrap()
            .get(0);
        for key in ["system", "database"] {
            assert!(stored.contains(key), "{stored}");
            run(&w, "UPDATE a SET v = v + 1").await;
            run(&w, &format!("UPDATE pgtrickle.pgt_stream_tables SET frontier = frontier || jsonb_build_object('{key}',
                CASE jsonb_typeof(frontier->'{key}') WHEN 'string' THEN to_jsonb('12345'::text) ELSE to_jsonb(12345) END)")).await;
            // By this server's transaction numbers, these changes may look as if they had been applied
            // already.
            run(&w, "UPDATE a SET v = v + 1").await;
            run(
                &w,
                "DO $$ BEGIN EXECUTE (SELECT 'TRUNCATE ' || oid::regclass FROM pg_class WHERE relkind = 'r'
                AND relname LIKE format('changes\\_%s\\_%%', 'a'::regclass::oid)); END $$",
            )
            .await;
            let done = refresh(&mut t, "joined").await;
            assert_eq!(done[0].report.action.name(), "REINITIALIZE", "{key}: {done:?}");
            for what in ["joined", "star"] {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

/// A stream table shows only rows that its owner may see. No other role can read buffers, and no role runs
/// another role's query.
#[test]
fn row_security_privileges_and_other_roles() {
    each_server(async |db| {
        let admin = db.session().await;
        let role = format!(
            "owner_{}",
            count(&admin, "SELECT oid::int8 FROM pg_database WHERE datname = current_database()").await
        );
        run(&admin, &format!("CREATE ROLE {role} LOGIN; CREATE ROLE {role}_other LOGIN; GRANT CREATE ON SCHEMA public TO {role}, {role}_other")).await;
        let mut t = Driver::open_as(db, &role, Settings::default()).await;
        run(t.connection(), SOURCES).await;
        run(
            t.connection(),
            &format!(
                "ALTER TABLE b ENABLE ROW LEVEL SECURITY; ALTER TABLE b FORCE ROW LEVEL SECURITY;
            CREATE POLICY few ON b USING (w > 5); GRANT SELECT, INSERT, UPDATE, DELETE ON a TO {role}_other"
            ),
        )
        .await;
        create(&mut t, "plain", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        create(&mut t, "guarded", "SELECT id, w FROM b").await;
        let (m, reason) = mode(&t, "guarded").await;
        assert!(m == "FULL" && reason.contains("row-level security"), "{m} {reason}");
        // A writer has no right on the buffers, and its search path has a schema before the server's own.
        let other = db.session().await;
        run(&other, &format!("SET SESSION AUTHORIZATION {role}_other; CREATE TABLE public.decoy (i int)"))
            .await;
        run(&other, "SET search_path = public, pg_catalog; UPDATE a SET v = v + 1 WHERE k = 1; DELETE FROM a WHERE id = 9").await;
        assert!(other.client().batch_execute("SELECT * FROM pgtrickle_changes.changes_1").await.is_err());
        let readable = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = 'pgtrickle_changes' AND (has_schema_privilege(n.oid, 'USAGE') OR has_table_privilege(c.oid, 'SELECT'))";
        assert_eq!(count(&other, readable).await, 0);
        let unpinned = "SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
             WHERE n.nspname LIKE 'pgtrickle%' AND p.prosecdef \
             AND NOT EXISTS (SELECT FROM unnest(p.proconfig) c WHERE c LIKE 'search_path=%') \
             AND p.prolang NOT IN (SELECT oid FROM pg_language WHERE lanname = 'pgtrickle_copy')";
        // Functions that copy rows in C look up no names, so they need no fixed search path.
        assert_eq!(count(&admin, unpinned).await, 0);
        t.connection().client().batch_execute("SET row_security = on").await.unwrap();
        run(&admin, "UPDATE b SET w = w + 2").await;
        for what in ["plain", "guarded"] {
            assert_equal(&mut t, what).await;
        }
        let seen = "SELECT count(*) FROM guarded WHERE w <= 5";
        assert_eq!(count(&admin, seen).await, 0);
        // When a superuser works with another role's catalog, the owner's query and functions do not run with
        // the superuser's rights.
        create(&mut t, "whose", "SELECT k, current_user::text AS who, count(*) AS n FROM a GROUP BY k").await;
        let root = Trickle::open(db.session().await, Settings::default()).await;
        run(&admin, "UPDATE a SET v = v + 1").await;
        if Driver::refreshes_as_owner() {
            let mut root = Driver::of(root.unwrap());
            // The search path of the connection has no schema in which other roles may create objects, so the
            // test qualifies the name.
            try_refresh(&mut root, "public.whose").await.unwrap();
            let entry = root.find(&name("plain")).await.unwrap();
            assert!(root.check(&entry, 1).await.unwrap_err().is_input());
        } else {
            let refused = root.err().unwrap();
            assert!(refused.is_input() && refused.message().contains("belongs to"), "{refused:?}");
        }
        let others = format!("SELECT count(*) FROM whose WHERE who <> '{role}'");
        assert_eq!(count(&admin, &others).await, 0);
        assert_equal(&mut t, "plain").await;
        drop((t, other));
        run(&admin, &format!("DROP OWNED BY {role}, {role}_other CASCADE; DROP ROLE {role}, {role}_other"))
            .await;
    });
}

/// A connector that opens connections to a database as a role.
struct As<'d>(&'d Db, Option<String>);

impl Connect for As<'_> {
    fn connect(&self) -> Pin<Box<dyn Future<Output = trickle_client::Result<Session>> + '_>> {
        Box::pin(async {
            let s = self.0.session().await;
            if let Some(role) = &self.1 {
                run(&s, &format!("SET SESSION AUTHORIZATION {role}")).await;
            }
            Ok(s)
        })
    }
}

/// Runs a refresher as a role until it has refreshed the stream table `own`. Without `own`, the refresher
/// runs until it has reported stream tables of other roles. Returns the names of the reported stream tables.
async fn refresher_as(db: &Db, role: Option<String>, own: Option<&str>) -> Vec<String> {
    let mut options = DaemonOptions::default();
    options.scheduler.reload = Duration::from_millis(50);
    options.scheduler.schedule.min_period = Duration::from_millis(50);
    options.scheduler.schedule.default_period = Duration::from_millis(50);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (stop, foreign) = (RefCell::new(Some(stop)), RefCell::new(Vec::new()));
    let tell = |event: Event<'_>| {
        let seen = match event {
            Event::Foreign(names) => {
                foreign.borrow_mut().extend(names.iter().cloned());
                own.is_none()
            }
            Event::Refreshed(done) => done.iter().any(|d| Some(d.report.name.as_str()) == own),
            Event::Failed { error: e, .. } | Event::Trouble(e) => panic!("{e:?}"),
            _ => false,
        };
        if let Some(stop) = seen.then(|| stop.borrow_mut().take()).flatten() {
            stop.send(()).unwrap();
        }
    };
    let to = As(db, role);
    let done = daemon::run(&to, &options, &tell, async {
        let _ = stopped.await;
    });
    done.await.unwrap();
    foreign.into_inner()
}

/// A refresher runs no query of another role, even as a superuser.
#[test]
fn a_refresher_leaves_alone_what_others_own() {
    each_server(async |db| {
        let admin = db.session().await;
        let role = format!(
            "kept_{}",
            count(&admin, "SELECT oid::int8 FROM pg_database WHERE datname = current_database()").await
        );
        run(
            &admin,
            &format!("CREATE ROLE {role}; CREATE ROLE {role}_other; GRANT CREATE ON SCHEMA public TO {role}"),
        )
        .await;
        let mut root = Driver::open(db, Settings::default()).await;
        run(&admin, SOURCES).await;
        create(&mut root, "plain", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        // The stream table gets another owner, while a superuser owns the catalog.
        run(&admin, &format!("ALTER TABLE plain OWNER TO {role}")).await;
        run(&admin, "CREATE TABLE of_root (id int PRIMARY KEY); INSERT INTO of_root VALUES (1)").await;
        create(&mut root, "roots", "SELECT id FROM of_root").await;
        let refreshes = "SELECT count(*) FROM pgtrickle.pgt_refresh_history JOIN pgtrickle.pgt_stream_tables USING (pgt_id) \
             WHERE pgt_name = 'plain'";
        let before = count(&admin, refreshes).await;
        let stale = "SELECT count(*) FROM (SELECT sum(v) AS s FROM a EXCEPT SELECT sum(s) FROM plain) d";
        run(&admin, "UPDATE a SET v = v + 1; INSERT INTO of_root VALUES (2)").await;
        assert_eq!(refresher_as(db, None, Some("public.roots")).await, ["public.plain"]);
        assert_eq!((count(&admin, refreshes).await, count(&admin, stale).await), (before, 1));
        // Rights on the catalog's tables and functions do not give a role the right to refresh the stream
        // tables.
        run(
            &admin,
            &format!(
                "GRANT USAGE ON SCHEMA pgtrickle, pgtrickle_changes TO {role}_other; \
            GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pgtrickle TO {role}_other; \
            GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgtrickle TO {role}_other"
            ),
        )
        .await;
        let told = refresher_as(db, Some(format!("{role}_other")), None).await;
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!((count(&admin, refreshes).await, count(&admin, stale).await), (before, 1));
        root.drop(&name("roots"), false).await.unwrap();
        drop(root);
        run(&admin, &format!("DROP OWNED BY {role}, {role}_other CASCADE; DROP ROLE {role}, {role}_other"))
            .await;
    });
}

/// Policies are created, altered and dropped under a stream table. Over another role's table, the stream
/// table shows only rows that its owner may see.
#[test]
fn policies_come_and_go_under_a_stream_table() {
    each_server(async |db| {
        let admin = db.session().await;
        let role = format!(
            "guarded_{}",
            count(&admin, "SELECT oid::int8 FROM pg_database WHERE datname = current_database()").await
        );
        run(&admin, &format!("CREATE ROLE {role}; CREATE ROLE {role}_other; GRANT CREATE ON SCHEMA public TO {role}, {role}_other")).await;
        let other = db.session().await;
        run(&other, &format!("SET SESSION AUTHORIZATION {role}_other")).await;
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = Driver::open_as(db, &role, settings).await;
        run(t.connection(), SOURCES).await;
        create(&mut t, "own", "SELECT id, w FROM b").await;
        assert_eq!(mode(&t, "own").await.0, "DIFFERENTIAL");
        let shown = async |what: &str| count(&admin, &format!("SELECT count(*) FROM {what}")).await;
        for (change, rows) in [
            ("ALTER TABLE b ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON b USING (w > 5)", 10),
            ("UPDATE b SET w = w + 1; ALTER TABLE b FORCE ROW LEVEL SECURITY", 6),
            ("ALTER POLICY few ON b USING (w > 8)", 3),
            ("CREATE POLICY more ON b USING (w < 3)", 4),
            ("DROP POLICY more ON b; ALTER TABLE b DISABLE ROW LEVEL SECURITY", 10),
        ] {
            run(&admin, change).await;
            assert_equal(&mut t, "own").await;
            assert_eq!(shown("own").await, rows, "{change}");
        }
        run(&other, &format!("CREATE TABLE theirs (id int PRIMARY KEY, who name); ALTER TABLE theirs ENABLE ROW LEVEL SECURITY;
            CREATE POLICY own ON theirs USING (who = current_user); GRANT SELECT ON theirs TO {role};
            INSERT INTO theirs SELECT i, CASE WHEN i > 3 THEN '{role}' ELSE current_user END FROM generate_series(1, 9) i")).await;
        create(&mut t, "lent", "SELECT id FROM theirs").await;
        let (m, reason) = mode(&t, "lent").await;
        assert!(m == "FULL" && !reason.is_empty(), "{m} {reason}");
        assert_eq!(shown("lent").await, 6);
        run(
            &admin,
            &format!("UPDATE theirs SET who = '{role}' WHERE id < 3; DELETE FROM theirs WHERE id = 9"),
        )
        .await;
        assert_equal(&mut t, "lent").await;
        assert_eq!(shown("lent").await, 7);
        run(&other, "DROP POLICY own ON theirs; CREATE POLICY none ON theirs USING (false)").await;
        assert_equal(&mut t, "lent").await;
        assert_eq!(shown("lent").await, 0);
        run(&other, &format!("REVOKE SELECT ON theirs FROM {role}")).await;
        assert!(try_refresh(&mut t, "lent").await.is_err());
        drop((t, other));
        run(&admin, &format!("DROP OWNED BY {role}, {role}_other CASCADE; DROP ROLE {role}, {role}_other"))
            .await;
    });
}

/// To its users a stream table is a table. Users' objects on a stream table stay when its query is replaced.
#[test]
fn replacing_keeps_indexes_grants_comments_and_views() {
    each_server(async |db| {
        let (mut t, w) = prepared(db).await;
        run(&w, "CREATE INDEX mine ON joined (w); GRANT SELECT ON joined TO PUBLIC; COMMENT ON TABLE joined IS 'ours';
            COMMENT ON COLUMN joined.v IS 'value'; CREATE VIEW on_it AS SELECT id, v FROM joined WHERE w > 1").await;
        let kept = "SELECT (SELECT count(*) FROM pg_indexes WHERE indexname = 'mine')
            + (SELECT count(*) FROM pg_class WHERE relname = 'joined' AND relacl::text LIKE '%=r/%')
            + (SELECT count(*) FROM pg_description WHERE objoid = 'joined'::regclass AND description IN ('ours', 'value'))
            + (SELECT count(*) FROM pg_views WHERE viewname = 'on_it')";
        assert_eq!(count(&w, kept).await, 5);
        let oid = count(&w, "SELECT 'joined'::regclass::oid::int8").await;
        for query in [
            "SELECT a.id, a.v, b.w FROM a LEFT JOIN b USING (k)",
            "SELECT a.id, a.v, b.w, a.spare FROM a JOIN b USING (k) WHERE b.w > 2",
            "SELECT max(a.id) AS id, a.v, count(*)::int AS w FROM a GROUP BY a.v",
        ] {
            let mut new = NewStreamTable::new(name("joined"), query);
            new.if_exists = IfExists::Replace;
            t.create(&new).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
            assert_eq!(count(&w, kept).await, 5, "{query}");
            run(&w, "UPDATE a SET v = v + 1 WHERE k = 2; INSERT INTO b (id, k, w) SELECT max(id) + 1, 1, 3 FROM b").await;
            assert_equal(&mut t, "joined").await;
            let full = trickle_client::RefreshOptions { full: true, ..Default::default() };
            t.refresh(&[name("joined")], &full).await.unwrap();
            assert_eq!(count(&w, kept).await, 5, "{query}");
            assert_eq!(count(&w, "SELECT 'joined'::regclass::oid::int8").await, oid);
            assert_equal(&mut t, "joined").await;
        }
    });
}
