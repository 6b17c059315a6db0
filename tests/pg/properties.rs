//! More tests like those in `guarantees`. Some declarations do not guarantee a property that a plan could
//! derive from them. docs/properties.md lists all declarations (`TRICKLE_BLESS=1` writes the list). The tests
//! catch plans that rely on properties which the server does not enforce.

use crate::objects::compare;
use crate::support::{
    Db, Driver, assert_equal, count, create, each_server, is_todays, mode, name, newest_server, open_with,
    run, try_refresh,
};
use std::path::PathBuf;
use trickle_client::catalog::properties::{PROPERTIES, table};
use trickle_client::{NewStreamTable, RefreshMode, Session, Settings};
use trickle_core::cost::Force;

async fn incremental(db: &Db) -> (Driver, Session) {
    let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
    (open_with(db, settings).await, db.session().await)
}

async fn right(t: &mut Driver, tables: &[(&str, &str)], change: &str) {
    for (table, _) in tables {
        try_refresh(t, table).await.unwrap_or_else(|e| panic!("{table} after {change}: {e:?}"));
        assert_equal(t, table).await;
    }
}

/// Runs `rows`, creates the stream tables, and asserts that they are right after each change.
async fn stay_right(t: &mut Driver, w: &Session, rows: &str, tables: &[(&str, &str)], changes: &[&str]) {
    run(w, rows).await;
    for (table, query) in tables {
        create(t, table, query).await;
    }
    for change in ["SELECT"].iter().chain(changes) {
        run(w, change).await;
        right(t, tables, change).await;
    }
    for (table, _) in tables {
        t.drop(&name(table), true).await.unwrap();
    }
    run(w, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
}

#[test]
fn each_property_has_its_tests_and_its_line_in_the_docs() {
    for p in PROPERTIES {
        for (case, test) in p.without {
            let (module, test) = test.split_once("::").unwrap();
            let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/pg/{module}.rs"));
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(text.contains(&format!("fn {test}()")), "{}, {case}: no test {module}::{test}", p.name);
        }
    }
    compare("properties.md", "properties", &table());
}

const JOINED: [(&str, &str); 4] = [
    ("ids", "SELECT id FROM a"),
    ("pairs", "SELECT b.w, a.v FROM b LEFT JOIN a ON a.id = b.id"),
    ("groups", "SELECT a.id, count(*) AS n, count(v) AS m FROM a GROUP BY a.id"),
    ("none", "SELECT w FROM b WHERE id NOT IN (SELECT v FROM a)"),
];

const OTHER: &str = "CREATE TABLE b (id int, w int); INSERT INTO b VALUES (1, 1), (1, 1), (2, 2), (NULL, 3)";

const CHANGES: [&str; 3] = [
    "UPDATE a SET v = v + 1 WHERE ctid = (SELECT min(ctid) FROM a)",
    "INSERT INTO b VALUES (1, 5), (7, 7); DELETE FROM b WHERE w = 2",
    "DELETE FROM a WHERE ctid = (SELECT min(ctid) FROM a)",
];

/// CREATE UNIQUE INDEX CONCURRENTLY fails over equal rows, and leaves its index behind.
#[test]
fn an_index_that_could_not_be_built_is_no_key() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        run(&w, "CREATE TABLE a (id int NOT NULL, v int); INSERT INTO a VALUES (1, 10), (1, 10), (2, 20)")
            .await;
        let built = w.client().batch_execute("CREATE UNIQUE INDEX CONCURRENTLY once ON a (id)").await;
        assert_eq!(built.unwrap_err().code().unwrap().code(), "23505");
        stay_right(&mut t, &w, OTHER, &JOINED, &CHANGES).await;
    });
}

/// A deferrable key allows equal rows until the end of the transaction. The triggers of an IMMEDIATE stream
/// table see these rows.
#[test]
fn a_key_that_is_checked_late_is_none() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        run(&w, "CREATE TABLE a (id int NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED, v int); INSERT INTO a VALUES (1, 10), (2, 20)").await;
        run(&w, OTHER).await;
        for (table, query) in JOINED {
            let mode = Some(RefreshMode::Immediate);
            t.create(&NewStreamTable { mode, ..NewStreamTable::new(name(table), query) }).await.unwrap();
        }
        run(&w, "BEGIN").await;
        for change in [
            "INSERT INTO a VALUES (1, 10), (1, 11), (2, NULL)",
            "INSERT INTO b VALUES (1, 9)",
            "DELETE FROM a WHERE v = 10",
            "DELETE FROM a WHERE id = 2",
        ] {
            run(&w, change).await;
            for (table, query) in JOINED {
                let different = format!(
                    "SELECT count(*) FROM ((TABLE {table} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL TABLE {table})) d"
                );
                assert_eq!(count(&w, &different).await, 0, "{table} after {change}");
            }
        }
        run(&w, "COMMIT").await;
        right(&mut t, &JOINED, "all").await;
    });
}

