//! The first fill on several connections. The tests catch errors that a fill on one connection cannot have:
//! rows of another snapshot, and ranges that overlap or leave a gap. The tests also catch a part of the rows
//! that is taken for the whole result, and workers that outlive their leader.

use crate::support::{
    Db, Driver, assert_equal, assert_same_bag, count, create, end, name, newest_server, open_with, pid,
    refresh, run,
};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use trickle_client::progress::Progress;
use trickle_client::{
    Connect, Error, NewStreamTable, RefreshOptions, Result, Session, Settings, Trickle, Watch, connections,
};
use trickle_core::refresh::{Action, Kind, Statement};

/// A connector that opens connections to a test's database, up to a limit, and counts them.
struct Ways {
    config: tokio_postgres::Config,
    left: AtomicUsize,
    taken: AtomicUsize,
}

impl Connect for Ways {
    fn connect(&self) -> Pin<Box<dyn Future<Output = Result<Session>> + '_>> {
        Box::pin(async move {
            let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            left.map_err(|_| Error::connection("sorry, too many clients already"))?;
            self.taken.fetch_add(1, Ordering::SeqCst);
            Session::connect(&self.config).await
        })
    }
}

async fn ways(db: &Db, most: usize) -> Arc<Ways> {
    let config = db.settings().parse().unwrap();
    Arc::new(Ways { config, left: AtomicUsize::new(most), taken: AtomicUsize::new(0) })
}

/// Settings with which every stream table is filled on several connections, even a small one.
fn forced() -> Settings {
    Settings { load_connections: 4, load_bytes: 0, ..Settings::default() }
}

async fn open(db: &Db, ways: &Arc<Ways>) -> Driver {
    open_with(db, forced()).await.with_connections(connections(ways.clone()))
}

async fn rows(s: &Session, of: &str) -> i64 {
    count(s, &format!("SELECT count(*) FROM {of}")).await
}

const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int, t text);
    CREATE TABLE b (id int PRIMARY KEY, k int, w int);
    INSERT INTO a SELECT i, i % 50, i, 'x' || i FROM generate_series(1, 3000) i;
    INSERT INTO b SELECT i, i, i FROM generate_series(1, 40) i;
    DELETE FROM a WHERE id % 7 = 0; UPDATE a SET v = -v WHERE id % 11 = 0";

/// Queries whose first fill is divided among several connections.
const SHARED: &[(&str, &str)] = &[
    ("mapped", "SELECT id, v + 1 AS v, t FROM a WHERE k <> 3"),
    ("unkeyed", "SELECT k, t FROM a"),
    ("joined", "SELECT a.id, b.w FROM a JOIN b USING (k)"),
    ("padded", "SELECT a.id, a.t, b.w FROM a LEFT JOIN b USING (k)"),
    ("without", "SELECT a.* FROM a WHERE NOT EXISTS (SELECT FROM b WHERE b.k = a.k)"),
    ("united", "SELECT id, k FROM a UNION ALL SELECT id, w FROM b UNION ALL SELECT -1, count(*)::int FROM b"),
    ("over_groups", "SELECT a.id, s.n FROM a JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) s USING (k)"),
];

#[test]
fn a_load_in_parts_equals_a_load_in_one() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, SOURCES).await;
        run(
            &s,
            "CREATE TABLE parts (id int, k int, t text) PARTITION BY RANGE (id);
            CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (700);
            CREATE TABLE p2 PARTITION OF parts DEFAULT;
            INSERT INTO parts SELECT id, k, t FROM a; INSERT INTO parts SELECT id, k, t FROM a WHERE k = 1",
        )
        .await;
        let ways = ways(db, 100).await;
        let mut several = open(db, &ways).await;
        let mut one = open_with(db, Settings::default()).await;
        let partitioned = [("partitioned", "SELECT id, t FROM parts")];
        for (what, query) in SHARED.iter().chain(&partitioned) {
            let before = ways.taken.load(Ordering::SeqCst);
            create(&mut several, what, query).await;
            assert!(ways.taken.load(Ordering::SeqCst) > before, "{what} was loaded on one connection");
            create(&mut one, &format!("{what}_1"), query).await;
            let same = format!("SELECT * FROM {what}_1");
            assert_same_bag(&s, &format!("SELECT * FROM {what}"), &same).await;
            let told = "SELECT rows_inserted FROM pgtrickle.pgt_refresh_history WHERE pgt_id = (SELECT pgt_id
                FROM pgtrickle.pgt_stream_tables WHERE pgt_name = ";
            assert_eq!(count(&s, &format!("{told} '{what}')")).await, rows(&s, what).await, "{what}");
        }
        run(&s, "UPDATE a SET k = k + 1 WHERE id < 100; DELETE FROM a WHERE id > 2900; INSERT INTO b VALUES (99, 7, 7);
            DELETE FROM parts WHERE id BETWEEN 600 AND 800; INSERT INTO parts VALUES (3, 3, 'new')").await;
        for (what, _) in SHARED.iter().chain(&partitioned) {
            let done = refresh(&mut several, what).await;
            assert_ne!(done.last().unwrap().report.action, Action::Reinitialize);
            assert_equal(&mut several, what).await;
        }
    });
}

