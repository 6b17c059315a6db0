//! Incremental view maintenance for PostgreSQL: SQL in, an exact delta out. Pure Rust, no I/O.
//!
//! A *stream table* is a PostgreSQL table that is kept equal to a query. This crate decides everything about
//! a stream table: the delta of its query, the stored tables and their statements, the captured changes, and
//! the times and steps of refreshes. The crate runs no statement itself. It returns typed statements, and a
//! machine without I/O that decides which statement runs next. The crate reads no clock, connection or
//! environment. Equal input gives equal text, byte for byte.
//!
//! # The one definition
//!
//! A relation denotes a function from rows to integers. The integer of a row is its weight: how often the row
//! occurs. In a change, weights may be negative. A delta plan ΔQ is correct if and only if, for all states S
//! and changes d,
//!
//! ```text
//! eval(ΔQ, S, d) = eval(Q, S + d) − eval(Q, S)
//! ```
//!
//! Every rule is an identity of this algebra. The evaluator ([`eval`](mod@eval)) computes both sides of the
//! identity in memory, so rules are tested without a database. The evaluator is public, so you can test your
//! own rules in the same way.
//!
//! # Data flow
//!
//! ```text
//! SQL text → parse → lower (names die) → Graph Q → delta → Graph ΔQ → optimize (each rule an identity)
//!   → apply (ΔQ + layout → typed DML) → sql::ast (names reborn) → print → SQL text
//! ```
//!
//! # From SQL to SQL
//!
//! ```
//! use std::collections::BTreeSet;
//! use trickle_core::catalog::MemoryCatalog;
//! use trickle_core::cdc::Mode;
//! use trickle_core::eval::{Database, Evaluator, ZSet, eval, same_bag};
//! use trickle_core::graph::Format;
//! use trickle_core::sql::print;
//! use trickle_core::types::Datum;
//! use trickle_core::{Options, Refresh, Verdict, compile};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tables = "CREATE TABLE orders (id bigint PRIMARY KEY, region text, amount int)";
//! let catalog = MemoryCatalog::from_ddl(tables)?;
//! let query = "SELECT region, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY region";
//! let totals = match compile(query, &catalog, &Options::new("public", "totals"))? {
//!     Verdict::Incremental(table) => table,
//!     Verdict::FullRefresh(reasons) => return Err(reasons[0].to_string().into()),
//! };
//! assert!(totals.explain(Format::Text).contains("Reduce"));
//!
//! // What to run on the server: once …
//! assert!(totals.ddl().iter().any(|s| print(s).text.starts_with("CREATE TABLE public.totals (")));
//! let (orders, capture) = &totals.capture(Mode::Statement)[0];
//! assert!(capture.iter().any(|s| print(s).text.starts_with("CREATE TRIGGER trickle_capture_")));
//! // … and at each refresh. The table `orders` itself is not read.
//! let changed = BTreeSet::from([*orders]);
//! let refresh = print(&totals.refresh(Refresh::Delta, &changed)?[0]);
//! assert!(refresh.text.contains("pgtrickle_changes.changes_1") && !refresh.text.contains("public.orders"));
//!
//! // The same delta in memory: one order of 10 leaves the north, one of 25 comes to the south.
//! let order =
//!     |id: i64, region: &str, amount: i64| vec![Datum::Int(id), Datum::text(region), Datum::Int(amount)];
//! let mut database = Database::default();
//! let before = [order(1, "north", 10), order(2, "north", 20), order(3, "south", 5)];
//! database.before.insert(*orders, ZSet::from_iter(before));
//! let mut change = ZSet::new();
//! change.add(order(1, "north", 10).into(), -1);
//! change.add(order(4, "south", 25).into(), 1);
//! database.delta.insert(*orders, change);
//!
//! let (graph, roots) = totals.delta(&changed)?;
//! let delta = eval(&graph, roots[roots.len() - 1], &database)?;
//! assert_eq!(delta.len(), 4); // two rows leave, two come
//! let mut oracle = Evaluator::new(totals.graph(), &database);
//! let (old, new) = (oracle.eval_before(totals.query())?, oracle.eval(totals.query())?);
//! assert!(same_bag(&old.plus(&delta), &new));
//! # Ok(())
//! # }
//! ```
//!
//! # Embedding
//!
//! To use the crate, implement [`catalog::Catalog`] for the tables of your database, and drive a
//! [`refresh::Machine`]. The machine returns batches of statements. You run the statements and pass the
//! answers to the machine. `examples/embedder.rs` does both in 150 lines; `examples/explain.rs` shows the
//! plans of a query.
//!
//! The crate needs Rust 1.95 or later. The feature `testing` adds the generators and laws with which this
//! crate is tested. This feature also makes public the modules that compile a query: `agg`, `delta`, `expr`,
//! `lower`, `opt`, `rel` and `window`, and more items of `apply`, `eval`, `graph` and `sql`. These items may
//! change in every release.
#![cfg_attr(test, expect(clippy::too_many_lines, reason = "some tests go through a long list of queries"))]
#![warn(clippy::doc_markdown)]
#![cfg_attr(
    not(feature = "testing"),
    allow(dead_code, unreachable_pub, unused_imports, reason = "tests use more items than embedders do")
)]

/// Re-exports items that only tests use outside of this crate. The items are public with the feature
/// `testing`, and visible in the crate without it.
macro_rules! for_tests {
    ($(use $module:ident::$items:tt;)+) => {
        $(
            #[cfg(feature = "testing")]
            pub use $module::$items;
            #[cfg(not(feature = "testing"))]
            pub(crate) use $module::$items;
        )+
    };
}

pub mod access;
#[cfg(feature = "testing")]
pub mod agg;
#[cfg(not(feature = "testing"))]
mod agg;
pub mod apply;
pub mod catalog;
pub mod cdc;
pub mod cost;
pub mod dag;
#[cfg(feature = "testing")]
pub mod delta;
#[cfg(not(feature = "testing"))]
mod delta;
pub mod error;
pub mod eval;
#[cfg(feature = "testing")]
pub mod expr;
#[cfg(not(feature = "testing"))]
mod expr;
pub mod frontier;
pub mod graph;
mod hash;
mod ident;
pub mod immediate;
#[cfg(feature = "testing")]
pub mod lower;
#[cfg(not(feature = "testing"))]
mod lower;
pub mod near;
#[cfg(feature = "testing")]
pub mod opt;
#[cfg(not(feature = "testing"))]
mod opt;
pub mod parse;
pub mod refresh;
#[cfg(feature = "testing")]
pub mod rel;
#[cfg(not(feature = "testing"))]
mod rel;
pub mod schedule;
mod server_error;
pub mod sql;
pub mod stream_table;
mod syntax;
mod table;
#[cfg(feature = "testing")]
pub mod testing;
pub mod typecheck;
pub mod types;
pub mod values;
pub mod verdict;
pub mod vocabulary;
#[cfg(feature = "testing")]
pub mod window;
#[cfg(not(feature = "testing"))]
mod window;

pub use error::{Error, Result, Span};
pub use server_error::ServerError;
pub use stream_table::{Options, Refresh, StreamTable, Verdict, compile};
pub use verdict::{Cause, Reason, ReasonKind};
