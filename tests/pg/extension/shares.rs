//! Several owners share the refreshers of a database. The test catches an owner whose endless refreshes
//! occupy all refreshers, so that the stream tables of other owners are not refreshed.

use super::workers::{scheduled, until};
use crate::support::private::{connect, newest_version};
use crate::support::{count, run};
use trickle_client::Session;

/// A source, and a function that makes refreshes wait as long as a session holds advisory lock 77.
const STUCK: &str = "CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t VALUES (1, 1);
    CREATE FUNCTION wait(k int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(77); RETURN k; END $$";

#[test]
#[ignore = "needs the extension: ./x extension"]
fn one_owner_has_at_most_half_of_the_refreshers() {
    newest_version(async |binaries| {
        let server = scheduled(binaries, "shares").await;
        let admin = connect(&server, "postgres").await;
        run(
            &admin,
            "CREATE EXTENSION pg_trickle; CREATE ROLE app LOGIN; CREATE SCHEMA app AUTHORIZATION app; SELECT pgtrickle.grant_to('app'); \
             CREATE TABLE mine (id int PRIMARY KEY, v int); \
             SELECT pgtrickle.create_stream_table('own', 'SELECT id, v FROM mine', '1s')",
        )
        .await;
        let app = Session::connect(server.config("postgres").user("app")).await.unwrap();
        run(&app, &format!("SET search_path = app; {STUCK}")).await;
        for i in 0..6 {
            let made = "SELECT pgtrickle.create_stream_table('slow_{}', 'SELECT id, app.wait(k) AS k FROM t', '1s', 'FULL')";
            run(&app, &made.replace("{}", &i.to_string())).await;
        }
        let held = connect(&server, "postgres").await;
        run(&held, "SELECT pg_advisory_lock(77)").await;
        run(&app, "UPDATE t SET k = 2").await;
        let stuck = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        until(&admin, stuck, 2).await;
        for v in 0..3 {
            run(&admin, &format!("INSERT INTO mine VALUES ({v}, {v})")).await;
            until(&admin, "SELECT count(*) FROM own", i64::from(v) + 1).await;
        }
        assert_eq!(count(&admin, stuck).await, 2, "two of four refreshers");
        let named = "SELECT count(*) FROM pgtrickle.health_check() WHERE check_name = 'refreshers' \
             AND found LIKE '2 of 4 at work: app for % by app.slow_%'";
        assert_eq!(count(&admin, named).await, 1);
        run(&held, "SELECT pg_advisory_unlock(77)").await;
        until(&admin, "SELECT count(*) FROM app.slow_5 WHERE k = 2", 1).await;
        server.stop();
    });
}
