//! What a look at stream tables costs of which none has anything to do.

use super::cycle::SCHEMA;
use crate::failure::Failure;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trickle_client::{Name, NewStreamTable, RefreshOptions, Trickle};

/// Makes so many stream tables over so many tables, and looks at them so often.
pub(crate) async fn measure(
    (tables, sources): (u32, u32),
    cycles: usize,
    trickle: &mut Trickle,
    client: &Client,
) -> Result<Vec<Duration>, Failure> {
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
    let mut all = Vec::new();
    let looked = look(&names, cycles, trickle, &mut all).await;
    for name in &names {
        trickle.drop(name, false).await?;
    }
    client.batch_execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
    looked.map(|()| all)
}

/// The first look plans what the others find prepared; it counts for nothing.
async fn look(
    names: &[Name],
    cycles: usize,
    trickle: &mut Trickle,
    all: &mut Vec<Duration>,
) -> Result<(), Failure> {
    let registry = trickle.registry().await?;
    let names: BTreeSet<&str> = names.iter().map(|n| &*n.name).collect();
    let entries: Vec<_> = registry.entries().filter(|e| names.contains(&*e.relation.name)).collect();
    for cycle in 0..=cycles {
        let started = Instant::now();
        let pending = trickle.pending(&entries, &RefreshOptions::default()).await?;
        let took = started.elapsed();
        if !pending.is_empty() {
            return Err(Failure::failed(format!("{} stream tables have something to do", pending.len())));
        }
        if cycle > 0 {
            all.push(took);
        }
    }
    Ok(())
}
