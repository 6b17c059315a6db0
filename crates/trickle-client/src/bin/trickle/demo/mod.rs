//! What the demo shows.

pub(crate) mod shop;
