//! A whole session with the program, from `init` to `uninstall`. The tests check exit codes, and the shapes
//! of the JSON documents on which scripts rely.

use super::{BY_REGION, Role, inventory, keys};
use crate::support::newest_server;
use serde_json::{Value, json};
use trickle_client::schema::VERSION;

#[test]
fn a_session_from_init_to_uninstall() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let before = inventory(db).await;
        let made = app.trickle(&["init", "--json"]).json();
        assert_eq!(
            made,
            json!({"catalog": VERSION, "catalog_before": null, "program": env!("CARGO_PKG_VERSION")})
        );
        // The second of two runs finds the work done, even if both run at the same time.
        app.does(&["uninstall"]);
        let both: Vec<_> = (0..2).map(|_| app.command(&["init", "--quiet"]).spawn().unwrap()).collect();
        for mut one in both {
            assert_eq!(one.wait().unwrap().code(), Some(0));
        }
        assert!(app.does(&["init"]).ends_with(&format!("catalog version {VERSION} is there already\n")));
        assert_eq!(app.trickle(&["status", "--json"]).json(), json!([]));

        created(&app);
        refreshed(db, &app).await;
        standing(&app);
        checked(db, &app).await;
        switched(db, &app).await;
        altered(&app);
        explained(&app);

        let gone = app.trickle(&["drop", "by_region", "--cascade", "--json"]).json();
        assert_eq!(gone, json!({"dropped": ["public.large", "public.by_region"]}));
        // A user's view reads the stream table. The stream table is not dropped until the user allows the
        // drop of the view.
        app.run_sql(db, "CREATE VIEW shown AS SELECT * FROM ranked").await;
        let kept = app.trickle(&["uninstall"]);
        assert_eq!((kept.code, kept.out.as_str()), (2, ""));
        assert!(
            kept.err.contains("view public.shown depends on table public.ranked")
                && kept.err.contains("--cascade"),
            "{}",
            kept.err
        );
        let gone = app.trickle(&["uninstall", "--cascade", "--json"]).json();
        assert_eq!(gone, json!({"catalog_before": VERSION, "dropped": ["public.ranked"]}));
        assert_eq!(inventory(db).await, before, "something is left");
        assert_eq!(app.does(&["uninstall"]), "there is no trickle catalog in this database\n");
        let none = app.trickle(&["refresh"]);
        assert!(none.code == 2 && none.err.contains("trickle init"), "{}", none.err);
    });
}

fn created(app: &Role) {
    let made =
        app.trickle(&["create", "by_region", "--query", BY_REGION, "--schedule", "30s", "--json"]).json();
    assert_eq!(
        keys(&made),
        [
            "created",
            "hidden_bytes",
            "hidden_tables",
            "indexes",
            "mode",
            "ms",
            "name",
            "reasons",
            "rows",
            "settings"
        ]
    );
    assert_eq!(
        (&made["name"], &made["mode"], &made["rows"]),
        (&json!("public.by_region"), &json!("DIFFERENTIAL"), &json!(3))
    );
    let again =
        app.trickle(&["create", "by_region", "--query", BY_REGION, "--if-not-exists", "--json"]).json();
    assert_eq!((&again["created"], &again["mode"]), (&json!(false), &json!("DIFFERENTIAL")));
    let large = "SELECT region, total FROM by_region WHERE total > 7000";
    assert!(
        app.does(&["create", "large", "--query", large, "--no-schedule"])
            .contains("DIFFERENTIAL, 3 rows in ")
    );
    // The query has no delta. Standard error has the reason and its position, and standard output has its
    // usual shape.
    let ranked = "SELECT id,\n  last_value(id) OVER (ORDER BY amount) AS place FROM orders";
    let ran = app.trickle(&["create", "ranked", "--query", ranked, "--no-initialize"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "public.ranked: FULL, empty until its first refresh\n"));
    assert!(ran.err.starts_with("notice: public.ranked is kept by full refreshes\n"), "{}", ran.err);
    assert!(ran.err.contains("last_value()") && ran.err.contains("query:2:3"), "{}", ran.err);
    assert_eq!(app.trickle(&["create", "ranked", "--query", ranked, "--or-replace", "--quiet"]).err, "");
}

