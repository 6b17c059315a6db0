//! The client: one connection, and trickle's operations over it.

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

/// The user's settings beside queries and schedules. None of them changes the contents of a stream table.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The way of capturing changes, for tables that are not captured yet.
    pub capture: CaptureOptions,
    /// The limits for getting locks on users' tables.
    pub patience: Patience,
    /// Milliseconds that a refresh waits for its locks; 0 waits for ever.
    pub lock_timeout_ms: u32,
    /// Milliseconds that a statement of a refresh may take; 0 for no limit. `None` leaves the limit of the
    /// server, the database or the role.
    pub statement_timeout_ms: Option<u32>,
    /// The number of times that a refresh may start over after serialization failures.
    pub attempts: u32,
    /// The ratio of changed rows to source rows above which only full refreshes are considered.
    pub max_change_ratio: Option<f64>,
    /// The number of changed rows above which only full refreshes are considered.
    pub max_delta_rows: Option<u64>,
    /// Forces deltas or full refreshes; `None` leaves the choice to the cost model.
    pub force: Option<Force>,
    /// Failed refreshes in a row after which a stream table is suspended; 0 for never.
    pub max_consecutive_errors: u32,
    /// Whether statements that are sent again stay prepared on their connection. If not, nothing outlives a
    /// transaction in the server process. Through a pooler that is so whatever this setting says
    /// ([`Connection::greeted`]).
    pub use_prepared_statements: bool,
    /// The `work_mem` of every refresh, in MiB; the least one where `merge_work_mem_max_mb` is set. `None`
    /// leaves the server's, or starts from PostgreSQL's default where that maximum is set.
    pub merge_work_mem_mb: Option<u32>,
    /// The greatest `work_mem` of a refresh that has many rows to sort and hash, in MiB.
    pub merge_work_mem_max_mb: Option<u32>,
    /// The days for which history is kept; 0 keeps it for ever.
    pub history_retention_days: u32,
    /// The time that a session which wants a table exclusively waits for a refresh that reads the table; 0:
    /// until the refresh ends.
    pub give_way: Duration,
    /// The age at which an open transaction counts as forgotten, and is reported.
    pub long_transaction: Duration,
    /// The size in bytes at which a buffer's segment is emptied or closed.
    pub segment_bytes: i64,
    /// The number of connections on which a large stream table is first filled, where more than one can be
    /// opened.
    pub load_connections: usize,
    /// The size in bytes of a source from which on a first fill counts as large.
    pub load_bytes: u64,
    /// The size in bytes at which a buffer is full. Readers that have not read its oldest changes are then
    /// recomputed. Where nobody drains the buffer, its triggers keep no more changes than that, and all its
    /// readers are recomputed.
    ///
    /// All clients share this limit: [`Trickle::init`] stores it in the catalog, and the next refreshes give
    /// it to the triggers. `None` leaves the stored limit, which is 1 GiB at first.
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
    /// Opens more connections like this one.
    pub(crate) connections: Option<Arc<dyn Connections>>,
    pub(crate) tally: Arc<Tally>,
    /// The server process that works for the connection; 0 where it is not known.
    pid: Arc<AtomicI32>,
    /// Whether its running refresh is asked to give way.
    pub(crate) yielding: Yielding,
    /// The major version of the server.
    pub(crate) server: u32,
    /// The search path that the connection came with, as schemas: users' queries are read under it. The
    /// connection itself works under [`SHUT`]; a pooled connection does so only within transactions.
    pub(crate) search_path: Vec<String>,
    pub(crate) memory: Memory,
}

/// Facts that were learnt over a connection, for a process that works over the same connection again and
/// again. Each of them is checked whenever it is used.
#[derive(Default)]
pub struct Memory {
    /// Compiled stream tables by `pgt_id`, each with the facts that it was compiled from.
    pub(crate) compiled: BTreeMap<i64, (String, Runnable)>,
    /// Prepared questions for stream tables that have changes; the last one asked comes first.
    pub(crate) questions: Vec<Question>,
    /// The catalog's facts about stream tables that were refreshed lately.
    pub(crate) recent: BTreeMap<Wanted, Arc<Registry>>,
    /// The instant at which history was pruned last.
    pub(crate) pruned: Option<Instant>,
    /// See [`Trickle::unplannable`].
    pub(crate) unplannable: Option<TableId>,
}

impl<C: Connection> Trickle<C> {
    /// Opens trickle over a connection. The database must have a catalog of this program's version.
    ///
    /// # Errors
    /// No catalog or another version; a server older than 15.
    pub async fn open(connection: C, settings: Settings) -> Result<Trickle<C>> {
        let trickle = Trickle::attach(connection, settings).await?;
        schema::require(trickle.db()).await?;
        Ok(trickle)
    }

    /// Returns the stream table that the last refresh suspended because it can no longer be planned. If the
    /// error of that refresh rolls the suspension back, another transaction has to suspend it.
    pub fn unplannable(&self) -> Option<TableId> {
        self.memory.unplannable
    }

    /// Reads queries that are given later under this search path, in place of the one that the connection
    /// came with.
    pub fn read_under(&mut self, search_path: &[&str]) {
        self.search_path = search_path.iter().map(|s| (*s).to_owned()).collect();
    }

    /// Opens trickle over a connection whose catalog may be missing: for [`Trickle::init`].
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
        // In a caller's transaction no other transaction can begin.
        if pooled || !settings.use_prepared_statements && connection.callers().is_none() {
            share(&mut connection).await;
        } else {
            keep(&mut connection, settings.use_prepared_statements).await;
            lift_session_limits(&connection, row.get(3), row.get(4)).await;
            // The driver keeps this setting, whatever users' code sets in refreshes.
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

    /// Takes over the facts that were learnt before over this connection.
    #[must_use]
    pub fn remembering(mut self, memory: Memory) -> Trickle<C> {
        self.memory = memory;
        self
    }

    /// Returns the learnt facts, and gives the connection up.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// Reports the progress of long work to `progress`.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<dyn Progress>) -> Trickle<C> {
        self.progress = progress;
        self
    }

