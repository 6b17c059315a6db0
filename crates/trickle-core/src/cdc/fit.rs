//! The check whether a table is still as it was when its triggers were made. Also the actions of the triggers
//! if the table was altered.
//!
//! A trigger function runs with the rights of the buffer's owner. The owner of the table may give a column
//! another type, with a cast of his own to the column's type in the buffer. Therefore, the function touches
//! no value before `pgtrickle.misfit` has found every column that the function reads, under its number, name
//! and type. The server calls `pgtrickle.misfit` when it plans the guard, and again when it learns that the
//! table was altered. The server learns of the alteration before it grants the writer's lock on the table.
//! The answer is therefore up to date at every isolation level, and costs a statement nothing.
//!
//! A table from a memory catalog, which no server described, has no column numbers to check. A program that
//! embeds the core alone must itself ensure that such a table fits.
//!
//! Columns that were renamed are read under their new names, by a statement that is built at each call. A
//! change that cannot be captured leaves a mark in `pgtrickle.pgt_marks`. Readers are then recomputed, and
//! the writer's statement succeeds.

use super::limit::{constant, named, size};
use super::{Buffer, Children, Writer, limit};
use crate::sql::ast::{
    FromItem, Insert, Instruction, NamedRows, Query, Scalar, Select, SelectItem, Statement, TriggerEvent,
};
use crate::sql::{Ident, Qualified};
use crate::types::Type;

/// Returns the name of the table of marks.
fn marks() -> Qualified {
    Qualified::new("pgtrickle", "pgt_marks")
}

/// The variable for the size of the current segment. Its value is NULL where the segment no longer exists.
const SIZE: &str = "trickle_size";
/// The variable for the table. An expression over a variable is computed at each call, and not once when the
/// function is planned.
pub(crate) const SOURCE: &str = "trickle_source";
/// The variable for the columns of the table under their present names.
const COLUMNS: &str = "trickle_columns";

/// Returns a variable of the function.
pub(crate) fn variable(name: &'static str) -> Scalar {
    Scalar::Column { table: None, name: Ident::fixed(name) }
}

/// The variable for the table that a guard checks, with its type.
pub(crate) const VARIABLE: (&str, &str) = (SOURCE, "oid");

pub(super) fn variables() -> Vec<(Ident, &'static str)> {
    [(SIZE, "bigint"), (SOURCE, "oid"), (COLUMNS, "text")].map(|(name, ty)| (Ident::fixed(name), ty)).into()
}

/// The relation of a statement's old rows, with the column names from the time when the function was made.
pub(super) const OLD: &str = "trickle_o";
/// The relation of a statement's new rows, with the same column names.
pub(super) const NEW: &str = "trickle_n";

/// Returns an array constant of texts; each element is in double quotes.
pub(crate) fn list(items: impl Iterator<Item = String>, ty: &str) -> Scalar {
    let quote = |item: String| format!("\"{}\"", item.replace('\\', "\\\\").replace('"', "\\\""));
    constant(&format!("{{{}}}", items.map(quote).collect::<Vec<_>>().join(",")), ty)
}

/// The numbers, the names and the types of columns of a table, as arguments of `pgtrickle.misfit`.
struct Columns {
    numbers: Scalar,
    names: Scalar,
    types: Scalar,
}

impl Columns {
    fn of(buffer: &Buffer, positions: &[usize]) -> Columns {
        let columns = || positions.iter().filter_map(|c| buffer.table().columns.get(*c));
        Columns {
            numbers: list(columns().map(|c| c.number.to_string()), "int2[]"),
            names: list(columns().map(|c| c.name.to_string()), "text[]"),
            types: list(columns().map(|c| c.type_id.to_string()), "oid[]"),
        }
    }
}

/// Returns the name of a function of the schema `pgtrickle`.
pub(crate) fn function(name: &'static str) -> Qualified {
    Qualified::new("pgtrickle", name)
}

/// Returns the oid of the buffer's table, as a constant of type `ty`.
pub(crate) fn source(buffer: &Buffer, ty: &str) -> Scalar {
    constant(&buffer.table().id.to_string(), ty)
}