async fn refreshed(db: &crate::support::Db, app: &Role) {
    app.run_sql(db, "UPDATE orders SET amount = amount + 1 WHERE id < 5").await;
    let done = app.trickle(&["refresh", "large", "--json"]).json();
    let members = done.as_array().unwrap();
    let names: Vec<&Value> = members.iter().map(|m| &m["name"]).collect();
    assert_eq!(names, ["public.by_region", "public.large"], "upstream first");
    for m in members {
        let expected = [
            "action",
            "delta_rows",
            "ms",
            "name",
            "phase_ms",
            "reason",
            "rows_deleted",
            "rows_inserted",
            "rows_updated",
        ];
        assert_eq!(keys(m), expected);
        assert_eq!(keys(&m["phase_ms"]), ["cleanup", "decide", "execute", "generate", "wait"]);
        let sum: f64 = m["phase_ms"].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum();
        assert!((sum - m["ms"].as_f64().unwrap()).abs() < 0.01, "{m}");
    }
    assert_eq!((&members[0]["action"], &members[0]["delta_rows"]), (&json!("DIFFERENTIAL"), &json!(8)));
    let idle = app.trickle(&["refresh", "--all", "--json"]).json();
    assert!(idle.as_array().unwrap().iter().take(2).all(|m| m["action"] == "NO_DATA"), "{idle}");
    let full = app.trickle(&["refresh", "by_region", "--full", "--json"]).json();
    assert_eq!(full[0]["action"], "FULL");
    let table = app.does(&["refresh"]);
    assert!(table.starts_with("stream table ") && table.contains("public.by_region "), "{table}");
    assert_eq!(app.does(&["refresh", "--quiet"]), "");
}

fn standing(app: &Role) {
    let all = app.trickle(&["status", "by_region", "large", "--json"]).json();
    for key in [
        "name",
        "mode",
        "requested_mode",
        "mode_reason",
        "status",
        "schedule",
        "staleness_ms",
        "last_refresh_at",
        "last_refresh",
        "consecutive_errors",
        "pending",
        "pending_changes",
        "sources",
        "last_error",
    ] {
        assert!(all[0].get(key).is_some(), "{key} is missing: {all}");
    }
    let s = &all[0];
    assert_eq!(
        (&s["mode"], &s["requested_mode"], &s["status"]),
        (&json!("DIFFERENTIAL"), &json!("AUTO"), &json!("ACTIVE"))
    );
    assert_eq!(
        (&s["schedule"], &s["staleness_ms"], &s["pending_changes"]),
        (&json!("30s"), &json!(0), &json!(0))
    );
    assert!(s["last_refresh_at"].as_str().unwrap().ends_with('Z'), "{s}");
    let history = app.trickle(&["history", "by_region", "--limit", "1", "--json"]).json();
    let last = &s["last_refresh"];
    assert!(last["action"].is_string(), "{last}");
    for key in ["action", "rows_inserted", "rows_updated", "rows_deleted"] {
        assert_eq!(last[key], history[0][key], "{key}: {last} {history}");
    }
    assert_eq!((&all[1]["schedule"], &all[1]["sources"][0]["kind"]), (&Value::Null, &json!("STREAM_TABLE")));
    let ranked = app.trickle(&["status", "ranked", "--json"]).json();
    assert_eq!((&ranked[0]["mode"], &ranked[0]["requested_mode"]), (&json!("FULL"), &json!("AUTO")));
    assert!(
        ranked[0]["mode_reason"]
            .as_str()
            .unwrap()
            .starts_with("last_value() over a frame that ends among rows"),
        "{ranked}"
    );
    assert!(app.does(&["status"]).contains("public.large "));

    let history = app.trickle(&["history", "by_region", "--limit", "2", "--json"]).json();
    assert_eq!(history.as_array().unwrap().len(), 2);
    let history = app.trickle(&["history", "by_region", "--json"]).json();
    let full = history.as_array().unwrap().iter().find(|h| h["action"] == "FULL").unwrap();
    assert_eq!((&full["initiated_by"], &full["status"]), (&json!("MANUAL"), &json!("COMPLETED")));
    assert_eq!(keys(&full["phase_ms"]), ["cleanup", "decide", "execute", "generate", "wait"]);
    assert!(app.does(&["history", "by_region"]).contains("INITIAL"));
}

