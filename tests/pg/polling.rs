//! Stream tables that read a source without capture. Such stream tables are recomputed when their schedule is
//! due or when somebody refreshes by hand, and not at every check of the refresher. The tests catch
//! refreshers that recompute such stream tables without end. The tests also catch stream tables that are
//! recomputed once and then never again.

use crate::support::{Db, Driver, assert_equal, count, create, name, newest_server, open_with, run};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};
use trickle_client::daemon::{self, DaemonOptions};
use trickle_client::{Alteration, Connect, RefreshOptions, Session, Settings, Trickle};
use trickle_core::catalog::TableId;
use trickle_core::cost::Force;

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, v int);
    INSERT INTO a SELECT i, i FROM generate_series(1, 20) i;
    CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM a";

async fn set_up(db: &Db) -> (Driver, Session) {
    let by_deltas = Settings { force: Some(Force::Incremental), ..Settings::default() };
    let mut t = open_with(db, by_deltas).await;
    let w = db.session().await;
    run(&w, SOURCES).await;
    create(&mut t, "polled", "SELECT n FROM m").await;
    create(&mut t, "aged", "SELECT id, now() - interval '1 day' AS since FROM a WHERE id < 3").await;
    create(&mut t, "reader", "SELECT a.id, a.v, p.n FROM a CROSS JOIN polled p").await;
    (t, w)
}

async fn id(t: &Trickle, what: &str) -> TableId {
    t.find(&name(what)).await.unwrap().relation.id
}

#[test]
fn uncaptured_sources_count_as_changed_when_somebody_asks() {
    newest_server(async |db| {
        let (mut t, w) = set_up(db).await;
        let all = [name("polled"), name("reader"), name("aged")];
        let told = RefreshOptions { polled: Some(BTreeSet::new()), ..RefreshOptions::default() };
        let did = async |t: &mut Driver, options: &RefreshOptions| -> Vec<(String, &'static str)> {
            let done = t.refresh(&all, options).await.unwrap();
            done.iter().map(|d| (d.report.name.clone(), d.report.action.name())).collect()
        };
        let of = |polled, aged, reader| -> BTreeSet<(String, &'static str)> {
            [("public.polled", polled), ("public.aged", aged), ("public.reader", reader)]
                .map(|(n, a): (&str, &'static str)| (n.to_owned(), a))
                .into()
        };
        // The capture of `a` began with the last creation. So the next refresh recomputes all readers of `a`.
        did(&mut t, &RefreshOptions::default()).await;
        let set = |v: Vec<(String, &'static str)>| v.into_iter().collect::<BTreeSet<_>>();
        assert_eq!(set(did(&mut t, &told).await), of("NO_DATA", "NO_DATA", "NO_DATA"));
        run(
            &w,
            "UPDATE a SET v = v + 1 WHERE id = 9; INSERT INTO a VALUES (99, 9); REFRESH MATERIALIZED VIEW m",
        )
        .await;
        // Captured changes of `a` are applied, joined with the stored rows of `polled`. `polled` was not
        // recomputed.
        assert_eq!(set(did(&mut t, &told).await), of("NO_DATA", "NO_DATA", "DIFFERENTIAL"));
        assert_eq!(count(&w, "SELECT count(*) FROM reader WHERE n = 20").await, 21);
        let one =
            RefreshOptions { polled: Some([id(&t, "polled").await].into()), ..RefreshOptions::default() };
        let done = set(did(&mut t, &one).await);
        assert!(done.contains(&("public.polled".to_owned(), "FULL")), "{done:?}");
        assert!(done.contains(&("public.aged".to_owned(), "NO_DATA")), "{done:?}");
        assert_eq!(count(&w, "SELECT count(*) FROM reader WHERE n = 21").await, 21);
        let done = set(did(&mut t, &RefreshOptions::default()).await);
        assert!(done.contains(&("public.aged".to_owned(), "FULL")), "{done:?}");
        // The capture of `a` is off. Changes of `a` cause no recompute of `sums`, but a change of `polled`
        // causes one.
        create(&mut t, "sums", "SELECT p.n, sum(a.v) AS s FROM a CROSS JOIN polled p GROUP BY p.n").await;
        t.disable(&name("a")).await.unwrap();
        run(&w, "UPDATE a SET v = v + 1").await;
        let sums = [name("sums")];
        let done = t.refresh(&sums, &told).await.unwrap();
        assert_eq!(done.last().unwrap().report.action.name(), "NO_DATA", "{done:?}");
        run(&w, "DELETE FROM a WHERE id = 9; REFRESH MATERIALIZED VIEW m").await;
        let done = t.refresh(&sums, &one).await.unwrap();
        assert_eq!(done.last().unwrap().report.action.name(), "FULL", "{done:?}");
        assert_equal(&mut t, "sums").await;
    });
}

#[test]
fn queries_without_sources_are_recomputed_when_due() {
    newest_server(async |db| {
        let (mut t, w) = set_up(db).await;
        create(&mut t, "clock", "SELECT now() AS at").await;
        create(&mut t, "constant", "SELECT 1 AS x").await;
        let ask = async |t: &mut Driver, what: &str, options: &RefreshOptions| {
            let report = t.refresh(&[name(what)], options).await.unwrap().pop().unwrap().report;
            (report.action.name(), report.reason)
        };
        let before = count(
            &w,
            "SELECT extract(epoch FROM at)::int8 * 1000000 + extract(microseconds FROM at)::int8 FROM clock",
        )
        .await;
        let (action, reason) = ask(&mut t, "clock", &RefreshOptions::default()).await;
        assert!(action == "FULL" && reason.contains("now()"), "{action} {reason}");
        let after = count(
            &w,
            "SELECT extract(epoch FROM at)::int8 * 1000000 + extract(microseconds FROM at)::int8 FROM clock",
        )
        .await;
        assert_ne!(before, after);
        let told = RefreshOptions { polled: Some(BTreeSet::new()), ..RefreshOptions::default() };
        assert_eq!(ask(&mut t, "clock", &told).await.0, "NO_DATA");
        assert_eq!(ask(&mut t, "constant", &RefreshOptions::default()).await.0, "NO_DATA");
        // The query that finds idle stream tables gives the same result.
        let all: Vec<_> = t.registry().await.unwrap().entries().cloned().collect();
        let clock = t.find(&name("clock")).await.unwrap().id;
        assert!(t.pending(&all, &RefreshOptions::default()).await.unwrap().contains(&clock));
        assert!(!t.pending(&all, &told).await.unwrap().contains(&clock));
        let standing = t.status(&[name("clock"), name("constant")]).await.unwrap();
        assert_eq!([standing[0].polls, standing[1].polls], [true, false]);
        assert_eq!([standing[0].pending, standing[1].pending], [Some(true), Some(false)]);
        // The source of `aged` is captured for another reader, so the changes of the source are known. `aged`
        // is recomputed because its query reads the clock.
        ask(&mut t, "aged", &RefreshOptions::default()).await;
        let (action, reason) = ask(&mut t, "aged", &RefreshOptions::default()).await;
        assert!(action == "FULL" && reason.contains("now()"), "{action} {reason}");
    });
}

struct To<'d>(&'d Db);

impl Connect for To<'_> {
    fn connect(&self) -> Pin<Box<dyn Future<Output = trickle_client::Result<Session>> + '_>> {
        Box::pin(async { Ok(self.0.session().await) })
    }
}

