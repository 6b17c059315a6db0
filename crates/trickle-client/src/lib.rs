//! Keeps stream tables fresh from outside the server: no extension, no superuser, no restart. PostgreSQL 15 to 18.
//!
//! What a stream table is and how it is kept is [`trickle_engine`]'s; this crate carries its statements to a server over
//! [`tokio_postgres`], and is the program `trickle`.
//!
//! | module | what it does |
//! |---|---|
//! | `connect` | where the server is: URLs, files and settings as libpq has them |
//! | `session`, `wire` | a connection, and what travels over it |
//! | `leftovers` | what users' code leaves in a session, and its end |
//! | `greeting`, `cancel` | what a server or pooler says first, and a request to end what it does |
//! | `throwaway` | private servers for demo and tests |
//! | `daemon` | the refresher that runs on schedule |

#![warn(clippy::doc_markdown)]

mod cancel;
pub mod connect;
pub mod daemon;
mod greeting;
mod leftovers;
mod session;
pub mod throwaway;
mod wire;

pub use cancel::Cancel;
pub use session::{Connect, Session, connections};
pub use trickle_engine::db::{self, Sent};
pub use trickle_engine::declare;
pub use trickle_engine::drive::Watch;
pub use trickle_engine::{
    Action, Activity, Alteration, Beside, BufferStatus, Checked, Created, Difference, Ending, Error,
    Explained, HistoryEntry, IfExists, Initiator, LastRefresh, Mode, Name, NewStreamTable, Plans, REFRESHER,
    ROUNDING, RefreshMode, RefreshOptions, Refreshed, Refresher, Result, Settings, SourceStatus, Status,
    Waited, capture, catalog, locks, progress, registry, schema,
};
pub use wire::failed;

/// A database with a trickle catalog, over a connection of this program's.
pub type Trickle = trickle_engine::Trickle<Session>;
