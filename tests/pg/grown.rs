//! Sources get new columns. Stream tables that read none of the new columns are still updated by deltas. The
//! tests catch changes that are lost or counted twice around such an alteration, and a whole-row value that
//! has only the former columns. The tests also catch another alteration that is taken for an added column.

use crate::support::{Db, Driver, assert_equal, count, create, newest_server, open, refresh, run};
use trickle_client::Session;

const SOURCES: &str = "
    CREATE TABLE k (id int PRIMARY KEY, name text NOT NULL);
    CREATE TABLE t (id int PRIMARY KEY, k int, v int);
    CREATE TABLE parts (id int, v int, PRIMARY KEY (id)) PARTITION BY RANGE (id);
    CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (10);
    CREATE TABLE high PARTITION OF parts FOR VALUES FROM (10) TO (20);
    INSERT INTO k SELECT i, 'k' || i FROM generate_series(0, 4) i;
    INSERT INTO t SELECT i, i % 5, i FROM generate_series(1, 200) i;
    INSERT INTO parts SELECT i, i FROM generate_series(0, 19) i";

/// Queries that read none of the columns that the tests add.
const OTHERS: [(&str, &str); 6] = [
    ("rows", "SELECT id, v FROM t"),
    ("groups", "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM t GROUP BY k"),
    ("joined", "SELECT t.id, k.name FROM t JOIN k ON k.id = t.k"),
    ("ranked", "SELECT id, row_number() OVER (PARTITION BY k ORDER BY v, id) AS r FROM t"),
    ("parted", "SELECT count(*) AS n, sum(v) AS s FROM parts"),
    ("above", "SELECT n, count(*) AS groups FROM groups GROUP BY n"),
];

/// Queries that read whole-row values.
const WHOLE: [(&str, &str); 2] = [
    ("whole", "SELECT id, to_jsonb(t) AS j FROM t"),
    ("one", "SELECT k, count(DISTINCT t) AS n FROM t GROUP BY k"),
];

async fn set_up(db: &Db) -> (Driver, Session) {
    let t = open(db).await;
    let w = db.session().await;
    run(&w, SOURCES).await;
    (t, w)
}

/// Returns the number of recomputes of a stream table.
async fn anew(w: &Session, what: &str) -> i64 {
    let text = format!(
        "SELECT count(*) FROM pgtrickle.pgt_refresh_history h JOIN pgtrickle.pgt_stream_tables s USING (pgt_id) \
         WHERE s.pgt_name = '{what}' AND h.action IN ('FULL', 'REINITIALIZE')"
    );
    count(w, &text).await
}

#[test]
fn a_column_that_nobody_reads_costs_nobody_anything() {
    newest_server(async |db| {
        let (mut t, w) = set_up(db).await;
        for (name, query) in OTHERS.iter().chain(&WHOLE) {
            create(&mut t, name, query).await;
        }
        for (name, _) in OTHERS.iter().chain(&WHOLE) {
            assert_equal(&mut t, name).await;
        }
        let mut before = Vec::new();
        for (name, _) in &OTHERS {
            before.push(anew(&w, name).await);
        }
        for (i, added) in [
            "ALTER TABLE t ADD more int",
            "ALTER TABLE t ADD filled int NOT NULL DEFAULT 7, ADD random float8 DEFAULT random(); ALTER TABLE k ADD x int",
            "ALTER TABLE t ADD sum int GENERATED ALWAYS AS (v + id) STORED; ALTER TABLE parts ADD x int",
        ]
        .into_iter()
        .enumerate()
        {
            run(&w, "UPDATE t SET v = v + 1 WHERE id % 3 = 0; UPDATE parts SET v = v + 1 WHERE id % 4 = 0").await;
            run(&w, added).await;
            run(&w, "UPDATE t SET v = v - 2 WHERE id % 7 = 0; DELETE FROM t WHERE id % 50 = 1; UPDATE k SET name = name || 'x'").await;
            run(&w, &format!("INSERT INTO t (id, k, v) VALUES (-{i}, 1, 1); DELETE FROM parts WHERE id = {i}")).await;
            // The new stream table is the first reader of the added column.
            create(&mut t, &format!("new_{i}"), "SELECT id, more FROM t").await;
            for (name, _) in OTHERS.iter().chain(&WHOLE) {
                assert_equal(&mut t, name).await;
            }
            assert_equal(&mut t, &format!("new_{i}")).await;
            run(&w, "UPDATE t SET more = id WHERE id % 2 = 0; UPDATE parts SET v = v + 1").await;
            for (name, _) in OTHERS.iter().chain(&WHOLE) {
                assert_equal(&mut t, name).await;
            }
        }
        for ((name, _), before) in OTHERS.iter().zip(before) {
            assert_eq!(anew(&w, name).await, before, "{name}");
        }
    });
}

