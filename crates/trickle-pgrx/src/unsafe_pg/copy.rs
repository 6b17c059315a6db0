//! The language of capture triggers. Its functions copy the rows that a statement changed into a segment,
//! without an executor, a plan or rows of their own.
//!
//! The language is trusted, though it is written in C. The reason is that a function does only work that its
//! owner could do by the statements in the function's script. The function runs these statements. Or it
//! writes rows directly to a table of its owner's, if the executor would do nothing but store them. Functions
//! of the language need no `SET search_path`, which would cost as much as copying a row. Each table that
//! copying looks up by name has a schema, and the statements of a script run under a search path of built-in
//! names.

use super::{SHUT, c_text};
use pgrx::tupdesc::PgTupleDesc;
use pgrx::{FromDatum, PgMemoryContexts, PgSqlErrorCode, pg_sys};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::rc::Rc;
use trickle_core::cdc::CopyScript;
use trickle_core::sql::Ident;

/// The greatest number of rows in a batch.
const BATCH: usize = 500;
/// The number of bytes above which a batch is written, even if the batch has few rows.
const BATCH_BYTES: usize = 64 << 10;

/// The number of scripts that a process remembers. A process that has this number of scripts forgets all of
/// them.
const MOST: usize = 1000;

thread_local! {
    static SCRIPTS: RefCell<HashMap<u32, CachedScript>> = RefCell::default();
}

/// A function's script, valid until the function is replaced. The transaction that wrote the function's
/// `pg_proc` row, and the place of that row, identify the version of the function.
struct CachedScript {
    written: (pg_sys::TransactionId, pg_sys::ItemPointerData),
    script: Rc<Script>,
}

struct Script {
    says: CopyScript,
    /// The index, from 0, at which each of the script's columns was last found in a changed table. The next
    /// search begins there, since the column mostly has the same index again.
    places: RefCell<Vec<usize>>,
}

impl Script {
    /// Returns the index of each of the script's columns in the changed table, from 0. The changed table is
    /// the source, or a partition or child of the source, whose columns have the same names in any order.
    /// Returns `None` if a column was dropped or has another type. A script of an earlier version has no
    /// types, so the types of the segment's columns count.
    fn places(&self, changed: &Changed, segment: &Segment) -> Option<Vec<usize>> {
        let says = &self.says;
        // SAFETY: both relations are open as long as the descriptions are used.
        let (here, there) = unsafe {
            (
                PgTupleDesc::from_pg_unchecked((*segment.0).rd_att),
                PgTupleDesc::from_pg_unchecked((*changed.source).rd_att),
            )
        };
        let mut known = self.places.borrow_mut();
        let mut places = Vec::with_capacity(known.len());
        for (i, (name, _)) in says.columns.iter().enumerate() {
            let place = known.get_mut(i)?;
            let (found, wanted) = match says.attributes.get(i) {
                Some((number, wanted)) if changed.is(says.source) => {
                    *place = usize::try_from(*number - 1).ok()?;
                    (there.get(*place).filter(|c| !c.attisdropped)?, *wanted)
                }
                Some((number, wanted)) => (find(&there, &name_now(says.source, *number)?, place)?, *wanted),
                None => (find(&there, name, place)?, here.get(i + 2)?.atttypid.to_u32()),
            };
            if found.atttypid.to_u32() != wanted {
                return None;
            }
            places.push(*place);
        }
        Some(places)
    }
}

/// Returns the name of a table's column at this moment.
fn name_now(table: u32, number: i16) -> Option<String> {
    // SAFETY: a column that does not exist gives null; a name that is found belongs to this caller.
    unsafe {
        let name = pg_sys::get_attname(pg_sys::Oid::from(table), number, true);
        (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
    }
}

/// Returns the type that a domain is based on, and any other type itself. Values of both are the same bytes.
fn base(ty: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: an existing column has this type.
    unsafe { pg_sys::getBaseType(ty) }
}

unsafe extern "C-unwind" {
    /// Whether two values, neither of them NULL, are the same byte by byte once they are unpacked.
    fn datum_image_eq(a: pg_sys::Datum, b: pg_sys::Datum, by_value: bool, length: i32) -> bool;
}

/// Tells the server to call [`trickle_copy`] by version 1 of its calling convention.
#[unsafe(no_mangle)]
#[doc(hidden)]
pub(crate) extern "C" fn pg_finfo_trickle_copy() -> &'static pg_sys::Pg_finfo_record {
    &pg_sys::Pg_finfo_record { api_version: 1 }
}

