//! What a refresh needs to know before it starts.

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
    /// Which.
    pub relation: Relation,
    /// What kind of relation: decides whether it can be locked.
    pub kind: TableKind,
    /// The relation that holds its captured changes (`pgtrickle_changes.changes_<oid>`): columns `xid xid8`,
    /// `w smallint` (0 marks a TRUNCATE) and `cmin`. `None` where changes are not captured: then every refresh is full.
    pub changes: Option<Relation>,
    /// Whether it has partitions: one that comes or goes while a refresh reads it is seen by its later
    /// statements alone, whatever snapshot these share.
    pub partitioned: bool,
    /// Why they are not captured and what to do about it, where there is more to say: the reason of those refreshes.
    pub uncaptured: Option<Arc<str>>,
}

/// What a bind parameter of a program stands for; resolved by the machine when the statement is handed out.
#[derive(Clone, Debug, PartialEq)]
pub enum Bind {
    /// Text of the `pg_snapshot` of the stored frontier.
    FrontierSnapshot,
    /// Text of the `xid8` that is counted up to a command; NULL where there is none.
    FrontierXid,
    /// That command, `bigint`; NULL where there is none.
    FrontierCommand,
    /// A time of the refresh, text of `timestamptz`.
    Clock(Moment),
    /// A constant.
    Value(Value),
}

/// What a program statement tells about rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Yield {
    /// Nothing.
    Nothing,
    /// Nothing; it makes, changes or drops hidden objects and triggers, as the catalog's owner.
    Defined,
    /// Its command tag counts rows inserted.
    Inserted,
    /// Its command tag counts rows updated.
    Updated,
    /// Its command tag counts rows deleted.
    Deleted,
    /// It returns one row of `bigint`: inserted, updated, deleted.
    Counts,
}

/// A statement of a program, before values are bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The text.
    pub text: Arc<str>,
    /// Its parameters in order.
    pub binds: Arc<[Bind]>,
    /// What its result means.
    pub result: Yield,
}

impl Template {
    /// A statement without parameters, which reads no changes.
    pub fn plain(text: impl Into<Arc<str>>, result: Yield) -> Template {
        Template { text: text.into(), binds: Arc::new([]), result }
    }

    /// Whether its plan hangs on the values that are bound: on how much time went by.
    pub fn hangs_on_values(&self) -> bool {
        self.binds.iter().any(|b| matches!(b, Bind::Clock(_)))
    }
}

/// The sources that changed, each with how many of its change rows are to be expected; `None` where nobody counted
/// them, or it does not matter.
pub type Windows = BTreeMap<TableId, Option<i64>>;

/// What the readers of a stream table see of a refresh of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feed {
    /// The program writes the net change to the buffer, if anything reads it.
    Changes,
    /// The contents were replaced without a delta: readers must recompute.
    Replaced,
}

/// The compiled refresh program of one stream table. Pure: equal arguments give equal statements.
pub trait Program: fmt::Debug {
    /// The ways it can be refreshed; always holds [`Strategy::Full`] or [`Strategy::FullDifference`].
    fn strategies(&self) -> &[Strategy];

    /// The statements of one way, specialised to the sources that changed (for the full ways: all of them) and planned for
    /// so many changes. They run in one batch; none may begin or end a transaction or set savepoints that it leaves open.
    ///
    /// # Errors
    /// A plan that breaks a contract; the refresh fails and says so.
    fn statements(&self, strategy: Strategy, windows: &Windows) -> Result<Arc<[Template]>>;

    /// Whether its result may change with the time of the refresh alone. Its statements for [`TableId::CLOCK`] tell how.
    fn reads_clock(&self) -> bool {
        false
    }

    /// What readers see of a refresh in this way.
    fn feed(&self, strategy: Strategy) -> Feed;
}

/// Whom a stream table is kept from while it is refreshed. Nobody is kept from reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Other refreshes: `SHARE UPDATE EXCLUSIVE`.
    #[default]
    Refreshes,
    /// Also whoever still fills it for a refresh that is dead: `SHARE ROW EXCLUSIVE`. For a stream table that was never
    /// filled: what a load on several connections left is seen, and removed, only if all of them have ended before the
    /// snapshot.
    Writers,
}

