//! The program as tests run it: with a password that it must not tell. Whatever test runs it, all that it
//! says is looked through.

use std::io::{self, Read};
use std::process::{Command, Output};

/// Has what URLs, `key=value` pairs and password files write in another way. Servers of tests ask for none,
/// unless a test has them ask for this one.
pub(crate) const PASSWORD: &str = "Tulip%zz @/:?Otter'\\=Maple";

/// What stays of it, however it is written.
const PIECES: [&str; 3] = ["Tulip", "Otter", "Maple"];

/// The program with no variable of this machine's that it would heed, and with the password.
pub(crate) fn program() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_trickle"));
    for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("PG") || n == "DATABASE_URL") {
        c.env_remove(name);
    }
    c.env("HOME", "/nonexistent").env("PGPASSWORD", PASSWORD);
    c
}

/// Runs the program to its end.
#[track_caller]
pub(crate) fn output(program: &mut Command) -> Output {
    let out = program.output().unwrap();
    for bytes in [&out.stdout, &out.stderr] {
        assert_hidden(&String::from_utf8_lossy(bytes));
    }
    out
}

/// That nothing of the password is in a text, in whatever way it is written.
#[track_caller]
pub(crate) fn assert_hidden(text: &str) {
    assert!(!PIECES.iter().any(|p| text.contains(p)), "a password is told: {text}");
}

/// What the program says while it runs.
#[derive(Debug)]
pub(crate) struct Said<R> {
    from: R,
    last: Vec<u8>,
}

impl<R: Read> Said<R> {
    pub(crate) fn new(from: R) -> Said<R> {
        Said { from, last: Vec::new() }
    }
}

impl<R: Read> Read for Said<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(to)?;
        self.last.extend_from_slice(&to[..n]);
        assert_hidden(&String::from_utf8_lossy(&self.last));
        // A piece may come in two.
        let kept = self.last.len().saturating_sub(PASSWORD.len());
        self.last.drain(..kept);
        Ok(n)
    }
}
