//! Several refreshers of one database. One of them works, and the others wait for the lease. The tests catch
//! two refreshers that apply the same change. The tests catch a lease that no refresher takes after its
//! holder was killed, stopped or cut off. The tests also catch a commit by a refresher that lost its lease.

use super::refresher::{Refresher, holds, until};
use super::{BY_REGION, Role};
use crate::support::line::Line;
use crate::support::{Db, blocked, count, newest_server, run};
use std::time::{Duration, Instant};
use trickle_client::Session;

const WRITE: &str = "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0";

/// A query for the number of refreshes on schedule that applied changes.
const APPLIED: &str = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER' \
     AND status = 'COMPLETED' AND delta_row_count > 0";

/// A query for the number of times that a refresher took the lease.
const FENCE: &str = "SELECT coalesce(max(fence), 0) FROM pgtrickle.pgt_leases";

/// A query for the id of the server process of a refresher that waits for a lock. The id is 0 if no refresher
/// waits.
const BLOCKED: &str = "SELECT coalesce(min(pid), 0)::int8 FROM pg_stat_activity WHERE application_name = 'trickle run' \
     AND datname = current_database() AND wait_event_type = 'Lock'";

/// Makes a shop with a stream table, and a role that starts refreshers.
async fn shop(db: &Db) -> (Role, Session) {
    shop_of(db, Role::owner(db).await).await
}

async fn shop_of(db: &Db, app: Role) -> (Role, Session) {
    let w = db.session().await;
    app.does(&["init", "--quiet"]);
    app.does(&["create", "by_region", "--query", BY_REGION, "--schedule", "1s", "--quiet"]);
    (app, w)
}

fn refresher(app: &Role) -> Refresher {
    Refresher::start(app.command(&["run", "--quiet", "--refresh-strategy", "differential"]))
}

/// Waits until the lease was taken for the nth time.
async fn led(w: &Session, n: i64) {
    until(w, &format!("SELECT ({FENCE}) = {n}")).await;
}

/// Writes a change, waits until it is visible, and asserts that it was applied once.
async fn followed(db: &Db, app: &Role, w: &Session) {
    let before = count(w, APPLIED).await;
    app.run_sql(db, WRITE).await;
    until(w, &holds("by_region", BY_REGION)).await;
    assert_eq!(count(w, APPLIED).await, before + 1);
}

#[test]
fn one_of_several_refreshers_works_and_another_takes_over() {
    newest_server(async |db| {
        let (app, w) = shop(db).await;
        let mut first = refresher(&app);
        led(&w, 1).await;
        let (second, third) = (refresher(&app), refresher(&app));
        for _ in 0..3 {
            followed(db, &app, &w).await;
        }
        assert_eq!(count(&w, FENCE).await, 1);
        // The first refresher is killed, and its lease ends after its time.
        let ago = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::int8";
        let killed = count(&w, ago).await;
        first.signal("-KILL");
        led(&w, 2).await;
        let taken = "SELECT (extract(epoch FROM max(taken_at)) * 1000)::int8 FROM pgtrickle.pgt_leases";
        let took = count(&w, taken).await - killed;
        assert!((0..15_000).contains(&took), "{took} ms");
        followed(db, &app, &w).await;
        // The connections of the refresher are terminated. The refresher connects again under the same lease.
        let cut = "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity WHERE application_name = 'trickle run' \
             AND datname = current_database()";
        assert!(count(&w, cut).await > 0);
        followed(db, &app, &w).await;
        assert_eq!(count(&w, FENCE).await, 2);
        // The refresher gets the signal to stop, and gives up the lease.
        drop((second, third));
        first = refresher(&app);
        until(&w, "SELECT max(fence) > 2 FROM pgtrickle.pgt_leases").await;
        followed(db, &app, &w).await;
        first.terminate();
        assert_eq!(first.ended().code(), Some(0));
        let free = "SELECT expires_at = 'epoch' FROM pgtrickle.pgt_lease_terms";
        assert!(w.client().query_one(free, &[]).await.unwrap().get::<_, bool>(0));
        app.does(&["check", "--quiet"]);
    });
}

