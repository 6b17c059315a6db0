//! Places at which a refresh through the SQL API can be made to wait, for tests in which other sessions act
//! during the wait. A session holds a lock that the next statement of the refresh needs, so the code of the
//! refresh is not changed. The locks of the refreshing process tell which place the refresh has reached.

use super::rows;
use crate::support::{Db, count, pid, run};
use std::cell::Cell;
use std::time::{Duration, Instant};
use trickle_client::Session;

/// Limit for a wait, long enough for every machine. A longer wait is a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two sources, and functions that make a process wait for an advisory lock (a "door"). A process waits
/// within a query, in a statement, or at the end of a transaction.
pub(super) const SOURCES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int);
    CREATE TABLE b (id int PRIMARY KEY, k int, w int);
    INSERT INTO a SELECT i, i % 5, i FROM generate_series(1, 40) i;
    INSERT INTO b SELECT i, i % 5, i FROM generate_series(1, 10) i;
    CREATE FUNCTION gate(door int, x bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
        PERFORM pg_catalog.pg_advisory_lock_shared(door); PERFORM pg_catalog.pg_advisory_unlock_shared(door); RETURN x; END $$;
    CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.gate(TG_ARGV[0]::int, 0); RETURN NULL; END $$;
    CREATE FUNCTION bar(source regclass, mode text) RETURNS void LANGUAGE plpgsql AS $$ DECLARE segment text; BEGIN
        FOR segment IN SELECT format('changes_%s_%s', source_relid, s->>'number')
            FROM pgtrickle.pgt_buffers, jsonb_array_elements(segments) s WHERE source_relid = source
        LOOP EXECUTE format('LOCK TABLE pgtrickle_changes.%I IN %s MODE', segment, mode); END LOOP; END $$";

/// Three stream tables: one over a join, one that reads the first, and one that only shares a source with the
/// other two.
pub(super) const TABLES: [(&str, &str); 3] = [
    (
        "total",
        "SELECT a.k, sum(gate(1, a.v) * b.w) AS s, count(*) AS n FROM a JOIN b ON b.k = a.k GROUP BY a.k",
    ),
    ("large", "SELECT t.k, gate(2, t.n) AS n, t.s, b.w FROM total t JOIN b ON b.k = t.k"),
    ("apart", "SELECT id, v FROM a WHERE v > 0"),
];

/// Users' triggers on stream tables.
const TRIGGERS: &str = "
    CREATE TRIGGER waits AFTER INSERT OR UPDATE OR DELETE ON total EXECUTE FUNCTION waits('3');
    CREATE TRIGGER waits AFTER INSERT OR UPDATE OR DELETE ON large EXECUTE FUNCTION waits('4');
    CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE OR DELETE ON total DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION waits('5')";

/// The step that a refresh has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum At {
    /// The refresh reads the list of stream tables to refresh.
    Looking,
    /// The refresh locks stream tables.
    Locking,
    /// The refresh locks the catalog rows of stream tables.
    Holding,
    /// The refresh has its snapshot, and counts changes.
    Deciding,
    /// The refresh brings the first stream table up to date.
    First,
    /// The refresh brings the second stream table up to date.
    Second,
    /// The refresh stores the frontier.
    Storing,
    /// The refresh writes history.
    Recording,
    /// The refresh cleans up, or commits.
    Ending,
}

/// All steps, in the order in which a refresh takes them.
pub(super) const ALL: [At; 9] = [
    At::Looking,
    At::Locking,
    At::Holding,
    At::Deciding,
    At::First,
    At::Second,
    At::Storing,
    At::Recording,
    At::Ending,
];

/// A lock for which a test makes a refresh wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    /// The statement that takes the lock, in a transaction that stays open.
    pub(super) block: &'static str,
    /// The step at which the first refresh of a session waits for the lock. A later refresh of the session
    /// may wait at [`At::Deciding`] instead of [`At::Looking`].
    pub(super) at: At,
    /// Whether other sessions can write the sources while the lock is held.
    pub(super) open: bool,
}

const fn stop(at: At, open: bool, block: &'static str) -> Stop {
    Stop { block, at, open }
}

