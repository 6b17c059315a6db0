//! A connection to a server, and how it sends the batches of a refresh.

mod values;
mod wire;

use crate::cancel::{Cancel, Way as Reached};
use crate::error::failed;
use crate::greeting;
use crate::leftovers::{DROP_SHARED, Leftovers};
use futures_util::{StreamExt, future, pin_mut};
use std::pin::Pin;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement as Prepared};
use trickle_core::refresh::{Answer, Kind, Statement};
use trickle_engine::db::{Answering, Bind, Connection, Connections, Kept, Param, SendForm, Sent};
use trickle_engine::db::{Timed, first_words};
use trickle_engine::{Error, Result};
use values::type_of;

/// A database with a trickle catalog, over a connection of this crate.
pub type Trickle = trickle_engine::Trickle<Session>;

/// A connection to a server. Dropping the session closes the connection, and the server rolls back an open
/// transaction.
pub struct Session {
    client: Client,
    /// The statements that stay prepared; `None` if statements are always sent as texts.
    prepared: Option<Mutex<Kept<Prepared>>>,
    /// The host and the encryption of the connection; `None` if somebody else made the connection.
    way: Option<Reached>,
    /// The number of the server process that the connection was given at its start.
    greeted: Option<i32>,
    /// Facts for work behind a pooler; `None` if all transactions run in one server process.
    pub(crate) shared: Option<Shared>,
    /// The leftovers of users' code in the session.
    leftovers: Leftovers,
}

/// A connection whose transactions may each run in another server process.
pub(crate) struct Shared {
    /// The statements with which each transaction begins.
    locals: &'static [&'static str],
    /// The server process of the last refresh.
    process: Arc<AtomicI32>,
}

/// The answers to statements, which arrive when this future is awaited.
type Waiting<'s> = Pin<Box<dyn Future<Output = Vec<Timed>> + 's>>;

impl Session {
    /// Connects without TLS. Must be called within a tokio runtime, in which a task then drives the
    /// connection.
    ///
    /// # Errors
    /// The server cannot be reached or refuses.
    pub async fn connect(config: &Config) -> Result<Session> {
        let to = config.get_dbname().or_else(|| config.get_user()).unwrap_or("the default database");
        let doing = || format!("connect to \"{to}\"");
        let (client, connection) = config.connect(NoTls).await.map_err(|e| failed(doing(), e))?;
        // When the connection breaks, the statement that waits for an answer gets the error.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Session::new(client))
    }

    /// Makes a session over a connection that the caller's task drives.
    pub fn new(client: Client) -> Session {
        let greeted = greeting::process(&client.cancel_token());
        Session { client, prepared: None, way: None, greeted, shared: None, leftovers: Leftovers::default() }
    }

    /// Notes the host and the encryption of the connection, for requests to cancel.
    pub(crate) fn reached(self, way: Reached) -> Session {
        Session { way: Some(way), ..self }
    }

    /// Waits until the session is cleaned of the leftovers of users' code. If cleaning fails, the next
    /// refresh reports the failure.
    pub(crate) async fn rest(&self) {
        // After an error, the session refuses its next refresh as if the connection were lost.
        let _ = self.leftovers.cleaned(&self.client).await;
    }

    /// Declares that only this program uses the session, so that leftovers of users' code are removed after
    /// each refresh. A caller that has a lock, a setting or a temporary table of its own in the session must
    /// not call this function.
    #[must_use]
    pub fn alone(mut self) -> Session {
        self.leftovers.be_alone();
        self
    }

    /// Returns a handle that asks the server to end the running statement of this connection.
    pub fn cancel(&self) -> Cancel {
        Cancel::new(self.client.cancel_token(), self.way.clone())
    }

    /// Makes repeated statements of refreshes stay prepared, from this call on.
    fn prepare(&mut self) {
        self.prepared = Some(Mutex::default());
    }

    /// Returns how many repeated statements were sent, and how many of these were already prepared. Both
    /// numbers are zero if no statements stay prepared.
    pub fn statements(&self) -> Sent {
        self.prepared.as_ref().map(|p| lock(p).sent()).unwrap_or_default()
    }

    /// Returns the driver's connection, for statements that are no part of a refresh.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the connection as the engine uses it.
    pub fn db(&self) -> &dyn Connection {
        self
    }

