//! Drains change buffers, which means deleting the changes that every reader has counted. A reader has
//! counted a change if the reader's frontier includes the change.
//!
//! A large segment is emptied in place if no session writes it at the time and every reader has counted all
//! of its rows. A writer that arrives meanwhile waits as long as a TRUNCATE takes. If a large segment cannot
//! be emptied in place, it is closed, and a new segment is begun or an empty segment is opened again.
//!
//! A closed segment is emptied once every reader has counted all of its rows. The empty segment is not
//! dropped, since a session that still has the former trigger function may write it later. Only a segment
//! that was made before the buffer was widened is dropped.
//!
//! A segment that reached its limit (`trickle_core::cdc`) is closed too. Its readers are recomputed, and the
//! segment is emptied as soon as no session writes it. All of these steps are done in transactions that wait
//! for no other session. A drain that is not possible at once is tried again after another refresh.

use crate::capture;
use crate::catalog::PgCatalog;
use crate::db::{RefreshDriver, Transaction};
use crate::error::{Error, Result};
use crate::names::HIDDEN;
use crate::registry::Entry;
use crate::trickle::Trickle;
use std::collections::BTreeSet;
use std::sync::Arc;
use trickle_core::catalog::TableDef;
use trickle_core::cdc::{Buffer, OVERFLOWED, Segment};
use trickle_core::refresh::{PENDING, stored_frontiers};
use trickle_core::sql::{Qualified, print};
use trickle_core::vocabulary::Capture;

impl<C: RefreshDriver> Trickle<C> {
    /// Drains the change buffers that these stream tables read.
    pub(crate) async fn drain(&mut self, group: &[Entry]) -> Result<()> {
        // Writers of a source would wait for the end of the caller's transaction. The caller's transaction
        // may also read an old snapshot.
        if self.connection.callers().is_some_and(|c| !c.brief || !c.fresh) {
            return Ok(());
        }
        let sources: BTreeSet<u32> = group
            .iter()
            .flat_map(|e| e.dependencies.iter().filter(|d| d.buffer.is_some()))
            .map(|d| d.relation.id.0)
            .collect();
        let sources: Vec<u32> = sources.into_iter().collect();
        for (source, open) in self.drainable(&sources, self.settings.segment_bytes).await? {
            let emptied = match open {
                Some(number) => forgiving(self.empty_in_place(source, number).await)?.unwrap_or(false),
                None => false,
            };
            if !emptied {
                self.drain_all([source]).await?;
            }
        }
        Ok(())
    }

    /// Empties the buffers of these sources, whatever their size, where a buffer can be emptied in place.
    pub async fn empty_counted(&mut self, sources: &[u32]) -> Result<()> {
        for (source, open) in self.drainable(sources, 1).await? {
            if let Some(number) = open {
                forgiving(self.empty_in_place(source, number).await)?;
            }
        }
        Ok(())
    }

    /// Begins new segments in the full buffers that these stream tables read. The refresh that follows
    /// recomputes the stream tables, so they get the changes that the full buffers left out.
    pub(crate) async fn relieve(&mut self, group: &[Entry]) -> Result<()> {
        let full = group.iter().flat_map(|e| &e.dependencies).filter(|d| d.full).map(|d| d.relation.id.0);
        let full: BTreeSet<u32> = full.collect();
        self.drain_all(full).await
    }

    async fn drain_all(&mut self, sources: impl IntoIterator<Item = u32>) -> Result<()> {
        for source in sources {
            forgiving(self.drain_one(source).await)?;
        }
        Ok(())
    }

