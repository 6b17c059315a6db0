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

use super::children::{self, beside_known};
use super::limit::{constant, named, size};
use super::{Buffer, Writer, limit};
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
pub(super) fn planned_again(table: u32) -> Scalar {
    let number = Scalar::call("pg_relation_filenode", vec![constant(&table.to_string(), "regclass")]);
    Scalar::Distinct { left: Box::new(number), right: Box::new(constant("0", "oid")), negated: false }
}

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

/// Leaves a mark, so that the readers of the source are recomputed. Leaves no mark if a mark for the same
/// source and stream table is visible already. If `of` names a stream table, only this stream table is
/// recomputed.
pub(super) fn mark(buffer: &Buffer, of: Option<i64>, reason: Scalar) -> Statement {
    mark_where(buffer, of, reason, None)
}

/// Leaves the mark of [`mark`] if a condition is true.
pub(super) fn mark_where(
    buffer: &Buffer,
    of: Option<i64>,
    reason: Scalar,
    condition: Option<Scalar>,
) -> Statement {
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
        let former = children::of_a_former_partition(buffer, None);
        let unseen = children::of_unseen_values(buffer, writer.event, &writer.reads, None);
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

/// Whether the table on which the trigger fires is not a partition of the source, at any level. The condition
/// sees the newest state of the catalog, not that of the statement's snapshot, and takes no lock.
pub(super) fn is_no_partition(buffer: &Buffer) -> Scalar {
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

/// The reason in the mark if the table fits, but its segment no longer exists.
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
