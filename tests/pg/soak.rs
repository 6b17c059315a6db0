//! Many writers, many stream tables, a migration a minute, and a refresher that is killed and started again
//! at random times. In the end all stream tables equal their queries, no change is pending, no refresh has
//! failed, and no lock is left. The environment variable `TRICKLE_SOAK_SECONDS` sets the duration.

use crate::support::{Db, newest_server, run};
use std::cell::Cell;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trickle_client::{Name, NewStreamTable, Settings, Trickle};

const WRITERS: u64 = 64;

const TABLES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v numeric(10,2));
    CREATE TABLE b (id int PRIMARY KEY, k int, w int, note text);
    CREATE TABLE c (k int, name text);
    INSERT INTO a SELECT i, i % 20, i FROM generate_series(1, 300) i;
    INSERT INTO b SELECT i, i % 25, i % 7, 'b' || i FROM generate_series(1, 300) i;
    INSERT INTO c SELECT i, 'c' || i % 9 FROM generate_series(1, 25) i;";

/// Names and queries of the stream tables: chains, a diamond (d1 to d4), and queries that need full
/// refreshes.
const VIEWS: [(&str, &str); 20] = [
    ("d1", "SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k"),
    ("d2", "SELECT k, s FROM d1 WHERE n > 5"),
    ("d3", "SELECT k, n FROM d1 WHERE s > 100"),
    ("d4", "SELECT d2.k, d2.s, d3.n FROM d2 JOIN d3 USING (k)"),
    ("e1", "SELECT a.id, b.id AS other, a.v, b.w FROM a JOIN b ON a.k = b.k"),
    ("e2", "SELECT w, count(*) AS n, max(v) AS most FROM e1 GROUP BY w"),
    ("e3", "SELECT max(n) AS most FROM e2"),
    ("f1", "SELECT a.id, a.v, c.name FROM a LEFT JOIN c ON c.k = a.k"),
    ("f2", "SELECT DISTINCT name FROM f1"),
    ("g1", "SELECT * FROM c"),
    ("g2", "SELECT k FROM a EXCEPT SELECT k FROM b"),
    ("g3", "SELECT k FROM a INTERSECT ALL SELECT k FROM c"),
    ("h1", "SELECT * FROM a WHERE NOT EXISTS (SELECT FROM b WHERE b.k = a.k AND b.w > 3)"),
    ("h2", "SELECT * FROM b WHERE k IN (SELECT k FROM c WHERE name > 'c3')"),
    ("h3", "SELECT * FROM b WHERE k NOT IN (SELECT k FROM a WHERE v > 250)"),
    ("i1", "SELECT min(v) AS least, max(v) AS most, avg(v) AS mean, count(DISTINCT k) AS ks FROM a"),
    ("i2", "SELECT a.k, b.w FROM a FULL JOIN b ON a.id = b.id WHERE a.k IS DISTINCT FROM b.k"),
    ("i3", "SELECT id, (SELECT count(*) FROM c WHERE c.k = b.k) AS cs FROM b"),
    ("j1", "SELECT id, v, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM a"),
    ("j2", "SELECT id, v FROM a ORDER BY v DESC, id LIMIT 10"),
];

/// Stream tables that are not linked to their sources.
const APART: [&str; 4] = ["d3", "d4", "e2", "e3"];

/// A generator of pseudo-random numbers (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % below
    }
}