/// Runs a function of the language.
///
/// # Safety
/// Only the server may call it.
#[unsafe(no_mangle)]
#[pgrx::pg_guard]
pub(crate) unsafe extern "C-unwind" fn trickle_copy(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the server says what the function is called for.
    let (data, function) = unsafe {
        let context = (*call).context;
        if context.is_null() || (*context).type_ != pg_sys::NodeTag::T_TriggerData {
            refuse("it is no trigger");
        }
        (&mut *context.cast::<pg_sys::TriggerData>(), (*(*call).flinfo).fn_oid)
    };
    let script = script(function);
    if data.tg_event & (pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_TIMINGMASK)
        != pg_sys::TRIGGER_EVENT_AFTER
    {
        refuse("its trigger is not AFTER … FOR EACH STATEMENT");
    }
    copy(data, &script);
    // The server ignores the return value of a trigger for statements.
    pg_sys::Datum::null()
}

fn refuse(why: &str) -> ! {
    pgrx::ereport!(
        ERROR,
        PgSqlErrorCode::ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
        "cannot copy what was changed",
        why
    );
}

/// Returns the script of a function.
fn script(function: pg_sys::Oid) -> Rc<Script> {
    use pg_sys::SysCacheIdentifier::PROCOID;
    // SAFETY: the row is the cache's until it is released; an error in between releases it with the
    // transaction.
    unsafe {
        let row = pg_sys::SearchSysCache1(PROCOID as i32, function.into());
        if row.is_null() {
            refuse("the function is gone");
        }
        let written = ((*(*row).t_data).t_choice.t_heap.t_xmin, (*row).t_self);
        let known = SCRIPTS.with_borrow(|known| {
            let same = |k: &&CachedScript| k.written.0 == written.0 && same_place(&k.written.1, &written.1);
            known.get(&function.to_u32()).filter(same).map(|k| k.script.clone())
        });
        let script = known.unwrap_or_else(|| {
            let mut null = false;
            let source =
                pg_sys::SysCacheGetAttr(PROCOID as i32, row, pg_sys::Anum_pg_proc_prosrc as i16, &mut null);
            let text = String::from_datum(source, null).unwrap_or_default();
            match serde_json::from_str::<CopyScript>(&text) {
                Ok(script) => remember(function, written, script),
                Err(e) => refuse(&format!("the function is not one of pg_trickle's: {e}")),
            }
        });
        pg_sys::ReleaseSysCache(row);
        script
    }
}

fn same_place(a: &pg_sys::ItemPointerData, b: &pg_sys::ItemPointerData) -> bool {
    (a.ip_blkid.bi_hi, a.ip_blkid.bi_lo, a.ip_posid) == (b.ip_blkid.bi_hi, b.ip_blkid.bi_lo, b.ip_posid)
}

fn remember(
    function: pg_sys::Oid,
    written: (pg_sys::TransactionId, pg_sys::ItemPointerData),
    says: CopyScript,
) -> Rc<Script> {
    let places = RefCell::new(vec![0; says.columns.len()]);
    let script = Rc::new(Script { says, places });
    SCRIPTS.with_borrow_mut(|known| {
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(function.to_u32(), CachedScript { written, script: script.clone() });
    });
    script
}

/// Copies the rows that a statement changed. If a column has another type than the script was made for, no
/// row is read, and the change is marked. A statement that copied the rows would use casts from the new type,
/// which the source's owner may have made since.
fn copy(data: &mut pg_sys::TriggerData, script: &Script) {
    let says = &script.says;
    let Some(changed) = Changed::of(data) else { return };
    let Some(segment) = Segment::open(says) else { return mark_unfit(data, says) };
    if segment.bytes() >= says.limit {
        drop(segment);
        return by_statement(data, &says.mark);
    }
    let Some(places) = script.places(&changed, &segment) else {
        drop(segment);
        return mark_unfit(data, says);
    };
    let Some(fields) = segment.fields(script, &changed, &places) else {
        drop(segment);
        let named = says.source == 0 || changed.has_names(says, &places);
        return if named { by_statement(data, &says.copy) } else { mark_unfit(data, says) };
    };
    next_command();
    changed.write(&segment, &fields);
    next_command();
}

