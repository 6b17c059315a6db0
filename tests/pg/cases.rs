//! The case files on real servers. After each window and its refresh by delta, the stream table has the rows
//! that the case file states. The tests catch errors that rules and evaluator have in common, and cases that
//! claim another result than PostgreSQL's. The cases also run through the SQL API. So the tests catch facts
//! that the SQL API does not pass on.

#[path = "../case_files/mod.rs"]
pub(crate) mod case_files;

use crate::support::{
    Db, Driver, assert_equal, create, each_server, is_nightly, is_todays, mode, name, open_with, refresh,
    try_refresh,
};
use futures_util::FutureExt;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;
use trickle_client::{NewStreamTable, RefreshMode, Settings, Trickle};
use trickle_core::cost::Force;
use trickle_core::refresh::Action;
use trickle_core::testing::{Case, Expected};

/// Whether the queries of the cases are also run inside other queries on this server. Plans are composed of
/// the same operators on every server and through either driver. So one run with the newest server and the
/// program suffices.
fn is_composed(db: &Db) -> bool {
    db.is_newest() && !Driver::is_the_servers()
}

/// The part of the cases that run on a server. `Some(n)` stands for one case in n, with other cases each day.
/// `None` stands for no case.
type Part = Option<u64>;

#[test]
fn every_case_comes_out_as_it_says_and_inside_other_queries() {
    let part = |db: &Db| is_composed(db).then_some(1);
    each_case_on(part, async |t, case, nth| run(t, case, is_todays(nth, 4)).await);
}

/// Older servers, and the SQL API, run the same texts as the program on the newest server.
#[test]
fn every_case_comes_out_as_it_says() {
    let part = |db: &Db| (!is_composed(db)).then_some(3);
    each_case_on(part, async |t, case, _| run(t, case, false).await);
}

/// The least number of cases whose stream tables can be IMMEDIATE, in the oldest and the newest version.
const KEPT: [usize; 2] = [323, 328];

/// Runs the same cases in mode IMMEDIATE. Each statement that writes a source also brings the stream table up
/// to date.
#[test]
fn every_case_that_triggers_can_keep_comes_out_as_it_says() {
    let (kept, major) = (AtomicUsize::new(0), AtomicU32::new(0));
    // Triggers run the same texts through either driver, so each driver is tested with one server only. The
    // SQL API is tested with the newest server, and the program with the oldest.
    let part = |db: &Db| {
        let through_sql = Driver::is_the_servers();
        let is_it = if through_sql { db.is_newest() } else { db.is_oldest() };
        is_it.then(|| {
            major.store(db.major(), Ordering::Relaxed);
            if through_sql { 4 } else { 2 }
        })
    };
    each_case_on(part, async |t, case, _| {
        kept.fetch_add(usize::from(keep(t, case).await), Ordering::Relaxed);
    });
    let (kept, major) = (kept.into_inner(), major.into_inner());
    assert!(
        !is_nightly() || kept >= KEPT[usize::from(major >= 18)],
        "triggers keep {kept} cases in PostgreSQL {major}, and kept {KEPT:?}"
    );
}

fn each_case_on(part: impl Fn(&Db) -> Part + Sync, test: impl AsyncFn(&mut Driver, &Case, usize) + Sync) {
    let read = |(name, file)| (name, Case::parse(&std::fs::read_to_string(file).unwrap()).unwrap());
    let cases: Vec<(String, Case)> = case_files::case_files().into_iter().map(read).collect();
    each_server(async |db| {
        let Some(part) = part(db) else { return };
        let mut failed = Vec::new();
        let known = |case: &Case| case.since.is_none_or(|since| u64::from(since) <= u64::from(db.major()));
        let known = cases.iter().filter(|(_, case)| known(case)).enumerate();
        let known: Vec<_> = known.filter(|(nth, _)| is_todays(*nth, part)).collect();
        for some in known.chunks(FEW) {
            let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
            let mut t = open_with(db, settings).await;
            for (nth, (shown, case)) in some {
                let test = async |t: &mut Driver, case: &Case| test(t, case, *nth).await;
                if AssertUnwindSafe(alone(&mut t, case, test)).catch_unwind().await.is_err() {
                    failed.push(shown);
                }
            }
        }
        assert!(failed.is_empty(), "{failed:#?}");
    });
}

/// Number of cases that share a session. A session stores a plan for each statement of each trigger function
/// that the session ever ran. Each DDL statement searches all of these plans.
const FEW: usize = 12;

