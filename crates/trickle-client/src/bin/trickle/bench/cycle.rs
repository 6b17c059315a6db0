//! Measures one cell of the matrix. All methods of refreshing a result get the same changes, and take turns.
//! All results are compared with the query.

use super::scenario::{CAPTURED, Hand, Scenario, TABLES};
use crate::failure::Failure;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trickle_client::{Name, NewStreamTable, Plans, RefreshOptions, Refreshed, Trickle};

/// The schema of all objects of the measurement.
pub(crate) const SCHEMA: &str = "trickle_bench";

/// A method of bringing a result up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefreshMethod {
    /// TRUNCATE and INSERT … SELECT.
    Full,
    /// A stream table.
    Incremental,
    /// SQL that an expert wrote.
    Hand,
    /// A stream table that the SQL API of the extension refreshes.
    Extension,
}

impl RefreshMethod {
    pub(crate) const ALL: [RefreshMethod; 4] =
        [RefreshMethod::Full, RefreshMethod::Incremental, RefreshMethod::Hand, RefreshMethod::Extension];

    pub(crate) fn name(self) -> &'static str {
        match self {
            RefreshMethod::Full => "full",
            RefreshMethod::Incremental => "incremental",
            RefreshMethod::Hand => "hand",
            RefreshMethod::Extension => "extension",
        }
    }
}

/// The time that one method took in one cycle.
pub(crate) struct Measured {
    pub(crate) cycle: usize,
    pub(crate) way: RefreshMethod,
    pub(crate) took: Duration,
    /// The program's refreshes of the stream table; empty for other methods.
    pub(crate) refreshed: Vec<Refreshed>,
}

/// Vacuums and analyzes the tables of the schema, and nothing else in the database.
pub(super) async fn vacuum(client: &Client) -> Result<(), Failure> {
    let tables = "SELECT string_agg(oid::regclass::text, ', ') FROM pg_class \
         WHERE relkind = 'r' AND relnamespace = to_regnamespace($1)";
    let tables: String = client.query_one(tables, &[&SCHEMA]).await?.get(0);
    client.batch_execute(&format!("VACUUM ANALYZE {tables}")).await?;
    Ok(())
}

/// A scenario over tables of one size.
pub(crate) struct Fixture<'b> {
    scenario: &'b Scenario,
    trickle: &'b mut Trickle,
    /// The session for everything but the stream table.
    client: &'b Client,
    rows: u32,
    /// The measured methods: all, without [`RefreshMethod::Extension`] if the server has no extension.
    ways: Vec<RefreshMethod>,
}

