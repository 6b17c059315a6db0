//! The lag of the changes that a refresh applies, where the server tracks commit times. The lag counts from
//! the commit of the change. The tests catch a lag that is measured from the write, or from the refresh of a
//! source. The tests also catch a lag that is reported although the commit time of some change is unknown.

use crate::support::private::{connect, newest_version, open, start_with};
use crate::support::{create, refresh, run};
use std::time::Duration;
use trickle_client::{Session, Settings};
use trickle_core::cost::Force;

/// A query for two times. The first time is the reported lag of the last refresh of `$1`. The second time is
/// the time from the commit of the writer of row `$2` to the end of that refresh.
const LAG: &str = "SELECT h.lag_ms, (extract(epoch FROM h.end_time - pg_xact_commit_timestamp(t.xmin)) * 1000)::float8 \
    FROM t, pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) \
    WHERE s.pgt_name = $1 AND t.id = $2 ORDER BY h.refresh_id DESC LIMIT 1";

async fn lag(s: &Session, of: &str, id: i32) -> (Option<f64>, f64) {
    let row = s.client().query_one(LAG, &[&of, &id]).await.unwrap();
    (row.get(0), row.get(1))
}

/// Whether a reported lag is right. The process notes the end of the refresh, and then reads the clock for
/// the lag. So up to 200 ms may lie between these two moments. A lag from a wrong commit is wrong by more.
fn is_so(told: f64, passed: f64) -> bool {
    (passed - 0.1..passed + 200.0).contains(&told)
}

#[test]
fn lag_is_from_the_first_commit_to_the_end_of_the_refresh() {
    newest_version(async |binaries| {
        let server = start_with(binaries, "lag", &["track_commit_timestamp=on"]).await;
        let by_deltas = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open(&server, "postgres", by_deltas).await;
        let w = connect(&server, "postgres").await;
        run(&w, "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (0, 0)").await;
        create(&mut t, "up", "SELECT v, count(*) AS n FROM t GROUP BY v").await;
        create(&mut t, "down", "SELECT n, count(*) AS m FROM up GROUP BY n").await;
        create(&mut t, "both", "SELECT t.id, up.n FROM t JOIN up USING (v)").await;
        refresh(&mut t, "down").await;
        refresh(&mut t, "both").await;

        // The transaction that writes first commits after the second transaction and before the third.
        let late = connect(&server, "postgres").await;
        run(&late, "BEGIN; INSERT INTO t VALUES (1, 1)").await;
        run(&w, "INSERT INTO t VALUES (2, 2)").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        run(&late, "COMMIT").await;
        run(&w, "INSERT INTO t VALUES (3, 3)").await;
        refresh(&mut t, "down").await;
        for of in ["up", "down"] {
            let (told, passed) = lag(&w, of, 2).await;
            let told = told.unwrap_or_else(|| panic!("{of}: not known"));
            assert!(is_so(told, passed) && told > 300.0, "{of}: {told} ms told, {passed} ms passed");
        }

        // `both` reads rows of `up` that a refresh wrote. The commit of that refresh is not the commit of the
        // change, so the lag is unknown.
        refresh(&mut t, "both").await;
        assert_eq!(lag(&w, "both", 2).await.0, None);
        run(&w, "INSERT INTO t VALUES (4, 4)").await;
        refresh(&mut t, "both").await;
        let (told, passed) = lag(&w, "both", 4).await;
        assert!(is_so(told.unwrap(), passed), "{told:?} ms told, {passed} ms passed");
    });
}

/// A transaction committed before the server tracked commit times. The commit time of such a transaction is
/// unknown.
#[test]
fn lag_is_unknown_for_commits_that_were_not_tracked() {
    newest_version(async |binaries| {
        let mut server = start_with(binaries, "tracked", &[]).await;
        let mut t = open(&server, "postgres", Settings::default()).await;
        run(t.connection(), "CREATE TABLE t (id int PRIMARY KEY)").await;
        create(&mut t, "rows", "SELECT id FROM t").await;
        refresh(&mut t, "rows").await;
        run(t.connection(), "INSERT INTO t VALUES (1)").await;
        run(t.connection(), "ALTER SYSTEM SET track_commit_timestamp = on").await;
        drop(t);
        server.crash().unwrap();
        server.ready().await.unwrap();
        let mut t = open(&server, "postgres", Settings::default()).await;
        run(t.connection(), "INSERT INTO t VALUES (2)").await;
        refresh(&mut t, "rows").await;
        assert_eq!(lag(t.connection(), "rows", 2).await.0, None);
        run(t.connection(), "INSERT INTO t VALUES (3)").await;
        refresh(&mut t, "rows").await;
        assert!(lag(t.connection(), "rows", 3).await.0.is_some());
    });
}

/// A replicated transaction has the commit time of the publisher's clock. In this test the publisher's clock
/// is wrong by an hour.
#[test]
fn lag_is_unknown_for_commits_of_another_server() {
    newest_version(async |binaries| {
        let server = start_with(binaries, "elsewhere", &["track_commit_timestamp=on"]).await;
        let mut t = open(&server, "postgres", Settings::default()).await;
        let w = connect(&server, "postgres").await;
        run(&w, "CREATE TABLE t (id int PRIMARY KEY)").await;
        create(&mut t, "rows", "SELECT id FROM t").await;
        refresh(&mut t, "rows").await;
        run(
            &w,
            "SELECT pg_replication_origin_create('elsewhere'), pg_replication_origin_session_setup('elsewhere'); \
             BEGIN; INSERT INTO t VALUES (1); SELECT pg_replication_origin_xact_setup('0/1', now() - interval '1 hour'); COMMIT; \
             SELECT pg_replication_origin_session_reset()",
        )
        .await;
        let here = connect(&server, "postgres").await;
        run(&here, "INSERT INTO t VALUES (2)").await;
        refresh(&mut t, "rows").await;
        assert_eq!(lag(&here, "rows", 2).await.0, None, "of one of them it is not known");
        run(&here, "INSERT INTO t VALUES (3)").await;
        refresh(&mut t, "rows").await;
        let (told, passed) = lag(&here, "rows", 3).await;
        assert!(is_so(told.unwrap(), passed), "{told:?} ms told, {passed} ms passed");
    });
}
