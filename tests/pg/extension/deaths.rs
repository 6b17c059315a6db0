//! Kinds of death of servers, processes and statements. Tests use them to end a refresh or a write while it
//! waits at a stop.

use super::stops::{At, Cast};
use super::workers::until;
use crate::support::{end, pid, run};
use std::process::Command;
use std::time::Duration;
use trickle_client::Session;
use trickle_client::throwaway::Server;

fn signal(name: &str, process: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success(), "{name} {process}");
}

/// The kind of death of a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Death {
    /// One process is killed. The server ends its other processes and recovers by itself.
    Process,
    /// Only the server's first process is killed. The other processes notice its death and exit.
    Head,
    /// All processes of the server are killed.
    All,
    /// The server gets the signal to stop at once (SIGQUIT).
    Quit,
}

impl Death {
    /// Makes a server die while its process waits for the blocker of `cast`. Waits until the server is ready
    /// again.
    pub(super) async fn of(self, server: &mut Server, process: i32, cast: &Cast) {
        if matches!(self, Death::Head | Death::Quit) {
            // The supervisor watches a new server for about a second. The supervisor would take a death
            // within that time for a failed start.
            until(
                &cast.eye,
                "SELECT count(*) WHERE clock_timestamp() - pg_postmaster_start_time() > '1s'",
                1,
            )
            .await;
        }
        let file = server.directory().join("data/postmaster.pid");
        let kept = server.directory().join("kept.pid");
        let head = std::fs::read_to_string(&file).unwrap().lines().next().unwrap().to_owned();
        match self {
            Death::Process => signal("-KILL", &process.to_string()),
            Death::Head => signal("-KILL", &head),
            Death::All => {}
            Death::Quit => {
                std::fs::hard_link(&file, &kept).unwrap();
                signal("-QUIT", &head);
            }
        }
        if !matches!(self, Death::All) {
            for _ in 0..60_000 {
                if cast.blocker.client().is_closed() && !(matches!(self, Death::Quit) && file.exists()) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        if matches!(self, Death::Quit) {
            // The supervisor reads the process id of the dead server from `file`.
            std::fs::rename(&kept, &file).unwrap();
        }
        if !matches!(self, Death::Process) {
            server.crash().unwrap();
        }
        server.ready().await.unwrap();
    }
}

/// The way in which a statement is ended while its server lives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Terminated,
    Cancelled,
    StatementTimeout,
    LockTimeout,
}

pub(super) const ENDS: [End; 4] = [End::Terminated, End::Cancelled, End::StatementTimeout, End::LockTimeout];

impl End {
    /// Returns the statement that sets the timeouts of the session whose statement will be ended.
    fn setting(self) -> &'static str {
        match self {
            End::Terminated | End::Cancelled => "SELECT",
            End::StatementTimeout => "SET statement_timeout = '500ms'",
            End::LockTimeout => "SET lock_timeout = '50ms'",
        }
    }

    /// Runs a call, ends the call while it waits for a blocker, and then ends the blocker's transaction.
    pub(super) async fn of(
        self,
        cast: &Cast,
        s: &Session,
        block: &str,
        call: &str,
        meanwhile: impl AsyncFnOnce(At),
    ) {
        let process = pid(s.client()).await;
        run(s, self.setting()).await;
        let done = cast.stopped(s, block, call, async |at| {
            meanwhile(at).await;
            match self {
                End::Terminated => end(&cast.eye, process).await,
                End::Cancelled => run(&cast.eye, &format!("SELECT pg_cancel_backend({process})")).await,
                End::StatementTimeout | End::LockTimeout => {}
            }
        });
        let e = done.await.expect_err(block);
        let code = e.code().map(|c| c.code());
        let expected = match self {
            End::Terminated => "57P01",
            End::Cancelled | End::StatementTimeout => "57014",
            End::LockTimeout => "55P03",
        };
        assert_eq!(code, Some(expected), "{self:?}: {block}: {e:?}");
        run(&cast.blocker, "ROLLBACK").await;
    }
}
