//! Measures the cost of a look at stream tables if none of them has anything to do.

use super::cycle::SCHEMA;
use crate::failure::Failure;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trickle_client::{Name, NewStreamTable, Trickle};
use trickle_engine::scheduler::{Scheduler, SchedulerOptions, now};

/// The durations of a refresher's looks, one each second, if no stream table has anything to do.
#[derive(Default)]
pub(crate) struct Looks {
    /// Durations of reading the catalog. Each reading finds stream tables that were made or altered and,
    /// every few seconds, sources that were altered.
    pub(crate) catalog: Vec<Duration>,
    /// Durations of looking for changes.
    pub(crate) changes: Vec<Duration>,
}

/// The number of first looks that are not measured. After these looks all statements are prepared, and one
/// look covers all stream tables together.
const WARM: usize = 4;

/// Makes this many stream tables over this many sources, and measures `cycles` looks at the stream tables.
pub(crate) async fn measure(
    (tables, sources): (u32, u32),
    cycles: usize,
    trickle: &mut Trickle,
    client: &Client,
) -> Result<Looks, Failure> {
    client.batch_execute(&format!("CREATE SCHEMA {SCHEMA}")).await?;
    for i in 0..sources {
        let source = format!("{SCHEMA}.source_{i}");
        let made = format!(
            "CREATE TABLE {source} (id int PRIMARY KEY, v int); INSERT INTO {source} VALUES (1, 1), (2, 2)"
        );
        client.batch_execute(&made).await?;
    }
    let mut names = Vec::new();
    for i in 0..tables {
        let source = format!("{SCHEMA}.source_{}", i % sources.max(1));
        let name = Name::parse(&format!("{SCHEMA}.kept_{i}"))?;
        let query = format!("SELECT id, v FROM {source} WHERE v > 1");
        trickle.create(&NewStreamTable::new(name.clone(), query)).await?;
        names.push(name);
    }
    let looked = look(cycles, trickle).await;
    for name in &names {
        trickle.drop(name, false).await?;
    }
    client.batch_execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
    looked
}

/// Looks for work every second, as `trickle run` does. A look that begins slightly less than a second after
/// the previous look does not read the catalog. So the looks go on until `cycles` looks and `cycles` readings
/// of the catalog are measured.
async fn look(cycles: usize, trickle: &mut Trickle) -> Result<Looks, Failure> {
    let options = SchedulerOptions::default();
    let mut scheduler = Scheduler::new(options);
    let mut looks = Looks::default();
    let mut warming = WARM;
    while looks.catalog.len() < cycles || looks.changes.len() < cycles {
        let started = Instant::now();
        let asked = scheduler.reload(trickle).await?;
        let reloaded = Instant::now();
        let found = scheduler.look(trickle).await?;
        let looked = Instant::now();
        if let Some(due) = found.due.first() {
            let names = scheduler.names(&due.members).join(", ");
            return Err(Failure::failed(format!("{names}: something is to be done")));
        }
        if warming > 0 {
            warming -= 1;
        } else {
            if asked {
                looks.catalog.push(reloaded - started);
            }
            looks.changes.push(looked - reloaded);
        }
        let wake = found.wake.map_or(options.reload, |at| at.since(now()));
        tokio::time::sleep(wake.min(options.reload)).await;
    }
    Ok(looks)
}
