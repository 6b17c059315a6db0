//! A model of a database, limited to the facts that a refresh can observe. Transactions have ids and
//! snapshots as PostgreSQL makes them, and each row of a table records the transaction that wrote it. The
//! model also has change buffers and the catalog of stream tables.
//!
//! A table is the list of the changes of all transactions that were not rolled back. Its contents under a
//! snapshot are the sum of the changes that the snapshot shows. So the contents that a table *should* have
//! can be computed exactly, for any time and any frontier.

use crate::lease::Lease;
use crate::mutants::Mutant;
use crate::scenario::Definition;
use std::collections::{BTreeMap, BTreeSet};
use trickle_core::catalog::TableId;
use trickle_core::frontier::{Command, Frontier, Snapshot, Xid};

/// The number of a row. Each change of a source has a row of its own, so a bag shows which changes it
/// contains, and how often.
pub(crate) type Row = u32;

/// Rows with weights. No weight is 0.
pub(crate) type Bag = BTreeMap<Row, i64>;

/// Returns the row by which a stream table is more than the sum of its sources. The weight of this row is the
/// product of the sizes of the first and the last source. A delta of this row is right only if the delta
/// reads one source under the same snapshot as the window of the other source.
pub(crate) fn pairs_of(id: TableId) -> Row {
    PAIRS + id.0
}
const PAIRS: Row = 1_000_000;

/// The server's identity in frontiers.
pub(crate) const SYSTEM: i64 = 7;
/// The database's identity in frontiers.
pub(crate) const OID: u32 = 5;

/// A row that was written. In a buffer, weight 0 says that the table was emptied or replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) xid: Xid,
    pub(crate) cmin: Command,
    pub(crate) row: Row,
    pub(crate) w: i64,
}

/// The catalog's record of a stream table's refreshes.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The stored frontier, as text and as a parsed value.
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
    /// The version of the query. Each change of the query changes the version.
    pub(crate) version: u32,
    pub(crate) state: State,
    /// The transaction that last wrote this entry.
    pub(crate) writer: Xid,
    /// The state that an open transaction wrote.
    pub(crate) pending: Option<(Xid, State)>,
}

impl Entry {
    /// Returns the state that a transaction sees: the state that it wrote, or else the committed state.
    pub(crate) fn seen_by(&self, xid: Option<Xid>) -> &State {
        match &self.pending {
            Some((x, state)) if Some(*x) == xid => state,
            _ => &self.state,
        }
    }
}

/// The model database.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) mutant: Option<Mutant>,
    next: Xid,
    running: BTreeSet<Xid>,
    /// The least transaction id that is greater than the ids of all ended transactions.
    ended: Xid,
    /// The time at which each transaction committed.
    pub(crate) commits: BTreeMap<Xid, i64>,
    pub(crate) tables: BTreeMap<TableId, Vec<Change>>,
    pub(crate) buffers: BTreeMap<TableId, Vec<Change>>,
    pub(crate) catalog: BTreeMap<TableId, Entry>,
    /// The holder of the lock of each locked stream table. The lock excludes other refreshes of the stream
    /// table.
    pub(crate) locks: BTreeMap<TableId, u64>,
    rows: Row,
    /// The version of the set of stream tables and their definitions. Each change of the set or of a
    /// definition changes the version.
    pub(crate) epoch: u64,
    /// Number of the next command of each transaction.
    pub(crate) commands: BTreeMap<Xid, Command>,
    /// The stream tables whose query raises an error, each with the time at which the errors end.
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

    /// Assigns an id to a transaction. The `skipped` ids before this id belong to transactions of other
    /// databases.
    pub(crate) fn assign(&mut self, skipped: u64) -> Xid {
        self.next += skipped;
        let xid = self.next;
        self.next += 1;
        self.running.insert(xid);
        xid
    }

    /// Returns the number of a transaction's next command.
    pub(crate) fn command(&mut self, xid: Xid) -> Command {
        let next = self.commands.entry(xid).or_default();
        *next += 1;
        *next - 1
    }

    /// Builds a snapshot as the server does. The id of the session's own transaction counts for xmin but is
    /// not listed, and may be less than xmax.
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

    /// Writes a new row with weight `w` to a table and to its change buffer, as a statement of a transaction
    /// does.
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

    /// Truncates a table in a transaction of its own, unless an open transaction has written to the table.
    /// The change buffer shows that the table was truncated, but not the deleted rows.
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

    /// Returns the sum of those changes of a table for which `seen` returns true.
    pub(crate) fn contents(&self, table: TableId, seen: impl Fn(Xid, Command) -> bool) -> Bag {
        let mut bag = Bag::new();
        for c in self.tables.get(&table).into_iter().flatten().filter(|c| seen(c.xid, c.cmin)) {
            add(&mut bag, c.row, c.w);
        }
        bag
    }

    /// Returns the contents of a table after all committed transactions.
    pub(crate) fn committed(&self, table: TableId) -> Bag {
        self.contents(table, |xid, _| self.commits.contains_key(&xid))
    }

    /// Whether a statement sees the changes of a transaction. A statement sees the changes of its own
    /// transaction, and those of each committed transaction that its snapshot shows.
    pub(crate) fn shows(&self, snapshot: &Snapshot, own: Option<Xid>, xid: Xid) -> bool {
        Some(xid) == own || (snapshot.sees(xid) && self.commits.contains_key(&xid))
    }

    /// Returns the number of shown changes in a source's buffer that a frontier has not counted. The second
    /// result says whether a mark is among them. A mark says that the buffer does not have all changes of the
    /// source.
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

    /// Whether a stream table has work to do, by its change buffers and its catalog entry.
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

    /// Empties the buffer of a source if every reader has counted all of its changes. A reader that must be
    /// recomputed needs no changes of the buffer. However, if a refresh of such a reader is already running,
    /// its snapshot possibly lacks changes that the other readers have counted.
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

    /// Counts an error in the catalog for a failed refresh. Suspends the stream table after `most` errors.
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

    /// Changes an entry of the catalog for a user, unless an open transaction has written the entry. Returns
    /// whether the entry was changed.
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

/// Adds a row with a weight to a bag.
pub(crate) fn add(bag: &mut Bag, row: Row, w: i64) {
    let weight = bag.entry(row).or_default();
    *weight += w;
    if *weight == 0 {
        bag.remove(&row);
    }
}

/// Returns the number of source rows in a bag.
pub(crate) fn size(bag: &Bag) -> i64 {
    bag.range(..PAIRS).map(|(_, w)| w).sum()
}

/// Computes a stream table from its sources.
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
