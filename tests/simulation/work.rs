//! Refreshes that run: their beginnings, the answers to their batches, and their ends.

use crate::daemon::graph;
use crate::laws::{self, Law};
use crate::mutants::Mutant;
use crate::refresh::{Refresh, Sent};
use crate::run::{Do, Owner, Run, Work, groups, holder, how};
use std::collections::BTreeSet;
use trickle_core::catalog::TableId;
use trickle_core::frontier::Frontier;
use trickle_core::refresh::{Failure, FailureKind, Outcome, Report, Step};
use trickle_core::schedule::{Due, Outcome as End};

impl Run {
    /// Begins to refresh these stream tables, each group by itself. With `all`, also refreshes the stream
    /// tables that they read.
    pub(crate) fn begin(&mut self, owner: Owner, wanted: &[TableId], all: bool) {
        let rest = groups(&self.db, wanted, all);
        self.next_group(owner, rest, false);
    }

    fn next_group(&mut self, owner: Owner, mut rest: std::collections::VecDeque<Vec<TableId>>, stored: bool) {
        let Some(members) = rest.pop_front() else { return self.over(owner, End::Done, stored) };
        self.refreshes += 1;
        let id = self.refreshes;
        let by = if let Owner::Transaction(i) = owner { holder(i) } else { id };
        for group in graph(&self.db).groups() {
            if group.iter().any(|id| members.contains(id)) {
                let all: BTreeSet<TableId> = group.iter().copied().collect();
                self.together.extend(members.iter().map(|id| ((by, *id), all.clone())));
            }
        }
        let (within, fence) = match &owner {
            Owner::Transaction(i) => (Some((holder(*i), self.own(*i))), None),
            Owner::Daemon(seat, _) => (None, self.seats[*seat].fence),
            _ => (None, None),
        };
        let refresh = Refresh::new(&self.db, &self.scenario, (id, members, self.now), within, fence);
        self.say(|_| format!("refresh {id} of {:?} begins for {owner:?}", refresh.members));
        self.works.insert(id, Work { refresh, owner, rest, stored });
        self.answered(id);
    }

    /// Gives the machine the outcome of its batch. Then does the next step of the machine.
    pub(crate) fn answered(&mut self, id: u64) {
        let Some(mut work) = self.works.remove(&id) else { return };
        match work.owner {
            Owner::Daemon(seat, _) if self.now < self.seats[seat].stalled => {
                self.at(self.seats[seat].stalled, Do::Answer(id));
                self.works.insert(id, work);
                return;
            }
            Owner::Nobody => {
                self.works.insert(id, work);
                return;
            }
            _ => {}
        }
        let outcome = std::mem::replace(&mut work.refresh.outcome, Outcome::start());
        match work.refresh.machine.step(outcome) {
            Step::Run(batch) => {
                work.refresh.load(batch);
                self.send(id, work);
            }
            Step::Done(report) => self.done(work, &report),
            Step::Fail(failure) => self.failed(work, &failure),
        }
    }

    fn send(&mut self, id: u64, mut work: Work) {
        let old: Vec<(TableId, Option<Frontier>)> = work
            .refresh
            .members
            .iter()
            .map(|id| (*id, self.db.catalog.get(id).and_then(|e| e.state.frontier.clone()).map(|(_, f)| f)))
            .collect();
        let waited = work.refresh.waits.is_some();
        let sent = work.refresh.send(&mut self.db, &self.scenario, self.now);
        match sent {
            Sent::After(ms) => self.at(self.now + ms, Do::Answer(id)),
            Sent::Waits if !waited => {
                let patience = self.scenario.lock_timeout.max(2) * if work.refresh.within { 3 } else { 1 };
                self.at(self.now + patience, Do::TimeOut(id, self.now));
            }
            Sent::Waits => {}
        }
        let stored = std::mem::take(&mut work.refresh.committed);
        if let Owner::Transaction(i) = work.owner {
            self.keep(i, work.refresh.xid);
        }
        if !stored.is_empty() {
            let text = |f: &Frontier| f.snapshot().to_string();
            self.say(|run| {
                let frontier = run.db.catalog.get(&stored[0]).and_then(|e| e.state.frontier.as_ref());
                format!("refresh {id} commits {stored:?} at {:?}", frontier.map(|(_, f)| text(f)))
            });
            if work.refresh.fence.is_some_and(|f| !self.db.lease.admits(f)) {
                self.breaks(
                    Law::FenceHolds,
                    format!("refresh {id} of {stored:?} committed without the lease"),
                );
            }
            for (table, frontier) in old {
                let new = self.db.catalog.get(&table).and_then(|e| e.state.frontier.as_ref());
                if let (Some(old), Some((_, new))) = (frontier, new)
                    && !old.is_within(new)
                {
                    let detail = format!("{table}: {} after {}", text(new), text(&old));
                    self.breaks(Law::FrontierAdvances, detail);
                }
            }
            self.check_commit(&stored, id);
        }
        self.works.insert(id, work);
        self.wake_waiting();
    }

    /// Lets each refresh that waits for a lock try again.
    pub(crate) fn wake_waiting(&mut self) {
        let waiting: Vec<u64> =
            self.works.iter().filter(|(_, w)| w.refresh.waits.is_some()).map(|(id, _)| *id).collect();
        for id in waiting {
            let Some(mut work) = self.works.remove(&id) else { continue };
            if let Sent::After(ms) = work.refresh.send(&mut self.db, &self.scenario, self.now) {
                self.at(self.now + ms, Do::Answer(id));
            }
            if let Owner::Transaction(i) = work.owner {
                self.keep(i, work.refresh.xid);
            }
            self.works.insert(id, work);
        }
    }

