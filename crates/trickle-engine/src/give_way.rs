//! A refresh at work gives way to a session that waits for an ACCESS EXCLUSIVE lock on a table that it reads: a migration waits for a
//! second, not for the refresh. The refresh is undone and begun again.
//!
//! The connection that works can look at nothing before its statement ends. So another one looks from time to time, says for which session
//! the statement is about to be cancelled, and has the server cancel it: so a refresh tells such a cancel from a user's and from
//! `statement_timeout`, which have the same SQLSTATE. A cancel that comes between two statements is in vain, and is sent again.

use crate::db::{Connection, Row};
use crate::error::{Error, Result};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long a refresh works before somebody looks whether it is in the way, and how often from then on.
pub const GLANCE: Duration = Duration::from_millis(200);

/// A refresh that can be asked to give way.
#[derive(Clone, Debug, Default)]
pub struct Yielding {
    pid: Arc<AtomicI32>,
    to: Arc<Mutex<Option<String>>>,
}

impl Yielding {
    /// The work of this server process.
    pub(crate) fn of(pid: Arc<AtomicI32>) -> Yielding {
        Yielding { pid, to: Arc::default() }
    }

    /// The server process; 0 while that is not known.
    pub fn pid(&self) -> i32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// Another refresh begins, which nobody asked yet.
    pub fn begin(&self) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes the session for which its statement is about to be cancelled.
    pub fn ask(&self, who: &str) {
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = Some(who.to_owned());
    }

    /// Whether it was asked, and has not given way yet.
    pub fn is_asked(&self) -> bool {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The session for which it was asked, told once.
    pub fn take(&self) -> Option<String> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Those of the processes `$1` that stand before a request for ACCESS EXCLUSIVE on a relation which has waited for `$2` milliseconds,
/// and the process that made it. The manual, `pg_blocking_pids`: it takes all of the lock manager for a moment, so it is asked for
/// such requests alone.
const IN_THE_WAY: &str = "
SELECT b.pid, l.pid, coalesce(a.usename::text, '?'), coalesce(a.application_name, ''), l.relation::regclass::text
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid CROSS JOIN LATERAL unnest(pg_blocking_pids(l.pid)) b(pid)
WHERE NOT l.granted AND l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
    AND l.waitstart <= clock_timestamp() - $2::int8 * interval '1 millisecond'
    AND b.pid = ANY ($1::int8[]) AND l.pid <> ALL ($1::int8[]) ORDER BY l.waitstart";

/// Those of these server processes that keep a session waiting for longer than `patience` which wants an exclusive lock; each with that
/// session.
///
/// # Errors
/// Those of the server.
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