    /// Finds, by one query, the sources whose buffers must be drained. One of three conditions holds for such
    /// a buffer. Its open segment has `bytes` bytes or more, a closed segment has rows, or its triggers were
    /// made for another limit. If the buffer only needs its open segment emptied, the number of that segment
    /// is returned too.
    async fn drainable(&self, sources: &[u32], bytes: i64) -> Result<Vec<(u32, Option<i64>)>> {
        let text = "SELECT b.source_relid, CASE WHEN s.large AND NOT s.used AND NOT s.limited AND NOT b.unlogged THEN s.open END \
             FROM pgtrickle.pgt_buffers b CROSS JOIN LATERAL (SELECT max(number) FILTER (WHERE last) AS open, \
             bool_or(size >= least($3, b.limit_bytes)) FILTER (WHERE last) AS large, \
             coalesce(bool_or(size > CASE WHEN b.unlogged THEN current_setting('block_size')::int8 ELSE 0 END) FILTER (WHERE NOT last), false) AS used, \
             b.limit_bytes <> (SELECT buffer_limit_bytes FROM pgtrickle.pgt_catalog_version) AS limited \
             FROM (SELECT (s.segment->>'number')::int8 AS number, s.n = jsonb_array_length(b.segments) AS last, \
             pg_relation_size(to_regclass(pg_catalog.format('%I.%I', $2::text, pg_catalog.format('changes_%s_%s', b.source_relid, s.segment->>'number')))) AS size \
             FROM jsonb_array_elements(b.segments) WITH ORDINALITY s(segment, n)) s) s \
             WHERE b.source_relid = ANY ($1) AND b.capture = 'ON' AND (s.large OR s.used OR s.limited)";
        let rows = self
            .db()
            .ask(text, &[&sources, &HIDDEN, &bytes])
            .await
            .map_err(|e| Error::server("look for consumed changes", e))?;
        Ok(rows.iter().map(|r| (r.get(0), r.get(1))).collect())
    }

