//! Queries change while readers read. The result of a new query is built beside the former result, and
//! replaces the former result in one step. The tests catch a moment in which a reader sees neither result,
//! and changes that are lost in the exchange. The tests also catch objects that a dead client leaves behind.

use super::apply::Declarations;
use super::refresher::{Refresher, until};
use super::{BY_REGION, Role};
use crate::support::{Db, count, newest_server, run};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Child, Stdio};
use std::time::Duration;
use trickle_client::Session;

/// A function that waits while a session holds lock 42.
const GATED: &str = "CREATE FUNCTION gated(v bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS \
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN v; END $$";

/// A query for the number of sessions that wait for an advisory lock.
const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

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

/// Returns all rows that a reader sees.
async fn rows(s: &Session) -> Vec<String> {
    rows_of(s, "totals").await
}

async fn rows_of(s: &Session, table: &str) -> Vec<String> {
    let text = format!("SELECT to_jsonb(t)::text FROM {table} t ORDER BY 1");
    s.client().query(&text, &[]).await.unwrap().iter().map(|r| r.get(0)).collect()
}

fn applying(app: &Role, files: &Declarations) -> Child {
    let dir = files.path();
    app.command(&["apply", &dir, "--quiet", "--allow-drop"]).spawn().unwrap()
}

/// A query for the number of stream tables that an interrupted run was building beside others.
const LEFT: &str = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_schema = 'pgtrickle_changes'";

/// A query for the number of hidden tables that belong to no existing stream table.
const ORPHANS: &str = "SELECT count(*) FROM pg_class c WHERE relnamespace = 'pgtrickle_changes'::regnamespace AND relkind = 'r' \
    AND relname ~ '^(new|state)_' AND NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables \
    WHERE pgt_id::text = split_part(c.relname, '_', 2))";

#[test]
fn the_former_query_stays_until_the_new_one_is_built() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        run(&s, "CREATE VIEW shown AS SELECT region, total FROM totals; SELECT pg_advisory_lock(42)").await;
        let oid = "SELECT 'totals'::regclass::oid::int8";
        let (before, table) = (rows(&s).await, count(&s, oid).await);
        let query = BY_REGION.replace("AS total", "AS total, gated(count(*)) AS n");
        files.put("totals.sql", &query.replace("GROUP", "WHERE o.id % 2 = 0 GROUP"));
        let mut applying_now = applying(&app, &files);
        until(&s, &WAITING.replace("count(*)", "count(*) = 1")).await;
        assert_eq!(rows(&s).await, before);
        // A refresh during the building of the new result brings the former stream table up to date.
        let other = db.session().await;
        run(&other, "UPDATE orders SET amount = amount + 1 WHERE id < 100").await;
        app.does(&["refresh", "totals", "--quiet"]);
        app.does(&["check", "totals", "large", "--quiet"]);
        let kept = rows(&s).await;
        assert_ne!(kept, before);
        applying_now.kill().unwrap();
        applying_now.wait().unwrap();
        until(&s, &WAITING.replace("count(*)", "count(pg_terminate_backend(pid)) = 0")).await;
        assert_eq!(count(&s, LEFT).await, 1, "what it began");
        run(&other, "UPDATE orders SET amount = amount + 1 WHERE id < 100").await;
        app.does(&["refresh", "totals", "--quiet"]);
        app.does(&["check", "totals", "--quiet"]);
        // The next run builds the new result from the beginning.
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
fn a_reader_sees_the_former_or_the_new_rows() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        let writer = db.session().await;
        files.remove("large.sql");
        files.put("totals.sql", BY_REGION);
        files.apply(&app, &["--allow-drop"]);
        let total = "sum(o.amount)::float8 AS total";
        let joined = "FROM orders o JOIN customers c ON c.id = o.customer";
        for query in [
            // The queries have, in this order: one more column, another type, another key, no key, one row,
            // states, mode IMMEDIATE, no deltas, and another order of columns.
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

/// A changed query with the same columns writes only the rows that differ.
#[test]
fn a_changed_query_writes_only_the_rows_that_differ() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        files.put("single.sql", "SELECT id, amount FROM orders WHERE id > 10");
        files.apply(&app, &[]);
        let all = "SELECT count(*) FROM single";
        let (before, stays) =
            (count(&s, all).await, "CREATE TABLE former AS SELECT id, xmin::text AS x FROM single");
        run(&s, stays).await;
        files.put(
            "single.sql",
            "SELECT id, CASE WHEN id = 500 THEN -1 ELSE amount END::numeric(10,2) AS amount FROM orders WHERE id > 13",
        );
        files.apply(&app, &[]);
        let kept = "SELECT count(*) FROM single t JOIN former USING (id) WHERE t.xmin::text = x";
        assert_eq!((count(&s, all).await, count(&s, kept).await), (before - 3, before - 4));
        app.does(&["check", "--quiet"]);
    });
}

