//! Random histories: writers, migrations of what stream tables read, changes of the stream tables themselves, refreshes, cancelled
//! sessions, in any order. After each refresh every stream table equals its query or says why it is suspended; no statement of
//! a writer failed because of trickle; and nothing is left behind at the end. A history that breaks this is made shorter, and printed as a
//! script. `just histories N` makes many.

use crate::random::seeds::Seeds;
use crate::support::{Db, Driver, count, each_server, name, open_with, run};
use futures_util::FutureExt;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use trickle_client::{
    Alteration, Error, IfExists, NewStreamTable, RefreshMode, RefreshOptions, Session, Settings,
};
use trickle_core::cost::Force;
use trickle_core::testing::Choice;

/// How many actions a history has.
const LENGTH: usize = 30;

/// Histories that failed once.
const FAILED: &[u64] = &[1_341_731_904, 10_061];

const WORLD: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int, w text);
    CREATE TABLE b (id int PRIMARY KEY, k int NOT NULL, v int, w text);
    CREATE TABLE c (k int, v int);
    CREATE TABLE p (id int, k int, v int) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);
    CREATE VIEW seen AS SELECT k, count(*) AS n FROM b GROUP BY k;
    CREATE SCHEMA away;
    INSERT INTO a SELECT i, i % 5, i, 'w' || i % 3 FROM generate_series(1, 30) i;
    INSERT INTO b SELECT i, i % 4, i, 'w' || i % 3 FROM generate_series(1, 20) i;
    INSERT INTO c SELECT i % 3, i % 7 FROM generate_series(1, 15) i;
    INSERT INTO p SELECT i * 5, i % 5, i FROM generate_series(0, 39) i";

const GONE: &str = "ROLLBACK; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DROP PUBLICATION IF EXISTS everything; \
    DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP SCHEMA IF EXISTS away CASCADE";

const QUERIES: [&str; 14] = [
    "SELECT id, v FROM a WHERE v > 5",
    "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM a GROUP BY k",
    "SELECT a.id, b.v FROM a JOIN b ON b.k = a.k",
    "SELECT a.id, a.w, b.v FROM a LEFT JOIN b ON b.id = a.v",
    "SELECT DISTINCT k, w FROM b",
    "SELECT k, v FROM c",
    "SELECT k, v FROM c EXCEPT ALL SELECT k, v FROM a",
    "SELECT id FROM a WHERE NOT EXISTS (SELECT FROM c WHERE c.k = a.k)",
    "SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM b",
    "SELECT k % 2 AS g, count(*) AS n, min(v) AS m FROM p GROUP BY k % 2",
    "SELECT p.id, a.v FROM p JOIN a ON a.id = p.id",
    "SELECT k, n FROM seen WHERE n > 2",
    "SELECT count(*) AS n, sum(v) AS s FROM b",
    "SELECT * FROM a",
];

/// Queries over other stream tables, by the name of one.
const ABOVE: [&str; 3] = [
    "SELECT count(*) AS n FROM $",
    "SELECT DISTINCT x.* FROM $ x",
    "SELECT x.*, y.k AS also FROM $ x JOIN c y ON y.v = 1",
];

const TABLES: [&str; 4] = ["a", "b", "c", "p"];
const COLUMNS: [&str; 5] = ["id", "k", "v", "w", "x"];
const NAMES: [&str; 4] = ["s1", "s2", "s3", "s4"];

