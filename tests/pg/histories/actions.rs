//! The actions of histories, and the choice of actions by a seed.

use std::fmt;
use trickle_client::RefreshMode;
use trickle_core::testing::Choice;

/// Number of actions in a history.
const LENGTH: usize = 30;

pub(super) const WORLD: &str = "
    CREATE TABLE a (id int PRIMARY KEY, k int, v int, w text);
    CREATE TABLE b (id int PRIMARY KEY, k int NOT NULL, v int, w text);
    CREATE TABLE c (k int, v int);
    CREATE TABLE p (id int, k int, v int) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (100) TO (200);
    CREATE VIEW seen AS SELECT k, count(*) AS n FROM b GROUP BY k;
    CREATE SCHEMA away; GRANT ALL ON SCHEMA public, away TO PUBLIC;
    CREATE FUNCTION twice(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN i * 2;
    CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    INSERT INTO a SELECT i, i % 5, i, 'w' || i % 3 FROM generate_series(1, 30) i;
    INSERT INTO b SELECT i, i % 4, i, 'w' || i % 3 FROM generate_series(1, 20) i;
    INSERT INTO c SELECT i % 3, i % 7 FROM generate_series(1, 15) i;
    INSERT INTO p SELECT i * 5, i % 5, i FROM generate_series(0, 39) i";

const QUERIES: [&str; 16] = [
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
    "SELECT id, twice(v) AS d FROM b",
    "SELECT w, string_agg(v::text, ',' ORDER BY v) AS l FROM a GROUP BY w",
];

/// Queries over another stream table. `$` stands for its name.
const ABOVE: [&str; 3] = [
    "SELECT count(*) AS n FROM $",
    "SELECT DISTINCT x.* FROM $ x",
    "SELECT x.*, y.k AS also FROM $ x JOIN c y ON y.v = 1",
];

const TABLES: [&str; 4] = ["a", "b", "c", "p"];
const COLUMNS: [&str; 5] = ["id", "k", "v", "w", "x"];
const NAMES: [&str; 4] = ["s1", "s2", "s3", "s4"];

/// Statements that write. `$t` stands for a table, `$c` for a column, `$n` and `$m` for two numbers.
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

/// Statements that alter sources. Many of them fail at some points of a history, and then change nothing.
const ALTERS: [&str; 61] = [
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
    "ALTER TABLE $t FORCE ROW LEVEL SECURITY",
    "ALTER TABLE $t DISABLE ROW LEVEL SECURITY; ALTER TABLE $t NO FORCE ROW LEVEL SECURITY",
    "CREATE POLICY some ON $t USING (v % 2 = 0 OR v IS NULL)",
    "DROP POLICY some ON $t",
    "ALTER TABLE $t OWNER TO h_app",
    "ALTER TABLE $t OWNER TO postgres",
    "GRANT ALL ON $t TO h_app",
    "REVOKE ALL ON $t FROM h_app",
    "CREATE OR REPLACE FUNCTION twice(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN i * 2 + $m",
    "REVOKE ALL ON SCHEMA away FROM PUBLIC",
    "GRANT ALL ON SCHEMA away TO PUBLIC",
    "CREATE TABLE p4 PARTITION OF p FOR VALUES FROM (1300) TO (2000) PARTITION BY RANGE (id)",
    "CREATE TABLE p5 PARTITION OF p DEFAULT",
    "ALTER TABLE p DETACH PARTITION p1 CONCURRENTLY",
];

/// Statements about the writer's session and its transactions.
const SESSIONS: [&str; 23] = [
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
    "RESET ALL",
    "SET ROLE h_app",
    "RESET ROLE",
    "PREPARE TRANSACTION 'h1'",
    "PREPARE TRANSACTION 'h2'",
    "COMMIT PREPARED 'h1'",
    "COMMIT PREPARED 'h2'",
    "ROLLBACK PREPARED 'h1'",
    "SET TimeZone = 'Asia/Kolkata'; SET row_security = off; SET client_min_messages = debug1",
];

/// Statements of the owner of stream tables.
const OF_STREAM_TABLES: [&str; 11] = [
    "CREATE INDEX ON $s ((1))",
    "GRANT SELECT ON $s TO PUBLIC",
    "ALTER TABLE $s RENAME TO $s_moved",
    "ALTER TABLE $s_moved RENAME TO $s",
    "DROP TABLE $s CASCADE",
    "COMMENT ON TABLE $s IS 'mine'",
    "ALTER TABLE $s OWNER TO h_app",
    "ALTER TABLE $s OWNER TO postgres",
    "ALTER TABLE $s SET SCHEMA away",
    "CREATE TRIGGER look AFTER INSERT OR UPDATE OR DELETE ON $s FOR EACH ROW EXECUTE FUNCTION nothing()",
    "CREATE TABLE under_$s (r int REFERENCES $s)",
];

/// An action that another connection does during a refresh of all stream tables.
#[derive(Clone, Debug)]
pub(super) enum Beside {
    /// Another refresh of all stream tables.
    Refresh,
    /// A statement that alters a source.
    Alter(String),
    /// The termination of the refreshing session.
    Kill,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A statement of one of the writers.
    Write(usize, String),
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
    /// A refresh of one stream table or of all. With `full`, the refresh is a full refresh.
    Refresh {
        name: Option<&'static str>,
        full: bool,
    },
    /// A refresh of all stream tables, and another action that begins the given number of milliseconds later.
    Race(u64, Beside),
    /// The session of the writer with this number is terminated.
    Kill(usize),
    /// The refreshing session is replaced by a new connection.
    Reconnect,
    /// The server dies and is started again.
    Crash,
    /// The database is dumped and restored under another name. Later actions use the restored database.
    Dump,
    /// A move from the program to the extension, or back.
    Move,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Write(0, sql) => write!(f, "{sql};"),
            Action::Write(n, sql) => write!(f, "/* writer {n} */ {sql};"),
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
            Action::Race(ms, Beside::Refresh) => {
                write!(f, "\\! trickle refresh --all & sleep 0.{ms:03}; trickle refresh --all; wait")
            }
            Action::Race(ms, Beside::Alter(sql)) => {
                write!(f, "\\! trickle refresh --all & sleep 0.{ms:03}; psql -c \"{sql}\"; wait")
            }
            Action::Race(ms, Beside::Kill) => {
                write!(f, "\\! trickle refresh --all & sleep 0.{ms:03}; kill $!")
            }
            Action::Kill(n) => write!(f, "-- the session of writer {n} is ended"),
            Action::Reconnect => write!(f, "-- another refresher"),
            Action::Crash => write!(f, "-- the server dies and comes up again"),
            Action::Dump => write!(f, "-- the database is dumped and restored under another name"),
            Action::Move => write!(f, "-- from the program to the extension, or back"),
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

fn chosen(c: &mut Choice, from: &[&'static str]) -> String {
    let template = pick(c, from);
    filled(c, template)
}

/// Chooses a rare action. Most rare actions are slow.
fn rare(c: &mut Choice) -> Action {
    match c.below(12) {
        0..2 => Action::Kill(c.below(2)),
        2 => Action::Reconnect,
        3 => Action::Crash,
        4 => Action::Dump,
        5 => Action::Move,
        6..8 => Action::Race(c.below(40) as u64, Beside::Kill),
        8 => Action::Race(c.below(10) as u64, Beside::Refresh),
        _ => Action::Race(c.below(20) as u64, Beside::Alter(chosen(c, &ALTERS))),
    }
}

/// A history, and the settings for all of its actions.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// Whether the cost model chooses between a delta and a recompute.
    pub(super) is_free: bool,
    /// Whether the segments of buffers are small.
    pub(super) short: bool,
    /// Whether a crash of the server empties the buffers.
    pub(super) unlogged: bool,
    /// Whether capture is by triggers for rows.
    pub(super) by_row: bool,
    pub(super) actions: Vec<Action>,
}

/// Makes the history of a seed.
pub(super) fn history(seed: u64) -> History {
    let mut c = Choice::seeded(seed);
    let c = &mut c;
    let (is_free, short, unlogged, by_row) = (c.one_in(4), c.one_in(3), c.one_in(5), c.one_in(5));
    let mut all = Vec::new();
    for name in NAMES.iter().take(1 + c.below(3)) {
        all.push(Action::Create { name, query: query(c), mode: mode(c), replace: false });
    }
    while all.len() < LENGTH {
        let (name, writer) = (pick(c, &NAMES), usize::from(c.one_in(3)));
        all.push(match c.below(24) {
            0..9 => Action::Write(writer, chosen(c, &WRITES)),
            9..14 => Action::Admin(chosen(c, &ALTERS)),
            14..16 => Action::Write(writer, chosen(c, &SESSIONS)),
            16 => Action::Admin(chosen(c, &OF_STREAM_TABLES)),
            17 => Action::Create { name, query: query(c), mode: mode(c), replace: c.one_in(2) },
            18 if c.one_in(2) => Action::Mode(name, mode(c)),
            18 => Action::Suspend(name, c.one_in(2)),
            19 if c.one_in(4) => Action::Drop(name),
            19 => rare(c),
            20 => Action::Refresh { name: Some(name), full: c.one_in(3) },
            _ => Action::Refresh { name: None, full: c.one_in(8) },
        });
    }
    all.push(Action::Write(0, "COMMIT".to_owned()));
    all.push(Action::Write(1, "COMMIT".to_owned()));
    all.push(Action::Refresh { name: None, full: false });
    all.push(Action::Write(0, "UPDATE a SET v = v + 1 WHERE id % 3 = 0".to_owned()));
    all.push(Action::Refresh { name: None, full: false });
    History { is_free, short, unlogged, by_row, actions: all }
}
