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

/// An update of a few rows of each table: which rows, and how.
const CHANGES: [(&str, &str, &str); 8] = [
    ("region", "r_name = 'ASIA'", "r_name = 'EUROPE'"),
    ("nation", "n_name = 'FRANCE'", "n_name = 'GERMANY'"),
    ("part", "p_partkey IN (9, 90)", "p_brand = 'Brand#23', p_container = 'MED BOX', p_type = 'PROMO'"),
    ("supplier", "s_suppkey IN (7, 70)", "s_nationkey = 6, s_comment = 'Customer Complaints'"),
    ("partsupp", "ps_partkey IN (9, 90)", "ps_supplycost = ps_supplycost - 1, ps_availqty = 1"),
    ("customer", "c_custkey IN (7, 70)", "c_acctbal = c_acctbal + 1000, c_mktsegment = 'BUILDING'"),
    ("orders", "o_orderkey IN (7, 70)", "o_orderdate = o_orderdate - 1, o_orderpriority = '1-URGENT'"),
    ("lineitem", "l_orderkey IN (7, 70)", "l_quantity = l_quantity + 1, l_shipdate = l_shipdate - 1"),
];

/// Tables of a page or two.
const SMALL: [&str; 2] = ["region", "nation"];

#[test]
fn deltas_of_tpch_read_what_a_change_touches() {
    each_server(async |db| {
        let session = db.session().await;
        let client = session.client();
        fill(client, 0.1, 0, 0).await;
        client.batch_execute("CREATE SCHEMA pgtrickle_changes").await.unwrap();
        let catalog = MemoryCatalog::from_ddl(SCHEMA).unwrap();
        for t in catalog.tables() {
            capture(client, t).await;
        }
        for (query, sql) in QUERIES {
            let mut options = Options::new("public", "result");
            options.profile = Profile::postgres(db.major());
            let table = compile(sql, &catalog, &options).unwrap().incremental().unwrap();
            fill_stream_table(client, &table).await;
            for (t, _) in table.sources() {
                let (changed, rows, change) = CHANGES.iter().find(|c| *c.0 == *t.name).unwrap();
                let changes = update(&t, rows, change);
                let (scans, _) = scans(client, &table, &BTreeSet::from([t.id]), &changes, 10).await;
                let bad = scans.iter().filter(|s| s.node == "Seq Scan" && s.rows > 100.0 || s.rows > 2000.0);
                for s in bad.filter(|s| !SMALL.contains(&&*s.relation)) {
                    println!("{} {query} {changed}: {s}", db.major());
                }
            }
            discard(client, &table).await;
        }
    });
}
