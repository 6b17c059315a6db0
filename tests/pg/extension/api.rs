//! The promises of the SQL API: the arguments and results of each function, and errors with hints that a user
//! can follow in SQL alone. Each argument has an effect or is refused.

use super::{ORDERS, TOTALS, assert_totals, installed, refused, rows};
use crate::support::{count, run, todays_server};
use std::path::Path;
use trickle_client::Session;

/// A refused call of a function: the call, its SQLSTATE, and texts that its message, DETAIL and HINT must
/// contain.
struct Refusal(&'static str, &'static str, &'static str, &'static str, &'static str);

/// One refusal of each kind that a caller can provoke. The stream table `over` reads `totals`, and `halted`
/// is suspended by an error.
const REFUSALS: &[Refusal] = &[
    Refusal(
        "create_stream_table('totals', 'SELECT 1 AS x')",
        "42P07",
        "already exists",
        "",
        "create_or_replace_stream_table",
    ),
    Refusal("create_stream_table('orders', 'SELECT 1 AS x')", "42P07", "no stream table", "", "another name"),
    Refusal(
        "create_stream_table('x', 'SELECT id FROM orders', cdc_mode => 'wal')",
        "22023",
        "not built",
        "",
        "cdc_mode",
    ),
    Refusal(
        "create_stream_table('x', 'SELECT id FROM orders', cdc_mode => 'log')",
        "22023",
        "no cdc_mode \"log\"",
        "",
        "'trigger'",
    ),
    Refusal(
        "create_stream_table('x', 'SELECT id FROM orders', refresh_mode => 'SOON')",
        "22023",
        "no refresh_mode \"SOON\"",
        "",
        "'IMMEDIATE'",
    ),
    Refusal(
        "create_stream_table('x', 'SELECT id FROM orders', 'now and then')",
        "22023",
        "now and then",
        "",
        "",
    ),
    Refusal(
        "create_stream_table('x', 'SELECT id FROM orders', diamond_consistency => 'round')",
        "22023",
        "no diamond_consistency \"round\"",
        "",
        "'atomic'",
    ),
    Refusal(
        "create_stream_table('x', 'SELECT 1 AS c, customer, count(*) AS n FROM orders GROUP BY GROUPING SETS ((1), (2))', refresh_mode => 'DIFFERENTIAL')",
        "22023",
        "cannot be maintained incrementally",
        "In the way",
        "refresh_mode => 'AUTO'",
    ),
    Refusal(
        "create_stream_table('x', 'SELECT id FROM seen', refresh_mode => 'DIFFERENTIAL')",
        "22023",
        "cannot be maintained incrementally",
        "materialized view",
        "stream table",
    ),
    Refusal(
        "alter_stream_table('nothing', schedule => '1s')",
        "42P01",
        "no stream table nothing",
        "",
        "pgt_status",
    ),
    Refusal(
        "alter_stream_table('totals', status => 'ASLEEP')",
        "22023",
        "cannot be made \"ASLEEP\"",
        "",
        "'SUSPENDED'",
    ),
    Refusal(
        "alter_stream_table('totals', query => 'SELECT customer FROM orders')",
        "22023",
        "public.over reads the column",
        "",
        "public.over",
    ),
    Refusal(
        "drop_stream_table('totals')",
        "2BP01",
        "other stream tables read it",
        "public.over",
        "cascade => true",
    ),
    Refusal("drop_stream_table('viewed')", "2BP01", "", "view", "cascade => true"),
    Refusal(
        "refresh_stream_table('gone')",
        "22023",
        "the table of stream table public.gone is gone",
        "DROP TABLE",
        "SELECT pgtrickle.drop_stream_table('public.gone')",
    ),
    Refusal("explain_delta('SELECT random() AS r FROM orders')", "0A000", "", "", ""),
    Refusal("get_staleness('orders')", "42P01", "no stream table orders", "", ""),
    Refusal("create_stream_table(NULL, 'SELECT 1 AS x')", "22004", "argument name", "", "Give name"),
    Refusal("create_stream_table('x', NULL)", "22004", "argument query", "", "Give query"),
    Refusal("create_or_replace_stream_table('totals', NULL)", "22004", "argument query", "", "Give query"),
    Refusal("alter_stream_table(NULL)", "22004", "argument name", "", "Give name"),
    Refusal("drop_stream_table(NULL)", "22004", "argument name", "", "Give name"),
    Refusal("refresh_stream_table(NULL)", "22004", "argument name", "", "Give name"),
    Refusal("repair_stream_table(NULL)", "22004", "argument name", "", "Give name"),
    Refusal("resume_stream_table(NULL)", "22004", "argument name", "", "Give name"),
    Refusal("pause_scheduler(ARRAY['totals', NULL])", "22004", "argument names", "", "Give names"),
    Refusal("resume_scheduler(ARRAY[NULL])", "22004", "argument names", "", "Give names"),
];

/// Whether a text names a command of the program. A user of a session cannot type such a command.
fn is_of_the_program(text: &str) -> bool {
    let plain =
        text.replace("he program's trickle ", "").replace("the program with trickle create --snapshots", "");
    let commands = [
        "refresh",
        "alter",
        "drop",
        "create",
        "status",
        "enable",
        "init",
        "doctor",
        "run",
        "check",
        "disable",
        "wait",
        "apply",
        "history",
        "explain",
        "uninstall",
    ];
    plain.contains(" --") || commands.iter().any(|c| plain.contains(&format!("trickle {c}")))
}

async fn prepared(s: &Session) {
    run(s, ORDERS).await;
    run(s, &format!("SELECT pgtrickle.create_stream_table('totals', $${TOTALS}$$)")).await;
    run(
        s,
        "SELECT pgtrickle.create_stream_table('over', 'SELECT customer, total FROM totals WHERE total > 10')",
    )
    .await;
    run(s, "CREATE MATERIALIZED VIEW seen AS SELECT id FROM orders").await;
    run(s, "SELECT pgtrickle.create_stream_table('viewed', 'SELECT id, amount FROM orders'); CREATE VIEW shown AS TABLE viewed").await;
    run(s, "SELECT pgtrickle.create_stream_table('gone', 'SELECT id FROM orders', 'manual')").await;
    run(s, "SET session_replication_role = replica; DROP TABLE gone; RESET session_replication_role").await;
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn each_refusal_says_what_to_do_in_sql() {
    todays_server(async |db| {
        let s = installed(db).await;
        prepared(&s).await;
        for Refusal(call, code, message, detail, hint) in REFUSALS {
            let e = s.client().batch_execute(&format!("SELECT pgtrickle.{call}")).await;
            let e = e.err().unwrap_or_else(|| panic!("{call} was not refused"));
            let e = e.as_db_error().unwrap_or_else(|| panic!("{call}: {e:?}"));
            let of = |text: Option<&str>| text.unwrap_or_default().to_owned();
            let (found_detail, found_hint) = (of(e.detail()), of(e.hint()));
            let said = format!(
                "{call}: {} {}\nDETAIL {found_detail}\nHINT {found_hint}",
                e.code().code(),
                e.message()
            );
            assert_eq!(e.code().code(), *code, "{said}");
            assert!(e.message().contains(message), "{said}");
            assert!(found_detail.contains(detail), "{said}");
            assert!(found_hint.contains(hint), "{said}");
            for text in [e.message(), &found_detail, &found_hint] {
                assert!(!is_of_the_program(text), "{said}");
            }
        }
        // The texts of `health_check` name no commands of the program either.
        run(&s, "SELECT pgtrickle.pause_scheduler(ARRAY['over'])").await;
        for row in rows(&s, "SELECT found, advice FROM pgtrickle.health_check() WHERE result <> 'ok'").await {
            for text in row.iter().flatten() {
                assert!(!is_of_the_program(text), "{row:?}");
            }
        }
    });
}

#[test]
#[ignore = "needs the extension: ./x extension"]
fn arguments_of_the_sql_api_take_effect() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        run(&s, "SET pg_trickle.refresh_strategy = 'differential'").await;
        run(
            &s,
            &format!("SELECT pgtrickle.create_stream_table('totals', $${TOTALS}$$, initialize => false)"),
        )
        .await;
        let standing = "SELECT status, mode, schedule, staleness_ms IS NULL FROM pgtrickle.pgt_status() WHERE name = 'public.totals'";
        let some = |row: [&str; 4]| vec![row.map(|c| Some(c.to_owned())).to_vec()];
        assert_eq!(rows(&s, standing).await, some(["INITIALIZING", "DIFFERENTIAL", "calculated", "t"]));
        assert_eq!(count(&s, "SELECT count(*) FROM totals").await, 0);
        run(&s, "SELECT pgtrickle.refresh_stream_table('totals')").await;
        assert_totals(&s).await;
        run(&s, "SELECT pgtrickle.alter_stream_table('totals', schedule => 'manual', status => 'SUSPENDED')")
            .await;
        assert_eq!(
            count(
                &s,
                "SELECT count(*) FROM pgtrickle.pgt_status() WHERE status = 'SUSPENDED' AND schedule IS NULL"
            )
            .await,
            1
        );
        run(&s, "SELECT pgtrickle.alter_stream_table('totals', schedule => '5m', status => 'ACTIVE', refresh_mode => 'FULL')").await;
        assert_eq!(rows(&s, standing).await, some(["ACTIVE", "FULL", "5m", "f"]));
        let why = rows(&s, "SELECT * FROM pgtrickle.explain_refresh_mode('totals')").await.concat();
        assert!(why.iter().flatten().any(|c| c == "FULL"), "{why:?}");
        // NULL as an argument means the default.
        run(
            &s,
            "SELECT pgtrickle.create_stream_table('plain', 'SELECT id FROM orders', refresh_mode => NULL, initialize => NULL, append_only => NULL); \
             SELECT pgtrickle.drop_stream_table('plain', NULL)",
        )
        .await;
        // The new query lacks one column of the former query, and has one new column.
        let query = "SELECT customer, count(*) AS n, max(amount) AS most FROM orders GROUP BY customer";
        run(
            &s,
            &format!(
                "SELECT pgtrickle.alter_stream_table('totals', query => $${query}$$, refresh_mode => 'AUTO')"
            ),
        )
        .await;
        run(&s, "UPDATE orders SET amount = amount + 7 WHERE id % 3 = 0; SELECT pgtrickle.refresh_stream_table('totals')").await;
        assert_eq!(rows(&s, "TABLE totals").await, rows(&s, query).await);
        // `validate_query` returns whether a stream table of this query can be updated by deltas.
        let valid = async |query: &str| {
            let ask =
                format!("SELECT incremental, construct IS NULL FROM pgtrickle.validate_query($${query}$$)");
            rows(&s, &ask).await
        };
        assert_eq!(valid(query).await, [[Some("t".to_owned()), Some("t".to_owned())]]);
        assert_eq!(
            valid("SELECT 1 AS c, customer, count(*) AS n FROM orders GROUP BY GROUPING SETS ((1), (2))")
                .await,
            [[Some("f".to_owned()), Some("f".to_owned())]]
        );
        // The second argument of `get_refresh_history` is the number of entries. The function returns the
        // newest entries.
        run(&s, "UPDATE orders SET amount = 1 WHERE id = 1; SELECT pgtrickle.refresh_stream_table('totals')")
            .await;
        let newest = "SELECT count(*), max(action), bool_and(refresh_id = (SELECT max(refresh_id) FROM pgtrickle.pgt_refresh_history)) \
             FROM pgtrickle.get_refresh_history('totals', 1)";
        assert_eq!(rows(&s, newest).await, [["1", "DIFFERENTIAL", "t"].map(|c| Some(c.to_owned()))]);
        // With `cascade`, `drop_stream_table` drops the readers too.
        run(&s, "SELECT pgtrickle.create_stream_table('over', 'SELECT customer, n FROM totals')").await;
        run(&s, "SELECT pgtrickle.drop_stream_table('totals', cascade => true)").await;
        assert_eq!(count(&s, "SELECT count(*) FROM pg_class WHERE relname IN ('totals', 'over')").await, 0);
        assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_stream_tables").await, 0);
        run(&s, "SET pg_trickle.cdc_mode = 'wal'").await;
        assert_eq!(
            refused(&s, "SELECT pgtrickle.create_stream_table('x', 'SELECT id FROM orders')").await,
            "22023"
        );
    });
}

