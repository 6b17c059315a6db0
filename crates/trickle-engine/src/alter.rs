//! Alters stream tables: their query, schedule and mode. Suspends and resumes stream tables, and switches
//! the capture of sources off and on.

pub(crate) mod evolve;
mod swap;

use crate::capture;
use crate::db::{Bind, Json, RefreshDriver, Transaction};
use crate::design::{Created, Design, NewStreamTable, consistency};
use crate::drop::release_sources;
use crate::error::{Error, Result};
use crate::immediate;
use crate::locks::{oids, patiently};
use crate::names::Name;
use crate::registry::{Entry, hold_and_compare, require_own, shown};
use crate::security::why_planned;
use crate::settings::RefreshOptions;
use crate::trickle::Trickle;
use evolve::evolve;
pub(crate) use swap::{Replacement, Written};
use trickle_core::catalog::TableId;
use trickle_core::refresh::Relation;
use trickle_core::schedule::Schedule;
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::{Mode, RefreshMode};

/// The properties of a stream table to change. A property that is `None` stays unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alteration {
    /// The new defining query.
    pub query: Option<String>,
    /// The new schedule; `Some(None)` means that only refreshes by hand are made.
    pub schedule: Option<Option<String>>,
    /// The new mode.
    pub mode: Option<RefreshMode>,
    /// Whether the stream table is refreshed in a transaction of its own, after the stream tables that it
    /// reads, instead of linked with them.
    pub apart: Option<bool>,
    /// `true` suspends the stream table, `false` resumes it.
    pub suspended: Option<bool>,
}

