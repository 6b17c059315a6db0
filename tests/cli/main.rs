//! The program `trickle` from the view of its users: its output on each stream, and its exit codes. The tests
//! need no server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails as a test does"
)]

mod connection;
mod explain;
mod lint;
mod messages;
#[allow(dead_code, reason = "shared with the tests that have servers")]
#[path = "../pg/support/planted.rs"]
mod planted;
mod secrets;
mod shell;
mod size;
mod tls;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The output and the exit code of a run.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    /// Parses standard output, which must be one JSON document.
    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}\n{}\n{}", self.out, self.err))
    }
}

/// Returns a command for the program, without those variables of this machine that would change the program's
/// behaviour.
fn trickle() -> Command {
    let mut c = planted::program();
    c.current_dir(files());
    c
}

fn run(args: &[&str]) -> Ran {
    finish(trickle().args(args))
}

fn finish(command: &mut Command) -> Ran {
    let out = planted::output(command);
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    Ran { code: out.status.code().unwrap_or(-1), out: text(out.stdout), err: text(out.stderr) }
}

/// Returns the directory of the example files.
fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/errors")
}