/// Marks a change that was not captured, with the reason, so that the writer's statement goes on. A script of
/// an earlier version marks the segment instead, as a TRUNCATE does.
fn mark_unfit(data: &mut pg_sys::TriggerData, says: &CopyScript) {
    if says.unfit.is_empty() {
        let (schema, name) = (Ident::new(&says.segment.0), Ident::new(&says.segment.1));
        by_statement(data, &format!("INSERT INTO {schema}.{name} (w) VALUES (0)"));
    } else {
        by_statement(data, &says.unfit);
    }
}

/// Begins the next command, as the executor does. The copied rows belong to a command after the one that
/// changed the source, and the next reader sees them.
fn next_command() {
    // SAFETY: there is a transaction.
    unsafe { pg_sys::CommandCounterIncrement() };
}

/// Runs a statement that reads the transition tables by their names. All other names that it finds are
/// built-in.
fn by_statement(data: &mut pg_sys::TriggerData, text: &str) {
    let Ok(text) = c_text(text) else { refuse("its statement holds a character that no text can hold") };
    // SAFETY: a trigger is being called, so there are a transaction and a memory context. The connection and
    // the level of settings that begin here end here, or by the abort of the transaction.
    unsafe {
        let settings = pg_sys::NewGUCNestLevel();
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            SHUT.as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        let connected = pg_sys::SPI_connect();
        let registered = pg_sys::SPI_register_trigger_data(data);
        if connected < 0 || registered < 0 {
            pgrx::error!("cannot connect to the server's executor: {connected}, {registered}");
        }
        let done = pg_sys::SPI_execute(text.as_ptr(), false, 0);
        if done < 0 {
            pgrx::error!("cannot run a statement: {done}");
        }
        pg_sys::SPI_finish();
        pg_sys::AtEOXact_GUC(true, settings);
    }
}

/// The transition tables of a statement that changed rows. A pointer is null if there is no such table, or no
/// row in it.
struct Changed {
    source: pg_sys::Relation,
    old: *mut pg_sys::Tuplestorestate,
    new: *mut pg_sys::Tuplestorestate,
}

impl Changed {
    /// Whether the changed table is this one, and not a partition or child of it.
    fn is(&self, table: u32) -> bool {
        // SAFETY: the relation is open.
        unsafe { (*self.source).rd_id.to_u32() == table }
    }

    /// Whether the columns at these indices have the names by which the script's statement reads them.
    fn has_names(&self, says: &CopyScript, places: &[usize]) -> bool {
        // SAFETY: the relation is open as long as the description is used.
        let there = unsafe { PgTupleDesc::from_pg_unchecked((*self.source).rd_att) };
        let mut columns = says.columns.iter().zip(places);
        columns.all(|((name, _), place)| there.get(*place).is_some_and(|c| is_named(c, name)))
    }

    fn of(data: &pg_sys::TriggerData) -> Option<Changed> {
        if data.tg_oldtable.is_null() && data.tg_newtable.is_null() {
            refuse("its trigger has no transition table");
        }
        let filled = |rows: *mut pg_sys::Tuplestorestate| {
            // SAFETY: the transition table belongs to the trigger call, and lives until that returns.
            let any = !rows.is_null() && unsafe { pg_sys::tuplestore_tuple_count(rows) } > 0;
            if any { rows } else { std::ptr::null_mut() }
        };
        let (old, new) = (filled(data.tg_oldtable), filled(data.tg_newtable));
        let any = !(old.is_null() && new.is_null());
        any.then_some(Changed { source: data.tg_relation, old, new })
    }

    /// Writes −old and +new for each pair of rows, without pairs whose rows are the same.
    fn write(&self, segment: &Segment, fields: &Fields) {
        let mut out = Out::to(segment, fields);
        let (mut olds, mut news) = (Rows::of(self.old, self.source), Rows::of(self.new, self.source));
        loop {
            let (old, new) = (olds.next(), news.next());
            if old.is_none() && new.is_none() {
                break;
            }
            // SAFETY: both slots hold a row of the source, whose columns the fields name.
            unsafe {
                if let (Some(old), Some(new)) = (old, new)
                    && out.are_same(old, new)
                {
                    continue;
                }
                for (row, weight) in [(old, -1), (new, 1)] {
                    if let Some(row) = row {
                        out.add(row, weight);
                    }
                }
            }
        }
        out.flush();
        olds.end();
        news.end();
    }
}

