//! The plans of subqueries: semi- and anti-joins for conjuncts of WHERE, joined columns for all others.

use super::*;

/// Returns the operators of a plan from the root, without tables and projections.
fn shape(sql: &str) -> String {
    let names: Vec<String> = plan(sql)
        .lines()
        .map(|l| l.trim_start())
        .filter(|l| !l.starts_with("Map") && !l.starts_with("Table") && !l.contains("(above)"))
        .map(|l| {
            l.split_once(": ").map_or(l, |(id, rest)| if id.starts_with('n') { rest } else { l }).to_owned()
        })
        .collect();
    names.join(" / ")
}

fn condition(c: &str) -> String {
    shape(&format!("SELECT id FROM a WHERE {c}"))
}

/// An aggregate belongs to the innermost query whose columns it reads. An aggregate that reads no column
/// belongs to the query that contains it.
#[test]
fn aggregates_over_inner_columns_belong_to_the_subquery() {
    for sql in [
        "SELECT (SELECT max(a.k + b.k) FROM b) AS m FROM a",
        "SELECT (SELECT count(*) FROM b WHERE b.k = a.k) AS m FROM a",
        "SELECT (SELECT max(1) FROM b WHERE b.k = a.k) AS m FROM a",
        "SELECT max((SELECT b.k FROM b WHERE b.id = a.id)) AS m FROM a",
        "SELECT (SELECT max((SELECT x FROM n WHERE y = b.k AND x = a.k)) FROM b) AS m FROM a",
        "SELECT max((SELECT va.k FROM va WHERE va.id = 1)) AS m FROM a",
    ] {
        query(sql);
    }
}

#[test]
fn exists_is_a_semi_join() {
    assert_eq!(condition("EXISTS (SELECT 1 FROM b WHERE b.k = a.k)"), "SemiJoin (k#5 = k#1)");
    assert_eq!(
        condition("NOT EXISTS (SELECT FROM b WHERE b.k = a.k AND b.w > a.v)"),
        "AntiJoin ((k#5 = k#1) AND (w#6 > v#2::numeric))"
    );
    assert_eq!(condition("NOT (NOT EXISTS (SELECT * FROM b WHERE b.k = a.k))"), "SemiJoin (k#5 = k#1)");
    assert_eq!(condition("EXISTS (SELECT 1 FROM b WHERE w > 0)"), "SemiJoin t / Filter (w#2 > 0::numeric)");
    // Conditions that read only the subquery filter the subquery, and so do conditions in its joins.
    assert_eq!(
        condition("EXISTS (SELECT 1 FROM b JOIN n ON b.k = n.x AND n.y = a.v WHERE b.w > 0)"),
        "SemiJoin (y#9 = v#2) / Join (k#1 = x#4) / Filter (w#2 > 0::numeric)"
    );
}

#[test]
fn in_and_its_negation_follow_three_valued_logic() {
    assert_eq!(condition("k IN (SELECT k FROM b)"), "SemiJoin (k#1 = k#4)");
    assert_eq!(condition("k = ANY (SELECT k FROM b)"), "SemiJoin (k#1 = k#4)");
    assert_eq!(condition("k NOT IN (SELECT k FROM b)"), "AntiJoin (k#1 = k#4) IS NOT FALSE");
    assert_eq!(condition("k <> ALL (SELECT k FROM b)"), "AntiJoin (k#1 = k#4) IS NOT FALSE");
    assert_eq!(condition("NOT k IN (SELECT k FROM b)"), "AntiJoin (k#1 = k#4) IS NOT FALSE");
    // If neither operand can be NULL, plain equality is enough.
    assert_eq!(condition("id NOT IN (SELECT x FROM n)"), "AntiJoin (id#0 = x#4)");
    assert_eq!(
        condition("(k, v) NOT IN (SELECT x, y FROM n)"),
        "AntiJoin ((k#1 = x#4) AND (v#2 = y#5)) IS NOT FALSE"
    );
    assert_eq!(
        condition("k NOT IN (SELECT b.k FROM b WHERE b.id = a.v)"),
        "AntiJoin ((id#4 = v#2) AND (k#1 = k#5) IS NOT FALSE)"
    );
    assert_eq!(condition("k > ALL (SELECT k FROM b)"), "AntiJoin (k#1 > k#4) IS NOT TRUE");
    assert_eq!(condition("NOT k > ALL (SELECT k FROM b)"), "SemiJoin (k#1 > k#4) IS FALSE");
    assert_eq!(condition("NOT k > ANY (SELECT k FROM b)"), "AntiJoin (k#1 > k#4) IS NOT FALSE");
    assert_eq!(
        condition("k + 1 IN (SELECT b.k + a.v FROM b WHERE b.id = a.id)"),
        "SemiJoin ((id#4 = id#0) AND ((k#1 + 1) = (k#5 + v#2)))"
    );
}

