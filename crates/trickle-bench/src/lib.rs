//! Data and pictures of trickle's benchmarks, apart from the program because their libraries are large: the
//! tables of TPC-H, and plots.

pub mod plot;
pub mod tpch;