/// Waits until a query returns the wanted number, while a refresher runs.
async fn until(w: &Session, query: &str, wanted: i64) {
    let started = Instant::now();
    while count(w, query).await != wanted {
        assert!(started.elapsed() < Duration::from_secs(60), "{query} never gives {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn a_refresher_polls_what_is_not_captured_in_its_time() {
    newest_server(async |db| {
        let (mut t, w) = set_up(db).await;
        let standing = t.status(&[]).await.unwrap();
        let periods: Vec<(bool, Option<u64>)> = standing.iter().map(|s| (s.polls, s.period_ms)).collect();
        assert_eq!(periods, [(true, Some(60_000)), (true, Some(60_000)), (false, Some(1_000))]);
        let mut options = DaemonOptions::default();
        options.scheduler.reload = Duration::from_millis(100);
        options.scheduler.schedule.min_period = Duration::from_millis(50);
        options.scheduler.schedule.default_period = Duration::from_millis(50);
        options.scheduler.schedule.poll_period = Duration::from_secs(3600);
        let polled = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE initiated_by = 'SCHEDULER' AND action <> 'NO_DATA' \
             AND pgt_id IN (SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name IN ('polled', 'aged'))";
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let work = async {
            for n in 1..=5 {
                run(&w, &format!("UPDATE a SET v = 1000 + {n} WHERE id = 7")).await;
                until(&w, &format!("SELECT count(*) FROM reader WHERE v = 1000 + {n}"), 1).await;
            }
            // `polled` and `aged` are each recomputed at most once, when the refresher begins.
            assert!(count(&w, polled).await <= 2);
            run(&w, "INSERT INTO a VALUES (100, 1); REFRESH MATERIALIZED VIEW m").await;
            // The shorter schedule of the reader makes the refresher poll the sources more often.
            let soon = Alteration { schedule: Some(Some("1s".into())), ..Alteration::default() };
            t.alter(&name("reader"), &soon).await.unwrap();
            until(&w, "SELECT count(*) FROM reader WHERE n = 21", 21).await;
            stop.send(()).unwrap();
        };
        let to = To(db);
        let refresher = daemon::run(&to, &options, &|_| {}, async {
            let _ = stopped.await;
        });
        let (done, ()) = tokio::join!(refresher, work);
        done.unwrap();
        assert_eq!(t.status(&[name("polled")]).await.unwrap()[0].period_ms, Some(1_000));
        assert_equal(&mut t, "reader").await;
    });
}
