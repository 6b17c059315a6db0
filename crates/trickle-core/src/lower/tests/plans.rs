//! The plans of joins, grouping, set operations and expressions.

use super::*;

const A: &str = "Table public.a (id, k, v, t)";
const B: &str = "Table public.b (id, k, w, d)";
const N: &str = "Table public.n (x, y, j, jb, arr)";

/// Checks the plan of a query. The expected lines have `TA`, `TB` and `TN` for the tables.
fn expect(sql: &str, lines: &[&str]) {
    let text = lines.join("\n");
    let text = text.replace("TA", A).replace("TB", B).replace("TN", N);
    assert_eq!(plan(sql), text, "\n{sql}\n{}", plan(sql));
}

#[test]
fn filters_stand_at_the_lowest_place() {
    expect(
        "SELECT a.id, b.w FROM a, b WHERE a.k = b.k AND a.v > 1 AND b.w < 3 AND a.id + b.id > 0",
        &[
            "Map id#0, w#6",
            "  Join ((k#1 = k#5) AND ((id#0 + id#4) > 0))",
            "    Filter (v#2 > 1)",
            "      TA",
            "    Filter (w#2 < 3::numeric)",
            "      TB",
        ],
    );
    // If only the third item links the first two, the third item is joined before the second.
    expect(
        "SELECT a.id, b.id AS bid, n.x FROM a, b, n WHERE a.k = n.x AND b.k = n.y",
        &[
            "Map id#0, id#4, x#8",
            "  Map id#0, k#1, v#2, t#3, id#9, k#10, w#11, d#12, x#4, y#5, j#6, jb#7, arr#8",
            "    Join (k#10 = y#5)",
            "      Join (k#1 = x#4)",
            "        TA",
            "        TN",
            "      TB",
        ],
    );
    expect("SELECT 1 AS one FROM a WHERE 1 = 0", &["Map 1", "  Filter (1 = 0)", "    TA"]);
}

#[test]
fn outer_joins_keep_their_conditions() {
    expect(
        "SELECT a.id, b.w FROM a LEFT JOIN b ON a.k = b.k AND b.w > 0 WHERE a.v = 1",
        &[
            "Map id#0, w#6",
            "  Filter (v#2 = 1)",
            "    LeftJoin ((k#1 = k#5) AND (w#6 > 0::numeric))",
            "      TA",
            "      TB",
        ],
    );
    expect(
        "SELECT * FROM a RIGHT JOIN n ON a.k = n.x",
        &[
            "Map id#5, k#6, v#7, t#8, x#0, y#1, j#2, jb#3, arr#4",
            "  LeftJoin (k#6 = x#0)",
            "    TN",
            "    TA",
        ],
    );
    // If an outer join pads an operand, an inner join inside this operand stays there.
    expect(
        "SELECT a.id FROM a LEFT JOIN (b JOIN n ON b.k = n.x) ON a.k = b.id",
        &["Map id#0", "  LeftJoin (k#1 = id#4)", "    TA", "    Join (k#1 = x#4)", "      TB", "      TN"],
    );
    expect(
        "SELECT a.id FROM n, a LEFT JOIN b ON a.k = b.k WHERE n.x = a.id",
        &["Map id#5", "  Join (x#0 = id#5)", "    TN", "    LeftJoin (k#1 = k#5)", "      TA", "      TB"],
    );
}

#[test]
fn merged_columns() {
    assert_eq!(names("SELECT * FROM a JOIN b USING (id, k)"), "id, k, v, t, w, d");
    assert_eq!(names("SELECT * FROM a NATURAL JOIN b"), "id, k, v, t, w, d");
    assert_eq!(
        names("SELECT ARRAY(SELECT id FROM b), ARRAY[k]::text AS l, (SELECT k) FROM a"),
        "array, l, k"
    );
    assert_eq!(error("SELECT * FROM a JOIN b USING (k)").sqlstate(), "42701");
    assert_eq!(names("SELECT k, a.k AS l, b.k AS r FROM a JOIN b USING (k)"), "k, l, r");
}

#[test]
fn merged_columns_take_the_side_that_is_there() {
    expect(
        "SELECT id, v, w FROM a FULL JOIN b USING (id)",
        &["Map coalesce(id#0, id#4), v#2, w#6", "  FullJoin (id#0 = id#4)", "    TA", "    TB"],
    );
    expect(
        "SELECT id, v, w FROM a RIGHT JOIN b USING (id)",
        &[
            "Map id#4, v#2, w#6",
            "  Map id#4, k#5, v#6, t#7, id#0, k#1, w#2, d#3",
            "    LeftJoin (id#4 = id#0)",
            "      TB",
            "      TA",
        ],
    );
    expect(
        "SELECT id FROM a FULL JOIN b USING (id) JOIN n ON n.x = id",
        &[
            "Map coalesce(id#0, id#4)",
            "  Join (x#8 = coalesce(id#0, id#4))",
            "    FullJoin (id#0 = id#4)",
            "      TA",
            "      TB",
            "    TN",
        ],
    );
}