/// Whether the table has these columns (positions) as described and, if `place` is set, still has its name.
/// The condition is evaluated when the server plans it. Because of a constant of type `regclass` the server
/// plans the condition again after the table was altered.
pub(crate) fn fits(buffer: &Buffer, positions: &[usize], place: bool) -> Scalar {
    let columns = Columns::of(buffer, positions);
    let mut args = vec![source(buffer, "oid"), columns.numbers, columns.names, columns.types];
    args.extend(place.then(|| place_of(buffer)));
    let known = Scalar::Call(function("misfit"), args).is_null();
    Scalar::and([known, planned_again(buffer.table().id.0)])
}

/// Returns a condition that is always true. The server evaluates the condition during planning, and plans
/// again after this table was altered.
fn planned_again(table: u32) -> Scalar {
    let number = Scalar::call("pg_relation_filenode", vec![constant(&table.to_string(), "regclass")]);
    Scalar::Distinct { left: Box::new(number), right: Box::new(constant("0", "oid")), negated: false }
}

/// Marks the source if the table has partitions or children for which its triggers were not made. Rows of
/// such a child are captured when they are written through the table. No trigger fires, however, when the
/// child is dropped or detached.
fn beside_known(writer: &Writer, buffer: &Buffer) -> Vec<Instruction> {
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

/// The reason in the mark that a statement leaves which may have written rows of other partitions or children
/// than those that the triggers were made for.
pub const UNKNOWN_CHILDREN: &str = "it has partitions or children that its triggers were not made for";

/// Returns the statement that leaves the mark of [`beside_known`]. A trigger function in C
/// ([`super::CopyScript`]) runs it, and looks for the children itself. The text is empty for triggering
/// statements that reach no child.
pub(super) fn mark_of_unknown_children(buffer: &Buffer, event: TriggerEvent) -> Option<Statement> {
    let reaches = match event {
        TriggerEvent::Insert => buffer.is_partitioned(),
        TriggerEvent::Delete => true,
        // The trigger for UPDATE of a partitioned table is not run in C, nor is that for TRUNCATE.
        TriggerEvent::Update => !buffer.is_partitioned(),
        TriggerEvent::Truncate => false,
    };
    let looks = reaches && buffer.is_described() && buffer.known().is_some();
    looks.then(|| mark(buffer, None, Scalar::text(UNKNOWN_CHILDREN)))
}

/// Returns the tables, by oid, that may have partitions or children of the source.
pub(super) fn parents(buffer: &Buffer) -> Vec<u32> {
    let known = buffer.known().map(|k| if buffer.is_partitioned() { &k.partitioned } else { &k.all });
    std::iter::once(buffer.table().id.0).chain(known.into_iter().flatten().copied()).collect()
}

/// Whether a partitioned table has partitions for which its triggers were not made. The server discards plans
/// over the table whenever a partition is added. The condition therefore costs a statement nothing, and is up
/// to date at every isolation level.
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
/// trigger function in C ([`super::CopyScript`]) runs it. The text is empty for triggering statements that
/// reach no child.
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

/// Marks the source if a MERGE may have moved rows from one partition to another. PostgreSQL 15 to 18 delete
/// and insert such a row, but fire only the triggers for the kinds of action that the MERGE contains. If the
/// MERGE only updates, no trigger gets the row. A plain UPDATE passes both the old and the new row to its
/// trigger.
fn moved(writer: &Writer, buffer: &Buffer) -> Option<Instruction> {
    let marked = mark(buffer, None, Scalar::text(MOVED));
    let may = writer.event == TriggerEvent::Update && !writer.for_each_row && buffer.is_partitioned();
    may.then(|| when(may_have_moved(buffer), vec![Instruction::Run(marked)], Vec::new()))
}

/// The reason in the mark that [`moved`] leaves.
pub(crate) const MOVED: &str =
    "a MERGE may have moved rows from one partition to another, which no trigger is told of";

/// Whether a MERGE may have moved rows. A trigger for UPDATE evaluates the condition.
pub(crate) fn may_have_moved(buffer: &Buffer) -> Scalar {
    Scalar::Call(function("merge_may_have_moved"), vec![source(buffer, "oid")])
}

fn place_of(buffer: &Buffer) -> Scalar {
    let name = buffer.table_name();
    let schema = name.schema.as_ref().map_or("", Ident::as_str);
    list([schema, name.name.as_str()].into_iter().map(str::to_owned), "text[]")
}

/// Returns an expression for the reason why the table does not fit. It is computed at each call. Its value is
/// `otherwise` if the table fits.
pub(crate) fn reason(
    buffer: &Buffer,
    table: Scalar,
    positions: &[usize],
    place: bool,
    otherwise: Scalar,
) -> Scalar {
    let columns = Columns::of(buffer, positions);
    let mut args = vec![table, columns.numbers, columns.names, columns.types];
    args.extend(place.then(|| place_of(buffer)));
    Scalar::Call(function("misfit"), args).coalesce(otherwise)
}

/// Leaves a mark, unless an equal one is visible, so that the readers of the source are recomputed. If `of`
/// names a stream table, only this stream table is recomputed.
fn mark(buffer: &Buffer, of: Option<i64>, reason: Scalar) -> Statement {
    mark_where(buffer, of, reason, None)
}

/// Leaves the mark of [`mark`] if a condition is true.
fn mark_where(buffer: &Buffer, of: Option<i64>, reason: Scalar, condition: Option<Scalar>) -> Statement {
    let m = Ident::fixed("m");
    let column = |name| Scalar::column(&m, &Ident::fixed(name));
    let stream_table = of.map_or_else(|| Scalar::null(Type::Int8), Scalar::int8);
    let seen = Select {
        items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
        from: vec![FromItem::relation(marks(), m.clone())],
        filter: vec![
            column("source_relid").equals(source(buffer, "oid")),
            column("pgt_id").same_as(stream_table.clone()),
        ],
        ..Select::default()
    };
    let unseen = Scalar::Exists { query: Box::new(Query::select(seen)), negated: true };
    let items = [source(buffer, "oid"), stream_table, reason];
    let row = Select {
        items: items.into_iter().map(|expr| SelectItem { expr, name: None }).collect(),
        filter: [unseen].into_iter().chain(condition).collect(),
        ..Select::default()
    };
    Statement::Insert(Insert {
        ctes: Vec::new(),
        note: None,
        table: marks(),
        alias: None,
        columns: ["source_relid", "pgt_id", "reason"].map(Ident::fixed).into(),
        source: Query::select(row),
        on_conflict: None,
        returning: Vec::new(),
    })
}

/// Makes the instruction that runs `then` where the condition is true, and `otherwise` where it is not.
pub(crate) fn when(condition: Scalar, then: Vec<Instruction>, otherwise: Vec<Instruction>) -> Instruction {
    Instruction::If { condition, then, otherwise }
}

/// Returns the body of a trigger function. The body runs the writer's statements if the table fits and its
/// segment has room. Otherwise the body leaves a mark, or captures columns under their new names.
pub(super) fn guarded(writer: Writer, buffer: &Buffer) -> Vec<Instruction> {
    let Some(size) = size(buffer) else { return Vec::new() };
    if !buffer.is_described() {
        let full = limit::overflow_row(buffer, writer.changed).into_iter().map(Instruction::Run).collect();
        let body = writer.body.into_iter().map(Instruction::Run).collect();
        return vec![when(size.op(">=", Scalar::int8(buffer.limit())), full, body)];
    }
    if writer.body.is_empty() {
        return moved(&writer, buffer).into_iter().collect();
    }
    let room = size.clone().op("<", Scalar::int8(buffer.limit()));
    let fit = (!writer.reads.is_empty()).then(|| fits(buffer, &writer.reads, false));
    let as_made = Scalar::and(std::iter::once(room).chain(fit));
    let body = writer.body.iter().cloned().map(Instruction::Run).collect();
    let guard = when(as_made, body, otherwise(&writer, buffer, size));
    let foreign: Vec<Instruction> = if writer.for_each_row && buffer.is_partitioned() {
        vec![of_another_table(buffer)]
    } else {
        let altered = of_an_altered_child(buffer, &writer.reads, None);
        let former = of_a_former_partition(buffer, None);
        let unseen = of_unseen_values(buffer, writer.event, &writer.reads, None);
        former.into_iter().chain(altered).chain(unseen).collect()
    };
    let noted = beside_known(&writer, buffer).into_iter().chain(moved(&writer, buffer));
    foreign.into_iter().chain(noted).chain([guard]).collect()
}

/// Leaves only the mark if the trigger fires on an altered table that once was a child or partition of the
/// source. Such a table keeps its triggers. While a table is a child, the server keeps its columns equal to
/// the parent's. If a statement writes a child by the child's own name, each call of the trigger checks the
/// child's columns. If `of` names a stream table, only this stream table is recomputed.
pub(crate) fn of_an_altered_child(source: &Buffer, reads: &[usize], of: Option<i64>) -> Option<Instruction> {
    if !source.is_described() || !source.has_children() || reads.is_empty() {
        return None;
    }
    let columns = Columns::of(source, reads);
    let args = vec![variable("tg_relid"), columns.names, columns.types];
    let misfit = Scalar::Call(function("child_misfit"), args);
    let other = Scalar::Distinct {
        left: Box::new(variable("tg_relid")),
        right: Box::new(self::source(source, "oid")),
        negated: false,
    };
    let marked = mark(source, of, misfit.clone().coalesce(Scalar::text("a child of it was altered")));
    let marked = vec![Instruction::Run(marked), Instruction::Return];
    Some(when(Scalar::and([other, misfit.is_not_null()]), marked, Vec::new()))
}

/// Leaves only a mark if the trigger fires on a former partition of the source. A detached table keeps the
/// triggers for statements that were made for it, and may hold rows that no partition of the source may hold.
/// If `of` names a stream table, only this stream table is recomputed.
pub(crate) fn of_a_former_partition(source: &Buffer, of: Option<i64>) -> Option<Instruction> {
    if !source.is_described() || !source.is_partitioned() {
        return None;
    }
    let other = Scalar::Distinct {
        left: Box::new(variable("tg_relid")),
        right: Box::new(self::source(source, "oid")),
        negated: false,
    };
    let marked = vec![Instruction::Run(mark(source, of, Scalar::text(FORMER))), Instruction::Return];
    Some(when(other, vec![when(is_no_partition(source), marked, Vec::new())], Vec::new()))
}

/// The reason in the mark that [`of_a_former_partition`] leaves.
const FORMER: &str = "a table that was a partition of it was written after it was detached";

/// Returns the statement that leaves the mark of [`of_a_former_partition`]. A trigger function in C
/// ([`super::CopyScript`]) runs it. The text is empty for a source without partitions.
pub(super) fn mark_of_a_former_partition(buffer: &Buffer) -> Option<Statement> {
    let may = buffer.is_described() && buffer.is_partitioned();
    may.then(|| mark(buffer, None, Scalar::text(FORMER)))
}

/// Leaves only a mark if the trigger may get NULL in place of stored generated values. PostgreSQL 15 to 18
/// pass an inserted row to the trigger of a partitioned table as it was before its partition computed them,
/// if the partition has its columns at other places. If `of` names a stream table, only this stream table is
/// recomputed.
pub(crate) fn of_unseen_values(
    source: &Buffer,
    event: TriggerEvent,
    reads: &[usize],
    of: Option<i64>,
) -> Option<Instruction> {
    if event != TriggerEvent::Insert || !gets_unseen_values(source, reads) {
        return None;
    }
    let other = Scalar::Call(function("has_other_layout"), vec![self::source(source, "oid")]);
    let partitioned = source.known().into_iter().flat_map(|k| k.partitioned.iter().copied());
    let parents = std::iter::once(source.table().id.0).chain(partitioned).map(planned_again);
    let marked = vec![Instruction::Run(mark(source, of, Scalar::text(UNSEEN_VALUES))), Instruction::Return];
    Some(when(Scalar::and(std::iter::once(other).chain(parents)), marked, Vec::new()))
}

/// The reason in the mark that [`of_unseen_values`] leaves.
const UNSEEN_VALUES: &str = "rows were inserted whose generated columns no trigger for statements gets, since a partition has its columns at other places";

/// Whether the trigger for INSERT reads a stored generated column of a partitioned table.
pub(super) fn gets_unseen_values(source: &Buffer, reads: &[usize]) -> bool {
    let generated = |c: &usize| source.table().columns.get(*c).is_some_and(|c| c.generated.is_some());
    source.is_described() && source.is_partitioned() && reads.iter().any(generated)
}

/// Returns from the function if the trigger fires for a table that is not a partition of the source.
/// PostgreSQL repeats a row trigger on each new partition with the rights of the role that makes the
/// partition. All roles must therefore have the right to execute the function, and a role could attach it to
/// its own table.
fn of_another_table(buffer: &Buffer) -> Instruction {
    let root = Scalar::call("pg_partition_root", vec![variable("tg_relid")]).cast(named("oid"));
    let other =
        Scalar::Distinct { left: Box::new(root), right: Box::new(source(buffer, "oid")), negated: false };
    when(other, vec![when(is_no_partition(buffer), vec![Instruction::Return], Vec::new())], Vec::new())
}

/// Whether the table on which the trigger fires is not a partition of the source, at any level. The answer is
/// that of the moment, and takes no lock.
fn is_no_partition(buffer: &Buffer) -> Scalar {
    let (a, relid) = (Ident::fixed("a"), Ident::fixed("relid"));
    let ancestors = Scalar::call("pg_partition_ancestors", vec![variable("tg_relid")]);
    let above = Select {
        items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
        from: vec![FromItem::call_naming(ancestors, a.clone(), vec![relid.clone()])],
        filter: vec![Scalar::column(&a, &relid).cast(named("oid")).equals(source(buffer, "oid"))],
        ..Select::default()
    };
    Scalar::Exists { query: Box::new(Query::select(above)), negated: true }
}

/// The reason in the mark where the table itself fits.
const NO_SEGMENT: &str = "the table that held its changes is gone";

/// Returns the statement that leaves the mark; a trigger function in C ([`super::CopyScript`]) runs it.
pub(super) fn gone(buffer: &Buffer, reads: &[usize]) -> Statement {
    mark(buffer, None, reason(buffer, source(buffer, "oid"), reads, false, Scalar::text(NO_SEGMENT)))
}

fn otherwise(writer: &Writer, buffer: &Buffer, size: Scalar) -> Vec<Instruction> {
    let why = reason(buffer, variable(SOURCE), &writer.reads, false, Scalar::text(NO_SEGMENT));
    let gone = mark(buffer, None, why);
    // A row trigger does not compare the old and the new values, since the table may not fit.
    let changed = writer.changed.clone().filter(|_| !writer.for_each_row);
    let full = limit::overflow_row(buffer, changed).into_iter().map(Instruction::Run).collect();
    let other = if writer.reads.is_empty() { Vec::new() } else { renamed(writer, buffer, &gone) };
    let full = when(variable(SIZE).op(">=", Scalar::int8(buffer.limit())), full, other);
    vec![
        Instruction::Assign(Ident::fixed(SIZE), size),
        Instruction::Assign(Ident::fixed(SOURCE), source(buffer, "oid")),
        when(variable(SIZE).is_null(), vec![Instruction::Run(gone)], vec![full]),
    ]
}

/// Captures changes of a table whose columns were renamed. Leaves the mark if the table now has other
/// columns.
fn renamed(writer: &Writer, buffer: &Buffer, gone: &Statement) -> Vec<Instruction> {
    let columns = Columns::of(buffer, &writer.reads);
    let args = vec![variable(SOURCE), columns.numbers, columns.types];
    let names = writer.reads.iter().filter_map(|c| buffer.table().columns.get(*c));
    let names: Vec<Ident> = names.map(|c| Ident::new(&c.name)).collect();
    let rows = |name: &Ident, from: &Ident| NamedRows {
        name: name.clone(),
        columns: names.clone(),
        from: from.clone(),
        row: writer.for_each_row,
    };
    let given: Vec<NamedRows> = [(OLD, &writer.old), (NEW, &writer.new)]
        .into_iter()
        .filter_map(|(name, from)| Some(rows(&Ident::fixed(name), from.as_ref()?)))
        .collect();
    let captured = writer.by_other_names.iter().map(|statement| Instruction::Renamed {
        list: Ident::fixed(COLUMNS),
        rows: given.clone(),
        statement: statement.clone(),
    });
    vec![
        Instruction::Assign(Ident::fixed(COLUMNS), Scalar::Call(function("columns_now"), args)),
        when(variable(COLUMNS).is_null(), vec![Instruction::Run(gone.clone())], captured.collect()),
    ]
}

/// Leaves the mark for one stream table in mode IMMEDIATE.
pub(crate) fn marked(source: &Buffer, id: i64, reason: Scalar) -> Instruction {
    Instruction::Run(mark(source, Some(id), reason))
}