#[test]
fn queries_that_ranges_cannot_split_fill_on_one_connection() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, SOURCES).await;
        run(
            &s,
            "CREATE TABLE old (id int, t text); CREATE TABLE young () INHERITS (old);
            INSERT INTO young SELECT id, t FROM a",
        )
        .await;
        let ways = ways(db, 100).await;
        let mut t = open(db, &ways).await;
        create(&mut t, "grouped", "SELECT k, sum(v) AS s FROM a GROUP BY k").await;
        create(&mut t, "distinct_t", "SELECT DISTINCT t FROM a").await;
        create(&mut t, "inherited", "SELECT id, t FROM old").await;
        assert_eq!(ways.taken.load(Ordering::SeqCst), 0);
        t = open_with(db, Settings { load_bytes: 1 << 30, ..forced() })
            .await
            .with_connections(connections(ways.clone()));
        create(&mut t, "small", "SELECT id FROM a").await;
        assert_eq!(ways.taken.load(Ordering::SeqCst), 0);
        for what in ["grouped", "distinct_t", "inherited", "small"] {
            assert_equal(&mut t, what).await;
        }
    });
}

/// A fill of 200,000 rows while writers insert, update and delete. The stored frontier must be the snapshot
/// that all connections read.
#[test]
fn a_large_load_under_writers_loses_nothing() {
    newest_server(async |db| {
        let s = db.session().await;
        run(
            &s,
            "CREATE TABLE big (id int PRIMARY KEY, k int, v int);
            INSERT INTO big SELECT i, i % 1000, i FROM generate_series(1, 200000) i;
            CREATE TABLE names (k int PRIMARY KEY, n text);
            INSERT INTO names SELECT i, 'n' || i FROM generate_series(0, 900) i",
        )
        .await;
        let ways = ways(db, 100).await;
        let mut t = open(db, &ways).await;
        let done = std::sync::atomic::AtomicBool::new(false);
        let write = async |n: i64| {
            let w = db.session().await;
            let mut i = 0_i64;
            // The number of writes is bounded, since this test is not about a long delta of these changes.
            while !done.load(Ordering::SeqCst) && i < 2_000 {
                i += 1;
                let (new, k) = (1_000_000 + i * 4 + n, i % 1_000);
                let (changed, gone) = ((i * 7_919 + n * 50_000) % 200_000, (i * 104_729 + n) % 200_000);
                run(
                    &w,
                    &format!(
                        "BEGIN; INSERT INTO big VALUES ({new}, {k}, {n});
                    UPDATE big SET v = v + 1, k = (k + 1) % 1000 WHERE id = {changed};
                    DELETE FROM big WHERE id = {gone}; COMMIT"
                    ),
                )
                .await;
                if n == 0 {
                    run(&w, &format!("UPDATE names SET n = n || '!' WHERE k = {i} % 900")).await;
                }
            }
        };
        let load = async {
            create(&mut t, "copied", "SELECT id, k, v FROM big").await;
            create(&mut t, "named", "SELECT big.id, big.v, names.n FROM big LEFT JOIN names USING (k)").await;
            for what in ["copied", "named"] {
                assert_equal(&mut t, what).await;
            }
            done.store(true, Ordering::SeqCst);
        };
        tokio::join!(load, write(0), write(1), write(2));
        assert!(ways.taken.load(Ordering::SeqCst) >= 6);
        for what in ["copied", "named"] {
            assert_equal(&mut t, what).await;
        }
    });
}

#[test]
fn too_few_connections_are_no_error() {
    newest_server(async |db| {
        run(&db.session().await, SOURCES).await;
        for most in [0, 1, 2] {
            let ways = ways(db, most).await;
            let mut t = open(db, &ways).await;
            create(&mut t, &format!("with_{most}"), "SELECT id, t FROM a").await;
            assert_eq!(ways.taken.load(Ordering::SeqCst), most);
            assert_equal(&mut t, &format!("with_{most}")).await;
        }
    });
}