#[test]
fn a_temporal_key_is_none() {
    newest_server(async |db| {
        if db.major() < 18 {
            return;
        }
        let (mut t, w) = incremental(db).await;
        let rows = "CREATE TABLE a (id int4range NOT NULL, during daterange NOT NULL, v int, UNIQUE (id, during WITHOUT OVERLAPS)); \
            INSERT INTO a VALUES ('[1,1]', '[2020-01-01,2021-01-01)', 1), ('[1,1]', '[2021-01-01,2022-01-01)', 1), ('[2,2]', '[2020-01-01,2022-01-01)', NULL)";
        let tables = [
            ("ids", "SELECT id FROM a"),
            ("groups", "SELECT id, count(*) AS n, count(v) AS m FROM a GROUP BY id"),
            ("pairs", "SELECT x.id, y.v FROM a x JOIN a y USING (id)"),
        ];
        let changes = [
            "UPDATE a SET v = 5 WHERE lower(during) = '2020-01-01'",
            "INSERT INTO a VALUES ('[1,1]', '[2023-01-01,2024-01-01)', 1)",
            CHANGES[2],
        ];
        stay_right(&mut t, &w, rows, &tables, &changes).await;
    });
}

#[test]
fn views_and_parents_have_no_keys() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        let rows = "CREATE TABLE s (id int PRIMARY KEY, v int NOT NULL); INSERT INTO s VALUES (1, 10), (2, 20); CREATE TABLE n (id int); INSERT INTO n VALUES (1), (3); \
            CREATE VIEW a AS SELECT id, v FROM s UNION ALL SELECT id, NULL FROM s UNION ALL SELECT n.id, s.v FROM n LEFT JOIN s USING (id)";
        let changes =
            ["UPDATE s SET v = v + 1", "INSERT INTO n VALUES (2), (4)", "DELETE FROM s WHERE id = 1"];
        stay_right(&mut t, &w, &format!("{rows}; {OTHER}"), &JOINED, &changes).await;
        let rows = "CREATE TABLE a (id int PRIMARY KEY, v int); CREATE TABLE c () INHERITS (a); INSERT INTO a VALUES (1, 10), (2, 20); \
            INSERT INTO c VALUES (1, 10), (1, 11), (3, NULL)";
        let changes = [
            "UPDATE a SET v = v + 1 WHERE id = 1",
            "DELETE FROM ONLY a WHERE id = 1",
            "INSERT INTO c VALUES (2, 5), (2, 5)",
        ];
        stay_right(&mut t, &w, &format!("{rows}; {OTHER}"), &JOINED, &changes).await;
    });
}

/// The server relies on the declarations of a foreign table. Plans do not rely on them.
#[test]
fn a_foreign_table_declares_and_keeps_nothing() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        let program = |lines: &str| format!("program 'printf \"{lines}\"', format 'csv'");
        let table = format!(
            "CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw; \
             CREATE FOREIGN TABLE a (id int NOT NULL, v int NOT NULL, CHECK (v > 15)) SERVER files OPTIONS ({})",
            program("1,10\\n1,10\\n2,\\n,30\\n")
        );
        run(&w, &table).await;
        run(&w, OTHER).await;
        for snapshots in [true, false] {
            for (table, query) in JOINED {
                t.create(&NewStreamTable { snapshots, ..NewStreamTable::new(name(table), query) })
                    .await
                    .unwrap();
            }
            right(&mut t, &JOINED, "its creation").await;
            for lines in ["1,10\\n2,\\n,30\\n,\\n", "1,11\\n1,11\\n,30\\n"] {
                run(
                    &w,
                    &format!(
                        "ALTER FOREIGN TABLE a OPTIONS (SET {})",
                        program(lines).replace(", format 'csv'", "")
                    ),
                )
                .await;
                right(&mut t, &JOINED, lines).await;
            }
            for (table, _) in JOINED {
                t.drop(&name(table), true).await.unwrap();
            }
        }
    });
}

