//! `trickle demo`

use super::{Answer, Run};
use crate::demo::shop::{self, Sizes, VIEWS};
use crate::failure::Failure;
use crate::output::{Output, Tone, duration};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::{Duration, Instant};
use trickle_client::daemon::{self, DaemonOptions, Event};
use trickle_client::throwaway::{self, Server};
use trickle_client::{Connect, Name, NewStreamTable, RefreshOptions, Refreshed, Session, Settings, Trickle};
use trickle_core::refresh::Action;

/// See trickle at work on a private throw-away PostgreSQL: a shop, stream tables, live changes, every table verified.
///
/// Exit code 0 only if every stream table equals its query at the end.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Rows in the shop, all tables together.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=50_000_000))]
    rows: u32,
    /// Seconds of live changes.
    #[arg(long, value_name = "S", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Leave the server running at the end, to look around.
    #[arg(long)]
    keep: bool,
}

/// What was seen of one stream table.
#[derive(Default)]
struct Seen {
    mode: String,
    /// What a recompute took, in ms.
    full_ms: f64,
    /// What each incremental refresh took, in ms.
    refreshes: Vec<f64>,
    changed: i64,
    rows: i64,
    equal: bool,
}

impl Seen {
    fn median(&self) -> Option<f64> {
        let mut all = self.refreshes.clone();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }
}

const DATABASE: &str = "shop";

struct To<'s>(&'s Server);

impl Connect for To<'_> {
    fn connect(&self) -> Pin<Box<dyn Future<Output = trickle_client::Result<Session>> + '_>> {
        Box::pin(async move { Session::connect(&self.0.config(DATABASE)).await })
    }
}

impl Run for Demo {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let quiet = output.is_quiet();
        let say = move |line: &str| {
            if !quiet {
                tell(line);
            }
        };
        let started = Instant::now();
        let (major, binaries) = newest()?;
        say(&format!("Starting a private PostgreSQL {major}"));
        let mut server = Server::start(&binaries, "demo", &["shared_buffers=256MB", "jit=off"])?;
        server.ready().await?;
        let admin = Session::connect(&server.config("postgres")).await?;
        admin.client().batch_execute(&format!("CREATE DATABASE {DATABASE}")).await?;
        let sizes = Sizes::of(self.rows);
        let mut trickle = Trickle::attach(To(&server).connect().await?, Settings::default()).await?;
        say(&format!("Loading a shop of {} rows", self.rows));
        shop::load(trickle.client(), &sizes, &|what| say(&format!("  {what}"))).await?;
        let mut seen = create(&mut trickle, &say).await?;
        say(&format!("Writing to the shop for {} s while its stream tables are refreshed", self.seconds));
        let written = live(&server, &sizes, self.seconds, &mut seen, &say).await?;
        say("Comparing every stream table with its query, run afresh");
        verify(&mut trickle, &mut seen).await?;
        let equal = seen.values().all(|s| s.equal);
        show(output, &seen, written, started.elapsed());
        if self.keep {
            explore(output, &server);
            server.keep()?;
        }
        Ok(if equal { Answer::Yes } else { Answer::No })
    }
}

fn tell(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn newest() -> Result<(u32, std::path::PathBuf), Failure> {
    let mut found = throwaway::find()?;
    found.pop_last().ok_or_else(|| Failure::failed("no PostgreSQL was found"))
}

/// Makes the stream tables, and measures what recomputing each costs.
async fn create(trickle: &mut Trickle, say: &dyn Fn(&str)) -> Result<BTreeMap<&'static str, Seen>, Failure> {
    trickle.init().await?;
    let mut seen = BTreeMap::new();
    for v in VIEWS {
        let mut new = NewStreamTable::new(Name::parse(v.name)?, v.query);
        new.schedule = Some(Some("1s".into()));
        let made = trickle.create(&new).await?;
        say(&format!("  {}: {} ({})", v.name, v.shows, made.mode.to_lowercase()));
        seen.insert(v.name, Seen { mode: made.mode.to_lowercase(), ..Seen::default() });
    }
    say("Measuring a full recompute of each");
    let full = RefreshOptions { full: true, ..RefreshOptions::default() };
    let names = VIEWS.iter().map(|v| Name::parse(v.name)).collect::<trickle_client::Result<Vec<Name>>>()?;
    for r in trickle.refresh(&names, &full).await? {
        if let Some(s) = seen.get_mut(bare(&r.report.name)) {
            s.full_ms = r.report.phases.execute as f64 / 1e3;
        }
    }
    Ok(seen)
}

