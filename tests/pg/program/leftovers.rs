//! Code of a stream table's owner can leave locks, cursors, settings or temporary objects in the session of a
//! refresher. The refresher must remove these after the refresh, before the session refreshes another stream
//! table.

use super::Role;
use super::refresher::{Refresher, until};
use crate::support::{Db, count, newest_server};
use trickle_client::Session;

/// A query for the parts of a session that outlive transactions, as one text. A part that the session lacks
/// is `-`.
const HELD: &str = "SELECT concat_ws(' ', \
     (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 4711), \
     coalesce((SELECT string_agg(name, ',') FROM pg_cursors WHERE is_holdable), '-'), \
     coalesce((SELECT string_agg(c, ',') FROM pg_listening_channels() c), '-'), \
     coalesce((SELECT string_agg(relname, ',') FROM pg_class WHERE relnamespace = pg_my_temp_schema()), '-'), \
     coalesce((SELECT string_agg(name, ',') FROM pg_prepared_statements WHERE from_sql), '-'), \
     current_setting('extra_float_digits'), current_setting('mine.own', true), session_user = current_user, \
     current_setting('client_connection_check_interval'), current_setting('application_name'))";

/// The result of `HELD` in a session without leftovers.
const CLEAN: &str = "0 - - - - 1  t 1s trickle run";

/// Makes two stream tables. The trigger and the function of `noisy` leave objects of all kinds in their
/// session. The trigger of `quiet` notes the state of its session.
pub(super) async fn made(db: &Db, app: &Role, leaves: &str) {
    let functions = format!(
        "CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE b (id int PRIMARY KEY);
         CREATE TABLE met (n serial, who text, pid int, held text, kept int8);
         CREATE FUNCTION note(name text) RETURNS void LANGUAGE sql AS $$ INSERT INTO met (who, pid, held, kept) \
           SELECT name, pg_backend_pid(), ({HELD}), (SELECT count(*) FROM pg_prepared_statements WHERE NOT from_sql) $$;
         CREATE FUNCTION locking(v int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN \
           PERFORM pg_advisory_lock(4711), set_config('mine.own', 'left', false); RETURN v; END $$;
         CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {leaves}; PERFORM note('noisy'); RETURN NULL; END $$;
         CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM note('quiet'); RETURN NULL; END $$"
    );
    app.run_sql(db, &functions).await;
    app.does(&["init", "--quiet"]);
    let noisy = "SELECT id, locking(v) AS v FROM a";
    app.does(&["create", "noisy", "--query", noisy, "--schedule", "50ms", "--quiet"]);
    let quiet = "SELECT id FROM b";
    app.does(&["create", "quiet", "--query", quiet, "--schedule", "50ms", "--quiet"]);
    let triggers = "CREATE TRIGGER leave AFTER INSERT ON noisy FOR EACH STATEMENT EXECUTE FUNCTION leave();
         CREATE TRIGGER look AFTER INSERT ON quiet FOR EACH STATEMENT EXECUTE FUNCTION look()";
    app.run_sql(db, triggers).await;
}

/// Statements that leave an object of each kind that a function can leave.
pub(super) const ALL: &str = "PERFORM pg_advisory_lock(4711), pg_advisory_lock_shared(4711), set_config('extra_float_digits', '3', false);
     EXECUTE 'DECLARE left_cursor CURSOR WITH HOLD FOR SELECT 1'; EXECUTE 'LISTEN left_channel';
     EXECUTE 'CREATE TEMPORARY TABLE left_table AS SELECT 1 AS x'; EXECUTE 'PREPARE left_statement AS SELECT 1'";

const LOCKED: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 \
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Writes both sources. Waits until `noisy` and then `quiet` have been refreshed once more.
pub(super) async fn round(db: &Db, app: &Role, w: &Session, n: i32) {
    let seen = |who: &str| format!("SELECT count(*) = {n} FROM met WHERE who = '{who}'");
    app.run_sql(db, &format!("INSERT INTO a VALUES ({n}, {n})")).await;
    until(w, &seen("noisy")).await;
    until(w, &format!("SELECT ({LOCKED}) = 0")).await;
    app.run_sql(db, &format!("INSERT INTO b VALUES ({n})")).await;
    until(w, &seen("quiet")).await;
}

async fn texts(w: &Session, query: &str) -> Vec<String> {
    w.client().query(query, &[]).await.unwrap().iter().map(|r| r.get(0)).collect()
}

#[test]
fn leftovers_of_a_refresh_are_gone_from_its_session() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        made(db, &app, ALL).await;
        let _refresher = Refresher::start(app.command(&["run", "--quiet", "--parallel-refresh-mode", "off"]));
        // After a few rounds the refresher keeps its statements prepared. An object that was left in the
        // session would be created a second time, and this is an error.
        for n in 1..6 {
            round(db, &app, &w, n).await;
        }
        let met = texts(&w, "SELECT held FROM met WHERE who = 'noisy'").await;
        // The channel of LISTEN is missing in the text, since LISTEN takes effect only at the commit.
        let left = "2 left_cursor - left_table left_statement 3 left t 1s trickle run";
        assert!(met.iter().all(|held| held == left), "{met:?}");
        let met = texts(&w, "SELECT held FROM met WHERE who = 'quiet'").await;
        assert!(met.iter().all(|held| held == CLEAN), "{met:?}");
        assert_eq!(count(&w, "SELECT count(DISTINCT pid) FROM met").await, 1, "it is one session");
        let kept = count(&w, "SELECT kept FROM met ORDER BY n DESC LIMIT 1").await;
        assert!(kept > 0, "what the refresher prepared is there still");
        app.does(&["check", "--quiet"]);
    });
}

#[test]
fn leftovers_of_a_failed_refresh_are_gone_from_its_session() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        let fails =
            "PERFORM pg_advisory_lock(4711); EXECUTE 'PREPARE left_statement AS SELECT 1'; RAISE 'never'";
        made(db, &app, fails).await;
        let _refresher = Refresher::start(app.command(&["run", "--quiet", "--parallel-refresh-mode", "off"]));
        app.run_sql(db, "INSERT INTO a VALUES (1, 1)").await;
        let failed =
            "SELECT consecutive_errors > 0 FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'noisy'";
        until(&w, failed).await;
        app.does(&["alter", "noisy", "--suspend", "--quiet"]);
        until(&w, &format!("SELECT ({LOCKED}) = 0")).await;
        app.run_sql(db, "INSERT INTO b VALUES (1)").await;
        until(&w, "SELECT count(*) = 1 FROM met").await;
        assert_eq!(texts(&w, "SELECT held FROM met").await, [CLEAN]);
    });
}

/// Catches a refresher that relies on prepared statements. Code of stream tables' owners can drop these
/// statements.
#[test]
fn a_refresh_that_drops_prepared_statements_goes_on() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        made(db, &app, "EXECUTE 'DEALLOCATE ALL'").await;
        let _refresher = Refresher::start(app.command(&["run", "--quiet", "--parallel-refresh-mode", "off"]));
        for n in 1..6 {
            app.run_sql(db, &format!("INSERT INTO a VALUES ({n}, {n}); INSERT INTO b VALUES ({n})")).await;
            let all =
                format!("SELECT (SELECT count(*) FROM noisy) = {n} AND (SELECT count(*) FROM quiet) = {n}");
            until(&w, &all).await;
        }
        let failed = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'";
        assert_eq!(count(&w, failed).await, 0);
        app.does(&["check", "--quiet"]);
    });
}
