//! The parts of the demo: a shop that is written to, stream tables over it, and a refresher that is killed.

pub(crate) mod board;
pub(crate) mod refresher;
pub(crate) mod shop;
