//! Stream tables on a live database, as tests use them.

use super::Db;
use super::sql_api;
use trickle_client::{Name, NewStreamTable, RefreshOptions, Refreshed, Result, Session, Settings, Trickle};
use trickle_core::cost::Force;

/// A connection to a database with a catalog, whose refreshes are deltas wherever a query has one: tables as small as those
/// of tests would often be computed anew sooner, and the delta never run.
pub(crate) async fn open(db: &Db) -> Trickle {
    open_with(db, Settings { force: Some(Force::Incremental), ..Settings::default() }).await
}

pub(crate) async fn open_with(db: &Db, settings: Settings) -> Trickle {
    if sql_api::is_meant() {
        sql_api::install(db, &settings).await;
    }
    let mut t = Trickle::attach(db.session().await, settings).await.unwrap();
    t.init().await.unwrap();
    t
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) async fn create(t: &mut Trickle, what: &str, query: &str) {
    if sql_api::is_meant() {
        return sql_api::create(t, what, query).await;
    }
    let made =
        t.create(&NewStreamTable::new(name(what), query)).await.unwrap_or_else(|e| panic!("{what}: {e:?}"));
    assert!(made.made, "{made:?}");
}

pub(crate) async fn try_refresh(t: &mut Trickle, what: &str) -> Result<Vec<Refreshed>> {
    if sql_api::is_meant() {
        return sql_api::refresh(t, what).await;
    }
    // By its full name a connection that refreshed it before knows it.
    let full = Name { schema: Some("public".to_owned()), ..name(what) };
    if name(what).schema.is_none() && t.find(&full).await.is_ok() {
        return t.refresh(&[full], &RefreshOptions::default()).await;
    }
    t.refresh(&[name(what)], &RefreshOptions::default()).await
}

pub(crate) async fn refresh(t: &mut Trickle, what: &str) -> Vec<Refreshed> {
    try_refresh(t, what).await.unwrap_or_else(|e| panic!("{what}: {e:?}"))
}

/// The end of every window: up to date, and equal to the query in the same snapshot.
pub(crate) async fn assert_equal(t: &mut Trickle, what: &str) {
    if sql_api::is_meant() {
        refresh(t, what).await;
    }
    let e = t.find(&name(what)).await.unwrap();
    let checked = t.check(&e, 10).await.unwrap_or_else(|e| panic!("{what}: {e:?}"));
    assert_eq!(checked.different, 0, "{checked:?}");
}

/// The mode in force and why it is not another.
pub(crate) async fn mode(t: &Trickle, what: &str) -> (String, String) {
    let e = t.find(&name(what)).await.unwrap();
    (e.mode, e.mode_reason.unwrap_or_default())
}

pub(crate) async fn run(s: &Session, sql: &str) {
    s.client().batch_execute(sql).await.unwrap_or_else(|e| panic!("{e:?}\n{sql}"));
}

/// The one number that a query gives.
pub(crate) async fn count(s: &Session, sql: &str) -> i64 {
    s.client().query_one(sql, &[]).await.unwrap_or_else(|e| panic!("{e:?}\n{sql}")).get(0)
}

/// The server process behind a connection.
pub(crate) async fn pid(client: &tokio_postgres::Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Ends a server process and waits until it is gone.
pub(crate) async fn end(by: &Session, pid: i32) {
    let text = "SELECT pg_terminate_backend($1, 60000)";
    let gone: bool = by.client().query_one(text, &[&pid]).await.unwrap().get(0);
    assert!(gone, "process {pid} does not end");
}

/// Waits until a server process waits for a lock.
pub(crate) async fn blocked(by: &Session, pid: i32) {
    let text = "SELECT cardinality(pg_blocking_pids($1)) > 0";
    for _ in 0..100_000 {
        if by.client().query_one(text, &[&pid]).await.unwrap().get(0) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("process {pid} waits for nobody");
}
