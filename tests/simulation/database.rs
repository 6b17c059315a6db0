//! A database as far as refreshes can tell: transactions with ids and snapshots as PostgreSQL makes them, tables whose
//! rows know who wrote them, buffers of captured changes, and the catalog of stream tables.
//!
//! Tables are never shortened: a table is the list of its changes, and its contents under a snapshot are their sum. So
//! what a table *should* hold is decidable exactly, at any time and for any frontier.

use crate::lease::Lease;
use crate::mutants::Mutant;
use crate::scenario::Definition;
use std::collections::{BTreeMap, BTreeSet};
use trickle_core::catalog::TableId;
use trickle_core::frontier::{Command, Frontier, Snapshot, Xid};

/// A row. Each change of a base table has a row of its own, so a bag says which changes are in it and how often.
pub(crate) type Row = u32;

/// Rows with weights, none of which is 0.
pub(crate) type Bag = BTreeMap<Row, i64>;

/// What makes a stream table more than a sum: a row of its own, whose weight is the product of the sizes of its first
/// and its last source. A delta of it must read the one source as the window of the other is read, or it is wrong.
pub(crate) fn pairs_of(id: TableId) -> Row {
    PAIRS + id.0
}
const PAIRS: Row = 1_000_000;

/// The identity of the cluster and the database in frontiers.
pub(crate) const SYSTEM: i64 = 7;
/// See [`SYSTEM`].
pub(crate) const OID: u32 = 5;

/// A row that was written. In a buffer, weight 0 says that the table was emptied or replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) xid: Xid,
    pub(crate) cmin: Command,
    pub(crate) row: Row,
    pub(crate) w: i64,
}

/// What the catalog says of the refreshes of a stream table.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The stored text and what it says.
    pub(crate) frontier: Option<(String, Frontier)>,
    pub(crate) model: Option<String>,
    pub(crate) errors: u32,
    pub(crate) suspended: bool,
    pub(crate) must_rebuild: bool,
}

/// A stream table in the catalog.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) definition: Definition,
    /// Another one after each change of the query.
    pub(crate) version: u32,
    pub(crate) state: State,
    /// Who wrote it last.
    pub(crate) writer: Xid,
    /// What a transaction that is not over wrote.
    pub(crate) pending: Option<(Xid, State)>,
}

