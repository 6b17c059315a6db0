//! The tables and the view of a change buffer.

use crate::sql::ast::{
    ColumnSpec, CreateTable, CreateView, FromItem, Insert, Lock, LockMode, Query, Scalar, Select, SelectItem,
    SetExpr, Statement,
};
use crate::sql::{BufferSources, Ident, Qualified, opaque};
use crate::table::TableDef;
use crate::types::{Datum, Type};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One table of a change buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The number of the segment; the name of the segment's table ends with it.
    pub number: u32,
    /// The columns of the source that the segment stores, as positions, in the order of the segment's
    /// columns.
    pub columns: Vec<usize>,
}

/// The change buffer of one source.
///
/// Columns are added only at the end and are never removed, so that the view can be replaced while sessions
/// read it.
#[derive(Clone, Debug)]
pub struct Buffer {
    table: Arc<TableDef>,
    table_name: Qualified,
    schema: Ident,
    generation: u32,
    segments: Vec<Segment>,
    partitions: Vec<Qualified>,
    partitioned: bool,
    inherited: bool,
    known: Option<Children>,
    unlogged: bool,
    limit: i64,
}

/// The partitions and children of a source that have triggers, on every level.
#[derive(Clone, Debug, Default)]
pub struct Children {
    /// All partitions and children that have triggers, by oid.
    pub all: Vec<u32>,
    /// The partitions among them that have partitions themselves.
    pub partitioned: Vec<u32>,
}

impl Buffer {
    /// Makes a change buffer in `schema` for columns (positions) of a table, with one segment.
    pub fn new(table: Arc<TableDef>, schema: impl AsRef<str>, columns: &[usize]) -> Buffer {
        let segments = vec![Segment { number: 1, columns: distinct(&table, columns) }];
        let table_name = Qualified::new(&table.schema, &table.name);
        Buffer {
            table,
            table_name,
            schema: Ident::new(schema),
            generation: 1,
            segments,
            partitions: Vec::new(),
            partitioned: false,
            inherited: false,
            known: None,
            unlogged: false,
            limit: super::DEFAULT_LIMIT,
        }
    }

    /// Sets the generation and the segments of a buffer that exists in the database. The generation counts
    /// from 1 how often the buffer was widened. The segments are in the order in which triggers last wrote to
    /// them.
    #[must_use]
    pub fn restored(mut self, generation: u32, segments: Vec<Segment>) -> Buffer {
        self.generation = generation;
        self.segments = segments;
        self
    }

    /// Adds the leaf and intermediate partitions of a partitioned table. Partitions get triggers too, since a
    /// statement fires only the triggers of the table that it names.
    #[must_use]
    pub fn with_partitions(mut self, partitions: Vec<Qualified>) -> Buffer {
        self.partitions = partitions;
        self.partitioned = true;
        self
    }

    /// Adds the children, on every level, of a table that is not partitioned.
    #[must_use]
    pub fn with_children(self, children: Vec<Qualified>) -> Buffer {
        Buffer { inherited: true, partitioned: false, partitions: children, ..self }
    }

    /// Sets the partitions or children for which the triggers were made. The triggers report any other
    /// partition or child.
    #[must_use]
    pub fn knowing(self, known: Children) -> Buffer {
        Buffer { known: Some(known), ..self }
    }

    /// Returns the partitions and children for which the triggers were made. Returns `None` where the caller
    /// did not set them.
    pub fn known(&self) -> Option<&Children> {
        self.known.as_ref()
    }

    /// Chooses whether segments are without WAL. Such a segment holds one row of weight NULL, the sentinel. A
    /// crash of the server removes the sentinel together with the other rows. A missing sentinel therefore
    /// tells that changes were lost.
    #[must_use]
    pub fn with_unlogged(mut self, unlogged: bool) -> Buffer {
        self.unlogged = unlogged;
        self
    }

    /// Returns the buffer without the check that compares the table with its description. In the catalog of
    /// an earlier version, the function for this check is missing.
    #[must_use]
    pub fn undescribed(&self) -> Buffer {
        let mut table = (*self.table).clone();
        table.columns.iter_mut().for_each(|c| c.number = 0);
        Buffer { table: Arc::new(table), ..self.clone() }
    }

