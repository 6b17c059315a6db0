//! The owners of the objects that stream tables need, and the rights on them. The tests catch a role that
//! reads rows of others or gains rights through a buffer, a hidden table, a trigger function or a setting.
//! The tests also catch the effects of a new owner of a table: a stream table that is not refreshed, or
//! writers that fail.

use super::rows;
use super::workers::{scheduled, until};
use crate::support::private::{connect, todays_version};
use crate::support::{count, run};
use std::path::Path;
use trickle_client::Session;
use trickle_client::throwaway::Server;

/// Starts a server with the extension, and a role `app` with rights by `grant_to`. The role has a table, a
/// stream table with a hidden state, and an IMMEDIATE stream table.
async fn let_in(binaries: &Path, name: &str) -> (Server, Session, Session) {
    let server = scheduled(binaries, name).await;
    let admin = connect(&server, "postgres").await;
    run(
        &admin,
        "CREATE EXTENSION pg_trickle; CREATE ROLE app LOGIN; CREATE SCHEMA app AUTHORIZATION app; \
         SELECT pgtrickle.grant_to('app')",
    )
    .await;
    let app = session(&server, "app").await;
    run(
        &app,
        "SET search_path = app; CREATE TABLE t (id int PRIMARY KEY, k int, v int); \
         INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 30) i; \
         SELECT pgtrickle.create_stream_table('counts', 'SELECT k, avg(v) AS a, count(*) AS n FROM t GROUP BY k', NULL); \
         SELECT pgtrickle.create_stream_table('kept', 'SELECT k, sum(v) AS s FROM t GROUP BY k', NULL, 'IMMEDIATE')",
    )
    .await;
    (server, admin, app)
}

/// Opens a session with the role's own login, since a session that took the role by SET ROLE could reset the
/// role.
async fn session(server: &Server, user: &str) -> Session {
    Session::connect(server.config("postgres").user(user)).await.unwrap()
}

/// Runs a statement, and returns the SQLSTATE and the message of its refusal.
async fn refused(s: &Session, sql: &str) -> (String, String) {
    match s.client().batch_execute(sql).await {
        Ok(()) => ("00000".to_owned(), "it was done".to_owned()),
        Err(e) => {
            let e = e.as_db_error().unwrap_or_else(|| panic!("{e}: {sql}"));
            (e.code().code().to_owned(), e.message().to_owned())
        }
    }
}

async fn text(s: &Session, query: &str) -> String {
    rows(s, query).await[0][0].clone().unwrap()
}

const STALE: &str = "SELECT (SELECT count(*) FROM (SELECT k, avg(v) AS a, count(*) AS n FROM app.t GROUP BY k EXCEPT ALL TABLE app.counts) x)
    + (SELECT count(*) FROM (SELECT k, sum(v) AS s FROM app.t GROUP BY k EXCEPT ALL TABLE app.kept) x)";

/// A query for the number of objects in the hidden schema that do not belong to the catalog's owner. Trigger
/// functions of an IMMEDIATE stream table belong to the stream table's owner and do not count.
const FOREIGN: &str = "SELECT count(*) FROM (
    SELECT FROM pg_class c WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relowner <> 10
    UNION ALL SELECT FROM pg_proc p WHERE p.pronamespace = 'pgtrickle_changes'::regnamespace AND p.proowner <> 10
        AND NOT starts_with(p.proname, 'immediate_')) x";

