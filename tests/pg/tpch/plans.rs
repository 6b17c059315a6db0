//! Deltas of TPC-H read only rows that a change touches.

use crate::plans::{Benchmark, Reviewed};
use trickle_bench::tpch::{QUERIES, SCHEMA, fill};

const TPCH: Benchmark = Benchmark {
    schema: SCHEMA,
    queries: &QUERIES,
    // The tables nation and region get no changes. A nation has a 25th of all customers and suppliers, and
    // many rows refer to these.
    changes: &[
        ("part", "p_partkey IN (9, 90)", "p_brand = 'Brand#23', p_container = 'MED BOX', p_type = 'PROMO'"),
        ("supplier", "s_suppkey IN (7, 70)", "s_nationkey = 6, s_comment = 'Customer Complaints'"),
        ("partsupp", "ps_partkey IN (9, 90)", "ps_supplycost = ps_supplycost - 1, ps_availqty = 1"),
        ("customer", "c_custkey IN (7, 70)", "c_acctbal = c_acctbal + 1000, c_mktsegment = 'BUILDING'"),
        ("orders", "o_orderkey IN (7, 70)", "o_orderdate = o_orderdate - 1, o_orderpriority = '1-URGENT'"),
        ("lineitem", "l_orderkey IN (7, 70)", "l_quantity = l_quantity + 1, l_shipdate = l_shipdate - 1"),
    ],
    // A supplier has 600 items, and the change moves two suppliers from one nation to another. Tables have up
    // to 600,000 rows.
    most: 5_000.0,
    reviewed: &[
        // One of the rows under a LIMIT is removed. The delta seeks its successor among all rows.
        Reviewed("q03 q10", "customer orders lineitem", "state_", "refill"),
        Reviewed("q15", "lineitem", "state_", "refill of the greatest revenue"),
        // Reading all parts of one type costs less than 1,200 probes.
        Reviewed("q08", "supplier", "part", "the planner's choice"),
        // The user has no index that finds parts by brand, type and size.
        Reviewed("q16", "part supplier partsupp", "part", "groups that are counted anew"),
        // The query compares every row with the sum, and the sum changes.
        Reviewed("q11", "partsupp", "state_", "a sum over all parts"),
    ],
};

#[test]
fn deltas_of_tpch_read_what_a_change_touches() {
    TPCH.reads_what_a_change_touches(async |client, scale| {
        let scale = u32::try_from(scale).unwrap();
        fill(client, f64::from(scale) / 100.0, 0, 0).await.unwrap();
    });
}
