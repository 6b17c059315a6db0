//! Tests of `trickle lint`: findings for programs, several files, standard input. The directory tests/errors
//! has the messages.

use super::{finish, run, trickle};
use std::io::Write;
use std::process::Stdio;

#[test]
fn lint_json_has_place_severity_code_message_and_help() {
    let ran =
        run(&["lint", "--json", "--schema", "schema.sql", "volatile_function.sql", "unknown_table.sql"]);
    assert_eq!((ran.code, ran.err.as_str()), (2, ""));
    let found = ran.json();
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    let text = |i: usize, key: &str| found[i][key].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (text(0, "file"), text(0, "severity"), text(0, "code")),
        ("volatile_function.sql".into(), "error".into(), "0A000".into())
    );
    assert_eq!((&found[0]["line"], &found[0]["column"]), (&1.into(), &12.into()));
    assert_eq!(
        (text(1, "file"), text(1, "severity"), text(1, "code")),
        ("unknown_table.sql".into(), "error".into(), "42P01".into())
    );
    assert_eq!((&found[1]["line"], &found[1]["column"]), (&2.into(), &6.into()));
    assert_eq!(
        (text(1, "message"), text(1, "help")),
        ("relation \"ordrs\" does not exist".into(), "Did you mean \"orders\"?".into())
    );
}

#[test]
fn nothing_to_say_is_an_empty_array_and_success() {
    let mut child = trickle();
    child.args(["lint", "--json", "-", "--schema", "schema.sql"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"SELECT region, count(*) AS n FROM customers GROUP BY 1").unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(0), &b"[]\n"[..]));
}

