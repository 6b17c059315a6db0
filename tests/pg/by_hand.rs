//! The whole path from SQL to a refreshed table. The test itself runs every statement of a compiled stream
//! table, without the engine's refresh machine. These statements suffice, and each kind of refresh gives the
//! same result.

use crate::capture::{run, run_all};
use crate::support::{assert_same_bag, newest_server};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use trickle_client::Session;
use trickle_core::catalog::MemoryCatalog;
use trickle_core::cdc::Mode;
use trickle_core::sql::ast::{Param, Statement};
use trickle_core::sql::print;
use trickle_core::{Options, Refresh, StreamTable, compile};

/// A stream table on a server, with its frontier.
struct Kept {
    table: StreamTable,
    query: &'static str,
    frontier: String,
}

/// Runs a statement. Returns the row that the statement returns, if any.
async fn execute(s: &Session, statement: &Statement, frontier: &str) -> Option<Row> {
    let printed = print(statement);
    let own: (Option<String>, Option<i64>) = (None, None);
    let params: Vec<&(dyn ToSql + Sync)> = printed
        .params
        .iter()
        .map(|p| -> &(dyn ToSql + Sync) {
            match p {
                Param::FrontierXid(_) => &own.0,
                Param::FrontierCommand(_) | Param::Pending(_) => &own.1,
                _ => &frontier,
            }
        })
        .collect();
    let done = s.client().query_opt(&printed.text, &params).await;
    done.unwrap_or_else(|e| panic!("{e:?}\n{}", printed.text))
}

impl Kept {
    async fn create(
        s: &Session,
        query: &'static str,
        name: &str,
        catalog: &MemoryCatalog,
        mode: Mode,
    ) -> Kept {
        let table = compile(query, catalog, &Options::new("public", name)).unwrap().incremental().unwrap();
        run_all(s, &table.ddl()).await;
        for (_, statements) in table.capture(mode) {
            run_all(s, &statements).await;
        }
        let mut kept = Kept { table, query, frontier: String::new() };
        kept.refresh(s, Refresh::Replace).await;
        kept
    }

    /// Refreshes. Returns the numbers of inserted, updated and deleted rows, if the last statement returns
    /// them.
    async fn refresh(&mut self, s: &Session, how: Refresh) -> Option<[i64; 3]> {
        run(s, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        let now: String =
            s.client().query_one("SELECT pg_current_snapshot()::text", &[]).await.unwrap().get(0);
        let all = self.table.sources().into_iter().map(|(t, _)| t.id).collect();
        let mut done = None;
        for statement in self.table.refresh(how, &all).unwrap() {
            done = execute(s, &statement, &self.frontier).await;
        }
        run(s, "COMMIT").await;
        self.frontier = now;
        done.map(|row| [0, 1, 2].map(|i| row.get(i)))
    }

    async fn assert_fresh(&self, s: &Session) {
        let stored = format!("SELECT * FROM {}", self.table.layout().result.name);
        assert_same_bag(s, &stored, self.query).await;
    }

    async fn remove(&self, s: &Session, mode: Mode) {
        for buffer in self.table.buffers() {
            run_all(s, &mode.source().remove(&buffer)).await;
        }
        run_all(s, &self.table.drop_ddl()).await;
    }
}

const SHOP: &str = "CREATE TABLE customer (id int PRIMARY KEY, name text NOT NULL, region text);
    CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10,2), note text);";

const QUERIES: &[&str] = &[
    "SELECT id, customer, amount FROM orders",
    "SELECT customer, amount FROM orders",
    "SELECT id, amount FROM orders WHERE amount > 20",
    "SELECT o.id, o.amount, c.name FROM orders o JOIN customer c ON o.customer = c.id",
    "SELECT c.region, count(*) AS n, sum(o.amount) AS total, min(o.amount) AS least, avg(o.amount) AS mean
     FROM orders o JOIN customer c ON o.customer = c.id GROUP BY c.region",
    "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer",
    "SELECT count(*) AS n, sum(amount) AS total FROM orders",
];

