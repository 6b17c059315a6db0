//! A refresh reads only rows that the change touches. The tests compare numbers of rows from EXPLAIN, and no
//! times.

mod benchmark;
mod explained;
mod linked;
mod recursion;
mod time;
mod windows;

use crate::support::newest_server;
pub(crate) use benchmark::{Benchmark, Reviewed};
use explained::{Tables, update};
use std::collections::BTreeSet;

const TABLES: &str = "
CREATE TABLE customers (id int PRIMARY KEY, region int, name text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int NOT NULL, note text);";

/// Data: 20,000 customers, and five orders for every other customer.
const DATA: &str = "
INSERT INTO customers SELECT i, nullif(i % 20000, 0), 'c' || i FROM generate_series(1, 20000) i;
INSERT INTO orders SELECT i, nullif(i % 10001, 0), i % 100, 'n' || i FROM generate_series(1, 50000) i;
CREATE INDEX ON orders (customer);
CREATE INDEX ON customers (region);
ANALYZE customers, orders;";

/// Name and text of the queries.
const QUERIES: &[(&str, &str)] = &[
    ("scan", "SELECT id, customer, amount FROM orders"),
    ("filter", "SELECT id, customer FROM orders WHERE amount > 5"),
    ("join", "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer"),
    ("aggregate", "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer"),
    (
        "aggregate of a join",
        "SELECT c.region, sum(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region",
    ),
    ("left join", "SELECT o.id, o.amount, c.name FROM orders o LEFT JOIN customers c ON c.id = o.customer"),
    (
        "left join of many",
        "SELECT c.id, c.name, o.amount FROM customers c LEFT JOIN orders o ON c.id = o.customer",
    ),
    (
        "semi join",
        "SELECT c.id, c.name FROM customers c WHERE EXISTS (SELECT FROM orders o WHERE o.customer = c.id)",
    ),
    (
        "anti join",
        "SELECT c.id, c.name FROM customers c WHERE NOT EXISTS (SELECT FROM orders o WHERE o.customer = c.id)",
    ),
    ("distinct", "SELECT DISTINCT customer, amount FROM orders"),
    ("maximum", "SELECT customer, max(amount) AS most FROM orders GROUP BY customer"),
    (
        "window",
        "SELECT id, customer, sum(amount) OVER (PARTITION BY customer ORDER BY id) AS running FROM orders",
    ),
    (
        "grouping sets",
        "SELECT customer, note, grouping(customer, note) AS level, count(*) AS n, sum(amount) AS total FROM orders GROUP BY CUBE (customer, note)",
    ),
    (
        "first of each",
        "SELECT DISTINCT ON (customer) customer, id, amount FROM orders ORDER BY customer, amount DESC, id",
    ),
    ("first rows", "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 10"),
];

/// Greatest number of rows that one scan of a plan may read. Few rows have an equal hash or belong to one
/// group.
const MOST: f64 = 100.0;

#[test]
fn a_refresh_reads_what_the_change_touches() {
    newest_server(async |db| {
        let tables = Tables::filled(db, TABLES, DATA).await;
        let mut found = Vec::new();
        for (name, query) in QUERIES {
            let kept = tables.keep(query).await;
            let sources = kept.sources();
            let mut sets: Vec<BTreeSet<_>> = sources.iter().map(|s| BTreeSet::from([s.id])).collect();
            sets.push(sources.iter().map(|s| s.id).collect());
            sets.dedup();
            for changed in sets {
                let changes = sources.iter().filter(|t| changed.contains(&t.id)).map(|t| {
                    let value = if &*t.name == "orders" { "amount = 101" } else { "name = 'x'" };
                    update(t, "id = 8", value)
                });
                let delta = kept.delta(&changed, &changes.collect::<String>()).await;
                found.extend(delta.beyond(&format!("{name}, changed {changed:?}"), |s| s.rows > MOST));
            }
            kept.discard().await;
        }
        tables.assert_none(&found);
    });
}

