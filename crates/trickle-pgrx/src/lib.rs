//! trickle inside PostgreSQL: the extension `pg_trickle`, with its SQL API in schema `pgtrickle`.
//!
//! This crate adapts and decides nothing: what to run comes from `trickle_core`. It is the only place with unsafe
//! code, since PostgreSQL's interface is C.

pgrx::pg_module_magic!(name, version);

/// The SQL API.
#[pgrx::pg_schema]
mod pgtrickle {
    use pgrx::prelude::*;

    /// The version of the extension's library.
    #[pg_extern(immutable, parallel_safe)]
    fn version() -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}
