//! Materialized views and foreign tables as sources. A refresh polls such a source by a comparison with a
//! copy. The tests catch a copy that a refresh reads twice or late, and rows without a key that are counted
//! wrong. The tests also catch copies that outlive their readers, and a source that is polled although it has
//! no reader.

use crate::support::{
    Driver, assert_equal, count, create, mode, name, newest_server, open_with, refresh, run, try_refresh,
};
use std::cell::Cell;
use trickle_client::{IfExists, NewStreamTable, RefreshOptions, Settings};
use trickle_core::cost::Force;
use trickle_core::refresh::Action;

const COPIES: &str =
    "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'pgtrickle_changes'";

async fn follow(t: &mut Driver, what: &str, query: &str) {
    t.create(&NewStreamTable { snapshots: true, ..NewStreamTable::new(name(what), query) }).await.unwrap();
}

fn incremental() -> Settings {
    Settings { force: Some(Force::Incremental), ..Settings::default() }
}

/// Refreshes a stream table with all its sources, and returns the action of the stream table's own refresh.
async fn action(t: &mut Driver, what: &str) -> Action {
    let done = refresh(t, what).await;
    done.iter().find(|d| d.report.name.contains(what)).map(|d| d.report.action).unwrap()
}

#[test]
fn a_materialized_view_is_followed() {
    newest_server(async |db| {
        let mut t = open_with(db, incremental()).await;
        let w = db.session().await;
        run(
            &w,
            "CREATE TABLE a (id int, k int, v text, j json); CREATE TABLE b (k int PRIMARY KEY, n numeric)",
        )
        .await;
        run(&w, "INSERT INTO a SELECT i, i % 3, 'x' || i % 2, '{\"a\": 1}' FROM generate_series(1, 12) i")
            .await;
        run(&w, "INSERT INTO a SELECT * FROM a; INSERT INTO a VALUES (NULL, NULL, NULL, NULL), (NULL, NULL, NULL, NULL)").await;
        run(&w, "INSERT INTO b VALUES (0, 1.0), (1, 2.50), (2, 3)").await;
        run(&w, "CREATE MATERIALIZED VIEW m AS SELECT k, v, j FROM a").await;
        follow(&mut t, "joined", "SELECT m.k, m.v, b.n FROM m JOIN b ON b.k = m.k").await;
        follow(&mut t, "counted", "SELECT k, count(*) AS n, count(v) AS vs FROM m GROUP BY k").await;
        follow(&mut t, "all_rows", "SELECT k, v, j FROM m").await;
        follow(&mut t, "left_out", "SELECT b.k FROM b WHERE NOT EXISTS (SELECT FROM m WHERE m.k = b.k)")
            .await;
        let all = ["joined", "counted", "all_rows", "left_out"];
        assert_eq!(count(&w, COPIES).await, 1, "one copy serves all");
        for st in all {
            assert_eq!(mode(&t, st).await.0, "DIFFERENTIAL", "{st}");
            assert_equal(&mut t, st).await;
        }
        for (change, moved) in [
            ("UPDATE a SET v = 'y' WHERE id = 3; REFRESH MATERIALIZED VIEW m", true),
            (
                "DELETE FROM a WHERE ctid = (SELECT min(ctid) FROM a WHERE k IS NULL); UPDATE b SET n = 9",
                false,
            ),
            ("REFRESH MATERIALIZED VIEW m", true),
            ("DELETE FROM a WHERE k = 1; INSERT INTO b VALUES (7, 7); REFRESH MATERIALIZED VIEW m", true),
            ("TRUNCATE a; INSERT INTO a VALUES (1, 7, 'z', '[]'); REFRESH MATERIALIZED VIEW m", true),
            ("REFRESH MATERIALIZED VIEW m", false),
        ] {
            run(&w, change).await;
            let done = action(&mut t, "counted").await;
            assert_eq!(done, if moved { Action::Differential } else { Action::NoData }, "{change}");
            for st in all {
                refresh(&mut t, st).await;
                assert_equal(&mut t, st).await;
            }
        }
        for st in all {
            t.drop(&name(st), false).await.unwrap();
        }
        assert_eq!(count(&w, COPIES).await, 0, "a copy goes with its last reader");
        let left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace";
        assert_eq!(count(&w, left).await, 0);
        run(&w, "DROP MATERIALIZED VIEW m").await;
    });
}

