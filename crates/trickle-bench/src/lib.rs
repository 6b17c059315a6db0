//! Data and plots of trickle's benchmarks: the tables of TPC-H, and pictures of the results. This is a crate
//! of its own because it needs large libraries: without feature `bench`, the program is built without them.

pub mod plot;
pub mod tpch;