/// No statement of a user can write a stream table, not even a statement of the stream table's owner.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn nobody_writes_a_stream_table_by_himself() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        for mode in ["DIFFERENTIAL", "IMMEDIATE"] {
            run(
                &s,
                &format!(
                    "SELECT pgtrickle.create_stream_table('totals', $${TOTALS}$$, refresh_mode => '{mode}')"
                ),
            )
            .await;
            for write in [
                "INSERT INTO totals SELECT * FROM totals",
                "UPDATE totals SET n = 0",
                "DELETE FROM totals WHERE n > 0",
                "TRUNCATE totals",
                "COPY totals FROM PROGRAM 'echo'",
                "MERGE INTO totals t USING orders o ON t.customer = o.id WHEN MATCHED THEN DELETE",
                "WITH gone AS (DELETE FROM totals RETURNING 1) SELECT count(*) FROM gone",
            ] {
                assert_eq!(refused(&s, write).await, "55000", "{write}");
            }
            assert_totals(&s).await;
            run(&s, "SELECT pgtrickle.drop_stream_table('totals')").await;
        }
    });
}

/// Lists the rights that every role has on the extension and its buffers without any grant.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn public_has_no_rights_and_definer_functions_pin_their_path() {
    todays_server(async |db| {
        let s = installed(db).await;
        run(&s, ORDERS).await;
        run(&s, &format!("SELECT pgtrickle.create_stream_table('totals', $${TOTALS}$$)")).await;
        run(&s, "SELECT pgtrickle.create_stream_table('kept', 'SELECT id, amount FROM orders', refresh_mode => 'IMMEDIATE')").await;
        run(
            &s,
            "UPDATE orders SET amount = 2 WHERE id < 20; SELECT pgtrickle.refresh_stream_table('totals')",
        )
        .await;
        let relations = "SELECT c.oid::regclass::text, a.privilege_type FROM pg_class c \
             CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", c.relowner))) a \
             WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND a.grantee = 0";
        assert!(rows(&s, relations).await.is_empty(), "{:?}", rows(&s, relations).await);
        let schema = "SELECT a.privilege_type FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a \
             WHERE n.nspname = 'pgtrickle_changes' AND a.grantee = 0";
        assert!(rows(&s, schema).await.is_empty());
        // If a SECURITY DEFINER function sets no search_path, its caller's search_path decides which
        // functions run in it. A function in C looks up no names.
        let loose = "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
             WHERE p.prosecdef AND p.pronamespace IN ('pgtrickle'::regnamespace, 'pgtrickle_changes'::regnamespace) \
             AND NOT coalesce(p.proconfig::text LIKE '%search_path=%', false) AND l.lanname <> 'pgtrickle_copy'";
        assert!(rows(&s, loose).await.is_empty(), "{:?}", rows(&s, loose).await);
    });
}