    /// Begins a transaction whose waits for locks are short. Each statement sees all that was committed
    /// before it, whatever the role's default isolation level is. Facts that a lock keeps unchanged must be
    /// read after the lock is taken.
    async fn draining(&mut self) -> Result<Transaction<'_>> {
        let t = self.db_mut().fresh_transaction().await.map_err(|e| Error::server("begin", e))?;
        t.batch_execute("SET LOCAL lock_timeout = '100ms'")
            .await
            .map_err(|e| Error::server("set lock_timeout", e))?;
        Ok(t)
    }

    /// Empties the open segment of a source's buffer in place. Returns whether the segment was emptied.
    /// Segments without WAL are left out, since emptying them in place would require a new sentinel.
    async fn empty_in_place(&mut self, source: u32, number: i64) -> Result<bool> {
        let name = Qualified::new(HIDDEN, format!("changes_{source}_{number}"));
        let t = self.draining().await?;
        // One session at a time drains the buffer, and only if this segment is still the open segment.
        let held = "SELECT 1 FROM pgtrickle.pgt_buffers WHERE source_relid = $1 AND capture = 'ON' \
             AND (segments->-1->>'number')::int8 = $2 FOR UPDATE SKIP LOCKED";
        let held =
            t.query_opt(held, &[&source, &number]).await.map_err(|e| Error::server("lock a buffer", e))?;
        // A segment that reached its limit has a row of weight 0, which no frontier counts. So such a segment
        // is not emptied in place.
        if held.is_none() || !lock(&t, &name).await? || !is_counted(&t, source, &name).await? {
            return Ok(false);
        }
        let emptied = t.as_catalog_owner(&format!("TRUNCATE {name}")).await;
        emptied.map_err(|e| Error::server("drop consumed changes", e))?;
        t.commit().await.map_err(|e| Error::server("commit", e))?;
        Ok(true)
    }

    /// Repairs buffers that a crash of the server has emptied, if these stream tables read them.
    pub(crate) async fn heal(&mut self, group: &[Entry]) -> Result<()> {
        let unlogged: BTreeSet<u32> = group
            .iter()
            .flat_map(|e| &e.dependencies)
            .filter(|d| d.unlogged)
            .map(|d| d.relation.id.0)
            .collect();
        for source in unlogged {
            let Some(table) = self.source_table(source).await? else { continue };
            let fail = |e| Error::server("look for what a crash emptied", e);
            let known = capture::read(self.db(), &table).await?.filter(|c| c.state == Capture::On);
            let Some(lost) = known.and_then(|c| c.buffer.has_lost()) else { continue };
            // The following query takes no lock, so it decides first whether a repair is needed. A repair
            // locks other readers out. In a caller's transaction, the lock stays as long as that
            // transaction.
            if self.db().query_opt(&print(&lost).text, &[]).await.map_err(fail)?.is_none() {
                continue;
            }
            let t = self.db_mut().transaction().await.map_err(|e| Error::server("begin", e))?;
            // One session at a time repairs a buffer, so that the buffer gets one sentinel.
            let held = "SELECT 1 FROM pgtrickle.pgt_buffers WHERE source_relid = $1 FOR UPDATE";
            t.query_opt(held, &[&source]).await.map_err(|e| Error::server("lock a buffer", e))?;
            if let Some(c) = capture::read(&t, &table).await?.filter(|c| c.state == Capture::On) {
                capture::run_as_catalog_owner(&t, &c.buffer.heal(), "make good for a crash").await?;
            }
            t.commit().await.map_err(|e| Error::server("commit", e))?;
        }
        Ok(())
    }

    /// Returns the definition of a source; `None` where the source was dropped.
    async fn source_table(&self, source: u32) -> Result<Option<Arc<TableDef>>> {
        let name = self
            .db()
            .query_opt(
                "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE c.oid = $1",
                &[&source],
            )
            .await
            .map_err(|e| Error::server("look for a source", e))?;
        let Some(name) = name else { return Ok(None) };
        let mut catalog = PgCatalog::new();
        capture::table_by_oid(self.db(), &mut catalog, name.get(0), name.get(1)).await
    }

    async fn drain_one(&mut self, source: u32) -> Result<()> {
        let Some(table) = self.source_table(source).await? else { return Ok(()) };
        let bytes = self.settings.segment_bytes;
        let t = self.draining().await?;
        // One session at a time drains a buffer, since each drain changes this row.
        let held = "SELECT 1 FROM pgtrickle.pgt_buffers WHERE source_relid = $1 FOR UPDATE SKIP LOCKED";
        let held = t.query_opt(held, &[&source]).await.map_err(|e| Error::server("lock a buffer", e))?;
        let Some(captured) =
            capture::read(&t, &table).await?.filter(|c| held.is_some() && c.state == Capture::On)
        else {
            return Ok(());
        };
        // The capture triggers do not fit the source any more. The next session that captures the source
        // makes all of its capture again.
        if !capture::fresh(&t, &captured).await? {
            return Ok(());
        }
        let limit = capture::limit(&t).await?;
        let full = is_full(&t, &captured.buffer).await?;
        if !full {
            give_up_laggards(&t, &captured.buffer, limit).await?;
        }
        let present = captured.buffer.clone().with_limit(limit);
        let (mut buffer, closed) = empty_closed(&t, &present).await?;
        let grown = matches!(closed, Closed::Empty(_)) && size(&t, &buffer).await? >= bytes;
        let source = captured.mode.source();
        if full || grown {
            let reopened = closed.spare().and_then(|number| source.reopen(&buffer, number));
            let (next, statements) = reopened.unwrap_or_else(|| source.rotate(&buffer));
            capture::run_as_catalog_owner(&t, &statements, "begin a new segment").await?;
            buffer = next;
        } else if captured.buffer.limit() != limit {
            capture::run_as_catalog_owner(&t, &source.redirect(&buffer), "limit a buffer").await?;
        }
        if full {
            (buffer, _) = empty_closed(&t, &buffer).await?;
        }
        if buffer.segments() != captured.buffer.segments() || buffer.limit() != captured.buffer.limit() {
            capture::note_segments(&t, &buffer, &captured.attnums).await?;
        }
        t.commit().await.map_err(|e| Error::server("commit", e))
    }
}

/// Returns `None` for an error which says that a drain is not possible at the moment. The drain is tried
/// again after another refresh.
fn forgiving<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(e) if e.is_busy() || e.is_transient() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Whether the open segment has reached its limit, and a statement has left out changes for that reason.
async fn is_full(t: &Transaction<'_>, buffer: &Buffer) -> Result<bool> {
    let Some(current) = buffer.current() else { return Ok(false) };
    Ok(size(t, buffer).await? >= buffer.limit() && is_marked(t, &buffer.segment_name(current)).await?)
}

