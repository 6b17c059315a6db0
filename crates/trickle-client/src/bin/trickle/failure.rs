//! The reason why the program stops without a result, and the exit code that says so.

use crate::colour::stderr_colour;
use crate::finding::{Finding, SqlFile};
use crate::typed::hidden;
use serde_json::{Value, json};
use std::fmt::Write;
use trickle_client::connect::ConnectError;

/// Exit code: a check or a piece of work failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code: wrong usage or bad input.
pub(crate) const INPUT: u8 = 2;
/// Exit code: there is no connection.
const CONNECTION: u8 = 3;
/// Exit code: the command would do something, if it were run without `--dry-run`.
pub(crate) const DIFFERS: u8 = 4;

/// The reason why a command has no result.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    sqlstate: Option<String>,
    /// The places in texts that are to blame.
    found: Option<Box<Found>>,
}

/// The places in texts that are to blame. The places are kept in one form for people and in another for
/// programs. People see the drawn places instead of the message, the detail and the hint, which the drawing
/// contains.
#[derive(Debug)]
struct Found {
    /// The places, drawn for people.
    drawn: String,
    /// The places, as findings for programs.
    findings: Vec<Value>,
}

impl Failure {
    fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), ..Failure::default() }
    }
    /// Makes the failure of a command that could not do its work.
    pub(crate) fn failed(message: impl Into<String>) -> Failure {
        Self::new(FAILED, message)
    }
    /// Makes the failure of input that cannot be used.
    pub(crate) fn input(message: impl Into<String>) -> Failure {
        Self::new(INPUT, message)
    }
    /// Makes the failure of input that cannot be used, for the reasons in these findings.
    pub(crate) fn found(findings: &[Finding], files: &[SqlFile]) -> Failure {
        let first = findings.first();
        let text = |of: fn(&Finding) -> Option<String>| first.and_then(of);
        Failure {
            detail: text(|f| f.detail.clone()),
            hint: text(|f| f.help.clone()),
            sqlstate: text(Finding::sqlstate),
            found: Some(Box::new(Found {
                drawn: findings.iter().map(|f| f.render(files, stderr_colour())).collect(),
                findings: findings.iter().map(|f| f.to_json(files)).collect(),
            })),
            ..Self::input(text(|f| Some(f.message.clone())).unwrap_or_default())
        }
    }
    /// Makes the failure of a wrong command line, with the message of the command line's parser.
    pub(crate) fn usage(e: &clap::Error) -> Failure {
        let text = e.to_string();
        let mut parts = text.trim().splitn(2, '\n');
        let message = parts.next().unwrap_or_default().trim_start_matches("error: ").trim_end_matches(':');
        Failure { detail: parts.next().map(|p| p.trim().to_owned()), ..Self::input(message) }
    }
    /// Adds advice on what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Returns the line for standard error that programs read. The line contains no password from the command
    /// line.
    pub(crate) fn to_json(&self) -> String {
        let mut error = json!({"message": self.message, "detail": self.detail, "hint": self.hint,
            "sqlstate": self.sqlstate, "exit_code": self.code});
        if let Some(found) = &self.found {
            error["findings"] = found.findings.clone().into();
        }
        hidden(&format!("{}\n", json!({"error": error})))
    }

    /// Returns the text for standard error that people read. The text contains no password from the command
    /// line.
    pub(crate) fn render(&self, colour: bool) -> String {
        if let Some(found) = &self.found {
            return hidden(&found.drawn);
        }
        let (red, bold, off) = if colour { ("\x1b[1;31m", "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}error{off}: {}\n", self.message);
        for (label, what) in [("detail", &self.detail), ("hint", &self.hint)] {
            if let Some(what) = what {
                let _ = writeln!(text, "{bold}{label}{off}: {what}");
            }
        }
        hidden(&text)
    }
}

impl From<ConnectError> for Failure {
    fn from(e: ConnectError) -> Failure {
        Failure {
            code: if e.is_setting() { INPUT } else { CONNECTION },
            message: e.message().to_owned(),
            detail: e.detail_text().map(str::to_owned),
            hint: e.hint_text().map(str::to_owned),
            ..Failure::default()
        }
    }
}

/// An error of the server, or a broken connection, while a command runs.
impl From<tokio_postgres::Error> for Failure {
    fn from(e: tokio_postgres::Error) -> Failure {
        let db = e.as_db_error();
        let cause = std::error::Error::source(&e).map_or_else(|| e.to_string(), |s| format!("{e}: {s}"));
        Failure {
            code: FAILED,
            message: db.map_or(cause, |d| d.message().to_owned()),
            detail: db.and_then(|d| d.detail()).map(str::to_owned),
            hint: db.and_then(|d| d.hint()).map(str::to_owned),
            sqlstate: db.map(|d| d.code().code().to_owned()),
            ..Failure::default()
        }
    }
}

/// An error of the library.
impl From<trickle_client::Error> for Failure {
    fn from(e: trickle_client::Error) -> Failure {
        let code = match () {
            () if e.is_input() => INPUT,
            () if e.is_connection() => CONNECTION,
            () => FAILED,
        };
        Failure {
            code,
            message: e.message().to_owned(),
            detail: e.detail_text().map(str::to_owned),
            hint: e.hint_text().map(str::to_owned),
            sqlstate: e.sqlstate().map(str::to_owned),
            ..Failure::default()
        }
    }
}
