//! The one error type of the client.

use std::fmt;

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a server, or the way to it, answered. Opaque: ask it with the methods.
#[derive(Debug)]
pub struct Error {
    doing: String,
    source: tokio_postgres::Error,
}

impl Error {
    /// An error of the server or the connection, with what was being done, e.g. `connect to "shop"`.
    pub(crate) fn new(doing: impl Into<String>, source: tokio_postgres::Error) -> Self {
        Error { doing: doing.into(), source }
    }

    /// The SQLSTATE, if a server answered.
    pub fn sqlstate(&self) -> Option<&str> {
        self.source.code().map(tokio_postgres::error::SqlState::code)
    }

    /// Whether another try under a new snapshot may succeed: serialization failure (40001) or deadlock (40P01).
    pub fn is_transient(&self) -> bool {
        matches!(self.sqlstate(), Some("40001" | "40P01"))
    }

    /// Whether the data of the query raised it (SQLSTATE class 21 or 22): a refresh then recomputes.
    pub fn is_data(&self) -> bool {
        self.sqlstate().is_some_and(|s| s.starts_with("21") || s.starts_with("22"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.as_db_error() {
            Some(e) => {
                write!(f, "cannot {}: {}", self.doing, e.message())?;
                for (label, text) in [("DETAIL", e.detail()), ("HINT", e.hint()), ("CONTEXT", e.where_())] {
                    if let Some(text) = text {
                        write!(f, "\n{label}: {text}")?;
                    }
                }
                Ok(())
            }
            None => write!(f, "cannot {}: {}", self.doing, self.source),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
