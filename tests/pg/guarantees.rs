//! A plan relies only on guarantees about a source that this version of the server enforces, and never on
//! stored rows. The tests catch plans that rely on a declaration which the server does not enforce. The tests
//! also catch stored rows of an older plan that a new plan cannot find.

use crate::support::{Db, Driver, assert_equal, create, each_server, name, open_with, refresh, run};
use trickle_client::{Alteration, RefreshMode, RefreshOptions, Session, Settings};
use trickle_core::cost::Force;

async fn incremental(db: &Db) -> (Driver, Session) {
    let settings = Settings { force: Some(Force::Incremental), ..Settings::default() };
    (open_with(db, settings).await, db.session().await)
}

async fn nothing(t: &mut Driver, w: &Session) {
    let all: Vec<_> = t.registry().await.unwrap().entries().map(|e| e.relation.name.to_string()).collect();
    for what in all {
        // The stream table may have been dropped already, together with one of its sources.
        let _ = t.drop(&name(&what), true).await;
    }
    run(w, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
}

/// Queries over `a (id, v)` and `b (id, v)`. Their results are wrong if a plan assumes that `v` has no NULLs
/// although it has some.
const ASKING_FOR_NULLS: &[&str] = &[
    "SELECT id FROM a WHERE v IS NULL",
    "SELECT id FROM b WHERE v NOT IN (SELECT v FROM a)",
    "SELECT id % 2 AS k, count(v) AS n, count(*) AS all_of_them FROM a GROUP BY id % 2",
    "SELECT v, count(*) AS n FROM a GROUP BY v",
    "SELECT DISTINCT v FROM a",
    "SELECT v FROM a",
    "SELECT a.v, b.id FROM a LEFT JOIN b USING (v)",
];

/// Runs changes of a table. Each change leaves or inserts a NULL in a column whose NOT NULL is not enforced.
/// Asserts that each query's result stays right.
async fn asks_for_nulls(db: &Db, tables: &str, changes: &[&str]) {
    let (mut t, w) = incremental(db).await;
    for query in ASKING_FOR_NULLS {
        run(
            &w,
            "CREATE TABLE b (id int PRIMARY KEY, v int); INSERT INTO b VALUES (1, 10), (2, 20), (3, NULL)",
        )
        .await;
        run(&w, tables).await;
        create(&mut t, "st", query).await;
        assert_equal(&mut t, "st").await;
        for change in changes {
            run(&w, change).await;
            refresh(&mut t, "st").await;
            assert_equal(&mut t, "st").await;
        }
        nothing(&mut t, &w).await;
    }
}

#[test]
fn a_not_null_that_is_not_valid_is_not_believed() {
    each_server(async |db| {
        if db.major() < 18 {
            return;
        }
        let tables = "CREATE TABLE a (id int PRIMARY KEY, v int); INSERT INTO a VALUES (1, 10), (2, NULL), (3, NULL); \
             ALTER TABLE a ADD CONSTRAINT present NOT NULL v NOT VALID";
        let changes = [
            "DELETE FROM a WHERE id = 3",
            "INSERT INTO a VALUES (4, 20), (5, 10)",
            "DELETE FROM a WHERE id = 2; ALTER TABLE a VALIDATE CONSTRAINT present",
            "UPDATE a SET v = v + 10",
            "ALTER TABLE a ALTER v DROP NOT NULL; UPDATE a SET v = NULL WHERE id = 4",
        ];
        asks_for_nulls(db, tables, &changes).await;
    });
}

#[test]
fn a_not_null_that_a_child_has_not_is_not_believed() {
    each_server(async |db| {
        let tables = match db.major() {
            // Before version 18 a child table may drop a constraint that it inherited.
            ..18 => {
                "CREATE TABLE a (id int, v int NOT NULL); CREATE TABLE c () INHERITS (a); \
                 ALTER TABLE c ALTER v DROP NOT NULL; INSERT INTO a VALUES (1, 10); INSERT INTO c VALUES (2, NULL), (3, NULL)"
            }
            18.. => {
                "CREATE TABLE a (id int, v int, CONSTRAINT present NOT NULL v NO INHERIT); CREATE TABLE c () INHERITS (a); \
                 INSERT INTO a VALUES (1, 10); INSERT INTO c VALUES (2, NULL), (3, NULL)"
            }
        };
        let changes = [
            "DELETE FROM c WHERE id = 3",
            "INSERT INTO a VALUES (4, 20); INSERT INTO c VALUES (5, 10), (6, NULL)",
        ];
        asks_for_nulls(db, tables, &changes).await;
    });
}

#[test]
fn a_not_null_that_a_child_loses_later_is_noticed() {
    each_server(async |db| {
        let (tables, change) = match db.major() {
            ..18 => (
                "CREATE TABLE a (id int, v int NOT NULL); CREATE TABLE c () INHERITS (a); INSERT INTO c VALUES (2, 10)",
                "ALTER TABLE c ALTER v DROP NOT NULL; INSERT INTO c VALUES (3, NULL)",
            ),
            18.. => (
                "CREATE TABLE a (id int, v int, CONSTRAINT present NOT NULL v); CREATE TABLE c () INHERITS (a); \
                 INSERT INTO c VALUES (2, 10)",
                "ALTER TABLE a ALTER CONSTRAINT present NO INHERIT; ALTER TABLE c ALTER v DROP NOT NULL; \
                 INSERT INTO c VALUES (3, NULL)",
            ),
        };
        asks_for_nulls(db, tables, &[change, "DELETE FROM c WHERE id = 3"]).await;
    });
}

/// Rows may be equal in the columns of a unique index that is no key. The stream table has each row as often
/// as its source has the row.
#[test]
fn an_index_that_is_no_key_is_not_taken_for_one() {
    const NO_CASE: &str =
        "CREATE COLLATION no_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    const TWICE: &str = "INSERT INTO a VALUES (1, 'x', 10), (1, 'x', 10)";
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        let has_icu = w.client().batch_execute(NO_CASE).await.is_ok();
        nothing(&mut t, &w).await;
        let mut indexes = vec![
            ("CREATE UNIQUE INDEX ON a (id) WHERE id > 5", TWICE),
            (
                "CREATE UNIQUE INDEX ON a ((id + n), v) INCLUDE (id)",
                "INSERT INTO a VALUES (1, 'x', 10), (1, 'x', 11)",
            ),
        ];
        if w.client()
            .batch_execute("CREATE EXTENSION citext SCHEMA public; DROP EXTENSION citext")
            .await
            .is_ok()
        {
            // The operator class text_ops can index the citext column. Under text_ops x and X differ, and as
            // citext they are equal.
            let index = "CREATE EXTENSION citext; ALTER TABLE a ALTER v TYPE citext; CREATE UNIQUE INDEX ON a (v text_ops)";
            indexes.push((index, "INSERT INTO a VALUES (1, 'x', 10), (1, 'X', 10), (1, 'y', 1)"));
        }
        if has_icu {
            // The index has collation "C". Under the collation of the column, x and X are equal.
            let rows = "INSERT INTO a VALUES (1, 'x', 10), (1, 'X', 10), (1, 'y', 1)";
            indexes.push(("CREATE UNIQUE INDEX ON a (v COLLATE \"C\")", rows));
        }
        for (index, rows) in indexes {
            let column = if has_icu { "text COLLATE no_case" } else { "text" };
            let table = format!("CREATE TABLE a (id int NOT NULL, v {column} NOT NULL, n int NOT NULL)");
            run(&w, &if has_icu { format!("{NO_CASE}; {table}") } else { table }).await;
            run(&w, index).await;
            run(&w, rows).await;
            let queries = [
                "SELECT id, v, n FROM a",
                "SELECT id FROM a",
                "SELECT v, count(*) AS n FROM a GROUP BY v",
                "SELECT v FROM a",
            ];
            for (i, query) in queries.iter().enumerate() {
                create(&mut t, &format!("st{i}"), query).await;
            }
            for change in ["UPDATE a SET n = n + 100", "DELETE FROM a WHERE ctid = (SELECT min(ctid) FROM a)"]
            {
                run(&w, change).await;
                for i in 0..queries.len() {
                    refresh(&mut t, &format!("st{i}")).await;
                    assert_equal(&mut t, &format!("st{i}")).await;
                }
            }
            nothing(&mut t, &w).await;
        }
    });
}

