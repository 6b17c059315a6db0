//! The code that uses the server's C interface. No other code of the project is unsafe. All functions run in
//! the one thread of a server process. The methods of [`ServerConnection`] run within a transaction. Hooks,
//! and functions about processes and shared memory, may also run outside transactions. SAFETY comments name
//! their conditions.

mod board;
mod commands;
mod copy;
mod entries;
mod plan;
mod process;
mod report;
mod rights;
#[cfg(any(test, feature = "pg_test"))]
mod tests;
mod values;

pub(crate) use board::{Admission, AtWork, Board, Hire, Job, Next, PLACES};
pub(crate) use commands::{FollowedRemoval, watch_commands};
pub(crate) use entries::entry_points;
pub(crate) use plan::Plan;
pub(crate) use process::{
    Acting, Limit, Scheduled, is_preloaded, is_wait_limited, note_preloading, reserve_settings,
};
pub(crate) use report::raise;
pub(crate) use rights::{catalog_owner, is_at_work, watch_statements};

use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_sys};
use report::{CaughtDetails, listening};
use rights::{Lending, Working};
use std::cell::{Cell as Shared, RefCell};
use std::ffi::{CStr, CString};
use std::panic::AssertUnwindSafe;
use trickle_engine::db::{Param, Rows, ServerError};
use values::{Columns, Values};

/// A connection to the server from inside, for one call of a function. Dropping the value restores the former
/// settings.
pub(crate) struct ServerConnection {
    /// The level of settings that began with the connection.
    settings: i32,
    /// The snapshot of a refresh, while there is one.
    snapshot: Shared<pg_sys::Snapshot>,
    /// The number of subtransactions that were open when the snapshot was taken. The snapshot belongs to the
    /// innermost of them, and ends with it.
    taken_at: Shared<usize>,
    /// Open subtransactions, innermost last, each with the state of the process before it.
    open: RefCell<Vec<Before>>,
    /// The number of subtransactions that were open when the refresh began.
    pub(crate) outside: Shared<usize>,
    _working: Working,
}

/// The state of the process before a subtransaction. The end of the subtransaction restores this state.
#[derive(Clone, Copy)]
struct Before {
    context: pg_sys::MemoryContext,
    owner: pg_sys::ResourceOwner,
    /// The level of settings to take back after the subtransaction; `None` for a savepoint, whose settings
    /// stay in force.
    settings: Option<i32>,
}

impl ServerConnection {
    /// Connects to the server's executor.
    pub(crate) fn enter() -> ServerConnection {
        // SAFETY: a function is being called, so there are a transaction and a memory context. The connection
        // and the level of settings that begin here end when the value is dropped, or by the abort of the
        // transaction.
        let settings = unsafe {
            let connected = pg_sys::SPI_connect();
            if connected != pg_sys::SPI_OK_CONNECT as i32 {
                pgrx::error!("cannot connect to the server's executor: {connected}");
            }
            let settings = pg_sys::NewGUCNestLevel();
            // The user did not write these statements, so their notices concern nobody.
            if pg_sys::client_min_messages < pg_sys::WARNING as i32 {
                set(c"client_min_messages", c"warning");
            }
            settings
        };
        ServerConnection {
            settings,
            snapshot: Shared::new(std::ptr::null_mut()),
            taken_at: Shared::new(0),
            open: RefCell::default(),
            outside: Shared::new(0),
            _working: Working::begin(),
        }
    }

    /// Begins a subtransaction. With `apart`, settings that are made in the subtransaction are undone when it
    /// ends.
    pub(crate) fn begin(&self, apart: bool) {
        // SAFETY: there is a transaction. The memory context stays as it was, so that memory allocated in it
        // outlives the subtransaction.
        unsafe {
            let before = Before {
                context: pg_sys::CurrentMemoryContext,
                owner: pg_sys::CurrentResourceOwner,
                settings: apart.then(|| pg_sys::NewGUCNestLevel()),
            };
            pg_sys::BeginInternalSubTransaction(std::ptr::null());
            pg_sys::MemoryContextSwitchTo(before.context);
            self.open.borrow_mut().push(before);
        }
    }