/// A whole-row value shows a new column of its table, although no row was written.
#[test]
fn the_type_of_rows_grows_with_its_table() {
    newest_server(async |db| {
        let (mut t, w) = set_up(db).await;
        run(
            &w,
            "CREATE TABLE u (id int PRIMARY KEY, r t, a t[]); INSERT INTO u SELECT t.id, t, ARRAY[t] FROM t",
        )
        .await;
        run(
            &w,
            "CREATE TABLE docs (id int PRIMARY KEY, j jsonb); INSERT INTO docs SELECT id, to_jsonb(t) FROM t",
        )
        .await;
        let typed = [
            ("cast", "SELECT u.id, u.r::text AS row, t.v FROM u JOIN t ON t.id = u.id"),
            ("arrays", "SELECT u.id, u.a::text AS rows, t.v FROM u JOIN t ON t.id = u.id"),
            (
                "read",
                "SELECT d.id, jsonb_populate_record(NULL::t, d.j)::text AS row, t.v FROM docs d JOIN t USING (id)",
            ),
        ];
        for (name, query) in typed {
            create(&mut t, name, query).await;
            refresh(&mut t, name).await;
        }
        run(&w, "ALTER TABLE t ADD more int; UPDATE t SET v = v + 1 WHERE id < 5").await;
        for (name, _) in typed {
            assert_equal(&mut t, name).await;
        }
        run(&w, "DROP TABLE u CASCADE; UPDATE t SET v = v + 1 WHERE id < 5").await;
        run(&w, "ALTER TABLE t ADD again int").await;
        assert_equal(&mut t, "read").await;
    });
}

/// An alteration adds a column and has another effect too. After such an alteration the readers are planned
/// again and recomputed.
#[test]
fn other_alterations_beside_a_new_column_are_noticed() {
    newest_server(async |db| {
        let (mut t, w) = set_up(db).await;
        for altered in [
            "ALTER TABLE t ADD a int, ALTER v TYPE int USING v + 1000",
            "ALTER TABLE t ADD b int, ALTER v TYPE bigint",
            "ALTER TABLE t ADD c int; ALTER TABLE t DISABLE TRIGGER ALL; UPDATE t SET v = 5; ALTER TABLE t ENABLE TRIGGER ALL",
            "ALTER TABLE t ADD d int, DROP CONSTRAINT t_pkey; INSERT INTO t SELECT * FROM t",
            "ALTER TABLE t RENAME v TO was; ALTER TABLE t ADD v int",
        ] {
            create(&mut t, "rows", OTHERS[0].1).await;
            create(&mut t, "groups", OTHERS[1].1).await;
            refresh(&mut t, "rows").await;
            refresh(&mut t, "groups").await;
            let before = anew(&w, "rows").await;
            run(&w, "UPDATE t SET v = v + 1 WHERE id % 3 = 0").await;
            run(&w, altered).await;
            run(&w, "UPDATE t SET v = v + 1 WHERE id % 2 = 0").await;
            assert_equal(&mut t, "rows").await;
            assert_equal(&mut t, "groups").await;
            assert!(anew(&w, "rows").await > before, "{altered}");
            run(&w, "UPDATE t SET v = v + 1 WHERE id % 2 = 0").await;
            assert_equal(&mut t, "rows").await;
            run(&w, "DROP TABLE rows, groups").await;
        }
    });
}
