//! Facts about a stream table that the program prints after creating or dropping the stream table.

use super::{BY_REGION, Role};
use crate::support::{count, newest_server};

#[test]
fn create_tells_of_indexes_state_and_settings() {
    newest_server(async |db| {
        let role = Role::owner(db).await;
        role.does(&["init"]);
        let said = role.does(&["create", "by_region", "--query", BY_REGION]);
        let index = "cheaper: CREATE INDEX ON public.orders (customer)";
        assert!(said.contains(index), "{said}");
        let best = "SELECT region, max(id) AS last, max(name) AS name FROM customers GROUP BY region";
        let said = role.does(&["create", "best", "--query", best]);
        assert!(!said.contains("CREATE INDEX"), "twenty rows want no index: {said}");
        role.run_sql(db, "CREATE TABLE at (id int PRIMARY KEY, t timestamptz); CREATE TABLE doc (id int PRIMARY KEY, t text)").await;
        let days = role
            .trickle(&["create", "days", "--query", "SELECT id, t::date AS day FROM at", "--json"])
            .json();
        assert!(days["settings"]["TimeZone"].is_string(), "{days}");
        let words = role.does(&["create", "words", "--query", "SELECT id, to_tsvector(t) AS v FROM doc"]);
        assert!(words.contains("default_text_search_config = '"), "{words}");
        let pairs = "SELECT DISTINCT region, name FROM customers";
        let pairs = role.trickle(&["create", "pairs", "--query", pairs, "--json"]).json();
        let kept = (pairs["hidden_tables"].as_i64().unwrap(), pairs["hidden_bytes"].as_i64().unwrap());
        assert!(kept.0 > 0 && kept.1 > 0, "{pairs}");
    });
}

#[test]
fn drop_if_exists_does_nothing_where_there_is_none() {
    newest_server(async |db| {
        let role = Role::owner(db).await;
        role.does(&["init"]);
        role.does(&["create", "by_region", "--query", BY_REGION]);
        assert_eq!(role.does(&["drop", "--if-exists", "by_region"]), "dropped public.by_region\n");
        let said = role.does(&["drop", "--if-exists", "by_region"]);
        assert_eq!(said, "there is no stream table by_region, nothing was changed\n");
        assert_eq!(
            role.trickle(&["drop", "--if-exists", "by_region", "--json"]).json()["dropped"]
                .as_array()
                .unwrap()
                .len(),
            0
        );
        role.does(&["create", "by_region", "--query", BY_REGION]);
        let ran = role.trickle(&["drop", "by_regoin"]);
        assert!(ran.code == 2 && ran.err.contains("Did you mean public.by_region?"), "{}", ran.err);
    });
}

#[test]
fn the_same_query_given_again_computes_nothing_anew() {
    newest_server(async |db| {
        let role = Role::owner(db).await;
        role.does(&["init"]);
        role.does(&["create", "by_region", "--query", BY_REGION]);
        let fills = "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'REINITIALIZE'";
        let s = db.session().await;
        let spaced = BY_REGION.replace("c.region,", "c.region  ,  -- the region\n");
        for args in [
            ["create", "by_region", "--or-replace", "--query", &spaced, "--quiet"],
            ["create", "by_region", "--or-replace", "--query", BY_REGION, "--schedule=5m"],
            ["alter", "by_region", "--query", &spaced, "--schedule=7m", "--quiet"],
        ] {
            let said = role.does(&args);
            assert!(said.is_empty() || said.contains("it has this query, and keeps its rows"), "{said}");
        }
        assert_eq!(count(&s, fills).await, 1);
        assert_eq!(role.trickle(&["status", "by_region", "--json"]).json()[0]["schedule"], "7m");
        role.does(&[
            "create",
            "by_region",
            "--or-replace",
            "--mode",
            "full",
            "--query",
            BY_REGION,
            "--quiet",
        ]);
        assert_eq!(count(&s, fills).await, 2, "another mode is another plan");
        // The catalog keeps the text that the user typed, even after a table of the query got new columns.
        let typed =
            "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE original_query LIKE '%-- the region%'";
        role.does(&["alter", "by_region", "--mode", "differential", "--query", &spaced]);
        role.run_sql(db, "ALTER TABLE orders ADD more int").await;
        role.does(&["refresh", "by_region", "--quiet"]);
        assert_eq!(count(&s, typed).await, 1);
        // Somebody dropped a column of the stream table. `create --or-replace` with the same query builds the
        // stream table again.
        role.does(&["alter", "by_region", "--mode", "differential"]);
        role.run_sql(db, "ALTER TABLE by_region DROP COLUMN total").await;
        role.does(&["create", "by_region", "--or-replace", "--query", BY_REGION]);
        role.does(&["check", "by_region"]);
    });
}