pub(super) const STOPS: &[Stop] = &[
    stop(At::Looking, true, "LOCK TABLE pgtrickle.pgt_catalog_version IN ACCESS EXCLUSIVE MODE"),
    stop(At::Looking, true, "LOCK TABLE pgtrickle.pgt_stream_tables IN ACCESS EXCLUSIVE MODE"),
    stop(At::Looking, true, "LOCK TABLE pgtrickle.pgt_dependencies IN ACCESS EXCLUSIVE MODE"),
    stop(At::Looking, true, "LOCK TABLE pgtrickle.pgt_buffers IN ACCESS EXCLUSIVE MODE"),
    stop(At::Looking, false, "LOCK TABLE a IN ACCESS EXCLUSIVE MODE"),
    stop(At::Looking, false, "LOCK TABLE b IN ACCESS EXCLUSIVE MODE"),
    stop(At::Looking, true, "LOCK TABLE total IN ACCESS EXCLUSIVE MODE"),
    stop(At::Locking, true, "LOCK TABLE total IN SHARE UPDATE EXCLUSIVE MODE"),
    stop(At::Locking, true, "LOCK TABLE large IN SHARE UPDATE EXCLUSIVE MODE"),
    stop(At::Holding, true, "SELECT FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'total' FOR UPDATE"),
    stop(At::Holding, true, "SELECT FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'large' FOR UPDATE"),
    stop(At::Looking, false, "SELECT bar('a', 'ACCESS EXCLUSIVE')"),
    stop(At::Looking, false, "SELECT bar('b', 'ACCESS EXCLUSIVE')"),
    stop(At::Looking, true, "SELECT bar('total', 'ACCESS EXCLUSIVE')"),
    stop(At::First, true, "SELECT pg_advisory_xact_lock(1)"),
    stop(At::First, true, "SELECT FROM total FOR UPDATE"),
    stop(At::First, true, "SELECT bar('total', 'EXCLUSIVE')"),
    stop(At::First, true, "SELECT pg_advisory_xact_lock(3)"),
    stop(At::Second, true, "SELECT pg_advisory_xact_lock(2)"),
    stop(At::Second, true, "SELECT FROM large FOR UPDATE"),
    stop(At::Second, true, "SELECT pg_advisory_xact_lock(4)"),
    stop(At::Storing, true, "LOCK TABLE pgtrickle.pgt_stream_tables IN SHARE MODE"),
    stop(At::Recording, true, "LOCK TABLE pgtrickle.pgt_refresh_history IN SHARE MODE"),
    stop(At::Ending, true, "SELECT pg_advisory_xact_lock(5)"),
];

/// A query for the step of a process's refresh, as a position in `ALL`. The locks that the process holds or
/// waits for tell the step. The result is -1 while the process waits for no lock.
const WAITS: &str = "
WITH l AS (SELECT locktype, objid AS door, mode, granted, coalesce(relation::regclass::text, '') AS name FROM pg_locks WHERE pid = $1),
    w AS (SELECT * FROM l WHERE NOT granted), h AS (SELECT * FROM l WHERE granted AND mode = 'RowExclusiveLock')
SELECT CASE
    WHEN NOT EXISTS (SELECT FROM w) THEN -1
    WHEN EXISTS (SELECT FROM h WHERE name = 'pgtrickle.pgt_refresh_history') THEN 8
    WHEN EXISTS (SELECT FROM w WHERE name = 'pgtrickle.pgt_refresh_history') THEN 7
    WHEN EXISTS (SELECT FROM w WHERE name = 'pgtrickle.pgt_stream_tables' AND mode = 'RowExclusiveLock') THEN 6
    WHEN EXISTS (SELECT FROM w WHERE locktype = 'advisory' AND door IN (2, 4)) OR EXISTS (SELECT FROM h WHERE name = 'large') THEN 5
    WHEN EXISTS (SELECT FROM w WHERE locktype = 'advisory' AND door IN (1, 3)) THEN 4
    WHEN EXISTS (SELECT FROM h WHERE name = 'total') THEN 4
    WHEN EXISTS (SELECT FROM w WHERE mode = 'ShareUpdateExclusiveLock') THEN 1
    WHEN NOT EXISTS (SELECT FROM l WHERE name = 'pgtrickle.pgt_stream_tables' AND mode = 'RowShareLock' AND granted) THEN 0
    WHEN EXISTS (SELECT FROM w WHERE locktype = 'relation') THEN 3
    ELSE 2 END";

/// A query for a process of the extension that waits for a lock of another process.
const WORKER: &str = "SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'pg\\_trickle %' \
    AND datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0 LIMIT 1";

/// Makes sources, stream tables and triggers in a database that has the extension.
pub(super) async fn make(s: &Session) {
    run(s, SOURCES).await;
    run(s, "SET pg_trickle.refresh_strategy = 'differential'").await;
    for (name, query) in TABLES {
        run(s, &format!("SELECT pgtrickle.create_stream_table('{name}', $${query}$$)")).await;
    }
    run(s, TRIGGERS).await;
}

/// Returns the query of a stream table, written so that it reads no other stream table.
pub(super) fn flat(name: &str) -> String {
    let query = |name| TABLES.iter().find(|(n, _)| *n == name).unwrap().1;
    query(name).replace("FROM total t", &format!("FROM ({}) t", query("total")))
}

/// Returns the stored rows of the two linked stream tables.
pub(super) async fn stored(s: &Session) -> [Vec<Vec<Option<String>>>; 2] {
    [rows(s, "TABLE total").await, rows(s, "TABLE large").await]
}