fn statement(dice: &mut Dice) -> String {
    let (id, k, n) = (dice.roll(400), dice.roll(30), dice.roll(50));
    let null = dice.roll(12) == 0;
    let k = if null { "NULL".to_owned() } else { k.to_string() };
    match dice.roll(14) {
        0 | 1 => format!(
            "INSERT INTO a VALUES ({id}, {k}, {n}) ON CONFLICT (id) DO UPDATE SET v = a.v + excluded.v"
        ),
        2 => format!("INSERT INTO a VALUES ({id}, {k}, NULL) ON CONFLICT DO NOTHING"),
        3 => format!("UPDATE a SET k = {k} WHERE id BETWEEN {id} AND {id} + 5"),
        4 => format!("UPDATE a SET v = v + {n} WHERE id = {id}"),
        5 => format!("DELETE FROM a WHERE id BETWEEN {id} AND {id} + 3"),
        6 | 7 => format!(
            "INSERT INTO b VALUES ({id}, {k}, {n} % 7, 'x') ON CONFLICT (id) DO UPDATE SET w = excluded.w"
        ),
        8 => format!("UPDATE b SET k = {k}, note = 'y' WHERE id = {id}"),
        9 => format!("DELETE FROM b WHERE id = {id}"),
        10 => format!("INSERT INTO c SELECT {k}, 'c{n}' WHERE (SELECT count(*) FROM c) < 300"),
        11 => format!("DELETE FROM c WHERE ctid IN (SELECT ctid FROM c WHERE k = {k} LIMIT 1)"),
        12 => format!("UPDATE c SET name = 'c' || {n} WHERE k = {k}"),
        _ => format!("UPDATE b SET note = 'unseen' WHERE id = {id}"),
    }
}

/// Runs the transactions of one writer. Some of them are rolled back, and some stay open for a while.
async fn write(client: &Client, seed: u64, until: Instant, written: &Cell<u64>) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    while Instant::now() < until {
        let mut text = "BEGIN;".to_owned();
        for _ in 0..=dice.roll(4) {
            text.push_str(&statement(&mut dice));
            text.push(';');
            if dice.roll(8) == 0 {
                text.push_str("SAVEPOINT s;");
                text.push_str(&statement(&mut dice));
                text.push_str(";ROLLBACK TO s;");
            }
        }
        if dice.roll(6) == 0 {
            text.push_str("SELECT pg_sleep(0.05);");
        }
        text.push_str(if dice.roll(7) == 0 { "ROLLBACK" } else { "COMMIT" });
        // A deadlock among writers may make a transaction fail. Such a failure is not trickle's fault.
        if client.batch_execute(&text).await.is_err() {
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        written.set(written.get() + 1);
        tokio::time::sleep(Duration::from_millis(dice.roll(10))).await;
    }
}

