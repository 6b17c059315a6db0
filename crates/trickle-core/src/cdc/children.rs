//! The parts of trigger functions that look at the partitions and children of a source.

use super::fit::{function, is_no_partition, list, mark, mark_where, planned_again, source, variable, when};
use super::limit::constant;
use super::{Buffer, Children, Writer};
use crate::sql::ast::{FromItem, Instruction, Query, Scalar, Select, SelectItem, Statement, TriggerEvent};
use crate::sql::{Ident, Qualified};
use crate::table::Generated;

/// Marks the source if the table has partitions or children for which its triggers were not made. Rows of
/// such a child are captured when they are written through the table. No trigger fires, however, when the
/// child is dropped or detached.
pub(super) fn beside_known(writer: &Writer, buffer: &Buffer) -> Vec<Instruction> {
    let Some(known) = buffer.known() else { return Vec::new() };
    let marked = |some| {
        when(some, vec![Instruction::Run(mark(buffer, None, Scalar::text(UNKNOWN_CHILDREN)))], Vec::new())
    };
    if buffer.is_partitioned() {
        // After a TRUNCATE, all readers are recomputed. The exception is a TRUNCATE that the extension
        // follows. In that case, the extension has checked that no partition is unknown. The search would
        // lock all other partitions.
        let looks = writer.event != TriggerEvent::Truncate;
        return looks.then(|| marked(has_other_partitions(buffer, known))).into_iter().collect();
    }
    match writer.event {
        // An INSERT into a table writes no row of its children.
        TriggerEvent::Insert => Vec::new(),
        TriggerEvent::Update | TriggerEvent::Delete | TriggerEvent::Truncate => {
            let temporary = Instruction::Run(mark(buffer, None, Scalar::text(TEMPORARY)));
            let temporary = when(has_temporary_child(buffer), vec![temporary], Vec::new());
            vec![marked(has_other_children(buffer, known)), temporary]
        }
    }
}

/// The reason in a mark. A statement leaves this mark if it may have written rows of partitions or children
/// for which the triggers were not made.
pub const UNKNOWN_CHILDREN: &str = "it has partitions or children that its triggers were not made for";

/// Returns the statement that leaves the mark of [`beside_known`]. A trigger function in C
/// ([`super::CopyScript`]) runs the statement, and looks for the children itself. Returns `None` for
/// triggering statements that reach no child.
pub(super) fn mark_of_unknown_children(buffer: &Buffer, event: TriggerEvent) -> Option<Statement> {
    let reaches = match event {
        TriggerEvent::Insert => buffer.is_partitioned(),
        TriggerEvent::Delete => true,
        // For a partitioned table, the trigger for UPDATE is not run in C. The trigger for TRUNCATE is never
        // run in C.
        TriggerEvent::Update => !buffer.is_partitioned(),
        TriggerEvent::Truncate => false,
    };
    let looks = reaches && buffer.is_described() && buffer.known().is_some();
    looks.then(|| mark(buffer, None, Scalar::text(UNKNOWN_CHILDREN)))
}

/// Returns the tables, by oid, that may have partitions or children whose rows belong to the source.
pub(super) fn parents(buffer: &Buffer) -> Vec<u32> {
    let known = buffer.known().map(|k| if buffer.is_partitioned() { &k.partitioned } else { &k.all });
    std::iter::once(buffer.table().id.0).chain(known.into_iter().flatten().copied()).collect()
}

/// Whether a partitioned table has partitions for which its triggers were not made. The server evaluates
/// the condition when it plans the trigger's statement, and plans again whenever a partition is added. So the
/// condition costs a statement nothing, and is up to date at every isolation level.
fn has_other_partitions(buffer: &Buffer, known: &Children) -> Scalar {
    let ids = known.all.iter().map(u32::to_string);
    let other =
        Scalar::Call(function("has_other_partitions"), vec![source(buffer, "oid"), list(ids, "oid[]")]);
    let parents = std::iter::once(buffer.table().id.0).chain(known.partitioned.iter().copied());
    Scalar::and(std::iter::once(other).chain(parents.map(planned_again)))
}

/// Whether a table without partitions has children for which its triggers were not made. Each statement looks
/// for them, in the catalog that its transaction sees. Temporary children of other sessions are never
/// written.
fn has_other_children(buffer: &Buffer, known: &Children) -> Scalar {
    let h = Ident::fixed("h");
    let column = |name| Scalar::column(&h, &Ident::fixed(name));
    let ids = || known.all.iter().map(u32::to_string);
    let parents = list(ids().chain([buffer.table().id.0.to_string()]), "oid[]");
    let among = |arg: Scalar, array: Scalar| Scalar::Quantified {
        arg: Box::new(arg),
        op: Qualified::bare(Ident::fixed("=")),
        array: Box::new(array),
        all: false,
    };
    let other = Select {
        items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
        from: vec![FromItem::relation(Qualified::new("pg_catalog", "pg_inherits"), h.clone())],
        filter: vec![
            among(column("inhparent"), parents),
            among(column("inhrelid"), list(ids(), "oid[]")).negated(),
            is_permanent(column("inhrelid")),
        ],
        ..Select::default()
    };
    Scalar::Exists { query: Box::new(Query::select(other)), negated: false }
}

