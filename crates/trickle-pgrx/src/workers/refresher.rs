//! A refresher runs the refreshes that its scheduler asks for, and ends when it has had no job for a while.

use super::{refresh, start as start_process};
use crate::unsafe_pg::{Board, Hire, Next, Scheduled};
use pgrx::bgworkers::{BackgroundWorker, DynamicBackgroundWorker, SignalWakeFlags};
use pgrx::prelude::*;
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// Time that a refresher waits for its next job. A waiting refresher keeps the plans of its stream tables,
/// which a new refresher would have to make again.
const LINGER: Duration = Duration::from_secs(60);

/// Name of the refresher's process.
const NAME: &CStr = c"pg_trickle refresher";

/// Starts the process of a hired refresher; `None` if the server has no room for another process.
pub(super) fn start(hire: Hire) -> Option<DynamicBackgroundWorker> {
    let kind = "pg_trickle refresher";
    start_process(kind, "pg_trickle_refresher", hire.place().into_datum(), Scheduled::process())
}

/// Runs a refresher, in a process of its own.
pub(super) fn refresh_for(place: pg_sys::Datum) {
    let Some(database) = Scheduled::place(place).and_then(Board::arrive) else { return };
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    Scheduled::begin(Some(pg_sys::Oid::from(database)), NAME);
    let mut asked = Instant::now();
    loop {
        match Board::next(asked.elapsed() >= LINGER) {
            Next::Refresh(lease, due) => {
                Board::done(refresh(lease, &due));
                asked = Instant::now();
            }
            Next::Wait => Scheduled::rest(LINGER),
            Next::Leave => return,
        }
        if BackgroundWorker::sighup_received() {
            Scheduled::reload();
        }
    }
}