    /// Whether the columns of the table have the numbers that a server gave them.
    pub(crate) fn is_described(&self) -> bool {
        self.table.columns.iter().all(|c| c.number > 0)
    }

    /// Whether the table is partitioned.
    pub(crate) fn is_partitioned(&self) -> bool {
        self.partitioned
    }

    /// Sets the greatest size of the current segment, in bytes. Once the segment has this size, single
    /// changes are no longer captured, and every reader is recomputed.
    #[must_use]
    pub fn with_limit(mut self, bytes: i64) -> Buffer {
        self.limit = bytes;
        self
    }

    /// Returns the source.
    pub fn table(&self) -> &Arc<TableDef> {
        &self.table
    }
    /// Returns the generation of the buffer, which counts from 1 how often the buffer was widened.
    pub fn generation(&self) -> u32 {
        self.generation
    }
    /// Whether the segments are without WAL.
    pub fn is_unlogged(&self) -> bool {
        self.unlogged
    }
    /// Returns the greatest size of the current segment, in bytes.
    pub fn limit(&self) -> i64 {
        self.limit
    }
    /// Returns the segments, in the order in which triggers last wrote to them.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
    /// Returns the current segment, which the triggers write to.
    pub fn current(&self) -> Option<&Segment> {
        self.segments.last()
    }
    /// Returns the captured columns, in the order of the buffer's columns.
    pub fn columns(&self) -> &[usize] {
        self.current().map_or(&[], |s| &s.columns)
    }

    /// Whether the buffer has all these columns of the source.
    pub fn covers(&self, columns: &[usize]) -> bool {
        columns.iter().all(|c| self.columns().contains(c))
    }

    /// Returns the name of the view over all segments, which refreshes read.
    pub fn view(&self) -> Qualified {
        self.named(&format!("changes_{}", self.table.id))
    }
    /// Returns the name of the table of a segment.
    pub fn segment_name(&self, segment: &Segment) -> Qualified {
        self.named(&format!("changes_{}_{}", self.table.id, segment.number))
    }

    /// Returns the statements that repair the buffer after a crash of the server, which empties segments
    /// without WAL. Each segment that lost its sentinel gets a new sentinel, and a row like the row for a
    /// TRUNCATE. Because of this row, every reader is recomputed once. The list is empty where segments
    /// survive crashes.
    pub fn heal(&self) -> Vec<Statement> {
        let insert = |s: &Segment| {
            let (v, w) = (Ident::fixed("v"), Ident::fixed("w"));
            let rows = [Scalar::null(Type::Int2), Scalar::Literal(Datum::Int(0), Type::Int2)];
            let rows = FromItem::Subquery {
                query: Box::new(Query::new(SetExpr::Values(rows.map(|r| vec![r]).into()))),
                alias: v.clone(),
                columns: vec![w.clone()],
                lateral: false,
            };
            let select = Select {
                items: vec![SelectItem { expr: Scalar::column(&v, &w), name: None }],
                from: vec![rows],
                filter: vec![self.is_lost(s)],
                ..Select::default()
            };
            Statement::Insert(Insert {
                ctes: Vec::new(),
                note: None,
                table: self.segment_name(s),
                alias: None,
                columns: vec![w],
                source: Query::select(select),
                on_conflict: None,
                returning: Vec::new(),
            })
        };
        self.segments.iter().filter(|_| self.unlogged).map(insert).collect()
    }

    /// Returns a query that gives one row if [`Buffer::heal`] would repair a segment, and otherwise no row.
    /// Returns `None` where segments survive crashes.
    pub fn has_lost(&self) -> Option<Statement> {
        let select = Select {
            items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
            filter: vec![Scalar::or(self.segments.iter().map(|s| self.is_lost(s)))],
            ..Select::default()
        };
        self.unlogged.then(|| Statement::Query(Query::select(select)))
    }