    /// Sends the statements of a batch, and returns their answers. If an error arrives before all statements
    /// were sent, the rest of the batch is neither sent nor answered. A statement that has to be prepared
    /// costs one more round trip, the first time.
    async fn pipelined(&self, batch: &[Statement]) -> Vec<Timed> {
        let mut answers: Vec<Timed> = Vec::new();
        let mut waiting: Vec<Waiting<'_>> = Vec::new();
        let mut rest = batch;
        if batch.first().is_some_and(|s| s.kind == Kind::Begin)
            && let Err(e) = self.leftovers.cleaned(&self.client).await
        {
            return vec![(Err(Error::server("begin a refresh", e)), Instant::now())];
        }
        batch.iter().for_each(|s| self.leftovers.note(s));
        while let Some((s, after)) = rest.split_first() {
            let (bare, others) = rest.split_at(controls(rest));
            if !bare.is_empty() {
                bare.iter().for_each(|s| self.tell(s));
                waiting.push(Box::pin(self.together(bare)));
                rest = others;
                continue;
            }
            rest = after;
            let types: Vec<Type> = s.params.iter().map(|v| type_of(&v.bind())).collect();
            let form =
                self.prepared.as_ref().map_or(SendForm::Text, |p| lock(p).form(s, |kept| fits(kept, &types)));
            let kept = match form {
                SendForm::Text => None,
                SendForm::Kept(kept) => Some(kept),
                SendForm::Prepare(settings) => {
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
                            // The driver's own prepared statements are gone too, and the driver does not
                            // prepare them again.
                            if e.code().is_some_and(|c| c.code() == DROPPED) {
                                self.leftovers.spoil();
                            }
                            answers.push((Err(failed(first_words(&s.text), e)), Instant::now()));
                            return answers;
                        }
                    }
                }
            };
            waiting.push(Box::pin(async move { vec![self.timed(s, kept).await] }));
        }
        // The statements of one connection are sent in the order in which their futures are first polled.
        answers.extend(future::join_all(waiting).await.into_iter().flatten());
        self.unprepared(&answers);
        answers
    }

    /// Forgets the prepared statements if an answer says that the server has dropped one. Users' code can
    /// make the server do that. Statements are then prepared again.
    fn unprepared(&self, answers: &[Timed]) {
        let is_dropped = |(answer, _): &Timed| answer.as_ref().is_err_and(|e| e.sqlstate() == Some(DROPPED));
        if answers.iter().any(is_dropped) {
            self.forget();
        }
    }

    /// Forgets all prepared statements.
    fn forget(&self) {
        if let Some(p) = &self.prepared {
            lock(p).forget();
        }
    }

    /// Tells the store of prepared statements that a statement is sent as text.
    fn tell(&self, s: &Statement) {
        if let Some(p) = &self.prepared {
            lock(p).form(s, |_| false);
        }
    }

    /// Sends statements that return nothing in one message. Their answers have the same time of arrival, so
    /// the whole time counts for the first statement. If a statement fails, the error is the only answer.
    async fn together(&self, bare: &[Statement]) -> Vec<Timed> {
        let mut texts: Vec<&str> = bare.iter().map(|s| &*s.text).collect();
        let begins = bare.first().is_some_and(|s| s.kind == Kind::Begin);
        let shared = self.shared.as_ref().filter(|_| begins);
        if let Some(shared) = shared {
            texts.splice(1..1, shared.locals.iter().copied());
            texts.insert(0, WHO);
        }
        let ends = bare.last().is_some_and(|s| matches!(s.kind, Kind::Commit | Kind::Rollback));
        let leaves = self.shared.is_some() && ends && self.leftovers.take();
        if leaves {
            texts.push(DROP_SHARED);
        }
        let text = texts.join("; ");
        let result = match shared {
            None if leaves => self.first(bare.len(), &text).await,
            None => self.client.batch_execute(&text).await,
            Some(shared) => self.client.simple_query(&text).await.map(|answer| shared.note(&answer)),
        };
        let at = Instant::now();
        match result {
            Ok(()) => bare.iter().map(|_| (Ok(Answer::default()), at)).collect(),
            Err(e) => vec![(Err(failed(first_words(&text), e)), at)],
        }
    }

    /// Runs statements in one message, and succeeds if the first `many` of them succeeded. The whole message
    /// runs in one server process, even if each transaction may run in another process. A later statement
    /// that fails does not undo the commit before it.
    async fn first(&self, many: usize, text: &str) -> std::result::Result<(), tokio_postgres::Error> {
        let told = self.client.simple_query_raw(text).await?;
        pin_mut!(told);
        let mut done = 0;
        while let Some(message) = told.next().await {
            match message {
                Ok(SimpleQueryMessage::CommandComplete(_)) => done += 1,
                Ok(_) => {}
                Err(e) if done < many => return Err(e),
                Err(e) => {
                    tracing::warn!("what a refresh left in a pooler's session cannot be taken away: {e}")
                }
            }
        }
        Ok(())
    }

    /// Returns the prepared form of a statement that is sent repeatedly and is not a statement of a refresh.
    /// Returns `None` if the statement is to be sent as text.
    async fn kept(
        &self,
        text: &str,
        types: &[Type],
    ) -> std::result::Result<Option<Prepared>, tokio_postgres::Error> {
        match self.prepared.as_ref().map_or(SendForm::Text, |p| lock(p).asked(text, |kept| fits(kept, types)))
        {
            SendForm::Text => Ok(None),
            SendForm::Kept(kept) => Ok(Some(kept)),
            SendForm::Prepare(settings) => {
                let new = self.client.prepare_typed(text, types).await?;
                if let Some(p) = &self.prepared {
                    lock(p).keep(settings, text, new.clone());
                }
                Ok(Some(new))
            }
        }
    }

    /// Runs one statement, prepared or as text, and returns its answer.
    async fn answer(&self, statement: &Statement, kept: Option<Prepared>) -> Result<Answer> {
        let params: Vec<Param<'_>> = statement.params.iter().map(Bind::bind).collect();
        let rows = self.rows(&statement.text, &params, kept).await;
        rows.map(|r| r.answer(statement)).map_err(|e| Error::server(first_words(&statement.text), e))
    }

    /// Runs one statement, and returns its answer and the moment when the answer was complete.
    async fn timed(&self, statement: &Statement, kept: Option<Prepared>) -> Timed {
        let result = self.answer(statement, kept).await;
        (result, Instant::now())
    }
}

