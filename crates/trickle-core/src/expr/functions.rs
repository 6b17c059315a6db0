//! Built-in scalar functions and operators: one row each, with signature and value.

use super::FuncSig;
use crate::types::Type;
use std::sync::Arc;

/// Resolves a built-in function by name and argument types, as PostgreSQL would after its implicit casts. Where an
/// argument's type differs from `sig.args`, the caller casts it (untyped literals take the declared type).
pub fn resolve_function(_name: &str, _args: &[Type]) -> Option<Arc<FuncSig>> {
    None
}

/// Resolves a built-in operator of one or two operands, likewise. Comparisons of two integers of different width, and
/// of strings, take their operands as they are, so that an index on either stays usable.
pub fn resolve_operator(_op: &str, _args: &[Type]) -> Option<Arc<FuncSig>> {
    None
}