/// Queries of each kind with a result that has no key, and a query with a result of one row.
const BAGS: &[&str] = &[
    "SELECT max(w) AS w{more} FROM t",
    "SELECT w{more} FROM t",
    "SELECT t.w{more} FROM t JOIN u USING (w)",
    "SELECT w{more} FROM t UNION ALL SELECT w{more} FROM u",
    "SELECT w, row_number() OVER (PARTITION BY w % 7 ORDER BY w) AS n{more} FROM t",
    "SELECT w{more} FROM t ORDER BY w LIMIT 50",
];

async fn bag(t: &mut Driver, w: &Session, query: &str, is_read: bool) {
    run(
        w,
        "CREATE TABLE t (w int NOT NULL); INSERT INTO t SELECT generate_series(1, 400); \
         CREATE TABLE u (w int NOT NULL); INSERT INTO u SELECT generate_series(1, 400, 3)",
    )
    .await;
    create(t, "st", &query.replace("{more}", "")).await;
    // With a reader, the changes of the stream table `st` are captured too.
    if is_read {
        create(t, "reader", "SELECT w % 10 AS k, count(*) AS n FROM st GROUP BY w % 10").await;
    }
}

async fn both_are_right(t: &mut Driver, w: &Session) {
    for what in ["st", "reader"] {
        refresh(t, what).await;
        assert_equal(t, what).await;
    }
    run(w, "INSERT INTO t VALUES (3), (1000); DELETE FROM t WHERE w = 7; DELETE FROM u WHERE w = 4").await;
    for what in ["st", "reader"] {
        refresh(t, what).await;
        assert_equal(t, what).await;
    }
}

