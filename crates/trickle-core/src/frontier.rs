//! The changes that a stream table already contains, as a set of transactions like that of an MVCC snapshot.
//!
//! A captured row carries the transaction that wrote it and the command within this transaction. A
//! [`Frontier`] denotes a set of such pairs. The set contains every row of every transaction that is visible
//! in the frontier's [`Snapshot`]. For a few transactions, the set contains only the rows up to a command.
//! These are the frontier's *own* transactions: a refresh ran in them. A refresh applies the rows of
//! `high − low` ([`Window`]) and stores `high`. The refresh reads the state `high`, and the stored `high` is
//! the next `low`. Every committed row is therefore in exactly one window, in whatever order transactions
//! commit.
//!
//! One frontier per stream table is enough, even where tables are linked. The contents of a stream table are
//! the result of its query over *one* state of all sources. A frontier per source would only repeat the same
//! fact.
//!
//! **Representable sets.** A set contains whole transactions and parts of transactions. There is a greatest
//! whole transaction, and all but finitely many transactions below it are in the set. For finitely many
//! transactions, the set contains only the rows up to a command. Such sets are closed under union and
//! intersection, so [`Frontier::join`] and [`Frontier::meet`] are exact, and the frontiers of one database
//! are a distributive lattice. Sets are stored in one normal form. Two frontiers are therefore equal if and
//! only if their sets are equal, and if and only if their JSON texts are equal.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// A full transaction id (`xid8`), which has 64 bits and does not wrap.
pub type Xid = u64;

/// A command within a transaction (`cid`), counted from 0.
pub type Command = u32;

/// The number that means "every command of the transaction, also later ones". PostgreSQL never gives this
/// number to a command.
pub const ALL_COMMANDS: Command = Command::MAX;

/// The set of transactions that are visible in an MVCC snapshot: all transactions below `xmax` except those
/// in `xip`.
///
/// Normal form: `xip` is ascending and without repetition, `xmax − 1` is not in `xip`, and `xmin` is the
/// first element of `xip` (or `xmax`). Equal sets are therefore equal values, and `xmin` is the greatest
/// bound below which every transaction is visible. Transaction ids begin at 1.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    xmax: Xid,
    xip: Vec<Xid>,
}

impl Snapshot {
    /// Builds the snapshot of the transactions below `xmax` that are not in `xip`. Takes O(n log n) time for
    /// n ids in `xip`.
    pub fn new(xmax: Xid, xip: impl IntoIterator<Item = Xid>) -> Snapshot {
        let mut xmax = xmax.max(1);
        let mut xip: Vec<Xid> = xip.into_iter().filter(|x| (1..xmax).contains(x)).collect();
        xip.sort_unstable();
        xip.dedup();
        while xmax > 1 && xip.last() == Some(&(xmax - 1)) {
            xip.pop();
            xmax -= 1;
        }
        Snapshot { xmax, xip }
    }

    /// Builds the snapshot in which no transaction is visible.
    pub fn empty() -> Snapshot {
        Snapshot { xmax: 1, xip: Vec::new() }
    }

    /// Returns the least transaction that is not visible.
    pub fn xmin(&self) -> Xid {
        self.xip.first().copied().unwrap_or(self.xmax)
    }
    /// Returns the transaction from which on no transaction is visible.
    pub fn xmax(&self) -> Xid {
        self.xmax
    }
    /// Returns the transactions between `xmin` and `xmax` that are not visible, ascending.
    pub fn in_progress(&self) -> &[Xid] {
        &self.xip
    }
    /// Whether a transaction is visible (`pg_visible_in_snapshot`). Takes O(log n) time.
    pub fn sees(&self, xid: Xid) -> bool {
        xid < self.xmax && self.xip.binary_search(&xid).is_err()
    }

