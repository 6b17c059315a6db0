//! Data and plots of trickle's benchmarks: the tables of TPC-H, and pictures of the results. This code is a
//! separate crate because it needs large libraries. Without feature `bench`, the program is built without
//! them.

pub mod plot;
pub mod tpch;
