//! Checks the laws over plans, states and changes that are drawn from the fuzzer's bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trickle_core::testing::{
    Choice, Limits, change, check_affected, check_all, check_rewrites, sample, tables,
};

fuzz_target!(|bytes: &[u8]| {
    let tables = tables();
    let mut choice = Choice::bytes(bytes);
    let limits = Limits {
        operators: 1 + choice.below(7),
        opaque: choice.one_in(2),
        raising: choice.one_in(4),
        clock: true,
    };
    let sample = sample(&mut choice, &tables, &limits).unwrap_or_else(|e| panic!("generator: {e}"));
    let db = change(&mut choice, &tables, 4);
    if let Err(violation) = check_all(&sample, &db) {
        panic!("{violation}");
    }
    if let Err(violation) = check_rewrites(&sample, &db) {
        panic!("{violation}");
    }
    if let Err(violation) = check_affected(&sample, &db) {
        panic!("{violation}");
    }
});
