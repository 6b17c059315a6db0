//! The processes of the server that refresh on schedule, and as whom they do.

use super::{Inside, SHUT};
use pgrx::bgworkers::BackgroundWorker;
use pgrx::{FromDatum, pg_sys};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Whether the server is loading the libraries that all its processes have, for its ordinary work.
pub(crate) fn is_preloading() -> bool {
    // SAFETY: they are read by the thread that writes them. While pg_upgrade is at work nothing is to be refreshed.
    let preloading =
        unsafe { pg_sys::process_shared_preload_libraries_in_progress && !pg_sys::IsBinaryUpgrade };
    PRELOADED.store(preloading, Ordering::Relaxed);
    preloading
}

/// No setting of this library's name is one that it does not have: a misspelt one is refused, or told where it was set before.
pub(crate) fn reserve_settings() {
    // SAFETY: the server is loading the library, and keeps a copy of the name.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"pg_trickle".as_ptr()) };
}

/// Whether the library is one that all processes of the server have.
pub(crate) fn is_preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// Inherited by each process from the one that loaded the library.
static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether this process is one that refreshes on schedule.
static SCHEDULED: AtomicBool = AtomicBool::new(false);

unsafe extern "C-unwind" {
    /// The server's own handler of SIGTERM in a process that has a database.
    fn die(signal: i32);
    /// Has the process interrupted after so many milliseconds, as a timeout of this kind. See utils/timeout.h of the server.
    fn enable_timeout_after(timeout: i32, millis: i32);
    /// Takes that back.
    fn disable_timeout(timeout: i32, keep_indicator: bool);
    /// Whether the time was up.
    fn get_timeout_indicator(timeout: i32, reset_indicator: bool) -> bool;
    /// POSIX
    fn kill(process: i32, signal: i32) -> i32;
}

/// Who else is told of each object that is about to be dropped.
static mut NEXT_TOLD: pg_sys::object_access_hook_type = None;

/// Called by the server whenever somebody makes, alters or drops an object.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn accessed(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    part: i32,
    arg: *mut c_void,
) {
    // SAFETY: it was set before any process of the server was made.
    if let Some(next) = unsafe { NEXT_TOLD } {
        // SAFETY: with what this was called with; an error of it goes on from here as any other.
        unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| next(access, class, object, part, arg)) };
    }
    if access == pg_sys::ObjectAccessType::OAT_DROP && class == pg_sys::DatabaseRelationId {
        crate::workers::end(object);
    }
}

/// The time in which this process acts as a role, and cannot be made to act as another: by SET ROLE, say.
pub(crate) struct Acting {
    role: pg_sys::Oid,
    context: i32,
}

impl Acting {
    /// From now on, until it is dropped or the transaction fails. It is a security-restricted operation: the role's queries and
    /// functions can leave nothing behind that would be run as somebody else after it, no temporary object, deferred trigger,
    /// cursor or prepared statement.
    pub(crate) fn begin(role: u32) -> Acting {
        let mut before = Acting { role: pg_sys::InvalidOid, context: 0 };
        // SAFETY: there is a transaction.
        unsafe {
            pg_sys::GetUserIdAndSecContext(&mut before.role, &mut before.context);
            let more = pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION;
            pg_sys::SetUserIdAndSecContext(pg_sys::Oid::from(role), before.context | more as i32);
        }
        before
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        // SAFETY: it is who the process was before; after a failure the abort of the transaction says the same.
        unsafe { pg_sys::SetUserIdAndSecContext(self.role, self.context) };
    }
}

/// The server's own timeout of statements: the same number in PostgreSQL 15 to 18 (utils/timeout.h).
const STATEMENT_TIMEOUT: i32 = 3;

/// The time in which a statement must have ended, in a process that refreshes on schedule: nobody sits before it who would cancel
/// it, and the server's own loop, which heeds `statement_timeout`, does not run there.
pub(crate) struct Limit(bool);