/// The effect of dropping a column on the stream tables that read the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// The readers keep their queries. Dropping the column is an error, which names one of them.
    Stay,
    /// The readers get queries without the column.
    Change,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Changes a stream table. The result of a new query replaces the stored rows. Indexes, grants, comments
    /// and dependent views of the table stay.
    ///
    /// # Errors
    /// There is no stream table of that name; the query, schedule or mode is wrong. After an error the
    /// stream table is unchanged.
    pub async fn alter(&mut self, name: &Name, wanted: &Alteration) -> Result<Created> {
        let e = self.find(name).await?;
        require_own(&e, self.voice())?;
        if let Some(Some(schedule)) = &wanted.schedule {
            Schedule::parse(schedule)?;
        }
        let mut done = Created { id: e.id, name: shown(&e), made: false, mode: e.mode, reasons: Vec::new() };
        if wanted.query.is_some() || wanted.mode.is_some() {
            let mut new = match &wanted.query {
                None => self.as_now(&e, name.clone()).await?,
                Some(query) => NewStreamTable {
                    query: query.clone(),
                    settings: None,
                    agreed: None,
                    ..e.as_new(name.clone())
                },
            };
            new.mode = wanted.mode.or(new.mode);
            new.apart = wanted.apart.or(new.apart);
            done = self.replace(e.relation.clone(), e.id, &new, Replacement::Same(Readers::Stay)).await?;
        }
        if wanted.suspended == Some(true) && e.is_immediate() {
            self.stop_immediate(&e, "it was suspended").await?;
        }
        let (set, schedule) = (wanted.schedule.is_some(), wanted.schedule.clone().flatten());
        let text = "UPDATE pgtrickle.pgt_stream_tables SET schedule = CASE WHEN $2::bool THEN $3::text ELSE schedule END, \
             status = CASE WHEN $4::bool IS NULL THEN status WHEN $4 THEN 'SUSPENDED' WHEN is_populated THEN 'ACTIVE' ELSE 'INITIALIZING' END, \
             consecutive_errors = CASE WHEN $4::bool IS NULL THEN consecutive_errors ELSE 0 END, \
             diamond_consistency = coalesce($5, diamond_consistency), updated_at = now() \
             WHERE pgt_id = $1";
        let done_with = self
            .db()
            .execute(text, &[&e.id, &set, &schedule, &wanted.suspended, &wanted.apart.map(consistency)])
            .await;
        done_with.map_err(|err| Error::server(format!("alter {}", shown(&e)), err))?;
        if wanted.suspended == Some(false) && e.is_immediate() && e.is_populated {
            // The triggers of an IMMEDIATE stream table apply changes again only after a refresh has
            // computed its rows.
            self.refresh(std::slice::from_ref(name), &RefreshOptions::default()).await?;
        }
        Ok(done)
    }

    /// Gives a stream table a new query. The new result is built beside the former one and takes its place.
    /// In a caller's transaction, the table is filled in place, since other sessions see all effects of that
    /// transaction at once.
    ///
    /// # Errors
    /// The errors of the query; an error where an object depends on a column that would be dropped. After an
    /// error the stream table is unchanged.
    pub(crate) async fn replace(
        &mut self,
        relation: Relation,
        id: i64,
        new: &NewStreamTable,
        replacement: Replacement,
    ) -> Result<Created> {
        let registry = self.linked(&[relation.id]).await?;
        let old = registry.get(id).cloned().ok_or_else(|| Error::input(format!("{} is gone", new.name)))?;
        require_own(&old, self.voice())?;
        let follows = new.snapshots || old.reads_copies();
        if follows {
            self.ensure_copies(&new.query).await?;
        }
        let mut design = self.design_fitting(relation, id, new).await?;
        if !follows && self.has_design(&old, &design).await? {
            return self.keep_rows(&old, &design).await;
        }
        immediate::require_writers(&registry, &old, &design)?;
        self.tell_left_out(&design).await?;
        self.require_takes(&old, &design.columns(), replacement).await?;
        let in_place = !new.initialize || self.connection.callers().is_some();
        match replacement {
            Replacement::Same(readers) if in_place => {
                self.redo(&old, &design, readers).await?;
                if new.initialize {
                    self.fill(id).await?;
                }
            }
            Replacement::Same(_) | Replacement::Another => {
                (design, _) = self.swap(&old, new, replacement, follows).await?;
                if design.requested == RefreshMode::Immediate {
                    self.fill(id).await.map_err(|e| {
                        e.detail("It has its new query; its next refresh computes it, and from then on its writers keep it.")
                    })?;
                }
            }
        }
        if follows {
            self.sweep_copies().await?;
        }
        Ok(Created { id, name: shown(&old), made: true, mode: design.mode(), reasons: design.reasons })
    }

    /// Stores the schedule, the linking and the typed query of a design. The rows of the design must be the
    /// rows that are stored already. No row is recomputed.
    async fn keep_rows(&mut self, old: &Entry, design: &Design) -> Result<Created> {
        let fail = |e| Error::server(format!("change {}", shown(old)), e);
        let t = self.db_mut().transaction().await.map_err(fail)?;
        if !hold_and_compare(&t, old).await? {
            return Err(Error::stale(format!("somebody else alters {}", shown(old))));
        }
        let text = "UPDATE pgtrickle.pgt_stream_tables SET schedule = $2, diamond_consistency = $3, \
             original_query = CASE WHEN $4 = defining_query THEN original_query ELSE $4 END WHERE pgt_id = $1";
        let noted: [&dyn Bind; 4] = [&old.id, &design.schedule, &design.consistency(), &design.query];
        t.execute(text, &noted).await.map_err(fail)?;
        t.commit().await.map_err(fail)?;
        let (id, reasons) = (old.id, design.reasons.clone());
        Ok(Created { id, name: shown(old), made: false, mode: design.mode(), reasons })
    }

    /// Changes the stored tables so that they fit a design, and marks the stream table for a full refresh.
    /// The rows of the stream table stay until the full refresh.
    pub(crate) async fn redo(&mut self, old: &Entry, design: &Design, readers: Readers) -> Result<()> {
        let captured = design.captured.iter().map(|(t, _)| t.id);
        let read = old.dependencies.iter().map(|d| d.relation.id);
        let tables = oids(captured.chain(read).chain([old.relation.id]));
        let (patience, capture, progress) =
            (self.settings.patience, self.settings.capture, self.progress.clone());
        patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            immediate::remove(t, old.id).await?;
            evolve(t, old, design, readers).await?;
            let doing = format!("change {}", shown(old));
            capture::run_as_catalog_owner(t, &design.state_tables(), &doing).await?;
            renote(t, old.id, design).await?;
            for (table, columns) in design.buffered() {
                capture::ensure(t, table, columns, capture).await?;
            }
            release_sources(t, std::slice::from_ref(old)).await
        })
        .await?;
        self.cache.compiled.remove(&old.id);
        Ok(())
    }

    /// Stops capturing the changes of a table at once, for a user whose work is disturbed by capture. Full
    /// refreshes bring its readers up to date until [`Trickle::enable`] is called. Creating, altering or
    /// planning stream tables does not switch the capture on.
    ///
    /// # Errors
    /// No stream table reads the table; errors of the server.
    pub async fn disable(&mut self, source: &Name) -> Result<String> {
        let (oid, shown) = self.source(source).await?;
        let released = self.release_writers(oid).await?;
        let (patience, progress) = (self.settings.patience, self.progress.clone());
        patiently(&mut self.connection, patience, &[oid], &*progress, async |t| {
            capture::hold_off(t, oid, released).await
        })
        .await
        .map_err(|e| {
            let message = format!("the capture of {shown} cannot be switched off: {}", e.message());
            e.saying(message)
        })?;
        Ok(shown)
    }

    /// Captures the changes of a table again, and has its readers recomputed once. Does nothing where the
    /// changes of the table are captured already.
    ///
    /// # Errors
    /// No stream table reads the table; no reader of the table can be planned any more; errors of the
    /// server.
    pub async fn enable(&mut self, source: &Name) -> Result<String> {
        let (oid, shown) = self.source(source).await?;
        // After this statement, planning any reader again switches capture on, even if the code below fails
        // to switch it on.
        let unhold =
            "UPDATE pgtrickle.pgt_buffers SET capture = 'OFF' WHERE source_relid = $1 AND capture = 'HELD'";
        let fail = |e| Error::server("switch capture on", e);
        self.db().execute(unhold, &[&oid]).await.map_err(fail)?;
        if self.is_captured(oid).await? {
            return Ok(shown);
        }
        let registry = self.registry().await?;
        let reads = |e: &&Entry| e.dependencies.iter().any(|d| d.relation.id.0 == oid);
        if registry.entries().find(reads).is_none() {
            let (patience, progress) = (self.settings.patience, self.progress.clone());
            patiently(&mut self.connection, patience, &[oid], &*progress, async |t| {
                capture::release(t, oid).await
            })
            .await?;
            return Ok(shown);
        }
        let mut why = None;
        for e in registry.entries().filter(reads).filter(|e| e.own) {
            match self.replan(e).await {
                Err(error) if error.is_final() => {
                    why.get_or_insert((crate::registry::shown(e), error));
                }
                other => other?,
            }
        }
        // Triggers of an IMMEDIATE stream table apply changes again only after a refresh has computed its
        // rows.
        let kept = registry.entries().filter(reads).filter(|e| e.own && e.mode == Mode::Immediate);
        let kept: Vec<TableId> = kept.map(|e| e.relation.id).collect();
        if why.is_none() && !kept.is_empty() {
            self.refresh_linked(&kept, &RefreshOptions::default()).await?;
        }
        match why {
            Some((reader, error)) if !self.is_captured(oid).await? => {
                Err(Error::input(format!("no stream table can read {shown}: {}", error.message()))
                    .detail(format!("{reader} does not fit it any more, so nothing is to be captured."))
                    .hint(format!(
                        "Give it another query with {}, or drop it: {}",
                        self.voice().alter_query(&reader),
                        self.voice().drop(&reader)
                    )))
            }
            _ => Ok(shown),
        }
    }

    async fn is_captured(&self, source: u32) -> Result<bool> {
        let on =
            "SELECT EXISTS (SELECT FROM pgtrickle.pgt_buffers WHERE source_relid = $1 AND capture = 'ON')";
        let row = self.db().query_one(on, &[&source]).await;
        Ok(row.map_err(|e| Error::server("look whether changes are captured", e))?.get(0))
    }

    /// Finds a table that a stream table reads, or a table whose capture the user holds off. Returns the oid
    /// of the table, and its name for messages.
    pub(crate) async fn source(&self, name: &Name) -> Result<(u32, String)> {
        let text = "SELECT c.oid, n.nspname, c.relname FROM pgtrickle.pgt_buffers b JOIN pg_class c ON c.oid = b.source_relid \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE b.capture = 'HELD' ORDER BY 1";
        let held = self.db().query(text, &[]).await;
        let held = held.map_err(|e| Error::server("read how changes are captured", e))?;
        let held = held.iter().map(|r| Relation {
            id: TableId(r.get(0)),
            schema: r.get::<&str>(1).into(),
            name: r.get::<&str>(2).into(),
        });
        let registry = self.registry().await?;
        let read = registry.entries().flat_map(|e| &e.dependencies).map(|d| d.relation.clone());
        let all: Vec<Relation> = read.chain(held).collect();
        let path = name.schema.as_ref().map_or(&*self.search_path, std::slice::from_ref);
        let found = path.iter().find_map(|s| all.iter().find(|r| *r.schema == **s && *r.name == *name.name));
        let r = found.ok_or_else(|| {
            Error::input(format!("no stream table reads {name}")).hint(self.voice().one(
                "trickle status --json lists the sources of each stream table.",
                "TABLE pgtrickle.pgt_dependencies lists the sources of each stream table.",
            ))
        })?;
        Ok((r.id.0, Qualified::new(&r.schema, &r.name).to_string()))
    }
}