#[test]
#[ignore = "needs the extension: ./x extension"]
fn hidden_objects_belong_to_the_catalogs_owner() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "hidden").await;
        run(&admin, "CREATE TABLE loot (who text); CREATE ROLE guest; GRANT app TO guest").await;
        run(
            &app,
            "CREATE FUNCTION grab() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.loot VALUES (current_user); \
                 RETURN 1; EXCEPTION WHEN insufficient_privilege THEN RETURN 0; END $$; \
             CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM app.grab(); RETURN NULL; END $$",
        )
        .await;
        assert_eq!(count(&admin, FOREIGN).await, 0);
        let oid = text(&admin, "SELECT 'app.t'::regclass::oid").await;
        let id =
            text(&admin, "SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'counts'").await;
        let kept =
            text(&admin, "SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'kept'").await;
        let state = text(&admin, &format!("SELECT coalesce(min(relname), 'none') FROM pg_class WHERE relname LIKE 'state\\_{id}\\_%' AND relkind = 'r'")).await;
        let (view, segment) = (format!("changes_{oid}"), format!("changes_{oid}_1"));
        let mut tries = vec![
            format!("CREATE OR REPLACE VIEW {view} AS SELECT * FROM {segment} WHERE app.grab() = 1"),
            format!("SELECT * FROM {view}"),
            format!("DROP VIEW {view} CASCADE"),
            format!("ALTER VIEW {view} RENAME TO other"),
            format!("CREATE TABLE changes_{oid}_2 (LIKE app.t)"),
            format!("CREATE VIEW changes_{oid}_3 AS SELECT 1"),
            format!(
                "CREATE FUNCTION capture_{oid}_2_insert() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'"
            ),
            format!(
                "CREATE OR REPLACE FUNCTION capture_{oid}_1_insert() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'"
            ),
            format!(
                "CREATE OR REPLACE FUNCTION immediate_{kept}_begin() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'"
            ),
            format!("CREATE TABLE state_{id}_99 (a int)"),
        ];
        for table in [&segment, &state, &format!("immediate_{kept}")].iter().filter(|t| **t != "none") {
            tries.extend([
                format!(
                    "CREATE TRIGGER late AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION app.late()"
                ),
                format!("CREATE RULE late AS ON INSERT TO {table} DO ALSO SELECT app.grab()"),
                format!("CREATE INDEX ON {table} ((app.grab()))"),
                format!("ALTER TABLE {table} ADD COLUMN late int DEFAULT app.grab()"),
                format!("ALTER TABLE {table} OWNER TO app"),
                format!("CREATE POLICY late ON {table} USING (app.grab() = 1)"),
            ]);
        }
        for table in [&segment, &state].iter().filter(|t| **t != "none") {
            tries.extend([
                format!("TABLE {table}"),
                format!("DELETE FROM {table}"),
                format!("TRUNCATE {table}"),
            ]);
        }
        run(&app, "SET search_path = pgtrickle_changes, app").await;
        for sql in &tries {
            let (code, said) = refused(&app, sql).await;
            assert_eq!(code, "42501", "{said}: {sql}");
        }
        run(&app, "SET search_path = app; UPDATE t SET v = v + 1 WHERE id < 9; DELETE FROM t WHERE id = 30")
            .await;
        run(&admin, "SELECT pgtrickle.refresh_stream_table('app.counts')").await;
        assert_eq!((count(&admin, STALE).await, count(&admin, "SELECT count(*) FROM loot").await), (0, 0));
        // The server runs ANALYZE on hidden tables by itself. ANALYZE calls no function of another role.
        run(
            &app,
            "CREATE FUNCTION diff(a int, b int) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM app.grab(); RETURN a - b; END'; \
             CREATE TYPE span AS RANGE (subtype = int, subtype_diff = app.diff); CREATE TABLE spans (id int PRIMARY KEY, s span); \
             SELECT pgtrickle.create_stream_table('spanned', 'SELECT s, count(*) AS n FROM spans GROUP BY s', NULL); \
             INSERT INTO spans SELECT i, span(i, 2 * i) FROM generate_series(1, 50) i",
        )
        .await;
        run(&admin, "DO $$ DECLARE t regclass; BEGIN FOR t IN SELECT oid FROM pg_class WHERE relkind = 'r' \
             AND relnamespace = 'pgtrickle_changes'::regnamespace LOOP EXECUTE format('ANALYZE %s', t); END LOOP; END $$")
            .await;
        assert_eq!(count(&admin, "SELECT count(*) FROM loot").await, 0);
        // A member of the owner role can repair the stream table, and does not become the owner of a hidden
        // object.
        let guest = connect(&server, "postgres").await;
        run(&guest, "SET ROLE guest; SET search_path = app; UPDATE t SET v = 7 WHERE id = 3").await;
        run(&admin, "SELECT pgtrickle.grant_to('guest')").await;
        run(&guest, "SELECT pgtrickle.repair_stream_table('counts'), pgtrickle.repair_stream_table('kept')")
            .await;
        run(&guest, "SELECT count(*) FROM pgtrickle.rebuild_cdc_triggers()").await;
        assert_eq!((count(&admin, STALE).await, count(&admin, FOREIGN).await), (0, 0));
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_setting_gives_nobody_a_right() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "settings").await;
        run(&admin, "CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA app TO guest").await;
        run(&app, "GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA app TO guest")
            .await;
        let guest = session(&server, "guest").await;
        run(&guest, "SET pgtrickle.refreshing = on; SET pgtrickle.at_work = on").await;
        for sql in [
            "INSERT INTO app.counts VALUES (9, 1, 1)",
            "UPDATE app.counts SET n = 1",
            "DELETE FROM app.kept",
            "TRUNCATE app.counts",
        ] {
            assert_eq!(refused(&guest, sql).await.0, "55000", "{sql}");
        }
        // After an alteration of the table, the capture triggers of the table are made again. The settings of
        // the table's owner have no effect on them.
        run(&app, "SET pgtrickle.at_work = on; SET pgtrickle.refreshing = on").await;
        run(&app, "ALTER TABLE t ALTER v TYPE bigint").await;
        run(&app, "RESET pgtrickle.refreshing; INSERT INTO t VALUES (100, 1, 5000000000)").await;
        run(&app, "SELECT pgtrickle.refresh_stream_table('counts')").await;
        assert_eq!(count(&admin, STALE).await, 0);
        run(&app, "DROP TABLE counts").await;
        assert_eq!(
            count(&admin, "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'counts'").await,
            0
        );
        // A role that does not own the catalog cannot give rights to other roles. The error names the reason.
        run(&admin, "CREATE ROLE other; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgtrickle TO app").await;
        for call in ["grant_to('other')", "revoke_from('other')"] {
            let (code, said) = refused(&app, &format!("SELECT pgtrickle.{call}")).await;
            assert!(code == "42501" && said.contains("must be owner of the catalog"), "{code} {said}");
        }
        server.stop();
    });
}

