//! The stream tables of a database, as its catalog lists them. The submodule `rows` reads them from the
//! catalog.

mod rows;

use crate::catalog::{PlannedWith, is_copy};
use crate::db::Transaction;
use crate::error::{Error, Result};
use crate::names::{HIDDEN, Name};
use crate::say::Voice;
use crate::security::Agreed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use trickle_core::catalog::{TableId, TableKind};
use trickle_core::dag::{Dag, StreamTableNode};
use trickle_core::near::nearest;
use trickle_core::refresh::{Relation, Setting};
use trickle_core::schedule::{self, Schedule, Time, canonical_periods};
use trickle_core::sql::Qualified;
use trickle_core::vocabulary::{Activity, Mode, RefreshMode};

/// A relation that the query of a stream table reads, and the facts about it that the plan uses.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// The relation itself.
    pub relation: Relation,
    /// The kind of the relation.
    pub kind: TableKind,
    /// The columns of the relation that the plan reads.
    pub columns: Vec<String>,
    /// The fingerprint that the relation had when the plan was made ([`crate::schema`],
    /// `pgtrickle.fingerprint`).
    pub fingerprint: String,
    /// The oid of the view over the captured changes of the relation; `None` where capture is missing or
    /// switched off.
    pub buffer: Option<u32>,
    /// Whether a crash of the server empties the buffer.
    pub unlogged: bool,
    /// Whether the buffer has reached its limit, so that new changes may be left out.
    pub full: bool,
    /// Whether the user holds the capture of the relation off ([`crate::Trickle::disable`]).
    pub held: bool,
    /// Whether the relation has partitions.
    pub partitioned: bool,
    /// The keys and never-NULL columns of the relation when the plan was made; `None` where the catalog does
    /// not have them.
    pub(crate) relied: Option<PlannedWith>,
    /// Whether the plan relies on no more than [`Dependency::relied`], even if the relation has got more
    /// keys since.
    pub(crate) keeps_plan: bool,
    /// The partitions of which all changes since the last refresh were captured, where some changes of other
    /// partitions were not (`pgtrickle.parts`). `None` where all changes were captured.
    pub(crate) stayed: Option<Vec<String>>,
}

/// A stream table, as the catalog lists it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The `pgt_id` of the stream table.
    pub id: i64,
    /// The stored table.
    pub relation: Relation,
    /// The canonical text of the defining query.
    pub query: String,
    /// The defining query as it was typed.
    pub original: String,
    /// The schedule as text; `None` means that only refreshes by hand are made.
    pub schedule: Option<String>,
    /// The mode in force.
    pub mode: Mode,
    /// The mode that was asked for.
    pub requested: RefreshMode,
    /// The reasons why the stream table is not incremental.
    pub mode_reason: Option<String>,
    /// The status in the catalog, which says whether the stream table is refreshed.
    pub status: Activity,
    /// Whether the stream table was ever filled.
    pub is_populated: bool,
    /// A time up to which the stream table has all committed changes; `None` where it was never filled.
    pub data_at: Option<Time>,
    /// Whether the stream table is marked for a recompute.
    pub needs_reinit: bool,
    /// The number of failed refreshes since the last successful one.
    pub consecutive_errors: i32,
    /// The message of the last failed refresh.
    pub last_error: Option<String>,
    /// The settings at creation that can change a value of the result.
    pub settings: Vec<Setting>,
    /// The settings at creation, in the form in which refreshes put them in force. The search path has only
    /// schemas that the owner can trust (`pgtrickle.safe_path`).
    pub in_force: Vec<Setting>,
    /// The relations that the stream table reads.
    pub dependencies: Vec<Dependency>,
    /// The owner of the stored table.
    pub owner: String,
    /// Whether the current role owns the stored table; true where the stored table was dropped.
    pub own: bool,
    /// Whether the stored table exists. A user can drop the stored table with DROP TABLE, without trickle.
    pub exists: bool,
    /// Whether everything that the plan was made from is unchanged.
    pub unchanged: bool,
    /// Whether rows enter and leave the result as time passes.
    pub reads_clock: bool,
    /// A hash of the statements that made the stored tables.
    pub layout_hash: Option<String>,
    /// The facts of the catalog that the plan is made for (`pgtrickle.definition`).
    pub definition: String,
    /// Whether the stream table is refreshed in a transaction of its own, after the stream tables that it
    /// reads ([`StreamTableNode::apart`]).
    pub apart: bool,
    /// The label of the declarations that the stream table was made from; `None` where it was made without
    /// declarations.
    pub declared: Option<String>,
    /// The objects of other roles to which the owner agreed; `None` where the stream table was made by a
    /// version that did not store them.
    pub agreed: Option<Agreed>,
    /// The functions that the query calls, except built-in ones.
    pub(crate) functions: Vec<u32>,
    /// The types that the query can reach, except built-in ones.
    pub(crate) types: Vec<u32>,
    /// The operators, casts and similar objects that the values of the result depend on, except built-in
    /// ones.
    pub(crate) objects: Vec<String>,
}

