//! Keeps stream tables of PostgreSQL 15 to 18 up to date from outside the server: no extension, no superuser,
//! no restart.
//!
//! [`trickle_engine`] defines stream tables, and how they are kept up to date. This crate carries the
//! engine's statements to a server over [`tokio_postgres`], and contains the program `trickle`.
//!
//! | module | what it does |
//! |---|---|
//! | `connect` | finds the server: URLs, files and settings as in libpq |
//! | `session` | a connection, and the statements and answers that travel over it |
//! | `leftovers` | cleans a session of the leftovers of users' code |
//! | `encryption`, `error` | TLS for the driver; converts the driver's errors into the engine's |
//! | `greeting`, `cancel` | tells a pooler from a server; requests to cancel a statement |
//! | `throwaway` | private servers for demo and tests |
//! | `daemon` | the refresher that runs on schedule |

#![warn(clippy::doc_markdown)]

mod cancel;
pub mod connect;
pub mod daemon;
mod encryption;
mod error;
mod greeting;
mod leftovers;
mod session;
pub mod throwaway;

pub use cancel::Cancel;
pub use error::failed;
pub use session::{Connect, Session, Trickle, connections};
pub use trickle_engine::db::{self, Sent};
pub use trickle_engine::declare;
pub use trickle_engine::drive::Watch;
pub use trickle_engine::{
    Action, Activity, Alteration, BufferStatus, Checked, Created, Difference, Ending, Error, Explained,
    HistoryEntry, IfExists, Initiator, LastRefresh, Mode, Name, NewStreamTable, Plans, REFRESHER, ROUNDING,
    RefreshMode, RefreshOptions, Refreshed, Refresher, Result, Settings, SourceStatus, StateSizes, Status,
    Waited, capture, catalog, locks, progress, registry, schema,
};
