//! Captures the rows of partitions that a command adds to a captured table, or takes from it, within that
//! command.
//!
//! The rows of such a partition become changes in the buffer, with weight 1 or −1, and readers go on by
//! deltas. The partition is locked by the command, so nobody else writes it before the command commits. Where
//! the buffer has no room for the rows of the partition, this module does nothing. The readers are then
//! recomputed, since the definition of the table has changed.

use super::stored::{knowing, note, note_without, require_known};
use super::{make, read, table_by_oid};
use crate::catalog::PgCatalog;
use crate::db::{Connection, Transaction};
use crate::error::{Error, Result};
use std::sync::Arc;
use trickle_core::catalog::TableDef;
use trickle_core::cdc::Buffer;
use trickle_core::sql::Qualified;
use trickle_core::sql::ast::Statement;
use trickle_core::sql::print;

/// The greatest number of bytes of an added partition whose rows are copied to the buffer. Copying takes as
/// long as INSERT … SELECT. The limit can be high, since the partition is not in use yet, and since ATTACH
/// itself reads the partition.
const MOST_COMING: i64 = 32 << 20;

/// The greatest number of bytes of a leaving partition whose rows are copied to the buffer. The limit is
/// lower, since the parent stays locked while the rows are copied.
const MOST_LEAVING: i64 = 8 << 20;

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

/// A command that takes the rows of partitions.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The partitions, by oid.
    pub partitions: Vec<u32>,
    /// The kind of the command.
    pub how: Leaving,
    /// The parent that the command names.
    pub parent: Option<u32>,
    /// Whether the command names no other tables than the partitions and the parent.
    pub alone: bool,
}

/// The statement that lets readers of table `$1` keep their plans, which still read the same table. The plans
/// were made without the partitions `$2`, which the table has got since. They were made with the partitions
/// `$3`, which the table will lose. A reader that another session refreshes at the moment is skipped, and
/// planned again later.
const ADOPTED: &str = "
UPDATE pgtrickle.pgt_dependencies d SET schema_fingerprint = pgtrickle.fingerprint($1, 32767::int2, $3),
    relied = pgtrickle.relied_now($1, d.columns_used, CASE WHEN d.keeps_plan THEN d.relied END, $3), parts = (SELECT pgtrickle.parts($1, false, $3))
WHERE d.source_relid = $1 AND d.pgt_id IN (
    SELECT r.pgt_id FROM pgtrickle.pgt_dependencies r JOIN pgtrickle.pgt_stream_tables s USING (pgt_id)
    WHERE r.source_relid = $1 AND s.refresh_mode <> 'IMMEDIATE' AND r.schema_fingerprint = pgtrickle.fingerprint($1, 32767::int2, $2)
    FOR UPDATE OF r SKIP LOCKED)";

/// The names of the tables `$1`, and for each whether it stores rows itself.
const NAMES: &str = "SELECT n.nspname, c.relname, c.relkind = 'r' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.oid = ANY ($1) ORDER BY c.oid";

/// The captured tables above the partitions `$1`, whose parent is `$2` where a command names it. The list is
/// empty in two cases. The first case is an isolation level other than READ COMMITTED, under which the
/// transaction may miss rows that others have committed. The second case is a server that does not count rows
/// (`track_counts`).
const ABOVE: &str = "SELECT DISTINCT a.relid::oid FROM unnest($1::oid[]) p(oid) CROSS JOIN LATERAL pg_partition_ancestors(p.oid) a \
     JOIN pgtrickle.pgt_buffers b ON b.source_relid = a.relid \
     WHERE a.relid <> p.oid AND b.capture = 'ON' AND current_setting('transaction_isolation') = 'read committed' \
     AND current_setting('track_counts')::bool \
     AND ($2::oid IS NULL OR EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = p.oid AND h.inhparent = $2)) ORDER BY 1";

/// The query that keeps the names of the schemas of the tables `$1` until the transaction ends, since
/// statements find a table by its name. Otherwise the owner of a schema could meanwhile give the name of the
/// schema to another schema. A view in that other schema could have the name of the table, and its functions
/// would run as the owner of the catalog.
const HELD: &str = "SELECT (SELECT count(*) FROM (SELECT FROM pg_namespace n WHERE n.oid IN \
         (SELECT c.relnamespace FROM pg_class c WHERE c.oid = ANY ($1)) FOR KEY SHARE SKIP LOCKED) l) \
     = (SELECT count(DISTINCT c.relnamespace) FROM pg_class c WHERE c.oid = ANY ($1))";

