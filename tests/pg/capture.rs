//! Change capture: the triggers write exactly the changed rows, whatever kind of statement changed the rows.

use crate::support::{Db, assert_same_bag, each_server};
use std::sync::Arc;
use trickle_client::schema::VERSION;
use trickle_client::{Session, Settings, Trickle};
use trickle_core::catalog::{MemoryCatalog, TableId};
use trickle_core::cdc::{Buffer, Mode};
use trickle_core::sql::ast::Statement;
use trickle_core::sql::print;

pub(crate) async fn run(s: &Session, sql: &str) {
    s.client().batch_execute(sql).await.unwrap_or_else(|e| panic!("{e:?}\n{sql}"));
}

pub(crate) async fn run_all(s: &Session, statements: &[Statement]) {
    let mut sql = String::from("BEGIN;\n");
    for statement in statements {
        sql += &format!("{};\n", print(statement).text);
    }
    run(s, &(sql + "COMMIT")).await;
}

/// Tables whose columns have the names that the triggers use.
const HOSTILE: &str = r#"CREATE TABLE "odd ""T""" ("w" int PRIMARY KEY, "xid" text, "_w" numeric, "select" int,
    "new" int, "old" int, "found" text, "tg_op" text, "O'x" text, "c1" int, "there" bool, "trickle_new" int,
    "r" int, "s" int, "v" int, "o" int, "n" int)"#;

/// Tables, each with its captured columns.
const TABLES: &[(&str, &[&str])] = &[
    ("CREATE TABLE t (w int PRIMARY KEY, xid text, extra int)", &["w", "xid"]),
    ("CREATE TABLE t (w int PRIMARY KEY, xid text, extra int)", &["xid"]),
    ("CREATE TABLE t (w int PRIMARY KEY, xid text, extra int)", &["w", "xid", "extra"]),
    ("CREATE TABLE t (w int, xid text, extra int)", &["w", "xid"]),
    ("CREATE TABLE t (w int PRIMARY KEY, xid text, extra int)", &[]),
];

/// Statements on a table with columns `(w int, xid text, extra int)`, run one after the other.
const CHANGES: &[&str] = &[
    "INSERT INTO t SELECT i, 'r' || i, i FROM generate_series(1, 50) i",
    "INSERT INTO t (w, xid) VALUES (100, NULL)",
    "UPDATE t SET xid = xid || '!' WHERE w % 3 = 0",
    "UPDATE t SET extra = extra + 1",
    "UPDATE t SET xid = xid",
    "UPDATE t SET w = -w WHERE w > 0",
    "DELETE FROM t WHERE w % 7 = 0",
    "MERGE INTO t USING (SELECT i FROM generate_series(-60, -40) i) m ON t.w = m.i
     WHEN MATCHED AND m.i % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET xid = 'merged'
     WHEN NOT MATCHED THEN INSERT (w, xid) VALUES (m.i, 'new')",
    "WITH gone AS (DELETE FROM t WHERE w = -1 RETURNING w) INSERT INTO t SELECT 1000 - w, 'moved' FROM gone",
    "SET session_replication_role = replica; DELETE FROM t WHERE w = -2; INSERT INTO t VALUES (2000, 'x', 0);
     RESET session_replication_role",
    "BEGIN; INSERT INTO t VALUES (3000, 'a', 0); SAVEPOINT a; DELETE FROM t; ROLLBACK TO a;
     UPDATE t SET xid = 'b' WHERE w = 3000; COMMIT",
    "DELETE FROM t",
];

/// Makes a buffer for columns of an existing table, in a database that has the catalog.
async fn buffer(s: &Session, ddl: &str, columns: &[&str]) -> Buffer {
    let catalog = MemoryCatalog::from_ddl(ddl).unwrap();
    let mut table = (*catalog.tables()[0]).clone();
    let relation = format!("\"{}\"", table.name.replace('"', "\"\""));
    let text = "SELECT attrelid, attname::text, attnum, atttypid FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0";
    for row in s.client().query(text, &[&relation]).await.unwrap() {
        table.id = TableId(row.get(0));
        let at = table.column(row.get(1)).unwrap();
        (table.columns[at].number, table.columns[at].type_id) = (row.get(2), row.get(3));
    }
    let positions: Vec<usize> = columns.iter().map(|c| table.column(c).unwrap()).collect();
    Buffer::new(Arc::new(table), "pgtrickle_changes", &positions)
}

/// Opens a session in a database that has the catalog.
async fn with_catalog(db: &Db) -> Session {
    let mut t = Trickle::attach(db.session().await, Settings::default()).await.unwrap();
    t.migrate(VERSION).await.unwrap();
    db.session().await
}

fn quoted(columns: &[&str], prefix: &str) -> String {
    let of = |c: &&str| format!(", \"{}\"", format!("{prefix}{c}").replace('"', "\"\""));
    columns.iter().map(of).collect::<String>()
}

