//! The program through a real pooler. The tests catch state that the program expects in its server process
//! from one transaction to the next. The tests also catch state that the program leaves in the process for
//! other clients. Tests with direct connections notice neither kind of state.

use super::refresher::{Refresher, holds, until};
use super::{BY_REGION, Role, leading, leftovers};
use crate::support::pooler::{self, Pooler, hold_all, left, release, said};
use crate::support::{Db, count, newest_server, run};
use std::time::{Duration, Instant};
use trickle_client::Connect;
use trickle_client::connect::Target;

/// Starts a pooler in front of the owner's server, with all server processes open. Each transaction then gets
/// the process that has been idle for the longest time.
async fn pooled(db: &Db, settings: &[&str]) -> (Role, Pooler) {
    let (role, pooler) = before(db, settings).await;
    release(hold_all(&pooler, &role.name, &database(db).await).await).await;
    (role, pooler)
}

/// Starts a pooler in front of the owner's server. The pooler opens server processes as clients need them.
async fn before(db: &Db, settings: &[&str]) -> (Role, Pooler) {
    let owner = Role::owner(db).await;
    let pooler = Pooler::start(&server(db), &[&owner.name, "postgres"], settings, &[]).await;
    let through = through(db, &pooler, &owner.name).await;
    (Role { name: owner.name, settings: through }, pooler)
}

fn server(db: &Db) -> String {
    format!("host={}", db.socket().1.parent().unwrap().display())
}

async fn database(db: &Db) -> String {
    db.session().await.client().query_one("SELECT current_database()", &[]).await.unwrap().get(0)
}

async fn through(db: &Db, pooler: &Pooler, user: &str) -> String {
    format!("{} user={user} dbname={}", pooler.settings(), database(db).await)
}

/// Runs all commands of the program, in an order in which a user may run them.
async fn everything(db: &Db, app: &Role) {
    let w = db.session().await;
    let write = "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0";
    app.does(&["init", "--quiet"]);
    app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
    app.does(&[
        "create",
        "large",
        "--query",
        "SELECT region, total FROM by_region WHERE total > 7000",
        "--quiet",
    ]);
    // A large table would take long to make. So the table is small, and the options force a fill in ranges.
    let load = ["--load-bytes", "1", "--load-connections", "3"];
    let wide = "SELECT id, customer, amount, note FROM orders WHERE amount > 3";
    app.does(&[&["create", "wide", "--query", wide, "--quiet"][..], &load].concat());
    for round in 0..4 {
        app.run_sql(db, write).await;
        let ran = app.trickle(&["refresh", "--json", "--refresh-strategy", "differential"]).json();
        assert!(ran.to_string().contains("DIFFERENTIAL"), "round {round}: {ran}");
    }
    app.does(&["check", "--quiet"]);
    app.does(&["status"]);
    app.does(&["history", "by_region"]);
    app.does(&["explain", "by_region"]);
    app.does(&["alter", "large", "--query", "SELECT max(amount) AS largest FROM orders", "--quiet"]);
    app.run_sql(db, "ALTER TABLE orders ALTER COLUMN amount TYPE numeric(14,3)").await;
    app.run_sql(db, write).await;
    app.does(&["refresh", "--quiet"]);
    app.does(&["check", "--quiet"]);
    let dir = std::env::temp_dir().join(format!("trickle-pooled-{}", app.name));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("declared.sql"), "SELECT count(*) AS n FROM orders").unwrap();
    app.does(&["apply", dir.to_str().unwrap(), "--quiet"]);
    std::fs::remove_dir_all(&dir).unwrap();
    app.does(&["disable", "customers", "--quiet"]);
    app.does(&["enable", "customers", "--quiet"]);
    app.does(&["alter", "by_region", "--suspend", "--quiet"]);
    app.does(&["alter", "by_region", "--resume", "--quiet"]);
    let mut refresher = Refresher::start(app.command(&["run", "--quiet"]));
    for _ in 0..3 {
        app.run_sql(db, write).await;
        until(&w, &holds("by_region", BY_REGION)).await;
    }
    app.run_sql(db, write).await;
    app.does(&["wait", "by_region", "--quiet"]);
    refresher.terminate();
    assert_eq!(refresher.ended().code(), Some(0));
    let ran = app.trickle(&["doctor"]);
    assert!(ran.out.contains("through a pooler"), "{ran:?}");
    assert!(!ran.out.contains("problem"), "{ran:?}");
    app.does(&["drop", "wide", "--quiet"]);
}