/// The complete list of SECURITY DEFINER functions, for a reviewer. The reviewer checks that no role can call
/// more functions than it should.
const DEFINERS: [&str; 5] =
    ["forget()", "mark_readers(oid,bigint[],text)", "on_alter()", "on_drop()", "stop_keeping(bigint)"];

/// Lists the functions that run with the rights of the catalog's owner, without the functions that capture
/// changes.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn security_definer_functions_are_listed() {
    todays_server(async |db| {
        let s = installed(db).await;
        let definers = "SELECT replace(p.oid::regprocedure::text, 'pgtrickle.', '') FROM pg_proc p \
             WHERE p.prosecdef AND p.pronamespace = 'pgtrickle'::regnamespace";
        let found: Vec<String> = rows(&s, definers).await.into_iter().flatten().flatten().collect();
        assert_eq!(found, DEFINERS);
    });
}

const SIGNATURES: &str = "SELECT format('%s(%s) → %s, %s%s', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), \
         CASE p.provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END, CASE WHEN p.proisstrict THEN ', strict' ELSE '' END) \
     FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang \
     WHERE p.pronamespace = 'pgtrickle'::regnamespace AND l.lanname = 'c' AND p.prorettype <> 'trigger'::regtype \
     AND p.prorettype <> 'event_trigger'::regtype";