impl Entry {
    /// Returns the relations from which the stream table reads rows. Views are left out, since the tables
    /// under them are listed themselves.
    pub fn read(&self) -> impl Iterator<Item = &Dependency> {
        self.dependencies.iter().filter(|d| d.kind != TableKind::View)
    }

    /// Returns the tables whose keys and never-NULL columns, as stored with the plan, are the only ones that
    /// the plan may rely on.
    pub(crate) fn planned_with(&self) -> BTreeMap<TableId, PlannedWith> {
        let kept = self.dependencies.iter().filter(|d| d.keeps_plan);
        kept.filter_map(|d| Some((d.relation.id, d.relied.clone()?))).collect()
    }

    /// Whether the stream table reads copies of materialized views or foreign tables.
    pub(crate) fn reads_copies(&self) -> bool {
        self.dependencies.iter().any(|d| is_copy(&d.relation))
    }

    /// Returns the sources of which some changes were not captured, but all changes of the partitions that
    /// stayed were captured.
    pub(crate) fn in_part(&self) -> impl Iterator<Item = &Dependency> {
        self.dependencies.iter().filter(|d| d.stayed.is_some())
    }

    /// Returns the reason why a part of the result must be recomputed, if there is such a reason.
    pub(crate) fn part(&self) -> Option<Arc<str>> {
        let names: Vec<String> = self
            .in_part()
            .map(|d| Qualified::new(&d.relation.schema, &d.relation.name).to_string())
            .collect();
        (!names.is_empty()).then(|| format!("partitions of {} came or went", names.join(", ")).into())
    }

    /// Returns the schemas in which the statements of a refresh look up names without a schema.
    pub(crate) fn path(&self) -> Vec<String> {
        let path = self.in_force.iter().find(|s| s.name == "search_path");
        path.map(|s| s.values.clone()).unwrap_or_default()
    }

    /// Whether triggers on the sources bring the stream table up to date. While the user holds the capture
    /// of a source off, refreshes bring it up to date instead.
    pub fn is_immediate(&self) -> bool {
        self.mode == Mode::Immediate && !self.read().any(|d| d.held)
    }

    /// Whether the stream table was built to take the place of another one (`alter/swap`). Such a stream
    /// table has no user and no schedule.
    pub(crate) fn is_beside(&self) -> bool {
        &*self.relation.schema == HIDDEN && self.relation.name.starts_with("new_")
    }

    /// Whether a source of the stream table is not captured, so that only a recompute shows whether the
    /// stream table is up to date. A recomputed stream table without sources counts too, since its query
    /// reads something other than tables, such as the clock.
    pub fn polls(&self) -> bool {
        if self.is_immediate() {
            return false;
        }
        if self.mode == Mode::Full && self.read().next().is_none() {
            return true;
        }
        let unknown = |d: &Dependency| match self.mode {
            Mode::Full => d.buffer.is_none() || d.columns.is_empty(),
            // A source of which the plan reads no column need not be captured.
            Mode::Differential | Mode::Immediate => d.buffer.is_none() && (d.held || !d.columns.is_empty()),
        };
        self.read().any(unknown)
    }

    /// Returns the reason why the result may change while no source changes, if there is such a reason.
    pub(crate) fn unseen(&self) -> Option<Arc<str>> {
        let told = |d: &Dependency| d.held || !matches!(d.kind, TableKind::Table | TableKind::StreamTable);
        if self.mode != Mode::Full || !self.polls() || self.read().any(told) {
            return None;
        }
        let why = self.mode_reason.as_deref().filter(|_| self.requested != RefreshMode::Full);
        let why = why.and_then(|why| why.lines().next());
        Some(why.unwrap_or("nothing tells whether what it shows has changed").into())
    }
}

/// The stream tables of a database, or some of them.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: BTreeMap<i64, Entry>,
    by_table: BTreeMap<TableId, i64>,
    voice: Voice,
}

impl Registry {
    /// Returns the language in which errors about these stream tables give advice. This is the language of
    /// the connection over which the stream tables were read.
    pub(crate) fn voice(&self) -> Voice {
        self.voice
    }

    /// Returns all stream tables of the registry, in the order of their `pgt_id`.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Returns the stream table with this `pgt_id`.
    pub fn get(&self, id: i64) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// Returns the stream table whose table has this oid.
    pub fn by_table(&self, id: TableId) -> Option<&Entry> {
        self.entries.get(self.by_table.get(&id)?)
    }

    /// Returns the stream tables that read a table.
    pub(crate) fn readers(&self, table: TableId) -> impl Iterator<Item = &Entry> {
        self.entries().filter(move |e| e.dependencies.iter().any(|d| d.relation.id == table))
    }