/// In tables of 50,000 rows, a changed row costs at most one lookup of its old version and one write. A join
/// looks up both versions of the row.
#[test]
fn a_changed_row_is_looked_up_once_and_written_once() {
    const TABLES: &str = "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL);
        CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL, amount int NOT NULL);";
    const DATA: &str = "INSERT INTO customers SELECT i, 'c' || i FROM generate_series(1, 50000) i;
        INSERT INTO orders SELECT i, i, i % 100 FROM generate_series(1, 50000) i; ANALYZE customers, orders;";
    newest_server(async |db| {
        let tables = Tables::filled(db, TABLES, DATA).await;
        let orders = tables.table("orders");
        let mut found = Vec::new();
        for query in [
            "SELECT id, customer, amount FROM orders",
            "SELECT id, amount * 2 AS twice FROM orders WHERE amount > 5",
            "SELECT customer, sum(amount) AS total, count(*) AS n FROM orders GROUP BY customer",
            "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer",
        ] {
            let kept = tables.keep(query).await;
            let changes = update(orders, "id = 8", "amount = amount + 1");
            let delta = kept.delta(&BTreeSet::from([orders.id]), &changes).await;
            let most = |relation: &str| match relation {
                "result" => 1.0,
                "customers" | "orders" => 2.0,
                _ => f64::INFINITY,
            };
            found.extend(delta.beyond(query, |s| s.rows > most(&s.relation)));
            let writes = delta.scans.iter().filter(|s| s.relation == "result" && s.node == "ModifyTable");
            assert_eq!(writes.map(|s| s.rows).sum::<f64>(), 1.0, "{query}");
            kept.discard().await;
        }
        tables.assert_none(&found);
    });
}

/// Keys that may be NULL are hashed or looked up like other keys. The test changes 1,000 of 100,000 groups.
/// The test also changes 1,000 rows of a join that compares by IS NOT DISTINCT FROM. The delta has to find
/// their partners among 100,000 rows.
///
/// If the delta used IS NOT DISTINCT FROM itself, PostgreSQL would try all 100,000,000 pairs, since it has no
/// faster join for this operator. PostgreSQL would also try all pairs if its plan expected one row from the
/// buffer. PostgreSQL expects one row from a buffer that was empty at its last ANALYZE.
#[test]
fn groups_of_a_large_result_are_looked_up_by_nullable_keys() {
    const TABLES: &str = "CREATE TABLE f (id int PRIMARY KEY, k int, l int, v int NOT NULL);
        CREATE TABLE d (id int PRIMARY KEY, k int, name text);";
    const DATA: &str =
        "INSERT INTO f SELECT i, nullif(i % 100000, 0), i % 3, i % 10 FROM generate_series(1, 100000) i;
        INSERT INTO d SELECT i, nullif(i % 100000, 0), 'd' || i FROM generate_series(1, 100000) i;
        CREATE INDEX ON f (k); CREATE INDEX ON d (k); ANALYZE f, d;";
    newest_server(async |db| {
        let tables = Tables::filled(db, TABLES, DATA).await.drained().await;
        let f = tables.table("f");
        let mut found = Vec::new();
        for query in [
            "SELECT k, count(*) AS n, sum(v) AS s FROM f GROUP BY k",
            "SELECT k, l, count(*) AS n, max(v) AS m FROM f GROUP BY k, l",
            "SELECT DISTINCT k, v FROM f",
            "SELECT f.id, f.v, d.name FROM f JOIN d ON f.k IS NOT DISTINCT FROM d.k",
            "SELECT f.v, d.name FROM f LEFT JOIN d ON f.k IS NOT DISTINCT FROM d.k",
            "SELECT k, v FROM f EXCEPT SELECT k, id FROM d",
        ] {
            let kept = tables.keep(query).await;
            let changes = update(f, "id % 100 = 0", "v = v + 1, l = l + 1");
            let delta = kept.delta(&BTreeSet::from([f.id]), &changes).await;
            let all: f64 = delta.scans.iter().map(|s| s.rows).sum();
            found.extend(delta.beyond(query, |_| all >= 2_000_000.0));
            kept.discard().await;
        }
        tables.assert_none(&found);
    });
}
