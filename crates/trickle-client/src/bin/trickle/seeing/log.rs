//! The refresher's log: lines for people, or documents for programs.

use super::metrics::phases;
use crate::colour::stderr_colour;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use trickle_client::Refreshed;
use trickle_client::daemon::Event;
use trickle_core::refresh::Action;
use trickle_engine::words::{count, duration};

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON document a line.
    Json,
}

/// Starts to log to standard error. `refresher` is the format of a refresher's log, whose lines have times.
pub(crate) fn start(level: LevelFilter, refresher: Option<Format>) {
    let ansi = stderr_colour();
    let lines =
        || tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(ansi);
    let registry = tracing_subscriber::registry().with(level);
    // Lines of text do not repeat the fields of their span, since the line already has these facts. At the
    // level of debugging, spans are logged all the same.
    let spans = filter_fn(move |m| !m.is_span() || level >= LevelFilter::DEBUG);
    match refresher {
        None => registry.with(lines().without_time().with_filter(spans)).init(),
        Some(Format::Text) => registry.with(lines().with_filter(spans)).init(),
        Some(Format::Json) => registry.with(lines().json().with_span_list(false)).init(),
    }
}

/// Logs an event of the refresher.
pub(crate) fn told(event: &Event<'_>) {
    match event {
        Event::Disabled => tracing::warn!("nothing is refreshed: enabled is false"),
        Event::Connected(n) => {
            tracing::info!("connected: {}", count(*n, "stream table", "stream tables"));
        }
        Event::Disconnected(e, wait) => tracing::warn!("no connection, trying again in {wait:?}: {e}"),
        Event::Waiting(holder) => tracing::info!("waiting: {holder} is at work"),
        Event::Slow(slow) => {
            for s in *slow {
                tracing::warn!(
                    "{}: a refresh takes more than four fifths of its period of {}, so it comes every {} instead",
                    s.name,
                    duration(s.period),
                    duration(s.instead)
                );
            }
        }
        Event::Suspended(all) => {
            for s in *all {
                tracing::warn!("{s}; trickle alter {} --resume goes on", s.name);
            }
        }
        Event::Concerns(all) => all.iter().for_each(|c| tracing::warn!("{c}")),
        Event::Failed { error, tables } => {
            let _refresh = tracing::info_span!("refresh", table = tables.join(", ")).entered();
            // A refresh that had to wait too long for a busy table is tried again, so its failure is only a
            // warning.
            if error.is_busy() { tracing::warn!("{error}") } else { tracing::error!("{error}") }
        }
        Event::Trouble(e) => tracing::error!("{e}"),
        Event::Foreign(names) => {
            tracing::warn!("left alone, since others own them: {}", names.join(", "));
        }
        Event::Refreshed(done) => {
            done.iter().filter(|d| d.report.action != Action::NoData).for_each(refreshed);
        }
    }
}

/// Logs a span for the refresh of one stream table, and inside this span a span for each phase. The phases
/// are logged at the end, since statements of several phases go to the server together. The time that a run
/// spends once for all its stream tables is shown with each stream table.
fn refreshed(one: &Refreshed) {
    let r = &one.report;
    let ms = |micros: u64| micros as f64 / 1e3;
    let took = r.phases.total() as f64 / 1e3;
    let _refresh = tracing::info_span!(
        "refresh",
        table = r.name,
        action = r.action.name(),
        rows = r.rows_inserted + r.rows_updated + r.rows_deleted,
        delta_rows = r.delta_rows,
        ms = took,
        lag_ms = r.lag_ms,
    )
    .entered();
    tracing::info!(
        "{}: {} ({}; +{} ~{} -{}) in {took:.1} ms",
        r.name,
        r.action.name(),
        count(usize::try_from(r.delta_rows).unwrap_or(0), "change", "changes"),
        r.rows_inserted,
        r.rows_updated,
        r.rows_deleted,
    );
    for ((phase, own), (_, shared)) in phases(&r.phases).into_iter().zip(phases(&one.shared)) {
        let (ms, shared_ms) = (ms(own), ms(shared));
        tracing::debug_span!("phase", table = r.name, phase, ms, shared_ms)
            .in_scope(|| tracing::debug!("{phase}: {ms:.1} ms, {shared_ms:.1} ms for all"));
    }
}
