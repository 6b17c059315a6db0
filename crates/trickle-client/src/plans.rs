//! How the server runs the statements of a refresh.

use crate::error::Result;
use crate::session::{Session, Watch};
use std::future;
use std::pin::Pin;
use trickle_core::refresh::{Answer, Kind, Statement, Value};

/// Keeps how the server runs each statement that changes stream tables: `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)`, which runs
/// it. For [`crate::Trickle::refresh_watched`]; what the refresh says then of rows that were written is 0.
#[derive(Debug, Default)]
pub struct Plans {
    /// For each statement its text and its plan.
    pub taken: Vec<(String, serde_json::Value)>,
}

impl Watch for Plans {
    fn before<'s>(&'s mut self, _: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(future::ready(Ok(())))
    }

    fn instead<'s>(
        &'s mut self,
        statement: &'s Statement,
        session: &'s Session,
    ) -> Pin<Box<dyn Future<Output = Option<Result<Answer>>> + 's>> {
        Box::pin(async move {
            if statement.kind != Kind::Program {
                return None;
            }
            match session.explain(statement).await {
                Ok(plan) => {
                    self.taken.push((statement.text.to_string(), plan));
                    let counts = if statement.fetch { vec![vec![Value::Int8(0); 3]] } else { Vec::new() };
                    Some(Ok(Answer { rows: counts, ..Answer::default() }))
                }
                Err(e) => Some(Err(e)),
            }
        })
    }
}
