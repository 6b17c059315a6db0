//! Values as SQL treats them: their order and equality, casts between types, and the reading of values from
//! text.
//!
//! Strings compare by bytes, the time zone is UTC, dates are written in ISO form.

mod cast;
mod compare;
mod input;
mod input_time;

pub(crate) use cast::cast;
pub(crate) use compare::{SqlKey, unpadded};
pub(crate) use compare::{compare, compare_as};
pub(crate) use input::input;
