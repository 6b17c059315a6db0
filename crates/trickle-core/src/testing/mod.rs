//! Random plans, states and changes, and the laws that are true for all of them.
//!
//! The feature `testing` enables this module. The tests and fuzz targets of this workspace use the module.
//! Embedders can use it in their own tests: [`strategies`] offers the generators to the crate `proptest`.

mod case_file;
mod cases;
mod choice;
mod coverage;
mod data;
mod exprs;
mod foreign_keys;
mod laws;
mod mutants;
mod part;
mod plans;
mod repro;
mod shown;
mod shrink;
pub mod strategies;
mod timed;
mod tiny;
mod windows;

pub use case_file::{Case, Expected, Window};
pub use cases::databases;
pub use choice::Choice;
pub use coverage::Coverage;
pub use data::{change, empty_database, inexact_tables, tables};
pub use foreign_keys::{foreign_key_databases, foreign_key_plans};
pub use laws::{
    Checker, Outcome, VARIANTS, Variant, Violation, check_affected, check_affected_keys, check_all,
    check_delta, check_properties, check_rewrites, delta_plan, record_changes,
};
pub use mutants::{FOREIGN_KEY_MUTANTS, MUTANTS, Mutant};
pub use part::check_part;
pub use plans::{Limits, QUERY_OPERATORS, Sample, sample};
pub use repro::reproduction;
pub use shown::check_shown;
pub use shrink::shrink;
pub use tiny::{small_plans, tiny_databases};
