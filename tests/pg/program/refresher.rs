//! `trickle run` notices stream tables that other clients create, alter and drop. The refresher survives lost
//! connections and restarts of the server. A signal stops the refresher, even within a refresh.

use super::{BY_REGION, Role, SHOP};
use crate::support::planted::{self, Said};
use crate::support::private::{connect, newest_version, start};
use crate::support::{Db, blocked, count, newest_server, run};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use trickle_client::Session;

/// Limit for waits in these tests. The work of the refresher takes a second or two.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// A refresher process that ends with the test.
pub(super) struct Refresher(Child);

impl Refresher {
    pub(super) fn start(mut command: Command) -> Refresher {
        Refresher(command.args(["--scheduler-interval-ms", "100"]).stdout(Stdio::null()).spawn().unwrap())
    }

    pub(super) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends the process a signal.
    pub(super) fn signal(&self, signal: &str) {
        let told = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(told.success());
    }

    /// Starts a refresher, and returns it with its log.
    pub(super) fn logging(mut command: Command) -> (Refresher, Said<ChildStderr>) {
        let mut refresher = Refresher::start({
            command.stderr(Stdio::piped());
            command
        });
        let log = refresher.0.stderr.take().unwrap();
        (refresher, Said::new(log))
    }

    pub(super) fn ended(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.0.try_wait().unwrap() {
                Some(status) => return status,
                None => assert!(Instant::now() < until, "it does not stop"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub(super) fn is_running(&mut self) {
        assert!(self.0.try_wait().unwrap().is_none(), "it ended");
    }
}

impl Drop for Refresher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a query returns true.
pub(super) async fn until(s: &Session, query: &str) {
    let late = Instant::now() + PATIENCE;
    while !s
        .client()
        .query_one(query, &[])
        .await
        .unwrap_or_else(|e| panic!("{e:?}\n{query}"))
        .get::<_, bool>(0)
    {
        assert!(Instant::now() < late, "never true: {query}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the text of a query that tells whether a stream table has exactly the rows of `query`. The query
/// refreshes nothing.
pub(super) fn holds(what: &str, query: &str) -> String {
    format!(
        "SELECT NOT EXISTS (TABLE {what} EXCEPT ALL ({query})) AND NOT EXISTS (({query}) EXCEPT ALL TABLE {what})"
    )
}

#[test]
fn a_running_refresher_notices_create_alter_and_drop() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        let mut refresher = Refresher::start(app.command(&["run", "--quiet"]));
        let write = async |what: &str, query: &str| {
            app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
            until(&w, &holds(what, query)).await;
        };
        app.does(&["create", "made", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
        write("made", BY_REGION).await;
        let query = "SELECT region, total FROM made WHERE total > 7000";
        app.does(&["create", "above", "--query", query, "--schedule", "1s", "--quiet"]);
        write("above", query).await;
        let other = "SELECT max(amount) AS largest FROM orders";
        app.does(&["alter", "above", "--query", other, "--quiet"]);
        write("above", other).await;
        app.run_sql(db, "ALTER TABLE orders ALTER COLUMN amount TYPE numeric(14,3)").await;
        write("above", other).await;
        write("made", BY_REGION).await;
        app.does(&["drop", "above", "--quiet"]);
        let again = "SELECT region FROM made";
        app.does(&["create", "above", "--query", again, "--schedule", "1s", "--quiet"]);
        app.run_sql(db, "UPDATE customers SET region = 'elsewhere' WHERE id = 3").await;
        until(&w, &holds("above", again)).await;
        app.does(&["alter", "made", "--suspend", "--quiet"]);
        app.does(&["alter", "made", "--resume", "--quiet"]);
        write("made", BY_REGION).await;
        // After `uninstall` the refresher finds no catalog and ends.
        app.does(&["uninstall", "--quiet"]);
        assert_eq!(refresher.ended().code(), Some(2));
    });
}

/// A stream table that is not linked to its source waits for that source, and for no other reader of the
/// source.
#[test]
fn unlinked_tables_wait_only_for_their_own_sources() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        app.run_sql(
            db,
            "CREATE FUNCTION slow(v bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN v; END $$",
        )
        .await;
        for (name, query) in [
            ("base", "SELECT region, count(*) AS n FROM customers GROUP BY region"),
            ("slow_half", "SELECT region, slow(n) AS n FROM base"),
            ("quick_half", "SELECT region, n FROM base"),
            (
                "wide",
                "SELECT a.region, a.n AS slow, b.n AS quick FROM slow_half a JOIN quick_half b USING (region)",
            ),
        ] {
            app.does(&[
                "create",
                name,
                "--query",
                query,
                "--schedule",
                "1s",
                "--diamond-consistency",
                "none",
                "--quiet",
            ]);
        }
        let holder = db.session().await;
        run(&holder, "SELECT pg_advisory_lock(42)").await;
        let _refresher = Refresher::start(app.command(&["run", "--quiet"]));
        let move_one = "UPDATE customers SET region = 'moved' WHERE id = (SELECT min(id) FROM customers WHERE region <> 'moved')";
        let refreshes = "SELECT count(*) FROM pgtrickle.pgt_refresh_history JOIN pgtrickle.pgt_stream_tables USING (pgt_id) \
             WHERE pgt_name = 'wide'";
        let before = count(&w, refreshes).await;
        for moved in 1..4 {
            app.run_sql(db, move_one).await;
            until(&w, &format!("SELECT count(*) = 1 FROM quick_half WHERE region = 'moved' AND n = {moved}"))
                .await;
        }
        assert_eq!(count(&w, "SELECT count(*) FROM slow_half WHERE region = 'moved'").await, 0);
        assert_eq!(count(&w, refreshes).await, before, "it waits for the slow half");
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        until(&w, "SELECT count(*) = 1 FROM wide WHERE region = 'moved' AND slow = 3 AND quick = 3").await;
        app.does(&["check", "--quiet"]);
    });
}

#[test]
fn no_more_than_so_many_are_refreshed_at_a_time() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        let slow = "CREATE FUNCTION slow(v bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS \
             $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN v; END $$";
        app.run_sql(db, slow).await;
        let query = "SELECT region, slow(count(*)) AS n FROM customers GROUP BY region";
        let names: Vec<String> = (0..5).map(|i| format!("slow_{i}")).collect();
        for name in &names {
            app.does(&["create", name, "--query", query, "--schedule", "1s", "--quiet"]);
        }
        let holder = db.session().await;
        run(&holder, "SELECT pg_advisory_lock(42)").await;
        app.run_sql(db, "UPDATE customers SET region = 'moved' WHERE id < 9").await;
        let _refresher =
            Refresher::start(app.command(&["run", "--quiet", "--max-concurrent-refreshes", "2"]));
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        until(&w, &format!("SELECT ({waiting}) = 2")).await;
        for _ in 0..30 {
            assert_eq!(count(&w, waiting).await, 2);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        run(&holder, "SELECT pg_advisory_unlock(42)").await;
        for name in &names {
            until(&w, &holds(name, query)).await;
        }
    });
}

