//! The transition tables of a statement, and the reading of their rows.

use super::out::Out;
use super::segment::{Fields, Segment};
use super::{is_named, refuse};
use pgrx::pg_sys;
use pgrx::tupdesc::PgTupleDesc;
use trickle_core::cdc::CopyScript;

/// The transition tables of a statement that changed rows. A pointer is null if there is no such table, or
/// the table has no row.
pub(super) struct Changed {
    pub(super) source: pg_sys::Relation,
    old: *mut pg_sys::Tuplestorestate,
    new: *mut pg_sys::Tuplestorestate,
}

impl Changed {
    /// Whether the changed table is this one, and not a partition or child of it.
    pub(super) fn is(&self, table: u32) -> bool {
        // SAFETY: the relation is open.
        unsafe { (*self.source).rd_id.to_u32() == table }
    }

    /// Whether the columns at these indices have the names by which the script's statement reads them.
    pub(super) fn has_names(&self, says: &CopyScript, places: &[usize]) -> bool {
        // SAFETY: the relation is open as long as the description is used.
        let there = unsafe { PgTupleDesc::from_pg_unchecked((*self.source).rd_att) };
        let mut columns = says.columns.iter().zip(places);
        columns.all(|((name, _), place)| there.get(*place).is_some_and(|c| is_named(c, name)))
    }

    /// Returns the rows that a statement changed; `None` if it changed none.
    pub(super) fn of(data: &pg_sys::TriggerData) -> Option<Changed> {
        if data.tg_oldtable.is_null() && data.tg_newtable.is_null() {
            refuse("its trigger has no transition table");
        }
        let filled = |rows: *mut pg_sys::Tuplestorestate| {
            // SAFETY: the transition table belongs to the trigger call, and lives until that call returns.
            let any = !rows.is_null() && unsafe { pg_sys::tuplestore_tuple_count(rows) } > 0;
            if any { rows } else { std::ptr::null_mut() }
        };
        let (old, new) = (filled(data.tg_oldtable), filled(data.tg_newtable));
        let any = !(old.is_null() && new.is_null());
        any.then_some(Changed { source: data.tg_relation, old, new })
    }

    /// Writes −old and +new for each pair of rows, without pairs whose rows are the same.
    pub(super) fn write(&self, segment: &Segment, fields: &Fields) {
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
        // and each reader selects its own pointer before it reads.
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
