//! The refreshers in a run: the times of their looks for due stream tables, the refreshes that they start,
//! and the laws of both.

use crate::daemon::Daemon;
use crate::laws::{self, Law};
use crate::run::{Do, Owner, Run, Seat, Work};
use std::time::Duration;
use trickle_core::catalog::TableId;
use trickle_core::schedule::{Due, Schedule};

impl Seat {
    /// Returns the additional time that a stream table may wait because the clock was set back by less than
    /// its period.
    fn set_back_for(&self, period: Option<i64>) -> i64 {
        period.filter(|_| self.set_back).unwrap_or(0)
    }
}

impl Run {
    /// Ends a refresher. The refreshes of the refresher stand still until the server notices its end.
    pub(crate) fn down(&mut self, seat: usize, linger: i64) {
        self.seats[seat].daemon = None;
        self.seats[seat].looks += 1;
        self.seats[seat].stalled = self.seats[seat].stalled.min(self.now);
        for (id, work) in self.works.iter_mut() {
            if matches!(work.owner, Owner::Daemon(s, _) if s == seat) {
                work.owner = Owner::Nobody;
                self.orphans.push(*id);
            }
        }
        for id in std::mem::take(&mut self.orphans) {
            self.at(self.now + linger, Do::Gone(id));
        }
    }

    /// Starts a refresher that is not running.
    pub(crate) fn up(&mut self, seat: usize) {
        if self.seats[seat].daemon.is_some() {
            return;
        }
        self.say(|_| format!("refresher {seat} starts"));
        let it = &mut self.seats[seat];
        it.daemon = Some(Daemon::new(&self.scenario, self.mutant));
        (it.disturbed, it.fence) = (self.now, None);
        it.failed.clear();
        it.started.clear();
        it.later.clear();
        it.excused.clear();
        self.look_soon(seat);
    }

    pub(crate) fn look_soon(&mut self, seat: usize) {
        self.look_at(seat, self.now);
    }

    fn look_at(&mut self, seat: usize, time: i64) {
        self.seats[seat].looks += 1;
        self.at(time, Do::Look(seat, self.seats[seat].looks));
    }

    pub(crate) fn look(&mut self, seat: usize) {
        let stalled = self.seats[seat].stalled;
        if self.now < stalled {
            return self.look_at(seat, stalled);
        }
        let mut pause = self.scenario.reload;
        if let Some(term) = self.scenario.lease {
            pause = pause.min(term / 4);
            self.seats[seat].fence = self.db.lease.take(seat, self.now, term);
            if self.seats[seat].fence.is_none() {
                self.seats[seat].disturbed = self.now;
                return self.look_at(seat, self.now + pause);
            }
        }
        let (wall, now) = (self.wall(seat), self.now);
        let most = self.scenario.options.max_concurrent;
        let Some(daemon) = &mut self.seats[seat].daemon else { return };
        let (due, wake) = daemon.look(&self.db, most, wall, now);
        for due in due {
            self.check_start(seat, &due);
            let wanted = due.members.clone();
            self.begin(Owner::Daemon(seat, due), &wanted, false);
        }
        self.check_limit(seat);
        self.check_starving(seat);
        let wake = wake.map_or(pause, |t| t.since(wall).as_millis() as i64);
        self.look_at(seat, self.now + wake.min(pause).max(1));
    }

    fn check_limit(&mut self, seat: usize) {
        // Two groups that became one group while both were refreshed count as one.
        let disturbed = self.seats[seat].disturbed;
        let own =
            |w: &&Work| matches!(w.owner, Owner::Daemon(s, _) if s == seat) && w.refresh.started > disturbed;
        let own = self.works.values().filter(own).count();
        let most = self.scenario.options.max_concurrent;
        if own > most {
            self.breaks(
                Law::AtMostSoMany,
                format!("refresher {seat} has {own} refreshes at work, of {most}"),
            );
        }
    }

