//! `trickle bench`

use super::{Answer, Run};
use crate::bench::capture::{self, Captor, SHAPES, SINGLE, Work};
use crate::bench::cycle::{Fixture, Measured, SCHEMA};
use crate::bench::latency::{self, Load};
use crate::bench::report::{self, Cell};
use crate::bench::scenario::{SCENARIOS, Scenario};
use crate::bench::{dag, idle, tpch};
use crate::failure::Failure;
use crate::output::Output;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_postgres::Client;
use trickle_client::capture::CaptureOptions;
use trickle_client::throwaway::{self, Server};
use trickle_client::{Plans, Session, Settings, Trickle};
use trickle_core::cdc::Mode;

/// Measure refreshes: stream tables beside full recomputation, and beside SQL that an expert writes by hand.
///
/// Works in a schema of its own, which it makes and drops, on the server that the options name or on a
/// private throw-away one. Every cycle changes rows (70 % updates, 15 % deletes, 15 % inserts), refreshes in
/// each way, in turns, and compares every result with its query.
///
/// Option --tpch measures the queries of TPC-H, recomputed and as stream tables. Option --dag measures a
/// chain of ten stream tables and a graph of sixty, where one row of a source changes. Option --capture
/// measures the cost of triggers for writers. Option --idle measures the cost of looks at stream tables that
/// have nothing to do.
///
/// Option --latency measures how soon after its commit a change is visible, while many sessions write and
/// trickle run is at work (with --extension, the server itself). It also measures the cost for writers and
/// for an idle database.
///
/// Exit code 1: a result differs from its query, or the captured changes differ from the written ones.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// Scenarios to measure [default: all].
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = scenario)]
    scenario: Vec<String>,
    /// Rows in the table of facts.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [10_000, 100_000],
          value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    rows: Vec<u32>,
    /// Percentage of rows that change in each cycle.
    #[arg(long, value_name = "P", value_delimiter = ',', default_values_t = [1.0, 10.0, 50.0], value_parser = percent)]
    pct: Vec<f64>,
    /// Number of rows that change in each cycle, in tables of any size.
    #[arg(long, value_name = "N", conflicts_with = "pct", value_parser = clap::value_parser!(u32).range(1..))]
    delta: Option<u32>,
    /// Number of cycles for each scenario, size and change; the first one warms up.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    cycles: u32,
    /// Longest time that a refresh may take, as a multiple of the best other way.
    #[arg(long, value_name = "F", default_value_t = 1.25)]
    target: f64,
    /// Draw how the time of refreshes grows with the tables, into this file.
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Write the server's plans of one more refresh for each scenario, size and change into this directory,
    /// one JSON file each.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["capture", "idle"])]
    explain: Option<PathBuf>,
    /// Measure the cost of capture for writers.
    #[arg(long, conflicts_with_all = ["scenario", "rows", "pct", "delta", "svg", "idle"])]
    capture: bool,
    /// With --capture: number of sessions that write at the same time, each its own rows.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 4, 8], requires = "capture",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    writers: Vec<u32>,
    /// With --capture: rows of each table, and of each statement that writes all of them; at least a thousand
    /// for each writer.
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "capture", value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    statement_rows: u32,
    /// Measure the work of a refresher each second where nothing changes.
    ///
    /// There are three cases: one stream table, many stream tables over a twentieth as many tables, and many
    /// over as many tables.
    #[arg(long, conflicts_with_all = ["scenario", "rows", "pct", "delta", "svg"])]
    idle: bool,
    /// With --idle: number of stream tables in the cases with many.
    #[arg(long, value_name = "N", default_value_t = 1_000, requires = "idle", value_parser = clap::value_parser!(u32).range(20..=10_000))]
    stream_tables: u32,
    /// Measure the 22 queries of TPC-H at this scale, where 1 is 6,000,000 items; one order in a thousand
    /// changes in each cycle.
    #[arg(long, value_name = "SF", conflicts_with_all = ["scenario", "rows", "pct", "delta", "svg", "idle", "capture"],
          value_parser = scale)]
    tpch: Option<f64>,
    /// Measure stream tables over stream tables; one row of a source changes in each cycle.
    #[arg(long, conflicts_with_all = ["scenario", "pct", "delta", "svg", "idle", "capture", "tpch"])]
    dag: bool,
    /// Measure how soon after its commit a change is visible, while 16 sessions write.
    #[arg(long, requires = "private", conflicts_with_all = ["scenario", "rows", "pct", "delta", "svg", "idle", "capture", "tpch", "dag"])]
    latency: bool,
    /// With --latency: transactions per second that all writers together commit.
    #[arg(long, value_name = "N", default_value_t = 1_000, requires = "latency", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// With --latency: seconds that each part takes.
    #[arg(long, value_name = "S", default_value_t = 10, requires = "latency", value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// With --latency: how often the refresher looks for changes.
    #[arg(long, value_name = "DURATION", default_value = "10ms", requires = "latency")]
    schedule: String,
    /// Compare two runs, each a file with the output of --json.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], exclusive = true)]
    compare: Vec<PathBuf>,
    /// Measure the extension beside the program, on a private server that has it installed.
    ///
    /// Stream tables are also refreshed by the extension's SQL function and, with --capture, changes are also
    /// captured by its triggers in C. With --latency, the triggers and refreshes of the extension take the
    /// place of the program's.
    #[arg(long, requires = "private", conflicts_with_all = ["idle", "tpch", "dag"])]
    extension: bool,
    /// Start a private throw-away PostgreSQL server, as the demo does.
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

