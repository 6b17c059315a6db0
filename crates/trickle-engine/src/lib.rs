//! What a database with stream tables is and how it changes, over any [`db::Connection`] to it: a client's from outside, or
//! the extension's from inside.
//!
//! What to run is decided by [`trickle_core`]; this crate knows the catalog in the database, and when what is done under
//! which locks. It knows no runtime, no wire and no server process.
//!
//! | module | what it does |
//! |---|---|
//! | `db` | the server, as all of these speak to it |
//! | `drive` | carries out the steps of the refresh machine |
//! | `schema` | the catalog in the database: versions, up and down |
//! | `catalog` | tables, types and functions of a server, as the engine sees them |
//! | `resolve` | what a query means, as PostgreSQL says |
//! | `registry` | the stream tables that the catalog lists |
//! | `create`, `alter`, `drop`, `adapt` | stream tables come, change, go, and follow their sources |
//! | `capture`, `drain` | triggers and buffers |
//! | `copies` | what cannot be captured is copied, and the copy captured |
//! | `refresh`, `pending` | plans for the refresh machine, and what has anything to do |
//! | `give_way` | refreshes give way to whoever wants a table for himself |
//! | `load` | the first load on several connections |
//! | `progress` | what long work tells while it goes on |
//! | `check` | stored against recomputed |
//! | `status`, `wait`, `explain` | what people ask: how it stands, is it visible yet, how is it kept |
//! | `scheduler` | what is due and has anything to do, for whoever refreshes on schedule |
//! | `health` | what is in the way, and what to do about it |
//! | `say` | commands of the program or functions of the extension, in what errors and checks say |
//! | `words` | how numbers, times and lists are said to people |
//! | `repair` | what somebody broke, made anew |
//! | `hand_over` | hidden objects of other roles become the catalog owner's |
//! | `locks` | DDL that never queues in front of users |

#![warn(clippy::doc_markdown)]

mod adapt;
mod alter;
pub mod capture;
pub mod catalog;
mod check;
mod copies;
mod create;
pub mod db;
pub mod declare;
mod drain;
pub mod drive;
mod drop;
mod error;
mod explain;
mod follow;
pub mod give_way;
mod going_on;
mod hand_over;
pub mod health;
mod immediate;
pub mod lease;
mod load;
pub mod locks;
mod names;
mod pending;
mod plans;
pub mod progress;
mod refresh;
pub mod registry;
mod repair;
mod resolve;
pub mod say;
pub mod scheduler;
pub mod schema;
mod security;
mod status;
mod stored;
mod trickle;
mod wait;
pub mod words;

pub use alter::Alteration;
pub use check::{Checked, Difference, ROUNDING};
pub use create::{Created, IfExists, NewStreamTable};
pub use error::{Error, Result};
pub use explain::Explained;
pub use hand_over::hand_over;
pub use names::Name;
pub use pending::Looked;
pub use plans::Plans;
pub use refresh::{RefreshOptions, Refreshed};
pub use repair::{Dependent, dependents};
pub use security::{Agreed, SHUT};
pub use status::{BufferStatus, HistoryEntry, LastRefresh, REFRESHER, Refresher, SourceStatus, Status};
pub use stored::Beside;
pub use trickle::{Memory, Settings, Trickle};
pub use trickle_core::vocabulary::{Action, Activity, Ending, Initiator, Mode, RefreshMode};
pub use wait::Waited;
