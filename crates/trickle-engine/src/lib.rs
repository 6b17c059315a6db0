//! The engine: every operation on a database with stream tables, over any [`db::RefreshDriver`]. A client
//! outside the server implements this trait, and so does the extension inside the server.
//!
//! [`trickle_core`] decides which statements to run. This crate reads and writes the catalog in the
//! database, and decides in which order and under which locks the statements run. The crate depends on no
//! async runtime, no wire protocol and no server process.
//!
//! ARCHITECTURE.md lists the modules.

#![warn(clippy::doc_markdown)]

mod adapt;
mod alter;
mod cache;
pub mod capture;
pub mod catalog;
mod check;
mod compiled;
mod continuation;
mod copies;
mod create;
pub mod db;
pub mod declare;
mod design;
mod drain;
pub mod drive;
mod drop;
mod error;
mod explain;
mod follow;
pub mod give_way;
mod hand_over;
pub mod health;
mod holders;
mod immediate;
mod in_force;
pub mod lease;
mod load;
pub mod locks;
mod names;
mod pending;
mod plans;
pub mod progress;
mod refresh;
pub mod registry;
mod renamed;
mod repair;
mod resolve;
pub mod say;
pub mod scheduler;
pub mod schema;
mod security;
mod settings;
mod status;
mod stored;
mod trickle;
mod wait;
pub mod words;

pub use alter::Alteration;
pub use cache::ConnectionCache;
pub use capture::{Followed, Leaving, Removal};
pub use check::{Checked, Difference, ROUNDING};
pub use design::{Created, IfExists, NewStreamTable};
pub use error::{Error, Result};
pub use explain::Explained;
pub use hand_over::hand_over;
pub use names::Name;
pub use pending::Looked;
pub use plans::Plans;
pub use refresh::Refreshed;
pub use repair::{TreeNode, tree};
pub use security::{Agreed, SHUT};
pub use settings::{RefreshOptions, Settings};
pub use status::{BufferStatus, HistoryEntry, LastRefresh, REFRESHER, Refresher, SourceStatus, Status};
pub use stored::StateSizes;
pub use trickle::Trickle;
pub use trickle_core::vocabulary::{Action, Activity, Ending, Initiator, Mode, RefreshMode};
pub use wait::Waited;