/// The SQLSTATE for the name of a prepared statement that the server does not have.
const DROPPED: &str = "26000";

/// Returns the number of the server process in which the whole message runs. This query has a transaction of
/// its own, since the next transaction must take its locks before its first snapshot.
const WHO: &str = "BEGIN; SELECT pg_backend_pid(); COMMIT";

impl Shared {
    /// Notes the process that [`WHO`] returned.
    fn note(&self, answer: &[SimpleQueryMessage]) {
        let told = answer.iter().find_map(|m| match m {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        self.process.store(told.unwrap_or(0), Ordering::Relaxed);
    }
}

/// The means to open connections, as many as are needed.
pub trait Connect: Send + Sync {
    /// Opens a new connection.
    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<Session>> + '_>>;

    /// Returns a shared handle that opens connections, for work on several connections at once. Returns
    /// `None` if such work must use one connection.
    fn kept(&self) -> Option<Arc<dyn Connect>> {
        None
    }
}

/// Counts how many statements at the beginning of a batch belong to one phase and only control the
/// transaction. Such statements have neither parameters nor rows.
fn controls(batch: &[Statement]) -> usize {
    let phase = batch.first().map(|s| s.phase);
    let is_control = |s: &Statement| {
        !matches!(
            s.kind,
            Kind::Decide
                | Kind::Program
                | Kind::Define
                | Kind::Command
                | Kind::Partitions
                | Kind::Lease
                | Kind::Frontier
                | Kind::History
        )
    };
    batch.iter().take_while(|s| Some(s.phase) == phase && is_control(s)).count()
}

/// Whether values of these types can be bound to a statement. NULL can be bound to a parameter of any type.
fn fits(kept: &Prepared, given: &[Type]) -> bool {
    let expected = kept.params();
    expected.len() == given.len() && expected.iter().zip(given).all(|(e, g)| e == g || *g == Type::UNKNOWN)
}

/// Locks the prepared statements. After a panic of another thread their store is still whole.
fn lock(kept: &Mutex<Kept<Prepared>>) -> MutexGuard<'_, Kept<Prepared>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The opener of connections to one server.
struct From(Arc<dyn Connect>);

impl Connections for From {
    fn another(&self) -> Answering<'_, Box<dyn Connection>, Error> {
        Box::pin(async move {
            let session = self.0.connect().await?;
            Ok(Box::new(session) as Box<dyn Connection>)
        })
    }
}

/// Returns the opener of more connections for [`trickle_engine::Trickle::with_connections`].
pub fn connections(to: Arc<dyn Connect>) -> Arc<dyn Connections> {
    Arc::new(From(to))
}
