//! The client: one connection, and what can be asked of trickle over it.

use crate::capture::CaptureOptions;
use crate::catalog::PgCatalog;
use crate::db::{Connection, Connections, Sent};
use crate::error::{Error, Result};
use crate::give_way::Yielding;
use crate::locks::{Patience, patiently};
use crate::names::Name;
use crate::pending::Question;
use crate::progress::{Onlooker, Progress, Quiet, Tally};
use crate::refresh::Wanted;
use crate::registry::{Entry, Registry, Runnable, compile_entry};
use crate::schema;
use crate::security::SHUT;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::{Duration, Instant};
use trickle_core::catalog::TableId;
use trickle_core::cost::{Force, Policy};
use trickle_core::refresh::WorkMem;

/// What the user decides beside queries and schedules. None of it changes what a stream table holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How changes are captured, where nothing is captured yet.
    pub capture: CaptureOptions,
    /// How long to try for locks on users' tables.
    pub patience: Patience,
    /// Milliseconds that a refresh waits for its locks; 0 waits for ever.
    pub lock_timeout_ms: u32,
    /// Milliseconds that a statement of a refresh may take; 0 for no limit. `None` leaves the one of the server, the database or the role.
    pub statement_timeout_ms: Option<u32>,
    /// How often a refresh may start over after serialization failures.
    pub attempts: u32,
    /// Above this ratio of changed rows to source rows only full refreshes are considered.
    pub max_change_ratio: Option<f64>,
    /// Above this many changed rows only full refreshes are considered.
    pub max_delta_rows: Option<u64>,
    /// Forces deltas or full refreshes; `None` leaves it to cost.
    pub force: Option<Force>,
    /// Failed refreshes in a row after which a stream table is suspended; 0 for never.
    pub max_consecutive_errors: u32,
    /// Whether statements that come again stay prepared on their connection. Without, nothing at all outlives a transaction in
    /// the server process, as through a pooler ([`Connection::greeted`]), where it is so whatever is set here.
    pub use_prepared_statements: bool,
    /// The least `work_mem` of a refresh, in MiB: of every refresh, where there is no most. `None` leaves the server's,
    /// or starts from PostgreSQL's default where there is a most.
    pub merge_work_mem_mb: Option<u32>,
    /// The most `work_mem` of a refresh that has many rows to sort and hash, in MiB.
    pub merge_work_mem_max_mb: Option<u32>,
    /// How long history is kept; 0 keeps it for ever.
    pub history_retention_days: u32,
    /// How long somebody who wants a table for himself waits for a refresh that reads it; 0 for as long as the refresh takes.
    pub give_way: Duration,
    /// From when on an open transaction counts as one that is forgotten, and is told.
    pub long_transaction: Duration,
    /// A buffer's segment is emptied, or closed, when it has grown to this many bytes.
    pub segment_bytes: i64,
    /// On how many connections a large stream table is first loaded, where there is a way to more than one; 1 for one.
    pub load_connections: usize,
    /// A first load is large where a table that it reads has this many bytes.
    pub load_bytes: u64,
    /// When a buffer has grown to this many bytes, whoever has not read its oldest changes is recomputed instead. Where
    /// nobody drains it, its triggers keep no more changes than that, and all its readers are recomputed. All clients
    /// share it: [`Trickle::init`] stores it in the catalog, and the next refreshes give it to the triggers. `None` leaves
    /// the one that is stored, 1 GiB at first.
    pub buffer_limit_bytes: Option<i64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            capture: CaptureOptions::default(),
            patience: Patience::default(),
            lock_timeout_ms: 10_000,
            statement_timeout_ms: None,
            attempts: 5,
            max_change_ratio: None,
            max_delta_rows: None,
            force: None,
            max_consecutive_errors: 5,
            use_prepared_statements: true,
            merge_work_mem_mb: None,
            merge_work_mem_max_mb: None,
            history_retention_days: 30,
            give_way: Duration::from_secs(1),
            long_transaction: Duration::from_secs(300),
            segment_bytes: 512 << 10,
            load_connections: 4,
            load_bytes: 64 << 20,
            buffer_limit_bytes: None,
        }
    }
}

impl Settings {
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            force: self.force,
            max_change_ratio: self.max_change_ratio,
            max_delta_rows: self.max_delta_rows,
        }
    }

    pub(crate) fn work_mem(&self) -> Option<WorkMem> {
        WorkMem::between(self.merge_work_mem_mb, self.merge_work_mem_max_mb)
    }
}