    /// Ends the innermost subtransaction; without `keep`, undoes it.
    pub(crate) fn end(&self, keep: bool) {
        let Some(before) = self.open.borrow().last().copied() else { return };
        if self.taken_at.get() == self.depth() {
            if keep {
                self.drop_snapshot();
            } else {
                // The rollback of the subtransaction drops the snapshot itself.
                self.snapshot.set(std::ptr::null_mut());
            }
        }
        // SAFETY: the subtransaction was begun by `begin`, and all subtransactions inside it have ended,
        // since they form a stack.
        unsafe {
            if keep {
                pg_sys::ReleaseCurrentSubTransaction();
            } else {
                pg_sys::RollbackAndReleaseCurrentSubTransaction();
            }
            pg_sys::MemoryContextSwitchTo(before.context);
            pg_sys::CurrentResourceOwner = before.owner;
            if let Some(level) = before.settings {
                pg_sys::AtEOXact_GUC(false, level);
            }
        }
        // The entry is removed only here: if the calls above raised an error, the subtransaction is still
        // open.
        self.open.borrow_mut().pop();
    }

    /// Returns the number of open subtransactions.
    pub(crate) fn depth(&self) -> usize {
        self.open.borrow().len()
    }

    /// Undoes subtransactions, innermost first, until only `depth` are open.
    pub(crate) fn unwind(&self, depth: usize) {
        while self.depth() > depth {
            self.end(false);
        }
    }

    /// Runs `work` in a subtransaction of its own, so that an error of the server's undoes `work` and nothing
    /// else. A cancel by the user is not returned as an answer, but raised again ([`server_error`]).
    fn guarded<T>(&self, work: impl FnOnce() -> T) -> Result<T, ServerError> {
        self.begin(false);
        // Unwinding is safe: the rollback of the subtransaction undoes the effects of `work`.
        let work = AssertUnwindSafe(move || Ok(work()));
        let done = listening(|heard| {
            let heard = AssertUnwindSafe(heard);
            let answer = move |e| {
                let heard = &heard;
                Err(server_error(e, heard.get()))
            };
            PgTryBuilder::new(work).catch_others(answer).execute()
        });
        self.end(done.is_ok());
        done
    }

    /// Takes the snapshot of a refresh. The snapshot shows all that is committed at this moment. If the
    /// caller's transaction has one snapshot for all its statements, that snapshot is used instead.
    pub(crate) fn take_snapshot(&self) {
        self.drop_snapshot();
        self.taken_at.set(self.depth());
        // SAFETY: there is a transaction. The copy of the snapshot is registered with the transaction, whose
        // end drops it at the latest.
        unsafe { self.snapshot.set(pg_sys::RegisterSnapshot(pg_sys::GetTransactionSnapshot())) };
    }

    /// Drops the snapshot of a refresh.
    pub(crate) fn drop_snapshot(&self) {
        let snapshot = self.snapshot.replace(std::ptr::null_mut());
        if !snapshot.is_null() {
            // SAFETY: the snapshot was registered by `take_snapshot`, once.
            unsafe { pg_sys::UnregisterSnapshot(snapshot) };
        }
    }

