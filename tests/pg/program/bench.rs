//! `trickle bench` with small data. The command measures every scenario in each of its modes, checks the
//! results, and leaves no objects behind.

use super::{Role, keys};
use crate::support::{newest_server, planted};
use serde_json::Value;
use trickle_client::throwaway;

#[test]
fn the_matrix_measures_every_scenario_and_leaves_nothing() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let small = ["bench", "--rows", "300", "--pct", "1,20", "--cycles", "3", "--json"];
        let ran = app.trickle(&small);
        let shown = ran.json();
        assert_eq!(keys(&shown), ["cells", "server", "statements", "target"]);
        let sent = |what: &str| shown["statements"][what].as_u64().unwrap();
        assert!(sent("kept_prepared") > 0 && sent("all") > sent("kept_prepared"), "{}", shown["statements"]);
        let cells = shown["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2 * 17);
        for c in cells {
            let ways = c["ways"].as_object().unwrap();
            assert_eq!(keys(&c["ways"]), ["full", "hand", "incremental"], "{c}");
            assert!(ways.values().all(|w| w["p50_ms"].as_f64().unwrap() > 0.0), "{c}");
        }
        let line = "[BENCH_CYCLE] scenario=scan rows=300 pct=1 cycle=3 mode=hand ms=";
        assert!(ran.err.contains(line), "{}", ran.err);
        let s = db.session().await;
        let left = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('trickle_bench', 'pgtrickle')";
        assert_eq!(s.client().query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);

        // An existing catalog stays. The benchmark leaves a schema `trickle_bench` as it is if somebody else
        // made it.
        app.trickle(&["init"]);
        app.trickle(&[
            "bench",
            "--scenario",
            "scan",
            "--rows",
            "300",
            "--pct",
            "1",
            "--cycles",
            "1",
            "--json",
        ])
        .json();
        assert_eq!(s.client().query_one(left, &[]).await.unwrap().get::<_, i64>(0), 1);
        app.run_sql(db, "CREATE SCHEMA trickle_bench").await;
        let refused = app.trickle(&small);
        assert_eq!(refused.code, 2);
        assert!(refused.err.contains("schema trickle_bench exists"), "{}", refused.err);
    });
}

/// Triggers of each kind capture every write, and the benchmark leaves no objects behind.
#[test]
fn capture_is_measured_beside_an_experts_triggers() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let small = ["--statement-rows", "2000", "--writers", "1,2", "--cycles", "1", "--json"];
        let shown = app.trickle(&[&["bench", "--capture"], &small[..]].concat()).json();
        let rows = shown["capture"].as_array().unwrap();
        assert_eq!(rows.len(), 4 * 5, "{shown}");
        for row in rows {
            assert_eq!(keys(&row["p50_ms"]), ["hand", "row", "statement", "unlogged", "untracked"], "{row}");
            assert!(
                row["p50_ms"].as_object().unwrap().values().all(|ms| ms.as_f64().unwrap() > 0.0),
                "{row}"
            );
        }
        let s = db.session().await;
        let left = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('trickle_bench', 'pgtrickle')";
        assert_eq!(s.client().query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
    });
}

/// Every query of TPC-H has the same result as a recompute. The benchmark shows its plan, and leaves no
/// objects behind.
#[test]
fn tpch_is_measured_and_its_plans_are_kept() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let plans = std::env::temp_dir().join(format!("trickle-plans-{}-{}", std::process::id(), db.major()));
        let run =
            ["bench", "--tpch", "0.01", "--cycles", "2", "--json", "--explain", plans.to_str().unwrap()];
        let ran = app.trickle(&run);
        let cells = ran.json()["cells"].as_array().unwrap().clone();
        assert_eq!(cells.len(), 22);
        assert!(cells.iter().all(|c| keys(&c["ways"]) == ["full", "incremental"]), "{cells:?}");
        assert!(ran.err.contains("mode=incremental ms=") && ran.err.contains(" strategy="), "{}", ran.err);
        for c in &cells {
            let file = plans.join(format!("{}-60000-0.1.json", c["scenario"].as_str().unwrap()));
            let kept: serde_json::Value =
                serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            let statements = kept.as_array().unwrap();
            assert!(statements.iter().all(|s| s["plan"][0]["Execution Time"].is_number()), "{kept}");
        }
        std::fs::remove_dir_all(&plans).unwrap();
        let s = db.session().await;
        let left = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('trickle_bench', 'pgtrickle')";
        assert_eq!(s.client().query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
    });
}