#[test]
fn aliases_with_columns() {
    assert_eq!(names("SELECT * FROM n AS q (p, r)"), "p, r, j, jb, arr");
    assert_eq!(
        names("SELECT q.* FROM (a JOIN m ON a.id = m.id) AS q (a, b, c, d, e, f)"),
        "a, b, c, d, e, f"
    );
    assert_eq!(names("SELECT z.a FROM (SELECT id FROM a) z (a)"), "a");
    assert_eq!(names("WITH c (p, q) AS (SELECT id, k FROM a) SELECT * FROM c"), "p, q");
    assert_eq!(names("SELECT * FROM (VALUES (1, 'a')) v (n, s)"), "n, s");
    assert_eq!(names("SELECT public.a.id FROM public.a"), "id");
}

#[test]
fn ctes_are_lowered_once_and_views_expanded() {
    let q = query(
        "WITH c AS MATERIALIZED (SELECT k, count(*) n FROM a GROUP BY k) SELECT x.n FROM c x, c y WHERE x.k = y.n",
    );
    let reduces = (0..q.graph.len()).filter(|i| {
        q.graph
            .reachable(q.root)
            .iter()
            .any(|n| n.index() == *i && q.graph.rel(*n).as_operator().name() == "Reduce")
    });
    assert_eq!(reduces.count(), 1);
    expect("SELECT k FROM va", &["Map k#1", "  Map id#0, k#1", "    Filter (v#2 > 0)", "      TA"]);
    // A CTE hides a table of the same name, in the scope of the CTE only.
    expect(
        "WITH a AS (SELECT x AS id FROM n) SELECT id FROM (WITH a AS (SELECT id FROM b) SELECT id FROM a) s",
        &["Map id#0", "  TB"],
    );
}

#[test]
fn grouping() {
    expect(
        "SELECT k, sum(v) + 1 AS s FROM a WHERE v > 0 GROUP BY k HAVING count(*) > 1",
        &[
            "Map k#0, (sum#1 + 1)",
            "  Filter (count#2 > 1)",
            "    Reduce by (k#1): sum(v#2), count(*)",
            "      Filter (v#2 > 0)",
            "        TA",
        ],
    );
    // An ordinal, an output name and an equal expression denote the same key. An input column is preferred to
    // an output name.
    let by_expression = plan("SELECT k + 1 AS g, count(*) AS n FROM a GROUP BY k + 1");
    assert_eq!(by_expression, plan("SELECT k + 1 AS g, count(*) AS n FROM a GROUP BY 1"));
    assert_eq!(by_expression, plan("SELECT k + 1 AS g, count(*) AS n FROM a GROUP BY g"));
    assert_eq!(error("SELECT k + 1 AS v FROM a GROUP BY v").sqlstate(), "42803");
    expect(
        "SELECT k + 1 AS g, (k + 1) * 2 AS h FROM a GROUP BY 1",
        &[
            "Map column#0, (column#0 * 2)",
            "  Reduce by (column#4): ",
            "    Map id#0, k#1, v#2, t#3, (k#1 + 1)",
            "      TA",
        ],
    );
    // The primary key determines the other columns of its table.
    expect("SELECT a.t FROM a GROUP BY a.id", &["Map t#1", "  Reduce by (id#0, t#3): ", "    TA"]);
    expect("SELECT count(*) FROM a", &["Reduce by (): count(*)", "  TA"]);
    expect("SELECT 1 AS one FROM a HAVING true", &["Map 1", "  Reduce by (): ", "    TA"]);
    expect("SELECT 1 AS one FROM a GROUP BY ()", &["Map 1", "  Reduce by (): ", "    TA"]);
    expect(
        "SELECT count(*) AS n FROM a GROUP BY 'x'::text",
        &["Map count#1", "  Reduce by (column#4): count(*)", "    Map id#0, k#1, v#2, t#3, 'x'", "      TA"],
    );
    // Aggregates that are written twice are computed once.
    expect(
        "SELECT sum(v) AS s, sum(v) AS t FROM a",
        &["Map sum#0, sum#0", "  Reduce by (): sum(v#2)", "    TA"],
    );
    expect(
        "SELECT sum(v) FILTER (WHERE k > 1 OR k IS NULL), count(DISTINCT k) FROM a",
        &["Reduce by (): sum(v#2) FILTER (((k#1 > 1) OR k#1 IS NULL)), count(DISTINCT k#1)", "  TA"],
    );
    assert_eq!(names("SELECT sum(v), max(k) FROM a"), "sum, max");
}