impl Limit {
    /// From now on, until it is dropped; 0: for as long as it takes.
    pub(crate) fn begin(millis: i32) -> Limit {
        let limited = millis > 0 && Scheduled::is_this();
        if limited {
            // SAFETY: the process is connected to a database, which is when the server makes ready for this timeout.
            unsafe { enable_timeout_after(STATEMENT_TIMEOUT, millis) };
        }
        Limit(limited)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: as above.
            unsafe {
                disable_timeout(STATEMENT_TIMEOUT, true);
                if get_timeout_indicator(STATEMENT_TIMEOUT, true) {
                    // It came when the statement had ended, and is not meant for the next.
                    pg_sys::QueryCancelPending = 0;
                }
            }
        }
    }
}

/// Whether the session says how long to wait for a lock at most (`lock_timeout`).
pub(crate) fn is_wait_limited() -> bool {
    // SAFETY: the thread that reads it writes it.
    unsafe { pg_sys::LockTimeout > 0 }
}

/// A process of the server's own, which refreshes on schedule.
pub(crate) struct Scheduled;

impl Scheduled {
    /// Connects to a database, or to none, under a name that others see. Settings that are meant for clients are not those of
    /// the server or the database.
    pub(crate) fn begin(database: Option<pg_sys::Oid>, name: &CStr) {
        BackgroundWorker::connect_worker_to_spi_by_oid(database, None);
        SCHEDULED.store(true, Ordering::Relaxed);
        // SAFETY: the process is connected. SIGTERM ends it where it next looks for interrupts, also within a statement.
        unsafe {
            #[cfg(feature = "pg18")]
            pg_sys::pqsignal_be(pg_sys::SIGTERM as i32, Some(die));
            #[cfg(not(feature = "pg18"))]
            pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(die));
            for (name, value) in [
                (c"default_transaction_isolation", c"read committed"),
                (c"default_transaction_read_only", c"off"),
                (c"statement_timeout", c"0"),
                // Who holds a lock for longer keeps waiting what needs it, and nothing else: it is tried again.
                (c"lock_timeout", c"10s"),
                // Whoever owns the database may have set another for it, and names and operators of their own there.
                (c"search_path", SHUT),
                #[cfg(any(feature = "pg17", feature = "pg18"))]
                (c"transaction_timeout", c"0"),
            ] {
                let context = pg_sys::GucContext::PGC_SUSET;
                let source = pg_sys::GucSource::PGC_S_OVERRIDE;
                pg_sys::SetConfigOption(name.as_ptr(), value.as_ptr(), context, source);
            }
            if database.is_some() {
                let context = pg_sys::GucContext::PGC_USERSET;
                let source = pg_sys::GucSource::PGC_S_SESSION;
                pg_sys::SetConfigOption(c"application_name".as_ptr(), name.as_ptr(), context, source);
            }
        }
    }

    /// From now on this process waits for a lock for so many milliseconds at most.
    pub(crate) fn hurry(millis: &CStr) {
        let (context, source) = (pg_sys::GucContext::PGC_SUSET, pg_sys::GucSource::PGC_S_OVERRIDE);
        // SAFETY: the process is connected; the server keeps copies of the texts.
        unsafe { pg_sys::SetConfigOption(c"lock_timeout".as_ptr(), millis.as_ptr(), context, source) };
    }

    /// Whether this process is one.
    pub(crate) fn is_this() -> bool {
        SCHEDULED.load(Ordering::Relaxed)
    }

    /// Has the processes of databases ended that are dropped.
    pub(crate) fn watch_drops() {
        // SAFETY: the server is loading its libraries, and runs in one thread. Whoever was told of this before still is.
        unsafe {
            NEXT_TOLD = pg_sys::object_access_hook;
            pg_sys::object_access_hook = Some(accessed);
        }
    }

    /// Asks a process of the server's to end.
    pub(crate) fn end(process: i32) {
        // SAFETY: it is looked up among the processes of the server that have transactions, and no other is told.
        unsafe {
            if !pg_sys::BackendPidGetProc(process).is_null() {
                kill(process, pg_sys::SIGTERM as i32);
            }
        }
    }

    /// The databases that can be connected to; called in a transaction.
    pub(crate) fn databases() -> Vec<pg_sys::Oid> {
        let mut found = Vec::new();
        // SAFETY: there is a transaction; the table is closed again, and a row is read while it is the scan's.
        unsafe {
            let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
            let table = pg_sys::table_open(pg_sys::DatabaseRelationId, lock);
            let scan = pg_sys::table_beginscan_catalog(table, 0, std::ptr::null_mut());
            loop {
                let row = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
                if row.is_null() {
                    break;
                }
                let database = pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_database>();
                // A limit of -2 is what a DROP DATABASE leaves that was interrupted.
                let whole = (*database).datconnlimit != -2;
                if (*database).datallowconn && !(*database).datistemplate && whole {
                    found.push((*database).oid);
                }
            }
            pg_sys::heap_endscan(scan);
            pg_sys::table_close(table, lock);
        }
        found
    }

    /// The database of this process.
    pub(crate) fn database() -> pg_sys::Oid {
        // SAFETY: it is read by the thread that writes it.
        unsafe { pg_sys::MyDatabaseId }
    }

    /// The number of this process.
    pub(crate) fn process() -> i32 {
        // SAFETY: it is read by the thread that writes it.
        unsafe { pg_sys::MyProcPid }
    }

    /// The database that a scheduler was started for.
    pub(crate) fn oid(argument: pg_sys::Datum) -> Option<pg_sys::Oid> {
        // SAFETY: a scheduler's argument is an oid.
        unsafe { pg_sys::Oid::from_datum(argument, false) }
    }

    /// The place that is kept for a refresher.
    pub(crate) fn place(argument: pg_sys::Datum) -> Option<usize> {
        // SAFETY: a refresher's argument is a number.
        unsafe { i64::from_datum(argument, false) }.and_then(|n| usize::try_from(n).ok())
    }

    /// The database and the table that a planner was started for.
    pub(crate) fn task(argument: pg_sys::Datum) -> Option<(pg_sys::Oid, u32)> {
        // SAFETY: a planner's argument is a number.
        let task = unsafe { i64::from_datum(argument, false) }?.to_be_bytes();
        let half = |at: usize| Some(u32::from_be_bytes(task.get(at..at + 4)?.try_into().ok()?));
        Some((pg_sys::Oid::from(half(0)?), half(4)?))
    }

    /// How many transactions that wrote anything have ended in this server, in whatever database: where it is the same as before,
    /// nothing was committed meanwhile. The server counts them for its snapshots, so writers do nothing for it.
    pub(crate) fn ended() -> u64 {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        // SAFETY: the process is attached to the shared memory.
        let counted = unsafe { &raw const (*pg_sys::ShmemVariableCache).xactCompletionCount };
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        // SAFETY: as above.
        let counted = unsafe { &raw const (*pg_sys::TransamVariables).xactCompletionCount };
        // SAFETY: it is aligned, and nobody writes less than all of it; what is read late is read the next time.
        unsafe { AtomicU64::from_ptr(counted.cast_mut()).load(Ordering::SeqCst) }
    }

    /// Reads the server's configuration again.
    pub(crate) fn reload() {
        // SAFETY: the process is between transactions.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
    }

    /// Does nothing for a while, unless it is told something. Before that the server is told what was read and written, by which
    /// it decides what to vacuum and to analyse.
    pub(crate) fn rest(time: Duration) {
        // SAFETY: the process is between transactions. Whoever cancels means a statement, and there is none.
        unsafe {
            pg_sys::pgstat_report_stat(true);
            pg_sys::QueryCancelPending = 0;
        }
        Inside::pause(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    }
}
