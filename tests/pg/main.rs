//! Ring 4: real servers judge the engine's plans and its evaluator. A test runs on every installed PostgreSQL
//! (`each_server`), on a server that changes each day (`todays_server`), or on the newest server
//! (`newest_server`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of a test fails as a test does, and says what it counted"
)]
#![expect(clippy::too_many_lines, reason = "a test tells one story, in the order in which it happens")]

mod agreed;
mod apart;
mod by_hand;
mod capture;
mod cases;
mod catalogue;
mod clock;
mod connect;
mod copies;
mod crashes;
mod cuts;
mod extension;
mod faults;
mod first_load;
mod foreign_code;
mod functions;
mod grown;
mod guarantees;
mod histories;
mod holds;
mod hostile_settings;
mod idle;
mod immediate;
mod interleavings;
mod lag;
mod lifecycle;
mod limits;
mod lookalikes;
mod lost_rights;
mod migrations;
mod named_types;
mod names;
mod objects;
mod partitioned;
mod partman;
mod plans;
mod polling;
mod prepared;
mod program;
mod properties;
mod published;
mod random;
mod readme;
mod recursion;
mod redteam;
mod renamed_code;
mod restored;
mod row_security;
mod server_types;
mod sets;
mod smoke;
mod soak;
mod subscriptions;
mod suites;
mod support;
mod tpch;
mod traps_capture;
mod traps_ddl;
mod traps_values;
mod unseen;
mod upgraded;
mod watched;
