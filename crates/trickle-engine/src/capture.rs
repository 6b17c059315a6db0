//! Makes, widens and removes the capture of changes in a live database: triggers and change buffers.
//!
//! The core decides which objects are made ([`trickle_core::cdc`]). This module decides when they are made
//! and under which locks, and describes them in the catalog. Every statement that touches a user's table
//! runs under a short `lock_timeout` ([`crate::locks`]).

use crate::catalog::PgCatalog;
use crate::db::{Connection, Json, Row, Transaction};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use trickle_core::catalog::{Catalog, TableDef, TableId};
use trickle_core::cdc::{Buffer, Children, Mode, Segment};
use trickle_core::sql::ast::{DropObject, ObjectKind, Statement};
use trickle_core::sql::{Qualified, print};
use trickle_core::vocabulary::Capture;

/// The schema of buffers and states.
pub(crate) const HIDDEN: &str = "pgtrickle_changes";

/// The options for capturing changes of a table that is not captured yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Statement triggers or row triggers (`cdc_trigger_mode`).
    pub mode: Mode,
    /// Whether segments are unlogged tables, which write no WAL (`change_buffer_unlogged`).
    pub unlogged: bool,
}

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

const BUFFER: &str = "SELECT trigger_mode, unlogged, generation, segments, capture, limit_bytes, children, \
     ARRAY(SELECT c.oid FROM pg_class c WHERE c.oid = ANY (children) AND c.relkind = 'p' ORDER BY 1) \
     FROM pgtrickle.pgt_buffers WHERE source_relid = $1";

/// All partitions and children of a table, and those among them that have partitions.
const KNOWN: &str = "SELECT t.known, ARRAY(SELECT c.oid FROM pg_class c WHERE c.oid = ANY (t.known) AND c.relkind = 'p' ORDER BY 1) \
     FROM (SELECT pgtrickle.children($1)) t(known)";

/// Runs the statements of a list in order.
pub(crate) async fn run_all(db: &dyn Connection, statements: &[Statement], doing: &str) -> Result<()> {
    db.batch_execute(&texts(statements).join(";\n")).await.map_err(|e| Error::server(doing, e))
}

/// Returns statements as texts. A table that one of the statements makes without a primary key gets REPLICA
/// IDENTITY FULL. Otherwise the server refuses updates of the table while a publication FOR ALL TABLES
/// exists.
pub(crate) fn texts(statements: &[Statement]) -> Vec<String> {
    let identified = |s: &Statement| {
        let Statement::CreateTable(made) = s else { return None };
        made.primary_key.is_empty().then(|| whole_rows(&made.name))
    };
    statements.iter().flat_map(|s| [Some(print(s).text), identified(s)]).flatten().collect()
}

/// Returns the statement that makes all columns the replica identity of a table without a primary key.
/// Without it, the server refuses updates of a published table.
pub(crate) fn whole_rows(table: &Qualified) -> String {
    format!("ALTER TABLE {table} REPLICA IDENTITY FULL")
}

/// Runs the statements of a list in order as the catalog's owner, who will own the objects that they make.
pub(crate) async fn run_as_keeper(db: &dyn Connection, statements: &[Statement], doing: &str) -> Result<()> {
    let mut texts = texts(statements);
    texts.push("SELECT pgtrickle.without_statistics()".to_owned());
    db.as_keeper(&texts.join(";\n")).await.map_err(|e| Error::server(doing, e))
}

/// Runs the statements that make the capture of a table, as the catalog's owner. The current role must own
/// the table and all its partitions and children. Ownership is checked twice. The check before the
/// statements protects tables of other roles from being locked. The check after them is made under the
/// locks.
async fn make(t: &Transaction<'_>, table: TableId, statements: &[Statement], doing: &str) -> Result<()> {
    require_owner(t, table, doing).await?;
    run_as_keeper(t, statements, doing).await?;
    require_owner(t, table, doing).await
}