#[test]
fn grouping_sets() {
    expect(
        "SELECT k, t, count(*) AS n, GROUPING(t, k) AS level FROM a GROUP BY ROLLUP (k, t)",
        &[
            "Map k#0, t#1, count#2, grouping#3",
            "  Union",
            "    Map k#0, t#1, count#2, 0",
            "      Reduce by (k#1, t#3): count(*)",
            "        TA",
            "    Map k#0, NULL, count#1, 2",
            "      Reduce by (k#1): count(*)",
            "        TA",
            "    Map NULL, NULL, count#0, 3",
            "      Reduce by (): count(*)",
            "        TA",
        ],
    );
    // A single grouping set is a plain GROUP BY.
    let plain = plan("SELECT k, v, count(*) FROM a GROUP BY k, v");
    for same in [
        "GROUPING SETS ((k, v))",
        "GROUPING SETS (GROUPING SETS ((k, v)))",
        "k, GROUPING SETS (v)",
        "(k, v), ()",
        "DISTINCT GROUPING SETS ((k, v), (v, k)), k",
    ] {
        assert_eq!(plan(&format!("SELECT k, v, count(*) FROM a GROUP BY {same}")), plain, "{same}");
    }
    assert_eq!(plan("SELECT count(*) FROM a GROUP BY GROUPING SETS (())"), plan("SELECT count(*) FROM a"));
    let sets = |clause: &str| plan(&format!("SELECT k, v, count(*) AS n FROM a GROUP BY {clause}"));
    for (one, other) in [
        ("ROLLUP (k, v)", "GROUPING SETS ((k, v), k, ())"),
        ("CUBE (k, v)", "GROUPING SETS ((k, v), (k), (v), ())"),
        ("ROLLUP ((k, v))", "GROUPING SETS (((k), (v)), ())"),
        ("ROLLUP (k), GROUPING SETS (v, ())", "GROUPING SETS ((k, v), (k), (v), ())"),
        ("GROUPING SETS (ROLLUP (k), CUBE (v))", "GROUPING SETS ((k), (), (v), ())"),
        ("cube (1, v)", "GROUPING SETS ((k, v), k, v, ())"),
    ] {
        assert_eq!(sets(one), sets(other), "{one}");
    }
    // Outside a grouping set, `cube` and `rollup` are ordinary names.
    assert_eq!(names("SELECT k AS cube FROM a GROUP BY cube, rollup(k)"), "cube");
    assert_eq!(names("SELECT k AS rollup, count(*) FROM a GROUP BY rollup"), "rollup, count");
}

#[test]
fn set_operations_unify_types() {
    assert_eq!(types("SELECT id FROM a UNION SELECT w FROM b"), "numeric");
    assert_eq!(types("SELECT 1 AS x UNION ALL SELECT 2.5 UNION ALL SELECT NULL"), "numeric");
    assert_eq!(types("SELECT NULL AS x UNION SELECT 'a'"), "text");
    assert_eq!(types("SELECT d FROM b UNION SELECT '2020-01-01'"), "date");
    assert_eq!(types("VALUES (1, 'a'), (2.5, NULL)"), "numeric, text");
    expect(
        "SELECT id FROM a UNION SELECT x FROM n EXCEPT ALL SELECT id FROM b",
        &[
            "ExceptAll",
            "  Distinct",
            "    Union",
            "      Map id#0",
            "        TA",
            "      Map x#0",
            "        TN",
            "  Map id#0",
            "    TB",
        ],
    );
    // INTERSECT binds more tightly than UNION, and a chain of UNION ALL is one sum.
    let text =
        plan("SELECT id FROM a UNION ALL SELECT x FROM n INTERSECT SELECT id FROM b UNION ALL SELECT 1");
    assert!(text.starts_with("Union\n") && text.matches("Union").count() == 1, "{text}");
    assert!(text.contains("    Intersect\n"), "{text}");
    // The columns of a set operation have the names of the first operand's columns.
    assert_eq!(names("SELECT id AS q FROM a UNION SELECT x FROM n"), "q");
}

