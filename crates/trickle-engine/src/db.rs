//! The interface to the server. A driver implements the interface. The driver works outside the server over
//! a connection, or inside a process of the server.
//!
//! A driver provides a [`Connection`], and no other interface. The engine sends all its statements through
//! `dyn Connection`. Each value is bound together with its type, so the driver need not ask the server for
//! types first.

mod bind;
mod cell;
mod kept;

pub use bind::{Bind, Param};
pub use cell::{Cell, FromCell, Json, Row};
pub use kept::{Kept, SendForm};

use crate::drive::{Timed, first_words};
use crate::error::Error;
use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::{Duration, Instant};
use trickle_core::refresh::{Answer, Statement, Value};

/// Marks a transaction in which the program alters and drops objects, so that the extension's event triggers
/// do not follow them. The event triggers look for this lock. Only sessions of roles that have the rights of
/// the catalog's owner are trusted with it. The lock conflicts only with statements that replace the catalog
/// itself.
const AT_WORK: &str = "LOCK TABLE pgtrickle.pgt_catalog_version IN ROW SHARE MODE";

/// The future result of a call to the server.
pub type Answering<'a, T, E = Refusal> = Pin<Box<dyn Future<Output = Result<T, E>> + 'a>>;

/// A session in one database, as one role. Statements run in the order in which their futures are first
/// polled.
pub trait Connection {
    /// Runs one statement. `kept` says that the same text will be sent again, so that the driver may prepare
    /// it.
    fn run<'a>(&'a self, text: &'a str, params: Vec<Param<'a>>, kept: bool) -> Answering<'a, Rows>;

    /// Runs statements that have no parameters and return no rows, in order, up to the first one that fails.
    fn batch<'a>(&'a self, text: &'a str) -> Answering<'a, ()>;

    /// Runs statements like [`Connection::batch`], but as the catalog's owner, who owns all hidden objects.
    /// Such statements make, change, lock, empty and drop hidden objects, and triggers that use hidden
    /// objects. The caller has checked that the current role has the needed rights on the tables concerned.
    /// The default implementation is for a connection whose role is the catalog's owner.
    fn as_keeper<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
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

    /// Returns the statement that marks a transaction as one in which trickle itself alters and drops
    /// objects. Returns `None` where the server recognizes such a transaction without a mark.
    fn mark_of_work(&self) -> Option<&'static str> {
        Some(AT_WORK)
    }

    /// Runs statements like [`Connection::as_keeper`], within a transaction. If they fail, only these
    /// statements are undone, and the transaction continues.
    fn attempt_as_keeper<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
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

    /// Returns the caller's transaction, where refreshes run in a transaction that the caller begins and
    /// ends.
    fn callers(&self) -> Option<Callers> {
        None
    }

    /// Fails where this session is in the middle of a statement that reads or changes one of these tables.
    /// The rows that such a statement sees, and the captured changes of these rows, would belong to
    /// different moments.
    fn idle(&self, _tables: &[u32]) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether this session runs a security-restricted operation. Such an operation acts for a role that did
    /// not start it, and leaves nothing behind in the session.
    fn is_restricted(&self) -> bool {
        false
    }

    /// Returns the session for which the last failed statement was cancelled, where another process can make
    /// refreshes of this process give way ([`give_way`](crate::give_way)). The session is returned by one
    /// call only.
    fn gives_way_to(&self) -> Option<String> {
        None
    }

    /// Tells the connection that a refresh begins. Until the refresh ends, its statements come through
    /// [`Connection::steps`] and read the snapshot of the decision query.
    fn refresh_begins(&self) {}

    /// Tells the connection that a refresh ends. The work of the refresh is preserved if `_done` is true,
    /// and undone otherwise.
    fn refresh_ends(&self, _done: bool) {}

    /// Runs one statement of a refresh.
    fn step<'a>(&'a self, statement: &'a Statement) -> Answering<'a, Answer, Error> {
        Box::pin(async move {
            let params = statement.params.iter().map(Bind::bind).collect();
            let rows = self.run(&statement.text, params, false).await;
            rows.map(|r| r.answer(statement)).map_err(|e| Error::server(first_words(&statement.text), e))
        })
    }

    /// Runs statements of a refresh in order, up to the first that fails.
    fn steps<'a>(&'a self, batch: &'a [Statement]) -> Pin<Box<dyn Future<Output = Vec<Timed>> + 'a>> {
        Box::pin(async move {
            let mut answers: Vec<Timed> = Vec::new();
            for s in batch {
                let answer = self.step(s).await;
                let failed = answer.is_err();
                answers.push((answer, Instant::now()));
                if failed {
                    break;
                }
            }
            answers
        })
    }

    /// Sets `name = value` for the lifetime of the connection, even if code of users sets it otherwise in
    /// refreshes.
    fn set<'a>(&'a self, setting: &'a str) -> Answering<'a, ()> {
        Box::pin(async move { self.batch(&format!("SET {setting}")).await })
    }

    /// Makes the connection prepare those statements of refreshes that are sent repeatedly.
    fn keep_prepared(&mut self) {}

    /// Returns the number of the server process that the server reported when the connection was made. A
    /// pooler invents a number for each of its clients, so behind a pooler this is not the number of the
    /// process that answers.
    fn greeted(&self) -> Option<i32> {
        None
    }

    /// Prepares the connection for a pooler, which may give each transaction another server process and lets
    /// other clients use that process in between. Afterwards the connection leaves nothing in a server
    /// process, and relies on nothing that it left there. Each transaction begins with the statements
    /// `_locals`, whose effects must end with the transaction.
    fn share(&mut self, _locals: &'static [&'static str]) {}

    /// Returns the number of the server process in which the last refresh began, and 0 before the first
    /// refresh. Returns `None` where all refreshes of the connection have one process.
    fn process(&self) -> Option<Arc<AtomicI32>> {
        None
    }

    /// Returns the counts of the statements that were sent repeatedly. All counts are 0 where the connection
    /// prepares no statement.
    fn sent(&self) -> Sent {
        Sent::default()
    }
}

