//! Captures the rows of partitions that a command adds to a captured table, or takes from it, within that
//! command.
//!
//! The rows of such a partition become changes in the buffer, with weight 1 or −1, and readers go on by
//! deltas. The partition is locked by the command, so nobody else writes it before the command commits. Where
//! the buffer has no room for its rows, this module does nothing; readers are then recomputed, since the
//! definition of the table has changed.

use super::stored::{knowing, note, note_without, require_known};
use super::{make, read, rebuild_readers, table_by_oid};
use crate::catalog::PgCatalog;
use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use std::sync::Arc;
use trickle_core::catalog::TableDef;
use trickle_core::sql::Qualified;
use trickle_core::sql::ast::{Lock, LockMode, Statement};
use trickle_core::sql::print;

/// The greatest number of bytes of an added partition whose rows are copied to the buffer. The partition is
/// not in use yet, so copying its rows keeps nobody waiting. ATTACH itself reads the partition too.
const MOST_COMING: i64 = 256 << 20;

/// The greatest number of bytes of a leaving partition whose rows are copied to the buffer. The parent stays
/// locked while the rows are copied, which takes about a second for that size.
const MOST_LEAVING: i64 = 32 << 20;

/// The command that takes the rows of a partition from a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// DROP TABLE of the partition.
    Dropped,
    /// ALTER TABLE of its parent, with DETACH PARTITION.
    Detached,
    /// TRUNCATE of the partition by its own name.
    Emptied,
}

/// Lets readers of table `$1` keep their plans. The plans were made without the partitions `$2`, which the
/// table has got, and with the partitions `$3`, which the table will lose. The plans still read the same
/// table. A reader that another session refreshes at the moment is skipped, and planned again later.
const ADOPTED: &str = "
UPDATE pgtrickle.pgt_dependencies d SET schema_fingerprint = pgtrickle.fingerprint($1, 32767::int2, $3),
    relied = pgtrickle.relied_now($1, d.columns_used, CASE WHEN d.keeps_plan THEN d.relied END, $3)
WHERE d.source_relid = $1 AND d.pgt_id IN (
    SELECT r.pgt_id FROM pgtrickle.pgt_dependencies r JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    WHERE r.source_relid = $1 AND s.refresh_mode <> 'IMMEDIATE' AND r.schema_fingerprint = pgtrickle.fingerprint($1, 32767::int2, $2)
    FOR UPDATE OF r SKIP LOCKED)";

/// The names of the tables `$1`, and for each whether it stores rows itself.
const NAMES: &str = "SELECT n.nspname, c.relname, c.relkind = 'r' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.oid = ANY ($1) ORDER BY c.oid";

/// The captured tables above the partitions `$1`. The list is empty in a transaction of another isolation
/// level than READ COMMITTED, which may not see everything that others have committed.
const ABOVE: &str = "SELECT DISTINCT a.relid::oid FROM unnest($1::oid[]) p(oid) CROSS JOIN LATERAL pg_partition_ancestors(p.oid) a \
     JOIN pgtrickle.pgt_buffers b ON b.source_relid = a.relid \
     WHERE a.relid <> p.oid AND b.capture = 'ON' AND current_setting('transaction_isolation') = 'read committed' ORDER BY 1";

/// The parent of partition `$1`, the partition, and the partitions below it, in the order in which the server
/// locks them. The parent is included only if `$2` is true, which means that the command locks the parent.
const LOCKED: &str = "SELECT n.nspname, c.relname FROM (SELECT 0, h.inhparent FROM pg_inherits h WHERE h.inhrelid = $1 AND $2 \
     UNION ALL SELECT 1, $1 UNION ALL SELECT 2, unnest(pgtrickle.children($1))) x(level, oid) \
     JOIN pg_class c ON c.oid = x.oid JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY x.level, x.oid";

/// Partitions by name.
#[derive(Debug, Default)]
struct Named {
    all: Vec<Qualified>,
    /// The partitions in `all` that store rows themselves.
    filled: Vec<Qualified>,
}

async fn names(t: &dyn Connection, oids: &[u32], doing: &str) -> Result<Named> {
    let mut named = Named::default();
    for row in t.query(NAMES, &[&oids]).await.map_err(|e| Error::server(doing, e))? {
        let name = Qualified::new(row.get::<String>(0), row.get::<String>(1));
        if row.get(2) {
            named.filled.push(name.clone());
        }
        named.all.push(name);
    }
    Ok(named)
}

async fn table(t: &Transaction<'_>, source: u32, doing: &str) -> Result<Option<Arc<TableDef>>> {
    let text = "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1";
    let row = t.query_opt(text, &[&source]).await.map_err(|e| Error::server(doing, e))?;
    let Some(row) = row else { return Ok(None) };
    table_by_oid(&**t, &mut PgCatalog::new(), row.get(0), row.get(1)).await
}

/// Captures the changes of the partitions that the last command added to a table, and writes the rows of
/// these partitions to the buffer. Waits for no other session.
pub(crate) async fn adopt(t: &Transaction<'_>, source: u32) -> Result<()> {
    let doing = "capture the changes of a new partition";
    let fail = |e| Error::server(doing, e);
    let text = "SELECT pgtrickle.new_partitions($1, $2)";
    let row = t.query_one(text, &[&source, &MOST_COMING]).await.map_err(fail)?;
    let Some(came) = row.get::<Option<Vec<u32>>>(0) else { return Ok(()) };
    let Some(table) = table(t, source, doing).await? else { return Ok(()) };
    let Some(c) = read(&**t, &table).await? else { return Ok(()) };
    let named = names(&**t, &came, doing).await?;
    let buffer = knowing(t, c.buffer, &[]).await?;
    let mut statements = c.mode.source().adopt(&buffer, &named.all);
    statements.extend(named.filled.iter().flat_map(|p| buffer.rows_of(p, 1)));
    make(t, table.id, &statements, doing).await?;
    require_known(t, &buffer).await?;
    t.execute(ADOPTED, &[&source, &came, &Vec::<u32>::new()]).await.map_err(fail)?;
    note(t, &buffer, c.mode, &c.attnums).await
}