#[test]
fn everything_works_where_each_session_has_a_server_process() {
    if !pooler::is_there() {
        return;
    }
    newest_server(async |db| {
        let (app, _pooler) = pooled(db, &["pool_mode = session", "default_pool_size = 20"]).await;
        everything(db, &app).await;
        app.does(&["uninstall", "--quiet"]);
    });
}

/// In transaction pooling, successive transactions of a client get different server processes.
#[test]
fn transaction_pooling_works_and_leaves_nothing_in_processes() {
    if !pooler::is_there() {
        return;
    }
    newest_server(async |db| {
        let (app, pooler) = pooled(db, &["pool_mode = transaction"]).await;
        let database = database(db).await;
        let others = pooler.client(&app.name, &database).await;
        let mut pids = said(&others, "SELECT pg_backend_pid()").await;
        pids.extend(said(&others, "SELECT pg_backend_pid()").await);
        assert_ne!(pids[0], pids[1], "each transaction gets another process");
        everything(db, &app).await;
        assert_eq!(left(&pooler, &app.name, &database).await, Vec::<String>::new());
        app.does(&["uninstall", "--quiet"]);
        assert_eq!(left(&pooler, &app.name, &database).await, Vec::<String>::new());
    });
}

/// Code of a stream table's owner can leave locks, cursors and temporary objects in its server process. The
/// pooler then gives that process to another client. Settings and prepared statements may stay in the
/// process, since they may be the pooler's own.
#[test]
fn a_refresh_leaves_no_lock_in_a_process_of_the_pool() {
    if !pooler::is_there() {
        return;
    }
    newest_server(async |db| {
        let (app, pooler) = pooled(db, &["pool_mode = transaction"]).await;
        let w = db.session().await;
        let leaves =
            "PERFORM pg_advisory_lock(4711); EXECUTE 'DECLARE left_cursor CURSOR WITH HOLD FOR SELECT 1';
            EXECUTE 'LISTEN left_channel'; EXECUTE 'CREATE TEMPORARY TABLE left_table AS SELECT 1 AS x'";
        leftovers::made(db, &app, leaves).await;
        {
            let _refresher = Refresher::start(app.command(&["run", "--quiet"]));
            for n in 1..6 {
                leftovers::round(db, &app, &w, n).await;
            }
        }
        let mut left = left(&pooler, &app.name, &database(db).await).await;
        left.retain(|l| !l.starts_with("setting mine.own"));
        assert_eq!(left, Vec::<String>::new());
        let failed = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE status = 'FAILED'";
        assert_eq!(count(&w, failed).await, 0, "what was left is in somebody's way");
    });
}

/// The pool has one server process for all clients. A client that holds this process and waits for a second
/// one would wait for ever.
#[test]
fn one_server_process_is_enough() {
    if !pooler::is_there() {
        return;
    }
    newest_server(async |db| {
        let owner = Role::owner(db).await;
        let settings = ["pool_mode = transaction", "default_pool_size = 1"];
        let pooler = Pooler::start(&server(db), &[&owner.name], &settings, &[]).await;
        let app = Role { settings: through(db, &pooler, &owner.name).await, name: owner.name };
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        let wide = "SELECT id, amount FROM orders WHERE amount > 3";
        let load = ["--load-bytes", "1", "--load-connections", "3"];
        let made =
            app.trickle(&[&["create", "wide", "--query", wide, "--schedule", "1s"][..], &load].concat());
        assert!(made.code == 0 && made.err.contains("the pool is too small"), "{made:?}");
        app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
        let _refresher = Refresher::start(app.command(&["run", "--quiet"]));
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
        until(&w, &holds("by_region", BY_REGION)).await;
        until(&w, &holds("wide", wide)).await;
    });
}

/// A refresher survives the death of its pooler, and continues through the restarted pooler.
#[test]
fn a_refresher_survives_its_pooler() {
    if !pooler::is_there() {
        return;
    }
    newest_server(async |db| {
        let (app, mut pooler) = pooled(db, &["pool_mode = transaction"]).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
        let mut refresher = Refresher::start(app.command(&["run", "--quiet"]));
        for _ in 0..3 {
            app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
            until(&w, &holds("by_region", BY_REGION)).await;
            pooler.restart().await;
            refresher.is_running();
        }
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
        until(&w, &holds("by_region", BY_REGION)).await;
        app.does(&["check", "--quiet"]);
    });
}

