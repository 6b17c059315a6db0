//! `trickle bench`, small: every scenario is measured in each of its ways and comes out as its query says, and nothing is left.

use super::{Role, keys};
use crate::support::each_server;

#[test]
fn the_matrix_measures_every_scenario_and_leaves_nothing() {
    each_server(async |db| {
        let app = Role::owner(db).await;
        let small = ["bench", "--rows", "300", "--pct", "1,20", "--cycles", "3", "--json"];
        let ran = app.trickle(&small);
        let shown = ran.json();
        assert_eq!(keys(&shown), ["cells", "server", "target"]);
        let cells = shown["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 2 * 13);
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

        // What was there stays, and what somebody else has under the name is not touched.
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
