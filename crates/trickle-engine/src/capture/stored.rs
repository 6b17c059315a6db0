//! Reads from the catalog how the changes of a table are captured, and stores it there.

use crate::catalog::PgCatalog;
use crate::db::{Connection, Json, Row, Transaction};
use crate::error::{Error, Result};
use crate::names::HIDDEN;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trickle_core::catalog::{Catalog, TableDef, TableId};
use trickle_core::cdc::{Buffer, Children, Mode, Segment};
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::Capture;

/// A segment of a buffer, as the catalog describes it. Columns are attribute numbers, which do not change
/// when other columns are renamed or dropped.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredSegment {
    number: u32,
    columns: Vec<i16>,
}

/// A buffer, as the catalog describes it.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) buffer: Buffer,
    pub(crate) mode: Mode,
    pub(crate) state: Capture,
    pub(crate) attnums: Vec<i16>,
}

const BUFFER: &str = "SELECT trigger_mode, unlogged, generation, segments, capture, limit_bytes, children, \
     ARRAY(SELECT c.oid FROM pg_class c WHERE c.oid = ANY (children) AND c.relkind = 'p' ORDER BY 1) \
     FROM pgtrickle.pgt_buffers WHERE source_relid = $1";

/// The attribute numbers of a table's columns, in the order of [`TableDef::columns`].
const ATTNUMS: &str = "SELECT attnum FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped \
     ORDER BY attnum";

/// Table `$1`, followed by its partitions and children on every level. Each of these tables has triggers of
/// its own, since a statement fires only the triggers of the table that it names.
const CHILDREN: &str = "
WITH RECURSIVE tree(oid) AS (
    SELECT $1::oid
    UNION SELECT h.inhrelid FROM tree JOIN pg_inherits h ON h.inhparent = tree.oid AND NOT h.inhdetachpending
)
SELECT n.nspname, c.relname, c.relkind = 'p' FROM tree JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' ORDER BY c.oid <> $1, c.oid";

/// All partitions and children of table `$1` without `$2`, and those among them that have partitions.
const KNOWN: &str = "SELECT t.known, ARRAY(SELECT c.oid FROM pg_class c WHERE c.oid = ANY (t.known) AND c.relkind = 'p' ORDER BY 1) \
     FROM (SELECT ARRAY(SELECT unnest(pgtrickle.children($1)) EXCEPT SELECT unnest($2::oid[]) ORDER BY 1)) t(known)";

/// Reads from the catalog how the changes of a table are captured. Returns `None` where the catalog has no
/// buffer of the table.
pub(crate) async fn read(db: &dyn Connection, table: &Arc<TableDef>) -> Result<Option<Captured>> {
    let doing = |e| Error::server("read how changes are captured", e);
    let Some(row) = db.query_opt(BUFFER, &[&table.id.0]).await.map_err(doing)? else { return Ok(None) };
    let attnums = attnums(db, table.id).await?;
    let mut captured = restore(&row, table, attnums)?;
    captured.buffer = with_children(db, captured.buffer).await?;
    Ok(Some(captured))
}

fn restore(row: &Row, table: &Arc<TableDef>, attnums: Vec<i16>) -> Result<Captured> {
    let mode = Mode::parse(row.get(0))?;
    let generation = u32::try_from(row.get::<i32>(2)).unwrap_or(1);
    let stored: Json<Vec<StoredSegment>> = row.get(3);
    let position = |a: &i16| attnums.iter().position(|b| a == b);
    let segments = stored
        .0
        .iter()
        .map(|s| Segment { number: s.number, columns: s.columns.iter().filter_map(position).collect() });
    let buffer = Buffer::new(table.clone(), HIDDEN, &[])
        .restored(generation, segments.collect())
        .with_unlogged(row.get(1))
        .with_limit(row.get(5));
    let known: Option<Vec<u32>> = row.get(6);
    let buffer = match known {
        Some(all) => buffer.knowing(Children { all, partitioned: row.get(7) }),
        None => buffer,
    };
    Ok(Captured { buffer, mode, state: Capture::parse(row.get(4))?, attnums })
}

