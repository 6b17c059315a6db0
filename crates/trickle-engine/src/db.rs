//! The interface to the server. A driver implements it, outside the server over a connection or inside one of
//! its processes.
//!
//! A [`Connection`] is all that a driver must provide. The engine asks its questions over `dyn Connection`.
//! Each value is bound with its type, so that no question needs another one first.

mod bind;
mod cell;
mod kept;

pub use bind::{Bind, Param};
pub use cell::{Cell, FromCell, Json, Row};
pub use kept::{Kept, Way};

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
/// do not follow them. The event triggers look for this lock, and believe it of roles that have the rights of
/// the catalog's owner. The lock conflicts only with statements that exchange the catalog itself.
const AT_WORK: &str = "LOCK TABLE pgtrickle.pgt_catalog_version IN ROW SHARE MODE";

/// The answer to a question, as a future.
pub type Answering<'a, T, E = Refusal> = Pin<Box<dyn Future<Output = Result<T, E>> + 'a>>;

/// A session in one database, as one role. Statements run in the order in which their answers are first
/// awaited.
pub trait Connection {
    /// Runs one statement. `kept` says that the same text comes again, so that the driver may keep it
    /// prepared.
    fn run<'a>(&'a self, text: &'a str, params: Vec<Param<'a>>, kept: bool) -> Answering<'a, Rows>;

    /// Runs statements without values and results in order, up to the first that fails.
    fn batch<'a>(&'a self, text: &'a str) -> Answering<'a, ()>;

    /// Runs statements like [`Connection::batch`], but as the catalog's owner, to whom all hidden objects
    /// belong. Such statements make, change, lock, empty and drop hidden objects, and triggers that use
    /// these. The caller has checked before what the current role may do to the tables concerned. By default
    /// the role of the connection is the catalog's owner already.
    fn as_keeper<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.batch(text)
    }

    /// Runs a query and returns its rows, each value as the server writes it.
    fn written<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<Vec<Option<String>>>>;

    /// Prepares a statement that takes no values, for as long as the returned value is kept.
    fn prepare<'a>(&'a self, text: &'a str) -> Answering<'a, Prepared>;

    /// Runs a statement that was prepared on this connection, and returns its rows.
    fn again<'a>(&'a self, prepared: &'a Prepared) -> Answering<'a, Vec<Row>>;

    /// Returns names and types (as oids) of the columns of a query, without running it.
    fn columns<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<(String, u32)>>;

    /// Begins a transaction. Where `fresh`, each of its statements sees all that was committed before that
    /// statement.
    fn begin(&self, fresh: bool) -> Answering<'_, ()>;

    /// Commits the transaction.
    fn commit(&self) -> Answering<'_, ()>;

    /// Rolls the transaction back.
    fn rollback(&self) -> Answering<'_, ()>;

    /// Has the transaction rolled back before the next statement, without being awaited.
    fn abandon(&self);

    /// Waits for this time.
    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + '_>>;

    /// Returns the statement that marks a transaction as one in which trickle itself alters and drops
    /// objects. `None` where the server can see that without a mark.
    fn mark_of_work(&self) -> Option<&'static str> {
        Some(AT_WORK)
    }

    /// Runs statements like [`Connection::as_keeper`], within a transaction. If they fail, they alone are
    /// undone, and the transaction goes on.
    fn attempt_as_keeper<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.attempt(text)
    }

    /// Runs statements like [`Connection::batch`], within a transaction. If they fail, they alone are undone,
    /// and the transaction goes on.
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

    /// Returns the caller's transaction, where refreshes run in one that the caller begins and ends.
    fn callers(&self) -> Option<Callers> {
        None
    }

    /// Fails where this session is itself in the middle of reading or changing one of these tables. The rows
    /// that it sees, and the changes that were captured of them, would then not be of one moment.
    fn idle(&self, _tables: &[u32]) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether this is a security-restricted operation. Such an operation acts for a role that did not ask
    /// for it, and leaves nothing behind in the session.
    fn is_restricted(&self) -> bool {
        false
    }

    /// Returns the session for which the last failed statement was cancelled, where another process makes
    /// refreshes of this process give way ([`give_way`](crate::give_way)). The session is returned once.
    fn gives_way_to(&self) -> Option<String> {
        None
    }

    /// Tells the connection that a refresh begins. Until the refresh ends, its statements come through
    /// [`Connection::steps`], and read the snapshot of its decision query.
    fn refresh_begins(&self) {}

    /// Tells the connection that a refresh ends. The work of the refresh stays if it is `_done`, and is
    /// undone if it failed.
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

    /// Sets `name = value` for as long as the connection lasts, whatever users' code sets in refreshes.
    fn set<'a>(&'a self, setting: &'a str) -> Answering<'a, ()> {
        Box::pin(async move { self.batch(&format!("SET {setting}")).await })
    }

    /// Makes the connection keep those statements of refreshes prepared that come again.
    fn keep_prepared(&mut self) {}

    /// Returns the number of the server process, as it was told when the connection was made. Behind a pooler
    /// it is not the number of the process that answers, since a pooler makes one up for each of its clients.
    fn greeted(&self) -> Option<i32> {
        None
    }

    /// Makes the connection expect another server process in each transaction, which other clients use in
    /// between. The connection then leaves nothing in a process, and expects nothing there. Each transaction
    /// begins with these statements, whose effect must end with it.
    fn share(&mut self, _locals: &'static [&'static str]) {}

    /// Returns the number of the server process of the last refresh that began, and 0 before the first, where
    /// each refresh may have another process.
    fn process(&self) -> Option<Arc<AtomicI32>> {
        None
    }

    /// Counts the statements that come again. All counts are 0 where no statement is kept prepared.
    fn sent(&self) -> Sent {
        Sent::default()
    }
}

