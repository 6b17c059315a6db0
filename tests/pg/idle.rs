//! The cost of many stream tables together. The tests catch work that each stream table causes for all stream
//! tables. Tests with few stream tables do not show such work.

use crate::support::{
    Budget, Db, Driver, assert_equal, count, create, cut, is_nightly, name, newest_server, open, private, run,
};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;
use tokio_postgres::Config;
use trickle_client::daemon::{self, DaemonOptions};
use trickle_client::registry::Entry;
use trickle_client::{Connect, NewStreamTable, RefreshOptions, Session, Settings, Trickle};
use trickle_core::cost::Force;

/// Number of messages after which a connection breaks. No test sends so many messages.
const PLENTY: i64 = 1 << 40;

/// Makes the stream tables with these numbers, each over a table of its own.
async fn make(t: &mut Driver, w: &Session, tables: std::ops::Range<u32>) {
    for i in tables {
        run(
            w,
            &format!("CREATE TABLE s{i} (id int PRIMARY KEY, v int); INSERT INTO s{i} VALUES (1, 1), (2, 2)"),
        )
        .await;
        create(t, &format!("st{i}"), &format!("SELECT id, v FROM s{i} WHERE v > 0")).await;
    }
}

/// The cost of refreshing all stream tables with a new client. The cost consists of the number of messages
/// sent, the actions of the refreshes, and the number of calls of fingerprint functions.
struct Cost {
    messages: i64,
    actions: Vec<&'static str>,
    looks: i64,
}

async fn refresh_all(db: &Db) -> Cost {
    let (session, budget) = cut::connect(db).await;
    let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
    let mut t = Trickle::open(session, settings).await.unwrap();
    let looks = async || {
        let w = db.session().await;
        // Calls of the fingerprint function with three arguments are not counted, since each of these calls
        // another fingerprint function.
        let looked = "SELECT coalesce(sum(calls), 0)::int8 FROM pg_stat_user_functions WHERE funcname LIKE '%fingerprint' \
             AND funcid <> 'pgtrickle.fingerprint(oid, int2, oid[])'::regprocedure";
        count(&w, looked).await
    };
    run_on(&t, "SET track_functions = 'all'").await;
    let before = looks().await;
    budget.set(PLENTY);
    let done = t.refresh_apart(&[], &RefreshOptions::default()).await.unwrap();
    let messages = PLENTY - budget.left();
    run_on(&t, "SELECT pg_stat_force_next_flush()").await;
    run_on(&t, "SELECT 1").await;
    let actions = done.into_iter().flat_map(|group| group.unwrap()).map(|d| d.report.action.name()).collect();
    Cost { messages, actions, looks: looks().await - before }
}

async fn run_on(t: &Trickle, sql: &str) {
    t.connection().client().batch_execute(sql).await.unwrap();
}

#[test]
fn an_idle_refresh_of_many_is_as_many_messages_as_of_few() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        let mut seen = Vec::new();
        for (from, to) in [(0, 4), (4, 24)] {
            make(&mut t, &w, from..to).await;
            let cost = refresh_all(db).await;
            assert_eq!(cost.actions, vec!["NO_DATA"; to as usize]);
            seen.push((to, cost));
        }
        let [(_, few), (n, many)] = seen.as_slice() else { panic!("two rounds") };
        assert_eq!(few.messages, many.messages, "of few and of many");
        // For each source the server computes one fingerprint of the table and one of its triggers.
        assert_eq!(many.looks, 2 * i64::from(*n));
    });
}

/// Number of messages for one query by a prepared statement: Bind, Execute and Sync.
const ROUND_TRIP: i64 = 3;

/// Returns the name of the first segment of a source's buffer, which has only one segment in these tests.
async fn segment(w: &Session, source: u32) -> String {
    let text = format!("SELECT format('pgtrickle_changes.changes_%s_1', 's{source}'::regclass::oid)");
    w.client().query_one(&text, &[]).await.unwrap().get(0)
}

