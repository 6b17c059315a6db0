//! A query that PostgreSQL refuses gives an error with position, name and hint.

use super::*;

fn place(e: &Error) -> (u32, u32) {
    e.span().map_or((0, 0), |s| (s.line, s.column))
}

#[test]
fn unknown_names_have_a_place_and_a_near_miss() {
    let e = error("SELECT *\nFROM  aa");
    assert_eq!((place(&e), e.sqlstate()), ((2, 7), "42P01"));
    assert!(e.message().contains("\"aa\""), "{e}");
    let e = error("SELECT a.idd FROM a");
    assert_eq!((place(&e), e.sqlstate()), ((1, 8), "42703"));
    assert_eq!(e.hint_text(), Some("Did you mean \"id\"?"));
    let e = error("SELECT 1 FROM a WHERE\n  idd = 1");
    assert_eq!((place(&e), e.hint_text()), ((2, 3), Some("Did you mean \"id\"?")));
    let e = error("SELECT c.id FROM a");
    assert_eq!((place(&e), e.sqlstate()), ((1, 8), "42P01"));
    assert!(e.message().contains("\"c\""));
    assert_eq!(error("SELECT c.* FROM a").sqlstate(), "42P01");
    let e = error("SELECT foo(id, 'x') FROM a");
    assert_eq!((place(&e), e.sqlstate()), ((1, 8), "42883"));
    assert!(e.message().contains("foo(integer, unknown)"), "{e}");
    assert_eq!(error("SELECT id::nonsense FROM a").sqlstate(), "42704");
    assert_eq!(place(&error("SELECT id, CAST(id AS\n  nonsense) FROM a")), (2, 3));
    assert_eq!(error("SELECT cuont(*) FROM a").hint_text(), Some("Did you mean \"count\"?"));
    assert_eq!(
        error("SELECT * FROM generate_seris(1, 3)").hint_text(),
        Some("Did you mean \"generate_series\"?")
    );
    // The function exists, but for arguments of other types.
    assert!(error("SELECT upper(id) FROM a").hint_text().is_some_and(|h| h.contains("cast")));
    assert_eq!(error("SELECT * FROM a JOIN b USING (nope)").sqlstate(), "42703");
}

#[test]
fn a_name_that_means_two_things() {
    let e = error("SELECT id FROM a JOIN b ON a.k = b.k");
    assert_eq!((place(&e), e.sqlstate()), ((1, 8), "42702"));
    assert!(e.hint_text().is_some());
    assert_eq!(error("SELECT 1 FROM a, a").sqlstate(), "42712");
    assert_eq!(error("SELECT id, v AS id FROM a").sqlstate(), "42701");
    assert_eq!(error("SELECT 1 FROM (SELECT 1) x (p, q)").sqlstate(), "42P10");
    query("SELECT 1 FROM a, a AS a2");
}

#[test]
fn types_that_do_not_fit() {
    let e = error("SELECT id + t FROM a");
    assert_eq!((place(&e), e.sqlstate()), ((1, 8), "42883"));
    assert!(e.message().contains("integer + text"), "{e}");
    for (sql, state, text) in [
        ("SELECT 1 FROM a WHERE id", "42804", "WHERE must be type boolean"),
        ("SELECT 1 FROM a WHERE NOT id", "42804", "NOT must be type boolean"),
        ("SELECT 1 FROM a JOIN b ON a.id", "42804", "JOIN/ON must be type boolean"),
        ("SELECT 1 FROM a WHERE id = 'x'", "22P02", "\"x\""),
        ("SELECT CASE WHEN true THEN 1 ELSE t END FROM a", "22P02", ""),
        ("SELECT CASE WHEN id = 1 THEN id ELSE t END FROM a", "42804", "integer and text"),
        ("SELECT id FROM a UNION SELECT t FROM a", "42804", "UNION types integer and text"),
        ("SELECT id FROM a UNION SELECT id, k FROM a", "42601", "same number of columns"),
        ("SELECT id::date FROM a", "42804", "cannot cast type integer to date"),
        ("SELECT DISTINCT j FROM n", "42883", "json"),
        ("SELECT count(*) FROM n GROUP BY j", "42883", "json"),
        ("SELECT j FROM n UNION SELECT j FROM n", "42883", "json"),
        ("SELECT 1 FROM n WHERE j = j", "42883", "json = json"),
        ("SELECT arr['a'] FROM n", "22P02", "\"a\""),
        ("SELECT 1 FROM a WHERE id = ANY (k)", "42804", "requires array"),
        ("SELECT (SELECT id, k FROM a)", "42601", "only one column"),
        ("SELECT 1 FROM a WHERE (id, k) IN (SELECT x FROM n)", "42601", "too few columns"),
        ("VALUES (1, 2), (3)", "42601", "same length"),
    ] {
        let e = error(sql);
        // A query whose expected text is empty only has to fail.
        if text.is_empty() {
            continue;
        }
        assert!(e.sqlstate() == state && e.message().contains(text), "{sql}: {} {e}", e.sqlstate());
        assert!(e.span().is_some(), "{sql}: {e}");
    }
}

