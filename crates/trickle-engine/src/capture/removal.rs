//! Stops capturing the changes of a table, for one of two reasons. Either no stream table reads the table any
//! more, or the user has switched the capture off until further notice.

use crate::db::{Connection, Row, Transaction};
use crate::error::{Error, Result};
use crate::names::HIDDEN;
use trickle_core::vocabulary::Capture;

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

/// Drops the triggers and the buffer of a table, and runs the statement `forgotten`, which changes the
/// table's row in the catalog.
async fn drop_capture(t: &dyn Connection, source: u32, forgotten: String) -> Result<()> {
    let doing = "stop capturing changes";
    let mut texts = drop_triggers(t, source, &[], doing).await?;
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
    texts.extend(objects.iter().map(|r| r.get::<String>(1)));
    texts.extend([forgotten, unmark(source)]);
    t.as_catalog_owner(&texts.join(";\n")).await.map_err(|e| Error::server(doing, e))
}

/// Returns the statements that drop the triggers of a buffer on all tables except for `stay`. Triggers on
/// tables of other roles are left out.
pub(super) async fn drop_triggers(
    t: &dyn Connection,
    source: u32,
    stay: &[u32],
    doing: &str,
) -> Result<Vec<String>> {
    let triggers = t
        .query(
            "SELECT g.tgrelid::regclass::text, quote_ident(g.tgname) FROM pg_trigger g \
             JOIN pg_proc p ON p.oid = g.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace \
             JOIN pg_class c ON c.oid = g.tgrelid AND pg_has_role(c.relowner, 'USAGE') \
             WHERE n.nspname = $1 AND p.proname LIKE $2 AND g.tgparentid = 0 AND g.tgrelid <> ALL ($3) ORDER BY 1, 2",
            &[&HIDDEN, &format!("capture\\_{source}\\_%"), &stay.to_vec()],
        )
        .await
        .map_err(|e| Error::server(doing, e))?;
    let text = |r: &Row| format!("DROP TRIGGER {} ON {}", r.get::<String>(1), r.get::<String>(0));
    Ok(triggers.iter().map(text).collect())
}

/// Returns the statement that deletes the marks of changes of a table that were not captured. The caller has
/// marked the readers of the table for a recompute, or the table has no reader.
pub(super) fn unmark(source: u32) -> String {
    format!("DELETE FROM pgtrickle.pgt_marks WHERE source_relid = {source} AND pgt_id IS NULL")
}
