//! Finds the stream tables that a refresh would not change, by one question for all of them.

use super::RefreshOptions;
use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::registry::{Dependency, Entry};
use crate::trickle::Trickle;
use std::collections::BTreeSet;

/// The statement which notes that the stream tables `$1` have all changes that were committed by the time
/// `$2`, in microseconds since 1970. A stream table that reads the clock does not get a new time, since its
/// rows were computed for the stored time.
///
/// A stream table that is being refreshed is left out, since its refresh notes the time itself. Moreover, a
/// refresh over an older snapshot could not write the catalog row after this statement had written the row.
const NOTE_IDLE: &str = "UPDATE pgtrickle.pgt_stream_tables SET last_refresh_at = clock_timestamp(), \
     data_timestamp = CASE WHEN reads_clock THEN data_timestamp ELSE to_timestamp($2::int8 / 1000000.0) END \
     WHERE pgt_id IN (SELECT s.pgt_id FROM pgtrickle.pgt_stream_tables s WHERE s.pgt_id = ANY ($1) AND NOT EXISTS ( \
         SELECT FROM pg_locks l WHERE l.relation = s.pgt_relid \
         AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) \
         AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')) \
     FOR NO KEY UPDATE SKIP LOCKED)";

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the stream tables, by `pgt_id`, that a refresh would not change. Only whole groups are
    /// returned. Asks the server one question for all stream tables, and one question about the changes that
    /// their buffers still have. For a refresh by hand, also notes the time up to which the returned stream
    /// tables have all changes.
    pub(super) async fn idle(
        &mut self,
        groups: &[Vec<Entry>],
        options: &RefreshOptions,
    ) -> Result<BTreeSet<i64>> {
        let askable = |e: &&Entry| {
            // If a buffer is at its limit, changes may be missing in it.
            let told = |d: &Dependency| !d.full;
            e.own && e.exists && e.unchanged && e.dependencies.iter().all(told)
        };
        let asked: Vec<&Entry> = groups.iter().flatten().filter(askable).collect();
        if options.full || asked.is_empty() {
            return Ok(BTreeSet::new());
        }
        let begun = if options.is_by_hand() { Some(self.instant().await?) } else { None };
        let pending: BTreeSet<i64> = match self.candidates(&asked, options).await {
            Ok(looked) => looked.pending.into_iter().collect(),
            Err(e) if e.is_connection() => return Err(e),
            // A table was altered or dropped just now, and the refresh will find out which one.
            Err(_) => return Ok(BTreeSet::new()),
        };
        let quiet: Vec<Entry> = asked.into_iter().filter(|e| !pending.contains(&e.id)).cloned().collect();
        self.drain(&quiet).await?;
        let idle = all_idle(groups, &quiet.iter().map(|e| e.id).collect());
        if let Some(begun) = begun.filter(|_| !idle.is_empty()) {
            let ids: Vec<i64> = idle.iter().copied().collect();
            let noted = self.db().ask(NOTE_IDLE, &[&ids, &begun]).await;
            match noted.map_err(|e| Error::server("note when stream tables were refreshed", e)) {
                Err(e) if e.is_connection() => return Err(e),
                // The error is reported, and no refresh fails because of it.
                Err(e) => self.progress.say(e.message()),
                Ok(_) => {}
            }
        }
        Ok(idle)
    }

    /// Returns the time of the server's clock, in microseconds since 1970.
    async fn instant(&self) -> Result<i64> {
        let text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8";
        let row = self.db().query_one(text, &[]).await;
        row.map(|r| r.get(0)).map_err(|e| Error::server("ask for the time", e))
    }
}

/// Returns the members of those groups in which every stream table is quiet. A quiet group is nevertheless
/// left out if it reads a stream table of a group that is left out. The refresh of that group may bring
/// changes. The groups must be in an order in which each comes after the groups that it reads.
fn all_idle(groups: &[Vec<Entry>], quiet: &BTreeSet<i64>) -> BTreeSet<i64> {
    let (mut behind, mut idle) = (BTreeSet::new(), BTreeSet::new());
    for group in groups {
        let reads_behind = |e: &Entry| e.dependencies.iter().any(|d| behind.contains(&d.relation.id));
        if group.iter().all(|e| quiet.contains(&e.id) && !reads_behind(e)) {
            idle.extend(group.iter().map(|e| e.id));
        } else {
            behind.extend(group.iter().map(|e| e.relation.id));
        }
    }
    idle
}
