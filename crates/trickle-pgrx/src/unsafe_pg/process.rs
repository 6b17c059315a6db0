//! The server processes that refresh on schedule, and the roles as which they act.

use super::{Board, SHUT, ServerConnection};
use pgrx::bgworkers::BackgroundWorker;
use pgrx::{FromDatum, pg_sys};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Notes, for [`is_preloaded`], whether the server is preloading its libraries for its ordinary work, and not
/// for pg_upgrade. Returns the same answer.
pub(crate) fn note_preloading() -> bool {
    // SAFETY: the variables are read by the thread that writes them. While pg_upgrade is at work, nothing may
    // be refreshed.
    let preloading =
        unsafe { pg_sys::process_shared_preload_libraries_in_progress && !pg_sys::IsBinaryUpgrade };
    PRELOADED.store(preloading, Ordering::Relaxed);
    preloading
}

/// Reserves the prefix `pg_trickle` for the settings of this library. A misspelt setting is then refused, or
/// reported where it was set before the library was loaded.
pub(crate) fn reserve_settings() {
    // SAFETY: the server is loading the library, and keeps a copy of the name.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"pg_trickle".as_ptr()) };
}

/// Whether all processes of the server have this library.
pub(crate) fn is_preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// Whether the library is preloaded. Each process inherits the value from the process that loaded the
/// library.
static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether this process refreshes on schedule.
static SCHEDULED: AtomicBool = AtomicBool::new(false);

unsafe extern "C-unwind" {
    /// Handles SIGTERM in the server's own way, for a process that has a database.
    fn die(signal: i32);
    /// Interrupts the process after `millis` milliseconds, as a timeout of this kind does. See
    /// utils/timeout.h of the server.
    fn enable_timeout_after(timeout: i32, millis: i32);
    /// Cancels a timeout of this kind.
    fn disable_timeout(timeout: i32, keep_indicator: bool);
    /// Whether the timeout has expired.
    fn get_timeout_indicator(timeout: i32, reset_indicator: bool) -> bool;
    /// Sends a signal (POSIX).
    fn kill(process: i32, signal: i32) -> i32;
}

/// The object access hook that was installed before. The hook of this library calls it.
static mut NEXT_TOLD: pg_sys::object_access_hook_type = None;

/// Ends the processes that refresh a database, when the database is dropped, since DROP DATABASE fails while
/// a session is connected to the database. The server calls the function whenever a session makes, alters or
/// drops an object. DROP DATABASE causes the call in its own transaction, after the server has checked that
/// the role may drop the database.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn accessed(
    access: pg_sys::ObjectAccessType::Type,
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    part: i32,
    arg: *mut c_void,
) {
    // SAFETY: the variable was set before any process of the server was made.
    if let Some(next) = unsafe { NEXT_TOLD } {
        // SAFETY: the next hook gets the arguments of this call. An error of that hook passes through here
        // like any other error.
        unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| next(access, class, object, part, arg)) };
    }
    if access == pg_sys::ObjectAccessType::OAT_DROP && class == pg_sys::DatabaseRelationId {
        Board::of_database(object.to_u32()).into_iter().for_each(Scheduled::end);
    }
}

/// A guard: as long as the guard lives, this process acts as a role. No code can make the process act as
/// another role, for example by SET ROLE.
pub(crate) struct Acting {
    role: pg_sys::Oid,
    context: i32,
}

impl Acting {
    /// Acts as the role, in a security-restricted operation, until the value is dropped or the transaction
    /// fails. The role's queries and functions can leave nothing behind that would run later as another role:
    /// no temporary object, deferred trigger, cursor or prepared statement.
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
        // SAFETY: the process becomes the role that it was before; after a failure, the abort of the
        // transaction restores the same role.
        unsafe { pg_sys::SetUserIdAndSecContext(self.role, self.context) };
    }
}

/// Number of the server's own timeout for statements, equal in PostgreSQL 15 to 18 (utils/timeout.h).
const STATEMENT_TIMEOUT: i32 = 3;

/// A guard that limits the time of a statement, in a process that refreshes on schedule. There is no user who
/// would cancel the statement. The server's main loop, which obeys `statement_timeout`, does not run in such
/// a process either.
pub(crate) struct Limit(bool);

impl Limit {
    /// Limits the time until the value is dropped; 0 means no limit.
    pub(crate) fn begin(millis: i32) -> Limit {
        let limited = millis > 0 && Scheduled::is_this();
        if limited {
            // SAFETY: the process is connected to a database; the server prepares this timeout when a process
            // connects.
            unsafe { enable_timeout_after(STATEMENT_TIMEOUT, millis) };
        }
        Limit(limited)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: the timeout was enabled by `begin`, so the server has prepared it.
            unsafe {
                disable_timeout(STATEMENT_TIMEOUT, true);
                if get_timeout_indicator(STATEMENT_TIMEOUT, true) {
                    // The timeout expired after the statement had ended, and must not cancel the next
                    // statement.
                    pg_sys::QueryCancelPending = 0;
                }
            }
        }
    }
}

/// Whether the session limits its waits for locks (`lock_timeout`).
pub(crate) fn is_wait_limited() -> bool {
    // SAFETY: the variable is read by the thread that writes it.
    unsafe { pg_sys::LockTimeout > 0 }
}

/// A background process of the server that refreshes on schedule.
pub(crate) struct Scheduled;

