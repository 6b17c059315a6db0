//! Decides whether refreshes by another plan may continue from the stored rows of a stream table. For
//! partitions that a command adds or takes, [`crate::capture`] makes the same decision. If refreshes may not
//! continue, [`Trickle::redo`] forgets the frontier of the stored rows, or [`crate::alter`] builds a new
//! table beside the former one. A full refresh, which does not depend on the stored rows, then recomputes all
//! rows.

use crate::alter::evolve::has_columns;
use crate::capture;
use crate::catalog::PlannedWith;
use crate::db::{Bind, RefreshDriver};
use crate::design::{Design, NewStreamTable};
use crate::error::{Error, Result};
use crate::immediate;
use crate::in_force::StoredSetting;
use crate::locks::patiently;
use crate::registry::{Dependency, Entry, hold_and_compare, shown};
use crate::trickle::Trickle;
use std::collections::{BTreeMap, BTreeSet};
use trickle_core::catalog::{TableId, TableKind};
use trickle_core::refresh::Setting;
use trickle_core::sql::Qualified;
use trickle_core::sql::ast::Statement;
use trickle_core::vocabulary::{Activity, Mode};

/// The properties of the sources that the new plans of a stream table may rely on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plans {
    /// All properties that the sources have.
    Own,
    /// Only the properties that a former plan relied on.
    Former,
}

/// Whether no change of source `$2` matters to stream table `$1`. In the first case, the source only got
/// columns. In the second case, the plans have the same stored results (`$4`), and each property that they
/// rely on is the same. `$3` is the fingerprint of the source that the new plans are made with. `$5` is
/// whether the new plans rely on no more properties of the source than the former plans did.
const SERVES: &str = "schema_fingerprint = $3 OR pgtrickle.fingerprint(source_relid) = $3 \
     AND (pgtrickle.has_grown(source_relid, schema_fingerprint) OR $4::bool AND source_type IN ('TABLE', 'STREAM_TABLE') \
     AND pgtrickle.still_serves(source_relid, pgtrickle.numbers(source_relid, columns_used), relied, \
         CASE WHEN $5::bool THEN 'FORMER PLAN' ELSE 'PLAN' END) IS TRUE)";

/// The statement that notes in the catalog that stream table `$1` continues with the present definition of
/// source `$2`.
const SERVED: &str = "UPDATE pgtrickle.pgt_dependencies SET schema_fingerprint = $3, keeps_plan = keeps_plan OR $4::bool, \
     relied = pgtrickle.relied_now(source_relid, columns_used, CASE WHEN keeps_plan OR $4::bool THEN relied END), \
     parts = pgtrickle.parts(source_relid, false) \
     WHERE pgt_id = $1 AND source_relid = $2 AND schema_fingerprint <> $3";

/// A query that finds whether one of the tables `$1` has capture triggers that were made for a former
/// definition of the table.
const OUTDATED: &str = "SELECT FROM pgtrickle.pgt_buffers WHERE source_relid = ANY ($1) AND capture = 'ON' \
     AND schema_fingerprint IS DISTINCT FROM pgtrickle.fingerprint(source_relid) LIMIT 1";

/// Whether the rows of `$1` were stored by plans with the hash `$2`.
const SAME_PLANS: &str =
    "SELECT stored_hash IS NOT DISTINCT FROM $2 FROM pgtrickle.pgt_stream_tables WHERE pgt_id = $1";

/// Whether the table `$1` refuses other writers, has its primary key (if `$2`), and has all indexes `$3`.
const AS_MADE: &str = "
SELECT EXISTS (SELECT FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid WHERE g.tgrelid = $1 AND g.tgname = 'trickle_guard'
        AND g.tgenabled <> 'D' AND p.pronamespace = to_regnamespace('pgtrickle') AND p.proname = 'refuse_writes')
    AND (NOT $2 OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = $1 AND i.indisprimary AND i.indisvalid))
    AND NOT EXISTS (SELECT FROM unnest($3::text[]) wanted(name) WHERE NOT EXISTS (SELECT FROM pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = $1 AND c.relname = wanted.name AND i.indisvalid))";

impl<C: RefreshDriver> Trickle<C> {
    /// Lets refreshes continue from the stored rows if possible. The new plans are tried first, and then
    /// plans that rely on no more properties of the sources than the former plans. Returns whether refreshes
    /// continue from the stored rows.
    pub(crate) async fn goes_on(&mut self, e: &Entry, new: &NewStreamTable, design: &Design) -> Result<bool> {
        Ok(self.goes_on_by(e, design, Plans::Own).await? || self.goes_on_by_former(e, new, design).await?)
    }

    /// Does the same as [`Trickle::goes_on_by`] with a plan that ignores keys and NOT NULL columns which were
    /// added to the sources after the former plan.
    async fn goes_on_by_former(&mut self, e: &Entry, new: &NewStreamTable, design: &Design) -> Result<bool> {
        // The attempt with the new plans may have noted the new definition of a source.
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

    /// Lets refreshes continue from the stored rows if no property of the sources changed that the query
    /// relies on. The stored rows have the changes up to the frontier, and the buffers have the later
    /// changes. If the stream table is IMMEDIATE, its triggers have applied all changes to the stored rows.
    /// Returns whether refreshes continue from the stored rows.
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
            // The function `hold_and_compare` writes the catalog row of the stream table, whatever its result
            // is. So a refresh over an older snapshot, to which a rewritten table looks empty, cannot be
            // committed.
            if !hold_and_compare(t, e).await? {
                return Err(Error::stale(format!("somebody else alters {}", shown(e))));
            }
            for table in &tables {
                capture::grow(t, TableId(*table)).await?;
            }
            // Triggers that were made for a former definition of a table capture wrong rows, whatever the
            // plan relies on.
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
        self.cache.compiled.remove(&e.id);
        Ok(went_on)
    }

    /// Whether a stream table already equals the design: it has the same query, and refreshes can continue
    /// from its rows.
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

    /// Whether the stored table still has its guard, its primary key and its indexes. A user who dropped one
    /// of these gets it back by giving the stream table its query again.
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

/// Whether an incremental stream table was planned as in this design, from the same columns of the same
/// sources. IMMEDIATE stream tables count as incremental. The answer is no for a query that names the row
/// type of a source. The result of such a query shows every column that the source gets.
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
