//! The server's C interface: the only unsafe code. Everything here is called in the one thread of a server process, within a
//! transaction, while [`Inside`] exists.

mod board;
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
pub(crate) use plan::Plan;
pub(crate) use process::{
    Acting, Limit, Scheduled, is_preloaded, is_preloading, is_wait_limited, reserve_settings,
};
pub(crate) use report::raise;
pub(crate) use rights::{is_at_work, watch_statements};

use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_sys};
use report::{Heard, listening};
use rights::{Lending, Working};
use std::cell::{Cell as Shared, RefCell};
use std::ffi::{CStr, CString};
use std::panic::AssertUnwindSafe;
use trickle_engine::db::{Param, Refusal, Rows};
use values::{Columns, Values};

/// The server from inside, for the time of one call of a function: its settings are as before when it is gone.
pub(crate) struct Inside {
    /// What settings were set since.
    settings: i32,
    /// The snapshot of a refresh, while there is one.
    snapshot: Shared<pg_sys::Snapshot>,
    /// How many subtransactions were open when it was taken: it is the innermost one's, and ends with it.
    taken_at: Shared<usize>,
    /// Open subtransactions, innermost last, each with what was in force before it.
    open: RefCell<Vec<Before>>,
    /// How many were open when the refresh began.
    pub(crate) outside: Shared<usize>,
    _working: Working,
}

/// What a subtransaction changes of the process, and is to be as before after it.
#[derive(Clone, Copy)]
struct Before {
    context: pg_sys::MemoryContext,
    owner: pg_sys::ResourceOwner,
    /// What settings are to be taken back after it: those that were set in a savepoint stay in force.
    settings: Option<i32>,
}

impl Inside {
    /// Connects to the server's executor.
    pub(crate) fn enter() -> Inside {
        // SAFETY: a function is being called, so there are a transaction and a memory context. What is begun here is ended
        // when the value is dropped, or by the abort of the transaction.
        let settings = unsafe {
            let connected = pg_sys::SPI_connect();
            if connected != pg_sys::SPI_OK_CONNECT as i32 {
                pgrx::error!("cannot connect to the server's executor: {connected}");
            }
            let settings = pg_sys::NewGUCNestLevel();
            // Notices of statements that the caller did not write concern nobody.
            if pg_sys::client_min_messages < pg_sys::WARNING as i32 {
                set(c"client_min_messages", c"warning");
            }
            settings
        };
        Inside {
            settings,
            snapshot: Shared::new(std::ptr::null_mut()),
            taken_at: Shared::new(0),
            open: RefCell::default(),
            outside: Shared::new(0),
            _working: Working::begin(),
        }
    }

    /// Begins a subtransaction; one that is `apart` takes its settings back when it ends.
    pub(crate) fn begin(&self, apart: bool) {
        // SAFETY: there is a transaction. The memory context stays what it was, so that what is allocated in it outlives the
        // subtransaction.
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

    /// Ends the innermost subtransaction.
    pub(crate) fn end(&self, keep: bool) {
        let Some(before) = self.open.borrow().last().copied() else { return };
        if self.taken_at.get() == self.depth() {
            if keep {
                self.drop_snapshot();
            } else {
                // What is undone drops it itself.
                self.snapshot.set(std::ptr::null_mut());
            }
        }
        // SAFETY: it was begun by `begin`, and those inside of it are ended: they are a stack.
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
        // Only now: where that raised, it is still open.
        self.open.borrow_mut().pop();
    }

    /// How many subtransactions are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.borrow().len()
    }

    /// Undoes those that were begun since there were so many.
    pub(crate) fn unwind(&self, depth: usize) {
        while self.depth() > depth {
            self.end(false);
        }
    }

    /// Does something in a subtransaction of its own, so that an error of the server's undoes it and nothing else. That the user
    /// cancels it is an end, and no answer ([`refusal`]).
    fn guarded<T>(&self, work: impl FnOnce() -> T) -> Result<T, Refusal> {
        self.begin(false);
        // What it was doing is undone with the subtransaction.
        let work = AssertUnwindSafe(move || Ok(work()));
        let done = listening(|heard| {
            let heard = AssertUnwindSafe(heard);
            let answer = move |e| {
                let heard = &heard;
                Err(refusal(e, heard.get()))
            };
            PgTryBuilder::new(work).catch_others(answer).execute()
        });
        self.end(done.is_ok());
        done
    }

