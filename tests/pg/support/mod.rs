//! Private servers and databases for tests.
//!
//! Servers are found by [`binaries`], started once per test binary and version, reached through a unix socket only, and
//! gone with the test process however it ends. Each test gets a database of its own on each of them.

mod bag;
mod binaries;
mod load;
mod server;

pub(crate) use bag::{assert_same_bag, difference};
pub(crate) use load::{apply_change, create_tables};
pub(crate) use server::{Db, each_server};