/// A reader of a transition table. The table is null when the reader is at its end.
struct Rows {
    table: *mut pg_sys::Tuplestorestate,
    slot: *mut pg_sys::TupleTableSlot,
}

impl Rows {
    fn of(table: *mut pg_sys::Tuplestorestate, source: pg_sys::Relation) -> Rows {
        // SAFETY: the source is open. A new read pointer leaves the pointers of other readers where they are,
        // and each reader selects its own first.
        unsafe {
            if !table.is_null() {
                let pointer = pg_sys::tuplestore_alloc_read_pointer(table, pg_sys::EXEC_FLAG_REWIND as i32);
                pg_sys::tuplestore_select_read_pointer(table, pointer);
                pg_sys::tuplestore_rescan(table);
            }
            let ops = &raw const pg_sys::TTSOpsMinimalTuple;
            Rows { table, slot: pg_sys::MakeSingleTupleTableSlot((*source).rd_att, ops) }
        }
    }

    /// Returns the next row, which is valid until the one after it is requested.
    fn next(&mut self) -> Option<*mut pg_sys::TupleTableSlot> {
        // SAFETY: the slot is for rows of this kind.
        let any = !self.table.is_null()
            && unsafe { pg_sys::tuplestore_gettupleslot(self.table, true, false, self.slot) };
        if !any {
            self.table = std::ptr::null_mut();
        }
        any.then_some(self.slot)
    }

    fn end(self) {
        // SAFETY: the slot was made by `of`, and nobody else has it.
        unsafe { pg_sys::ExecDropSingleTupleTableSlot(self.slot) };
    }
}

/// The table that the rows are written to, locked until the transaction ends.
struct Segment(pg_sys::Relation);

/// The values of a segment's columns.
struct Fields {
    all: Vec<Field>,
    /// The captured columns of the source, which are compared; `last` is the number of the last of them, from
    /// 1.
    compared: Vec<Compared>,
    last: i32,
}

#[derive(Clone, Copy)]
enum Field {
    Transaction,
    Weight,
    /// A column of the source, from 0.
    Source(usize),
}

struct Compared {
    column: usize,
    by_value: bool,
    length: i32,
}

impl Segment {
    /// Opens the segment; `None` if there is no such table.
    fn open(script: &CopyScript) -> Option<Segment> {
        let (schema, name) = (c_text(&script.segment.0).ok()?, c_text(&script.segment.1).ok()?);
        let lock = pg_sys::RowExclusiveLock as pg_sys::LOCKMODE;
        // SAFETY: the texts outlive the range variable that names them; a locked relation stays.
        unsafe {
            let range = pg_sys::makeRangeVar(schema.as_ptr().cast_mut(), name.as_ptr().cast_mut(), -1);
            let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
            let oid = pg_sys::RangeVarGetRelidExtended(range, lock, missing_ok, None, std::ptr::null_mut());
            pg_sys::pfree(range.cast());
            if oid == pg_sys::InvalidOid {
                return None;
            }
            let relation = pg_sys::try_relation_open(oid, pg_sys::NoLock as pg_sys::LOCKMODE);
            (!relation.is_null()).then_some(Segment(relation))
        }
    }

    fn class(&self) -> &pg_sys::FormData_pg_class {
        // SAFETY: the relation is open.
        unsafe { &*(*self.0).rd_rel }
    }

    /// Returns the size of the segment's rows, in bytes; 0 for a relation that has no rows of its own.
    fn bytes(&self) -> i64 {
        if self.class().relkind as u8 != pg_sys::RELKIND_RELATION {
            return 0;
        }
        // SAFETY: the relation is open, and has storage.
        let blocks =
            unsafe { pg_sys::RelationGetNumberOfBlocksInFork(self.0, pg_sys::ForkNumber::MAIN_FORKNUM) };
        i64::from(blocks) * i64::from(pg_sys::BLCKSZ)
    }

    /// Whether a row can be stored directly, because the executor would do nothing but store it.
    fn is_bare(&self) -> bool {
        let class = self.class();
        // SAFETY: the current role is always known.
        let owner = class.relowner == unsafe { pg_sys::GetUserId() };
        owner
            && class.relkind as u8 == pg_sys::RELKIND_RELATION
            && class.relam == pg_sys::HEAP_TABLE_AM_OID
            && class.relchecks == 0
            && !(class.relhasindex || class.relhastriggers || class.relhasrules)
            && !(class.relrowsecurity || class.relispartition || class.relhassubclass)
    }