    /// Whether a segment without WAL has lost its sentinel, and therefore all its rows.
    fn is_lost(&self, segment: &Segment) -> Scalar {
        let alias = Ident::fixed("held");
        let sentinel = Select {
            items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
            from: vec![FromItem::relation(self.segment_name(segment), alias.clone())],
            filter: vec![Scalar::column(&alias, &Ident::fixed("w")).is_null()],
            ..Select::default()
        };
        Scalar::Exists { query: Box::new(Query::select(sentinel)), negated: true }
    }

    /// Returns the statement that gives an emptied segment without WAL its sentinel again.
    pub fn begin_segment(&self, segment: &Segment) -> Option<Statement> {
        self.unlogged.then(|| {
            Statement::Insert(Insert {
                ctes: Vec::new(),
                note: None,
                table: self.segment_name(segment),
                alias: None,
                columns: vec![Ident::fixed("w")],
                source: Query::new(SetExpr::Values(vec![vec![Scalar::null(Type::Int2)]])),
                on_conflict: None,
                returning: Vec::new(),
            })
        })
    }

    /// Returns the buffer without the segment `number`. The current segment always stays. The view must be
    /// replaced before the segment is dropped.
    #[must_use]
    pub fn without(&self, number: u32) -> Buffer {
        let mut less = self.clone();
        let current = self.current().map(|s| s.number);
        less.segments.retain(|s| s.number != number || Some(s.number) == current);
        less
    }

    pub(super) fn named(&self, name: &str) -> Qualified {
        Qualified { schema: Some(self.schema.clone()), name: Ident::new(name) }
    }

    /// Returns the name of the source.
    pub(crate) fn table_name(&self) -> &Qualified {
        &self.table_name
    }

    /// Whether the table has partitions or children that get separate triggers.
    pub(crate) fn has_children(&self) -> bool {
        !self.partitions.is_empty()
    }

    /// Returns the statement that waits until no open transaction has written the table or its partitions.
    /// The statement also keeps writers out until its own transaction ends.
    pub fn lock(&self) -> Statement {
        Statement::Lock(Lock {
            tables: self.captured().cloned().collect(),
            mode: LockMode::ShareRowExclusive,
            nowait: false,
            only: true,
        })
    }

    /// Returns the names of the table and of its partitions or children.
    pub(super) fn captured(&self) -> impl Iterator<Item = &Qualified> {
        std::iter::once(&self.table_name).chain(&self.partitions)
    }

    /// Returns the tables that get a trigger. For a row trigger of a partitioned table this is the table
    /// alone, since PostgreSQL itself repeats the trigger on the partitions.
    pub(crate) fn triggered(&self, for_each_row: bool) -> Vec<&Qualified> {
        let repeated = for_each_row && !self.inherited;
        self.captured().take(if repeated { 1 } else { usize::MAX }).collect()
    }

    /// Returns the name and the type that a column of the source has in the buffer. The type has no
    /// modifiers, so the buffer takes every value that the source took, even after the column of the source
    /// is made wider.
    pub(crate) fn column(&self, position: usize) -> Option<(Ident, Type)> {
        let column = self.table.columns.get(position)?;
        Some((BufferSources::buffer_column(&column.name), column.ty.unmodified()))
    }

    fn next(&self, columns: Vec<usize>) -> Buffer {
        let number = self.segments.iter().map(|s| s.number).max().unwrap_or(0) + 1;
        let mut next = self.clone();
        next.segments.push(Segment { number, columns });
        next
    }

    pub(super) fn rotated(&self) -> Buffer {
        self.next(self.columns().to_vec())
    }

    /// Returns the buffer in which the closed segment `number` is the current segment again. Returns `None`
    /// where that segment lacks columns.
    pub(super) fn reopened(&self, number: u32) -> Option<Buffer> {
        let mut next = self.clone();
        let at = next.segments.iter().position(|s| s.number == number && s.columns == self.columns())?;
        let segment = next.segments.remove(at);
        next.segments.push(segment);
        Some(next)
    }

    pub(super) fn widened(&self, columns: &[usize]) -> Buffer {
        let mut all = self.columns().to_vec();
        all.extend(distinct(&self.table, columns).into_iter().filter(|c| !self.columns().contains(c)));
        Buffer { generation: self.generation + 1, ..self.next(all) }
    }