/// Whether the table with this oid is not temporary.
fn is_permanent(relation: Scalar) -> Scalar {
    let c = Ident::fixed("c");
    let column = |name| Scalar::column(&c, &Ident::fixed(name));
    let found = Select {
        items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
        from: vec![FromItem::relation(Qualified::new("pg_catalog", "pg_class"), c.clone())],
        filter: vec![column("oid").equals(relation), column("relpersistence").op("<>", Scalar::text("t"))],
        ..Select::default()
    };
    Scalar::Exists { query: Box::new(Query::select(found)), negated: false }
}

/// Whether the writer's session has a temporary child of the table. Statements on the table write rows of
/// that child too, and no other session sees these rows. In a session without temporary tables, no search is
/// made.
pub(crate) fn has_temporary_child(buffer: &Buffer) -> Scalar {
    let has = Scalar::Call(function("has_temporary_child"), vec![source(buffer, "oid")]);
    let any = Scalar::call("pg_my_temp_schema", vec![]).op("<>", constant("0", "oid"));
    Scalar::and([any, has])
}

/// Returns the statement that leaves a mark if the writer's session has a temporary child of the table. A
/// trigger function in C ([`super::CopyScript`]) runs the statement. Returns `None` for triggering statements
/// that reach no child.
pub(super) fn mark_of_temporary_child(buffer: &Buffer, event: TriggerEvent) -> Option<Statement> {
    let reaches = match event {
        TriggerEvent::Insert => false,
        TriggerEvent::Update | TriggerEvent::Delete | TriggerEvent::Truncate => !buffer.is_partitioned(),
    };
    let has = has_temporary_child(buffer);
    (reaches && buffer.is_described()).then(|| mark_where(buffer, None, Scalar::text(TEMPORARY), Some(has)))
}

/// The reason in the mark of a writer whose session has a temporary child of a source.
pub(crate) const TEMPORARY: &str =
    "a session with a temporary child of it wrote a source; no other session sees the child's rows";

/// Leaves only a mark if the trigger fires on a former partition of the source. A detached table keeps the
/// statement triggers that were made for it, and may hold rows that no partition of the source may hold. If
/// `of` names a stream table, only this stream table is recomputed.
pub(crate) fn of_a_former_partition(source: &Buffer, of: Option<i64>) -> Option<Instruction> {
    if !source.is_described() || !source.is_partitioned() {
        return None;
    }
    let other = Scalar::Distinct {
        left: Box::new(variable("tg_relid")),
        right: Box::new(super::fit::source(source, "oid")),
        negated: false,
    };
    let marked = vec![Instruction::Run(mark(source, of, Scalar::text(FORMER))), Instruction::Return];
    Some(when(other, vec![when(is_no_partition(source), marked, Vec::new())], Vec::new()))
}

/// The reason in the mark that [`of_a_former_partition`] leaves.
const FORMER: &str = "a table that was a partition of it was written after it was detached";

/// Returns the statement that leaves the mark of [`of_a_former_partition`]. A trigger function in C
/// ([`super::CopyScript`]) runs the statement. Returns `None` for a source without partitions.
pub(super) fn mark_of_a_former_partition(buffer: &Buffer) -> Option<Statement> {
    let may = buffer.is_described() && buffer.is_partitioned();
    may.then(|| mark(buffer, None, Scalar::text(FORMER)))
}

/// Leaves only a mark if the trigger may get NULL in place of stored generated values. A partition may have
/// its columns at other positions than the partitioned table. PostgreSQL 15 to 18 then pass an inserted row
/// to the trigger of the partitioned table as the row was before the partition computed the generated values.
/// If `of` names a stream table, only this stream table is recomputed.
pub(crate) fn of_unseen_values(
    source: &Buffer,
    event: TriggerEvent,
    reads: &[usize],
    of: Option<i64>,
) -> Option<Instruction> {
    if event != TriggerEvent::Insert || !gets_unseen_values(source, reads) {
        return None;
    }
    let other = Scalar::Call(function("has_other_layout"), vec![super::fit::source(source, "oid")]);
    let partitioned = source.known().into_iter().flat_map(|k| k.partitioned.iter().copied());
    let parents = std::iter::once(source.table().id.0).chain(partitioned).map(planned_again);
    let marked = vec![Instruction::Run(mark(source, of, Scalar::text(UNSEEN_VALUES))), Instruction::Return];
    Some(when(Scalar::and(std::iter::once(other).chain(parents)), marked, Vec::new()))
}

/// The reason in the mark that [`of_unseen_values`] leaves.
const UNSEEN_VALUES: &str = "rows were inserted whose generated columns no trigger for statements gets, since a partition has its columns at other places";

/// Whether the trigger for INSERT reads a stored generated column of a partitioned table.
pub(super) fn gets_unseen_values(source: &Buffer, reads: &[usize]) -> bool {
    let generated = |c: &usize| {
        let column = source.table().columns.get(*c);
        column.is_some_and(|c| matches!(c.generated, Some(Generated::Stored(_))))
    };
    source.is_described() && source.is_partitioned() && reads.iter().any(generated)
}