/// A foreign partition cannot have triggers with transition tables, so its changes are not captured.
#[test]
fn a_table_with_a_foreign_partition_is_read_as_a_foreign_one() {
    const FOREIGN: &str = "CREATE FOREIGN TABLE a2 PARTITION OF a FOR VALUES FROM (10) TO (20) SERVER files OPTIONS (program 'echo 11,1', format 'csv')";
    const CAPTURED: &str = "SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'trickle_capture%' AND tgrelid IN ('a'::regclass, 'a1'::regclass)";
    let queries = [("ids", "SELECT id FROM a"), ("groups", "SELECT v, count(*) AS n FROM a GROUP BY v")];
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        run(&w, "CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw").await;
        for before in [true, false] {
            run(&w, "CREATE TABLE a (id int, v int) PARTITION BY RANGE (id); CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (10); INSERT INTO a VALUES (1, 1)").await;
            if before {
                run(&w, FOREIGN).await;
            }
            for (table, query) in queries {
                create(&mut t, table, query).await;
            }
            assert_eq!(count(&w, CAPTURED).await == 0, before);
            if !before {
                run(&w, FOREIGN).await;
            }
            right(&mut t, &queries, FOREIGN).await;
            assert_eq!(count(&w, CAPTURED).await, 0);
            assert!(mode(&t, "ids").await.1.contains("foreign"));
            let compared = NewStreamTable::new(name("compared"), "SELECT id, v FROM a");
            t.create(&NewStreamTable { snapshots: true, ..compared }).await.unwrap();
            assert_eq!(mode(&t, "compared").await.0, "DIFFERENTIAL");
            run(&w, "ALTER FOREIGN TABLE a2 OPTIONS (SET program 'echo 12,1'); INSERT INTO a VALUES (2, 2)")
                .await;
            right(&mut t, &[("compared", "")], "changes").await;
            t.drop(&name("compared"), true).await.unwrap();
            right(&mut t, &queries, "changes").await;
            for (table, _) in queries {
                t.drop(&name(table), true).await.unwrap();
            }
            run(&w, "DROP TABLE a").await;
        }
    });
}

#[test]
fn constraints_that_rows_break_are_not_believed() {
    const TABLES: &str = "CREATE TABLE b (id int PRIMARY KEY, w int); INSERT INTO b VALUES (1, 1), (2, 2); \
        CREATE TABLE a (id int, v int, no int GENERATED ALWAYS AS IDENTITY)";
    const BREAKING: &str = "SET session_replication_role = replica; INSERT INTO a OVERRIDING SYSTEM VALUE VALUES (1, 10, 1), (9, -5, 1), (NULL, -7, 2), (9, 3, NULL); \
        RESET session_replication_role";
    let tables = [
        ("kept", "SELECT a.v FROM a JOIN b USING (id)"),
        ("padded", "SELECT a.v, b.w FROM a LEFT JOIN b USING (id)"),
        ("orphans", "SELECT v FROM a WHERE NOT EXISTS (SELECT FROM b WHERE b.id = a.id)"),
        ("low", "SELECT id, v FROM a WHERE v <= 0"),
        ("numbers", "SELECT no, count(*) AS n FROM a GROUP BY no"),
    ];
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        let broken = BREAKING.replace(", (9, 3, NULL)", "");
        let mut declared = vec![
            format!("ALTER TABLE a ADD FOREIGN KEY (id) REFERENCES b; {broken}"),
            format!(
                "{broken}; ALTER TABLE a ADD FOREIGN KEY (id) REFERENCES b NOT VALID, ADD CHECK (v > 0) NOT VALID"
            ),
            format!(
                "ALTER TABLE a ADD FOREIGN KEY (id) REFERENCES b DEFERRABLE INITIALLY DEFERRED; {broken}"
            ),
            format!(
                "ALTER TABLE a ADD FOREIGN KEY (id) REFERENCES b; ALTER TABLE a DISABLE TRIGGER ALL; {broken}"
            ),
        ];
        if db.major() >= 18 {
            declared.push(format!("ALTER TABLE a ADD FOREIGN KEY (id) REFERENCES b NOT ENFORCED, ADD CHECK (v > 0) NOT ENFORCED; {broken}"));
        }
        for (_, declared) in declared.iter().enumerate().filter(|(nth, _)| is_todays(*nth, 2)) {
            let rows = format!("{TABLES}; {declared}");
            let changes = [
                "SET session_replication_role = replica; UPDATE a SET id = 8 WHERE v = 10; RESET session_replication_role",
                "SET session_replication_role = replica; DELETE FROM b WHERE id = 1; RESET session_replication_role",
                "SET session_replication_role = replica; INSERT INTO b VALUES (9, 9); UPDATE b SET id = 8 WHERE w = 2; RESET session_replication_role",
            ];
            stay_right(&mut t, &w, &rows, &tables, &changes).await;
        }
    });
}

