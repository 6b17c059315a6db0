//! The deltas of TPC-H read what a change touches.

use super::QUERIES;
use super::data::{SCHEMA, fill};
use crate::plans::{capture, discard, fill as fill_stream_table, scans, update};
use crate::support::each_server;
use std::collections::BTreeSet;
use trickle_core::catalog::MemoryCatalog;
use trickle_core::compile;
use trickle_core::sql::Profile;
use trickle_core::stream_table::Options;

/// An update of a few rows of a table: which rows, and how. One of a nation is none of few rows: a 25th of all customers and
/// suppliers, and what hangs on them, is its.
const CHANGES: [(&str, &str, &str); 6] = [
    ("part", "p_partkey IN (9, 90)", "p_brand = 'Brand#23', p_container = 'MED BOX', p_type = 'PROMO'"),
    ("supplier", "s_suppkey IN (7, 70)", "s_nationkey = 6, s_comment = 'Customer Complaints'"),
    ("partsupp", "ps_partkey IN (9, 90)", "ps_supplycost = ps_supplycost - 1, ps_availqty = 1"),
    ("customer", "c_custkey IN (7, 70)", "c_acctbal = c_acctbal + 1000, c_mktsegment = 'BUILDING'"),
    ("orders", "o_orderkey IN (7, 70)", "o_orderdate = o_orderdate - 1, o_orderpriority = '1-URGENT'"),
    ("lineitem", "l_orderkey IN (7, 70)", "l_quantity = l_quantity + 1, l_shipdate = l_shipdate - 1"),
];

/// A sequential scan of so many rows is of a page or two.
const SMALL: f64 = 200.0;
/// A supplier has 600 items, and the change moves two of them from one nation to another: no scan reads more rows than that
/// takes, though tables have up to 600,000.
const MOST: f64 = 5_000.0;

/// What is read sequentially all the same, and why: queries, changed tables, what is read. A state is what the query computes
/// on the way.
const REVIEWED: [(&str, &str, &[&str], &str); 6] = [
    // One of the first rows leaves, and the next one is sought among all.
    ("q03 q10", "customer orders lineitem", &["state_"], "refill"),
    ("q15", "lineitem", &["state_"], "refill of the greatest revenue"),
    // Reading all parts of one type costs less than 1,200 probes.
    ("q08", "supplier", &["part"], "the planner's choice"),
    // No index of the user's finds parts by brand, type and size.
    ("q16", "part supplier partsupp", &["part"], "groups that are counted anew"),
    // Every row is compared with what changed.
    ("q11", "partsupp", &["state_"], "a sum over all parts"),
    ("q22", "customer", &["customer", "orders"], "an average of all customers"),
];

fn is_reviewed(query: &str, changed: &str, relation: &str) -> bool {
    let holds = |names: &str, name: &str| names.split(' ').any(|n| n == name);
    let fits = |what: &str| relation == what || (what.ends_with('_') && relation.starts_with(what));
    let known = |(queries, tables, what, _): &(&str, &str, &[&str], &str)| {
        holds(queries, query) && holds(tables, changed) && what.iter().any(|w| fits(w))
    };
    REVIEWED.iter().any(known)
}

#[test]
fn deltas_of_tpch_read_what_a_change_touches() {
    each_server(async |db| {
        let session = db.session().await;
        let client = session.client();
        fill(client, 0.1, 0, 0).await;
        client.batch_execute("CREATE SCHEMA pgtrickle_changes; SET random_page_cost = 1.1").await.unwrap();
        let catalog = MemoryCatalog::from_ddl(SCHEMA).unwrap();
        for t in catalog.tables() {
            capture(client, t).await;
        }
        let mut found = Vec::new();
        for (query, sql) in QUERIES {
            let mut options = Options::new("public", "result");
            options.profile = Profile::postgres(db.major());
            let table = compile(sql, &catalog, &options).unwrap().incremental().unwrap();
            fill_stream_table(client, &table).await;
            for (t, _) in table.sources() {
                let Some((changed, rows, change)) = CHANGES.iter().find(|c| *c.0 == *t.name) else {
                    continue;
                };
                let changes = update(&t, rows, change);
                let (scans, _) = scans(client, &table, &BTreeSet::from([t.id]), &changes, 10).await;
                let stored = scans
                    .iter()
                    .filter(|s| s.node != "ModifyTable" && !is_reviewed(query, changed, &s.relation));
                let bad = stored.filter(|s| s.rows > MOST || (s.node == "Seq Scan" && s.rows > SMALL));
                found.extend(bad.map(|s| format!("{query}, changed {changed}: {s}")));
            }
            discard(client, &table).await;
        }
        assert!(found.is_empty(), "PostgreSQL {}:\n{}", db.major(), found.join("\n"));
    });
}
