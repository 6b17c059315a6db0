//! Replaces the result of a stream table by the result of a new query. The new result is built in a separate
//! hidden stream table, which is called the new table. When the new table is filled, its rows take the place
//! of the former result in one transaction.
//!
//! - Other sessions see the former result until that transaction ends, and the new result afterwards, even if
//!   the process dies at any time. They wait only while rows are written into a table whose columns change.
//! - Until that transaction, the stream table is refreshed by its former query. Errors that the new query
//!   raises affect the new table alone.
//! - The new table has its own frontier, which becomes the frontier of the stream table. So the exchange
//!   loses no change and applies no change twice.
//! - A new table that a dead process left behind is dropped by the next call of `swap` or by a refresher.

use super::{Readers, evolve, renote};
use crate::capture;
use crate::db::{Bind, RefreshDriver, Transaction};
use crate::design::{Design, IfExists, NewStreamTable, comment, guard};
use crate::drop::{drop_states, forget, release_sources, remove};
use crate::error::{Error, Result};
use crate::immediate;
use crate::in_force::put_in_force;
use crate::locks::{oids, patiently};
use crate::names::HIDDEN;
use crate::names::{Name, rename_table};
use crate::registry::{Entry, shown};
use crate::resolve::OutputColumn;
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use std::collections::BTreeSet;
use trickle_core::catalog::TableId;
use trickle_core::sql::{Ident, Qualified, print};
use trickle_core::vocabulary::{Mode, RefreshMode};

/// The greatest number of attempts to bring the new table up to date while its sources are being altered.
const ATTEMPTS: u32 = 3;

/// The way in which a new result takes the place of the former one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// The table stays the same object and gets the new columns and rows. Objects that depend on the table
    /// stay too.
    Same(Readers),
    /// The new table gets the name of the former table, and the former table is dropped. Stream tables that
    /// read the former table are planned again.
    Another,
}

/// Numbers of the rows that were written into a result table when a new result took its place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) inserted: i64,
    pub(crate) updated: i64,
    pub(crate) deleted: i64,
}

/// The statement that locks the catalog rows of buffers, so that no session drops changes that the new result
/// still needs. A session that drops such changes marks the readers of the source for a recompute, but the
/// stream table is not one of these readers yet.
const HELD: &str =
    "SELECT FROM pgtrickle.pgt_buffers WHERE source_relid = ANY ($1) ORDER BY source_relid FOR NO KEY UPDATE";

/// The new table, which is stream table `$1`, if it is filled and if none of its sources and functions was
/// altered. The names `$2` and `$4` must still mean the tables `$3` and `$5`.
const READY: &str = "SELECT FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1 AND is_populated AND NOT needs_reinit \
     AND frontier IS NOT NULL AND EXISTS (SELECT FROM pgtrickle.unchanged(ARRAY[$1]) u(id) WHERE u.id = $1) \
     AND to_regclass($2)::oid = $3 AND to_regclass($4)::oid = $5 FOR UPDATE";

/// The statements that give stream table `$1` the frontier, the times, the cost model and the history of
/// stream table `$2`. Stream table `$1` gets the rows of `$2` too.
const ADOPT: [&str; 2] = [
    "UPDATE pgtrickle.pgt_stream_tables o SET frontier = b.frontier, is_populated = true, needs_reinit = false, \
     reinit_reason = NULL, data_timestamp = b.data_timestamp, last_refresh_at = b.last_refresh_at, cost_model = b.cost_model, \
     status = CASE o.status WHEN 'INITIALIZING' THEN 'ACTIVE' ELSE o.status END \
     FROM pgtrickle.pgt_stream_tables b WHERE o.pgt_id = $1 AND b.pgt_id = $2",
    "UPDATE pgtrickle.pgt_refresh_history SET pgt_id = $1 WHERE pgt_id = $2",
];

