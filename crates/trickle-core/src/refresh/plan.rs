//! The input of a refresh: its members, their sources, and its options.

use super::{Value, WorkMem};
use crate::cost::{Policy, Strategy};
use crate::error::Result;
use crate::expr::Moment;
use crate::schedule::Time;
use crate::table::{TableId, TableKind};
use crate::vocabulary::Initiator;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A relation by name and oid. The decision query checks that the name still denotes this oid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Relation {
    /// The relation's oid.
    pub id: TableId,
    /// The relation's schema, unquoted.
    pub schema: Arc<str>,
    /// The relation's name, unquoted.
    pub name: Arc<str>,
}

/// A table that a stream table reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The relation.
    pub relation: Relation,
    /// Kind of the relation, which decides whether the relation can be locked.
    pub kind: TableKind,
    /// The relation that holds the captured changes (`pgtrickle_changes.changes_<oid>`), with columns
    /// `xid xid8`, `w smallint` (0: a TRUNCATE, or a full buffer) and `cmin`. `None` where changes are not
    /// captured; every refresh is then full.
    pub changes: Option<Relation>,
    /// Whether the relation has partitions. If a partition is added or removed during a refresh, only the
    /// later statements see the change, although all statements share a snapshot.
    pub partitioned: bool,
    /// The reason why changes are not captured, with advice, if both are known. A full refresh reports this
    /// text as its reason.
    pub uncaptured: Option<Arc<str>>,
}

/// The meaning of a bind parameter of a program. The machine binds the value when it hands out the statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Bind {
    /// Text of the `pg_snapshot` of the stored frontier.
    FrontierSnapshot,
    /// Text of the `xid8` of the transaction that the frontier counts up to a command; NULL where there is
    /// none.
    FrontierXid,
    /// The last command of that transaction that the frontier counts, `bigint`; NULL where there is no such
    /// transaction.
    FrontierCommand,
    /// A time of the refresh, as text of `timestamptz`.
    Clock(Moment),
    /// A constant.
    Value(Value),
}

/// The way in which the answer to a program statement gives counts of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The answer gives no counts.
    Nothing,
    /// The answer gives no counts. The statement makes, changes or drops objects of trickle, as the catalog's
    /// owner.
    Defined,
    /// The command tag gives the number of rows inserted.
    Inserted,
    /// The command tag gives the number of rows updated.
    Updated,
    /// The command tag gives the number of rows deleted.
    Deleted,
    /// The answer is one row of three `bigint`: rows inserted, updated, deleted.
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
    pub result: Effect,
}

impl Template {
    /// Makes a statement without parameters, which reads no changes.
    pub fn plain(text: impl Into<Arc<str>>, result: Effect) -> Template {
        Template { text: text.into(), binds: Arc::new([]), result }
    }

    /// Whether the server's best plan depends on a bound value: the time that has passed.
    pub(crate) fn hangs_on_values(&self) -> bool {
        self.binds.iter().any(|b| matches!(b, Bind::Clock(_)))
    }
}

/// The sources that changed, each with the expected number of its change rows. The number is `None` where the
/// change rows were not counted, or where their number is irrelevant.
pub type Windows = BTreeMap<TableId, Option<i64>>;

/// The way in which the readers of a stream table learn of its refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReaderView {
    /// The program writes the net change to the buffer, if the table has readers.
    Changes,
    /// The contents were replaced without a delta, so readers must recompute.
    Replaced,
}

/// The compiled refresh program of one stream table. The program has no effects: equal arguments give equal
/// statements.
pub trait Program: fmt::Debug {
    /// Returns the strategies by which the table can be refreshed; [`Strategy::Full`] or
    /// [`Strategy::FullDifference`] is always among them.
    fn strategies(&self) -> &[Strategy];

    /// Returns the statements of one strategy for the sources that changed (for a full refresh: all sources).
    /// The statements suit the given numbers of changes. They run in one batch. No statement may begin or end
    /// a transaction, or leave a savepoint open.
    ///
    /// # Errors
    /// Fails if a plan breaks a contract. The refresh then fails with the same error.
    fn statements(&self, strategy: Strategy, windows: &Windows) -> Result<Arc<[Template]>>;

    /// Whether the result may change with the time of the refresh alone. The statements for
    /// [`TableId::CLOCK`] apply such a change.
    fn reads_clock(&self) -> bool {
        false
    }

    /// Whether [`Strategy::Part`] is possible. The strategy is not among [`Program::strategies`], since costs
    /// never choose it.
    fn takes_part(&self) -> bool {
        false
    }

    /// Returns how readers learn of a refresh by this strategy.
    fn feed(&self, strategy: Strategy) -> ReaderView;
}

/// The sessions that must not write a stream table while it is refreshed. Sessions that only read the table
/// are never kept out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Other refreshes: `SHARE UPDATE EXCLUSIVE`.
    #[default]
    Refreshes,
    /// Other refreshes, and also sessions that still fill the table for a refresh that died:
    /// `SHARE ROW EXCLUSIVE`. A stream table that was never filled needs this lock. A first fill may run on
    /// several connections. A later refresh sees and removes the rows that they left only if all these
    /// connections end before its snapshot.
    Writers,
}

