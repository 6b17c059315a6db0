//! The segment that rows are written to, and the values of its columns.

use super::changed::Changed;
use super::{Script, base, datum_image_eq, is_named};
use crate::unsafe_pg::c_text;
use pgrx::pg_sys;
use pgrx::tupdesc::PgTupleDesc;
use trickle_core::cdc::CopyScript;

/// The table that the rows are written to, locked until the transaction ends.
pub(super) struct Segment(pub(super) pg_sys::Relation);

/// The values of a segment's columns.
pub(super) struct Fields {
    pub(super) all: Vec<Field>,
    /// The captured columns of the source, whose values are compared. `last` is the number of the last of
    /// these columns, counted from 1.
    compared: Vec<Compared>,
    last: i32,
}

/// The value of a column of the segment.
#[derive(Clone, Copy)]
pub(super) enum Field {
    Transaction,
    Weight,
    /// A column of the source, counted from 0.
    Source(usize),
}

/// A captured column of the source, counted from 0, with the form of its values.
struct Compared {
    column: usize,
    by_value: bool,
    length: i32,
}

impl Segment {
    /// Opens the segment; `None` if there is no such table.
    pub(super) fn open(script: &CopyScript) -> Option<Segment> {
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
    pub(super) fn bytes(&self) -> i64 {
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

    /// Returns the values of the segment's columns for a row of a source; `None` if a row cannot be copied
    /// directly. Unless somebody has altered a segment, its columns are the transaction, the weight, and the
    /// script's columns in the order of the script.
    pub(super) fn fields(&self, script: &Script, changed: &Changed, places: &[usize]) -> Option<Fields> {
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

impl Drop for Segment {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the relation was opened by `open`; the lock stays until the transaction ends.
            unsafe { pg_sys::relation_close(self.0, pg_sys::NoLock as pg_sys::LOCKMODE) };
        }
    }
}

impl Fields {
    /// Unpacks those values of a row that are to be read.
    ///
    /// # Safety
    /// The slot must hold a row of the source.
    pub(super) unsafe fn unpack(&self, row: *mut pg_sys::TupleTableSlot) {
        // SAFETY: the row has that many columns.
        unsafe {
            if i32::from((*row).tts_nvalid) < self.last {
                pg_sys::slot_getsomeattrs_int(row, self.last);
            }
        }
    }

    /// Whether two rows have the same image in every captured column.
    ///
    /// # Safety
    /// Both rows must have been unpacked; called within a guard.
    pub(super) unsafe fn are_same(
        &self,
        old: *mut pg_sys::TupleTableSlot,
        new: *mut pg_sys::TupleTableSlot,
    ) -> bool {
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
pub(super) unsafe fn value(row: *mut pg_sys::TupleTableSlot, column: usize) -> (pg_sys::Datum, bool) {
    // SAFETY: there are as many values as were unpacked.
    unsafe { (*(*row).tts_values.add(column), *(*row).tts_isnull.add(column)) }
}
