//! Looks for changes, in one round trip for all stream tables without changes, whatever their number.

use super::{Due, Scheduler, Still};
use crate::db::RefreshDriver;
use crate::error::{Error, Result};
use crate::pending::Looked;
use crate::registry::Entry;
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use trickle_core::catalog::TableId;
use trickle_core::schedule::{Look, Seen, Time};

/// The limit for short periods. If all stream tables to look at have shorter periods, the look first asks
/// whether any transaction was committed since the last look without work. This question costs very little,
/// so frequent looks are cheap while no session writes.
const QUICKLY: Duration = Duration::from_secs(1);

/// The present snapshot, which says which transactions are over. While the text of the snapshot stays the
/// same, no transaction was committed.
const SNAPSHOT: &str = "SELECT pg_current_snapshot()::text";

async fn snapshot<C: RefreshDriver>(watch: &Trickle<C>) -> Result<String> {
    let rows = watch.db().ask(SNAPSHOT, &[]).await.map_err(|e| Error::server("look for changes", e))?;
    Ok(rows.first().map(|r| r.get(0)).unwrap_or_default())
}

fn tables<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> BTreeSet<TableId> {
    entries.into_iter().map(|e| e.relation.id).collect()
}

/// The greatest number of buffers that are emptied after one look. Emptying a buffer takes milliseconds.
const AT_ONCE: usize = 16;

/// Notes, for the sources in `counted`, the instant since which their buffers have only changes that all
/// readers have counted. Returns the sources for which this has lasted longer than `settle`. For sources that
/// were not `asked` about, the notes stay, since each stream table is looked at only as often as its schedule
/// demands.
fn ripe(
    since: &mut BTreeMap<TableId, Instant>,
    asked: &BTreeSet<TableId>,
    counted: BTreeSet<TableId>,
    now: Instant,
    settle: Duration,
) -> Vec<u32> {
    since.retain(|id, _| !asked.contains(id) || counted.contains(id));
    let mut ripe = Vec::new();
    for id in counted {
        let since = since.entry(id).or_insert(now);
        if now.duration_since(*since) >= settle && ripe.len() < AT_ONCE {
            // If a buffer cannot be emptied now, the next attempt comes after the same time.
            *since = now;
            ripe.push(id.0);
        }
    }
    ripe
}

impl Scheduler {
    /// Finds out which groups in `due` have changes to apply or were altered. The same look may find changes
    /// or alterations for other stream tables too.
    pub(super) async fn look_at<C: RefreshDriver>(
        &mut self,
        watch: &mut Trickle<C>,
        due: &[Due],
        time: Time,
    ) -> Result<()> {
        let look = self.agenda.look(due);
        let seen = self.see(watch, &look).await?;
        self.agenda.looked(due, &look, &seen, time);
        Ok(())
    }

    async fn see<C: RefreshDriver>(&mut self, watch: &mut Trickle<C>, look: &Look) -> Result<Seen> {
        let options = RefreshOptions { polled: Some(look.polled.clone()), ..RefreshOptions::default() };
        let entries =
            look.asked.iter().filter_map(|id| self.registry.by_table(*id)).filter(|e| e.own && e.exists);
        let (same, altered): (Vec<&Entry>, Vec<&Entry>) = entries.partition(|e| e.unchanged);
        let altered = tables(altered);
        let quickly = look.longest.is_some_and(|p| p < QUICKLY);
        let snapshot = if quickly { Some(snapshot(watch).await?) } else { None };
        let same_snapshot = |s: &Still| snapshot.is_some() && s.snapshot == snapshot;
        if self.still.as_ref().is_some_and(same_snapshot) && self.are_still(&look.asked) {
            return Ok(Seen::default());
        }
        let Looked { pending, filled } = match watch.candidates(&same, &options).await {
            Ok(looked) => looked,
            Err(e) if e.is_connection() => return Err(e),
            // A table was altered or dropped just now, and the refresh will find out which one.
            Err(_) => {
                return Ok(Seen {
                    stale: look.asked.iter().copied().collect(),
                    changed: look.members.clone(),
                });
            }
        };
        let found: Vec<&Entry> = same.iter().copied().filter(|e| pending.contains(&e.id)).collect();
        let read =
            |entries: &[&Entry]| entries.iter().flat_map(|e| e.read().map(|d| d.relation.id)).collect();
        let (asked, moved): (BTreeSet<TableId>, BTreeSet<TableId>) = (read(&same), read(&found));
        let mut stale = tables(found);
        let maybe = stale.intersection(&look.members).copied().collect();
        self.still = pending.is_empty().then_some(Still { snapshot, tables: tables(same) });
        self.settle(watch, &asked, filled.difference(&moved).copied().collect()).await?;
        let mut changed = self.sure(watch, maybe, &options).await?;
        changed.extend(&altered);
        stale.extend(altered);
        Ok(Seen { stale, changed })
    }

