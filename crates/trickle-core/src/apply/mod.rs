//! From a delta to statements: where results are stored, and the DML that brings them up to date.
//!
//! The stored table holds exactly the query's columns. What the visible columns do not determine lives in hidden state
//! tables. All of one stream table's tables are brought up to date by one statement, so that every part of it reads
//! the previous state.

mod affected;
mod change;
mod ddl;
mod full;
mod layout;
mod lookups;
mod summands;

pub use affected::affected_statement;
pub use change::{Against, change_statement, takes_pairs};
pub use ddl::{create_statements, create_table, drop_statements, identity_statements, index_names};
pub use full::{Full, difference, from_stored, full_statements, insert_statement};
pub use layout::{Identity, Layout, LayoutSources, Stored, StoredColumn};
pub use summands::{Summand, summands};