#[test]
fn grouped_subqueries_as_conjuncts() {
    assert_eq!(
        condition("k IN (SELECT k FROM b GROUP BY k HAVING count(*) > 1)"),
        "SemiJoin (k#1 = k#4) / Filter (count#1 > 1) / Reduce by (k#1): count(*)"
    );
    assert_eq!(
        condition("EXISTS (SELECT 1 FROM b WHERE b.k = a.k GROUP BY w HAVING count(*) > a.v)"),
        "SemiJoin ((k#1 ≡ outer_0#4) AND (v#2 ≡ outer_1#5)) / Filter (count#3 > v#1) / \
         Reduce by (k#0, v#1, w#4): count(*) / Join (k#3 = k#0) / Distinct"
    );
}

#[test]
fn an_aggregate_over_no_rows_still_has_a_value() {
    // EXISTS over an aggregate without GROUP BY is always true, since the subquery has a row for every value
    // of its domain.
    assert_eq!(
        condition("EXISTS (SELECT count(*) FROM b WHERE b.k = a.k)"),
        "SemiJoin (k#1 ≡ outer_0#4) / LeftJoin (k#0 ≡ k#1) / Distinct / Reduce by (k#0): count(*) / Join (k#2 = k#0)"
    );
    let text = plan("SELECT id, (SELECT count(*) FROM b WHERE b.k = a.k) AS c FROM a");
    assert!(text.contains("coalesce(count#2, 0)"), "{text}");
    // With GROUP BY, the subquery has no row for an empty group, so its value is NULL.
    let text = plan("SELECT id, (SELECT count(*) FROM b WHERE b.k = a.k GROUP BY b.k) AS c FROM a");
    assert!(!text.contains("coalesce"), "{text}");
}

#[test]
fn scalar_subqueries_are_joined_columns() {
    assert_eq!(
        shape("SELECT id, (SELECT max(w) FROM b) AS m FROM a"),
        "Join t / Single / Reduce by (): max(w#2)"
    );
    assert_eq!(
        shape("SELECT id, (SELECT w FROM b WHERE b.id = a.k) AS m FROM a"),
        "LeftJoin (k#1 ≡ outer_0#4) / Single per first 1 columns / Join (id#1 = k#0) / Distinct"
    );
    assert_eq!(
        condition("v > (SELECT avg(v) FROM a)"),
        "Filter (v#2::numeric > avg#4) / Join t / Single / Reduce by (): avg(v#2)"
    );
    assert_eq!(
        shape("SELECT k, count(*) AS n FROM a GROUP BY k HAVING count(*) > (SELECT min(id) FROM b)"),
        "Filter (count#1 > min#2) / Join t / Reduce by (k#1): count(*) / Single / Reduce by (): min(id#0)"
    );
    assert_eq!(types("SELECT (SELECT w FROM b WHERE false) AS x"), "numeric(10,2)");
}

#[test]
fn exists_and_in_as_values() {
    assert_eq!(
        condition("v = 1 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k)"),
        "Filter ((v#2 = 1) OR column#5 IS NOT NULL) / LeftJoin (k#1 ≡ outer_0#4) / Distinct / \
         Join (k#2 = k#0) / Distinct"
    );
    let text = plan("SELECT id, k IN (SELECT k FROM b) AS i FROM a");
    assert!(text.starts_with("Map id#0, CASE WHEN column#6 IS NULL THEN f ELSE bool_or#5 END\n"), "{text}");
    assert!(text.contains("Join (k#0 = k#1) IS NOT FALSE"), "{text}");
    let text = plan("SELECT id, v > ALL (SELECT y FROM n WHERE n.x = a.id) AS q FROM a");
    assert!(text.starts_with("Map id#0, NOT CASE"), "{text}");
    query(
        "SELECT CASE WHEN EXISTS (SELECT 1 FROM b WHERE b.k = a.k) THEN coalesce((SELECT max(x) FROM n), 0) END AS c FROM a",
    );
    query("SELECT id FROM a WHERE coalesce(k IN (SELECT x FROM n WHERE n.y = a.v), false)");
}

