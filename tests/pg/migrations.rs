//! The effect of each kind of DDL on readers of the table: docs/migrations.md has it in a table that is made here
//! (`TRICKLE_BLESS=1` writes it). Catches results that are computed anew for nothing, results that are not where they must be,
//! and writers that a migration breaks.

use crate::objects::compare;
use crate::support::{
    Db, Driver, assert_equal, create, each_server, is_todays, name, newest_server, open, run, try_refresh,
};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use trickle_client::{IfExists, NewStreamTable, RefreshMode, Session};
use trickle_core::refresh::Action;

/// The effect on a stream table that reads what was altered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// It goes on by deltas from what it holds.
    GoesOn,
    /// It is computed once.
    Anew,
    /// It keeps its rows, and its refreshes stop until it is given a query that fits.
    Suspended,
}
use Effect::{Anew, GoesOn, Suspended};

impl Effect {
    fn told(self) -> &'static str {
        match self {
            GoesOn => "goes on",
            Anew => "computed once",
            Suspended => "suspended",
        }
    }
}

const SOURCES: &str = "
    CREATE TABLE t (id int PRIMARY KEY, v int, w int, note varchar(10));
    CREATE TABLE k (id int PRIMARY KEY, name varchar(10), more int);
    CREATE TABLE p (id int, v int, PRIMARY KEY (id)) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);
    INSERT INTO t SELECT i, i % 5, i, 'n' || i FROM generate_series(1, 60) i;
    INSERT INTO k SELECT i, 'k' || i, i FROM generate_series(0, 4) i;
    INSERT INTO p SELECT i, i FROM generate_series(0, 19) i;
    CREATE VIEW small AS SELECT id, more FROM k WHERE id < 4;
    CREATE FUNCTION twice(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x * 2';
    CREATE SCHEMA away; CREATE INDEX by_w ON t (w); ALTER TABLE t ADD CONSTRAINT w_positive CHECK (w > 0);
    ALTER TABLE t ADD CONSTRAINT w_once UNIQUE (w); CREATE TABLE other (id int PRIMARY KEY, t int REFERENCES t)";

const GONE: &str = "DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP SCHEMA IF EXISTS away, moved CASCADE; \
    DROP PUBLICATION IF EXISTS published";

/// They read `id` and `v` of `t`, `id`, `name` and by a view `more` of `k`, and all of `p`.
const READERS: [(&str, &str); 5] = [
    ("selected", "SELECT id, v FROM t WHERE v <> 3"),
    ("grouped", "SELECT v, count(*) AS n, sum(id) AS s, max(id) AS m FROM t GROUP BY v"),
    ("joined", "SELECT t.id, k.name FROM t JOIN k ON k.id = t.v"),
    ("parted", "SELECT v % 3 AS g, count(*) AS n FROM p GROUP BY v % 3"),
    ("viewed", "SELECT more % 2 AS m, twice(count(*)::int) AS n FROM small GROUP BY more % 2"),
];

/// Statements before and after each: all of their changes are in the results.
const WRITES: [&str; 4] = [
    "UPDATE t SET v = (v + 1) % 5 WHERE id % 7 = 0",
    "DELETE FROM t WHERE id % 20 = 3",
    "UPDATE k SET name = name || 'x' WHERE id = 2",
    "UPDATE p SET v = v + 1 WHERE id % 4 = 0",
];

struct Kind(&'static str, &'static str, Effect);

/// Headings, and below each the kinds of DDL: in words, as SQL, and its effect.
const KINDS: &[(&str, &[Kind])] = &[
    (
        "Columns that the query does not read",
        &[
            Kind("add a column", "ALTER TABLE t ADD extra int", GoesOn),
            Kind(
                "add a column with a constant default",
                "ALTER TABLE t ADD extra int NOT NULL DEFAULT 7",
                GoesOn,
            ),
            Kind(
                "add a column whose default writes the table",
                "ALTER TABLE t ADD extra float8 DEFAULT random()",
                GoesOn,
            ),
            Kind(
                "add a generated column",
                "ALTER TABLE t ADD extra int GENERATED ALWAYS AS (w + 1) STORED",
                GoesOn,
            ),
            Kind("drop a column", "ALTER TABLE t DROP w", GoesOn),
            Kind("rename a column", "ALTER TABLE t RENAME w TO ww", GoesOn),
            Kind("give a column another type", "ALTER TABLE t ALTER w TYPE bigint", GoesOn),
            Kind("make a column longer", "ALTER TABLE t ALTER note TYPE varchar(20)", GoesOn),
            Kind("forbid NULL in a column", "ALTER TABLE t ALTER w SET NOT NULL", GoesOn),
        ],
    ),
    (
        "Columns that the query reads",
        &[
            Kind("give a column a default", "ALTER TABLE t ALTER v SET DEFAULT 0", GoesOn),
            Kind(
                "take a default away",
                "ALTER TABLE t ALTER v SET DEFAULT 0; ALTER TABLE t ALTER v DROP DEFAULT",
                GoesOn,
            ),
            Kind("change how values are sampled", "ALTER TABLE t ALTER v SET STATISTICS 500", GoesOn),
            Kind(
                "change what the planner believes of a column",
                "ALTER TABLE t ALTER v SET (n_distinct = 5)",
                GoesOn,
            ),
            Kind("change how values are stored", "ALTER TABLE k ALTER name SET STORAGE EXTERNAL", GoesOn),
            Kind("describe a column", "COMMENT ON COLUMN t.v IS 'how many'", GoesOn),
            Kind("forbid NULL in a column", "ALTER TABLE t ALTER v SET NOT NULL", Anew),
            Kind("allow NULL in a column", "ALTER TABLE k ALTER name DROP NOT NULL", GoesOn),
            Kind("make a column longer", "ALTER TABLE k ALTER name TYPE varchar(20)", Anew),
            Kind("give a column another type", "ALTER TABLE t ALTER v TYPE bigint", Anew),
            Kind("compute a column anew", "ALTER TABLE t ALTER v TYPE int USING v * 2 % 5", Anew),
            Kind("rename a column", "ALTER TABLE t RENAME v TO vv", Suspended),
            Kind("drop a column", "ALTER TABLE t DROP v CASCADE", Suspended),
        ],
    ),
    (
        "Constraints and keys",
        &[
            Kind("add a CHECK constraint", "ALTER TABLE t ADD CHECK (w < 1000000)", GoesOn),
            Kind(
                "add one in two steps",
                "ALTER TABLE t ADD CONSTRAINT c CHECK (w < 1000000) NOT VALID; ALTER TABLE t VALIDATE CONSTRAINT c",
                GoesOn,
            ),
            Kind("drop a CHECK constraint", "ALTER TABLE t DROP CONSTRAINT w_positive", GoesOn),
            Kind(
                "add a foreign key from the table",
                "ALTER TABLE t ADD FOREIGN KEY (v) REFERENCES k NOT VALID",
                GoesOn,
            ),
            Kind(
                "add a foreign key to the table",
                "ALTER TABLE other ADD CONSTRAINT again FOREIGN KEY (t) REFERENCES t",
                GoesOn,
            ),
            Kind("drop a foreign key", "ALTER TABLE other DROP CONSTRAINT other_t_fkey", GoesOn),
            Kind("add a unique constraint", "ALTER TABLE t ADD UNIQUE (id, w)", GoesOn),
            Kind("drop a unique constraint", "ALTER TABLE t DROP CONSTRAINT w_once", GoesOn),
            Kind("drop the primary key", "ALTER TABLE t DROP CONSTRAINT t_pkey CASCADE", Anew),
        ],
    ),
    (
        "Indexes and storage",
        &[
            Kind("create an index", "CREATE INDEX ON t (v, w)", GoesOn),
            Kind("create a unique index", "CREATE UNIQUE INDEX ON t (w, id)", GoesOn),
            Kind("drop an index", "DROP INDEX by_w", GoesOn),
            Kind("rebuild indexes", "REINDEX TABLE t", GoesOn),
            Kind("VACUUM", "VACUUM t", GoesOn),
            Kind("VACUUM FULL", "VACUUM FULL t", GoesOn),
            Kind("CLUSTER", "CLUSTER t USING t_pkey", GoesOn),
            Kind("ANALYZE", "ANALYZE t", GoesOn),
            Kind("change storage parameters", "ALTER TABLE t SET (fillfactor = 70)", GoesOn),
            Kind(
                "make the table unlogged, and logged again",
                "ALTER TABLE other DROP CONSTRAINT other_t_fkey; ALTER TABLE t SET UNLOGGED; ALTER TABLE t SET LOGGED",
                GoesOn,
            ),
            Kind("keep more statistics", "CREATE STATISTICS more (dependencies) ON v, w FROM t", GoesOn),
            Kind("choose a replica identity", "ALTER TABLE t REPLICA IDENTITY FULL", GoesOn),
            Kind("publish the table", "CREATE PUBLICATION published FOR TABLE t", GoesOn),
        ],
    ),
    (
        "The table, and what stands over it",
        &[
            Kind("describe the table", "COMMENT ON TABLE t IS 'all of it'", GoesOn),
            Kind("grant rights", "GRANT SELECT ON t TO PUBLIC", GoesOn),
            Kind(
                "add a trigger of your own",
                "CREATE TRIGGER own BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                GoesOn,
            ),
            Kind("create a view over the table", "CREATE VIEW over AS SELECT * FROM t", GoesOn),
            Kind("empty the table", "TRUNCATE t CASCADE", Anew),
            Kind(
                "switch its triggers off and on",
                "ALTER TABLE t DISABLE TRIGGER ALL; ALTER TABLE t ENABLE TRIGGER ALL",
                Anew,
            ),
            Kind(
                "give the table a child",
                "CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (1000, 1)",
                Anew,
            ),
            Kind("rename the table", "ALTER TABLE t RENAME TO tt", Suspended),
            Kind("move the table to another schema", "ALTER TABLE t SET SCHEMA away", Suspended),
            Kind(
                "rename its schema",
                "ALTER TABLE t SET SCHEMA away; ALTER SCHEMA away RENAME TO moved",
                Suspended,
            ),
            Kind("drop the table", "DROP TABLE t CASCADE", Suspended),
            Kind(
                "replace a view by one that means the same",
                "CREATE OR REPLACE VIEW small AS SELECT id, more FROM k WHERE id < 4",
                GoesOn,
            ),
            Kind(
                "replace a view",
                "CREATE OR REPLACE VIEW small AS SELECT id, more FROM k WHERE id < 3",
                Anew,
            ),
            Kind(
                "replace a function",
                "CREATE OR REPLACE FUNCTION twice(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x + x + 1'",
                Anew,
            ),
        ],
    ),
    (
        "Partitions",
        &[
            Kind(
                "create a partition",
                "CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (20) TO (30); INSERT INTO p3 VALUES (21, 1)",
                Anew,
            ),
            Kind(
                "attach a table",
                "CREATE TABLE p3 (id int NOT NULL, v int); INSERT INTO p3 VALUES (21, 1); ALTER TABLE p ATTACH PARTITION p3 FOR VALUES FROM (20) TO (30)",
                Anew,
            ),
            Kind("detach a partition", "ALTER TABLE p DETACH PARTITION p2", Anew),
            Kind("drop a partition", "DROP TABLE p2", Anew),
            Kind("empty a partition", "TRUNCATE p2", Anew),
        ],
    ),
];

async fn made(db: &Db, s: &Session) -> Driver {
    run(s, GONE).await;
    let mut t = open(db).await;
    run(s, SOURCES).await;
    for (what, query) in READERS {
        create(&mut t, what, query).await;
    }
    t
}

/// The effect of a refresh on each reader: the gravest counts.
async fn effect(t: &mut Driver, kind: &Kind) -> Effect {
    let mut gravest = GoesOn;
    for (what, _) in READERS {
        let effect = match try_refresh(t, what).await {
            Err(e) => {
                assert!(e.message().contains("cannot be kept any more"), "{}: {what}: {e:?}", kind.1);
                Suspended
            }
            Ok(done) => {
                let mut actions = done.iter().map(|d| d.report.action);
                let anew = actions.any(|a| matches!(a, Action::Full | Action::Reinitialize));
                if anew { Anew } else { GoesOn }
            }
        };
        if effect != Suspended {
            assert_equal(t, what).await;
        }
        gravest = gravest.max(effect);
    }
    gravest
}

/// Writers go on whatever the table has become: each says by itself whether it is still one of its columns that it names.
async fn write(s: &Session) {
    for text in WRITES {
        if let Err(e) = s.client().batch_execute(text).await {
            let own = e.as_db_error().unwrap().code().code().to_owned();
            assert!(
                ["42P01", "42703"].contains(&own.as_str()) && e.as_db_error().unwrap().where_().is_none(),
                "{text}: {e:?}"
            );
        }
    }
}

#[test]
fn each_kind_of_ddl_has_the_effect_that_is_promised() {
    let wrong = Mutex::new(Vec::new());
    each_server(async |db| {
        let s = db.session().await;
        let all = KINDS.iter().flat_map(|(_, kinds)| *kinds).enumerate();
        for (_, kind) in all.filter(|(nth, _)| is_todays(*nth, 4)) {
            let mut t = made(db, &s).await;
            write(&s).await;
            for text in kind.1.split("; ") {
                run(&s, text).await;
            }
            write(&s).await;
            let found = effect(&mut t, kind).await;
            write(&s).await;
            if found != Suspended {
                assert_eq!(effect(&mut t, kind).await, GoesOn, "{}: the second refresh", kind.1);
            }
            if found != kind.2 {
                let mut wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner);
                wrong.push(format!("PostgreSQL {}: {}: {found:?}", db.major(), kind.1));
            }
            for (what, _) in READERS {
                t.drop(&name(what), true).await.unwrap();
            }
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let mut table = String::new();
    for (heading, kinds) in KINDS {
        writeln!(table, "\n### {heading}\n\n| change | as SQL | the stream table |\n|---|---|---|").unwrap();
        for Kind(what, sql, effect) in *kinds {
            writeln!(table, "| {what} | `{sql}` | {} |", effect.told()).unwrap();
        }
    }
    compare("migrations.md", "kinds of DDL", &table);
}

/// Writers of an IMMEDIATE stream table that has another name or schema go on, and the next refresh follows.
#[test]
fn writers_go_on_under_an_immediate_table_that_is_renamed() {
    each_server(async |db| {
        for (change, now) in [
            ("ALTER TABLE kept RENAME TO called", "called"),
            ("ALTER TABLE kept SET SCHEMA away", "away.kept"),
        ] {
            let s = db.session().await;
            run(&s, GONE).await;
            let mut t = open(db).await;
            run(&s, SOURCES).await;
            let kept = NewStreamTable {
                mode: Some(RefreshMode::Immediate),
                ..NewStreamTable::new(name("kept"), "SELECT v, count(*) AS n FROM t GROUP BY v")
            };
            t.create(&kept).await.unwrap();
            create(&mut t, "above", "SELECT sum(n) AS s FROM kept").await;
            run(&s, change).await;
            run(&s, "BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO t VALUES (500, 1); UPDATE t SET v = 2 WHERE v = 1; COMMIT").await;
            run(&s, "DELETE FROM t WHERE id = 5").await;
            assert_equal(&mut t, now).await;
            run(&s, "INSERT INTO t VALUES (501, 1)").await;
            assert_equal(&mut t, now).await;
            t.drop(&name("above"), true).await.unwrap();
            t.drop(&name(now), true).await.unwrap();
        }
    });
}

/// A reader of a stream table whose source was altered is made as if nothing had been.
#[test]
fn stream_tables_over_one_whose_source_changed_are_made() {
    newest_server(async |db| {
        let s = db.session().await;
        for change in [
            "ALTER TABLE t ADD extra int",
            "ALTER TABLE t ALTER v TYPE bigint",
            "ALTER TABLE t ALTER w TYPE bigint",
        ] {
            run(&s, GONE).await;
            let mut t = open(db).await;
            run(&s, SOURCES).await;
            create(&mut t, "below", "SELECT * FROM t WHERE id > 5").await;
            create(&mut t, "there", "SELECT v, count(*) AS n FROM below GROUP BY v").await;
            let alter = async |query: &str, mode| NewStreamTable {
                mode,
                if_exists: IfExists::Replace,
                ..NewStreamTable::new(name("there"), query)
            };
            run(&s, change).await;
            create(&mut t, "above", "SELECT v, sum(id) AS s FROM below GROUP BY v").await;
            assert_equal(&mut t, "above").await;
            run(&s, "ALTER TABLE t ADD once_more int").await;
            t.create(&alter("SELECT v, min(id) AS n FROM below GROUP BY v", None).await).await.unwrap();
            assert_equal(&mut t, "there").await;
            run(&s, "ALTER TABLE t ADD and_again int").await;
            t.create(&alter("SELECT v, min(id) AS n FROM below GROUP BY v", Some(RefreshMode::Full)).await)
                .await
                .unwrap();
            assert_equal(&mut t, "there").await;
            for what in ["there", "above", "below"] {
                t.drop(&name(what), true).await.unwrap();
            }
        }
    });
}

/// One reader, and no other by which the capture of its table would be made anew: a key that goes, of which it reads nothing, and
/// children that are altered by themselves.
#[test]
fn keys_and_children_that_change_are_noticed_by_one_reader() {
    const PARTS: &str = "CREATE TABLE p (id int, v int, w int, g int GENERATED ALWAYS AS (v * 2) STORED) PARTITION BY RANGE (id); \
        CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10); CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20); \
        INSERT INTO p SELECT i, i FROM generate_series(0, 19) i";
    let all = [
        (
            15,
            "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 9) i",
            "SELECT sum(v) AS s FROM t",
            "ALTER TABLE t DROP CONSTRAINT t_pkey; INSERT INTO t SELECT * FROM t",
            "UPDATE t SET v = v + 1",
        ),
        (
            15,
            "CREATE TABLE t (u int NOT NULL UNIQUE, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 9) i",
            "SELECT count(*) AS n, sum(v) AS s FROM t",
            "ALTER TABLE t ALTER u DROP NOT NULL; INSERT INTO t VALUES (NULL, 5), (NULL, 6)",
            "UPDATE t SET v = v + 1",
        ),
        (
            15,
            PARTS,
            "SELECT v, count(*) AS n FROM p GROUP BY v",
            "ALTER TABLE p DETACH PARTITION p2; ALTER TABLE p2 DROP g; ALTER TABLE p2 ALTER v TYPE int USING v + 100; \
             ALTER TABLE p2 ADD g int GENERATED ALWAYS AS (v * 2) STORED; ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20)",
            "UPDATE p SET v = v + 1 WHERE id % 3 = 0",
        ),
        (
            15,
            PARTS,
            "SELECT v, count(*) AS n FROM p GROUP BY v",
            "ALTER TABLE p DROP w; ALTER TABLE p DETACH PARTITION p1; DELETE FROM p1 WHERE id = 3; \
             ALTER TABLE p ATTACH PARTITION p1 FOR VALUES FROM (0) TO (10)",
            "UPDATE p SET v = v + 1 WHERE id % 3 = 0",
        ),
        (
            17,
            PARTS,
            "SELECT g, count(*) AS n FROM p GROUP BY g",
            "ALTER TABLE p2 ALTER g SET EXPRESSION AS (v * 3)",
            "UPDATE p SET v = v + 1 WHERE id % 3 = 0",
        ),
    ];
    each_server(async |db| {
        let s = db.session().await;
        for (since, tables, query, change, write) in all {
            if db.major() < since {
                continue;
            }
            run(&s, GONE).await;
            let mut t = open(db).await;
            run(&s, tables).await;
            create(&mut t, "only", query).await;
            run(&s, write).await;
            run(&s, change).await;
            run(&s, write).await;
            assert_equal(&mut t, "only").await;
            run(&s, write).await;
            assert_equal(&mut t, "only").await;
            t.drop(&name("only"), true).await.unwrap();
        }
    });
}
