//! Deltas of the suites read only rows that a change touches.

use super::{NEXMARK, Suite, TPCDS, run};
use crate::plans::{Benchmark, Reviewed};
use tokio_postgres::Client;

/// The limit of rows fits the data. An auction has ten bids. A query seeks the greatest bid within ten
/// seconds, and these seconds have 500 bids.
const OF_NEXMARK: Benchmark = Benchmark {
    schema: NEXMARK.schema,
    queries: NEXMARK.queries,
    changes: &[
        (
            "person",
            "id IN (7, 70)",
            "state = 'OR', name = name || '*', date_time = date_time + interval '10 s'",
        ),
        ("auction", "id IN (50, 500)", "category = 12, expires = expires + interval '5 s'"),
        ("bid", "auction IN (50, 500)", "price = price + 500, date_time = date_time + interval '2 s'"),
    ],
    most: 2_000.0,
    reviewed: &[
        // The server expects 200 changed keys, a fifth of all keys.
        Reviewed("q5", "bid", "state_", "few windows, of which many are expected"),
    ],
};

const OF_TPCDS: Benchmark = Benchmark {
    schema: TPCDS.schema,
    queries: TPCDS.queries,
    // One store has a 13th of all sales. The number of days is the same at every scale. So with ten times as
    // many sales the change selects a tenth of the days.
    changes: &[
        (
            "date_dim",
            "d_date_sk BETWEEN 310 AND 309 + 10 / :scale",
            "d_year = 2001, d_moy = 4, d_week_seq = 70",
        ),
        ("item", "i_item_sk IN (7, 70)", "i_category = 'Books', i_class = 'class 1', i_brand = 'brand 1'"),
        ("customer", "c_customer_sk IN (7, 70)", "c_last_name = 'last 1', c_birth_country = NULL"),
        (
            "store_sales",
            "ss_ticket_number IN (9, 99)",
            "ss_sold_date_sk = 400, ss_quantity = 1, ss_ext_sales_price = ss_ext_sales_price * 0.5, ss_net_profit = 1",
        ),
        (
            "store_returns",
            "sr_ticket_number IN (11, 110)",
            "sr_returned_date_sk = 30, sr_return_amt = sr_return_amt * 0.5",
        ),
        (
            "web_sales",
            "ws_order_number IN (9, 99)",
            "ws_sold_date_sk = 400, ws_bill_customer_sk = 7, ws_ext_sales_price = ws_ext_sales_price * 0.5",
        ),
        (
            "catalog_sales",
            "cs_order_number IN (9, 99)",
            "cs_sold_date_sk = 400, cs_bill_customer_sk = 7, cs_ext_sales_price = cs_ext_sales_price * 0.5",
        ),
    ],
    most: 5_000.0,
    reviewed: &[
        // The delta reads a table with only a few pages, and seeks tens of its rows.
        Reviewed("brands rollup neighbours spread", "date_dim", "item", "the planner's choice"),
        Reviewed("spread", "item store_sales", "item", "the planner's choice"),
        Reviewed("neighbours share", "item", "date_dim", "the planner's choice"),
        Reviewed("year_over_year", "customer", "date_dim", "the planner's choice"),
        Reviewed("year_over_year", "date_dim", "customer", "the planner's choice"),
        // A class has a third of all items, a store has a 13th of all customers, and a country has a 7th of
        // them.
        Reviewed("share", "item", "result", "a window over a third of all"),
        Reviewed("share", "item", "state_", "a window over a third of all"),
        Reviewed("returners", "date_dim store_returns", "state_", "an average of a 13th of all"),
        Reviewed(
            "somewhere_else",
            "customer date_dim store_sales",
            "customer store_sales state_",
            "the greatest of a 7th of all",
        ),
        // After a condition only one changed row remains, and the server expects two rows.
        Reviewed("somewhere_else", "date_dim", "web_sales catalog_sales", "the planner's choice"),
        Reviewed("everywhere", "date_dim", "state_", "the planner's choice"),
        // The user has no index that finds customers by name, or sales by brand.
        Reviewed("everywhere", "customer date_dim store_sales", "customer", "customers of a name"),
        Reviewed("everywhere", "customer", "store_sales web_sales catalog_sales", "customers of a name"),
        Reviewed("spread", "date_dim item store_sales", "store_sales", "deviations that are computed anew"),
        // The partition key is a COALESCE over both sides of a full join, so no restriction can be moved
        // below the join. The query repeats rows by their weight with generate_series, and the server expects
        // 1,000 rows from it.
        Reviewed("cumulative", "date_dim store_sales web_sales", "state_", "a window over a full join"),
        // The server expects one row from a join of two CTEs by three columns, but the join has thousands of
        // rows. So the server joins the next relation by trying all pairs.
        Reviewed("neighbours", "date_dim item", "state_ pairs_refused", "joins of CTEs"),
        Reviewed("neighbours", "store_sales", "pairs_refused", "joins of CTEs"),
        Reviewed("spread", "date_dim item", "state_ pairs_refused", "joins of CTEs"),
        Reviewed("year_over_year", "date_dim", "pairs_refused", "joins of CTEs"),
    ],
};

async fn fill(suite: &Suite, client: &Client, scale: usize) {
    client.batch_execute(suite.schema).await.unwrap();
    run(client, suite.fill, ":scale", scale).await;
}

#[test]
fn deltas_of_nexmark_read_what_a_change_touches() {
    OF_NEXMARK.reads_what_a_change_touches(async |client, scale| fill(&NEXMARK, client, scale).await);
}

#[test]
fn deltas_of_shapes_of_tpcds_read_what_a_change_touches() {
    OF_TPCDS.reads_what_a_change_touches(async |client, scale| fill(&TPCDS, client, scale).await);
}