#[test]
fn grouping_rules() {
    let e = error("SELECT k,\n v FROM a GROUP BY k");
    assert_eq!((place(&e), e.sqlstate()), ((2, 2), "42803"));
    assert!(e.message().contains("\"v\""), "{e}");
    for sql in [
        "SELECT id, count(*) FROM a",
        "SELECT count(count(*)) FROM a",
        "SELECT 1 FROM a WHERE count(*) > 1",
        "SELECT 1 FROM a GROUP BY count(*)",
        "SELECT k FROM a HAVING k > 1",
        "SELECT b.w FROM a JOIN b ON a.id = b.id GROUP BY a.id",
        "SELECT k, (SELECT max(x) FROM n WHERE y = a.v) FROM a GROUP BY k",
        "SELECT id, v FROM a GROUP BY ROLLUP (id)",
        "SELECT v FROM a GROUP BY GROUPING SETS ((k), ())",
        "SELECT GROUPING(v) FROM a GROUP BY CUBE (k)",
        "SELECT GROUPING(k) FROM a",
        "SELECT sum(GROUPING(k)) FROM a GROUP BY k",
        "SELECT k FROM a WHERE GROUPING(k) = 0 GROUP BY k",
        "SELECT k FROM a GROUP BY GROUPING(k)",
    ] {
        assert_eq!(error(sql).sqlstate(), "42803", "{sql}");
    }
    assert_eq!(error("SELECT k FROM a GROUP BY 2").sqlstate(), "42P10");
}

#[test]
fn views_that_fail_name_the_view() {
    let mut c = catalog();
    c.add_view("public", "loopy", "SELECT * FROM loopy");
    c.add_view("public", "broken", "SELECT nope FROM a");
    let e = lower("SELECT * FROM loopy", &c).unwrap_err();
    assert!(e.message().contains("reads itself"), "{e}");
    let e = lower("SELECT 1 FROM a,\n broken", &c).unwrap_err();
    assert_eq!(place(&e), (2, 2), "{e}");
    assert!(e.detail_text().unwrap().contains("broken"), "{e}");
}

#[test]
fn grouping_sets_are_as_many_as_postgresql_takes() {
    let keys = |n: usize| vec!["k"; n].join(", ");
    for (sql, state, text) in [
        (format!("SELECT 1 AS x FROM a GROUP BY CUBE ({})", keys(13)), "54011", "12 elements"),
        (format!("SELECT 1 AS x FROM a GROUP BY CUBE ({}), ROLLUP (k)", keys(12)), "54001", "maximum 4096"),
        (format!("SELECT 1 AS x FROM a GROUP BY GROUPING SETS (CUBE ({}), ())", keys(12)), "54001", "4096"),
        (format!("SELECT 1 AS x FROM a GROUP BY ROLLUP ({})", keys(4_096)), "54001", "4096"),
        (format!("SELECT GROUPING({}) FROM a GROUP BY k", keys(32)), "54023", "fewer than 32"),
        ("SELECT k FROM a GROUP BY ROLLUP (k ORDER BY k)".to_owned(), "42601", "expressions alone"),
        ("SELECT k FROM a GROUP BY CUBE (k), ROLLUP (())".to_owned(), "42601", ""),
    ] {
        let e = error(&sql);
        assert!(e.sqlstate() == state && e.message().contains(text), "{}: {e}", e.sqlstate());
    }
}