/// Starts a refresher, and stops its process within a refresh (SIGSTOP). Then starts a second refresher,
/// which takes the lease.
async fn two(db: &Db, app: Role) -> (Role, Session, Refresher, Refresher) {
    let (app, w) = shop_of(db, app).await;
    let user = db.session().await;
    app.run_sql(db, WRITE).await;
    run(&user, "BEGIN; SELECT * FROM by_region FOR UPDATE").await;
    let first = refresher(&app);
    until(&w, &format!("SELECT ({BLOCKED}) <> 0")).await;
    let pid = i32::try_from(count(&w, BLOCKED).await).unwrap();
    blocked(&w, pid).await;
    first.signal("-STOP");
    run(&user, "COMMIT").await;
    let second = refresher(&app);
    led(&w, 2).await;
    assert_eq!(count(&w, APPLIED).await, 0, "the first has its locks still, and has not committed");
    (app, w, first, second)
}

/// Within a refresh, the line to the first refresher goes dead. No byte passes, and neither end closes the
/// connections.
#[test]
fn a_refresher_with_dead_connections_is_replaced_in_seconds() {
    newest_server(async |db| {
        let (app, w) = shop(db).await;
        let line = Line::to(db.socket().1);
        let far = format!("{} host=127.0.0.1 port={}", app.settings, line.port());
        let far = Role { name: app.name.clone(), settings: far };
        let _first = refresher(&far);
        led(&w, 1).await;
        followed(db, &app, &w).await;
        let _second = refresher(&app);
        let user = db.session().await;
        run(&user, "BEGIN; SELECT * FROM by_region FOR UPDATE").await;
        let before = count(&w, APPLIED).await;
        app.run_sql(db, WRITE).await;
        until(&w, &format!("SELECT ({BLOCKED}) <> 0")).await;
        line.cut();
        let cut = Instant::now();
        run(&user, "COMMIT").await;
        led(&w, 2).await;
        assert!(cut.elapsed() < Duration::from_secs(15), "{:?}", cut.elapsed());
        until(&w, &holds("by_region", BY_REGION)).await;
        assert_eq!(count(&w, APPLIED).await, before + 1);
        // After `mend` the delayed messages arrive, and have no effect.
        line.mend();
        for _ in 0..2 {
            followed(db, &app, &w).await;
        }
        assert_eq!(count(&w, FENCE).await, 2);
        app.does(&["check", "--quiet"]);
    });
}

/// A refresher that is stopped within a refresh (SIGSTOP) does not hold its locks for ever.
#[test]
fn a_stopped_refresher_holds_its_locks_for_seconds_only() {
    newest_server(async |db| stands_still(db, Role::owner(db).await).await);
}

/// Tests that a stopped refresher loses its locks, for a role with any kind of connection to the database.
pub(super) async fn stands_still(db: &Db, app: Role) {
    let (app, w, first, _second) = two(db, app).await;
    until(&w, &holds("by_region", BY_REGION)).await;
    assert_eq!(count(&w, APPLIED).await, 1);
    first.signal("-CONT");
    followed(db, &app, &w).await;
    app.does(&["check", "--quiet"]);
}

