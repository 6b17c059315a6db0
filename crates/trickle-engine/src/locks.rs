//! DDL on a user's table: never in the way for long.
//!
//! A lock that waits makes everybody wait who comes after it. So each try waits a short time only, says who stands in
//! the way, and leaves the queue before the next.

use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use crate::progress::{Progress, holder};
use std::time::Duration;
use trickle_core::catalog::TableId;

/// How long to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest that one try waits for a lock, and never as long as the server's `deadlock_timeout`; zero leaves it to the server.
    pub lock_timeout: Duration,
    /// How often to try.
    pub attempts: u32,
    /// The pause between two tries.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { lock_timeout: Duration::from_secs(1), attempts: 30, pause: Duration::from_millis(500) }
    }
}

/// Runs `work` in a transaction and commits it. Where a lock is not to be had in time, rolls back, says who holds it,
/// and tries again. `tables` are those that may be waited for.
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
            // A caller's transaction that cannot serialize something cannot a moment later either.
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

/// What is hidden belongs to whoever has the catalog.
pub(crate) fn not_keeper(e: Error) -> Error {
    match e.sqlstate() {
        Some("42501") => e.hint(
            "The catalog belongs to another role: connect as that one, or use the functions of the extension, where the \
             database has it.",
        ),
        _ => e,
    }
}

/// Gives up a wait before the server looks for a deadlock, which may end somebody else's statement: of two that wait for each
/// other, whoever began later looks, and by then this one has left.
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

/// Who holds locks on these tables that writers and DDL wait for, each in one line.
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

/// The oids of tables, for lists of what may be waited for.
pub(crate) fn oids(ids: impl IntoIterator<Item = TableId>) -> Vec<u32> {
    ids.into_iter().map(|id| id.0).collect()
}
