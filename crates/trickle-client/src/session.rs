//! A connection to a server, and how the batches of a refresh travel over it.

use crate::cancel::{Cancel, Way as Reached};
use crate::greeting;
use crate::leftovers::{DROP_SHARED, Leftovers};
use crate::wire::{failed, type_of};
use futures_util::{StreamExt, future, pin_mut};
use std::pin::Pin;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, Statement as Prepared};
use trickle_core::refresh::{Answer, Kind, Statement};
use trickle_engine::db::{Answering, Bind, Connection, Connections, Kept, Param, Sent, Way};
use trickle_engine::drive::{Timed, first_words};
use trickle_engine::{Error, Result};

/// A connection. Dropping it closes it; an open transaction is rolled back by the server.
pub struct Session {
    client: Client,
    /// Where statements that come again are to be prepared.
    prepared: Option<Mutex<Kept<Prepared>>>,
    /// How it was made, where that is known.
    way: Option<Reached>,
    /// The server process that was told when the connection was made.
    pub(crate) greeted: Option<i32>,
    /// Where each transaction may run in another server process.
    pub(crate) shared: Option<Shared>,
    /// What users' code may leave in its session.
    pub(crate) leftovers: Leftovers,
}

/// A connection whose transactions may each run in another server process.
pub(crate) struct Shared {
    /// What each begins with.
    pub(crate) locals: &'static [&'static str],
    /// The process of the last refresh.
    pub(crate) process: Arc<AtomicI32>,
}

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
        let (client, connection) = config.connect(NoTls).await.map_err(|e| failed(doing(), e))?;
        // When the connection breaks, the statement that waits on it gets the error.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Session::new(client))
    }

    /// A session over a connection that something else drives.
    pub fn new(client: Client) -> Session {
        let greeted = greeting::process(&client.cancel_token());
        Session { client, prepared: None, way: None, greeted, shared: None, leftovers: Leftovers::default() }
    }

    /// The same, made in this way.
    pub(crate) fn reached(self, way: Reached) -> Session {
        Session { way: Some(way), ..self }
    }

    /// Waits until nothing is left in the session of what users' code left there. Where that cannot be had,
    /// the next refresh says so.
    pub(crate) async fn rest(&self) {
        // The connection counts as lost then.
        let _ = self.leftovers.cleaned(&self.client).await;
    }

    /// The same, in whose session there is nothing but what this program puts there: what users' code leaves
    /// in it goes after each refresh. Whoever keeps a lock, a setting or a temporary table of his own there
    /// must not say so.
    #[must_use]
    pub fn alone(mut self) -> Session {
        self.leftovers.be_alone();
        self
    }

    /// What it takes to have the server end what this connection is doing.
    pub fn cancel(&self) -> Cancel {
        Cancel::new(self.client.cancel_token(), self.way.clone())
    }

    /// Keeps the statements of refreshes prepared that come again.
    pub(crate) fn prepare(&mut self) {
        self.prepared = Some(Mutex::default());
    }

    /// What was sent of statements that come again; nothing is counted where none is kept prepared.
    pub fn statements(&self) -> Sent {
        self.prepared.as_ref().map(|p| lock(p).sent()).unwrap_or_default()
    }

    /// The connection itself, for statements that are no part of a refresh.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The connection, as everything but its driver speaks to it.
    pub fn db(&self) -> &dyn Connection {
        self
    }

    /// The connection itself, to begin a transaction on.
    pub fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The answers of a batch, up to the first error that was met before all were sent. To prepare a statement takes a
    /// round trip in its place, once.
    pub(crate) async fn pipelined(&self, batch: &[Statement]) -> Vec<Timed> {
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
            let way = self.prepared.as_ref().map_or(Way::Text, |p| lock(p).way(s, |kept| fits(kept, &types)));
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
                            // The driver's own statements are gone, which it does not prepare anew.
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
        // Futures of one connection are sent in the order in which they are first polled.
        answers.extend(future::join_all(waiting).await.into_iter().flatten());
        self.unprepared(&answers);
        answers
    }

    /// Forgets what was prepared where the server has dropped it, as users' code can have it do: it is
    /// prepared again.
    fn unprepared(&self, answers: &[Timed]) {
        let is_dropped = |(answer, _): &Timed| answer.as_ref().is_err_and(|e| e.sqlstate() == Some(DROPPED));
        if answers.iter().any(is_dropped) {
            self.forget();
        }
    }

    /// What was prepared is not there any more.
    pub(crate) fn forget(&self) {
        if let Some(p) = &self.prepared {
            lock(p).forget();
        }
    }

    /// Lets those that keep prepared statements know of one that is sent as a text.
    fn tell(&self, s: &Statement) {
        if let Some(p) = &self.prepared {
            lock(p).way(s, |_| false);
        }
    }

    /// Statements that return nothing, in one message. What they took is the first one's, and so is their error.
    pub(crate) async fn together(&self, bare: &[Statement]) -> Vec<Timed> {
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

    /// Runs statements in one message: whether the first so many were done. All of it runs in one server
    /// process, also where each transaction may have another; and what was committed is not undone by what
    /// comes after it.
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

    /// A statement that comes again, outside refreshes, as it is kept prepared; `None` where it is not yet.
    pub(crate) async fn kept(
        &self,
        text: &str,
        types: &[Type],
    ) -> std::result::Result<Option<Prepared>, tokio_postgres::Error> {
        match self.prepared.as_ref().map_or(Way::Text, |p| lock(p).asked(text, |kept| fits(kept, types))) {
            Way::Text => Ok(None),
            Way::Kept(kept) => Ok(Some(kept)),
            Way::Prepare(settings) => {
                let new = self.client.prepare_typed(text, types).await?;
                if let Some(p) = &self.prepared {
                    lock(p).keep(settings, text, new.clone());
                }
                Ok(Some(new))
            }
        }
    }

    /// The answer to one statement, as it was prepared or as a text.
    pub(crate) async fn answer(&self, statement: &Statement, kept: Option<Prepared>) -> Result<Answer> {
        let params: Vec<Param<'_>> = statement.params.iter().map(Bind::bind).collect();
        let rows = self.rows(&statement.text, &params, kept).await;
        rows.map(|r| r.answer(statement)).map_err(|e| Error::server(first_words(&statement.text), e))
    }

    /// When its answer was complete.
    async fn timed(&self, statement: &Statement, kept: Option<Prepared>) -> Timed {
        let result = self.answer(statement, kept).await;
        (result, Instant::now())
    }
}

