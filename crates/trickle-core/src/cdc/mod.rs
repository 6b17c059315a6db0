//! Change capture: the triggers by which a source writes its changes into a buffer that refreshes read.
//!
//! A buffer is a bag of weighted row images. An insert writes the new row with weight +1, a delete writes the
//! old row with weight −1, and an update writes both. Order does not matter, since weights add up, so a
//! buffer has no sequence, no key and no index. Rows lie in *segments* (tables) behind one view:
//!
//! | object | name |
//! |---|---|
//! | segment | `changes_<oid>_<n>`: `xid` (the writing transaction), `w`, then the referenced columns |
//! | view | `changes_<oid>`: `xid`, `w`, `cmin`, then the referenced columns |
//! | trigger function | `capture_<oid>_<generation>_<event>` |
//! | trigger on the source and its partitions | `trickle_capture_<oid>_<event>` |
//!
//! A row with `w = 0` means that the table was truncated or that the buffer is full. In both cases the
//! readers are recomputed.
//!
//! The modes differ only in the actions of their triggers ([`ChangeSource::writers`]). Objects are made and
//! dropped in the same way in all modes. Adding a mode takes one file, and one line in [`Mode::source`].

mod buffer;
pub(crate) mod children;
mod copy;
pub(crate) mod fit;
mod limit;
mod row;
#[cfg(test)]
mod tests;
mod trigger;

pub(crate) use buffer::xid8;
pub use buffer::{Buffer, Children, Segment};
pub use children::UNKNOWN_CHILDREN;
pub use copy::CopyScript;
pub(crate) use limit::DEFAULT_LIMIT;
pub use limit::OVERFLOWED;
pub(crate) use trigger::changed_rows;

use crate::sql::ast::{
    CreateTrigger, CreateTriggerFunction, Delete, DropObject, EnableAlways, Insert, ObjectKind, Query,
    Scalar, SelectItem, SetExpr, Statement, TriggerEvent, TriggerTiming, pinned_path,
};
use crate::sql::{Ident, Qualified};
use crate::types::{Datum, Type};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The mode of capture, which the setting `cdc_trigger_mode` selects. All modes write the same changes into
/// the same buffer, except for pairs of rows that cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Statement triggers with transition tables, which take 1 to 2 µs a row.
    #[default]
    Statement,
    /// Row triggers, which take several times as long and check the buffer's size for each row. Row triggers
    /// also fire where a subscription applies changes.
    Row,
    /// Statement triggers that the extension runs in C ([`CopyScript`]), in a database that has the
    /// extension.
    Copy,
}

crate::vocabulary::words! {
    impl Mode: "mode of capture" {
        Statement = "STATEMENT",
        Row = "ROW",
        Copy = "COPY",
    }
}

impl Mode {
    /// The modes that work on any server, without the extension.
    pub const PLAIN: [Mode; 2] = [Mode::Statement, Mode::Row];

    /// Returns the implementation of the mode.
    pub fn source(self) -> &'static dyn ChangeSource {
        match self {
            Mode::Statement => &trigger::StatementTriggers,
            Mode::Row => &row::RowTriggers,
            Mode::Copy => &copy::CopyTriggers,
        }
    }
}

/// The actions of the trigger for one event.
#[derive(Clone, Debug, PartialEq)]
pub struct Writer {
    /// The event.
    pub(crate) event: TriggerEvent,
    /// The transition table with old rows, or the old row, if the body reads one.
    pub(crate) old: Option<Ident>,
    /// The transition table with new rows, or the new row, if the body reads one.
    pub(crate) new: Option<Ident>,
    /// Whether the trigger fires once per row rather than once per statement.
    pub(crate) for_each_row: bool,
    /// The condition under which the event counts as a change of the source. `None` if every such event
    /// counts. A full segment gets its mark only under this condition.
    pub(crate) changed: Option<Scalar>,
    /// The columns of the table (positions) that the body reads.
    pub(crate) reads: Vec<usize>,
    /// The statements that the trigger runs.
    pub(crate) body: Vec<Statement>,
    /// The statements of the body over relations of other names, whose columns have the names from the time
    /// when the buffer was made.
    pub(crate) by_other_names: Vec<Statement>,
}