pub(super) async fn attnums(db: &dyn Connection, table: TableId) -> Result<Vec<i16>> {
    let rows = db.query(ATTNUMS, &[&table.0]).await;
    Ok(rows.map_err(|e| Error::server("read the columns of a table", e))?.iter().map(|r| r.get(0)).collect())
}

/// Returns the tables whose changes are captured.
pub(super) async fn captured(db: &dyn Connection, doing: &str) -> Result<Vec<Captured>> {
    let text = "SELECT b.source_relid, n.nspname, c.relname FROM pgtrickle.pgt_buffers b \
         JOIN pg_class c ON c.oid = b.source_relid JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE b.capture = 'ON' ORDER BY 1";
    let mut catalog = PgCatalog::new();
    let mut found = Vec::new();
    for row in db.query(text, &[]).await.map_err(|e| Error::server(doing, e))? {
        let (schema, name): (String, String) = (row.get(1), row.get(2));
        if let Some(table) = table_by_oid(db, &mut catalog, &schema, &name).await? {
            found.extend(read(db, &table).await?);
        }
    }
    Ok(found)
}

/// Returns the buffer with the present partitions or children of its table.
pub(crate) async fn with_children(db: &dyn Connection, buffer: Buffer) -> Result<Buffer> {
    let rows = db.query(CHILDREN, &[&buffer.table().id.0]).await;
    let rows = rows.map_err(|e| Error::server("read the partitions of a table", e))?;
    let partitioned = rows.first().is_some_and(|r| r.get(2));
    // The first row is the table itself. A partitioned table counts as partitioned even without partitions,
    // since it may get some.
    let names = rows.iter().skip(1).map(|r| Qualified::new(r.get::<String>(0), r.get::<String>(1))).collect();
    Ok(if partitioned { buffer.with_partitions(names) } else { buffer.with_children(names) })
}

/// Returns the buffer with triggers that list all present partitions and children of its table, except for
/// partitions that leave it in this transaction.
pub(super) async fn knowing(t: &Transaction<'_>, buffer: Buffer, leaving: &[u32]) -> Result<Buffer> {
    let row = t.query_one(KNOWN, &[&buffer.table().id.0, &leaving]).await;
    let row = row.map_err(|e| Error::server("read the partitions of a table", e))?;
    Ok(buffer.knowing(Children { all: row.get(0), partitioned: row.get(1) }))
}

/// Returns an error where a table has other partitions or children than its triggers were made for. The
/// caller has locked the table, so every session that was attaching a partition has ended.
pub(super) async fn require_known(t: &Transaction<'_>, buffer: &Buffer) -> Result<()> {
    let Some(known) = buffer.known() else { return Ok(()) };
    let text = "SELECT pgtrickle.children($1) = $2::oid[]";
    let row = t.query_one(text, &[&buffer.table().id.0, &known.all]).await;
    if row.map_err(|e| Error::server("read the partitions of a table", e))?.get(0) {
        return Ok(());
    }
    let table = buffer.table();
    Err(Error::stale(format!("partitions of {}.{} come and go", table.schema, table.name)))
}

fn stored(buffer: &Buffer, attnums: &[i16]) -> Json<Vec<StoredSegment>> {
    let segment = |s: &Segment| StoredSegment {
        number: s.number,
        columns: s.columns.iter().filter_map(|c| attnums.get(*c)).copied().collect(),
    };
    Json(buffer.segments().iter().map(segment).collect())
}

/// Describes a buffer in the catalog just after its triggers were made, with the present definition of the
/// source.
pub(super) async fn note(t: &Transaction<'_>, buffer: &Buffer, mode: Mode, attnums: &[i16]) -> Result<()> {
    note_without(t, buffer, mode, attnums, &[]).await
}

