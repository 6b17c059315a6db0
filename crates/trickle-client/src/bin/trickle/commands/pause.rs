//! `trickle pause`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::Output;
use crate::server;
use serde_json::json;

/// Stop refreshing stream tables on schedule, for example during a deployment; their changes are still
/// captured.
///
/// Without a name, all stream tables of the current role are paused. trickle refresh still refreshes them by
/// hand; trickle resume puts them back on schedule.
#[derive(Debug, clap::Args)]
pub(crate) struct Pause {
    /// Stream tables to pause [default: all of the current role].
    #[arg(add = super::completions::stream_tables())]
    names: Vec<String>,
}

impl Run for Pause {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        set(&self.names, true, output).await
    }
}

/// Pauses or resumes stream tables, and shows the names of the changed stream tables.
pub(super) async fn set(names: &[String], paused: bool, output: &mut Output) -> Result<Answer, Failure> {
    let names = server::names(names)?;
    let (mut trickle, meter) = server::open(output).await?;
    meter.begin(if paused { "pausing" } else { "resuming" });
    let wanted = (!names.is_empty()).then_some(&*names);
    let done = trickle.set_suspended(wanted, paused).await?;
    drop((trickle, meter));
    if output.is_json() {
        let one = |name: &String| json!({"name": name, "paused": paused});
        output.document(&done.iter().map(one).collect());
    } else if !output.is_quiet() {
        let way_on =
            if paused { "paused; trickle resume puts it back on schedule" } else { "on schedule again" };
        match done.is_empty() {
            true => output.print("nothing was changed\n"),
            false => done.iter().for_each(|name| output.print(format!("{name}: {way_on}\n"))),
        }
    }
    Ok(Answer::Yes)
}
