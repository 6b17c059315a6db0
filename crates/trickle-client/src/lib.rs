//! Keeps stream tables fresh from outside the server: no extension, no superuser, no restart. PostgreSQL 15 to 18.
//!
//! What to run is decided by [`trickle_core`]; this crate carries its statements to a server over [`tokio_postgres`].

#![warn(clippy::doc_markdown)]

pub mod connect;
mod error;
mod session;

pub use error::{Error, Result};
pub use session::Session;