    /// Returns how the segment is filled from a source; `None` if a row cannot be copied directly. A
    /// segment's columns are the transaction, the weight, and the script's columns in its order, until
    /// somebody alters the segment.
    fn fields(&self, script: &Script, changed: &Changed, places: &[usize]) -> Option<Fields> {
        if !self.is_bare() {
            return None;
        }
        // SAFETY: both relations are open as long as the descriptions are used.
        let (here, there) = unsafe {
            (
                PgTupleDesc::from_pg_unchecked((*self.0).rd_att),
                PgTupleDesc::from_pg_unchecked((*changed.source).rd_att),
            )
        };
        let mut columns = script.says.columns.iter().zip(places);
        let mut fields = Fields { all: Vec::with_capacity(here.len()), compared: Vec::new(), last: 0 };
        for (i, column) in here.iter().enumerate() {
            if column.attgenerated != 0 || column.attidentity != 0 {
                return None;
            }
            fields.all.push(match i {
                0 if is_named(column, "xid") && column.atttypid == pg_sys::XID8OID => Field::Transaction,
                1 if is_named(column, "w") && column.atttypid == pg_sys::INT2OID => Field::Weight,
                0 | 1 => return None,
                _ => {
                    let ((_, name), place) = columns.next()?;
                    let from = there.get(*place)?;
                    let same = base(from.atttypid) == column.atttypid && is_named(column, name);
                    if !same || from.attgenerated as u8 == b'v' || column.attnotnull {
                        return None;
                    }
                    let (by_value, length) = (from.attbyval, i32::from(from.attlen));
                    fields.compared.push(Compared { column: *place, by_value, length });
                    fields.last = fields.last.max(i32::from(from.attnum));
                    Field::Source(*place)
                }
            });
        }
        columns.next().is_none().then_some(fields)
    }
}

/// Finds a column of a source by its name, and first at the index where it was before.
fn find<'d>(
    source: &'d PgTupleDesc<'_>,
    name: &str,
    place: &mut usize,
) -> Option<&'d pg_sys::FormData_pg_attribute> {
    let known = source.get(*place).filter(|c| is_named(c, name));
    known.or_else(|| {
        *place = source.iter().position(|c| is_named(c, name))?;
        source.get(*place)
    })
}

/// Whether a column has this name; a dropped column has none.
fn is_named(column: &pg_sys::FormData_pg_attribute, name: &str) -> bool {
    // SAFETY: a name ends with a zero byte.
    let found = unsafe { CStr::from_ptr(column.attname.data.as_ptr()) };
    !column.attisdropped && found.to_bytes() == name.as_bytes()
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the relation was opened by `open`; the lock stays until the transaction ends.
            unsafe { pg_sys::relation_close(self.0, pg_sys::NoLock as pg_sys::LOCKMODE) };
        }
    }
}

/// Rows on their way into a segment.
struct Out<'s> {
    segment: &'s Segment,
    fields: &'s Fields,
    transaction: u64,
    command: pg_sys::CommandId,
    /// The memory for the rows of a batch.
    memory: PgMemoryContexts,
    /// Slots for rows: as many as the largest batch had.
    slots: Vec<*mut pg_sys::TupleTableSlot>,
    rows: usize,
    bytes: usize,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
}

