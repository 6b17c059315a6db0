//! Cleans a session of the leftovers of users' code.
//!
//! A refresh runs code of its stream table's owner: functions in the query, triggers of the stream table.
//! Such code may take a lock for the session, set a setting, or leave a cursor, a temporary table or a
//! prepared statement. A refresher's session stays open for weeks and refreshes other stream tables, which
//! must not meet these leftovers.
//!
//! A plan alone does not show all the code that a refresh runs: casts, operators, domains and policies are
//! code too. So the session is cleaned after every refresh that ran a program.
//!
//! Cleaning costs no round trip: the message goes out after the transaction has ended, and the next statement
//! need not wait for the answer. It takes the server some 50 µs, beside milliseconds of a refresh. Where
//! users' code prepared statements, it costs one more round trip.

use crate::wire::refusal;
use futures_util::{FutureExt, StreamExt, pin_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryStream};
use trickle_core::refresh::{Kind, Statement};
use trickle_core::sql::Ident;
use trickle_engine::db::Refusal;

/// Resets role and settings of a session. The role comes first, since this program's role is to do the rest.
const RESET: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL";

/// Drops the objects of a session, and returns the names of statements that SQL's PREPARE made. The
/// statements that this connection keeps are not among them, and stay. Usually there are none to drop, and
/// this query costs a third of a block that drops them.
const DROP: &str = "CLOSE ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES; \
     SELECT name AS prepared FROM pg_catalog.pg_prepared_statements WHERE from_sql";

/// Drops the leftovers that nobody needs in a server process that a pooler gives to other clients, too.
/// Settings and prepared statements there may be the pooler's, and stay.
pub(crate) const DROP_SHARED: &str =
    "CLOSE ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP";

/// The leftovers of users' code in the session of one connection.
#[derive(Default)]
pub(crate) struct Leftovers {
    /// Whether all other content of the session is this program's, so that leftovers may be taken away.
    alone: bool,
    /// The settings that this program made, as `name = value`.
    own: Mutex<Vec<String>>,
    /// Whether users' code may have left anything since the last cleaning.
    some: AtomicBool,
    /// The server's answer to the last cleaning, until it is read.
    asked: Mutex<Option<SimpleQueryStream>>,
    /// Whether cleaning failed: then nobody may use the session any more.
    spoiled: AtomicBool,
}

impl Leftovers {
    /// Declares that the session holds nothing but what this program puts there.
    pub(crate) fn be_alone(&mut self) {
        self.alone = true;
    }

    /// Notes a setting that this program made, so that cleaning keeps it.
    pub(crate) fn keep(&self, setting: &str) {
        lock(&self.own).push(setting.to_owned());
    }

    /// Notes that a statement is sent.
    pub(crate) fn note(&self, s: &Statement) {
        if self.alone && s.kind == Kind::Program {
            self.some.store(true, Ordering::Relaxed);
        }
    }

    /// Whether anything may have been left; the next call says no until another program ran.
    pub(crate) fn take(&self) -> bool {
        self.some.swap(false, Ordering::Relaxed)
    }

    /// Sends the statements that clean the session, if anything may be left in it. The server runs them
    /// before any later statement.
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

    /// Waits until the session is clean. Usually the answer arrived long ago, while other work was done.
    ///
    /// # Errors
    /// The session cannot be cleaned: the connection counts as lost.
    pub(crate) async fn cleaned(&self, client: &Client) -> Result<(), Refusal> {
        if self.spoiled.load(Ordering::Relaxed) {
            return Err(Refusal::lost("a session could not be cleaned"));
        }
        let asked = lock(&self.asked).take();
        let Some(asked) = asked else { return Ok(()) };
        self.finish(asked, client).await.map_err(|e| {
            self.spoil();
            Refusal::lost(format!("a session cannot be cleaned: {}", refusal(e)))
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

/// Locks a value. A panic elsewhere leaves it whole, since it is replaced or appended to in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
