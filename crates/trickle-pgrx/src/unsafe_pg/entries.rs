//! Entry points of the extension's processes. The server finds them by their names in the library.

use crate::workers;
use pgrx::pg_sys;
use pgrx::prelude::*;

/// Runs the launcher, which starts all schedulers.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_launcher(_argument: pg_sys::Datum) {
    workers::launch();
}

/// Runs the scheduler of a database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_scheduler(database: pg_sys::Datum) {
    workers::schedule(database);
}

/// Runs a refresher. The argument is the number of the refresher's place on the board, which a scheduler took
/// for the refresher.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_refresher(place: pg_sys::Datum) {
    workers::refresh_for(place);
}

/// Runs a planner, for one stream table of one database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_planner(task: pg_sys::Datum) {
    workers::plan(task);
}