/// The caller's transaction, as a refresh that runs in it sees it.
#[derive(Clone, Debug)]
pub struct Callers {
    /// A query that returns the last command of the transaction so far, as `bigint`.
    pub command: Arc<str>,
    /// Whether each statement of the transaction sees all that was committed before it, and none reads an
    /// older snapshot.
    pub fresh: bool,
    /// Whether the transaction ends with the statement that asks, so that its locks are free soon.
    pub brief: bool,
}

/// The number of statements that come again which a connection sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// All of them.
    pub all: u64,
    /// Those that were prepared before they were sent.
    pub kept: u64,
}

/// Opens more connections like a given one: to the same database, as the same role.
pub trait Connections: Send + Sync {
    /// Opens a new connection.
    fn another(&self) -> Answering<'_, Box<dyn Connection>, Error>;
}

/// A statement that a connection prepared, in a form that only the connection knows.
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
    /// Converts the result for the refresh machine. Rows are left out where the statement does not fetch
    /// them.
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
    /// The server's error.
    pub async fn query(&self, text: &str, params: &[&dyn Bind]) -> Result<Vec<Row>, Refusal> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, false).await?.rows)
    }

    /// Runs a statement that comes again and again, and returns its rows.
    ///
    /// # Errors
    /// The server's error.
    pub async fn ask(&self, text: &str, params: &[&dyn Bind]) -> Result<Vec<Row>, Refusal> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, true).await?.rows)
    }

    /// Runs a statement and returns its first row, if there is one.
    ///
    /// # Errors
    /// The server's error.
    pub async fn query_opt(&self, text: &str, params: &[&dyn Bind]) -> Result<Option<Row>, Refusal> {
        Ok(self.query(text, params).await?.into_iter().next())
    }

    /// Runs a statement and returns its first row.
    ///
    /// # Errors
    /// The server's error; SQLSTATE 02000 where there is no row.
    pub async fn query_one(&self, text: &str, params: &[&dyn Bind]) -> Result<Row, Refusal> {
        let row = self.query_opt(text, params).await?;
        row.ok_or_else(|| Refusal::new("02000", "the question has no answer"))
    }

    /// Runs a statement and returns the number of rows that it touched.
    ///
    /// # Errors
    /// The server's error.
    pub async fn execute(&self, text: &str, params: &[&dyn Bind]) -> Result<u64, Refusal> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, false).await?.affected)
    }

    /// Runs statements that return no rows.
    ///
    /// # Errors
    /// The server's error for the first statement that fails; those after it did not run.
    pub async fn batch_execute(&self, text: &str) -> Result<(), Refusal> {
        self.batch(text).await
    }

    /// Begins a transaction at the default isolation level of this role.
    ///
    /// # Errors
    /// The server's error.
    pub async fn transaction(&mut self) -> Result<Transaction<'_>, Refusal> {
        self.begin(false).await?;
        Ok(Transaction { connection: self, open: true })
    }

    /// Begins a transaction whose every statement sees all that was committed before it.
    ///
    /// # Errors
    /// The server's error.
    pub async fn fresh_transaction(&mut self) -> Result<Transaction<'_>, Refusal> {
        self.begin(true).await?;
        Ok(Transaction { connection: self, open: true })
    }
}

/// An open transaction. Dropping it rolls it back.
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

/// Every question within the transaction is passed on to the connection.
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
    /// The server's error; the transaction is rolled back then.
    pub async fn commit(mut self) -> Result<(), Refusal> {
        self.open = false;
        self.connection.commit().await
    }

    /// Rolls the transaction back.
    ///
    /// # Errors
    /// The connection is lost, and with it the transaction.
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

/// The reason why a question has no answer: the server's error, or the loss of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Five characters; `None` where the error is not the server's.
    pub sqlstate: Option<String>,
    /// The primary message.
    pub message: String,
    /// DETAIL, if any.
    pub detail: Option<String>,
    /// HINT, if any.
    pub hint: Option<String>,
    /// The position in the statement, in characters from 1.
    pub position: Option<usize>,
}

impl Refusal {
    /// Makes the error of a server.
    pub fn new(sqlstate: &str, message: impl Into<String>) -> Refusal {
        Refusal { sqlstate: Some(sqlstate.to_owned()), message: message.into(), ..Refusal::default() }
    }
    /// Makes the error of a connection that is lost, or was never there.
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
