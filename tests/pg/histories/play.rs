//! Plays a history on a private server, and reports the fault that an action shows.

use super::actions::{Action, Beside, History, WORLD};
use crate::support::private::connect;
use crate::support::{Driver, count, name, pid, run, sql_api};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use trickle_client::capture::CaptureOptions;
use trickle_client::registry::{Entry, shown};
use trickle_client::throwaway::Server;
use trickle_client::{
    Alteration, Error, IfExists, Name, NewStreamTable, RefreshOptions, Session, Settings, Trickle,
};
use trickle_core::cdc::Mode;
use trickle_core::cost::Force;

/// Number of compared results in all histories so far. A run that compares few results proves little.
pub(super) static COMPARED: Tally = Tally::new();
/// Number of refreshes and checks in all histories so far that failed for an accepted reason.
pub(super) static EXCUSED: Tally = Tally::new();

pub(super) struct Tally(AtomicU64);

impl Tally {
    const fn new() -> Tally {
        Tally(AtomicU64::new(0))
    }
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A statement that makes waits for locks short, since one thread plays all sessions.
const SHORT: &str = "SET lock_timeout = '150ms'";

/// A statement that creates the role `h_app`, which some actions use. The role is not a superuser.
const ROLE: &str = "DO $$ BEGIN IF to_regrole('h_app') IS NULL THEN CREATE ROLE h_app; END IF; END $$";

/// Rolls back the prepared transactions of this database.
async fn without_prepared(s: &Session) {
    let text = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()";
    for r in s.client().query(text, &[]).await.unwrap() {
        run(s, &format!("ROLLBACK PREPARED '{}'", r.get::<_, String>(0))).await;
    }
}

pub(super) struct Play<'s> {
    server: &'s mut Server,
    database: String,
    settings: Settings,
    by_sql: bool,
    t: Driver,
    writers: [Writer; 2],
    admin: Session,
}

impl<'s> Play<'s> {
    pub(super) async fn begin(server: &'s mut Server, of: &History) -> Play<'s> {
        let settings = Settings {
            force: (!of.is_free).then_some(Force::Incremental),
            capture: CaptureOptions {
                mode: if of.by_row { Mode::Row } else { Mode::Statement },
                unlogged: of.unlogged,
            },
            segment_bytes: if of.short { 8192 } else { Settings::default().segment_bytes },
            patience: trickle_client::locks::Patience {
                lock_timeout: Duration::from_millis(100),
                attempts: 2,
                pause: Duration::from_millis(10),
            },
            lock_timeout_ms: 150,
            attempts: 2,
            ..Settings::default()
        };
        let first = connect(server, "postgres").await;
        run(&first, ROLE).await;
        for r in first
            .client()
            .query("SELECT datname FROM pg_database WHERE datname ~ '^h[0-9]'", &[])
            .await
            .unwrap()
        {
            let left: String = r.get(0);
            without_prepared(&connect(server, &left).await).await;
            run(&first, &format!("DROP DATABASE {left} WITH (FORCE)")).await;
        }
        let database = "h0".to_owned();
        run(&first, "CREATE DATABASE h0").await;
        let s = connect(server, &database).await;
        run(&s, WORLD).await;
        let by_sql = sql_api::is_meant();
        if by_sql {
            sql_api::install(&s, &settings).await;
        }
        let t = connected(server, &database, &settings, by_sql).await.unwrap();
        let writers = [writer(server, &database).await, writer(server, &database).await];
        let admin = waiting_shortly(server, &database).await;
        Play { server, database, settings, by_sql, t, writers, admin }
    }

    async fn reconnect(&mut self) -> Result<(), String> {
        self.t = connected(self.server, &self.database, &self.settings, self.by_sql).await?;
        Ok(())
    }

    async fn reconnect_all(&mut self) -> Result<(), String> {
        for w in &mut self.writers {
            *w = writer(self.server, &self.database).await;
        }
        self.admin = waiting_shortly(self.server, &self.database).await;
        self.reconnect().await
    }

    /// Does one action. An error names the fault that the action showed.
    pub(super) async fn act(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Write(n, sql) => blamed(self.writers[*n].session.client().batch_execute(sql).await, sql),
            Action::Admin(sql) => blamed(self.admin.client().batch_execute(sql).await, sql),
            Action::Create { name: what, query, mode, replace } => {
                let if_exists = if *replace { IfExists::Replace } else { IfExists::Fail };
                let new = NewStreamTable {
                    mode: Some(*mode),
                    if_exists,
                    ..NewStreamTable::new(name(what), query.as_str())
                };
                self.t.create(&new).await.map(drop).or_else(|e| excused(&e))
            }
            Action::Drop(what) => self.t.drop(&name(what), true).await.map(drop).or_else(|e| excused(&e)),
            Action::Mode(what, mode) => {
                let wanted = Alteration { mode: Some(*mode), ..Alteration::default() };
                self.t.alter(&name(what), &wanted).await.map(drop).or_else(|e| excused(&e))
            }
            Action::Suspend(what, suspended) => {
                let wanted = Alteration { suspended: Some(*suspended), ..Alteration::default() };
                self.t.alter(&name(what), &wanted).await.map(drop).or_else(|e| excused(&e))
            }
            Action::Refresh { name: what, full } => self.refreshed(*what, *full).await,
            Action::Race(after, beside) => self.race(Duration::from_millis(*after), beside).await,
            Action::Kill(n) => {
                let pid = self.writers[*n].pid;
                let _ = self.admin.client().query("SELECT pg_terminate_backend($1, 10000)", &[&pid]).await;
                self.writers[*n] = writer(self.server, &self.database).await;
                Ok(())
            }
            Action::Reconnect => self.reconnect().await,
            Action::Crash => {
                self.server.crash().map_err(|e| e.to_string())?;
                self.server.ready().await.map_err(|e| e.to_string())?;
                self.reconnect_all().await
            }
            Action::Dump => self.dumped().await,
            Action::Move => self.moved().await,
        }
    }

