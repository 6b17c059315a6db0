//! Plans stream tables again where the relations and functions that they read were altered.

use crate::alter::{Readers, Replacement, Written, evolve};
use crate::capture;
use crate::catalog::PgCatalog;
use crate::db::RefreshDriver;
use crate::design::{Design, NewStreamTable};
use crate::error::{Error, Result};
use crate::give_way::given_way;
use crate::immediate;
use crate::locks::patiently;
use crate::names::Name;
use crate::registry::{Entry, Registry, require_own, shown};
use crate::security::why_planned;
use crate::trickle::Trickle;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trickle_core::catalog::TableId;
use trickle_core::refresh::{Relation, record_failure};
use trickle_core::vocabulary::{Activity, Capture, Initiator, Mode};

/// The stream tables after adapting: the plan of each fits its sources.
pub(crate) struct Adapted {
    /// The wanted stream tables and those that are linked with them, as the catalog lists them after
    /// adapting.
    pub(crate) registry: Registry,
    /// The stream tables whose new results were built beside the former ones, by `pgt_id`.
    pub(crate) rebuilt: BTreeMap<i64, Rebuilt>,
}

/// A stream table that was planned again.
struct Replanned {
    /// The stream table, with its sources under their current names.
    e: Entry,
    new: NewStreamTable,
    design: Result<Design>,
    /// Whether a relation that the stream table reads was renamed after the stream table was planned.
    is_renamed: bool,
}

/// A new result that was built beside the former one: the reason, the numbers of rows that were written, and
/// the duration.
pub(crate) struct Rebuilt {
    pub(crate) why: String,
    pub(crate) written: Written,
    pub(crate) took: Duration,
}

/// The greatest number of attempts to plan a stream table while other sessions rename its sources.
const ATTEMPTS: usize = 5;

impl<C: RefreshDriver> Trickle<C> {
    /// Plans stream tables again in two cases, together with the stream tables that they read.
    ///
    /// The first case is that a table, view or function differs from the one that the plan was made for. The
    /// second case is that another version of trickle made the plan. A stream table whose query PostgreSQL
    /// refuses after an alteration is suspended, and the reason is stored. Capture of a source is switched
    /// off where its triggers would fail.
    ///
    /// # Errors
    /// The error of the first stream table that had to be suspended; errors of the server.
    pub(crate) async fn adapt(&mut self, wanted: &[TableId], initiated_by: Initiator) -> Result<Adapted> {
        // A plan did not fit the remembered catalog, so that catalog may be out of date.
        self.cache.recent.clear();
        let registry = self.linked(wanted).await?;
        let read: Vec<Entry> = registry.with_upstream(wanted.iter().copied())?.into_iter().cloned().collect();
        let (mut adapted, mut rebuilt) = (false, BTreeMap::new());
        for e in read {
            if !self.fits(&e).await {
                rebuilt.extend(self.adapt_one(&e, initiated_by).await?.map(|r| (e.id, r)));
                adapted = true;
            }
        }
        let registry = if adapted { self.linked(wanted).await? } else { registry };
        Ok(Adapted { registry, rebuilt })
    }

    /// Whether the plan of a stream table still fits, so that the stream table need not be planned again.
    pub(crate) async fn fits(&mut self, e: &Entry) -> bool {
        e.unchanged && !self.runnable(e).await.is_err_and(|err| err.is_stale())
    }

    /// Whether the plan of a stream table still fits, according to the catalog, which is read again.
    pub(crate) async fn fits_now(&mut self, e: &Entry) -> Result<bool> {
        let registry = self.linked(&[e.relation.id]).await?;
        match registry.get(e.id) {
            Some(now) => Ok(self.fits(now).await),
            None => Ok(false),
        }
    }

    /// Designs a query. The stream tables that the query reads must have plans that fit their own sources.
    /// Stream tables whose plans do not fit are planned again first, since a new plan may give them other
    /// columns.
    ///
    /// # Errors
    /// The errors of [`Trickle::design`]; an error of a stream table that cannot be planned any more.
    pub(crate) async fn design_fitting(
        &mut self,
        relation: Relation,
        id: i64,
        new: &NewStreamTable,
    ) -> Result<Design> {
        let design = self.design(relation.clone(), id, new).await?;
        let read = design.resolved.dependencies.iter().filter(|d| d.is_stream_table);
        let read: Vec<TableId> = read.map(|d| TableId(d.oid)).collect();
        let registry = self.linked(&read).await?;
        let upstream: Vec<Entry> =
            registry.with_upstream(read.iter().copied())?.into_iter().cloned().collect();
        for e in &upstream {
            if e.own && !self.fits(e).await {
                self.adapt(&read, Initiator::Manual).await?;
                return self.design(relation, id, new).await;
            }
        }
        Ok(design)
    }

