//! trickle inside PostgreSQL: the extension `pg_trickle`, with its SQL API in schema `pgtrickle`.
//!
//! This crate adapts and decides nothing: what a stream table is and how it is kept is [`trickle_engine`]'s, what to run
//! [`trickle_core`]'s. It is the only place with unsafe code, since PostgreSQL's interface is C; all of it is in `unsafe_pg`.

mod api;
mod ask;
mod comments;
mod follow;
mod gucs;
mod inside;
mod install;
mod raise;
mod unsafe_pg;
mod workers;

pgrx::pg_module_magic!(name, version);

/// Called by the server when it loads the library.
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    gucs::define();
    trickle_engine::say::speak(trickle_engine::say::Voice::Sql);
    unsafe_pg::reserve_settings();
    unsafe_pg::watch_statements();
    if unsafe_pg::is_preloading() {
        workers::register();
    }
}

/// What `cargo pgrx test` asks for.
#[cfg(test)]
pub mod pg_test {
    /// Nothing is to be prepared.
    pub fn setup(_: Vec<&str>) {}
    /// Settings of the test server.
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["fsync = off"]
    }
}