/// In each of its rounds, a refresher finds the stream tables with pending changes by one query. The test
/// counts the messages that this query takes.
#[test]
fn an_empty_window_is_one_round_trip_for_one_and_for_hundreds() {
    newest_server(async |db| {
        // Creating stream tables is slow, so only nightly runs create 300 stream tables.
        let many = if is_nightly() { 300 } else { 100 };
        let mut t = open(db).await;
        let w = db.session().await;
        let (session, budget) = cut::connect(db).await;
        let mut asking = Trickle::open(session, Settings::default()).await.unwrap();
        for (from, to) in [(0, 1), (1, many)] {
            make(&mut t, &w, from..to).await;
            let registry = asking.registry().await.unwrap();
            let all: Vec<Entry> = registry.entries().cloned().collect();
            assert_eq!(all.len(), to as usize);
            let options = RefreshOptions::default();
            // The first round prepares the statement that later rounds use.
            assert!(asking.pending(&all, &options).await.unwrap().is_empty());
            for _ in 0..2 {
                budget.set(PLENTY);
                assert!(asking.pending(&all, &options).await.unwrap().is_empty());
                assert_eq!(PLENTY - budget.left(), ROUND_TRIP, "of {to}");
            }
            run(&w, &format!("UPDATE s{} SET v = v + 1", to - 1)).await;
            let last = all.last().unwrap().id;
            assert_eq!(asking.pending(&all, &options).await.unwrap(), [last]);
            budget.set(PLENTY);
            assert_eq!(asking.pending(&all, &options).await.unwrap(), [last]);
            assert_eq!(PLENTY - budget.left(), 2 * ROUND_TRIP, "of {to}: what is in the buffer is looked at");
            t.refresh(&[name(&format!("st{}", to - 1))], &RefreshOptions::default()).await.unwrap();
            assert!(asking.pending(&all, &options).await.unwrap().is_empty());
            // TRUNCATE gives the segment another file, which the next round must notice.
            run(&w, &format!("TRUNCATE {}", segment(&w, to - 1).await)).await;
            budget.set(PLENTY);
            assert!(asking.pending(&all, &options).await.unwrap().is_empty());
            assert_eq!(PLENTY - budget.left(), ROUND_TRIP, "of {to}: it is empty again");
        }
    });
}

/// A connector that opens connections to a database, and counts their messages.
struct Counted(Config, PathBuf, Mutex<Vec<Budget>>);

impl Counted {
    fn to((config, socket): (Config, PathBuf)) -> Counted {
        Counted(config, socket, Mutex::default())
    }

    fn sent(&self) -> i64 {
        self.2.lock().unwrap().iter().map(|b| PLENTY - b.left()).sum()
    }
}

impl Connect for Counted {
    fn connect(&self) -> Pin<Box<dyn Future<Output = trickle_client::Result<Session>> + '_>> {
        Box::pin(async {
            let (session, budget) = cut::connect_to(&self.0, &self.1).await;
            budget.set(PLENTY);
            self.2.lock().unwrap().push(budget);
            Ok(session)
        })
    }
}

/// The greatest number of messages that an idle refresher sends in a second. The refresher checks the
/// catalog, checks the buffers, and occasionally reads the catalog. Each of these takes three messages.
const IDLE_SECOND: i64 = 24;

/// The number of queries of an idle refresher depends neither on the number of stream tables nor on their
/// schedules.
#[test]
fn a_refresher_with_nothing_to_do_asks_once_for_all() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        make(&mut t, &w, 0..40).await;
        let to = Counted::to(db.socket());
        let seconds = 4;
        let idle = async {
            while to.sent() == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before = to.sent();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let sent = to.sent() - before;
            assert!(sent > 0 && sent <= i64::try_from(seconds).unwrap() * IDLE_SECOND, "{sent}");
            // The refresher finds the few stream tables with changes among many without changes, even if the
            // changes come while it refreshes.
            for i in [7, 8, 39] {
                run(&w, &format!("UPDATE s{i} SET v = v + 1; DELETE FROM s{i} WHERE id = 2")).await;
            }
            for i in [7, 8, 39] {
                let shown = format!("SELECT count(*) FROM st{i} WHERE v = 2 AND id = 1");
                while count(&w, &shown).await != 1 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            // Buffers without new changes are emptied after a while.
            for i in [7, 8, 39] {
                let size = format!("SELECT pg_relation_size('{}')", segment(&w, i).await);
                while count(&w, &size).await > 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        let settle = Duration::from_millis(500);
        let mut options = DaemonOptions::default();
        options.scheduler.settle = settle;
        let stop = async { tokio::time::timeout(Duration::from_secs(120), idle).await.unwrap() };
        daemon::run(&to, &options, &|_| {}, stop).await.unwrap();
        for i in 0..40 {
            assert_equal(&mut t, &format!("st{i}")).await;
        }
    });
}

