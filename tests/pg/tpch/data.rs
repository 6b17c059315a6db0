//! The tables of TPC-H, filled by the rules of its specification, and what changes in them.

use futures_util::SinkExt;
use std::fmt::Display;
use std::pin::pin;
use tokio_postgres::Client;
use tpchgen::distribution::Distributions;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::text::TextPool;

pub(super) const SCHEMA: &str = include_str!("../../tpch/schema.sql");

/// Comments are pieces of this many bytes of text.
const TEXT: i32 = 2_000_000;

/// New orders with their items, as lines of COPY.
pub(super) struct Increment {
    pub(super) orders: Vec<String>,
    pub(super) items: Vec<String>,
}

fn line(row: impl Display) -> String {
    let text = row.to_string();
    text.strip_suffix('|').unwrap_or(&text).to_owned()
}

/// Fills the tables at a scale, where 1 is 6,000,000 items; of the last orders, `kept` are kept back for as many refresh
/// functions RF1 as `increments` says.
pub(super) async fn fill(client: &Client, scale: f64, kept: usize, increments: usize) -> Vec<Increment> {
    client.batch_execute(SCHEMA).await.unwrap();
    let words = Distributions::static_default();
    let text = TextPool::new(TEXT, words);
    let regions = RegionGenerator::new_with_distributions_and_text_pool(words, &text);
    let nations = NationGenerator::new_with_distributions_and_text_pool(words, &text);
    let parts = PartGenerator::new_with_distributions_and_text_pool(scale, 1, 1, words, &text);
    let suppliers = SupplierGenerator::new_with_distributions_and_text_pool(scale, 1, 1, words, &text);
    let offers = PartSuppGenerator::new_with_text_pool(scale, 1, 1, &text);
    let customers = CustomerGenerator::new_with_distributions_and_text_pool(scale, 1, 1, words, &text);
    let orders = OrderGenerator::new_with_distributions_and_text_pool(scale, 1, 1, words, &text);
    let items = LineItemGenerator::new_with_distributions_and_text_pool(scale, 1, 1, words, &text);

    // The data keep the constraints; checking them row by row takes longer than all the rest.
    client.batch_execute("SET session_replication_role = replica").await.unwrap();
    copy(client, "region", regions.iter().map(line)).await;
    copy(client, "nation", nations.iter().map(line)).await;
    copy(client, "part", parts.iter().map(line)).await;
    copy(client, "supplier", suppliers.iter().map(line)).await;
    copy(client, "partsupp", offers.iter().map(line)).await;
    copy(client, "customer", customers.iter().map(line)).await;
    let mut orders: Vec<(i64, String)> = orders.iter().map(|o| (o.o_orderkey, line(o))).collect();
    let mut items: Vec<(i64, String)> = items.iter().map(|i| (i.l_orderkey, line(i))).collect();
    let late = orders.split_off(orders.len() - kept);
    let first_late = late.first().map_or(i64::MAX, |(key, _)| *key);
    let late_items = items.split_off(items.partition_point(|(key, _)| *key < first_late));
    copy(client, "orders", orders.into_iter().map(|(_, line)| line)).await;
    copy(client, "lineitem", items.into_iter().map(|(_, line)| line)).await;
    client.batch_execute("RESET session_replication_role; ANALYZE").await.unwrap();
    let increment = |orders: &[(i64, String)]| {
        let of = |key: &i64| orders.iter().any(|(known, _)| known == key);
        let items = late_items.iter().filter(|(key, _)| of(key));
        Increment {
            orders: orders.iter().map(|(_, line)| line.clone()).collect(),
            items: items.map(|(_, line)| line.clone()).collect(),
        }
    };
    late.chunks(kept.div_ceil(increments.max(1)).max(1)).map(increment).collect()
}

pub(super) async fn copy(client: &Client, table: &str, lines: impl Iterator<Item = String>) {
    let sink = client.copy_in(&format!("COPY {table} FROM STDIN (DELIMITER '|')")).await.unwrap();
    let mut sink = pin!(sink);
    for mut line in lines {
        line.push('\n');
        sink.send(std::io::Cursor::new(line.into_bytes())).await.unwrap();
    }
    sink.finish().await.unwrap();
}