fn refresher(db: &Db) -> Child {
    let mut c = Command::new(env!("CARGO_BIN_EXE_trickle"));
    c.args(["run", "--database-url", &db.settings(), "--scheduler-interval-ms", "100"]);
    c.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// The process of the present refresher, and the number of refreshers killed before it.
#[derive(Clone, Copy, Default)]
struct Life {
    pid: u32,
    killed: u32,
}

/// Starts refreshers one after the other, and kills each of them after a random time. Most of these times are
/// a second or two, and some are two minutes.
async fn kill(db: &Db, life: &Cell<Life>, until: Instant) {
    let mut dice = Dice(77);
    while Instant::now() < until {
        let mut child = refresher(db);
        life.set(Life { pid: child.id(), ..life.get() });
        let long = dice.roll(60) == 0;
        let lives = Duration::from_millis(if long { 120_000 } else { 300 + dice.roll(2500) });
        tokio::time::sleep(lives.min(until.saturating_duration_since(Instant::now()))).await;
        child.kill().unwrap();
        child.wait().unwrap();
        life.set(Life { killed: life.get().killed + 1, ..life.get() });
    }
}

/// Migrations after which the writers' statements are still valid. The two migrations of a pair alternate.
const MIGRATIONS: [[&str; 2]; 10] = [
    ["ALTER TABLE a ADD COLUMN extra int DEFAULT 7", "ALTER TABLE a DROP COLUMN extra"],
    ["ALTER TABLE a ALTER v TYPE numeric(12, 2)", "ALTER TABLE a ALTER v TYPE numeric(10, 2)"],
    [
        "ALTER TABLE b RENAME w TO x; ALTER TABLE b RENAME x TO w",
        "ALTER TABLE a RENAME TO x; ALTER TABLE x RENAME TO a",
    ],
    ["CREATE UNIQUE INDEX b_both ON b (id, k)", "DROP INDEX b_both"],
    ["ALTER TABLE b ALTER note TYPE varchar(40)", "ALTER TABLE b ALTER note TYPE text"],
    [
        "CREATE SCHEMA x; ALTER TABLE c SET SCHEMA x; ALTER TABLE x.c SET SCHEMA public; DROP SCHEMA x",
        "VACUUM FULL c",
    ],
    ["ALTER TABLE a ALTER v SET DEFAULT 0, ALTER k SET STATISTICS 50", "ALTER TABLE a ALTER v DROP DEFAULT"],
    ["ALTER TABLE c REPLICA IDENTITY FULL", "ALTER TABLE c REPLICA IDENTITY DEFAULT"],
    ["ALTER TABLE b ALTER w TYPE bigint", "ALTER TABLE b ALTER w TYPE int"],
    ["TRUNCATE c", "ALTER TABLE a ADD CHECK (id >= 0); ALTER TABLE a DROP CONSTRAINT a_id_check"],
];

/// Migrates as migration tools do. Each statement waits only for a short time for its lock, and is tried
/// again. Returns the number of migrations.
async fn migrate(client: &Client, every: Duration, until: Instant) -> usize {
    client.batch_execute("SET lock_timeout = '500ms'").await.unwrap();
    let mut done = 0;
    while Instant::now() + every < until {
        tokio::time::sleep(every).await;
        let migration = MIGRATIONS[done / 2 % MIGRATIONS.len()][done % 2];
        while let Err(e) = client.batch_execute(migration).await {
            let busy = e.as_db_error().is_some_and(|e| ["55P03", "40P01"].contains(&e.code().code()));
            assert!(busy, "{migration}: {e:?}");
            if Instant::now() > until {
                return done;
            }
        }
        done += 1;
    }
    done
}

/// A query for a line about the last minute: the numbers of refreshes, the lag of changes, and the size of
/// the buffers.
const LINE: &str = "
    SELECT format('%s refreshes, %s failed, lag %s / %s ms, at most %s; %s KiB of buffers', count(*) FILTER (WHERE status = 'COMPLETED'),
        count(*) FILTER (WHERE status = 'FAILED'), round(percentile_disc(0.5) WITHIN GROUP (ORDER BY lag_ms)),
        round(percentile_disc(0.99) WITHIN GROUP (ORDER BY lag_ms)), round(max(lag_ms)),
        (SELECT (sum(pg_relation_size(c.oid)) / 1024)::int8 FROM pg_class c
            WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relkind = 'r'))
    FROM pgtrickle.pgt_refresh_history WHERE end_time > now() - interval '1 minute'";

/// Limit of a refresher's memory in KiB. A refresher needs only a small part of this memory.
const MEMORY: u64 = 128 << 10;

/// Each minute, while writers, migrations and refreshes run, compares one stream table with its query and
/// prints a line.
async fn watch(db: &Db, written: &Cell<u64>, life: &Cell<Life>, until: Instant) {
    let mut t = Trickle::attach(db.session().await, Settings::default()).await.unwrap();
    let (mut minute, mut before) = (0, 0);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        tokio::time::sleep(left.min(Duration::from_secs(60))).await;
        if left < Duration::from_secs(60) {
            return;
        }
        let (name, _) = VIEWS[minute % VIEWS.len()];
        minute += 1;
        let e = t.find(&Name::parse(name).unwrap()).await.unwrap();
        assert_ne!(e.status, trickle_client::Activity::Suspended, "{name}: {:?}", e.last_error);
        let checked = t.check(&e, 5).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(checked.different, 0, "{checked:?}");
        let line: String = t.connection().client().query_one(LINE, &[]).await.unwrap().get(0);
        let Life { pid, killed } = life.get();
        let kib = memory(pid).unwrap_or_default();
        assert!(kib < MEMORY, "a refresher of {kib} KiB");
        println!(
            "PostgreSQL {}, minute {minute}: {} transactions, {killed} refreshers killed, {line}; refresher of {kib} KiB; {name} is equal",
            db.major(),
            written.get() - before,
        );
        before = written.get();
    }
}

