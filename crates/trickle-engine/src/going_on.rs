//! Whether the stored rows of a stream table are those that another plan goes on from. That is decided here,
//! and for new partitions without rows in [`crate::capture::adopt`]. Any other plan is noted by
//! [`Trickle::redo`], or with a table that was built beside ([`crate::alter`]): these forget how far the
//! rows are and have them computed anew, by a full refresh that does not depend on them.

use crate::alter::evolve::has_columns;
use crate::capture;
use crate::catalog::PlannedWith;
use crate::create::{Design, NewStreamTable};
use crate::db::{Bind, Connection};
use crate::error::{Error, Result};
use crate::immediate;
use crate::locks::patiently;
use crate::registry::{Dependency, Entry, StoredSetting, is_held, shown};
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use trickle_core::catalog::{TableId, TableKind};
use trickle_core::refresh::Setting;
use trickle_core::sql::Qualified;
use trickle_core::sql::ast::Statement;
use trickle_core::vocabulary::{Activity, Mode};

/// From which properties of its sources the plans of a stream table are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plans {
    /// Those that they have.
    Own,
    /// No more of them than a former plan knew.
    Former,
}

/// Whether a source `$2` of `$1` was altered in nothing that matters: it has got columns; or the plans whose
/// results are stored are the same (`$4`), and so is each property that is relied on. `$3` is the
/// fingerprint with which they are made now, `$5` whether they know no more of the source than the former
/// plans.
const SERVES: &str = "schema_fingerprint = $3 OR pgtrickle.fingerprint(source_relid) = $3 \
     AND (pgtrickle.has_grown(source_relid, schema_fingerprint) OR $4::bool AND source_type IN ('TABLE', 'STREAM_TABLE') \
     AND pgtrickle.still_serves(source_relid, pgtrickle.numbers(source_relid, columns_used), relied, \
         CASE WHEN $5::bool THEN 'FORMER PLAN' ELSE 'PLAN' END) IS TRUE)";

/// Notes that the plans of such a stream table go on.
const SERVED: &str = "UPDATE pgtrickle.pgt_dependencies SET schema_fingerprint = $3, keeps_plan = keeps_plan OR $4::bool, \
     relied = pgtrickle.relied_now(source_relid, columns_used, CASE WHEN keeps_plan OR $4::bool THEN relied END) \
     WHERE pgt_id = $1 AND source_relid = $2 AND schema_fingerprint <> $3";

/// Buffers of these tables whose triggers were made for a table as it is no more.
const OUTDATED: &str = "SELECT FROM pgtrickle.pgt_buffers WHERE source_relid = ANY ($1) AND capture = 'ON' \
     AND schema_fingerprint IS DISTINCT FROM pgtrickle.fingerprint(source_relid) LIMIT 1";

/// Whether the results of the same plans are stored.
const SAME_PLANS: &str =
    "SELECT stored_hash IS NOT DISTINCT FROM $2 FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1";

/// Whether a table `$1` refuses other writers, and has its primary key, where `$2`, and these indexes.
const AS_MADE: &str = "
SELECT EXISTS (SELECT FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid WHERE g.tgrelid = $1 AND g.tgname = 'trickle_guard'
        AND g.tgenabled <> 'D' AND p.pronamespace = to_regnamespace('pgtrickle') AND p.proname = 'refuse_writes')
    AND (NOT $2 OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = $1 AND i.indisprimary AND i.indisvalid))
    AND NOT EXISTS (SELECT FROM unnest($3::text[]) wanted(name) WHERE NOT EXISTS (SELECT FROM pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1 AND c.relname = wanted.name AND i.indisvalid))";

impl<C: Connection> Trickle<C> {
    /// Goes on from what is stored, by the plans that are made now or by ones that know no more than the
    /// former. Whether it does.
    pub(crate) async fn goes_on(&mut self, e: &Entry, new: &NewStreamTable, design: &Design) -> Result<bool> {
        Ok(self.goes_on_by(e, design, Plans::Own).await? || self.goes_on_by_former(e, new, design).await?)
    }

