//! What the code of users leaves in a session, and its end.
//!
//! A refresh runs what its owner wrote: functions in the query, triggers of the stream table. That may take a
//! lock for the session, set a setting, leave a cursor, a temporary table or a prepared statement. A
//! refresher's session goes on for weeks and refreshes others, which must not meet any of it. Which code a
//! refresh runs cannot be told from its plan alone (casts, operators, domains and policies are code too), so
//! it is taken away after every refresh that ran a program.
//!
//! It costs no round trip: the message goes out after the transaction has ended, and what is asked next need
//! not wait for its answer. It takes the server some 50 µs, beside milliseconds of a refresh; where
//! statements were prepared, one round trip more.

use crate::wire::refusal;
use futures_util::{FutureExt, StreamExt, pin_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryStream};
use trickle_core::refresh::{Kind, Statement};
use trickle_core::sql::Ident;
use trickle_engine::db::Refusal;

/// Takes away what belongs to a session; whose it is comes first, since the rest is this program's to do.
const RESET: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL";

/// The same of things, and the names of statements that SQL prepared; those that this connection keeps were
/// not, and stay. That there are none of them is the rule, and to ask costs a third of what a block does that
/// drops them.
const DROP: &str = "CLOSE ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES; \
     SELECT name AS prepared FROM pg_catalog.pg_prepared_statements WHERE from_sql";

/// What of it is nobody's in a server process that others are given too. Settings and statements in it may be
/// the pooler's.
pub(crate) const DROP_SHARED: &str =
    "CLOSE ALL; UNLISTEN *; SELECT pg_catalog.pg_advisory_unlock_all(); DISCARD TEMP";

/// The session of one connection, as far as somebody may leave anything in it.
#[derive(Default)]
pub(crate) struct Leftovers {
    /// Whether there is nothing in it but what this program put there, so that the rest may go.
    alone: bool,
    /// `name = value` of what this program set.
    own: Mutex<Vec<String>>,
    /// Whether anything may have been left since it was cleaned last.
    some: AtomicBool,
    /// The server's answer to the last cleaning, until somebody reads it.
    asked: Mutex<Option<SimpleQueryStream>>,
    /// It could not be cleaned: nobody may use it any more.
    spoiled: AtomicBool,
}

impl Leftovers {
    /// There is nothing in the session but what this program puts there.
    pub(crate) fn be_alone(&mut self) {
        self.alone = true;
    }

    /// This program set this, and keeps it so.
    pub(crate) fn keep(&self, setting: &str) {
        lock(&self.own).push(setting.to_owned());
    }

    /// A statement is sent.
    pub(crate) fn note(&self, s: &Statement) {
        if self.alone && s.kind == Kind::Program {
            self.some.store(true, Ordering::Relaxed);
        }
    }

    /// Whether anything may have been left; asks once.
    pub(crate) fn take(&self) -> bool {
        self.some.swap(false, Ordering::Relaxed)
    }

    /// Sends what cleans the session, if anything may be in it. It comes before all that is asked after it.
    pub(crate) fn clean(&self, client: &Client) {
        if !self.take() {
            return;
        }
        let own: String = lock(&self.own).iter().map(|setting| format!("; SET {setting}")).collect();
        let text = format!("{RESET}{own}; {DROP}");
        // It is sent when it is first asked for.
        match client.simple_query_raw(&text).now_or_never() {
            Some(Ok(asked)) => *lock(&self.asked) = Some(asked),
            Some(Err(_)) | None => self.spoiled.store(true, Ordering::Relaxed),
        }
    }

    /// Waits until the session is clean, which it is long since where anything was done meanwhile.
    ///
    /// # Errors
    /// It cannot be cleaned: the connection counts as lost.
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

    /// Nobody may use the session any more.
    pub(crate) fn spoil(&self) {
        self.spoiled.store(true, Ordering::Relaxed);
    }
}

/// What a panic elsewhere left behind is whole: it is replaced or appended to at once.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
