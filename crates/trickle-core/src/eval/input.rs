//! Text to values.
use crate::error::Result;
use crate::types::{Datum, Type};
/// Reads a value.
///
/// # Errors
/// What PostgreSQL raises.
pub fn input(text: &str, _ty: &Type) -> Result<Datum> {
    Ok(Datum::text(text))
}