/// The tables that the command locks for partition `$1`, in the order in which the server locks them: the
/// parent if `$2` is true, its default partition if `$3` is true, and the partition. The second column is
/// true for these tables. After them come, with false, the partitions below the partition.
const LOCKED: &str = "SELECT x.oid, x.level < 3 FROM (SELECT 0, h.inhparent FROM pg_inherits h WHERE h.inhrelid = $1 AND $2 \
     UNION ALL SELECT 1, k.partdefid FROM pg_inherits h JOIN pg_partitioned_table k ON k.partrelid = h.inhparent WHERE h.inhrelid = $1 AND $3 \
     UNION ALL SELECT 2, $1 UNION ALL SELECT 3, unnest(pgtrickle.children($1))) x(level, oid) WHERE x.oid <> 0 ORDER BY x.level, x.oid";

/// The state of capture of table `$1` within the transaction: the number of rows that the transaction has
/// captured, and the readers that were refreshed since the transaction began. If two answers are equal,
/// nothing was captured or refreshed between them. A refresh by another session counts too, which at worst
/// costs a recompute. There is no answer where the server does not count rows.
const WITNESS: &str = "SELECT pg_stat_get_xact_tuples_inserted(to_regclass(format('pgtrickle_changes.changes_%s_%s', $1, b.segments->-1->>'number'))), \
     (SELECT string_agg(s.pgt_id || ' ' || s.ctid, ',' ORDER BY s.pgt_id) FROM pgtrickle.pgt_dependencies d \
         JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) WHERE d.source_relid = $1 AND age(s.xmin) <= 0) \
     FROM pgtrickle.pgt_buffers b WHERE b.source_relid = $1 AND current_setting('track_counts')::bool \
     AND to_regclass(format('pgtrickle_changes.changes_%s_%s', $1, b.segments->-1->>'number')) IS NOT NULL";

/// A captured table from which a command takes rows. The buffer of the table has these rows as deleted rows.
#[derive(Clone, Debug)]
pub struct Followed {
    source: u32,
    /// The state of capture before the command; `None` where triggers were still to fire for rows of the
    /// partition, since the changes of these rows may not be captured after the command.
    witness: Option<Witness>,
}

impl Followed {
    /// Returns the oid of the table.
    pub(crate) fn source(&self) -> u32 {
        self.source
    }
}

/// The answer to [`WITNESS`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct Witness {
    captured: i64,
    refreshed: Option<String>,
}

impl Witness {
    async fn of(t: &Transaction<'_>, source: u32, doing: &str) -> Result<Option<Witness>> {
        let row = t.query_opt(WITNESS, &[&source]).await.map_err(|e| Error::server(doing, e))?;
        Ok(row.map(|r| Witness { captured: r.get(0), refreshed: r.get(1) }))
    }
}

/// Partitions by name.
#[derive(Debug, Default)]
struct Named {
    all: Vec<Qualified>,
    /// The partitions in `all` that store rows themselves.
    filled: Vec<Qualified>,
}

