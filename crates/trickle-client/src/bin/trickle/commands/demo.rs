//! `trickle demo`

use super::{Answer, Run};
use crate::demo::board::{Board, bare};
use crate::demo::shop::{self, Sizes, VIEWS};
use crate::failure::Failure;
use crate::output::{Output, count, duration};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::time::{Duration, Instant};
use trickle_client::daemon::{self, DaemonOptions, Event};
use trickle_client::throwaway::{self, Server};
use trickle_client::{Connect, Name, NewStreamTable, RefreshOptions, Refreshed, Session, Settings, Trickle};

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
        say(&format!("Loading a shop of {}", rows(self.rows.into())));
        let loading = Instant::now();
        let shop = To(&server).connect().await?;
        shop::load(shop.client(), &sizes, &|what| say(&format!("  {what}"))).await?;
        say(&format!("  loaded in {}", duration(loading.elapsed())));
        let mut board = create(&mut trickle, &say).await?;
        say(&format!("Writing to the shop for {} s while its stream tables are refreshed", self.seconds));
        let written = live(&server, &sizes, self.seconds, &mut board, &say).await?;
        say("Comparing every stream table with its query, run afresh");
        verify(&mut trickle, &mut board).await?;
        show(output, &board, written, started.elapsed());
        if self.keep {
            explore(output, &server);
            server.keep()?;
        } else if !output.is_json() && !quiet {
            output.print(
                "trickle demo --keep leaves the server running, and prints the commands to explore it.\n",
            );
        }
        Ok(if board.all_equal() { Answer::Yes } else { Answer::No })
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
async fn create(trickle: &mut Trickle, say: &dyn Fn(&str)) -> Result<Board, Failure> {
    trickle.init().await?;
    let mut board = Board::default();
    for v in VIEWS {
        let mut new = NewStreamTable::new(Name::parse(v.name)?, v.query);
        new.schedule = Some(Some("1s".into()));
        let made = trickle.create(&new).await?;
        say(&format!("  {}: {} ({})", v.name, v.shows, made.mode.to_lowercase()));
        board.add(v.name, &made.mode.to_lowercase());
    }
    say("Measuring a full recompute of each");
    let full = RefreshOptions { full: true, ..RefreshOptions::default() };
    let names = VIEWS.iter().map(|v| Name::parse(v.name)).collect::<trickle_client::Result<Vec<Name>>>()?;
    for r in trickle.refresh(&names, &full).await? {
        board.computed_anew(bare(&r.report.name), &r.report.phases);
    }
    Ok(board)
}

/// Writes for some seconds while the refresher runs; returns how many rows were written.
async fn live(
    server: &Server,
    sizes: &Sizes,
    seconds: u64,
    board: &mut Board,
    say: &dyn Fn(&str),
) -> Result<u64, Failure> {
    let done: RefCell<Vec<(Instant, Refreshed)>> = RefCell::new(Vec::new());
    let failed: RefCell<Option<String>> = RefCell::new(None);
    let listen = |event: Event<'_>| match event {
        Event::Refreshed(all) => {
            let now = Instant::now();
            done.borrow_mut().extend(all.iter().map(|r| (now, r.clone())));
        }
        Event::Failed { error: e, .. } | Event::Trouble(e) | Event::Disconnected(e, _) => {
            *failed.borrow_mut() = Some(e.to_string());
        }
        Event::Disabled
        | Event::Waiting(_)
        | Event::Connected(_)
        | Event::Slow(_)
        | Event::Concerns(_)
        | Event::Suspended(_)
        | Event::Foreign(_) => {}
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
            if over.get() {
                // The refresher has stopped: what was written is shown, and nothing makes it older.
                break;
            }
            board.note(&done.take());
            say(&board.lines(second, written.get()));
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
    board.note(&done.take());
    match failed.into_inner() {
        Some(e) => Err(Failure::failed(format!("a refresh failed: {e}"))),
        None => Ok(written.get()),
    }
}

async fn verify(trickle: &mut Trickle, board: &mut Board) -> Result<(), Failure> {
    for v in VIEWS {
        let e = trickle.find(&Name::parse(v.name)?).await?;
        let checked = trickle.check(&e, 5).await?;
        board.compared(v.name, &checked);
    }
    Ok(())
}

fn show(output: &mut Output, board: &Board, written: u64, took: Duration) {
    if output.is_json() {
        let (tables, seconds) = (board.to_json(), took.as_secs_f64());
        output.document(&json!({"rows_written": written, "seconds": seconds, "tables": tables}));
        return;
    }
    board.summary(output);
    output.print(format!("\n{} written to the shop; {} in all.\n", rows(written), duration(took)));
}

fn rows(n: u64) -> String {
    count(usize::try_from(n).unwrap_or(usize::MAX), "row", "rows")
}

/// Commands that can be copied as they stand: nothing of them need be in the PATH, and whoever started the server may stop
/// it, root too.
fn explore(output: &mut Output, server: &Server) {
    let dir = word(&server.directory().display().to_string());
    let psql = word(&server.binaries().join("psql").display().to_string());
    let trickle = std::env::current_exe().map_or("trickle".to_owned(), |p| word(&p.display().to_string()));
    let url = word(&format!("host={} user=postgres dbname={DATABASE}", server.directory().display()));
    output.print(format!(
        "\nThe server is still running. Explore it:\n  {psql} {url} -c 'TABLE sales_by_region'\n  \
         {trickle} --database-url {url} status\n  {trickle} --database-url {url} explain top_products\n  \
         {trickle} --database-url {url} run\nStop it:\n  kill -INT $(head -n 1 {dir}/data/postmaster.pid); \
         while [ -e {dir}/data/postmaster.pid ]; do sleep 0.1; done; rm -r {dir}\n"
    ));
}

/// As a shell reads it as one word.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,=".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
