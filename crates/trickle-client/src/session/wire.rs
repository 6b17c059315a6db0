//! [`Connection`] and [`RefreshDriver`] over a [`Session`], and the conversion of rows.

use super::values::{Incoming, Outgoing, type_of};
use super::{DROPPED, Session, Shared};
use crate::error::server_error;
use futures_util::{FutureExt, StreamExt, pin_mut};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::time::Duration;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{SimpleQueryMessage, Statement};
use trickle_core::refresh::{self, Answer};
use trickle_core::sql::Ident;
use trickle_engine::db::Timed;
use trickle_engine::db::{
    Answering, Cell, Connection, Host, Param, Prepared, RefreshDriver, Row, Rows, Sent, ServerError,
};
use trickle_engine::{Error, Result};

impl Connection for Session {
    fn run<'a>(&'a self, text: &'a str, params: Vec<Param<'a>>, kept: bool) -> Answering<'a, Rows> {
        Box::pin(async move {
            let types: Vec<Type> = params.iter().map(type_of).collect();
            let prepared = match kept {
                true => self.kept(text, &types).await.map_err(server_error)?,
                false => None,
            };
            let was_kept = prepared.is_some();
            match self.rows(text, &params, prepared).await {
                // Users' code can make the server drop a prepared statement. If a transaction was open, the
                // error ended it, so the second try below is refused, too.
                Err(e) if was_kept && e.sqlstate() == Some(DROPPED) => {
                    self.forget();
                    self.rows(text, &params, None).await
                }
                rows => rows,
            }
        })
    }

    fn batch<'a>(&'a self, text: &'a str) -> Answering<'a, ()> {
        Box::pin(async move { self.client().batch_execute(text).await.map_err(server_error) })
    }

    fn written<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<Vec<Option<String>>>> {
        Box::pin(async move {
            let messages = self.client().simple_query(text).await.map_err(server_error)?;
            let rows = messages.iter().filter_map(|m| match m {
                SimpleQueryMessage::Row(r) => {
                    Some((0..r.len()).map(|i| r.get(i).map(str::to_owned)).collect())
                }
                _ => None,
            });
            Ok(rows.collect())
        })
    }

    fn prepare<'a>(&'a self, text: &'a str) -> Answering<'a, Prepared> {
        Box::pin(async move {
            if self.shared.is_some() {
                return Ok(Prepared(Arc::new(text.to_owned())));
            }
            Ok(Prepared(Arc::new(self.client().prepare(text).await.map_err(server_error)?)))
        })
    }

    fn again<'a>(&'a self, prepared: &'a Prepared) -> Answering<'a, Vec<Row>> {
        Box::pin(async move {
            if let Some(text) = prepared.0.downcast_ref::<String>() {
                return Ok(self.rows(text, &[], None).await?.rows);
            }
            let Some(prepared) = prepared.0.downcast_ref::<Statement>() else {
                return Err(ServerError::lost("a statement was prepared on another connection"));
            };
            Ok(self.rows("", &[], Some(prepared.clone())).await?.rows)
        })
    }

    fn columns<'a>(&'a self, text: &'a str) -> Answering<'a, Vec<(String, u32)>> {
        Box::pin(async move {
            if self.shared.is_some() {
                return self.columns_unprepared(text).await;
            }
            let prepared = self.client().prepare(text).await.map_err(server_error)?;
            Ok(prepared.columns().iter().map(|c| (c.name().to_owned(), c.type_().oid())).collect())
        })
    }

    fn begin(&self, fresh: bool) -> Answering<'_, ()> {
        let begin =
            if fresh { "START TRANSACTION ISOLATION LEVEL READ COMMITTED" } else { "START TRANSACTION" };
        match &self.shared {
            None => self.batch(begin),
            Some(shared) => Box::pin(async move {
                let text = [&[begin], shared.locals].concat().join("; ");
                self.client().batch_execute(&text).await.map_err(server_error)
            }),
        }
    }

    fn commit(&self) -> Answering<'_, ()> {
        self.batch("COMMIT")
    }

    fn rollback(&self) -> Answering<'_, ()> {
        self.batch("ROLLBACK")
    }

    fn abandon(&self) {
        // The message is sent when its future is first polled. The server runs the message before any later
        // statement.
        let _ = self.client().batch_execute("ROLLBACK").now_or_never();
    }

    fn pause(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(tokio::time::sleep(time))
    }

    fn set<'a>(&'a self, setting: &'a str) -> Answering<'a, ()> {
        Box::pin(async move {
            self.client().batch_execute(&format!("SET {setting}")).await.map_err(server_error)?;
            self.leftovers.keep(setting);
            Ok(())
        })
    }
}