/// A stream table that takes part in a refresh.
#[derive(Clone, Debug)]
pub struct Member {
    /// `pgt_id`.
    pub id: i64,
    /// The table that stores the rows of the stream table.
    pub relation: Relation,
    /// The relations that the defining query reads.
    pub sources: Vec<Source>,
    /// The compiled refresh program.
    pub program: Arc<dyn Program + Send + Sync>,
    /// The strategies that the user allows.
    pub policy: Policy,
    /// The definition for which the program was made, as returned by `pgtrickle.definition(pgt_id)`. If the
    /// definition that is read under the locks differs, the stream table was altered meanwhile, and the
    /// refresh ends. `None` means that nobody else alters the stream table.
    pub definition: Option<Arc<str>>,
    /// Whether sources without capture count as changed, and whether [unseen](Member::unseen) changes count.
    /// If the flag is false, a source without capture is no reason to recompute as long as no other source
    /// changed.
    pub polled: bool,
    /// The reason why the result may change while all sources stay the same (the clock, a query without a
    /// table). A refresh reports this reason if it has no other reason. `None` means that the result changes
    /// only with the sources.
    pub unseen: Option<Arc<str>>,
    /// The reason why a part of the result must be recomputed ([`Strategy::Part`]). `None` if changes of all
    /// captured sources were captured in full.
    pub part: Option<Arc<str>>,
    /// The sessions that must not write the stream table during the refresh.
    pub lock: Lock,
    /// The tables with the triggers that keep the stream table up to date, if it is in mode IMMEDIATE. No
    /// session writes these tables while the stream table is recomputed.
    pub kept_by: Option<KeptBy>,
    /// The settings that were in force when the stream table was created; its program runs under them.
    pub settings: Vec<Setting>,
}

/// The tables whose triggers keep a stream table up to date. Such a stream table needs a refresh only if it
/// was never computed, or was marked. The refresh reads no changes after the frontier, so this frontier may
/// come from another history of the database or from another system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBy {
    /// The tables that have the triggers.
    pub tables: Vec<Relation>,
    /// Whether the tables are locked from before the snapshot to the end of the refresh. If so, no session
    /// writes them while the stream table is recomputed. Where the tables are not locked and a recompute is
    /// needed, the refresh ends with the error of a stale plan.
    pub locked: bool,
}

/// The facts about a stream table that decide whether it needs a refresh.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'p> {
    /// `pgt_id`.
    pub id: i64,
    /// The relations that the stream table reads. An additional relation does no harm.
    pub sources: &'p [Source],
    /// See [`Member::polled`].
    pub polled: bool,
    /// Whether the result may change while all sources stay the same ([`Member::unseen`]).
    pub unseen: bool,
    /// Whether the time alone may change the result ([`Program::reads_clock`]).
    pub timed: bool,
    /// Whether a part of the result must be recomputed ([`Member::part`]).
    pub part: bool,
}

impl<'p> From<&'p Member> for Reader<'p> {
    fn from(m: &'p Member) -> Reader<'p> {
        let timed = m.program.reads_clock();
        let (unseen, part) = (m.unseen.is_some(), m.part.is_some());
        Reader { id: m.id, sources: &m.sources, polled: m.polled, unseen, timed, part }
    }
}

/// The origin of a refresh, and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The origin: 'SCHEDULER', 'MANUAL' or 'INITIAL' in history.
    pub initiated_by: Initiator,
    /// Whether every member is recomputed even where nothing changed.
    pub full: bool,
    /// Whether frontier and times are stored even if nothing changed. If nothing changed, no row is added to
    /// history.
    pub store_empty: bool,
    /// The lease that the refresher must hold at the commit; `None` for a refresh by hand, which needs no
    /// lease.
    pub lease: Option<Lease>,
    /// The milliseconds from the last check that found no changes to the start of the refresh. The changes
    /// are no older than that check. If the time is not known (`None`), the lag is known only where the
    /// server keeps commit times.
    pub quiet_ms: Option<u64>,
}

/// The lease under which one refresher at a time refreshes the stream tables of a role on schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The oid of the role.
    pub role: u32,
    /// The number of the holder of the lease; each new holder gets a greater number.
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

/// A setting of the server: one that was in force when a stream table was created, or one that a refresh
/// adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The setting's name.
    pub name: String,
    /// The setting's value: for `search_path` one element per schema, for every other setting one element.
    pub values: Vec<String>,
}

/// The transaction that the refresh runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// A transaction of the refresh alone, which the machine begins, commits, rolls back and retries.
    Own {
        /// Milliseconds to wait for each lock; 0 waits for ever.
        lock_timeout_ms: u32,
        /// Milliseconds that a statement may take; `None` leaves the server's limit.
        statement_timeout_ms: Option<u32>,
        /// The greatest number of attempts, the first included; at least one.
        attempts: u32,
    },
    /// The caller's transaction, whose snapshot is S1. The machine does not begin, end or retry this
    /// transaction.
    Callers {
        /// A query that returns the number of the transaction's last command so far, as `bigint`.
        command: Arc<str>,
        /// Whether snapshot S1 was taken after the locks. If the snapshot is older, a refresh with
        /// `Action::Reinitialize` fails with 40001, since the snapshot may lack changes that were drained
        /// meanwhile.
        fresh: bool,
    },
}

/// A refresh of linked stream tables.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The stream tables to refresh. Each of them comes after the members that it reads.
    pub members: Vec<Member>,
    /// The transaction that the refresh runs in.
    pub transaction: Transaction,
    /// The memory that the sorts and hashes of the refresh get; `None` leaves the server's setting.
    pub work_mem: Option<WorkMem>,
    /// The origin of the refresh, and its options.
    pub request: Request,
    /// The time when the refresh was requested. Only traces show this time; no decision of the machine
    /// depends on it.
    pub asked_at: Option<Time>,
}
