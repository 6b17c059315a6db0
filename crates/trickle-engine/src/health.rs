//! Finds problems: checks of the server, of the role, and of trickle's own objects in the database, each with
//! advice.

mod concern;
mod installation;
mod published;

pub use concern::{Concern, OpenTransaction, open_transactions};

use crate::db::{Connection, RefreshDriver, ServerError};
use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::trickle::Trickle;
use crate::words::duration;
use std::time::Duration;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The check found nothing that the user must do.
    Good,
    /// The checked object works, but it could fail.
    Warning,
    /// The checked object does not work.
    Bad,
}

impl Verdict {
    /// Returns `ok`, `warning` or `problem`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Good => "ok",
            Verdict::Warning => "warning",
            Verdict::Bad => "problem",
        }
    }
}

/// The refresher that is meant to refresh on schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// The program, unless its settings disable it.
    Program {
        /// Whether the program's settings enable refreshes on schedule.
        enabled: bool,
    },
    /// The server, unless its settings disable it.
    Server {
        /// Whether the server's settings enable refreshes on schedule.
        enabled: bool,
    },
}

impl Scheduling {
    fn is_enabled(self) -> bool {
        let (Scheduling::Program { enabled } | Scheduling::Server { enabled }) = self;
        enabled
    }

    /// Returns the advice for a database without a refresher.
    fn advice(self) -> &'static str {
        match self {
            Scheduling::Program { enabled: true } => {
                "trickle run refreshes on schedule; start it as a service."
            }
            Scheduling::Program { enabled: false } => {
                "Take enabled = false out of trickle.toml, and start trickle run again."
            }
            Scheduling::Server { enabled: true } => {
                "Put pg_trickle into shared_preload_libraries and start the server again, or start the program's trickle run."
            }
            Scheduling::Server { enabled: false } => {
                "Set pg_trickle.enabled = on, and reload the configuration."
            }
        }
    }
}

/// The findings of one check.
#[derive(Clone, Debug)]
pub struct Check {
    /// The name of the check.
    pub name: &'static str,
    /// The result of the check.
    pub verdict: Verdict,
    /// The facts that the check found.
    pub found: String,
    /// The advice to the user; empty where there is nothing to do.
    pub advice: String,
}

impl Check {
    /// Makes the findings of a check from its result, its facts and its advice. The advice is left out where
    /// the result is [`Verdict::Good`].
    pub fn new(
        name: &'static str,
        verdict: Verdict,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        let advice = if verdict == Verdict::Good { String::new() } else { advice.into() };
        Check { name, verdict, found: found.into(), advice }
    }
}

fn asking(e: ServerError) -> Error {
    Error::server("look at the server", e)
}

/// Checks whether the server and the role meet the requirements of trickle. A transaction that has been open
/// for `long` or longer is reported.
///
/// # Errors
/// The errors of the statements.
pub async fn of_server(db: &dyn Connection, long: Duration) -> Result<Vec<Check>> {
    // Each line of this list is one check, which runs one statement.
    Ok(vec![
        version(db).await?,
        way(db).await?,
        role(db).await?,
        privileges(db).await?,
        writable(db).await?,
        encoding(db).await?,
        connections(db).await?,
        transactions(db, long).await?,
        prepared(db, long).await?,
    ])
}

/// Checks trickle's own objects in the database. Where the catalog cannot be used, only the catalog is
/// checked.
///
/// # Errors
/// The errors of the statements.
pub async fn of_installation<C: RefreshDriver>(connection: C, by: Scheduling) -> Result<Vec<Check>> {
    let (found, usable) = installation::found(&connection).await?;
    let mut all = vec![found];
    if usable {
        all.extend(Trickle::open(connection, Settings::default()).await?.health(by).await?);
    }
    Ok(all)
}

async fn version(db: &dyn Connection) -> Result<Check> {
    let sql = "SELECT current_setting('server_version_num')::int / 10000, current_setting('server_version')";
    let row = db.query_one(sql, &[]).await.map_err(asking)?;
    let (major, text): (i32, String) = (row.get(0), row.get(1));
    let verdict = if (15..=18).contains(&major) { Verdict::Good } else { Verdict::Bad };
    let found = format!("PostgreSQL {text}");
    Ok(Check::new("version", verdict, found, "trickle works with PostgreSQL 15 to 18."))
}

/// Checks whether there is a pooler between this connection and the server, by
/// [`greeted`](crate::db::Host::greeted). A pooler that passes on the process number of the server is not
/// noticed.
async fn way(db: &dyn Connection) -> Result<Check> {
    let row = db.query_one("SELECT pg_backend_pid()", &[]).await.map_err(asking)?;
    let direct = db.greeted().is_none_or(|told| told == row.get::<i32>(0));
    let found = if direct {
        "direct: what comes again stays prepared"
    } else {
        "through a pooler: each transaction may have another server process, so nothing stays prepared"
    };
    Ok(Check::new("connection", Verdict::Good, found, ""))
}

async fn role(db: &dyn Connection) -> Result<Check> {
    let sql = "SELECT current_user::text, rolsuper FROM pg_roles WHERE rolname = current_user";
    let row = db.query_one(sql, &[]).await.map_err(asking)?;
    let (name, superuser): (String, bool) = (row.get(0), row.get(1));
    if superuser {
        let advice = "Let the role that owns the tables run trickle; it needs no superuser, and refuses to run another \
                      role's query as one.";
        return Ok(Check::new("role", Verdict::Warning, format!("{name}, a superuser"), advice));
    }
    Ok(Check::new("role", Verdict::Good, name, ""))
}

