//! `trickle doctor`

mod installation;

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::{Output, Tone, duration};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_postgres::Client;

/// Check the server, the role and trickle's own things in the database, and say what to do about what is wrong.
///
/// Exit code 1: something is in the way.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {}

/// What one check found.
struct Check {
    name: &'static str,
    tone: Tone,
    found: String,
    /// What to do; empty where nothing is to be done.
    advice: String,
}

impl Check {
    fn new(name: &'static str, tone: Tone, found: impl Into<String>, advice: impl Into<String>) -> Check {
        let advice = if tone == Tone::Good { String::new() } else { advice.into() };
        Check { name, tone, found: found.into(), advice }
    }
}

impl Run for Doctor {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let target = output.target()?;
        let client = target.connect().await?;
        // The list of checks: each is one statement, and one line here.
        let mut checks = vec![
            version(&client).await?,
            role(&client).await?,
            privileges(&client).await?,
            writable(&client).await?,
            encoding(&client).await?,
            connections(&client).await?,
            transactions(&client).await?,
            prepared(&client).await?,
            clock(&client).await?,
        ];
        checks.extend(installation::checks(client, output.settings()?.enabled()).await?);
        let well = checks.iter().all(|c| c.tone != Tone::Bad);
        show(&checks, &target.describe(), output);
        Ok(if well { Answer::Yes } else { Answer::No })
    }
}

fn show(checks: &[Check], target: &str, output: &mut Output) {
    let word = |tone| match tone {
        Tone::Good => "ok",
        Tone::Warning => "warning",
        Tone::Bad => "problem",
    };
    if output.is_json() {
        let check = |c: &Check| json!({"check": c.name, "result": word(c.tone), "found": c.found, "advice": c.advice});
        output
            .document(&json!({"server": target, "checks": checks.iter().map(check).collect::<Vec<Value>>()}));
        return;
    }
    let shown = checks.iter().filter(|c| !output.is_quiet() || c.tone != Tone::Good);
    let rows: Vec<_> = shown
        .map(|c| {
            [(c.name.to_owned(), None), (word(c.tone).to_owned(), Some(c.tone)), (c.found.clone(), None)]
        })
        .collect();
    if !rows.is_empty() {
        output.table(["check", "result", "found"], rows);
    }
    for c in checks.iter().filter(|c| !c.advice.is_empty()) {
        output.print(format!("\n{}: {}\n", c.name, c.advice));
    }
}

async fn version(client: &Client) -> Result<Check, Failure> {
    let sql = "SELECT current_setting('server_version_num')::int / 10000, current_setting('server_version')";
    let row = client.query_one(sql, &[]).await?;
    let (major, text): (i32, String) = (row.get(0), row.get(1));
    let tone = if (15..=18).contains(&major) { Tone::Good } else { Tone::Bad };
    let found = format!("PostgreSQL {text}");
    Ok(Check::new("version", tone, found, "trickle works with PostgreSQL 15 to 18."))
}

async fn role(client: &Client) -> Result<Check, Failure> {
    let sql = "SELECT current_user::text, rolsuper FROM pg_roles WHERE rolname = current_user";
    let row = client.query_one(sql, &[]).await?;
    let (name, superuser): (String, bool) = (row.get(0), row.get(1));
    if superuser {
        let advice = "Let the role that owns the tables run trickle; it needs no superuser, and refuses to run another \
                      role's query as one.";
        return Ok(Check::new("role", Tone::Warning, format!("{name}, a superuser"), advice));
    }
    Ok(Check::new("role", Tone::Good, name, ""))
}

async fn privileges(client: &Client) -> Result<Check, Failure> {
    let sql = "SELECT has_database_privilege(current_database(), 'CREATE'), \
               (SELECT count(*) FROM pg_namespace WHERE nspname IN ('pgtrickle', 'pgtrickle_changes') \
                AND pg_has_role(nspowner, 'USAGE')), has_database_privilege(current_database(), 'TEMPORARY'), \
               format('ON DATABASE %I TO %I', current_database(), current_user)";
    let row = client.query_one(sql, &[]).await?;
    let (create, owned, temporary): (bool, i64, bool) = (row.get(0), row.get(1), row.get(2));
    let (tone, found, lacking) = match (create, owned, temporary) {
        (true, _, true) => (Tone::Good, "may create schemas", ""),
        (false, 2, true) => (Tone::Good, "owns trickle's schemas", ""),
        (true, _, false) | (false, 2, false) => (Tone::Bad, "may not create temporary tables", "TEMPORARY"),
        (false, _, true) => (Tone::Bad, "may not create schemas", "CREATE"),
        (false, _, false) => {
            (Tone::Bad, "may create neither schemas nor temporary tables", "CREATE, TEMPORARY")
        }
    };
    let advice = format!("As the owner of the database: GRANT {lacking} {};", row.get::<_, &str>(3));
    Ok(Check::new("privileges", tone, found, advice))
}

