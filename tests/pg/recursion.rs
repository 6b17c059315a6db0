//! Recursion from end to end. The tests catch errors that only many rounds and random graphs on a real server
//! show.

use crate::support::{Db, Driver, assert_equal, create, newest_server, open_with, refresh};
use trickle_client::Settings;
use trickle_core::cost::Force;
use trickle_core::refresh::Action;
use trickle_core::testing::Choice;

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, parent int); CREATE INDEX ON t (parent);
CREATE TABLE e (src int, dst int);";

const DEPTH: &str = "WITH RECURSIVE r AS (SELECT id, 1 AS depth FROM t WHERE parent IS NULL
UNION ALL SELECT t.id, r.depth + 1 FROM r JOIN t ON t.parent = r.id) SELECT id, depth FROM r";
const REACHED: &str = "WITH RECURSIVE r AS (SELECT id FROM t WHERE parent IS NULL
UNION SELECT t.id FROM r JOIN t ON t.parent = r.id) SELECT id FROM r";

/// Opens a driver whose refreshes use deltas, whatever the cost of the deltas.
async fn incremental(db: &Db) -> Driver {
    open_with(db, Settings { force: Some(Force::Incremental), ..Settings::default() }).await
}

async fn is_followed(t: &mut Driver, st: &str, change: &str) {
    let done = refresh(t, st).await;
    assert_ne!(done[0].report.action, Action::Full, "{st}, {change}: {:?}", done[0].report.reason);
    assert_equal(t, st).await;
}

/// A chain of 10,000 rows grows, is cut in the middle, and is joined again.
#[test]
fn a_chain_of_ten_thousand_is_not_cut_off() {
    newest_server(async |db| {
        let mut t = incremental(db).await;
        t.connection().client().batch_execute(TABLES).await.unwrap();
        let chain = "INSERT INTO t SELECT i, nullif(i - 1, 0) FROM generate_series(1, 10000) i; ANALYZE t";
        t.connection().client().batch_execute(chain).await.unwrap();
        create(&mut t, "depths", DEPTH).await;
        create(&mut t, "reached", REACHED).await;
        for change in [
            "INSERT INTO t SELECT i, i - 1 FROM generate_series(10001, 10010) i",
            "UPDATE t SET parent = 100000 WHERE id = 5000",
            "UPDATE t SET parent = 4999 WHERE id = 5000",
            "UPDATE t SET parent = 10010 WHERE id = 2",
            "UPDATE t SET parent = 1 WHERE id = 2",
        ] {
            t.connection().client().batch_execute(change).await.unwrap();
            for st in ["depths", "reached"] {
                is_followed(&mut t, st, change).await;
            }
        }
    });
}

const PAIRS: &str =
    "WITH RECURSIVE r AS (SELECT src, dst FROM e UNION SELECT r.src, e.dst FROM r JOIN e ON e.src = r.dst)
SELECT src, dst FROM r";
const MARKED: &str = "WITH RECURSIVE r AS (SELECT dst, 0 AS steps FROM e WHERE src = 0
UNION ALL SELECT e.dst, r.steps + 1 FROM r JOIN e ON e.src = r.dst) CYCLE dst SET closes USING way
SELECT dst, steps, closes FROM r";
const AROUND: &str =
    "WITH RECURSIVE r AS (SELECT dst FROM e WHERE src = 0 UNION SELECT e.dst FROM r JOIN e ON e.src = r.dst)
SELECT dst FROM r";

/// Edges among a few nodes are inserted and deleted at random. The table has no key, and both ends of an edge
/// may be NULL.
#[test]
fn random_graphs_stay_equal() {
    newest_server(async |db| {
        let mut t = incremental(db).await;
        t.connection().client().batch_execute(TABLES).await.unwrap();
        t.connection()
            .client()
            .batch_execute("INSERT INTO e VALUES (0, 1), (1, 2), (2, 3), (3, 1), (4, 5)")
            .await
            .unwrap();
        for (name, query) in [("pairs", PAIRS), ("marked", MARKED), ("around", AROUND)] {
            create(&mut t, name, query).await;
        }
        let mut choice = Choice::seeded(7);
        for _ in 0..40 {
            let mut changes = String::new();
            for _ in 0..=choice.below(3) {
                let (src, dst) = (choice.below(6), choice.below(7));
                let end = if dst == 6 { "NULL".to_owned() } else { dst.to_string() };
                let change = match choice.below(5) {
                    0 | 1 => format!("INSERT INTO e VALUES ({src}, {end})"),
                    2 => format!("UPDATE e SET dst = {end} WHERE src = {src}"),
                    _ => format!("DELETE FROM e WHERE ctid = (SELECT ctid FROM e WHERE src = {src} LIMIT 1)"),
                };
                t.connection().client().batch_execute(&change).await.unwrap();
                changes += &format!("{change}; ");
            }
            for st in ["pairs", "marked", "around"] {
                is_followed(&mut t, st, &changes).await;
            }
        }
    });
}