const FILL: &str = "DELETE FROM customer; DELETE FROM orders;
    INSERT INTO customer SELECT i, 'c' || i, CASE i % 3 WHEN 0 THEN 'north' WHEN 1 THEN 'south' END
    FROM generate_series(0, 12) i;
    INSERT INTO orders SELECT i, i % 13, i % 40 + 0.25, NULL FROM generate_series(1, 200) i";

/// Changes. Each text is the window of one refresh.
const WINDOWS: &[&str] = &[
    "UPDATE orders SET amount = amount + 1 WHERE id % 5 = 0",
    "DELETE FROM orders WHERE id % 7 = 0; INSERT INTO orders SELECT i, i % 13, i, 'n' FROM generate_series(201, 230) i",
    "UPDATE customer SET region = 'west' WHERE id % 4 = 0; UPDATE orders SET customer = NULL WHERE id % 11 = 0",
    "DELETE FROM customer WHERE id IN (1, 2); DELETE FROM orders WHERE customer = 3",
    "UPDATE orders SET note = 'nobody reads this'",
    "INSERT INTO customer VALUES (1, 'back', NULL); UPDATE orders SET id = id + 1000 WHERE id < 20",
    "DELETE FROM orders",
    "INSERT INTO orders VALUES (1, 1, 30.50, NULL), (2, NULL, NULL, NULL)",
];

#[test]
fn from_sql_to_a_refreshed_table() {
    newest_server(async |db| {
        let s = db.session().await;
        let other = db.session().await;
        run(&s, &format!("CREATE SCHEMA pgtrickle_changes; {SHOP}")).await;
        let catalog = MemoryCatalog::from_ddl(SHOP).unwrap();
        for (i, query) in QUERIES.iter().enumerate() {
            let mode = Mode::PLAIN[i % 2];
            run(&s, FILL).await;
            let mut kept = Kept::create(&s, query, &format!("st_{i}"), &catalog, mode).await;
            kept.assert_fresh(&s).await;
            for window in WINDOWS {
                run(&s, window).await;
                kept.refresh(&s, Refresh::Delta).await;
                kept.assert_fresh(&s).await;
            }
            // A transaction is open during a refresh. Its changes belong to the first window after its
            // commit.
            run(&other, "BEGIN; INSERT INTO orders VALUES (500, 5, 77, NULL)").await;
            run(&s, "INSERT INTO orders VALUES (501, 5, 78, NULL)").await;
            kept.refresh(&s, Refresh::Delta).await;
            kept.assert_fresh(&s).await;
            run(&other, "COMMIT").await;
            kept.refresh(&s, Refresh::Delta).await;
            kept.assert_fresh(&s).await;
            kept.refresh(&s, Refresh::Delta).await;
            kept.assert_fresh(&s).await;
            run(&s, "UPDATE orders SET amount = 1; DELETE FROM customer WHERE id = 7").await;
            kept.refresh(&s, Refresh::Difference).await;
            kept.assert_fresh(&s).await;
            kept.remove(&s, mode).await;
        }
    });
}

/// Queries whose rows correspond to rows of a table with a key: with conditions, expressions, joined tables
/// and EXISTS.
const KEYED: &[&str] = &[
    "SELECT id, customer, amount FROM orders",
    "SELECT id FROM orders WHERE amount > 20",
    "SELECT id AS a, -id AS b, amount / nullif(customer, 0) AS c, note FROM orders WHERE amount > 20",
    "SELECT id, 100 / (customer - 4) AS x FROM orders WHERE customer > 4",
    "SELECT o.id, o.amount, c.name FROM orders o JOIN customer c ON o.customer = c.id",
    "SELECT o.id, o.amount, c.name FROM customer c JOIN orders o ON o.customer = c.id WHERE c.region = 'north'",
    "SELECT o.id, c.name, d.region FROM orders o LEFT JOIN customer c ON o.customer = c.id AND c.id > 3
     LEFT JOIN customer d ON d.id = o.id AND d.name <> c.name",
    "SELECT id, amount FROM orders o WHERE EXISTS (SELECT FROM customer c WHERE c.id = o.customer AND region = 'south')",
    "SELECT id, amount FROM orders o WHERE NOT EXISTS (SELECT FROM customer c WHERE c.id = o.customer)",
];

