//! `trickle run`

use super::{Answer, Run as Command};
use crate::failure::Failure;
use crate::output::{Output, count};
use tokio::signal::unix::{SignalKind, signal};
use trickle_client::REFRESHER;
use trickle_client::daemon::{self, Event};
use trickle_core::refresh::Action;

/// Refresh stream tables on their schedules until told to stop.
///
/// Notices stream tables that are made, altered, suspended and resumed; survives lost connections and restarts of the
/// server. On a terminal it tells what each refresh did; elsewhere with -v. SIGTERM and SIGINT stop it: a refresh at work is finished or cancelled, and nothing is lost either way.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {}

impl Command for Run {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let options = output.settings()?.daemon();
        let target = output.target()?.called(REFRESHER);
        // The first connection tells whether there is any sense in going on.
        drop(target.connect().await?);
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
        Event::Disabled => tracing::warn!("nothing is refreshed: enabled is false"),
        Event::Connected(n) => {
            tracing::info!("connected: {}", count(n, "stream table", "stream tables"));
        }
        Event::Disconnected(e, wait) => tracing::warn!("no connection, trying again in {wait:?}: {e}"),
        Event::Failed(e) => tracing::error!("{e}"),
        Event::Foreign(names) => {
            tracing::warn!("left alone, since others own them: {}", names.join(", "));
        }
        Event::Refreshed(done) => {
            for r in done.iter().map(|d| &d.report).filter(|r| r.action != Action::NoData) {
                tracing::info!(
                    "{}: {} ({}; +{} ~{} -{}) in {:.1} ms",
                    r.name,
                    r.action.name(),
                    count(usize::try_from(r.delta_rows).unwrap_or(0), "change", "changes"),
                    r.rows_inserted,
                    r.rows_updated,
                    r.rows_deleted,
                    r.phases.total() as f64 / 1e3
                );
            }
        }
    }
}
