//! Makes and widens the capture of changes in a live database: triggers and change buffers.
//!
//! The core decides which objects are made ([`trickle_core::cdc`]). This module decides when they are made
//! and under which locks. Every statement that touches a user's table runs under a short `lock_timeout`
//! ([`crate::locks`]). Submodules describe the objects in the catalog (`stored`), remove them (`removal`),
//! and make them again for another version of the catalog (`versions`).

mod partitions;
mod parts;
mod removal;
mod stored;
mod versions;

pub use partitions::{Followed, Leaving, Removal};
pub(crate) use partitions::{adopt, capture_leaving, finish_leaving, mark, sources_of};
pub(crate) use parts::follow_parts;
pub(crate) use removal::{hold_off, release, remove, switch_off};
pub(crate) use stored::{fresh, note_segments, read, table_by_oid, with_children};
pub(crate) use versions::stop;
pub use versions::{leave_extension, renew};

use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use crate::names::HIDDEN;
use removal::unmark;
use std::sync::Arc;
use stored::{attnums, captured, knowing, note, require_known};
use trickle_core::catalog::{TableDef, TableId};
use trickle_core::cdc::{Buffer, Mode};
use trickle_core::sql::ast::Statement;
use trickle_core::sql::{Qualified, print};
use trickle_core::vocabulary::Capture;

/// The options for capturing changes of a table that is not captured yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    /// Statement triggers or row triggers (`cdc_trigger_mode`).
    pub mode: Mode,
    /// Whether segments are unlogged tables, which write no WAL (`change_buffer_unlogged`).
    pub unlogged: bool,
}

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
pub(crate) async fn run_as_catalog_owner(
    db: &dyn Connection,
    statements: &[Statement],
    doing: &str,
) -> Result<()> {
    let mut texts = texts(statements);
    texts.push("SELECT pgtrickle.without_statistics()".to_owned());
    db.as_catalog_owner(&texts.join(";\n")).await.map_err(|e| Error::server(doing, e))
}

/// Runs the statements that make the capture of a table, as the catalog's owner. The current role must own
/// the table and all its partitions and children. Ownership is checked twice. The check before the
/// statements protects tables of other roles from being locked. The check after them is made under the
/// locks.
async fn make(t: &Transaction<'_>, table: TableId, statements: &[Statement], doing: &str) -> Result<()> {
    require_owner(t, table, doing).await?;
    run_as_catalog_owner(t, statements, doing).await?;
    require_owner(t, table, doing).await
}

async fn require_owner(t: &Transaction<'_>, table: TableId, doing: &str) -> Result<()> {
    let owned = t.execute("SELECT pgtrickle.require_owner(ARRAY[$1::oid])", &[&table.0]).await;
    owned.map(drop).map_err(|e| Error::server(doing, e))
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
/// all clients have the same limit. If two clients had different limits, each would make all triggers again
/// that the other had made.
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

/// Marks all readers of a table for a recompute, as [`rebuild_readers`] does, except for those in
/// `continuing`.
async fn rebuild_readers_of(t: &dyn Connection, source: u32, continuing: &[i64], why: &str) -> Result<()> {
    let text = "SELECT pgtrickle.mark_readers($1, ARRAY(SELECT d.pgt_id FROM pgtrickle.pgt_dependencies d \
         WHERE d.source_relid = $1 AND d.pgt_id <> ALL ($2)), $3)";
    let done = t.execute(text, &[&source, &continuing.to_vec(), &why]).await;
    done.map(|_| ()).map_err(|e| Error::server("mark the readers of a table", e))
}

async fn install(t: &Transaction<'_>, buffer: Buffer, mode: Mode, doing: &str) -> Result<()> {
    let buffer = knowing(t, with_children(t, buffer).await?, &[]).await?;
    let table = buffer.table().clone();
    make(t, table.id, &mode.source().install(&buffer), doing).await?;
    require_known(t, &buffer).await?;
    // The table is locked, so every session that wrote a mark has ended.
    t.as_catalog_owner(&unmark(table.id.0)).await.map_err(|e| Error::server(doing, e))?;
    let why = format!("not all changes of {}.{} were captured", table.schema, table.name);
    rebuild_readers(t, table.id.0, &why).await?;
    note(t, &buffer, mode, &attnums(t, table.id).await?).await
}
