//! `trickle run`

use super::{Answer, Run as Command};
use crate::failure::Failure;
use crate::output::Output;
use crate::seeing::reader::Reader;
use crate::seeing::{Format, Metrics, listen, told};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use trickle_client::REFRESHER;
use trickle_client::daemon::{self, Event};

/// Refresh stream tables on their schedules until told to stop.
///
/// Notices stream tables that are made, altered, suspended and resumed; survives lost connections and
/// restarts of the server. On a terminal each refresh is reported; elsewhere -v has the same effect. SIGTERM
/// and SIGINT stop the refresher: a running refresh is finished or cancelled, and no change is lost either
/// way.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Serve metrics for Prometheus (/metrics) and a status page (/) over HTTP at this address, such as
    /// 127.0.0.1:9187.
    ///
    /// Port 0 takes a free port, which is logged. Everybody who reaches the address can read names of tables
    /// and texts of errors. A request must name the server by an address, or by a name that metrics_hosts
    /// gives.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    metrics: Option<SocketAddr>,
    /// Format of the log: lines for people, or one JSON document a line.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: Format,
}

/// Reads an address of this machine, and a port, to listen on.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an address and a port such as 127.0.0.1:9187 or [::1]:9187".to_owned())
}

impl Run {
    /// Returns the format of the log.
    pub(crate) fn log_format(&self) -> Format {
        self.log_format
    }

    /// Begins to serve metrics, if the command line has `--metrics`.
    fn serve(&self, output: &Output) -> Result<Option<Arc<Metrics>>, Failure> {
        let Some(address) = self.metrics else { return Ok(None) };
        let metrics = Metrics::new().map_err(|e| Failure::failed(format!("cannot count: {e}")))?;
        let metrics = Arc::new(metrics);
        let target = output.target()?;
        let database = target.config().get_dbname().unwrap_or_default().to_owned();
        let settings = output.settings()?;
        let reader = Reader::new(target, settings.settings(), Vec::new());
        let listening = listen(address)?;
        let text = format!("status page and metrics at http://{}/", listening.address());
        // A port that the system has just chosen is logged at every level, since nobody can know it
        // otherwise.
        if address.port() == 0 {
            tracing::warn!("{text}")
        } else {
            tracing::info!("{text}")
        }
        listening.serve(metrics.clone(), reader, database, settings.metrics_hosts())?;
        Ok(Some(metrics))
    }
}

impl Command for Run {
    async fn run(self, output: &mut Output) -> Result<Answer, Failure> {
        let options = output.settings()?.daemon();
        let target = output.target()?.called(REFRESHER).impatient();
        // The first connection shows whether the settings of the connection are right. If not, the command
        // ends at once.
        drop(target.connect().await?);
        let metrics = self.serve(output)?;
        let stop = stopped()?;
        let tell = |event: Event<'_>| {
            if let Some(metrics) = &metrics {
                metrics.note(&event);
            }
            told(&event);
        };
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