/// A connection to a database with a trickle catalog.
pub struct Trickle<C> {
    pub(crate) connection: C,
    pub(crate) settings: Settings,
    pub(crate) progress: Arc<dyn Progress>,
    /// The way to more connections like this one.
    pub(crate) connections: Option<Arc<dyn Connections>>,
    pub(crate) tally: Arc<Tally>,
    /// The server process that works for the connection; 0 where that is not known.
    pid: Arc<AtomicI32>,
    /// Whether its refresh is to give way.
    pub(crate) yielding: Yielding,
    /// Major version of the server.
    pub(crate) server: u32,
    /// The schemas of the search path that the connection came with: queries are read under it. The
    /// connection works under [`SHUT`], a shared one in transactions alone.
    pub(crate) search_path: Vec<String>,
    pub(crate) memory: Memory,
}

/// What was learnt over a connection, all of which is checked whenever it is used: for whoever works over the same one again
/// and again.
#[derive(Default)]
pub struct Memory {
    /// Compiled stream tables by `pgt_id`, with what they were compiled from.
    pub(crate) compiled: BTreeMap<i64, (String, Runnable)>,
    /// Questions which tables have changes, prepared for their texts; what was asked last comes first.
    pub(crate) questions: Vec<Question>,
    /// What the catalog said of stream tables that were refreshed lately.
    pub(crate) recent: BTreeMap<Wanted, Arc<Registry>>,
    /// When history was pruned last.
    pub(crate) pruned: Option<Instant>,
    /// See [`Trickle::unplannable`].
    pub(crate) unplannable: Option<TableId>,
}

impl<C: Connection> Trickle<C> {
    /// Over a connection, whose catalog must be there and of this program's version.
    ///
    /// # Errors
    /// No catalog or another version; a server older than 15.
    pub async fn open(connection: C, settings: Settings) -> Result<Trickle<C>> {
        let trickle = Trickle::attach(connection, settings).await?;
        schema::require(trickle.db()).await?;
        Ok(trickle)
    }

    /// The stream table that the last refresh suspended because it can no longer be planned. If the call's
    /// error rolls that back, another transaction has to suspend it.
    pub fn unplannable(&self) -> Option<TableId> {
        self.memory.unplannable
    }

    /// Reads queries that are given from now on as typed under this search path, in the place of the one that
    /// the connection came with.
    pub fn read_under(&mut self, search_path: &[&str]) {
        self.search_path = search_path.iter().map(|s| (*s).to_owned()).collect();
    }

    /// Over a connection whose catalog may be missing: for [`Trickle::init`].
    ///
    /// # Errors
    /// A server older than 15.
    pub async fn attach(mut connection: C, settings: Settings) -> Result<Trickle<C>> {
        let text = "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog./) 10000, \
             pg_catalog.current_schemas(false)::pg_catalog.text[], pg_catalog.pg_backend_pid(), \
             (SELECT s.setting::pg_catalog.int4 FROM pg_catalog.pg_settings s \
                 WHERE s.name OPERATOR(pg_catalog.=) 'idle_in_transaction_session_timeout'), \
             pg_catalog.current_setting('restrict_nonsystem_relation_kind', true)";
        let row = db(&connection)
            .query_one(text, &[])
            .await
            .map_err(|e| Error::server("ask for the version", e))?;
        let server = u32::try_from(row.get::<i32>(0)).unwrap_or_default();
        if server < 15 {
            return Err(Error::input(format!("PostgreSQL {server} is too old"))
                .hint("trickle needs PostgreSQL 15 or later."));
        }
        let pid: i32 = row.get(2);
        let pooled = connection.greeted().is_some_and(|told| told != pid);
        // In somebody else's transaction there is none to begin.
        if pooled || !settings.use_prepared_statements && connection.callers().is_none() {
            share(&mut connection).await;
        } else {
            keep(&mut connection, settings.use_prepared_statements).await;
            lift_session_limits(&connection, row.get(3), row.get(4)).await;
            // Kept, whatever users' code sets in refreshes.
            let shut = db(&connection).set(&format!("search_path = {SHUT}")).await;
            shut.map_err(|e| Error::server("set search_path", e))?;
        }
        let pid = connection.process().unwrap_or_else(|| Arc::new(AtomicI32::new(pid)));
        let search_path = row.get(1);
        let progress = Arc::new(Quiet);
        Ok(Trickle {
            connection,
            settings,
            progress,
            connections: None,
            tally: Arc::default(),
            yielding: Yielding::of(pid.clone()),
            pid,
            server,
            search_path,
            memory: Memory::default(),
        })
    }