/// Returns the names of tables that the caller has locked. The tables keep these names until the transaction
/// ends, since the names of their schemas are locked here. Returns `None` where another session is changing a
/// schema.
async fn names(t: &dyn Connection, oids: &[u32], doing: &str) -> Result<Option<Named>> {
    if !t.query_one(HELD, &[&oids]).await.map_err(|e| Error::server(doing, e))?.get::<bool>(0) {
        return Ok(None);
    }
    let mut named = Named::default();
    for row in t.query(NAMES, &[&oids]).await.map_err(|e| Error::server(doing, e))? {
        let name = Qualified::new(row.get::<String>(0), row.get::<String>(1));
        if row.get(2) {
            named.filled.push(name.clone());
        }
        named.all.push(name);
    }
    Ok(Some(named))
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
    let Some(named) = names(&**t, &came, doing).await? else { return Ok(()) };
    let buffer = knowing(t, c.buffer, &[]).await?;
    let size = "SELECT coalesce(sum(pg_relation_size(c.oid)), 0)::int8 FROM unnest($1::oid[]) c(oid)";
    let is_empty = t.query_one(size, &[&came]).await.map_err(fail)?.get::<i64>(0) == 0;
    let before = Witness::of(t, source, doing).await?;
    make(t, table.id, &c.mode.source().adopt(&buffer, &named.all), doing).await?;
    if !is_empty {
        // Event triggers of users may write the table while its triggers are made. The rows are copied after
        // that, so none of them may have been captured already.
        if before.is_none() || Witness::of(t, source, doing).await? != before {
            let why = format!("{}.{} may have been written meanwhile", table.schema, table.name);
            return Err(Error::stale(why));
        }
        let rows: Vec<Statement> = named.filled.iter().flat_map(|p| buffer.rows_of(p, 1)).collect();
        make(t, table.id, &rows, doing).await?;
    }
    require_known(t, &buffer).await?;
    t.execute(ADOPTED, &[&source, &came, &Vec::<u32>::new()]).await.map_err(fail)?;
    note(t, &buffer, c.mode, &c.attnums).await
}

/// Returns the captured tables from which a command takes the rows of partitions. Takes the locks that the
/// command will take, in the same order, and waits for these locks if the command names no other tables.
/// Takes other locks only if they are free. If one of these is not free, the answer is empty.
pub(crate) async fn sources_of(t: &Transaction<'_>, removal: &Removal) -> Result<Vec<u32>> {
    let fail = |e| Error::server("lock a partition that goes", e);
    let above = t.query(ABOVE, &[&removal.partitions, &removal.parent]).await.map_err(fail)?;
    let above: Vec<u32> = above.iter().map(|r| r.get(0)).collect();
    if above.is_empty() {
        return Ok(above);
    }
    let (with_parent, with_default) = match removal.how {
        Leaving::Dropped => (true, false),
        Leaving::Detached => (true, true),
        Leaving::Emptied => (false, false),
    };
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for partition in &removal.partitions {
        for row in t.query(LOCKED, &[partition, &with_parent, &with_default]).await.map_err(fail)? {
            let waits = removal.alone && row.get::<bool>(1);
            if waits { &mut first } else { &mut others }.push(row.get(0));
        }
    }
    t.lock(&first, true).map_err(fail)?;
    let locked = t.lock(&others, false).map_err(fail)?;
    Ok(if locked { above } else { Vec::new() })
}

/// Captures the rows of partitions that the next command takes from a table: writes them to the buffer as
/// deleted rows. Notes, for readers and triggers, the definition that the table will have after the command.
/// Returns `None`, and does nothing, where readers must be recomputed. `idle` says that no trigger is still
/// to fire for rows of the partitions.
pub(crate) async fn capture_leaving(
    t: &Transaction<'_>,
    source: u32,
    removal: &Removal,
    idle: bool,
) -> Result<Option<Followed>> {
    let how = removal.how;
    let doing = "capture the rows of a partition that goes";
    let fail = |e| Error::server(doing, e);
    let text = "SELECT pgtrickle.leaving_partitions($1, $2, $3)";
    let row = t.query_one(text, &[&source, &removal.partitions, &MOST_LEAVING]).await.map_err(fail)?;
    let Some(leaving) = row.get::<Option<Vec<u32>>>(0) else { return Ok(None) };
    let Some(table) = table(t, source, doing).await? else { return Ok(None) };
    let Some(c) = read(&**t, &table).await? else { return Ok(None) };
    let Some(named) = names(&**t, &leaving, doing).await? else { return Ok(None) };
    if how == Leaving::Emptied && !may_take_back(t, &c.buffer, &named, doing).await? {
        return Ok(None);
    }
    let rows: Vec<Statement> = named.filled.iter().flat_map(|p| c.buffer.rows_of(p, -1)).collect();
    make(t, table.id, &rows, doing).await?;
    let Some(witness) = Witness::of(t, source, doing).await? else {
        return Err(Error::stale(format!(
            "the captured rows of {}.{} are not counted",
            table.schema, table.name
        )));
    };
    if how != Leaving::Emptied {
        let buffer = knowing(t, c.buffer, &leaving).await?;
        // DROP TABLE itself drops the triggers of the partition.
        let detached = if how == Leaving::Detached { named.all } else { Vec::new() };
        make(t, table.id, &c.mode.source().release(&buffer, &detached), doing).await?;
        t.execute(ADOPTED, &[&source, &Vec::<u32>::new(), &leaving]).await.map_err(fail)?;
        note_without(t, &buffer, c.mode, &c.attnums, &leaving).await?;
    }
    Ok(Some(Followed { source, witness: idle.then_some(witness) }))
}

