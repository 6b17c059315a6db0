//! trickle-core: incremental view maintenance for PostgreSQL. SQL in, an exact delta out; no I/O.
#![warn(clippy::doc_markdown)]

pub mod agg;
pub mod apply;
pub mod catalog;
pub mod cdc;
pub mod cost;
pub mod dag;
pub mod delta;
pub mod error;
pub mod eval;
pub mod expr;
pub mod frontier;
pub mod graph;
pub mod lower;
pub mod opt;
pub mod parse;
pub mod refresh;
pub mod rel;
pub mod schedule;
pub mod sql;
pub mod stream_table;
#[cfg(feature = "testing")]
pub mod testing;
pub mod types;
pub mod verdict;

pub use error::{Error, Result, Span};
pub use stream_table::{Options, Refresh, StreamTable, Verdict, compile};
pub use verdict::{Reason, ReasonKind};
