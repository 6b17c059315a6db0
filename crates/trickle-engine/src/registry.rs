//! The stream tables of a database, as its catalog lists them.

use crate::capture::HIDDEN;
use crate::catalog::{self, PgCatalog, PlannedWith};
use crate::copies::{copies, is_copy, reads_copies};
use crate::db::{Bind, Connection, Json, Row, Transaction};
use crate::error::{Error, Result};
use crate::immediate;
use crate::names::Name;
use crate::say;
use crate::security::Agreed;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::sync::Arc;
use std::time::Duration;
use trickle_core::apply::Identity;
use trickle_core::catalog::{TableId, TableKind};
use trickle_core::dag::{Dag, StreamTableNode};
use trickle_core::near::nearest;
use trickle_core::parse::parse_query;
use trickle_core::refresh::{Compiled, Copied, KeyColumn, Program, Recompute, Relation, Setting};
use trickle_core::schedule::{self, Schedule, Time, canonical_periods};
use trickle_core::sql::{Ident, Profile, Qualified};
use trickle_core::stream_table::{Options, StreamTable};
use trickle_core::vocabulary::{Activity, Mode, RefreshMode};
use xxhash_rust::xxh64::xxh64;

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
    /// The same settings as refreshes put them in force. The search path has only schemas that the owner can
    /// trust (`pgtrickle.safe_path`).
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

/// A stored setting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredSetting {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

/// The stream tables whose tables are in `$1`, and the stream tables that these read or that read these,
/// directly or through others. Where `$1` is NULL, these are all stream tables.
const LINKED: &str = "
WITH RECURSIVE linked(id, relid) AS (
    SELECT pgt_id, pgt_relid FROM pgtrickle.pgt_stream_tables WHERE pgt_relid = ANY ($1::oid[])
    UNION SELECT s.pgt_id, s.pgt_relid FROM linked l CROSS JOIN LATERAL (
        SELECT u.pgt_id, u.pgt_relid FROM pgtrickle.pgt_dependencies d
            JOIN pgtrickle.pgt_stream_tables u ON u.pgt_relid = d.source_relid WHERE d.pgt_id = l.id
        UNION ALL SELECT r.pgt_id, r.pgt_relid FROM pgtrickle.pgt_dependencies d
            JOIN pgtrickle.pgt_stream_tables r ON r.pgt_id = d.pgt_id WHERE d.source_relid = l.relid) s
), wanted AS MATERIALIZED (
    SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE $1::oid[] IS NULL UNION ALL SELECT id FROM linked
)";

/// One row for each relation that a stream table reads, and one row for a stream table that reads no
/// relation. A single statement returns all rows, so that all facts belong to one moment.
const ENTRIES: &str = "
, listed AS MATERIALIZED (
    SELECT s.pgt_id, s.pgt_relid, coalesce(n.nspname, s.pgt_schema) AS nspname, coalesce(c.relname, s.pgt_name) AS relname,
        s.defining_query, s.original_query, s.schedule, s.refresh_mode,
        s.requested_mode, s.mode_reason, s.status, s.consecutive_errors, e.last_error_message, s.settings,
        r.rolname, coalesce(r.rolname = current_user, true) AS own, s.layout_hash,
        u.id IS NOT NULL AS unchanged, s.is_populated, c.oid IS NOT NULL AS there,
        pgtrickle.definition(s.pgt_id), s.reads_clock, s.needs_reinit, s.diamond_consistency = 'none' AS apart, s.declared,
        (extract(epoch FROM s.data_timestamp) * 1000)::int8 AS data_at,
        pgtrickle.safe_path(s.settings, c.relowner) AS safe_path,
        CASE WHEN s.agreed_by = c.relowner OR s.agreed IS NULL THEN s.agreed ELSE '{}' END AS agreed,
        CASE WHEN s.agreed_by = c.relowner THEN s.agreed_tables ELSE '{}' END AS agreed_tables, s.functions, s.types, s.objects
    FROM wanted JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) LEFT JOIN pgtrickle.pgt_errors e USING (pgt_id)
    LEFT JOIN pgtrickle.unchanged(ARRAY(SELECT pgt_id FROM wanted)) u(id) ON u.id = s.pgt_id
    LEFT JOIN pg_class c ON c.oid = s.pgt_relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_roles r ON r.oid = c.relowner
)
SELECT l.*, d.source_relid, coalesce(n.nspname, d.source_schema), coalesce(c.relname, d.source_name),
    d.source_type, d.columns_used, d.schema_fingerprint,
    CASE WHEN b.capture = 'ON' THEN to_regclass(pg_catalog.format('pgtrickle_changes.changes_%s', b.source_relid))::oid END,
    coalesce(b.unlogged, false),
    coalesce(pg_relation_size(to_regclass(pg_catalog.format('pgtrickle_changes.changes_%s_%s', b.source_relid,
        b.segments->-1->>'number'))) >= b.limit_bytes, false),
    coalesce(b.capture = 'HELD', false), coalesce(c.relkind = 'p', false), d.relied IS NOT NULL, d.relied[4], d.relied[5], d.keeps_plan
