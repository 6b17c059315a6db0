//! The facts that a refresh needs before it starts.

use super::{Value, WorkMem};
use crate::catalog::{TableId, TableKind};
use crate::cost::{Policy, Strategy};
use crate::error::Result;
use crate::expr::Moment;
use crate::schedule::Time;
use crate::vocabulary::Initiator;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A relation by name and identity; the decision query checks that the two still belong together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Relation {
    /// Its oid.
    pub id: TableId,
    /// Its schema, unquoted.
    pub schema: Arc<str>,
    /// Its name, unquoted.
    pub name: Arc<str>,
}

/// A table that a stream table reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The relation.
    pub relation: Relation,
    /// Kind of the relation: it decides whether the relation can be locked.
    pub kind: TableKind,
    /// The relation that holds the captured changes (`pgtrickle_changes.changes_<oid>`), with columns
    /// `xid xid8`, `w smallint` (0 marks a TRUNCATE) and `cmin`. `None` where changes are not captured: then
    /// every refresh is full.
    pub changes: Option<Relation>,
    /// Whether the relation has partitions. Where one comes or goes during a refresh, only the later
    /// statements see that, although all share a snapshot.
    pub partitioned: bool,
    /// The reason why changes are not captured and advice what to do about it, if there is more to say: it is
    /// the reason of the full refreshes.
    pub uncaptured: Option<Arc<str>>,
}

/// The meaning of a bind parameter of a program; the machine binds the value when it hands out the statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Bind {
    /// Text of the `pg_snapshot` of the stored frontier.
    FrontierSnapshot,
    /// Text of the `xid8` of the transaction that is counted up to a command; NULL where there is none.
    FrontierXid,
    /// The last command that is counted of that transaction, `bigint`; NULL where there is none.
    FrontierCommand,
    /// A time of the refresh, text of `timestamptz`.
    Clock(Moment),
    /// A constant.
    Value(Value),
}

/// The information about rows that a statement of a program returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Yield {
    /// Nothing.
    Nothing,
    /// Nothing; the statement makes, changes or drops hidden objects and triggers, as the catalog's owner.
    Defined,
    /// The command tag counts rows inserted.
    Inserted,
    /// The command tag counts rows updated.
    Updated,
    /// The command tag counts rows deleted.
    Deleted,
    /// One row of `bigint`: inserted, updated, deleted.
    Counts,
}

/// A statement of a program, before values are bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The text.
    pub text: Arc<str>,
    /// Its parameters in order.
    pub binds: Arc<[Bind]>,
    /// The meaning of the result.
    pub result: Yield,
}

impl Template {
    /// Makes a statement without parameters, which reads no changes.
    pub fn plain(text: impl Into<Arc<str>>, result: Yield) -> Template {
        Template { text: text.into(), binds: Arc::new([]), result }
    }

    /// Whether the best plan depends on the bound values: on how much time went by.
    pub fn hangs_on_values(&self) -> bool {
        self.binds.iter().any(|b| matches!(b, Bind::Clock(_)))
    }
}

/// The sources that changed, each with the expected number of its change rows; `None` where nobody counted
/// them, or the number does not matter.
pub type Windows = BTreeMap<TableId, Option<i64>>;

/// The form in which the readers of a stream table see a refresh of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReaderView {
    /// The program writes the net change to the buffer, if the table has readers.
    Changes,
    /// The contents were replaced without a delta: readers must recompute.
    Replaced,
}

/// The compiled refresh program of one stream table. Pure: equal arguments give equal statements.
pub trait Program: fmt::Debug {
    /// Returns the strategies by which the table can be refreshed; [`Strategy::Full`] or
    /// [`Strategy::FullDifference`] is always among them.
    fn strategies(&self) -> &[Strategy];

    /// Returns the statements of one strategy, specialised to the sources that changed (for a full refresh:
    /// all of them) and planned for so many changes. They run in one batch; none may begin or end a
    /// transaction, or leave a savepoint open.
    ///
    /// # Errors
    /// A plan that breaks a contract; the refresh fails with this error.
    fn statements(&self, strategy: Strategy, windows: &Windows) -> Result<Arc<[Template]>>;

    /// Whether the result may change with the time of the refresh alone. The statements for
    /// [`TableId::CLOCK`] apply that change.
    fn reads_clock(&self) -> bool {
        false
    }

    /// Returns how readers see a refresh by this strategy.
    fn feed(&self, strategy: Strategy) -> ReaderView;
}

/// The sessions that must not write a stream table while it is refreshed. Readers are never kept out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Other refreshes: `SHARE UPDATE EXCLUSIVE`.
    #[default]
    Refreshes,
    /// Also sessions that still fill the table for a dead refresh: `SHARE ROW EXCLUSIVE`. A stream table that
    /// was never filled needs this lock. Rows that a load on several connections left are seen, and removed,
    /// only if all of these connections have ended before the snapshot.
    Writers,
}

