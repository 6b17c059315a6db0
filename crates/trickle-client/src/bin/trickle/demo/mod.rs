//! What the demo shows.

pub(crate) mod board;
pub(crate) mod shop;
