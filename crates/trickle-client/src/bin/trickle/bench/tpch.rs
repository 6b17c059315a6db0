//! Measures the 22 queries of TPC-H. Each is recomputed and is also refreshed as a stream table, over the
//! same changes.

use super::cycle::{Measured, RefreshMethod, SCHEMA, vacuum};
use super::report::Cell;
use crate::failure::Failure;
use std::time::Instant;
use tokio_postgres::Client;
use trickle_bench::tpch::{Increment, QUERIES, copy, fill};
use trickle_client::{Name, NewStreamTable, Plans, RefreshOptions, Trickle};

/// The number of items at scale 1. `ORDERS` is the number of orders.
const ITEMS: f64 = 6_000_000.0;
const ORDERS: f64 = 1_500_000.0;

/// The share of the orders that change in a cycle. Of these changes 70 % are updates, 15 % deletes and 15 %
/// inserts.
const CHANGED: f64 = 0.001;

/// Tables, results and stream tables at one scale.
pub(crate) struct Fixture<'b> {
    trickle: &'b mut Trickle,
    client: &'b Client,
    scale: f64,
    increments: Vec<Increment>,
}

/// Returns the number of orders that are inserted in a cycle, which is also the number of orders that are
/// deleted.
fn moved(scale: f64) -> usize {
    (ORDERS * scale * CHANGED * 0.15).ceil() as usize
}

fn stored(query: &str) -> Result<Name, Failure> {
    Ok(Name::parse(&format!("{SCHEMA}.kept_{query}"))?)
}

