//! Refreshes on schedule by the server itself, where the library is among `shared_preload_libraries`. A
//! launcher starts a scheduler in every database ([`scheduler`]), and schedulers start refreshers
//! ([`refresher`]). A session whose refresh failed starts a planner ([`planner`]).

mod planner;
mod refresher;
mod scheduler;

pub(crate) use planner::suspend_after;

use crate::gucs;
use crate::inside::{attempt, done};
use crate::unsafe_pg::{Acting, Board, Scheduled, ServerConnection, entry_points};
use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime,
    DynamicBackgroundWorker, SignalWakeFlags,
};
use pgrx::prelude::*;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};
use trickle_core::refresh::Lease;
use trickle_engine::db::Connection;
use trickle_engine::scheduler::{Due, Outcome, outcome_of};
use trickle_engine::{Error, RefreshOptions, Result, Trickle};

/// File name of the library.
const LIBRARY: &str = "pg_trickle";

/// Interval at which the launcher looks for new databases. A scheduler that ended sooner than this had
/// nothing to do.
const RESCAN: Duration = Duration::from_secs(15);

/// Longest time before the launcher tries a database again. CREATE EXTENSION does not depend on this time,
/// since it starts a scheduler itself.
const LONGEST: Duration = Duration::from_secs(600);

/// Pause after an error.
const TROUBLE: Duration = Duration::from_secs(5);

entry_points! {
    /// Runs the launcher, which starts all schedulers.
    pg_trickle_launcher => launch,
    /// Runs the scheduler of a database.
    pg_trickle_scheduler => scheduler::schedule,
    /// Runs a refresher. The argument is the number of the refresher's place on the board, which a scheduler
    /// took for the refresher.
    pg_trickle_refresher => refresher::refresh_for,
    /// Runs a planner, for one stream table of one database.
    pg_trickle_planner => planner::plan,
}

/// Name of the launcher's process.
const LAUNCHER: &CStr = c"pg_trickle launcher";

/// Makes the server start the launcher at its own start, and again when the launcher ends. A standby starts
/// the launcher when the standby is promoted.
pub(crate) fn register() {
    BackgroundWorkerBuilder::new("pg_trickle launcher")
        .set_type("pg_trickle launcher")
        .set_library(LIBRARY)
        .set_function("pg_trickle_launcher")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(TROUBLE))
        .load();
    Board::request();
    Scheduled::watch_drops();
}

/// Starts a background process of the server; `None` if the server has no room for another.
fn start(
    kind: &str,
    function: &str,
    argument: Option<pg_sys::Datum>,
    told: i32,
) -> Option<DynamicBackgroundWorker> {
    BackgroundWorkerBuilder::new(kind)
        .set_type(kind)
        .set_library(LIBRARY)
        .set_function(function)
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(None)
        .set_argument(argument)
        .set_notify_pid(told)
        .load_dynamic()
        .ok()
}

/// Starts the scheduler of this database when this transaction commits.
pub(crate) fn start_when_committed() {
    let database = Scheduled::database();
    pgrx::register_xact_callback(pgrx::PgXactCallbackEvent::Commit, move || {
        // If the server has no room for the process, the launcher tries again.
        let _ = scheduler::start(database, 0);
    });
}

/// Runs the launcher, in a process of its own.
fn launch(_argument: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    Scheduled::begin(None, LAUNCHER);
    let mut known: BTreeMap<u32, Launched> = BTreeMap::new();
    let mut warned = false;
    loop {
        let databases =
            if gucs::is_enabled() { BackgroundWorker::transaction(Scheduled::databases) } else { Vec::new() };
        known.retain(|oid, _| databases.iter().any(|d| d.to_u32() == *oid));
        for database in databases {
            let launched = known.entry(database.to_u32()).or_default();
            if launched.is_wanted(database) && !launched.again(database) && !warned {
                pgrx::warning!("pg_trickle cannot start a scheduler: raise max_worker_processes");
                warned = true;
            }
        }
        Scheduled::rest(RESCAN);
        if BackgroundWorker::sighup_received() {
            Scheduled::reload();
            known.values_mut().for_each(|l| l.wait = Duration::ZERO);
        }
    }
}

/// The launcher's knowledge about the scheduler of one database.
#[derive(Default)]
struct Launched {
    worker: Option<DynamicBackgroundWorker>,
    /// The instant at which the scheduler was last started.
    at: Option<Instant>,
    /// Shortest time from the last start to the next one. The time grows each time that the scheduler ends
    /// soon, for example because the database has no extension.
    wait: Duration,
}

impl Launched {
    /// Whether the database has no scheduler, and it is time to start one.
    fn is_wanted(&mut self, database: pg_sys::Oid) -> bool {
        if Board::is_scheduled(database.to_u32()) {
            // CREATE EXTENSION may have started this scheduler. When that scheduler ends, another one is to
            // be started at once.
            self.wait = Duration::ZERO;
            return false;
        }
        let age = self.at.map(|at| at.elapsed());
        if self.worker.as_ref().is_some_and(has_ended) {
            let soon = age.is_some_and(|age| age < RESCAN);
            self.wait = if soon { (self.wait * 2).clamp(RESCAN, LONGEST) } else { Duration::ZERO };
            self.worker = None;
        }
        self.worker.is_none() && age.is_none_or(|age| age >= self.wait)
    }

    /// Starts the scheduler; false if the server has no room for the process.
    fn again(&mut self, database: pg_sys::Oid) -> bool {
        self.worker = scheduler::start(database, Scheduled::process());
        self.at = Some(Instant::now());
        self.worker.is_some()
    }
}

/// Whether a process that was started has ended.
fn has_ended(worker: &DynamicBackgroundWorker) -> bool {
    matches!(worker.pid(), Err(BackgroundWorkerStatus::Stopped))
}

/// Runs `work` in a transaction of its own.
fn transaction<T>(work: impl AsyncFnOnce(ServerConnection) -> T) -> T {
    BackgroundWorker::transaction(AssertUnwindSafe(|| done(async { work(ServerConnection::enter()).await })))
}

/// Runs `work` as a role, in a transaction of its own. Code that a query calls can neither act as another
/// role nor leave work behind for the time after `work`. At that time this process acts as its own role
/// again, perhaps a superuser. So deferrable constraints are checked at once.
fn as_role<T>(role: u32, work: impl AsyncFnOnce(&mut Trickle<ServerConnection>) -> Result<T>) -> Result<T> {
    transaction(async |inside| {
        let at_once = Connection::batch(&inside, "SET CONSTRAINTS ALL IMMEDIATE").await;
        at_once.map_err(|e| Error::server("begin", e))?;
        let _acting = Acting::begin(role);
        attempt(inside, gucs::of_workers(), work).await
    })
}

/// Refreshes due stream tables as the lease's role, which is their owner.
fn refresh(lease: Lease, due: &Due) -> Outcome {
    let options = RefreshOptions::on_schedule(due, Some(lease));
    let result = as_role(lease.role, async |t| t.refresh_linked(&due.members, &options).await);
    result.as_ref().err().into_iter().for_each(tell);
    // A cancel that came before the refresh itself began is no failure either.
    let gave_way = Board::gave_way_to().is_some() && result.is_err();
    if gave_way { Outcome::Later } else { outcome_of(&result) }
}

fn tell(e: &Error) {
    pgrx::warning!("pg_trickle: {e}");
}