    /// Dumps the database, restores it under another name, and continues in the restored database.
    async fn dumped(&mut self) -> Result<(), String> {
        for w in &mut self.writers {
            *w = writer(self.server, &self.database).await;
        }
        without_prepared(&self.admin).await;
        let (from, n) = (self.database.clone(), self.database[1..].parse::<u32>().unwrap_or_default());
        let to = format!("h{}", n + 1);
        let file = self.server.directory().join("dump").display().to_string();
        tool(self.server, "pg_dump", &["--lock-wait-timeout=2000", "-Fc", "-f", &file, &from])?;
        let first = connect(self.server, "postgres").await;
        run(&first, &format!("CREATE DATABASE {to} TEMPLATE template0")).await;
        let restored = tool(self.server, "pg_restore", &["--exit-on-error", "-d", &to, &file]);
        std::fs::remove_file(&file).map_err(|e| e.to_string())?;
        restored?;
        self.database = to;
        if self.by_sql {
            let s = connect(self.server, &self.database).await;
            sql_api::install(&s, &self.settings).await;
            run(&s, "SELECT pgtrickle.rehome()").await;
        }
        self.reconnect_all().await
    }

    /// Moves the catalog from the program to the extension, or back. A run for the program alone moves no
    /// catalog, since the server may have an extension of another build.
    async fn moved(&mut self) -> Result<(), String> {
        if !sql_api::is_meant() {
            return Ok(());
        }
        let s = connect(self.server, &self.database).await;
        if self.by_sql {
            let left = "SELECT pgtrickle.release_catalog(); DROP EXTENSION pg_trickle";
            let short = format!("{SHORT}; BEGIN; {left}; COMMIT");
            if let Err(e) = s.client().batch_execute(&short).await {
                let busy = e.code().is_some_and(|c| ["55P03", "40P01"].contains(&c.code()));
                return if busy { Ok(()) } else { Err(format!("the extension cannot be left: {e:?}")) };
            }
        } else {
            run(&s, "CREATE SCHEMA IF NOT EXISTS extensions").await;
            let made = format!("{SHORT}; CREATE EXTENSION pg_trickle SCHEMA extensions");
            if let Err(e) = s.client().batch_execute(&made).await {
                let busy = e.code().is_some_and(|c| ["55P03", "40P01"].contains(&c.code()));
                return if busy { Ok(()) } else { Err(format!("the extension cannot be made: {e:?}")) };
            }
            sql_api::install(&s, &self.settings).await;
        }
        self.by_sql = !self.by_sql;
        self.reconnect_all().await
    }