    /// Runs one statement. With `within`, the statement runs under the snapshot of the refresh, if there is
    /// one. Otherwise it runs under a snapshot of its own.
    pub(crate) fn run(&self, text: &str, params: &[Param<'_>], within: bool) -> Result<Rows, ServerError> {
        Ok(self.fetch(text, params, within)?.0)
    }

    /// Runs one statement; returns its rows, and their columns.
    fn fetch(&self, text: &str, params: &[Param<'_>], within: bool) -> Result<(Rows, Columns), ServerError> {
        let (text, values) = (c_text(text)?, Values::of(params));
        let snapshot = self.snapshot_of(within);
        self.guarded(|| Plan::once(&text, &values, |plan| plan.execute(&values, snapshot)))
    }

    /// Prepares a statement, which is kept until the last copy of the plan is dropped.
    pub(crate) fn prepare(&self, text: &str, params: &[Param<'_>]) -> Result<Plan, ServerError> {
        let (text, values) = (c_text(text)?, Values::of(params));
        self.guarded(|| Plan::kept(&text, &values))
    }

    /// Runs a prepared statement.
    pub(crate) fn run_kept(
        &self,
        plan: &Plan,
        params: &[Param<'_>],
        within: bool,
    ) -> Result<Rows, ServerError> {
        let values = Values::of(params);
        let snapshot = self.snapshot_of(within);
        Ok(self.guarded(|| plan.execute(&values, snapshot))?.0)
    }

    fn snapshot_of(&self, within: bool) -> pg_sys::Snapshot {
        if within { self.snapshot.get() } else { std::ptr::null_mut() }
    }

    /// Runs statements that have no parameters and return nothing.
    pub(crate) fn batch(&self, text: &str) -> Result<(), ServerError> {
        let text = c_text(text)?;
        self.guarded(move || {
            let _lending = Lending::to(text.as_ptr());
            execute(&text);
        })
    }

    /// Runs statements like [`ServerConnection::batch`], but as the catalog's owner, in a security-restricted
    /// operation. Names without a schema are the server's own, whatever the current role's search path is.
    pub(crate) fn as_catalog_owner(&self, text: &str) -> Result<(), ServerError> {
        let text = c_text(text)?;
        let Some(owner) = rights::catalog_owner() else {
            return Err(ServerError::new("3F000", "schema \"pgtrickle\" does not exist"));
        };
        self.guarded(move || {
            let _acting = Acting::begin(owner.to_u32());
            let _shut = Path::begin(SHUT);
            execute(&text);
        })
    }

    /// Returns names and types of the columns that a query would give.
    pub(crate) fn columns(&self, text: &str) -> Result<Columns, ServerError> {
        let text = format!("SELECT * FROM ({}) q LIMIT 0", text.trim_end().trim_end_matches(';'));
        Ok(self.fetch(&text, &[], false)?.1)
    }

    /// Fails if this process is reading or changing one of these tables at the moment. Fails also if triggers
    /// for its own changes of these tables have not fired yet.
    pub(crate) fn require_idle(&self, tables: &[u32]) -> Result<(), ServerError> {
        self.guarded(|| {
            for oid in tables {
                // SAFETY: an existing relation is opened and closed; the lock keeps others from dropping it.
                unsafe {
                    let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
                    let relation = pg_sys::try_relation_open(pg_sys::Oid::from(*oid), lock);
                    if relation.is_null() {
                        continue;
                    }
                    pg_sys::CheckTableNotInUse(relation, c"pgtrickle.refresh_stream_table".as_ptr());
                    pg_sys::relation_close(relation, lock);
                }
            }
        })
    }

    /// Locks tables in mode ACCESS EXCLUSIVE, in this order. Without `waits`, locks none and returns false if
    /// another session has a lock on one of them. The locks last until the subtransaction or the transaction
    /// ends.
    pub(crate) fn lock(&self, tables: &[u32], waits: bool) -> Result<bool, ServerError> {
        self.begin(false);
        let locked = self.guarded(|| {
            let mode = pg_sys::AccessExclusiveLock as pg_sys::LOCKMODE;
            tables.iter().map(|oid| pg_sys::Oid::from(*oid)).all(|table| {
                // SAFETY: there is a transaction. If a table was dropped, the call locks its oid alone.
                unsafe {
                    if waits {
                        pg_sys::LockRelationOid(table, mode);
                    }
                    waits || pg_sys::ConditionalLockRelationOid(table, mode)
                }
            })
        });
        // If one table could not be locked, the rollback of the subtransaction releases the other locks.
        self.end(matches!(locked, Ok(true)));
        locked
    }

    /// Whether each statement of the transaction sees everything that was committed before the statement.
    pub(crate) fn is_fresh() -> bool {
        // SAFETY: the variable is read by the thread that writes it.
        unsafe { pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32 }
    }

    /// Whether the transaction ends with the statement that called this function.
    pub(crate) fn is_brief() -> bool {
        // SAFETY: there is a transaction.
        unsafe { !pg_sys::IsTransactionBlock() }
    }

    /// Whether this is a security-restricted operation.
    pub(crate) fn is_restricted() -> bool {
        // SAFETY: there is a transaction.
        unsafe { pg_sys::InSecurityRestrictedOperation() }
    }

    /// Returns the number of the transaction's last command; later commands have greater numbers.
    pub(crate) fn last_command() -> u32 {
        // SAFETY: there is a transaction. Marking the number as used makes the next command take another.
        unsafe { pg_sys::GetCurrentCommandId(true) }
    }

    /// Waits until the time is over or the process is woken.
    pub(crate) fn pause(millis: u64) {
        // SAFETY: the latch is this process's own.
        unsafe {
            let events = pg_sys::WL_LATCH_SET | pg_sys::WL_TIMEOUT | pg_sys::WL_EXIT_ON_PM_DEATH;
            pg_sys::WaitLatch(
                pg_sys::MyLatch,
                events as i32,
                i64::try_from(millis).unwrap_or(i64::MAX),
                pg_sys::PG_WAIT_EXTENSION,
            );
            pg_sys::ResetLatch(pg_sys::MyLatch);
        }
        pgrx::check_for_interrupts!();
    }
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        // Code that catches an error rolls back the innermost subtransaction, and assumes that it began this
        // subtransaction itself. So no subtransaction of this connection may stay open.
        self.unwind(0);
        if std::thread::panicking() {
            // The abort of the transaction undoes everything else.
            return;
        }
        self.drop_snapshot();
        // SAFETY: the level of settings and the connection were begun by `enter`, and nothing that was begun
        // after them is open.
        unsafe {
            pg_sys::AtEOXact_GUC(false, self.settings);
            pg_sys::SPI_finish();
        }
    }
}

/// Runs statements that have no parameters and return nothing.
fn execute(text: &CStr) {
    // SAFETY: the executor is connected, and the text outlives the call.
    let done = unsafe {
        let done = pg_sys::SPI_execute(text.as_ptr(), false, 0);
        pg_sys::SPI_freetuptable(pg_sys::SPI_tuptable);
        done
    };
    if done < 0 {
        pgrx::error!("cannot run a statement: {done}");
    }
}

/// A search path of schemas in which only superusers can create anything that lasts.
pub(crate) const SHUT: &CStr = c"pg_catalog, pg_temp";

/// Sets a setting of a session until the innermost level of settings ends.
///
/// # Safety
/// There must be a transaction, and a level of settings that began in it.
unsafe fn set(name: &CStr, value: &CStr) {
    // SAFETY: both texts end with a zero byte; the caller guarantees the transaction and the level of
    // settings.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
}

/// A search path that is in force as long as the value lives.
pub(crate) struct Path(i32);

impl Path {
    pub(crate) fn begin(path: &CStr) -> Path {
        // SAFETY: there is a transaction, whose abort takes the setting back where `drop` does not.
        unsafe {
            let level = pg_sys::NewGUCNestLevel();
            set(c"search_path", path);
            Path(level)
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the level was begun by `begin`, and the levels that began after it have ended.
            unsafe { pg_sys::AtEOXact_GUC(false, self.0) };
        }
    }
}

fn c_text(text: &str) -> Result<CString, ServerError> {
    CString::new(text)
        .map_err(|_| ServerError::new("22021", "a statement holds a character that no text can hold"))
}

/// Turns an error of the server's into an answer for the engine, with the code and the place in `heard`. A
/// cancel by the user and a panic of this library's code are raised again instead. On schedule there is no
/// user, so a refresh that was cancelled or took too long counts as failed.
fn server_error(e: CaughtError, heard: CaughtDetails) -> ServerError {
    let (report, heard) = match e {
        CaughtError::PostgresError(ref report) | CaughtError::ErrorReport(ref report)
            if report.sql_error_code() == PgSqlErrorCode::ERRCODE_QUERY_CANCELED && !Scheduled::is_this() =>
        {
            e.rethrow()
        }
        CaughtError::PostgresError(report) => {
            let same = PgSqlErrorCode::from(heard.code) == report.sql_error_code();
            (report, Some(heard).filter(|_| same))
        }
        // The bindings raised this error, and not the server, so `heard` is about another error.
        CaughtError::ErrorReport(report) => (report, None),
        panic => panic.rethrow(),
    };
    let code = heard.map_or(report.sql_error_code() as i32, |h| h.code);
    let position = heard.and_then(|h| usize::try_from(h.position).ok()).filter(|at| *at > 0);
    ServerError::new(sqlstate(code), report.message())
        .with_detail(report.detail())
        .with_hint(report.hint())
        .with_position(position)
}

/// Returns the five characters of an error's code: six bits each, from the least significant.
fn sqlstate(code: i32) -> String {
    (0..5).map(|i| char::from(((code >> (6 * i)) & 0x3f) as u8 + b'0')).collect()
}

/// A guard: as long as the guard lives, objects made in the script of CREATE or ALTER EXTENSION do not become
/// members of the extension.
pub(crate) struct ApartFromScript(bool);

impl ApartFromScript {
    pub(crate) fn begin() -> ApartFromScript {
        // SAFETY: the variable is read and written by this thread; after a failure, the code that runs the
        // script sets it again.
        unsafe {
            let before = pg_sys::creating_extension;
            pg_sys::creating_extension = false;
            ApartFromScript(before)
        }
    }
}

impl Drop for ApartFromScript {
    fn drop(&mut self) {
        // SAFETY: the variable is written by the thread that reads it.
        unsafe { pg_sys::creating_extension = self.0 };
    }
}

/// Whether the script of CREATE EXTENSION is running.
pub(crate) fn is_creating_extension() -> bool {
    // SAFETY: the variable is read by the thread that writes it.
    unsafe { pg_sys::creating_extension }
}
