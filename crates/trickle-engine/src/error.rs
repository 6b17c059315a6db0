//! The error type of all code that works with a database.

use std::fmt;
use trickle_core::ServerError;
use trickle_core::error::Span;
use trickle_core::refresh::{Failure, FailureKind};

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of one of three sorts: the request is wrong, a server returned an error, or no server can be
/// reached. The fields are private, and methods return the properties of the error.
#[derive(Debug)]
pub struct Error(Box<Parts>);

/// The fields of an error are on the heap, since results are moved often and errors are rare.
#[derive(Debug)]
struct Parts {
    kind: Kind,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    sqlstate: Option<String>,
    span: Option<Span>,
    source: Option<ServerError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The request cannot be carried out because of names, queries, options or states of objects.
    Input,
    /// A server answered with an error.
    Server,
    /// No connection could be made, or the connection was lost.
    Connection,
    /// Another session holds a lock that the request needs.
    Busy,
    /// An object was altered since the plan was made.
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

    /// Makes an error for a request that cannot be carried out.
    pub fn input(message: impl Into<String>) -> Error {
        Error::new(Kind::Input, message)
    }

    /// Makes an error for a server that cannot be reached.
    pub fn connection(message: impl Into<String>) -> Error {
        Error::new(Kind::Connection, message)
    }

    /// Makes an error for an object that was altered since the plan was made.
    pub(crate) fn stale(message: impl Into<String>) -> Error {
        Error::new(Kind::Stale, message)
    }

    /// Makes an error for a lock that the request needs and another session holds.
    pub fn busy(message: impl Into<String>) -> Error {
        Error::new(Kind::Busy, message)
    }

    /// Makes an error from an error of the server or the connection. `doing` is the work that failed, for
    /// example `read the catalog`.
    pub fn server(doing: impl AsRef<str>, source: impl Into<ServerError>) -> Error {
        let (doing, source) = (doing.as_ref(), source.into());
        let kind = match source.sqlstate() {
            None => Kind::Connection,
            Some("55P03") => Kind::Busy,
            // Another role may have the right, so the user chose the wrong role.
            Some("42501") => Kind::Input,
            Some(code) if code.starts_with("08") || code.starts_with("57P") => Kind::Connection,
            Some(_) => Kind::Server,
        };
        let mut e = Error::new(kind, format!("cannot {doing}: {}", source.message()));
        e.0.detail = source.detail().map(str::to_owned);
        e.0.hint = source.hint().map(str::to_owned);
        if source.sqlstate() == Some("25006") {
            e.0.hint.get_or_insert_with(|| {
                "trickle writes to the database: connect to the primary, as a role without default_transaction_read_only."
                    .to_owned()
            });
        }
        e.0.sqlstate = source.sqlstate().map(str::to_owned);
        e.0.source = Some(source);
        e
    }

    /// Adds a DETAIL, which gives the facts behind the message.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Error {
        self.0.detail = Some(detail.into());
        self
    }
    /// Adds a HINT, which says what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.0.hint = Some(hint.into());
        self
    }
    /// Sets the SQLSTATE that PostgreSQL has for such an error.
    #[must_use]
    pub fn coded(mut self, sqlstate: &str) -> Error {
        self.0.sqlstate = Some(sqlstate.to_owned());
        self
    }
    /// Sets the place in the query that the error is about.
    #[must_use]
    pub fn at(mut self, span: Span) -> Error {
        self.0.span = Some(span);
        self
    }
    /// Removes the place, for an error whose reader does not have the text that the place is in.
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
    /// Marks an error of the server as the fault of the user's input.
    #[must_use]
    pub fn blamed_on_input(mut self) -> Error {
        if self.0.kind == Kind::Server {
            self.0.kind = Kind::Input;
        }
        self
    }

    /// Returns the message, one sentence without a final stop.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// Returns the DETAIL, which gives the facts behind the message.
    pub fn detail_text(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }
    /// Returns the HINT, which says what the user can do.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
    /// Returns the place in the query that the error is about.
    pub fn span(&self) -> Option<Span> {
        self.0.span
    }
    /// Returns the SQLSTATE, if the server or the engine set one.
    pub fn sqlstate(&self) -> Option<&str> {
        self.0.sqlstate.as_deref()
    }

    /// Whether the request is at fault.
    pub fn is_input(&self) -> bool {
        self.0.kind == Kind::Input
    }

    /// Whether an error of planning would occur again at every further attempt.
    pub(crate) fn is_final(&self) -> bool {
        self.is_input() || self.sqlstate().is_some() && !self.is_busy() && !self.is_connection()
    }

    /// Whether no connection could be made, or the connection was lost.
    pub fn is_connection(&self) -> bool {
        self.0.kind == Kind::Connection
    }
    /// Whether another session holds a lock that the request needs, so that a later attempt may succeed.
    pub fn is_busy(&self) -> bool {
        self.0.kind == Kind::Busy
    }
    /// Whether an object was altered since the plan was made, so that the caller must plan again.
    pub fn is_stale(&self) -> bool {
        self.0.kind == Kind::Stale
    }
    /// Whether an attempt with a new snapshot may succeed: the error is a serialization failure (40001) or a
    /// deadlock (40P01).
    pub fn is_transient(&self) -> bool {
        matches!(self.sqlstate(), Some("40001" | "40P01"))
    }
    /// Whether the data of the query raised the error (SQLSTATE class 21 or 22), so that a refresh
    /// recomputes.
    pub fn is_data(&self) -> bool {
        self.sqlstate().is_some_and(|s| s.starts_with("21") || s.starts_with("22"))
    }

    /// Returns the error in the form that the refresh machine reads. An error without an SQLSTATE gets one:
    /// 08006 (`connection_failure`) where the connection was lost, and XX000 otherwise.
    pub fn to_server_error(&self) -> ServerError {
        let without = if self.0.kind == Kind::Connection { "08006" } else { "XX000" };
        let said = self.0.source.as_ref().filter(|s| !s.is_lost());
        let message = said.map_or(self.message(), ServerError::message);
        ServerError::new(self.sqlstate().unwrap_or(without), message)
            .with_detail(self.detail_text())
            .with_hint(self.hint_text())
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
        let advice = || advice_on(f.error.sqlstate()?, f.error.message());
        let mut e = Error::new(kind, f.error.message());
        e.0.detail = f.error.detail().map(str::to_owned);
        e.0.hint = f.error.hint().or_else(advice).map(str::to_owned);
        e.0.sqlstate = f.error.sqlstate().map(str::to_owned);
        e
    }
}

/// Returns advice on an error that an index or a rule on the stream table itself raised while a refresh wrote
/// its rows. A refresh writes rows by trickle's own key, so that key never raises 23505.
fn advice_on(sqlstate: &str, message: &str) -> Option<&'static str> {
    match sqlstate {
        "23505" => Some(
            "If a unique index on the stream table refused the rows: where two rows exchange their values, declare it as a \
             constraint that is checked after each statement (ALTER TABLE … ADD UNIQUE (…) DEFERRABLE); where the query gives \
             the value twice, drop it.",
        ),
        "0A000" if message.contains("INSERT or UPDATE rules") => Some(
            "Drop the rule on the stream table; a trigger on it, or a rule on a view over it, can do the same.",
        ),
        _ => None,
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
