//! Values as SQL treats them: their order and equality, casts between types, and the reading of values from
//! text.
//!
//! Strings compare by bytes, the time zone is UTC, dates are written in ISO form.

mod cast;
mod compare;
mod input;
mod input_time;

pub use cast::cast;
pub(crate) use compare::{SqlKey, unpadded};
pub use compare::{compare, compare_as};
pub use input::input;
