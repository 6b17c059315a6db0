//! Follows partitions that came or went while nobody captured their rows. The triggers are made again, and
//! the buffer keeps the changes of all other partitions. Readers note which partitions stayed, and recompute
//! the part of their result that depends on other partitions.

use super::removal::{drop_triggers, unmark};
use super::stored::{Captured, attnums, fresh, knowing, note, read, require_known};
use super::{make, rebuild_readers_of};
use crate::db::Transaction;
use crate::error::{Error, Result};
use std::sync::Arc;
use trickle_core::catalog::TableDef;
use trickle_core::cdc::UNKNOWN_CHILDREN;
use trickle_core::vocabulary::Capture;

/// The statement that notes, for each reader of table `$1`, which partitions stayed: the partitions in `$2`
/// that the reader knew. The statement returns the readers that can continue from their rows. The plans of
/// these readers were made for the same table with other partitions. A default partition never counts as one
/// that stayed, since its bounds may have changed.
const STAYED: &str = "
UPDATE pgtrickle.pgt_dependencies d SET parts = now.parts, schema_fingerprint = pgtrickle.fingerprint($1),
    relied = pgtrickle.relied_now($1, d.columns_used, CASE WHEN d.keeps_plan THEN d.relied END),
    stayed = ARRAY(SELECT u.part FROM unnest(coalesce(d.stayed, d.parts[2:])) u(part)
        WHERE u.part = ANY (now.parts) AND u.part NOT LIKE '% others' AND split_part(u.part, ' ', 1)::oid = ANY ($2) ORDER BY 1)
FROM pgtrickle.pgt_stream_tables s, (SELECT pgtrickle.parts($1, false)) now(parts)
WHERE d.source_relid = $1 AND s.pgt_id = d.pgt_id AND s.refresh_mode = 'DIFFERENTIAL' AND s.is_populated AND NOT s.needs_reinit
    AND d.parts[1] = now.parts[1]
RETURNING d.pgt_id";

/// Whether a table that belongs to another role and is not in `$2` has a trigger of the buffer of table `$1`.
/// Such a table is a detached partition that was given away. Only the owner of a table may drop its triggers.
/// But making the whole capture again drops the triggers together with their functions.
const OUT_OF_REACH: &str = "SELECT EXISTS (SELECT FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid JOIN pg_class c ON c.oid = g.tgrelid \
     WHERE p.pronamespace = to_regnamespace('pgtrickle_changes') AND starts_with(p.proname, pg_catalog.format('capture_%s_', $1::oid)) \
     AND g.tgparentid = 0 AND g.tgrelid <> ALL ($2) AND NOT pg_has_role(c.relowner, 'USAGE'))";

/// Makes the triggers of a table again, if nothing but its partitions has changed since they were made.
/// Readers that cannot continue from their rows are marked for a recompute. Returns false, and changes
/// nothing, where the triggers fit, or where other changes may be missing in the buffer.
pub(crate) async fn follow_parts(t: &Transaction<'_>, table: &Arc<TableDef>) -> Result<bool> {
    let doing = format!("capture the changes of {}.{}", table.schema, table.name);
    let fail = |e| Error::server(&doing, e);
    let Some((c, _)) = outdated(t, table, &doing).await? else { return Ok(false) };
    make(t, table.id, &[c.buffer.lock()], &doing).await?;
    // Another session may have made the triggers again while this one waited for the lock.
    let Some((c, captured)) = outdated(t, table, &doing).await? else { return Ok(false) };
    let buffer = knowing(t, c.buffer, &[]).await?;
    // A detached partition keeps its triggers, which call functions that are about to be dropped.
    let present: Vec<u32> = buffer.known().iter().flat_map(|k| &k.all).copied().chain([table.id.0]).collect();
    if t.query_one(OUT_OF_REACH, &[&table.id.0, &present]).await.map_err(fail)?.get(0) {
        return Ok(false);
    }
    let left = drop_triggers(&**t, table.id.0, &present, &doing).await?;
    t.as_catalog_owner(&left.join(";\n")).await.map_err(fail)?;
    let (renewed, statements) = c.mode.source().widen(&buffer, &[]);
    make(t, table.id, &statements, &doing).await?;
    require_known(t, &renewed).await?;
    t.as_catalog_owner(&unmark(table.id.0)).await.map_err(fail)?;
    note(t, &renewed, c.mode, &attnums(&**t, table.id).await?).await?;
    let rows = t.query(STAYED, &[&table.id.0, &captured]).await.map_err(fail)?;
    let continuing: Vec<i64> = rows.iter().map(|r| r.get(0)).collect();
    // After this statement, a refresh over an older snapshot, which shows the former partitions, cannot be
    // committed.
    let held =
        "UPDATE pgtrickle.pgt_stream_tables SET updated_at = clock_timestamp() WHERE pgt_id = ANY ($1)";
    t.execute(held, &[&continuing]).await.map_err(fail)?;
    let why = format!("partitions of {}.{} came or went", table.schema, table.name);
    rebuild_readers_of(&**t, table.id.0, &continuing, &why).await?;
    Ok(true)
}

/// Returns the capture of a table whose triggers do not fit, and the partitions of which all changes were
/// captured. Returns `None` where the triggers fit, or where other changes may be missing.
async fn outdated(
    t: &Transaction<'_>,
    table: &Arc<TableDef>,
    doing: &str,
) -> Result<Option<(Captured, Vec<u32>)>> {
    let Some(c) = read(&**t, table).await?.filter(|c| c.state == Capture::On) else { return Ok(None) };
    if fresh(&**t, &c).await? {
        return Ok(None);
    }
    let row = t.query_one("SELECT pgtrickle.captured_parts($1, $2)", &[&table.id.0, &UNKNOWN_CHILDREN]).await;
    let captured: Option<Vec<u32>> = row.map_err(|e| Error::server(doing, e))?.get(0);
    Ok(captured.map(|captured| (c, captured)))
}