/// Whether a segment has the mark which says that its limit was reached.
async fn is_marked(t: &Transaction<'_>, segment: &Qualified) -> Result<bool> {
    let text = format!("SELECT EXISTS (SELECT FROM {segment} WHERE w = 0 AND xid = '{OVERFLOWED}'::xid8)");
    let row = t.query_one(&text, &[]).await;
    Ok(row.map_err(|e| Error::server("look for the mark of a full buffer", e))?.get(0))
}

/// Marks readers for a recompute if a buffer is larger than its limit. These readers have not counted all
/// rows of the oldest segment, usually because they are suspended. Without the limit, changes that wait for a
/// suspended stream table would fill the disk.
async fn give_up_laggards(t: &Transaction<'_>, buffer: &Buffer, limit: i64) -> Result<()> {
    let fail = |e| Error::server("look for readers that lag behind", e);
    let names: Vec<String> = buffer.segments().iter().map(|s| buffer.segment_name(s).to_string()).collect();
    let size = "SELECT sum(pg_relation_size(n::regclass))::int8 FROM unnest($1::text[]) n";
    let size: Option<i64> = t.query_one(size, &[&names]).await.map_err(fail)?.get(0);
    let (Some(oldest), true) = (names.first(), size.unwrap_or(0) > limit) else { return Ok(()) };
    let why = format!("it lagged behind, and the buffer of {} is full", shown_source(buffer));
    let text = format!(
        "{} SELECT pgtrickle.mark_readers($1, array_agg(i.id), $2) FROM frontiers f CROSS JOIN LATERAL unnest(f.ids) i(id) \
         WHERE EXISTS (SELECT FROM {oldest} b WHERE b.xid <> '{OVERFLOWED}'::xid8 AND {PENDING}) HAVING count(*) > 0",
        stored_frontiers(&format!("{READERS} AND NOT {REBUILT}"))
    );
    t.execute(&text, &[&buffer.table().id.0, &why]).await.map_err(fail)?;
    Ok(())
}

/// The state of the closed segments of a buffer, with the number of a segment that can be opened again.
enum Closed {
    /// A closed segment has rows that a reader has not counted.
    Needed(Option<u32>),
    /// Every reader has counted all rows of the closed segments.
    Empty(Option<u32>),
}

impl Closed {
    fn spare(&self) -> Option<u32> {
        match self {
            Closed::Needed(spare) | Closed::Empty(spare) => *spare,
        }
    }
}

/// Empties the closed segments whose rows every reader has counted, and drops those among them that lack
/// columns.
async fn empty_closed(t: &Transaction<'_>, buffer: &Buffer) -> Result<(Buffer, Closed)> {
    let fail = |e| Error::server("drop consumed changes", e);
    let (mut left, mut spare, mut needed) = (buffer.clone(), None, false);
    for s in buffer.segments().iter().filter(|s| Some(*s) != buffer.current()) {
        if !is_consumed(t, buffer, s).await? {
            needed = true;
            continue;
        }
        let name = buffer.segment_name(s);
        let mut texts = Vec::new();
        if s.columns == buffer.columns() {
            texts.push(format!("TRUNCATE {name}"));
            texts.extend(buffer.begin_segment(s).map(|s| print(&s).text));
            spare = Some(s.number);
        } else {
            left = left.without(s.number);
            texts.extend([print(&left.create_view()).text, format!("DROP TABLE {name}")]);
        }
        t.as_catalog_owner(&texts.join(";\n")).await.map_err(fail)?;
    }
    Ok((left, if needed { Closed::Needed(spare) } else { Closed::Empty(spare) }))
}

/// Returns `schema.name` of a source, in the form that the reasons of refreshes use.
fn shown_source(buffer: &Buffer) -> String {
    Qualified::new(&buffer.table().schema, &buffer.table().name).to_string()
}

