//! Deltas of recursive queries over trees.

use super::MOST;
use super::explained::{Tables, buffer, update};
use crate::support::newest_server;
use std::collections::BTreeSet;

const TREE: &str = "CREATE TABLE tree (id int PRIMARY KEY, parent int, name text);";

/// A tree of 100,000 rows, with ten children below each row and five levels.
const TREE_ROWS: &str = "
INSERT INTO tree SELECT i, nullif((i + 8) / 10, 0), 'n' || i FROM generate_series(1, 100000) i;
CREATE INDEX ON tree (parent);
ANALYZE tree;";

/// Name and text of the queries.
const RECURSIVE: &[(&str, &str)] = &[
    (
        "tree with depth",
        "WITH RECURSIVE r AS (SELECT id, 1 AS depth, name AS path FROM tree WHERE parent IS NULL
        UNION ALL SELECT t.id, r.depth + 1, r.path || '/' || t.name FROM r JOIN tree t ON t.parent = r.id)
        SELECT id, depth, path FROM r",
    ),
    (
        "ancestors",
        "WITH RECURSIVE r AS (SELECT id, parent FROM tree WHERE parent IS NOT NULL
        UNION SELECT r.id, t.parent FROM r JOIN tree t ON t.id = r.parent WHERE t.parent IS NOT NULL)
        SELECT id, parent FROM r",
    ),
    (
        "reachable",
        "WITH RECURSIVE r AS (SELECT id FROM tree WHERE parent IS NULL
        UNION SELECT t.id FROM r JOIN tree t ON t.parent = r.id) SELECT id FROM r",
    ),
];

/// A leaf is inserted. Under UNION ALL a leaf is also deleted and moved. Each change is one row, and only a
/// few paths of the recursion reach that row.
#[test]
fn a_leaf_of_a_tree_is_followed_alone() {
    newest_server(async |db| {
        let tables = Tables::filled(db, TREE, TREE_ROWS).await;
        let tree = tables.table("tree");
        let buffer = buffer(tree);
        let come = format!(
            "INSERT INTO tree VALUES (100001, 50000, 'new');
            INSERT INTO {buffer} VALUES (pg_current_xact_id(), 1, 100001, 50000, 'new');"
        );
        let gone = format!(
            "INSERT INTO {buffer} SELECT pg_current_xact_id(), -1, * FROM tree WHERE id = 99999;
            DELETE FROM tree WHERE id = 99999;"
        );
        let moved = update(tree, "id = 99998", "parent = 7");
        let windows = [("comes", come), ("goes", gone), ("moves", moved)];
        let mut found = Vec::new();
        for (name, query) in RECURSIVE {
            let kept = tables.keep(query).await;
            // Under UNION several paths may reach a row. After a delete, a join with the whole tree derives
            // the rows again, since PostgreSQL expects many rows from a recursion.
            let told = if query.contains("UNION ALL") { 3 } else { 1 };
            for (what, changes) in windows.iter().take(told) {
                let delta = kept.delta(&BTreeSet::from([tree.id]), changes).await;
                found.extend(delta.beyond(&format!("{name}, a leaf {what}"), |s| s.rows > MOST));
            }
            kept.discard().await;
        }
        tables.assert_none(&found);
    });
}
