//! trickle inside PostgreSQL: the extension `pg_trickle`, with its SQL API in schema `pgtrickle`.
//!
//! This crate connects the engine to the server, and decides nothing. [`trickle_engine`] makes stream tables
//! and brings them up to date; [`trickle_core`] plans the statements to run. This crate alone has unsafe
//! code, all of it in `unsafe_pg`, because PostgreSQL's interface is C.

mod api;
mod ask;
mod comments;
mod follow;
mod gucs;
mod inside;
mod install;
mod raise;
mod restored;
mod unsafe_pg;
mod workers;

pgrx::pg_module_magic!(name, version);

/// Initializes the library. The server calls this function when it loads the library.
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    gucs::define();
    unsafe_pg::reserve_settings();
    unsafe_pg::watch_statements();
    unsafe_pg::watch_commands::<follow::CapturedRemoval>();
    if unsafe_pg::note_preloading() {
        workers::register();
    }
}

/// The module that `cargo pgrx test` expects under this name.
#[cfg(test)]
pub mod pg_test {
    /// Does nothing: the tests need no preparation.
    pub fn setup(_: Vec<&str>) {}
    /// Returns the settings of the test server.
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["fsync = off"]
    }
}
