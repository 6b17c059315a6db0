//! `trickle refresh`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::{Output, milliseconds};
use crate::server;
use serde_json::{Value, json};
use std::time::Duration;
use trickle_client::{RefreshOptions, Refreshed};
use trickle_core::refresh::Phases;
use trickle_engine::words::duration;

/// Bring stream tables up to date, together with the stream tables that they read.
///
/// Stream tables that read each other are refreshed in one transaction, over one snapshot. Without a name,
/// all stream tables of the current role that are not suspended are refreshed.
///
/// Exit code 1: a refresh failed; stream tables that are not linked to it were still refreshed.
#[derive(Debug, clap::Args)]
pub(crate) struct Refresh {
    /// Stream tables to refresh [default: all of the current role that are not suspended].
    #[arg(add = super::completions::stream_tables())]
    names: Vec<String>,
    /// Refresh all stream tables of the current role that are not suspended.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Recompute the stream tables, even if nothing changed.
    #[arg(long)]
    full: bool,
}

impl Run for Refresh {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let names = server::names(&self.names)?;
        let (mut trickle, meter) = server::open(output).await?;
        if !output.settings()?.enabled() && !output.is_quiet() {
            output
                .remark("notice: enabled is false, so trickle run refreshes nothing; this refresh is done\n");
        }
        meter.begin("refreshing");
        let options = RefreshOptions { full: self.full, ..RefreshOptions::default() };
        let left = if names.is_empty() { trickle.suspended().await? } else { Vec::new() };
        let groups = trickle.refresh_apart(&names, &options).await?;
        drop(trickle);
        drop(meter);
        let (mut done, mut answer) = (Vec::new(), Answer::Yes);
        for group in groups {
            match group {
                Ok(members) => done.extend(members),
                Err(e) => {
                    output.fail(&Failure::from(e));
                    answer = Answer::No;
                }
            }
        }
        let left: Vec<String> =
            left.into_iter().filter(|name| done.iter().all(|r| r.report.name != *name)).collect();
        show(&done, output);
        if !left.is_empty() && !output.is_quiet() {
            output.remark(&format!(
                "left out, since suspended: {}; trickle resume puts them back, trickle refresh NAME refreshes one\n",
                left.join(", ")
            ));
        }
        Ok(answer)
    }
}

/// Returns the time of each phase. It is the time of this stream table, plus the time that the run spent once
/// for all of its stream tables.
fn phases(r: &Refreshed) -> [(&'static str, Duration); 5] {
    let (own, shared) = (&r.report.phases, &r.shared);
    let of = |phase: fn(&Phases) -> u64| Duration::from_micros(phase(own).saturating_add(phase(shared)));
    [
        ("wait", of(|p| p.wait)),
        ("decide", of(|p| p.decide)),
        ("generate", of(|p| p.generate)),
        ("execute", of(|p| p.execute)),
        ("cleanup", of(|p| p.cleanup)),
    ]
}

fn took(r: &Refreshed) -> Duration {
    phases(r).iter().map(|(_, took)| *took).sum()
}

fn document(r: &Refreshed) -> Value {
    let m = &r.report;
    let phase = |(name, took): (&str, Duration)| (name.to_owned(), json!(milliseconds(took)));
    json!({
        "name": m.name, "action": m.action.name(), "reason": m.reason, "rows_inserted": m.rows_inserted,
        "rows_updated": m.rows_updated, "rows_deleted": m.rows_deleted, "delta_rows": m.delta_rows,
        "ms": milliseconds(took(r)),
        "phase_ms": phases(r).into_iter().map(phase).collect::<serde_json::Map<_, _>>(),
    })
}

fn show(done: &[Refreshed], output: &mut Output) {
    if output.is_json() {
        output.document(&done.iter().map(document).collect());
        return;
    }
    if output.is_quiet() {
        return;
    }
    if done.is_empty() {
        output.print("nothing was refreshed\n");
        return;
    }
    let row = |r: &Refreshed| {
        let m = &r.report;
        [
            m.name.clone(),
            m.action.name().to_owned(),
            m.delta_rows.to_string(),
            format!("+{} ~{} -{}", m.rows_inserted, m.rows_updated, m.rows_deleted),
            duration(took(r)),
            m.reason.clone(),
        ]
        .map(|text| (text, None))
    };
    let head = ["stream table", "action", "changes", "rows", "took", "why"];
    output.table(head, done.iter().map(row).collect());
}