/// Statements that write. `$t` is a table, `$c` a column, `$n` a number, `$m` another.
const WRITES: [&str; 14] = [
    "INSERT INTO $t (id, k, v) VALUES ($n, $m % 5, $m) ON CONFLICT DO NOTHING",
    "INSERT INTO $t (k, v) VALUES ($m % 5, $n)",
    "INSERT INTO $t (id, k, v) SELECT i, i % 5, i % 9 FROM generate_series($n, $n + 8) i ON CONFLICT DO NOTHING",
    "UPDATE $t SET v = v + 1 WHERE k = $m % 5",
    "UPDATE $t SET k = (k + 1) % 5 WHERE v % 3 = $m % 3",
    "UPDATE $t SET id = id + 1000 WHERE id = $n",
    "UPDATE $t SET $c = NULL WHERE id % 7 = $m % 7",
    "UPDATE $t SET w = 'x' || $m",
    "DELETE FROM $t WHERE id = $n",
    "DELETE FROM $t WHERE k = $m % 5",
    "WITH gone AS (DELETE FROM $t WHERE v = $m RETURNING k, v) INSERT INTO c SELECT k, v FROM gone",
    "INSERT INTO c SELECT k, v FROM $t WHERE k = $m % 5",
    "TRUNCATE $t CASCADE",
    "MERGE INTO $t USING (VALUES ($n, $m)) s(id, v) ON $t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v \
     WHEN NOT MATCHED THEN INSERT (id, k, v) VALUES (s.id, 1, s.v)",
];

/// Statements that alter what is read. Many mean nothing at their time, and change nothing then.
const ALTERS: [&str; 47] = [
    "ALTER TABLE $t ADD $c int",
    "ALTER TABLE $t ADD $c int DEFAULT $m",
    "ALTER TABLE $t ADD $c bigint GENERATED ALWAYS AS (v * 2) STORED",
    "ALTER TABLE $t DROP $c",
    "ALTER TABLE $t DROP $c CASCADE",
    "ALTER TABLE $t RENAME $c TO x",
    "ALTER TABLE $t RENAME x TO $c",
    "ALTER TABLE $t ALTER $c TYPE bigint",
    "ALTER TABLE $t ALTER $c TYPE int USING $c + 1",
    "ALTER TABLE $t ALTER $c TYPE text USING $c::text",
    "ALTER TABLE $t ALTER $c TYPE numeric(12, 2)",
    "ALTER TABLE $t ALTER $c SET NOT NULL",
    "ALTER TABLE $t ALTER $c DROP NOT NULL",
    "ALTER TABLE $t ALTER $c SET DEFAULT 3",
    "ALTER TABLE $t ALTER $c SET STATISTICS 50",
    "ALTER TABLE $t ADD CONSTRAINT only_$c UNIQUE ($c)",
    "ALTER TABLE $t DROP CONSTRAINT only_$c",
    "ALTER TABLE $t DROP CONSTRAINT $t_pkey CASCADE",
    "ALTER TABLE $t ADD PRIMARY KEY (id)",
    "ALTER TABLE $t ADD CONSTRAINT late CHECK (v IS NOT NULL) NOT VALID",
    "ALTER TABLE $t DROP CONSTRAINT late",
    "ALTER TABLE $t RENAME TO $t_old",
    "ALTER TABLE $t_old RENAME TO $t",
    "ALTER TABLE $t SET SCHEMA away",
    "ALTER TABLE away.$t SET SCHEMA public",
    "ALTER TABLE $t REPLICA IDENTITY FULL",
    "ALTER TABLE $t DISABLE TRIGGER ALL",
    "ALTER TABLE $t ENABLE TRIGGER ALL",
    "CREATE TABLE $t_child (extra int) INHERITS ($t)",
    "INSERT INTO $t_child (id, k, v) VALUES ($n, 1, $m)",
    "ALTER TABLE $t_child NO INHERIT $t",
    "DROP TABLE $t_child",
    "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (200) TO (1300)",
    "INSERT INTO p3 VALUES (200 + $m, 1, $m)",
    "DROP TABLE p3",
    "ALTER TABLE p DETACH PARTITION p2",
    "UPDATE p2 SET v = v + 1",
    "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200)",
    "TRUNCATE p1",
    "CREATE OR REPLACE VIEW seen AS SELECT k, count(*) AS n FROM b WHERE v > $m GROUP BY k",
    "CREATE INDEX ON $t ($c)",
    "VACUUM FULL $t",
    "CREATE PUBLICATION everything FOR ALL TABLES",
    "DROP PUBLICATION everything",
    "CREATE TRIGGER own BEFORE UPDATE ON $t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "ALTER TABLE $t ENABLE ROW LEVEL SECURITY",
    "DROP TABLE $t CASCADE",
];