async fn checked(db: &crate::support::Db, app: &Role) {
    let all = app.trickle(&["check", "--json"]).json();
    let equal = all.as_array().unwrap().iter().filter(|c| c["equal"] == true).count();
    assert_eq!((equal, all.as_array().unwrap().len()), (3, 3), "{all}");
    // `check` finds and names a row that somebody forced into the stream table. A full refresh removes the
    // row.
    let forced =
        "BEGIN; SET LOCAL pgtrickle.refreshing = 'on'; INSERT INTO large VALUES ('forged', 1); COMMIT";
    app.run_sql(db, forced).await;
    let wrong = app.trickle(&["check", "large", "--json"]);
    let found: Value = serde_json::from_str(&wrong.out).unwrap();
    assert_eq!((wrong.code, &found[0]["different"], &found[0]["equal"]), (1, &json!(1), &json!(false)));
    assert_eq!(found[0]["differences"], json!([{"row": "(forged,1)", "stored": 1, "expected": 0}]));
    let wrong = app.trickle(&["check", "--all", "--quiet"]);
    assert!(
        wrong.code == 1 && wrong.out.contains("(forged,1)") && !wrong.out.contains("by_region"),
        "{}",
        wrong.out
    );
    app.does(&["refresh", "large", "--full", "--quiet"]);
    app.does(&["check", "large"]);
}

async fn switched(db: &crate::support::Db, app: &Role) {
    let off = app.trickle(&["disable", "orders", "--json"]).json();
    assert_eq!(off, json!({"source": "public.orders", "captured": false}));
    app.run_sql(db, "DELETE FROM orders WHERE id = 7").await;
    let done = app.trickle(&["refresh", "by_region", "--json"]).json();
    assert_eq!(done[0]["action"], "FULL", "{done}");
    let on = app.trickle(&["enable", "public.orders", "--json"]).json();
    assert_eq!(on, json!({"source": "public.orders", "captured": true}));
    app.does(&["refresh", "--quiet"]);
    app.does(&["enable", "orders"]);
    app.run_sql(db, "DELETE FROM orders WHERE id = 8").await;
    let done = app.trickle(&["refresh", "by_region", "--json"]).json();
    assert_eq!((&done[0]["action"], &done[0]["delta_rows"]), (&json!("DIFFERENTIAL"), &json!(1)), "{done}");
    app.does(&["check", "--quiet"]);
    // `status` shows the query as the user typed it.
    assert_eq!(app.trickle(&["status", "by_region", "--json"]).json()[0]["query"], BY_REGION);
}