/// The statements that rename hidden tables, and their indexes, whose names begin with `$1`. In each new
/// name, `$2` replaces that beginning.
const RENAMES: &str = "
SELECT DISTINCT pg_catalog.format('ALTER %s pgtrickle_changes.%I RENAME TO %I',
    CASE c.relkind WHEN 'i' THEN 'INDEX' ELSE 'TABLE' END, c.relname, $2::text || substr(c.relname, length($1::text) + 1))
FROM pg_class t LEFT JOIN pg_index i ON i.indrelid = t.oid JOIN pg_class c ON c.oid IN (t.oid, i.indexrelid)
WHERE t.relnamespace = 'pgtrickle_changes'::regnamespace AND t.relkind = 'r' AND starts_with(t.relname, $1)
    AND starts_with(c.relname, $1) ORDER BY 1";

/// The new tables that processes of the current role have left behind. With `$1`, these are the new tables of
/// that stream table; without `$1`, all new tables that no session has used for a while.
const LEFT: &str = "
SELECT s.pgt_id FROM pgtrickle.pgt_stream_tables s
JOIN pg_class c ON c.oid = s.pgt_relid AND c.relowner = quote_ident(current_user)::regrole
WHERE s.pgt_schema = 'pgtrickle_changes' AND CASE WHEN $1::int8 IS NULL THEN s.pgt_name LIKE 'new\\_%'
    AND greatest(s.created_at, s.last_refresh_at) < clock_timestamp() - interval '5 minutes'
    AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.relation = s.pgt_relid AND l.granted)
    ELSE starts_with(s.pgt_name, pg_catalog.format('new_%s_', $1::int8)) END";

/// The first object that depends on table `$1` and is not dropped with it. With `$2`, the object depends on
/// one of these columns; without `$2`, on any part of the table.
const DEPENDENTS: &str = "
SELECT pg_describe_object(x.classid, x.objid, 0), min(a.attname) FROM (
    SELECT CASE WHEN r.oid IS NULL THEN d.classid ELSE 'pg_class'::regclass END AS classid,
        coalesce(r.ev_class, d.objid) AS objid, d.refobjsubid
    FROM pg_depend d LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
    WHERE (d.refclassid = 'pg_class'::regclass AND d.refobjid = $1 OR $2::text[] IS NULL AND d.refclassid = 'pg_type'::regclass
        AND d.refobjid = (SELECT reltype FROM pg_class WHERE oid = $1))
    AND d.deptype = 'n' AND NOT EXISTS (SELECT FROM pg_depend own WHERE (own.classid, own.objid) = (d.classid, d.objid)
        AND own.refclassid = 'pg_class'::regclass AND own.refobjid = $1 AND own.deptype IN ('a', 'i'))
) x LEFT JOIN pg_attribute a ON a.attrelid = $1 AND a.attnum = x.refobjsubid AND x.refobjsubid > 0
WHERE $2::text[] IS NULL OR a.attname = ANY ($2::text[]) GROUP BY 1 ORDER BY 1 LIMIT 1";

impl<C: RefreshDriver> Trickle<C> {
    /// Returns an error where giving these columns to a stream table would harm objects that depend on the
    /// stream table.
    ///
    /// # Errors
    /// An object or a stream table depends on a column that would be dropped; the columns that stay would
    /// get another order.
    pub(crate) async fn require_takes(
        &self,
        old: &Entry,
        columns: &[OutputColumn],
        replacement: Replacement,
    ) -> Result<()> {
        match replacement {
            Replacement::Same(readers) => {
                let gone = evolve::lost(self.db(), old, columns).await?;
                if readers == Readers::Stay {
                    evolve::require_unread(self.db(), old, &gone.dropped).await?;
                }
                let gone = [gone.dropped, gone.retyped].concat();
                self.require_not_kept_over(old, &gone).await?;
                self.require_free(old, Some(gone)).await
            }
            Replacement::Another => {
                self.require_movable(old).await?;
                self.require_free(old, None).await
            }
        }
    }

