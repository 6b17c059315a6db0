//! Bad input. The exit code is 2, a message names the fault and its position, a hint gives advice, and the
//! database is unchanged.

use super::{BY_REGION, Role, inventory};
use crate::support::{Db, newest_server};
use serde_json::Value;
use trickle_client::schema::VERSION;
use trickle_client::{Settings, Trickle};

/// Runs the program with bad input, and asserts that standard error contains these parts.
async fn refused(db: &Db, role: &Role, args: &[&str], parts: &[&str]) {
    let before = inventory(db).await;
    let ran = role.trickle(args);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "trickle {args:?}\n{}", ran.err);
    for part in parts {
        assert!(ran.err.contains(part), "trickle {args:?} does not say {part:?}:\n{}", ran.err);
    }
    let hint = ["hint: ", "Help: ", "--help"].iter().any(|h| ran.err.contains(h));
    assert!(hint, "trickle {args:?} gives no hint:\n{}", ran.err);
    assert_eq!(inventory(db).await, before, "trickle {args:?} left something");
}

/// Queries that no stream table can have. Each has parts of its message.
const QUERIES: &[(&str, &[&str])] = &[
    ("SELEC 1", &["syntax error at or near \"SELEC\"", "query:1:1"]),
    ("", &["syntax error at end of input", "query:1:1"]),
    ("SELECT id FROM orders WHERE", &["syntax error at end of input", "query:1:28"]),
    ("SELECT 1; DROP TABLE orders", &["another statement after the query", "query:1:11"]),
    ("SELECT id\nFROM nowhere", &["relation \"nowhere\" does not exist", "query:2:6"]),
    ("SELECT id FROM \"ordrs\"", &["relation \"ordrs\" does not exist", "Did you mean orders?"]),
    ("SELECT id FROM public.custmers", &["relation \"public.custmers\"", "Did you mean customers?"]),
    ("SELECT cuont(*) FROM orders", &["function cuont() does not exist", "Did you mean count?"]),
    ("SELECT amont FROM orders", &["column \"amont\" does not exist", "query:1:8", "orders.amount"]),
    ("SELECT id, id FROM orders", &["column \"id\" specified more than once", "query:1:12"]),
    ("SELECT id AS xmin FROM orders", &["column \"xmin\" has the name of a system column", "query:1:14"]),
    ("SELECT id, random() AS r FROM orders", &["the volatile function random()", "query:1:12"]),
    ("SELECT id FROM orders TABLESAMPLE SYSTEM (10)", &["TABLESAMPLE", "query:1:16"]),
    ("SELECT id FROM orders FOR UPDATE", &["FOR UPDATE", "It does more than read"]),
    ("SELECT id FROM orders FOR KEY SHARE", &["FOR UPDATE or FOR SHARE", "It does more than read"]),
    ("SELECT id FROM orders FOR NO KEY UPDATE", &["FOR UPDATE or FOR SHARE", "It does more than read"]),
    ("SELECT 1 / 0 AS x", &["division by zero"]),
    (
        "SELECT j.b FROM JSON_TABLE('{}', '$' COLUMNS (a int PATH '$.a')) AS j (b)",
        &["have other names behind the alias", "query:1:69", "COLUMNS"],
    ),
    (
        "SELECT id AS a, id AS b, count(*) AS n FROM orders GROUP BY CUBE (1, 2)",
        &["the expression of b more than once", "(x + 0) AS b"],
    ),
    ("SELECT pgt_name FROM pgtrickle.pgt_stream_tables", &["belongs to trickle"]),
];

