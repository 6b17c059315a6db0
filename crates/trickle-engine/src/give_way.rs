//! A running refresh gives way to a session that waits for an ACCESS EXCLUSIVE lock on a table that the
//! refresh reads. So a session that migrates the table waits for about a second instead of the whole
//! refresh. The refresh is rolled back and begun again.
//!
//! The connection of the refresh can run no query before its present statement ends. So another connection
//! searches from time to time for sessions that wait. The other connection notes the waiting session, and
//! then asks the server to cancel the statement of the refresh. By this note, the refresh distinguishes this
//! cancel from a cancel by a user and from `statement_timeout`, since all three have the same SQLSTATE. A
//! cancel that arrives between two statements has no effect, so it is sent again.

use crate::db::{Connection, Row};
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time between two searches for sessions that wait for a refresh, and the time that a refresh works
/// before the first search.
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

    /// Returns the number of the server process; 0 while it is not known.
    pub fn pid(&self) -> i32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Forgets an earlier request to give way, when a new refresh begins.
    pub fn begin(&self) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes the session that waits, just before the statement of the refresh is cancelled.
    pub fn ask(&self, who: &str) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = Some(who.to_owned());
    }

    /// Whether the refresh was asked to give way, and has not reacted to the request yet.
    pub fn is_asked(&self) -> bool {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns the session that the refresh gives way to, and forgets it.
    pub fn take(&self) -> Option<String> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The processes among `$1` that block a request for ACCESS EXCLUSIVE on a relation, each with the process
/// that made the request. The request has waited for `$2` milliseconds or longer. `pg_blocking_pids` locks
/// the lock manager's state exclusively for a moment (PostgreSQL manual), so it is called for such requests
/// only.
const IN_THE_WAY: &str = "
SELECT b.pid, l.pid, coalesce(a.usename::text, '?'), coalesce(a.application_name, ''), l.relation::regclass::text
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) b(pid)
WHERE NOT l.granted AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
    AND l.waitstart <= clock_timestamp() - $2::int8 * interval '1 millisecond'
    AND b.pid = ANY ($1::int8[]) AND l.pid <> ALL ($1::int8[]) ORDER BY l.waitstart";

/// Finds the server processes among `pids` that block a session which has waited for an exclusive lock for
/// longer than `patience`. Returns each process with a description of the blocked session.
///
/// # Errors
/// Errors of the server.
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

/// Returns the error of a refresh of the stream table `name` that gave way to another session. Such an error
/// does not count as a failure.
pub(crate) fn given_way(name: &str, why: &str) -> Error {
    Error::busy(format!("the refresh of {name} {why}"))
        .hint("It is begun again. The setting give_way_ms says how long a session waits for a refresh.")
}
