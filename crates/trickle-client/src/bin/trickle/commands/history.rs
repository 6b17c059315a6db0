//! `trickle history`

use super::{Answer, Run};
use crate::failure::Failure;
use crate::output::{Output, Tone};
use crate::server;
use serde_json::json;
use std::time::Duration;
use trickle_client::{Ending, HistoryEntry, Name};
use trickle_engine::words::duration;

/// Show the last refreshes of a stream table, newest first.
#[derive(Debug, clap::Args)]
pub(crate) struct History {
    /// Name of the stream table.
    #[arg(add = super::completions::stream_tables())]
    name: String,
    /// Number of refreshes to show.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

impl Run for History {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let name = Name::parse(&self.name)?;
        let (trickle, _) = server::open(output).await?;
        let all = trickle.history(&name, self.limit).await?;
        if output.is_json() {
            output.document(&json!(all));
        } else if all.is_empty() {
            output.print(format!("{name} was never refreshed\n"));
        } else {
            let head = ["started", "action", "by", "changes", "rows", "took", "lag", "why"];
            output.table(head, all.iter().map(row).collect());
        }
        Ok(Answer::Yes)
    }
}

fn row(h: &HistoryEntry) -> [(String, Option<Tone>); 8] {
    let failed = h.status == Ending::Failed;
    let number = |n: Option<i64>| n.map_or_else(|| "–".to_owned(), |n| n.to_string());
    let rows = match (h.rows_inserted, h.rows_updated, h.rows_deleted) {
        (Some(i), Some(u), Some(d)) => format!("+{i} ~{u} -{d}"),
        _ => "–".to_owned(),
    };
    // The time is cut to whole seconds, which are enough for people.
    let started = h.start_time.split('.').next().unwrap_or_default().replace('T', " ");
    let why = if failed { h.error_message.clone() } else { h.strategy_reason.clone() };
    [
        (started, None),
        (if failed { h.status.name() } else { h.action.name() }.to_owned(), failed.then_some(Tone::Bad)),
        (h.initiated_by.to_string(), None),
        (number(h.delta_row_count), None),
        (rows, None),
        (took(h), None),
        (milliseconds(h.lag_ms), None),
        (why.unwrap_or_default(), None),
    ]
}

/// Describes the time of all phases of a refresh together.
fn took(h: &HistoryEntry) -> String {
    let phases = h.phase_ms.as_ref().and_then(|p| p.as_object());
    let ms = phases.map(|p| p.values().filter_map(serde_json::Value::as_f64).sum::<f64>());
    milliseconds(ms)
}

fn milliseconds(ms: Option<f64>) -> String {
    let took = ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
    took.map_or_else(|| "–".to_owned(), duration)
}
