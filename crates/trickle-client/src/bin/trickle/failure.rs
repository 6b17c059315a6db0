//! Why the program stops without a result, and the exit code that says so.

use std::fmt::Write;
use trickle_client::connect::ConnectError;

/// The thing asked for is false or failed.
pub(crate) const FAILED: u8 = 1;
/// Usage or bad input.
pub(crate) const INPUT: u8 = 2;
/// There is no connection.
const CONNECTION: u8 = 3;

/// An error for people.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    /// Text that says it all already, such as a place in a file.
    shown: Option<String>,
}

impl Failure {
    fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), detail: None, hint: None, shown: None }
    }
    /// What was asked for failed.
    pub(crate) fn failed(message: impl Into<String>) -> Failure {
        Self::new(FAILED, message)
    }
    /// What was given cannot be used.
    pub(crate) fn input(message: impl Into<String>) -> Failure {
        Self::new(INPUT, message)
    }
    /// What was given cannot be used, as this text shows.
    pub(crate) fn shown(text: String) -> Failure {
        Failure { shown: Some(text), ..Self::input("") }
    }
    /// What to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// The text for standard error.
    pub(crate) fn render(&self, colour: bool) -> String {
        if let Some(shown) = &self.shown {
            return shown.clone();
        }
        let (red, bold, off) = if colour { ("\x1b[1;31m", "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}error{off}: {}\n", self.message);
        for (label, what) in [("detail", &self.detail), ("hint", &self.hint)] {
            if let Some(what) = what {
                let _ = writeln!(text, "{bold}{label}{off}: {what}");
            }
        }
        text
    }
}

impl From<ConnectError> for Failure {
    fn from(e: ConnectError) -> Failure {
        Failure {
            code: if e.is_setting() { INPUT } else { CONNECTION },
            message: e.message().to_owned(),
            detail: e.detail_text().map(str::to_owned),
            hint: e.hint_text().map(str::to_owned),
            shown: None,
        }
    }
}

/// A server that answers with an error, or a connection that breaks, while a command runs.
impl From<tokio_postgres::Error> for Failure {
    fn from(e: tokio_postgres::Error) -> Failure {
        let db = e.as_db_error();
        let cause = std::error::Error::source(&e).map_or_else(|| e.to_string(), |s| format!("{e}: {s}"));
        Failure {
            code: FAILED,
            message: db.map_or(cause, |d| d.message().to_owned()),
            detail: db.and_then(|d| d.detail()).map(str::to_owned),
            hint: db.and_then(|d| d.hint()).map(str::to_owned),
            shown: None,
        }
    }
}

/// What the library could not do.
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
            shown: None,
        }
    }
}