/// A new column gets its values from the difference of the two results. Rows in which the column is NULL are
/// not written, and other rows are updated in place. Readers of other columns get no changes.
#[test]
fn an_added_column_costs_the_rows_that_have_a_value_in_it() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        files.put("single.sql", "SELECT id, amount FROM orders");
        files.put("above.sql", "SELECT count(*) AS n, sum(amount) AS total FROM single");
        files.apply(&app, &[]);
        app.does(&["refresh", "--quiet"]);
        run(
            &s,
            "CREATE TABLE former AS SELECT id, xmin::text AS x FROM single; \
             CREATE TABLE noted (id int REFERENCES single); INSERT INTO noted SELECT id FROM single",
        )
        .await;
        let history = "SELECT coalesce(max(refresh_id), 0) FROM pgtrickle.pgt_refresh_history";
        let last = count(&s, history).await;
        let oid = "SELECT 'single'::regclass::oid::int8";
        let table = count(&s, oid).await;
        files.put(
            "single.sql",
            "SELECT id, amount, CASE WHEN id % 100 = 0 THEN id END AS hundred FROM orders",
        );
        files.apply(&app, &[]);
        assert_eq!(count(&s, oid).await, table);
        let kept = "SELECT count(*) FROM single t JOIN former USING (id) WHERE (t.xmin::text = x) = (hundred IS NULL)";
        assert_eq!(count(&s, kept).await, count(&s, "SELECT count(*) FROM orders").await);
        app.does(&["refresh", "--quiet"]);
        let above = format!(
            "SELECT coalesce(sum(rows_inserted + rows_updated + rows_deleted), 0)::int8 FROM pgtrickle.pgt_refresh_history h \
             JOIN pgtrickle.pgt_stream_tables t USING (pgt_id) WHERE t.pgt_name = 'above' AND h.refresh_id > {last}"
        );
        assert_eq!(count(&s, &above).await, 0);
        let anew = format!(
            "SELECT count(*) FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables t USING (pgt_id) \
             WHERE t.pgt_name = 'above' AND h.refresh_id > {last} AND action = 'REINITIALIZE'"
        );
        assert_eq!(count(&s, &anew).await, 0, "whoever reads it is computed anew");
        // A value of another column that changes in the same step reaches the readers as an ordinary change.
        files.put("single.sql", "SELECT id, CASE WHEN id = 7 THEN 0 ELSE amount END::numeric(10,2) AS amount, 1 AS hundred, id AS again FROM orders");
        files.apply(&app, &[]);
        app.does(&["refresh", "--quiet"]);
        assert_ne!(count(&s, &above).await, 0);
        run(&s, "UPDATE orders SET amount = amount + 1 WHERE id < 3").await;
        app.does(&["refresh", "--quiet"]);
        app.does(&["check", "--quiet"]);
        assert_eq!(count(&s, &anew).await, 0, "whoever reads it is computed anew");
    });
}

/// A client dies while it builds a new result beside the former result. A refresher drops the unfinished
/// table five minutes later.
#[test]
fn a_refresher_drops_tables_that_dead_clients_built_beside() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        run(&s, "SELECT pg_advisory_lock(42)").await;
        let query = BY_REGION.replace("AS total", "AS total, gated(count(*)) AS n");
        files.put("totals.sql", &query);
        let mut dying = applying(&app, &files);
        until(&s, &WAITING.replace("count(*)", "count(*) = 1")).await;
        dying.kill().unwrap();
        dying.wait().unwrap();
        until(&s, &WAITING.replace("count(*)", "count(pg_terminate_backend(pid)) = 0")).await;
        run(&s, "SELECT pg_advisory_unlock(42)").await;
        assert_eq!(count(&s, LEFT).await, 1);
        let _refresher = Refresher::start(app.command(&["run", "--quiet"]));
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(count(&s, LEFT).await, 1, "somebody may be at work on it");
        let older = "UPDATE pgtrickle.pgt_stream_tables SET created_at = created_at - interval '6 minutes', \
            last_refresh_at = last_refresh_at - interval '6 minutes' WHERE pgt_schema = 'pgtrickle_changes'";
        run(&s, older).await;
        until(&s, &format!("SELECT ({LEFT}) + ({ORPHANS}) = 0")).await;
    });
}