/// Does the same as [`note`], with the definition that the source will have without the partitions `leaving`.
pub(super) async fn note_without(
    t: &Transaction<'_>,
    buffer: &Buffer,
    mode: Mode,
    attnums: &[i16],
    leaving: &[u32],
) -> Result<()> {
    let generation = i32::try_from(buffer.generation()).unwrap_or(i32::MAX);
    let paired: Vec<i64> =
        buffer.paired_by().iter().filter_map(|c| attnums.get(*c)).map(|n| i64::from(*n)).collect();
    t.execute(
        "INSERT INTO pgtrickle.pgt_buffers (source_relid, trigger_mode, unlogged, generation, segments, limit_bytes, \
         schema_fingerprint, triggers_fingerprint, relied, paired, children, parts) \
         VALUES ($1, $2, $3, $4, $5, $6, pgtrickle.fingerprint($1, 32767::int2, $8), pgtrickle.triggers_fingerprint($1, $8), \
         pgtrickle.relied($1, pgtrickle.held_columns($5) || $7::int2[], $8), $7::int2[], \
         ARRAY(SELECT unnest(pgtrickle.children($1)) EXCEPT SELECT unnest($8::oid[]) ORDER BY 1), pgtrickle.parts($1, true, $8)) \
         ON CONFLICT (source_relid) DO UPDATE SET trigger_mode = excluded.trigger_mode, unlogged = excluded.unlogged, \
         generation = excluded.generation, segments = excluded.segments, capture = 'ON', limit_bytes = excluded.limit_bytes, \
         schema_fingerprint = excluded.schema_fingerprint, triggers_fingerprint = excluded.triggers_fingerprint, \
         relied = excluded.relied, paired = excluded.paired, children = excluded.children, parts = excluded.parts",
        &[
            &buffer.table().id.0,
            &mode.name(),
            &buffer.is_unlogged(),
            &generation,
            &stored(buffer, attnums),
            &buffer.limit(),
            &paired,
            &leaving,
        ],
    )
    .await
    .map_err(|e| Error::server("note how changes are captured", e))?;
    Ok(())
}

/// Stores the segments of a buffer and its limit in the catalog. The description of its triggers stays
/// unchanged.
pub(crate) async fn note_segments(t: &dyn Connection, buffer: &Buffer, attnums: &[i16]) -> Result<()> {
    let text = "UPDATE pgtrickle.pgt_buffers SET segments = $2, limit_bytes = $3, \
         relied = pgtrickle.relied(source_relid, pgtrickle.held_columns($2) || paired) WHERE source_relid = $1";
    let noted = t.execute(text, &[&buffer.table().id.0, &stored(buffer, attnums), &buffer.limit()]).await;
    if noted.map_err(|e| Error::server("note the segments of a buffer", e))? == 0 {
        // Triggers must not write to a segment that the catalog does not list.
        let table = &buffer.table().name;
        return Err(Error::input(format!("the buffer of {table} is another role's")).coded("42501"));
    }
    Ok(())
}

/// Whether the triggers of a buffer exist, are switched on, and were made for the present definition of the
/// table.
pub(crate) async fn fresh(t: &dyn Connection, c: &Captured) -> Result<bool> {
    let row = t
        .query_one(
            "SELECT capture = 'ON' AND pgtrickle.fingerprint(source_relid) IS NOT DISTINCT FROM schema_fingerprint \
             AND pgtrickle.triggers_fingerprint(source_relid) IS NOT DISTINCT FROM triggers_fingerprint \
             AND (trigger_mode = 'ROW' OR NOT pgtrickle.is_subscribed(source_relid)) \
             AND to_regclass(pg_catalog.format('pgtrickle_changes.changes_%s', source_relid)) IS NOT NULL \
             AND to_regclass(pg_catalog.format('pgtrickle_changes.changes_%s_%s', source_relid, segments->-1->>'number')) IS NOT NULL \
             AND NOT EXISTS (SELECT FROM pgtrickle.pgt_marks m WHERE m.source_relid = b.source_relid AND m.pgt_id IS NULL) \
             FROM pgtrickle.pgt_buffers b WHERE source_relid = $1",
            &[&c.buffer.table().id.0],
        )
        .await
        .map_err(|e| Error::server("read the definition of a table", e))?;
    Ok(row.get(0))
}

/// Reads the definition of a table, by its name, into `catalog`, and returns it.
pub(crate) async fn table_by_oid(
    db: &dyn Connection,
    catalog: &mut PgCatalog,
    schema: &str,
    name: &str,
) -> Result<Option<Arc<TableDef>>> {
    catalog.fetch(db, Some(schema), name).await?;
    Ok(catalog.table(Some(schema), name))
}
