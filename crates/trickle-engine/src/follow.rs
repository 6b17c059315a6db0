//! Brings the catalog and the capture up to date at once after ALTER and DROP, where event triggers report
//! these commands. Elsewhere the next refresh does this work.

use crate::capture::{self, Followed, Removal};
use crate::db::{RefreshDriver, Transaction};
use crate::drop::{forget, release_sources};
use crate::error::{Error, Result};
use crate::locks::{oids, patiently};
use crate::registry::{Entry, shown};
use crate::schema::LETS_OWNER_IN;
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use trickle_core::catalog::TableId;
use trickle_core::vocabulary::Initiator;

/// The statement that writes the new names of renamed or moved stream tables into the catalog.
pub(crate) const RENAMED: &str = "UPDATE pgtrickle.pgt_stream_tables s SET pgt_schema = n.nspname, pgt_name = c.relname, updated_at = now() \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = s.pgt_relid \
    AND s.pgt_relid = ANY ($1) AND (s.pgt_schema, s.pgt_name) IS DISTINCT FROM (n.nspname, c.relname)";

impl<C: RefreshDriver> Trickle<C> {
    /// Removes the objects that belonged to dropped relations. For a dropped stream table, drops all objects
    /// that belong to it. For any other dropped relation, removes its capture. Returns messages for the user.
    ///
    /// Readers of a dropped relation are left to their next refresh, since another table may have the name of
    /// the relation by then. But the triggers of an IMMEDIATE reader are dropped at once, since these
    /// triggers would fail in the statements that write the reader's other sources.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn follow_drops(&mut self, dropped: &[u32]) -> Result<Vec<String>> {
        let registry = self.registry().await?;
        let is_gone = |id: TableId| dropped.contains(&id.0);
        let (gone, left): (Vec<Entry>, Vec<Entry>) =
            registry.entries().cloned().partition(|e| !e.exists && is_gone(e.relation.id));
        let tables = oids(gone.iter().flat_map(|e| e.dependencies.iter().map(|d| d.relation.id)));
        let (patience, progress) = (self.settings.patience, self.progress.clone());
        patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            for e in &gone {
                forget(t, e).await?;
            }
            release_sources(t, &gone).await?;
            for source in dropped {
                capture::remove(t, *source).await?;
            }
            Ok(())
        })
        .await?;
        let mut told: Vec<String> =
            gone.iter().map(|e| format!("what belonged to stream table {} is dropped", shown(e))).collect();
        for e in &left {
            let Some(lost) = e.dependencies.iter().find(|d| is_gone(d.relation.id)) else { continue };
            let lost = format!("{}.{}", lost.relation.schema, lost.relation.name);
            if e.is_immediate() {
                self.stop_immediate(e, &format!("{lost} was dropped")).await?;
            }
            told.push(format!(
                "stream table {} reads {lost}: its next refresh suspends it, unless there is another table of this name",
                shown(e)
            ));
        }
        Ok(told)
    }

    /// Handles changes of relations or functions. Writes the new names of renamed or moved stream tables into
    /// the catalog, lets new owners use the catalog, and captures new partitions. Returns the stream tables,
    /// with their owners, that must be planned again before any session writes again. The triggers of these
    /// stream tables were made for the former definition of a table.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn altered(&mut self, tables: &[u32], functions: &[u32]) -> Result<Vec<(TableId, u32)>> {
        let fail = |e| Error::server("follow what was altered", e);
        // A role that has just become the owner of a stream table may have no rights on the catalog yet.
        let strange = format!(
            "SELECT FROM pgtrickle.pgt_stream_tables s JOIN pg_class c ON c.oid = s.pgt_relid \
             WHERE c.oid = ANY ($1) AND NOT {LETS_OWNER_IN} LIMIT 1"
        );
        if self.db().query_opt(&strange, &[&tables.to_vec()]).await.map_err(fail)?.is_some() {
            let list: Vec<String> = tables.iter().map(u32::to_string).collect();
            let text = format!("SELECT pgtrickle.let_in_owners('{{{}}}')", list.join(","));
            self.db().as_catalog_owner(&text).await.map_err(fail)?;
        }
        self.db().execute(RENAMED, &[&tables.to_vec()]).await.map_err(fail)?;
        for row in self.db().query(OTHER_PARTITIONS, &[&tables.to_vec()]).await.map_err(fail)? {
            let source = row.get(0);
            if let Err(e) = self.in_one(async |t| capture::adopt(t, source).await).await {
                let why = format!("a new partition has its readers computed anew: {}", e.message());
                self.progress.say(&why);
            }
        }
        let rows = self.db().query(BROKEN, &[&tables.to_vec(), &functions.to_vec()]).await.map_err(fail)?;
        Ok(rows.iter().map(|r| (TableId(r.get(0)), r.get(1))).collect())
    }

    /// Captures the rows of partitions that a command is about to take from captured tables: writes them to
    /// the buffers as deleted rows. Returns the tables whose buffers got these rows, for
    /// [`Trickle::partitions_left`]. The caller has checked that the user may run the command.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn partitions_leave(&mut self, removal: &Removal) -> Result<Vec<Followed>> {
        let sources = self.in_one(async |t| capture::sources_of(t, removal).await).await?;
        if sources.is_empty() {
            return Ok(Vec::new());
        }
        let idle = self.db().require_idle(&removal.partitions).is_ok();
        self.in_one(async |t| {
            let mut followed = Vec::new();
            for source in sources {
                followed.extend(capture::capture_leaving(t, source, removal, idle).await?);
            }
            Ok(followed)
        })
        .await
    }

    /// Ends, after a command, the capture that [`Trickle::partitions_leave`] began before the command. If
    /// this fails, the readers of the tables are marked for a recompute.
    ///
    /// # Errors
    /// Errors of the server while it leaves the marks.
    pub async fn partitions_left(&mut self, followed: &[Followed], removal: &Removal) -> Result<()> {
        for one in followed {
            if let Err(e) = self.in_one(async |t| capture::finish_leaving(t, one, removal).await).await {
                let why = format!("a partition went, which could not be followed: {}", e.message());
                capture::mark(self.db(), one.source(), &why).await?;
            }
        }
        Ok(())
    }

    /// Runs `work` in a transaction, which is rolled back if `work` fails.
    async fn in_one<T>(&mut self, work: impl AsyncFnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let fail = |e| Error::server("follow a partition", e);
        let t = self.db_mut().transaction().await.map_err(fail)?;
        match work(&t).await {
            Ok(done) => t.commit().await.map(|()| done).map_err(fail),
            Err(e) => {
                t.rollback().await.map_err(fail)?;
                Err(e)
            }
        }
    }

    /// Plans a stream table again where a relation or function that it relies on was altered. Suspends the
    /// stream table if it cannot be planned any more.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn suspend_unplannable(&mut self, id: TableId) -> Result<()> {
        match self.adapt(&[id], Initiator::Manual).await {
            Err(e) if e.is_final() => Ok(()),
            done => done.map(drop),
        }
    }

    /// Plans a stream table again after a relation or function that it relies on was altered. Also refreshes
    /// it if its mode is IMMEDIATE. Returns a message for the user where the stream table cannot be planned
    /// any more.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn follow(&mut self, id: TableId) -> Result<Option<String>> {
        match self.adapt(&[id], Initiator::Manual).await {
            Err(e) if e.is_final() => Ok(Some(e.message().to_owned())),
            Err(e) => Err(e),
            Ok(adapted) => {
                if adapted.registry.by_table(id).is_some_and(Entry::is_immediate) {
                    self.refresh_linked(&[id], &RefreshOptions::default()).await?;
                }
                Ok(None)
            }
        }
    }
}

