//! Operations on stream tables in a database of a real server, for tests.

use super::{Db, Driver, sql_api};
use trickle_client::{Name, NewStreamTable, RefreshOptions, Refreshed, Result, Session, Settings, Trickle};
use trickle_core::cost::Force;

/// Opens a driver that refreshes by deltas wherever a query has a delta. Otherwise the small tables of tests
/// would often be recomputed, and the delta would not run.
pub(crate) async fn open(db: &Db) -> Driver {
    open_with(db, Settings { force: Some(Force::Incremental), ..Settings::default() }).await
}

pub(crate) async fn open_with(db: &Db, settings: Settings) -> Driver {
    Driver::open(db, settings).await
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

pub(crate) async fn create(t: &mut Driver, what: &str, query: &str) {
    let made =
        t.create(&NewStreamTable::new(name(what), query)).await.unwrap_or_else(|e| panic!("{what}: {e:?}"));
    assert!(made.made, "{made:?}");
}

pub(crate) async fn try_refresh(t: &mut Driver, what: &str) -> Result<Vec<Refreshed>> {
    if sql_api::is_meant() {
        return t.refresh(&[name(what)], &RefreshOptions::default()).await;
    }
    // The connection remembers the plan of the stream table. With the full name it uses that plan.
    let full = Name { schema: Some("public".to_owned()), ..name(what) };
    if name(what).schema.is_none() && t.find(&full).await.is_ok() {
        return t.refresh(&[full], &RefreshOptions::default()).await;
    }
    t.refresh(&[name(what)], &RefreshOptions::default()).await
}

pub(crate) async fn refresh(t: &mut Driver, what: &str) -> Vec<Refreshed> {
    try_refresh(t, what).await.unwrap_or_else(|e| panic!("{what}: {e:?}"))
}

/// Refreshes a stream table, and asserts that it equals its query in the same snapshot.
pub(crate) async fn assert_equal(t: &mut Driver, what: &str) {
    // The library does the check, and would itself refresh first. In a run through the SQL API, a refresh by
    // the SQL API therefore comes before the check.
    let mut left = None;
    if sql_api::is_meant() {
        refresh(t, what).await;
        left = Some(sql_api::applied(t).await);
    }
    let e = t.find(&name(what)).await.unwrap();
    // Only the catalog's owner can read buffers through the library.
    let owner = "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'pgtrickle'";
    if left.is_some() && !t.db().query_one(owner, &[]).await.unwrap().get::<bool>(0) {
        let table = format!("TABLE {}", trickle_client::registry::shown(&e));
        let query = e.query.trim_end_matches(';');
        let different = format!(
            "SELECT count(*) FROM (({table} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL {table})) x"
        );
        let different: i64 = t.db().query_one(&different, &[]).await.unwrap().get(0);
        assert_eq!(different, 0, "{what}");
        return;
    }
    let checked = t.check(&e, 10).await.unwrap_or_else(|e| panic!("{what}: {e:?}"));
    assert_eq!(checked.different, 0, "{checked:?}");
    // Time passes between the refresh and the check, so a query over the clock may have changes again.
    let timed = t.registry().await.unwrap().entries().any(|e| e.reads_clock);
    if let Some(before) = left.filter(|_| !timed) {
        assert_eq!(sql_api::applied(t).await, before, "{what}: a check found what a refresh had left");
    }
}

/// Returns the mode in force and the reason for that mode.
pub(crate) async fn mode(t: &Trickle, what: &str) -> (String, String) {
    let e = t.find(&name(what)).await.unwrap();
    (e.mode.to_string(), e.mode_reason.unwrap_or_default())
}

pub(crate) async fn run(s: &Session, sql: &str) {
    s.client().batch_execute(sql).await.unwrap_or_else(|e| panic!("{e:?}\n{sql}"));
}

/// Returns the number that a query with one row and one column returns.
pub(crate) async fn count(s: &Session, sql: &str) -> i64 {
    s.client().query_one(sql, &[]).await.unwrap_or_else(|e| panic!("{e:?}\n{sql}")).get(0)
}

/// Returns the process id of the server process behind a connection.
pub(crate) async fn pid(client: &tokio_postgres::Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0)
}

/// Terminates a server process, and waits until the process is gone.
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