    /// Makes one more transaction visible. Takes O(n + `xid − xmax`) time, since the ids in between become
    /// transactions in progress.
    fn with(&self, xid: Xid) -> Snapshot {
        if xid < self.xmax {
            return Snapshot::new(self.xmax, self.xip.iter().copied().filter(|x| *x != xid));
        }
        Snapshot::new(xid + 1, self.xip.iter().copied().chain(self.xmax..xid))
    }
    /// Makes one transaction invisible.
    fn without(&self, xid: Xid) -> Snapshot {
        Snapshot::new(self.xmax, self.xip.iter().copied().chain([xid]))
    }
    /// Returns the union: the snapshot of the transactions that are visible in at least one of the two
    /// snapshots. Takes O(n + m) time.
    fn union(&self, other: &Snapshot) -> Snapshot {
        let missing = self.xip.iter().filter(|x| !other.sees(**x));
        let also = other.xip.iter().filter(|x| !self.sees(**x));
        Snapshot::new(self.xmax.max(other.xmax), missing.chain(also).copied())
    }
    /// Returns the intersection: the snapshot of the transactions that are visible in both snapshots. Takes
    /// O(n + m) time.
    fn intersection(&self, other: &Snapshot) -> Snapshot {
        Snapshot::new(self.xmax.min(other.xmax), self.xip.iter().chain(&other.xip).copied())
    }
    /// Whether every transaction that is visible in this snapshot is visible in `other` too. Takes O((n + m)
    /// log) time.
    fn subset(&self, other: &Snapshot) -> bool {
        self.xmax <= other.xmax && other.xip.iter().all(|x| !self.sees(*x))
    }
}

/// `xmin:xmax:xip,…`, as PostgreSQL writes and reads a `pg_snapshot`.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin(), self.xmax)?;
        for (i, x) in self.xip.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{x}")?;
        }
        Ok(())
    }
}

impl FromStr for Snapshot {
    type Err = Error;

    /// Reads a `pg_snapshot`, under PostgreSQL's own rules.
    ///
    /// # Errors
    /// Fails with 22023 if the text does not have three parts, a part is not a number, `xmin > xmax`, or
    /// `xmin` is 0. Fails too if a transaction in progress lies outside `xmin..xmax`, or comes after a
    /// greater one.
    fn from_str(text: &str) -> Result<Snapshot> {
        let bad = |why: &str| {
            Error::setting(format!("invalid snapshot \"{}\": {why}", crop(text)))
                .hint("A snapshot has the form xmin:xmax:xip,…; rebuild the stream table if its frontier was edited.")
        };
        let number = |part: &str| -> Result<Xid> {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            plain
                .then(|| part.parse().ok())
                .flatten()
                .ok_or_else(|| bad(&format!("\"{}\" is not a transaction id", crop(part))))
        };
        let mut parts = text.split(':');
        let (Some(xmin), Some(xmax), Some(xip), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad("it has not three parts"));
        };
        let (xmin, xmax) = (number(xmin)?, number(xmax)?);
        if xmin == 0 || xmin > xmax {
            return Err(bad("xmin lies outside 1 to xmax"));
        }
        let mut ids: Vec<Xid> = Vec::new();
        for part in xip.split(',').filter(|_| !xip.is_empty()) {
            let x = number(part)?;
            if x < xmin || x >= xmax {
                return Err(bad(&format!("{x} lies outside xmin to xmax")));
            }
            if ids.last().is_some_and(|last| *last > x) {
                return Err(bad("its transactions in progress are not ascending"));
            }
            ids.push(x);
        }
        Ok(Snapshot::new(xmax, ids))
    }
}

/// Returns the first characters of a text, for use in messages.
fn crop(text: &str) -> String {
    let mut s: String = text.chars().take(40).collect();
    if s.len() < text.len() {
        s.push('…');
    }
    s
}

/// The changes that a stream table contains, and the database in which they were captured.
///
/// Law: the frontier contains a row of an own (partly counted) transaction if and only if the row's command
/// is at most the stored command. The frontier contains a row of any other transaction if and only if the
/// transaction is visible in the snapshot. Own transactions are never visible in the stored snapshot. Own
/// writes are therefore counted once, even where PostgreSQL's snapshot contains the transaction itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Frontier {
    system: i64,
    database: u32,
    snapshot: Snapshot,
    partial: BTreeMap<Xid, Command>,
}

