//! The cost of trickle: refreshes beside computing the whole anew and beside what an expert writes by hand,
//! the queries of TPC-H, stream tables over stream tables, capture beside an expert's triggers, and looking
//! at what has nothing to do.

pub(crate) mod capture;
pub(crate) mod cycle;
pub(crate) mod dag;
pub(crate) mod idle;
pub(crate) mod latency;
pub(crate) mod report;
pub(crate) mod scenario;
pub(crate) mod tpch;