impl<'s> Out<'s> {
    fn to(segment: &'s Segment, fields: &'s Fields) -> Out<'s> {
        let width = fields.all.len();
        Out {
            segment,
            fields,
            // SAFETY: there is a transaction that writes.
            transaction: unsafe { pg_sys::GetTopFullTransactionId() }.value,
            // SAFETY: there is a transaction that writes.
            command: unsafe { pg_sys::GetCurrentCommandId(true) },
            memory: PgMemoryContexts::new("rows of a change buffer"),
            slots: Vec::new(),
            rows: 0,
            bytes: 0,
            values: vec![pg_sys::Datum::null(); width],
            nulls: vec![true; width],
        }
    }

    /// Whether two rows have the same image in every captured column.
    ///
    /// # Safety
    /// Both slots must hold a row of the source.
    unsafe fn are_same(
        &mut self,
        old: *mut pg_sys::TupleTableSlot,
        new: *mut pg_sys::TupleTableSlot,
    ) -> bool {
        let fields = self.fields;
        // SAFETY: the rows have these columns. The memory for unpacked values is freed with the batch. An
        // error of the server's goes on from the guard like any other, over frames that hold nothing.
        unsafe {
            self.memory.switch_to(|_| {
                fields.unpack(old);
                fields.unpack(new);
                pg_sys::ffi::pg_guard_ffi_boundary(|| fields.are_same(old, new))
            })
        }
    }

    /// Adds a row to the batch, and writes the batch if it is full.
    ///
    /// # Safety
    /// The slot must hold a row of the source.
    unsafe fn add(&mut self, row: *mut pg_sys::TupleTableSlot, weight: i16) {
        // SAFETY: there are as many values as the segment has columns; the slots are for its rows.
        unsafe {
            self.fields.unpack(row);
            for (i, field) in self.fields.all.iter().enumerate() {
                (self.values[i], self.nulls[i]) = match *field {
                    Field::Transaction => (pg_sys::Datum::from(self.transaction), false),
                    Field::Weight => (pg_sys::Datum::from(weight), false),
                    Field::Source(column) => value(row, column),
                };
            }
            if self.rows == self.slots.len() {
                let ops = &raw const pg_sys::TTSOpsHeapTuple;
                self.slots.push(pg_sys::MakeSingleTupleTableSlot((*self.segment.0).rd_att, ops));
            }
            let (slot, values, nulls) =
                (self.slots[self.rows], self.values.as_mut_ptr(), self.nulls.as_mut_ptr());
            let description = (*self.segment.0).rd_att;
            self.bytes += self.memory.switch_to(|_| {
                let tuple = pg_sys::heap_form_tuple(description, values, nulls);
                pg_sys::ExecStoreHeapTuple(tuple, slot, false);
                (*tuple).t_len as usize
            });
        }
        self.rows += 1;
        if self.rows == BATCH || self.bytes > BATCH_BYTES {
            self.write();
        }
    }

    /// Writes the rows of the batch.
    fn write(&mut self) {
        let (slots, rows, command) = (self.slots.as_mut_ptr(), self.rows, self.command);
        let segment = self.segment.0;
        if rows > 0 {
            // SAFETY: each of the slots holds a row; the memory for writing them is freed with them.
            unsafe {
                self.memory.switch_to(|_| {
                    pg_sys::heap_multi_insert(segment, slots, rows as i32, command, 0, std::ptr::null_mut());
                });
                for slot in &self.slots[..rows] {
                    pg_sys::ExecClearTuple(*slot);
                }
            }
        }
        // SAFETY: no slot refers to a row in this memory any more.
        unsafe { self.memory.reset() };
        (self.rows, self.bytes) = (0, 0);
        pgrx::check_for_interrupts!();
    }

    /// Writes the last batch, and frees the slots.
    fn flush(mut self) {
        self.write();
        for slot in &self.slots {
            // SAFETY: the slot was made by `add`, and is empty.
            unsafe { pg_sys::ExecDropSingleTupleTableSlot(*slot) };
        }
    }
}

impl Fields {
    /// Unpacks the values of a row that are to be read.
    ///
    /// # Safety
    /// The slot must hold a row of the source.
    unsafe fn unpack(&self, row: *mut pg_sys::TupleTableSlot) {
        // SAFETY: the row has that many columns.
        unsafe {
            if i32::from((*row).tts_nvalid) < self.last {
                pg_sys::slot_getsomeattrs_int(row, self.last);
            }
        }
    }
}

impl Fields {
    /// Whether two rows have the same image in every captured column.
    ///
    /// # Safety
    /// Both rows must have been unpacked; called within a guard.
    unsafe fn are_same(&self, old: *mut pg_sys::TupleTableSlot, new: *mut pg_sys::TupleTableSlot) -> bool {
        self.compared.iter().all(|c| {
            // SAFETY: the rows have these columns.
            unsafe {
                let ((a, no_a), (b, no_b)) = (value(old, c.column), value(new, c.column));
                no_a == no_b && (no_a || datum_image_eq(a, b, c.by_value, c.length))
            }
        })
    }
}

/// Returns a value of a row, and whether it is NULL.
///
/// # Safety
/// The row must have been unpacked up to this column.
unsafe fn value(row: *mut pg_sys::TupleTableSlot, column: usize) -> (pg_sys::Datum, bool) {
    // SAFETY: there are as many values as were unpacked.
    unsafe { (*(*row).tts_values.add(column), *(*row).tts_isnull.add(column)) }
}