fn scale(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().map_err(|e| e.to_string())?;
    if (0.01..=100.0).contains(&value) { Ok(value) } else { Err("between 0.01 and 100".to_owned()) }
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().map_err(|e| e.to_string())?;
    if value > 0.0 && value <= 90.0 { Ok(value) } else { Err("between 0 and 90 percent".to_owned()) }
}

/// The database that is measured, with two sessions: one for the stream tables, and one for everything else.
struct Place {
    trickle: Trickle,
    session: Session,
    /// Whether the database had a catalog before the measurement.
    had_catalog: bool,
    /// The private server. The server stops when this field is dropped, after the sessions.
    private: Option<Server>,
}

impl Place {
    async fn new(asked: &Bench, output: &Output) -> Result<Place, Failure> {
        let mut server = None;
        if asked.private {
            let (_, binaries) =
                throwaway::find()?.pop_last().ok_or_else(|| Failure::failed("no PostgreSQL was found"))?;
            // With `--latency`, the cost of a commit is part of the measurement.
            let mut settings = vec!["shared_buffers=512MB", "max_wal_size=4GB"];
            let shortest = format!("pg_trickle.min_schedule_seconds={}", latency::seconds(&asked.schedule));
            if asked.latency {
                settings.extend(["fsync=on", "synchronous_commit=on", "full_page_writes=on"]);
            }
            if asked.latency && asked.extension {
                settings.extend(["shared_preload_libraries=pg_trickle", &shortest]);
            }
            let mut started = Server::start(&binaries, "bench", &settings)?;
            started.ready().await?;
            server = Some(started);
        }
        let mut trickle =
            Trickle::attach(connect(server.as_ref(), output).await?, Settings::default()).await?;
        let session = connect(server.as_ref(), output).await?;
        let there = "SELECT to_regnamespace($1) IS NOT NULL";
        if session.client().query_one(there, &[&SCHEMA]).await?.get(0) {
            return Err(Failure::input(format!(
                "schema {SCHEMA} exists: drop its stream tables (trickle drop), and it, or measure in another database"
            )));
        }
        if asked.extension {
            session.client().batch_execute("CREATE EXTENSION pg_trickle").await?;
        }
        let had_catalog = trickle.init().await?.is_some();
        Ok(Place { trickle, session, had_catalog, private: server })
    }

