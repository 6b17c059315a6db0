//! The refresh matrix: what a refresh costs beside computing the whole anew, and beside what an expert writes by hand.

pub(crate) mod cycle;
pub(crate) mod report;
pub(crate) mod scenario;