/// A refresher that checks many times a second queries only the snapshot while nobody commits. A commit in
/// any database of the server counts, so the test has a private server.
#[test]
fn quick_looks_ask_for_the_snapshot_alone() {
    private::newest_version(async |binaries| {
        let server = private::start(binaries, "quick").await;
        let mut t = private::open(&server, "postgres", Settings::default()).await;
        let w = private::connect(&server, "postgres").await;
        run(&w, "CREATE TABLE s (id int PRIMARY KEY, v int); INSERT INTO s VALUES (1, 1)").await;
        for i in 0..5 {
            let mut quick = NewStreamTable::new(name(&format!("st{i}")), "SELECT id, v FROM s");
            quick.schedule = Some(Some("50ms".to_owned()));
            t.create(&quick).await.unwrap();
        }
        let to = Counted::to((server.config("postgres"), server.directory().join(".s.PGSQL.5432")));
        let seconds = 4;
        let idle = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let before = to.sent();
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            // The limit is the messages of one check each 45 ms, plus the messages of each idle second. A
            // check may come a tenth of its period (50 ms) early.
            let most = i64::try_from(seconds).unwrap() * (ROUND_TRIP * 1000 / 45 + IDLE_SECOND);
            let sent = to.sent() - before;
            assert!(sent > 0 && sent <= most, "{sent}, of {most}");
            run(&w, "UPDATE s SET v = 2").await;
            while count(&w, "SELECT count(*) FROM st0 JOIN st4 USING (id, v) WHERE v = 2").await == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let stop = async { tokio::time::timeout(Duration::from_secs(120), idle).await.unwrap() };
        daemon::run(&to, &DaemonOptions::default(), &|_| {}, stop).await.unwrap();
    });
}

#[test]
fn the_status_of_many_is_as_many_messages_as_of_few() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        let mut seen = Vec::new();
        for (from, to) in [(0, 3), (3, 12)] {
            make(&mut t, &w, from..to).await;
            if from == 0 {
                create(&mut t, "over", "SELECT id, v * 2 AS v FROM st0").await;
            }
            run(&w, "UPDATE s0 SET v = v + 1; TRUNCATE s1").await;
            let (session, budget) = cut::connect(db).await;
            let mut asking = Trickle::open(session, Settings::default()).await.unwrap();
            budget.set(PLENTY);
            let all = asking.status(&[]).await.unwrap();
            seen.push(PLENTY - budget.left());
            let pending = |what: &str| {
                let s = all.iter().find(|s| s.name == format!("public.{what}")).unwrap();
                (s.pending, s.pending_changes)
            };
            // An update counts as two changes, and a TRUNCATE as none. For `over`, the changes of its
            // source's source count.
            assert_eq!(pending("st0"), (Some(true), Some(4)));
            assert_eq!(pending("over"), (Some(true), Some(4)));
            assert_eq!(pending("st1"), (Some(true), Some(0)));
            assert_eq!(pending("st2"), (Some(false), Some(0)));
            t.refresh_apart(&[], &RefreshOptions::default()).await.unwrap();
        }
        assert_eq!(seen[0], seen[1], "of few and of many");
    });
}

#[test]
fn a_refresh_of_many_that_changed_costs_each_of_them_the_same() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        let mut costs = Vec::new();
        for (from, to) in [(0, 4), (4, 8), (8, 12)] {
            make(&mut t, &w, from..to).await;
            for i in 0..to {
                run(&w, &format!("UPDATE s{i} SET v = v + 1 WHERE id = 1")).await;
            }
            let cost = refresh_all(db).await;
            assert!(cost.actions.iter().all(|a| *a != "NO_DATA"), "{:?}", cost.actions);
            costs.push(cost);
        }
        let [a, b, c] = costs.as_slice() else { panic!("three rounds") };
        // Some messages are sent more or less often, depending on the content of a buffer. So the test allows
        // a growth of a tenth. Work that each stream table causes for all others would grow by a half.
        let grows = |by: fn(&Cost) -> i64| (by(c) - by(b)) * 10 <= (by(b) - by(a)) * 11;
        assert!(grows(|c| c.messages), "{} {} {}", a.messages, b.messages, c.messages);
        assert!(grows(|c| c.looks), "{} {} {}", a.looks, b.looks, c.looks);
        assert_equal(&mut t, "st3").await;
    });
}

/// A refresh of many idle stream tables finds each stream table that is altered or marked, or whose source
/// was changed or truncated.
#[test]
fn changes_are_found_among_many_idle_stream_tables() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        make(&mut t, &w, 0..6).await;
        create(&mut t, "over", "SELECT id, v * 2 AS v FROM st2").await;
        run(&w, "UPDATE s1 SET v = 7; TRUNCATE s2; ALTER TABLE s3 ADD COLUMN more int; UPDATE s3 SET v = 9")
            .await;
        run(&w, "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true WHERE pgt_name = 'st4'").await;
        let mut done = std::collections::BTreeMap::new();
        for group in t.refresh_apart(&[], &RefreshOptions::default()).await.unwrap() {
            done.extend(group.unwrap().into_iter().map(|d| (d.report.name, d.report.action.name())));
        }
        let idle: Vec<&str> =
            done.iter().filter(|(_, a)| **a == "NO_DATA").map(|(n, _)| n.as_str()).collect();
        assert_eq!(idle, ["public.st0", "public.st5"], "{done:?}");
        for what in ["st0", "st1", "st2", "over", "st3", "st4", "st5"] {
            assert_equal(&mut t, what).await;
        }
    });
}
