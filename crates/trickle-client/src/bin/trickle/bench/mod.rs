//! Measures the cost of trickle. Refreshes are compared with a recompute and with an expert's SQL, over
//! scenarios, the queries of TPC-H, and stream tables over stream tables. Capture is compared with an
//! expert's triggers. Further measurements are the latency of changes, and looks at stream tables that have
//! nothing to do.

pub(crate) mod capture;
pub(crate) mod cycle;
pub(crate) mod dag;
pub(crate) mod idle;
pub(crate) mod latency;
pub(crate) mod report;
pub(crate) mod scenario;
pub(crate) mod tpch;