/// A mode of capturing changes. The statements of each returned list run in order in one transaction; no list
/// begins or ends a transaction.
pub trait ChangeSource: fmt::Debug + Sync {
    /// Returns the actions for each event; an event that cannot change a referenced column may be missing.
    fn writers(&self, buffer: &Buffer) -> Vec<Writer>;

    /// Returns the trigger function of a writer.
    fn function(&self, writer: Writer, buffer: &Buffer) -> Statement {
        function(writer, buffer)
    }

    /// Makes the buffer and starts capture. The first statement waits for transactions that have written the
    /// table, so every write after the commit is captured.
    fn install(&self, buffer: &Buffer) -> Vec<Statement> {
        let mut made = vec![buffer.lock()];
        made.extend(buffer.segments().iter().flat_map(|s| buffer.create_segment(s)));
        made.push(buffer.create_view());
        made.extend(self.start(buffer));
        made
    }

    /// Captures more columns from now on. Returns the widened buffer and the statements that make it. The
    /// rows in the buffer stay. A stream table that reads the new columns must be filled after the commit,
    /// since older rows have NULL in these columns.
    fn widen(&self, buffer: &Buffer, columns: &[usize]) -> (Buffer, Vec<Statement>) {
        let wide = buffer.widened(columns);
        let mut made = vec![buffer.lock()];
        made.extend(wide.current().into_iter().flat_map(|s| wide.create_segment(s)));
        made.push(wide.create_view());
        made.extend(drop_triggers(buffer));
        made.extend(self.start(&wide));
        made.extend(drop_functions(buffer));
        (wide, made)
    }

    /// Makes the triggers write to a closed segment again, as [`ChangeSource::rotate`] does with a new
    /// segment. Returns `None` where the closed segment lacks columns.
    fn reopen(&self, buffer: &Buffer, number: u32) -> Option<(Buffer, Vec<Statement>)> {
        let next = buffer.reopened(number)?;
        let made = self.redirect(&next);
        Some((next, made))
    }

    /// Makes the triggers write to a new segment from now on. The previous segment can be emptied once all
    /// readers have counted its rows. The statements take no lock on the source. A session that has loaded
    /// the old trigger function may still write to the old segment, even after that segment was emptied. A
    /// closed segment may therefore be emptied at any time, but dropped only after a widening, which waits
    /// for writers.
    fn rotate(&self, buffer: &Buffer) -> (Buffer, Vec<Statement>) {
        let next = buffer.rotated();
        let mut made: Vec<Statement> =
            next.current().into_iter().flat_map(|s| next.create_segment(s)).collect();
        made.push(next.create_view());
        made.extend(self.redirect(&next));
        (next, made)
    }

    /// Makes the triggers write to the buffer's current segment, within its current limit. The statements
    /// take no lock on the source.
    fn redirect(&self, buffer: &Buffer) -> Vec<Statement> {
        self.writers(buffer).into_iter().map(|w| self.function(w, buffer)).collect()
    }

    /// Makes the trigger functions, and the triggers that call them, on the table and on its partitions. The
    /// triggers fire under every `session_replication_role`, since every change counts.
    fn start(&self, buffer: &Buffer) -> Vec<Statement> {
        let mut made = Vec::new();
        for writer in self.writers(buffer) {
            let tables = buffer.triggered(writer.for_each_row);
            let triggers: Vec<Statement> =
                tables.into_iter().flat_map(|table| trigger(&writer, table, buffer)).collect();
            let name = function_name(buffer, writer.event);
            let cloned = writer.for_each_row && buffer.is_partitioned();
            made.push(self.function(writer, buffer));
            // The function writes the buffer with the rights of its owner, so no other role may attach it to
            // another table. Where PostgreSQL repeats the trigger on a new partition, however, the owner of
            // the partition must have the right to execute the function. In that case the function itself
            // checks the table. Other roles may not use the schema, so they cannot name the function.
            made.push(if cloned { Statement::GrantFunction(name) } else { Statement::RevokeFunction(name) });
            made.extend(triggers);
        }
        made
    }

    /// Captures writes to new partitions or children too. `buffer` must have all present partitions or
    /// children; `came` are the new ones. The rows of the buffer stay.
    fn adopt(&self, buffer: &Buffer, came: &[Qualified]) -> Vec<Statement> {
        let mut made = self.redirect(buffer);
        for writer in self.writers(buffer) {
            let tables = buffer.triggered(writer.for_each_row).into_iter().filter(|t| came.contains(t));
            made.extend(tables.flat_map(|table| trigger(&writer, table, buffer)));
        }
        made
    }

