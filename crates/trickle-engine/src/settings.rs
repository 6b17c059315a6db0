//! The settings of the user, and the options of a refresh.

use crate::capture::CaptureOptions;
use crate::locks::Patience;
use crate::registry::Entry;
use std::collections::BTreeSet;
use std::time::Duration;
use trickle_core::catalog::TableId;
use trickle_core::cost::{Force, Policy};
use trickle_core::refresh::{Lease, WorkMem};
use trickle_core::schedule::Time;
use trickle_core::vocabulary::Initiator;

/// The user's settings, except queries and schedules. None of these settings changes the contents of a
/// stream table.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The options for capturing changes of tables that are not captured yet.
    pub capture: CaptureOptions,
    /// The limits for getting locks on users' tables.
    pub patience: Patience,
    /// The greatest time that a refresh waits for its locks, in milliseconds; 0 for no limit.
    pub lock_timeout_ms: u32,
    /// The greatest time that a statement of a refresh may take, in milliseconds; 0 for no limit. With
    /// `None`, the limit of the server, the database or the role applies.
    pub statement_timeout_ms: Option<u32>,
    /// The number of times that a refresh may start over after serialization failures.
    pub attempts: u32,
    /// The ratio of changed rows to source rows above which the cost model considers full refreshes only.
    pub max_change_ratio: Option<f64>,
    /// The number of changed rows above which the cost model considers full refreshes only.
    pub max_delta_rows: Option<u64>,
    /// Forces deltas or full refreshes. With `None`, the cost model chooses.
    pub force: Option<Force>,
    /// The number of failed refreshes in a row after which a stream table is suspended; 0 for never.
    pub max_consecutive_errors: u32,
    /// Whether statements that are sent repeatedly stay prepared on their connection. If they do not stay
    /// prepared, nothing is left in the server process after a transaction. Through a pooler, nothing is
    /// left in the server process, whatever this setting says ([`Host::greeted`](crate::db::Host::greeted)).
    pub use_prepared_statements: bool,
    /// The `work_mem` of every refresh, in MiB. If `merge_work_mem_max_mb` is set, this value is the least
    /// `work_mem`. With `None`, the server's setting applies; if `merge_work_mem_max_mb` is set, PostgreSQL's
    /// default is the least `work_mem`.
    pub merge_work_mem_mb: Option<u32>,
    /// The greatest `work_mem`, in MiB, of a refresh that sorts and hashes many rows.
    pub merge_work_mem_max_mb: Option<u32>,
    /// The number of days for which history is stored; 0 for no limit.
    pub history_retention_days: u32,
    /// The time that a session which wants an exclusive lock on a table waits for a refresh that reads the
    /// table. With 0, it waits until the refresh ends.
    pub give_way: Duration,
    /// The age from which on an open transaction is reported, because it was probably forgotten.
    pub long_transaction: Duration,
    /// The size in bytes from which on a segment of a buffer is emptied or closed.
    pub segment_bytes: i64,
    /// The number of connections for the first fill of a large stream table, where more than one can be
    /// opened.
    pub load_connections: usize,
    /// The size of a source, in bytes, from which on a first fill counts as large.
    pub load_bytes: u64,
    /// The size of a buffer, in bytes, from which on the buffer is full. Readers that have not read the
    /// oldest changes in a full buffer are recomputed. If no session drains a full buffer, its triggers
    /// leave out further changes, and all its readers are recomputed.
    ///
    /// All clients share this limit. [`Trickle::init`](crate::Trickle::init) stores it in the catalog, and
    /// the next refreshes put it into the triggers. `None` does not change the stored limit, which is 1 GiB
    /// at first.
    pub buffer_limit_bytes: Option<i64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            capture: CaptureOptions::default(),
            patience: Patience::default(),
            lock_timeout_ms: 10_000,
            statement_timeout_ms: None,
            attempts: 5,
            max_change_ratio: None,
            max_delta_rows: None,
            force: None,
            max_consecutive_errors: 5,
            use_prepared_statements: true,
            merge_work_mem_mb: None,
            merge_work_mem_max_mb: None,
            history_retention_days: 30,
            give_way: Duration::from_secs(1),
            long_transaction: Duration::from_secs(300),
            segment_bytes: 512 << 10,
            load_connections: 4,
            load_bytes: 64 << 20,
            buffer_limit_bytes: None,
        }
    }
}

impl Settings {
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            force: self.force,
            max_change_ratio: self.max_change_ratio,
            max_delta_rows: self.max_delta_rows,
        }
    }

    pub(crate) fn work_mem(&self) -> Option<WorkMem> {
        WorkMem::between(self.merge_work_mem_mb, self.merge_work_mem_max_mb)
    }
}

/// The options of a refresh.
#[derive(Clone, Debug, Default)]
pub struct RefreshOptions {
    /// Whether to recompute even if nothing changed.
    pub full: bool,
    /// The origin of the refresh, which is `MANUAL` (the default), `SCHEDULER` or `INITIAL`.
    pub initiated_by: Initiator,
    /// The stream tables to recompute because one of their sources is not captured. `None` stands for all
    /// such stream tables.
    pub polled: Option<BTreeSet<TableId>>,
    /// The lease under which a refresh on schedule is committed.
    pub lease: Option<Lease>,
    /// The last time at which the scheduler found that there was nothing to do, by this machine's clock.
    pub quiet_at: Option<Time>,
}

impl RefreshOptions {
    /// Whether the refresh is by hand. In that case the times of the stream table advance even if nothing
    /// changed.
    pub(crate) fn is_by_hand(&self) -> bool {
        self.initiated_by == Initiator::Manual
    }

    /// Whether sources of `e` that are not captured count as changed.
    pub(crate) fn polls(&self, e: &Entry) -> bool {
        self.polled.as_ref().is_none_or(|p| p.contains(&e.relation.id))
    }

    /// Returns the options for the first fill of a stream table.
    pub(crate) fn initial() -> RefreshOptions {
        RefreshOptions { initiated_by: Initiator::Initial, ..RefreshOptions::default() }
    }
}
