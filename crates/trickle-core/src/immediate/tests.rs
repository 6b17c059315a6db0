use super::*;
use crate::catalog::MemoryCatalog;
use crate::sql::print;
use crate::stream_table::{Options, compile};

fn table(sql: &str) -> StreamTable {
    let catalog = MemoryCatalog::from_ddl(
        "CREATE TABLE t (id int PRIMARY KEY, k int, v bigint, n numeric); CREATE TABLE u (id int PRIMARY KEY, n text)",
    )
    .unwrap();
    compile(sql, &catalog, &Options::new("public", "st")).unwrap().incremental().unwrap()
}

fn install(sql: &str) -> Vec<String> {
    let table = table(sql);
    let path = Setting { name: "search_path".into(), values: vec!["mine".into()] };
    let zone = Setting { name: "TimeZone".into(), values: vec!["it's".into()] };
    let made = Immediate::new(&table, 7, table.buffers(), &[path, zone]).unwrap().install().unwrap();
    made.iter().map(|s| print(s).text).collect()
}

#[test]
fn who_waits_for_whom_follows_from_the_plan() {
    let of = |sql: &str| Exclusion::of(&table(sql)).unwrap();
    let groups = |e: Exclusion| matches!(e, Exclusion::Groups { .. });
    assert_eq!(of("SELECT id, v + 1 AS w FROM t WHERE v > 0"), Exclusion::Keys);
    assert!(groups(of("SELECT k, count(*) AS n, sum(v) AS s, avg(v) AS a FROM t WHERE v > 0 GROUP BY k")));
    assert!(groups(of("SELECT k, sum(v) AS s FROM t GROUP BY k HAVING count(*) > 1")));
    for all in [
        // The queries cover four cases: rows without a key, a total of all rows, a lookup of the table's
        // rows, and more than one table.
        "SELECT k FROM t",
        "SELECT count(*) AS n FROM t",
        "SELECT k, max(v) AS m FROM t GROUP BY k",
        "SELECT k, n FROM (SELECT k, n, row_number() OVER (PARTITION BY k ORDER BY v, id) AS r FROM t) x WHERE r = 1",
        "SELECT t.id, u.n FROM t JOIN u ON u.id = t.k",
        "SELECT a.id, b.v FROM t a JOIN t b ON b.id = a.k",
        "SELECT s, count(*) AS n FROM (SELECT k, sum(v) AS s FROM t GROUP BY k) x GROUP BY s",
    ] {
        assert_eq!(of(all), Exclusion::All, "{all}");
    }
}

#[test]
fn triggers_count_where_the_order_of_events_matters() {
    let begins = |sql: &str| install(sql).iter().filter(|t| t.contains(" BEFORE ")).count();
    assert_eq!(begins("SELECT id, v FROM t"), 0);
    assert_eq!(begins("SELECT k, count(*) AS n FROM t GROUP BY k"), 4);
    assert_eq!(begins("SELECT t.id, u.n FROM t JOIN u ON u.id = t.k"), 8);
}

/// Functions with the owner's rights run under the settings of the query, and the caller's temporary schema
/// is searched last.
#[test]
fn functions_run_under_the_settings_of_the_query() {
    for sql in ["SELECT id, v FROM t", "SELECT t.id, u.n FROM t JOIN u ON u.id = t.k"] {
        for function in install(sql).iter().filter(|t| t.starts_with("CREATE OR REPLACE FUNCTION")) {
            let head = function.split(" AS $trickle$").next().unwrap();
            let wanted = "SECURITY DEFINER SET search_path = mine, pg_temp SET \"TimeZone\" = 'it''s'";
            assert!(head.contains(wanted), "{head}");
        }
    }
}

/// Only a query whose own expressions can raise an error costs a subtransaction.
#[test]
fn an_attempt_is_made_where_an_expression_of_the_query_raises() {
    let attempts = |sql: &str| install(sql).iter().any(|t| t.contains("EXCEPTION WHEN data_exception"));
    assert!(!attempts("SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k"));
    assert!(attempts("SELECT t.id, 1 / v AS q, u.n FROM t JOIN u ON u.id = t.k"));
}

#[test]
fn equal_arguments_give_equal_texts_and_names_are_short() {
    let sql = "SELECT t.id, u.n FROM t JOIN u ON u.id = t.k";
    assert_eq!(install(sql), install(sql));
    let table = table(sql);
    let made = Immediate::new(&table, i64::MAX, table.buffers(), &[]).unwrap().install().unwrap();
    for statement in made {
        if let Statement::CreateTrigger(t) = statement {
            // The oid of a source has at most ten digits, and in this test one digit.
            assert!(t.name.as_str().len() + 9 <= 63 && t.function.name.as_str().len() + 9 <= 63, "{t:?}");
        }
    }
}
