//! SIGKILL ends all processes of the server at once, before a statement of a refresh, while writers write.
//! The server is started again, and is written at once. The tests catch trust in buffers that a crash
//! emptied. The tests also catch work that was reported as stored and was lost.

use crate::support::private::{connect, newest_version, open, start};
use crate::support::{assert_equal, create, name, run};
use std::pin::Pin;
use trickle_client::capture::CaptureOptions;
use trickle_client::throwaway::Server;
use trickle_client::{RefreshOptions, Result, Session, Settings, Watch};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;
use trickle_core::refresh::Statement;

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int);
    CREATE TABLE b (id int PRIMARY KEY, k int, w int);
    INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 60) i;
    INSERT INTO b SELECT i, i % 5, i FROM generate_series(1, 10) i";

const CHAIN: [(&str, &str); 3] = [
    ("total", "SELECT k, sum(v) AS s, count(*) AS n FROM a GROUP BY k"),
    ("large", "SELECT t.k, t.s, b.w FROM total t JOIN b ON b.k = t.k WHERE t.s > 10"),
    ("other", "SELECT id, v FROM a"),
];

fn major(server: &Server) -> u32 {
    let version = std::fs::read_to_string(server.directory().join("data/PG_VERSION")).unwrap();
    version.trim().parse().unwrap()
}

/// A driver of a refresh. The driver runs `left` statements and then kills the server.
struct Crash<'s> {
    left: usize,
    seen: usize,
    server: &'s mut Server,
}

impl Watch for Crash<'_> {
    fn before<'s>(&'s mut self, _: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(async move {
            self.seen += 1;
            if self.seen == self.left + 1 {
                self.server.crash()?;
            }
            Ok(())
        })
    }
}

/// Writes until the server is dead.
fn writes(s: Session, from: i32) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        for i in from.. {
            let text = format!(
                "INSERT INTO a VALUES ({i}, {i} % 5, 1); UPDATE b SET w = w + 1 WHERE id = {i} % 10;
                 DELETE FROM a WHERE id = {i} - 20 AND id > 1000"
            );
            if s.client().batch_execute(&text).await.is_err() {
                return;
            }
        }
    })
}

/// Crashes at every second step with one version of PostgreSQL, and at the other steps with the next version.
/// Restarts are slow, so each version is crashed only at a part of the steps.
async fn crash_everywhere(server: &mut Server, unlogged: bool, full: bool) {
    let settings = Settings {
        capture: CaptureOptions { mode: Mode::Statement, unlogged },
        segment_bytes: 8192,
        force: Some(Force::Incremental),
        ..Settings::default()
    };
    let mut t = open(server, "postgres", settings.clone()).await;
    run(&connect(server, "postgres").await, SOURCES).await;
    for (what, query) in CHAIN {
        create(&mut t, what, query).await;
    }
    let options = RefreshOptions { full, ..RefreshOptions::default() };
    let mut left = usize::from(major(server).is_multiple_of(2));
    loop {
        assert!(left < 100, "a refresh of {left} statements");
        let number = i32::try_from(left).unwrap() * 1_000_000 + 1_000_000;
        let w = connect(server, "postgres").await;
        run(&w, "UPDATE a SET v = v + 1 WHERE id % 7 = 0; UPDATE b SET w = w + 1 WHERE id = 3").await;
        let open_writer = connect(server, "postgres").await;
        run(&open_writer, "BEGIN; UPDATE a SET v = -1000 WHERE id = 1; DELETE FROM b WHERE id = 1").await;
        let writer = writes(connect(server, "postgres").await, number);
        let mut crash = Crash { left, seen: 0, server };
        let done = t.refresh_watched(&[name("large")], &options, &mut crash).await;
        let survived = crash.seen <= left;
        if survived {
            done.unwrap_or_else(|e| panic!("{e:?}"));
            writer.abort();
            break;
        }
        assert!(done.is_err(), "step {left}: {done:?}");
        server.ready().await.unwrap();
        writer.await.unwrap();
        // This write comes after the crash and before any refresh reads the buffers.
        let w = connect(server, "postgres").await;
        run(&w, "INSERT INTO a VALUES (-5, 1, 1); DELETE FROM a WHERE id = -5; UPDATE a SET v = v + 1 WHERE k = 2").await;
        t = open(server, "postgres", settings.clone()).await;
        for (what, _) in CHAIN {
            assert_equal(&mut t, what).await;
        }
        left += 2;
    }
    assert!(left > 8, "only {left} statements");
    t = open(server, "postgres", settings).await;
    run(&connect(server, "postgres").await, "UPDATE a SET v = v + 1 WHERE id % 7 = 0").await;
    for (what, _) in CHAIN {
        assert_equal(&mut t, what).await;
    }
}

#[test]
fn the_server_dies_at_every_step_of_a_delta() {
    newest_version(async |binaries| {
        let mut server = start(binaries, "crash").await;
        crash_everywhere(&mut server, false, false).await;
        server.stop();
    });
}

#[test]
fn the_server_dies_at_every_step_of_an_unlogged_delta() {
    newest_version(async |binaries| {
        let mut server = start(binaries, "crashu").await;
        crash_everywhere(&mut server, true, false).await;
        server.stop();
    });
}

#[test]
fn the_server_dies_at_every_step_of_a_full_refresh() {
    newest_version(async |binaries| {
        let mut server = start(binaries, "crashf").await;
        crash_everywhere(&mut server, true, true).await;
        server.stop();
    });
}

/// Nobody has written or refreshed since the crash. The query that finds idle stream tables must itself
/// notice that the crash emptied the buffers.
#[test]
fn the_cheap_question_notices_buffers_emptied_by_a_crash() {
    newest_version(async |binaries| {
        let mut server = start(binaries, "crashp").await;
        let settings = Settings {
            capture: CaptureOptions { mode: Mode::Statement, unlogged: true },
            ..Settings::default()
        };
        let mut t = open(&server, "postgres", settings.clone()).await;
        run(&connect(&server, "postgres").await, SOURCES).await;
        create(&mut t, "other", "SELECT id, v FROM a").await;
        run(&connect(&server, "postgres").await, "UPDATE a SET v = v + 1; CHECKPOINT").await;
        server.crash().unwrap();
        server.ready().await.unwrap();
        t = open(&server, "postgres", settings.clone()).await;
        let e = t.find(&name("other")).await.unwrap();
        let options = RefreshOptions::default();
        assert_eq!(t.pending(std::slice::from_ref(&e), &options).await.unwrap(), [e.id]);
        let apart = t.refresh_apart(&[], &options).await.unwrap();
        assert_eq!(apart[0].as_ref().unwrap()[0].report.action.name(), "FULL");
        assert_equal(&mut t, "other").await;
        server.stop();
    });
}
