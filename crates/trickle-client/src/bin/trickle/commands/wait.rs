//! `trickle wait`

use super::status::staleness;
use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::{Output, milliseconds};
use crate::server;
use serde_json::json;
use std::time::Duration;
use trickle_client::Activity;
use trickle_client::{Name, Refresher, Status, Trickle};
use trickle_core::schedule::Schedule;
use trickle_engine::words::{count, duration};

/// Wait until all changes that were committed before are visible in a stream table.
///
/// The command itself refreshes nothing: trickle run or trickle refresh applies the changes.
///
/// Exit code 1: the changes are not visible in time.
#[derive(Debug, clap::Args)]
pub(crate) struct Wait {
    /// Name of the stream table.
    #[arg(add = super::completions::stream_tables())]
    name: String,
    /// Longest time to wait, such as 500ms, 30s or 5m [default: no limit].
    #[arg(long, value_name = "D", value_parser = timeout)]
    timeout: Option<Duration>,
}

/// Reads a duration in the form that schedules have (`30s`), or in milliseconds (`500ms`).
pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    if let Some(ms) = text.strip_suffix("ms") {
        return ms.parse().map(Duration::from_millis).map_err(|_| "write milliseconds as 500ms".to_owned());
    }
    match Schedule::parse(text) {
        Ok(Schedule::Every(d)) => Ok(d),
        _ => Err("write a duration such as 500ms, 30s, 5m or 1h30m".to_owned()),
    }
}

impl Run for Wait {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let name = Name::parse(&self.name)?;
        let (mut trickle, meter) = server::open(output).await?;
        meter.begin(format!("waiting for {name}"));
        let waited = trickle.wait(&name, self.timeout).await?;
        if waited.visible {
            if output.is_json() {
                let ms = milliseconds(waited.waited);
                output.document(&json!({"name": name.to_string(), "visible": true, "ms": ms}));
            } else if !output.is_quiet() {
                output.print(format!("{name} is up to date after {}\n", duration(waited.waited)));
            }
            return Ok(Answer::Yes);
        }
        let (behind, hint) = behind(&mut trickle, &name).await?;
        let waited = duration(waited.waited);
        Err(Failure::failed(format!("{name} is not up to date after {waited}: {behind}")).hint(hint))
    }
}

/// Returns a description of the changes that a stream table does not show yet, and advice on what to do.
async fn behind(trickle: &mut Trickle, name: &Name) -> Result<(String, String), Failure> {
    let refresher = trickle.refresher().await?;
    let all = trickle.status(std::slice::from_ref(name)).await?;
    let Some(s) = all.first() else { return Err(Failure::failed(format!("{name} is gone"))) };
    let pending = match s.pending_changes {
        Some(n) if n > 0 => {
            count(usize::try_from(n).unwrap_or(0), "change is pending", "changes are pending")
        }
        _ => "it is to be computed anew".to_owned(),
    };
    let stale = match staleness(s) {
        stale if s.data_timestamp.is_some() => format!("{pending}, its data is {stale} old"),
        never => format!("{pending}, {never}"),
    };
    Ok((stale, advice(s, &refresher)))
}

fn advice(s: &Status, refresher: &Refresher) -> String {
    let name = &s.name;
    match (s.status, &s.schedule, refresher.is_running()) {
        (Activity::Suspended, ..) => {
            format!("It is suspended: trickle alter {name} --resume takes it up again.")
        }
        (_, None, _) => format!("It has no schedule: trickle refresh {name} brings it up to date."),
        (_, _, false) => {
            format!("No refresher seems to run: start trickle run, or use trickle refresh {name}.")
        }
        (_, _, true) => {
            format!("A refresher is running: trickle status {name} and trickle doctor say what holds it up.")
        }
    }
}
