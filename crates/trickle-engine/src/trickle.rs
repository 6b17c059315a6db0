//! The main type of the engine: one connection, and trickle's operations over it.

use crate::cache::ConnectionCache;
use crate::db::{Connection, Connections, RefreshDriver, Sent};
use crate::error::{Error, Result};
use crate::give_way::Yielding;
use crate::names::Name;
use crate::progress::{Onlooker, Progress, Quiet, Tally};
use crate::registry::{Entry, Registry};
use crate::say::Voice;
use crate::security::SHUT;
use crate::settings::Settings;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use trickle_core::catalog::TableId;

/// A connection to a database with a trickle catalog.
pub struct Trickle<C> {
    pub(crate) connection: C,
    pub(crate) settings: Settings,
    pub(crate) progress: Arc<dyn Progress>,
    /// The factory of further connections like this one.
    pub(crate) connections: Option<Arc<dyn Connections>>,
    pub(crate) tally: Arc<Tally>,
    /// The number of the server process of the connection; 0 where it is not known.
    pid: Arc<AtomicI32>,
    /// The handle by which the running refresh of this connection is asked to give way.
    pub(crate) yielding: Yielding,
    /// The major version of the server.
    pub(crate) server: u32,
    /// The search path that the connection had at the beginning, as schemas. Queries of users are read under
    /// this path. Trickle's own statements run under [`SHUT`], which a pooled connection sets within each
    /// transaction.
    pub(crate) search_path: Vec<String>,
    pub(crate) cache: ConnectionCache,
}

impl<C: RefreshDriver> Trickle<C> {
    /// Returns the stream table that the last refresh suspended because it cannot be planned any more. If
    /// the transaction of that refresh is rolled back by its error, the suspension is undone, and another
    /// transaction has to suspend the stream table.
    pub fn unplannable(&self) -> Option<TableId> {
        self.cache.unplannable
    }

    /// Sets the search path under which later queries of users are read, instead of the one that the
    /// connection had at the beginning.
    pub fn read_under(&mut self, search_path: &[&str]) {
        self.search_path = search_path.iter().map(|s| (*s).to_owned()).collect();
    }

    /// Opens trickle over a connection to a database that may have no catalog, for [`Trickle::init`].
    ///
    /// # Errors
    /// The server is older than 15.
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
        // In a caller's transaction the connection cannot begin its own transactions, so it cannot set
        // anything in each of them.
        if pooled || !settings.use_prepared_statements && connection.callers().is_none() {
            share(&mut connection).await;
        } else {
            keep(&mut connection, settings.use_prepared_statements).await;
            lift_session_limits(&connection, row.get(3), row.get(4)).await;
            // The driver keeps the setting in force, even if code of users sets it otherwise in refreshes.
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
            cache: ConnectionCache::default(),
        })
    }

    /// Uses facts that were learnt earlier over the same connection.
    #[must_use]
    pub fn with_cache(mut self, cache: ConnectionCache) -> Trickle<C> {
        self.cache = cache;
        self
    }

    /// Returns the learnt facts, and drops the connection.
    pub fn into_cache(self) -> ConnectionCache {
        self.cache
    }

    /// Reports the progress of long work to `progress`.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<dyn Progress>) -> Trickle<C> {
        self.progress = progress;
        self
    }

    /// Lets the engine open more connections for the first fill of a large stream table, and to observe long
    /// work. These connections must lead to the same database as the same role.
    #[must_use]
    pub fn with_connections(mut self, connections: Arc<dyn Connections>) -> Trickle<C> {
        self.connections = Some(connections);
        self
    }

    /// Returns a handle by which another connection makes refreshes of this one give way
    /// ([`give_way`](crate::give_way)).
    pub fn yielding(&self) -> Yielding {
        self.yielding.clone()
    }

    /// Returns an observer of work on this connection that writes `table`.
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

    /// Returns the number of statements that were sent, and how many of these statements were prepared
    /// before.
    pub fn statements(&self) -> Sent {
        self.connection.sent()
    }

    /// Returns the connection. Statements that are prepared on the connection get plans for any values
    /// (`plan_cache_mode`). Names without a schema mean the server's own objects (`search_path`).
    pub fn connection(&self) -> &C {
        &self.connection
    }
    /// Returns the connection as the trait object that the engine uses.
    pub fn db(&self) -> &dyn Connection {
        &self.connection
    }
    /// Returns the connection as a mutable trait object, on which a transaction can begin.
    pub(crate) fn db_mut(&mut self) -> &mut dyn Connection {
        &mut self.connection
    }
    /// Returns the language in which errors give advice.
    pub(crate) fn voice(&self) -> Voice {
        self.connection.voice()
    }
    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns all stream tables.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn registry(&self) -> Result<Registry> {
        Registry::read(self.db(), None).await
    }

    /// Returns these stream tables and all that are linked with them. The cost does not depend on the number
    /// of other stream tables.
    pub(crate) async fn linked(&self, tables: &[TableId]) -> Result<Registry> {
        Registry::read(self.db(), Some(tables)).await
    }

    /// Returns the stream table of this name.
    ///
    /// # Errors
    /// No stream table has that name; errors of the server.
    pub async fn find(&self, name: &Name) -> Result<Entry> {
        self.of_names(std::slice::from_ref(name)).await?.find(name, &self.search_path).cloned()
    }

    /// Returns the stream tables with these names, in any schema, and all that are linked with them. If no
    /// stream table has one of the names, returns all stream tables, so that an error can suggest a similar
    /// name.
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
}

/// The statement that sets the search path [`SHUT`] within a transaction, for connections on which each
/// transaction may have another server process.
const SHUT_LOCALLY: &str = "SET LOCAL search_path = pg_catalog, pg_temp";

/// The statement that makes the server end a running statement soon after its client, a refresher, was
/// killed. A server on a platform that cannot detect the loss of a client refuses the setting, and the
/// running statement runs to its end.
const CHECKED: &str = "SET LOCAL client_connection_check_interval = '1s'";

/// The statement that turns JIT compilation off. The questions about many stream tables are long texts that
/// run quickly. Compiling such a text takes longer than running it.
const UNCOMPILED: &str = "SET LOCAL jit = off";

/// Sets settings of the session. The server process belongs to this connection for the connection's
/// lifetime, so settings and prepared statements stay in it.
async fn keep<C: RefreshDriver>(connection: &mut C, prepared: bool) {
    for local in [CHECKED, UNCOMPILED] {
        let _ = db(connection).set(&local.replacen("SET LOCAL ", "", 1)).await;
    }
    if prepared {
        // Generic plans affect no other client, since no other client uses this server process.
        let _ = db(connection).set("plan_cache_mode = force_generic_plan").await;
        connection.keep_prepared();
    }
}

/// Overrides settings of the role or the database by which the server would end the session during a refresh,
/// or refuse to read the catalog's views. The timeout for sessions that are idle in a transaction becomes at
/// least a minute.
async fn lift_session_limits<C: RefreshDriver>(connection: &C, idle_ms: i32, restricted: Option<&str>) {
    if (1..60_000).contains(&idle_ms) {
        let _ = db(connection).set("idle_in_transaction_session_timeout = '1min'").await;
    }
    if restricted.is_some_and(|kinds| !kinds.is_empty()) {
        let _ = db(connection).set("restrict_nonsystem_relation_kind = ''").await;
    }
}

/// Sets settings within each transaction, since another client may use the server process after the
/// transaction.
async fn share<C: RefreshDriver>(connection: &mut C) {
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

/// Returns a connection as the trait object that the engine uses.
fn db<C: RefreshDriver>(connection: &C) -> &dyn Connection {
    connection
}
