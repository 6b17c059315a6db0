//! Refreshes on schedule, by the server itself: a launcher that starts a scheduler in every database, and the schedulers, of
//! which one in each database with the extension works. They exist where the library is among
//! `shared_preload_libraries`.

use crate::api::attempt;
use crate::gucs;
use crate::inside::done;
use crate::unsafe_pg::{Acting, Inside, Scheduled};
use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime,
    DynamicBackgroundWorker, SignalWakeFlags,
};
use pgrx::prelude::*;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};
use trickle_engine::db::{Cell, Connection};
use trickle_engine::scheduler::{Due, Found, Scheduler, now};
use trickle_engine::{Error, RefreshOptions, Result, Trickle};

/// What the library is called.
const LIBRARY: &str = "pg_trickle";

/// How often the launcher looks for databases that are new; a scheduler that ended sooner than this had nothing to do.
const RESCAN: Duration = Duration::from_secs(15);

/// How long the launcher waits at most before it tries a database again. CREATE EXTENSION does not wait for it.
const LONGEST: Duration = Duration::from_secs(600);

/// How long a scheduler waits after what went wrong.
const TROUBLE: Duration = Duration::from_secs(5);

/// Of all that take this lock in a database, one is its scheduler.
const ONE: &str = "SELECT pg_catalog.pg_try_advisory_lock(1953655139, 1802265856)";

/// Who drops a database may have names and operators of its own, and is not to say whom this ends.
const OWN_NAMES: &str = "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)";

/// Who has that lock.
const HOLDER: &str = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = $1::oid \
    AND classid = 1953655139 AND objid = 1802265856 AND objsubid = 2";

/// Who owns the catalog: as whom refreshes run.
const OWNER: &str = "SELECT n.nspowner FROM pg_catalog.pg_extension e, pg_catalog.pg_namespace n \
    WHERE e.extname = 'pg_trickle' AND n.nspname = 'pgtrickle'";

/// Has the server start the launcher with itself, and again where it ends. On a standby there is none until that is promoted.
pub(crate) fn register() {
    BackgroundWorkerBuilder::new("pg_trickle launcher")
        .set_type("pg_trickle launcher")
        .set_library(LIBRARY)
        .set_function("pg_trickle_launcher")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(TROUBLE))
        .load();
    Scheduled::watch_drops();
}

/// Ends the scheduler of a database that is about to be dropped, which fails while anybody is connected. Called in a transaction
/// of who drops it, and may.
pub(crate) fn end(database: pg_sys::Oid) {
    let holder = done(async {
        let inside = Inside::enter();
        let db: &dyn Connection = &inside;
        db.query(OWN_NAMES, &[]).await?;
        db.query(HOLDER, &[&database.to_u32()]).await
    });
    match holder {
        Ok(rows) => rows.iter().for_each(|row| Scheduled::end(row.get(0))),
        Err(e) => tell(&Error::server("look for the scheduler of the database", e)),
    }
}

/// Starts the scheduler of a database; `None` where the server has no room for another process.
fn start(database: pg_sys::Oid, told: i32) -> Option<DynamicBackgroundWorker> {
    BackgroundWorkerBuilder::new("pg_trickle scheduler")
        .set_type("pg_trickle scheduler")
        .set_library(LIBRARY)
        .set_function("pg_trickle_scheduler")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(None)
        .set_argument(database.into_datum())
        .set_notify_pid(told)
        .load_dynamic()
        .ok()
}

/// Starts the scheduler of this database when this transaction is committed.
pub(crate) fn start_when_committed() {
    let database = Scheduled::database();
    pgrx::register_xact_callback(pgrx::PgXactCallbackEvent::Commit, move || {
        // Where there is no room now, the launcher tries again.
        let _ = start(database, 0);
    });
}