/// Returns the number of written rows that a refresh reports.
fn written(refreshed: &Value) -> i64 {
    let rows = ["rows_inserted", "rows_updated", "rows_deleted"];
    rows.iter().filter_map(|name| refreshed[name].as_i64()).sum()
}

/// A source is altered. The alteration gives the stream table columns of other types, or another key. No
/// reader sees columns without values.
#[test]
fn former_rows_stay_until_an_altered_source_is_recomputed() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        files.put("single.sql", "SELECT id, amount FROM orders");
        files.apply(&app, &[]);
        for alter in [
            "ALTER TABLE orders ALTER COLUMN amount TYPE float8 USING amount + 1",
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey; UPDATE orders SET id = 2 WHERE id = 1; UPDATE orders SET amount = amount + 1",
            "UPDATE orders SET id = 1 WHERE ctid = (SELECT min(ctid) FROM orders WHERE id = 2); UPDATE orders SET amount = 3;
             ALTER TABLE orders ADD PRIMARY KEY (id); ALTER TABLE orders ALTER COLUMN amount TYPE numeric",
        ] {
            let shown = async || (rows(&s).await, rows_of(&s, "single").await);
            run(&s, alter).await;
            let before = shown().await;
            let mut child = app.command(&["refresh", "--all", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
            let (mut seen, mut singles) = (BTreeSet::new(), BTreeSet::new());
            let code = loop {
                let now = shown().await;
                seen.insert(now.0);
                singles.insert(now.1);
                if let Some(status) = child.try_wait().unwrap() {
                    break status.code();
                }
            };
            assert_eq!(code, Some(0), "{alter}");
            let told: Value = serde_json::from_reader(child.stdout.take().unwrap()).unwrap();
            let single = told.as_array().unwrap().iter().find(|r| r["name"] == "public.single").unwrap();
            assert!(single["action"] == "REINITIALIZE" && written(single) >= 20_000, "{single}");
            let after = shown().await;
            assert!(before.0 != after.0 && before.1 != after.1, "{alter}");
            assert!(seen.iter().all(|r| *r == before.0 || *r == after.0), "{alter}");
            assert!(singles.iter().all(|r| *r == before.1 || *r == after.1), "{alter}");
            assert_eq!((count(&s, LEFT).await, count(&s, ORPHANS).await), (0, 0), "{alter}");
            app.does(&["check", "--quiet"]);
            run(&s, "UPDATE orders SET amount = amount + 1 WHERE id % 3 = 0").await;
            app.does(&["refresh", "--all", "--quiet"]);
            app.does(&["check", "--quiet"]);
        }
    });
}

/// The query raises an error over the altered source. The refresh fails, and a later refresh may succeed.
#[test]
fn a_failed_recompute_over_an_altered_source_keeps_the_rows() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        app.run_sql(
            db,
            "CREATE TABLE x (id int PRIMARY KEY, k numeric); INSERT INTO x VALUES (1, 0.4), (2, 2)",
        )
        .await;
        files.put("ratio.sql", "SELECT id, 100 / k AS r FROM x");
        files.apply(&app, &[]);
        let before = rows_of(&s, "ratio").await;
        run(&s, "ALTER TABLE x ALTER COLUMN k TYPE int").await;
        let standing = "SELECT consecutive_errors::int8 FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'ratio' AND status = 'ACTIVE' \
             AND last_error_message LIKE '%division by zero%'";
        for failures in 1..3 {
            let ran = app.trickle(&["refresh", "ratio", "--quiet"]);
            assert!(
                ran.code == 1 && ran.err.contains("ratio") && ran.err.contains("division by zero"),
                "{}",
                ran.err
            );
            assert_eq!(rows_of(&s, "ratio").await, before);
            assert_eq!(count(&s, standing).await, failures);
            assert_eq!((count(&s, LEFT).await, count(&s, ORPHANS).await), (0, 0));
        }
        run(&s, "UPDATE x SET k = 1 WHERE k = 0").await;
        app.does(&["refresh", "ratio", "--quiet"]);
        app.does(&["check", "--quiet"]);
        let again =
            "SELECT consecutive_errors::int8 FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'ratio'";
        assert_eq!(count(&s, again).await, 0);
    });
}