    /// Makes trigger functions for a table that partitions have left. The buffer must have the partitions
    /// that stay. `detached` are the former partitions that still exist as tables; they lose their triggers.
    /// The rows of the buffer stay.
    fn release(&self, buffer: &Buffer, detached: &[Qualified]) -> Vec<Statement> {
        let mut made = self.redirect(buffer);
        for writer in self.writers(buffer) {
            // PostgreSQL itself drops the triggers that it repeated on the partition.
            let own = detached.iter().filter(|_| !writer.for_each_row);
            made.extend(own.map(|table| drop_trigger(buffer, table, writer.event)));
        }
        made
    }

    /// Stops capture and drops the buffer with all its rows. Objects that no longer exist cause no error.
    fn remove(&self, buffer: &Buffer) -> Vec<Statement> {
        let mut gone = drop_triggers(buffer);
        gone.extend(drop_functions(buffer));
        gone.push(dropped(ObjectKind::View, buffer.view()));
        gone.extend(buffer.segments().iter().map(|s| dropped(ObjectKind::Table, buffer.segment_name(s))));
        gone
    }
}

/// The events that change rows.
pub(crate) const EVENTS: [TriggerEvent; 4] =
    [TriggerEvent::Insert, TriggerEvent::Update, TriggerEvent::Delete, TriggerEvent::Truncate];

/// Returns the word for an event in names.
pub(crate) fn event_word(event: TriggerEvent) -> &'static str {
    match event {
        TriggerEvent::Insert => "insert",
        TriggerEvent::Update => "update",
        TriggerEvent::Delete => "delete",
        TriggerEvent::Truncate => "truncate",
    }
}

fn function_name(buffer: &Buffer, event: TriggerEvent) -> Qualified {
    buffer.named(&format!("capture_{}_{}_{}", buffer.table().id, buffer.generation(), event_word(event)))
}

/// Returns the name of a trigger. The name contains the oid of the source, since a partition may have
/// triggers for its parent's buffer and triggers for its own buffer.
fn trigger_name(buffer: &Buffer, event: TriggerEvent) -> Ident {
    Ident::new(format!("trickle_capture_{}_{}", buffer.table().id, event_word(event)))
}

/// Makes a function that writes with the rights of the buffer's owner. A role that writes the source
/// therefore needs no rights on the buffer.
fn function(writer: Writer, buffer: &Buffer) -> Statement {
    Statement::CreateTriggerFunction(CreateTriggerFunction {
        name: function_name(buffer, writer.event),
        security_definer: true,
        settings: vec![pinned_path()],
        variables: fit::variables(),
        body: fit::guarded(writer, buffer),
    })
}

/// Makes a trigger that calls the function of a writer.
fn trigger(writer: &Writer, table: &Qualified, buffer: &Buffer) -> [Statement; 2] {
    let name = trigger_name(buffer, writer.event);
    let made = CreateTrigger {
        replace: false,
        name: name.clone(),
        table: table.clone(),
        timing: TriggerTiming::After,
        event: writer.event,
        old_table: writer.old.clone().filter(|_| !writer.for_each_row),
        new_table: writer.new.clone().filter(|_| !writer.for_each_row),
        for_each_row: writer.for_each_row,
        function: function_name(buffer, writer.event),
    };
    [
        Statement::CreateTrigger(made),
        Statement::EnableAlways(EnableAlways { table: table.clone(), trigger: name }),
    ]
}

fn drop_triggers(buffer: &Buffer) -> Vec<Statement> {
    // When the parent's trigger is dropped, PostgreSQL drops the triggers that it made on the partitions.
    let of = |table: &Qualified| EVENTS.map(|e| drop_trigger(buffer, table, e));
    buffer.captured().flat_map(of).collect()
}

fn drop_trigger(buffer: &Buffer, table: &Qualified, event: TriggerEvent) -> Statement {
    dropped(ObjectKind::Trigger(table.clone()), Qualified::bare(trigger_name(buffer, event)))
}

impl Buffer {
    /// Returns the statements that write all rows of a partition to the buffer, as changes of the source. The
    /// weight is 1 for a partition that is attached, and −1 for a partition that is detached. The caller has
    /// locked the partition.
    pub fn rows_of(&self, partition: &Qualified, weight: i64) -> Vec<Statement> {
        insert(self, trigger::all_rows(self, weight, partition))
    }

