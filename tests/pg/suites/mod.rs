//! Whole benchmarks as stream tables: the queries of Nexmark, and queries in the forms of TPC-DS. Each suite
//! has a directory of tests/ with its tables, its data, one cycle of changes, and its queries.

mod plans;

use crate::support::{assert_equal, name, newest_server, open_with};
use tokio_postgres::Client;
use trickle_client::{NewStreamTable, RefreshOptions, Settings};
use trickle_core::cost::Force;
use trickle_core::refresh::Action;

struct Suite {
    schema: &'static str,
    /// Statements that fill the tables. `:scale` stands for the factor of the number of rows.
    fill: &'static str,
    /// Changes of one cycle. `:cycle` stands for the number of the cycle, from 0.
    change: &'static str,
    /// Names and texts of the queries.
    queries: &'static [(&'static str, &'static str)],
}

macro_rules! suite {
    ($directory:literal: $($name:literal)*) => {
        Suite {
            schema: include_str!(concat!("../../", $directory, "/schema.sql")),
            fill: include_str!(concat!("../../", $directory, "/fill.sql")),
            change: include_str!(concat!("../../", $directory, "/change.sql")),
            queries: &[$(($name, include_str!(concat!("../../", $directory, "/", $name, ".sql")))),*],
        }
    };
}

const NEXMARK: Suite = suite!("nexmark": "q0" "q1" "q2" "q3" "q4" "q5" "q6" "q7" "q8" "q9");

const TPCDS: Suite = suite!(
    "tpcds": "rollup" "channels" "share" "neighbours" "everywhere" "store_only" "year_over_year" "returners" "weekdays"
    "somewhere_else" "brands" "spread" "buckets" "cumulative"
);

const CYCLES: usize = 5;

async fn run(client: &Client, text: &str, variable: &str, value: usize) {
    let text = text.replace(variable, &value.to_string());
    client.batch_execute(&text).await.unwrap_or_else(|e| panic!("{e:?}\n{text}"));
}

/// Asserts that the stream tables of all queries are updated by deltas, and that after every refresh each
/// stream table equals its query.
fn is_kept_by_deltas(suite: &Suite) {
    newest_server(async |db| {
        let writer = db.session().await;
        let client = writer.client();
        client.batch_execute(suite.schema).await.unwrap();
        run(client, suite.fill, ":scale", 1).await;
        client.batch_execute("ANALYZE").await.unwrap();
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open_with(db, settings).await;
        for (query, sql) in suite.queries {
            let made = t.create(&NewStreamTable::new(name(query), *sql)).await;
            let made = made.unwrap_or_else(|e| panic!("{query}: {e:?}"));
            assert_eq!(made.mode, trickle_client::Mode::Differential, "{query}");
        }
        for cycle in 0..CYCLES {
            run(client, suite.change, ":cycle", cycle).await;
            for done in t.refresh_all(&RefreshOptions::default()).await.unwrap() {
                let report = &done.report;
                assert_eq!(report.action, Action::Differential, "{:?}: {:?}", report.name, report.reason);
            }
            for (query, _) in suite.queries {
                assert_equal(&mut t, query).await;
            }
        }
    });
}

#[test]
fn nexmark_is_kept_by_deltas_and_exact() {
    is_kept_by_deltas(&NEXMARK);
}

#[test]
fn shapes_of_tpcds_are_kept_by_deltas_and_exact() {
    is_kept_by_deltas(&TPCDS);
}