async fn writable(client: &Client) -> Result<Check, Failure> {
    let sql = "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool";
    let row = client.query_one(sql, &[]).await?;
    let (tone, found, advice) = match (row.get(0), row.get(1)) {
        (true, _) => {
            (Tone::Bad, "a standby, read-only", "Connect to the primary (target_session_attrs=read-write).")
        }
        (_, true) => {
            (Tone::Bad, "read-only by default", "Set default_transaction_read_only = off for this role.")
        }
        (false, false) => (Tone::Good, "yes", ""),
    };
    Ok(Check::new("writable", tone, found, advice))
}

async fn encoding(client: &Client) -> Result<Check, Failure> {
    let row = client.query_one("SELECT current_setting('server_encoding')", &[]).await?;
    let encoding: String = row.get(0);
    let tone = if matches!(encoding.as_str(), "UTF8" | "SQL_ASCII") { Tone::Good } else { Tone::Warning };
    let advice = "Texts travel as UTF-8; a character that this encoding does not have cannot be written.";
    Ok(Check::new("encoding", tone, encoding, advice))
}

async fn connections(client: &Client) -> Result<Check, Failure> {
    let sql = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
               current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint";
    let row = client.query_one(sql, &[]).await?;
    let (used, most): (i64, i64) = (row.get(0), row.get(1));
    let tone = if used * 10 < most * 9 { Tone::Good } else { Tone::Warning };
    let advice = "Nearly all connections are taken: close some, use a pooler for the others, or raise max_connections.";
    Ok(Check::new("connections", tone, format!("{used} of {most}"), advice))
}

/// A transaction that stays open keeps VACUUM from removing what refreshes replace.
const LONG: Duration = Duration::from_secs(300);

async fn transactions(client: &Client) -> Result<Check, Failure> {
    let sql = "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float8, coalesce(state, ''), \
               coalesce(application_name, '') FROM pg_stat_activity \
               WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend' \
               ORDER BY xact_start LIMIT 1";
    let Some(row) = client.query_opt(sql, &[]).await? else {
        return Ok(Check::new("long transactions", Tone::Good, "none open", ""));
    };
    let (pid, seconds, state, name): (i32, f64, String, String) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    let age = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let tone = if age < LONG { Tone::Good } else { Tone::Warning };
    let found =
        format!("the oldest is {} old: process {pid}, {state}, application \"{name}\"", duration(age));
    let advice = format!(
        "While it is open, VACUUM cannot remove old rows of stream tables and buffers, and DDL on its tables waits. Is it \
         forgotten? SELECT pg_terminate_backend({pid}) ends it."
    );
    Ok(Check::new("long transactions", tone, found, advice))
}

async fn prepared(client: &Client) -> Result<Check, Failure> {
    let sql = "SELECT gid, extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts \
               WHERE database = current_database() ORDER BY prepared LIMIT 1";
    let Some(row) = client.query_opt(sql, &[]).await? else {
        return Ok(Check::new("prepared transactions", Tone::Good, "none open", ""));
    };
    let (gid, seconds): (String, f64) = (row.get(0), row.get(1));
    let age = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let tone = if age < LONG { Tone::Good } else { Tone::Warning };
    let advice = "It holds its locks until COMMIT PREPARED or ROLLBACK PREPARED, even across a restart.";
    Ok(Check::new("prepared transactions", tone, format!("\"{gid}\", {} old", duration(age)), advice))
}

/// Freshness is measured with two clocks.
const SKEW: Duration = Duration::from_secs(2);

async fn clock(client: &Client) -> Result<Check, Failure> {
    let asked = Instant::now();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let row = client.query_one("SELECT extract(epoch FROM clock_timestamp())::float8", &[]).await?;
    let trip = asked.elapsed();
    // The server looked at its clock about half-way.
    let here = (before + trip / 2).as_secs_f64();
    let there: f64 = row.get(0);
    let skew = Duration::try_from_secs_f64((there - here).abs()).unwrap_or_default();
    let tone = if skew <= SKEW + trip { Tone::Good } else { Tone::Warning };
    let found = format!("{} from this machine's, {} away", duration(skew), duration(trip));
    Ok(Check::new("clock", tone, found, "Synchronise the clocks (NTP): staleness is off by the difference."))
}
