//! Tests of the texts of capture; other tests run these texts on servers.

use super::{Buffer, CopyScript, Mode};
use crate::catalog::MemoryCatalog;
use crate::sql::ast::Statement;
use crate::sql::print;
use crate::table::TableDef;
use std::sync::Arc;

fn table(ddl: &str) -> Arc<TableDef> {
    MemoryCatalog::from_ddl(ddl).unwrap().tables()[0].clone()
}

fn texts(statements: &[crate::sql::ast::Statement]) -> String {
    statements.iter().map(|s| print(s).text + ";\n").collect()
}

#[test]
fn an_install_waits_for_writers_first_and_fires_always() {
    let t = table("CREATE TABLE t (id int PRIMARY KEY, a text, b text)");
    let text = texts(&Mode::Statement.source().install(&Buffer::new(t, "ch", &[1, 0])));
    assert!(text.starts_with("LOCK TABLE ONLY public.t IN SHARE ROW EXCLUSIVE MODE;\n"), "{text}");
    assert_eq!(text.matches("ENABLE ALWAYS TRIGGER").count(), 4);
    assert_eq!(text.matches("SECURITY DEFINER SET search_path = pg_catalog, pg_temp").count(), 4);
    assert!(text.contains("FULL JOIN"), "{text}");
}

#[test]
fn updates_are_paired_only_where_it_can_pay() {
    for (ddl, columns, paired) in [
        ("CREATE TABLE t (id int PRIMARY KEY, a text)", vec![0], true),
        ("CREATE TABLE t (id int PRIMARY KEY, a text)", vec![0, 1], false),
        ("CREATE TABLE t (id int, a text)", vec![0], false),
        ("CREATE TABLE t (id int[] PRIMARY KEY, a text)", vec![1], false),
    ] {
        let text = texts(&Mode::Statement.source().install(&Buffer::new(table(ddl), "ch", &columns)));
        assert_eq!(text.contains("FULL JOIN"), paired, "{text}");
    }
}

#[test]
fn without_columns_an_update_changes_nothing() {
    for mode in Mode::PLAIN {
        let t = table("CREATE TABLE t (id int PRIMARY KEY)");
        let text = texts(&mode.source().install(&Buffer::new(t, "ch", &[])));
        assert!(!text.contains("AFTER UPDATE"), "{text}");
        assert_eq!(text.matches("CREATE TRIGGER").count(), 3);
    }
}

#[test]
fn widening_adds_columns_at_the_end() {
    let t = table("CREATE TABLE t (a int, b int, c int)");
    let buffer = Buffer::new(t, "ch", &[2]);
    let (wide, statements) = Mode::Statement.source().widen(&buffer, &[0, 2]);
    assert_eq!((wide.columns(), wide.generation(), wide.segments().len()), (&[2, 0][..], 2, 2));
    assert!(wide.covers(&[0, 2]) && !wide.covers(&[1]) && !buffer.covers(&[0]));
    let text = texts(&statements);
    assert!(text.contains("VIEW ch.changes_1 (xid, w, cmin, c, a)"), "{text}");
    assert!(text.contains("s.c, NULL::integer"), "{text}");
    assert_eq!(wide.without(1).segments().len(), 1);
    assert_eq!(wide.without(2).segments().len(), 2);
}

#[test]
fn a_closed_segment_is_written_again_only_if_it_has_all_columns() {
    let t = table("CREATE TABLE t (a int, b int)");
    let source = Mode::Statement.source();
    let (two, _) = source.rotate(&Buffer::new(t, "ch", &[0]));
    let (again, statements) = source.reopen(&two, 1).unwrap();
    assert_eq!(again.current().unwrap().number, 1);
    assert!(texts(&statements).contains("INSERT INTO ch.changes_1_1 "), "{}", texts(&statements));
    assert_eq!(source.rotate(&again).0.current().unwrap().number, 3);
    let (wide, _) = source.widen(&two, &[1]);
    assert!(source.reopen(&wide, 1).is_none());
}

#[test]
fn a_copying_trigger_has_the_statement_that_it_stands_for() {
    let t = table("CREATE TABLE t (id int PRIMARY KEY, w text, \"Odd\" int)");
    let buffer = Buffer::new(t, "ch", &[2, 1]).with_limit(4096);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let stated = words(&texts(&Mode::Statement.source().install(&buffer)));
    let made = Mode::Copy.source().install(&buffer);
    let mut found = 0;
    for s in &made {
        let Statement::CreateScriptFunction(f) = s else { continue };
        let script: CopyScript = serde_json::from_str(&f.script).unwrap();
        assert_eq!(script.segment, ("ch".to_owned(), "changes_1_1".to_owned()));
        let names: Vec<(&str, &str)> = script.columns.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(names, [("w", "_w"), ("Odd", "Odd")], "a segment's own columns keep their names");
        assert_eq!(script.limit, 4096);
        assert!(stated.contains(&words(&script.copy)), "{}", script.copy);
        assert!(script.mark.contains("INSERT INTO ch.changes_1_1 (xid, w)"), "{}", script.mark);
        assert!(s.to_string().contains("LANGUAGE pgtrickle_copy SECURITY DEFINER"), "{s}");
        found += 1;
    }
    assert_eq!(found, 3);
    assert_eq!(texts(&made).matches("LANGUAGE plpgsql").count(), 1, "that of TRUNCATE");
    assert_eq!(made.len(), Mode::Statement.source().install(&buffer).len());
}

/// Returns a table as a server describes it.
fn described(ddl: &str) -> Arc<TableDef> {
    let mut t = (*table(ddl)).clone();
    for (i, c) in t.columns.iter_mut().enumerate() {
        (c.number, c.type_id) = (i16::try_from(i + 1).unwrap(), 23);
    }
    Arc::new(t)
}

#[test]
fn no_value_is_read_before_the_guard() {
    let ddl = "CREATE TABLE t (id int PRIMARY KEY, a varchar(3), b text)";
    for mode in Mode::PLAIN {
        let text = texts(&mode.source().install(&Buffer::new(described(ddl), "ch", &[1])));
        for function in text.split("CREATE OR REPLACE FUNCTION").skip(1) {
            let body = function.split("CREATE TRIGGER").next().unwrap();
            let reads = ["r.a", "r.id", "new.a", "old.a"].iter().filter_map(|c| body.find(c)).min();
            let guard = body.find("IF pg_relation_size(to_regclass('ch.changes_1_1'::text)) < ");
            assert!(guard.is_some() && reads.is_none_or(|r| Some(r) > guard), "{body}");
            assert_eq!(reads.is_some(), body.contains("AND pgtrickle.misfit('1'::oid"), "{body}");
        }
        // For the key that pairs old and new rows, the check of the columns includes the type with its
        // length. The type of the buffer's column has no length.
        let pairs = r#"misfit('1'::oid, '{"2","1"}'::int2[], '{"a","id"}'::text[], '{"23","23"}'::oid[])"#;
        assert_eq!(text.contains(pairs), mode == Mode::Statement, "{text}");
        assert!(text.contains("a character varying\n") || text.contains("a varchar\n"), "{text}");
    }
}