/// The caller's transaction, for a refresh that runs in it.
#[derive(Clone, Debug)]
pub struct Callers {
    /// A query that returns, as `bigint`, the number of the last command that the transaction has run.
    pub command: Arc<str>,
    /// Whether each statement of the transaction sees all that was committed before the statement, and none
    /// reads an older snapshot.
    pub fresh: bool,
    /// Whether the transaction ends with the statement that started the refresh, so that its locks are
    /// released soon.
    pub brief: bool,
}

/// Counts of the statements that a connection sends repeatedly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The number of all such statements.
    pub all: u64,
    /// The number of such statements that were already prepared when they were sent.
    pub kept: u64,
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
    /// Converts the result to an answer for the refresh machine. The answer has no rows if the statement is
    /// one that does not fetch rows.
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
    pub async fn query(&self, text: &str, params: &[&dyn Bind]) -> Result<Vec<Row>, Refusal> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, false).await?.rows)
    }

    /// Runs a statement that is sent repeatedly, and returns its rows.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn ask(&self, text: &str, params: &[&dyn Bind]) -> Result<Vec<Row>, Refusal> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, true).await?.rows)
    }

    /// Runs a statement and returns its first row, if there is one.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn query_opt(&self, text: &str, params: &[&dyn Bind]) -> Result<Option<Row>, Refusal> {
        Ok(self.query(text, params).await?.into_iter().next())
    }

    /// Runs a statement and returns its first row.
    ///
    /// # Errors
    /// Errors of the server; SQLSTATE 02000 where the statement returns no row.
    pub async fn query_one(&self, text: &str, params: &[&dyn Bind]) -> Result<Row, Refusal> {
        let row = self.query_opt(text, params).await?;
        row.ok_or_else(|| Refusal::new("02000", "the question has no answer"))
    }

    /// Runs a statement and returns the number of rows that it read or changed, from the command tag.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn execute(&self, text: &str, params: &[&dyn Bind]) -> Result<u64, Refusal> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, false).await?.affected)
    }

    /// Runs statements that return no rows.
    ///
    /// # Errors
    /// The error of the first statement that fails; the statements after it were not run.
    pub async fn batch_execute(&self, text: &str) -> Result<(), Refusal> {
        self.batch(text).await
    }

    /// Begins a transaction at the role's default isolation level.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn transaction(&mut self) -> Result<Transaction<'_>, Refusal> {
        self.begin(false).await?;
        Ok(Transaction { connection: self, open: true })
    }

    /// Begins a transaction in which each statement sees all that was committed before the statement.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn fresh_transaction(&mut self) -> Result<Transaction<'_>, Refusal> {
        self.begin(true).await?;
        Ok(Transaction { connection: self, open: true })
    }
}

