//! No input makes lowering panic, overflow the stack or run for ever.

use super::*;
use proptest::prelude::*;
use std::time::{Duration, Instant};

const WORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "ORDER BY",
    "a",
    "b",
    "n",
    "id",
    "k",
    "v",
    "t",
    "x",
    "j",
    "arr",
    "a.id",
    "b.k",
    "n.y",
    "*",
    "a.*",
    ",",
    "(",
    ")",
    "(SELECT",
    "EXISTS (SELECT",
    "IN (SELECT",
    "NOT",
    "AND",
    "OR",
    "=",
    "<",
    "+",
    "-",
    "||",
    "::int",
    "::text",
    "'x'",
    "1",
    "2.5",
    "NULL",
    "CASE WHEN",
    "THEN",
    "ELSE",
    "END",
    "count(*)",
    "sum(",
    "max(v)",
    "JOIN",
    "LEFT JOIN",
    "FULL JOIN",
    "ON",
    "USING (k)",
    "NATURAL JOIN",
    "LATERAL (SELECT",
    "UNION",
    "UNION ALL",
    "EXCEPT",
    "INTERSECT",
    "DISTINCT",
    "AS",
    "AS s",
    "s",
    "WITH s AS (SELECT",
    "WITH RECURSIVE s AS (SELECT",
    "UNION SELECT k FROM s)",
    "SEARCH DEPTH FIRST BY k SET o",
    "CYCLE k SET c TO 1 DEFAULT 0 USING p",
    "VALUES (1, 2)",
    "LIMIT 1",
    "BETWEEN",
    "IS NULL",
    "IS DISTINCT FROM",
    "ANY (ARRAY[1])",
    "ALL (SELECT k FROM b)",
    "coalesce(",
    "nullif(",
    "ROW(",
    "[1]",
    "->",
    "'a'",
    "true",
    "interval '1 day'",
    "FILTER (WHERE",
    "OVER ()",
    "va",
    ";",
    "--",
    "$1",
];

/// Whole clauses, so that many of the texts are queries.
fn soup() -> impl Strategy<Value = String> {
    let word = prop::sample::select(WORDS);
    let tail = prop::collection::vec(word, 0..25);
    let head = prop::sample::select(vec![
        "",
        "SELECT ",
        "SELECT id FROM a WHERE ",
        "SELECT k, count(*) FROM a GROUP BY k HAVING ",
        "SELECT * FROM a LEFT JOIN b ON ",
        "SELECT a.id FROM a, b WHERE EXISTS (SELECT 1 FROM n WHERE ",
    ]);
    (head, tail).prop_map(|(h, t)| format!("{h}{}", t.join(" ")))
}

/// Returns a well-typed integer expression and a well-typed boolean expression, both with nested correlated
/// subqueries.
fn expressions() -> impl Strategy<Value = (String, String)> {
    let ints = prop::sample::select(vec!["a.id", "a.k", "a.v", "1", "NULL::int", "length(a.t)"]);
    let bools = prop::sample::select(vec!["a.k > 0", "a.v IS NULL", "a.t = '5'", "true", "a.id IN (1, 2)"]);
    let leaf = (ints, bools).prop_map(|(i, b)| (i.to_owned(), b.to_owned()));
    leaf.prop_recursive(5, 24, 3, |inner| {
        (inner.clone(), inner, 0..8usize, 0..9usize).prop_map(|((i, b), (j, c), x, y)| {
            let int = match x {
                0 => format!("({i} + {j})"),
                1 => format!("CASE WHEN {b} THEN {i} ELSE {j} END"),
                2 => format!("coalesce({i}, {j})"),
                3 => format!("(SELECT max(b.k) FROM b WHERE b.id = {i} AND {b})"),
                4 => format!("(SELECT s.c FROM (SELECT count(*)::int AS c FROM b WHERE b.k = {i}) s)"),
                5 => format!("(WITH w AS (SELECT x + {i} AS z FROM n) SELECT max(w.z) FROM w WHERE {b})"),
                6 => format!("(SELECT sum(q.z)::int FROM (VALUES ({i}), ({j})) q (z))"),
                _ => format!("(SELECT min(n.x + {i}) FROM n LEFT JOIN b ON b.id = n.y AND b.k = {j})"),
            };
            let bool = match y {
                0 => format!("({b} AND {c})"),
                1 => format!("({b} OR {c})"),
                2 => format!("(NOT {b})"),
                3 => format!("({i} < {j})"),
                4 => format!("EXISTS (SELECT 1 FROM n WHERE n.x = {i} AND {c})"),
                5 => format!("({i} NOT IN (SELECT n.y FROM n WHERE {c}))"),
                6 => format!(
                    "({i} > ALL (SELECT b.k FROM b WHERE b.id = {j} GROUP BY b.k HAVING count(*) > 1))"
                ),
                7 => format!("({i} IN (SELECT b.k FROM b WHERE {b} UNION SELECT {j}))"),
                _ => format!("({i} IS DISTINCT FROM {j})"),
            };
            (int, bool)
        })
    })
}

