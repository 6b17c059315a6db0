//! Checks that no text makes parsing, lowering, compiling, rendering or printing panic, overflow the stack or
//! never end.
//!
//! The first byte decides how the other bytes are read: as text, or as choices from a list of SQL words. A
//! text of such words gets past the parser more often.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use trickle_core::catalog::MemoryCatalog;
use trickle_core::graph::Format;
use trickle_core::sql::print;
use trickle_core::testing::Choice;
use trickle_core::{Options, Refresh, Verdict, compile};

static CATALOG: LazyLock<MemoryCatalog> = LazyLock::new(|| {
    MemoryCatalog::from_ddl(
        "CREATE TABLE a (id int PRIMARY KEY, k int, v int);
         CREATE TABLE b (id int PRIMARY KEY, k int, w int NOT NULL);
         CREATE TABLE c (k int, s text, n numeric(4,1), d date, j jsonb, arr int[]);
         CREATE TABLE t (id int PRIMARY KEY, g int, v numeric, s text, f double precision, at timestamptz, j json);
         CREATE TABLE n (id int PRIMARY KEY, x numeric, y int REFERENCES a (id), xs int[]);
         CREATE VIEW w AS SELECT a.k, sum(a.v) AS total FROM a LEFT JOIN b USING (id) GROUP BY a.k;",
    )
    .unwrap_or_else(|e| panic!("{e}"))
});

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "a", "b", "c", "id", "k", "v", "w", "s", "n", "d",
    "j", "arr", "a.id", "b.k", "c.s", "*", "a.*", ",", "(", ")", "(SELECT", "EXISTS (SELECT", "IN (SELECT", "NOT",
    "AND", "OR", "=", "<", "+", "-", "/", "||", "->>", "@>", "::int", "::text", "::numeric(4,1)", "'x'", "1", "2.5",
    "NULL", "CASE WHEN", "THEN", "ELSE", "END", "count(*)", "sum(", "max(v)", "avg(n)", "count(DISTINCT k)",
    "array_agg(v ORDER BY id)", "FILTER (WHERE", "OVER (PARTITION BY k)", "JOIN", "LEFT JOIN", "FULL JOIN", "ON",
    "USING (k)", "NATURAL JOIN", "CROSS JOIN", "LATERAL (SELECT", "UNION", "UNION ALL", "EXCEPT ALL", "INTERSECT",
    "DISTINCT", "AS", "x", "WITH x AS (SELECT", "WITH RECURSIVE x AS (SELECT",
    "SEARCH DEPTH FIRST BY k SET o", "CYCLE k SET c USING p", "UNION ALL SELECT k FROM x) SELECT k FROM x", "VALUES (1, 2)", "LIMIT 1", "BETWEEN",
    "IS NULL", "IS DISTINCT FROM", "ANY (ARRAY[1])", "ALL (SELECT k FROM b)", "coalesce(", "nullif(", "abs(", "ROW(",
    "unnest(arr)", "interval '1 day'", "date '2024-02-30'", "extract(year FROM d)", "GROUPING SETS ((k), ())",
    "generate_series(1, 3)", "LIKE '%'", "IN (1, 2)", "SELECT * FROM a", "SELECT k, sum(v) FROM a GROUP BY k",
    "JOIN b ON a.id = b.id", "(SELECT k, v FROM a ORDER BY v DESC) q", "row_number() OVER ()", "array_agg(v)", "DISTINCT ON (k)",
    "JSON_VALUE(", "JSON_QUERY(j, '$' WITH WRAPPER", "JSON_EXISTS(", "RETURNING int", "DEFAULT 0 ON ERROR", "NULL ON EMPTY",
    "PASSING", "JSON_OBJECT(", "JSON_ARRAY(", "JSON_OBJECTAGG(k : v", "JSON_ARRAYAGG(v ORDER BY k", "ABSENT ON NULL", ":",
    "JSON_TABLE(j, '$[*]' COLUMNS (", "FOR ORDINALITY", "NESTED PATH '$' COLUMNS (", "IS JSON OBJECT", "IS NOT JSON",
    "XMLELEMENT(NAME x", "XMLATTRIBUTES(", "XMLFOREST(", "XMLTABLE('/a' PASSING", "COLUMNS x int PATH '.'",
    "IS DOCUMENT", "XMLPARSE(DOCUMENT", "IS NFC NORMALIZED", "COLLATE \"C\"", "FETCH FIRST 2 ROWS WITH TIES", "TABLE a",
];

fn text(bytes: &[u8]) -> String {
    match bytes.split_first() {
        Some((0..128, rest)) => String::from_utf8_lossy(rest).into_owned(),
        Some((_, rest)) => {
            let mut choice = Choice::bytes(rest);
            let words = rest.iter().filter_map(|_| choice.pick(WORDS).copied());
            words.collect::<Vec<_>>().join(" ")
        }
        None => String::new(),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let sql = text(bytes);
    let table = match compile(&sql, &*CATALOG, &Options::new("public", "st")) {
        Ok(Verdict::Incremental(table)) => table,
        Ok(Verdict::FullRefresh(reasons)) => {
            assert!(!reasons.is_empty(), "full refresh without a reason: {sql}");
            return;
        }
        Err(e) => {
            assert!(!e.is_internal(), "{e:?}: {sql}");
            return;
        }
    };
    let all = table.sources().into_iter().map(|(t, _)| t.id).collect();
    let affected = table.has_affected_groups().then_some(Refresh::AffectedGroups);
    for how in [Refresh::Delta, Refresh::Difference, Refresh::Replace].into_iter().chain(affected) {
        match table.refresh(how, &all) {
            Ok(statements) => statements.iter().for_each(|s| assert!(!print(s).text.is_empty())),
            Err(e) => panic!("{e:?}: {sql}"),
        }
    }
    for format in [Format::Text, Format::Dot, Format::Mermaid] {
        assert!(!table.explain(format).is_empty());
    }
});
