//! A database with the extension is dumped and restored. CREATE EXTENSION makes the catalog, the dump has its
//! rows, and the tables have other OIDs. The tests catch trust in a catalog that describes another database.

use super::workers::{scheduled, until};
use crate::restored::tool;
use crate::support::private::{connect, has, start, todays_version};
use crate::support::{count, run};
use std::path::Path;
use trickle_client::Session;
use trickle_client::throwaway::Server;

const MADE: &str = "CREATE EXTENSION pg_trickle;
    CREATE TABLE a (id int PRIMARY KEY, k int, v int);
    INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 40) i;
    SELECT pgtrickle.create_stream_table('sums', 'SELECT k, sum(v) AS s FROM a GROUP BY k', '1s');
    SELECT pgtrickle.create_stream_table('over', 'SELECT k FROM sums WHERE s > 100', '1s');
    SELECT pgtrickle.create_stream_table('kept', 'SELECT k, count(*) AS n FROM a GROUP BY k', NULL, 'IMMEDIATE')";

const QUERIES: [(&str, &str); 3] = [
    ("sums", "SELECT k, sum(v) AS s FROM a GROUP BY k"),
    ("over", "SELECT k FROM a GROUP BY k HAVING sum(v) > 100"),
    ("kept", "SELECT k, count(*) AS n FROM a GROUP BY k"),
];

const CHANGE: &str = "UPDATE a SET v = v + 7 WHERE id % 3 = 0; DELETE FROM a WHERE id = 2; INSERT INTO a SELECT max(id) + 1, 9, 200 FROM a";

/// Returns the text of a query for the number of rows in which a stream table and its query differ.
fn differing(table: &str, query: &str) -> String {
    format!(
        "SELECT count(*) FROM ((({query}) EXCEPT ALL TABLE {table}) UNION ALL (TABLE {table} EXCEPT ALL ({query}))) x"
    )
}

/// Dumps the database `one`, with changes that no refresh has seen, and restores it as `two`.
async fn moved(binaries: &Path, server: &Server) -> Session {
    let admin = connect(server, "postgres").await;
    run(&admin, "CREATE DATABASE one").await;
    run(&admin, "CREATE DATABASE two").await;
    // Two extra tables in `two` shift the OIDs. So a table in `two` has another OID than in `one`, and may
    // have the OID that another table has in `one`.
    let two = connect(server, "two").await;
    run(&two, "CREATE TABLE first (id int); CREATE TABLE second (id int)").await;
    let one = connect(server, "one").await;
    run(&one, MADE).await;
    run(&one, CHANGE).await;
    let file = server.directory().join("dump");
    let file = file.display().to_string();
    tool(binaries, "pg_dump", server, &["-Fc", "-f", &file, "one"]);
    tool(binaries, "pg_restore", server, &["--exit-on-error", "-d", "two", &file]);
    two
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_restored_catalog_finds_its_tables_by_itself() {
    todays_version(async |binaries| {
        if !has(binaries, "pg_dump") {
            return;
        }
        let server = scheduled(binaries, "restored").await;
        let two = moved(binaries, &server).await;
        for _ in 0..2 {
            for (table, query) in &QUERIES[..2] {
                until(&two, &differing(table, query), 0).await;
            }
            run(&two, "SELECT pgtrickle.refresh_stream_table('kept')").await;
            run(&two, CHANGE).await;
            assert_eq!(count(&two, &differing(QUERIES[2].0, QUERIES[2].1)).await, 0);
        }
        server.stop();
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn a_restored_catalog_is_unused_until_its_tables_are_found() {
    todays_version(async |binaries| {
        if !has(binaries, "pg_dump") {
            return;
        }
        let server = start(binaries, "rehome").await;
        let two = moved(binaries, &server).await;
        // A table that is dropped here may have the OID of a stream table in the dumped database.
        run(&two, "DROP TABLE first, second").await;
        let refresh = "SELECT pgtrickle.refresh_stream_table(t) FROM unnest(ARRAY['over', 'kept']) t";
        let refused = two.client().batch_execute(refresh).await.unwrap_err();
        let hint = refused.as_db_error().and_then(|e| e.hint()).unwrap_or_default();
        assert!(hint.contains("pgtrickle.rehome()"), "{refused:?}");
        assert_eq!(count(&two, "SELECT pgtrickle.rehome()::int::int8").await, 1);
        assert_eq!(count(&two, "SELECT pgtrickle.rehome()::int::int8").await, 0);
        assert_eq!(count(&two, "SELECT count(*) FROM pgtrickle.pgt_catalog_version").await, 1);
        for _ in 0..2 {
            run(&two, refresh).await;
            for (table, query) in QUERIES {
                assert_eq!(count(&two, &differing(table, query)).await, 0, "{table}");
            }
            run(&two, CHANGE).await;
        }
        run(&two, "DROP TABLE over, sums, kept").await;
        let left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace";
        assert_eq!(count(&two, left).await, 0);
        server.stop();
    });
}

/// The definitions are restored before the data. When the data are restored, CREATE EXTENSION has already
/// made a catalog row of its own.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn definitions_and_data_restored_apart_are_found_again() {
    todays_version(async |binaries| {
        if !has(binaries, "pg_dump") {
            return;
        }
        let server = start(binaries, "apart").await;
        let admin = connect(&server, "postgres").await;
        run(&admin, "CREATE DATABASE one").await;
        run(&admin, "CREATE DATABASE two").await;
        let one = connect(&server, "one").await;
        run(&one, MADE).await;
        run(&one, CHANGE).await;
        let two = connect(&server, "two").await;
        run(&two, "CREATE TABLE first (id int)").await;
        for (part, more) in [("-s", &["-s"][..]), ("-a", &["-a", "--disable-triggers"])] {
            let file = server.directory().join(format!("dump{part}")).display().to_string();
            let args = [more, &["-Fc", "-f", &*file, "one"]].concat();
            tool(binaries, "pg_dump", &server, &args);
            let disabled: &[&str] = if part == "-a" { &["-a", "--disable-triggers"] } else { &[] };
            tool(
                binaries,
                "pg_restore",
                &server,
                &[disabled, &["--exit-on-error", "-d", "two", &*file]].concat(),
            );
        }
        let two = connect(&server, "two").await;
        assert_eq!(count(&two, "SELECT pgtrickle.rehome()::int::int8").await, 1);
        assert_eq!(count(&two, "SELECT count(*) FROM pgtrickle.pgt_catalog_version").await, 1);
        for _ in 0..2 {
            run(&two, "SELECT pgtrickle.refresh_stream_table(t) FROM unnest(ARRAY['over', 'kept']) t").await;
            for (table, query) in QUERIES {
                assert_eq!(count(&two, &differing(table, query)).await, 0, "{table}");
            }
            run(&two, CHANGE).await;
        }
        server.stop();
    });
}