#[test]
fn bad_definitions_change_nothing() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--quiet"]);
        app.does(&[
            "create",
            "large",
            "--query",
            "SELECT region, total FROM by_region WHERE total > 1",
            "--quiet",
        ]);
        for (query, parts) in QUERIES {
            refused(db, &app, &["create", "bad", "--query", query], parts).await;
        }
        let one = "SELECT 1 AS x";
        let ranked = "SELECT id, last_value(id) OVER (ORDER BY amount) AS place FROM orders";
        app.trickle(&["create", "ranked", "--query", ranked, "--quiet"]);
        app.run_sql(db, "CREATE VIEW seen AS SELECT place FROM ranked").await;
        let cases: &[(&[&str], &[&str])] = &[
            (&["create", "by_region", "--query", one], &["public.by_region already exists", "--or-replace"]),
            (&["create", "orders", "--query", one], &["public.orders already exists and is no stream table"]),
            (&["create", "nowhere.bad", "--query", one], &["schema \"nowhere\" does not exist"]),
            (&["create", "pgtrickle.bad", "--query", one], &["schema pgtrickle belongs to trickle"]),
            (&["create", "pgtrickle_changes.bad", "--query", one], &["schema pgtrickle_changes belongs to"]),
            (&["create", "bad", "--file", "/nonexistent/q.sql"], &["cannot read \"/nonexistent/q.sql\""]),
            (&["create", "a.b.c", "--query", one], &["more than two parts"]),
            (
                &["create", "bad", "--query", one, "--schedule", "fortnightly"],
                &["invalid schedule \"fortnightly\"", "30s"],
            ),
            (&["create", "bad", "--query", ranked, "--mode", "immediate"], &["query:1:12", "--mode auto"]),
            (&["create", "bad", "--query", ranked, "--mode", "differential"], &["query:1:12", "--mode auto"]),
            (&["create", "bad", "--query", one, "--mode", "sometimes"], &["differential, full, immediate"]),
            (&["create", "bad"], &["--query <SQL>"]),
            (
                &[
                    "create",
                    "by_region",
                    "--or-replace",
                    "--query",
                    "SELECT region, 1::bigint AS orders, total FROM large",
                ],
                &["cycle", "public.by_region → public.large → public.by_region"],
            ),
            (&["alter", "by_region", "--query", "SELECT * FROM large"], &["cycle"]),
            (&["alter", "by_region", "--query", "SELECT nope"], &["query:1:8"]),
            (&["alter", "by_region", "--schedule", "61 * * * *"], &["invalid cron line \"61 * * * *\""]),
            (&["alter", "by_region"], &["nothing is said"]),
            (&["drop", "by_region"], &["public.large", "--cascade"]),
            (&["alter", "ranked", "--mode", "differential"], &["last_value(", "--mode auto"]),
            (
                &["alter", "ranked", "--query", "SELECT id FROM orders"],
                &["view public.seen depends on", "Drop what depends on it"],
            ),
            (
                &["create", "bad", "--query", one, "--load-connections", "0"],
                &["load_connections is at least 1"],
            ),
            (&["create", "bad", "--query", one, "--connections", "0"], &["load_connections is at least 1"]),
            (&["history", "by_region", "--limit", "0"], &["'--limit <N>'"]),
            (&["refresh", "--merge-work-mem-mb", "0"], &["merge_work_mem_mb is at least 1"]),
            (&["wait", "by_region", "--timeout", "soon"], &["30s"]),
            (&["enable", "nowhere"], &["no stream table reads nowhere"]),
            (&["disable", "nowhere"], &["no stream table reads nowhere"]),
            (&["explain", "--query", "SELECT nope FROM orders"], &["query:1:8"]),
        ];
        for (args, parts) in cases {
            refused(db, &app, args, parts).await;
        }
        let json = app.trickle(&["create", "bad", "--query", "SELECT nope FROM orders", "--json"]);
        let error = &serde_json::from_str::<Value>(&json.err).unwrap()["error"];
        assert_eq!((json.code, json.out.as_str(), &error["sqlstate"]), (2, "", &"42703".into()), "{error}");
        assert_eq!((&error["findings"][0]["column"], &error["exit_code"]), (&8.into(), &2.into()), "{error}");
        for command in ["alter", "drop", "refresh", "status", "history", "wait", "check", "explain"] {
            let mut args = vec![command, "nowhere"];
            args.extend((command == "alter").then_some("--suspend"));
            refused(db, &app, &args, &["there is no stream table nowhere"]).await;
        }
        app.does(&["check", "--quiet"]);
    });
}

/// A query that fails in its first fill changes nothing. No new stream table is left, and an existing stream
/// table keeps its properties.
#[test]
fn a_query_that_cannot_fill_changes_nothing() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--quiet"]);
        let ranked = "SELECT id, last_value(id) OVER (ORDER BY amount) AS place FROM orders";
        app.trickle(&["create", "ranked", "--query", ranked, "--quiet"]);
        // The columns of `orders` are captured already, so the failed creation would change no buffer.
        let before = inventory(db).await;
        let ran = app.trickle(&["create", "bad", "--query", "SELECT 1 / (customer - 5) AS x FROM orders"]);
        assert!(ran.code == 1 && ran.err.contains("public.bad: division by zero"), "{}", ran.err);
        assert_eq!(inventory(db).await, before);
        // A failed replacement leaves the former properties of existing stream tables.
        let standing = || app.trickle(&["status", "by_region", "ranked", "--json"]).json();
        let kept = |all: &Value| {
            let of = |s: &Value| {
                ["query", "mode", "schedule", "status", "consecutive_errors", "last_error"]
                    .map(|k| s[k].clone())
            };
            all.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
        };
        let was = standing();
        let failing = "SELECT region, count(*) AS orders, sum(1 / (customer - 5)) AS total FROM customers c \
                       JOIN orders o ON o.customer = c.id GROUP BY region";
        for args in [
            &["alter", "by_region", "--query", failing][..],
            &["create", "by_region", "--or-replace", "--query", failing],
            &[
                "alter",
                "ranked",
                "--query",
                "SELECT 1 / (amount - amount) AS place, 1 / id AS id FROM orders",
            ],
        ] {
            let ran = app.trickle(args);
            assert!(ran.code != 0 && ran.out.is_empty(), "{args:?}: {}", ran.err);
            assert_eq!(kept(&standing()), kept(&was), "{args:?}");
        }
        app.does(&["check", "--quiet"]);
    });
}

