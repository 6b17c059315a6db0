//! Runs refreshes: sends the statements of the refresh machine over any connection, and gives the machine
//! their outcomes.

use crate::db::{Bind, Connection, Json, RefreshDriver, Timed, first_words};
use crate::error::{Error, Result};
use futures_util::future;
use std::pin::Pin;
use std::time::Instant;
use trickle_core::refresh::{Answer, Failure, Machine, Outcome, Plan, Report, Statement, Step};

/// An observer of a refresh, which sees each statement before it is sent, and may answer the statement
/// itself. Observers are used for traces, for work on several connections, and for tests that stop at a step.
pub trait Watch {
    /// Sees a statement before it is sent. An error that the observer returns counts as the error of the
    /// statement, and the statement is not sent.
    fn before<'s>(&'s mut self, statement: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>>;

    /// Answers a statement instead of the server, to which the statement is then not sent. If the observer
    /// returns `None`, the statement is sent.
    fn instead<'s>(
        &'s mut self,
        _: &'s Statement,
        _: &'s dyn Connection,
    ) -> Pin<Box<dyn Future<Output = Option<Result<Answer>>> + 's>> {
        Box::pin(future::ready(None))
    }
}

/// Drives a refresh to its end.
///
/// # Errors
/// The reason why the machine gave up, after which nothing has changed in the database.
pub async fn drive(
    connection: &dyn RefreshDriver,
    plan: Plan,
    mut watch: Option<&mut (dyn Watch + '_)>,
) -> std::result::Result<Report, Failure> {
    let mut machine = Machine::new(plan);
    let mut outcome = Outcome::start();
    connection.refresh_begins();
    let end = loop {
        let started = Instant::now();
        let step = machine.step(outcome);
        let generate_micros = started.elapsed().as_micros() as u64;
        match step {
            Step::Run(batch) => {
                outcome = run(connection, &batch, watch.as_deref_mut()).await;
                outcome.generate_micros = generate_micros;
            }
            Step::Done(report) => break Ok(report),
            Step::Fail(failure) => break Err(failure),
        }
    };
    connection.refresh_ends(end.is_ok());
    end
}

/// Runs a batch of statements. Where an observer watches, the statements are sent one by one.
async fn run(
    connection: &dyn RefreshDriver,
    batch: &[Statement],
    watch: Option<&mut (dyn Watch + '_)>,
) -> Outcome {
    let started = Instant::now();
    let answers = match watch {
        None => connection.steps(batch).await,
        Some(watch) => watched(connection, batch, watch).await,
    };
    let (mut outcome, mut before) = (Outcome::default(), 0);
    for (answer, at) in answers {
        match answer {
            Ok(mut answer) => {
                let done = at.duration_since(started).as_micros() as u64;
                answer.micros = done.saturating_sub(before);
                before = done;
                outcome.answers.push(answer);
            }
            Err(e) => {
                outcome.error = Some(e.to_server_error());
                break;
            }
        }
    }
    outcome
}

async fn watched(
    connection: &dyn RefreshDriver,
    batch: &[Statement],
    watch: &mut (dyn Watch + '_),
) -> Vec<Timed> {
    let mut answers = Vec::new();
    for s in batch {
        let answer = match watch.before(s).await {
            Ok(()) => match watch.instead(s, connection).await {
                Some(result) => result,
                None => connection.step(s).await,
            },
            Err(e) => Err(e),
        };
        let failed = answer.is_err();
        answers.push((answer, Instant::now()));
        if failed {
            break;
        }
    }
    answers
}

/// Runs a statement under EXPLAIN ANALYZE, and returns the server's report.
pub(crate) async fn explain(connection: &dyn Connection, statement: &Statement) -> Result<serde_json::Value> {
    let text = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}", statement.text);
    let params: Vec<&dyn Bind> = statement.params.iter().map(|p| p as &dyn Bind).collect();
    let row = connection.query_one(&text, &params).await;
    let row = row.map_err(|e| Error::server(first_words(&text), e))?;
    Ok(row.get::<Json<serde_json::Value>>(0).0)
}