fn altered(app: &Role) {
    let alter = |args: &[&str]| {
        let all: Vec<&str> = ["alter", "by_region", "--json"].iter().chain(args).copied().collect();
        app.trickle(&all).json()
    };
    assert_eq!(alter(&["--schedule", "5m"])["schedule"], "5m");
    assert_eq!(alter(&["--no-schedule"])["schedule"], Value::Null);
    assert_eq!(alter(&["--suspend"])["status"], "SUSPENDED");
    let rest = app.trickle(&["refresh", "--json"]).json();
    assert!(rest.as_array().unwrap().iter().any(|m| m["name"] == "public.ranked"), "{rest}");
    assert_eq!(alter(&["--resume", "--schedule", "0 6 * * *"])["status"], "ACTIVE");
    let full = alter(&["--mode", "full"]);
    assert_eq!(
        (&full["mode"], &full["requested_mode"], &full["query"]),
        (&json!("FULL"), &json!("FULL"), &json!(BY_REGION))
    );
    let auto = alter(&["--mode", "auto"]);
    assert_eq!(
        (&auto["mode"], &auto["schedule"], &auto["pending"]),
        (&json!("DIFFERENTIAL"), &json!("0 6 * * *"), &json!(false))
    );
    let query = BY_REGION.replace("AS total", "AS total, max(o.amount) AS largest");
    assert_eq!(alter(&["--query", &query])["query"], query);
    app.trickle(&["check", "--quiet"]);
}

fn explained(app: &Role) {
    let text = app.does(&["explain", "by_region"]);
    assert!(
        text.contains("TableDelta public.orders")
            && text.contains("CREATE INDEX ON public.orders (customer);"),
        "{text}"
    );
    let json = app.trickle(&["explain", "by_region", "--json"]).json();
    assert_eq!(json["incremental"], true);
    // A lookup by a key needs no other index.
    assert!(
        !app.does(&[
            "explain",
            "--query",
            "SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer"
        ])
        .contains("ON public.customers")
    );
    let sql = app.trickle(&["explain", "ranked", "--format", "sql"]);
    for part in [
        "-- last_value() over a frame",
        "CREATE TABLE public.ranked (id integer",
        "INSERT INTO public.ranked",
    ] {
        assert!(sql.code == 1 && sql.out.contains(part), "{part} is missing: {}", sql.out);
    }
    let full = app.trickle(&["explain", "ranked"]);
    assert!(full.code == 1 && full.out.contains("last_value()"), "{}", full.out);
}

/// The program names the missing index, the stream tables that need it, and the work that the index saves.
/// When the index exists, the program reports no missing index.
#[test]
fn missing_indexes_are_told_with_what_they_would_save() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        app.does(&["init"]);
        let tables = "CREATE TABLE shops (id int PRIMARY KEY, name text NOT NULL);
            CREATE TABLE parts (id int PRIMARY KEY, shop int NOT NULL);
            INSERT INTO shops SELECT i, 's' || i FROM generate_series(1, 10) i;
            INSERT INTO parts SELECT i, i % 10 + 1 FROM generate_series(1, 1000) i; ANALYZE shops, parts";
        app.run_sql(db, tables).await;
        let query = "SELECT p.id, s.name FROM parts p JOIN shops s ON s.id = p.shop";
        app.does(&["create", "sold", "--query", query]);
        app.does(&["create", "listed", "--query", query]);
        let told = app.does(&["status", "--indexes"]);
        let why = "a change of \"shops\" looks up rows of \"parts\" by shop, and no index finds them";
        let gain = "rows that are read each time: 1000; with it, about 100 for each that changed";
        let each = |name: &str| format!("    public.{name}: {why}\n      {gain}\n");
        let both = format!("{}{}", each("sold"), each("listed"));
        let all = format!("\nIndexes that would help\n  CREATE INDEX ON public.parts (shop);\n{both}");
        assert!(told.ends_with(&all), "{told}");
        let told = app.trickle(&["status", "sold", "--indexes", "--json"]).json();
        let statement = "CREATE INDEX ON public.parts (shop)";
        let index = json!({"statement": statement, "reads_rows": 1000.0, "finds_rows": 100.0});
        assert_eq!(told[0]["indexes"], json!([index]));
        assert!(app.does(&["explain", "sold"]).contains(&format!("  {statement};\n    {gain}\n")));
        app.run_sql(db, statement).await;
        assert!(app.does(&["status", "--indexes"]).ends_with("\nno index is missing\n"));
        app.does(&["uninstall"]);
    });
}
