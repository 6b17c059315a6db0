//! `trickle doctor` finds faults in trickle's objects in a database. A user who follows its advice repairs
//! these faults.

use super::refresher::until;
use super::{BY_REGION, Role};
use crate::support::{newest_server, pid, run};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use trickle_client::Session;

/// Runs `doctor`. Returns its exit code with the result, the finding and the advice of one check.
fn check(role: &Role, name: &str) -> (i32, String, String) {
    let ran = role.trickle(&["doctor", "--json"]);
    let all: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.err));
    let found = all["checks"].as_array().unwrap().iter().find(|c| c["check"] == name);
    let found = found.unwrap_or_else(|| panic!("no check {name}: {all}"));
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (ran.code, text("result"), text("found") + "\n" + &text("advice"))
}

#[track_caller]
fn says(role: &Role, name: &str, code: i32, result: &str, parts: &[&str]) {
    let (found_code, found, text) = check(role, name);
    assert_eq!((found_code, found.as_str()), (code, result), "{name}: {text}");
    for part in parts {
        assert!(text.contains(part), "{name} does not say {part:?}: {text}");
    }
}

#[test]
fn doctor_finds_faults_and_its_advice_helps() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        says(&app, "catalog", 0, "warning", &["trickle init"]);
        app.does(&["init", "--quiet"]);
        app.run_sql(
            db,
            "CREATE TABLE events (id int, day int) PARTITION BY RANGE (day);
             CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10);",
        )
        .await;
        app.does(&["create", "by_region", "--query", BY_REGION, "--no-schedule", "--quiet"]);
        app.does(&[
            "create",
            "per_day",
            "--query",
            "SELECT day, count(*) AS n FROM events GROUP BY day",
            "--no-schedule",
            "--quiet",
        ]);
        for name in [
            "catalog",
            "triggers",
            "guards",
            "publications",
            "uncaptured changes",
            "others' triggers",
            "capture",
            "buffers",
            "stream tables",
            "sources",
            "locks",
            "refresher",
        ] {
            says(&app, name, 0, "ok", &[]);
        }

        app.run_sql(db, "ALTER TABLE orders DISABLE TRIGGER USER").await;
        says(&app, "triggers", 1, "problem", &["not enabled always on public.orders", "trickle refresh"]);
        app.run_sql(db, "INSERT INTO orders VALUES (99999, 1, 10, 'missed')").await;
        assert_eq!(app.trickle(&["refresh", "--quiet"]).code, 0);
        says(&app, "triggers", 0, "ok", &[]);
        app.does(&["check", "--quiet"]);
        app.does(&["disable", "orders", "--quiet"]);
        says(&app, "capture", 0, "warning", &["public.orders", "trickle enable public.orders"]);
        app.does(&["enable", "orders", "--quiet"]);
        says(&app, "triggers", 0, "ok", &[]);
        app.does(&["check", "--quiet"]);

        // The test sets the limit of a buffer in the catalog too low. The next refresh makes triggers with
        // the real limit.
        app.run_sql(
            db,
            "INSERT INTO orders VALUES (99998, 1, 10, 'more'); UPDATE pgtrickle.pgt_buffers SET limit_bytes = 1",
        )
        .await;
        says(&app, "buffers", 0, "warning", &["public.orders has", "may have no more", "trickle refresh"]);
        app.does(&["refresh", "--quiet"]);
        says(&app, "buffers", 0, "ok", &[]);

        // A partition that is created later has no triggers until the readers of its parent are planned
        // again.
        app.run_sql(db, "CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (10) TO (20)").await;
        says(&app, "triggers", 1, "problem", &["missing on public.events_2"]);
        says(&app, "sources", 1, "warning", &["public.per_day", "trickle refresh public.per_day"]);
        app.does(&["refresh", "--quiet"]);
        says(&app, "triggers", 0, "ok", &[]);

        app.run_sql(db, "DROP TRIGGER trickle_guard ON by_region").await;
        says(&app, "guards", 0, "warning", &["by_region"]);
        let again =
            ["create", "by_region", "--or-replace", "--query", BY_REGION, "--schedule", "1m", "--quiet"];
        app.does(&again);
        says(&app, "guards", 0, "ok", &[]);
        says(&app, "refresher", 0, "warning", &["1 on schedule", "trickle run"]);

        app.run_sql(db, "ALTER TABLE by_region REPLICA IDENTITY NOTHING").await;
        let admin = db.session().await;
        run(&admin, "CREATE PUBLICATION p FOR ALL TABLES").await;
        let mend = "ALTER TABLE public.by_region REPLICA IDENTITY FULL";
        says(&app, "publications", 1, "problem", &["p refuses updates of public.by_region", mend]);
        app.run_sql(db, mend).await;
        says(&app, "publications", 0, "ok", &[]);
        run(&admin, "DROP PUBLICATION p").await;

        // A source loses a column that a stream table needs. The advice repairs the stream table.
        app.run_sql(db, "CREATE TABLE visits (id int, day int)").await;
        let per_day = "SELECT day, count(*) AS n FROM visits GROUP BY day";
        app.does(&["create", "visited", "--query", per_day, "--no-schedule", "--quiet"]);
        app.run_sql(db, "ALTER TABLE visits DROP COLUMN day").await;
        assert_ne!(app.trickle(&["refresh", "visited"]).code, 0);
        let another = "trickle alter public.visited --query";
        says(&app, "capture", 0, "warning", &["public.visits", another]);
        assert!(!check(&app, "capture").2.contains("trickle enable"));
        says(&app, "stream tables", 0, "warning", &[another, "trickle drop public.visited"]);
        says(&app, "sources", 0, "ok", &[]);
        let refused = app.trickle(&["enable", "visits"]);
        assert!(refused.code == 2 && refused.err.contains(another), "{}", refused.err);
        let fits = "SELECT id AS day, count(*) AS n FROM visits GROUP BY id";
        app.does(&["alter", "visited", "--query", fits, "--quiet"]);
        says(&app, "capture", 0, "ok", &[]);
        says(&app, "stream tables", 0, "ok", &[]);

        app.does(&["alter", "by_region", "--suspend", "--quiet"]);
        says(&app, "stream tables", 0, "warning", &["by_region: suspended", "--resume"]);
    });
}