#[test]
fn lint_reads_tables_and_stream_tables_of_the_linted_files() {
    let dir = std::env::temp_dir().join(format!("trickle-lint-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    // In the order of files, the reader comes before its source. The reader names the source by its file.
    write("a.sql", "SELECT n, count(*) AS regions FROM by_region GROUP BY n");
    write(
        "by_region.sql",
        "CREATE TABLE c (id int PRIMARY KEY, region text);\nSELECT region, count(*) AS n FROM c GROUP BY 1;",
    );
    let ran = finish(trickle().current_dir(&dir).args(["lint", "a.sql", "by_region.sql"]));
    assert_eq!((ran.code, ran.out.as_str()), (0, "2 queries, all incremental\n"), "{}", ran.err);
    let alone = finish(trickle().current_dir(&dir).args(["lint", "a.sql"]));
    assert!(alone.code == 2 && alone.out.contains("relation \"by_region\" does not exist"), "{}", alone.out);
    assert!(alone.out.contains("pg_dump --schema-only"), "{}", alone.out);
    // The name in a comment before a query is the name of that query.
    write("named.sql", "-- name: shop.totals\nSELECT region, count(*) AS n FROM c GROUP BY 1;");
    write("b.sql", "SELECT n, count(*) AS regions FROM shop.totals GROUP BY n");
    let ran =
        finish(trickle().current_dir(&dir).args(["lint", "b.sql", "named.sql", "--schema", "by_region.sql"]));
    assert_eq!((ran.code, ran.out.as_str()), (0, "2 queries, all incremental\n"), "{}", ran.err);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn quiet_says_what_is_wrong_and_no_more() {
    let quiet = |file: &str| run(&["lint", "-q", "--schema", "schema.sql", file]);
    assert_eq!(
        (quiet("source_without_key.sql").out, quiet("source_without_key.sql").code),
        (String::new(), 0)
    );
    let ran = quiet("unknown_column.sql");
    assert!(ran.code == 2 && ran.out.contains("c.nam") && !ran.out.contains("query"), "{}", ran.out);
}

#[test]
fn a_file_that_is_not_there_is_bad_input() {
    let ran = run(&["lint", "nowhere.sql"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(ran.err.contains("cannot read \"nowhere.sql\""), "{}", ran.err);
    assert_eq!(run(&["lint"]).code, 2);
}

/// The file dump.sql is the output of PostgreSQL 15's `pg_dump --schema-only`. Its schema has views,
/// sequences, identity columns, partitions, inheritance, routines, policies, statistics, rules and a
/// publication.
#[test]
fn a_dump_is_a_schema() {
    let mut child = trickle();
    child.args(["lint", "-q", "-", "--schema", "../cli/dump.sql"]);
    let mut child =
        child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let queries = b"SELECT c.name, c.m, sum(o.amount) AS s FROM shop.c JOIN shop.o ON o.c = c.id WHERE c.p > 3 GROUP BY 1, 2;
        SELECT id, n FROM shop.v; SELECT name, n FROM shop.mv WHERE n > 1;
        SELECT d, sum(v) AS v FROM shop.part GROUP BY d; SELECT id, v FROM shop.part_1; SELECT id, extra FROM shop.inh;";
    child.stdin.take().unwrap().write_all(queries).unwrap();
    let out = child.wait_with_output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!((said.as_ref(), complained.as_ref(), out.status.code()), ("", "", Some(0)));
}

/// Lints queries on standard input over a schema file of tests/cli. Returns the exit code and the findings.
fn over(schema: &str, queries: &str) -> (i32, String) {
    let mut child = trickle();
    child.args(["lint", "-", "--schema", schema]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(queries.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    (out.status.code().unwrap_or(-1), String::from_utf8(out.stdout).unwrap())
}

/// The file extensions.sql is the output of PostgreSQL 15's `pg_dump --schema-only` for a schema over five
/// extensions. On that server, each query is updated by deltas.
#[test]
fn a_dump_with_extensions_is_a_schema() {
    let queries = "SELECT email, count(*) AS n FROM shop.u GROUP BY email;
        SELECT lower(email) AS l, count(DISTINCT second) AS n, min(email) AS m FROM shop.u GROUP BY 1;
        SELECT id, tags -> 'a' AS a FROM shop.u WHERE tags ? 'a' AND tags @> 'a=>1' AND email LIKE 'a%' AND email <> name;
        SELECT id FROM shop.u WHERE path <@ 'Top.Science' AND nlevel(path) > 2 AND email IN ('a', 'b');
        SELECT u.id, o.n, similarity(u.name, 'x') AS s FROM shop.u JOIN shop.o ON o.who = u.email;
        SELECT k.key, count(*) AS n FROM shop.u, each(tags) k GROUP BY 1;
        SELECT id, to_tsvector('english', body) AS t, shop.norm(email) AS e FROM shop.u
            WHERE words @@ plainto_tsquery('english', 'x') AND to_tsvector('simple', body) @@ 'y';
        SELECT id, uuid_generate_v5(uuid_ns_url(), name) AS g FROM shop.u;";
    let (code, said) = over("../cli/extensions.sql", queries);
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("Error") && said.ends_with("8 queries, all incremental\n"), "{said}");
    // For each extension, the output says once that the facts come from a list, and not from the server. The
    // stable operator of pg_trgm is tested below.
    assert_eq!(said.matches("known from a list here").count(), 5, "{said}");
    let (code, said) = over("../cli/extensions.sql", "SELECT email, a FROM shop.v;");
    assert!(code == 1 && said.contains("the stable operator %") && !said.contains("Error"), "{said}");
}

#[test]
fn what_only_the_server_knows_is_undecided() {
    let queries = "SELECT id, hstore_novelty(tags) AS x FROM shop.u;
        SELECT id, CASE WHEN n > 1 THEN who ELSE 'x'::text END AS w FROM shop.o;";
    let (code, said) = over("../cli/extensions.sql", queries);
    assert!(code == 1 && !said.contains("Error"), "{said}");
    assert!(said.ends_with("2 queries, 0 of them incremental, 2 undecided without a server\n"), "{said}");
    // The lists of these extensions are complete, so an unknown name cannot belong to one of them.
    let (code, said) = over("../cli/extensions.sql", "SELECT id, initcapp(name) AS x FROM shop.u");
    assert!(code == 2 && said.contains("function initcapp(text) does not exist"), "{said}");
}