/// Returns the columns by their names in the buffer. Two columns have the names of the buffer's own columns,
/// so the buffer has these two columns under other names.
fn buffered(columns: &[&str]) -> String {
    let of = |c: &&str| {
        if matches!(c.trim_start_matches('_'), "w" | "xid") { format!("_{c}") } else { (*c).into() }
    };
    let names: Vec<String> = columns.iter().map(of).collect();
    quoted(&names.iter().map(String::as_str).collect::<Vec<_>>(), "")
}

/// Asserts `old rows + buffer = new rows`. Rows with negative weights are moved to the other side of the
/// equation.
async fn assert_captured(s: &Session, b: &Buffer, table: &str, columns: &[&str]) {
    let view = b.view();
    let rows = |w: i32| format!("SELECT 1{} FROM {view} WHERE w = {w}", buffered(columns));
    let list = quoted(columns, "");
    let left = format!("SELECT 1{list} FROM mirror UNION ALL {}", rows(1));
    let right = format!("SELECT 1{list} FROM {table} UNION ALL {}", rows(-1));
    assert_same_bag(s, &left, &right).await;
}

/// Returns a text in which the view of a buffer replaces `{}`. So `{}_1` becomes the first segment.
fn of(b: &Buffer, sql: &str) -> String {
    sql.replace("{}", &b.view().to_string())
}

async fn rows(s: &Session, sql: &str) -> i64 {
    s.client().query_one(sql, &[]).await.unwrap_or_else(|e| panic!("{e:?}\n{sql}")).get(0)
}

#[test]
fn every_statement_is_captured() {
    each_server(async |db| {
        let s = with_catalog(db).await;
        for mode in Mode::PLAIN {
            for (ddl, columns) in TABLES {
                run(&s, &format!("{ddl}; CREATE TABLE mirror AS SELECT * FROM t")).await;
                let buffer = buffer(&s, ddl, columns).await;
                run_all(&s, &mode.source().install(&buffer)).await;
                for change in CHANGES {
                    run(&s, change).await;
                    assert_captured(&s, &buffer, "t", columns).await;
                }
                run_all(&s, &mode.source().remove(&buffer)).await;
                assert_eq!(
                    rows(&s, "SELECT count(*) FROM pg_class WHERE relname LIKE 'changes\\_%'").await,
                    0
                );
                assert_eq!(
                    rows(&s, "SELECT count(*) FROM pg_proc WHERE proname LIKE 'capture\\_%'").await,
                    0
                );
                run(&s, "INSERT INTO t VALUES (1); DROP TABLE t, mirror").await;
            }
        }
    });
}

#[test]
fn upsert_copy_cascade_and_truncate_are_captured() {
    each_server(async |db| {
        let s = with_catalog(db).await;
        let ddl = "CREATE TABLE t (id int PRIMARY KEY, v text)";
        run(&s, &format!("CREATE TABLE p (id int PRIMARY KEY); {ddl}")).await;
        run(&s, "ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE").await;
        run(&s, "INSERT INTO p SELECT generate_series(1, 20); CREATE TABLE mirror AS SELECT * FROM t").await;
        for mode in Mode::PLAIN {
            let buffer = buffer(&s, ddl, &["id", "v"]).await;
            run_all(&s, &mode.source().install(&buffer)).await;
            run(&s, "INSERT INTO t SELECT i, 'a' FROM generate_series(1, 10) i").await;
            run(
                &s,
                "INSERT INTO t SELECT i, 'b' FROM generate_series(5, 15) i
                 ON CONFLICT (id) DO UPDATE SET v = excluded.v WHERE t.id <> 6;
                 INSERT INTO t VALUES (1, 'c') ON CONFLICT DO NOTHING",
            )
            .await;
            run(&s, "COPY t FROM PROGRAM 'printf \"19\\\\tx\\\\n20\\\\ty\\\\n\"'").await;
            run(&s, "DELETE FROM p WHERE id < 4; UPDATE p SET id = 40 WHERE id = 4").await;
            assert_captured(&s, &buffer, "t", &["id", "v"]).await;
            let marks = &of(&buffer, "SELECT count(*) FROM {} WHERE w = 0");
            assert_eq!(rows(&s, marks).await, 0);
            run(&s, "TRUNCATE t").await;
            assert_eq!(rows(&s, marks).await, 1);
            run_all(&s, &mode.source().remove(&buffer)).await;
            run(&s, "DELETE FROM p; INSERT INTO p SELECT generate_series(1, 20)").await;
        }
    });
}