impl Frontier {
    /// Builds the frontier of a refresh that reads under `snapshot` in transaction `own`, and has counted the
    /// commands of this transaction up to and including `command`. The command [`ALL_COMMANDS`] means that
    /// the refresh counts everything that the transaction captures.
    ///
    /// `system` is `pg_control_system().system_identifier`, and `database` is the oid of the database. With
    /// [`ALL_COMMANDS`], the call takes O(n + `own − xmax`) time, so callers should read `own` together with
    /// the snapshot.
    pub fn new(system: i64, database: u32, snapshot: &Snapshot, own: Option<(Xid, Command)>) -> Frontier {
        let mut f = Frontier { system, database, snapshot: snapshot.clone(), partial: BTreeMap::new() };
        if let Some((xid, command)) = own {
            f.count_own(xid, command);
        }
        f
    }

    /// Counts a transaction only up to a command. The normal form is preserved.
    fn count_own(&mut self, xid: Xid, command: Command) {
        if command == ALL_COMMANDS {
            self.snapshot = self.snapshot.with(xid);
            self.partial.remove(&xid);
        } else {
            self.snapshot = self.snapshot.without(xid);
            self.partial.insert(xid, command);
        }
    }

    /// Builds the frontier that contains no row.
    pub fn empty(system: i64, database: u32) -> Frontier {
        Frontier::new(system, database, &Snapshot::empty(), None)
    }

    /// Whether a captured row of this transaction and command is counted.
    pub fn contains(&self, xid: Xid, command: Command) -> bool {
        match self.partial.get(&xid) {
            Some(last) => command <= *last,
            None => self.snapshot.sees(xid),
        }
    }

    /// Whether the frontier belongs to this database of this server. Transaction ids are meaningless in
    /// another database (after dump and restore, on a new server, in a copied database), so a mismatch causes
    /// a full refresh.
    pub(crate) fn matches(&self, system: i64, database: u32) -> bool {
        self.system == system && self.database == database
    }

    /// Returns the snapshot in which exactly the wholly counted transactions are visible. Partly counted
    /// transactions are not visible in it.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
    /// Returns the transactions that are counted up to a command, ascending by id. A frontier made by
    /// [`Frontier::new`] has at most one such transaction.
    pub(crate) fn partial(&self) -> impl Iterator<Item = (Xid, Command)> + '_ {
        self.partial.iter().map(|(x, c)| (*x, *c))
    }

    /// Returns the least uncounted command of a transaction. Returns `u64::MAX` if all commands of the
    /// transaction are counted.
    fn counted(&self, xid: Xid) -> u64 {
        match self.partial.get(&xid) {
            Some(last) => u64::from(*last) + 1,
            None if self.snapshot.sees(xid) => u64::MAX,
            None => 0,
        }
    }

    /// Returns the frontier with the given snapshot and with the partly counted transactions of both
    /// frontiers. `pick` chooses between the two numbers of commands.
    fn combine(&self, other: &Frontier, snapshot: Snapshot, pick: fn(u64, u64) -> u64) -> Result<Frontier> {
        if !self.matches(other.system, other.database) {
            return Err(Error::setting("frontiers of different databases cannot be combined")
                .detail(format!(
                    "One is of system {}, database {}; the other of system {}, database {}.",
                    self.system, self.database, other.system, other.database
                ))
                .hint("Rebuild the stream tables that were filled before the dump, restore or copy."));
        }
        let mut f =
            Frontier { system: self.system, database: self.database, snapshot, partial: BTreeMap::new() };
        let own: BTreeSet<Xid> = self.partial.keys().chain(other.partial.keys()).copied().collect();
        for xid in own {
            let n = pick(self.counted(xid), other.counted(xid));
            // The number 0 means that no command is counted. A number above the greatest command means that
            // all commands are counted; the snapshot already contains this fact.
            if let Some(Ok(last)) = n.checked_sub(1).map(Command::try_from) {
                f.partial.insert(xid, last);
            }
        }
        Ok(f)
    }

    /// Returns the union of both frontiers, which is the least frontier above both. The operation is
    /// idempotent, commutative and associative. With [`Frontier::meet`] it satisfies the absorption law.
    ///
    /// # Errors
    /// Fails with 22023 if the frontiers belong to different databases.
    pub fn join(&self, other: &Frontier) -> Result<Frontier> {
        self.combine(other, self.snapshot.union(&other.snapshot), u64::max)
    }

    /// Returns the intersection of both frontiers, which is the greatest frontier below both. The operation
    /// is idempotent, commutative and associative. With [`Frontier::join`] it satisfies the absorption law.
    /// The rows in the intersection of all readers' frontiers are counted by *every* reader, so they may be
    /// drained.
    ///
    /// # Errors
    /// Fails with 22023 if the frontiers belong to different databases.
    pub fn meet(&self, other: &Frontier) -> Result<Frontier> {
        self.combine(other, self.snapshot.intersection(&other.snapshot), u64::min)
    }

    /// Whether `other` contains every row that this frontier contains. False for frontiers of different
    /// databases.
    pub fn is_within(&self, other: &Frontier) -> bool {
        self.matches(other.system, other.database)
            && self.snapshot.subset(&other.snapshot)
            && self.partial.keys().all(|x| self.counted(*x) <= other.counted(*x))
    }

    /// Returns the JSON for `pgt_stream_tables.frontier`. The text is canonical: equal frontiers give equal
    /// text. Ids of 64 bits are strings, so that no program rounds them.
    ///
    /// # Errors
    /// Never fails in practice, since values of these types can always be serialized.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::internal(format!("frontier does not serialise: {e}")))
    }

    /// Reads the text of [`Frontier::to_json`], or the text that `jsonb` makes of it.
    ///
    /// # Errors
    /// Fails with 22023 if the text is not JSON as written by [`Frontier::to_json`], or if its snapshot is
    /// malformed.
    pub fn from_json(text: &str) -> Result<Frontier> {
        serde_json::from_str(text).map_err(|e| {
            Error::setting(format!("invalid frontier: {e}")).hint("Rebuild the stream table (repair).")
        })
    }
}