/// The launcher.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_launcher(_argument: pg_sys::Datum) {
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    Scheduled::begin(None);
    let mut known: BTreeMap<u32, Launched> = BTreeMap::new();
    let mut warned = false;
    loop {
        let databases =
            if gucs::is_enabled() { BackgroundWorker::transaction(Scheduled::databases) } else { Vec::new() };
        known.retain(|oid, _| databases.iter().any(|d| d.to_u32() == *oid));
        for database in databases {
            let launched = known.entry(database.to_u32()).or_default();
            if launched.is_wanted() && !launched.again(database) && !warned {
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

/// What the launcher knows of the scheduler of a database.
#[derive(Default)]
struct Launched {
    worker: Option<DynamicBackgroundWorker>,
    /// When it was started last.
    at: Option<Instant>,
    /// How long after that it is not started again, once it has ended: longer each time that it ended soon, for lack of the
    /// extension, say.
    wait: Duration,
}

impl Launched {
    /// Whether there is none and it is time for one.
    fn is_wanted(&mut self) -> bool {
        let age = self.at.map(|at| at.elapsed());
        let ended =
            self.worker.as_ref().is_some_and(|w| matches!(w.pid(), Err(BackgroundWorkerStatus::Stopped)));
        if ended {
            let soon = age.is_some_and(|age| age < RESCAN);
            self.wait = if soon { (self.wait * 2).clamp(RESCAN, LONGEST) } else { Duration::ZERO };
            self.worker = None;
        }
        self.worker.is_none() && age.is_none_or(|age| age >= self.wait)
    }

    /// Starts it; false where there is no room for it.
    fn again(&mut self, database: pg_sys::Oid) -> bool {
        self.worker = start(database, Scheduled::process());
        self.at = Some(Instant::now());
        self.worker.is_some()
    }
}

/// The scheduler of a database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_scheduler(database: pg_sys::Datum) {
    let Some(database) = Scheduled::oid(database) else { return };
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    Scheduled::begin(Some(database));
    let alone = asked(ONE).is_some_and(|c| matches!(c, Cell::Bool(true)));
    let mut scheduler = Scheduler::new(gucs::scheduler());
    // Without the extension, or where it is dropped or nothing is to be refreshed, nobody is to stay here.
    while alone
        && gucs::is_enabled()
        && let Some(Cell::Oid(owner)) = asked(OWNER)
    {
        let pause = round(&mut scheduler, owner);
        Scheduled::rest(pause);
        if BackgroundWorker::sighup_received() {
            Scheduled::reload();
            scheduler = Scheduler::new(gucs::scheduler());
        }
    }
}

/// Runs something in a transaction.
fn transaction<T>(work: impl AsyncFnOnce(Inside) -> T) -> T {
    BackgroundWorker::transaction(AssertUnwindSafe(|| done(async { work(Inside::enter()).await })))
}

/// The first cell of the first row; none where that cannot be asked, which is told.
fn asked(query: &str) -> Option<Cell> {
    transaction(async |inside| {
        let db: &dyn Connection = &inside;
        let asked = db.query_opt(query, &[]).await.map_err(|e| Error::server("look for the extension", e));
        asked.inspect_err(tell).ok().flatten()?.cells().first().cloned()
    })
}

/// Does something as a role, in a transaction. What is called by a query cannot become another: this process may be anybody.
fn as_role<T>(role: u32, work: impl AsyncFnOnce(&mut Trickle<Inside>) -> Result<T>) -> Result<T> {
    transaction(async |inside| {
        let _acting = Acting::begin(role);
        attempt(inside, gucs::of_workers(), work).await
    })
}

/// Looks for what is due, and refreshes that; how long to rest then.
fn round(scheduler: &mut Scheduler, owner: u32) -> Duration {
    let looked = as_role(owner, async |t| {
        scheduler.reload(t).await?;
        scheduler.look(t).await
    });
    let Found { due, wake, trouble } = match looked {
        Ok(found) => found,
        Err(e) => {
            tell(&e);
            return TROUBLE;
        }
    };
    trouble.iter().for_each(tell);
    for name in scheduler.foreign() {
        pgrx::log!(
            "stream table {name} is not refreshed on schedule: it is not of who owns schema pgtrickle"
        );
    }
    let idle = due.is_empty();
    for due in due {
        refresh(scheduler, owner, &due);
    }
    let longest = gucs::scheduler().reload;
    if idle { wake.map_or(longest, |t| t.since(now())).min(longest) } else { Duration::ZERO }
}

fn refresh(scheduler: &mut Scheduler, owner: u32, due: &Due) {
    let options = RefreshOptions {
        initiated_by: Some("SCHEDULER"),
        polled: Some(due.polled.clone()),
        ..RefreshOptions::default()
    };
    let result = as_role(owner, async |t| {
        // Whatever is put off until the transaction ends is done as the same role, and may fail like all else.
        t.connection().begin(false);
        let done = t.refresh_linked(&due.members, &options).await;
        let fired = match &done {
            Ok(_) => t.db().batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await,
            Err(_) => Ok(()),
        };
        t.connection().end(fired.is_ok());
        match fired {
            Ok(()) => done,
            Err(e) => {
                let e = Error::server("do what was put off until the end of the refresh", e);
                t.note_undone(&due.members, &e, "SCHEDULER").await?;
                Err(e)
            }
        }
    });
    result.as_ref().err().into_iter().for_each(tell);
    scheduler.ended(due, &result);
}

fn tell(e: &Error) {
    pgrx::warning!("pg_trickle: {e}");
}