/// The holder of the lease is stored in a row and not in a session. So the lease works also if a pooler gives
/// each transaction another process.
#[test]
fn two_refreshers_through_a_pooler_share_one_lease() {
    if !pooler::is_there() {
        return;
    }
    newest_server(async |db| {
        let (app, _pooler) = pooled(db, &["pool_mode = transaction"]).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
        let fence = "SELECT coalesce(max(fence), 0) FROM pgtrickle.pgt_leases";
        let applied = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER' \
             AND status = 'COMPLETED' AND delta_row_count > 0";
        let start = || Refresher::start(app.command(&["run", "--quiet"]));
        let first = start();
        until(&w, &format!("SELECT ({fence}) = 1")).await;
        let _second = start();
        for written in 1..4 {
            app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
            until(&w, &holds("by_region", BY_REGION)).await;
            assert_eq!((count(&w, applied).await, count(&w, fence).await), (written, 1));
        }
        first.signal("-KILL");
        let killed = Instant::now();
        until(&w, &format!("SELECT ({fence}) = 2")).await;
        assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
        until(&w, &holds("by_region", BY_REGION)).await;
        assert_eq!(count(&w, applied).await, 4);
        app.does(&["check", "--quiet"]);
    });
}

/// A refresher behind a pooler is stopped (SIGSTOP), and the pooler keeps the connection to the server open.
/// The server ends the refresher's transaction all the same.
#[test]
fn a_stopped_refresher_behind_a_pooler_loses_its_locks() {
    if !pooler::is_there() {
        return;
    }
    newest_server(async |db| {
        let (app, _pooler) = pooled(db, &["pool_mode = transaction"]).await;
        leading::stands_still(db, app).await;
    });
}

/// A request to cancel contains a number that the pooler gave to a client. The request ends the statement of
/// that client, in whatever process the statement runs. If that client is idle, the request has no effect,
/// even if another client uses the process that the idle client used before.
#[test]
fn a_request_to_cancel_ends_ones_own_statement_and_no_other() {
    if !pooler::is_there() {
        return;
    }
    newest_server(async |db| {
        let (app, pooler) = before(db, &["pool_mode = transaction", "default_pool_size = 1"]).await;
        let target = Target::resolve(Some(&app.settings), &|_| None).unwrap();
        let database = database(db).await;
        let (own, other) =
            (Connect::connect(&target).await.unwrap(), pooler.client(&app.name, &database).await);
        let pid = said(own.client(), "SELECT pg_backend_pid()").await;
        assert_eq!(said(&other, "SELECT pg_backend_pid()").await, pid, "one process for both");
        let w = db.session().await;
        let asleep = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
        let cancel = async {
            until(&w, asleep).await;
            own.cancel().send().await.unwrap();
        };
        let (slept, ()) = tokio::join!(own.client().batch_execute("SELECT pg_sleep(600)"), cancel);
        let slept = slept.unwrap_err();
        assert_eq!(slept.code().map(|c| c.code()), Some("57014"), "{slept:?}");
        // The request does not end the statement of another client that waits in the same process.
        run(&w, "SELECT pg_advisory_lock(42)").await;
        let cancel = async {
            let waits = "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            until(&w, waits).await;
            own.cancel().send().await.unwrap();
            // The pooler reads the request before it lets in a client that connects later.
            pooler.client(&app.name, &database).await;
            run(&w, "SELECT pg_advisory_unlock(42)").await;
        };
        let (waited, ()) = tokio::join!(other.batch_execute("SELECT pg_advisory_xact_lock(42)"), cancel);
        waited.unwrap();
    });
}

/// The pooler refuses a setting that it would have to store for each client. The message names the pooler's
/// option that permits the setting.
#[test]
fn a_setting_that_a_pooler_refuses_is_told_with_what_to_do() {
    if !pooler::is_there() {
        return;
    }
    newest_server(async |db| {
        let (app, _pooler) = pooled(db, &["pool_mode = transaction"]).await;
        let refused =
            Role { settings: format!("{} options='-c work_mem=7MB'", app.settings), name: app.name };
        let ran = refused.trickle(&["status"]);
        assert!(ran.code == 3 && ran.err.contains("ignore_startup_parameters"), "{ran:?}");
    });
}