/// Returns the captured tables from which the command takes the rows of these partitions. Takes the same
/// locks as the command will: on the partitions, and on their parents where the command locks these.
pub(crate) async fn sources_of(t: &Transaction<'_>, partitions: &[u32], how: Leaving) -> Result<Vec<u32>> {
    let doing = "lock a partition that goes";
    let fail = |e| Error::server(doing, e);
    let above = t.query(ABOVE, &[&partitions]).await.map_err(fail)?;
    let above: Vec<u32> = above.iter().map(|r| r.get(0)).collect();
    if above.is_empty() {
        return Ok(above);
    }
    let with_parent = match how {
        Leaving::Dropped | Leaving::Detached => true,
        Leaving::Emptied => false,
    };
    let mut tables = Vec::new();
    for partition in partitions {
        let rows = t.query(LOCKED, &[partition, &with_parent]).await.map_err(fail)?;
        tables.extend(rows.iter().map(|r| Qualified::new(r.get::<String>(0), r.get::<String>(1))));
    }
    let lock = Lock { tables, mode: LockMode::AccessExclusive, nowait: false, only: true };
    t.as_catalog_owner(&print(&Statement::Lock(lock)).text).await.map_err(fail)?;
    Ok(above)
}

/// Captures the rows of partitions that the next command takes from a table: writes them to the buffer as
/// deleted rows. Notes, for readers and triggers, the definition that the table will have after the command.
/// Returns false, and does nothing, where readers must be recomputed.
pub(crate) async fn let_go(
    t: &Transaction<'_>,
    source: u32,
    partitions: &[u32],
    how: Leaving,
) -> Result<bool> {
    let doing = "capture the rows of a partition that goes";
    let fail = |e| Error::server(doing, e);
    let text = "SELECT pgtrickle.leaving_partitions($1, $2, $3)";
    let row = t.query_one(text, &[&source, &partitions, &MOST_LEAVING]).await.map_err(fail)?;
    let Some(leaving) = row.get::<Option<Vec<u32>>>(0) else { return Ok(false) };
    let Some(table) = table(t, source, doing).await? else { return Ok(false) };
    let Some(c) = read(&**t, &table).await? else { return Ok(false) };
    let named = names(&**t, &leaving, doing).await?;
    let rows = named.filled.iter().flat_map(|p| c.buffer.rows_of(p, -1));
    if how == Leaving::Emptied {
        if named.filled.len() < named.all.len() {
            // TRUNCATE of a partition that itself has partitions fires the triggers of all of them. These
            // triggers handle the TRUNCATE.
            return Ok(false);
        }
        let statements: Vec<Statement> =
            rows.chain(named.all.iter().map(|p| c.buffer.ignore_truncate(p))).collect();
        make(t, table.id, &statements, doing).await?;
        return Ok(true);
    }
    let mut statements: Vec<Statement> = rows.collect();
    let buffer = knowing(t, c.buffer, &leaving).await?;
    // DROP TABLE itself drops the triggers of the partition.
    let detached = if how == Leaving::Detached { named.all } else { Vec::new() };
    statements.extend(c.mode.source().let_go(&buffer, &detached));
    make(t, table.id, &statements, doing).await?;
    t.execute(ADOPTED, &[&source, &Vec::<u32>::new(), &leaving]).await.map_err(fail)?;
    note_without(t, &buffer, c.mode, &c.attnums, &leaving).await?;
    Ok(true)
}

/// Completes, after the command, the work that [`let_go`] began. Makes the triggers of emptied partitions
/// again. Marks the readers of the table for a recompute if the command did not take the rows of the
/// partitions. The reason may be that a partition's name became the name of another table before the
/// partition was locked.
pub(crate) async fn left(t: &Transaction<'_>, source: u32, partitions: &[u32], how: Leaving) -> Result<()> {
    let doing = "follow a partition that went";
    let fail = |e| Error::server(doing, e);
    let here = "SELECT ARRAY(SELECT unnest(pgtrickle.children($1)) INTERSECT SELECT unnest($2::oid[]))";
    let here: Vec<u32> = t.query_one(here, &[&source, &partitions]).await.map_err(fail)?.get(0);
    let stayed = match how {
        Leaving::Dropped | Leaving::Detached => !here.is_empty(),
        Leaving::Emptied => {
            let filled =
                "SELECT EXISTS (SELECT FROM unnest($1::oid[]) p(oid) WHERE pg_relation_size(p.oid) > 0)";
            t.query_one(filled, &[&here]).await.map_err(fail)?.get(0)
        }
    };
    if stayed {
        rebuild_readers(&**t, source, "a partition did not go as it was announced").await?;
    }
    if how != Leaving::Emptied {
        return Ok(());
    }
    let Some(table) = table(t, source, doing).await? else { return Ok(()) };
    let Some(c) = read(&**t, &table).await? else { return Ok(()) };
    let named = names(&**t, &here, doing).await?;
    let made: Vec<Statement> =
        named.all.iter().flat_map(|p| c.mode.source().heed_truncate(&c.buffer, p)).collect();
    make(t, table.id, &made, doing).await?;
    note(t, &c.buffer, c.mode, &c.attnums).await
}
