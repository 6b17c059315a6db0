//! Private servers and databases for tests.
//!
//! [`trickle_client::throwaway`] makes the servers. The servers are started once per test binary and version.
//! Each test gets a database of its own on each server.

mod bag;
pub(crate) mod cut;
mod driver;
pub(crate) mod line;
mod live;
mod load;
pub(crate) mod planted;
pub(crate) mod pooler;
pub(crate) mod private;
mod server;
pub(crate) mod sql_api;

pub(crate) use bag::{assert_same_bag, difference};
pub(crate) use cut::Budget;
pub(crate) use driver::Driver;
pub(crate) use live::{
    assert_equal, blocked, count, create, end, mode, name, open, open_with, pid, refresh, run, try_refresh,
};
pub(crate) use load::{apply_change, create_tables};
pub(crate) use server::{Db, each_server, is_nightly, is_of_today, is_todays, newest_server, todays_server};
