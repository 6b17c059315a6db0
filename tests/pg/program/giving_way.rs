//! Deployments. A refresh gives way to a migration, and stream tables can be paused during a migration. The
//! tests catch migrations that wait for a refresh, and refreshes that count as failed because they gave way.
//! The tests also catch paused stream tables that a refresher refreshes.

use super::refresher::{Refresher, until};
use super::{BY_REGION, Role};
use crate::support::{count, newest_server, run};

/// A function that makes a refresh wait as long as another session holds lock 42.
const SLOW: &str = "CREATE FUNCTION slow(v bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS \
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN v; END $$";

const AT_WORK: &str = "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

#[test]
fn a_refresh_gives_way_to_a_migration_and_comes_back() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        app.run_sql(db, SLOW).await;
        let query = "SELECT region, slow(count(*)) AS n FROM customers GROUP BY region";
        app.does(&["create", "held", "--query", query, "--schedule", "1s", "--quiet"]);
        let holder = db.session().await;
        run(&holder, "SELECT pg_advisory_lock(42)").await;
        app.run_sql(db, "UPDATE customers SET region = 'moved' WHERE id < 9").await;
        let _refresher = Refresher::start(app.command(&["run", "--quiet", "--give-way-ms", "300"]));
        let doctor = async || {
            let checks = app.trickle(&["doctor", "--json"]).json();
            let checks = checks["checks"].as_array().or(checks.as_array()).unwrap().clone();
            checks
                .into_iter()
                .find(|c| c["name"] == "refreshes that gave way" || c["check"] == "refreshes that gave way")
        };
        for change in ["ADD extra int", "ADD more int", "DROP extra"] {
            until(&w, AT_WORK).await;
            // If the refresh kept its locks, ALTER TABLE would wait for ever, since nobody releases the lock
            // that the refresh waits for.
            app.run_sql(db, &format!("ALTER TABLE customers {change}")).await;
        }
        let gave_way = "SELECT count(*) >= 3 FROM pgtrickle.pgt_refresh_history WHERE status = 'SKIPPED' \
             AND strategy_reason LIKE 'gave way to process %, which waits for an exclusive lock on %customers'";
        until(&w, gave_way).await;
        let told = doctor().await.unwrap().to_string();
        assert!(told.contains("gave way to process") && told.contains("give_way_ms"), "{told}");
        let failed = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE consecutive_errors > 0 OR status <> 'ACTIVE'";
        assert_eq!(count(&w, failed).await, 0);
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        until(&w, "SELECT count(*) = 1 FROM held WHERE region = 'moved' AND n = 8").await;
        app.does(&["check", "--quiet"]);
    });
}

#[test]
fn a_refresh_that_gives_way_to_nobody_is_finished_first() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        app.run_sql(db, SLOW).await;
        let query = "SELECT region, slow(count(*)) AS n FROM customers GROUP BY region";
        app.does(&["create", "held", "--query", query, "--schedule", "1s", "--quiet"]);
        let holder = db.session().await;
        run(&holder, "SELECT pg_advisory_lock(42)").await;
        app.run_sql(db, "UPDATE customers SET region = 'moved' WHERE id < 9").await;
        let _refresher = Refresher::start(app.command(&["run", "--quiet", "--give-way-ms", "0"]));
        until(&w, AT_WORK).await;
        let s = db.session().await;
        run(&s, "SET lock_timeout = '1500ms'").await;
        let late = s.client().batch_execute("ALTER TABLE customers ADD extra int").await.unwrap_err();
        assert_eq!(late.code().unwrap().code(), "55P03");
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        until(&w, "SELECT count(*) = 1 FROM held WHERE region = 'moved' AND n = 8").await;
        assert_eq!(
            count(&w, "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'SKIPPED'").await,
            0
        );
    });
}

/// A setting of capture applies to sources that are captured later, and to triggers that `rebuild` makes
/// again.
#[test]
fn triggers_are_made_anew_as_the_settings_say() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "made", "--query", BY_REGION, "--quiet"]);
        assert_eq!(app.does(&["rebuild"]), "all triggers are as they should be\n");
        let by_row = ["--cdc-trigger-mode", "row"];
        let done = app.does(&[&["rebuild", "orders"][..], &by_row].concat());
        assert_eq!(done, "public.orders: made anew\n");
        let modes = "SELECT count(*) FROM pgtrickle.pgt_buffers WHERE trigger_mode = 'ROW' AND source_relid = 'orders'::regclass";
        assert_eq!(count(&w, modes).await, 1);
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id < 5").await;
        app.does(&["check", "--quiet"]);
        let all = app.trickle(&[&["--json", "rebuild"][..], &by_row].concat()).json();
        assert_eq!(all["rebuilt"], serde_json::json!(["public.customers"]));
        assert_eq!(app.trickle(&["rebuild", "nothing"]).code, 2);
    });
}

#[test]
fn paused_stream_tables_are_left_alone_until_resumed() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "made", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
        let kept = "SELECT region, count(*) AS n FROM customers GROUP BY region";
        app.does(&["create", "kept", "--query", kept, "--mode", "immediate", "--quiet"]);
        let told = app.does(&["status"]);
        assert!(told.contains("no refresher runs: trickle run"), "{told}");
        let _refresher = Refresher::start(app.command(&["run", "--quiet"]));
        let paused = app.trickle(&["pause", "--json"]).json();
        let names: Vec<&str> = paused.as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
        assert_eq!(names, ["public.made", "public.kept"]);
        assert_eq!(app.does(&["pause"]), "nothing was changed\n");
        let told = app.does(&["status"]);
        assert!(told.contains("SUSPENDED") && told.contains("paused: trickle resume public.made"), "{told}");
        app.run_sql(db, "UPDATE customers SET region = 'moved' WHERE id < 9").await;
        // Writers still bring the paused IMMEDIATE stream table up to date. The other stream table is not
        // refreshed.
        assert_eq!(count(&w, "SELECT n FROM kept WHERE region = 'moved'").await, 8);
        let all = app.trickle(&["refresh", "--all"]);
        assert!(
            all.err.contains("left out, since suspended: public.made, public.kept; trickle resume"),
            "{all:?}"
        );
        app.does(&["check", "--quiet", "made"]);
        assert_eq!(
            count(&w, "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE status = 'SUSPENDED'").await,
            2
        );
        assert_eq!(app.does(&["resume", "made"]), "public.made: on schedule again\n");
        app.does(&["resume", "--quiet"]);
        app.run_sql(db, "UPDATE customers SET region = 'again' WHERE id < 9").await;
        until(&w, "SELECT count(*) = 1 FROM made WHERE region = 'again'").await;
        assert_eq!(count(&w, "SELECT n FROM kept WHERE region = 'again'").await, 8);
        // A check does not resume a stream table that was suspended after errors.
        run(&w, "UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED', consecutive_errors = 5, last_error_message = 'none of ours' \
                 WHERE pgt_name = 'made'").await;
        app.does(&["check", "--quiet", "made"]);
        let still = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'made' AND status = 'SUSPENDED' \
             AND consecutive_errors = 5 AND last_error_message = 'none of ours'";
        assert_eq!(count(&w, still).await, 1);
    });
}