    /// Goes on as [`Trickle::goes_on_by`] does, by a plan that does not know of the keys, and the columns
    /// that are never NULL, which its altered sources have got.
    async fn goes_on_by_former(&mut self, e: &Entry, new: &NewStreamTable, design: &Design) -> Result<bool> {
        // The try by its own plans may have noted something of a source.
        let registry = self.linked(&[e.relation.id]).await?;
        let Some(e) = registry.get(e.id) else { return Ok(false) };
        let now = |d: &Dependency| design.resolved.dependencies.iter().find(|n| n.oid == d.relation.id.0);
        let altered =
            |d: &&Dependency| d.keeps_plan || now(d).is_some_and(|n| n.fingerprint != d.fingerprint);
        let altered = e.dependencies.iter().filter(altered);
        let former: BTreeMap<TableId, PlannedWith> =
            altered.filter_map(|d| Some((d.relation.id, d.relied.clone()?))).collect();
        if former.is_empty() || e.mode == Mode::Full {
            return Ok(false);
        }
        match self.design_with(e.relation.clone(), e.id, new, former).await {
            Ok(design) => self.goes_on_by(e, &design, Plans::Former).await,
            Err(error) if error.is_input() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Goes on from what is stored, where nothing changed of its sources that the query relies on: what it
    /// reads is in its rows up to its frontier, and in the buffers since, or its writers keep it. Whether it
    /// does.
    async fn goes_on_by(&mut self, e: &Entry, design: &Design, plans: Plans) -> Result<bool> {
        if !is_alike(e, design) || !has_columns(self.db(), e, &design.columns()).await? {
            return Ok(false);
        }
        if let Some(table) = design.table.as_ref().filter(|_| e.is_immediate())
            && !immediate::is_kept_by(self.db(), e, table).await?
        {
            return Ok(false);
        }
        let tables =
            e.dependencies.iter().filter(|d| matches!(d.kind, TableKind::Table | TableKind::StreamTable));
        let (tables, names): (Vec<u32>, Vec<String>) = tables
            .map(|d| (d.relation.id.0, Qualified::new(&d.relation.schema, &d.relation.name).to_string()))
            .unzip();
        if tables.is_empty() {
            return Ok(false);
        }
        let lock = format!("LOCK TABLE {} IN ACCESS SHARE MODE", names.join(", "));
        let (patience, progress) = (self.settings.patience, self.progress.clone());
        let went_on = patiently(&mut self.connection, patience, &tables, &*progress, async |t| {
            let fail = |err| Error::server(format!("follow what {} reads", shown(e)), err);
            t.batch_execute(&lock).await.map_err(fail)?;
            // Written, whatever comes of it: a refresh over an older snapshot, to which a rewritten table
            // looks empty, must not finish.
            if !is_held(t, e).await? {
                return Err(Error::stale(format!("somebody else alters {}", shown(e))));
            }
            for table in &tables {
                capture::grow(t, TableId(*table)).await?;
            }
            // Triggers that were made for another table hold what they should not, whatever the plan relies
            // on.
            if !e.is_immediate() && t.query_opt(OUTDATED, &[&tables]).await.map_err(fail)?.is_some() {
                return Ok(false);
            }
            let same: bool =
                t.query_one(SAME_PLANS, &[&e.id, &design.stored_hash()?]).await.map_err(fail)?.get(0);
            let former = plans == Plans::Former;
            let serves = format!(
                "SELECT {SERVES} FROM pgtrickle.pgt_dependencies WHERE pgt_id = $1 AND source_relid = $2"
            );
            for d in &design.resolved.dependencies {
                let given: [&dyn Bind; 5] = [&e.id, &d.oid, &d.fingerprint, &same, &former];
                let row = t.query_opt(&serves, &given).await.map_err(fail)?;
                if !row.is_some_and(|r| r.get(0)) {
                    return Ok(false);
                }
            }
            for d in &design.resolved.dependencies {
                t.execute(SERVED, &[&e.id, &d.oid, &d.fingerprint, &former]).await.map_err(fail)?;
            }
            let text = "SELECT FROM pgtrickle.unchanged(ARRAY[$1::int8])";
            Ok(t.query_opt(text, &[&e.id]).await.map_err(fail)?.is_some())
        })
        .await?;
        self.memory.compiled.remove(&e.id);
        Ok(went_on)
    }

    /// Whether a stream table is already what a design makes, from the same query, with rows that refreshes
    /// go on from.
    pub(crate) async fn has_design(&mut self, old: &Entry, design: &Design) -> Result<bool> {
        let setting = |s: &Setting| (s.name.clone(), s.values.clone());
        let stored = |s: &StoredSetting| (s.name.clone(), s.values.clone());
        let same = old.query == design.resolved.canonical
            && (old.mode, old.requested) == (design.mode(), design.requested)
            && old.layout_hash == design.layout_hash()
            && old.agreed.as_ref() == Some(&design.agreed)
            && old.settings.iter().map(setting).eq(design.settings.iter().map(stored));
        let kept = old.exists && old.is_populated && !old.needs_reinit && old.status == Activity::Active;
        Ok(same
            && kept
            && self.fits_now(old).await?
            && has_columns(self.db(), old, &design.columns()).await?
            && self.is_as_made(old, design).await?)
    }

    /// Whether the table of a stream table still has what it was made with beside its columns: whoever lost
    /// that has it made again by giving the query again.
    async fn is_as_made(&self, old: &Entry, design: &Design) -> Result<bool> {
        let mut named = Vec::new();
        let mut primary = false;
        for statement in design.identity() {
            match statement {
                Statement::AddPrimaryKey(_) => primary = true,
                Statement::CreateIndex(index) => named.push(index.name.as_str().to_owned()),
                other => {
                    let what = format!("{} has more than a key and indexes: {other:?}", shown(old));
                    return Err(Error::input(what).detail("Nobody can tell whether it still has that."));
                }
            }
        }
        let row = self.db().query_one(AS_MADE, &[&old.relation.id.0, &primary, &named]).await;
        Ok(row.map_err(|e| Error::server(format!("look at {}", shown(old)), e))?.get(0))
    }
}

/// Whether a stream table that is kept by deltas, by refreshes or by its writers, was planned as this design
/// is, from the same columns of the same sources. A query that names the type of a source's rows shows
/// whatever columns that source gets.
fn is_alike(e: &Entry, design: &Design) -> bool {
    let read: BTreeMap<u32, BTreeSet<&str>> = e
        .dependencies
        .iter()
        .map(|d| (d.relation.id.0, d.columns.iter().map(String::as_str).collect()))
        .collect();
    let planned = design.read_columns();
    (e.mode == Mode::Differential || e.is_immediate())
        && design.mode() == e.mode
        && !e.needs_reinit
        && e.query == design.resolved.canonical
        && e.layout_hash == design.layout_hash()
        && read == planned
        && design.resolved.dependencies.iter().all(|d| !d.is_named_as_type)
}