    /// Refreshes all stream tables, and does another action after the given time. Chance decides which step
    /// the refresh has reached by then. Both actions may be refused, but not with an internal error.
    async fn race(&mut self, after: Duration, beside: &Beside) -> Result<(), String> {
        let options = RefreshOptions::default();
        let pid = pid(self.t.connection().client()).await;
        let refreshed = self.t.refresh_all(&options);
        match beside {
            Beside::Kill => {
                let kill = async {
                    tokio::time::sleep(after).await;
                    let ended =
                        self.admin.client().query("SELECT pg_terminate_backend($1, 10000)", &[&pid]).await;
                    ended.map(drop).map_err(|e| e.to_string())
                };
                // The driver panics when its connection breaks, as other tests expect. This test breaks the
                // connection on purpose.
                let refreshed = AssertUnwindSafe(refreshed).catch_unwind();
                let (_, killed) = tokio::join!(refreshed, kill);
                killed?;
                self.reconnect().await
            }
            Beside::Alter(sql) => {
                let alter = async {
                    tokio::time::sleep(after).await;
                    self.admin.client().batch_execute(sql).await
                };
                let (refreshed, altered) = tokio::join!(refreshed, alter);
                blamed(altered, sql)?;
                refreshed.map(drop).or_else(|e| met(&e))
            }
            Beside::Refresh => {
                let mut other = connected(self.server, &self.database, &self.settings, self.by_sql).await?;
                let again = async {
                    tokio::time::sleep(after).await;
                    other.refresh_all(&options).await
                };
                let (refreshed, again) = tokio::join!(refreshed, again);
                refreshed.map(drop).or_else(|e| met(&e))?;
                again.map(drop).or_else(|e| met(&e))
            }
        }
    }

    /// Refreshes one stream table, or all in separate calls, and compares each with its query.
    async fn refreshed(&mut self, only: Option<&str>, full: bool) -> Result<(), String> {
        let registry = match self.t.registry().await {
            Ok(registry) => registry,
            // The server cannot return the text of a view while a session has locked a table of the view.
            Err(e) if e.is_busy() => return Ok(()),
            Err(e) => return Err(format!("the catalog cannot be read: {e:?}")),
        };
        let wanted = |e: &&Entry| e.exists && only.is_none_or(|o| *e.relation.name == *o);
        let entries: Vec<Entry> = registry.entries().filter(wanted).cloned().collect();
        for e in entries {
            let of = full_name(&e);
            let options = RefreshOptions { full, ..RefreshOptions::default() };
            if let Err(error) = self.t.refresh(std::slice::from_ref(&of), &options).await {
                self.may_fail(&e, &error).await?;
                continue;
            }
            let Ok(e) = self.t.find(&of).await else { continue };
            match self.t.check(&e, 5).await {
                Ok(checked) if checked.different == 0 => COMPARED.add(1),
                Ok(checked) => return Err(format!("{of} is not its query ({}): {checked:?}", e.query)),
                Err(error) => self.may_fail(&e, &error).await?,
            }
        }
        Ok(())
    }

    /// Accepts an error of a refresh or a check in three cases. Another session held a lock or a conflicting
    /// change, the query itself fails too, or the query does not fit its sources.
    async fn may_fail(&mut self, of: &Entry, e: &Error) -> Result<(), String> {
        EXCUSED.add(1);
        let shown = shown(of);
        if e.is_busy() || e.is_transient() || ["55P03", "57014"].contains(&e.sqlstate().unwrap_or_default()) {
            return Ok(());
        }
        let text = format!("SELECT count(*) FROM ({}) q", of.query);
        let role = "SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = $1";
        let owner = self.admin.client().query_opt(role, &[&of.relation.id.0]).await;
        let owner: Option<String> = owner.ok().flatten().map(|r| r.get(0));
        let others = owner.as_deref() != Some("postgres");
        if others && !self.by_sql && e.message().contains("belongs to") {
            return Ok(());
        }
        let as_owner = owner.map_or(String::new(), |o| format!("SET LOCAL ROLE \"{o}\"; "));
        let asked = format!("BEGIN; {as_owner}{text}; COMMIT");
        let fails = self.admin.client().simple_query(&asked).await.is_err();
        let _ = self.admin.client().batch_execute("ROLLBACK").await;
        if fails || e.message().contains("cannot be kept any more") {
            return Ok(());
        }
        Err(format!("{shown} ({}) fails: {e:?}", of.query))
    }

