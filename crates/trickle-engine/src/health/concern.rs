//! Conditions that harm a database while its stream tables are refreshed. The refresher reports each
//! condition once while the condition lasts.

use super::asking;
use crate::db::{Connection, RefreshDriver, Row};
use crate::error::Result;
use crate::status::{BufferStatus, REFRESHER};
use crate::trickle::Trickle;
use crate::words::duration;
use std::fmt;
use std::time::Duration;

/// An open transaction that prevents the removal of old rows, and of changes that no reader needs any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTransaction {
    /// The server process.
    pub pid: i32,
    /// The time since the beginning of the transaction.
    pub age: Duration,
    /// The value of `pg_stat_activity.state`, such as `idle in transaction`.
    pub state: String,
    /// The `application_name` of the session.
    pub application: String,
    /// The database of the session, if it is not the current one.
    pub elsewhere: Option<String>,
}

impl fmt::Display for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OpenTransaction { pid, age, state, application, elsewhere } = self;
        write!(f, "{} old: process {pid}, {state}, application \"{application}\"", duration(*age))?;
        elsewhere.as_ref().map_or(Ok(()), |database| write!(f, ", in database \"{database}\""))
    }
}

/// Transactions that prevent the removal of old rows and of changes. These are transactions with a snapshot
/// in this database, and transactions with an id in any database. Before a drain removes changes, it checks
/// that the transactions that made these changes are over. Transactions of other roles are visible only with
/// the rights of `pg_read_all_stats` (PostgreSQL manual, "The Cumulative Statistics System").
const OPEN: &str = "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float8, coalesce(state, ''), \
     coalesce(application_name, ''), nullif(datname, current_database())::text FROM pg_stat_activity \
     WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
     AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL AND datname = current_database()) ORDER BY xact_start, pid";

/// Returns the open transactions that prevent the removal of old rows and of changes, the oldest first.
///
/// # Errors
/// The errors of the statement.
pub async fn open_transactions(db: &dyn Connection) -> Result<Vec<OpenTransaction>> {
    let rows = db.query(OPEN, &[]).await.map_err(asking)?;
    let open = |r: &Row| OpenTransaction {
        pid: r.get(0),
        age: Duration::try_from_secs_f64(r.get(1)).unwrap_or_default(),
        state: r.get(2),
        application: r.get(3),
        elsewhere: r.get(4),
    };
    Ok(rows.iter().map(open).collect())
}

/// A condition that harms the database, or will soon harm it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// A transaction has been open for a long time.
    Open(OpenTransaction),
    /// A buffer is large.
    Large(BufferStatus),
    /// A buffer has reached its limit, so that new changes are left out.
    Full(BufferStatus),
}

impl Concern {
    /// Returns the key of the concern. While a reported concern lasts, no concern with the same key is
    /// reported.
    pub fn key(&self) -> String {
        match self {
            Concern::Open(o) => format!("open {}", o.pid),
            Concern::Large(b) => format!("large {}", b.source),
            Concern::Full(b) => format!("full {}", b.source),
        }
    }
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: i64| bytes as f64 / f64::from(1 << 20);
        match self {
            Concern::Open(o) => write!(
                f,
                "a transaction is {o}; while it is open, old rows of stream tables and changes that were applied cannot be \
                 removed; SELECT pg_terminate_backend({}) ends it",
                o.pid
            ),
            Concern::Large(b) => write!(
                f,
                "{} has {:.1} MiB of changes that wait, or that an open transaction keeps; past {:.1} MiB no more are kept, \
                 and what reads it is computed anew",
                b.source,
                mib(b.bytes),
                mib(b.limit_bytes)
            ),
            Concern::Full(b) => write!(
                f,
                "{} has {:.1} MiB of changes and may have no more: its changes are not kept, and what reads it is computed \
                 anew by its next refresh",
                b.source,
                mib(b.bytes)
            ),
        }
    }
}

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the present concerns. These are transactions that have been open for
    /// [`crate::Settings::long_transaction`], and buffers that have reached a quarter of their limit.
    ///
    /// # Errors
    /// The errors of the statements.
    pub async fn concerns(&self) -> Result<Vec<Concern>> {
        let long = self.settings.long_transaction;
        let open = open_transactions(self.db()).await?.into_iter();
        // A refresher may have a long transaction because it works, for example because it fills a large
        // table.
        let open = open.filter(|o| o.age >= long && o.application != REFRESHER);
        let mut all: Vec<Concern> = open.map(Concern::Open).collect();
        for b in self.buffers().await? {
            match (b.full, b.is_large()) {
                (true, _) => all.push(Concern::Full(b)),
                (false, true) => all.push(Concern::Large(b)),
                (false, false) => {}
            }
        }
        Ok(all)
    }
}
