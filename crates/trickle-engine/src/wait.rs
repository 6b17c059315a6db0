//! Waits until a stream table shows all changes that were committed.

use crate::db::{RefreshDriver, Row};
use crate::error::{Error, Result};
use crate::names::Name;
use crate::registry::{Entry, require_own, shown};
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use std::time::{Duration, Instant};
use trickle_core::frontier::{Frontier, Snapshot};

/// The time between two reads of the frontier.
const POLL: Duration = Duration::from_millis(25);

/// The time between two questions for pending changes, while the frontier does not change.
const ASK: Duration = Duration::from_secs(1);

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// Whether all changes that were committed before the call are visible.
    pub visible: bool,
    /// The time that the wait took.
    pub waited: Duration,
}

/// The frontier of a stream table, and whether this frontier has every transaction of the wanted frontier.
struct FrontierReach {
    frontier: Option<String>,
    reached: bool,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Waits until a stream table shows everything that was committed before the call, whichever session
    /// refreshes it. Waits for at most `timeout`, or without a limit where `timeout` is `None`.
    ///
    /// The wait ends when the frontier of the stream table has every transaction that a snapshot at the call
    /// shows. The wait also ends when no changes are pending for the stream table and the stream tables that
    /// it reads. In that case, the transactions that the frontier lacks changed no source of the stream
    /// table.
    ///
    /// # Errors
    /// No stream table has that name; the stream table is dropped during the wait; another role owns the
    /// stream table; errors of the server.
    pub async fn wait(&mut self, name: &Name, timeout: Option<Duration>) -> Result<Waited> {
        let started = Instant::now();
        let e = self.find(name).await?;
        require_own(&e, self.voice())?;
        let wanted = self.everything_visible().await?;
        let mut asked: Option<(Option<String>, Instant)> = None;
        loop {
            let at = self.reaches(&e, &wanted).await?;
            let due = asked.as_ref().is_none_or(|(of, when)| *of != at.frontier || when.elapsed() >= ASK);
            let visible = at.reached || due && self.is_idle(&e).await?;
            if due {
                asked = Some((at.frontier, Instant::now()));
            }
            let waited = started.elapsed();
            let left = timeout.map_or(POLL, |t| t.saturating_sub(waited));
            if visible || left.is_zero() {
                return Ok(Waited { visible, waited });
            }
            self.db().pause(left.min(POLL)).await;
        }
    }

    /// Returns the frontier of the present snapshot.
    async fn everything_visible(&self) -> Result<Frontier> {
        let fail = |e| Error::server("take a snapshot", e);
        let text = "SELECT pg_current_snapshot()::text, c.system_identifier, d.oid FROM pg_control_system() c \
             JOIN pg_database d ON d.datname = current_database()";
        let row: Row = self.db().query_one(text, &[]).await.map_err(fail)?;
        let snapshot: Snapshot = row.get::<String>(0).parse()?;
        Ok(Frontier::new(row.get(1), row.get(2), &snapshot, None))
    }

    async fn reaches(&self, e: &Entry, wanted: &Frontier) -> Result<FrontierReach> {
        let text = "SELECT frontier::text, needs_reinit FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1";
        let row = self.db().query_opt(text, &[&e.id]).await;
        let row = row.map_err(|err| Error::server("read a frontier", err))?;
        let Some(row) = row else {
            return Err(Error::input(format!("stream table {} was dropped meanwhile", shown(e))));
        };
        let frontier: Option<String> = row.get(0);
        let stored = frontier.as_deref().map(Frontier::from_json).transpose()?;
        let reached = !row.get::<bool>(1) && stored.is_some_and(|f| wanted.is_within(&f));
        Ok(FrontierReach { frontier, reached })
    }

    /// Whether no changes are pending for a stream table and the stream tables that it reads, all at one
    /// moment.
    async fn is_idle(&mut self, e: &Entry) -> Result<bool> {
        let registry = self.linked(&[e.relation.id]).await?;
        // The passing of time commits nothing, so reading the clock does not count as a pending change.
        let still = |g: &Entry| Entry { reads_clock: false, ..g.clone() };
        let group: Vec<Entry> = registry.with_upstream([e.relation.id])?.into_iter().map(still).collect();
        if group.is_empty() || group.iter().any(|g| !g.unchanged || !g.own) {
            return Ok(false);
        }
        match self.pending(&group, &RefreshOptions::default()).await {
            Ok(pending) => Ok(pending.is_empty()),
            Err(e) if e.is_connection() => Err(e),
            // A table was altered just now, so the pending changes are unknown.
            Err(_) => Ok(false),
        }
    }
}