    /// Uses more connections where they help: for the first fill of a large stream table, and to observe long
    /// work. They must lead to the same database as the same role.
    #[must_use]
    pub fn with_connections(mut self, connections: Arc<dyn Connections>) -> Trickle<C> {
        self.connections = Some(connections);
        self
    }

    /// Returns a handle by which another connection makes its refreshes give way
    /// ([`give_way`](crate::give_way)).
    pub fn yielding(&self) -> Yielding {
        self.yielding.clone()
    }

    /// Returns an observer of work on the connection that writes `table`.
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

    /// Returns the number of sent statements of refreshes, and how many of these were prepared before.
    pub fn statements(&self) -> Sent {
        self.connection.sent()
    }

    /// Returns the connection. Statements that stay prepared on it are planned for any values
    /// (`plan_cache_mode`). Names without a schema are the server's own (`search_path`).
    pub fn connection(&self) -> &C {
        &self.connection
    }
    /// Returns the connection, as everything but its driver speaks to it.
    pub fn db(&self) -> &dyn Connection {
        &self.connection
    }
    /// Returns the same, to begin a transaction on.
    pub(crate) fn db_mut(&mut self) -> &mut dyn Connection {
        &mut self.connection
    }
    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Makes or upgrades the catalog, and stores the settings that all clients share. Returns the version
    /// that was there.
    ///
    /// # Errors
    /// The catalog is newer than this program; the role may not create schemas.
    pub async fn init(&mut self) -> Result<Option<i32>> {
        self.migrate(schema::VERSION).await
    }

    /// Gives a catalog of another role to the current role, a superuser, so that the extension can adopt it.
    /// Returns the ordinary roles that owned it; they are let in as by `pgtrickle.grant_to`. Other rights on
    /// the catalog are revoked. No stream table is touched.
    ///
    /// # Errors
    /// The role is no superuser. There is no catalog, or it is the extension's. The catalog has an object
    /// that trickle's scripts do not make. A role other than the owner could have written a stream table's
    /// query.
    pub async fn take_catalog(&mut self) -> Result<Vec<String>> {
        schema::take_over(&mut self.connection).await
    }

    /// Brings the catalog to a version, up or down. Returns the version that was there. A catalog that was
    /// restored from a dump finds its tables again by their names.
    ///
    /// # Errors
    /// The errors of [`schema::migrate`].
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

    /// Returns all stream tables.
    ///
    /// # Errors
    /// The errors of the server.
    pub async fn registry(&self) -> Result<Registry> {
        Registry::read(self.db(), None).await
    }

    /// Returns these stream tables and the linked ones. The cost does not depend on the number of other
    /// stream tables.
    pub(crate) async fn linked(&self, tables: &[TableId]) -> Result<Registry> {
        Registry::read(self.db(), Some(tables)).await
    }

    /// Returns the stream table of this name.
    ///
    /// # Errors
    /// No stream table has that name; the server.
    pub async fn find(&self, name: &Name) -> Result<Entry> {
        self.of_names(std::slice::from_ref(name)).await?.find(name, &self.search_path).cloned()
    }

    /// Returns the stream tables of these names, in any schema, and the linked ones. If one name has no
    /// stream table, returns all, so that an error can suggest a similar name.
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

    /// Returns the plan and program of a stream table, compiled once per definition.
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

/// The search path [`SHUT`], set within each transaction where each may have another server process.
const SHUT_LOCALLY: &str = "SET LOCAL search_path = pg_catalog, pg_temp";

/// Makes the server end the statement of a refresher that was killed. A server whose platform cannot tell
/// refuses the setting, and there the statement runs to its end.
const CHECKED: &str = "SET LOCAL client_connection_check_interval = '1s'";

/// Turns compilation off. The questions about many stream tables are long and quick: compiling them, or
/// planning them again for each list of tables, takes longer than running them.
const UNCOMPILED: &str = "SET LOCAL jit = off";

/// Applies settings to the session. The server process belongs to this connection as long as it lasts, so
/// settings and prepared statements stay.
async fn keep<C: Connection>(connection: &mut C, prepared: bool) {
    for local in [CHECKED, UNCOMPILED] {
        let _ = db(connection).set(&local.replacen("SET LOCAL ", "", 1)).await;
    }
    if prepared {
        // Generic plans harm nobody else, since no other client gets this server process.
        let _ = db(connection).set("plan_cache_mode = force_generic_plan").await;
        connection.keep_prepared();
    }
}

/// Lifts settings of the role or the database that would end a session between two statements of a refresh,
/// or keep it from reading the catalog's views. A timeout for sessions that are idle in a transaction becomes
/// at least a minute.
async fn lift_session_limits<C: Connection>(connection: &C, idle_ms: i32, restricted: Option<&str>) {
    if (1..60_000).contains(&idle_ms) {
        let _ = db(connection).set("idle_in_transaction_session_timeout = '1min'").await;
    }
    if restricted.is_some_and(|kinds| !kinds.is_empty()) {
        let _ = db(connection).set("restrict_nonsystem_relation_kind = ''").await;
    }
}

/// Applies settings within each transaction, since another client may get the server process after it.
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

/// Returns a connection as everything but its driver speaks to it.
fn db<C: Connection>(connection: &C) -> &dyn Connection {
    connection
}