#[test]
fn a_manual_table_is_refreshed_only_for_a_scheduled_reader() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        for (name, schedule) in [("by_hand", "manual"), ("by_clock", "200ms")] {
            app.does(&["create", name, "--query", BY_REGION, "--schedule", schedule, "--quiet"]);
        }
        let _refresher = Refresher::start(app.command(&["run", "--quiet"]));
        let change = "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0";
        app.run_sql(db, change).await;
        until(&w, &holds("by_clock", BY_REGION)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let scheduled = "SELECT count(*) FROM pgtrickle.pgt_refresh_history JOIN pgtrickle.pgt_stream_tables USING (pgt_id) \
             WHERE pgt_name = 'by_hand' AND initiated_by = 'SCHEDULER'";
        assert_eq!(count(&w, scheduled).await, 0);
        app.does(&[
            "create",
            "reads_it",
            "--query",
            "SELECT region FROM by_hand",
            "--schedule",
            "200ms",
            "--quiet",
        ]);
        app.run_sql(db, change).await;
        until(&w, &holds("by_hand", BY_REGION)).await;
        assert!(count(&w, scheduled).await > 0);
    });
}

/// A time of a schedule by the clock passes while no refresher runs. The next refresher refreshes at its
/// start, before the next time of the schedule.
#[test]
fn a_time_of_the_clock_that_was_missed_is_made_good() {
    newest_server(async |db| {
        const PERIOD: i64 = 20;
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        let schedule = format!("*/{PERIOD} * * * * *");
        app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", &schedule, "--quiet"]);
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
        let tick = |of: &str| format!("SELECT floor(extract(epoch FROM {of}) / {PERIOD})::int8");
        let before = count(&w, &tick("clock_timestamp()")).await;
        until(&w, &format!("SELECT ({}) > {before}", tick("clock_timestamp()"))).await;
        let missed = count(&w, &tick("clock_timestamp()")).await;
        let _refresher = Refresher::start(app.command(&["run", "--quiet"]));
        until(&w, &holds("by_region", BY_REGION)).await;
        let started =
            "(SELECT max(start_time) FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER')";
        assert_eq!(count(&w, &tick(started)).await, missed, "before the next");
    });
}

