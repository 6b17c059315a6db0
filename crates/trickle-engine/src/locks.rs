//! Runs DDL on users' tables without blocking other sessions for long.
//!
//! A session that waits for a lock blocks all sessions that request a lock after it. So each attempt waits
//! for a short time only. An attempt that fails reports the sessions that hold the lock, and leaves the
//! queue until the next attempt.

use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use crate::holders::holders;
use crate::progress::Progress;
use std::time::Duration;
use trickle_core::catalog::TableId;

/// The limits for getting a lock on a user's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The greatest time that one attempt waits for a lock. Each attempt lowers the limit below the server's
    /// `deadlock_timeout`. Zero means that the server's own limit applies.
    pub lock_timeout: Duration,
    /// The number of attempts.
    pub attempts: u32,
    /// The pause between two attempts.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { lock_timeout: Duration::from_secs(1), attempts: 30, pause: Duration::from_millis(500) }
    }
}

/// Runs `work` in a transaction and commits the transaction. If `work` does not get a lock in time, the
/// transaction is rolled back, the holders of the lock are reported, and `work` runs again. `tables` are the
/// tables whose locks `work` may wait for.
pub(crate) async fn patiently<T>(
    db: &mut dyn Connection,
    patience: Patience,
    tables: &[u32],
    progress: &dyn Progress,
    mut work: impl AsyncFnMut(&Transaction<'_>) -> Result<T>,
) -> Result<T> {
    let mut attempt = 1;
    loop {
        let result = once(db, patience, &mut work).await;
        let busy = match result {
            // In a caller's transaction, a serialization failure occurs again at every attempt.
            Err(e) if e.is_busy() || e.is_transient() && db.callers().is_none() => e,
            other => return other,
        };
        if patience.attempts <= 1 {
            return Err(busy);
        }
        let holders = holders(db, tables).await?;
        if attempt >= patience.attempts {
            return Err(Error::busy(format!("{} ({attempt} attempts)", busy.message()))
                .detail(if holders.is_empty() { "No session holds the lock any more.".to_owned() } else { holders.join("; ") })
                .hint(
                    "Wait until it ends, or end it, and try again: pg_terminate_backend(pid) ends a process, COMMIT PREPARED or \
                     ROLLBACK PREPARED a prepared transaction. Nothing was changed.",
                ));
        }
        for h in &holders {
            progress.say(&format!("waiting: {h}"));
        }
        attempt += 1;
        db.pause(patience.pause).await;
    }
}

/// Adds advice to an error about privileges, since hidden objects belong to the catalog's owner.
pub(crate) fn not_catalog_owner(e: Error) -> Error {
    match e.sqlstate() {
        Some("42501") => e.hint(
            "The catalog belongs to another role: connect as that one, or use the functions of the extension, where the \
             database has it.",
        ),
        _ => e,
    }
}

/// Returns the statement that limits waits for locks to `longest`, and also to 80 % of the server's
/// `deadlock_timeout`. Another session may begin to wait for this session while this session waits. That
/// other session looks for a deadlock only after this session has stopped waiting, so the server does not
/// cancel its statement.
fn lock_timeout(longest: Duration) -> String {
    format!(
        "SELECT pg_catalog.set_config('lock_timeout', pg_catalog.format('%sms', least({}, \
         extract(epoch FROM pg_catalog.current_setting('deadlock_timeout')::interval) * 800)::int), true)",
        longest.as_millis()
    )
}

async fn once<T>(
    db: &mut dyn Connection,
    patience: Patience,
    work: &mut impl AsyncFnMut(&Transaction<'_>) -> Result<T>,
) -> Result<T> {
    let t = db.transaction().await.map_err(|e| Error::server("begin", e))?;
    if !patience.lock_timeout.is_zero() {
        let settings = lock_timeout(patience.lock_timeout);
        t.batch_execute(&settings).await.map_err(|e| Error::server("begin", e))?;
    }
    if let Some(mark) = t.mark_of_work() {
        t.as_catalog_owner(mark).await.map_err(|e| not_catalog_owner(Error::server("begin", e)))?;
    }
    let output = work(&t).await?;
    t.commit().await.map_err(|e| Error::server("commit", e))?;
    Ok(output)
}

/// Returns the oids of tables, for the lists of tables whose locks a transaction may wait for.
pub(crate) fn oids(ids: impl IntoIterator<Item = TableId>) -> Vec<u32> {
    ids.into_iter().map(|id| id.0).collect()
}
