//! Tests run the program with a password that no output may contain. Each run of the program in any test
//! searches the whole output for the password.

use std::io::{self, Read};
use std::process::{Command, Output};

/// A password with characters that URLs, `key=value` pairs and password files escape. Servers of tests ask
/// for no password, unless a test configures them to ask for this password.
pub(crate) const PASSWORD: &str = "Tulip%zz @/:?Otter'\\=Maple";

/// Parts of the password that stay the same however the password is escaped.
const PIECES: [&str; 3] = ["Tulip", "Otter", "Maple"];

/// Returns a command that runs the program with the password. The command lacks those environment variables
/// of this machine that would change the program's behaviour.
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

/// Asserts that no part of the password is in a text, in any form of escaping.
#[track_caller]
pub(crate) fn assert_hidden(text: &str) {
    assert!(!PIECES.iter().any(|p| text.contains(p)), "a password is told: {text}");
}

/// A stream of the program's output. The stream is searched for the password while it is read.
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
        // A read may end within the password. So the end of the text that was read is searched again with the
        // next read.
        let kept = self.last.len().saturating_sub(PASSWORD.len());
        self.last.drain(..kept);
        Ok(n)
    }
}