/// Whether [`finish_leaving`] can take back the rows that the triggers of these partitions write at a
/// TRUNCATE. A partition with partitions fires the triggers of all of them. A large segment would take long
/// to search.
async fn may_take_back(t: &Transaction<'_>, buffer: &Buffer, named: &Named, doing: &str) -> Result<bool> {
    let Some(segment) = buffer.current() else { return Ok(false) };
    let text = "SELECT pg_relation_size(to_regclass($1)) <= $2";
    let row = t.query_one(text, &[&buffer.segment_name(segment).to_string(), &MOST_LEAVING]).await;
    let small = row.map_err(|e| Error::server(doing, e))?.get::<Option<bool>>(0) == Some(true);
    Ok(small && named.filled.len() == named.all.len())
}

/// Ends, after the command, the capture that [`capture_leaving`] began before it. Takes back the rows that
/// the triggers of emptied partitions wrote, since each such row would cause a recompute of the readers.
/// Marks the readers if the command did not do what was expected. For instance, the partitions did not leave
/// because their names had become those of other tables, or code of users wrote or refreshed something before
/// the partitions left.
pub(crate) async fn finish_leaving(
    t: &Transaction<'_>,
    followed: &Followed,
    removal: &Removal,
) -> Result<()> {
    let doing = "follow a partition that went";
    let fail = |e| Error::server(doing, e);
    let source = followed.source;
    let here = "SELECT ARRAY(SELECT unnest(pgtrickle.children($1)) INTERSECT SELECT unnest($2::oid[]))";
    let here: Vec<u32> = t.query_one(here, &[&source, &removal.partitions]).await.map_err(fail)?.get(0);
    let witness = Witness::of(t, source, doing).await?;
    let mut expected = followed.witness.clone();
    let went = match removal.how {
        Leaving::Dropped | Leaving::Detached => here.is_empty(),
        Leaving::Emptied => {
            let emptied = i64::try_from(here.len()).unwrap_or(i64::MAX);
            expected.iter_mut().for_each(|w| w.captured = w.captured.saturating_add(emptied));
            let taken_back = take_back(t, source, doing).await?;
            let filled =
                "SELECT EXISTS (SELECT FROM unnest($1::oid[]) p(oid) WHERE pg_relation_size(p.oid) > 0)";
            let filled: bool = t.query_one(filled, &[&here]).await.map_err(fail)?.get(0);
            !filled && taken_back == Some(emptied)
        }
    };
    if !went || expected.is_none() || witness != expected {
        mark(&**t, source, "its rows were written while a partition of it went").await?;
    }
    Ok(())
}

/// Deletes the rows that the triggers of emptied partitions wrote, and returns their number. Returns `None`
/// where the table has no buffer any more.
async fn take_back(t: &Transaction<'_>, source: u32, doing: &str) -> Result<Option<i64>> {
    let Some(table) = table(t, source, doing).await? else { return Ok(None) };
    let Some(c) = read(&**t, &table).await? else { return Ok(None) };
    let Some(deleted) = c.buffer.take_back_truncates() else { return Ok(None) };
    let deleted = t.execute(&print(&deleted).text, &[]).await.map_err(|e| Error::server(doing, e))?;
    Ok(i64::try_from(deleted).ok())
}

/// Leaves a mark, so that the readers of a table are recomputed. Waits for no refresh, which may itself wait
/// for the table.
pub(crate) async fn mark(t: &dyn Connection, source: u32, why: &str) -> Result<()> {
    let text = "INSERT INTO pgtrickle.pgt_marks (source_relid, reason) VALUES ($1, $2)";
    let done = t.execute(text, &[&source, &why]).await;
    done.map(drop).map_err(|e| Error::server("mark the readers of a table", e))
}
