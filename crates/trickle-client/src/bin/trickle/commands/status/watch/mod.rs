//! Runs `trickle status --watch`, which shows a view on the terminal again and again (feature `watch`), or
//! prints one JSON document a line for programs.
//!
//! [`state`] holds the data of the view and handles keys, [`view`] draws the state, [`terminal`] reads keys
//! and the database.

#[cfg(feature = "watch")]
mod state;
#[cfg(feature = "watch")]
mod terminal;
#[cfg(feature = "watch")]
mod view;

use crate::commands::Answer;
use crate::failure::Failure;
use crate::seeing::reader::Reader;
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};

#[cfg(feature = "watch")]
pub(super) use terminal::show;

/// Returns an error, since this program was built without the view.
#[cfg(not(feature = "watch"))]
pub(super) async fn show(_: Reader, _: Duration, _: String) -> Result<Answer, Failure> {
    let text = "this trickle was built without the view of the terminal";
    Err(Failure::failed(text).hint("Build it with the feature watch, which is on by default, or use --json."))
}

/// Prints one JSON document in each interval, one a line, until nobody reads standard output any more. A read
/// that fails is printed as a line, too, and is tried again.
pub(super) async fn lines(mut reader: Reader, interval: Duration) -> Result<Answer, Failure> {
    loop {
        let started = Instant::now();
        let document = match reader.read().await {
            Ok(snapshot) => json!(snapshot),
            Err(e) if e.is_input() => return Err(e.into()),
            Err(e) => json!({"error": {"message": e.message()}}),
        };
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{document}").and_then(|()| out.flush()) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(Answer::Yes),
            Err(e) => return Err(Failure::failed(format!("cannot write the result: {e}"))),
            Ok(()) => {}
        }
        drop(out);
        tokio::time::sleep(interval.saturating_sub(started.elapsed())).await;
    }
}