#[test]
fn a_source_column_of_another_type_leaves_no_old_row() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        for query in BAGS {
            bag(&mut t, &w, query, true).await;
            run(&w, "ALTER TABLE t ALTER w TYPE bigint; ALTER TABLE u ALTER w TYPE bigint").await;
            both_are_right(&mut t, &w).await;
            nothing(&mut t, &w).await;
        }
    });
}

#[test]
fn a_query_with_another_column_leaves_no_old_row() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        for query in BAGS {
            bag(&mut t, &w, query, true).await;
            let query = query.replace("{more}", ", 'y'::text AS b");
            t.alter(&name("st"), &Alteration { query: Some(query), ..Alteration::default() }).await.unwrap();
            both_are_right(&mut t, &w).await;
            nothing(&mut t, &w).await;
        }
    });
}

#[test]
fn a_query_of_one_row_leaves_no_row_of_many() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        for watched in [false, true] {
            bag(&mut t, &w, "SELECT w FROM t", false).await;
            if watched {
                run(&w, "CREATE PUBLICATION told FOR TABLE st").await;
            }
            for query in ["SELECT max(w) AS w FROM t", "SELECT w FROM u", "SELECT min(w) AS w FROM t"] {
                let query = Some(query.to_owned());
                t.alter(&name("st"), &Alteration { query, ..Alteration::default() }).await.unwrap();
                refresh(&mut t, "st").await;
                assert_equal(&mut t, "st").await;
            }
            run(&w, "DELETE FROM t WHERE w < 5").await;
            refresh(&mut t, "st").await;
            assert_equal(&mut t, "st").await;
            run(&w, "DROP PUBLICATION IF EXISTS told").await;
            nothing(&mut t, &w).await;
        }
    });
}

/// In the columns that only the new query has, the stored rows of the former query would have NULL. The new
/// plan relies on a key without NULLs.
#[test]
fn a_query_of_keys_leaves_no_row_of_another_query() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        for before in ["SELECT count(*) AS c FROM t", "SELECT w AS x, count(*) AS m FROM t GROUP BY w"] {
            for query in [
                "SELECT DISTINCT w, nullif(w % 2, 5) AS odd FROM t",
                "SELECT w, count(*) AS n FROM t GROUP BY w",
            ] {
                bag(&mut t, &w, before, false).await;
                let query = Some(query.to_owned());
                t.alter(&name("st"), &Alteration { query, ..Alteration::default() }).await.unwrap();
                assert_equal(&mut t, "st").await;
                run(&w, "DELETE FROM t WHERE w < 5").await;
                assert_equal(&mut t, "st").await;
                nothing(&mut t, &w).await;
            }
        }
    });
}

/// After a full refresh or a repair the stream table has exactly the rows of its query. The stored rows from
/// before have no effect.
#[test]
fn a_full_refresh_does_not_depend_on_stored_rows() {
    each_server(async |db| {
        let (mut t, w) = incremental(db).await;
        let full = RefreshOptions { full: true, ..RefreshOptions::default() };
        let to_full = Alteration { mode: Some(RefreshMode::Full), ..Alteration::default() };
        for query in BAGS {
            for (mend, is_read) in
                [("full", true), ("full", false), ("repair", true), ("repair", false), ("mode", true)]
            {
                bag(&mut t, &w, query, is_read).await;
                run(
                    &w,
                    "SET session_replication_role = replica; \
                     DO $$ BEGIN UPDATE st SET w = NULL WHERE w % 3 = 0; EXCEPTION WHEN not_null_violation THEN NULL; END $$; \
                     DO $$ BEGIN INSERT INTO st SELECT * FROM st LIMIT 5; EXCEPTION WHEN unique_violation THEN NULL; END $$; \
                     DELETE FROM st WHERE w % 11 = 0; RESET session_replication_role",
                )
                .await;
                match mend {
                    "full" => drop(t.refresh(&[name("st")], &full).await.unwrap()),
                    "repair" => drop(t.repair(&name("st")).await.unwrap()),
                    _ => drop(t.alter(&name("st"), &to_full).await.unwrap()),
                }
                refresh(&mut t, "st").await;
                assert_equal(&mut t, "st").await;
                nothing(&mut t, &w).await;
            }
        }
    });
}