/// `doctor` must not wait for locks, since a user runs it to find the cause of such a wait.
#[test]
fn doctor_and_status_take_no_locks_and_name_the_blocker() {
    newest_server(async |db| {
        let mut app = Role::owner(db).await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--quiet"]);
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id < 10").await;
        says(&app, "long transactions", 0, "ok", &["those of other roles", "pg_read_all_stats"]);
        let holder = Session::connect(&app.settings.parse().unwrap()).await.unwrap();
        let process = pid(holder.client()).await;
        run(&holder, "BEGIN; LOCK TABLE orders, customers, by_region IN ACCESS EXCLUSIVE MODE").await;
        says(&app, "long transactions", 0, "ok", &[&format!("process {process}, idle in transaction")]);
        let mut waiting = app.command(&["refresh", "by_region", "--quiet"]).spawn().unwrap();
        let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND database = \
             (SELECT oid FROM pg_database WHERE datname = current_database())";
        until(&db.session().await, waits).await;
        // With this timeout a wait for a lock would be an error.
        app.settings += " options='-c lock_timeout=2s'";
        let standing = app.trickle(&["status", "--json"]).json();
        assert_eq!(standing[0]["pending_changes"], 18, "9 rows, as they were and as they are: {standing}");
        app.does(&["status", "by_region"]);
        app.does(&["history", "by_region"]);
        says(
            &app,
            "locks",
            0,
            "warning",
            &["waits for", &format!("held by process {process}"), "pg_terminate_backend"],
        );
        run(&holder, "ROLLBACK").await;
        assert!(waiting.wait().unwrap().success());
        says(&app, "locks", 0, "ok", &[]);
    });
}

/// A prepared transaction has no process. So `doctor` must name the transaction that holds the locks, and
/// give the statements that end it.
#[test]
fn a_prepared_transaction_that_is_waited_for_is_named() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--quiet"]);
        app.run_sql(db, "CREATE TABLE visits (id int)").await;
        let prepared =
            "BEGIN; DELETE FROM orders; INSERT INTO visits VALUES (1); PREPARE TRANSACTION 'it''s here'";
        app.run_sql(db, prepared).await;
        let (s, waiter) = (db.session().await, db.session().await);
        let looked = async {
            let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND database = \
                 (SELECT oid FROM pg_database WHERE datname = current_database())";
            until(&s, waits).await;
            let named = "waits for public.orders, held by prepared transaction \"it's here\"";
            let ends = "To end it: COMMIT PREPARED 'it''s here'; or ROLLBACK PREPARED 'it''s here';";
            says(&app, "locks", 0, "warning", &[named, ends]);
            let create = ["create", "visited", "--query", "SELECT id FROM visits"];
            let mut making = app.command(&create).stderr(Stdio::piped()).spawn().unwrap();
            let mut said = BufReader::new(making.stderr.take().unwrap());
            let mut told = String::new();
            while !told.contains("waiting: ") && said.read_line(&mut told).unwrap() > 0 {}
            run(&s, "ROLLBACK PREPARED 'it''s here'").await;
            assert!(
                told.contains("prepared transaction \"it's here\"") && told.contains("on public.visits"),
                "{told}"
            );
            assert!(making.wait().unwrap().success());
            drop(said);
        };
        tokio::join!(run(&waiter, "BEGIN; LOCK TABLE orders IN SHARE MODE; COMMIT"), looked);
        says(&app, "locks", 0, "ok", &[]);
    });
}