    /// Drops all stream tables. An error names a stream table that cannot be dropped, or the number of
    /// objects that remain.
    pub(super) async fn end(mut self) -> Result<(), String> {
        self.act(&Action::Kill(0)).await?;
        self.act(&Action::Kill(1)).await?;
        without_prepared(&self.admin).await;
        run(&self.admin, "SET lock_timeout = 0; REASSIGN OWNED BY h_app TO postgres").await;
        let registry = self.t.registry().await.map_err(|e| e.to_string())?;
        for e in registry.entries() {
            let of = full_name(e);
            if let Err(error) = self.t.drop(&of, true).await
                && self.t.find(&of).await.is_ok()
            {
                return Err(format!("{of} cannot be dropped: {error:?}"));
            }
        }
        let left = "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace) \
             + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'trickle%') \
             + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'pgtrickle_changes'::regnamespace)";
        match count(&self.admin, left).await {
            0 => Ok(()),
            n => Err(format!("{n} objects are left")),
        }
    }
}

fn full_name(e: &Entry) -> Name {
    Name { schema: Some(e.relation.schema.to_string()), name: e.relation.name.to_string() }
}

async fn connected(
    server: &Server,
    database: &str,
    settings: &Settings,
    by_sql: bool,
) -> Result<Driver, String> {
    let fail = |e: Error| format!("trickle does not work in this database: {e:?}");
    let mut trickle =
        Trickle::attach(connect(server, database).await, settings.clone()).await.map_err(fail)?;
    trickle.init().await.map_err(fail)?;
    let t = Driver::through(trickle, by_sql);
    run(t.connection(), "RESET search_path").await;
    run(t.connection(), SHORT).await;
    Ok(t)
}

/// A session with its process id. A session in an aborted transaction cannot be queried for its process id.
struct Writer {
    session: Session,
    pid: i32,
}

async fn writer(server: &Server, database: &str) -> Writer {
    let session = waiting_shortly(server, database).await;
    Writer { pid: pid(session.client()).await, session }
}

async fn waiting_shortly(server: &Server, database: &str) -> Session {
    let mut config = server.config(database);
    // RESET ALL restores these settings, since they are set when the connection begins.
    config.options("-c lock_timeout=150ms -c statement_timeout=20s");
    Session::connect(&config).await.unwrap()
}

fn tool(server: &Server, tool: &str, args: &[&str]) -> Result<(), String> {
    let binary: &Path = &server.binaries().join(tool);
    let out = Command::new(binary)
        .args(["-h", &server.directory().display().to_string(), "-U", "postgres"])
        .args(args)
        .output()
        .map_err(|e| format!("{}: {e}", binary.display()))?;
    let told = String::from_utf8_lossy(&out.stderr);
    if out.status.success() { Ok(()) } else { Err(format!("{tool} {args:?}: {told}")) }
}

/// Returns an error if a writer's statement failed because of trickle. Other reasons are accepted: a fault of
/// the statement itself, a data error in an IMMEDIATE stream table's query, or a conflict between sessions.
fn blamed(done: Result<(), tokio_postgres::Error>, sql: &str) -> Result<(), String> {
    let Err(e) = done else { return Ok(()) };
    let Some(db) = e.as_db_error() else { return Err(format!("{sql}: {e:?}")) };
    let within = db.where_().unwrap_or_default();
    let (code, ours) = (db.code().code(), within.contains("pgtrickle") || db.message().contains("pgtrickle"));
    match ours && !code.starts_with("22") && !["40001", "40P01", "55P03", "57014"].contains(&code) {
        true => Err(format!("a writer fails: {sql}: {db:?}")),
        false => Ok(()),
    }
}

/// Accepts the refusal of a command, unless it is an internal error.
fn excused(e: &Error) -> Result<(), String> {
    let inside = e.message().contains("internal") || e.sqlstate() == Some("XX000") || e.is_stale();
    if inside { Err(format!("{e:?}")) } else { Ok(()) }
}

/// Accepts each error that `excused` accepts, and the error of a refresh whose source was altered again and
/// again.
fn met(e: &Error) -> Result<(), String> {
    if e.is_stale() { Ok(()) } else { excused(e) }
}