#[test]
fn literals_take_their_type_from_context() {
    assert_eq!(
        types("SELECT 1 AS a, 2147483648 AS b, 1.50 AS c, 'x' AS d, NULL AS e, true AS f"),
        "integer, bigint, numeric, text, text, boolean"
    );
    assert_eq!(
        types("SELECT CASE WHEN true THEN 1 ELSE 2.5 END AS a, coalesce(NULL, 'x') AS b"),
        "numeric, text"
    );
    assert_eq!(
        types("SELECT ARRAY[1, NULL, 3] AS a, ARRAY[[1], [2]] AS b, '{1}'::int[] AS c"),
        "integer[], integer[], integer[]"
    );
    assert_eq!(
        types("SELECT date '2020-01-01' AS a, interval '1' day AS b, '1'::numeric(4,1) AS c"),
        "date, interval, numeric(4,1)"
    );
    assert_eq!(types("SELECT arr[1] AS a, jb -> 'x' AS b, jb ->> 'x' AS c FROM n"), "integer, jsonb, text");
    assert_eq!(
        types("SELECT nullif(k, 1) AS a, greatest(k, 1.5) AS b, twice(k) AS c FROM a"),
        "integer, numeric, integer"
    );
    expect("SELECT id FROM a WHERE k = '7'", &["Map id#0", "  Filter (k#1 = 7)", "    TA"]);
    expect(
        "SELECT id FROM a WHERE t IN ('x', 'y')",
        &["Map id#0", "  Filter t#3 = ANY(ARRAY['x', 'y'])", "    TA"],
    );
    // If the list contains NULL or a value that is not constant, IN is a disjunction.
    expect(
        "SELECT id FROM a WHERE k IN (1, v)",
        &["Map id#0", "  Filter ((k#1 = 1) OR (k#1 = v#2))", "    TA"],
    );
    expect(
        "SELECT id FROM a WHERE k NOT IN (1, 2)",
        &["Map id#0", "  Filter k#1 <> ALL(ARRAY[1, 2])", "    TA"],
    );
}

#[test]
fn rows_are_compared_part_by_part() {
    let filter =
        |c: &str| plan(&format!("SELECT id FROM a WHERE {c}")).lines().nth(1).unwrap().trim().to_owned();
    assert_eq!(filter("(k, v) = (1, 2)"), "Filter ((k#1 = 1) AND (v#2 = 2))");
    assert_eq!(filter("ROW(k, v) <> ROW(1, 2)"), "Filter ((k#1 <> 1) OR (v#2 <> 2))");
    assert_eq!(filter("(k, v) <= (1, 2)"), "Filter CASE WHEN (k#1 = 1) THEN (v#2 <= 2) ELSE (k#1 < 1) END");
    assert_eq!(
        filter("(k, v) IN ((1, 2), (3, 4))"),
        "Filter (((k#1 = 1) AND (v#2 = 2)) OR ((k#1 = 3) AND (v#2 = 4)))"
    );
    assert_eq!(filter("(k, v) IS NOT DISTINCT FROM (1, NULL)"), "Filter ((k#1 ≡ 1) AND v#2 IS NULL)");
    assert_eq!(filter("(k, v) IS NULL"), "Filter (k#1 IS NULL AND v#2 IS NULL)");
}

#[test]
fn output_names_are_those_of_postgresql() {
    assert_eq!(
        names(
            "SELECT id, a.k, v + 1, upper(t), t::int, 'x'::text, CASE WHEN true THEN 1 END, coalesce(v, 1) FROM a"
        ),
        "id, k, ?column?, upper, t, text, case, coalesce"
    );
    assert_eq!(
        names(
            "SELECT extract(year FROM d), date '2020-01-01', w::float8, (SELECT max(x) FROM n), EXISTS (SELECT 1) FROM b"
        ),
        "extract, date, w, max, exists"
    );
    assert_eq!(
        names("SELECT arr[1], ARRAY[1], 1::bool, 1::bigint, trim(jb ->> 'a') FROM n"),
        "arr, array, bool, int8, btrim"
    );
    assert_eq!(names("SELECT ID, \"t\" AS \"T\" FROM A"), "id, T");
}

#[test]
fn keys_are_found_through_the_plan() {
    let keys = |sql: &str| {
        let q = query(sql);
        let keys: Vec<String> = q.graph.props(q.root).keys.iter().map(ToString::to_string).collect();
        keys.join(" ")
    };
    assert_eq!(keys("SELECT a.id, b.w FROM a JOIN b ON a.k = b.id"), "{0}");
    assert_eq!(keys("SELECT k, count(*) n FROM a GROUP BY k"), "{0}");
    assert_eq!(keys("SELECT DISTINCT k, v FROM a"), "{0,1}");
    assert_eq!(keys("SELECT a.id, (SELECT max(w) FROM b WHERE b.k = a.k) m FROM a"), "{0}");
    assert_eq!(keys("SELECT t FROM a"), "");
}

#[test]
fn order_by_alone_and_limit_all_are_dropped() {
    assert_eq!(plan("SELECT id FROM a ORDER BY k DESC NULLS LAST, 1"), plan("SELECT id FROM a"));
    assert_eq!(plan("SELECT id FROM a LIMIT ALL OFFSET 0"), plan("SELECT id FROM a"));
    assert_eq!(plan("TABLE a"), plan("SELECT * FROM a"));
}