#[test]
fn nothing_is_followed_that_was_not_asked_for() {
    newest_server(async |db| {
        let mut t = open_with(db, Settings::default()).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE a (id int PRIMARY KEY); CREATE MATERIALIZED VIEW m AS SELECT id FROM a").await;
        create(&mut t, "plain", "SELECT id FROM m").await;
        let (how, why) = mode(&t, "plain").await;
        assert!(how == "FULL" && why.contains("materialized view") && why.contains("--snapshots"), "{why}");
        follow(&mut t, "followed", "SELECT id + 1 AS n FROM m").await;
        assert_eq!(mode(&t, "plain").await.0, "FULL");
        assert_eq!(mode(&t, "followed").await.0, "DIFFERENTIAL");
        // A query without a delta reads the materialized view itself. So the query needs no copy.
        follow(&mut t, "anew", "SELECT id, now() AS seen FROM m").await;
        assert_eq!(mode(&t, "anew").await.0, "FULL");
        t.drop(&name("followed"), false).await.unwrap();
        assert_eq!(count(&w, COPIES).await, 0);
        run(&w, "INSERT INTO a VALUES (1); REFRESH MATERIALIZED VIEW m").await;
        refresh(&mut t, "plain").await;
        assert_equal(&mut t, "plain").await;
    });
}

#[test]
fn a_view_that_is_made_anew_is_followed_in_its_new_shape() {
    newest_server(async |db| {
        let mut t = open_with(db, incremental()).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE a (id int PRIMARY KEY, v int, u text); INSERT INTO a VALUES (1, 10, 'x'), (2, NULL, NULL)").await;
        run(&w, "CREATE MATERIALIZED VIEW m AS SELECT id, v FROM a").await;
        follow(&mut t, "st", "SELECT v, count(*) AS n FROM m GROUP BY v").await;
        run(
            &w,
            "DROP MATERIALIZED VIEW m; CREATE MATERIALIZED VIEW m AS SELECT u, v::bigint * 2 AS v, id FROM a",
        )
        .await;
        refresh(&mut t, "st").await;
        assert_equal(&mut t, "st").await;
        run(&w, "UPDATE a SET v = 5; REFRESH MATERIALIZED VIEW m").await;
        assert_eq!(action(&mut t, "st").await, Action::Differential);
        assert_equal(&mut t, "st").await;
        // The second reader needs a column that the copy does not have yet.
        follow(&mut t, "texts", "SELECT u, max(v) AS v FROM m GROUP BY u").await;
        run(&w, "UPDATE a SET u = 'z', v = 6 WHERE id = 2; REFRESH MATERIALIZED VIEW m").await;
        for st in ["st", "texts"] {
            refresh(&mut t, st).await;
            assert_equal(&mut t, st).await;
        }
        assert_eq!(count(&w, COPIES).await, 1);
        // A reader whose query is altered still gets its changes from the copy.
        let again = NewStreamTable {
            if_exists: IfExists::Replace,
            ..NewStreamTable::new(name("texts"), "SELECT u FROM m")
        };
        t.create(&again).await.unwrap();
        assert_eq!(mode(&t, "texts").await.0, "DIFFERENTIAL");
        assert_equal(&mut t, "texts").await;
    });
}

/// A REFRESH MATERIALIZED VIEW may commit after the snapshot of a refresh. The refresh would then read the
/// view's new rows, although its snapshot shows no other change of that transaction.
#[test]
fn a_view_agrees_with_its_tables_at_every_refresh() {
    newest_server(async |db| {
        let mut t = open_with(db, incremental()).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE a (id int PRIMARY KEY, v int); INSERT INTO a SELECT i, 0 FROM generate_series(1, 20) i").await;
        run(&w, "CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS s FROM a").await;
        follow(&mut t, "pair", "SELECT m.s AS of_view, (SELECT sum(v) FROM a) AS of_table FROM m").await;
        let written = Cell::new(false);
        let write = async {
            for _ in 0..40 {
                run(&w, "BEGIN; UPDATE a SET v = v + 1 WHERE id = 3; REFRESH MATERIALIZED VIEW m; COMMIT")
                    .await;
            }
            written.set(true);
        };
        let read = async {
            while !written.get() {
                // The view is refreshed all the time. So each attempt of a refresh may meet such a commit and
                // fail with 40001.
                match try_refresh(&mut t, "pair").await {
                    Err(e) if e.sqlstate() == Some("40001") => {}
                    done => drop(done.unwrap()),
                }
                let apart = "SELECT count(*) FROM pair WHERE of_view <> of_table";
                assert_eq!(t.connection().client().query_one(apart, &[]).await.unwrap().get::<_, i64>(0), 0);
            }
        };
        tokio::join!(write, read);
        refresh(&mut t, "pair").await;
        assert_equal(&mut t, "pair").await;
    });
}