/// The name without its schema.
fn bare(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Writes for some seconds while the refresher runs; returns how many rows were written.
async fn live(
    server: &Server,
    sizes: &Sizes,
    seconds: u64,
    seen: &mut BTreeMap<&'static str, Seen>,
    say: &dyn Fn(&str),
) -> Result<u64, Failure> {
    let done: RefCell<Vec<Refreshed>> = RefCell::new(Vec::new());
    let failed: RefCell<Option<String>> = RefCell::new(None);
    let listen = |event: Event<'_>| match event {
        Event::Refreshed(all) => done.borrow_mut().extend_from_slice(all),
        Event::Failed(e) | Event::Disconnected(e, _) => *failed.borrow_mut() = Some(e.to_string()),
        Event::Disabled | Event::Connected(_) | Event::Foreign(_) => {}
    };
    let over = Cell::new(false);
    let (to, options) = (To(server), DaemonOptions::default());
    let written = Cell::new(0u64);
    let writer = async {
        let client = To(server).connect().await?;
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut turn = 1;
        while Instant::now() < until {
            written.set(written.get() + shop::write(client.client(), sizes, turn).await?);
            turn += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The refresher sees the last of it.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        over.set(true);
        Ok::<(), trickle_client::Error>(())
    };
    let stop = async {
        while !over.get() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let reporter = async {
        let mut second = 0;
        while !over.get() {
            tokio::time::sleep(Duration::from_secs(1)).await;
            second += 1;
            let all = std::mem::take(&mut *done.borrow_mut());
            say(&line(second, &all, written.get()));
            note(seen, &all);
        }
    };
    let refresher = daemon::run(&to, &options, &listen, stop);
    // A writer that fails stops the others.
    let writer = async {
        let result = writer.await;
        over.set(true);
        result
    };
    let (wrote, refreshed, ()) = tokio::join!(writer, refresher, reporter);
    wrote?;
    refreshed?;
    note(seen, &done.borrow());
    match failed.into_inner() {
        Some(e) => Err(Failure::failed(format!("a refresh failed: {e}"))),
        None => Ok(written.get()),
    }
}

fn note(seen: &mut BTreeMap<&'static str, Seen>, all: &[Refreshed]) {
    for r in all.iter().map(|r| &r.report).filter(|r| r.action == Action::Differential) {
        if let Some(s) = seen.get_mut(bare(&r.name)) {
            s.refreshes.push(r.phases.execute as f64 / 1e3);
            s.changed += r.rows_inserted + r.rows_updated + r.rows_deleted;
        }
    }
}

/// What happened in one second.
fn line(second: u32, all: &[Refreshed], written: u64) -> String {
    let mut parts = Vec::new();
    for v in VIEWS {
        let of = |r: &&Refreshed| bare(&r.report.name) == v.name && r.report.action != Action::NoData;
        if let Some(r) = all.iter().rfind(of) {
            let r = &r.report;
            let rows = r.rows_inserted + r.rows_updated + r.rows_deleted;
            parts.push(format!("{} {rows} rows {:.1} ms", v.name, r.phases.execute as f64 / 1e3));
        }
    }
    format!("  {second:>3} s  {written:>6} rows written  {}", parts.join(" · "))
}

async fn verify(trickle: &mut Trickle, seen: &mut BTreeMap<&'static str, Seen>) -> Result<(), Failure> {
    for v in VIEWS {
        let e = trickle.find(&Name::parse(v.name)?).await?;
        let checked = trickle.check(&e, 5).await?;
        if let Some(s) = seen.get_mut(v.name) {
            s.equal = checked.different == 0;
            s.rows = checked.rows;
        }
    }
    Ok(())
}

fn show(output: &mut Output, seen: &BTreeMap<&'static str, Seen>, written: u64, took: Duration) {
    if output.is_json() {
        let table = |(name, s): (&&str, &Seen)| {
            json!({"name": name, "mode": s.mode, "rows": s.rows, "refreshes": s.refreshes.len(),
                "rows_changed": s.changed, "median_ms": s.median(), "full_ms": s.full_ms, "equal": s.equal})
        };
        let tables: Vec<_> = seen.iter().map(table).collect();
        output.document(&json!({"rows_written": written, "seconds": took.as_secs_f64(), "tables": tables}));
        return;
    }
    let rows = VIEWS.iter().filter_map(|v| seen.get(v.name).map(|s| (v.name, s))).map(|(name, s)| {
        let median = s.median();
        let ratio = median.filter(|m| *m > 0.0).map_or("–".to_owned(), |m| times(s.full_ms / m));
        let (word, tone) = if s.equal { ("equal", Tone::Good) } else { ("DIFFERENT", Tone::Bad) };
        [
            (name.to_owned(), None),
            (s.rows.to_string(), None),
            (s.refreshes.len().to_string(), None),
            (s.changed.to_string(), None),
            (median.map_or("–".to_owned(), |m| format!("{m:.1} ms")), None),
            (format!("{:.1} ms", s.full_ms), None),
            (ratio, None),
            (word.to_owned(), Some(tone)),
        ]
    });
    let head = [
        "stream table",
        "rows",
        "refreshes",
        "rows changed",
        "median refresh",
        "full recompute",
        "faster",
        "verified",
    ];
    output.table(head, rows.collect());
    output.print(format!("\n{written} rows written to the shop; {} in all.\n", duration(took)));
}

/// How often one time goes into another: `0.4×`, `8.1×`, `213×`.
fn times(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}×") } else { format!("{ratio:.0}×") }
}

fn explore(output: &mut Output, server: &Server) {
    let (dir, bin) = (server.directory().display(), server.binaries().display());
    let url = format!("host={dir} user=postgres dbname={DATABASE}");
    output.print(format!(
        "\nThe server is still running. Explore it:\n  psql \"{url}\" -c 'TABLE sales_by_region'\n  \
         trickle --database-url \"{url}\" status\n  trickle --database-url \"{url}\" run\n\
         Stop it:\n  {bin}/pg_ctl -D {dir}/data stop -m fast && rm -r {dir}\n"
    ));
}