    /// Checks the laws of a refresh that is about to begin.
    fn check_start(&mut self, seat: usize, due: &Due) {
        let twice = self.works.values().any(|w| {
            matches!(&w.owner, Owner::Daemon(s, other) if *s == seat && other.members.iter().any(|m| due.members.contains(m)))
        });
        if twice {
            self.breaks(Law::OneAtATime, format!("{:?} is started again", due.members));
        }
        for id in &due.members {
            self.check_backoff(seat, *id);
            let read = self.seats[seat].daemon.as_ref().and_then(Daemon::looked).unwrap_or(0);
            if self.suspended.get(id).is_some_and(|at| *at < read) {
                self.breaks(Law::SuspendedInTime, format!("{id} is suspended and is refreshed"));
            }
        }
        for id in &due.asked {
            self.check_missed(seat, *id);
        }
        let now = self.now;
        self.seats[seat].started.extend(due.members.iter().map(|id| (*id, now)));
    }

    fn check_backoff(&mut self, seat: usize, id: TableId) {
        let it = &self.seats[seat];
        let Some((at, counted)) = it.failed.get(&id).copied() else { return };
        let errors = counted.min(self.db.catalog.get(&id).map_or(0, |e| e.state.errors));
        let o = &self.scenario.options;
        let wait = (0..errors.saturating_sub(1)).fold(o.backoff_first, |w, _| (w * 2).min(o.backoff_cap));
        let waited = Duration::from_millis((self.now - at) as u64);
        if errors > 0 && it.disturbed < at && waited < wait.min(o.backoff_cap) {
            let detail =
                format!("{id} failed {errors} times and is tried again after {waited:?}, not {wait:?}");
            self.breaks(Law::BackoffHonoured, detail);
        }
    }

    fn check_missed(&mut self, seat: usize, id: TableId) {
        let it = &self.seats[seat];
        let (Some(at), Some(daemon)) = (it.started.get(&id).copied(), &it.daemon) else { return };
        let Some(entry) = self.db.catalog.get(&id) else { return };
        let of = |id: &TableId| daemon.groups.iter().position(|g| g.contains(id));
        let asked_by_others = daemon.dag.downstream(id).iter().any(|r| of(r) != of(&id));
        let timed = matches!(entry.definition.schedule, Some(Schedule::Every(_) | Schedule::Calculated));
        if it.disturbed >= at || asked_by_others || !timed || entry.state.errors > 0 {
            return;
        }
        let Some(period) = daemon.periods().get(&id) else { return };
        let least = period.mul_f64(1.0 - self.scenario.options.jitter).as_millis() as i64 - 2;
        if self.now - at < least {
            let detail = format!("{id} is due {} ms after it was refreshed, not {least} ms", self.now - at);
            self.breaks(Law::NoMissedRuns, detail);
        }
    }

    /// Returns the duration of the longest refresh so far. Refreshes that still run count too.
    fn longest(&self) -> i64 {
        let running = self.works.values().map(|w| self.now - w.refresh.started);
        running.chain([self.longest]).max().unwrap_or(0)
    }

    /// Checks that each scheduled stream table was started within the time that the laws allow.
    fn check_starving(&mut self, seat: usize) {
        let longest = self.longest();
        let it = &self.seats[seat];
        let Some(daemon) = &it.daemon else { return };
        let (mut excused, mut starved) = (Vec::new(), None);
        for (id, task) in daemon.tasks() {
            let fails = |id: &TableId| {
                let now = self.db.catalog.get(id).is_none_or(|e| e.state.errors > 0 || e.state.suspended);
                now || daemon
                    .tasks()
                    .get(id)
                    .is_some_and(|t| t.status.consecutive_errors > 0 || t.status.suspended)
            };
            let streams = daemon.dag.upstream(*id).into_iter().filter(|s| daemon.dag.is_stream_table(*s));
            let is_held = task.status.suspended || streams.into_iter().any(|s| fails(&s));
            if task.schedule.is_none() || task.status.running || is_held {
                excused.push(*id);
                continue;
            }
            let Some(period) = daemon.period(*id, longest) else { continue };
            let o = &self.scenario.options;
            let failing = if fails(id) { o.backoff_cap.as_millis() as i64 } else { 0 };
            let turn =
                laws::turn(daemon, &self.scenario, *id, longest) + it.set_back_for(Some(period)) + failing;
            let seen = daemon.seen.get(id).copied().unwrap_or(0);
            let excused = it.disturbed.max(it.excused.get(id).copied().unwrap_or(0));
            let again = (o.backoff_first.as_millis() as i64).max(longest / 4);
            let ended = it.later.get(id).copied().filter(|at| *at >= seen);
            let waits =
                [(Law::NothingStarves, Some(seen), period + turn), (Law::TriedAgain, ended, again + turn)];
            for (law, from, most) in waits {
                let waited = from.map_or(0, |at| self.now - at.max(excused));
                if waited > most {
                    starved = Some((law, format!("{id} waits for {waited} ms, more than {most} ms")));
                }
            }
        }
        let now = self.now;
        self.seats[seat].excused.extend(excused.into_iter().map(|id| (id, now)));
        if let Some((law, detail)) = starved {
            self.breaks(law, detail);
        }
    }