    /// Returns the stream table with a name. A name without a schema means the stream table of that name in
    /// the first schema of the search path that has one.
    ///
    /// # Errors
    /// No stream table has that name. The hint gives the nearest existing name.
    pub fn find(&self, name: &Name, search_path: &[String]) -> Result<&Entry> {
        let schemas = name.schema.as_ref().map_or(search_path, std::slice::from_ref);
        let named = |s: &String| {
            self.entries.values().find(|e| *e.relation.schema == **s && *e.relation.name == *name.name)
        };
        schemas.iter().find_map(named).ok_or_else(|| {
            let error = Error::input(format!("there is no stream table {name}")).coded("42P01");
            let same = self.entries.values().find(|e| *e.relation.name == *name.name);
            let all =
                || schemas.iter().flat_map(|s| self.entries.values().filter(|e| *e.relation.schema == **s));
            let misspelt = || nearest(&name.name, all().map(|e| &*e.relation.name));
            let near =
                same.or_else(|| misspelt().and_then(|n| all().find(|e| *e.relation.name == *n))).map(shown);
            match near {
                Some(near) => error.hint(format!("Did you mean {near}?")),
                None => error.hint(self.voice.one(
                    "trickle status lists those that there are.",
                    "SELECT * FROM pgtrickle.pgt_status() lists those that there are.",
                )),
            }
        })
    }

    /// Returns the oids of the stream tables with these names.
    pub(crate) fn ids(&self, names: &[Name], search_path: &[String]) -> Result<Vec<TableId>> {
        names.iter().map(|n| Ok(self.find(n, search_path)?.relation.id)).collect()
    }

    /// Returns the graph of the stream tables and their readers.
    ///
    /// # Errors
    /// The stored dependencies form a circle.
    pub fn dag(&self) -> Result<Dag> {
        Ok(Dag::build(self.entries.values().map(node))?)
    }

    /// Returns, by `pgt_id`, the period of each stream table with a schedule, under a refresher with these
    /// options. The period is the age that the stream table may reach.
    ///
    /// # Errors
    /// The errors of [`Registry::dag`].
    pub fn periods(&self, options: &schedule::Options) -> Result<BTreeMap<i64, Duration>> {
        let parsed = |e: &Entry| Some((e.relation.id, Schedule::parse(e.schedule.as_deref()?).ok()?));
        let schedules: BTreeMap<TableId, Schedule> = self.entries.values().filter_map(parsed).collect();
        let default = |id| match self.by_table(id).is_some_and(Entry::polls) {
            true => options.poll_period,
            false => options.default_period,
        };
        let periods = canonical_periods(&self.dag()?, |id| schedules.get(&id), default);
        let period = |e: &Entry| Some((e.id, (*periods.get(&e.relation.id)?).max(options.min_period)));
        Ok(self.entries.values().filter_map(period).collect())
    }

    /// Returns the `wanted` stream tables and all stream tables that they read, in the order in which to
    /// refresh them.
    ///
    /// # Errors
    /// The errors of [`Registry::dag`].
    pub fn with_upstream(&self, wanted: impl IntoIterator<Item = TableId>) -> Result<Vec<&Entry>> {
        let wanted: BTreeSet<TableId> = wanted.into_iter().collect();
        let set = self.dag()?.refresh_set(&wanted);
        Ok(set.into_iter().filter_map(|id| self.by_table(id)).collect())
    }
}

/// Returns an error for a stream table of another owner, since its query would run with the rights of the
/// role that refreshes. Returns an error also for a stream table whose table was dropped.
pub(crate) fn require_own(e: &Entry, voice: Voice) -> Result<()> {
    let name = shown(e);
    if !e.exists {
        return Err(Error::input(format!("the table of stream table {name} is gone"))
            .detail("Somebody dropped it with DROP TABLE.")
            .hint(format!("{} forgets it; {} makes it anew.", voice.drop(&name), voice.create(&name))));
    }
    if e.own {
        return Ok(());
    }
    Err(Error::input(format!("stream table {name} belongs to {}", e.owner))
        .detail("Its query runs with its owner's rights, and nobody else's; a member of that role is not that role.")
        .hint(format!("Connect as {}.", e.owner)))
}

/// Returns `schema.name` of a stream table, quoted where needed.
pub fn shown(e: &Entry) -> String {
    Qualified::new(&e.relation.schema, &e.relation.name).to_string()
}

fn node(e: &Entry) -> StreamTableNode {
    let name = |r: &Relation| Arc::from(format!("{}.{}", r.schema, r.name));
    StreamTableNode {
        id: e.relation.id,
        name: name(&e.relation),
        sources: e.dependencies.iter().map(|d| (d.relation.id, name(&d.relation))).collect(),
        apart: e.apart,
    }
}

/// Keeps other sessions from planning, altering or refreshing a stream table until the end of the
/// transaction. Returns whether the stream table is still as it was when `e` was read. Always writes the
/// catalog row of the stream table. The second statement reads a snapshot of its own, since the first one may
/// have waited for a session that altered the stream table.
pub(crate) async fn hold_and_compare(t: &Transaction<'_>, e: &Entry) -> Result<bool> {
    let fail = |err| Error::server(format!("hold {}", shown(e)), err);
    let held = "UPDATE pgtrickle.pgt_stream_tables SET updated_at = clock_timestamp() WHERE pgt_id = $1";
    t.execute(held, &[&e.id]).await.map_err(fail)?;
    let same = "SELECT pgtrickle.definition($1) IS NOT DISTINCT FROM $2";
    Ok(t.query_one(same, &[&e.id, &e.definition]).await.map_err(fail)?.get(0))
}