#[test]
fn a_foreign_table_is_followed() {
    newest_server(async |db| {
        let mut t = open_with(db, incremental()).await;
        let w = db.session().await;
        let found = "SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'";
        assert_eq!(count(&w, found).await, 1, "the servers that are tested have postgres_fdw");
        run(&w, "CREATE EXTENSION postgres_fdw; CREATE TABLE far (id int, v text); CREATE TABLE near (id int PRIMARY KEY)").await;
        let (config, socket) = db.socket();
        let directory = socket.parent().unwrap_or(&socket);
        let server = format!(
            "CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{}', dbname '{}'); \
             CREATE USER MAPPING FOR CURRENT_USER SERVER loop OPTIONS (user '{}'); \
             CREATE FOREIGN TABLE f (id int, v text) SERVER loop OPTIONS (table_name 'far')",
            directory.display(),
            config.get_dbname().unwrap_or_default(),
            config.get_user().unwrap_or_default(),
        );
        run(&w, &server).await;
        run(&w, "INSERT INTO far VALUES (1, 'a'), (1, 'a'), (2, NULL), (NULL, NULL); INSERT INTO near VALUES (1), (2), (3)").await;
        create(&mut t, "plain", "SELECT id FROM f").await;
        assert!(mode(&t, "plain").await.1.contains("--snapshots"));
        t.drop(&name("plain"), false).await.unwrap();
        follow(&mut t, "pairs", "SELECT near.id, f.v FROM near LEFT JOIN f ON f.id = near.id").await;
        follow(&mut t, "counted", "SELECT v, count(*) AS n FROM f GROUP BY v").await;
        for change in [
            "INSERT INTO far VALUES (3, 'c'), (1, 'a')",
            "DELETE FROM far WHERE ctid = (SELECT min(ctid) FROM far WHERE id = 1)",
            "UPDATE far SET v = 'b' WHERE id = 2; DELETE FROM near WHERE id = 1",
            "TRUNCATE far",
        ] {
            run(&w, change).await;
            assert_eq!(action(&mut t, "counted").await, Action::Differential, "{change}");
            for st in ["pairs", "counted"] {
                refresh(&mut t, st).await;
                assert_equal(&mut t, st).await;
            }
        }
        // On the foreign server all rows change during a refresh. The refresh reads the rows only once, and
        // writes the rows that it read.
        let written = Cell::new(false);
        let write = async {
            for i in 0..40 {
                let rows =
                    format!("DELETE FROM far; INSERT INTO far SELECT 1, {i} FROM generate_series(1, 5)");
                run(&w, &rows).await;
            }
            written.set(true);
        };
        let read = async {
            while !written.get() {
                refresh(&mut t, "counted").await;
                let mixed = "SELECT count(*) FROM (SELECT sum(n) FROM counted HAVING sum(n) NOT IN (0, 5)) x";
                assert_eq!(t.connection().client().query_one(mixed, &[]).await.unwrap().get::<_, i64>(0), 0);
            }
        };
        tokio::join!(write, read);
        t.refresh_all(&RefreshOptions::default()).await.unwrap();
        assert_equal(&mut t, "counted").await;
    });
}

/// Columns of a polled materialized view are renamed. Two columns also exchange their names.
#[test]
fn columns_of_what_is_copied_may_be_renamed() {
    newest_server(async |db| {
        let mut t = open_with(db, incremental()).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE a (id int PRIMARY KEY, v int, u int); INSERT INTO a SELECT i, i * 2, i * 3 FROM generate_series(1, 9) i; \
                 CREATE MATERIALIZED VIEW m AS SELECT id, v, u FROM a").await;
        follow(&mut t, "summed", "SELECT sum(v) AS v, sum(u) AS u FROM m").await;
        follow(&mut t, "plain", "SELECT id, v FROM m WHERE u > 6").await;
        // A view over `m` shows the present name of the column.
        run(&w, "CREATE VIEW now AS SELECT id, v FROM m WHERE u > 6").await;
        for change in [
            "ALTER MATERIALIZED VIEW m RENAME v TO x",
            "ALTER MATERIALIZED VIEW m RENAME x TO y; ALTER MATERIALIZED VIEW m RENAME u TO x",
            "ALTER MATERIALIZED VIEW m RENAME x TO \"between 2\"; ALTER MATERIALIZED VIEW m RENAME y TO x; \
             ALTER MATERIALIZED VIEW m RENAME \"between 2\" TO y",
            "ALTER MATERIALIZED VIEW m RENAME TO n",
        ] {
            run(&w, change).await;
            run(&w, "UPDATE a SET v = v + 1, u = u + 10 WHERE id % 3 = 1").await;
            run(
                &w,
                if change.ends_with("TO n") {
                    "REFRESH MATERIALIZED VIEW n"
                } else {
                    "REFRESH MATERIALIZED VIEW m"
                },
            )
            .await;
            for st in ["summed", "plain"] {
                refresh(&mut t, st).await;
                assert_equal(&mut t, st).await;
            }
            let different = "SELECT count(*) FROM ((TABLE plain EXCEPT ALL TABLE now) UNION ALL (TABLE now EXCEPT ALL TABLE plain)) d";
            assert_eq!(count(&w, different).await, 0, "{change}");
        }
    });
}
