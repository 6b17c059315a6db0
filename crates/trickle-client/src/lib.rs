//! Keeps stream tables fresh from outside the server: no extension, no superuser, no restart. PostgreSQL 15 to 18.
//!
//! What to run is decided by [`trickle_core`]; this crate carries its statements to a server over [`tokio_postgres`].
//!
//! | module | what it does |
//! |---|---|
//! | `schema` | the catalog in the database: versions, up and down |
//! | `catalog` | tables, types and functions of a server, as the engine sees them |
//! | `resolve` | what a query means, as PostgreSQL says |
//! | `registry` | the stream tables that the catalog lists |
//! | `create`, `alter`, `drop`, `adapt` | stream tables come, change, go, and follow their sources |
//! | `capture`, `drain` | triggers and buffers |
//! | `copies` | what cannot be captured is copied, and the copy captured |
//! | `refresh`, `session` | plans for the refresh machine, and its driver |
//! | `load` | the first load on several connections |
//! | `progress` | what long work tells while it goes on |
//! | `check` | stored against recomputed |
//! | `throwaway` | private servers for demo and tests |
//! | `daemon` | the refresher that runs on schedule |
//! | `status`, `wait`, `explain` | what people ask: how it stands, is it visible yet, how is it kept |
//! | `locks` | DDL that never queues in front of users |

#![warn(clippy::doc_markdown)]

mod adapt;
mod alter;
pub mod capture;
pub mod catalog;
mod check;
pub mod connect;
mod copies;
mod create;
pub mod daemon;
mod drain;
mod drop;
mod error;
mod explain;
mod load;
pub mod locks;
mod names;
mod pending;
mod plans;
mod prepared;
pub mod progress;
mod refresh;
pub mod registry;
mod resolve;
pub mod schema;
mod session;
mod status;
mod stored;
pub mod throwaway;
mod trickle;
mod wait;

pub use alter::Alteration;
pub use check::{Checked, Difference, ROUNDING};
pub use create::{Created, IfExists, NewStreamTable, RefreshMode};
pub use error::{Error, Result};
pub use explain::Explained;
pub use names::Name;
pub use plans::Plans;
pub use refresh::{RefreshOptions, Refreshed};
pub use session::{Connect, Sent, Session, Watch};
pub use status::{BufferStatus, HistoryEntry, REFRESHER, Refresher, SourceStatus, Status};
pub use trickle::{Settings, Trickle};
pub use wait::Waited;
