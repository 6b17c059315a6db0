//! Collects the server's execution plans for the statements of a refresh.

use crate::db::Connection;
use crate::drive::{Watch, explain};
use crate::error::{Error, Result};
use std::future;
use std::pin::Pin;
use trickle_core::refresh::{Answer, Kind, Statement};

/// An observer that collects the execution plan of each statement that changes stream tables, for
/// [`crate::Trickle::refresh_watched`]. `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)` returns the plan, and also
/// runs the statement. That run is rolled back, and the statement is sent again normally, so the result of
/// the refresh is the same as without the observer.
#[derive(Debug, Default)]
pub struct Plans {
    /// The text and the plan of each statement.
    pub taken: Vec<(String, serde_json::Value)>,
}

impl Plans {
    async fn take(&mut self, statement: &Statement, connection: &dyn Connection) -> Result<()> {
        let fail = |e| Error::server("explain a statement", e);
        connection.batch_execute("SAVEPOINT trickle_plan").await.map_err(fail)?;
        let plan = explain(connection, statement).await;
        let undo = "ROLLBACK TO SAVEPOINT trickle_plan; RELEASE SAVEPOINT trickle_plan";
        connection.batch_execute(undo).await.map_err(fail)?;
        // A statement that fails under EXPLAIN fails again when it is sent, and the refresh machine handles
        // that error.
        if let Ok(plan) = plan {
            self.taken.push((statement.text.to_string(), plan));
        }
        Ok(())
    }
}

impl Watch for Plans {
    fn before<'s>(&'s mut self, _: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(future::ready(Ok(())))
    }

    fn instead<'s>(
        &'s mut self,
        statement: &'s Statement,
        connection: &'s dyn Connection,
    ) -> Pin<Box<dyn Future<Output = Option<Result<Answer>>> + 's>> {
        Box::pin(async move {
            match statement.kind {
                Kind::Program => self.take(statement, connection).await.err().map(Err),
                _ => None,
            }
        })
    }
}