    async fn another(&self, output: &Output) -> Result<Session, Failure> {
        connect(self.private.as_ref(), output).await
    }

    async fn version(&self) -> Result<String, Failure> {
        let row = self.session.client().query_one("SHOW server_version", &[]).await?;
        Ok(format!("PostgreSQL {}", row.get::<_, String>(0)))
    }

    /// Removes the catalog, unless the database had one before the measurement.
    async fn leave(mut self) -> Result<(), Failure> {
        if !self.had_catalog && self.private.is_none() {
            self.trickle.uninstall(false).await?;
        }
        Ok(())
    }
}

async fn connect(private: Option<&Server>, output: &Output) -> Result<Session, Failure> {
    Ok(match private {
        Some(server) => Session::connect(&server.config("postgres")).await?,
        None => Session::new(output.target()?.connect().await?),
    })
}

impl Run for Bench {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        if let [before, after] = &self.compare[..] {
            report::compare(&read(before)?, &read(after)?, output)?;
            return Ok(Answer::Yes);
        }
        if cfg!(debug_assertions) {
            output.remark("warning: this program was built without optimizations, and its figures say nothing of a release\n");
        }
        let mut place = Place::new(&self, output).await?;
        let server = place.version().await?;
        // The objects of the measurement are removed after a failure, too.
        let measured = if self.capture {
            self.capture(&mut place, &server, output).await
        } else if let Some(scale) = self.tpch {
            self.tpch(scale, &mut place, &server, output).await
        } else if self.dag {
            self.dag(&mut place, &server, output).await
        } else if self.latency {
            self.latency(&mut place, &server, output).await
        } else if self.idle {
            self.idle(&mut place, &server, output).await
        } else {
            self.refreshes(&mut place, &server, output).await
        };
        let left = place.leave().await;
        measured.and(left).map(|()| Answer::Yes)
    }
}

