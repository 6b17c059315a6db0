//! The shop of the demo: its tables, its stream tables, and the people who write to it.

use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trickle_client::{Result, failed};

/// The tables, without data.
const TABLES: &str = include_str!("shop.sql");

/// A stream table of the demo.
pub(crate) struct View {
    pub(crate) name: &'static str,
    pub(crate) shows: &'static str,
    pub(crate) query: &'static str,
}

/// The stream tables of the demo. Each comes after the stream tables that it reads.
pub(crate) const VIEWS: &[View] = &[
    View {
        name: "sales_by_region",
        shows: "join and aggregate, by region and month",
        query: "SELECT c.region, date_trunc('month', o.placed_at) AS month, count(*) AS items,
                       sum(i.quantity * i.price) AS revenue
                FROM items i JOIN orders o ON o.id = i.order_id JOIN customers c ON c.id = o.customer_id
                GROUP BY c.region, date_trunc('month', o.placed_at)",
    },
    View {
        name: "idle_customers",
        shows: "anti-join: customers without an order",
        query: "SELECT c.id, c.name, c.region FROM customers c
                WHERE NOT EXISTS (SELECT FROM orders o WHERE o.customer_id = c.id)",
    },
    View {
        name: "product_sales",
        shows: "outer join and aggregate, by product",
        query: "SELECT p.id, p.name, p.category, count(i.id) AS sold, coalesce(sum(i.quantity * i.price), 0) AS revenue
                FROM products p LEFT JOIN items i ON i.product_id = p.id GROUP BY p.id",
    },
    View {
        name: "order_totals",
        shows: "outer join and aggregate, by order",
        query: "SELECT o.id, o.customer_id, o.placed_at, count(i.id) AS items, coalesce(sum(i.quantity * i.price), 0) AS total
                FROM orders o LEFT JOIN items i ON i.order_id = o.id GROUP BY o.id",
    },
    View {
        name: "customer_history",
        shows: "window functions over another stream table",
        query: "SELECT id, customer_id, total, row_number() OVER w AS nth, sum(total) OVER w AS so_far FROM order_totals
                WINDOW w AS (PARTITION BY customer_id ORDER BY placed_at, id)",
    },
    View {
        name: "customer_worth",
        shows: "a join with another stream table, by customer",
        query: "SELECT c.id, c.name, c.region, count(*) AS orders, sum(t.total) AS revenue, max(t.total) AS best
                FROM customers c JOIN order_totals t ON t.customer_id = c.id GROUP BY c.id",
    },
];

/// Numbers of rows, by table.
pub(crate) struct Sizes {
    pub(crate) customers: i32,
    pub(crate) products: i32,
    pub(crate) orders: i32,
    pub(crate) items: i32,
}

impl Sizes {
    pub(crate) fn of(rows: u32) -> Sizes {
        let part = |share: f64, least: i32| ((f64::from(rows) * share) as i32).max(least);
        Sizes {
            customers: part(0.03, 30),
            products: part(0.005, 10),
            orders: part(0.215, 100),
            items: part(0.75, 300),
        }
    }
}

/// Makes the tables and fills them. About one customer in twenty has ordered nothing.
pub(crate) async fn load(client: &Client, sizes: &Sizes, say: &dyn Fn(&str)) -> Result<()> {
    let Sizes { customers, products, orders, items } = sizes;
    let steps = [
        ("tables", TABLES.to_owned()),
        (
            "customers and products",
            format!(
                "INSERT INTO customers SELECT i, 'customer ' || i, (ARRAY['north', 'south', 'east', 'west'])[1 + i % 4]
                 FROM generate_series(1, {customers}) i;
                 INSERT INTO products SELECT i, 'product ' || i, 'category ' || i % 20, 1 + (i * 37 % 10000) / 100.0
                 FROM generate_series(1, {products}) i"
            ),
        ),
        (
            "orders",
            format!(
                "INSERT INTO orders SELECT i, 1 + (i::bigint * 7919 % greatest({customers} * 19 / 20, 1))::int,
                 timestamp '2025-01-01' + i % 525600 * interval '1 minute' FROM generate_series(1, {orders}) i"
            ),
        ),
        (
            "items",
            format!(
                "SELECT setseed(0.5);
                 INSERT INTO items SELECT i, 1 + (i::bigint * 104729 % {orders})::int,
                 1 + floor({products} * power(random(), 2))::int, 1 + i % 5, 1 + (i::bigint * 37 % 10000) / 100.0
                 FROM generate_series(1, {items}) i"
            ),
        ),
        (
            "indexes",
            "CREATE INDEX ON orders (customer_id); CREATE INDEX ON items (order_id); CREATE INDEX ON items (product_id);
             ANALYZE"
                .to_owned(),
        ),
    ];
    for (what, text) in steps {
        say(what);
        client.batch_execute(&text).await.map_err(|e| failed(format!("load {what}"), e))?;
    }
    Ok(())
}

/// Measures a recompute of a stream table's query: CREATE TABLE AS, as a person would run it, over analyzed
/// tables.
pub(crate) async fn compute_anew(client: &Client, view: &View) -> Result<Duration> {
    let begun = Instant::now();
    let anew = format!("CREATE TEMPORARY TABLE anew AS {}", view.query);
    client.batch_execute(&anew).await.map_err(|e| failed("compute a query anew", e))?;
    let took = begun.elapsed();
    client.batch_execute("DROP TABLE anew").await.map_err(|e| failed("compute a query anew", e))?;
    Ok(took)
}

/// Writes one turn of the people who use the shop. These are new orders, changed and returned items, new
/// customers, and sometimes a new price or a customer who moves. Returns the number of written rows.
pub(crate) async fn write(client: &Client, sizes: &Sizes, turn: i32) -> Result<u64> {
    let Sizes { customers, products, orders, items } = sizes;
    let (order, item) = (orders + turn * 10, items + turn * 30);
    let texts = [
        format!(
            "INSERT INTO orders SELECT {order} + i, 1 + ({turn} * 31 + i * 7) % {customers}, \
             timestamp '2026-01-01' + ({turn} * 10 + i) * interval '1 minute' FROM generate_series(1, 10) i"
        ),
        format!(
            "INSERT INTO items SELECT {item} + i, {order} + 1 + i % 10, 1 + ({turn} * 13 + i * 11) % {products}, \
             1 + i % 3, 5 + i FROM generate_series(1, 30) i"
        ),
        format!(
            "UPDATE items SET quantity = quantity + 1 WHERE id BETWEEN {turn} * 17 % {items} AND {turn} * 17 % {items} + 15"
        ),
        format!("DELETE FROM items WHERE id BETWEEN {turn} * 23 % {items} AND {turn} * 23 % {items} + 4"),
        format!(
            "INSERT INTO customers VALUES ({customers} + {turn}, 'customer new {turn}', 'north') ON CONFLICT DO NOTHING"
        ),
        format!("UPDATE customers SET region = 'south' WHERE id = 1 + {turn} * 3 % {customers}"),
    ];
    let mut rows = 0;
    for text in texts {
        rows += client.execute(&text, &[]).await.map_err(|e| failed("write to the shop", e))?;
    }
    Ok(rows)
}
