//! Transactions of a connection.

use super::{Answering, Callers, Connection, Host, Param, Prepared, Row, Rows, ServerError};
use crate::say::Voice;
use std::ops::Deref;
use std::pin::Pin;
use std::time::Duration;

impl dyn Connection + '_ {
    /// Begins a transaction at the role's default isolation level.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn transaction(&mut self) -> Result<Transaction<'_>, ServerError> {
        self.begin(false).await?;
        Ok(Transaction { connection: self, open: true })
    }

    /// Begins a transaction in which each statement sees all that was committed before the statement.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn fresh_transaction(&mut self) -> Result<Transaction<'_>, ServerError> {
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

/// A transaction has the surroundings of its connection, which was prepared for a pooler before the
/// transaction began.
impl Host for Transaction<'_> {
    fn callers(&self) -> Option<Callers> {
        self.connection.callers()
    }
    fn require_idle(&self, tables: &[u32]) -> Result<(), ServerError> {
        self.connection.require_idle(tables)
    }
    fn lock(&self, tables: &[u32], waits: bool) -> Result<bool, ServerError> {
        self.connection.lock(tables, waits)
    }
    fn is_restricted(&self) -> bool {
        self.connection.is_restricted()
    }
    fn voice(&self) -> Voice {
        self.connection.voice()
    }
    fn mark_of_work(&self) -> Option<&'static str> {
        self.connection.mark_of_work()
    }
    fn greeted(&self) -> Option<i32> {
        self.connection.greeted()
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
    fn as_catalog_owner<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.connection.as_catalog_owner(text)
    }
    fn attempt_as_catalog_owner<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        self.connection.attempt_as_catalog_owner(text)
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
    fn set<'a>(&'a self, setting: &'a str) -> Answering<'a, ()> {
        self.connection.set(setting)
    }
}

impl Transaction<'_> {
    /// Commits the transaction.
    ///
    /// # Errors
    /// Errors of the server, after which the transaction is rolled back.
    pub async fn commit(mut self) -> Result<(), ServerError> {
        self.open = false;
        self.connection.commit().await
    }

    /// Rolls back the transaction.
    ///
    /// # Errors
    /// The connection is lost, and the transaction with it.
    pub async fn rollback(mut self) -> Result<(), ServerError> {
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