impl Host for Session {
    fn greeted(&self) -> Option<i32> {
        self.greeted
    }

    fn share(&mut self, locals: &'static [&'static str]) {
        self.shared = Some(Shared { locals, process: Arc::default() });
    }
}

impl RefreshDriver for Session {
    fn refresh_ends(&self, _done: bool) {
        if self.shared.is_none() {
            self.leftovers.clean(self.client());
        }
    }

    fn step<'a>(&'a self, statement: &'a refresh::Statement) -> Answering<'a, Answer, Error> {
        self.leftovers.note(statement);
        let ends = matches!(statement.kind, refresh::Kind::Commit | refresh::Kind::Rollback);
        if self.shared.is_none() || !ends {
            return Box::pin(self.answer(statement, None));
        }
        Box::pin(async move {
            let done = self.together(std::slice::from_ref(statement)).await;
            done.into_iter().next().map_or_else(|| Ok(Answer::default()), |(answer, _)| answer)
        })
    }

    fn steps<'a>(
        &'a self,
        batch: &'a [refresh::Statement],
    ) -> Pin<Box<dyn Future<Output = Vec<Timed>> + 'a>> {
        Box::pin(self.pipelined(batch))
    }

    fn keep_prepared(&mut self) {
        self.prepare();
    }

    fn sent(&self) -> Sent {
        self.statements()
    }

    fn process(&self) -> Option<Arc<AtomicI32>> {
        self.shared.as_ref().map(|s| s.process.clone())
    }
}

impl Session {
    /// Runs a statement and returns all its rows.
    pub(super) async fn rows(
        &self,
        text: &str,
        params: &[Param<'_>],
        prepared: Option<Statement>,
    ) -> Result<Rows, ServerError> {
        self.received(text, params, prepared).await.map_err(server_error)
    }

    /// Returns the same as [`Connection::columns`], but prepares no statement. A prepared statement would
    /// stay in a server process that serves other clients, too.
    async fn columns_unprepared(&self, text: &str) -> Result<Vec<(String, u32)>, ServerError> {
        let text = text.trim_end().trim_end_matches(';');
        let named = format!("SELECT * FROM ({text}) trickle_query LIMIT 0");
        let said = self.client().simple_query(&named).await.map_err(server_error)?;
        let names = said.iter().find_map(|m| match m {
            SimpleQueryMessage::RowDescription(columns) => Some(columns.iter().map(|c| c.name().to_owned())),
            _ => None,
        });
        let names: Vec<String> = names.into_iter().flatten().collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // The query gives one row of NULLs, which still have their types.
        let types = names.iter().map(|n| format!("pg_typeof(trickle_query.{})::oid", Ident::new(n)));
        let types: Vec<String> = types.collect();
        let typed = format!(
            "SELECT {} FROM (SELECT) one LEFT JOIN ({text}) trickle_query ON false",
            types.join(", ")
        );
        let rows = self.rows(&typed, &[], None).await?.rows;
        let oids = rows.first().map(|row| (0..names.len()).map(|i| row.get::<u32>(i)).collect::<Vec<_>>());
        Ok(names.into_iter().zip(oids.unwrap_or_default()).collect())
    }

    async fn received(
        &self,
        text: &str,
        params: &[Param<'_>],
        prepared: Option<Statement>,
    ) -> Result<Rows, tokio_postgres::Error> {
        let sent: Vec<Outgoing<'_>> = params.iter().map(Outgoing).collect();
        let values = sent.iter().map(|p| p as &(dyn ToSql + Sync));
        let stream = match &prepared {
            Some(prepared) => self.client().query_raw(prepared, values).await?,
            None => {
                let typed = values.zip(params.iter().map(type_of));
                self.client().query_typed_raw(text, typed).await?
            }
        };
        pin_mut!(stream);
        let mut rows = Rows::default();
        while let Some(row) = stream.next().await {
            let row = row?;
            let cells = (0..row.len())
                .map(|i| Ok(row.try_get::<_, Option<Incoming>>(i)?.map_or(Cell::Null, |c| c.0)));
            rows.rows.push(Row::new(cells.collect::<Result<_, tokio_postgres::Error>>()?));
        }
        rows.affected = stream.rows_affected().unwrap_or(0);
        Ok(rows)
    }
}
