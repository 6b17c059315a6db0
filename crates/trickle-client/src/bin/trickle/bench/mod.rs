//! The cost of trickle: refreshes beside a recompute and beside an expert's SQL, the queries of TPC-H, and
//! stream tables over stream tables. Further, capture beside an expert's triggers, and looks at stream tables
//! that have nothing to do.

pub(crate) mod capture;
pub(crate) mod cycle;
pub(crate) mod dag;
pub(crate) mod idle;
pub(crate) mod latency;
pub(crate) mod report;
pub(crate) mod scenario;
pub(crate) mod tpch;
