//! `trickle run`

use super::{Answer, Run as Command};
use crate::failure::Failure;
use crate::output::Output;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use trickle_client::daemon::{self, DaemonOptions, Event};

/// Refresh stream tables on their schedules until told to stop.
///
/// Notices stream tables that are made, altered, suspended and resumed; survives lost connections and restarts of the
/// server. SIGTERM and SIGINT stop it: a refresh at work is finished or cancelled, and nothing is lost either way.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Refreshes at one time.
    #[arg(long, value_name = "N", default_value_t = 4)]
    max_concurrent_refreshes: usize,
    /// Milliseconds between two looks for stream tables that were made or altered.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..))]
    scheduler_interval_ms: u64,
    /// Failed refreshes in a row after which a stream table is suspended; 0 for never.
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_consecutive_errors: u32,
}

impl Command for Run {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let target = output.target()?;
        // The first connection tells whether there is any sense in going on.
        drop(target.connect().await?);
        let mut options = DaemonOptions::default();
        options.scheduler.max_concurrent = self.max_concurrent_refreshes.max(1);
        options.scheduler.max_consecutive_errors = self.max_consecutive_errors;
        options.settings.max_consecutive_errors = self.max_consecutive_errors;
        options.reload = Duration::from_millis(self.scheduler_interval_ms);
        let stop = stopped()?;
        daemon::run(&target, &options, &tell, stop).await?;
        tracing::info!("stopped");
        Ok(Answer::Yes)
    }
}

fn stopped() -> Result<impl Future<Output = ()>, Failure> {
    let fail = |e| Failure::failed(format!("cannot listen for signals: {e}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(fail)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fail)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

fn tell(event: Event<'_>) {
    match event {
        Event::Connected(n) => tracing::info!("connected; {n} stream tables"),
        Event::Disconnected(e, wait) => tracing::warn!("no connection, trying again in {wait:?}: {e}"),
        Event::Failed(e) => tracing::error!("{e}"),
        Event::Foreign(names) => {
            tracing::warn!("left alone, since others own them: {}", names.join(", "));
        }
        Event::Refreshed(done) => {
            for r in done.iter().map(|d| &d.report) {
                tracing::info!(
                    "{}: {} ({} changes; +{} ~{} -{}) in {:.1} ms",
                    r.name,
                    r.action.name(),
                    r.delta_rows,
                    r.rows_inserted,
                    r.rows_updated,
                    r.rows_deleted,
                    r.phases.total() as f64 / 1e3
                );
            }
        }
    }
}