impl<'b> Fixture<'b> {
    /// Fills the tables, and makes each result twice: as a table to recompute, and as a stream table. `tell`
    /// is called with the name of each part of this work.
    pub(crate) async fn new(
        trickle: &'b mut Trickle,
        client: &'b Client,
        scale: f64,
        cycles: usize,
        tell: &dyn Fn(&str),
    ) -> Result<Fixture<'b>, Failure> {
        let path = format!("SET search_path = {SCHEMA}, public");
        client.batch_execute(&format!("CREATE SCHEMA {SCHEMA}; {path}")).await?;
        trickle.read_under(&[SCHEMA, "public"]);
        tell("tables");
        let increments = fill(client, scale, moved(scale) * cycles, cycles).await?;
        vacuum(client).await?;
        for (query, sql) in QUERIES {
            tell(query);
            client.batch_execute(&format!("CREATE TABLE full_{query} AS {sql}")).await?;
            trickle.create(&NewStreamTable::new(stored(query)?, sql)).await?;
        }
        vacuum(client).await?;
        Ok(Fixture { trickle, client, scale, increments })
    }

    /// Returns an empty cell for each query.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let rows = (ITEMS * self.scale) as u32;
        let cell = |(scenario, _)| Cell { scenario, rows, percent: CHANGED * 100.0, measured: Vec::new() };
        QUERIES.into_iter().map(cell).collect()
    }

    /// Changes rows, brings the two results of each query up to date, and compares the results. The two
    /// methods take turns in being first.
    pub(crate) async fn cycle(
        &mut self,
        cycle: usize,
        cells: &mut [Cell],
        tell: &dyn Fn(&Cell, &Measured),
    ) -> Result<(), Failure> {
        self.change(cycle).await?;
        for ((query, sql), cell) in QUERIES.into_iter().zip(cells) {
            let mut ways = [RefreshMethod::Full, RefreshMethod::Incremental];
            ways.rotate_left(cycle % 2);
            for way in ways {
                let started = Instant::now();
                let refreshed = match way {
                    RefreshMethod::Full => {
                        let anew =
                            format!("BEGIN; TRUNCATE full_{query}; INSERT INTO full_{query} {sql}; COMMIT");
                        self.client.batch_execute(&anew).await?;
                        Vec::new()
                    }
                    _ => {
                        let names = [stored(query)?];
                        self.trickle.refresh(&names, &RefreshOptions::default()).await?
                    }
                };
                let measured = Measured { cycle, way, took: started.elapsed(), refreshed };
                tell(cell, &measured);
                cell.measured.push(measured);
            }
            let differ = format!(
                "SELECT (SELECT count(*) FROM (TABLE full_{query} EXCEPT ALL TABLE kept_{query}) x)
                      + (SELECT count(*) FROM (TABLE kept_{query} EXCEPT ALL TABLE full_{query}) x)"
            );
            let different: i64 = self.client.query_one(&differ, &[]).await?.get(0);
            if different > 0 {
                return Err(Failure::failed(format!("{query}: {different} rows are not those of its query")));
            }
        }
        Ok(())
    }

    /// Changes rows once more, and returns the server's plans for the statements of each stream table's
    /// refresh.
    pub(crate) async fn explain(&mut self, cycle: usize) -> Result<Vec<Plans>, Failure> {
        self.change(cycle).await?;
        let mut all = Vec::new();
        for (query, _) in QUERIES {
            let mut plans = Plans::default();
            let names = [stored(query)?];
            self.trickle.refresh_watched(&names, &RefreshOptions::default(), &mut plans).await?;
            all.push(plans);
        }
        Ok(all)
    }

    /// Applies the refresh functions RF1 and RF2 of the specification. Also updates orders with their items,
    /// and a few rows of the smaller tables.
    async fn change(&self, cycle: usize) -> Result<(), Failure> {
        let updated = (ORDERS * self.scale * CHANGED * 0.7).ceil() as usize;
        let (moved, prime) = (moved(self.scale), 7919 * (cycle + 1));
        let some = |table: &str, key: &str, n: usize| {
            format!("(SELECT {key} FROM {table} ORDER BY ({key} * {prime}) % 1000003 LIMIT {n})")
        };
        self.client.batch_execute("BEGIN").await?;
        if let Some(new) = self.increments.get(cycle) {
            copy(self.client, "orders", new.orders.iter().cloned()).await?;
            copy(self.client, "lineitem", new.items.iter().cloned()).await?;
        }
        let changes = format!(
            "CREATE TEMPORARY TABLE leaving ON COMMIT DROP AS {gone};
             DELETE FROM lineitem WHERE l_orderkey IN (TABLE leaving);
             DELETE FROM orders WHERE o_orderkey IN (TABLE leaving);
             CREATE TEMPORARY TABLE chosen ON COMMIT DROP AS
                SELECT o_orderkey FROM orders ORDER BY (o_orderkey * {prime} + 13) % 1000003 LIMIT {updated};
             UPDATE orders SET o_totalprice = o_totalprice * 1.01, o_orderpriority = '2-HIGH'
              WHERE o_orderkey IN (TABLE chosen);
             UPDATE lineitem SET l_quantity = l_quantity % 50 + 1, l_discount = 0.06, l_shipdate = l_shipdate - 9
              WHERE l_orderkey IN (TABLE chosen);
             UPDATE customer SET c_acctbal = c_acctbal - 100.5 WHERE c_custkey IN {customers};
             UPDATE part SET p_size = p_size % 50 + 1 WHERE p_partkey IN {parts};
             UPDATE partsupp SET ps_supplycost = ps_supplycost + 0.5, ps_availqty = ps_availqty - 1
              WHERE ps_partkey IN {offers};
             UPDATE supplier SET s_acctbal = s_acctbal + 1 WHERE s_suppkey IN {suppliers};
             COMMIT",
            gone = some("orders", "o_orderkey", moved),
            customers = some("customer", "c_custkey", 10),
            parts = some("part", "p_partkey", 10),
            offers = some("part", "p_partkey", 10),
            suppliers = some("supplier", "s_suppkey", 2),
        );
        self.client.batch_execute(&changes).await?;
        Ok(())
    }

    /// Removes all objects of the measurement.
    pub(crate) async fn clear(self) -> Result<(), Failure> {
        for (query, _) in QUERIES {
            self.trickle.drop(&stored(query)?, false).await?;
        }
        self.client.batch_execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
        Ok(())
    }
}
