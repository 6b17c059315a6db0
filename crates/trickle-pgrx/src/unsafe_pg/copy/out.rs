//! Rows on their way into a segment, in batches.

use super::segment::{Field, Fields, Segment, value};
use pgrx::{PgMemoryContexts, pg_sys};

/// The greatest number of rows in a batch.
const BATCH: usize = 500;
/// The number of bytes above which a batch is written, even if the batch has few rows.
const BATCH_BYTES: usize = 64 << 10;

/// Rows on their way into a segment.
pub(super) struct Out<'s> {
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
    /// Makes an empty batch.
    pub(super) fn to(segment: &'s Segment, fields: &'s Fields) -> Out<'s> {
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
    pub(super) unsafe fn are_same(
        &mut self,
        old: *mut pg_sys::TupleTableSlot,
        new: *mut pg_sys::TupleTableSlot,
    ) -> bool {
        let fields = self.fields;
        // SAFETY: the rows have these columns. The memory for unpacked values is freed with the batch. An
        // error of the server passes through the guard like any other error, over frames that own nothing.
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
    pub(super) unsafe fn add(&mut self, row: *mut pg_sys::TupleTableSlot, weight: i16) {
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
            // SAFETY: each of the slots holds a row; the memory that writing takes is freed together with the
            // batch.
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
    pub(super) fn flush(mut self) {
        self.write();
        for slot in &self.slots {
            // SAFETY: the slot was made by `add`, and is empty.
            unsafe { pg_sys::ExecDropSingleTupleTableSlot(*slot) };
        }
    }
}
