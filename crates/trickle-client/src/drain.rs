//! Consumed changes leave the buffers.
//!
//! A segment that is no longer written, and all of whose rows every reader has counted, is dropped; a segment that has
//! grown large is closed and a new one begun. Both are transactions of their own that wait for nobody: what cannot be
//! done now is done after another refresh.

use crate::capture;
use crate::catalog::PgCatalog;
use crate::error::{Error, Result};
use crate::registry::Entry;
use crate::trickle::Trickle;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_postgres::Transaction;
use trickle_core::catalog::TableDef;
use trickle_core::cdc::{Buffer, Segment};
use trickle_core::sql::print;

impl Trickle {
    /// Drains the buffers of what these stream tables read.
    pub(crate) async fn drain(&mut self, group: &[Entry]) -> Result<()> {
        let sources: BTreeSet<u32> = group
            .iter()
            .flat_map(|e| e.dependencies.iter().filter(|d| d.buffer.is_some()))
            .map(|d| d.relation.id.0)
            .collect();
        let sources: Vec<u32> = sources.into_iter().collect();
        for source in self.drainable(&sources).await? {
            match self.drain_one(source).await {
                Err(e) if !e.is_busy() && !e.is_transient() => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sources of which a segment is large or closed: one question for all.
    async fn drainable(&self, sources: &[u32]) -> Result<Vec<u32>> {
        let rows = self
            .client()
            .query(
                "SELECT b.source_relid FROM pgtrickle.pgt_buffers b WHERE b.source_relid = ANY ($1) \
                 AND (jsonb_array_length(b.segments) > 1 OR pg_relation_size(to_regclass(format('%I.%I', $2::text, \
                 format('changes_%s_%s', b.source_relid, b.segments->-1->>'number')))) >= $3)",
                &[&sources, &capture::HIDDEN, &self.settings.segment_bytes],
            )
            .await
            .map_err(|e| Error::server("look for consumed changes", e))?;
        Ok(rows.iter().map(|r| r.get(0)).collect())
    }

    /// Makes good for a crash of the server that emptied the buffers of what these stream tables read.
    pub(crate) async fn heal(&mut self, group: &[Entry]) -> Result<()> {
        let unlogged: BTreeSet<u32> = group
            .iter()
            .flat_map(|e| &e.dependencies)
            .filter(|d| d.unlogged)
            .map(|d| d.relation.id.0)
            .collect();
        for source in unlogged {
            let Some(table) = self.source_table(source).await? else { continue };
            let t = self.session.client_mut().transaction().await.map_err(|e| Error::server("begin", e))?;
            // One healer at a time, so that there is one sentinel.
            let held = "SELECT 1 FROM pgtrickle.pgt_buffers WHERE source_relid = $1 FOR UPDATE";
            t.query_opt(held, &[&source]).await.map_err(|e| Error::server("lock a buffer", e))?;
            if let Some(c) = capture::read(&t, &table).await?.filter(|c| !c.disabled) {
                capture::run_all(&t, &c.buffer.heal(), "make good for a crash").await?;
            }
            t.commit().await.map_err(|e| Error::server("commit", e))?;
        }
        Ok(())
    }

    /// The definition of a source; `None` where it is gone.
    async fn source_table(&self, source: u32) -> Result<Option<Arc<TableDef>>> {
        let name = self
            .client()
            .query_opt(
                "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE c.oid = $1",
                &[&source],
            )
            .await
            .map_err(|e| Error::server("look for a source", e))?;
        let Some(name) = name else { return Ok(None) };
        let mut catalog = PgCatalog::read(self.client()).await?;
        capture::table_by_oid(self.client(), &mut catalog, name.get(0), name.get(1)).await
    }

    async fn drain_one(&mut self, source: u32) -> Result<()> {
        let Some(table) = self.source_table(source).await? else { return Ok(()) };
        let bytes = self.settings.segment_bytes;
        let t = self.session.client_mut().transaction().await.map_err(|e| Error::server("begin", e))?;
        t.batch_execute("SET LOCAL lock_timeout = '100ms'")
            .await
            .map_err(|e| Error::server("set lock_timeout", e))?;
        // One drainer at a time; the row is what all of them change.
        let held = "SELECT 1 FROM pgtrickle.pgt_buffers WHERE source_relid = $1 FOR UPDATE SKIP LOCKED";
        let held = t.query_opt(held, &[&source]).await.map_err(|e| Error::server("lock a buffer", e))?;
        let Some(captured) = capture::read(&t, &table).await?.filter(|c| held.is_some() && !c.disabled)
        else {
            return Ok(());
        };
        give_up_laggards(&t, &captured.buffer, self.settings.buffer_limit_bytes).await?;
        let mut buffer = captured.buffer.clone();
        let mut consumed = Vec::new();
        for s in buffer.segments() {
            if Some(s) == buffer.current() || !is_consumed(&t, &buffer, s).await? {
                break;
            }
            consumed.push(s.clone());
        }
        if !consumed.is_empty() {
            let keep = buffer.segments().len() - consumed.len();
            let names: Vec<String> = consumed.iter().map(|s| buffer.segment_name(s).to_string()).collect();
            buffer = buffer.trimmed(keep);
            let view = print(&buffer.create_view()).text;
            let text = format!("{view};\nDROP TABLE {}", names.join(", "));
            t.batch_execute(&text).await.map_err(|e| Error::server("drop consumed changes", e))?;
        }
        if size(&t, &buffer).await? >= bytes && buffer.segments().len() == 1 {
            let (next, statements) = captured.mode.source().rotate(&buffer);
            capture::run_all(&t, &statements, "begin a new segment").await?;
            buffer = next;
        }
        if buffer.segments() != captured.buffer.segments() {
            capture::note_segments(&t, &buffer, &captured.attnums).await?;
        }
        t.commit().await.map_err(|e| Error::server("commit", e))
    }
}

/// Past a size, readers that have not counted the oldest segment (suspended ones, mostly) are to be recomputed instead:
/// who does not read must not fill the disk.
async fn give_up_laggards(t: &Transaction<'_>, buffer: &Buffer, limit: i64) -> Result<()> {
    let fail = |e| Error::server("look for readers that lag behind", e);
    let names: Vec<String> = buffer.segments().iter().map(|s| buffer.segment_name(s).to_string()).collect();
    let size = "SELECT sum(pg_relation_size(n::regclass))::int8 FROM unnest($1::text[]) n";
    let size: Option<i64> = t.query_one(size, &[&names]).await.map_err(fail)?.get(0);
    let (Some(oldest), true) = (names.first(), size.unwrap_or(0) > limit) else { return Ok(()) };
    let text = format!(
        "UPDATE pgtrickle.pgt_stream_tables s SET needs_reinit = true, updated_at = now() FROM pgtrickle.pgt_dependencies d \
         WHERE d.source_relid = $1 AND d.pgt_id = s.pgt_id AND s.frontier IS NOT NULL AND NOT s.needs_reinit \
         AND EXISTS (SELECT FROM {oldest} b WHERE NOT pg_visible_in_snapshot(b.xid, (s.frontier->>'snapshot')::pg_snapshot))"
    );
    t.execute(&text, &[&buffer.table().id.0]).await.map_err(fail)?;
    Ok(())
}

async fn size(t: &Transaction<'_>, buffer: &Buffer) -> Result<i64> {
    let Some(current) = buffer.current() else { return Ok(0) };
    let name = buffer.segment_name(current).to_string();
    let row = t.query_one("SELECT pg_relation_size($1::text::regclass)", &[&name]).await;
    Ok(row.map_err(|e| Error::server("measure a segment", e))?.get(0))
}

/// Whether nobody writes a segment any more and every reader has counted all of its rows. A reader without a frontier
/// has counted nothing; one that is to be recomputed needs none of them: a recompute at work holds a lock on the
/// segment, and a later one reads the table after all of them. The lock tells the first; the snapshot that is taken
/// after it, the second.
async fn is_consumed(t: &Transaction<'_>, buffer: &Buffer, segment: &Segment) -> Result<bool> {
    let fail = |e| Error::server("look for consumed changes", e);
    let name = buffer.segment_name(segment).to_string();
    t.batch_execute("SAVEPOINT trickle_segment").await.map_err(fail)?;
    let lock = t.batch_execute(&format!("LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE NOWAIT")).await;
    if lock.is_err() {
        t.batch_execute("ROLLBACK TO SAVEPOINT trickle_segment").await.map_err(fail)?;
        return Ok(false);
    }
    let text = format!(
        "SELECT NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies d JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) \
         WHERE d.source_relid = $1 AND NOT s.needs_reinit AND (s.frontier IS NULL OR EXISTS (SELECT FROM {name} b \
         WHERE b.w IS NOT NULL AND NOT pg_visible_in_snapshot(b.xid, (s.frontier->>'snapshot')::pg_snapshot))))"
    );
    let row = t.query_one(&text, &[&buffer.table().id.0]).await.map_err(fail)?;
    Ok(row.get(0))
}