/// Lists the functions that users call, with all their arguments. `TRICKLE_BLESS=1` writes the list: read the
/// diff, and compare it with the documentation.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn the_functions_are_those_that_are_promised() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pg/extension/functions.txt");
    todays_server(async |db| {
        let s = installed(db).await;
        let found: Vec<String> = rows(&s, SIGNATURES).await.into_iter().flatten().flatten().collect();
        let found = found.join("\n") + "\n";
        if std::env::var_os("TRICKLE_BLESS").is_some() {
            std::fs::write(&file, &found).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), found);
    });
}

/// The first example of docs/extension.md works.
#[test]
#[ignore = "needs the extension: ./x extension"]
fn the_first_stream_table_of_the_documentation_is_made() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/extension.md");
    let text = std::fs::read_to_string(file).unwrap();
    let (_, section) = text.split_once("## A first stream table").unwrap();
    let (_, block) = section.split_once("```sql\n").unwrap();
    let (sql, _) = block.split_once("```").unwrap();
    assert!(sql.contains("CREATE EXTENSION") && sql.contains("TABLE sales"), "{sql}");
    todays_server(async |db| {
        let s = db.session().await;
        run(&s, sql).await;
        let expected = "SELECT region, sum(amount) AS total, count(*) AS n FROM orders GROUP BY region";
        assert_eq!(rows(&s, "TABLE sales").await, rows(&s, expected).await);
    });
}

