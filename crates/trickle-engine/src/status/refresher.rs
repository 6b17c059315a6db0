//! The refresher, with the facts that another session can find out.

use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::trickle::Trickle;
use serde::Serialize;

/// The refresher, with the facts that another session can find out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refresher {
    /// The processes of sessions of `trickle run` in this database.
    pub pids: Vec<i32>,
    /// The holder of the lease on the current role's stream tables.
    pub leader: Option<String>,
    /// The milliseconds since the last refresh on schedule, if history still has one.
    pub last_ms: Option<i64>,
}

/// The `application_name` of a refresher's sessions.
pub const REFRESHER: &str = "trickle run";

impl Refresher {
    /// Whether a refresher seems to be at work, because one is connected or has refreshed within the last 10
    /// seconds.
    pub fn is_running(&self) -> bool {
        !self.pids.is_empty() || self.last_ms.is_some_and(|ms| ms < 10_000)
    }
}

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the refresher, with the facts that this session can find out.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn refresher(&self) -> Result<Refresher> {
        let text = "SELECT ARRAY(SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = $1 AND pid <> pg_backend_pid() ORDER BY pid), \
             (SELECT (extract(epoch FROM clock_timestamp() - max(end_time)) * 1000)::int8 \
                FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER'), \
             (SELECT l.holder FROM pgtrickle.pgt_leases l JOIN pgtrickle.pgt_lease_terms t USING (role) \
                WHERE l.role = quote_ident(current_user)::regrole AND t.expires_at > clock_timestamp())";
        let row = self.db().query_one(text, &[&REFRESHER]).await;
        let row = row.map_err(|e| Error::server("look who refreshes", e))?;
        Ok(Refresher { pids: row.get(0), last_ms: row.get(1), leader: row.get(2) })
    }
}