impl Scheduled {
    /// Connects to a database, or to none, under a name that other sessions see. Settings that the server or
    /// the database makes for its clients do not apply.
    pub(crate) fn begin(database: Option<pg_sys::Oid>, name: &CStr) {
        BackgroundWorker::connect_worker_to_spi_by_oid(database, None);
        SCHEDULED.store(true, Ordering::Relaxed);
        // SAFETY: the process is connected. SIGTERM ends the process at its next check for interrupts, even
        // within a statement.
        unsafe {
            #[cfg(feature = "pg18")]
            pg_sys::pqsignal_be(pg_sys::SIGTERM as i32, Some(die));
            #[cfg(not(feature = "pg18"))]
            pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(die));
            for (name, value) in [
                (c"default_transaction_isolation", c"read committed"),
                (c"default_transaction_read_only", c"off"),
                (c"statement_timeout", c"0"),
                // If another session holds a lock for longer, only the refresh that needs the lock is
                // delayed, and it is tried again.
                (c"lock_timeout", c"10s"),
                // The owner of the database may have set a search path that finds the owner's own functions
                // and operators.
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

    /// Limits this process's waits for locks to `millis` milliseconds.
    pub(crate) fn hurry(millis: &CStr) {
        let (context, source) = (pg_sys::GucContext::PGC_SUSET, pg_sys::GucSource::PGC_S_OVERRIDE);
        // SAFETY: the process is connected; the server keeps copies of the texts.
        unsafe { pg_sys::SetConfigOption(c"lock_timeout".as_ptr(), millis.as_ptr(), context, source) };
    }

    /// Whether this process refreshes on schedule.
    pub(crate) fn is_this() -> bool {
        SCHEDULED.load(Ordering::Relaxed)
    }

    /// Installs the hook that ends the processes of a database that is dropped.
    pub(crate) fn watch_drops() {
        // SAFETY: the server is loading its libraries, and runs in one thread. The hook that was installed
        // before is still called.
        unsafe {
            NEXT_TOLD = pg_sys::object_access_hook;
            pg_sys::object_access_hook = Some(accessed);
        }
    }

    /// Asks a process of the server to end.
    pub(crate) fn end(process: i32) {
        // SAFETY: the process is looked up among the server's processes that have transactions, and no other
        // process gets the signal.
        unsafe {
            if !pg_sys::BackendPidGetProc(process).is_null() {
                kill(process, pg_sys::SIGTERM as i32);
            }
        }
    }

    /// Returns the databases that can be connected to; called in a transaction.
    pub(crate) fn databases() -> Vec<pg_sys::Oid> {
        let mut found = Vec::new();
        // SAFETY: there is a transaction. The table is closed again, and a row is read while it belongs to
        // the scan.
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
                // An interrupted DROP DATABASE leaves a connection limit of -2.
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

    /// Returns the database of this process.
    pub(crate) fn database() -> pg_sys::Oid {
        // SAFETY: the variable is read by the thread that writes it.
        unsafe { pg_sys::MyDatabaseId }
    }

    /// Returns the number of this process.
    pub(crate) fn process() -> i32 {
        // SAFETY: the variable is read by the thread that writes it.
        unsafe { pg_sys::MyProcPid }
    }

    /// Returns the database that a scheduler was started for.
    pub(crate) fn oid(argument: pg_sys::Datum) -> Option<pg_sys::Oid> {
        // SAFETY: a scheduler's argument is an oid.
        unsafe { pg_sys::Oid::from_datum(argument, false) }
    }

    /// Returns the place that is kept for a refresher.
    pub(crate) fn place(argument: pg_sys::Datum) -> Option<usize> {
        // SAFETY: a refresher's argument is a number.
        unsafe { i64::from_datum(argument, false) }.and_then(|n| usize::try_from(n).ok())
    }

    /// Returns the database and the table that a planner was started for.
    pub(crate) fn task(argument: pg_sys::Datum) -> Option<(pg_sys::Oid, u32)> {
        // SAFETY: a planner's argument is a number.
        let task = unsafe { i64::from_datum(argument, false) }?.to_be_bytes();
        let half = |at: usize| Some(u32::from_be_bytes(task.get(at..at + 4)?.try_into().ok()?));
        Some((pg_sys::Oid::from(half(0)?), half(4)?))
    }

    /// Returns the number of transactions with writes that have ended in all databases of this server. While
    /// the number stays the same, nothing was committed. The server counts these transactions for its own
    /// snapshots, so the count costs writers nothing.
    pub(crate) fn ended() -> u64 {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        // SAFETY: the process is attached to the shared memory.
        let counted = unsafe { &raw const (*pg_sys::ShmemVariableCache).xactCompletionCount };
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        // SAFETY: the process is attached to the shared memory.
        let counted = unsafe { &raw const (*pg_sys::TransamVariables).xactCompletionCount };
        // SAFETY: the counter is aligned, and is always written whole. The next read sees a change that this
        // read misses.
        unsafe { AtomicU64::from_ptr(counted.cast_mut()).load(Ordering::SeqCst) }
    }

    /// Reads the server's configuration again.
    pub(crate) fn reload() {
        // SAFETY: the process is between transactions.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
    }

    /// Waits until the time is over or the process is woken. Before the wait, reports to the server the
    /// amounts that this process read and wrote. Autovacuum uses these amounts to choose the tables to vacuum
    /// and analyse.
    pub(crate) fn rest(time: Duration) {
        // SAFETY: the process is between transactions. A cancel is meant for a statement, and no statement is
        // running.
        unsafe {
            pg_sys::pgstat_report_stat(true);
            pg_sys::QueryCancelPending = 0;
        }
        ServerConnection::pause(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    }
}
