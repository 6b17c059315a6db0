//! Checks type names: parsing never panics, and a parsed name prints to a name of the same type.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trickle_core::types::Type;

fuzz_target!(|name: &str| {
    if let Some(ty) = Type::parse(name) {
        assert_eq!(Type::parse(&ty.sql_name()), Some(ty));
    }
});
