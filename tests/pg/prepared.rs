//! Statements that a connection keeps prepared. The connection uses such statements again, and they give the
//! right result after errors and alterations.

use crate::support::{assert_same_bag, create, newest_server, open_with, refresh, run};
use trickle_client::{Settings, Trickle};
use trickle_core::cost::Force;

/// Settings with which a refresh uses a delta even if a full refresh costs less.
fn forced() -> Settings {
    Settings { force: Some(Force::Incremental), ..Settings::default() }
}

/// Returns the number of prepared statements of the connection that compute the delta of `sums`.
async fn kept(t: &Trickle) -> i64 {
    let text = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'WITH delta_%' AND statement LIKE '%public.sums%'";
    t.connection().client().query_one(text, &[]).await.unwrap().get(0)
}

#[test]
fn repeated_statements_are_prepared_once() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, "CREATE TABLE a (id int PRIMARY KEY, k int, v int); INSERT INTO a SELECT i, i % 3, i FROM generate_series(1, 50) i")
            .await;
        let mut t = open_with(db, forced()).await;
        create(&mut t, "sums", "SELECT k, sum(v) AS s, count(*) AS n FROM a GROUP BY k").await;
        let mut found = Vec::new();
        for i in 0..5 {
            run(&s, &format!("UPDATE a SET v = v + 1 WHERE id % 7 = {i}")).await;
            refresh(&mut t, "sums").await;
            found.push(kept(&t).await);
            assert_same_bag(&s, "SELECT * FROM sums", "SELECT k, sum(v), count(*) FROM a GROUP BY k").await;
        }
        assert_eq!(
            found,
            [0, 1, 1, 1, 1],
            "the delta is sent as a text, then prepared, then as it was prepared"
        );

        let mut plain = open_with(db, Settings { use_prepared_statements: false, ..forced() }).await;
        for i in 0..3 {
            run(&s, &format!("DELETE FROM a WHERE id = {i} + 10")).await;
            refresh(&mut plain, "sums").await;
        }
        assert_eq!(kept(&plain).await, 0);
    });
}

#[test]
fn prepared_statements_follow_errors_and_definitions() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, "CREATE TABLE a (id int PRIMARY KEY, k int, v int); INSERT INTO a SELECT i, i % 3, i FROM generate_series(1, 50) i")
            .await;
        let mut t = open_with(db, forced()).await;
        let query = "SELECT k, sum(100 / v) AS s FROM a GROUP BY k";
        create(&mut t, "sums", query).await;
        for change in [
            "UPDATE a SET v = v + 1 WHERE id < 5",
            "UPDATE a SET v = v + 1 WHERE id < 6",
            // Only one of these changes makes the delta divide by zero: the change that sets v to 0 for a
            // time. Later refreshes use prepared statements again.
            "UPDATE a SET v = v + 2 WHERE id < 7",
            "UPDATE a SET v = 0 WHERE id = 8; UPDATE a SET v = 5 WHERE id = 8",
            "UPDATE a SET v = v + 2 WHERE id < 7",
            "ALTER TABLE a ALTER v TYPE bigint; UPDATE a SET v = v + 1 WHERE id < 5",
            "UPDATE a SET v = v + 3 WHERE id < 5",
            // After the table is dropped, the query reads the new table of the same name.
            "DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY, k int, v int); INSERT INTO a VALUES (1, 1, 4)",
            "INSERT INTO a VALUES (2, 1, 5), (3, 2, 6)",
            "UPDATE a SET v = v + 1 WHERE id < 3",
            "DELETE FROM a WHERE id = 2",
        ] {
            run(&s, change).await;
            refresh(&mut t, "sums").await;
            assert_same_bag(&s, "SELECT * FROM sums", query).await;
        }
    });
}
