//! A database of the previous release is upgraded, and its capture continues. The tests catch an upgrade that
//! leaves trigger functions of the earlier version in use, or that loses changes which these functions
//! captured.

use crate::support::{assert_equal, count, create, each_server, open, refresh, run};
use trickle_client::schema::VERSION;
use trickle_client::{NewStreamTable, RefreshMode};

const GUARDED: &str = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'pgtrickle_changes'::regnamespace \
    AND prosrc LIKE '%pgtrickle.misfit(%'";

#[test]
fn an_upgrade_renews_capture_and_loses_no_change() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(
            &w,
            "CREATE TABLE t (id int PRIMARY KEY, v int, word varchar(9)); INSERT INTO t VALUES (1, 1, 'one')",
        )
        .await;
        create(&mut t, "kept", "SELECT id, v, word FROM t").await;
        let new =
            NewStreamTable::new(crate::support::name("at_once"), "SELECT v, count(*) AS n FROM t GROUP BY v");
        t.create(&NewStreamTable { mode: Some(RefreshMode::Immediate), ..new }).await.unwrap();
        refresh(&mut t, "kept").await;
        assert_eq!(t.migrate(2).await.unwrap(), Some(VERSION));
        assert_eq!(count(&w, GUARDED).await, 0, "no function calls what the earlier version has not");
        run(&w, "INSERT INTO t VALUES (3, 3, 'three')").await;
        assert_eq!(t.migrate(VERSION).await.unwrap(), Some(2));
        assert!(count(&w, GUARDED).await > 0);
        run(&w, "INSERT INTO t VALUES (4, 4, 'four')").await;
        let done = refresh(&mut t, "kept").await;
        assert_eq!(
            (done[0].report.action.name(), done[0].report.delta_rows),
            ("DIFFERENTIAL", 2),
            "{done:?}"
        );
        assert_equal(&mut t, "kept").await;
        refresh(&mut t, "at_once").await;
        run(&w, "INSERT INTO t VALUES (5, 4, 'five')").await;
        assert_equal(&mut t, "at_once").await;
    });
}

/// An earlier release made tables without a key, and a publication publishes all tables. Refreshes could not
/// write these tables. The test catches an upgrade after which refreshes still cannot write such a table.
#[test]
fn an_upgrade_lets_tables_without_a_key_be_published() {
    each_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE t (id int PRIMARY KEY, k int, v int); INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 9) i").await;
        create(&mut t, "bag", "SELECT v FROM t WHERE v > 1").await;
        create(
            &mut t,
            "state",
            "SELECT k, count(DISTINCT v) AS n, max(v) AS m FROM t GROUP BY k HAVING count(*) > 1",
        )
        .await;
        t.migrate(2).await.unwrap();
        let former = "SELECT count(*) FROM (SELECT c.oid FROM pg_class c WHERE c.relreplident = 'f' AND c.relkind = 'r') x";
        assert!(count(&w, former).await > 1);
        // The earlier release did not change the replica identity that CREATE TABLE gives its tables.
        run(
            &w,
            "DO $$ DECLARE made regclass; BEGIN FOR made IN SELECT oid FROM pg_class WHERE relreplident = 'f' AND relkind = 'r' \
             LOOP EXECUTE format('ALTER TABLE %s REPLICA IDENTITY DEFAULT', made); END LOOP; END $$",
        )
        .await;
        assert_eq!(t.migrate(VERSION).await.unwrap(), Some(2));
        run(&w, "CREATE PUBLICATION everything FOR ALL TABLES").await;
        for change in ["UPDATE t SET v = v + 1 WHERE k = 1", "DELETE FROM t WHERE id = 3"] {
            run(&w, change).await;
            for name in ["bag", "state"] {
                refresh(&mut t, name).await;
                assert_equal(&mut t, name).await;
            }
        }
    });
}
