//! DDL on a user's table, which never blocks others for long.
//!
//! A session that waits for a lock blocks all sessions that come after it. So each try waits only for a short
//! time, reports the sessions in the way, and leaves the queue before the next try.

use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use crate::progress::{Progress, holder};
use std::time::Duration;
use trickle_core::catalog::TableId;

/// The limits for getting a lock on a user's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest time that one try waits for a lock; always less than the server's `deadlock_timeout`. Zero
    /// leaves the limit to the server.
    pub lock_timeout: Duration,
    /// The number of tries.
    pub attempts: u32,
    /// The pause between two tries.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { lock_timeout: Duration::from_secs(1), attempts: 30, pause: Duration::from_millis(500) }
    }
}

/// Runs `work` in a transaction and commits it. If it does not get a lock in time, it rolls back, reports the
/// holders and tries again. `tables` are the tables whose locks it may wait for.
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
            // In a caller's transaction a serialization failure comes again with every try.
            Err(e) if e.is_busy() || e.is_transient() && db.callers().is_none() => e,
            other => return other,
        };
        if patience.attempts <= 1 {
            return Err(busy);
        }
        let holders = holders(db, tables).await?;
        if attempt >= patience.attempts {
            return Err(Error::busy(format!("{} ({attempt} attempts)", busy.message()))
                .detail(if holders.is_empty() { "Whoever held the lock is gone now.".to_owned() } else { holders.join("; ") })
                .hint("Wait until it ends, or end it with pg_terminate_backend(pid), and try again. Nothing was changed."));
        }
        for h in &holders {
            progress.say(&format!("waiting: {h}"));
        }
        attempt += 1;
        db.pause(patience.pause).await;
    }
}

/// Adds advice to an error of privilege: hidden objects belong to the catalog's owner.
pub(crate) fn not_keeper(e: Error) -> Error {
    match e.sqlstate() {
        Some("42501") => e.hint(
            "The catalog belongs to another role: connect as that one, or use the functions of the extension, where the \
             database has it.",
        ),
        _ => e,
    }
}

/// Returns the statement that limits waits for locks to `longest`, and to 80 % of the server's
/// `deadlock_timeout`. If another session waits for this one, and began to wait later, it looks for a
/// deadlock only after this one has left. So its statement is not cancelled.
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
        t.as_keeper(mark).await.map_err(|e| not_keeper(Error::server("begin", e)))?;
    }
    let output = work(&t).await?;
    t.commit().await.map_err(|e| Error::server("commit", e))?;
    Ok(output)
}

/// Returns the sessions that hold locks on these tables for which writers and DDL wait, each in one line.
async fn holders(db: &dyn Connection, tables: &[u32]) -> Result<Vec<String>> {
    let rows = db
        .query(
            "SELECT DISTINCT a.pid, coalesce(a.usename::text, '?'), coalesce(a.application_name, ''), coalesce(a.state, '?'), \
             extract(epoch FROM clock_timestamp() - a.xact_start)::int8, l.relation::regclass::text \
             FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid \
             WHERE l.relation = ANY ($1) AND l.granted AND l.pid <> pg_backend_pid() \
             AND l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', \
             'ExclusiveLock', 'AccessExclusiveLock') ORDER BY 1",
            &[&tables],
        )
        .await
        .map_err(|e| Error::server("look who holds a lock", e))?;
    Ok(rows.iter().map(|r| holder(r, Some(r.get(5)))).collect())
}

/// Returns the oids of tables, for lists of the tables that may be waited for.
pub(crate) fn oids(ids: impl IntoIterator<Item = TableId>) -> Vec<u32> {
    ids.into_iter().map(|id| id.0).collect()
}