#[test]
fn rows_of_affected_keys_are_written_where_they_differ() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, &format!("CREATE SCHEMA pgtrickle_changes; {SHOP}")).await;
        let catalog = MemoryCatalog::from_ddl(SHOP).unwrap();
        for (i, query) in KEYED.iter().enumerate() {
            run(&s, FILL).await;
            let mut kept = Kept::create(&s, query, &format!("st_{i}"), &catalog, Mode::PLAIN[i % 2]).await;
            assert!(kept.table.has_affected_groups(), "{query}");
            for window in WINDOWS {
                run(&s, window).await;
                kept.refresh(&s, Refresh::AffectedGroups).await;
                kept.assert_fresh(&s).await;
            }
            run(&s, FILL).await;
            kept.refresh(&s, Refresh::Delta).await;
            kept.assert_fresh(&s).await;
            // The refresh does not write a row that changed and then changed back to its former values.
            run(
                &s,
                "UPDATE orders SET amount = amount + 1, customer = 8; UPDATE customer SET name = name || 'x'",
            )
            .await;
            run(&s, "UPDATE orders SET amount = amount - 1, customer = id % 13").await;
            run(&s, "UPDATE customer SET name = 'c' || id; DELETE FROM orders WHERE id = 5").await;
            run(&s, "INSERT INTO orders VALUES (5, 5, 5.25, NULL)").await;
            let done = kept.refresh(&s, Refresh::AffectedGroups).await;
            assert_eq!(done, Some([0, 0, 0]), "{query}");
            kept.assert_fresh(&s).await;
            kept.remove(&s, Mode::PLAIN[i % 2]).await;
        }
    });
}

/// A value that equals the former value but is written differently counts as changed. The result rows of some
/// queries do not correspond to keys of their table. Such a query gains nothing from a refresh by affected
/// rows.
#[test]
fn affected_rows_are_compared_as_they_are_written() {
    let ddl = "CREATE TABLE t (id numeric PRIMARY KEY, v numeric, j json)";
    let catalog = MemoryCatalog::from_ddl(ddl).unwrap();
    newest_server(async |db| {
        let s = db.session().await;
        run(
            &s,
            &format!(
                "CREATE SCHEMA pgtrickle_changes; {ddl}; INSERT INTO t VALUES (1, 2, '{{}}'), (3, 4, NULL)"
            ),
        )
        .await;
        let mut kept = Kept::create(&s, "SELECT id, v, j FROM t", "st", &catalog, Mode::Statement).await;
        run(&s, r#"UPDATE t SET v = 2.00, j = '{ }' WHERE id = 1; UPDATE t SET id = 3.0 WHERE id = 3"#).await;
        assert_eq!(kept.refresh(&s, Refresh::AffectedGroups).await, Some([0, 2, 0]));
        let stored = "SELECT string_agg(concat_ws(' ', id, v, j), ', ' ORDER BY id) FROM public.st";
        let text: String = s.client().query_one(stored, &[]).await.unwrap().get(0);
        assert_eq!(text, "1 2.00 { }, 3.0 4");
    });
    for query in [
        "SELECT v FROM t",
        "SELECT v, count(*) FROM t GROUP BY v",
        "SELECT DISTINCT v FROM t",
        "SELECT id, now() > '2020-01-01' AS x FROM t",
    ] {
        let table = compile(query, &catalog, &Options::new("public", "st")).unwrap().incremental();
        assert!(!table.is_some_and(|t| t.has_affected_groups()), "{query}");
    }
}