/// Fails on an internal error. Whatever the text, lowering must respect the contract of every operator.
fn check(sql: &str) {
    if let Err(e) = lower(sql, &catalog()) {
        assert!(!e.is_internal(), "{sql}: {e}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn token_soup(sql in soup()) {
        check(&sql);
    }

    #[test]
    fn well_typed_expressions_lower((i, b) in expressions()) {
        for sql in [
            format!("SELECT {i} AS x, {b} AS y FROM a"),
            format!("SELECT id FROM a WHERE {b}"),
            format!("SELECT a.id, count(*) AS n FROM a GROUP BY a.id HAVING {b}"),
            format!("SELECT a.id, s.z FROM a LEFT JOIN LATERAL (SELECT {i} AS z) s ON s.z > 0"),
            format!("SELECT a.id FROM a JOIN n ON {b}"),
            format!("SELECT a.id FROM n LEFT JOIN a ON {b} AND n.x = a.id"),
            format!("SELECT a.id FROM a LEFT JOIN n ON {b}"),
            format!("SELECT a.id FROM b LEFT JOIN (a JOIN n ON {b}) ON b.id = a.id"),
            format!("SELECT a.id FROM n, a, LATERAL (SELECT {i} + n.x AS z WHERE {b}) s"),
        ] {
            match lower(&sql, &catalog()) {
                Ok(Lowered::Query(q)) => prop_assert!(!q.columns.is_empty()),
                Ok(Lowered::Unsupported(r)) => prop_assert!(false, "{sql}: {r:?}"),
                Err(e) => prop_assert!(false, "{sql}: {e}"),
            }
        }
    }

    #[test]
    fn bytes(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        check(&String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn deep_nesting_is_lowered_or_refused_in_time() {
    let wrap = |n: usize, open: &str, core: &str, close: &str| {
        format!("{}{core}{}", open.repeat(n), close.repeat(n))
    };
    let start = Instant::now();
    for sql in [
        wrap(60, "SELECT id FROM a WHERE k IN (", "SELECT k FROM b", ")"),
        wrap(60, "SELECT 1 FROM a WHERE EXISTS (", "SELECT 1 FROM b WHERE b.k = a.k", ")"),
        wrap(40, "SELECT s.* FROM (", "SELECT * FROM a", ") s"),
        format!("SELECT 1{} AS x FROM a", " + 1".repeat(900)),
        format!("SELECT id FROM a WHERE {}", vec!["(k = 1 OR v = 2)"; 900].join(" AND ")),
        format!("SELECT {}id{} FROM a", "(".repeat(190), ")".repeat(190)),
        format!("SELECT id FROM a {}", "UNION ALL SELECT id FROM a ".repeat(300)),
        format!("SELECT id FROM a {}", "EXCEPT SELECT id FROM a ".repeat(300)),
        format!(
            "SELECT x0.id FROM a x0 {}",
            (1..60).map(|i| format!("JOIN a x{i} USING (id) ")).collect::<String>()
        ),
        wrap(30, "SELECT (SELECT max(q.k) FROM b q WHERE q.id = a.id AND q.k = (", "SELECT a.v", ")) FROM a"),
    ] {
        check(&sql);
    }
    // Every level uses a column of the outermost query.
    let mut sql = "SELECT 1 FROM n WHERE n.x = z.k".to_owned();
    for i in 0..12 {
        sql = format!("SELECT 1 FROM a x{i} WHERE x{i}.v = z.id AND EXISTS ({sql})");
    }
    query(&format!("SELECT z.id FROM a z WHERE EXISTS ({sql})"));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// Lowers texts of a megabyte each. A walk whose cost is more than linear would take minutes.
#[test]
fn huge_lists_and_numbers_are_refused_as_by_postgresql() {
    let digits = "9".repeat(1_000_000);
    for (sql, message) in [
        (format!("SELECT id{} FROM a", ", id".repeat(250_000)), "target lists can have at most 1664 entries"),
        (format!("SELECT {digits} AS x"), "value overflows numeric format"),
        (format!("SELECT 0x{digits} AS x"), "value overflows numeric format"),
        (format!("SELECT 0.{digits} AS x"), "value overflows numeric format"),
        (format!("SELECT {digits}e-10000 AS x"), "value overflows numeric format"),
        (format!("SELECT '{digits}'::numeric AS x"), "value overflows numeric format"),
        (format!("SELECT '{digits}'::int AS x"), "is out of range for type integer"),
        (format!("SELECT id FROM a WHERE id = '{digits}x'"), "invalid input syntax for type integer"),
    ] {
        let e = error(&sql);
        assert!(e.message().contains(message), "{:.20}: {:.80}", sql, e.message());
    }
    assert_eq!(
        types("SELECT 1e131071 AS a, 2147483648 AS b, 9223372036854775808 AS c"),
        "numeric, bigint, numeric"
    );
    assert_eq!(
        types("SELECT 0x7fffffff AS a, 0xffffffff AS b, 1_000 AS c, 00000000000000000000001 AS d"),
        "integer, bigint, integer, integer"
    );
}