/// Statements about the writer's session and its transactions.
const SESSIONS: [&str; 14] = [
    "BEGIN",
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT one",
    "ROLLBACK TO one",
    "RELEASE one",
    "SET search_path = away, public",
    "RESET search_path",
    "SET DateStyle = 'German'; SET extra_float_digits = 0; SET standard_conforming_strings = off",
    "SET session_replication_role = replica",
    "RESET session_replication_role",
    "SET default_transaction_isolation = 'serializable'",
];

/// Statements of the owner of stream tables.
const OF_STREAM_TABLES: [&str; 6] = [
    "CREATE INDEX ON $s ((1))",
    "GRANT SELECT ON $s TO PUBLIC",
    "ALTER TABLE $s RENAME TO $s_moved",
    "ALTER TABLE $s_moved RENAME TO $s",
    "DROP TABLE $s CASCADE",
    "COMMENT ON TABLE $s IS 'mine'",
];

#[derive(Clone, Debug)]
enum Action {
    /// A statement of the writer.
    Write(String),
    /// A statement of another session.
    Admin(String),
    Create {
        name: &'static str,
        query: String,
        mode: RefreshMode,
        replace: bool,
    },
    Drop(&'static str),
    Mode(&'static str, RefreshMode),
    Suspend(&'static str, bool),
    /// One, or all; whether in full.
    Refresh {
        name: Option<&'static str>,
        full: bool,
    },
    /// The writer's session is ended.
    Kill,
    /// The refresher's connection is another from now on.
    Reconnect,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Write(sql) => write!(f, "{sql};"),
            Action::Admin(sql) => write!(f, "\\! psql -c \"{sql}\""),
            Action::Create { name, query, mode, replace } => {
                let replace = if *replace { " --or-replace" } else { "" };
                let mode = mode.name().to_ascii_lowercase();
                write!(f, "\\! trickle create {name} --mode {mode}{replace} --query \"{query}\"")
            }
            Action::Drop(name) => write!(f, "\\! trickle drop {name} --cascade"),
            Action::Mode(name, mode) => {
                write!(f, "\\! trickle alter {name} --mode {}", mode.name().to_ascii_lowercase())
            }
            Action::Suspend(name, true) => write!(f, "\\! trickle alter {name} --suspend"),
            Action::Suspend(name, false) => write!(f, "\\! trickle alter {name} --resume"),
            Action::Refresh { name, full } => {
                let full = if *full { " --full" } else { "" };
                write!(f, "\\! trickle refresh {}{full}", name.unwrap_or("--all"))
            }
            Action::Kill => write!(f, "-- the writer's session is ended"),
            Action::Reconnect => write!(f, "-- another refresher"),
        }
    }
}

fn pick(c: &mut Choice, from: &[&'static str]) -> &'static str {
    c.pick(from).copied().unwrap_or_default()
}

fn filled(c: &mut Choice, template: &str) -> String {
    let (table, column) = (pick(c, &TABLES), pick(c, &COLUMNS));
    let (n, m) = (c.below(60).to_string(), c.below(20).to_string());
    let text = template.replace("$t", table).replace("$c", column).replace("$s", pick(c, &NAMES));
    text.replace("$n", &n).replace("$m", &m)
}

fn mode(c: &mut Choice) -> RefreshMode {
    *c.pick(&[RefreshMode::Auto, RefreshMode::Auto, RefreshMode::Immediate, RefreshMode::Full]).unwrap()
}

fn query(c: &mut Choice) -> String {
    if c.one_in(4) { pick(c, &ABOVE).replace('$', pick(c, &NAMES)) } else { pick(c, &QUERIES).to_owned() }
}

/// The actions of a seed.
fn history(seed: u64) -> Vec<Action> {
    let mut c = Choice::seeded(seed);
    let c = &mut c;
    let mut all = Vec::new();
    for name in NAMES.iter().take(1 + c.below(3)) {
        all.push(Action::Create { name, query: query(c), mode: mode(c), replace: false });
    }
    while all.len() < LENGTH {
        let name = pick(c, &NAMES);
        all.push(match c.below(24) {
            0..9 => Action::Write(chosen(c, &WRITES)),
            9..14 => Action::Admin(chosen(c, &ALTERS)),
            14..16 => Action::Write(chosen(c, &SESSIONS)),
            16 => Action::Admin(chosen(c, &OF_STREAM_TABLES)),
            17 => Action::Create { name, query: query(c), mode: mode(c), replace: c.one_in(2) },
            18 if c.one_in(2) => Action::Mode(name, mode(c)),
            18 => Action::Suspend(name, c.one_in(2)),
            19 if c.one_in(3) => Action::Drop(name),
            19 if c.one_in(2) => Action::Kill,
            19 => Action::Reconnect,
            20 => Action::Refresh { name: Some(name), full: c.one_in(3) },
            _ => Action::Refresh { name: None, full: c.one_in(8) },
        });
    }
    all.push(Action::Write("COMMIT".to_owned()));
    all.push(Action::Refresh { name: None, full: false });
    all.push(Action::Write("UPDATE a SET v = v + 1 WHERE id % 3 = 0".to_owned()));
    all.push(Action::Refresh { name: None, full: false });
    all
}

fn chosen(c: &mut Choice, from: &[&'static str]) -> String {
    let template = pick(c, from);
    filled(c, template)
}

/// How many results were compared, and how many refreshes failed with a reason. A run in which little is compared shows nothing.
static COMPARED: Tally = Tally::new();
static EXCUSED: Tally = Tally::new();

struct Tally(AtomicU64);

impl Tally {
    const fn new() -> Tally {
        Tally(AtomicU64::new(0))
    }
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Waiting for a lock ends soon: one thread plays all sessions.
const SHORT: &str = "SET lock_timeout = '150ms'";

struct Play<'d> {
    db: &'d Db,
    t: Driver,
    writer: Session,
    admin: Session,
}

impl Play<'_> {
    async fn begin(db: &Db) -> Play<'_> {
        let admin = db.session().await;
        run(&admin, GONE).await;
        let taken = "DROP EXTENSION IF EXISTS pg_trickle CASCADE; DROP SCHEMA IF EXISTS extensions, pgtrickle_changes, pgtrickle CASCADE";
        run(&admin, taken).await;
        run(&admin, WORLD).await;
        run(&admin, SHORT).await;
        let t = connected(db).await;
        let writer = writer(db).await;
        Play { db, t, writer, admin }
    }

    /// Does one thing; what is wrong then.
    async fn act(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Write(sql) => blamed(self.writer.client().batch_execute(sql).await, sql),
            Action::Admin(sql) => blamed(self.admin.client().batch_execute(sql).await, sql),
            Action::Create { name: what, query, mode, replace } => {
                let if_exists = if *replace { IfExists::Replace } else { IfExists::Fail };
                let new = NewStreamTable {
                    mode: Some(*mode),
                    if_exists,
                    ..NewStreamTable::new(name(what), query.as_str())
                };
                self.t.create(&new).await.map(drop).or_else(|e| excused(&e))
            }
            Action::Drop(what) => self.t.drop(&name(what), true).await.map(drop).or_else(|e| excused(&e)),
            Action::Mode(what, mode) => {
                let wanted = Alteration { mode: Some(*mode), ..Alteration::default() };
                self.t.alter(&name(what), &wanted).await.map(drop).or_else(|e| excused(&e))
            }
            Action::Suspend(what, suspended) => {
                let wanted = Alteration { suspended: Some(*suspended), ..Alteration::default() };
                self.t.alter(&name(what), &wanted).await.map(drop).or_else(|e| excused(&e))
            }
            Action::Refresh { name: what, full } => self.refreshed(*what, *full).await,
            Action::Kill => {
                let pid: i32 = self
                    .writer
                    .client()
                    .query_one("SELECT pg_backend_pid()", &[])
                    .await
                    .map_or(0, |r| r.get(0));
                let _ = self.admin.client().query("SELECT pg_terminate_backend($1, 10000)", &[&pid]).await;
                self.writer = writer(self.db).await;
                Ok(())
            }
            Action::Reconnect => {
                self.t = connected(self.db).await;
                Ok(())
            }
        }
    }

    /// Refreshes one or all, each by itself, and compares each with its query.
    async fn refreshed(&mut self, only: Option<&str>, full: bool) -> Result<(), String> {
        let registry = self.t.registry().await.map_err(|e| e.to_string())?;
        let wanted =
            |e: &&trickle_client::registry::Entry| e.exists && only.is_none_or(|o| *e.relation.name == *o);
        let entries: Vec<_> = registry.entries().filter(wanted).cloned().collect();
        for e in entries {
            let full_name = trickle_client::Name {
                schema: Some(e.relation.schema.to_string()),
                name: e.relation.name.to_string(),
            };
            let shown = full_name.to_string();
            let options = RefreshOptions { full, ..RefreshOptions::default() };
            if let Err(error) = self.t.refresh(std::slice::from_ref(&full_name), &options).await {
                self.may_fail(&shown, &e.query, &error).await?;
                continue;
            }
            let Ok(e) = self.t.find(&full_name).await else { continue };
            match self.t.check(&e, 5).await {
                Ok(checked) if checked.different == 0 => COMPARED.add(1),
                Ok(checked) => return Err(format!("{shown} is not its query ({}): {checked:?}", e.query)),
                Err(error) => self.may_fail(&shown, &e.query, &error).await?,
            }
        }
        Ok(())
    }

    /// A refresh may fail where somebody is in its way, where the query fails too, or where that means nothing any more; then it says so.
    async fn may_fail(&mut self, shown: &str, query: &str, e: &Error) -> Result<(), String> {
        EXCUSED.add(1);
        if e.is_busy() || e.is_transient() || ["55P03", "57014"].contains(&e.sqlstate().unwrap_or_default()) {
            return Ok(());
        }
        let fails =
            self.admin.client().simple_query(&format!("SELECT count(*) FROM ({query}) q")).await.is_err();
        if fails || e.message().contains("cannot be kept any more") {
            return Ok(());
        }
        Err(format!("{shown} ({query}) fails: {e:?}"))
    }

    /// Takes all away; what is left then.
    async fn end(mut self) -> Result<(), String> {
        self.act(&Action::Kill).await?;
        run(&self.admin, "RESET lock_timeout").await;
        let registry = self.t.registry().await.map_err(|e| e.to_string())?;
        for e in registry.entries() {
            let shown = trickle_client::registry::shown(e);
            if let Err(error) = self.t.drop(&name(&shown), true).await
                && self.t.find(&name(&shown)).await.is_ok()
            {
                return Err(format!("{shown} cannot be dropped: {error:?}"));
            }
        }
        let left = "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'pgtrickle_changes'::regnamespace) \
             + (SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'trickle%') \
             + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'pgtrickle_changes'::regnamespace)";
        match count(&self.admin, left).await {
            0 => Ok(()),
            n => Err(format!("{n} objects are left")),
        }
    }
}

async fn connected(db: &Db) -> Driver {
    let settings = Settings {
        force: Some(Force::Incremental),
        patience: trickle_client::locks::Patience {
            lock_timeout: std::time::Duration::from_millis(100),
            attempts: 2,
            pause: std::time::Duration::from_millis(10),
        },
        lock_timeout_ms: 150,
        attempts: 2,
        ..Settings::default()
    };
    let t = open_with(db, settings).await;
    run(t.connection(), SHORT).await;
    t
}

async fn writer(db: &Db) -> Session {
    let s = db.session().await;
    run(&s, SHORT).await;
    s
}

/// A statement may fail for reasons of its own: not in trickle's triggers, but for what the query of an IMMEDIATE stream table raises, and where
/// others wrote what it reads.
fn blamed(done: Result<(), tokio_postgres::Error>, sql: &str) -> Result<(), String> {
    let Err(e) = done else { return Ok(()) };
    let Some(db) = e.as_db_error() else { return Err(format!("{sql}: {e:?}")) };
    let within = db.where_().unwrap_or_default();
    let (code, ours) = (db.code().code(), within.contains("pgtrickle") || db.message().contains("pgtrickle"));
    match ours && !code.starts_with("22") && !["40001", "40P01", "55P03", "57014"].contains(&code) {
        true => Err(format!("a writer fails: {sql}: {db:?}")),
        false => Ok(()),
    }
}

/// A command may be refused with a reason, and never by an error inside.
fn excused(e: &Error) -> Result<(), String> {
    let inside = e.message().contains("internal") || e.sqlstate() == Some("XX000") || e.is_stale();
    if inside { Err(format!("{e:?}")) } else { Ok(()) }
}

/// The first fault of a history.
async fn wrong(db: &Db, actions: &[Action]) -> Option<String> {
    let played = AssertUnwindSafe(async {
        let mut play = Play::begin(db).await;
        for action in actions {
            play.act(action).await.map_err(|e| format!("{action}\n    {e}"))?;
        }
        play.end().await
    });
    match played.catch_unwind().await {
        Ok(Ok(())) => None,
        Ok(Err(wrong)) => Some(wrong),
        Err(panic) => Some(format!("panic: {:?}", panic.downcast_ref::<String>())),
    }
}

/// How often a history is tried without one of its actions.
const TRIES: usize = 120;

/// Leaves out what it does not take to go wrong.
async fn shorter(db: &Db, mut actions: Vec<Action>, mut why: String) -> (Vec<Action>, String) {
    let mut tries = 0;
    let mut i = actions.len();
    while i > 0 && tries < TRIES {
        i -= 1;
        let mut fewer = actions.clone();
        fewer.remove(i);
        tries += 1;
        if let Some(w) = wrong(db, &fewer).await {
            (actions, why) = (fewer, w);
        }
    }
    (actions, why)
}

#[test]
fn random_histories_end_right_and_leave_nothing() {
    let seeds = Seeds { setting: "TRICKLE_HISTORIES", short: 8 };
    each_server(async |db| {
        let from: u64 =
            std::env::var("TRICKLE_HISTORIES_FROM").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
        let all = seeds.one_in(1).into_iter().map(|s| if seeds.is_long() { s + from } else { s });
        let (mut failed, mut played) = (Vec::new(), 0);
        for seed in FAILED.iter().copied().chain(all) {
            played += 1;
            let actions = history(seed);
            let Some(why) = wrong(db, &actions).await else { continue };
            let (actions, why) = shorter(db, actions, why).await;
            let script: Vec<String> = actions.iter().map(Action::to_string).collect();
            let told = format!(
                "TRICKLE_SEED={seed} on PostgreSQL {}:\n{}\n    {why}",
                db.major(),
                script.join("\n")
            );
            println!("{told}\n");
            failed.push(told);
            if failed.len() >= 5 {
                break;
            }
        }
        let (compared, excused) = (COMPARED.get(), EXCUSED.get());
        println!(
            "PostgreSQL {}: {played} histories, {compared} results compared, {excused} refreshes refused",
            db.major()
        );
        assert!(compared >= played, "{compared} results of {played} histories were compared");
        assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    });
}
