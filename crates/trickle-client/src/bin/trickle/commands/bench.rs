//! `trickle bench`

use super::{Answer, Run};
use crate::bench::cycle::{Bed, SCHEMA};
use crate::bench::report::{self, Cell};
use crate::bench::scenario::{SCENARIOS, Scenario};
use crate::failure::Failure;
use crate::output::Output;
use crate::server;
use trickle_client::throwaway::{self, Server};
use trickle_client::{Session, Settings, Trickle};

/// Measure refreshes: a stream table beside computing the whole anew, and beside what an expert writes by hand.
///
/// Works in a schema of its own, which it makes and drops, on the server that the options name or on a private throw-away
/// one. Every cycle changes rows (70 % updates, 15 % deletes, 15 % inserts), refreshes in each way, in turns, and compares
/// every result with its query.
///
/// Exit code 1: a result was not what its query gives.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// Which scenarios [default: all].
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = scenario)]
    scenario: Vec<String>,
    /// Rows in the table of facts.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000],
          value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    rows: Vec<u32>,
    /// Rows that change in a cycle, in percent.
    #[arg(long, value_name = "P", value_delimiter = ',', default_values_t = [1.0, 10.0, 50.0], value_parser = percent)]
    pct: Vec<f64>,
    /// Cycles; the first of each cell warms up.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    cycles: u32,
    /// How many times the better of the others a refresh may take.
    #[arg(long, value_name = "F", default_value_t = 1.25)]
    target: f64,
    /// Start a private throw-away PostgreSQL, as the demo does.
    #[arg(long)]
    private: bool,
}

fn scenario(name: &str) -> Result<String, String> {
    let names: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
    match names.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("there are {}", names.join(", "))),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().map_err(|e| e.to_string())?;
    if value > 0.0 && value <= 90.0 { Ok(value) } else { Err("between 0 and 90 percent".to_owned()) }
}

/// Where it is measured: over two sessions, one of them that of the stream tables.
struct Place {
    trickle: Trickle,
    session: Session,
    /// Stopped when it is dropped, after the sessions.
    private: Option<Server>,
}

impl Bench {
    async fn place(&self, output: &Output) -> Result<Place, Failure> {
        if !self.private {
            let (trickle, _) = server::attach(output).await?;
            let session = Session::new(output.target()?.connect().await?);
            return Ok(Place { trickle, session, private: None });
        }
        let (_, binaries) =
            throwaway::find()?.pop_last().ok_or_else(|| Failure::failed("no PostgreSQL was found"))?;
        let settings = ["shared_buffers=512MB", "fsync=off", "max_wal_size=4GB"];
        let mut server = Server::start(&binaries, "bench", &settings)?;
        server.ready().await?;
        let session = Session::connect(&server.config("postgres")).await?;
        let own = Session::connect(&server.config("postgres")).await?;
        Ok(Place {
            trickle: Trickle::attach(own, Settings::default()).await?,
            session,
            private: Some(server),
        })
    }
}

impl Run for Bench {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let mut place = self.place(output).await?;
        // A catalog that was there stays.
        let fresh = place.trickle.init().await?.is_none();
        let there = "SELECT to_regnamespace($1) IS NOT NULL";
        if place.session.client().query_one(there, &[&SCHEMA]).await?.get(0) {
            return Err(Failure::input(format!(
                "schema {SCHEMA} exists: drop its stream tables (trickle drop), and it, or measure in another database"
            )));
        }
        let version: String = place.session.client().query_one("SHOW server_version", &[]).await?.get(0);
        let measured = self.matrix(&mut place, output).await;
        if fresh && place.private.is_none() {
            place.trickle.uninstall(false).await?;
        }
        let cells = measured?;
        report::show(&cells, &format!("PostgreSQL {version}"), self.target, output);
        Ok(Answer::Yes)
    }
}

impl Bench {
    async fn matrix(&self, place: &mut Place, output: &Output) -> Result<Vec<Cell>, Failure> {
        let mut cells = Vec::new();
        for &rows in &self.rows {
            let wanted =
                |s: &&Scenario| self.scenario.is_empty() || self.scenario.iter().any(|n| n == s.name);
            for scenario in SCENARIOS.iter().filter(wanted) {
                self.measure(scenario, rows, place, output, &mut cells).await?;
            }
        }
        Ok(cells)
    }

    async fn measure(
        &self,
        scenario: &Scenario,
        rows: u32,
        place: &mut Place,
        output: &Output,
        cells: &mut Vec<Cell>,
    ) -> Result<(), Failure> {
        let mut bed = Bed::new(scenario, &mut place.trickle, place.session.client(), rows).await?;
        let mut result = Ok(());
        for &percent in &self.pct {
            let mut cell = Cell { scenario: scenario.name, rows, percent, measured: Vec::new() };
            for cycle in 0..usize::try_from(self.cycles).unwrap_or(usize::MAX) {
                match bed.cycle(cycle, percent).await {
                    Ok(measured) => {
                        if !output.is_quiet() {
                            measured.iter().for_each(|m| output.remark(&report::line(&cell, m)));
                        }
                        cell.measured.extend(measured);
                    }
                    Err(e) => {
                        result = Err(e);
                        break;
                    }
                }
            }
            cells.push(cell);
            if result.is_err() {
                break;
            }
        }
        bed.clear().await?;
        result
    }
}