/// Replaces the stored design of a stream table, and its dependencies, by the new design. A stream table that
/// the user suspended stays suspended. A stream table that was suspended because of failures, as its error
/// count shows, is put back on schedule.
async fn renote(t: &Transaction<'_>, id: i64, design: &Design) -> Result<()> {
    let fail = |e| Error::server("note the stream table", e);
    let why = why_planned(&**t, id).await?;
    t.execute("DELETE FROM pgtrickle.pgt_dependencies WHERE pgt_id = $1", &[&id]).await.map_err(fail)?;
    t.execute(
        // If a caller gives the stored canonical text, the query is the same, so the typed text stays.
        "UPDATE pgtrickle.pgt_stream_tables SET defining_query = $2, \
         original_query = CASE WHEN $3 = defining_query THEN original_query ELSE $3 END, schedule = $4, \
         refresh_mode = $5, requested_mode = $6, mode_reason = $7, settings = $8, layout_hash = $9, functions = $10, \
         functions_fingerprint = $11, reads_clock = $12, diamond_consistency = $13, agreed = $15, \
         agreed_by = quote_ident(current_user::text)::regrole, types = $16, types_fingerprint = $17, agreed_tables = $18, \
         frontier = NULL, needs_reinit = true, reinit_reason = coalesce(reinit_reason, $14), consecutive_errors = 0, \
         last_error_message = NULL, status = CASE WHEN status = 'SUSPENDED' AND consecutive_errors = 0 THEN status WHEN is_populated THEN 'ACTIVE' ELSE 'INITIALIZING' END, \
         cost_model = NULL, stored_hash = $19, objects = $20, objects_fingerprint = $21, updated_at = now() WHERE pgt_id = $1",
        &[
            &id,
            &design.resolved.canonical,
            &design.query,
            &design.schedule,
            &design.mode().name(),
            &design.requested.name(),
            &design.mode_reason(),
            &Json(&design.settings),
            &design.layout_hash(),
            &design.resolved.functions,
            &design.resolved.functions_fingerprint,
            &design.reads_clock(),
            &design.consistency(),
            &why,
            &design.agreed.functions,
            &design.resolved.code.types,
            &design.resolved.code.types_fingerprint,
            &design.agreed.tables,
            &design.stored_hash()?,
            &design.resolved.code.objects,
            &design.resolved.code.objects_fingerprint,
        ],
    )
    .await
    .map_err(fail)?;
    design.note_dependencies(t, id).await
}