/// With a schedule by the clock, a stream table is refreshed once at each of the schedule's times. Between
/// these times it is not refreshed, however often its sources change.
#[test]
fn times_of_the_clock_come_when_the_clock_says_so() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        let every = ["--schedule", "TZ=Asia/Kolkata */4 * * * * *", "--quiet"];
        app.does(&[&["create", "by_region", "--query", BY_REGION][..], &every].concat());
        let _refresher = Refresher::start(app.command(&["run", "--quiet"]));
        let refreshes = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER'";
        while count(&w, refreshes).await < 3 {
            app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let second = "extract(epoch FROM start_time)::numeric";
        let late = format!("{refreshes} AND {second} % 4 > 2");
        assert_eq!(count(&w, &late).await, 0);
        let twice = format!(
            "SELECT count(DISTINCT floor({second} / 4)) FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER'"
        );
        assert_eq!(count(&w, &twice).await, count(&w, refreshes).await, "one for each");
    });
}

/// The hour in a schedule is an hour of the time zone that the schedule names. The hour in Kolkata always
/// differs from the hour in UTC.
#[test]
fn hours_are_those_of_the_time_zone() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        // The list has two hours, since one hour may end during the test.
        let hours = "SELECT extract(hour FROM clock_timestamp() AT TIME ZONE 'Asia/Kolkata' + n * interval '1 minute')::int8 \
            FROM (VALUES (0), (2)) v(n)";
        let hours: Vec<String> = w
            .client()
            .query(hours, &[])
            .await
            .unwrap()
            .iter()
            .map(|r| r.get::<_, i64>(0).to_string())
            .collect();
        for (name, zone) in [("there", "Asia/Kolkata"), ("here", "UTC")] {
            let schedule = format!("TZ={zone} */2 * {} * * *", hours.join(","));
            app.does(&["create", name, "--query", BY_REGION, "--schedule", &schedule, "--quiet"]);
        }
        let _refresher = Refresher::start(app.command(&["run", "--quiet"]));
        for _ in 0..2 {
            app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
            until(&w, &holds("there", BY_REGION)).await;
        }
        let here = "SELECT count(*) FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) \
            WHERE s.pgt_name = 'here' AND h.initiated_by = 'SCHEDULER'";
        assert_eq!(count(&w, here).await, 0);
    });
}

/// A refresher that was stopped (SIGSTOP) and continues refreshes once for all times that it missed.
#[test]
fn a_refresher_makes_up_for_missed_times_by_one_refresh() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let w = db.session().await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "200ms", "--quiet"]);
        let refresher = Refresher::start(app.command(&["run", "--quiet"]));
        let change =
            async || app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
        change().await;
        until(&w, &holds("by_region", BY_REGION)).await;
        refresher.signal("-STOP");
        let refreshes = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action <> 'NO_DATA'";
        let before = count(&w, refreshes).await;
        for _ in 0..15 {
            change().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(count(&w, refreshes).await, before);
        refresher.signal("-CONT");
        until(&w, &holds("by_region", BY_REGION)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(count(&w, refreshes).await, before + 1);
    });
}

/// While a session locks a stream table, refreshes of that stream table fail by the lock timeout. Failures by
/// the lock timeout do not count as errors of the stream table.
#[test]
fn a_lock_that_is_not_to_be_had_is_no_error_of_the_stream_table() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let (w, user) = (db.session().await, db.session().await);
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "200ms", "--quiet"]);
        run(&user, "BEGIN; LOCK TABLE by_region IN SHARE UPDATE EXCLUSIVE MODE").await;
        let patience = ["run", "--quiet", "--lock-timeout-ms", "100", "--max-consecutive-errors", "1"];
        let _refresher = Refresher::start(app.command(&patience));
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let standing = app.trickle(&["status", "by_region", "--json"]).json();
        assert_eq!(
            (&standing[0]["status"], &standing[0]["consecutive_errors"]),
            (&"ACTIVE".into(), &0.into())
        );
        run(&user, "ROLLBACK").await;
        until(&w, &holds("by_region", BY_REGION)).await;
    });
}