/// An open transaction. Dropping the value rolls the transaction back.
pub struct Transaction<'c> {
    connection: &'c (dyn Connection + 'c),
    open: bool,
}

impl<'c> Deref for Transaction<'c> {
    type Target = dyn Connection + 'c;
    fn deref(&self) -> &Self::Target {
        self.connection
    }
}

/// Every call on the transaction is passed to its connection.
impl Connection for Transaction<'_> {
    fn run<'a>(&'a self, text: &'a str, params: Vec<Param<'a>>, kept: bool) -> Answering<'a, Rows> {
        self.connection.run(text, params, kept)
    }
    fn batch<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.connection.batch(text)
    }
    fn as_keeper<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.connection.as_keeper(text)
    }
    fn mark_of_work(&self) -> Option<&'static str> {
        self.connection.mark_of_work()
    }
    fn attempt_as_keeper<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.connection.attempt_as_keeper(text)
    }
    fn written<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<Vec<Option<String>>>> {
        self.connection.written(text)
    }
    fn prepare<'a>(&'a self, text: &'a str) -> Answering<'a, Prepared> {
        self.connection.prepare(text)
    }
    fn again<'a>(&'a self, prepared: &'a Prepared) -> Answering<'a, Vec<Row>> {
        self.connection.again(prepared)
    }
    fn columns<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<(String, u32)>> {
        self.connection.columns(text)
    }
    fn begin(&self, fresh: bool) -> Answering<'_, ()> {
        self.connection.begin(fresh)
    }
    fn commit(&self) -> Answering<'_, ()> {
        self.connection.commit()
    }
    fn rollback(&self) -> Answering<'_, ()> {
        self.connection.rollback()
    }
    fn abandon(&self) {
        self.connection.abandon();
    }
    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        self.connection.pause(time)
    }
    fn attempt<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.connection.attempt(text)
    }
    fn is_restricted(&self) -> bool {
        self.connection.is_restricted()
    }
}

impl Transaction<'_> {
    /// Commits the transaction.
    ///
    /// # Errors
    /// Errors of the server, after which the transaction is rolled back.
    pub async fn commit(mut self) -> Result<(), Refusal> {
        self.open = false;
        self.connection.commit().await
    }

    /// Rolls back the transaction.
    ///
    /// # Errors
    /// The connection is lost, and the transaction with it.
    pub async fn rollback(mut self) -> Result<(), Refusal> {
        self.open = false;
        self.connection.rollback().await
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open {
            self.connection.abandon();
        }
    }
}

/// The reason why a statement has no result: the error of the server, or the loss of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The SQLSTATE, five characters; `None` where the error does not come from the server.
    pub sqlstate: Option<String>,
    /// The primary message of the error.
    pub message: String,
    /// The DETAIL of the error, if it has one.
    pub detail: Option<String>,
    /// The HINT of the error, if it has one.
    pub hint: Option<String>,
    /// The position of the error in the statement, in characters from 1.
    pub position: Option<usize>,
}

impl Refusal {
    /// Makes a refusal by the server.
    pub fn new(sqlstate: &str, message: impl Into<String>) -> Refusal {
        Refusal { sqlstate: Some(sqlstate.to_owned()), message: message.into(), ..Refusal::default() }
    }
    /// Makes a refusal for a connection that was lost, or was never made.
    pub fn lost(message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), ..Refusal::default() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
