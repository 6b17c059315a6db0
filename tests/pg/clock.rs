//! Queries over the clock on real servers: rows enter and leave as time passes.
//!
//! Only these tests can catch two errors. First, two of these operations may compute with different times: a
//! refresh, a fill on several connections, a check, and a refresh of a reader. Second, a refresh may be
//! skipped although time passed, because no table changed.

use crate::support::{
    Db, Driver, assert_equal, count, create, mode, name, newest_server, open, open_with, refresh, run,
};
use std::pin::Pin;
use std::sync::Arc;
use trickle_client::{Connect, RefreshOptions, Result, Session, Settings, Trickle, connections};
use trickle_core::cost::Force;
use trickle_core::refresh::Action;

/// Events at intervals of 20 milliseconds, from 40 seconds ago to nine minutes from now. Some events have
/// NULL as their time.
const TABLES: &str = "
CREATE TABLE ev (id int PRIMARY KEY, k int, v int, at timestamptz, day date);
CREATE TABLE dim (k int PRIMARY KEY, name text, wait interval);
INSERT INTO ev SELECT i, i % 7, nullif(i % 11, 0), CASE WHEN i % 50 > 0 THEN
    now() + (i - 2000) * interval '20 milliseconds' END, current_date + i % 3 FROM generate_series(1, 30000) i;
INSERT INTO dim SELECT i, 'd' || i, i * interval '200 milliseconds' FROM generate_series(0, 8) i;
CREATE INDEX ON ev (at); CREATE INDEX ON ev (k);
ANALYZE ev, dim;
CREATE VIEW fresh AS SELECT id, k FROM ev WHERE at > now() - interval '1 second' AND at <= now();";

/// Name and text of the queries.
const QUERIES: &[(&str, &str)] = &[
    ("recent", "SELECT id, k, v FROM ev WHERE at > now() - interval '2000 milliseconds' AND at <= now()"),
    ("unkeyed", "SELECT k, v FROM ev WHERE at BETWEEN now() - interval '500 milliseconds' AND now()"),
    ("past", "SELECT id FROM ev WHERE at <= localtimestamp AND day <= current_date"),
    ("today", "SELECT id, k FROM ev WHERE day = current_date AND at > clock_start()"),
    ("sums", "SELECT k, count(*) AS n, sum(v) AS s FROM ev WHERE at <= now() GROUP BY k"),
    ("total", "SELECT count(*) AS n, max(id) AS last FROM ev WHERE at <= current_timestamp"),
    ("extremes", "SELECT k, min(v) AS least, max(at) AS last FROM ev WHERE at > now() GROUP BY k"),
    (
        "alive",
        "SELECT k, count(*) AS n FROM ev GROUP BY k HAVING max(at) FILTER (WHERE id < 2100 + k * 20) > now()",
    ),
    (
        "joined",
        "SELECT e.id, d.name FROM ev e JOIN dim d ON d.k = e.k AND e.at > now() - interval '800 milliseconds' WHERE e.at < transaction_timestamp()",
    ),
    (
        "waited",
        "SELECT e.id, d.name FROM ev e JOIN dim d USING (k) WHERE e.at + d.wait <= now() AND e.at > now() - interval '3000 milliseconds'",
    ),
    (
        "padded",
        "SELECT d.k, e.id FROM dim d LEFT JOIN ev e ON e.k = d.k AND e.at > now() - interval '400 milliseconds' AND e.at <= now()",
    ),
    (
        "seen",
        "SELECT d.k FROM dim d WHERE EXISTS (SELECT FROM ev e WHERE e.k = d.k AND e.at > now() - interval '200 milliseconds' AND e.at <= now())",
    ),
    (
        "silent",
        "SELECT d.k FROM dim d WHERE NOT EXISTS (SELECT FROM ev e WHERE e.k = d.k AND e.at + d.wait > now() AND e.at <= now())",
    ),
    ("unlisted", "SELECT id FROM ev WHERE at <= now() AND k NOT IN (SELECT k FROM fresh)"),
    ("kinds", "SELECT DISTINCT k, v FROM ev WHERE at > now() - interval '600 milliseconds' AND at <= now()"),
    ("without", "SELECT k FROM dim EXCEPT SELECT k FROM fresh"),
    (
        "both",
        "SELECT k, id FROM fresh UNION ALL SELECT k, -1 FROM dim WHERE wait > interval '1 second' OR now() > '2000-01-01'",
    ),
    (
        "ranked",
        "SELECT k, id, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM ev WHERE at > now() - interval '900 milliseconds' AND at <= now()",
    ),
    ("latest", "SELECT DISTINCT ON (k) k, id, at FROM ev WHERE at <= now() ORDER BY k, at DESC, id"),
    ("first_five", "SELECT id, at FROM ev WHERE at > now() ORDER BY at, id LIMIT 5"),
    ("either", "SELECT id FROM ev WHERE at < now() - interval '30 seconds' OR (v IS NULL AND at <= now())"),
    ("age", "SELECT id FROM ev WHERE now() - at < interval '1000 milliseconds' AND at <= now()"),
    ("reader", "SELECT k, count(*) AS n FROM recent GROUP BY k"),
    ("reader_too", "SELECT r.id, t.n FROM recent r JOIN sums t USING (k) WHERE now() >= '2000-01-01'"),
];