/// Returns the rows that the two linked stream tables should have, by the source rows that this session sees.
pub(super) async fn wanted(s: &Session) -> [Vec<Vec<Option<String>>>; 2] {
    [rows(s, &flat("total")).await, rows(s, &flat("large")).await]
}

/// Returns the `n`th changes of both sources: inserts, updates of the join key and of values, and deletes.
/// Changes with different values of `party` concern different rows.
pub(super) fn writes(n: u32, party: u32) -> String {
    let id = |n: u32| 999 + 3 * n + party;
    let (new, old, older) = (id(n), id(n.saturating_sub(1)), id(n.saturating_sub(4)));
    format!(
        "INSERT INTO a VALUES ({new}, {n} % 5, {n} + 1); INSERT INTO b VALUES ({new}, ({n} + 1) % 5, {n} % 7);
         UPDATE a SET k = (k + 1) % 6 WHERE id % 3 = {party} AND id % 5 = {n} % 5; UPDATE b SET k = (k + 1) % 6 WHERE id = {old};
         UPDATE a SET v = v + 1 WHERE id % 3 = {party} AND k = {n} % 5; UPDATE b SET w = w + 1 WHERE id % 3 = {party} AND k = 2;
         DELETE FROM a WHERE id = {older}; DELETE FROM b WHERE id = {older}"
    )
}

/// Sessions of a test: one makes a refresh wait, one observes the refresh, and one writes during the wait.
pub(super) struct Cast {
    pub(super) blocker: Session,
    pub(super) eye: Session,
    pub(super) writer: Session,
}

impl Cast {
    pub(super) async fn of(db: &Db) -> Cast {
        Cast::new(db.session().await, db.session().await, db.session().await).await
    }

    pub(super) async fn new(blocker: Session, eye: Session, writer: Session) -> Cast {
        for s in [&blocker, &eye, &writer] {
            run(s, "SET lock_timeout = '30s'; SET pg_trickle.refresh_strategy = 'differential'").await;
        }
        Cast { blocker, eye, writer }
    }

    /// Runs a call until it waits at a stop. Then runs `meanwhile`, which ends the wait or the call. Returns
    /// the result of the call.
    pub(super) async fn stopped(
        &self,
        s: &Session,
        block: &str,
        call: &str,
        meanwhile: impl AsyncFnOnce(At),
    ) -> Result<(), tokio_postgres::Error> {
        let process = pid(s.client()).await;
        run(&self.blocker, &format!("BEGIN; {block}")).await;
        let ended = Cell::new(false);
        let called = async {
            let done = s.client().batch_execute(call).await;
            ended.set(true);
            done
        };
        let looked = async {
            match self.waits(process, &ended).await {
                Some(at) => meanwhile(at).await,
                None => assert!(ended.get(), "nobody waits for {block}"),
            }
        };
        let both = async { tokio::join!(called, looked).0 };
        tokio::time::timeout(PATIENCE, both).await.unwrap_or_else(|_| panic!("it hangs: {block}"))
    }

    /// Holds the lock of `block`, and writes until a process of the server waits for that lock. Returns the
    /// id of that process.
    pub(super) async fn held(&self, block: &str, write: &str) -> i32 {
        run(&self.blocker, &format!("BEGIN; {block}")).await;
        run(&self.writer, write).await;
        let began = Instant::now();
        while began.elapsed() < PATIENCE / 2 {
            if let Some(row) = self.eye.client().query_opt(WORKER, &[]).await.unwrap() {
                return row.get(0);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("nobody waits for {block}");
    }

    /// Waits until a process waits for a lock, and returns the step of its refresh. Returns `None` if the
    /// call of the process ended without a wait.
    ///
    /// `pg_locks` reads the locks of the fast path before the others. So the reading that first shows the
    /// wait can lack a lock that was granted just before the wait. Only the second reading counts, since a
    /// waiting process takes no more locks.
    async fn waits(&self, process: i32, ended: &Cell<bool>) -> Option<At> {
        let began = Instant::now();
        let mut waited = false;
        while began.elapsed() < PATIENCE / 2 && !ended.get() {
            let row = self.eye.client().query_one(WAITS, &[&process]).await.unwrap();
            match usize::try_from(row.get::<_, i32>(0)) {
                Ok(n) if waited => return Some(ALL[n]),
                place => waited = place.is_ok(),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        None
    }
}

/// Returns 0 if no other session has an open transaction or a lock, held or awaited. Else returns a positive
/// number.
pub(super) async fn left(s: &Session) -> i64 {
    count(
        s,
        "SELECT (SELECT count(*) FROM pg_prepared_xacts) + count(*) FROM pg_stat_activity a LEFT JOIN pg_locks l USING (pid) \
         WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() \
         AND (a.state LIKE 'idle in transaction%' OR l.locktype IN ('relation', 'advisory', 'tuple'))",
    )
    .await
}