    /// Returns an error where the triggers of an IMMEDIATE stream table read a column that would be dropped.
    /// Those triggers would not fail, but would leave out the values of that column.
    async fn require_not_kept_over(&self, old: &Entry, gone: &[String]) -> Result<()> {
        let registry = self.linked(&[old.relation.id]).await?;
        let mut read =
            registry.readers(old.relation.id).filter(|r| r.mode == Mode::Immediate).flat_map(|r| {
                let columns = r
                    .dependencies
                    .iter()
                    .filter(|d| d.relation.id == old.relation.id)
                    .flat_map(|d| &d.columns);
                columns.map(move |c| (r, c))
            });
        match read.find(|(_, column)| gone.contains(*column)) {
            None => Ok(()),
            Some((reader, column)) => {
                let reader = shown(reader);
                Err(Error::input(format!("writers of {} keep {reader} by its column {column}", shown(old)))
                    .hint(format!("Give {reader} another mode first, or a query without that column.")))
            }
        }
    }

    /// Returns an error where another table cannot take the place of a stream table, because the current role
    /// cannot plan a reader of the stream table again. Such a reader has another owner, or is IMMEDIATE.
    async fn require_movable(&self, old: &Entry) -> Result<()> {
        let registry = self.linked(&[old.relation.id]).await?;
        match registry.readers(old.relation.id).find(|e| !e.own || e.mode == Mode::Immediate) {
            None => Ok(()),
            Some(e) if !e.own => {
                Err(Error::input(format!("{} of {} reads {}", shown(e), e.owner, shown(old))))
            }
            Some(e) => Err(Error::input(format!("writers of {} keep {}", shown(old), shown(e)))),
        }
        .map_err(|e| e.hint("Drop what reads it, or give the columns another order."))
    }

    /// Returns an error where an object that is no stream table depends on these columns of a stream table.
    /// `None` stands for all of its columns.
    pub(crate) async fn require_free(&self, old: &Entry, columns: Option<Vec<String>>) -> Result<()> {
        let params: [&dyn Bind; 2] = [&old.relation.id.0, &columns];
        let found = self.db().query_opt(DEPENDENTS, &params).await;
        let found = found.map_err(|e| Error::server("look what depends on a stream table", e))?;
        let Some(row) = found else { return Ok(()) };
        let (what, column): (&str, Option<&str>) = (row.get(0), row.get(1));
        let of = columns.as_ref().and(column);
        let of = of.map(|c| format!("column {} of ", Ident::new(c))).unwrap_or_default();
        Err(Error::input(format!("{what} depends on {of}{}", shown(old)))
            .hint("Drop what depends on it, alter the stream table, and make it again."))
    }

    /// Builds the result of a new query beside a stream table, and lets the new result take the place of the
    /// former one.
    pub(crate) async fn swap(
        &mut self,
        old: &Entry,
        new: &NewStreamTable,
        replacement: Replacement,
        follows: bool,
    ) -> Result<(Design, Written)> {
        self.drop_left(Some(old.id)).await?;
        self.drop_left(None).await?;
        let beside = beside(old);
        // The triggers of an IMMEDIATE stream table apply changes only to the table in place, so the new
        // table has another mode.
        let mode = new.mode.filter(|m| *m != RefreshMode::Immediate);
        let made = NewStreamTable {
            name: beside.clone(),
            schedule: Some(None),
            mode,
            snapshots: follows,
            if_exists: IfExists::Fail,
            ..new.clone()
        };
        let built = Box::pin(self.create_over(&made)).await.map_err(|e| about(e, &beside, old))?;
        match self.take_over(old, new, built.id, replacement).await {
            Ok(done) => Ok(done),
            Err(e) if e.is_connection() => Err(e),
            Err(e) => {
                // If the new table cannot be dropped now, the next call of `swap` or a refresher drops it.
                let _ = self.drop_id(built.id, false).await;
                Err(about(e, &beside, old))
            }
        }
    }