async fn incremental(db: &Db) -> Driver {
    open_with(db, Settings { force: Some(Force::Incremental), ..Settings::default() }).await
}

/// Waits until some milliseconds have passed on the server's clock.
async fn passes(t: &Trickle, milliseconds: f64) {
    let text = "SELECT (clock_timestamp() + $1 * interval '1 millisecond')::text";
    let until: String = t.connection().client().query_one(text, &[&milliseconds]).await.unwrap().get(0);
    let text = "SELECT clock_timestamp() >= ($1::text)::timestamptz";
    while !t.connection().client().query_one(text, &[&until]).await.unwrap().get::<_, bool>(0) {
        tokio::task::yield_now().await;
    }
}

#[test]
fn rows_enter_and_leave_as_time_passes() {
    newest_server(async |db| {
        let mut t = incremental(db).await;
        t.connection().client().batch_execute(TABLES).await.unwrap();
        let start = "DO $$ BEGIN EXECUTE format('CREATE FUNCTION clock_start() RETURNS timestamptz LANGUAGE sql IMMUTABLE \
            RETURN timestamptz %L', now()); END $$";
        t.connection().client().batch_execute(start).await.unwrap();
        for (what, query) in QUERIES {
            create(&mut t, what, query).await;
            assert_eq!(mode(&t, what).await, ("DIFFERENTIAL".to_owned(), String::new()), "{what}");
        }
        let writer = db.session().await;
        for change in [
            "",
            "UPDATE ev SET v = v + 1 WHERE id % 13 = 0; DELETE FROM ev WHERE id % 29 = 0",
            "",
            "UPDATE ev SET at = at + interval '30 milliseconds' WHERE k = 3; INSERT INTO ev VALUES (0, 1, 1, now(), current_date)",
            "DELETE FROM dim WHERE k = 2; UPDATE dim SET wait = interval '10 milliseconds' WHERE k = 5",
        ] {
            run(&writer, change).await;
            passes(&t, 60.0).await;
            let done = t.refresh_all(&RefreshOptions::default()).await.unwrap();
            for d in &done {
                // When a stream table did not change, a reader of that stream table has no changes to read.
                let known = [Action::Differential, Action::NoData].contains(&d.report.action);
                assert!(known, "{}: {}", d.report.name, d.report.reason);
            }
            assert_eq!(done.len(), QUERIES.len());
            for (what, _) in QUERIES {
                assert_equal(&mut t, what).await;
            }
        }
    });
}

/// The query that finds idle stream tables notices that time passed. Linked stream tables are computed for
/// one time.
#[test]
fn time_alone_is_a_reason_and_readers_are_of_the_same_time() {
    newest_server(async |db| {
        let mut t = incremental(db).await;
        t.connection().client().batch_execute(TABLES).await.unwrap();
        create(&mut t, "past", "SELECT id, k FROM ev WHERE at <= now()").await;
        create(&mut t, "sums", "SELECT k, count(*) AS n FROM past GROUP BY k").await;
        create(&mut t, "future", "SELECT id, k FROM ev WHERE at > now()").await;
        create(&mut t, "all_of_it", "SELECT id FROM past UNION ALL SELECT id FROM future").await;
        create(&mut t, "still", "SELECT id FROM ev WHERE k = 3").await;
        let rows = "SELECT count(*) FROM past";
        let s = db.session().await;
        let mut before = count(&s, rows).await;
        for _ in 0..3 {
            passes(&t, 60.0).await;
            let done = t.refresh_apart(&[], &RefreshOptions::default()).await.unwrap();
            let acted: Vec<(String, Action)> = done
                .into_iter()
                .flat_map(|group| group.unwrap())
                .map(|d| (d.report.name.to_string(), d.report.action))
                .collect();
            for what in ["past", "sums", "future", "all_of_it"] {
                assert!(acted.contains(&(format!("public.{what}"), Action::Differential)), "{acted:?}");
            }
            assert!(acted.contains(&("public.still".to_owned(), Action::NoData)), "{acted:?}");
            let now = count(&s, rows).await;
            assert!(now > before, "{now} rows after {before}");
            before = now;
            assert_eq!(count(&s, "SELECT sum(n)::int8 FROM sums").await, now);
            assert_eq!(
                count(&s, "SELECT count(*) FROM all_of_it").await,
                count(&s, "SELECT count(*) FROM ev WHERE at IS NOT NULL").await
            );
        }
    });
}

