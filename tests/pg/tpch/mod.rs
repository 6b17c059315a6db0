//! The 22 queries of TPC-H as stream tables, with data that follow the rules of the TPC-H specification. A
//! query without LIMIT has no ORDER BY.

mod plans;

use crate::support::{assert_equal, name, newest_server, open_with};
use tokio_postgres::Client;
use trickle_bench::tpch::{Increment, QUERIES, copy, fill};
use trickle_client::{NewStreamTable, RefreshOptions, Settings};
use trickle_core::cost::Force;
use trickle_core::refresh::Action;

const CYCLES: usize = 5;
/// Number of orders that RF1 adds and RF2 deletes, at the scale of this test.
const REFRESHED: usize = 15;

/// Runs RF1, RF2, and updates of every table. The smaller tables are updated only in some cycles.
async fn change(client: &Client, cycle: usize, new: &Increment) {
    client.batch_execute("BEGIN").await.unwrap();
    copy(client, "orders", new.orders.iter().cloned()).await.unwrap();
    copy(client, "lineitem", new.items.iter().cloned()).await.unwrap();
    let old = format!(
        "SELECT o_orderkey FROM orders WHERE o_orderkey % 7 = {cycle} ORDER BY o_orderkey LIMIT {REFRESHED}"
    );
    let statements = [
        format!("DELETE FROM lineitem WHERE l_orderkey IN ({old})"),
        format!("DELETE FROM orders WHERE o_orderkey IN ({old})"),
        "COMMIT".to_owned(),
        format!(
            "UPDATE lineitem SET l_quantity = l_quantity + 5, l_discount = 0.06, l_shipdate = l_shipdate - 9
             WHERE l_orderkey % 997 = {cycle}"
        ),
        format!(
            "UPDATE orders SET o_orderpriority = '1-URGENT', o_totalprice = o_totalprice * 1.01,
               o_comment = CASE WHEN o_comment LIKE '%special%requests%' THEN '' ELSE 'special requests' END
             WHERE o_orderkey % 499 = {cycle}"
        ),
        format!(
            "UPDATE customer SET c_acctbal = c_acctbal - 100.5, c_mktsegment = 'BUILDING'
             WHERE c_custkey % 150 = {cycle}"
        ),
        format!(
            "UPDATE part SET p_size = 15, p_type = 'PROMO BRUSHED BRASS', p_brand = 'Brand#23',
               p_container = 'MED BOX', p_name = 'forest green'
             WHERE p_partkey % 200 = {cycle}"
        ),
        format!(
            "UPDATE partsupp SET ps_supplycost = ps_supplycost - 0.5, ps_availqty = ps_availqty / 100
             WHERE (ps_partkey + ps_suppkey) % 100 = {cycle}"
        ),
        format!(
            "UPDATE supplier SET s_nationkey = (s_nationkey + 1) % 25,
               s_comment = CASE WHEN s_comment LIKE '%Customer%Complaints%' THEN '' ELSE 'Customer Complaints' END
             WHERE s_suppkey % 25 = {cycle}"
        ),
    ];
    for statement in statements {
        client.batch_execute(&statement).await.unwrap_or_else(|e| panic!("{e:?}\n{statement}"));
    }
    let small = match cycle {
        2 => "UPDATE nation SET n_regionkey = (n_regionkey + 1) % 5 WHERE n_nationkey < 3",
        3 => {
            "UPDATE nation SET n_name = CASE n_name WHEN 'FRANCE' THEN 'GERMANY' ELSE 'FRANCE' END
              WHERE n_name IN ('FRANCE', 'GERMANY')"
        }
        4 => {
            "UPDATE region SET r_name = CASE r_name WHEN 'ASIA' THEN 'EUROPE' ELSE 'ASIA' END
              WHERE r_name IN ('ASIA', 'EUROPE')"
        }
        _ => return,
    };
    client.batch_execute(small).await.unwrap();
}

#[test]
fn all_of_tpch_is_kept_by_deltas_and_exact() {
    newest_server(async |db| {
        let writer = db.session().await;
        let increments = fill(writer.client(), 0.01, REFRESHED * CYCLES, CYCLES).await.unwrap();
        let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
        let mut t = open_with(db, settings).await;
        for (query, sql) in QUERIES {
            let made = t.create(&NewStreamTable::new(name(query), sql)).await;
            let made = made.unwrap_or_else(|e| panic!("{query}: {e:?}"));
            assert_eq!(made.mode, trickle_client::Mode::Differential, "{query}");
        }
        for (cycle, new) in increments.iter().enumerate() {
            change(writer.client(), cycle, new).await;
            for done in t.refresh_all(&RefreshOptions::default()).await.unwrap() {
                let report = &done.report;
                assert_eq!(report.action, Action::Differential, "{:?}: {:?}", report.name, report.reason);
            }
            for (query, _) in QUERIES {
                assert_equal(&mut t, query).await;
            }
        }
    });
}