    /// Whether a look found nothing to do for these stream tables, and only a commit can bring them changes.
    pub(super) fn are_still(&self, asked: &[TableId]) -> bool {
        let Some(still) = &self.still else { return false };
        let entries = asked.iter().filter_map(|id| self.registry.by_table(*id)).filter(|e| e.own && e.exists);
        let hangs_on_commits = |e: &Entry| e.unchanged && !e.reads_clock && !e.polls();
        entries.into_iter().all(|e| hangs_on_commits(e) && still.tables.contains(&e.relation.id))
    }

    /// Empties the buffers of sources that have had only counted changes for
    /// [`super::SchedulerOptions::settle`]. PostgreSQL then makes new plans for the statements that read
    /// these buffers.
    async fn settle<C: RefreshDriver>(
        &mut self,
        watch: &mut Trickle<C>,
        asked: &BTreeSet<TableId>,
        counted: BTreeSet<TableId>,
    ) -> Result<()> {
        let ripe = ripe(&mut self.counted, asked, counted, Instant::now(), self.options.settle);
        if ripe.is_empty() {
            return Ok(());
        }
        match watch.empty_counted(&ripe).await {
            Err(e) if e.is_connection() => Err(e),
            Err(e) => {
                self.trouble = Some(e);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Returns the stream tables of `maybe` that have changes in the sources that their plans read.
    async fn sure<C: RefreshDriver>(
        &self,
        watch: &mut Trickle<C>,
        maybe: BTreeSet<TableId>,
        options: &RefreshOptions,
    ) -> Result<BTreeSet<TableId>> {
        let entries: Vec<&Entry> = maybe.iter().filter_map(|id| self.registry.by_table(*id)).collect();
        match watch.pending(&entries, options).await {
            Ok(pending) => {
                Ok(entries.iter().filter(|e| pending.contains(&e.id)).map(|e| e.relation.id).collect())
            }
            Err(e) if e.is_connection() => Err(e),
            Err(_) => Ok(maybe),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_seldom_is_emptied_too() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let ids = |of: &[u32]| -> BTreeSet<TableId> { of.iter().copied().map(TableId).collect() };
        let mut since = BTreeMap::new();
        let mut look = |asked: &[u32], counted: &[u32], at: u32| {
            ripe(&mut since, &ids(asked), ids(counted), start + second * at, second * 10)
        };
        assert!(look(&[1, 2, 3], &[1, 2], 0).is_empty());
        // Table 1 is looked at each time and table 2 is not. Table 1 changes meanwhile.
        assert!(look(&[1], &[1], 5).is_empty());
        assert!(look(&[1], &[], 6).is_empty());
        assert!(look(&[1], &[1], 11).is_empty());
        assert_eq!(look(&[1, 2, 3], &[1, 2], 12), [2]);
        assert!(look(&[1, 2], &[1, 2], 13).is_empty());
        assert_eq!(look(&[1, 2], &[1, 2], 22), [1, 2]);
    }
}