    /// Checks the laws of committed stream tables.
    pub(crate) fn check_commit(&mut self, stored: &[TableId], by: u64) {
        for id in stored {
            self.failures.remove(id);
            if self.db.catalog.get(id).is_some_and(|e| !e.state.suspended) {
                self.suspended.remove(id);
            }
            let together = self.together.get(&(by, *id)).cloned().unwrap_or_default();
            if let Some((law, detail)) = laws::committed(&self.db, *id, &together) {
                self.breaks(law, detail);
            }
        }
    }

    fn done(&mut self, mut work: Work, report: &Report) {
        self.longest = self.longest.max(self.now - work.refresh.started);
        work.stored |= report.frontier.is_some();
        let (taken, best) = work.refresh.spent;
        if let [one] = work.refresh.members.as_slice() {
            let spent = self.spent.entry(*one).or_default();
            *spent = (spent.0 + 1, spent.1 + taken, spent.2 + best);
        }
        let members = &report.members;
        self.say(|_| {
            let did: Vec<String> = members.iter().map(|m| format!("{} {:?}", m.name, m.strategy)).collect();
            format!("refresh {} is done: {}", work.refresh.id, did.join(", "))
        });
        let read: BTreeSet<TableId> = work
            .refresh
            .machine
            .plan()
            .members
            .iter()
            .flat_map(|m| &m.sources)
            .map(|s| s.relation.id)
            .collect();
        if !work.refresh.within {
            read.into_iter().for_each(|s| self.db.drain(s));
        }
        self.next_group(work.owner, work.rest, work.stored);
    }

    fn failed(&mut self, mut work: Work, failure: &Failure) {
        self.longest = self.longest.max(self.now - work.refresh.started);
        work.refresh.roll_back(&mut self.db);
        self.say(|_| {
            format!(
                "refresh {} fails: {:?} {}",
                work.refresh.id,
                failure.kind,
                failure.error.sqlstate().unwrap_or_default()
            )
        });
        if failure.error.sqlstate() == Some("XX000") {
            self.breaks(Law::MachineUnderstands, failure.error.message());
        }
        let counts = failure.kind == FailureKind::Statement
            || (failure.kind == FailureKind::Busy && self.mutant == Some(Mutant::BusyIsAnError));
        if counts {
            let of = failure.member.map(|id| TableId(id as u32)).or(work.refresh.members.last().copied());
            self.count_failure(of.unwrap_or(TableId(0)), failure.kind, &work);
        }
        match (&work.owner, failure.kind) {
            (Owner::Daemon(seat, _), FailureKind::Connection) => {
                let seat = *seat;
                self.down(seat, self.scenario.unit / 2);
                self.at(self.now + self.scenario.unit / 5, Do::Up(seat));
            }
            (Owner::Transaction(i), _) => match work.refresh.xid.or(self.own(*i)) {
                Some(xid) => self.abort_transaction(*i, xid),
                None => self.wake_waiting(),
            },
            _ => self.over(work.owner, how(failure.kind), work.stored),
        }
        self.wake_waiting();
    }

    /// Counts an error of a stream table, as the catalog does, and checks the laws of suspension.
    fn count_failure(&mut self, id: TableId, kind: FailureKind, work: &Work) {
        let was = self.db.catalog.get(&id).is_some_and(|e| e.state.suspended);
        let most = self.scenario.options.max_consecutive_errors;
        self.db.note_failure(id, most);
        let failures = self.failures.entry(id).or_default();
        *failures += u32::from(kind == FailureKind::Statement);
        let failures = *failures;
        let Some(state) = self.db.catalog.get(&id).map(|e| e.state.clone()) else { return };
        if state.suspended && !was {
            self.suspended.insert(id, self.now);
            if most == 0 || failures < most {
                self.breaks(
                    Law::SuspendedInTime,
                    format!("{id} is suspended after {failures} errors of its own"),
                );
            }
        }
        if !state.suspended && most > 0 && failures >= most {
            self.breaks(Law::SuspendedInTime, format!("{id} goes on after {failures} errors"));
        }
        if let Owner::Daemon(seat, _) = work.owner
            && self.seats[seat].disturbed < work.refresh.started
        {
            self.seats[seat].failed.insert(id, (self.now, state.errors));
        }
    }

    /// Ends a refresh. All of its groups were refreshed, or one of them failed.
    fn over(&mut self, owner: Owner, end: End, stored: bool) {
        let Owner::Daemon(seat, due) = owner else { return };
        let calm = self.scenario.calm;
        if end == End::Done && !stored && calm && self.broken.is_none() {
            self.breaks(Law::IdleCostsNothing, format!("{:?} had nothing to do", due.members));
        }
        let wall = self.wall(seat);
        self.noted(seat, &due, end);
        if let Some(daemon) = &mut self.seats[seat].daemon {
            daemon.ended(&due, end, wall, self.now);
            self.look_soon(seat);
        }
    }

    fn noted(&mut self, seat: usize, due: &Due, end: End) {
        let seat = &mut self.seats[seat];
        for id in &due.members {
            match end {
                End::Done => drop(seat.failed.remove(id)),
                _ => drop(seat.started.remove(id)),
            }
            match end {
                End::Later => drop(seat.later.insert(*id, self.now)),
                _ => drop(seat.later.remove(id)),
            }
        }
    }

    /// Rolls back the transaction of a client that has gone, as the server does.
    pub(crate) fn gone(&mut self, id: u64) {
        if let Some(mut work) = self.works.remove(&id) {
            work.refresh.roll_back(&mut self.db);
            self.say(|_| format!("the server rolls refresh {id} back"));
            self.wake_waiting();
        }
    }
}
