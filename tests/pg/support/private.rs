//! Servers that belong to one test alone, for tests that kill a server or need a server without other tests.

use super::Driver;
use super::live::run;
use super::server::{is_nightly, runtime, todays};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use trickle_client::throwaway::{self, Server};
use trickle_client::{Session, Settings};

/// Settings of small servers. The write-ahead log is logical, for subscriptions, and commits survive a crash.
const SETTINGS: &[&str] =
    &["shared_buffers=16MB", "wal_level=logical", "synchronous_commit=on", "max_wal_size=256MB"];

/// Whether a server's installation has this tool. In continuous integration a missing tool is a
/// failure.
pub(crate) fn has(binaries: &Path, tool: &str) -> bool {
    let there = binaries.join(tool).exists();
    assert!(there || std::env::var_os("CI").is_none(), "{} has no {tool}", binaries.display());
    there
}

/// Starts a new server with these binaries.
pub(crate) async fn start(binaries: &Path, name: &str) -> Server {
    start_with(binaries, name, &[]).await
}

/// Starts a new server with these binaries and more settings.
pub(crate) async fn start_with(binaries: &Path, name: &str, more: &[&str]) -> Server {
    let mut server = Server::start(binaries, name, &[SETTINGS, more].concat()).unwrap();
    server.ready().await.unwrap_or_else(|e| panic!("{e}"));
    server
}

pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    runtime().block_on(test)
}

/// Runs a test with the binaries of every version, one after the other.
pub(crate) fn each_version(test: impl AsyncFn(&Path)) {
    for binaries in throwaway::find().unwrap().into_values() {
        block_on(test(&binaries));
    }
}

/// Runs a test with the binaries of every version, side by side.
pub(crate) fn each_version_beside(test: impl AsyncFn(&Path) + Sync) {
    let (found, test) = (throwaway::find().unwrap(), &test);
    let run = |binaries: &Path| catch_unwind(AssertUnwindSafe(|| block_on(test(binaries)))).is_ok();
    let failed: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> =
            found.values().map(|b| (b.display().to_string(), scope.spawn(move || run(b)))).collect();
        let failed = running.into_iter().filter_map(|(b, t)| (!t.join().unwrap_or(false)).then_some(b));
        failed.collect()
    });
    assert!(failed.is_empty(), "failed with {}", failed.join(", "));
}

/// Runs a test with the binaries of one version (see [`todays_server`](super::todays_server)).
pub(crate) fn todays_version(test: impl AsyncFn(&Path)) {
    let found = throwaway::find().unwrap();
    let todays = todays(found.len());
    for (nth, binaries) in found.into_values().enumerate() {
        if is_nightly() || nth == todays {
            block_on(test(&binaries));
        }
    }
}

/// Runs a test with the binaries of the newest version. Under `just nightly`, runs the test with
/// the binaries of every version (see [`newest_server`](super::newest_server)).
pub(crate) fn newest_version(test: impl AsyncFn(&Path)) {
    let found = throwaway::find().unwrap();
    let few = if is_nightly() { found.len() } else { 1 };
    for binaries in found.into_values().rev().take(few) {
        block_on(test(&binaries));
    }
}

pub(crate) async fn connect(server: &Server, database: &str) -> Session {
    Session::connect(&server.config(database)).await.unwrap()
}

/// Makes a catalog in a database of this server, and opens a driver over it.
pub(crate) async fn open(server: &Server, database: &str, settings: Settings) -> Driver {
    let connect = async || connect(server, database).await;
    Driver::begin(&connect().await, connect, settings).await
}

/// Makes a new server a standby of `primary`.
pub(crate) async fn follow(server: &mut Server, primary: &Server) {
    let (from, to) = (primary.directory().display(), server.directory().display());
    // The server copies the files under its own user, since the data files belong to that user.
    let copied = format!(
        "COPY (SELECT) TO PROGRAM 'cd {to} && {}/pg_basebackup -h {from} -U postgres -D copied -R -c fast \
         && cp data/postmaster.pid copied/ && mv data replaced && mv copied data'",
        primary.binaries().display()
    );
    run(&connect(primary, "postgres").await, &copied).await;
    server.crash().unwrap();
    server.ready().await.unwrap();
}