    async fn take_over(
        &mut self,
        old: &Entry,
        new: &NewStreamTable,
        built: i64,
        replacement: Replacement,
    ) -> Result<(Design, Written)> {
        let mut attempt = 1;
        loop {
            let beside = self.built(built).await?;
            if beside.mode != Mode::Full || attempt > 1 {
                // Applies the changes that were committed while the new table was built.
                self.refresh_linked(&[beside.relation.id], &RefreshOptions::initial()).await?;
            }
            let beside = self.built(built).await?;
            let design = self.design(old.relation.clone(), old.id, new).await?;
            let done = match alike(&beside, &design) {
                true => self.exchange(old, &beside, &design, replacement).await,
                false => Err(Error::stale(format!("what {} reads is being altered", shown(old)))
                    .hint("Try again when that is done. Nothing was changed.")),
            };
            match done {
                Err(e) if e.is_stale() && attempt < ATTEMPTS => attempt += 1,
                done => return done.map(|written| (design, written)),
            }
        }
    }

    async fn built(&self, id: i64) -> Result<Entry> {
        let text = "SELECT pgt_relid FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1";
        let row = self.db().query_opt(text, &[&id]).await;
        let row = row.map_err(|e| Error::server("look for what was built", e))?;
        let gone = || Error::stale("somebody else dropped what was built, or builds it");
        let table = TableId(row.ok_or_else(gone)?.get(0));
        self.linked(&[table]).await?.get(id).cloned().ok_or_else(gone)
    }