async fn privileges(db: &dyn Connection) -> Result<Check> {
    let sql = "SELECT has_database_privilege(current_database(), 'CREATE'), \
               (SELECT count(*) FROM pg_namespace WHERE nspname IN ('pgtrickle', 'pgtrickle_changes') \
                AND (pg_has_role(nspowner, 'USAGE') OR has_schema_privilege(oid, 'USAGE') \
                AND (nspname = 'pgtrickle' OR has_schema_privilege(oid, 'CREATE')))), has_database_privilege(current_database(), 'TEMPORARY'), \
               format('ON DATABASE %I TO %I', current_database(), current_user)";
    let row = db.query_one(sql, &[]).await.map_err(asking)?;
    let (create, used, temporary): (bool, i64, bool) = (row.get(0), row.get(1), row.get(2));
    let (verdict, found, lacking) = match (create, used, temporary) {
        (true, _, true) => (Verdict::Good, "may create schemas", ""),
        (false, 2, true) => (Verdict::Good, "may use trickle's schemas", ""),
        (true, _, false) | (false, 2, false) => {
            (Verdict::Bad, "may not create temporary tables", "TEMPORARY")
        }
        (false, _, true) => (Verdict::Bad, "may not create schemas", "CREATE"),
        (false, _, false) => {
            (Verdict::Bad, "may create neither schemas nor temporary tables", "CREATE, TEMPORARY")
        }
    };
    let advice = format!("As the owner of the database: GRANT {lacking} {};", row.get::<&str>(3));
    Ok(Check::new("privileges", verdict, found, advice))
}

async fn writable(db: &dyn Connection) -> Result<Check> {
    let sql = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool";
    let row = db.query_one(sql, &[]).await.map_err(asking)?;
    let (verdict, found, advice) = match (row.get(0), row.get(1)) {
        (true, _) => (
            Verdict::Bad,
            "a standby, read-only",
            "Connect to the primary (target_session_attrs=read-write).",
        ),
        (_, true) => {
            (Verdict::Bad, "read-only by default", "Set default_transaction_read_only = off for this role.")
        }
        (false, false) => (Verdict::Good, "yes", ""),
    };
    Ok(Check::new("writable", verdict, found, advice))
}

async fn encoding(db: &dyn Connection) -> Result<Check> {
    let row = db.query_one("SELECT current_setting('server_encoding')", &[]).await.map_err(asking)?;
    let encoding: String = row.get(0);
    let verdict =
        if matches!(encoding.as_str(), "UTF8" | "SQL_ASCII") { Verdict::Good } else { Verdict::Warning };
    let advice = "Texts travel as UTF-8; a character that this encoding does not have cannot be written.";
    Ok(Check::new("encoding", verdict, encoding, advice))
}

async fn connections(db: &dyn Connection) -> Result<Check> {
    let sql = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
               current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint";
    let row = db.query_one(sql, &[]).await.map_err(asking)?;
    let (used, most): (i64, i64) = (row.get(0), row.get(1));
    let verdict = if used * 10 < most * 9 { Verdict::Good } else { Verdict::Warning };
    let advice = "Nearly all connections are taken: close some, use a pooler for the others, or raise max_connections.";
    Ok(Check::new("connections", verdict, format!("{used} of {most}"), advice))
}

/// Checks for transactions that have been open for long. While such a transaction is open, VACUUM cannot
/// remove the rows that refreshes have replaced.
async fn transactions(db: &dyn Connection, long: Duration) -> Result<Check> {
    let open = open_transactions(db).await?;
    let Some(oldest) = open.first() else {
        let row = db.query_one("SELECT pg_has_role('pg_read_all_stats', 'USAGE')", &[]).await;
        let found = match row.map_err(asking)?.get(0) {
            true => "none open",
            false => "none open; those of other roles are seen with GRANT pg_read_all_stats only",
        };
        return Ok(Check::new("long transactions", Verdict::Good, found, ""));
    };
    let old: Vec<&OpenTransaction> = open.iter().filter(|o| o.age >= long).collect();
    if old.is_empty() {
        let found = format!("the oldest is {oldest}");
        return Ok(Check::new("long transactions", Verdict::Good, found, ""));
    }
    let found: Vec<String> = old.iter().map(ToString::to_string).collect();
    let ends: Vec<String> = old.iter().map(|o| format!("SELECT pg_terminate_backend({});", o.pid)).collect();
    let advice = format!(
        "While one is open, VACUUM cannot remove old rows of stream tables, changes that were applied stay in their \
         buffers, and DDL on its tables waits. Is it forgotten? {} ends it.",
        ends.join(" ")
    );
    Ok(Check::new("long transactions", Verdict::Warning, found.join("; "), advice))
}

async fn prepared(db: &dyn Connection, long: Duration) -> Result<Check> {
    let sql = "SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts \
               WHERE database = current_database() ORDER BY prepared LIMIT 1";
    let Some(row) = db.query_opt(sql, &[]).await.map_err(asking)? else {
        return Ok(Check::new("prepared transactions", Verdict::Good, "none open", ""));
    };
    let (gid, seconds): (String, f64) = (row.get(0), row.get(1));
    let age = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let verdict = if age < long { Verdict::Good } else { Verdict::Warning };
    let advice = "It holds its locks until COMMIT PREPARED or ROLLBACK PREPARED, even across a restart.";
    Ok(Check::new("prepared transactions", verdict, format!("\"{gid}\", {} old", duration(age)), advice))
}
