//! The one error type of what works with a database.

use crate::db::Refusal;
use std::fmt;
use trickle_core::error::Span;
use trickle_core::refresh::{DbError, Failure, FailureKind};

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong: what was asked for cannot be, a server refused, or there is no server. Opaque: ask it with the
/// methods.
#[derive(Debug)]
pub struct Error(Box<Parts>);

/// On the heap, since results travel through many hands and errors are rare.
#[derive(Debug)]
struct Parts {
    kind: Kind,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    sqlstate: Option<String>,
    span: Option<Span>,
    source: Option<Refusal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What was asked for cannot be: names, queries, options, states of things.
    Input,
    /// A server answered with an error.
    Server,
    /// No connection, or it was lost.
    Connection,
    /// Somebody else holds what is needed.
    Busy,
    /// Something was altered since it was planned for.
    Stale,
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error(Box::new(Parts {
            kind,
            message: message.into(),
            detail: None,
            hint: None,
            sqlstate: None,
            span: None,
            source: None,
        }))
    }

    /// What was asked for cannot be.
    pub fn input(message: impl Into<String>) -> Error {
        Error::new(Kind::Input, message)
    }

    /// A server that cannot be reached.
    pub fn connection(message: impl Into<String>) -> Error {
        Error::new(Kind::Connection, message)
    }

    /// Something was altered since it was planned for.
    pub(crate) fn stale(message: impl Into<String>) -> Error {
        Error::new(Kind::Stale, message)
    }

    /// Somebody holds a lock that is needed.
    pub fn busy(message: impl Into<String>) -> Error {
        Error::new(Kind::Busy, message)
    }

    /// An error of the server or the connection, with what was being done, e.g. `read the catalog`.
    pub fn server(doing: impl AsRef<str>, source: impl Into<Refusal>) -> Error {
        let (doing, source) = (doing.as_ref(), source.into());
        let kind = match source.sqlstate.as_deref() {
            None => Kind::Connection,
            Some("55P03") => Kind::Busy,
            // Another role may do it: it is this one that was chosen wrongly.
            Some("42501") => Kind::Input,
            Some(code) if code.starts_with("08") || code.starts_with("57P") => Kind::Connection,
            Some(_) => Kind::Server,
        };
        let mut e = Error::new(kind, format!("cannot {doing}: {}", source.message));
        e.0.detail = source.detail.clone();
        e.0.hint = source.hint.clone();
        if source.sqlstate.as_deref() == Some("25006") {
            e.0.hint.get_or_insert_with(|| {
                "trickle writes to the database: connect to the primary, as a role without default_transaction_read_only."
                    .to_owned()
            });
        }
        e.0.sqlstate = source.sqlstate.clone();
        e.0.source = Some(source);
        e
    }

    /// Adds a DETAIL: the facts behind the message.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Error {
        self.0.detail = Some(detail.into());
        self
    }
    /// Adds a HINT: what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }
    /// Gives it the SQLSTATE that the server has for this.
    #[must_use]
    pub fn coded(mut self, sqlstate: &str) -> Error {
        self.0.sqlstate = Some(sqlstate.to_owned());
        self
    }
    /// Points at a place in the query.
    #[must_use]
    pub fn at(mut self, span: Span) -> Error {
        self.0.span = Some(span);
        self
    }
    /// Without a place: that is in a text which the reader of the error does not have.
    #[must_use]
    pub fn anywhere(mut self) -> Error {
        self.0.span = None;
        self
    }
    /// Replaces the message.
    #[must_use]
    pub fn saying(mut self, message: impl Into<String>) -> Error {
        self.0.message = message.into();
        self
    }
    /// Says that it is the user's input that the server refused.
    #[must_use]
    pub fn blamed_on_input(mut self) -> Error {
        if self.0.kind == Kind::Server {
            self.0.kind = Kind::Input;
        }
        self
    }

    /// The message, one sentence without a final stop.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// The facts behind it.
    pub fn detail_text(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }
    /// What to do.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// Where in the query.
    pub fn span(&self) -> Option<Span> {
        self.0.span
    }
    /// The SQLSTATE, if a server or the engine gave one.
    pub fn sqlstate(&self) -> Option<&str> {
        self.0.sqlstate.as_deref()
    }

    /// Whether what was asked for is at fault.
    pub fn is_input(&self) -> bool {
        self.0.kind == Kind::Input
    }
    /// Whether there is no connection (any more).
    pub fn is_connection(&self) -> bool {
        self.0.kind == Kind::Connection
    }
    /// Whether somebody else holds a lock that is needed: try again later.
    pub fn is_busy(&self) -> bool {
        self.0.kind == Kind::Busy
    }
    /// Whether something was altered since it was planned for: plan again.
    pub fn is_stale(&self) -> bool {
        self.0.kind == Kind::Stale
    }
    /// Whether another try under a new snapshot may succeed: serialization failure (40001) or deadlock (40P01).
    pub fn is_transient(&self) -> bool {
        matches!(self.sqlstate(), Some("40001" | "40P01"))
    }
    /// Whether the data of the query raised it (SQLSTATE class 21 or 22): a refresh then recomputes.
    pub fn is_data(&self) -> bool {
        self.sqlstate().is_some_and(|s| s.starts_with("21") || s.starts_with("22"))
    }

    /// What the refresh machine is told of it.
    pub fn to_db(&self) -> DbError {
        let lost = self.0.kind == Kind::Connection && self.0.sqlstate.is_none();
        let sqlstate =
            self.0.sqlstate.clone().unwrap_or_else(|| if lost { "08006" } else { "XX000" }.to_owned());
        let said = self.0.source.as_ref().filter(|s| s.sqlstate.is_some());
        let message = said.map(|s| s.message.clone());
        DbError {
            sqlstate,
            message: message.unwrap_or_else(|| self.0.message.clone()),
            detail: self.0.detail.clone(),
            hint: self.0.hint.clone(),
        }
    }
}

impl From<trickle_core::Error> for Error {
    fn from(e: trickle_core::Error) -> Error {
        let mut error = Error::new(Kind::Input, e.message());
        error.0.detail = e.detail_text().map(Into::into);
        error.0.hint = e.hint_text().map(Into::into);
        error.0.sqlstate = Some(e.sqlstate().to_owned());
        error.0.span = e.span();
        error
    }
}

impl From<Failure> for Error {
    fn from(f: Failure) -> Error {
        let kind = match f.kind {
            FailureKind::Busy => Kind::Busy,
            FailureKind::Connection => Kind::Connection,
            FailureKind::Stale => Kind::Stale,
            _ => Kind::Server,
        };
        let mut e = Error::new(kind, f.error.message);
        e.0.detail = f.error.detail;
        e.0.hint = f.error.hint;
        e.0.sqlstate = Some(f.error.sqlstate);
        e
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(s) = self.0.span {
            write!(f, "{}:{}: ", s.line, s.column)?;
        }
        f.write_str(&self.0.message)?;
        for (label, text) in [("DETAIL", &self.0.detail), ("HINT", &self.0.hint)] {
            if let Some(text) = text {
                write!(f, "\n{label}: {text}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as &(dyn std::error::Error + 'static))
    }
}
