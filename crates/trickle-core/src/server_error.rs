//! The error with which a server answers a statement.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The reason why a statement has no result: an error of the server, or the loss of the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerError {
    sqlstate: Option<String>,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    position: Option<usize>,
}

impl ServerError {
    /// Makes an error of the server. The SQLSTATE has five characters.
    pub fn new(sqlstate: impl Into<String>, message: impl Into<String>) -> ServerError {
        ServerError { sqlstate: Some(sqlstate.into()), ..ServerError::lost(message) }
    }

    /// Makes an error for a connection that was lost, or was never made.
    pub fn lost(message: impl Into<String>) -> ServerError {
        ServerError { sqlstate: None, message: message.into(), detail: None, hint: None, position: None }
    }

    /// Sets the DETAIL.
    #[must_use]
    pub fn with_detail(self, detail: Option<impl Into<String>>) -> ServerError {
        ServerError { detail: detail.map(Into::into), ..self }
    }

    /// Sets the HINT.
    #[must_use]
    pub fn with_hint(self, hint: Option<impl Into<String>>) -> ServerError {
        ServerError { hint: hint.map(Into::into), ..self }
    }

    /// Sets the position of the error in the statement, in characters from 1.
    #[must_use]
    pub fn with_position(self, position: Option<usize>) -> ServerError {
        ServerError { position, ..self }
    }

    /// Returns the SQLSTATE. Returns `None` if the error does not come from the server.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }

    /// Returns the primary message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the DETAIL, if the error has one.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// Returns the HINT, if the error has one.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the position of the error in the statement, in characters from 1.
    pub fn position(&self) -> Option<usize> {
        self.position
    }

    /// Whether the connection was lost, so that the server gave no answer.
    pub fn is_lost(&self) -> bool {
        self.sqlstate.is_none()
    }

    /// Whether the data raised the error (SQLSTATE class 21 or 22).
    pub fn is_data(&self) -> bool {
        self.sqlstate().is_some_and(|s| s.starts_with("21") || s.starts_with("22"))
    }

    /// Whether the whole transaction may succeed if it is tried again. True for class 40, and for the loss of
    /// a prepared statement, since the driver then prepares the statement again.
    pub fn is_retryable(&self) -> bool {
        self.sqlstate().is_some_and(|s| s.starts_with("40") || s == "26000")
    }
}

impl From<Error> for ServerError {
    fn from(e: Error) -> ServerError {
        ServerError::new(e.sqlstate(), e.message()).with_detail(e.detail_text()).with_hint(e.hint_text())
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServerError {}
