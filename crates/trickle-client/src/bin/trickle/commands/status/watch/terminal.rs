//! Runs the view on the terminal: reads keys and the database, and draws the state that follows from both.

use super::state::{AfterKey, Watched};
use super::view;
use crate::commands::Answer;
use crate::failure::Failure;
use crate::seeing::model::Snapshot;
use crate::seeing::reader::Reader;
use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// The longest wait between a failed read and the next read.
const RETRY: Duration = Duration::from_secs(5);

/// The longest time between two redraws, so that the shown ages grow.
const TICK: Duration = Duration::from_secs(1);

/// A running read of the database. The result includes the reader, for the next read.
type Reading = Pin<Box<dyn Future<Output = (Reader, trickle_client::Result<Snapshot>)>>>;

fn reading(mut reader: Reader) -> Reading {
    Box::pin(async move {
        let read = reader.read().await;
        (reader, read)
    })
}

/// Shows the state of stream tables until told to stop. Afterwards the terminal is as it was before, whatever
/// happens.
pub(crate) async fn show(reader: Reader, interval: Duration, what: String) -> Result<Answer, Failure> {
    let fail = |e: std::io::Error| Failure::failed(format!("cannot use the terminal: {e}"));
    let stop = async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = hang_up.recv() => Ok(()),
        }
    };
    let mut terminal = ratatui::try_init().map_err(fail)?;
    let shown = tokio::select! {
        shown = converse(&mut terminal, reader, interval, what) => shown,
        stopped = stop => stopped,
    };
    ratatui::restore();
    shown.map_err(fail).map(|()| Answer::Yes)
}

async fn converse(
    terminal: &mut ratatui::DefaultTerminal,
    reader: Reader,
    interval: Duration,
    what: String,
) -> std::io::Result<()> {
    let mut watched = Watched::new(what);
    let mut keys = EventStream::new();
    let mut at_work = Some(reading(reader));
    let mut idle = None;
    let mut next = Instant::now();
    loop {
        terminal.draw(|frame| view::draw(frame, &watched, Instant::now()))?;
        let pause = next.saturating_duration_since(Instant::now()).min(TICK);
        tokio::select! {
            event = keys.next() => match event {
                None => return Ok(()),
                Some(Err(e)) => return Err(e),
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                    match watched.key(key) {
                        AfterKey::Quit => return Ok(()),
                        AfterKey::Read => next = Instant::now(),
                        AfterKey::Draw => {}
                    }
                }
                Some(Ok(_)) => {}
            },
            (reader, read) = of(&mut at_work) => {
                (at_work, idle) = (None, Some(reader));
                let failed = read.is_err();
                watched.read(read.map_err(|e| e.message().to_owned()), Instant::now());
                next = Instant::now() + if failed { interval.min(RETRY) } else { interval };
            }
            () = tokio::time::sleep(pause) => {}
        }
        if Instant::now() >= next
            && let Some(reader) = idle.take()
        {
            at_work = Some(reading(reader));
        }
    }
}

/// Waits for the end of the running read. Without a running read, waits forever.
async fn of(at_work: &mut Option<Reading>) -> (Reader, trickle_client::Result<Snapshot>) {
    match at_work {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}