fn read(file: &Path) -> Result<serde_json::Value, Failure> {
    let named = |e: &dyn std::fmt::Display| Failure::input(format!("cannot read {}: {e}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| named(&e))?;
    serde_json::from_str(&text).map_err(|e| named(&e))
}

impl Bench {
    async fn refreshes(&self, place: &mut Place, server: &str, output: &mut Output) -> Result<(), Failure> {
        let mut cells = Vec::new();
        for &rows in &self.rows {
            let wanted =
                |s: &&Scenario| self.scenario.is_empty() || self.scenario.iter().any(|n| n == s.name);
            for scenario in SCENARIOS.iter().filter(wanted) {
                self.measure(scenario, rows, place, output, &mut cells).await?;
            }
        }
        if let Some(file) = &self.svg {
            let failed = |e| Failure::failed(format!("cannot draw {}: {e}", file.display()));
            trickle_bench::plot::draw(&report::lines(&cells), file).map_err(failed)?;
        }
        report::show(&cells, server, self.target, place.trickle.statements(), output);
        Ok(())
    }

    async fn measure(
        &self,
        scenario: &Scenario,
        rows: u32,
        place: &mut Place,
        output: &Output,
        cells: &mut Vec<Cell>,
    ) -> Result<(), Failure> {
        let percents = match self.delta {
            Some(delta) => vec![(f64::from(delta) * 100.0 / f64::from(rows)).min(90.0)],
            None => self.pct.clone(),
        };
        let mut bed =
            Fixture::new(scenario, &mut place.trickle, place.session.client(), rows, self.extension).await?;
        let mut result = Ok(());
        for percent in percents {
            let mut cell = Cell { scenario: scenario.name, rows, percent, measured: Vec::new() };
            for cycle in 0..self.cycles as usize {
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
            if let (Some(dir), Ok(())) = (&self.explain, &result) {
                let plans = bed.explain(self.cycles as usize, percent).await;
                result = plans.and_then(|plans| keep(dir, &cell, plans));
            }
            cells.push(cell);
            if result.is_err() {
                break;
            }
        }
        bed.clear().await?;
        result
    }

    async fn capture(&self, place: &mut Place, server: &str, output: &mut Output) -> Result<(), Failure> {
        let most = self.writers.iter().copied().max().unwrap_or(1);
        if most * SINGLE > self.statement_rows {
            let text = format!("{most} writers need tables of {} rows", most * SINGLE);
            return Err(Failure::input(text).hint("Give --statement-rows more, or --writers fewer."));
        }
        let mut refreshers = Vec::new();
        let copied = self.extension.then_some((Captor::Extension, Mode::Copy, false));
        let plain = [
            (Captor::Statement, Mode::Statement, false),
            (Captor::Unlogged, Mode::Statement, true),
            (Captor::Row, Mode::Row, false),
        ];
        for (captor, mode, unlogged) in plain.into_iter().chain(copied) {
            let settings = Settings { capture: CaptureOptions { mode, unlogged }, ..Settings::default() };
            refreshers.push((captor, Trickle::attach(place.another(output).await?, settings).await?));
        }
        let mut writers = Vec::new();
        for _ in 0..most {
            writers.push(place.another(output).await?);
        }
        let writers: Vec<&Client> = writers.iter().map(Session::client).collect();
        let rows = self.statement_rows;
        let mut works = vec![Work::Update(rows)];
        works.extend(self.writers.iter().map(|n| Work::Single(*n)));
        works.extend([Work::Delete(rows), Work::Insert(rows)]);
        let mut measured = Vec::new();
        for shape in &SHAPES {
            if !output.is_quiet() {
                output.remark(&format!("{}\n", shape.name));
            }
            let result =
                captured(shape, &writers, &mut refreshers, &works, (rows, self.cycles), &mut measured).await;
            capture::clear(place.session.client(), &mut refreshers).await?;
            result?;
        }
        report::show_capture(&measured, server, output);
        Ok(())
    }

    async fn tpch(
        &self,
        scale: f64,
        place: &mut Place,
        server: &str,
        output: &mut Output,
    ) -> Result<(), Failure> {
        let cycles = self.cycles as usize;
        let (trickle, client) = (&mut place.trickle, place.session.client());
        let making = |what: &str| match output.is_quiet() {
            true => {}
            false => output.remark(&format!("making {what}\n")),
        };
        let mut bed = tpch::Fixture::new(trickle, client, scale, cycles + 1, &making).await?;
        let mut cells = bed.cells();
        let mut result = Ok(());
        for cycle in 0..cycles {
            let tell = |cell: &Cell, measured: &Measured| match output.is_quiet() {
                true => {}
                false => output.remark(&report::line(cell, measured)),
            };
            result = bed.cycle(cycle, &mut cells, &tell).await;
            if result.is_err() {
                break;
            }
        }
        if let (Some(dir), Ok(())) = (&self.explain, &result) {
            let plans = bed.explain(cycles).await;
            let all =
                |plans: Vec<Plans>| cells.iter().zip(plans).try_for_each(|(c, plans)| keep(dir, c, plans));
            result = plans.and_then(all);
        }
        bed.clear().await?;
        result?;
        report::show(&cells, server, self.target, place.trickle.statements(), output);
        report::show_gains(&cells, output);
        Ok(())
    }

    async fn dag(&self, place: &mut Place, server: &str, output: &mut Output) -> Result<(), Failure> {
        let mut cells = Vec::new();
        for &rows in &self.rows {
            for shape in &dag::SHAPES {
                let mut bed =
                    dag::Fixture::new(shape, &mut place.trickle, place.session.client(), rows).await?;
                let measured = self.dag_cell(shape, rows, &mut bed, output).await;
                bed.clear().await?;
                cells.push(measured?);
            }
        }
        report::show(&cells, server, self.target, place.trickle.statements(), output);
        Ok(())
    }

    async fn dag_cell(
        &self,
        shape: &dag::Shape,
        rows: u32,
        bed: &mut dag::Fixture<'_>,
        output: &Output,
    ) -> Result<Cell, Failure> {
        let percent = 100.0 / f64::from(rows);
        let mut cell = Cell { scenario: shape.name, rows, percent, measured: Vec::new() };
        for cycle in 0..self.cycles as usize {
            let measured = bed.cycle(cycle).await?;
            if !output.is_quiet() {
                measured.iter().for_each(|m| output.remark(&report::line(&cell, m)));
            }
            cell.measured.extend(measured);
        }
        if let Some(dir) = &self.explain {
            keep(dir, &cell, bed.explain(self.cycles as usize).await?)?;
        }
        Ok(cell)
    }

    async fn latency(&self, place: &mut Place, server: &str, output: &mut Output) -> Result<(), Failure> {
        let load = Load { writers: 16, rate: self.rate, time: Duration::from_secs(self.seconds.into()) };
        let mut writers = Vec::new();
        for _ in 0..load.writers {
            writers.push(place.another(output).await?);
        }
        let Some(private) = &place.private else { return Err(Failure::input("--latency needs --private")) };
        let (trickle, client, schedule) = (&mut place.trickle, place.session.client(), &*self.schedule);
        let commits: String = client.query_one("SHOW synchronous_commit", &[]).await?.get(0);
        let extension = self.extension;
        let mut bed = latency::Fixture { server: private, trickle, client, writers, schedule, extension };
        let (all, idle) = bed.measure(load).await?;
        if output.is_json() {
            output.document(&latency::document(&all, &idle, load, server, schedule, &commits));
            return Ok(());
        }
        output.print(format!(
            "{server}, synchronous_commit {commits}: {} writers of small transactions; milliseconds as p50 / p95 / p99 at {} a second\n",
            load.writers, load.rate
        ));
        let plain = |cells: Vec<String>| cells.into_iter().map(|c| (c, None)).collect();
        let header = ["", "at most a second", "a transaction", "commit to visible"];
        output.boxed(&header, all.iter().map(latency::row).map(plain).collect());
        output.print(latency::idle_line(&idle, schedule));
        Ok(())
    }

    async fn idle(&self, place: &mut Place, server: &str, output: &mut Output) -> Result<(), Failure> {
        let mut looks = Vec::new();
        let many = self.stream_tables;
        for of in [(1, 1), (many, many / 20), (many, many)] {
            if !output.is_quiet() {
                output.remark(&format!("{} stream tables over {}\n", of.0, of.1));
            }
            let cycles = self.cycles as usize * 3;
            let all = idle::measure(of, cycles, &mut place.trickle, place.session.client()).await?;
            looks.push((of, all));
        }
        report::show_idle(&looks, server, output);
        Ok(())
    }
}

/// Writes the plans of a cell's refresh into a file.
fn keep(dir: &Path, cell: &Cell, plans: Plans) -> Result<(), Failure> {
    let file = dir.join(format!("{}-{}-{}.json", cell.scenario, cell.rows, cell.percent));
    let fail = |e: &dyn std::fmt::Display| Failure::failed(format!("cannot write {}: {e}", file.display()));
    let statement = |(text, plan)| serde_json::json!({"statement": text, "plan": plan});
    let statements: Vec<_> = plans.taken.into_iter().map(statement).collect();
    let text = serde_json::to_string_pretty(&statements).map_err(|e| fail(&e))?;
    std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&file, text)).map_err(|e| fail(&e))
}

/// Runs the cycles of one shape of table. The first cycle warms up.
async fn captured(
    shape: &'static capture::Shape,
    writers: &[&Client],
    refreshers: &mut [(Captor, Trickle)],
    works: &[Work],
    (rows, cycles): (u32, u32),
    measured: &mut Vec<capture::Measured>,
) -> Result<(), Failure> {
    let bed = capture::Fixture::new(shape, rows, writers, refreshers).await?;
    for cycle in 0..cycles as usize {
        let of = bed.cycle(cycle, works).await?;
        if cycle > 0 || cycles == 1 {
            measured.extend(of);
        }
    }
    Ok(())
}