#[test]
fn lateral() {
    assert_eq!(
        shape("SELECT a.id, s.w FROM a, LATERAL (SELECT b.w FROM b WHERE b.k = a.k) s"),
        "Join (k#1 ≡ outer_0#4) / Join (k#2 = k#0) / Distinct"
    );
    assert_eq!(
        shape("SELECT a.id, s.c FROM a LEFT JOIN LATERAL (SELECT b.w c FROM b WHERE b.k = a.k) s ON s.c > 0"),
        "LeftJoin ((c#5 > 0::numeric) AND (k#1 ≡ outer_0#4)) / Join (k#2 = k#0) / Distinct"
    );
    assert_eq!(names("SELECT a.id, v.z FROM a CROSS JOIN LATERAL (VALUES (a.k), (a.v)) v (z)"), "id, z");
    query("SELECT a.id, s.q FROM a, n, LATERAL (SELECT a.v + n.y AS q) s WHERE a.id = n.x");
    query("SELECT a.id, s.q FROM n, a LEFT JOIN LATERAL (SELECT a.v + n.y AS q) s ON s.q = a.id");
    // In ON, only the operands of its join are visible. In LATERAL, all earlier items are visible.
    let e = error("SELECT a.id, s.q FROM n, a LEFT JOIN LATERAL (SELECT a.v + n.y AS q) s ON n.x = a.id");
    assert_eq!(e.sqlstate(), "42P01");
    query(
        "SELECT a.id, s.q FROM n, a LEFT JOIN LATERAL (SELECT a.v + n.y AS q) s ON true LEFT JOIN b ON b.id = s.q",
    );
    query("SELECT a.id, s.q, u.r FROM a, LATERAL (SELECT a.v AS q) s, LATERAL (SELECT s.q + a.k AS r) u");
    // Only a LEFT JOIN pads the rows of a LATERAL subquery. The items that such a subquery reads must come
    // before the subquery.
    assert_eq!(error("SELECT 1 FROM LATERAL (SELECT a.v) s, a").sqlstate(), "42P01");
    assert_eq!(error("SELECT 1 FROM a, (SELECT a.v AS q) s").sqlstate(), "42P01");
}

#[test]
fn correlation_reaches_through_everything() {
    for inner in [
        "SELECT s.m FROM (SELECT max(w) AS m FROM b WHERE b.k = a.k) s",
        "WITH c AS (SELECT w FROM b WHERE b.k = a.k) SELECT sum(c.w) FROM c",
        "WITH c AS (SELECT w FROM b WHERE b.k = a.k) SELECT sum(x.w) FROM c x, c y WHERE EXISTS (SELECT 1 FROM c)",
        "SELECT max(x) FROM (SELECT x FROM n WHERE y = a.v UNION ALL SELECT k FROM b WHERE b.id = a.id) u",
        "SELECT count(*) FROM b LEFT JOIN n ON n.x = b.id AND n.y = a.v WHERE b.k = a.k",
        "SELECT count(*) FROM b LEFT JOIN (SELECT x FROM n WHERE y = a.v) q ON q.x = b.id",
        "SELECT count(*) FROM b WHERE b.k = (SELECT max(x) FROM n WHERE n.y = a.v AND n.x > b.id)",
        "SELECT count(DISTINCT b.k) FROM b WHERE b.k IN (SELECT x FROM n WHERE n.y = a.v)",
        "SELECT z FROM (VALUES (a.k)) v (z)",
        "SELECT DISTINCT w FROM b WHERE b.k = a.k",
        "SELECT a.v",
        "SELECT max(a.v + b.k) FROM b",
    ] {
        let q = query(&format!("SELECT id, ({inner}) AS x FROM a"));
        assert_eq!(q.graph.schema(q.root).len(), 2);
        query(&format!("SELECT id FROM a WHERE EXISTS ({inner}) OR id = 1"));
        query(&format!("SELECT id FROM a WHERE EXISTS ({inner})"));
        query(&format!("SELECT id FROM a WHERE v NOT IN ({inner})"));
        query(&format!("SELECT a.id FROM a GROUP BY a.id HAVING max(v) > ({inner})"));
    }
    // The column belongs to a query two levels above the subquery that reads it.
    query(
        "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND EXISTS (SELECT 1 FROM n WHERE x = b.id AND y = a.v))",
    );
    query(
        "SELECT id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k IN (SELECT x FROM n WHERE y = a.v) AND b.id = a.id)",
    );
}

#[test]
fn outer_columns_need_equality() {
    let all = reasons("SELECT x, (SELECT max(id) FROM a WHERE n.j IS NULL) AS m FROM n");
    assert!(all[0].construct.contains("json"), "{all:?}");
    // As a condition of a semi-join, the column needs no equality.
    query("SELECT x FROM n WHERE EXISTS (SELECT 1 FROM a WHERE n.j IS NULL)");
}
