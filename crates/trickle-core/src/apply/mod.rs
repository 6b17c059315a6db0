//! From a delta to statements: the tables that store results, and the DML that brings these tables up to
//! date.
//!
//! The table of the result has exactly the query's columns. Data that cannot be derived from these columns is
//! stored in state tables. One statement brings all tables of a stream table up to date, so every part of the
//! statement reads the previous state.

mod affected;
mod change;
mod ddl;
mod full;
mod layout;
mod lookups;
mod summands;

pub(crate) use affected::affected_statement;
pub(crate) use change::{Against, change_statement, takes_pairs};
pub use ddl::index_names;
pub(crate) use ddl::{create_statements, create_table, drop_statements, identity_statements};
pub(crate) use full::{difference, from_stored, full_statements, insert_statement};
pub use layout::{Identity, Layout, Stored, StoredColumn};
pub(crate) use summands::{Summand, summands};
for_tests! {
    use layout::LayoutSources;
}
