//! Implements [`Connection`] and [`RefreshDriver`] inside the server, where each call returns its answer at
//! once, and runs work on stream tables over such a connection.

use crate::gucs;
use crate::unsafe_pg::{Board, Limit, Plan, Scheduled, ServerConnection};
use futures_util::FutureExt;
use futures_util::future::ready;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use trickle_core::refresh::{Answer, Kind, Statement};
use trickle_engine::db::{
    Answering, Bind, Callers, Cell, Connection, Host, Kept, Param, Prepared, RefreshDriver, Row, Rows,
    SendForm, ServerError, first_words,
};
use trickle_engine::say::Voice;
use trickle_engine::{ConnectionCache, Error, Result, Settings, Trickle};

/// Runs a future that never waits, and returns its result. A future that would wait raises an error.
pub(crate) fn done<T>(work: impl Future<Output = T>) -> T {
    match work.now_or_never() {
        Some(done) => done,
        None => pgrx::error!("something waits for an answer that is there"),
    }
}

thread_local! {
    /// Knowledge about the database that this process keeps from call to call. A call that fails discards
    /// this knowledge.
    static CACHE: RefCell<ConnectionCache> = RefCell::default();
}

/// Runs `work` on the database's stream tables, and ends everything that it began.
pub(crate) async fn attempt<T>(
    inside: ServerConnection,
    settings: Settings,
    work: impl AsyncFnOnce(&mut Trickle<ServerConnection>) -> Result<T>,
) -> Result<T> {
    let mut trickle = Trickle::open(inside, settings).await?.with_cache(CACHE.take());
    let worked = work(&mut trickle).await?;
    CACHE.set(trickle.into_cache());
    Ok(worked)
}

impl Connection for ServerConnection {
    fn run<'a>(&'a self, text: &'a str, params: Vec<Param<'a>>, kept: bool) -> Answering<'a, Rows> {
        Box::pin(async move {
            let ask = |k: &mut Kept<Plan>| k.asked(text, |plan| plan.fits(&params));
            let form = if kept { form(ask) } else { SendForm::Text };
            self.go(form, text, &params, false)
        })
    }

    fn batch<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        Box::pin(async move { ServerConnection::batch(self, text) })
    }

    fn as_catalog_owner<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        Box::pin(async move { ServerConnection::as_catalog_owner(self, text) })
    }

    fn attempt_as_catalog_owner<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        // A failed statement is undone by its own subtransaction.
        Connection::as_catalog_owner(self, text)
    }

    fn written<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<Vec<Option<String>>>> {
        Box::pin(async move {
            let rows = ServerConnection::run(self, text, &[], false)?;
            let arrays = |r: &Row| r.cells().iter().any(|c| matches!(c, Cell::Array(_)));
            if rows.rows.iter().any(arrays) {
                return Err(ServerError::new(
                    "0A000",
                    "an array is to be written: the question casts it to text",
                ));
            }
            let written = |c: &Cell| match c {
                Cell::Null | Cell::Array(_) => None,
                Cell::Bool(b) => Some(if *b { "t" } else { "f" }.to_owned()),
                Cell::Int2(n) => Some(n.to_string()),
                Cell::Int4(n) => Some(n.to_string()),
                Cell::Int8(n) => Some(n.to_string()),
                Cell::Oid(n) => Some(n.to_string()),
                Cell::Float8(x) => Some(x.to_string()),
                Cell::Text(s) | Cell::Json(s) => Some(s.clone()),
            };
            Ok(rows.rows.iter().map(|r| r.cells().iter().map(written).collect()).collect())
        })
    }

    fn prepare<'a>(&'a self, text: &'a str) -> Answering<'a, Prepared> {
        Box::pin(ready(Ok(Prepared(Arc::new(text.to_owned())))))
    }

    fn again<'a>(&'a self, prepared: &'a Prepared) -> Answering<'a, Vec<Row>> {
        Box::pin(async move {
            let text = prepared.0.downcast_ref::<String>().map_or("", String::as_str);
            let form = form(|k| k.asked(text, |plan| plan.fits(&[])));
            Ok(self.go(form, text, &[], false)?.rows)
        })
    }

    fn columns<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<(String, u32)>> {
        Box::pin(async move { ServerConnection::columns(self, text) })
    }

    fn begin(&self, fresh: bool) -> Answering<'_, ()> {
        if fresh && !ServerConnection::is_fresh() {
            let why = "could not serialize access: the transaction may see an older moment";
            return Box::pin(ready(Err(ServerError::new("40001", why))));
        }
        ServerConnection::begin(self, true);
        Box::pin(ready(Ok(())))
    }

    fn commit(&self) -> Answering<'_, ()> {
        self.end(true);
        Box::pin(ready(Ok(())))
    }

    fn rollback(&self) -> Answering<'_, ()> {
        self.end(false);
        Box::pin(ready(Ok(())))
    }

    fn abandon(&self) {
        self.end(false);
    }

    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        ServerConnection::pause(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Box::pin(ready(()))
    }

    fn attempt<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        // A failed statement is undone by its own subtransaction.
        Connection::batch(self, text)
    }
}

