//! The server's C interface: the only unsafe code. Everything here is called in the one thread of a server process, within a
//! transaction, while [`Inside`] exists.

use pgrx::bgworkers::BackgroundWorker;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{FromDatum, IntoDatum, JsonB, PgSqlErrorCode, PgTryBuilder, pg_sys};
use std::cell::{Cell as Shared, RefCell};
use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trickle_engine::db::{Cell, Param, Refusal, Row, Rows};

/// The server from inside, for the time of one call of a function: its settings are as before when it is gone.
pub(crate) struct Inside {
    /// What settings were set since.
    settings: i32,
    /// The snapshot of a refresh, while there is one.
    snapshot: Shared<pg_sys::Snapshot>,
    /// Open subtransactions, innermost last, each with what was in force before it.
    open: RefCell<Vec<Before>>,
    /// How many were open when the refresh began.
    pub(crate) outside: Shared<usize>,
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
            pg_sys::NewGUCNestLevel()
        };
        Inside {
            settings,
            snapshot: Shared::new(std::ptr::null_mut()),
            open: RefCell::default(),
            outside: Shared::new(0),
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
    /// cancels it is an end, and no answer.
    fn guarded<T>(&self, work: impl FnOnce() -> T) -> Result<T, Refusal> {
        self.begin(false);
        // What it was doing is undone with the subtransaction.
        let work = AssertUnwindSafe(move || Ok(work()));
        let done = PgTryBuilder::new(work).catch_others(|e| Err(refusal(e))).execute();
        self.end(done.is_ok());
        done
    }

    /// Takes the snapshot of a refresh: what is committed now, or where the caller's transaction has one snapshot, that.
    pub(crate) fn take_snapshot(&self) {
        self.drop_snapshot();
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
        let snapshot = if within { self.snapshot.get() } else { std::ptr::null_mut() };
        let text = c_text(text)?;
        let (mut types, mut values, mut nulls) = (Vec::new(), Vec::new(), Vec::new());
        for p in params {
            let (ty, value) = datum(p);
            types.push(ty);
            nulls.push(if value.is_some() { b' ' as c_char } else { b'n' as c_char });
            values.push(value.unwrap_or(pg_sys::Datum::null()));
        }
        self.guarded(|| {
            // SAFETY: the executor is connected; the three lists have an element for each parameter and outlive the call.
            unsafe {
                let plan = pg_sys::SPI_prepare(text.as_ptr(), params.len() as i32, types.as_mut_ptr());
                if !plan.is_null() && pg_sys::list_length(pg_sys::SPI_plan_get_plan_sources(plan)) != 1 {
                    pgrx::ereport!(
                        ERROR,
                        PgSqlErrorCode::ERRCODE_SYNTAX_ERROR,
                        "cannot run several statements as one"
                    );
                }
                if plan.is_null() {
                    let why = pg_sys::SPI_result;
                    pgrx::error!("cannot prepare a statement: {why}");
                }
                let done = pg_sys::SPI_execute_snapshot(
                    plan,
                    values.as_mut_ptr(),
                    nulls.as_ptr(),
                    snapshot,
                    std::ptr::null_mut(),
                    false,
                    true,
                    0,
                );
                if done < 0 {
                    pgrx::error!("cannot run a statement: {done}");
                }
                let rows = fetched();
                pg_sys::SPI_freeplan(plan);
                rows
            }
        })
    }

    /// Runs statements without values or results.
    pub(crate) fn batch(&self, text: &str) -> Result<(), Refusal> {
        let text = c_text(text)?;
        self.guarded(move || {
            // SAFETY: the executor is connected, and the text outlives the call.
            let done = unsafe {
                let done = pg_sys::SPI_execute(text.as_ptr(), false, 0);
                pg_sys::SPI_freetuptable(pg_sys::SPI_tuptable);
                done
            };
            if done < 0 {
                pgrx::error!("cannot run a statement: {done}");
            }
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

fn c_text(text: &str) -> Result<CString, Refusal> {
    CString::new(text)
        .map_err(|_| Refusal::new("22021", "a statement holds a character that no text can hold"))
}

/// What the engine is told of an error of the server's.
fn refusal(e: CaughtError) -> Refusal {
    match e {
        CaughtError::PostgresError(ref report) | CaughtError::ErrorReport(ref report)
            if report.sql_error_code() == PgSqlErrorCode::ERRCODE_QUERY_CANCELED =>
        {
            e.rethrow()
        }
        CaughtError::PostgresError(report) | CaughtError::ErrorReport(report) => Refusal {
            sqlstate: Some(sqlstate(report.sql_error_code())),
            message: report.message().to_owned(),
            detail: report.detail().map(str::to_owned),
            hint: report.hint().map(str::to_owned),
            position: None,
        },
        panic => panic.rethrow(),
    }
}

/// The five characters of an error's code: six bits each, from the least significant.
fn sqlstate(code: PgSqlErrorCode) -> String {
    let code = code as i32;
    (0..5).map(|i| char::from(((code >> (6 * i)) & 0x3f) as u8 + b'0')).collect()
}

fn datum(param: &Param<'_>) -> (pg_sys::Oid, Option<pg_sys::Datum>) {
    match param {
        Param::Null => (pg_sys::TEXTOID, None),
        Param::Bool(v) => (pg_sys::BOOLOID, v.into_datum()),
        Param::Int2(v) => (pg_sys::INT2OID, v.into_datum()),
        Param::Int4(v) => (pg_sys::INT4OID, v.into_datum()),
        Param::Int8(v) => (pg_sys::INT8OID, v.into_datum()),
        Param::Oid(v) => (pg_sys::OIDOID, v.map(pg_sys::Oid::from).into_datum()),
        Param::Float8(v) => (pg_sys::FLOAT8OID, v.into_datum()),
        Param::Text(v) => (pg_sys::TEXTOID, v.into_datum()),
        Param::Jsonb(v) => {
            let json = v.as_deref().and_then(|text| serde_json::from_str(text).ok());
            (pg_sys::JSONBOID, json.map(JsonB).into_datum())
        }
        Param::Int8s(v) => (pg_sys::INT8ARRAYOID, v.clone().into_datum()),
        Param::Oids(v) => {
            let oids = v.as_ref().map(|all| all.iter().map(|o| pg_sys::Oid::from(*o)).collect::<Vec<_>>());
            (pg_sys::OIDARRAYOID, oids.into_datum())
        }
        Param::Texts(v) => (pg_sys::TEXTARRAYOID, v.clone().into_datum()),
    }
}

/// Names and types of columns.
type Columns = Vec<(String, u32)>;

/// The rows that the executor's last statement gave, and their columns.
///
/// # Safety
/// A statement was just run by the executor.
unsafe fn fetched() -> (Rows, Columns) {
    // SAFETY: a statement was run.
    let mut rows = Rows { rows: Vec::new(), affected: unsafe { pg_sys::SPI_processed } };
    let mut columns = Vec::new();
    // SAFETY: the table, its description and its rows are the executor's, and live until it is freed below.
    unsafe {
        let table = pg_sys::SPI_tuptable;
        if table.is_null() {
            return (rows, columns);
        }
        let desc = (*table).tupdesc;
        for i in 1..=(*desc).natts {
            columns.push((name_of(desc, i), pg_sys::SPI_gettypeid(desc, i).to_u32()));
        }
        for r in 0..rows.affected as usize {
            let tuple = *(*table).vals.add(r);
            let cells = (1..=(*desc).natts).map(|i| {
                let mut null = false;
                let value = pg_sys::SPI_getbinval(tuple, desc, i, &mut null);
                if null { Cell::Null } else { cell(value, pg_sys::SPI_gettypeid(desc, i)) }
            });
            rows.rows.push(Row::new(cells.collect()));
        }
        pg_sys::SPI_freetuptable(table);
    }
    (rows, columns)
}

/// # Safety
/// The description has a column `i`, from 1.
unsafe fn name_of(desc: pg_sys::TupleDesc, i: i32) -> String {
    // SAFETY: the executor gives a copy of the name.
    unsafe { CStr::from_ptr(pg_sys::SPI_fname(desc, i)) }.to_string_lossy().into_owned()
}

/// A value of a type.
///
/// # Safety
/// The datum is a value of that type, and not NULL.
unsafe fn cell(value: pg_sys::Datum, ty: pg_sys::Oid) -> Cell {
    // SAFETY: each is read as what its type says.
    unsafe {
        match ty {
            pg_sys::BOOLOID => Cell::Bool(value.value() != 0),
            pg_sys::INT2OID => Cell::Int2(value.value() as i16),
            pg_sys::INT4OID => Cell::Int4(value.value() as i32),
            pg_sys::INT8OID => Cell::Int8(value.value() as i64),
            pg_sys::OIDOID => Cell::Oid(value.value() as u32),
            pg_sys::FLOAT4OID => f32::from_datum(value, false).map_or(Cell::Null, |x| Cell::Float8(x.into())),
            pg_sys::FLOAT8OID => f64::from_datum(value, false).map_or(Cell::Null, Cell::Float8),
            pg_sys::JSONOID | pg_sys::JSONBOID => Cell::Json(printed(value, ty)),
            _ => match pg_sys::get_element_type(ty) {
                pg_sys::InvalidOid => Cell::Text(printed(value, ty)),
                element => Cell::Array(elements(value, element)),
            },
        }
    }
}

/// # Safety
/// The datum is an array of that element type.
unsafe fn elements(value: pg_sys::Datum, element: pg_sys::Oid) -> Vec<Cell> {
    let (mut length, mut by_value, mut align) = (0i16, false, 0 as c_char);
    let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0i32);
    // SAFETY: the server fills all of these for the array, which it copies where it is packed.
    unsafe {
        pg_sys::get_typlenbyvalalign(element, &mut length, &mut by_value, &mut align);
        let array = pg_sys::pg_detoast_datum(value.cast_mut_ptr()).cast::<pg_sys::ArrayType>();
        pg_sys::deconstruct_array(
            array,
            element,
            i32::from(length),
            by_value,
            align,
            &mut values,
            &mut nulls,
            &mut count,
        );
        (0..count as usize)
            .map(|i| if *nulls.add(i) { Cell::Null } else { cell(*values.add(i), element) })
            .collect()
    }
}

/// A value as the server writes it.
///
/// # Safety
/// The datum is a value of that type, and not NULL.
unsafe fn printed(value: pg_sys::Datum, ty: pg_sys::Oid) -> String {
    let (mut output, mut packed) = (pg_sys::InvalidOid, false);
    // SAFETY: every type has an output function, whose result is a C string.
    unsafe {
        pg_sys::getTypeOutputInfo(ty, &mut output, &mut packed);
        CStr::from_ptr(pg_sys::OidOutputFunctionCall(output, value)).to_string_lossy().into_owned()
    }
}

/// Whether the script of CREATE EXTENSION is running.
pub(crate) fn is_creating_extension() -> bool {
    // SAFETY: it is read by the thread that writes it.
    unsafe { pg_sys::creating_extension }
}

/// Whether the server is loading the libraries that all its processes have, for its ordinary work.
pub(crate) fn is_preloading() -> bool {
    // SAFETY: they are read by the thread that writes them. While pg_upgrade is at work nothing is to be refreshed.
    let preloading =
        unsafe { pg_sys::process_shared_preload_libraries_in_progress && !pg_sys::IsBinaryUpgrade };
    PRELOADED.store(preloading, Ordering::Relaxed);
    preloading
}

/// Whether the library is one that all processes of the server have.
pub(crate) fn is_preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// Inherited by each process from the one that loaded the library.
static PRELOADED: AtomicBool = AtomicBool::new(false);

unsafe extern "C-unwind" {
    /// The server's own handler of SIGTERM in a process that has a database.
    fn die(signal: i32);
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
    /// From now on, until it is dropped or the transaction fails.
    pub(crate) fn begin(role: u32) -> Acting {
        let mut before = Acting { role: pg_sys::InvalidOid, context: 0 };
        // SAFETY: there is a transaction.
        unsafe {
            pg_sys::GetUserIdAndSecContext(&mut before.role, &mut before.context);
            let context = before.context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32;
            pg_sys::SetUserIdAndSecContext(pg_sys::Oid::from(role), context);
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

/// A process of the server's own, which refreshes on schedule.
pub(crate) struct Scheduled;

impl Scheduled {
    /// Connects to a database, or to none. Settings that are meant for clients are not those of the server or the database; who asks
    /// for a refresher finds it by its name.
    pub(crate) fn begin(database: Option<pg_sys::Oid>) {
        BackgroundWorker::connect_worker_to_spi_by_oid(database, None);
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
                (c"lock_timeout", c"0"),
                // Whoever owns the database may have set another for it, and names and operators of their own there.
                (c"search_path", c"pg_catalog, pg_temp"),
                #[cfg(any(feature = "pg17", feature = "pg18"))]
                (c"transaction_timeout", c"0"),
            ] {
                let context = pg_sys::GucContext::PGC_SUSET;
                let source = pg_sys::GucSource::PGC_S_OVERRIDE;
                pg_sys::SetConfigOption(name.as_ptr(), value.as_ptr(), context, source);
            }
            let name = CString::new(trickle_engine::REFRESHER).unwrap_or_default();
            if database.is_some() {
                let context = pg_sys::GucContext::PGC_USERSET;
                let source = pg_sys::GucSource::PGC_S_SESSION;
                pg_sys::SetConfigOption(c"application_name".as_ptr(), name.as_ptr(), context, source);
            }
        }
    }

    /// Has the schedulers of databases ended that are dropped.
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

    /// Reads the server's configuration again.
    pub(crate) fn reload() {
        // SAFETY: the process is between transactions.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
    }

    /// Does nothing for a while, unless it is told something. Before that the server is told what was read and written, by which
    /// it decides what to vacuum and to analyse.
    pub(crate) fn rest(time: Duration) {
        // SAFETY: the process is between transactions.
        unsafe { pg_sys::pgstat_report_stat(true) };
        Inside::pause(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    }
}
