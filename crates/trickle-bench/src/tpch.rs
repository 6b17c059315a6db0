//! The tables of TPC-H, filled by the rules of the specification. Also the changes of these tables, and the
//! queries of TPC-H.

use futures_util::SinkExt;
use std::fmt::Display;
use std::io::Cursor;
use std::pin::pin;
use tokio_postgres::{Client, Error};
use tpchgen::distribution::Distributions;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen::text::TextPool;

/// The CREATE TABLE statements of the specification's tables, with their keys.
pub const SCHEMA: &str = include_str!("tpch/schema.sql");

macro_rules! queries {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("tpch/", $name, ".sql")))),*]
    };
}

/// Names and texts of the queries. An ORDER BY without a LIMIT is left out.
pub const QUERIES: [(&str, &str); 22] = queries!(
    "q01" "q02" "q03" "q04" "q05" "q06" "q07" "q08" "q09" "q10" "q11"
    "q12" "q13" "q14" "q15" "q16" "q17" "q18" "q19" "q20" "q21" "q22"
);

/// The number of bytes of the text from which the generator cuts comments.
const TEXT: i32 = 2_000_000;

/// The number of bytes at which the collected rows are sent as one message.
const MESSAGE: usize = 64 << 10;

/// New orders with their items, as lines of COPY.
#[derive(Debug)]
pub struct Increment {
    /// Lines of `orders`.
    pub orders: Vec<String>,
    /// Lines of `lineitem`.
    pub items: Vec<String>,
}

fn line(row: impl Display) -> String {
    let text = row.to_string();
    text.strip_suffix('|').unwrap_or(&text).to_owned()
}

/// Creates and fills the tables at a scale, where scale 1 has 6,000,000 items. The last `kept` orders are not
/// inserted. These orders are returned in `increments` parts of about equal size, one part for each run of
/// the refresh function RF1.
///
/// # Errors
/// Fails with the errors of the server.
pub async fn fill(
    client: &Client,
    scale: f64,
    kept: usize,
    increments: usize,
) -> Result<Vec<Increment>, Error> {
    client.batch_execute(SCHEMA).await?;
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

    // The checks of foreign keys are switched off. The data satisfy the keys, and checking the keys row by
    // row takes longer than all other work. If the role may not switch the checks off, the checks run.
    let _ = client.batch_execute("SET session_replication_role = replica").await;
    copy(client, "region", regions.iter().map(line)).await?;
    copy(client, "nation", nations.iter().map(line)).await?;
    copy(client, "part", parts.iter().map(line)).await?;
    copy(client, "supplier", suppliers.iter().map(line)).await?;
    copy(client, "partsupp", offers.iter().map(line)).await?;
    copy(client, "customer", customers.iter().map(line)).await?;
    let early = orders.iter().count() - kept;
    copy(client, "orders", orders.iter().take(early).map(line)).await?;
    let late: Vec<(i64, String)> = orders.iter().skip(early).map(|o| (o.o_orderkey, line(o))).collect();
    let first_late = late.first().map_or(i64::MAX, |(key, _)| *key);
    let is_early = |key: i64| key < first_late;
    copy(client, "lineitem", items.iter().take_while(|i| is_early(i.l_orderkey)).map(line)).await?;
    let late_items: Vec<(i64, String)> = items
        .iter()
        .skip_while(|i| kept == 0 || is_early(i.l_orderkey))
        .map(|i| (i.l_orderkey, line(i)))
        .collect();
    let _ = client.batch_execute("RESET session_replication_role").await;
    client
        .batch_execute("ANALYZE region, nation, part, supplier, partsupp, customer, orders, lineitem")
        .await?;
    let increment = |orders: &[(i64, String)]| {
        let of = |key: &i64| orders.iter().any(|(known, _)| known == key);
        let items = late_items.iter().filter(|(key, _)| of(key));
        Increment {
            orders: orders.iter().map(|(_, line)| line.clone()).collect(),
            items: items.map(|(_, line)| line.clone()).collect(),
        }
    };
    Ok(late.chunks(kept.div_ceil(increments.max(1)).max(1)).map(increment).collect())
}

/// Writes lines into a table. The fields of a line are separated by `|`.
///
/// # Errors
/// Fails with the errors of the server.
pub async fn copy(client: &Client, table: &str, lines: impl Iterator<Item = String>) -> Result<(), Error> {
    let sink = client.copy_in(&format!("COPY {table} FROM STDIN (DELIMITER '|')")).await?;
    let mut sink = pin!(sink);
    let mut full = Vec::new();
    for line in lines {
        full.extend_from_slice(line.as_bytes());
        full.push(b'\n');
        if full.len() >= MESSAGE {
            sink.send(Cursor::new(std::mem::take(&mut full))).await?;
        }
    }
    sink.send(Cursor::new(full)).await?;
    sink.finish().await?;
    Ok(())
}