/// The tables among `$1` that got partitions after their triggers were made.
const OTHER_PARTITIONS: &str = "SELECT source_relid FROM pgtrickle.pgt_buffers WHERE source_relid = ANY ($1) AND capture = 'ON' \
     AND children IS NOT NULL AND NOT pgtrickle.children(source_relid) <@ children ORDER BY 1";

/// The stream tables, with their owners, whose triggers do not fit their sources any more. Each such stream
/// table reads one of the relations `$1`, or a parent of one of these, or calls one of the functions `$2`.
/// Something that its plan relies on has changed.
const BROKEN: &str = "
WITH RECURSIVE altered(oid) AS (
    SELECT unnest($1::oid[])
    UNION SELECT h.inhparent FROM altered a JOIN pg_inherits h ON h.inhrelid = a.oid
), maybe AS (
    SELECT s.pgt_id, s.pgt_relid, s.refresh_mode FROM pgtrickle.pgt_stream_tables s
    WHERE s.status <> 'SUSPENDED' AND (s.functions && $2::oid[] OR s.refresh_mode = 'IMMEDIATE' AND s.pgt_relid = ANY ($1::oid[])
        OR EXISTS (SELECT FROM pgtrickle.pgt_dependencies d JOIN altered a ON a.oid = d.source_relid WHERE d.pgt_id = s.pgt_id))
)
SELECT m.pgt_relid, c.relowner FROM maybe m JOIN pg_class c ON c.oid = m.pgt_relid
WHERE (m.refresh_mode = 'IMMEDIATE' OR EXISTS (
        SELECT FROM pgtrickle.pgt_dependencies d JOIN altered a ON a.oid = d.source_relid
        JOIN pgtrickle.pgt_buffers b ON b.source_relid = d.source_relid WHERE d.pgt_id = m.pgt_id AND b.capture = 'ON'))
    AND m.pgt_id NOT IN (SELECT pgtrickle.unchanged((SELECT array_agg(pgt_id) FROM maybe)))
ORDER BY m.pgt_id";