    /// Goes on with what was learnt before over this connection.
    #[must_use]
    pub fn remembering(mut self, memory: Memory) -> Trickle<C> {
        self.memory = memory;
        self
    }

    /// What was learnt; the connection is given up.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// Tells `progress` what long work is doing.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<dyn Progress>) -> Trickle<C> {
        self.progress = progress;
        self
    }

    /// Uses more connections where they help: for the first load of a large stream table, and to look at long work from
    /// beside it. They must lead to the same database as the same role.
    #[must_use]
    pub fn with_connections(mut self, connections: Arc<dyn Connections>) -> Trickle<C> {
        self.connections = Some(connections);
        self
    }

    /// Its refreshes, for who sees whether they are in anybody's way ([`give_way`](crate::give_way)).
    pub fn yielding(&self) -> Yielding {
        self.yielding.clone()
    }

    /// Looks at work on the connection, which writes a table.
    pub(crate) fn onlooker(&self, what: String, table: Option<TableId>) -> Onlooker {
        Onlooker {
            progress: self.progress.clone(),
            connections: self.connections.clone(),
            tally: self.tally.clone(),
            what,
            pid: self.pid.clone(),
            table: table.map(|t| t.0),
        }
    }

    /// How many statements of refreshes were sent, and how many of these as they had been prepared.
    pub fn statements(&self) -> Sent {
        self.connection.sent()
    }

    /// The connection. Where statements stay prepared on it, they are planned for any values
    /// (`plan_cache_mode`); names without a schema are the server's own (`search_path`).
    pub fn connection(&self) -> &C {
        &self.connection
    }
    /// The connection, as everything but its driver speaks to it.
    pub fn db(&self) -> &dyn Connection {
        &self.connection
    }
    /// The same, to begin a transaction on.
    pub(crate) fn db_mut(&mut self) -> &mut dyn Connection {
        &mut self.connection
    }
    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Makes or upgrades the catalog, and stores the settings that all clients share; returns the version that was there.
    ///
    /// # Errors
    /// A catalog newer than this program; no privilege to create schemas.
    pub async fn init(&mut self) -> Result<Option<i32>> {
        self.migrate(schema::VERSION).await
    }

    /// Makes a catalog of another role the current role's, a superuser, so that the extension can adopt it; the ordinary roles
    /// that it belonged to, which are let in as by `pgtrickle.grant_to`. No stream table is touched. Other rights on the catalog
    /// are taken back.
    ///
    /// # Errors
    /// No superuser, no catalog, the extension's; something in it that trickle's scripts do not make; stream tables of which
    /// others than their owners could have written the queries.
    pub async fn take_catalog(&mut self) -> Result<Vec<String>> {
        schema::take_over(&mut self.connection).await
    }

    /// Brings the catalog to a version, up or down; returns the one that was there. A catalog that was restored from a
    /// dump finds its tables again by their names.
    ///
    /// # Errors
    /// Those of [`schema::migrate`].
    pub async fn migrate(&mut self, version: i32) -> Result<Option<i32>> {
        let found = schema::migrate(&mut self.connection, version).await?;
        if version == schema::VERSION && schema::is_restored(self.db()).await? {
            let (patience, progress) = (self.settings.patience, self.progress.clone());
            progress.say("this database was restored from a dump: finding the tables again by name");
            patiently(&mut self.connection, patience, &[], &*progress, schema::rehome).await?;
        }
        if let (Some(bytes), true) = (self.settings.buffer_limit_bytes, version == schema::VERSION) {
            let text = "UPDATE pgtrickle.pgt_catalog_version SET buffer_limit_bytes = $1";
            let stored = self.db().execute(text, &[&bytes]).await;
            stored.map_err(|e| Error::server("store the limit of buffers", e).blamed_on_input())?;
        }
        Ok(found)
    }

    /// All stream tables.
    ///
    /// # Errors
    /// Those of the server.
    pub async fn registry(&self) -> Result<Registry> {
        Registry::read(self.db(), None).await
    }

    /// These stream tables, and those that are linked to them: costs what they cost, however many others there are.
    pub(crate) async fn linked(&self, tables: &[TableId]) -> Result<Registry> {
        Registry::read(self.db(), Some(tables)).await
    }

    /// The stream table of this name.
    ///
    /// # Errors
    /// None of that name; the server.
    pub async fn find(&self, name: &Name) -> Result<Entry> {
        self.of_names(std::slice::from_ref(name)).await?.find(name, &self.search_path).cloned()
    }

    /// The stream tables of these names, in whatever schemas, and those that are linked to them; all, where there is none
    /// of a name, so that what is like it can be said.
    pub(crate) async fn of_names(&self, names: &[Name]) -> Result<Registry> {
        let text = "SELECT coalesce(c.relname, s.pgt_name), s.pgt_relid FROM pgtrickle.pgt_stream_tables s \
             LEFT JOIN pg_class c ON c.oid = s.pgt_relid WHERE coalesce(c.relname, s.pgt_name) = ANY ($1)";
        let wanted: Vec<&str> = names.iter().map(|n| n.name.as_str()).collect();
        let rows = self.db().ask(text, &[&wanted]).await;
        let rows = rows.map_err(|e| Error::server("look for stream tables by name", e))?;
        let found: Vec<(String, u32)> = rows.iter().map(|r| (r.get(0), r.get(1))).collect();
        if wanted.iter().any(|n| found.iter().all(|(f, _)| f != n)) {
            return self.registry().await;
        }
        self.linked(&found.into_iter().map(|(_, oid)| TableId(oid)).collect::<Vec<_>>()).await
    }

    /// The plan and program of a stream table, compiled once per definition.
    pub(crate) async fn runnable(&mut self, e: &Entry) -> Result<Runnable> {
        let made_from = format!(
            "{}\0{}\0{:?}\0{:?}\0{}\0{:?}\0{:?}",
            e.definition,
            e.query,
            e.relation,
            e.dependencies,
            e.mode,
            e.layout_hash,
            e.path()
        );
        if let Some((from, runnable)) = self.memory.compiled.get(&e.id)
            && *from == made_from
        {
            return Ok(runnable.clone());
        }
        let mut catalog = PgCatalog::under(e.path());
        let runnable = compile_entry(self.db(), &mut catalog, e, self.server).await?;
        self.memory.compiled.insert(e.id, (made_from, runnable.clone()));
        Ok(runnable)
    }
}