/// The server allows the role only one connection, and the leader uses that connection.
#[test]
fn a_role_without_more_connections_loads_on_one() {
    newest_server(async |db| {
        let s = db.session().await;
        let database: String = s.client().query_one("SELECT current_database()", &[]).await.unwrap().get(0);
        let role = format!("lonely_{database}");
        run(
            &s,
            &format!(
                "CREATE ROLE {role} LOGIN CONNECTION LIMIT 1; ALTER DATABASE {database} OWNER TO {role};
            GRANT ALL ON SCHEMA public TO {role}"
            ),
        )
        .await;
        let settings = format!("{} user={role}", db.settings());
        let config: tokio_postgres::Config = settings.parse().unwrap();
        let ways = Arc::new(Ways { config, left: AtomicUsize::new(9), taken: AtomicUsize::new(0) });
        let session = Session::connect(&settings.parse().unwrap()).await.unwrap();
        run(&session, SOURCES).await;
        let t = Trickle::attach(session, forced()).await.unwrap().with_connections(connections(ways));
        let mut t = Driver::of(t);
        t.init().await.unwrap();
        create(&mut t, "alone", "SELECT id, t FROM a").await;
        assert_equal(&mut t, "alone").await;
        drop(t);
        run(&s, &format!("REASSIGN OWNED BY {role} TO postgres; DROP OWNED BY {role}")).await;
    });
}

/// The processes that a fault terminates.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Leader,
    Worker,
    /// The leader and all workers at once, as when the machine of the client dies.
    Everybody,
}

/// A watch on a fill. The watch terminates the victims before the statement with index `left`. At the COMMIT
/// of the leader, the workers have committed and the leader has not.
struct Strike<'s> {
    left: usize,
    seen: usize,
    admin: &'s Session,
    victim: Victim,
    leader: i32,
    kinds: Vec<Kind>,
}

/// A query for the processes of the workers of a fill, without the leader's process and the test's own
/// process.
const WORKERS: &str = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> $1
    AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state LIKE 'idle in transaction%'";

impl Watch for Strike<'_> {
    fn before<'s>(&'s mut self, s: &'s Statement) -> Pin<Box<dyn Future<Output = Result<()>> + 's>> {
        Box::pin(async move {
            // A fault between two SET statements has the same effect as a fault after them.
            if s.kind == Kind::Setting {
                return Ok(());
            }
            self.kinds.push(s.kind);
            self.seen += 1;
            if self.seen != self.left + 1 {
                return Ok(());
            }
            let mut victims = Vec::new();
            if !matches!(self.victim, Victim::Leader) {
                let rows = self.admin.client().query(WORKERS, &[&self.leader]).await.unwrap();
                victims.extend(rows.iter().map(|r| r.get::<_, i32>(0)));
            }
            match self.victim {
                Victim::Worker => victims.truncate(1),
                Victim::Leader | Victim::Everybody => victims.push(self.leader),
            }
            for pid in victims {
                end(self.admin, pid).await;
            }
            Ok(())
        })
    }
}

/// Fills a stream table, with a fault before the statement with index `left`. Returns false if the fill has
/// no such statement.
async fn load_struck(db: &Db, admin: &Session, victim: Victim, left: usize) -> bool {
    let what = format!("{victim:?}_{left}").to_lowercase();
    let ways = ways(db, 100).await;
    let mut t = open(db, &ways).await;
    let new = NewStreamTable { initialize: false, ..NewStreamTable::new(name(&what), "SELECT k, t FROM a") };
    t.create(&new).await.unwrap();
    let leader = pid(t.connection().client()).await;
    let mut strike = Strike { left, seen: 0, admin, victim, leader, kinds: Vec::new() };
    let done = t.refresh_watched(&[name(&what)], &RefreshOptions::default(), &mut strike).await;
    if strike.seen <= left {
        done.unwrap_or_else(|e| panic!("{what}: {e:?}"));
        return false;
    }
    // A fill fails when its leader dies, and continues when only a worker dies.
    assert_eq!(done.is_err(), !matches!(victim, Victim::Worker), "{what}: {done:?}");
    if done.is_err() {
        let filled = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE is_populated AND pgt_name = ";
        assert_eq!(count(admin, &format!("{filled} '{what}'")).await, 0);
        let after = strike.kinds.get(left) == Some(&Kind::Commit);
        assert!(after || rows(admin, &what).await == 0, "{what}: rows of a load that died");
        run(admin, "UPDATE a SET v = v + 1 WHERE id = 1; DELETE FROM a WHERE id = (SELECT max(id) FROM a)")
            .await;
        t = open(db, &ways).await;
    }
    assert_equal(&mut t, &what).await;
    run(admin, "UPDATE a SET k = k + 1 WHERE id IN (SELECT id FROM a ORDER BY id LIMIT 3)").await;
    assert_equal(&mut t, &what).await;
    t.drop(&name(&what), false).await.unwrap();
    true
}

#[test]
fn a_load_dies_at_every_step() {
    newest_server(async |db| {
        let admin = db.session().await;
        run(&admin, SOURCES).await;
        for victim in [Victim::Leader, Victim::Worker, Victim::Everybody] {
            let mut left = 0;
            while load_struck(db, &admin, victim, left).await {
                left += 1;
                assert!(left < 20, "a refresh of {left} statements");
            }
            assert!(left > 5, "{victim:?}: only {left} statements");
        }
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in tr%'";
        assert_eq!(count(&admin, open).await, 0);
    });
}