    /// Takes the snapshot of a refresh: what is committed now, or where the caller's transaction has one snapshot, that.
    pub(crate) fn take_snapshot(&self) {
        self.drop_snapshot();
        self.taken_at.set(self.depth());
        // SAFETY: there is a transaction; the copy is registered with it, and dropped at the latest when it ends.
        unsafe { self.snapshot.set(pg_sys::RegisterSnapshot(pg_sys::GetTransactionSnapshot())) };
    }

    /// Forgets the snapshot of a refresh.
    pub(crate) fn drop_snapshot(&self) {
        let snapshot = self.snapshot.replace(std::ptr::null_mut());
        if !snapshot.is_null() {
            // SAFETY: it was registered by `take_snapshot`, once.
            unsafe { pg_sys::UnregisterSnapshot(snapshot) };
        }
    }

    /// Runs one statement, under the snapshot of the refresh if `within` one, else under one of its own.
    pub(crate) fn run(&self, text: &str, params: &[Param<'_>], within: bool) -> Result<Rows, Refusal> {
        Ok(self.fetch(text, params, within)?.0)
    }

    /// Runs one statement; its rows, and their columns.
    fn fetch(&self, text: &str, params: &[Param<'_>], within: bool) -> Result<(Rows, Columns), Refusal> {
        let (text, values) = (c_text(text)?, Values::of(params));
        let snapshot = self.snapshot_of(within);
        self.guarded(|| Plan::once(&text, &values, |plan| plan.execute(&values, snapshot)))
    }

    /// Prepares a statement for as long as somebody has it.
    pub(crate) fn prepare(&self, text: &str, params: &[Param<'_>]) -> Result<Plan, Refusal> {
        let (text, values) = (c_text(text)?, Values::of(params));
        self.guarded(|| Plan::kept(&text, &values))
    }

    /// Runs a statement that was prepared.
    pub(crate) fn run_kept(&self, plan: &Plan, params: &[Param<'_>], within: bool) -> Result<Rows, Refusal> {
        let values = Values::of(params);
        let snapshot = self.snapshot_of(within);
        Ok(self.guarded(|| plan.execute(&values, snapshot))?.0)
    }

    fn snapshot_of(&self, within: bool) -> pg_sys::Snapshot {
        if within { self.snapshot.get() } else { std::ptr::null_mut() }
    }

    /// Runs statements without values or results.
    pub(crate) fn batch(&self, text: &str) -> Result<(), Refusal> {
        let text = c_text(text)?;
        self.guarded(move || {
            let _lending = Lending::to(text.as_ptr());
            execute(&text);
        })
    }

    /// The same as the catalog's owner, in a security-restricted operation. What has no schema in the text is
    /// the server's own, whatever the current role's search path is.
    pub(crate) fn as_keeper(&self, text: &str) -> Result<(), Refusal> {
        let text = c_text(text)?;
        let Some(keeper) = rights::keeper() else {
            return Err(Refusal::new("3F000", "schema \"pgtrickle\" does not exist"));
        };
        self.guarded(move || {
            let _acting = Acting::begin(keeper.to_u32());
            let _shut = Path::begin(SHUT);
            execute(&text);
        })
    }

    /// Names and types of the columns that a query would give.
    pub(crate) fn columns(&self, text: &str) -> Result<Columns, Refusal> {
        let text = format!("SELECT * FROM ({}) q LIMIT 0", text.trim_end().trim_end_matches(';'));
        Ok(self.fetch(&text, &[], false)?.1)
    }

    /// Fails where this process is in the middle of reading or changing a table, or triggers for what it changed are to fire.
    pub(crate) fn idle(&self, tables: &[u32]) -> Result<(), Refusal> {
        self.guarded(|| {
            for oid in tables {
                // SAFETY: a relation that is there is opened and closed; nobody drops it under the lock.
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

    /// Whether each statement of the transaction sees what was committed before it.
    pub(crate) fn is_fresh() -> bool {
        // SAFETY: the thread that reads it writes it.
        unsafe { pg_sys::XactIsoLevel < pg_sys::XACT_REPEATABLE_READ as i32 }
    }

    /// Whether the transaction ends with the statement that called.
    pub(crate) fn is_brief() -> bool {
        // SAFETY: there is a transaction.
        unsafe { !pg_sys::IsTransactionBlock() }
    }

    /// Whether this is a security-restricted operation.
    pub(crate) fn is_restricted() -> bool {
        // SAFETY: there is a transaction.
        unsafe { pg_sys::InSecurityRestrictedOperation() }
    }

    /// The number of the last command of the transaction: those after it have greater ones.
    pub(crate) fn last_command() -> u32 {
        // SAFETY: there is a transaction. To mark the number as used makes the next command take another.
        unsafe { pg_sys::GetCurrentCommandId(true) }
    }

    /// Waits, unless the process is asked for something meanwhile.
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

impl Drop for Inside {
    fn drop(&mut self) {
        // Whoever catches an error rolls back the innermost subtransaction, and means its own.
        self.unwind(0);
        if std::thread::panicking() {
            // The abort of the transaction takes everything else back.
            return;
        }
        self.drop_snapshot();
        // SAFETY: both were begun by `enter`, and nothing that was begun after them is open.
        unsafe {
            pg_sys::AtEOXact_GUC(false, self.settings);
            pg_sys::SPI_finish();
        }
    }
}

/// Runs statements without values or results.
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

/// The search path in which nobody but superusers can put anything.
pub(crate) const SHUT: &CStr = c"pg_catalog, pg_temp";

/// Sets a setting of a session until the innermost level of settings ends.
///
/// # Safety
/// There is a transaction, and a level that was begun in it.
unsafe fn set(name: &CStr, value: &CStr) {
    // SAFETY: both are texts that end; the rest is the caller's to hold.
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

/// The time in which names are looked for in other schemas.
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
            // SAFETY: it was begun by `begin`, and what was begun after it is ended.
            unsafe { pg_sys::AtEOXact_GUC(false, self.0) };
        }
    }
}

fn c_text(text: &str) -> Result<CString, Refusal> {
    CString::new(text)
        .map_err(|_| Refusal::new("22021", "a statement holds a character that no text can hold"))
}

/// What the engine is told of an error of the server's, of which something was heard. That the user cancels is no answer, nor is a
/// fault of ours. On schedule there is no user: what was cancelled, or took too long, is a refresh that failed.
fn refusal(e: CaughtError, heard: Heard) -> Refusal {
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
        // A binding refused before the server did.
        CaughtError::ErrorReport(report) => (report, None),
        panic => panic.rethrow(),
    };
    Refusal {
        sqlstate: Some(sqlstate(heard.map_or(report.sql_error_code() as i32, |h| h.code))),
        message: report.message().to_owned(),
        detail: report.detail().map(str::to_owned),
        hint: report.hint().map(str::to_owned),
        position: heard.and_then(|h| usize::try_from(h.position).ok()).filter(|at| *at > 0),
    }
}

/// The five characters of an error's code: six bits each, from the least significant.
fn sqlstate(code: i32) -> String {
    (0..5).map(|i| char::from(((code >> (6 * i)) & 0x3f) as u8 + b'0')).collect()
}

/// The time in which what is made in the script of CREATE or ALTER EXTENSION does not become the extension's.
pub(crate) struct ApartFromScript(bool);

impl ApartFromScript {
    pub(crate) fn begin() -> ApartFromScript {
        // SAFETY: it is read and written by this thread; whoever runs the script sets it anew after a failure.
        unsafe {
            let before = pg_sys::creating_extension;
            pg_sys::creating_extension = false;
            ApartFromScript(before)
        }
    }
}

impl Drop for ApartFromScript {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { pg_sys::creating_extension = self.0 };
    }
}

/// Whether the script of CREATE EXTENSION is running.
pub(crate) fn is_creating_extension() -> bool {
    // SAFETY: it is read by the thread that writes it.
    unsafe { pg_sys::creating_extension }
}