#[test]
fn missing_rights_are_reported_with_the_grant_that_helps() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let stranger = Role::create(db, "stranger").await;
        let settings = "CREATE TABLE secret (id int PRIMARY KEY); CREATE SCHEMA locked; CREATE SCHEMA shown; \
                        GRANT USAGE ON SCHEMA shown TO PUBLIC";
        db.session().await.client().batch_execute(settings).await.unwrap();
        refused(db, &stranger, &["init"], &["permission denied", "GRANT CREATE ON DATABASE"]).await;
        app.does(&["init", "--quiet"]);
        refused(
            db,
            &app,
            &["create", "bad", "--query", "SELECT id FROM secret"],
            &["permission denied for table secret"],
        )
        .await;
        refused(
            db,
            &app,
            &["create", "locked.bad", "--query", "SELECT 1 AS x"],
            &["GRANT USAGE, CREATE ON SCHEMA locked"],
        )
        .await;
        let temporary = "DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC, %I', \
             current_database(), session_user); END $$";
        app.run_sql(db, temporary).await;
        let lacking = ["permission denied to create temporary", "GRANT TEMPORARY ON DATABASE"];
        refused(db, &app, &["create", "bad", "--query", "SELECT 1 AS x"], &lacking).await;
        app.run_sql(db, &temporary.replace("REVOKE", "GRANT").replace("FROM", "TO")).await;
        for args in [
            &["status"][..],
            &["init"],
            &["uninstall"],
            &["refresh"],
            &["create", "bad", "--query", "SELECT 1 AS x"],
        ] {
            refused(db, &stranger, args, &["permission denied for schema pgtrickle", "another role"]).await;
        }
        // The role may read this table but may not capture it. A stream table over it gets full refreshes,
        // and a message gives the reason.
        let grant = format!("GRANT SELECT ON secret TO {}", app.name);
        db.session().await.client().batch_execute(&grant).await.unwrap();
        let ran = app.trickle(&["create", "read", "--query", "SELECT id FROM secret"]);
        assert!(
            ran.code == 0 && ran.out.contains("FULL") && ran.err.contains("public.secret of postgres"),
            "{}",
            ran.err
        );
        let taken = "CREATE SCHEMA pgtrickle";
        app.does(&["uninstall", "--quiet"]);
        app.run_sql(db, taken).await;
        refused(db, &app, &["init"], &["schema \"pgtrickle\" already exists"]).await;
    });
}

/// No command changes a catalog that another version of the program made.
#[test]
fn a_catalog_of_another_version_is_refused() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        app.does(&["init", "--quiet"]);
        app.does(&["create", "by_region", "--query", BY_REGION, "--quiet"]);
        let of_version = async |v: i32| {
            app.run_sql(db, &format!("UPDATE pgtrickle.pgt_catalog_version SET version = {v}")).await;
        };
        let asked: &[&[&str]] = &[
            &["create", "bad", "--query", "SELECT 1 AS x"],
            &["alter", "by_region", "--suspend"],
            &["drop", "by_region"],
            &["refresh"],
            &["status"],
            &["history", "by_region"],
            &["wait", "by_region"],
            &["check"],
            &["disable", "orders"],
            &["enable", "orders"],
            &["explain", "by_region"],
            &["run"],
            &["uninstall"],
        ];
        of_version(VERSION + 1).await;
        let newer = format!("is version {}, and this program knows versions up to {VERSION}", VERSION + 1);
        for args in asked.iter().chain([&["init"][..]].iter()) {
            refused(db, &app, args, &[&newer, "Use the newer trickle"]).await;
        }
        let doctor = app.trickle(&["doctor"]);
        assert!(doctor.code == 1 && doctor.out.contains("Use the newer trickle"), "{}", doctor.out);
        of_version(VERSION - 1).await;
        let older = format!("is version {}, and version {VERSION} is needed", VERSION - 1);
        for args in asked {
            refused(db, &app, args, &[&older, "Run trickle init"]).await;
        }
        of_version(VERSION).await;
        app.does(&["check", "--quiet"]);
    });
}

/// Each version of the catalog can be undone. Undoing all versions leaves no objects, and making all versions
/// again gives the same catalog.
#[test]
fn the_catalog_goes_down_and_up_again() {
    newest_server(async |db| {
        let mut t = Trickle::attach(db.session().await, Settings::default()).await.unwrap();
        let before = inventory(db).await;
        let mut seen = Vec::new();
        for v in 1..=VERSION {
            assert_eq!(t.migrate(v).await.unwrap(), (v > 1).then_some(v - 1));
            seen.push(inventory(db).await);
        }
        for v in (0..VERSION).rev() {
            assert_eq!(t.migrate(v).await.unwrap(), Some(v + 1));
            let expected = usize::try_from(v - 1).map_or(&before, |i| &seen[i]);
            assert_eq!(&inventory(db).await, expected, "back at version {v}");
        }
        assert_eq!(t.migrate(VERSION).await.unwrap(), None);
        assert_eq!(Some(&inventory(db).await), seen.last());
        assert!(t.migrate(VERSION + 1).await.unwrap_err().is_input());
    });
}
