//! Queries change under readers: what a new query gives is built beside and takes the place of what was there in one step. Catches
//! a moment in which a reader sees neither, changes that get lost in the exchange, and what a client that died leaves behind.

use super::apply::Declarations;
use super::refresher::until;
use super::{BY_REGION, Role};
use crate::support::{Db, count, each_server, run};
use std::collections::BTreeSet;
use std::process::Child;
use trickle_client::Session;

/// Computing it waits for whoever holds the lock 42.
const GATED: &str = "CREATE FUNCTION gated(v bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS \
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN v; END $$";

async fn begun(db: &Db) -> (Role, Session, Declarations) {
    let app = Role::owner(db).await;
    app.does(&["init", "--quiet"]);
    app.run_sql(db, GATED).await;
    let files = Declarations::new(&app);
    files.put("totals.sql", BY_REGION);
    files.put("large.sql", "SELECT region, total FROM totals WHERE total > 100");
    files.apply(&app, &[]);
    (app, db.session().await, files)
}

/// All rows that a reader sees.
async fn rows(s: &Session) -> Vec<String> {
    let rows = s.client().query("SELECT to_jsonb(t)::text FROM totals t ORDER BY 1", &[]).await.unwrap();
    rows.iter().map(|r| r.get(0)).collect()
}

fn applying(app: &Role, files: &Declarations) -> Child {
    let dir = files.path();
    app.command(&["apply", &dir, "--quiet", "--allow-drop"]).spawn().unwrap()
}

/// What it left beside.
const LEFT: &str = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'pgtrickle_changes'";

/// Hidden tables of stream tables that there are not.
const ORPHANS: &str = "SELECT count(*) FROM pg_class c WHERE relnamespace = 'pgtrickle_changes'::regnamespace AND relkind = 'r' \
    AND relname ~ '^(new|state)_' AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables \
    WHERE pgt_id::text = split_part(c.relname, '_', 2))";

#[test]
fn while_it_is_built_the_former_query_is_kept_and_whoever_dies_leaves_it_so() {
    each_server(async |db| {
        let (app, s, files) = begun(db).await;
        run(&s, "CREATE VIEW shown AS SELECT region, total FROM totals; SELECT pg_advisory_lock(42)").await;
        let oid = "SELECT 'totals'::regclass::oid::int8";
        let (before, table) = (rows(&s).await, count(&s, oid).await);
        let query = BY_REGION.replace("AS total", "AS total, gated(count(*)) AS n");
        files.put("totals.sql", &query.replace("GROUP", "WHERE o.id % 2 = 0 GROUP"));
        let mut applying_now = applying(&app, &files);
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        until(&s, &waiting.replace("count(*)", "count(*) = 1")).await;
        assert_eq!(rows(&s).await, before);
        // It is as fresh as before.
        let other = db.session().await;
        run(&other, "UPDATE orders SET amount = amount + 1 WHERE id < 100").await;
        app.does(&["refresh", "totals", "--quiet"]);
        app.does(&["check", "totals", "large", "--quiet"]);
        let kept = rows(&s).await;
        assert_ne!(kept, before);
        applying_now.kill().unwrap();
        applying_now.wait().unwrap();
        until(&s, &waiting.replace("count(*)", "count(pg_terminate_backend(pid)) = 0")).await;
        assert_eq!(count(&s, LEFT).await, 1, "what it began");
        run(&other, "UPDATE orders SET amount = amount + 1 WHERE id < 100").await;
        app.does(&["refresh", "totals", "--quiet"]);
        app.does(&["check", "totals", "--quiet"]);
        // The next one begins again.
        run(&s, "SELECT pg_advisory_unlock(42)").await;
        assert_eq!(files.apply(&app, &[]).0, 0);
        assert_eq!(count(&s, oid).await, table);
        assert_eq!((count(&s, LEFT).await, count(&s, ORPHANS).await), (0, 0));
        assert_eq!(
            count(&s, "SELECT count(*) FROM shown JOIN totals USING (region) WHERE n > 0").await,
            3,
            "its readers are there"
        );
        run(
            &other,
            "UPDATE orders SET amount = amount + 1 WHERE id < 100; DELETE FROM customers WHERE id = 3",
        )
        .await;
        app.does(&["check", "--quiet"]);
    });
}

#[test]
fn a_reader_sees_what_was_there_or_what_comes() {
    each_server(async |db| {
        let (app, s, files) = begun(db).await;
        let writer = db.session().await;
        files.remove("large.sql");
        files.put("totals.sql", BY_REGION);
        files.apply(&app, &["--allow-drop"]);
        let total = "sum(o.amount)::float8 AS total";
        let joined = "FROM orders o JOIN customers c ON c.id = o.customer";
        for query in [
            // A column more; another type; another key, and no key at all; one row; states; by writers; no deltas; another order.
            format!(
                "SELECT c.region, count(*) AS orders, sum(o.amount) AS total, max(o.id) AS last {joined} GROUP BY 1"
            ),
            format!("SELECT c.region, count(*) AS orders, {total}, max(o.id) AS last {joined} GROUP BY 1"),
            format!(
                "SELECT c.name AS region, count(*) AS orders, {total}, max(o.id) AS last {joined} GROUP BY c.id, c.name"
            ),
            "SELECT name AS region, id::bigint AS orders, id::float8 AS total FROM customers".to_owned(),
            format!("SELECT 'all' AS region, count(*) AS orders, {total}, avg(o.amount) AS mean {joined}"),
            format!(
                "SELECT c.region, count(*) AS orders, {total}, avg(o.amount) AS mean {joined} GROUP BY 1"
            ),
            format!("-- mode: immediate\nSELECT c.region, count(*) AS orders, {total} {joined} GROUP BY 1"),
            format!(
                "-- mode: full\nSELECT c.region, count(*) AS orders, {total}, json_build_array(c.region) AS x {joined} GROUP BY 1"
            ),
            format!("SELECT {total}, c.region {joined} GROUP BY 2"),
        ] {
            let before = rows(&s).await;
            files.put("totals.sql", &query);
            let mut child = applying(&app, &files);
            let mut seen = BTreeSet::new();
            let code = loop {
                run(&writer, "UPDATE orders SET note = note WHERE id < 100").await;
                seen.insert(rows(&s).await);
                if let Some(status) = child.try_wait().unwrap() {
                    break status.code();
                }
            };
            assert_eq!(code, Some(0), "{query}");
            let after = rows(&s).await;
            assert_ne!(before, after, "{query}");
            assert!(seen.iter().all(|rows| *rows == before || *rows == after), "{query}: {seen:?}");
            assert_eq!((count(&s, LEFT).await, count(&s, ORPHANS).await), (0, 0), "{query}");
            app.does(&["check", "--quiet"]);
            run(&writer, "UPDATE orders SET amount = amount * 2 WHERE id % 5 = 0; DELETE FROM orders WHERE id % 97 = 0").await;
            app.does(&["refresh", "--all", "--quiet"]);
            app.does(&["check", "--quiet"]);
            assert_eq!(files.apply(&app, &[]), (0, vec![]), "{query}");
        }
    });
}
