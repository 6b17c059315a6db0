//! The refresh program of a stream table in mode IMMEDIATE: triggers on its sources keep it up to date.

use super::plan::{Program, ReaderView, Template, Windows};
use super::program::Compiled;
use crate::cost::Strategy;
use crate::error::{Error, Result};
use std::sync::Arc;

/// The program that computes a stream table in full. It then makes the triggers that keep the table up to
/// date after the transaction.
#[derive(Debug)]
pub struct Installed {
    program: Compiled,
    then: Vec<Template>,
}

impl Installed {
    /// Makes a program whose full refreshes end in the statements `then`.
    pub fn new(program: Compiled, then: Vec<Template>) -> Installed {
        Installed { program, then }
    }
}

impl Program for Installed {
    fn strategies(&self) -> &[Strategy] {
        &[Strategy::FullDifference, Strategy::Full]
    }

    fn statements(&self, strategy: Strategy, windows: &Windows) -> Result<Arc<[Template]>> {
        match strategy {
            Strategy::NoData => Ok(Arc::new([])),
            Strategy::FullDifference | Strategy::Full => {
                let all = self.program.statements(strategy, windows)?;
                Ok(all.iter().chain(&self.then).cloned().collect())
            }
            other => Err(Error::plan(format!("what triggers keep has no way {}", other.name()))),
        }
    }

    fn feed(&self, strategy: Strategy) -> ReaderView {
        self.program.feed(strategy)
    }
}
