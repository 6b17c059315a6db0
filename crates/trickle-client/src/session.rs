//! A connection to a server, and how the batches of a refresh travel over it.

use crate::error::{Error, Result};
pub use crate::prepared::Sent;
use crate::prepared::{Prepared, Way};
use futures_util::{StreamExt, future, pin_mut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{CancelToken, Client, Config, NoTls, Row, Statement as Kept};
use trickle_core::refresh::{
    Answer, Failure, Kind, Machine, Outcome, Plan, Report, Setting, Statement, Step, Value,
};
use trickle_core::sql::Ident;

/// A connection. Dropping it closes it; an open transaction is rolled back by the server.
pub struct Session {
    client: Client,
    /// Where statements that come again are to be prepared.
    prepared: Option<Mutex<Prepared>>,
}

/// What came of a statement, and when its answer was complete.
type Timed = (Result<Answer>, Instant);

/// The answers of statements that were sent, and may not be there yet.
type Waiting<'s> = Pin<Box<dyn Future<Output = Vec<Timed>> + 's>>;

impl Session {
    /// Connects without TLS. Must be called within a tokio runtime, which then drives the connection.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub async fn connect(config: &Config) -> Result<Session> {
        let to = config.get_dbname().or_else(|| config.get_user()).unwrap_or("the default database");
        let doing = || format!("connect to \"{to}\"");
        let (client, connection) = config.connect(NoTls).await.map_err(|e| Error::server(doing(), e))?;
        // When the connection breaks, the statement that waits on it gets the error.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Session::new(client))
    }

    /// A session over a connection that something else drives.
    pub fn new(client: Client) -> Session {
        Session { client, prepared: None }
    }

    /// Keeps the statements of refreshes prepared that come again.
    #[must_use]
    pub fn preparing(mut self) -> Session {
        self.prepared = Some(Mutex::default());
        self
    }

    /// What was sent of statements that come again; nothing is counted where none is kept prepared.
    pub fn statements(&self) -> Sent {
        self.prepared.as_ref().map(|p| lock(p).sent()).unwrap_or_default()
    }

    /// The connection itself, for statements that are no part of a refresh.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The connection itself, to begin a transaction on.
    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Drives a refresh to its end.
    ///
    /// # Errors
    /// What made the machine give up; nothing has changed then.
    pub async fn drive(
        &self,
        plan: Plan,
        mut watch: Option<&mut (dyn Watch + '_)>,
    ) -> std::result::Result<Report, Failure> {
        let mut machine = Machine::new(plan);
        let mut outcome = Outcome::start();
        loop {
            let started = Instant::now();
            let step = machine.step(outcome);
            let generate_micros = micros(started);
            match step {
                Step::Run(batch) => {
                    outcome = self.run(&batch, watch.as_deref_mut()).await;
                    outcome.generate_micros = generate_micros;
                }
                Step::Done(report) => return Ok(report),
                Step::Fail(failure) => return Err(failure),
            }
        }
    }

    /// Sends a batch without waiting for each answer; the server works in order and, within a transaction, does nothing
    /// more after the first error. Watched statements are sent one by one.
    async fn run(&self, batch: &[Statement], watch: Option<&mut (dyn Watch + '_)>) -> Outcome {
        let started = Instant::now();
        let answers = match watch {
            None => self.pipelined(batch).await,
            Some(watch) => {
                let mut answers = Vec::new();
                for s in batch {
                    let answer = match watch.before(s).await {
                        Ok(()) => match watch.instead(s, self).await {
                            Some(result) => (result, Instant::now()),
                            None => self.answer(s, None).await,
                        },
                        Err(e) => (Err(e), Instant::now()),
                    };
                    let failed = answer.0.is_err();
                    answers.push(answer);
                    if failed {
                        break;
                    }
                }
                answers
            }
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
                    outcome.error = Some(e.to_db());
                    break;
                }
            }
        }
        outcome
    }

    /// The answers of a batch, up to the first error that was met before all were sent. To prepare a statement takes a
    /// round trip in its place, once.
    async fn pipelined(&self, batch: &[Statement]) -> Vec<Timed> {
        let mut answers: Vec<Timed> = Vec::new();
        let mut waiting: Vec<Waiting<'_>> = Vec::new();
        let mut rest = batch;
        while let Some((s, after)) = rest.split_first() {
            let (bare, others) = rest.split_at(controls(rest));
            if !bare.is_empty() {
                bare.iter().for_each(|s| self.tell(s));
                waiting.push(Box::pin(self.together(bare)));
                rest = others;
                continue;
            }
            rest = after;
            let types: Vec<Type> = s.params.iter().map(|v| bound(v).1).collect();
            let way = self.prepared.as_ref().map_or(Way::Text, |p| lock(p).way(s, &types));
            let kept = match way {
                Way::Text => None,
                Way::Kept(kept) => Some(kept),
                Way::Prepare(settings) => {
                    answers.extend(future::join_all(waiting.drain(..)).await.into_iter().flatten());
                    if answers.iter().any(|(a, _)| a.is_err()) {
                        return answers;
                    }
                    match self.client.prepare_typed(&s.text, &types).await {
                        Ok(new) => {
                            if let Some(p) = &self.prepared {
                                lock(p).keep(settings, &s.text, new.clone());
                            }
                            Some(new)
                        }
                        Err(e) => {
                            answers.push((Err(Error::server(first_words(&s.text), e)), Instant::now()));
                            return answers;
                        }
                    }
                }
            };
            waiting.push(Box::pin(async move { vec![self.answer(s, kept).await] }));
        }
        // Futures of one connection are sent in the order in which they are first polled.
        answers.extend(future::join_all(waiting).await.into_iter().flatten());
        answers
    }

    /// Lets those that keep prepared statements know of one that is sent as a text.
    fn tell(&self, s: &Statement) {
        if let Some(p) = &self.prepared {
            lock(p).way(s, &[]);
        }
    }

    /// Statements that return nothing, in one message. What they took is the first one's, and so is their error.
    async fn together(&self, bare: &[Statement]) -> Vec<Timed> {
        let texts: Vec<&str> = bare.iter().map(|s| &*s.text).collect();
        let text = texts.join("; ");
        let result = self.client.batch_execute(&text).await;
        let at = Instant::now();
        match result {
            Ok(()) => bare.iter().map(|_| (Ok(Answer::default()), at)).collect(),
            Err(e) => vec![(Err(Error::server(first_words(&text), e)), at)],
        }
    }

    /// The answer to a question that is asked again and again, outside refreshes.
    pub(crate) async fn ask(
        &self,
        text: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
        let types: Vec<Type> = params.iter().map(|(_, ty)| ty.clone()).collect();
        let kept = match self.prepared.as_ref().map_or(Way::Text, |p| lock(p).asked(text, &types)) {
            Way::Text => return self.client.query_typed(text, params).await,
            Way::Kept(kept) => kept,
            Way::Prepare(settings) => {
                let new = self.client.prepare_typed(text, &types).await?;
                if let Some(p) = &self.prepared {
                    lock(p).keep(settings, text, new.clone());
                }
                new
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = params.iter().map(|(v, _)| *v).collect();
        self.client.query(&kept, &values).await
    }

    /// Runs one statement of the machine's outside a refresh.
    pub(crate) async fn run_one(&self, statement: &Statement) -> Result<Answer> {
        self.query(statement, None).await
    }

    /// Runs a statement, and returns how the server did it.
    pub(crate) async fn explain(&self, statement: &Statement) -> Result<serde_json::Value> {
        let text = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}", statement.text);
        let params: Vec<(Bound<'_>, Type)> = statement.params.iter().map(bound).collect();
        let params: Vec<(&(dyn ToSql + Sync), Type)> =
            params.iter().map(|(v, t)| (v as &(dyn ToSql + Sync), t.clone())).collect();
        let rows = self.client.query_typed(&text, &params).await;
        let rows = rows.map_err(|e| Error::server(first_words(&text), e))?;
        let plan = rows.first().map(|row| row.try_get(0)).transpose();
        let plan = plan.map_err(|e| Error::server("read a plan", e))?;
        plan.ok_or_else(|| Error::input("the server did not explain a statement"))
    }

    /// One statement in one message exchange; and when its answer was complete.
    async fn answer(&self, statement: &Statement, kept: Option<Kept>) -> Timed {
        let result = self.query(statement, kept).await;
        (result, Instant::now())
    }

    async fn query(&self, statement: &Statement, kept: Option<Kept>) -> Result<Answer> {
        let doing = |e| Error::server(first_words(&statement.text), e);
        let params: Vec<(Bound<'_>, Type)> = statement.params.iter().map(bound).collect();
        let values = params.iter().map(|(v, _)| v as &(dyn ToSql + Sync));
        let rows = match &kept {
            Some(kept) => self.client.query_raw(kept, values).await,
            None => {
                let typed = values.zip(params.iter().map(|(_, t)| t.clone()));
                self.client.query_typed_raw(&statement.text, typed).await
            }
        };
        let rows = rows.map_err(doing)?;
        pin_mut!(rows);
        let mut answer = Answer::default();
        while let Some(row) = rows.next().await {
            let row = row.map_err(doing)?;
            if statement.fetch {
                answer.rows.push((0..row.len()).map(|i| value(&row, i)).collect::<Result<_>>()?);
            }
        }
        answer.affected = rows.rows_affected().unwrap_or(0);
        Ok(answer)
    }
}

/// Sees each statement of a refresh before it is sent, and may do its work: for traces, for work on several connections,
/// and for tests that stop at a step.
pub trait Watch {
    /// An error here is taken for the statement's, which is not sent then.
    fn before<'s>(&'s mut self, statement: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>>;

    /// Answers a statement of a session's in the place of the server, which does not see it then; `None` sends it.
    fn instead<'s>(
        &'s mut self,
        _: &'s Statement,
        _: &'s Session,
    ) -> Pin<Box<dyn Future<Output = Option<Result<Answer>>> + 's>> {
        Box::pin(future::ready(None))
    }
}

/// Connects, as often as it must.
pub trait Connect: Send + Sync {
    /// A new connection.
    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<Session>> + '_>>;

    /// Asks the server to end what a connection that came from here is doing, over a line of the same kind. Whether that
    /// ends is seen on the connection itself.
    fn cancel(&self, what: CancelToken) -> Pin<Box<dyn Future<Output = Result<()>> + '_>> {
        Box::pin(
            async move { what.cancel_query(NoTls).await.map_err(|e| Error::server("cancel a statement", e)) },
        )
    }

    /// The same to be kept: for work on several connections, where there is to be any.
    fn kept(&self) -> Option<Arc<dyn Connect>> {
        None
    }
}