    /// Lets the new table take the place of the former table.
    async fn exchange(
        &mut self,
        old: &Entry,
        beside: &Entry,
        design: &Design,
        replacement: Replacement,
    ) -> Result<Written> {
        let read = old.dependencies.iter().chain(&beside.dependencies).map(|d| d.relation.id);
        let tables = oids(read.chain([old.relation.id]));
        let (patience, progress) = (self.settings.patience, self.progress.clone());
        let limits = self.limits();
        let written = patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            t.batch_execute(&limits).await.map_err(|e| Error::server(changing(old), e))?;
            lock(t, old, beside).await?;
            // The search path decides which operators compare the rows.
            put_in_force(&**t, &beside.in_force).await.map_err(|e| Error::server(changing(old), e))?;
            let written = match replacement {
                Replacement::Same(readers) => {
                    evolve::evolve(t, old, design, readers).await?;
                    write(t, old, beside, design).await?
                }
                Replacement::Another => {
                    drop_states(t, old.id, &changing(old)).await?;
                    Written::default()
                }
            };
            adopt(t, old, beside, design).await?;
            match replacement {
                Replacement::Same(_) => remove(t, beside, false).await?,
                Replacement::Another => take_place(t, old, beside).await?,
            }
            Ok(written)
        })
        .await?;
        self.cache.compiled.remove(&old.id);
        self.cache.compiled.remove(&beside.id);
        self.cache.recent.clear();
        // The sources are released in a transaction of their own. Otherwise, while a session reads a source
        // for a long time, each new attempt would write all rows again.
        let released = patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            release_sources(t, &[old.clone(), beside.clone()]).await
        });
        match released.await {
            Err(e) if e.is_busy() => {
                self.progress.say(&format!("changes are still captured: {}", e.message()));
            }
            done => done?,
        }
        Ok(written)
    }

    /// Returns the statements that put the limits of refreshes in force, since the exchange compares rows as
    /// a refresh does.
    fn limits(&self) -> String {
        let statement = self.settings.statement_timeout_ms;
        let statement = statement.map(|ms| format!("; SET LOCAL statement_timeout = {ms}"));
        format!("SET LOCAL jit = off{}", statement.unwrap_or_default())
    }

    /// Drops the new table of stream table `of` that a process has left behind. Without `of`, drops all such
    /// tables that no session has used for a while.
    pub(crate) async fn drop_left(&mut self, of: Option<i64>) -> Result<()> {
        let fail = |e| Error::server("look for what was built and left", e);
        let left: Vec<i64> =
            self.db().query(LEFT, &[&of]).await.map_err(fail)?.iter().map(|r| r.get(0)).collect();
        let patience = self.settings.patience;
        for id in left {
            // If the name of the table is needed now, all attempts are made. Otherwise one attempt is enough,
            // since a later call drops a table that a session still uses.
            self.settings.patience.attempts = if of.is_some() { patience.attempts } else { 1 };
            let dropped = Box::pin(self.drop_id(id, false)).await;
            self.settings.patience = patience;
            match dropped {
                Err(e) if of.is_some() || e.is_connection() => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

fn changing(old: &Entry) -> String {
    format!("change {}", shown(old))
}

/// Keeps other sessions from changing the former table or the new table, and checks that both are still the
/// tables that the caller read.
async fn lock(t: &Transaction<'_>, old: &Entry, beside: &Entry) -> Result<()> {
    let fail = |e| Error::server(changing(old), e);
    // A writer locks the source first and this table afterwards. So this transaction removes the triggers of
    // the sources first.
    immediate::remove(t, old.id).await?;
    let (there, built) = (shown(old), shown(beside));
    let locks = format!(
        "SET LOCAL pgtrickle.refreshing = 'on'; LOCK TABLE {there} IN SHARE UPDATE EXCLUSIVE MODE; \
         LOCK TABLE {built} IN ACCESS EXCLUSIVE MODE"
    );
    t.batch_execute(&locks).await.map_err(fail)?;
    t.query(HELD, &[&oids(beside.dependencies.iter().map(|d| d.relation.id))]).await.map_err(fail)?;
    let ready: [&dyn Bind; 5] = [&beside.id, &there, &old.relation.id.0, &built, &beside.relation.id.0];
    match t.query_opt(READY, &ready).await.map_err(fail)? {
        Some(_) => Ok(()),
        None => Err(Error::stale(format!("what was built for {there} is out of date"))),
    }
}

/// Gives the stream table, in the catalog, the frontier, the states and the history of the new table.
async fn adopt(t: &Transaction<'_>, old: &Entry, beside: &Entry, design: &Design) -> Result<()> {
    let fail = |e| Error::server(changing(old), e);
    renote(t, old.id, design).await?;
    require_one(t.execute(ADOPT[0], &[&old.id, &beside.id]).await.map_err(fail)?, old)?;
    t.execute(ADOPT[1], &[&old.id, &beside.id]).await.map_err(fail)?;
    if design.requested == RefreshMode::Immediate {
        // The triggers of an IMMEDIATE stream table are made by a full refresh, whose locks keep other
        // sessions from writing the sources. So the stream table needs a full refresh.
        let text =
            "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, frontier = NULL WHERE pgt_id = $1";
        t.execute(text, &[&old.id]).await.map_err(fail)?;
    }
    rename_states(t, old, beside, &changing(old)).await
}

/// Returns the name of the new table. This table is in the hidden schema, where no name of a user's can
/// conflict.
fn beside(old: &Entry) -> Name {
    let name = Ident::new(format!("new_{}_{}", old.id, old.relation.name)).with_suffix("");
    Name { schema: Some(HIDDEN.to_owned()), name: name.as_str().to_owned() }
}

/// Turns an error that names the new table into an error that names the stream table.
fn about(e: Error, beside: &Name, old: &Entry) -> Error {
    let name = Qualified::new(HIDDEN, &beside.name).to_string();
    let message =
        e.message().replace(&format!("cannot refresh {name}"), &format!("cannot change {}", shown(old)));
    let message = message.replace(&name, &shown(old));
    e.saying(message)
}

/// Makes the rows of a stream table equal to the rows of the new table. The caller has given both tables the
/// same columns. Writes only the difference where the engine can compare rows, and all rows otherwise.
async fn write(t: &Transaction<'_>, old: &Entry, beside: &Entry, design: &Design) -> Result<Written> {
    let fail = |e| Error::server(changing(old), e);
    let built = Qualified::new(&beside.relation.schema, &beside.relation.name);
    if let Some(table) = &design.table {
        let row = t.query_one(&print(&table.adopt(&built)?).text, &[]).await.map_err(fail)?;
        return Ok(Written { inserted: row.get(0), updated: row.get(1), deleted: row.get(2) });
    }
    let columns: Vec<String> = design.columns().iter().map(|c| Ident::new(&c.name).to_string()).collect();
    let list = if columns.is_empty() { String::new() } else { format!(" ({})", columns.join(", ")) };
    let (table, rows) = (design.name(), columns.join(", "));
    let deleted = t.execute(&format!("DELETE FROM {table}"), &[]).await.map_err(fail)?;
    let inserted = t.execute(&format!("INSERT INTO {table}{list} SELECT {rows} FROM {built}"), &[]).await;
    let rows = |n| i64::try_from(n).unwrap_or(i64::MAX);
    Ok(Written { inserted: rows(inserted.map_err(fail)?), updated: 0, deleted: rows(deleted) })
}

/// Whether the new table and a design were planned for the same query over the same sources. No source may
/// have been altered between the two plans.
fn alike(beside: &Entry, design: &Design) -> bool {
    let built: BTreeSet<(u32, &str)> =
        beside.dependencies.iter().map(|d| (d.relation.id.0, &*d.fingerprint)).collect();
    let planned = design.resolved.dependencies.iter().map(|d| (d.oid, &*d.fingerprint)).collect();
    built == planned && beside.query == design.resolved.canonical
}

/// Renames the states of the new table as states of the stream table.
async fn rename_states(t: &Transaction<'_>, old: &Entry, beside: &Entry, doing: &str) -> Result<()> {
    let fail = |e| Error::server(doing, e);
    let (from, to) = (format!("state_{}_", beside.id), format!("state_{}_", old.id));
    let rows = t.query(RENAMES, &[&from, &to]).await.map_err(fail)?;
    let texts: Vec<String> = rows.iter().map(|r| r.get(0)).collect();
    t.as_catalog_owner(&texts.join(";\n")).await.map_err(fail)
}

/// Returns an error where the catalog did not let this role write the row of a stream table.
fn require_one(rows: u64, e: &Entry) -> Result<()> {
    if rows == 1 {
        return Ok(());
    }
    Err(Error::input(format!("{} is not this role's in the catalog any more", shown(e))))
}

/// Gives the new table the name of the former table and its row in the catalog, and drops the former table.
/// The catalog is written first, since row security lets no role write the catalog row of a table that was
/// dropped.
async fn take_place(t: &Transaction<'_>, old: &Entry, beside: &Entry) -> Result<()> {
    let doing = format!("change {}", shown(old));
    let fail = |e| Error::server(&doing, e);
    forget(t, beside).await?;
    let (former, table) = (old.relation.id.0, beside.relation.id.0);
    let text = "UPDATE pgtrickle.pgt_stream_tables SET pgt_relid = $2 WHERE pgt_id = $1";
    require_one(t.execute(text, &[&old.id, &table]).await.map_err(fail)?, old)?;
    // No definition has an empty fingerprint, so every reader of the former table is planned again.
    let text = "UPDATE pgtrickle.pgt_dependencies SET source_relid = $2, schema_fingerprint = '', relied = NULL, keeps_plan = false, column_names = NULL, named_columns = NULL, parts = NULL, stayed = NULL \
         WHERE source_relid = $1";
    t.execute(text, &[&former, &table]).await.map_err(fail)?;
    capture::remove(t, former).await?;
    let gone = t.batch_execute(&format!("DROP TABLE {}", shown(old))).await;
    gone.map_err(|e| evolve::kept(Error::server(&doing, e)))?;
    let moved = format!("ALTER TABLE {} SET SCHEMA {}", shown(beside), Ident::new(&old.relation.schema));
    t.batch_execute(&moved).await.map_err(fail)?;
    let (from, to) = (Ident::new(&beside.relation.name), Ident::new(&old.relation.name));
    t.batch_execute(&rename_table(&old.relation.schema, &from, &to)).await.map_err(fail)?;
    let name = Qualified::new(&old.relation.schema, &old.relation.name);
    guard(t, old.id, &name, &doing).await?;
    t.batch_execute(&comment(old.id, &name)).await.map_err(fail)
}
