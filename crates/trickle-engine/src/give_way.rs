//! A running refresh gives way to a session that waits for an ACCESS EXCLUSIVE lock on a table that the
//! refresh reads. So a migration waits for a second, not for the whole refresh. The refresh is rolled back
//! and begun again.
//!
//! The refreshing connection can look at nothing before its statement ends. So another connection looks from
//! time to time. It notes the session that waits, then has the server cancel the statement of the refresh. By
//! this note the refresh tells such a cancel from a user's and from `statement_timeout`, which have the same
//! SQLSTATE. A cancel that comes between two statements has no effect, and is sent again.

use crate::db::{Connection, Row};
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time that a refresh works before the first look for a session that waits for it, and the time between
/// two looks.
pub const GLANCE: Duration = Duration::from_millis(200);

/// A handle by which a refresh is asked to give way.
#[derive(Clone, Debug, Default)]
pub struct Yielding {
    pid: Arc<AtomicI32>,
    to: Arc<Mutex<Option<String>>>,
}

impl Yielding {
    /// Makes a handle for the refreshes of the server process `pid`.
    pub(crate) fn of(pid: Arc<AtomicI32>) -> Yielding {
        Yielding { pid, to: Arc::default() }
    }

    /// Returns the server process; 0 while it is not known.
    pub fn pid(&self) -> i32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Forgets the request to give way, since another refresh begins.
    pub fn begin(&self) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes the session for which the statement of the refresh is about to be cancelled.
    pub fn ask(&self, who: &str) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = Some(who.to_owned());
    }

    /// Whether the refresh was asked to give way, and has not done so yet.
    pub fn is_asked(&self) -> bool {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns the session to give way to, and forgets it.
    pub fn take(&self) -> Option<String> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The processes among `$1` that block a request for ACCESS EXCLUSIVE on a relation, each with the process
/// that made the request. The request has waited for `$2` milliseconds or longer. `pg_blocking_pids` takes
/// exclusive access to the lock manager's state for a moment (PostgreSQL manual), so it is called for such
/// requests alone.
const IN_THE_WAY: &str = "
SELECT b.pid, l.pid, coalesce(a.usename::text, '?'), coalesce(a.application_name, ''), l.relation::regclass::text
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) b(pid)
WHERE NOT l.granted AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
    AND l.waitstart <= clock_timestamp() - $2::int8 * interval '1 millisecond'
    AND b.pid = ANY ($1::int8[]) AND l.pid <> ALL ($1::int8[]) ORDER BY l.waitstart";

/// Finds the server processes among `pids` that block a session which has waited for an exclusive lock for
/// longer than `patience`. Returns each with a description of that session.
///
/// # Errors
/// The errors of the server.
pub async fn in_the_way(db: &dyn Connection, pids: &[i32], patience: Duration) -> Result<Vec<(i32, String)>> {
    let patience = i64::try_from(patience.as_millis()).unwrap_or(i64::MAX);
    let pids: Vec<i64> = pids.iter().map(|pid| i64::from(*pid)).collect();
    let rows = db.query(IN_THE_WAY, &[&pids, &patience]).await;
    let rows = rows.map_err(|e| Error::server("look who waits for a refresh", e))?;
    let waits = |r: &Row| {
        let app: String = r.get(3);
        let app = if app.is_empty() { String::new() } else { format!(", {app}") };
        let (pid, role, table) = (r.get::<i32>(1), r.get::<String>(2), r.get::<String>(4));
        (r.get(0), format!("process {pid} ({role}{app}), which waits for an exclusive lock on {table}"))
    };
    Ok(rows.iter().map(waits).collect())
}