/// A fill died, and one of its workers still writes. The next refresh waits for the worker, and removes the
/// rows of the worker.
#[test]
fn a_refresh_waits_for_what_a_dead_load_still_writes() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, SOURCES).await;
        let ways = ways(db, 100).await;
        let mut t = open(db, &ways).await;
        let new =
            NewStreamTable { initialize: false, ..NewStreamTable::new(name("late"), "SELECT k, t FROM a") };
        t.create(&new).await.unwrap();
        let worker = db.session().await;
        run(&worker, "BEGIN; SET LOCAL pgtrickle.refreshing = on; INSERT INTO late VALUES (1, 'left over')")
            .await;
        let victim = pid(t.connection().client()).await;
        let commit = async {
            crate::support::blocked(&s, victim).await;
            // The first, short wait is only for the lock on the stream table.
            while count(
                &s,
                &format!(
                    "SELECT count(*) FROM pg_locks WHERE pid = {victim} AND NOT granted
                AND mode = 'ShareRowExclusiveLock'"
                ),
            )
            .await
                == 0
            {
                tokio::task::yield_now().await;
            }
            run(&worker, "COMMIT").await;
        };
        tokio::join!(async { refresh(&mut t, "late").await }, commit);
        assert_equal(&mut t, "late").await;
        assert_eq!(count(&s, "SELECT count(*) FROM late WHERE t = 'left over'").await, 0);
    });
}

/// An error of the query is reported as an error of the query, and the failed fill leaves no objects.
#[test]
fn an_error_of_the_query_is_told_once() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, SOURCES).await;
        let ways = ways(db, 100).await;
        let mut t = open(db, &ways).await;
        let new = NewStreamTable::new(name("inverse"), "SELECT id, 1 / (id - 2500) AS r FROM a");
        let e = t.create(&new).await.unwrap_err();
        assert!(e.message().contains("division by zero"), "{e:?}");
        assert!(t.find(&name("inverse")).await.is_err());
    });
}

/// The result violates a unique index of the user. The connections of the fill must not wait for each other
/// for ever.
#[test]
fn a_unique_violation_in_a_parallel_fill_fails_without_deadlock() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, SOURCES).await;
        run(&s, "INSERT INTO a SELECT id + 10000, k, v, t FROM a").await;
        let ways = ways(db, 100).await;
        let mut t = open_with(db, Settings { lock_timeout_ms: 300, ..forced() })
            .await
            .with_connections(connections(ways));
        let new =
            NewStreamTable { initialize: false, ..NewStreamTable::new(name("u"), "SELECT id, t FROM a") };
        t.create(&new).await.unwrap();
        run(&s, "CREATE UNIQUE INDEX ON u (t)").await;
        let e = crate::support::try_refresh(&mut t, "u").await.unwrap_err();
        assert!(e.message().contains("duplicate key"), "{e:?}");
        run(&s, "DELETE FROM a WHERE id > 10000").await;
        refresh(&mut t, "u").await;
        assert_equal(&mut t, "u").await;
    });
}

/// A progress report that notes the processes for which the fill waited.
struct Heard(std::sync::Mutex<Vec<i32>>);

impl Progress for Heard {
    fn say(&self, _: &str) {}
    fn is_watched(&self) -> bool {
        true
    }
    fn next(&self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(tokio::time::sleep(Duration::from_secs(1)))
    }
    fn at(&self, report: &trickle_client::progress::ProgressReport) {
        self.0.lock().unwrap().extend(report.waits_for.iter().map(|b| b.pid));
    }
}

#[test]
fn the_process_that_a_fill_waits_for_is_named() {
    newest_server(async |db| {
        let s = db.session().await;
        run(&s, SOURCES).await;
        let heard = Arc::new(Heard(std::sync::Mutex::default()));
        let mut t = open_with(db, Settings { lock_timeout_ms: 0, ..Settings::default() })
            .await
            .with_connections(connections(ways(db, 100).await))
            .with_progress(heard.clone());
        create(&mut t, "mapped", "SELECT id, v FROM a").await;
        let blocker = db.session().await;
        let blocking = pid(blocker.client()).await;
        run(&blocker, "BEGIN; LOCK TABLE a IN ACCESS EXCLUSIVE MODE; UPDATE a SET v = 0 WHERE id < 10").await;
        let release = async {
            while !heard.0.lock().unwrap().contains(&blocking) {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            run(&blocker, "COMMIT").await;
        };
        tokio::join!(async { refresh(&mut t, "mapped").await }, release);
        assert_equal(&mut t, "mapped").await;
    });
}