/// [`SHUT`] where each transaction may have another server process.
const SHUT_LOCALLY: &str = "SET LOCAL search_path = pg_catalog, pg_temp";

/// A refresher that was killed leaves no statement running to its end. Where the server's platform cannot tell, it refuses
/// the setting, and the statement does run to its end.
const CHECKED: &str = "SET LOCAL client_connection_check_interval = '1s'";

/// The questions about many stream tables are long and quick: compiling them, or planning them anew for each list of tables,
/// takes longer than they do.
const UNCOMPILED: &str = "SET LOCAL jit = off";

/// The server process is this connection's alone, as long as it lasts: what is set and prepared there stays.
async fn keep<C: Connection>(connection: &mut C, prepared: bool) {
    for local in [CHECKED, UNCOMPILED] {
        let _ = db(connection).set(&local.replacen("SET LOCAL ", "", 1)).await;
    }
    if prepared {
        // Nobody else is given this server process, who might want plans of another kind.
        let _ = db(connection).set("plan_cache_mode = force_generic_plan").await;
        connection.keep_prepared();
    }
}

/// Settings of the role or the database that would end a session between two statements of a refresh, or keep
/// it from reading the catalog's views. A session that is idle in a transaction for a minute still ends,
/// where it is to end at all.
async fn lift_session_limits<C: Connection>(connection: &C, idle_ms: i32, restricted: Option<&str>) {
    if (1..60_000).contains(&idle_ms) {
        let _ = db(connection).set("idle_in_transaction_session_timeout = '1min'").await;
    }
    if restricted.is_some_and(|kinds| !kinds.is_empty()) {
        let _ = db(connection).set("restrict_nonsystem_relation_kind = ''").await;
    }
}

/// The server process may be another one's after each transaction: what is set is set in transactions.
async fn share<C: Connection>(connection: &mut C) {
    let tried = db(connection).batch_execute(&format!("BEGIN; {CHECKED}; ROLLBACK")).await;
    if tried.is_err() {
        let _ = db(connection).batch_execute("ROLLBACK").await;
    }
    connection.share(if tried.is_ok() {
        &[SHUT_LOCALLY, CHECKED, UNCOMPILED]
    } else {
        &[SHUT_LOCALLY, UNCOMPILED]
    });
}

/// A connection as everything but its driver speaks to it.
fn db<C: Connection>(connection: &C) -> &dyn Connection {
    connection
}