/// Returns the memory of a process in KiB (see proc(5)). Returns None if the process is gone, or if the
/// system has no /proc.
fn memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn all_is_equal_after_writers_and_kills() {
    let seconds = std::env::var("TRICKLE_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(8);
    newest_server(async |db| {
        let settings = Settings { segment_bytes: 64 << 10, ..Settings::default() };
        let mut t = Trickle::attach(db.session().await, settings).await.unwrap();
        t.init().await.unwrap();
        run(&db.session().await, TABLES).await;
        for (i, (name, query)) in VIEWS.iter().enumerate() {
            let mut new = NewStreamTable::new(Name::parse(name).unwrap(), *query);
            new.schedule = Some(Some(["1s", "2s", "calculated"][i % 3].into()));
            new.apart = Some(APART.contains(name));
            t.create(&new).await.unwrap();
        }
        let until = Instant::now() + Duration::from_secs(seconds);
        let written = Cell::new(0);
        let mut writers = Vec::new();
        for seed in 1..=WRITERS {
            let (s, written) = (db.session().await, &written);
            writers.push(async move { write(s.client(), seed, until, written).await });
        }
        let life = Cell::new(Life::default());
        let log = watch(db, &written, &life, until);
        let every = Duration::from_secs(60).min(Duration::from_secs(seconds) / 4);
        let s = db.session().await;
        let migrations = migrate(s.client(), every, until);
        let (_, (), (), migrated) =
            tokio::join!(futures_util::future::join_all(writers), kill(db, &life, until), log, migrations);
        assert!(migrated > 0);
        assert!(written.get() > seconds * 10, "{} transactions", written.get());
        settled(&mut t).await;
    });
}

/// Asserts that every stream table equals its query, that no change is pending, and that no buffer has a
/// segment of 4 MiB or more. Asserts also that no refresh has failed, and that no client holds a lock on a
/// table.
async fn settled(t: &mut Trickle) {
    for (name, _) in VIEWS {
        let e = t.find(&Name::parse(name).unwrap()).await.unwrap();
        assert_ne!(e.status, trickle_client::Activity::Suspended, "{name}: {:?}", e.last_error);
        let checked = t.check(&e, 5).await.unwrap();
        assert_eq!(checked.different, 0, "{checked:?}");
    }
    let options = trickle_client::RefreshOptions::default();
    t.refresh_all(&options).await.unwrap();
    let mut all = Vec::new();
    for (name, _) in VIEWS {
        all.push(t.find(&Name::parse(name).unwrap()).await.unwrap());
    }
    assert_eq!(t.pending(&all, &options).await.unwrap(), Vec::<i64>::new());
    let failed =
        "SELECT coalesce(string_agg(DISTINCT error_message, '; '), '') FROM pgtrickle.pgt_refresh_history
        WHERE status = 'FAILED'";
    assert_eq!(t.connection().client().query_one(failed, &[]).await.unwrap().get::<_, String>(0), "");
    let sizes = "SELECT c.relname, pg_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'pgtrickle_changes' AND c.relkind = 'r' AND c.relname LIKE 'changes%'";
    for row in t.connection().client().query(sizes, &[]).await.unwrap() {
        let (name, bytes): (String, i64) = (row.get(0), row.get(1));
        assert!(bytes < 4 << 20, "{name} has {bytes} bytes");
    }
    // Locks of autovacuum do not count. The statements of a killed refresher end only when the server notices
    // its death, so the test waits.
    let locks = "SELECT coalesce(string_agg(a.pid || ' ' || l.mode || ' ' || l.relation::regclass || ' ' || a.query, '; '), '')
        FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE pid <> pg_backend_pid() AND l.relation IS NOT NULL
        AND a.backend_type = 'client backend' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let held: String = t.connection().client().query_one(locks, &[]).await.unwrap().get(0);
        if held.is_empty() {
            break;
        }
        assert!(Instant::now() < patience, "{held}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