async fn require_owner(t: &Transaction<'_>, table: TableId, doing: &str) -> Result<()> {
    let owned = t.execute("SELECT pgtrickle.require_owner(ARRAY[$1::oid])", &[&table.0]).await;
    owned.map(drop).map_err(|e| Error::server(doing, e))
}

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

async fn attnums(db: &dyn Connection, table: TableId) -> Result<Vec<i16>> {
    let rows = db.query(ATTNUMS, &[&table.0]).await;
    Ok(rows.map_err(|e| Error::server("read the columns of a table", e))?.iter().map(|r| r.get(0)).collect())
}

/// Returns the buffer with triggers that list all present partitions and children of its table.
async fn knowing(t: &Transaction<'_>, buffer: Buffer) -> Result<Buffer> {
    let row = t.query_one(KNOWN, &[&buffer.table().id.0]).await;
    let row = row.map_err(|e| Error::server("read the partitions of a table", e))?;
    Ok(buffer.knowing(Children { all: row.get(0), partitioned: row.get(1) }))
}

/// Returns an error where a table has other partitions or children than its triggers were made for. The
/// caller has locked the table, so every session that was attaching a partition has ended.
async fn require_known(t: &Transaction<'_>, buffer: &Buffer) -> Result<()> {
    let Some(known) = buffer.known() else { return Ok(()) };
    let text = "SELECT pgtrickle.children($1) = $2::oid[]";
    let row = t.query_one(text, &[&buffer.table().id.0, &known.all]).await;
    if row.map_err(|e| Error::server("read the partitions of a table", e))?.get(0) {
        return Ok(());
    }
    let table = buffer.table();
    Err(Error::stale(format!("partitions of {}.{} come and go", table.schema, table.name)))
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

fn stored(buffer: &Buffer, attnums: &[i16]) -> Json<Vec<StoredSegment>> {
    let segment = |s: &Segment| StoredSegment {
        number: s.number,
        columns: s.columns.iter().filter_map(|c| attnums.get(*c)).copied().collect(),
    };
    Json(buffer.segments().iter().map(segment).collect())
}

/// Describes a buffer in the catalog just after its triggers were made, with the present definition of the
/// source.
async fn note(t: &Transaction<'_>, buffer: &Buffer, mode: Mode, attnums: &[i16]) -> Result<()> {
    let generation = i32::try_from(buffer.generation()).unwrap_or(i32::MAX);
    let paired: Vec<i64> =
        buffer.paired_by().iter().filter_map(|c| attnums.get(*c)).map(|n| i64::from(*n)).collect();
    t.execute(
        "INSERT INTO pgtrickle.pgt_buffers (source_relid, trigger_mode, unlogged, generation, segments, limit_bytes, \
         schema_fingerprint, triggers_fingerprint, relied, paired, children) \
         VALUES ($1, $2, $3, $4, $5, $6, pgtrickle.fingerprint($1), pgtrickle.triggers_fingerprint($1), \
         pgtrickle.relied($1, pgtrickle.held_columns($5) || $7::int2[]), $7::int2[], pgtrickle.children($1)) \
         ON CONFLICT (source_relid) DO UPDATE SET trigger_mode = excluded.trigger_mode, unlogged = excluded.unlogged, \
         generation = excluded.generation, segments = excluded.segments, capture = 'ON', limit_bytes = excluded.limit_bytes, \
         schema_fingerprint = excluded.schema_fingerprint, triggers_fingerprint = excluded.triggers_fingerprint, \
         relied = excluded.relied, paired = excluded.paired, children = excluded.children",
        &[
            &buffer.table().id.0,
            &mode.name(),
            &buffer.is_unlogged(),
            &generation,
            &stored(buffer, attnums),
            &buffer.limit(),
            &paired,
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

/// Makes sure that changes of these columns of a table are captured from the commit of `t` on. Does nothing
/// where the user holds the capture of the table off. Waits for transactions that write the table, if an
/// object must be made.
pub(crate) async fn ensure(
    t: &Transaction<'_>,
    table: &Arc<TableDef>,
    columns: &[usize],
    options: CaptureOptions,
) -> Result<()> {
    let limit = limit(t).await?;
    let doing = format!("capture the changes of {}.{}", table.schema, table.name);
    let by_row = is_by_row(t, table, &doing).await?;
    let mode_of = |wanted| if by_row { Mode::Row } else { wanted };
    grow(t, table.id).await?;
    match read(t, table).await? {
        Some(c) if c.state == Capture::Held => Ok(()),
        Some(c) if fresh(t, &c).await? => {
            if c.buffer.covers(columns) {
                return Ok(());
            }
            let (wide, statements) = c.mode.source().widen(&c.buffer, columns);
            make(t, table.id, &statements, &doing).await?;
            require_known(t, &wide).await?;
            return note(t, &wide, c.mode, &c.attnums).await;
        }
        Some(c) => {
            // The triggers were made for another definition of the table, or were switched off, so all
            // objects are made again.
            let mut all = c.buffer.columns().to_vec();
            all.extend_from_slice(columns);
            remove(t, table.id.0).await?;
            let buffer = Buffer::new(table.clone(), HIDDEN, &all).with_unlogged(c.buffer.is_unlogged());
            install(t, buffer.with_limit(limit), mode_of(c.mode), &doing).await
        }
        None => {
            let buffer = Buffer::new(table.clone(), HIDDEN, columns).with_unlogged(options.unlogged);
            install(t, buffer.with_limit(limit), mode_of(options.mode), &doing).await
        }
    }
}

/// Lets readers of table `$1` keep plans that were made before the table got the partitions `$2`, since the
/// plans still read the same table. A reader that another session refreshes at the moment is skipped, and
/// planned again later.
const ADOPTED: &str = "
UPDATE pgtrickle.pgt_dependencies d SET schema_fingerprint = pgtrickle.fingerprint($1),
    relied = pgtrickle.relied_now($1, d.columns_used, CASE WHEN d.keeps_plan THEN d.relied END)
WHERE d.source_relid = $1 AND d.pgt_id IN (
    SELECT r.pgt_id FROM pgtrickle.pgt_dependencies r JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    WHERE r.source_relid = $1 AND s.refresh_mode <> 'IMMEDIATE' AND r.schema_fingerprint = pgtrickle.fingerprint($1, 32767::int2, $2)
    FOR UPDATE OF r SKIP LOCKED)";

/// Captures the changes of empty partitions that a table got in this transaction. A partition without a row
/// changes no result. Waits for no other session.
pub(crate) async fn adopt(t: &Transaction<'_>, source: u32) -> Result<()> {
    let doing = "capture the changes of a new partition";
    let fail = |e| Error::server(doing, e);
    let row = t.query_one("SELECT pgtrickle.empty_partitions($1)", &[&source]).await.map_err(fail)?;
    let Some(came) = row.get::<Option<Vec<u32>>>(0) else { return Ok(()) };
    let text = "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.oid = ANY ($1 || $2::oid) ORDER BY c.oid = $2, c.oid";
    let rows = t.query(text, &[&came, &source]).await.map_err(fail)?;
    let mut names: Vec<(String, String)> = rows.iter().map(|r| (r.get(0), r.get(1))).collect();
    let Some((schema, name)) = names.pop() else { return Ok(()) };
    let Some(table) = table_by_oid(&**t, &mut PgCatalog::new(), &schema, &name).await? else { return Ok(()) };
    let Some(c) = read(&**t, &table).await? else { return Ok(()) };
    let buffer = knowing(t, c.buffer).await?;
    let names: Vec<Qualified> =
        names.into_iter().map(|(schema, name)| Qualified::new(schema, name)).collect();
    make(t, table.id, &c.mode.source().adopt(&buffer, &names), doing).await?;
    require_known(t, &buffer).await?;
    t.execute(ADOPTED, &[&source, &came]).await.map_err(fail)?;
    note(t, &buffer, c.mode, &c.attnums).await
}

/// Whether the rows of a buffer still fit its table after an ALTER TABLE. The rows fit if the table only got
/// columns, or if every property that its triggers rely on is unchanged.
pub(crate) const GOES_ON: &str = "(pgtrickle.has_grown(source_relid, schema_fingerprint) \
     OR pgtrickle.still_serves(source_relid, pgtrickle.held_columns(segments) || paired, relied, 'TRIGGERS') IS TRUE)";

/// Stores the present definition of a table in the catalog if the alteration changed no property that the
/// triggers of the table rely on. The triggers themselves stay unchanged.
pub(crate) async fn grow(t: &Transaction<'_>, table: TableId) -> Result<()> {
    let text = format!(
        "UPDATE pgtrickle.pgt_buffers SET schema_fingerprint = pgtrickle.fingerprint(source_relid), \
         relied = pgtrickle.relied(source_relid, pgtrickle.held_columns(segments) || paired) WHERE source_relid = $1 \
         AND capture = 'ON' AND schema_fingerprint IS DISTINCT FROM pgtrickle.fingerprint(source_relid) AND {GOES_ON}"
    );
    let done = t.execute(&text, &[&table.0]).await;
    done.map(drop).map_err(|e| Error::server("note the columns of a table", e))
}

/// Whether a table needs row triggers, because statements may change it without firing its statement
/// triggers. A statement that names the parent of a partition or child fires only the parent's triggers.
/// Changes that a subscription applies fire no statement triggers.
async fn is_by_row(t: &Transaction<'_>, table: &TableDef, doing: &str) -> Result<bool> {
    let text = "SELECT pgtrickle.is_subscribed($1) OR EXISTS (SELECT FROM pg_inherits WHERE inhrelid = $1)";
    let row = t.query_one(text, &[&table.id.0]).await.map_err(|e| Error::server(doing, e))?;
    Ok(row.get(0))
}

/// Makes the capture of a table again where its triggers were altered, or are not of the kind that `options`
/// name. The readers of the table are then marked for a recompute. Returns whether the capture was made
/// again.
pub(crate) async fn rebuild(
    t: &Transaction<'_>,
    table: &Arc<TableDef>,
    options: CaptureOptions,
) -> Result<bool> {
    let doing = format!("capture the changes of {}.{}", table.schema, table.name);
    let Some(c) = read(t, table).await?.filter(|c| c.state == Capture::On) else { return Ok(false) };
    let mode = if is_by_row(t, table, &doing).await? { Mode::Row } else { options.mode };
    if c.mode == mode && c.buffer.is_unlogged() == options.unlogged && fresh(t, &c).await? {
        return Ok(false);
    }
    remove(t, table.id.0).await?;
    let buffer = Buffer::new(table.clone(), HIDDEN, c.buffer.columns()).with_unlogged(options.unlogged);
    install(t, buffer.with_limit(limit(t).await?), mode, &doing).await?;
    Ok(true)
}

/// Returns the greatest number of bytes that a buffer may have. The limit is stored in the catalog, so that
/// all clients have the same one. Two clients with different limits would each make all triggers again after
/// the other.
pub(crate) async fn limit(db: &dyn Connection) -> Result<i64> {
    let text = "SELECT buffer_limit_bytes FROM pgtrickle.pgt_catalog_version";
    let row = db.query_one(text, &[]).await;
    Ok(row.map_err(|e| Error::server("read the limit of buffers", e))?.get(0))
}

/// Marks all readers of a table for a recompute, since not all of its changes were captured. A reader that
/// is marked already keeps its reason, and other readers get the reason `why`. The catalog rows of all
/// readers are written, so that no refresh over an older snapshot can be committed.
pub(crate) async fn rebuild_readers(t: &dyn Connection, source: u32, why: &str) -> Result<()> {
    let text = "SELECT pgtrickle.mark_readers($1, NULL, $2)";
    let done = t.execute(text, &[&source, &why]).await;
    done.map(|_| ()).map_err(|e| Error::server("mark the readers of a table", e))
}

async fn install(t: &Transaction<'_>, buffer: Buffer, mode: Mode, doing: &str) -> Result<()> {
    let buffer = knowing(t, with_children(t, buffer).await?).await?;
    let table = buffer.table().clone();
    make(t, table.id, &mode.source().install(&buffer), doing).await?;
    require_known(t, &buffer).await?;
    // The table is locked, so every session that wrote a mark has ended.
    t.as_keeper(&unmark(table.id.0)).await.map_err(|e| Error::server(doing, e))?;
    let why = format!("not all changes of {}.{} were captured", table.schema, table.name);
    rebuild_readers(t, table.id.0, &why).await?;
    note(t, &buffer, mode, &attnums(t, table.id).await?).await
}

/// Replaces the triggers that the extension runs by equal triggers in PL/pgSQL, so that the extension can be
/// dropped. Takes no lock on the tables of these triggers.
///
/// # Errors
/// A function belongs to another role; errors of the server.
pub async fn leave_extension(db: &dyn Connection) -> Result<()> {
    let doing = "have triggers written in PL/pgSQL";
    let fail = |e| Error::server(doing, e);
    let text = "SELECT b.source_relid, n.nspname, c.relname FROM pgtrickle.pgt_buffers b \
         LEFT JOIN pg_class c ON c.oid = b.source_relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE b.trigger_mode = 'COPY' ORDER BY 1";
    let mut catalog = PgCatalog::new();
    for row in db.query(text, &[]).await.map_err(fail)? {
        let (source, names): (u32, Option<(String, String)>) =
            (row.get(0), row.get::<Option<String>>(1).zip(row.get(2)));
        let table = match names {
            Some((schema, name)) => table_by_oid(db, &mut catalog, &schema, &name).await?,
            None => None,
        };
        if let Some(table) = table
            && let Some(c) = read(db, &table).await?.filter(|c| c.state == Capture::On)
        {
            run_as_keeper(db, &Mode::Statement.source().redirect(&c.buffer), doing).await?;
        }
        let text = "UPDATE pgtrickle.pgt_buffers SET trigger_mode = 'STATEMENT' WHERE source_relid = $1";
        db.execute(text, &[&source]).await.map_err(fail)?;
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

/// Stops capturing the changes of a table that no stream table reads any more. Returns false where a stream
/// table still reads it. If the user holds the capture of the table off, the note about that stays in the
/// catalog as long as the table exists.
pub(crate) async fn release(t: &Transaction<'_>, source: u32) -> Result<bool> {
    let doing = "stop capturing changes";
    let read_by = "SELECT EXISTS (SELECT FROM pgtrickle.pgt_dependencies JOIN pgtrickle.pgt_stream_tables USING (pgt_id) \
         WHERE source_relid = $1 AND source_type IN ('TABLE', 'STREAM_TABLE') AND refresh_mode <> 'IMMEDIATE') \
         OR EXISTS (SELECT FROM pgtrickle.pgt_buffers JOIN pg_class ON oid = source_relid \
         WHERE source_relid = $1 AND capture = 'HELD')";
    let row = t.query_one(read_by, &[&source]).await.map_err(|e| Error::server(doing, e))?;
    if row.get(0) {
        return Ok(false);
    }
    remove(t, source).await?;
    Ok(true)
}

/// Drops the triggers and the buffer of a table, with all changes in it. Where the table was dropped or now
/// belongs to another role, its triggers are dropped by dropping their functions.
pub(crate) async fn remove(t: &dyn Connection, source: u32) -> Result<()> {
    drop_capture(t, source, format!("DELETE FROM pgtrickle.pgt_buffers WHERE source_relid = {source}")).await
}

/// Drops the triggers and the buffer of a table, and runs the statement `forgotten`, which changes the
/// table's row in the catalog.
async fn drop_capture(t: &dyn Connection, source: u32, forgotten: String) -> Result<()> {
    let doing = "stop capturing changes";
    let triggers = t
        .query(
            "SELECT g.tgrelid::regclass::text, quote_ident(g.tgname) FROM pg_trigger g \
             JOIN pg_proc p ON p.oid = g.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace \
             JOIN pg_class c ON c.oid = g.tgrelid AND pg_has_role(c.relowner, 'USAGE') \
             WHERE n.nspname = $1 AND p.proname LIKE $2 AND g.tgparentid = 0 ORDER BY 1, 2",
            &[&HIDDEN, &format!("capture\\_{source}\\_%")],
        )
        .await
        .map_err(|e| Error::server(doing, e))?;
    let objects = t
        .query(
            "SELECT 0, pg_catalog.format('DROP FUNCTION %s CASCADE', p.oid::regprocedure) FROM pg_proc p \
             JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1 AND p.proname LIKE $2 \
             UNION ALL SELECT CASE c.relkind WHEN 'v' THEN 1 ELSE 2 END, \
             pg_catalog.format('DROP %s %s', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, c.oid::regclass) \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = $1 AND c.relkind IN ('r', 'v') AND (c.relname = $3 OR c.relname LIKE $4) ORDER BY 1, 2",
            &[
                &HIDDEN,
                &format!("capture\\_{source}\\_%"),
                &format!("changes_{source}"),
                &format!("changes\\_{source}\\_%"),
            ],
        )
        .await
        .map_err(|e| Error::server(doing, e))?;
    let mut texts: Vec<String> = triggers
        .iter()
        .map(|r| format!("DROP TRIGGER {} ON {}", r.get::<String>(1), r.get::<String>(0)))
        .collect();
    texts.extend(objects.iter().map(|r| r.get::<String>(1)));
    texts.extend([forgotten, unmark(source)]);
    t.as_keeper(&texts.join(";\n")).await.map_err(|e| Error::server(doing, e))
}

/// Returns the statement that deletes the marks of changes of a table that were not captured. The caller has
/// marked the readers of the table for a recompute, or the table has no reader.
fn unmark(source: u32) -> String {
    format!("DELETE FROM pgtrickle.pgt_marks WHERE source_relid = {source} AND pgt_id IS NULL")
}

/// Returns the tables whose changes are captured.
async fn captured(db: &dyn Connection, doing: &str) -> Result<Vec<Captured>> {
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

/// Makes the functions of all capture triggers, which an earlier version of the catalog made, again over new
/// segments. Takes no lock on the sources, and loses no change. The triggers of IMMEDIATE stream tables are
/// dropped, and made again by the next refresh.
///
/// # Errors
/// Errors of the server.
pub async fn renew(db: &dyn Connection) -> Result<()> {
    let doing = "make capture triggers anew";
    let fail = |e| Error::server(doing, e);
    for c in captured(db, doing).await? {
        if !fresh(db, &c).await? {
            let source = c.buffer.table().id.0;
            rebuild_readers(db, source, "the table was altered before the catalog was upgraded").await?;
            switch_off(db, source, Capture::Off).await?;
            continue;
        }
        let drop = DropObject { kind: ObjectKind::View, name: c.buffer.view(), cascade: false };
        let (next, made) = c.mode.source().rotate(&c.buffer);
        // Columns may have other type modifiers in the new segment than in the existing view. The type
        // modifiers of an existing view cannot be changed.
        run_as_keeper(db, &[&[Statement::Drop(drop)], &made[..]].concat(), doing).await?;
        note_segments(db, &next, &c.attnums).await?;
    }
    for row in db.query(KEPT_BY_WRITERS, &[]).await.map_err(fail)? {
        db.batch_execute(row.get(0)).await.map_err(fail)?;
    }
    let stopped = db.query(REBUILD_KEPT, &[&"the catalog was upgraded"]).await;
    stopped.map(drop).map_err(fail)
}

/// Makes triggers for an earlier version of the catalog, which call no function of this version. IMMEDIATE
/// stream tables are marked, so that the earlier version recomputes them.
pub(crate) async fn stop(t: &Transaction<'_>) -> Result<()> {
    let doing = "make triggers for an earlier version of the catalog";
    let fail = |e| Error::server(doing, e);
    for c in captured(t, doing).await? {
        run_as_keeper(t, &c.mode.source().redirect(&c.buffer.undescribed()), doing).await?;
    }
    for row in t.query(KEPT_BY_WRITERS, &[]).await.map_err(fail)? {
        t.batch_execute(row.get(0)).await.map_err(fail)?;
    }
    t.query(REBUILD_KEPT, &[&"the catalog was taken back to an earlier version"])
        .await
        .map(drop)
        .map_err(fail)
}

/// The statements that drop all triggers, functions and tables that bring IMMEDIATE stream tables up to
/// date.
const KEPT_BY_WRITERS: &str = "
WITH own AS (SELECT p.oid FROM pg_proc p WHERE p.pronamespace = to_regnamespace('pgtrickle_changes') AND starts_with(p.proname, 'immediate_'))
SELECT pg_catalog.format('DROP TRIGGER %I ON %s', g.tgname, g.tgrelid::regclass), 0 AS turn FROM pg_trigger g
    JOIN own ON own.oid = g.tgfoid WHERE g.tgparentid = 0
UNION ALL SELECT pg_catalog.format('DROP FUNCTION %s', oid::regprocedure), 1 FROM own
UNION ALL SELECT pg_catalog.format('DROP TABLE %s', c.oid::regclass), 2 FROM pg_class c
    WHERE c.relnamespace = to_regnamespace('pgtrickle_changes') AND c.relkind = 'r' AND starts_with(c.relname, 'immediate_')
ORDER BY turn, 1";

const REBUILD_KEPT: &str = "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, reinit_reason = $1, updated_at = now() \
     WHERE refresh_mode = 'IMMEDIATE'";

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

/// Switches the capture of a table off until the user switches it on again. `kept_by_writers` says that
/// triggers of IMMEDIATE stream tables on this table were dropped before. In that case the table may have no
/// buffer.
pub(crate) async fn hold_off(t: &Transaction<'_>, source: u32, kept_by_writers: bool) -> Result<()> {
    let there = "SELECT EXISTS (SELECT FROM pgtrickle.pgt_buffers WHERE source_relid = $1)";
    let fail = |e| Error::server("switch capture off", e);
    if !kept_by_writers || t.query_one(there, &[&source]).await.map_err(fail)?.get(0) {
        return switch_off(t, source, Capture::Held).await;
    }
    let text = "INSERT INTO pgtrickle.pgt_buffers (source_relid, trigger_mode, unlogged, generation, segments, capture, \
         schema_fingerprint) VALUES ($1, 'STATEMENT', false, 1, '[]', 'HELD', pgtrickle.fingerprint($1))";
    t.execute(text, &[&source]).await.map(|_| ()).map_err(fail)
}

/// Drops the triggers and the buffer of a table, and stores in the catalog that its changes are not
/// captured. Readers of the table are then brought up to date by full refreshes. A capture that the user
/// holds off stays held off.
pub(crate) async fn switch_off(t: &dyn Connection, source: u32, state: Capture) -> Result<()> {
    let fail = |e| Error::server("switch capture off", e);
    let text = "SELECT capture FROM pgtrickle.pgt_buffers WHERE source_relid = $1";
    let Some(row) = t.query_opt(text, &[&source]).await.map_err(fail)? else {
        return Err(Error::input("its changes are not captured").hint("There is nothing to switch off."));
    };
    if Capture::parse(row.get(0))? == Capture::Held {
        return Ok(());
    }
    let off = format!(
        "UPDATE pgtrickle.pgt_buffers SET generation = 1, segments = '[]', capture = '{}', triggers_fingerprint = NULL, \
         created_at = now() WHERE source_relid = {source} AND capture <> 'HELD'",
        state.name()
    );
    drop_capture(t, source, off).await
}
