//! Actions of users in a run, and events of the server: transactions, changes of the catalog, restarts, and
//! changes of clocks.

use crate::run::{Do, Owner, Run, Work, holder};
use crate::scenario::Event;
use trickle_core::catalog::TableId;
use trickle_core::frontier::Xid;

impl Run {
    fn open_transaction(&mut self, i: usize, event: &Event) {
        let Event::Transaction { writes, refresh, length, .. } = event else { return };
        self.open.insert(i, None);
        for (k, (at, ..)) in writes.iter().enumerate() {
            self.at(self.now + at, Do::Write(i, k));
        }
        if let Some((at, _)) = refresh {
            self.at(self.now + at, Do::Within(i));
        }
        self.at(self.now + length, Do::End(i));
    }

    pub(crate) fn write(&mut self, i: usize, k: usize) {
        let Event::Transaction { writes, .. } = &self.scenario.events[i].1 else { return };
        let (_, table, w) = writes[k];
        if self.is_busy(i) {
            self.at(self.now + 1 + self.scenario.unit / 50, Do::Write(i, k));
            return;
        }
        let Some(xid) = self.open.get(&i).copied() else { return };
        let xid = xid.unwrap_or_else(|| self.db.assign(i as u64 % 2));
        self.open.insert(i, Some(xid));
        let command = self.db.command(xid);
        let row = self.db.write(table, xid, command, w);
        self.say(|_| format!("transaction {xid} writes row {row} to {table} with weight {w}"));
    }

    pub(crate) fn refresh_within(&mut self, i: usize) {
        let Event::Transaction { refresh: Some((_, table)), .. } = self.scenario.events[i].1 else { return };
        if self.open.contains_key(&i) && self.db.catalog.contains_key(&table) {
            self.begin(Owner::Transaction(i), &[table], true);
        }
    }

    /// Whether a user's transaction runs a refresh. During the refresh the transaction can do nothing else.
    fn is_busy(&self, i: usize) -> bool {
        self.works.values().any(|w| matches!(w.owner, Owner::Transaction(t) if t == i))
    }

    /// Ends a user's transaction, unless it runs a refresh.
    pub(crate) fn end(&mut self, i: usize) {
        if self.is_busy(i) {
            self.at(self.now + self.scenario.unit / 10, Do::End(i));
            return;
        }
        let Event::Transaction { commits, .. } = self.scenario.events[i].1 else { return };
        let Some(xid) = self.open.remove(&i) else { return };
        let Some(xid) = xid else { return self.release(i) };
        if commits {
            self.say(|_| format!("transaction {xid} commits"));
            let stored = self.db.commit(xid, self.now);
            self.release(i);
            self.check_commit(&stored, holder(i));
        } else {
            self.abort_transaction(i, xid);
        }
    }

    pub(crate) fn abort_transaction(&mut self, i: usize, xid: Xid) {
        self.say(|_| format!("transaction {xid} is rolled back"));
        self.open.remove(&i);
        self.db.abort(xid);
        self.release(i);
    }

    fn release(&mut self, i: usize) {
        let holder = holder(i);
        self.db.locks.retain(|_, h| *h != holder);
        self.wake_waiting();
    }

    pub(crate) fn own(&self, i: usize) -> Option<Xid> {
        self.open.get(&i).copied().flatten()
    }
    pub(crate) fn keep(&mut self, i: usize, xid: Option<Xid>) {
        if let Some(own) = self.open.get_mut(&i) {
            *own = own.or(xid);
        }
    }

    pub(crate) fn event(&mut self, i: usize, event: Event) {
        let held = |id: &TableId| self.db.locks.get(id).is_some_and(|h| *h >= holder(0));
        match event {
            Event::Transaction { .. } => self.open_transaction(i, &event),
            Event::Truncate(table) => {
                let reads = |w: &Work| {
                    let members = &w.refresh.machine.plan().members;
                    members.iter().flat_map(|m| &m.sources).any(|s| s.relation.id == table)
                };
                if !self.works.values().any(reads) {
                    self.db.truncate(table, self.now);
                }
            }
            Event::Kill { daemon, linger, down } => {
                self.down(daemon, linger);
                self.at(self.now + down, Do::Up(daemon));
            }
            Event::Restart => self.restart(),
            Event::Jump { daemon, by } => {
                self.seats[daemon].ahead += by;
                self.seats[daemon].set_back |= by < 0;
                self.seats[daemon].disturbed = self.seats[daemon].disturbed.max(self.now);
            }
            Event::Stall { daemon, length } => {
                let until = self.now + length;
                self.seats[daemon].stalled = until;
                self.seats[daemon].disturbed = until;
            }
            Event::Raise { table, length } => {
                self.db.raising.insert(table, self.now + length);
            }
            Event::Suspend(id) if !held(&id) => self.suspend(id),
            Event::Resume(id) => self.resume(id),
            Event::Refresh(id) if self.db.catalog.contains_key(&id) => self.begin(Owner::User, &[id], true),
            Event::Reschedule(id, schedule) if !held(&id) => {
                self.disturb();
                self.db.alter(id, |e| e.definition.schedule = schedule);
            }
            Event::Redefine(id) if !held(&id) => {
                self.disturb();
                self.db.alter(id, |e| {
                    if e.definition.sources.len() > 1 {
                        e.definition.sources.pop();
                        e.version += 1;
                        e.state.must_rebuild = true;
                    }
                });
            }
            Event::Drop(id) => self.forget(id),
            _ => {}
        }
    }

    /// Drops a stream table that has no readers and is not being refreshed.
    fn forget(&mut self, id: TableId) {
        let read = self.db.catalog.values().any(|e| e.definition.sources.contains(&id));
        if read || self.db.locks.contains_key(&id) {
            return;
        }
        self.disturb();
        self.db.catalog.remove(&id);
        self.db.epoch += 1;
        self.suspended.remove(&id);
        self.failures.remove(&id);
        self.db.tables.remove(&id);
        self.db.buffers.remove(&id);
    }

    fn suspend(&mut self, id: TableId) {
        if self.db.alter(id, |e| (e.state.suspended, e.state.errors) = (true, 0)) {
            self.suspended.entry(id).or_insert(self.now);
            self.failures.remove(&id);
        }
    }

    /// Resumes a stream table. If a transaction holds the stream table's row in the catalog, resumes it after
    /// that transaction.
    pub(crate) fn resume(&mut self, id: TableId) {
        let held = self.db.locks.get(&id).is_some_and(|h| *h >= holder(0));
        let exists = self.db.catalog.contains_key(&id);
        if exists && (held || !self.db.alter(id, |e| (e.state.suspended, e.state.errors) = (false, 0))) {
            self.at(self.now + self.scenario.unit / 10, Do::Resume(id));
            return;
        }
        self.suspended.remove(&id);
        self.failures.remove(&id);
        self.disturb();
    }

    /// Restarts the server. All open transactions end, and the refreshers connect again.
    fn restart(&mut self) {
        for i in self.open.clone().into_keys() {
            match self.own(i) {
                Some(xid) => self.abort_transaction(i, xid),
                None => _ = self.open.remove(&i),
            }
        }
        for mut work in std::mem::take(&mut self.works).into_values() {
            work.refresh.roll_back(&mut self.db);
        }
        self.db.locks.clear();
        for seat in 0..self.seats.len() {
            self.down(seat, 0);
            self.at(self.now + self.scenario.unit / 5, Do::Up(seat));
        }
    }
}
