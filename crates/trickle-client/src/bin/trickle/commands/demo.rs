//! `trickle demo`

use super::{Answer, Run};
use crate::demo::board::Board;
use crate::demo::refresher::Refresher;
use crate::demo::shop::{self, Sizes, VIEWS};
use crate::failure::Failure;
use crate::output::Output;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trickle_client::throwaway::{self, Server};
use trickle_client::{Name, NewStreamTable, Session, Settings, Trickle};
use trickle_engine::words::{count, duration};

/// See trickle at work on a private throw-away PostgreSQL server: a shop, stream tables, live changes, and a
/// check of every stream table.
///
/// Halfway through the changes the refresher is killed (kill -9), and another one takes its place a second
/// later. The exit code is 0 only if every stream table equals its query at the end.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Rows in the shop, all tables together.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=50_000_000))]
    rows: u32,
    /// Seconds of live changes.
    #[arg(long, value_name = "S", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Leave the server running at the end, to look around.
    #[arg(long)]
    keep: bool,
}

const DATABASE: &str = "shop";

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
        let config = server.config(DATABASE);
        let mut trickle = Trickle::attach(Session::connect(&config).await?, Settings::default()).await?;
        say(&format!("Loading a shop of {}", rows(self.rows.into())));
        let loading = Instant::now();
        let shop = Session::connect(&config).await?;
        shop::load(shop.client(), &sizes, &|what| say(&format!("  {what}"))).await?;
        say(&format!("  loaded in {}", duration(loading.elapsed())));
        let mut board = create(&mut trickle, shop.client(), &say).await?;
        say(&format!(
            "Writing to the shop for {} s while its stream tables are refreshed each second",
            self.seconds
        ));
        let begun = Instant::now();
        let mut live = Live { client: shop.client(), sizes: &sizes, begun, turn: 0, written: 0 };
        live.run(&server, self.seconds, &mut board, &say).await?;
        let written = live.written;
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

/// Makes the stream tables, and measures the time of a recompute of each.
async fn create(trickle: &mut Trickle, shop: &Client, say: &dyn Fn(&str)) -> Result<Board, Failure> {
    trickle.init().await?;
    let mut board = Board::default();
    for v in VIEWS {
        let mut new = NewStreamTable::new(Name::parse(v.name)?, v.query);
        new.schedule = Some(Some("1s".into()));
        let mode = trickle.create(&new).await?.mode.name().to_lowercase();
        let anew = shop::compute_anew(shop, v).await?;
        say(&format!("  {}: {} ({mode}); to compute it anew takes {}", v.name, v.shows, duration(anew)));
        board.add(v.name, &mode, anew);
    }
    Ok(board)
}

/// The time without a refresher, after the first refresher was killed.
const PAUSE: Duration = Duration::from_secs(1);

/// The time between two turns of writing by the people who use the shop.
const PACE: Duration = Duration::from_millis(80);

/// The pause after the last write, in which the last changes become visible. The pause is longer than a
/// period and a refresh together.
const REST: Duration = Duration::from_secs(3);

/// The longest time after the last write that the demo waits until each stream table has been refreshed.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// The part of the demo in which the shop is written to.
struct Live<'d> {
    client: &'d Client,
    sizes: &'d Sizes,
    begun: Instant,
    turn: i32,
    /// The number of rows that were written so far.
    written: u64,
}

impl Live<'_> {
    /// Writes for some seconds while refreshers run. The first refresher is killed halfway.
    async fn run(
        &mut self,
        server: &Server,
        seconds: u64,
        board: &mut Board,
        say: &dyn Fn(&str),
    ) -> Result<(), Failure> {
        let end = Duration::from_secs(seconds);
        let first = Refresher::start(&url(server))?;
        self.write(end / 2, board, say).await?;
        first.kill()?;
        say("  kill -9 of the refresher; the shop goes on");
        self.write(end / 2 + PAUSE, board, say).await?;
        say("  another refresher begins, and works when the lease of the first has ended");
        let second = Refresher::start(&url(server))?;
        self.write(end, board, say).await?;
        let ended = Instant::now();
        loop {
            tokio::time::sleep(REST).await;
            board.ask(self.client).await?;
            // On a busy machine the first refresh of a stream table comes late.
            if board.is_refreshed() || ended.elapsed() > LONGEST_REST {
                return second.kill();
            }
        }
    }

    /// Writes until the time `end` has passed since the beginning, and reports each second.
    async fn write(&mut self, end: Duration, board: &mut Board, say: &dyn Fn(&str)) -> Result<(), Failure> {
        let mut reported = self.begun.elapsed().as_secs();
        while self.begun.elapsed() < end {
            self.turn += 1;
            self.written += shop::write(self.client, self.sizes, self.turn).await?;
            tokio::time::sleep(PACE).await;
            let now = self.begun.elapsed().as_secs();
            if now > reported {
                reported = now;
                board.ask(self.client).await?;
                say(&board.lines(now, self.written));
            }
        }
        Ok(())
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

/// Shows commands that can be copied as they are, with the whole paths of psql and trickle. The command that
/// stops the server works for the user who started the server, even for root.
fn explore(output: &mut Output, server: &Server) {
    let dir = word(&server.directory().display().to_string());
    let psql = word(&server.binaries().join("psql").display().to_string());
    let trickle = std::env::current_exe().map_or("trickle".to_owned(), |p| word(&p.display().to_string()));
    let url = word(&url(server));
    output.print(format!(
        "\nThe server is still running. Explore it:\n  {psql} {url} -c 'TABLE sales_by_region'\n  \
         {trickle} --database-url {url} status\n  {trickle} --database-url {url} explain customer_worth\n  \
         {trickle} --database-url {url} run\nStop it:\n  kill -INT $(head -n 1 {dir}/data/postmaster.pid); \
         while [ -e {dir}/data/postmaster.pid ]; do sleep 0.1; done; rm -r {dir}\n"
    ));
}

/// Returns the connection string of the demo's database.
fn url(server: &Server) -> String {
    format!("host={} user=postgres dbname={DATABASE}", server.directory().display())
}

/// Quotes a text so that a shell reads it as one word.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,=".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
