//! Throw-away servers that all tests share.

use super::sql_api;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;
use trickle_client::{Session, throwaway};

/// Settings for many concurrent tests and for every mode of capture. Just-in-time compilation is off, since
/// over few rows it would take longer than the queries.
const SETTINGS: &[&str] = &[
    "max_connections=200",
    "max_prepared_transactions=20",
    "shared_buffers=64MB",
    "wal_level=logical",
    "jit=off",
];

/// The pristine database, without connections, from which the tests' databases are copied.
const TEMPLATE: &str = "template0";

struct Server {
    major: u32,
    server: throwaway::Server,
}

/// Returns all servers. The first call starts all of them together.
fn servers() -> &'static [Server] {
    static SERVERS: OnceLock<Vec<Server>> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let start = |(major, binaries): (u32, PathBuf)| {
            let server = throwaway::Server::start(&binaries, &major.to_string(), SETTINGS).unwrap();
            Server { major, server }
        };
        let mut servers: Vec<Server> = throwaway::find().unwrap().into_iter().map(start).collect();
        runtime().block_on(async {
            for s in &mut servers {
                s.server.ready().await.unwrap_or_else(|e| panic!("PostgreSQL {}: {e}", s.major));
            }
        });
        servers
    })
}

impl Server {
    fn config(&self, database: &str) -> tokio_postgres::Config {
        self.server.config(database)
    }

    /// Runs a statement about databases in a session of another database.
    fn administer(&self, sql: &str) {
        runtime().block_on(async {
            let s = Session::connect(&self.config("postgres")).await.unwrap();
            s.client().batch_execute(sql).await.unwrap();
        });
    }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Whether this is the long run of `just nightly` (`TRICKLE_NIGHTLY`), in which every server runs all
/// tests.
pub(crate) fn is_nightly() -> bool {
    std::env::var_os("TRICKLE_NIGHTLY").is_some()
}

/// Whether the nth element of a list runs today. Each day one of `of` elements runs. In the long run of
/// `just nightly` all elements run. Through the SQL API half as many elements run each day.
pub(crate) fn is_todays(nth: usize, of: u64) -> bool {
    let of = if sql_api::is_meant() { 2 * of } else { of };
    is_nightly() || is_of_today(nth, of)
}

/// Whether the nth element of a list belongs to the part of this day. The answer is the same in the long run
/// of `just nightly`.
pub(crate) fn is_of_today(nth: usize, of: u64) -> bool {
    nth as u64 % of == today() % of
}

/// Returns the number of days since 1970. The number stays the same for the whole run.
fn today() -> u64 {
    static DAY: OnceLock<u64> = OnceLock::new();
    let seconds = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    *DAY.get_or_init(|| seconds() / 86_400)
}

/// A test's own database on one server.
pub(crate) struct Db {
    server: &'static Server,
    name: String,
}

impl Db {
    fn create(server: &'static Server) -> Db {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        server.administer(&format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"));
        Db { server, name }
    }

    /// Returns the server's major version.
    pub(crate) fn major(&self) -> u32 {
        self.server.major
    }

    /// Returns the options with which a program connects to the database as its owner.
    pub(crate) fn settings(&self) -> String {
        format!("host={} user=postgres dbname={}", self.server.server.directory().display(), self.name)
    }

    /// Returns the owner's connection settings and the path of the server's socket, for a connection that a
    /// test makes itself.
    pub(crate) fn socket(&self) -> (tokio_postgres::Config, std::path::PathBuf) {
        (self.server.config(&self.name), self.server.server.directory().join(".s.PGSQL.5432"))
    }

    /// Returns the directory of the server's programs.
    pub(crate) fn binaries(&self) -> &std::path::Path {
        self.server.server.binaries()
    }

    /// Whether the database's server has the oldest version of all servers.
    pub(crate) fn is_oldest(&self) -> bool {
        servers().iter().all(|s| s.major >= self.server.major)
    }

    /// Whether the database's server has the newest version of all servers.
    pub(crate) fn is_newest(&self) -> bool {
        servers().iter().all(|s| s.major <= self.server.major)
    }

    /// Opens a new connection as the owner of the database.
    pub(crate) async fn session(&self) -> Session {
        self.try_session().await.unwrap()
    }

    pub(crate) async fn try_session(&self) -> trickle_client::Result<Session> {
        Session::connect(&self.server.config(&self.name)).await
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        self.server.administer(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// Runs a test on every server, side by side, each time in a database of its own. Panics with the versions on
/// which the test failed.
pub(crate) fn each_server(test: impl AsyncFn(&Db) + Sync) {
    on_servers(servers(), test);
}

/// Runs a test on one server, chosen by the test's name and the day. Under `just nightly`, runs
/// the test on every server. The function is for tests whose results could differ between versions, but have
/// not differed so far. Tests whose results have differed (`traps_*`) run on every server.
pub(crate) fn todays_server(test: impl AsyncFn(&Db) + Sync) {
    let all = servers();
    let todays = todays(all.len());
    on_servers(
        all.iter().enumerate().filter(|(nth, _)| is_nightly() || *nth == todays).map(|(_, s)| s),
        test,
    );
}

/// Returns the position, among `of` servers, of the server on which the test of this thread runs today. The
/// position is pseudo-random, so that in time each part of a list (`is_todays`) runs on each server.
pub(super) fn todays(of: usize) -> usize {
    let name = std::thread::current().name().unwrap_or_default().bytes().map(u64::from).sum::<u64>();
    let lot = (name + today()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (lot % of.max(1) as u64) as usize
}

/// Runs a test on the newest server. Under `just nightly`, runs the test on every server. The
/// function is for long tests, and for tests of processes, clocks and messages, which depend little on the
/// version.
pub(crate) fn newest_server(test: impl AsyncFn(&Db) + Sync) {
    let all = servers();
    let newest = all.iter().map(|s| s.major).max().unwrap_or_default();
    on_servers(all.iter().filter(|s| is_nightly() || s.major == newest), test);
}

fn on_servers(servers: impl IntoIterator<Item = &'static Server>, test: impl AsyncFn(&Db) + Sync) {
    let run = |server: &'static Server| {
        let db = Db::create(server);
        catch_unwind(AssertUnwindSafe(|| runtime().block_on(test(&db)))).is_ok()
    };
    let run = &run;
    let failed: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> =
            servers.into_iter().map(|server| (server, scope.spawn(move || run(server)))).collect();
        running
            .into_iter()
            .filter_map(|(s, t)| (!t.join().unwrap_or(false)).then(|| format!("PostgreSQL {}", s.major)))
            .collect()
    });
    assert!(failed.is_empty(), "failed on {}", failed.join(", "));
}