impl Host for ServerConnection {
    fn callers(&self) -> Option<Callers> {
        let command = "SELECT pgtrickle.last_command()".into();
        Some(Callers { command, fresh: ServerConnection::is_fresh(), brief: ServerConnection::is_brief() })
    }

    fn require_idle(&self, tables: &[u32]) -> std::result::Result<(), ServerError> {
        ServerConnection::require_idle(self, tables)
    }

    fn lock(&self, tables: &[u32], waits: bool) -> std::result::Result<bool, ServerError> {
        ServerConnection::lock(self, tables, waits)
    }

    fn is_restricted(&self) -> bool {
        ServerConnection::is_restricted()
    }

    fn voice(&self) -> Voice {
        Voice::Sql
    }

    fn mark_of_work(&self) -> Option<&'static str> {
        // No mark is needed: the server process itself knows that trickle is at work.
        None
    }
}

impl RefreshDriver for ServerConnection {
    fn refresh_begins(&self) {
        KEPT.with(|k| k.borrow_mut().begin());
        ServerConnection::begin(self, true);
        self.outside.set(self.depth());
    }

    fn refresh_ends(&self, done: bool) {
        // A failed refresh leaves its savepoint open.
        self.unwind(self.outside.get());
        self.drop_snapshot();
        self.end(done);
    }

    fn step<'a>(&'a self, statement: &'a Statement) -> Answering<'a, Answer, Error> {
        Box::pin(async move {
            let nothing = Ok(Answer::default());
            if matches!(statement.kind, Kind::Setting) {
                KEPT.with(|k| k.borrow_mut().form(statement, |_| false));
            }
            match statement.kind {
                Kind::Savepoint => ServerConnection::begin(self, false),
                Kind::Release => self.end(true),
                Kind::RollbackTo => {
                    // The machine sends RELEASE next, so the savepoint must exist again.
                    self.end(false);
                    ServerConnection::begin(self, false);
                }
                Kind::Decide => {
                    self.take_snapshot();
                    return self.answer(statement);
                }
                Kind::Begin | Kind::Commit | Kind::Rollback => {}
                Kind::Setting | Kind::Lock => {
                    return told(statement, ServerConnection::batch(self, &statement.text))
                        .map(|()| Answer::default());
                }
                Kind::Define | Kind::Lease => {
                    let _limit = Limit::begin(gucs::statement_timeout_ms());
                    return told(statement, ServerConnection::as_catalog_owner(self, &statement.text))
                        .map(|()| Answer::default());
                }
                Kind::Program | Kind::Command | Kind::Partitions | Kind::Frontier | Kind::History => {
                    return self.answer(statement);
                }
            }
            nothing
        })
    }

    fn gives_way_to(&self) -> Option<String> {
        Scheduled::is_this().then(Board::gave_way_to)?
    }
}

impl ServerConnection {
    fn answer(&self, statement: &Statement) -> Result<Answer> {
        let params: Vec<Param<'_>> = statement.params.iter().map(Bind::bind).collect();
        let form = form(|k| k.form(statement, |plan| plan.fits(&params)));
        let _limit = Limit::begin(gucs::statement_timeout_ms());
        told(statement, self.go(form, &statement.text, &params, true)).map(|rows| rows.answer(statement))
    }

    fn go(
        &self,
        form: SendForm<Plan>,
        text: &str,
        params: &[Param<'_>],
        within: bool,
    ) -> std::result::Result<Rows, ServerError> {
        match form {
            SendForm::Text => ServerConnection::run(self, text, params, within),
            SendForm::Kept(plan) => self.run_kept(&plan, params, within),
            SendForm::Prepare(settings) => {
                let plan = self.prepare(text, params)?;
                KEPT.with(|k| k.borrow_mut().keep(settings, text, plan.clone()));
                self.run_kept(&plan, params, within)
            }
        }
    }
}

thread_local! {
    /// The statements that this process keeps prepared. The value is never dropped, since the server's
    /// executor no longer exists when the thread ends.
    static KEPT: ManuallyDrop<RefCell<Kept<Plan>>> = ManuallyDrop::default();
}

/// Chooses how to run a statement that may be repeated.
fn form(ask: impl FnOnce(&mut Kept<Plan>) -> SendForm<Plan>) -> SendForm<Plan> {
    if gucs::keeps_prepared() { KEPT.with(|k| ask(&mut k.borrow_mut())) } else { SendForm::Text }
}

fn told<T>(statement: &Statement, done: std::result::Result<T, ServerError>) -> Result<T> {
    done.map_err(|e| Error::server(first_words(&statement.text), e))
}