/// Stream tables over stream tables have the same result as a recompute. The benchmark leaves no objects
/// behind.
#[test]
fn chains_and_graphs_are_measured() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let ran = app.trickle(&["bench", "--dag", "--rows", "100", "--cycles", "2", "--json"]);
        let cells = ran.json()["cells"].as_array().unwrap().clone();
        assert_eq!(cells.len(), 2);
        assert!(cells.iter().all(|c| keys(&c["ways"]) == ["full", "incremental"]), "{cells:?}");
        assert!(
            ran.err.contains("scenario=dag_60 rows=100 pct=1 cycle=2 mode=incremental ms="),
            "{}",
            ran.err
        );
        let s = db.session().await;
        let left = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('trickle_bench', 'pgtrickle')";
        assert_eq!(s.client().query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
    });
}

/// The benchmark measures checks of one stream table and of many, and leaves no objects behind.
#[test]
fn looks_at_what_is_idle_are_measured() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let shown =
            app.trickle(&["bench", "--idle", "--stream-tables", "20", "--cycles", "1", "--json"]).json();
        let rows = shown["idle"].as_array().unwrap();
        let of = |row: &Value| (row["stream_tables"].clone(), row["sources"].clone());
        let sizes: Vec<_> = rows.iter().map(of).collect();
        assert_eq!(sizes, [(1.into(), 1.into()), (20.into(), 1.into()), (20.into(), 20.into())]);
        for row in rows {
            let ms = |what: &str| row[what]["p50"].as_f64().unwrap();
            assert!(ms("look_ms") > 0.0 && ms("catalog_ms") > 0.0, "{row}");
        }
        let s = db.session().await;
        let left = "SELECT count(*) FROM pg_namespace WHERE nspname IN ('trickle_bench', 'pgtrickle')";
        assert_eq!(s.client().query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
    });
}

/// The command compares two runs cell by cell, and refuses a file that is not the output of a run.
#[test]
fn runs_are_compared() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        let run =
            ["bench", "--scenario", "scan,top_k", "--rows", "300", "--pct", "5", "--cycles", "2", "--json"];
        let directory = std::env::temp_dir();
        let file = |name: &str| {
            directory.join(format!("trickle-bench-{}-{}-{name}", std::process::id(), db.major()))
        };
        let (before, after) = (file("before.json"), file("after.json"));
        for path in [&before, &after] {
            std::fs::write(path, app.trickle(&run).json().to_string()).unwrap();
        }
        let paths = [before.to_str().unwrap(), after.to_str().unwrap()];
        let shown = app.trickle(&["bench", "--compare", paths[0], paths[1]]);
        assert!(shown.code == 0 && shown.out.contains("scan") && shown.out.contains(" %"), "{}", shown.out);
        std::fs::write(&after, "{}").unwrap();
        let refused = app.trickle(&["bench", "--compare", paths[0], paths[1]]);
        assert!(
            refused.code == 2 && refused.err.contains("what trickle bench --json printed"),
            "{}",
            refused.err
        );
        [before, after].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    });
}

/// The command measures the latency of each way of reading changes while writers write. The command also
/// measures the cost of an idle refresher.
#[test]
fn latency_is_measured_from_commit_to_visible() {
    latency(&[]);
}

/// Measures the latency with these additional options, and returns the part of the output about an idle
/// database.
pub(crate) fn latency(more: &[&str]) -> Value {
    let (_, binaries) = throwaway::find().unwrap().pop_last().unwrap();
    let args = ["bench", "--private", "--latency", "--rate", "200", "--seconds", "1", "--json"];
    let args = [&args, more].concat();
    let out = planted::output(planted::program().args(args).env("TRICKLE_PG_BINS", binaries));
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    let shown: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(keys(&shown), ["idle", "rate", "schedule", "server", "synchronous_commit", "ways", "writers"]);
    assert_eq!((&shown["rate"], &shown["writers"]), (&200.into(), &16.into()));
    assert_eq!(shown["synchronous_commit"], "on");
    let ways = shown["ways"].as_array().unwrap();
    let seen: Vec<&Value> = ways.iter().filter(|w| w["probes"].as_u64().unwrap() > 0).collect();
    assert!(ways.len() > 1 && !seen.is_empty(), "{shown}");
    for way in ways {
        assert!(way["transactions_per_second"].as_f64().unwrap() > 0.0, "{way}");
        assert!(way["commit_ms"]["p50"].as_f64() <= way["commit_ms"]["p99"].as_f64(), "{way}");
    }
    for way in seen {
        assert!(way["visible_ms"]["p50"].as_f64().unwrap() > 0.0, "{way}");
    }
    shown["idle"].clone()
}
