//! A test of a property of an embedder's own code, over random queries and changes.
//!
//! ```console
//! $ cargo run -p trickle-core --features testing --example property
//! ```
//!
//! The embedder keeps results in a store of its own, to which it adds deltas. The property says that the
//! store then has the rows that the query returns. The strategies of
//! [`testing`](trickle_core::testing::strategies) draw queries and changes, and shrink a counterexample. The
//! smallest counterexample is printed as SQL.

#![allow(clippy::print_stdout, reason = "a program that prints")]

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use std::collections::BTreeMap;
use trickle_core::eval::{Row, ZSet, eval};
use trickle_core::testing::strategies::{Changed, changed_queries};
use trickle_core::testing::{Limits, VARIANTS, delta_plan, tables};

/// The embedder's store: each row with the number of its copies.
#[derive(Default)]
struct Store(BTreeMap<Row, i64>);

impl Store {
    fn add(&mut self, rows: &ZSet) {
        for (row, copies) in rows.iter() {
            let kept = self.0.entry(row.clone()).or_default();
            *kept += copies;
            if *kept == 0 {
                self.0.remove(row);
            }
        }
    }
}

/// Checks that the store has the rows of the current state, after the delta is added to the rows of the
/// previous state.
fn is_up_to_date(c: &Changed) -> Result<(), TestCaseError> {
    let rejected = |e: trickle_core::Error| TestCaseError::reject(e.to_string());
    let mut store = Store::default();
    store.add(&c.sample.eval(&c.database.before()).map_err(rejected)?);
    let variant = VARIANTS.first().ok_or_else(|| TestCaseError::reject("there is no variant"))?;
    let (graph, delta) = delta_plan(&c.sample, None, variant).map_err(rejected)?;
    store.add(&eval(&graph, delta, &c.database).map_err(rejected)?);
    let mut expected = Store::default();
    expected.add(&c.sample.eval(&c.database).map_err(rejected)?);
    match store.0 == expected.0 {
        true => Ok(()),
        false => Err(TestCaseError::fail(format!("{:?} instead of {:?}", store.0, expected.0))),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut runner = TestRunner::new(Config::with_cases(500));
    let drawn = changed_queries(tables(), Limits::default(), 4);
    match runner.run(&drawn, |c| is_up_to_date(&c)) {
        Ok(()) => println!("the store was up to date after 500 changes"),
        Err(TestError::Fail(why, smallest)) => return Err(format!("{why}\n{smallest:?}").into()),
        Err(TestError::Abort(why)) => return Err(why.to_string().into()),
    }
    Ok(())
}

#[test]
fn the_example_runs() {
    assert!(main().is_ok());
}