impl<'b> Fixture<'b> {
    /// Makes the tables, and the result once for each method.
    pub(crate) async fn new(
        scenario: &'b Scenario,
        trickle: &'b mut Trickle,
        client: &'b Client,
        rows: u32,
        extension: bool,
    ) -> Result<Fixture<'b>, Failure> {
        client.batch_execute(&format!("CREATE SCHEMA {SCHEMA}")).await?;
        let path = format!("SET search_path = {SCHEMA}, public");
        client.batch_execute(&path).await?;
        trickle.read_under(&[SCHEMA, "public"]);
        client.batch_execute(&TABLES.replace(":rows", &rows.to_string())).await?;
        client.batch_execute(scenario.tables).await?;
        client.batch_execute(&CAPTURED.replace(":facts", scenario.facts)).await?;
        client.batch_execute(&format!("CREATE TABLE by_full AS {}", scenario.query)).await?;
        let Hand { key, beside, .. } = scenario.hand;
        let query = scenario.query;
        let made =
            format!("CREATE TABLE by_hand AS {query}; ALTER TABLE by_hand ADD PRIMARY KEY ({key}); {beside}");
        client.batch_execute(&made).await?;
        vacuum(client).await?;
        let new = NewStreamTable::new(Name::parse("trickle_bench.by_trickle")?, scenario.query);
        trickle.create(&new).await?;
        let mut ways = RefreshMethod::ALL.to_vec();
        if extension {
            let text = "SELECT pgtrickle.create_stream_table('trickle_bench.by_extension', $1::text)";
            client.query_one(text, &[&scenario.query]).await?;
        } else {
            ways.retain(|way| *way != RefreshMethod::Extension);
        }
        vacuum(client).await?;
        Ok(Fixture { scenario, trickle, client, rows, ways })
    }

    /// Returns the tables with the results, each with the method that refreshes the table.
    fn results(&self) -> Vec<(RefreshMethod, &'static str)> {
        let all = [
            (RefreshMethod::Full, "by_full"),
            (RefreshMethod::Incremental, "by_trickle"),
            (RefreshMethod::Hand, "by_hand"),
            (RefreshMethod::Extension, "by_extension"),
        ];
        all.into_iter().filter(|(way, _)| self.ways.contains(way)).collect()
    }

    /// Removes all objects of the measurement.
    pub(crate) async fn clear(self) -> Result<(), Failure> {
        for (way, table) in self.results() {
            if matches!(way, RefreshMethod::Incremental | RefreshMethod::Extension) {
                self.trickle.drop(&Name::parse(&format!("{SCHEMA}.{table}"))?, false).await?;
            }
        }
        self.client.batch_execute(&format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
        Ok(())
    }

    /// Changes `percent` of the rows, refreshes the results by each method, and compares the results. The
    /// methods take turns in being first.
    pub(crate) async fn cycle(&mut self, cycle: usize, percent: f64) -> Result<Vec<Measured>, Failure> {
        self.change(cycle, percent).await?;
        let mut ways = self.ways.clone();
        let turn = cycle % ways.len();
        ways.rotate_left(turn);
        let mut measured = Vec::new();
        for way in ways {
            let started = Instant::now();
            let refreshed = self.refresh(way).await?;
            measured.push(Measured { cycle, way, took: started.elapsed(), refreshed });
        }
        self.verify().await?;
        Ok(measured)
    }

    /// Changes rows once more, and returns the server's plans for the statements of the program's refresh.
    pub(crate) async fn explain(&mut self, cycle: usize, percent: f64) -> Result<Plans, Failure> {
        self.change(cycle, percent).await?;
        let names = [Name::parse("trickle_bench.by_trickle")?];
        let mut plans = Plans::default();
        self.trickle.refresh_watched(&names, &RefreshOptions::default(), &mut plans).await?;
        self.refresh(RefreshMethod::Hand).await?;
        Ok(plans)
    }

    /// Changes rows all over the table: 70 % updates, 15 % deletes, 15 % inserts. All methods get the same
    /// changes.
    async fn change(&self, cycle: usize, percent: f64) -> Result<(), Failure> {
        let n = (f64::from(self.rows) * percent / 100.0).max(1.0);
        let (updates, others) = ((n * 0.7).ceil(), (n * 0.15).floor());
        let mut sql = format!(
            "BEGIN; SELECT setseed({seed});
             CREATE TEMPORARY TABLE chosen ON COMMIT DROP AS
                SELECT id, row_number() OVER () AS place FROM (SELECT id FROM {facts} ORDER BY random() LIMIT {all}) x;
             UPDATE {facts} SET amount = (amount + 1234.56) % 10000, score = (score + 17) % 100,
                region = CASE WHEN id % 10 = {turn} THEN 'r' || score % 10 ELSE region END
                WHERE id IN (SELECT id FROM chosen WHERE place <= {updates});
             DELETE FROM {facts} WHERE id IN (SELECT id FROM chosen WHERE place > {updates});
             INSERT INTO {facts} (id, region, category, amount, score, product) SELECT top + i, 'r' || i % 10, 'c' || i % 50, i * 7919::bigint % 1000000 / 100.0, i % 100, i % 10000
                FROM (SELECT max(id) AS top FROM {facts}) t, generate_series(1, {others}::int) i;",
            seed = f64::from(u32::try_from(cycle % 1000).unwrap_or(0)) / 1000.0,
            all = updates + others,
            turn = cycle % 10,
            facts = self.scenario.facts,
        );
        if let Some(which) = self.scenario.products {
            let which = which.replace(":cycle", &cycle.to_string());
            sql.push_str(&format!(
                "UPDATE product SET label = label || '*', listed = NOT listed WHERE {which};"
            ));
        }
        sql.push_str("COMMIT");
        self.client.batch_execute(&sql).await?;
        Ok(())
    }

    async fn refresh(&mut self, way: RefreshMethod) -> Result<Vec<Refreshed>, Failure> {
        match way {
            RefreshMethod::Full => {
                let query = self.scenario.query;
                let anew = format!("BEGIN; TRUNCATE by_full; INSERT INTO by_full {query}; COMMIT");
                self.client.batch_execute(&anew).await?;
                Ok(Vec::new())
            }
            RefreshMethod::Incremental => {
                let names = [Name::parse("trickle_bench.by_trickle")?];
                Ok(self.trickle.refresh(&names, &RefreshOptions::default()).await?)
            }
            RefreshMethod::Extension => {
                let text = "SELECT pgtrickle.refresh_stream_table('trickle_bench.by_extension')";
                self.client.batch_execute(text).await?;
                Ok(Vec::new())
            }
            RefreshMethod::Hand => {
                let statement = self.scenario.hand.refresh.replace(":facts", self.scenario.facts);
                let emptied = format!("TRUNCATE {}_changes, product_changes", self.scenario.facts);
                self.client.batch_execute(&format!("BEGIN; {statement}; {emptied}; COMMIT")).await?;
                Ok(Vec::new())
            }
        }
    }

    /// Checks that each result has the same rows as the query, each row equally often.
    async fn verify(&self) -> Result<(), Failure> {
        for (_, table) in self.results() {
            let query = self.scenario.query;
            let differ = format!(
                "SELECT (SELECT count(*) FROM (SELECT * FROM {table} EXCEPT ALL ({query})) x)
                      + (SELECT count(*) FROM (({query}) EXCEPT ALL SELECT * FROM {table}) x)"
            );
            let different: i64 = self.client.query_one(&differ, &[]).await?.get(0);
            if different > 0 {
                let name = self.scenario.name;
                return Err(Failure::failed(format!(
                    "{name}: {different} rows of {table} are not those of its query"
                )));
            }
        }
        Ok(())
    }
}