/// What the server says of a prepared statement that it does not have.
pub(crate) const DROPPED: &str = "26000";

/// Tells the server process that all of a message runs in: in a transaction of its own, since the one that follows must take
/// its locks before it sees anything.
const WHO: &str = "BEGIN; SELECT pg_backend_pid(); COMMIT";

impl Shared {
    /// Notes what [`WHO`] told.
    fn note(&self, answer: &[SimpleQueryMessage]) {
        let told = answer.iter().find_map(|m| match m {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        self.process.store(told.unwrap_or(0), Ordering::Relaxed);
    }
}

/// Connects, as often as it must.
pub trait Connect: Send + Sync {
    /// A new connection.
    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<Session>> + '_>>;

    /// The same to be kept: for work on several connections, where there is to be any.
    fn kept(&self) -> Option<Arc<dyn Connect>> {
        None
    }
}

/// How many statements at the beginning of a batch belong to one phase and control the transaction only: they take no
/// values and return none.
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

/// Whether values of these types can be bound to a statement; NULL can be bound anywhere.
fn fits(kept: &Prepared, given: &[Type]) -> bool {
    let expected = kept.params();
    expected.len() == given.len() && expected.iter().zip(given).all(|(e, g)| e == g || *g == Type::UNKNOWN)
}

/// What a panic elsewhere left behind is still a list of prepared statements.
fn lock(kept: &Mutex<Kept<Prepared>>) -> MutexGuard<'_, Kept<Prepared>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections that come from one place.
struct From(Arc<dyn Connect>);

impl Connections for From {
    fn another(&self) -> Answering<'_, Box<dyn Connection>, Error> {
        Box::pin(async move {
            let session = self.0.connect().await?;
            Ok(Box::new(session) as Box<dyn Connection>)
        })
    }
}

/// The way to more connections, for [`trickle_engine::Trickle::with_connections`].
pub fn connections(to: Arc<dyn Connect>) -> Arc<dyn Connections> {
    Arc::new(From(to))
}
