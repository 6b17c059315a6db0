//! trickle-core: incremental view maintenance for PostgreSQL. SQL in, an exact delta out; no I/O.
#![warn(clippy::doc_markdown)]

pub mod agg;
pub mod catalog;
pub mod delta;
pub mod error;
pub mod eval;
pub mod expr;
pub mod graph;
pub mod lower;
pub mod parse;
pub mod rel;
pub mod sql;
pub mod types;
pub mod verdict;

pub use error::{Error, Result, Span};
pub use verdict::{Reason, ReasonKind};
