//! A linked stream table reads another stream table. The delta of the reader expects as many changed rows as
//! the delta of its source has written.

use crate::support::{assert_equal, create, name, newest_server, open, run};
use serde_json::Value;
use trickle_client::{Plans, RefreshOptions};

/// Returns the number of rows that sequential scans of a plan read from tables other than buffers.
fn scanned(plan: &Value) -> f64 {
    let is_buffer = plan["Relation Name"].as_str().is_some_and(|r| r.starts_with("changes_"));
    let own = match plan["Node Type"].as_str() {
        Some("Seq Scan") if !is_buffer => {
            let times = plan["Actual Loops"].as_f64().unwrap();
            let removed = plan["Rows Removed by Filter"].as_f64().unwrap_or(0.0);
            times * (plan["Actual Rows"].as_f64().unwrap() + removed)
        }
        _ => 0.0,
    };
    own + plan["Plans"].as_array().into_iter().flatten().map(scanned).sum::<f64>()
}

/// The server would estimate the number of new changes from the size of the buffer. The expected number of
/// rows is right even for buffers with many old changes.
#[test]
fn a_change_down_a_chain_is_looked_up_by_key_in_each_table() {
    newest_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        let made = "CREATE TABLE s (id int PRIMARY KEY, v numeric NOT NULL); \
                    INSERT INTO s SELECT i, i FROM generate_series(1, 20000) i; VACUUM ANALYZE s";
        for sql in made.split(';') {
            run(&w, sql).await;
        }
        create(&mut t, "a", "SELECT id, v + 1 AS v FROM s WHERE v <> 7").await;
        create(&mut t, "b", "SELECT x.id, x.v + y.v AS v FROM a x JOIN a y ON x.id = y.id").await;
        create(&mut t, "c", "SELECT id, sum(v) AS v, max(v) AS most FROM b GROUP BY id").await;
        create(&mut t, "d", "SELECT x.id, y.most FROM c x LEFT JOIN c y ON x.id = y.id AND y.v > 8").await;
        for table in ["a", "b", "c", "d"] {
            run(&w, &format!("VACUUM ANALYZE {table}")).await;
        }
        let names = ["a", "b", "c", "d"].map(name);
        run(&w, "UPDATE s SET v = v + 1 WHERE id <= 500").await;
        t.refresh(&names, &RefreshOptions::default()).await.unwrap();
        run(&w, "UPDATE s SET v = v + 1 WHERE id = 4321").await;
        let mut plans = Plans::default();
        let done = t.refresh_watched(&names, &RefreshOptions::default(), &mut plans).await.unwrap();
        assert!(done.iter().all(|d| d.report.strategy.is_incremental()), "{done:?}");
        assert_eq!(plans.taken.len(), 4);
        for (text, plan) in &plans.taken {
            assert_eq!(scanned(&plan[0]["Plan"]), 0.0, "{text}\n{plan:#}");
        }
        for table in ["a", "b", "c", "d"] {
            assert_equal(&mut t, table).await;
        }
    });
}