/// The commit of a refresher that lost the lease fails, whatever the snapshot of its check. The end of a
/// lease may lie further in the future than the length of a lease. Such a lease counts as ended.
#[test]
fn a_lease_is_held_by_its_number_and_survives_no_clock_change() {
    newest_server(async |db| {
        let (app, w) = shop(db).await;
        let take = async |s: &Session, who: &str| {
            let role = &app.name;
            run(s, &format!("SELECT pgtrickle.take_lease('{role}'::regrole, '{who}', NULL, '5 s')")).await;
            count(s, &format!("SELECT fence FROM pgtrickle.pgt_leases WHERE role = '{role}'::regrole")).await
        };
        run(&w, &format!("SET SESSION AUTHORIZATION {}", app.name)).await;
        let hold = format!("SELECT pgtrickle.hold_lease('{}'::regrole, 1)", app.name);
        assert_eq!(take(&w, "first").await, 1);
        run(&w, &hold).await;
        assert_eq!(take(&w, "second").await, 1, "the first has it");
        run(&w, "UPDATE pgtrickle.pgt_lease_terms SET expires_at = clock_timestamp() + interval '1 day'")
            .await;
        assert_eq!(take(&w, "second").await, 2, "the clock was set back");
        let refused = w.client().batch_execute(&hold).await.unwrap_err();
        assert_eq!(refused.code().map(|c| c.code()), Some("55P03"));
        run(&w, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await;
        let other = db.session().await;
        run(
            &other,
            &format!(
                "SET SESSION AUTHORIZATION {0}; SELECT pgtrickle.give_lease('{0}'::regrole, 2)",
                app.name
            ),
        )
        .await;
        assert_eq!(take(&other, "third").await, 3);
        let refused = w.client().batch_execute(&hold.replace(", 1)", ", 2)")).await.unwrap_err();
        assert_eq!(refused.code().map(|c| c.code()), Some("55P03"), "under a snapshot in which it has it");
    });
}

/// A refresher is stopped within a refresh (SIGSTOP), and another refresher takes the lease. When the first
/// refresher continues, it rolls its refresh back.
#[test]
fn a_refresh_under_a_lost_lease_is_not_committed() {
    newest_server(async |db| {
        let (app, w, first, mut second) = two(db, Role::owner(db).await).await;
        let begun = "SELECT min(backend_xid::text::int8) FROM pg_stat_activity WHERE application_name = 'trickle run' \
             AND datname = current_database()";
        let begun = count(&w, begun).await;
        first.signal("-CONT");
        until(&w, &holds("by_region", BY_REGION)).await;
        assert_eq!(count(&w, APPLIED).await, 1);
        let by_the_first =
            format!("SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE xmin::text::int8 = {begun}");
        assert_eq!(count(&w, &by_the_first).await, 0);
        let errors = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE consecutive_errors > 0";
        assert_eq!(count(&w, errors).await, 0, "it is no error of the stream table");
        followed(db, &app, &w).await;
        second.is_running();
        app.does(&["check", "--quiet"]);
    });
}

/// Each role has a lease of its own, and refreshes by hand need no lease.
#[test]
fn a_lease_is_of_a_role_and_refreshes_by_hand_go_on() {
    newest_server(async |db| {
        let (app, w) = shop(db).await;
        let taken = format!(
            "SET SESSION AUTHORIZATION {0}; SELECT pgtrickle.take_lease('{0}'::regrole, 'a test', NULL, '1 hour'); RESET SESSION AUTHORIZATION",
            app.name
        );
        run(&w, &taken).await;
        app.run_sql(db, WRITE).await;
        app.does(&["refresh", "--quiet"]);
        app.does(&["check", "--quiet"]);
        let stranger = Role::create(db, "stranger").await;
        run(&w, &format!("SELECT pgtrickle.grant_to('{}')", stranger.name)).await;
        for statement in [
            "SELECT pgtrickle.take_lease(role, 'a stranger', NULL, '1 hour') FROM pgtrickle.pgt_leases",
            "SELECT pgtrickle.give_lease(role, 1) FROM pgtrickle.pgt_leases",
            "SELECT pgtrickle.hold_lease(role, 1) FROM pgtrickle.pgt_leases",
            "UPDATE pgtrickle.pgt_lease_terms SET expires_at = now()",
            "DELETE FROM pgtrickle.pgt_leases",
        ] {
            let s = db.session().await;
            run(&s, &format!("SET SESSION AUTHORIZATION {}", stranger.name)).await;
            let refused = s.client().batch_execute(statement).await.unwrap_err();
            assert_eq!(refused.code().map(|c| c.code()), Some("42501"), "{statement}");
        }
        let own = format!(
            "SELECT holder = 'a test' AND fence = 1 AND expires_at > now() + interval '1 minute' \
             FROM pgtrickle.pgt_leases JOIN pgtrickle.pgt_lease_terms USING (role, fence) WHERE role = '{}'::regrole",
            app.name
        );
        assert!(w.client().query_one(&own, &[]).await.unwrap().get::<_, bool>(0));
    });
}