/// All rows of a stream table are computed for one time, the recorded `data_timestamp`. The time at which
/// somebody reads the stream table has no effect.
#[test]
fn the_time_of_the_data_says_what_is_in_it() {
    newest_server(async |db| {
        let mut t = incremental(db).await;
        t.connection().client().batch_execute(TABLES).await.unwrap();
        create(&mut t, "past", "SELECT id FROM ev WHERE at <= now() AND at > now() - interval '1 second'")
            .await;
        let s = db.session().await;
        let text = "SELECT count(*) FROM pgtrickle.pgt_stream_tables s, LATERAL (
            (SELECT id FROM ev WHERE at <= s.data_timestamp AND at > s.data_timestamp - interval '1 second'
             EXCEPT SELECT id FROM past)
            UNION ALL (SELECT id FROM past EXCEPT SELECT id FROM ev WHERE at <= s.data_timestamp
             AND at > s.data_timestamp - interval '1 second')) differs";
        assert_eq!(count(&s, text).await, 0);
        for full in [false, true, false] {
            passes(&t, 30.0).await;
            assert_eq!(count(&s, text).await, 0);
            let options = RefreshOptions { full, ..RefreshOptions::default() };
            t.refresh(&[name("past")], &options).await.unwrap();
            assert_eq!(count(&s, text).await, 0);
        }
    });
}

/// After the clock was set back, a refresh removes the rows that entered too early.
#[test]
fn the_clock_may_be_set_back() {
    newest_server(async |db| {
        let mut t = incremental(db).await;
        t.connection().client().batch_execute(TABLES).await.unwrap();
        create(
            &mut t,
            "past",
            "SELECT id, k FROM ev WHERE at <= now() AND at > now() - interval '20 seconds'",
        )
        .await;
        // The rows and the `data_timestamp` that a refresh 30 seconds from now would store.
        let s = db.session().await;
        let later = "BEGIN; SET LOCAL pgtrickle.refreshing = on; DELETE FROM past;
            UPDATE pgtrickle.pgt_stream_tables SET data_timestamp = now() + interval '30 seconds';
            INSERT INTO past SELECT id, k FROM ev
                WHERE at <= now() + interval '30 seconds' AND at > now() + interval '10 seconds'; COMMIT";
        run(&s, later).await;
        let done = refresh(&mut t, "past").await;
        assert_eq!(done[0].report.action, Action::Differential);
        assert_equal(&mut t, "past").await;
    });
}

/// Days begin in the time zone in which the stream table was created. The time zone of the session that
/// refreshes has no effect.
#[test]
fn days_are_those_of_the_time_zone_of_its_creation() {
    newest_server(async |db| {
        let mut t = incremental(db).await;
        t.connection().client().batch_execute(TABLES).await.unwrap();
        let query = "SELECT id, day FROM ev WHERE day = current_date OR day > localtimestamp";
        for (what, zone) in [("east", "Pacific/Kiritimati"), ("west", "Pacific/Pago_Pago")] {
            t.connection().client().batch_execute(&format!("SET TimeZone = '{zone}'")).await.unwrap();
            create(&mut t, what, query).await;
        }
        for zone in ["UTC", "Pacific/Kiritimati"] {
            t.connection().client().batch_execute(&format!("SET TimeZone = '{zone}'")).await.unwrap();
            passes(&t, 5.0).await;
            for what in ["east", "west"] {
                assert_eq!(refresh(&mut t, what).await[0].report.action, Action::Differential);
                assert_equal(&mut t, what).await;
            }
        }
    });
}

struct Ways(tokio_postgres::Config);

impl Connect for Ways {
    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<Session>> + '_>> {
        Box::pin(Session::connect(&self.0))
    }
}

#[test]
fn a_load_on_several_connections_is_of_one_time() {
    newest_server(async |db| {
        let settings = Settings { load_connections: 4, load_bytes: 0, ..Settings::default() };
        let ways = Arc::new(Ways(db.settings().parse().unwrap()));
        let mut t = open_with(db, settings).await.with_connections(connections(ways));
        t.connection().client().batch_execute(TABLES).await.unwrap();
        create(&mut t, "past", "SELECT id, k FROM ev WHERE at <= now() AND at > now() - interval '1 hour'")
            .await;
        let s = db.session().await;
        let text = "SELECT count(*) FROM pgtrickle.pgt_stream_tables s, LATERAL (
            (SELECT id FROM ev WHERE at <= s.data_timestamp EXCEPT SELECT id FROM past)
            UNION ALL (SELECT id FROM past EXCEPT SELECT id FROM ev WHERE at <= s.data_timestamp)) differs";
        assert_eq!(count(&s, text).await, 0);
        assert_equal(&mut t, "past").await;
    });
}

/// A query that shows the time itself gets full refreshes, since every refresh would change every row.
#[test]
fn the_clock_in_a_select_list_is_recomputed_and_says_why() {
    newest_server(async |db| {
        let mut t = open(db).await;
        t.connection().client().batch_execute(TABLES).await.unwrap();
        for (what, query) in [
            ("shown", "SELECT k, now() - wait AS since FROM dim"),
            ("within", "SELECT k, max(now() - at) AS n FROM ev GROUP BY k"),
        ] {
            create(&mut t, what, query).await;
            let (mode, why) = mode(&t, what).await;
            assert_eq!(mode, "FULL");
            assert!(why.contains("now()") && why.contains("Compare it with columns"), "{why}");
            assert_equal(&mut t, what).await;
        }
    });
}
