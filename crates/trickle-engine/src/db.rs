//! The interface to the server. A driver implements the interface. The driver works outside the server over
//! a connection, or inside a process of the server.
//!
//! | trait | subject |
//! |---|---|
//! | [`Connection`] | how statements and transactions reach the server |
//! | [`Host`] | in which surroundings the session runs, such as a pooler or a process of the server |
//! | [`RefreshDriver`] | how the statements of a refresh run |
//!
//! A connection without special surroundings implements the first trait only, and takes the defaults of the
//! others. The engine sends all statements except those of refreshes through `dyn Connection`. Each value is
//! bound together with its type, so the driver need not ask the server for types first.

mod bind;
mod cell;
mod host;
mod kept;
mod refresh_driver;
mod transaction;

pub use bind::{Bind, Param};
pub use cell::{Cell, FromCell, Json, Row};
pub use host::{Callers, Host};
pub use kept::{Kept, SendForm};
pub use refresh_driver::{RefreshDriver, Sent, Timed, first_words};
pub use transaction::Transaction;
pub use trickle_core::ServerError;

use crate::error::Error;
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use trickle_core::refresh::{Answer, Statement, Value};

/// The future result of a call to the server.
pub type Answering<'a, T, E = ServerError> = Pin<Box<dyn Future<Output = Result<T, E>> + 'a>>;

/// A session in one database, as one role: its statements and its transactions. Statements run in the order
/// in which their futures are first polled.
pub trait Connection: Host {
    /// Runs one statement. `kept` says that the same text will be sent again, so that the driver may prepare
    /// it.
    fn run<'a>(&'a self, text: &'a str, params: Vec<Param<'a>>, kept: bool) -> Answering<'a, Rows>;

    /// Runs statements that have no parameters and return no rows, in order, up to the first one that fails.
    fn batch<'a>(&'a self, text: &'a str) -> Answering<'a, ()>;

    /// Runs statements like [`Connection::batch`], but as the catalog's owner, who owns all hidden objects.
    /// Such statements make, change, lock, empty and drop hidden objects, and triggers that use hidden
    /// objects. The caller has checked that the current role has the needed rights on the tables concerned.
    /// The default implementation is for a connection whose role is the catalog's owner.
    fn as_catalog_owner<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.batch(text)
    }

    /// Runs a query and returns its rows, each value as the server writes it.
    fn written<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<Vec<Option<String>>>>;

    /// Prepares a statement that takes no values. The statement stays prepared until the returned value is
    /// dropped.
    fn prepare<'a>(&'a self, text: &'a str) -> Answering<'a, Prepared>;

    /// Runs a statement that was prepared on this connection by [`Connection::prepare`], and returns its
    /// rows.
    fn again<'a>(&'a self, prepared: &'a Prepared) -> Answering<'a, Vec<Row>>;

    /// Returns the names and the types (as oids) of the columns of a query, without running the query.
    fn columns<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<(String, u32)>>;

    /// Begins a transaction. If `fresh` is true, each statement of the transaction sees all that was
    /// committed before that statement.
    fn begin(&self, fresh: bool) -> Answering<'_, ()>;

    /// Commits the transaction.
    fn commit(&self) -> Answering<'_, ()>;

    /// Rolls back the transaction.
    fn rollback(&self) -> Answering<'_, ()>;

    /// Requests that the transaction be rolled back before the next statement, without waiting for the
    /// rollback.
    fn abandon(&self);

    /// Waits for the duration `time`.
    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + '_>>;

    /// Sets `name = value` for the lifetime of the connection, even if code of users sets it otherwise in
    /// refreshes.
    fn set<'a>(&'a self, setting: &'a str) -> Answering<'a, ()> {
        Box::pin(async move { self.batch(&format!("SET {setting}")).await })
    }

    /// Runs statements like [`Connection::as_catalog_owner`], within a transaction. If they fail, only these
    /// statements are undone, and the transaction continues.
    fn attempt_as_catalog_owner<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.attempt(text)
    }

    /// Runs statements like [`Connection::batch`], within a transaction. If they fail, only these statements
    /// are undone, and the transaction continues.
    fn attempt<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        Box::pin(async move {
            self.batch("SAVEPOINT trickle_attempt").await?;
            let done = self.batch(text).await;
            let after = match &done {
                Ok(()) => "RELEASE SAVEPOINT trickle_attempt",
                Err(_) => "ROLLBACK TO SAVEPOINT trickle_attempt; RELEASE SAVEPOINT trickle_attempt",
            };
            self.batch(after).await?;
            done
        })
    }
}

/// A factory of connections to the same database as the same role.
pub trait Connections: Send + Sync {
    /// Opens one more connection.
    fn another(&self) -> Answering<'_, Box<dyn Connection>, Error>;
}

/// A statement that was prepared on a connection, in a form that only this connection can use.
#[derive(Clone, Debug)]
pub struct Prepared(pub Arc<dyn Any + Send + Sync>);

/// The result of one statement.
#[derive(Debug, Default)]
pub struct Rows {
    /// The rows of the statement.
    pub rows: Vec<Row>,
    /// The number of rows in the command tag.
    pub affected: u64,
}

impl Rows {
    /// Converts the result to an answer for the refresh machine. The answer has no rows if the statement does
    /// not fetch rows.
    pub fn answer(&self, statement: &Statement) -> Answer {
        let told = |cell: &Cell| match cell {
            Cell::Bool(b) => Value::Bool(*b),
            Cell::Int8(n) => Value::Int8(*n),
            Cell::Float8(x) => Value::Float8(*x),
            Cell::Text(s) => Value::text(s),
            _ => Value::Null,
        };
        let wanted = self.rows.iter().filter(|_| statement.fetch);
        Answer {
            rows: wanted.map(|r| r.cells().iter().map(told).collect()).collect(),
            affected: self.affected,
            ..Answer::default()
        }
    }
}

impl dyn Connection + '_ {
    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn query(&self, text: &str, params: &[&dyn Bind]) -> Result<Vec<Row>, ServerError> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, false).await?.rows)
    }

    /// Runs a statement that is sent repeatedly, and returns its rows.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn ask(&self, text: &str, params: &[&dyn Bind]) -> Result<Vec<Row>, ServerError> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, true).await?.rows)
    }

    /// Runs a statement and returns its first row, if there is one.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn query_opt(&self, text: &str, params: &[&dyn Bind]) -> Result<Option<Row>, ServerError> {
        Ok(self.query(text, params).await?.into_iter().next())
    }

    /// Runs a statement and returns its first row.
    ///
    /// # Errors
    /// Errors of the server; SQLSTATE 02000 where the statement returns no row.
    pub async fn query_one(&self, text: &str, params: &[&dyn Bind]) -> Result<Row, ServerError> {
        let row = self.query_opt(text, params).await?;
        row.ok_or_else(|| ServerError::new("02000", "the question has no answer"))
    }

    /// Runs a statement and returns the number of rows that it read or changed, from the command tag.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn execute(&self, text: &str, params: &[&dyn Bind]) -> Result<u64, ServerError> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, false).await?.affected)
    }

    /// Runs statements that return no rows.
    ///
    /// # Errors
    /// The error of the first statement that fails; the statements after it were not run.
    pub async fn batch_execute(&self, text: &str) -> Result<(), ServerError> {
        self.batch(text).await
    }
}
