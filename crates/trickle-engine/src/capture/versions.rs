//! Makes the triggers of all captured tables again, for another version of the catalog, or before the
//! extension is dropped from the database.

use super::{
    captured, fresh, note_segments, read, rebuild_readers, run_as_catalog_owner, switch_off, table_by_oid,
};
use crate::catalog::PgCatalog;
use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use trickle_core::cdc::Mode;
use trickle_core::sql::ast::{DropObject, ObjectKind, Statement};
use trickle_core::vocabulary::Capture;

/// Replaces the functions of all capture triggers that an earlier version of the catalog made. The new
/// functions write to new segments. Takes no lock on the sources, and loses no change. The triggers of
/// IMMEDIATE stream tables are dropped, and made again by the next refresh.
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
        run_as_catalog_owner(db, &[&[Statement::Drop(drop)], &made[..]].concat(), doing).await?;
        note_segments(db, &next, &c.attnums).await?;
    }
    for row in db.query(KEPT_BY_WRITERS, &[]).await.map_err(fail)? {
        db.batch_execute(row.get(0)).await.map_err(fail)?;
    }
    let stopped = db.query(REBUILD_KEPT, &[&"the catalog was upgraded"]).await;
    stopped.map(drop).map_err(fail)
}

/// Makes triggers for an earlier version of the catalog. These triggers call no function of this version.
/// IMMEDIATE stream tables are marked, so that the earlier version recomputes them.
pub(crate) async fn stop(t: &Transaction<'_>) -> Result<()> {
    let doing = "make triggers for an earlier version of the catalog";
    let fail = |e| Error::server(doing, e);
    for c in captured(t, doing).await? {
        run_as_catalog_owner(t, &c.mode.source().redirect(&c.buffer.undescribed()), doing).await?;
    }
    for row in t.query(KEPT_BY_WRITERS, &[]).await.map_err(fail)? {
        t.batch_execute(row.get(0)).await.map_err(fail)?;
    }
    t.query(REBUILD_KEPT, &[&"the catalog was taken back to an earlier version"])
        .await
        .map(drop)
        .map_err(fail)
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
            run_as_catalog_owner(db, &Mode::Statement.source().redirect(&c.buffer), doing).await?;
        }
        let text = "UPDATE pgtrickle.pgt_buffers SET trigger_mode = 'STATEMENT' WHERE source_relid = $1";
        db.execute(text, &[&source]).await.map_err(fail)?;
    }
    Ok(())
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
