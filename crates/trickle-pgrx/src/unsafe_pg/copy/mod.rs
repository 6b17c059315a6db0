//! The language of capture triggers. A function of the language takes the rows that a statement changed, and
//! copies them to a segment. Such a function needs no executor, no plan and no rows of its own.
//!
//! The language is trusted, though it is written in C. The reason is that a function does only work that its
//! owner could do by the statements in the function's script. The function either runs these statements, or
//! writes rows directly to a table of its owner's. It writes directly only if the executor would do nothing
//! but store the rows. Functions of the language need no `SET search_path`, which would cost as much as
//! copying a row. Each table that copying looks up by name has a schema, and the statements of a script run
//! under a search path of built-in names.

mod changed;
mod children;
mod out;
mod segment;

use super::{SHUT, c_text};
use changed::Changed;
use pgrx::tupdesc::PgTupleDesc;
use pgrx::{FromDatum, PgSqlErrorCode, pg_sys};
use segment::Segment;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CStr;
use std::rc::Rc;
use trickle_core::cdc::CopyScript;
use trickle_core::sql::Ident;

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

/// Returns the type that a domain is based on, and any other type itself. Values of both types have the same
/// bytes.
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
    // SAFETY: the row belongs to the cache until it is released; after an error, the end of the transaction
    // releases it.
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
    if !says.former.is_empty() && children::is_former_partition(data, says) {
        return by_statement(data, &says.former);
    }
    if !says.temporary.is_empty() && has_temporary_tables() {
        by_statement(data, &says.temporary);
    }
    if !says.unknown.is_empty() && children::has_unknown(says) {
        by_statement(data, &says.unknown);
    }
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

/// Whether this session has made a temporary table.
fn has_temporary_tables() -> bool {
    let (mut tables, mut toasted) = (pg_sys::InvalidOid, pg_sys::InvalidOid);
    // SAFETY: the function writes two numbers, which live until it returns.
    unsafe { pg_sys::GetTempNamespaceState(&raw mut tables, &raw mut toasted) };
    tables != pg_sys::InvalidOid
}

/// Leaves a mark for a change that was not captured, with the reason. The writer's statement goes on. A
/// script of an earlier version marks the segment instead, as a TRUNCATE does.
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

/// Finds a column of a source by its name. The search begins at the index where the column was found before.
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
