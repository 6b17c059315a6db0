//! Looking for changes: what nobody changed costs one round trip for all stream tables together, however many there are.

use super::{Due, Scheduler, Still};
use crate::db::Connection;
use crate::registry::Entry;
use crate::{Error, Looked, RefreshOptions, Result, Trickle};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use trickle_core::catalog::TableId;
use trickle_core::dag::Dag;
use trickle_core::schedule::{Schedule, Time};

/// What is looked at this often is asked first whether anything was committed at all since it was found to have nothing to do:
/// that costs next to nothing, and no more where nobody writes for hours.
const QUICKLY: Duration = Duration::from_secs(1);

/// Which transactions are over. As long as the answer is the same nothing was committed.
const SNAPSHOT: &str = "SELECT pg_current_snapshot()::text";

async fn snapshot<C: Connection>(watch: &Trickle<C>) -> Result<String> {
    let rows = watch.db().ask(SNAPSHOT, &[]).await.map_err(|e| Error::server("look for changes", e))?;
    Ok(rows.first().map(|r| r.get(0)).unwrap_or_default())
}

/// How many are emptied after one look, each within milliseconds.
const AT_ONCE: usize = 16;

/// Notes since when the buffers of these sources hold nothing but what was `counted`, and says for which that is long enough.
/// Of what was not `asked` nothing is known: tables are looked at as often as their schedules want.
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
            // What cannot be emptied now is tried again as much later.
            *since = now;
            ripe.push(id.0);
        }
    }
    ripe
}

impl Scheduler {
    /// Finds out which of these have changes to apply, or were altered. Whatever is looked at as often is looked at with
    /// them, so that the next look comes a period later: else a thousand stream tables, whose times differ, would be a
    /// thousand questions in each period.
    pub(super) async fn look_at<C: Connection>(
        &mut self,
        watch: &mut Trickle<C>,
        dag: &Dag,
        due: &[Due],
        time: Time,
    ) -> Result<()> {
        let members: BTreeSet<TableId> = due.iter().flat_map(|d| &d.members).copied().collect();
        let polled: BTreeSet<TableId> = due.iter().flat_map(|d| &d.polled).copied().collect();
        let options = RefreshOptions { polled: Some(polled), ..RefreshOptions::default() };
        let longest = members.iter().filter_map(|id| self.periods.get(id)).max();
        let beside: BTreeSet<TableId> =
            self.periods.iter().filter(|(_, p)| Some(*p) <= longest).map(|(id, _)| *id).collect();
        let asked = dag.refresh_set(&members.union(&beside).copied().collect());
        let entries = asked.iter().filter_map(|id| self.registry.by_table(*id)).filter(|e| e.own && e.exists);
        let (same, altered): (Vec<&Entry>, Vec<&Entry>) = entries.partition(|e| e.unchanged);
        let altered: BTreeSet<TableId> = altered.iter().map(|e| e.relation.id).collect();
        let quickly = longest.is_some_and(|p| *p < QUICKLY);
        let snapshot = if quickly { Some(snapshot(watch).await?) } else { None };
        let all: BTreeSet<TableId> = same.iter().map(|e| e.relation.id).collect();
        let same_snapshot = |s: &Still| snapshot.is_some() && s.snapshot == snapshot;
        if self.still.as_ref().is_some_and(same_snapshot) && self.are_still(&asked) {
            self.found_quiet(due, time);
            self.quiet.extend(all.iter().map(|id| (*id, time)));
            return Ok(());
        }
        let Looked { pending, filled } = match watch.candidates(&same, &options).await {
            Ok(looked) => looked,
            Err(e) if e.is_connection() => return Err(e),
            // Something was altered just now: whoever refreshes will see what.
            Err(_) => {
                self.changed.extend(&members);
                return Ok(());
            }
        };
        let found: BTreeSet<TableId> =
            same.iter().filter(|e| pending.contains(&e.id)).map(|e| e.relation.id).collect();
        let moved = |e: &&&Entry| pending.contains(&e.id);
        let moved: BTreeSet<TableId> =
            same.iter().filter(moved).flat_map(|e| e.read().map(|d| d.relation.id)).collect();
        let asked = same.iter().flat_map(|e| e.read().map(|d| d.relation.id)).collect();
        let quiet = same.iter().filter(|e| !pending.contains(&e.id) && !e.polls());
        self.quiet.extend(quiet.map(|e| (e.relation.id, time)).collect::<Vec<_>>());
        self.still = pending.is_empty().then_some(Still { snapshot, tables: all });
        self.settle(watch, &asked, filled.difference(&moved).copied().collect()).await?;
        self.changed.extend(altered.intersection(&members));
        let sure = self.sure(watch, found.intersection(&members).copied().collect(), &options).await?;
        self.changed.extend(sure);
        self.found_quiet(due, time);
        let mut stale: BTreeSet<TableId> = found.union(&altered).copied().collect();
        for id in stale.clone() {
            stale.extend(dag.downstream(id));
        }
        for id in beside.iter().filter(|id| !members.contains(id) && !stale.contains(id)) {
            let Some(t) = self.tasks.get_mut(id) else { continue };
            let quiet = !t.polls && !t.status.running && t.status.consecutive_errors == 0;
            // What has a time of the clock has it whether or not it was looked at before.
            if quiet && !matches!(t.schedule, None | Some(Schedule::Cron(_))) {
                (t.status.last_start, t.status.last_end) = (Some(time), Some(time));
                t.status.last_done = Some(time);
            }
        }
        Ok(())
    }

    /// Whether these were seen to have nothing to do, and only a commit changes that.
    pub(super) fn are_still(&self, asked: &[TableId]) -> bool {
        let Some(still) = &self.still else { return false };
        let entries = asked.iter().filter_map(|id| self.registry.by_table(*id)).filter(|e| e.own && e.exists);
        let hangs_on_commits = |e: &Entry| e.unchanged && !e.reads_clock && !e.polls();
        entries.into_iter().all(|e| hangs_on_commits(e) && still.tables.contains(&e.relation.id))
    }

    /// Notes that those which have no changes were looked at.
    pub(super) fn found_quiet(&mut self, due: &[Due], time: Time) {
        let idle: Vec<&Due> = due.iter().filter(|d| !self.has_changes(d)).collect();
        for d in idle {
            for id in &d.members {
                let Some(t) = self.tasks.get_mut(id).filter(|t| d.asks(*id, t)) else { continue };
                (t.status.last_start, t.status.last_end) = (Some(time), Some(time));
                t.status.last_done = Some(time);
            }
        }
    }

    /// Empties the buffers of sources that have held nothing but what was counted for [`super::SchedulerOptions::settle`]. That
    /// makes the plans that read them be made anew.
    async fn settle<C: Connection>(
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

    /// Whether one of these is known to have changes.
    pub(super) fn has_changes(&self, due: &Due) -> bool {
        due.members.iter().any(|id| self.changed.contains(id))
    }

    /// Of those that may have changes, those that have some for what their plans read.
    async fn sure<C: Connection>(
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
        // 1 is looked at each time and 2 is not; 1 changes meanwhile.
        assert!(look(&[1], &[1], 5).is_empty());
        assert!(look(&[1], &[], 6).is_empty());
        assert!(look(&[1], &[1], 11).is_empty());
        assert_eq!(look(&[1, 2, 3], &[1, 2], 12), [2]);
        assert!(look(&[1, 2], &[1, 2], 13).is_empty());
        assert_eq!(look(&[1, 2], &[1, 2], 22), [1, 2]);
    }
}
