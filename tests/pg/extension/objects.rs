//! Tests every object that the extension makes, as [`crate::objects`] does for the program.

use super::installed;
use crate::objects::{compare, table};
use crate::support::{count, each_server, run};

/// Returns the owner of an object, in the words of the documentation page.
fn whose(role: &str) -> &'static str {
    match role {
        "postgres" => "owner of the catalog",
        "grantee" => "grantee",
        _ => "another role",
    }
}

/// The stream tables belong to a role with rights by `grant_to`. Some of the stream tables have hidden
/// states, some read another stream table, and some are IMMEDIATE. Triggers in C and row triggers capture
/// their sources.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn each_object_has_an_owner_rights_and_a_reason() {
    each_server(async |db| {
        let s = installed(db).await;
        let role = "DO $$ BEGIN CREATE ROLE grantee; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$";
        run(
            &s,
            &format!(
                "{role}; SELECT pgtrickle.grant_to('grantee'); CREATE SCHEMA shop AUTHORIZATION grantee"
            ),
        )
        .await;
        run(
            &s,
            "SET SESSION AUTHORIZATION grantee; SET search_path = shop; SET pg_trickle.refresh_strategy = 'differential'; \
             CREATE TABLE orders (id int PRIMARY KEY, k int, v numeric); CREATE TABLE lines (id int PRIMARY KEY, o int, n int); \
             SELECT pgtrickle.create_stream_table('distinct_values', 'SELECT k, count(DISTINCT v) AS n, avg(v) AS a FROM orders GROUP BY k', '1h'); \
             SELECT pgtrickle.create_stream_table('many', 'SELECT count(*) AS n, sum(n) AS s FROM distinct_values WHERE n > 1', '1h'); \
             SELECT pgtrickle.create_stream_table('at_once', 'SELECT o.k, sum(l.n) AS s FROM orders o JOIN lines l ON l.o = o.id GROUP BY o.k', NULL, 'IMMEDIATE'); \
             SELECT pgtrickle.create_stream_table('copied', 'SELECT id, n FROM lines', NULL, 'IMMEDIATE'); \
             SET pg_trickle.cdc_trigger_mode = 'row'; \
             SELECT pgtrickle.create_stream_table('by_row', 'SELECT id, o FROM lines', '1h'); RESET SESSION AUTHORIZATION; RESET search_path",
        )
        .await;
        assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_stream_tables").await, 5);
        compare("security.md", "objects of the extension", &table(&s, whose).await);
    });
}