/// Compares frontiers by inclusion of their sets of rows. Frontiers of different databases are not
/// comparable.
impl PartialOrd for Frontier {
    fn partial_cmp(&self, other: &Frontier) -> Option<Ordering> {
        match (self.is_within(other), other.is_within(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

/// The rows that one refresh counts: the rows that `high` contains and `low` does not contain.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    low: &'a Frontier,
    high: &'a Frontier,
}

/// Returns the window from the rows counted before (`low`) to the rows that a refresh reads (`high`).
pub fn window<'a>(low: &'a Frontier, high: &'a Frontier) -> Window<'a> {
    Window { low, high }
}

impl Window<'_> {
    /// Whether the refresh applies a captured row of this transaction and command.
    pub fn contains(&self, xid: Xid, command: Command) -> bool {
        self.high.contains(xid, command) && !self.low.contains(xid, command)
    }
    /// Returns a range `from..to` of transactions. No row of a transaction outside this range is in the
    /// window. The range tells which buffer segments must be read. It starts at the `xmin` of `low`: every
    /// row below it is counted, since partly counted transactions are not visible in the snapshot.
    pub fn bounds(&self) -> (Xid, Xid) {
        let own = self.high.partial.keys().next_back().map_or(0, |x| x + 1);
        (self.low.snapshot.xmin(), self.high.snapshot.xmax().max(own))
    }
    /// Whether the window can contain no row, since every row in `high` is in `low`.
    pub fn is_empty(&self) -> bool {
        self.high.is_within(self.low)
    }
}

/// The stored form of a frontier, with its keys in the order of `jsonb`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    own: BTreeMap<String, Command>,
    system: String,
    database: u32,
    snapshot: String,
}

impl From<Frontier> for Stored {
    fn from(f: Frontier) -> Stored {
        Stored {
            own: f.partial.iter().map(|(x, c)| (x.to_string(), *c)).collect(),
            system: f.system.to_string(),
            database: f.database,
            snapshot: f.snapshot.to_string(),
        }
    }
}

impl TryFrom<Stored> for Frontier {
    type Error = Error;

    fn try_from(s: Stored) -> Result<Frontier> {
        let system = s
            .system
            .parse()
            .map_err(|_| Error::setting(format!("invalid system identifier \"{}\"", crop(&s.system))))?;
        let mut f = Frontier::new(system, s.database, &s.snapshot.parse()?, None);
        for (x, command) in &s.own {
            let xid: Xid =
                x.parse().map_err(|_| Error::setting(format!("invalid transaction id \"{}\"", crop(x))))?;
            f.count_own(xid, *command);
        }
        Ok(f)
    }
}

#[cfg(test)]
mod tests;