/// Puts settings in force for the rest of the transaction; takes its snapshot.
pub(crate) async fn put_in_force(
    client: &Client,
    settings: &[Setting],
) -> std::result::Result<(), tokio_postgres::Error> {
    for s in settings {
        let list: Vec<String> = s.values.iter().map(|v| Ident::new(v).to_string()).collect();
        let value = if s.name == "search_path" { list.join(", ") } else { s.values.concat() };
        client.query("SELECT set_config($1, $2, true)", &[&s.name, &value]).await?;
    }
    Ok(())
}

/// A value as a parameter.
#[derive(Debug)]
enum Bound<'v> {
    Bool(bool),
    Int8(i64),
    Float8(f64),
    Text(Option<&'v str>),
}

fn bound(v: &Value) -> (Bound<'_>, Type) {
    match v {
        // PostgreSQL takes an untyped NULL for whatever stands around it.
        Value::Null => (Bound::Text(None), Type::UNKNOWN),
        Value::Bool(b) => (Bound::Bool(*b), Type::BOOL),
        Value::Int8(n) => (Bound::Int8(*n), Type::INT8),
        Value::Float8(x) => (Bound::Float8(*x), Type::FLOAT8),
        Value::Text(s) => (Bound::Text(Some(s)), Type::TEXT),
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> std::result::Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Bound::Bool(b) => b.to_sql(ty, out),
            Bound::Int8(n) => n.to_sql(ty, out),
            Bound::Float8(x) => x.to_sql(ty, out),
            Bound::Text(s) => s.to_sql(ty, out),
        }
    }
    fn accepts(_: &Type) -> bool {
        true
    }
    tokio_postgres::types::to_sql_checked!();
}