    /// Returns the statement that deletes the rows that the transaction wrote to the current segment for a
    /// TRUNCATE. The caller has written the deleted rows of the emptied tables instead.
    pub fn take_back_truncates(&self) -> Option<Statement> {
        let alias = Ident::fixed("s");
        let column = |name| Scalar::column(&alias, &Ident::fixed(name));
        Some(Statement::Delete(Delete {
            ctes: Vec::new(),
            table: self.segment_name(self.current()?),
            alias: Some(alias.clone()),
            using: Vec::new(),
            filter: vec![
                column("w").equals(weight(0)),
                column("xid").equals(Scalar::call("pg_current_xact_id", vec![])),
            ],
            returning: Vec::new(),
        }))
    }
}

fn drop_functions(buffer: &Buffer) -> Vec<Statement> {
    EVENTS.map(|e| dropped(ObjectKind::Function, function_name(buffer, e))).into()
}

fn dropped(kind: ObjectKind, name: Qualified) -> Statement {
    Statement::Drop(DropObject { kind, name, cascade: false })
}

/// Builds `INSERT INTO segment (w, columns) rows`.
fn insert(buffer: &Buffer, rows: SetExpr) -> Vec<Statement> {
    let Some(segment) = buffer.current() else { return Vec::new() };
    let mut columns = vec![Ident::fixed("w")];
    columns.extend(segment.columns.iter().filter_map(|c| buffer.column(*c)).map(|(name, _)| name));
    vec![Statement::Insert(Insert {
        ctes: Vec::new(),
        note: Some(way_out(buffer)),
        table: buffer.segment_name(segment),
        alias: None,
        columns,
        source: Query::new(rows),
        on_conflict: None,
        returning: Vec::new(),
    })]
}

/// Returns a note for a writer whose statement fails because its change cannot be captured. The note is part
/// of the failing statement's text, which PostgreSQL prints with the error. Catching the error and raising a
/// better one would cost every writer a subtransaction.
fn way_out(buffer: &Buffer) -> String {
    let table = buffer.table_name();
    format!(
        "trickle keeps the changes of {table}. If this fails, the program's trickle disable {table} switches it off"
    )
}

/// Returns a weight as a literal of the type that the buffer stores.
fn weight(w: i64) -> Scalar {
    Scalar::Literal(Datum::Int(w), Type::Int2)
}

/// Returns the referenced columns of a row image under `alias`, by their names in the table.
fn image(buffer: &Buffer, alias: &Ident) -> Vec<Scalar> {
    let columns = buffer.columns().iter().filter_map(|c| buffer.table().columns.get(*c));
    columns.map(|c| Scalar::column(alias, &Ident::new(&c.name))).collect()
}

/// Builds the SELECT list `w, columns`.
fn items(w: i64, image: Vec<Scalar>) -> Vec<SelectItem> {
    std::iter::once(weight(w)).chain(image).map(|expr| SelectItem { expr, name: None }).collect()
}

/// Returns the writer that adds the row for a TRUNCATE.
fn truncated(buffer: &Buffer) -> Writer {
    // NULL gets the type of its column without a cast. A cast could fail: the search path of a trigger does
    // not contain the types that users made.
    let nulls = |c: &usize| buffer.column(*c).map(|_| Scalar::null(Type::Unknown));
    let row = std::iter::once(weight(0)).chain(buffer.columns().iter().filter_map(nulls)).collect();
    Writer {
        event: TriggerEvent::Truncate,
        old: None,
        new: None,
        for_each_row: false,
        changed: None,
        reads: Vec::new(),
        body: insert(buffer, SetExpr::Values(vec![row])),
        by_other_names: Vec::new(),
    }
}

/// Whether the old and the new row differ in the bytes of any referenced column. Comparing with `=` would be
/// wrong, since 1.0 and 1.00 are equal and print differently. `ROW(…) *<> ROW(…)` would be wrong too, since
/// PostgreSQL compares such rows column by column.
fn differs(buffer: &Buffer, old: &Ident, new: &Ident) -> Scalar {
    let images = [old, new].map(|alias| Scalar::Row(image(buffer, alias)));
    Scalar::call("record_image_ne", images.into())
}