    async fn adapt_one(&mut self, e: &Entry, initiated_by: Initiator) -> Result<Option<Rebuilt>> {
        require_own(e, self.voice())?;
        let name = shown(e);
        self.follow_parts(e).await?;
        let Replanned { e, new, design, is_renamed } = self.designed_anew(e).await?;
        let e = &e;
        // While somebody alters a relation below a view, no query can tell whether the view stays the same.
        // Planning has waited for the end of that alteration. So the former plan may fit after all, unless a
        // source was renamed.
        if !is_renamed && design.is_ok() && self.fits_now(e).await? {
            return Ok(None);
        }
        if let Ok(design) = &design
            && self.goes_on(e, &new, design).await?
        {
            self.progress.say(&format!(
                "{name}: the alteration of its sources does not matter to it, and it goes on from its rows"
            ));
            return Ok(None);
        }
        self.progress.say(&format!("{name}: something that it reads has changed; planning it anew"));
        let planned = match design {
            Err(error) if error.sqlstate() == Some("57014") => Err(error),
            Ok(design) if self.is_built_beside(e, &design).await? => {
                return self.rebuild(e, &new, initiated_by).await.map(Some);
            }
            Ok(design) => self.redo(e, &design, Readers::Stay).await,
            Err(error) => Err(error),
        };
        match planned {
            Err(error) if let Some(session) = self.gave_way(&error) => {
                Err(given_way(&shown(e), &format!("gave way to {session}")))
            }
            Err(error) if error.is_final() => {
                self.suspend(e, &error, initiated_by).await?;
                let why = format!("{name} cannot be kept any more: {}", error.message());
                Err(error.saying(why).anywhere().hint(format!(
                    "Its contents are as of its last refresh. Give it a query that fits: {}",
                    self.voice().alter_query(&name)
                )))
            }
            other => other.map(|()| None),
        }
    }

    /// Makes the triggers of partitioned sources again where only their partitions have changed. The stream
    /// table then recomputes no more than the part of its result that depends on these partitions.
    async fn follow_parts(&mut self, e: &Entry) -> Result<()> {
        let sources = e.dependencies.iter().filter(|d| d.partitioned && d.buffer.is_some());
        for source in sources.filter(|_| e.mode == Mode::Differential) {
            let name = &source.relation;
            let table =
                capture::table_by_oid(self.db(), &mut PgCatalog::new(), &name.schema, &name.name).await?;
            let Some(table) = table.filter(|t| t.id == name.id) else { continue };
            let (patience, progress) = (self.settings.patience, self.progress.clone());
            patiently(&mut self.connection, patience, &[name.id.0], &*progress, async |t| {
                capture::follow_parts(t, &table).await
            })
            .await?;
        }
        Ok(())
    }

    /// Returns a stream table, with its sources under their current names, and a new design of it. Planning
    /// waits for sessions that rename tables, and finds the new names only after those sessions commit. So
    /// the names are compared again after each attempt to plan.
    async fn designed_anew(&mut self, e: &Entry) -> Result<Replanned> {
        let mut is_renamed = false;
        for _ in 0..ATTEMPTS {
            let e = match self.follow_names(e).await {
                Ok(Some(e)) => {
                    is_renamed = true;
                    e
                }
                Ok(None) => e.clone(),
                Err(error) if error.is_stale() => continue,
                Err(error) => {
                    return Ok(Replanned {
                        new: e.as_new(own_name(e)),
                        e: e.clone(),
                        design: Err(error),
                        is_renamed,
                    });
                }
            };
            let new = e.as_new(own_name(&e));
            let design = self.design(e.relation.clone(), e.id, &new).await;
            if !self.is_renamed(&e).await? {
                return Ok(Replanned { e, new, design, is_renamed });
            }
        }
        Err(Error::stale(format!("what {} reads is renamed again and again", shown(e))))
    }

