//! Measures stream tables over stream tables: a chain, and a wide graph in which a change of one row changes
//! many stream tables.

use super::cycle::{Measured, RefreshMethod, SCHEMA, vacuum};
use crate::failure::Failure;
use std::time::Instant;
use tokio_postgres::Client;
use trickle_client::{Name, NewStreamTable, Plans, RefreshOptions, Trickle};

/// A graph of tables over tables, in layers of equal width. Each table reads the table at its own place in
/// the layer before, and the table at the next place of that layer.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    layers: usize,
    width: usize,
    /// The number of source tables, which the first layer reads.
    sources: usize,
}

/// A chain of 10 stream tables, and a graph of 60.
pub(crate) const SHAPES: [Shape; 2] = [
    Shape { name: "chain_10", layers: 10, width: 1, sources: 1 },
    Shape { name: "dag_60", layers: 6, width: 10, sources: 5 },
];

/// Returns the name of a table of the graph. A table reads tables of its own `kind`, or sources.
fn table(kind: &str, number: usize) -> String {
    format!("{SCHEMA}.{kind}_{number}")
}

fn source(number: usize) -> String {
    format!("{SCHEMA}.source_{number}")
}

impl Shape {
    /// Returns the number of stream tables.
    fn tables(&self) -> usize {
        self.layers * self.width
    }

    /// Returns the query of a table. Joins, outer joins, aggregates and filters take turns from table to
    /// table.
    fn query(&self, kind: &str, number: usize) -> String {
        let (layer, place) = (number / self.width, number % self.width);
        let below = |place: usize| match layer.checked_sub(1) {
            Some(layer) => table(kind, layer * self.width + place % self.width),
            None => source(place % self.sources),
        };
        let (a, b) = (below(place), below(place + 1));
        match (layer + place) % 4 {
            0 => format!("SELECT id, grp, v + 1 AS v FROM {a} WHERE v <> 7"),
            1 => format!("SELECT a.id, a.grp, a.v + b.v AS v FROM {a} a JOIN {b} b ON b.id = a.id"),
            2 => format!("SELECT id, max(grp) AS grp, sum(v) % 1000 AS v FROM {a} GROUP BY id"),
            _ => {
                format!("SELECT a.id, b.grp, a.v FROM {a} a LEFT JOIN {b} b ON b.id = a.id AND b.grp = a.grp")
            }
        }
    }
}

/// A graph of stream tables over sources of one size.
pub(crate) struct Fixture<'b> {
    shape: &'b Shape,
    trickle: &'b mut Trickle,
    client: &'b Client,
    rows: u32,
    names: Vec<Name>,
}

impl<'b> Fixture<'b> {
    /// Makes the sources, and each result twice: as a table to recompute, and as a stream table.
    pub(crate) async fn new(
        shape: &'b Shape,
        trickle: &'b mut Trickle,
        client: &'b Client,
        rows: u32,
    ) -> Result<Fixture<'b>, Failure> {
        client.batch_execute(&format!("CREATE SCHEMA {SCHEMA}")).await?;
        for number in 0..shape.sources {
            let source = source(number);
            let made = format!(
                "CREATE TABLE {source} (id bigint PRIMARY KEY, grp int NOT NULL, v numeric NOT NULL); \
                 INSERT INTO {source} SELECT i, i % 100, i * 7 % 1000 FROM generate_series(1, {rows}) i"
            );
            client.batch_execute(&made).await?;
        }
        let mut names = Vec::new();
        for number in 0..shape.tables() {
            let (full, query) = (table("full", number), shape.query("full", number));
            client.batch_execute(&format!("CREATE TABLE {full} AS {query}; ANALYZE {full}")).await?;
            let name = Name::parse(&table("kept", number))?;
            trickle.create(&NewStreamTable::new(name.clone(), shape.query("kept", number))).await?;
            names.push(name);
        }
        vacuum(client).await?;
        Ok(Fixture { shape, trickle, client, rows, names })
    }

    /// Removes all objects of the measurement.
    pub(crate) async fn clear(self) -> Result<(), Failure> {
        for name in self.names.iter().rev() {
            self.trickle.drop(name, false).await?;
        }
        self.client.batch_execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
        Ok(())
    }

    /// Changes a row of the first source, brings both copies of all results up to date, and compares the
    /// copies. The two methods take turns in being first.
    pub(crate) async fn cycle(&mut self, cycle: usize) -> Result<Vec<Measured>, Failure> {
        self.change(cycle).await?;
        let mut ways = [RefreshMethod::Full, RefreshMethod::Incremental];
        ways.rotate_left(cycle % 2);
        let mut measured = Vec::new();
        for way in ways {
            let started = Instant::now();
            let refreshed = match way {
                RefreshMethod::Full => {
                    self.client.batch_execute(&self.anew()).await?;
                    Vec::new()
                }
                _ => self.trickle.refresh(&self.names, &RefreshOptions::default()).await?,
            };
            measured.push(Measured { cycle, way, took: started.elapsed(), refreshed });
        }
        self.verify().await?;
        Ok(measured)
    }

    /// Changes a row once more, and returns the server's plans for the statements of the refresh.
    pub(crate) async fn explain(&mut self, cycle: usize) -> Result<Plans, Failure> {
        self.change(cycle).await?;
        let mut plans = Plans::default();
        self.trickle.refresh_watched(&self.names, &RefreshOptions::default(), &mut plans).await?;
        Ok(plans)
    }

    async fn change(&self, cycle: usize) -> Result<(), Failure> {
        let id = 1 + cycle * 7919 % self.rows as usize;
        let changed = format!("UPDATE {} SET v = (v + 13) % 1000 WHERE id = {id}", source(0));
        self.client.batch_execute(&changed).await?;
        Ok(())
    }

    /// Returns statements that recompute all tables in one transaction, from the lowest layer up.
    fn anew(&self) -> String {
        let one = |number| {
            let (full, query) = (table("full", number), self.shape.query("full", number));
            format!("TRUNCATE {full}; INSERT INTO {full} {query}; ")
        };
        format!("BEGIN; {}COMMIT", (0..self.shape.tables()).map(one).collect::<String>())
    }

    async fn verify(&self) -> Result<(), Failure> {
        for number in 0..self.shape.tables() {
            let (full, kept) = (table("full", number), table("kept", number));
            let differ = format!(
                "SELECT (SELECT count(*) FROM (TABLE {full} EXCEPT ALL TABLE {kept}) x)
                      + (SELECT count(*) FROM (TABLE {kept} EXCEPT ALL TABLE {full}) x)"
            );
            let different: i64 = self.client.query_one(&differ, &[]).await?.get(0);
            if different > 0 {
                return Err(Failure::failed(format!("{kept}: {different} rows are not those of its query")));
            }
        }
        Ok(())
    }
}
