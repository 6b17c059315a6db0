//! The tables and the view that hold captured changes.

use crate::catalog::TableDef;
use crate::sql::ast::{
    ColumnSpec, CreateTable, CreateView, FromItem, Insert, Lock, LockMode, Query, Scalar, Select, SelectItem,
    SetExpr, Statement,
};
use crate::sql::{BufferSources, Ident, Qualified, opaque};
use crate::types::{Datum, Type};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One table of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its number, which its name ends with.
    pub number: u32,
    /// The columns of the source that it has, as positions, in the order of its own columns.
    pub columns: Vec<usize>,
}

/// The buffer of one source.
///
/// Columns are only ever added, and added at the end, so that the view can be replaced while others read it.
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

/// Partitions and children, on every level, that triggers are made for.
#[derive(Clone, Debug, Default)]
pub struct Children {
    /// All, by oid.
    pub all: Vec<u32>,
    /// Those of them that have partitions themselves.
    pub partitioned: Vec<u32>,
}

impl Buffer {
    /// A buffer in `schema` for these columns (positions) of a table, with one segment.
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

    /// A buffer that exists: its generation (how often it was widened, from 1) and segments, oldest first.
    #[must_use]
    pub fn restored(mut self, generation: u32, segments: Vec<Segment>) -> Buffer {
        self.generation = generation;
        self.segments = segments;
        self
    }

    /// The leaf and intermediate partitions of a partitioned table: a statement fires the triggers of the table that it
    /// names only.
    #[must_use]
    pub fn with_partitions(mut self, partitions: Vec<Qualified>) -> Buffer {
        self.partitions = partitions;
        self.partitioned = true;
        self
    }

    /// The children, on every level, of a table that is no partitioned one.
    #[must_use]
    pub fn with_children(self, children: Vec<Qualified>) -> Buffer {
        Buffer { inherited: true, partitioned: false, partitions: children, ..self }
    }

    /// Its triggers were made for these partitions or children, and note that there are others.
    #[must_use]
    pub fn knowing(self, known: Children) -> Buffer {
        Buffer { known: Some(known), ..self }
    }

    /// The partitions and children that its triggers know; `None` where nobody said.
    pub fn known(&self) -> Option<&Children> {
        self.known.as_ref()
    }

    /// Segments without WAL. Each holds one row of weight NULL, which a crash of the server takes with the others:
    /// where it is missing, changes were lost.
    #[must_use]
    pub fn with_unlogged(mut self, unlogged: bool) -> Buffer {
        self.unlogged = unlogged;
        self
    }

    /// The same, for functions that do not look whether the table is what they were made for: a catalog of an
    /// earlier version has nothing that looks.
    #[must_use]
    pub fn undescribed(&self) -> Buffer {
        let mut table = (*self.table).clone();
        table.columns.iter_mut().for_each(|c| c.number = 0);
        Buffer { table: Arc::new(table), ..self.clone() }
    }

    /// Whether a server told the numbers of the table's columns.
    pub(crate) fn is_described(&self) -> bool {
        self.table.columns.iter().all(|c| c.number > 0)
    }

    /// Whether the table is a partitioned one.
    pub(crate) fn is_partitioned(&self) -> bool {
        self.partitioned
    }

    /// Bytes of the segment that is written from which on changes are not told apart any more, but every reader is
    /// recomputed.
    #[must_use]
    pub fn with_limit(mut self, bytes: i64) -> Buffer {
        self.limit = bytes;
        self
    }

    /// The source.
    pub fn table(&self) -> &Arc<TableDef> {
        &self.table
    }
    /// How often it was widened, from 1.
    pub fn generation(&self) -> u32 {
        self.generation
    }
    /// Whether its segments are without WAL.
    pub fn is_unlogged(&self) -> bool {
        self.unlogged
    }
    /// The bytes that the segment that is written may have.
    pub fn limit(&self) -> i64 {
        self.limit
    }
    /// Its segments, in the order in which they were last written to.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
    /// The segment that is written.
    pub fn current(&self) -> Option<&Segment> {
        self.segments.last()
    }
    /// The captured columns, in the order of the buffer's.
    pub fn columns(&self) -> &[usize] {
        self.current().map_or(&[], |s| &s.columns)
    }

    /// Whether the buffer has all of these columns.
    pub fn covers(&self, columns: &[usize]) -> bool {
        columns.iter().all(|c| self.columns().contains(c))
    }

    /// The view over all segments, which refreshes read.
    pub fn view(&self) -> Qualified {
        self.named(&format!("changes_{}", self.table.id))
    }
    /// The table of a segment.
    pub fn segment_name(&self, segment: &Segment) -> Qualified {
        self.named(&format!("changes_{}_{}", self.table.id, segment.number))
    }

    /// Makes good for a crash of the server, which empties segments without WAL: each segment that lost its sentinel gets
    /// a new one, and the mark of a TRUNCATE, which every reader meets once. Nothing to do where segments survive crashes.
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

    /// One row where [`Buffer::heal`] has anything to do, else none; `None` where segments survive crashes.
    pub fn has_lost(&self) -> Option<Statement> {
        let select = Select {
            items: vec![SelectItem { expr: Scalar::int4(1), name: None }],
            filter: vec![Scalar::or(self.segments.iter().map(|s| self.is_lost(s)))],
            ..Select::default()
        };
        self.unlogged.then(|| Statement::Query(Query::select(select)))
    }

    /// Whether a segment without WAL has lost its sentinel, and with it all that it held.
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

    /// What an emptied segment needs before it can be written again.
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

    /// The buffer without a segment; never without the one that is written. The view must be replaced before it is
    /// dropped.
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

    /// The table's name.
    pub(crate) fn table_name(&self) -> &Qualified {
        &self.table_name
    }

    /// Whether the table has partitions, or children, that get triggers of their own.
    pub(crate) fn has_children(&self) -> bool {
        !self.partitions.is_empty()
    }

    /// Waits until nobody writes the table or its partitions, and keeps writers out until the transaction
    /// ends.
    pub fn lock(&self) -> Statement {
        Statement::Lock(Lock {
            tables: self.captured().cloned().collect(),
            mode: LockMode::ShareRowExclusive,
            nowait: false,
            only: true,
        })
    }

    /// The table, then its partitions.
    pub(super) fn captured(&self) -> impl Iterator<Item = &Qualified> {
        std::iter::once(&self.table_name).chain(&self.partitions)
    }

    /// The tables that get a trigger. PostgreSQL repeats a row trigger of a partitioned table on its partitions itself.
    pub(crate) fn triggered(&self, for_each_row: bool) -> Vec<&Qualified> {
        let repeated = for_each_row && !self.inherited;
        self.captured().take(if repeated { 1 } else { usize::MAX }).collect()
    }

    /// The name here and the type of a column of the source. The type has no modifiers: a value that the source took is taken
    /// here too, also after its column was made wider.
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

    /// The buffer that writes to a closed segment again; `None` where that lacks columns.
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

    /// Columns of a segment may be NULL: the mark of a TRUNCATE has no values.
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

    /// Makes or replaces the view. `cmin` is the command that wrote a row: it tells what a transaction wrote after it
    /// refreshed. A segment that lost its sentinel shows the mark of a TRUNCATE, under a transaction that no frontier has.
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

/// The type of `pg_current_xact_id()`.
pub(crate) fn xid8() -> Type {
    Type::Other(Arc::new(opaque("xid8")))
}

/// Positions that exist, each once, in the order of the table.
fn distinct(table: &TableDef, columns: &[usize]) -> Vec<usize> {
    (0..table.columns.len()).filter(|c| columns.contains(c)).collect()
}