/// The documentation must install the version of cargo-pgrx that equals the version of the crate `pgrx`.
#[test]
fn the_documentation_installs_the_version_of_pgrx_that_is_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manifest = std::fs::read_to_string(root.join("crates/trickle-pgrx/Cargo.toml")).unwrap();
    let (_, version) = manifest.split_once("\npgrx = \"").unwrap();
    let (version, _) = version.split_once('"').unwrap();
    let docs = std::fs::read_to_string(root.join("docs/extension.md")).unwrap();
    let named: Vec<&str> = docs
        .split("cargo-pgrx --version ")
        .skip(1)
        .map(|rest| rest.split_whitespace().next().unwrap())
        .collect();
    assert!(named.len() == 3 && named.iter().all(|n| *n == version), "{named:?} {version}");
}

/// All unsafe code of the crate is in one module, so a reviewer of pointers reads only that module.
#[test]
fn unsafe_code_is_in_one_module() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trickle-pgrx/src");
    let mut left = vec![source];
    let mut read = 0;
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("unsafe_pg") {
                    left.push(path);
                }
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.lines().map(|l| l.split("//").next().unwrap_or_default());
            let word = |l: &str| l.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe");
            let found: Vec<&str> = code.filter(|l| word(l)).collect();
            assert!(found.is_empty(), "{}: {found:?}", path.display());
            read += 1;
        }
    }
    assert!(read > 10, "{read} files");
}
