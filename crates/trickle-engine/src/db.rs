//! The server, as all of this speaks to it: from outside over a connection, or from inside.
//!
//! A [`Connection`] is what a driver must be able to do; what is asked of it is written over `dyn Connection`, with values
//! whose types are told, so that no question needs another one first.

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

/// Event triggers of the extension are not to follow what the program alters and drops: they know it by this lock, where whoever has
/// the catalog holds it. It conflicts with nothing but with what makes the catalog another one.
const AT_WORK: &str = "LOCK TABLE pgtrickle.pgt_catalog_version IN ROW SHARE MODE";

/// What comes of a question.
pub type Answering<'a, T, E = Refusal> = Pin<Box<dyn Future<Output = Result<T, E>> + 'a>>;

/// A way to one database, as one role. Statements run in the order in which their answers are first waited for.
pub trait Connection {
    /// Runs one statement. One that is to be `kept` comes again with this text: the server may keep it prepared.
    fn run<'a>(&'a self, text: &'a str, params: Vec<Param<'a>>, kept: bool) -> Answering<'a, Rows>;

    /// Runs statements that take no values and return nothing, in order, up to the first that fails.
    fn batch<'a>(&'a self, text: &'a str) -> Answering<'a, ()>;

    /// The same as whoever owns the catalog, to whom all belongs that is hidden: it makes, changes, locks, empties and drops such
    /// objects, and triggers that use them. What the current role may do to the tables concerned was looked at before. A
    /// connection whose one role has the catalog is that role already.
    fn as_keeper<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.batch(text)
    }

    /// The rows of a query as the server writes their values.
    fn written<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<Vec<Option<String>>>>;

    /// Prepares a statement that takes no values, for as long as what comes of it is kept.
    fn prepare<'a>(&'a self, text: &'a str) -> Answering<'a, Prepared>;

    /// The rows of a statement that was prepared on this connection.
    fn again<'a>(&'a self, prepared: &'a Prepared) -> Answering<'a, Vec<Row>>;

    /// Names and types (as oids) of the columns that a query would give. Runs nothing.
    fn columns<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<(String, u32)>>;

    /// Begins a transaction; where `fresh`, one in which each statement sees what was committed before it.
    fn begin(&self, fresh: bool) -> Answering<'_, ()>;

    /// Makes the transaction last.
    fn commit(&self) -> Answering<'_, ()>;

    /// Undoes the transaction.
    fn rollback(&self) -> Answering<'_, ()>;

    /// Undoes the transaction before anything else is done, without being waited for.
    fn abandon(&self);

    /// Does nothing for a while.
    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + '_>>;

    /// What says within a transaction that trickle itself alters and drops what is altered and dropped there, where the server
    /// cannot see it otherwise.
    fn mark_of_work(&self) -> Option<&'static str> {
        Some(AT_WORK)
    }

    /// The same as [`Connection::as_keeper`], within a transaction that goes on where it fails, as it was before.
    fn attempt_as_keeper<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.attempt(text)
    }

    /// The same as [`Connection::batch`], within a transaction that goes on where it fails, as it was before.
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

    /// The transaction that somebody else has begun and will end, where refreshes run in one.
    fn callers(&self) -> Option<Callers> {
        None
    }

    /// Fails where this very connection is in the middle of reading or changing one of these tables, so that what it sees of
    /// them, and what was captured of that, is not of one moment.
    fn idle(&self, _tables: &[u32]) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether this is a security-restricted operation: what is run is somebody's who is not asked for it, and nothing is to
    /// outlive it in the session.
    fn is_restricted(&self) -> bool {
        false
    }

    /// For whom the statement that failed just now was cancelled, where somebody else has refreshes of this process give way
    /// ([`give_way`](crate::give_way)). It is told once.
    fn gives_way_to(&self) -> Option<String> {
        None
    }

    /// A refresh begins: until it ends it is run by [`Connection::steps`], and reads the snapshot of its decision.
    fn refresh_begins(&self) {}

    /// A refresh ends: what it did stays, or is undone where it failed.
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

    /// Sets `name = value` for the session, and keeps it so as long as the connection lasts, whatever users'
    /// code sets in refreshes.
    fn set<'a>(&'a self, setting: &'a str) -> Answering<'a, ()> {
        Box::pin(async move { self.batch(&format!("SET {setting}")).await })
    }

    /// Keeps the statements of refreshes prepared that come again, from now on.
    fn keep_prepared(&mut self) {}

    /// The number of the server process as it was told when the connection was made. It is another than that of the process
    /// which answers where a pooler stands between, since a pooler makes one up for each of its clients.
    fn greeted(&self) -> Option<i32> {
        None
    }

    /// From now on each transaction may run in another server process, which others use between two: nothing is left in one,
    /// and nothing is expected there. Each transaction begins with these statements, which must last no longer than it.
    fn share(&mut self, _locals: &'static [&'static str]) {}

    /// The server process of the last refresh that began, where each may have another; 0 before the first.
    fn process(&self) -> Option<Arc<AtomicI32>> {
        None
    }

    /// What was sent of statements that come again; nothing is counted where none is kept prepared.
    fn sent(&self) -> Sent {
        Sent::default()
    }
}