FROM listed l LEFT JOIN pgtrickle.pgt_dependencies d USING (pgt_id)
LEFT JOIN pg_class c ON c.oid = d.source_relid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pgtrickle.pgt_buffers b ON b.source_relid = d.source_relid
ORDER BY l.pgt_id, d.source_relid";

/// The position in the rows of [`ENTRIES`] at which the columns about the read relation begin.
const READ: usize = 32;

/// The stream tables of a database, or some of them.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: BTreeMap<i64, Entry>,
    by_table: BTreeMap<TableId, i64>,
}

impl Registry {
    /// Reads the catalog: all stream tables, or only the stream tables `of` and those linked with them.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn read(db: &dyn Connection, of: Option<&[TableId]>) -> Result<Registry> {
        let doing = |e| Error::server("read the stream tables", e);
        let of: Option<Vec<u32>> = of.map(|ids| ids.iter().map(|id| id.0).collect());
        let params: [&dyn Bind; 1] = [&of];
        let rows = db.ask(&format!("{LINKED}{ENTRIES}"), &params).await.map_err(doing)?;
        let mut registry = Registry::default();
        for r in &rows {
            let id: i64 = r.get(0);
            let entry = match registry.entries.entry(id) {
                btree_map::Entry::Occupied(known) => known.into_mut(),
                btree_map::Entry::Vacant(new) => new.insert(entry(r)?),
            };
            registry.by_table.insert(entry.relation.id, id);
            if r.get::<Option<u32>>(READ).is_some() {
                entry.dependencies.push(dependency(r)?);
            }
        }
        Ok(registry)
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
                None => error.hint(say::one(
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
pub(crate) fn require_own(e: &Entry) -> Result<()> {
    let name = shown(e);
    if !e.exists {
        return Err(Error::input(format!("the table of stream table {name} is gone"))
            .detail("Somebody dropped it with DROP TABLE.")
            .hint(format!("{} forgets it; {} makes it anew.", say::drop(&name), say::create(&name))));
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

fn relation(id: u32, schema: Option<String>, name: Option<String>) -> Relation {
    Relation {
        id: TableId(id),
        schema: schema.unwrap_or_default().into(),
        name: name.unwrap_or_default().into(),
    }
}

fn dependency(r: &Row) -> Result<Dependency> {
    Ok(Dependency {
        relation: relation(r.get(READ), r.get(READ + 1), r.get(READ + 2)),
        kind: TableKind::parse(r.get(READ + 3))?,
        columns: r.get(READ + 4),
        fingerprint: r.get(READ + 5),
        buffer: r.get(READ + 6),
        unlogged: r.get(READ + 7),
        full: r.get(READ + 8),
        held: r.get(READ + 9),
        partitioned: r.get(READ + 10),
        relied: match r.get(READ + 11) {
            true => Some(PlannedWith::parse(r.get(READ + 12), r.get(READ + 13))?),
            false => None,
        },
        keeps_plan: r.get(READ + 14),
    })
}

fn entry(r: &Row) -> Result<Entry> {
    let settings: Json<Vec<StoredSetting>> = r.get(13);
    let settings: Vec<Setting> =
        settings.0.into_iter().map(|s| Setting { name: s.name, values: s.values }).collect();
    let path: Vec<String> = r.get::<Option<Vec<String>>>(26).unwrap_or_default();
    let safe = |s: &Setting| match s.name.as_str() {
        "search_path" => Setting { name: s.name.clone(), values: path.clone() },
        _ => s.clone(),
    };
    Ok(Entry {
        id: r.get(0),
        relation: relation(r.get(1), r.get(2), r.get(3)),
        query: r.get(4),
        original: r.get(5),
        schedule: r.get(6),
        mode: Mode::parse(r.get(7))?,
        requested: RefreshMode::parse(r.get(8))?,
        mode_reason: r.get(9),
        status: Activity::parse(r.get(10))?,
        consecutive_errors: r.get(11),
        last_error: r.get(12),
        in_force: settings.iter().map(safe).collect(),
        settings,
        dependencies: Vec::new(),
        owner: r.get::<Option<String>>(14).unwrap_or_default(),
        own: r.get(15),
        exists: r.get(19),
        definition: r.get(20),
        layout_hash: r.get(16),
        reads_clock: r.get(21),
        unchanged: r.get(17),
        is_populated: r.get(18),
        needs_reinit: r.get(22),
        apart: r.get(23),
        declared: r.get(24),
        data_at: r.get::<Option<i64>>(25).map(Time),
        agreed: r.get::<Option<Vec<u32>>>(27).map(|functions| Agreed { functions, tables: r.get(28) }),
        functions: r.get(29),
        types: r.get(30),
        objects: r.get(31),
    })
}

/// Returns the engine's options for a stream table of this name and id.
pub(crate) fn options(relation: &Relation, id: i64, server: u32) -> Options {
    let mut options = Options::new(&*relation.schema, &*relation.name);
    options.state_prefix = format!("state_{id}");
    options.profile = Profile::postgres(server);
    options
}

/// Returns a hash of the plans whose results are stored. Plans with equal hashes have the same stored
/// results.
pub(crate) fn stored_hash(table: &StreamTable) -> Result<String> {
    Ok(format!("{:016x}", xxh64(table.explain_stored()?.as_bytes(), 0)))
}

/// Returns a hash of the stored tables of a plan. A plan is run only over stored tables with the same hash.
pub(crate) fn layout_hash(table: &StreamTable) -> String {
    let texts: Vec<String> = table.ddl().iter().map(ToString::to_string).collect();
    format!("{:016x}", xxh64(texts.join(";").as_bytes(), 0))
}

/// A stream table in the form that a refresh runs.
#[derive(Clone, Debug)]
pub struct Runnable {
    /// The plan, where the query is incremental.
    pub table: Option<Arc<StreamTable>>,
    /// The program, which makes the statements that a refresh runs.
    pub program: Arc<dyn Program + Send + Sync>,
}

/// Compiles the stored query of a stream table against the present catalog.
///
/// # Errors
/// The query is not valid any more; errors of the server.
pub(crate) async fn compile_entry(
    db: &dyn Connection,
    catalog: &mut PgCatalog,
    e: &Entry,
    server: u32,
) -> Result<Runnable> {
    let copy = is_copy(&e.relation);
    if e.mode != Mode::Full || copy {
        if reads_copies(e) {
            catalog.put_copies(copies(db).await?);
        }
        catalog.plan_with(e.planned_with());
        let parsed = parse_query(&e.query)?;
        let options = options(&e.relation, e.id, server);
        let verdict = catalog::compile(db, catalog, &parsed, &options).await?;
        let fits = |t: &StreamTable| e.layout_hash == Some(layout_hash(t));
        let Some(table) = verdict.incremental().filter(fits) else {
            let message = format!("{} was planned by another version of trickle", shown(e));
            return Err(Error::stale(message).hint(format!("{} plans it anew.", say::refresh(&shown(e)))));
        };
        if copy {
            let view = e.dependencies.iter().find(|d| d.kind == TableKind::MaterializedView);
            let program = Copied::new(Compiled::new(table), view.map(|d| d.relation.id));
            return Ok(Runnable { program: Arc::new(program), table: None });
        }
        let table = Arc::new(table);
        if e.is_immediate() {
            let program = immediate::program(db, e, &table).await?;
            return Ok(Runnable { program: Arc::new(program), table: Some(table) });
        }
        // A program that runs the text of the query does not fill states, read copies, or use the time of
        // the refresh.
        let is_all = table.layout().states.is_empty() && !reads_copies(e) && !e.reads_clock;
        if table.layout().result.identity == Identity::Bag && is_all {
            let key = key_of(db, e.relation.id, true).await?;
            if !key.is_empty() {
                return recompute(db, e, &key).await;
            }
        }
        return Ok(Runnable { program: Arc::new(Compiled::new(table.clone())), table: Some(table) });
    }
    let key = key_of(db, e.relation.id, false).await?;
    recompute(db, e, &key).await
}

/// Returns a program that runs the text of the query, and tells rows apart by the columns `key`.
async fn recompute(db: &dyn Connection, e: &Entry, key: &[KeyColumn]) -> Result<Runnable> {
    let columns = db
        .query(
            "SELECT attname FROM pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            &[&e.relation.id.0],
        )
        .await
        .map_err(|err| Error::server("read the columns of a stream table", err))?;
    let columns: Vec<Ident> = columns.iter().map(|r| Ident::new(r.get::<String>(0))).collect();
    let name = Qualified::new(&e.relation.schema, &e.relation.name);
    let mut program = Recompute::new(&name, &columns, key, &e.query);
    // PostgreSQL refuses most rules on a table that a data-modifying WITH statement writes.
    let rules = "SELECT relhasrules FROM pg_class WHERE oid = $1";
    let row = db.query_opt(rules, &[&e.relation.id.0]).await;
    if row.map_err(|err| Error::server("look at a stream table", err))?.is_some_and(|r| r.get(0)) {
        program = program.without_difference();
    }
    Ok(Runnable { table: None, program: Arc::new(program) })
}

/// The columns of the key by which rows of the table `$1` are told apart, if the table has such a key. With
/// `$2`, only a key that foreign keys refer to counts (`pgtrickle.pairing_key`).
const PAIRING_KEY: &str = "
SELECT (SELECT count(*) FROM pg_attribute b WHERE b.attrelid = a.attrelid AND b.attnum BETWEEN 1 AND a.attnum - 1 AND NOT b.attisdropped),
    r.oprname, rn.nspname, l.collname, ln.nspname
FROM pg_index i CROSS JOIN generate_series(0, i.indnkeyatts - 1) k(n)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n] JOIN pg_opclass o ON o.oid = i.indclass[k.n]
JOIN pg_amop m ON m.amopfamily = o.opcfamily AND m.amoplefttype = o.opcintype AND m.amoprighttype = o.opcintype AND m.amopstrategy = 3
JOIN pg_operator r ON r.oid = m.amopopr JOIN pg_namespace rn ON rn.oid = r.oprnamespace
LEFT JOIN pg_collation l ON l.oid = i.indcollation[k.n] LEFT JOIN pg_namespace ln ON ln.oid = l.collnamespace
WHERE i.indexrelid = pgtrickle.pairing_key($1, $2) ORDER BY k.n";

async fn key_of(db: &dyn Connection, table: TableId, referenced: bool) -> Result<Vec<KeyColumn>> {
    let rows = db.query(PAIRING_KEY, &[&table.0, &referenced]).await;
    let rows = rows.map_err(|err| Error::server("read the keys of a stream table", err))?;
    let column = |r: &Row| {
        let collation = r.get::<Option<String>>(3).zip(r.get::<Option<String>>(4));
        Ok(KeyColumn {
            position: usize::try_from(r.get::<i64>(0))
                .map_err(|_| Error::input("a table has a negative number of columns"))?,
            equality: Qualified::new(r.get::<String>(2), r.get::<String>(1)),
            collation: collation.map(|(name, schema)| Qualified::new(schema, name)),
        })
    };
    rows.iter().map(column).collect()
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