/// Returns status, mode and number of consecutive errors of a stream table.
async fn stands(admin: &Session, name: &str) -> Vec<Option<String>> {
    let query = format!(
        "SELECT status, refresh_mode, consecutive_errors FROM pgtrickle.pgt_stream_tables WHERE pgt_name = '{name}'"
    );
    rows(admin, &query).await.remove(0)
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_stream_table_goes_on_under_another_owner() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "owner").await;
        run(&admin, "CREATE ROLE own1 LOGIN; CREATE ROLE own2 LOGIN; GRANT app TO own1; GRANT USAGE, CREATE ON SCHEMA app TO own1, own2").await;
        // The new owner `own1` is a member of the role that owns the sources, so the stream table is still
        // updated by deltas.
        run(&admin, "ALTER TABLE app.counts OWNER TO own1; ALTER TABLE app.kept OWNER TO own1").await;
        run(&app, "UPDATE t SET v = v + 1 WHERE id < 9; DELETE FROM t WHERE id = 30").await;
        let (code, said) = refused(&app, "SELECT pgtrickle.refresh_stream_table('app.counts')").await;
        assert!(code != "00000", "{code} {said}");
        run(&admin, "SELECT pgtrickle.refresh_stream_table('app.counts')").await;
        assert_eq!((count(&admin, STALE).await, count(&admin, FOREIGN).await), (0, 0));
        let own1 = session(&server, "own1").await;
        for call in [
            "refresh_stream_table('app.counts')",
            "repair_stream_table('app.counts')",
            "repair_stream_table('app.kept')",
        ] {
            run(&app, "UPDATE t SET v = v + 1 WHERE id < 9").await;
            run(&own1, &format!("SELECT pgtrickle.{call}, pgtrickle.refresh_stream_table('app.counts')"))
                .await;
            assert_eq!(count(&admin, STALE).await, 0, "{call}");
        }
        assert_eq!(stands(&admin, "counts").await[1].as_deref(), Some("DIFFERENTIAL"));
        // A process of the server refreshes for the new owner too.
        run(&own1, "SELECT pgtrickle.alter_stream_table('app.counts', schedule => '1s')").await;
        run(&app, "INSERT INTO t VALUES (200, 2, 2)").await;
        until(&admin, STALE, 0).await;
        let told = "SELECT count(*) FROM pgtrickle.health_check() WHERE check_name = 'others'' triggers' AND result = 'warning' AND found LIKE '%app.left_over%'";
        assert_eq!(count(&admin, told).await, 0);
        run(&admin, "SET ROLE app; CREATE FUNCTION app.left_over() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; RESET ROLE; \
             CREATE TRIGGER left_over AFTER INSERT ON app.counts FOR EACH ROW EXECUTE FUNCTION app.left_over()").await;
        assert_eq!(count(&admin, told).await, 1);
        // The extension does not notice that a role loses rights by leaving another role. Writers do not fail
        // in this case either.
        run(&admin, "SELECT pgtrickle.pause_scheduler(ARRAY['app.counts']); REVOKE app FROM own1").await;
        run(&app, "UPDATE t SET v = v + 1 WHERE id = 8; DELETE FROM t WHERE id = 9").await;
        run(&admin, "GRANT app TO own1; SELECT pgtrickle.resume_scheduler(ARRAY['app.counts'])").await;
        run(
            &admin,
            "SELECT pgtrickle.refresh_stream_table('app.kept'), pgtrickle.refresh_stream_table('app.counts')",
        )
        .await;
        assert_eq!(count(&admin, STALE).await, 0);
        // The new owner `own2` has no rights by `grant_to` and may only read the source. So the stream table
        // gets full refreshes.
        run(&admin, "GRANT SELECT ON app.t TO own2; REASSIGN OWNED BY own1 TO own2").await;
        run(&app, "UPDATE t SET k = 5 WHERE id = 8").await;
        let counts = "SELECT count(*) FROM (SELECT k, avg(v) AS a, count(*) AS n FROM app.t GROUP BY k EXCEPT ALL TABLE app.counts) x";
        until(&admin, counts, 0).await;
        assert_eq!(stands(&admin, "counts").await[1].as_deref(), Some("FULL"));
        let own2 = session(&server, "own2").await;
        run(&own2, "SELECT pgtrickle.refresh_stream_table('app.counts')").await;
        run(&admin, "SELECT pgtrickle.alter_stream_table('app.counts', query => 'SELECT k, count(*) AS n FROM app.t GROUP BY k')").await;
        run(&admin, "SELECT pgtrickle.drop_stream_table('app.counts')").await;
        assert_eq!(
            count(&admin, "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'counts'").await,
            0
        );
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_former_owner_reads_no_changes_and_stops_no_writer() {
    todays_version(async |binaries| {
        let (server, admin, app) = let_in(binaries, "former").await;
        run(&admin, "CREATE ROLE carol LOGIN; GRANT USAGE, CREATE ON SCHEMA app TO carol").await;
        let oid = text(&admin, "SELECT 'app.t'::regclass::oid").await;
        // After three refreshes the session stores a prepared statement for the refresh.
        for _ in 0..3 {
            run(
                &app,
                "UPDATE t SET v = v + 1 WHERE id = 1; SELECT pgtrickle.refresh_stream_table('app.counts')",
            )
            .await;
        }
        run(&admin, "ALTER TABLE app.t OWNER TO carol").await;
        let carol = session(&server, "carol").await;
        let secret = "INSERT INTO app.t VALUES (500, 77, 77); UPDATE app.t SET v = 78 WHERE id = 500; DELETE FROM app.t WHERE id = 2";
        run(&carol, secret).await;
        let (code, _) = refused(&app, &format!("SELECT * FROM pgtrickle_changes.changes_{oid}")).await;
        assert_eq!(code, "42501");
        for call in [
            "refresh_stream_table('app.counts')",
            "refresh_stream_table('app.kept')",
            "repair_stream_table('app.counts')",
        ] {
            let (code, said) = refused(&app, &format!("SELECT pgtrickle.{call}")).await;
            assert!(code != "00000", "{call}: {said}");
            run(&carol, "UPDATE app.t SET v = v + 1 WHERE id = 500; TRUNCATE app.t; INSERT INTO app.t VALUES (500, 77, 1)").await;
        }
        assert_eq!(count(&admin, "SELECT (SELECT count(*) FROM app.counts WHERE k = 77) + (SELECT count(*) FROM app.kept WHERE k = 77)").await, 0);
        assert_ne!(stands(&admin, "kept").await[0].as_deref(), Some("ACTIVE"));
        // When the owner of a stream table loses the right to read the source, writers of the source do not
        // fail. When the owner may read the source again, the stream table is repaired.
        run(&admin, "ALTER TABLE app.t OWNER TO app; SELECT pgtrickle.repair_stream_table('app.kept'), pgtrickle.repair_stream_table('app.counts')").await;
        run(&app, "INSERT INTO t VALUES (501, 1, 1)").await;
        run(&app, "SELECT pgtrickle.refresh_stream_table('app.counts')").await;
        assert_eq!(count(&admin, STALE).await, 0);
        run(&app, "REVOKE SELECT ON t FROM app").await;
        run(&app, "INSERT INTO t VALUES (502, 1, 1)").await;
        run(&app, "GRANT SELECT ON t TO app; SELECT pgtrickle.repair_stream_table('app.kept'), pgtrickle.refresh_stream_table('app.counts')").await;
        assert_eq!(count(&admin, STALE).await, 0);
        server.stop();
    });
}