async fn size(t: &Transaction<'_>, buffer: &Buffer) -> Result<i64> {
    let Some(current) = buffer.current() else { return Ok(0) };
    let name = buffer.segment_name(current).to_string();
    let row = t.query_one("SELECT pg_relation_size($1::text::regclass)", &[&name]).await;
    Ok(row.map_err(|e| Error::server("measure a segment", e))?.get(0))
}

/// A condition for the stream tables that read the captured changes of source `$1`.
const READERS: &str = "pgt_id IN (SELECT d.pgt_id FROM pgtrickle.pgt_dependencies d WHERE d.source_relid = $1) \
     AND refresh_mode <> 'IMMEDIATE'";

/// A condition for the stream tables that the next refresh recomputes, whatever changes were captured
/// before.
const REBUILT: &str = "(needs_reinit OR NOT is_populated OR frontier IS NULL)";

/// Whether no session writes a segment now, and every reader has counted all of its rows or will never count
/// them. The lock on the segment decides about writers. The snapshot that is taken after the lock decides
/// about readers.
async fn is_consumed(t: &Transaction<'_>, buffer: &Buffer, segment: &Segment) -> Result<bool> {
    let name = buffer.segment_name(segment);
    if !lock(t, &name).await? {
        return Ok(false);
    }
    if is_marked(t, &name).await? {
        // Every statement that left out its changes because of the mark has ended, since a running statement
        // would hold a lock on the segment.
        let why = format!("{} was changed more than its buffer may hold", shown_source(buffer));
        capture::rebuild_readers(t, buffer.table().id.0, &why).await?;
        return Ok(true);
    }
    is_counted(t, buffer.table().id.0, &name).await
}

/// Locks a segment against all other sessions, if no session uses it now. Returns whether the segment was
/// locked.
async fn lock(t: &Transaction<'_>, segment: &Qualified) -> Result<bool> {
    let lock = format!("LOCK TABLE {segment} IN ACCESS EXCLUSIVE MODE NOWAIT");
    match t.attempt_as_catalog_owner(&lock).await {
        Ok(()) => Ok(true),
        Err(e) if e.is_lost() => Err(Error::server("look for consumed changes", e)),
        Err(_) => Ok(false),
    }
}

/// Whether every reader of a source has counted all rows of a locked segment, or will never count them.
async fn is_counted(t: &Transaction<'_>, source: u32, segment: &Qualified) -> Result<bool> {
    let fail = |e| Error::server("look for consumed changes", e);
    let text = format!(
        "{} SELECT ARRAY(SELECT pgt_relid FROM pgtrickle.pgt_stream_tables WHERE {READERS} AND {REBUILT} ORDER BY 1), \
         NOT EXISTS (SELECT FROM frontiers f WHERE EXISTS (SELECT FROM {segment} b WHERE b.w IS NOT NULL AND {PENDING}))",
        stored_frontiers(&format!("{READERS} AND NOT {REBUILT}"))
    );
    let row = t.query_one(&text, &[&source]).await.map_err(fail)?;
    let rebuilt: Vec<u32> = row.get(0);
    if !row.get::<bool>(1) || rebuilt.is_empty() {
        return Ok(row.get(1));
    }
    // A stream table that is being recomputed may read a snapshot that is older than rows which the other
    // readers have counted. A refresh locks its stream table before it takes its snapshot. Suppose that a
    // stream table is not locked now, and that a second run of the query still lists it. Then its recompute
    // will see all that was committed when the query above ran.
    let locked = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
         WHERE d.datname = current_database() AND l.relation = ANY ($1) AND l.granted \
         AND l.mode = 'ShareUpdateExclusiveLock')";
    if t.query_one(locked, &[&rebuilt]).await.map_err(fail)?.get(0) {
        return Ok(false);
    }
    let still: Vec<u32> = t.query_one(&text, &[&source]).await.map_err(fail)?.get(0);
    Ok(rebuilt.iter().all(|r| still.contains(r)))
}