/// A stream table that takes part in a refresh.
#[derive(Clone, Debug)]
pub struct Member {
    /// `pgt_id`.
    pub id: i64,
    /// The stored table.
    pub relation: Relation,
    /// The relations that its query reads.
    pub sources: Vec<Source>,
    /// Its compiled program.
    pub program: Arc<dyn Program + Send + Sync>,
    /// The strategies that the user allows.
    pub policy: Policy,
    /// The definition that the program was made for, as `pgtrickle.definition(pgt_id)` gives it. Where it
    /// differs under the locks, the stream table was altered since, and the run ends. `None`: nobody else
    /// alters it.
    pub definition: Option<Arc<str>>,
    /// Whether sources without capture count as changed, and [unseen](Member::unseen) changes count, too. If
    /// not, such a source alone is no reason to recompute; another source that did change still is.
    pub polled: bool,
    /// The reason why the result may change while no source does (the clock, a query without a table). A
    /// refresh without another reason reports this one. `None`: the result changes only with the sources.
    pub unseen: Option<Arc<str>>,
    /// The sessions that must not write the table meanwhile.
    pub lock: Lock,
    /// For a table that triggers keep: the tables whose writers fire them, which nobody writes while it is
    /// computed.
    pub kept_by: Option<KeptBy>,
    /// The settings that were in force when the table was created, and are in force while its program runs.
    pub settings: Vec<Setting>,
}

/// The tables whose writers keep a stream table, by triggers. Such a table needs a refresh only if it was
/// never computed, or was marked. Its frontier counts nothing, so it may be of another past or another
/// system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBy {
    /// The tables.
    pub tables: Vec<Relation>,
    /// Whether the tables are locked, so that the stream table can be computed: nobody writes them from
    /// before the snapshot to the end. Where they are not locked and a recompute is needed, the refresh ends
    /// as one that was planned for something else.
    pub locked: bool,
}

/// The facts about a stream table that decide whether it has anything to do.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'p> {
    /// `pgt_id`.
    pub id: i64,
    /// The relations that it reads; one that its program does not read does no harm.
    pub sources: &'p [Source],
    /// See [`Member::polled`].
    pub polled: bool,
    /// Whether the result may change while no source does ([`Member::unseen`]).
    pub unseen: bool,
    /// Whether the time alone may change the result ([`Program::reads_clock`]).
    pub timed: bool,
}

impl<'p> From<&'p Member> for Reader<'p> {
    fn from(m: &'p Member) -> Reader<'p> {
        let timed = m.program.reads_clock();
        Reader { id: m.id, sources: &m.sources, polled: m.polled, unseen: m.unseen.is_some(), timed }
    }
}

/// The origin of a refresh, and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The origin: 'SCHEDULER', 'MANUAL' or 'INITIAL' in history.
    pub initiated_by: Initiator,
    /// Whether everything is recomputed even where nothing changed.
    pub full: bool,
    /// Whether frontier and times are stored even if nothing changed; history gets no row.
    pub store_empty: bool,
    /// The lease that must be held for the commit; `None` for a refresh that needs no lease, since no other
    /// refresher does it on schedule.
    pub lease: Option<Lease>,
    /// The time from the last look that found no changes to the start of the refresh, in milliseconds: the
    /// changes are no older. `None`: not known, so the lag is known only where the server keeps the times of
    /// commits.
    pub quiet_ms: Option<u64>,
}

/// The lease under which one refresher at a time refreshes the stream tables of a role on schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The oid of the role.
    pub role: u32,
    /// The number of the holder: each new holder gets a greater one.
    pub fence: i64,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            initiated_by: Initiator::Manual,
            full: false,
            store_empty: false,
            lease: None,
            quiet_ms: None,
        }
    }
}

/// A setting of the server: one in force when a stream table was created, or one for a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// The value; `search_path` has one element per schema, every other setting one.
    pub values: Vec<String>,
}

/// The transaction that the refresh runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// A transaction of its own: the machine begins, commits, rolls back and retries.
    Own {
        /// Milliseconds to wait for each lock; 0 waits for ever.
        lock_timeout_ms: u32,
        /// Milliseconds that a statement may take; `None` leaves the server's limit.
        statement_timeout_ms: Option<u32>,
        /// The greatest number of attempts, the first included; at least one.
        attempts: u32,
    },
    /// The caller's transaction, already under a snapshot that is S1: nothing is begun, ended or retried.
    Callers {
        /// A query that returns the last command number so far as `bigint`.
        command: Arc<str>,
        /// Whether that snapshot was taken after the locks. If not, a refresh with `Action::Reinitialize`
        /// fails with 40001: changes that were drained since the snapshot are not in it.
        fresh: bool,
    },
}

/// A refresh of linked stream tables.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The stream tables, each after those members that it reads.
    pub members: Vec<Member>,
    /// The transaction that the refresh runs in.
    pub transaction: Transaction,
    /// The memory that sorts and hashes get; `None` leaves the server's setting.
    pub work_mem: Option<WorkMem>,
    /// The origin of the refresh, and its options.
    pub request: Request,
    /// The time when the refresh was asked for, for traces; the machine decides nothing by it.
    pub asked_at: Option<Time>,
}