    /// Checks the lag of all stream tables, while load is the only cause of lag.
    pub(crate) fn sample(&mut self) {
        if self.is_quiet {
            return;
        }
        self.at(self.now + self.scenario.unit * 2, Do::Sample);
        let longest = self.longest();
        let Some(daemon) = self.seats[0].daemon.as_ref() else { return };
        let least = daemon.periods().values().min().map_or(1, |p| p.as_millis() as i64);
        let groups = daemon.groups.len() as i64;
        if groups * longest > least * self.scenario.options.max_concurrent as i64 {
            return;
        }
        let present = laws::present(&self.db);
        let mut late = None;
        for id in daemon.tasks().keys() {
            let (Some(bag), Some(patience)) =
                (present.get(id), laws::patience(daemon, &self.scenario, *id, longest))
            else {
                continue;
            };
            // If a source in another group was refreshed earlier by at most the jitter, the source counts as
            // fresh for its reader.
            let jitter = daemon.period(*id, longest).unwrap_or(0) as f64 * self.scenario.options.jitter;
            let most = patience + jitter as i64 * groups + longest;
            let lag = laws::lag(&self.db, *id, bag, self.now);
            if lag > most {
                late = Some(format!(
                    "{id} shows nothing of what was committed {lag} ms ago, more than {most} ms"
                ));
            }
        }
        if let Some(detail) = late {
            self.breaks(Law::LagBounded, detail);
        }
    }

    /// Whether the run is over. After all refreshers had time to finish, checks that all stream tables are
    /// right.
    pub(crate) fn finish(&mut self) -> bool {
        let longest = self.longest();
        let o = &self.scenario.options;
        let mut most = 0;
        for daemon in self.seats.iter().filter_map(|s| s.daemon.as_ref()) {
            let all =
                daemon.tasks().keys().filter_map(|id| laws::patience(daemon, &self.scenario, *id, longest));
            most = all.fold(most, i64::max);
        }
        let lingering = 3 * self.scenario.unit;
        let rest = o.backoff_cap.as_millis() as i64 + self.scenario.reload + lingering + longest;
        let end = self.scenario.length + most * 2 + rest;
        if self.now < end {
            self.at(end, Do::Finish);
            return false;
        }
        if let Some((law, detail)) = laws::quiet(&self.db) {
            self.breaks(law, detail);
        }
        for (id, (n, taken, best)) in self.spent.clone() {
            // The cost model tries strategies whose cost it does not know. A first fill has only one
            // strategy.
            let table = self.scenario.tables.iter().find(|t| t.id == id);
            let once = table.map_or(0.0, |t| t.costs[0].max(t.costs[1]));
            if self.scenario.calm && n >= 10 && taken > best * 2.0 + once * 6.0 {
                let detail = format!("{n} refreshes of {id} took {taken:.0} ms, where {best:.0} ms would do");
                self.breaks(Law::WaysAreLearnt, detail);
            }
        }
        true
    }
}
