//! Cleans a session of the leftovers of users' code.
//!
//! A refresh runs code of its stream table's owner: functions in the query, triggers of the stream table.
//! Such code may take a lock for the session, set a setting, or leave a cursor, a temporary table or a
//! prepared statement. A refresher's session stays open for weeks and refreshes other stream tables, which
//! must not meet these leftovers.
//!
//! A plan alone does not show all the code that a refresh runs: casts, operators, domains and policies are
//! code too. So the session is cleaned after every refresh that ran any statement of kind `Program`.
//!
//! Cleaning usually costs no round trip: the message goes out after the transaction has ended, and the next
//! statement need not wait for the answer. Cleaning takes the server some 50 µs, while a refresh takes
//! milliseconds. If users' code prepared statements, their removal costs one round trip.

use crate::error::server_error;
use futures_util::{FutureExt, StreamExt, pin_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryStream};
use trickle_core::refresh::{Kind, Statement};
use trickle_core::sql::Ident;
use trickle_engine::db::ServerError;

/// Resets role and settings of a session. The role is reset first, so that the other statements run under
/// this program's own role.
const RESET: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL";

/// Drops the objects of a session, and returns the names of statements that SQL's PREPARE made. The
/// statements that this program keeps prepared are not among these, and stay. Usually users' code prepared no
/// statement. In this case the query costs a third as much as a block that drops statements.
const DROP: &str = "CLOSE ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES; \
     SELECT name AS prepared FROM pg_catalog.pg_prepared_statements WHERE from_sql";

/// Drops leftovers in a server process that a pooler gives to other clients, too. Settings and prepared
/// statements stay, since they may be the pooler's.
pub(crate) const DROP_SHARED: &str =
    "CLOSE ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP";

/// The leftovers of users' code in the session of one connection.
#[derive(Default)]
pub(crate) struct Leftovers {
    /// Whether only this program uses the session, so that everything that the program did not make may be
    /// removed.
    alone: bool,
    /// The settings that this program made, as `name = value`.
    own: Mutex<Vec<String>>,
    /// Whether users' code may have left anything since the last cleaning.
    some: AtomicBool,
    /// The server's answer to the last cleaning, until it is read.
    asked: Mutex<Option<SimpleQueryStream>>,
    /// Whether cleaning failed, so that nobody may use the session any more.
    spoiled: AtomicBool,
}

impl Leftovers {
    /// Declares that only this program uses the session.
    pub(crate) fn be_alone(&mut self) {
        self.alone = true;
    }

    /// Notes a setting that this program made, so that cleaning keeps it.
    pub(crate) fn keep(&self, setting: &str) {
        lock(&self.own).push(setting.to_owned());
    }

    /// Notes that a statement is sent. A statement of kind `Program` may run users' code.
    pub(crate) fn note(&self, s: &Statement) {
        if self.alone && s.kind == Kind::Program {
            self.some.store(true, Ordering::Relaxed);
        }
    }

    /// Whether users' code may have left anything in the session since the last call of this function.
    pub(crate) fn take(&self) -> bool {
        self.some.swap(false, Ordering::Relaxed)
    }

    /// Sends the statements that clean the session, if users' code may have left anything in the session. The
    /// server runs these statements before any later statement.
    pub(crate) fn clean(&self, client: &Client) {
        if !self.take() {
            return;
        }
        let own: String = lock(&self.own).iter().map(|setting| format!("; SET {setting}")).collect();
        let text = format!("{RESET}{own}; {DROP}");
        // The message is sent when its future is first polled.
        match client.simple_query_raw(&text).now_or_never() {
            Some(Ok(asked)) => *lock(&self.asked) = Some(asked),
            Some(Err(_)) | None => self.spoiled.store(true, Ordering::Relaxed),
        }
    }

    /// Waits until the session is clean. Usually the server's answer has arrived before this call, while
    /// other work was done.
    ///
    /// # Errors
    /// The session cannot be cleaned, so the connection counts as lost.
    pub(crate) async fn cleaned(&self, client: &Client) -> Result<(), ServerError> {
        if self.spoiled.load(Ordering::Relaxed) {
            return Err(ServerError::lost("a session could not be cleaned"));
        }
        let asked = lock(&self.asked).take();
        let Some(asked) = asked else { return Ok(()) };
        self.finish(asked, client).await.map_err(|e| {
            self.spoil();
            ServerError::lost(format!("a session cannot be cleaned: {}", server_error(e)))
        })
    }

    async fn finish(&self, asked: SimpleQueryStream, client: &Client) -> Result<(), tokio_postgres::Error> {
        let mut drop = Vec::new();
        pin_mut!(asked);
        while let Some(told) = asked.next().await {
            if let SimpleQueryMessage::Row(row) = told?
                && let Ok(Some(name)) = row.try_get("prepared")
            {
                drop.push(format!("DEALLOCATE {}", Ident::new(name)));
            }
        }
        if drop.is_empty() { Ok(()) } else { client.batch_execute(&drop.join("; ")).await }
    }

    /// Declares that nobody may use the session any more.
    pub(crate) fn spoil(&self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }
}

/// Locks a value. After a panic of another thread the value is still whole, since each change replaces the
/// value or appends to it in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