/// A refresh that failed by a lock timeout is tried again soon. The next time of the schedule is next year
/// here.
#[test]
fn a_refresh_that_met_a_lock_is_retried_before_its_next_time() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let (w, user) = (db.session().await, db.session().await);
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "0 0 1 1 *", "--quiet"]);
        // The time of the schedule passed while no refresher ran, so a refresh is due.
        run(&w, "UPDATE pgtrickle.pgt_stream_tables SET data_timestamp = now() - interval '400 days'").await;
        app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
        run(&user, "BEGIN; LOCK TABLE by_region IN SHARE UPDATE EXCLUSIVE MODE").await;
        let (_refresher, log) = Refresher::logging(app.command(&["run", "--lock-timeout-ms", "100"]));
        let mut tries =
            BufReader::new(log).lines().map_while(Result::ok).filter(|l| l.contains("lock timeout"));
        for _ in 0..2 {
            let told = tries.next().unwrap();
            assert!(told.contains("by_region"), "{told}");
        }
        run(&user, "ROLLBACK").await;
        until(&w, &holds("by_region", BY_REGION)).await;
    });
}

/// Starts a refresher with a change to apply, and a user who locks the rows of the stream table. Returns when
/// the refresh waits for the user's locks.
async fn amid(db: &Db) -> (Role, Session, Session, Refresher) {
    let app = Role::owner(db).await;
    let (w, user) = (db.session().await, db.session().await);
    app.does(&["init", "--quiet"]);
    app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
    app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0").await;
    run(&user, "BEGIN; SELECT * FROM by_region FOR UPDATE").await;
    let refresher = Refresher::start(app.command(&["run", "--quiet", "--refresh-strategy", "differential"]));
    let waits = "SELECT coalesce(min(pid), 0)::int8 FROM pg_stat_activity WHERE application_name = 'trickle run' \
         AND datname = current_database() AND wait_event_type = 'Lock'";
    until(&w, &format!("SELECT ({waits}) <> 0")).await;
    let pid = i32::try_from(count(&w, waits).await).unwrap();
    blocked(&w, pid).await;
    (app, w, user, refresher)
}

const OPEN: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'trickle run' \
     AND datname = current_database() AND backend_xid IS NOT NULL";

#[test]
fn a_stopping_refresher_finishes_its_refresh() {
    newest_server(async |db| {
        let (app, w, user, mut refresher) = amid(db).await;
        assert_eq!(count(&w, OPEN).await, 1);
        refresher.terminate();
        run(&user, "COMMIT").await;
        assert_eq!(refresher.ended().code(), Some(0));
        assert!(w.client().query_one(&holds("by_region", BY_REGION), &[]).await.unwrap().get::<_, bool>(0));
        app.does(&["check", "--quiet"]);
    });
}

#[test]
fn a_stopping_refresher_cancels_a_refresh_that_does_not_end() {
    newest_server(async |db| {
        let (app, w, user, mut refresher) = amid(db).await;
        refresher.terminate();
        assert_eq!(refresher.ended().code(), Some(0));
        until(&w, &format!("SELECT ({OPEN}) = 0")).await;
        run(&user, "COMMIT").await;
        let stale = w.client().query_one(&holds("by_region", BY_REGION), &[]).await.unwrap();
        assert!(!stale.get::<_, bool>(0), "the previous state is to stay");
        let noted = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE consecutive_errors > 0";
        assert_eq!(count(&w, noted).await, 0, "it is no error of the stream table");
        app.does(&["check", "--quiet"]);
    });
}

#[test]
fn lost_connections_and_a_server_that_crashes_are_survived() {
    newest_version(async |binaries| {
        let mut server = start(binaries, "refresher").await;
        let settings = format!("host={} user=postgres dbname=postgres", server.directory().display());
        let trickle = |args: &[&str]| {
            let mut c = planted::program();
            c.args(args).env("DATABASE_URL", &settings);
            c
        };
        let w = connect(&server, "postgres").await;
        run(&w, SHOP).await;
        for args in [
            &["init", "--quiet"][..],
            &["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"],
        ] {
            assert!(trickle(args).status().unwrap().success());
        }
        let mut refresher = Refresher::start(trickle(&["run", "--quiet"]));
        let change = "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0";
        run(&w, change).await;
        until(&w, &holds("by_region", BY_REGION)).await;
        let cut = "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity WHERE application_name = 'trickle run'";
        assert!(count(&w, cut).await > 0);
        run(&w, change).await;
        until(&w, &holds("by_region", BY_REGION)).await;
        server.crash().unwrap();
        server.ready().await.unwrap();
        let w = connect(&server, "postgres").await;
        run(&w, change).await;
        until(&w, &holds("by_region", BY_REGION)).await;
        refresher.is_running();
        refresher.terminate();
        assert_eq!(refresher.ended().code(), Some(0));
        server.stop();
    });
}