impl Entry {
    /// What a transaction sees: its own, else what was committed.
    pub(crate) fn seen_by(&self, xid: Option<Xid>) -> &State {
        match &self.pending {
            Some((x, state)) if Some(*x) == xid => state,
            _ => &self.state,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) mutant: Option<Mutant>,
    next: Xid,
    running: BTreeSet<Xid>,
    /// No transaction from this one on has ended.
    ended: Xid,
    /// When transactions committed.
    pub(crate) commits: BTreeMap<Xid, i64>,
    pub(crate) tables: BTreeMap<TableId, Vec<Change>>,
    pub(crate) buffers: BTreeMap<TableId, Vec<Change>>,
    pub(crate) catalog: BTreeMap<TableId, Entry>,
    /// Who holds the lock that keeps other refreshes from a stream table.
    pub(crate) locks: BTreeMap<TableId, u64>,
    rows: Row,
    /// Another number after each change of what stream tables there are.
    pub(crate) epoch: u64,
    /// The next command of each transaction.
    pub(crate) commands: BTreeMap<Xid, Command>,
    /// Stream tables whose query raises an error, until when.
    pub(crate) raising: BTreeMap<TableId, i64>,
    pub(crate) lease: Lease,
}

impl Database {
    pub(crate) fn new(mutant: Option<Mutant>) -> Database {
        Database {
            mutant,
            next: 100,
            running: BTreeSet::new(),
            ended: 100,
            commits: BTreeMap::new(),
            tables: BTreeMap::new(),
            buffers: BTreeMap::new(),
            catalog: BTreeMap::new(),
            locks: BTreeMap::new(),
            rows: 0,
            epoch: 0,
            commands: BTreeMap::new(),
            raising: BTreeMap::new(),
            lease: Lease::default(),
        }
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Gives a transaction its id; `skipped` ones went to transactions of other databases.
    pub(crate) fn assign(&mut self, skipped: u64) -> Xid {
        self.next += skipped;
        let xid = self.next;
        self.next += 1;
        self.running.insert(xid);
        xid
    }

    /// The number of a transaction's next command.
    pub(crate) fn command(&mut self, xid: Xid) -> Command {
        let next = self.commands.entry(xid).or_default();
        *next += 1;
        *next - 1
    }

    /// As the server builds it: the own transaction counts for xmin but is not listed, and may lie below xmax.
    pub(crate) fn snapshot(&self, own: Option<Xid>) -> Snapshot {
        let listed = self.running.iter().copied().filter(|x| Some(*x) != own && *x < self.ended);
        Snapshot::new(self.ended, listed)
    }

    fn end(&mut self, xid: Xid) {
        self.running.remove(&xid);
        self.ended = self.ended.max(xid + 1);
    }

    pub(crate) fn commit(&mut self, xid: Xid, now: i64) -> Vec<TableId> {
        self.end(xid);
        self.commits.insert(xid, now);
        let mut stored = Vec::new();
        for (id, entry) in &mut self.catalog {
            if let Some((_, state)) = entry.pending.take_if(|(x, _)| *x == xid) {
                (entry.state, entry.writer) = (state, xid);
                stored.push(*id);
            }
        }
        stored
    }

    pub(crate) fn abort(&mut self, xid: Xid) {
        self.end(xid);
        for table in self.tables.values_mut() {
            table.retain(|c| c.xid != xid);
        }
        for buffer in self.buffers.values_mut() {
            buffer.retain(|c| c.xid != xid || self.mutant == Some(Mutant::AbortedFeedsStay));
        }
        if self.is(Mutant::AbortedFeedsStay) {
            self.commits.insert(xid, 0);
        }
        for entry in self.catalog.values_mut() {
            entry.pending.take_if(|(x, _)| *x == xid);
        }
    }

    /// Writes a change of a row that nothing else has, as a statement of a transaction with its capture.
    pub(crate) fn write(&mut self, table: TableId, xid: Xid, cmin: Command, w: i64) -> Row {
        self.rows += 1;
        let change = Change { xid, cmin, row: self.rows, w };
        self.put(table, change);
        self.capture(table, change);
        self.rows
    }

    pub(crate) fn put(&mut self, table: TableId, change: Change) {
        self.tables.entry(table).or_default().push(change);
    }
    pub(crate) fn capture(&mut self, table: TableId, change: Change) {
        self.buffers.entry(table).or_default().push(change);
    }

    /// TRUNCATE in a transaction of its own, where nobody is in its way: the buffer tells that it happened, not what left.
    pub(crate) fn truncate(&mut self, table: TableId, now: i64) {
        let open = |c: &Change| self.running.contains(&c.xid);
        if self.tables.get(&table).is_some_and(|t| t.iter().any(open)) {
            return;
        }
        let held = self.contents(table, |_, _| true);
        let xid = self.assign(0);
        for (row, w) in held {
            self.put(table, Change { xid, cmin: 0, row, w: -w });
        }
        self.capture(table, Change { xid, cmin: 0, row: 0, w: 0 });
        self.commit(xid, now);
    }

    /// The sum of those changes of a table that are seen.
    pub(crate) fn contents(&self, table: TableId, seen: impl Fn(Xid, Command) -> bool) -> Bag {
        let mut bag = Bag::new();
        for c in self.tables.get(&table).into_iter().flatten().filter(|c| seen(c.xid, c.cmin)) {
            add(&mut bag, c.row, c.w);
        }
        bag
    }

    /// What everybody sees now.
    pub(crate) fn committed(&self, table: TableId) -> Bag {
        self.contents(table, |xid, _| self.commits.contains_key(&xid))
    }

    /// What a statement sees: what its snapshot shows and was committed, and what its transaction wrote.
    pub(crate) fn shows(&self, snapshot: &Snapshot, own: Option<Xid>, xid: Xid) -> bool {
        Some(xid) == own || (snapshot.sees(xid) && self.commits.contains_key(&xid))
    }

    /// How many changes of a source a frontier has not counted, of those that are shown; and whether one of them says
    /// that the others are not all.
    pub(crate) fn pending(
        &self,
        source: TableId,
        frontier: &Frontier,
        shown: impl Fn(Xid) -> bool,
    ) -> (i64, bool) {
        let rows = self.buffers.get(&source).into_iter().flatten();
        let rows = rows.filter(|c| !frontier.contains(c.xid, c.cmin) && shown(c.xid));
        rows.fold((0, false), |(n, cut), c| (n + i64::from(c.w != 0), cut || c.w == 0))
    }

    /// Whether a stream table has anything to do, as a look at buffers and catalog sees it.
    pub(crate) fn has_changes(&self, id: TableId) -> bool {
        let Some(entry) = self.catalog.get(&id) else { return false };
        let Some((_, frontier)) = entry.state.frontier.as_ref().filter(|_| !entry.state.must_rebuild) else {
            return true;
        };
        entry.definition.sources.iter().any(|s| {
            let (n, cut) = self.pending(*s, frontier, |xid| self.commits.contains_key(&xid));
            n > 0 || cut
        })
    }

    /// Empties the buffer of a source if every reader has counted all of it. Who is about to be rebuilt needs nothing
    /// of it, unless it is at work already, perhaps under a snapshot that does not show what the others have counted.
    pub(crate) fn drain(&mut self, source: TableId) {
        let readers = self.catalog.iter().filter(|(_, e)| e.definition.sources.contains(&source));
        let mut counted: Vec<Option<Frontier>> = Vec::new();
        for (id, e) in readers {
            let frontier = e.state.frontier.as_ref().map(|(_, f)| f.clone());
            match frontier.filter(|_| !e.state.must_rebuild) {
                Some(f) => counted.push(Some(f)),
                None if self.locks.contains_key(id) && !self.is(Mutant::DrainIgnoresRebuilds) => {
                    counted.push(None)
                }
                None => {}
            }
        }
        if self.is(Mutant::DrainedByOneReader) {
            counted.truncate(1);
        }
        let mut least: Option<Frontier> = None;
        for f in counted {
            let Some(f) = f else { return };
            least = match least {
                None => Some(f),
                Some(l) => l.meet(&f).ok(),
            };
        }
        let Some(buffer) = self.buffers.get_mut(&source) else { return };
        let all = |f: &Frontier| buffer.iter().all(|c| f.contains(c.xid, c.cmin));
        let settled = |c: &Change| self.commits.contains_key(&c.xid);
        if least.as_ref().is_none_or(all) && buffer.iter().all(settled) {
            buffer.clear();
        }
    }

    /// What a failed refresh leaves in the catalog: an error more, and a suspension where they are too many.
    pub(crate) fn note_failure(&mut self, id: TableId, most: u32) {
        let writer = self.assign(0);
        if let Some(entry) = self.catalog.get_mut(&id) {
            entry.writer = writer;
            let state = &mut entry.state;
            if !(state.suspended && state.errors == 0) {
                state.errors += 1;
                state.suspended |= most > 0 && state.errors >= most;
            }
        }
        self.commit(writer, i64::MAX);
    }

    /// What a user changes in the catalog, if no transaction has the row.
    pub(crate) fn alter(&mut self, id: TableId, change: impl FnOnce(&mut Entry)) -> bool {
        let writer = self.assign(0);
        self.epoch += 1;
        let entry = self.catalog.get_mut(&id).filter(|e| e.pending.is_none());
        let altered = entry.map(|entry| {
            change(entry);
            entry.writer = writer;
        });
        self.commit(writer, i64::MAX);
        altered.is_some()
    }
}

/// Adds to a bag.
pub(crate) fn add(bag: &mut Bag, row: Row, w: i64) {
    let weight = bag.entry(row).or_default();
    *weight += w;
    if *weight == 0 {
        bag.remove(&row);
    }
}

/// How many rows a table has, without what is no base table's.
pub(crate) fn size(bag: &Bag) -> i64 {
    bag.range(..PAIRS).map(|(_, w)| w).sum()
}

/// The function of its sources that a stream table is.
pub(crate) fn defined(id: TableId, sources: &[Bag]) -> Bag {
    let mut bag = Bag::new();
    for (row, w) in sources.iter().flatten() {
        add(&mut bag, *row, *w);
    }
    if let (Some(first), Some(last)) = (sources.first(), sources.last()) {
        add(&mut bag, pairs_of(id), size(first) * size(last));
    }
    bag
}