/// A stream table that takes part.
#[derive(Clone, Debug)]
pub struct Member {
    /// `pgt_id`.
    pub id: i64,
    /// The stored table.
    pub relation: Relation,
    /// What its query reads.
    pub sources: Vec<Source>,
    /// Its compiled program.
    pub program: Arc<dyn Program + Send + Sync>,
    /// What the user allows.
    pub policy: Policy,
    /// What its program was made for, as `pgtrickle.definition(pgt_id)` says it: where that is different under the locks,
    /// it was altered since and the run ends. `None`: nobody else alters it.
    pub definition: Option<Arc<str>>,
    /// Whether a source whose changes are not captured, and what is [unseen](Member::unseen), counts as changed. Where not, such a source alone is no reason to
    /// recompute; another one that did change still is.
    pub polled: bool,
    /// Why its result may change while no source does (the clock, a query without a table): the reason of refreshes for
    /// that alone. `None`: its sources tell.
    pub unseen: Option<Arc<str>>,
    /// Whom it is kept from meanwhile.
    pub lock: Lock,
    /// Where triggers keep it: the tables whose writers do, which stand still while it is computed.
    pub kept_by: Option<KeptBy>,
    /// What was in force when it was created, and is in force while its program runs.
    pub settings: Vec<Setting>,
}

/// A stream table that the writers of these tables keep, by triggers. It needs no refresh unless it was never computed, or was
/// marked to be computed anew: its frontier counts nothing, so it may be of another past or another system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptBy {
    /// The tables.
    pub tables: Vec<Relation>,
    /// Whether they are locked, so that it can be computed: nobody writes them from before the snapshot to the end. Where they
    /// are not and it must be, the refresh ends as one that was planned for something else.
    pub locked: bool,
}

/// What must be known of a stream table to ask whether it has anything to do.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'p> {
    /// `pgt_id`.
    pub id: i64,
    /// What it reads; one that its program does not read does no harm.
    pub sources: &'p [Source],
    /// As [`Member::polled`].
    pub polled: bool,
    /// Whether its result may change while no source does ([`Member::unseen`]).
    pub unseen: bool,
    /// Whether the time alone may change it ([`Program::reads_clock`]).
    pub timed: bool,
}

impl<'p> From<&'p Member> for Reader<'p> {
    fn from(m: &'p Member) -> Reader<'p> {
        let timed = m.program.reads_clock();
        Reader { id: m.id, sources: &m.sources, polled: m.polled, unseen: m.unseen.is_some(), timed }
    }
}

/// Who asked, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// 'SCHEDULER', 'MANUAL' or 'INITIAL' in history.
    pub initiated_by: Initiator,
    /// Recompute everything even where nothing changed.
    pub full: bool,
    /// Store frontier and times even if nothing changed; history gets no row.
    pub store_empty: bool,
    /// The lease under which it is committed, or not at all; `None` for what nobody else does on schedule.
    pub lease: Option<Lease>,
    /// For how many milliseconds before it begins what it reads may have changed: since a look that found nothing. `None`: nobody
    /// knows, so how late it comes is told only where the server keeps the times of commits.
    pub quiet_ms: Option<u64>,
}

/// Under which a role's stream tables are refreshed on schedule, by one refresher at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The oid of the role.
    pub role: u32,
    /// Another for each holder, counting up.
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

/// A setting of the server's: one that was in force when a stream table was created, or is for a refresh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// Its value; `search_path` has one element per schema, everything else one.
    pub values: Vec<String>,
}

/// Whose transaction the refresh runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Its own: the machine begins, commits, rolls back and retries.
    Own {
        /// Milliseconds to wait for each lock; 0 waits for ever.
        lock_timeout_ms: u32,
        /// Milliseconds that a statement may take; `None` leaves the server's limit.
        statement_timeout_ms: Option<u32>,
        /// How often it may start, the first time included; at least one.
        attempts: u32,
    },
    /// The caller's, already under a snapshot that is S1: nothing is begun, ended or retried.
    Callers {
        /// A query that returns the last command number so far as `bigint`.
        command: Arc<str>,
        /// Whether that snapshot was taken after the locks. Where not, nothing is rebuilt: what was drained since is not in it.
        fresh: bool,
    },
}

/// A refresh of linked stream tables.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The stream tables, each after those of them that it reads.
    pub members: Vec<Member>,
    /// Whose transaction.
    pub transaction: Transaction,
    /// The memory that its sorts and hashes get; `None` leaves the server's.
    pub work_mem: Option<WorkMem>,
    /// Who asked, and for what.
    pub request: Request,
    /// When it was asked for, for traces; the machine decides nothing by it.
    pub asked_at: Option<Time>,
}