#[test]
fn a_domain_that_is_not_null_has_nulls_in_outer_joins() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        let rows = "CREATE DOMAIN amount AS int NOT NULL CHECK (VALUE > 0); CREATE TABLE a (id int, v amount); INSERT INTO a VALUES (1, 10), (3, 30); \
            CREATE TABLE b (id int, w int); INSERT INTO b VALUES (1, 1), (2, 2)";
        let tables = [
            ("padded", "SELECT b.id, a.v FROM b LEFT JOIN a USING (id)"),
            ("missing", "SELECT b.id FROM b LEFT JOIN a USING (id) WHERE a.v IS NULL"),
            (
                "counted",
                "SELECT b.w, count(a.v) AS n, count(*) AS m FROM b LEFT JOIN a USING (id) GROUP BY b.w",
            ),
            (
                "values",
                "SELECT v, count(*) AS n FROM (SELECT a.v FROM b LEFT JOIN a USING (id)) x GROUP BY v",
            ),
            ("none", "SELECT w FROM b WHERE w NOT IN (SELECT a.v FROM b c LEFT JOIN a USING (id))"),
        ];
        let changes = [
            "INSERT INTO a VALUES (2, 20)",
            "DELETE FROM a WHERE id = 1",
            "INSERT INTO b VALUES (4, 4), (3, 3)",
        ];
        stay_right(&mut t, &w, rows, &tables, &changes).await;
    });
}

#[test]
fn another_expression_of_a_generated_column_is_noticed() {
    newest_server(async |db| {
        if db.major() < 18 {
            return;
        }
        let (mut t, w) = incremental(db).await;
        let rows = "CREATE TABLE a (id int PRIMARY KEY, v int, s int GENERATED ALWAYS AS (v * 2) STORED, c int GENERATED ALWAYS AS (v * 3)); \
            INSERT INTO a (id, v) VALUES (1, 10), (2, 20)";
        let tables =
            [("stored", "SELECT id, s FROM a"), ("virtual", "SELECT c, count(*) AS n FROM a GROUP BY c")];
        let changes = [
            "UPDATE a SET v = v + 1",
            "ALTER TABLE a ALTER c SET EXPRESSION AS (v * 5); UPDATE a SET v = 7 WHERE id = 1",
            "ALTER TABLE a ALTER s SET EXPRESSION AS (v * 7)",
            "INSERT INTO a (id, v) VALUES (3, 30)",
        ];
        stay_right(&mut t, &w, rows, &tables, &changes).await;
    });
}

#[test]
fn another_volatility_or_strictness_is_noticed() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        let rows = "CREATE FUNCTION f(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT AS 'BEGIN RETURN coalesce(i, 0) + 1; END'; \
            CREATE OPERATOR ### (RIGHTARG = int, FUNCTION = f); CREATE TABLE a (id int, v int); INSERT INTO a VALUES (1, 10), (2, NULL)";
        let tables = [
            ("called", "SELECT id, f(v) AS x FROM a"),
            ("used", "SELECT ### v AS x, count(*) AS n FROM a GROUP BY ### v"),
        ];
        let changes = [
            "INSERT INTO a VALUES (3, NULL)",
            "ALTER FUNCTION f(int) CALLED ON NULL INPUT; INSERT INTO a VALUES (4, NULL)",
            "ALTER FUNCTION f(int) STABLE",
            "ALTER FUNCTION f(int) STRICT; DELETE FROM a WHERE id = 3",
        ];
        stay_right(&mut t, &w, rows, &tables, &changes).await;
        run(&w, rows).await;
        for (table, query) in tables {
            create(&mut t, table, query).await;
        }
        run(&w, "ALTER FUNCTION f(int) VOLATILE; INSERT INTO a VALUES (5, 5)").await;
        for (table, _) in tables {
            let e = try_refresh(&mut t, table).await.unwrap_err();
            assert!(e.message().contains("volatile"), "{table}: {e:?}");
        }
    });
}
