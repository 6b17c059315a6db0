//! `trickle doctor`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::{Output, Tone};
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trickle_client::Session;
use trickle_engine::Error;
use trickle_engine::db::Connection;
use trickle_engine::health::{self, Check, Scheduling, Verdict};
use trickle_engine::words::duration;

/// Check the server, the role and trickle's objects in the database, and say how to solve each problem.
///
/// Exit code 1: a problem keeps something from working.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {}

impl Run for Doctor {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let target = output.target()?;
        let session = Session::new(target.connect().await?);
        let long = output.settings()?.settings().long_transaction;
        let mut checks = health::of_server(session.db(), long).await?;
        checks.push(clock(session.db()).await?);
        let by = Scheduling::Program { enabled: output.settings()?.enabled() };
        checks.extend(health::of_installation(session, by).await?);
        let well = checks.iter().all(|c| c.verdict != Verdict::Bad);
        show(&checks, &target.describe(), output);
        Ok(if well { Answer::Yes } else { Answer::No })
    }
}

fn show(checks: &[Check], target: &str, output: &mut Output) {
    let tone = |verdict| match verdict {
        Verdict::Good => Tone::Good,
        Verdict::Warning => Tone::Warning,
        Verdict::Bad => Tone::Bad,
    };
    if output.is_json() {
        let check = |c: &Check| json!({"check": c.name, "result": c.verdict.name(), "found": c.found, "advice": c.advice});
        output
            .document(&json!({"server": target, "checks": checks.iter().map(check).collect::<Vec<Value>>()}));
        return;
    }
    let shown = checks.iter().filter(|c| !output.is_quiet() || c.verdict != Verdict::Good);
    let rows: Vec<_> = shown
        .map(|c| {
            [
                (c.name.to_owned(), None),
                (c.verdict.name().to_owned(), Some(tone(c.verdict))),
                (c.found.clone(), None),
            ]
        })
        .collect();
    if !rows.is_empty() {
        output.table(["check", "result", "found"], rows);
    }
    for c in checks.iter().filter(|c| !c.advice.is_empty()) {
        output.print(format!("\n{}: {}\n", c.name, c.advice));
    }
}

/// The largest difference of clocks without a warning. The clocks of both machines matter, since freshness is
/// measured with both.
const SKEW: Duration = Duration::from_secs(2);

async fn clock(db: &dyn Connection) -> Result<Check, Failure> {
    let asked = Instant::now();
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let row = db.query_one("SELECT extract(epoch FROM clock_timestamp())::float8", &[]).await;
    let row = row.map_err(|e| Error::server("look at the server's clock", e))?;
    let trip = asked.elapsed();
    // The server is assumed to have read its clock halfway between the sending of the query and the arrival
    // of the answer.
    let here = (before + trip / 2).as_secs_f64();
    let there: f64 = row.get(0);
    let skew = Duration::try_from_secs_f64((there - here).abs()).unwrap_or_default();
    let verdict = if skew <= SKEW + trip { Verdict::Good } else { Verdict::Warning };
    let found = format!("{} from this machine's, {} away", duration(skew), duration(trip));
    Ok(Check::new(
        "clock",
        verdict,
        found,
        "Synchronise the clocks (NTP): staleness is off by the difference.",
    ))
}
