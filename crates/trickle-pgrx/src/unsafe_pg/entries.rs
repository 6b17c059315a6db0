//! Where processes of the extension's begin: the server finds these by name in the library.

use crate::workers;
use pgrx::pg_sys;
use pgrx::prelude::*;

/// The launcher of all schedulers.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_launcher(_argument: pg_sys::Datum) {
    workers::launch();
}

/// The scheduler of a database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_scheduler(database: pg_sys::Datum) {
    workers::schedule(database);
}

/// A refresher, in a place that a scheduler gave it.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_refresher(place: pg_sys::Datum) {
    workers::refresh_for(place);
}

/// A planner, for one stream table of one database.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pg_trickle_planner(task: pg_sys::Datum) {
    workers::plan(task);
}