/// Runs a case in an empty schema, and removes its objects afterwards.
async fn alone(t: &mut Driver, case: &Case, test: impl AsyncFn(&mut Driver, &Case)) {
    let anew = "DROP SCHEMA public CASCADE; CREATE SCHEMA public";
    t.connection().client().batch_execute(anew).await.unwrap();
    let outcome = AssertUnwindSafe(test(t, case)).catch_unwind().await;
    let left: BTreeSet<String> =
        t.registry().await.unwrap().entries().map(|e| e.relation.name.to_string()).collect();
    for st in left {
        t.drop(&name(&st), true).await.unwrap();
    }
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// The SQLSTATE for a feature that this server was built without, such as XML.
const UNSUPPORTED: &str = "0A000";

async fn run(t: &mut Driver, case: &Case, composed: bool) {
    // `MemoryCatalog` has the type citext by a CREATE TYPE, and the server has the type by the extension.
    let tables = case.tables.replace("CREATE TYPE citext;", "CREATE EXTENSION citext;");
    t.connection().client().batch_execute(&tables).await.unwrap();
    match t.connection().client().batch_execute(&case.rows).await {
        Err(e) if e.code().is_some_and(|c| c.code() == UNSUPPORTED) => return,
        done => done.unwrap(),
    }
    if case.snapshots.contains_key("error") || matches!(case.first, Some(Expected::Error(_))) {
        let e = t.create(&NewStreamTable::new(name("st"), case.query.as_str())).await.unwrap_err();
        if let Some(Expected::Error(wanted)) = &case.first {
            assert!(e.to_string().contains(wanted), "{e} is not {wanted}");
        }
        return;
    }
    if case.time.is_some() {
        return timed(t, case).await;
    }
    let made = t.create(&NewStreamTable::new(name("st"), case.query.as_str())).await;
    if let (Err(e), Some(verdict)) = (&made, case.snapshots.get("verdict")) {
        assert!(verdict.contains("can never be") || e.sqlstate() == Some(UNSUPPORTED), "{e}");
        return;
    }
    let incremental = made.unwrap_or_else(|e| panic!("{e:?}")).mode == trickle_client::Mode::Differential;
    // The engine asks the server about functions that the core alone does not know. So a query that the core
    // refuses may still have a delta.
    assert!(incremental || case.snapshots.contains_key("verdict"), "{:?}", mode(t, "st").await);
    let all = match composed {
        true => beside(t, &case.query, incremental).await,
        false => vec!["st"],
    };
    if let Some(Expected::Rows(rows)) = &case.first {
        assert_eq!(&stored(t).await, rows, "at first");
    }
    for window in &case.windows {
        t.connection().client().batch_execute(&window.change).await.unwrap();
        match &window.expect {
            Expected::Rows(rows) => {
                let done = refresh(t, "st").await;
                let full = done[0].report.action == Action::Full;
                let allowed = !incremental || window.change.contains("TRUNCATE");
                assert!(!full || allowed, "{:?}", done[0].report.reason);
                assert_eq!(&stored(t).await, rows, "after {}", window.change);
                for what in &all {
                    assert_equal(t, what).await;
                }
            }
            Expected::Error(wanted) => {
                let e = try_refresh(t, "st").await.unwrap_err();
                assert!(e.to_string().contains(wanted), "{e} is not {wanted}");
            }
        }
    }
}

/// Runs a case in mode IMMEDIATE, and returns whether its stream table can have that mode.
async fn keep(t: &mut Driver, case: &Case) -> bool {
    let run = async |t: &Trickle, sql: &str| t.connection().client().batch_execute(sql).await;
    run(t, &case.tables.replace("CREATE TYPE citext;", "CREATE EXTENSION citext;")).await.unwrap();
    match run(t, &case.rows).await {
        Err(e) if e.code().is_some_and(|c| c.code() == UNSUPPORTED) => return false,
        done => done.unwrap(),
    }
    let immediate = NewStreamTable {
        mode: Some(RefreshMode::Immediate),
        ..NewStreamTable::new(name("st"), case.query.as_str())
    };
    if t.create(&immediate).await.is_err() {
        return false;
    }
    for window in &case.windows {
        let done = run(t, &window.change).await;
        let data =
            |e: &tokio_postgres::Error| e.code().is_some_and(|c| ["21", "22"].contains(&&c.code()[..2]));
        if let (Err(e), Expected::Rows(_)) = (&done, &window.expect)
            && data(e)
        {
            run(t, "ROLLBACK").await.unwrap();
            assert!(raises_between(t, case, &window.change).await, "{e:?}");
            return true;
        }
        match &window.expect {
            Expected::Rows(rows) => {
                done.unwrap();
                assert_eq!(&stored(t).await, rows, "after {}", window.change);
                assert_equal(t, "st").await;
            }
            Expected::Error(wanted) => {
                let e = done.unwrap_err();
                let e = e.as_db_error().unwrap().message();
                assert!(wanted.contains(e) || e.contains(wanted), "{e} is not {wanted}");
                // The failed statement changed no data, so a ROLLBACK ends the case.
                run(t, "ROLLBACK").await.unwrap();
                return true;
            }
        }
    }
    true
}

/// Whether the query raises an error in a state between two statements of a change. A stream table has no
/// result to show for such a state.
async fn raises_between(t: &mut Driver, case: &Case, change: &str) -> bool {
    t.drop(&name("st"), true).await.unwrap();
    for statement in change.split(';') {
        t.connection().client().batch_execute(statement).await.unwrap();
        if t.connection().client().simple_query(&case.query).await.is_err() {
            return true;
        }
    }
    false
}

/// Runs a case over the clock. A server's clock cannot be set, so the test writes the case's time into the
/// query to check the expected result. The stream table is compared with its query at the server's own time.
async fn timed(t: &mut Driver, case: &Case) {
    t.connection().client().batch_execute("SET TimeZone = 'UTC'").await.unwrap();
    create(t, "st", &case.query).await;
    assert_eq!(mode(t, "st").await.0, "DIFFERENTIAL");
    let mut time = case.time.clone().unwrap_or_default();
    if let Some(Expected::Rows(expected)) = &case.first {
        assert_eq!(&at(t, case, &time).await, expected, "at first");
    }
    for window in &case.windows {
        t.connection().client().batch_execute(&window.change).await.unwrap();
        time = window.time.clone().unwrap_or(time);
        let Expected::Rows(expected) = &window.expect else { continue };
        assert_eq!(&at(t, case, &time).await, expected, "at {time} after {}", window.change);
        assert_eq!(refresh(t, "st").await[0].report.action, Action::Differential);
        assert_equal(t, "st").await;
    }
}

/// Returns the result of a case's query with `time` as the time of the clock.
async fn at(t: &Trickle, case: &Case, time: &str) -> Vec<Vec<Option<String>>> {
    let mut query = case.query.replace("now()", &format!("timestamptz '{time}'"));
    for (function, ty) in [("current_date", "date"), ("localtimestamp", "timestamp")] {
        query = query.replace(function, &format!("(timestamptz '{time}')::{ty}"));
    }
    rows(t, &query).await
}

/// Creates further stream tables, and returns the names of all of them and of `st`. The further stream tables
/// are the case's query under DISTINCT, the case's query in a join, and a reader of `st`. Each day the test
/// creates one of these three, and the length of the query decides which. `just nightly` creates all three.
async fn beside(t: &mut Driver, query: &str, incremental: bool) -> Vec<&'static str> {
    let query = query.trim().trim_end_matches(';');
    let width = t.connection().client().prepare("SELECT * FROM st").await.unwrap().columns().len();
    let names: Vec<String> = (1..=width).map(|i| format!("c{i}")).collect();
    let names = names.join(", ");
    let inner = format!("({query}) AS q ({names})");
    let distinct = format!("SELECT count(*) AS n FROM (SELECT DISTINCT * FROM {inner}) AS d");
    // A join of the case's query with its groups. Each row gets the number of rows that have the same first
    // value.
    let joined = format!(
        "SELECT q.*, r.n FROM {inner} JOIN (SELECT c1, count(*) AS n FROM {inner} GROUP BY c1) AS r \
         ON r.c1 IS NOT DISTINCT FROM q.c1"
    );
    let counted = format!("SELECT count(*) AS n FROM ({query}) AS q");
    let mut all = vec!["st"];
    let others = [
        ("under_distinct", [distinct, counted.clone()]),
        ("under_join", [joined, counted]),
        ("reader", ["SELECT * FROM st".to_owned(), String::new()]),
    ];
    let of_today = |i: usize| is_todays(query.len() + i, 3);
    for (_, (what, texts)) in others.into_iter().enumerate().filter(|(i, _)| of_today(*i)) {
        // Some types have no equality, so the second text compares no columns.
        let [first, without] = &texts;
        let text = match t.connection().client().prepare(first).await {
            Err(e) if e.code() == Some(&SqlState::UNDEFINED_FUNCTION) => without,
            prepared => prepared.map(|_| first).unwrap_or_else(|e| panic!("{e:?}\n{first}")),
        };
        create(t, what, text).await;
        let (found, reason) = mode(t, what).await;
        let allowed = !incremental || reason.contains("operators");
        assert!(found == "DIFFERENTIAL" || allowed, "{what}: {found} {reason}");
        all.push(what);
    }
    all
}

/// Returns the stored rows of `st`, in the server's text format, sorted.
async fn stored(t: &Trickle) -> Vec<Vec<Option<String>>> {
    rows(t, "SELECT * FROM st").await
}

async fn rows(t: &Trickle, query: &str) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    for message in t.connection().client().simple_query(query).await.unwrap() {
        if let SimpleQueryMessage::Row(row) = message {
            rows.push((0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect());
        }
    }
    rows.sort();
    rows
}
