//! The statements of refreshes, as a driver runs them.

use super::{Answering, Bind, Connection};
use crate::error::{Error, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::Instant;
use trickle_core::refresh::{Answer, Statement};

/// The answer to a statement, and the time at which it was complete.
pub type Timed = (Result<Answer>, Instant);

/// A connection that runs refreshes. By default, each statement of a refresh is sent as text, after the
/// answer to the statement before it.
pub trait RefreshDriver: Connection {
    /// Tells the connection that a refresh begins. Until the refresh ends, its statements come through
    /// [`RefreshDriver::steps`] and read the snapshot of the decision query.
    fn refresh_begins(&self) {}

    /// Tells the connection that a refresh ends. The work of the refresh is preserved if `_done` is true,
    /// and undone otherwise.
    fn refresh_ends(&self, _done: bool) {}

    /// Runs one statement of a refresh.
    fn step<'a>(&'a self, statement: &'a Statement) -> Answering<'a, Answer, Error> {
        Box::pin(async move {
            let params = statement.params.iter().map(Bind::bind).collect();
            let rows = self.run(&statement.text, params, false).await;
            rows.map(|r| r.answer(statement)).map_err(|e| Error::server(first_words(&statement.text), e))
        })
    }

    /// Runs statements of a refresh in order, up to the first that fails.
    fn steps<'a>(&'a self, batch: &'a [Statement]) -> Pin<Box<dyn Future<Output = Vec<Timed>> + 'a>> {
        Box::pin(async move {
            let mut answers: Vec<Timed> = Vec::new();
            for s in batch {
                let answer = self.step(s).await;
                let failed = answer.is_err();
                answers.push((answer, Instant::now()));
                if failed {
                    break;
                }
            }
            answers
        })
    }

    /// Returns the session for which another process cancelled the last failed statement
    /// ([`give_way`](crate::give_way)), if there is such a session. A second call returns `None`.
    fn gives_way_to(&self) -> Option<String> {
        None
    }

    /// Makes the connection prepare those statements of refreshes that are sent repeatedly.
    fn keep_prepared(&mut self) {}

    /// Returns the counts of the statements that were sent repeatedly. All counts are 0 where the connection
    /// prepares no statement.
    fn sent(&self) -> Sent {
        Sent::default()
    }

    /// Returns the number of the server process in which the last refresh began, and 0 before the first
    /// refresh. Returns `None` where all refreshes of the connection have one process.
    fn process(&self) -> Option<Arc<AtomicI32>> {
        None
    }
}

/// Counts of the statements that a connection sends repeatedly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The number of all such statements.
    pub all: u64,
    /// The number of such statements that were already prepared when they were sent.
    pub kept: u64,
}

/// Returns `run "…"` with the first words of a statement, for messages.
pub fn first_words(statement: &str) -> String {
    let first = statement.lines().find(|l| !l.trim().is_empty()).unwrap_or_default().trim();
    match first.char_indices().nth(60) {
        Some((end, _)) => format!("run \"{} …\"", &first[..end]),
        None => format!("run \"{first}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::first_words;

    #[test]
    fn a_statement_is_named_by_its_first_line() {
        assert_eq!(first_words("\n  DELETE FROM t\nWHERE true"), "run \"DELETE FROM t\"");
        assert_eq!(first_words(&"é".repeat(70)), format!("run \"{} …\"", "é".repeat(60)));
    }
}
