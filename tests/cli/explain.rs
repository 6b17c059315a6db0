//! Tests of `trickle explain`: every format, and the arguments that it refuses.

use super::{Ran, run};

const TOPS: &str = "SELECT placed, count(*) AS n, max(amount) AS top FROM orders GROUP BY placed";

fn explain(query: &str, format: &str) -> Ran {
    run(&["explain", "--schema", "schema.sql", "--format", format, "--query", query])
}

#[test]
fn the_text_shows_plans_costs_reads_and_indexes() {
    let ran = explain(TOPS, "text");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for part in [
        "Reduce by (placed#1): count(*), max(amount#0)\n",
        "TableDelta public.orders (amount, placed) [Δ]\n",
        "orders: rows looked up by placed, when orders changed\n",
        "CREATE INDEX ON public.orders (placed);\n",
    ] {
        assert!(ran.out.contains(part), "{part} is missing: {}", ran.out);
    }
    let sums = explain("SELECT placed, count(*) AS n FROM orders GROUP BY placed", "text");
    assert!(sums.out.contains("no table is read") && !sums.out.contains("Indexes"), "{}", sums.out);
    let whole = explain("SELECT a.id AS x, b.id AS y FROM orders a JOIN customers b ON a.id < b.id", "text");
    assert!(
        whole.out.contains("[whole]") && whole.out.contains("all rows, when customers changed"),
        "{}",
        whole.out
    );
}

#[test]
fn the_sql_is_all_that_is_run_in_order() {
    let ran = explain(TOPS, "sql");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let at = |text: &str| ran.out.find(text).unwrap_or_else(|| panic!("{text} is missing: {}", ran.out));
    let titles = ["-- create\n", "-- capture\n", "-- fill\n", "-- refresh\n", "-- drop\n"].map(at);
    assert!(titles.is_sorted());
    assert!(at("CREATE TRIGGER trickle_capture_") > titles[1]);
    assert!(at("pgtrickle_changes.changes_") > titles[0]);
}

#[test]
fn json_has_plan_delta_reads_indexes_and_statements() {
    let ran = explain(TOPS, "json");
    let all = ran.json();
    assert_eq!((ran.code, &all["incremental"]), (0, &true.into()));
    assert_eq!(all["indexes"], serde_json::json!(["CREATE INDEX ON public.orders (placed)"]));
    assert_eq!(all["reads"][0]["columns"], serde_json::json!(["placed"]));
    let nodes = all["plan"]["nodes"].as_array().unwrap();
    assert_eq!((&nodes[0]["operator"], nodes.len()), (&"Table".into(), 2));
    assert!(all["delta"].as_array().unwrap().iter().all(|d| d["nodes"][0]["cost"].is_string()));
    assert!(
        ["create", "capture", "fill", "refresh", "drop"]
            .iter()
            .all(|k| !all["sql"][k].as_array().unwrap().is_empty())
    );
    let global = run(&["explain", "--json", "--schema", "schema.sql", "--query", TOPS]);
    assert_eq!(global.json(), all, "--json is --format json");
}

#[test]
fn graphs_are_in_the_syntax_of_their_tools() {
    let dot = explain(TOPS, "dot").out;
    assert!(dot.starts_with("digraph plan {\n") && dot.ends_with("}\n") && dot.contains(" -> "), "{dot}");
    let mermaid = explain(TOPS, "mermaid").out;
    assert!(mermaid.starts_with("flowchart BT\n") && mermaid.contains(" --> "), "{mermaid}");
}

#[test]
fn a_query_that_can_only_be_recomputed_is_a_no() {
    let places = "SELECT id, last_value(id) OVER (ORDER BY region) AS place FROM customers";
    let ran = explain(places, "text");
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert!(ran.out.contains("leaves in any order cannot be maintained incrementally yet"), "{}", ran.out);
    let json = explain(places, "json");
    assert_eq!(
        (json.code, &json.json()["incremental"], &json.json()["reasons"][0]["column"]),
        (1, &false.into(), &12.into())
    );
}

#[test]
fn explain_refuses_the_queries_that_create_refuses() {
    let ran = explain("SELECT id, random() AS lot FROM customers", "text");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("cannot be kept equal to the volatile function random()"), "{}", ran.err);
    assert!(ran.err.contains("query:1:12"), "{}", ran.err);
}

#[test]
fn bad_input_is_shown_with_its_place_and_nothing_else() {
    let ran = explain("SELECT id FROM custmers", "text");
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("query:1:16") && ran.err.contains("Did you mean \"customers\"?"), "{}", ran.err);
    let empty = explain("-- nothing", "text");
    assert!(empty.code == 2 && empty.err.contains("there is no query"), "{}", empty.err);
    // Without files, the command explains tables of a database.
    let no_schema = run(&["explain", "--database-url", "host=/nonexistent", "--query", "SELECT 1"]);
    assert_eq!((no_schema.code, no_schema.out.as_str()), (3, ""), "{}", no_schema.err);
    let both = run(&["explain", "orders", "--query", "SELECT 1"]);
    assert_eq!((both.code, both.out.as_str()), (2, ""), "{}", both.err);
}