    /// Creates the table of a segment. The columns of a segment may be NULL, since a row for a TRUNCATE has
    /// no values.
    pub(super) fn create_segment(&self, segment: &Segment) -> Vec<Statement> {
        let own = |name: &str, ty: Type, default| ColumnSpec {
            name: Ident::new(name),
            ty,
            not_null: !self.unlogged || name != "w",
            default,
        };
        let xid = Scalar::call("pg_current_xact_id", vec![]);
        let mut columns = vec![own("xid", xid8(), Some(xid)), own("w", Type::Int2, None)];
        columns.extend(segment.columns.iter().filter_map(|c| self.column(*c)).map(|(name, ty)| ColumnSpec {
            name,
            ty,
            not_null: false,
            default: None,
        }));
        let mut made = vec![Statement::CreateTable(CreateTable {
            name: self.segment_name(segment),
            unlogged: self.unlogged,
            if_not_exists: false,
            columns,
            primary_key: Vec::new(),
            fillfactor: None,
        })];
        made.extend(self.begin_segment(segment));
        made
    }

    /// Makes or replaces the view. `cmin` is the command that wrote a row. It tells a reader which rows a
    /// transaction wrote after a refresh in the same transaction. For a segment that lost its sentinel, the
    /// view has a row like the row for a TRUNCATE, under a transaction id that no frontier counts.
    pub fn create_view(&self) -> Statement {
        let (xid, w, cmin) = (Ident::fixed("xid"), Ident::fixed("w"), Ident::fixed("cmin"));
        let alias = Ident::fixed("s");
        let arm = |segment: &Segment| {
            let own = [&xid, &w, &cmin].map(|c| Scalar::column(&alias, c));
            let value = |c: &usize| {
                let (name, ty) = self.column(*c)?;
                let there = segment.columns.contains(c);
                Some(if there { Scalar::column(&alias, &name) } else { Scalar::null(ty) })
            };
            let rest = self.columns().iter().filter_map(value);
            let items = own.into_iter().chain(rest).map(|expr| SelectItem { expr, name: None }).collect();
            let sentinel = self.unlogged.then(|| Scalar::column(&alias, &w).is_not_null());
            SetExpr::Select(Box::new(Select {
                items,
                from: vec![FromItem::relation(self.segment_name(segment), alias.clone())],
                filter: sentinel.into_iter().collect(),
                ..Select::default()
            }))
        };
        let lost = |segment: &Segment| {
            let own = [
                Scalar::text("9223372036854775807").cast(xid8()),
                Scalar::Literal(Datum::Int(0), Type::Int2),
                Scalar::text("0").cast(Type::Other(Arc::new(opaque("cid")))),
            ];
            let rest = self.columns().iter().filter_map(|c| self.column(*c)).map(|(_, ty)| Scalar::null(ty));
            let items = own.into_iter().chain(rest).map(|expr| SelectItem { expr, name: None }).collect();
            let filter = vec![self.is_lost(segment)];
            SetExpr::Select(Box::new(Select { items, filter, ..Select::default() }))
        };
        let mut arms: Vec<SetExpr> = self.segments.iter().map(arm).collect();
        arms.extend(self.segments.iter().filter(|_| self.unlogged).map(lost));
        let body = if arms.len() == 1 { arms.swap_remove(0) } else { SetExpr::UnionAll(arms) };
        let mut columns = vec![xid.clone(), w.clone(), cmin.clone()];
        columns.extend(self.columns().iter().filter_map(|c| self.column(*c)).map(|(name, _)| name));
        Statement::CreateView(CreateView { name: self.view(), columns, query: Query::new(body) })
    }
}

/// Returns the type of `pg_current_xact_id()`.
pub(crate) fn xid8() -> Type {
    Type::Other(Arc::new(opaque("xid8")))
}

/// Returns the positions among `columns` that exist in the table, each once, in the order of the table.
fn distinct(table: &TableDef, columns: &[usize]) -> Vec<usize> {
    (0..table.columns.len()).filter(|c| columns.contains(c)).collect()
}
