//! Data and plots of trickle's benchmarks: the tables of TPC-H, and pictures of the results. The crate is
//! apart from the program because its libraries are large.

pub mod plot;
pub mod tpch;