fn value(row: &Row, i: usize) -> Result<Value> {
    let ty = row.columns()[i].type_().clone();
    let doing = |e| Error::server("read a result", e);
    let v = match ty {
        Type::BOOL => row.try_get::<_, Option<bool>>(i).map_err(doing)?.map(Value::Bool),
        Type::INT8 => row.try_get::<_, Option<i64>>(i).map_err(doing)?.map(Value::Int8),
        Type::FLOAT8 => row.try_get::<_, Option<f64>>(i).map_err(doing)?.map(Value::Float8),
        _ => row.try_get::<_, Option<&str>>(i).map_err(doing)?.map(|s| Value::Text(Arc::from(s))),
    };
    Ok(v.unwrap_or(Value::Null))
}

/// How many statements at the beginning of a batch belong to one phase and control the transaction only: they take no
/// values and return none.
fn controls(batch: &[Statement]) -> usize {
    let phase = batch.first().map(|s| s.phase);
    let is_control = |s: &Statement| {
        !matches!(s.kind, Kind::Decide | Kind::Program | Kind::Command | Kind::Frontier | Kind::History)
    };
    batch.iter().take_while(|s| Some(s.phase) == phase && is_control(s)).count()
}

/// What a panic elsewhere left behind is still a list of prepared statements.
fn lock(prepared: &Mutex<Prepared>) -> MutexGuard<'_, Prepared> {
    prepared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(since: Instant) -> u64 {
    since.elapsed().as_micros() as u64
}

/// `run "first words of the statement"`.
pub(crate) fn first_words(statement: &str) -> String {
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