    /// Plans a stream table again from its own query, and changes its stored tables in place so that they
    /// fit the new plan.
    pub(crate) async fn replan(&mut self, e: &Entry) -> Result<()> {
        let design = {
            let now = self.as_now(e, own_name(e)).await?;
            self.design(e.relation.clone(), e.id, &now).await?
        };
        self.redo(e, &design, Readers::Stay).await
    }

    /// Whether the new result of a stream table must be built beside the former one. If the columns or the
    /// key were changed in place, queries of the table would see rows without values, or no rows, until the
    /// recompute. Within a caller's transaction, no other session sees the table before the recompute, so the
    /// table is changed in place.
    async fn is_built_beside(&mut self, e: &Entry, design: &Design) -> Result<bool> {
        if self.connection.callers().is_some() || !e.is_populated {
            return Ok(false);
        }
        let columns = design.columns();
        if e.layout_hash == design.layout_hash() && evolve::has_columns(self.db(), e, &columns).await? {
            return Ok(false);
        }
        // An object that depends on the table may forbid the exchange of its columns. In that case the table
        // is changed in place, and the error of the change names the object.
        Ok(self.require_takes(e, &columns, Replacement::Same(Readers::Stay)).await.is_ok())
    }

    /// Builds the result of a stream table, from its own query, beside the former result, and lets the new
    /// result take its place. An error that the query raises counts as one failed refresh, as an error in a
    /// refresh does.
    async fn rebuild(&mut self, e: &Entry, new: &NewStreamTable, initiated_by: Initiator) -> Result<Rebuilt> {
        let (began, why) = (Instant::now(), why_planned(self.db(), e.id).await?);
        match Box::pin(self.swap(e, new, Replacement::Same(Readers::Stay), e.reads_copies())).await {
            Ok((_, written)) => Ok(Rebuilt { why, written, took: began.elapsed() }),
            Err(error) => {
                if let Some(session) = self.gave_way(&error) {
                    return Err(given_way(&shown(e), &format!("gave way to {session}")));
                }
                if error.is_final() && !error.is_input() {
                    self.note_failure(e, error.message(), initiated_by).await?;
                }
                Err(error)
            }
        }
    }

    /// Suspends a stream table and counts this as one more failed refresh. Also switches off the capture of
    /// sources whose triggers would fail in the statements of writers. If this process dies after switching
    /// off and before suspending, the next process that adapts the stream table suspends it.
    async fn suspend(&mut self, e: &Entry, why: &Error, initiated_by: Initiator) -> Result<()> {
        let broken: Vec<u32> = self.broken_sources(e).await?;
        let (patience, progress) = (self.settings.patience, self.progress.clone());
        patiently(&mut self.connection, patience, &broken, &*progress, async |t| {
            let text = "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, reinit_reason = 'it was suspended', \
                 updated_at = now() WHERE pgt_id = $1";
            t.execute(text, &[&e.id]).await.map_err(|err| Error::server("suspend a stream table", err))?;
            immediate::remove(t, e.id).await?;
            for source in &broken {
                capture::switch_off(t, *source, Capture::Off).await?;
            }
            Ok(())
        })
        .await?;
        self.cache.unplannable = (e.status != Activity::Suspended).then_some(e.relation.id);
        // No other attempt can succeed, so one failure is enough to suspend the stream table.
        let failed = record_failure(e.id, &why.to_string(), initiated_by, 1);
        self.connection.step(&failed).await.map(|_| ())
    }

    /// Returns the sources of a stream table that were altered after their capture triggers were made.
    async fn broken_sources(&self, e: &Entry) -> Result<Vec<u32>> {
        let rows = self
            .db()
            .query(
                &format!(
                    "SELECT source_relid FROM pgtrickle.pgt_buffers WHERE source_relid IN ( \
                     SELECT source_relid FROM pgtrickle.pgt_dependencies WHERE pgt_id = $1) AND capture = 'ON' \
                     AND pgtrickle.fingerprint(source_relid) IS DISTINCT FROM schema_fingerprint AND NOT {}",
                    capture::GOES_ON
                ),
                &[&e.id],
            )
            .await
            .map_err(|err| Error::server("look for sources that changed", err))?;
        Ok(rows.iter().map(|r| r.get(0)).collect())
    }
}

fn own_name(e: &Entry) -> Name {
    Name { schema: Some(e.relation.schema.to_string()), name: e.relation.name.to_string() }
}