#[test]
fn names_that_the_triggers_use_are_only_names() {
    each_server(async |db| {
        let s = with_catalog(db).await;
        run(&s, HOSTILE).await;
        run(&s, r#"CREATE TABLE mirror AS SELECT * FROM "odd ""T""" "#).await;
        let columns =
            ["w", "xid", "_w", "select", "new", "old", "found", "tg_op", "O'x", "c1", "there", "r", "s", "v"];
        for mode in Mode::PLAIN {
            let buffer = buffer(&s, HOSTILE, &columns).await;
            run_all(&s, &mode.source().install(&buffer)).await;
            run(
                &s,
                r#"INSERT INTO "odd ""T""" (w, xid, _w, "select", "new", c1, there, o)
                   SELECT i, 'x', 1.50, i, i, i, i % 2 = 0, i FROM generate_series(1, 9) i;
                   UPDATE "odd ""T""" SET _w = 1.500 WHERE w < 4; UPDATE "odd ""T""" SET o = o + 1;
                   UPDATE "odd ""T""" SET w = w + 100, found = 'f', "O'x" = '' WHERE w > 7;
                   DELETE FROM "odd ""T""" WHERE w = 5"#,
            )
            .await;
            assert_captured(&s, &buffer, r#""odd ""T""""#, &columns).await;
            let text = of(&buffer, "SELECT count(*) FROM {} WHERE __w::text = '1.500'");
            assert_eq!(rows(&s, &text).await, 3, "an equal number that prints differently is a change");
            run_all(&s, &mode.source().remove(&buffer)).await;
            run(&s, r#"DELETE FROM "odd ""T""" "#).await;
        }
    });
}

#[test]
fn an_update_of_other_columns_writes_nothing() {
    each_server(async |db| {
        let s = with_catalog(db).await;
        let ddl = "CREATE TABLE t (id int PRIMARY KEY, v text, other int)";
        run(&s, &format!("{ddl}; INSERT INTO t VALUES (1, 'a', 1), (2, NULL, 2)")).await;
        for mode in Mode::PLAIN {
            let buffer = buffer(&s, ddl, &["v"]).await;
            run_all(&s, &mode.source().install(&buffer)).await;
            // The server may use a plan that it cached for one changed row. With many changed rows, this plan
            // must not take quadratic time.
            run(&s, "UPDATE t SET other = other + 1; UPDATE t SET id = id + 10, v = v").await;
            let written = &of(&buffer, "SELECT count(*) FROM {}");
            let expected = if mode == Mode::Row { 0 } else { 4 };
            assert_eq!(rows(&s, written).await, expected, "a changed key pairs nothing: its rows cancel");
            run_all(&s, &mode.source().remove(&buffer)).await;
        }
    });
}

#[test]
fn buffers_widen_rotate_and_survive_their_owner_only() {
    each_server(async |db| {
        let s = with_catalog(db).await;
        let ddl = "CREATE TABLE t (a int, b int, c int)";
        run(&s, &format!("{ddl}; CREATE ROLE writer_{} ; ", db.major())).await;
        let narrow = buffer(&s, ddl, &["b"]).await.with_unlogged(true);
        let source = Mode::Statement.source();
        run_all(&s, &source.install(&narrow)).await;
        run(&s, "INSERT INTO t VALUES (1, 2, 3)").await;
        let (wide, statements) = source.widen(&narrow, &[0]);
        run_all(&s, &statements).await;
        // A role that may write the table needs no right on the buffer.
        let role = format!("writer_{}", db.major());
        run(
            &s,
            &format!(
                "GRANT INSERT ON t TO {role}; SET ROLE {role}; INSERT INTO t VALUES (4, 5, 6); RESET ROLE"
            ),
        )
        .await;
        let (next, statements) = source.rotate(&wide);
        run_all(&s, &statements).await;
        run(&s, "INSERT INTO t VALUES (7, 8, 9)").await;
        let all = &of(&narrow, "SELECT w, b, a FROM {}");
        assert_same_bag(
            &s,
            all,
            "VALUES (1::smallint, 2, NULL::int), (1::smallint, 5, 4), (1::smallint, 8, 7)",
        )
        .await;
        assert_eq!(rows(&s, &of(&narrow, "SELECT count(*) FROM {}_3 WHERE w = 1")).await, 1);
        assert_eq!(rows(&s, &of(&narrow, "SELECT count(cmin) FROM {}")).await, 3);
        // A crash empties unlogged segments. Until a repair, the view of the buffer shows the mark of a
        // TRUNCATE.
        let marks = &of(&narrow, "SELECT count(*) FROM {} WHERE w = 0");
        run_all(&s, &next.heal()).await;
        assert_eq!(rows(&s, marks).await, 0, "nothing was lost");
        run(&s, &of(&narrow, "TRUNCATE {}_2")).await;
        let new = "AND NOT pg_visible_in_snapshot(xid, pg_current_snapshot())";
        assert_eq!(rows(&s, &format!("{marks} {new}")).await, 1, "in every window");
        run_all(&s, &next.heal()).await;
        assert_eq!(rows(&s, &format!("{marks} {new}")).await, 0);
        assert_eq!(rows(&s, marks).await, 1, "in the next window of each reader");
        run_all(&s, &source.remove(&next)).await;
        run(&s, &format!("DROP OWNED BY {role}; DROP ROLE {role}; SELECT 1")).await;
    });
}