/// Somebody's transaction, seen by a refresh that runs in it.
#[derive(Clone, Debug)]
pub struct Callers {
    /// A query that returns its last command so far, as `bigint`.
    pub command: Arc<str>,
    /// Whether each of its statements sees what was committed before it, and none an older moment.
    pub fresh: bool,
    /// Whether it ends with the statement that asks: what it locks is free soon.
    pub brief: bool,
}

/// What a connection sent of statements that come again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// All.
    pub all: u64,
    /// Those that were prepared before.
    pub kept: u64,
}

/// The way to more connections like one: to the same database, as the same role.
pub trait Connections: Send + Sync {
    /// A new one.
    fn another(&self) -> Answering<'_, Box<dyn Connection>, Error>;
}

/// A statement that a connection prepared; what it is, the connection knows.
#[derive(Clone, Debug)]
pub struct Prepared(pub Arc<dyn Any + Send + Sync>);

/// What one statement gave.
#[derive(Debug, Default)]
pub struct Rows {
    /// Its rows.
    pub rows: Vec<Row>,
    /// The number of rows in its command tag.
    pub affected: u64,
}

impl Rows {
    /// What the machine is told of them.
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
    /// The rows of a statement.
    ///
    /// # Errors
    /// What the server says.
    pub async fn query(&self, text: &str, params: &[&dyn Bind]) -> Result<Vec<Row>, Refusal> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, false).await?.rows)
    }

    /// The rows of a statement that comes again and again.
    ///
    /// # Errors
    /// What the server says.
    pub async fn ask(&self, text: &str, params: &[&dyn Bind]) -> Result<Vec<Row>, Refusal> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, true).await?.rows)
    }

    /// The first row of a statement, if it gives any.
    ///
    /// # Errors
    /// What the server says.
    pub async fn query_opt(&self, text: &str, params: &[&dyn Bind]) -> Result<Option<Row>, Refusal> {
        Ok(self.query(text, params).await?.into_iter().next())
    }

    /// The first row of a statement.
    ///
    /// # Errors
    /// What the server says; no row.
    pub async fn query_one(&self, text: &str, params: &[&dyn Bind]) -> Result<Row, Refusal> {
        let row = self.query_opt(text, params).await?;
        row.ok_or_else(|| Refusal::new("02000", "the question has no answer"))
    }

    /// Runs a statement; how many rows it touched.
    ///
    /// # Errors
    /// What the server says.
    pub async fn execute(&self, text: &str, params: &[&dyn Bind]) -> Result<u64, Refusal> {
        let params = params.iter().map(|p| p.bind()).collect();
        Ok(self.run(text, params, false).await?.affected)
    }

    /// Runs statements that return nothing.
    ///
    /// # Errors
    /// What the server says of the first that fails; those after it did not run.
    pub async fn batch_execute(&self, text: &str) -> Result<(), Refusal> {
        self.batch(text).await
    }

    /// Begins a transaction of the isolation level that this role's transactions have.
    ///
    /// # Errors
    /// What the server says.
    pub async fn transaction(&mut self) -> Result<Transaction<'_>, Refusal> {
        self.begin(false).await?;
        Ok(Transaction { connection: self, open: true })
    }

    /// Begins a transaction in which each statement sees what was committed before it.
    ///
    /// # Errors
    /// What the server says.
    pub async fn fresh_transaction(&mut self) -> Result<Transaction<'_>, Refusal> {
        self.begin(true).await?;
        Ok(Transaction { connection: self, open: true })
    }
}

/// An open transaction. Dropping it undoes it.
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

/// What is asked within it is asked of the connection.
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
    /// Makes it last.
    ///
    /// # Errors
    /// What the server says; it is undone then.
    pub async fn commit(mut self) -> Result<(), Refusal> {
        self.open = false;
        self.connection.commit().await
    }

    /// Undoes it.
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

/// Why a question has no answer: what the server said of it, or how the connection was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Five characters; `None` where it was not the server who said it.
    pub sqlstate: Option<String>,
    /// The primary message.
    pub message: String,
    /// DETAIL, if any.
    pub detail: Option<String>,
    /// HINT, if any.
    pub hint: Option<String>,
    /// Where in the statement, as a number of characters from 1.
    pub position: Option<usize>,
}

impl Refusal {
    /// What a server says.
    pub fn new(sqlstate: &str, message: impl Into<String>) -> Refusal {
        Refusal { sqlstate: Some(sqlstate.to_owned()), message: message.into(), ..Refusal::default() }
    }
    /// The connection is lost, or was never there.
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
