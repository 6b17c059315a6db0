//! A stream table is watched if it has readers, triggers or publications, or if foreign keys refer to it. A
//! refresh of a watched stream table, by delta or recompute, writes only the changed rows. The tests catch
//! foreign keys that a refresh violates for an instant, and triggers that fire for unchanged rows. The tests
//! also catch readers that are recomputed because their source was recomputed.

use crate::support::{
    Db, Driver, assert_equal, assert_same_bag, count, create, name, open, refresh, run, todays_server,
};
use trickle_client::{Alteration, NewStreamTable, RefreshMode, RefreshOptions, Session};
use trickle_core::refresh::Action;

const SOURCE: &str =
    "CREATE TABLE s (id int PRIMARY KEY, v int); INSERT INTO s SELECT i, i FROM generate_series(1, 200) i";
const KEYED: &str = "SELECT id, v * 2 AS v FROM s WHERE v >= 0";

async fn kept(db: &Db) -> (Driver, Session) {
    let mut t = open(db).await;
    let w = db.session().await;
    run(&w, SOURCE).await;
    create(&mut t, "k", KEYED).await;
    (t, w)
}

async fn full(t: &mut Driver) {
    t.refresh(&[name("k")], &RefreshOptions { full: true, ..RefreshOptions::default() }).await.unwrap();
    assert_equal(t, "k").await;
}

#[test]
fn foreign_keys_are_not_violated_by_a_full_refresh() {
    todays_server(async |db| {
        let (mut t, w) = kept(db).await;
        for action in ["CASCADE", "SET NULL", "NO ACTION", "RESTRICT"] {
            let table = format!(
                "CREATE TABLE child (kid int REFERENCES k (id) ON DELETE {action}); INSERT INTO child SELECT id FROM k WHERE id <= 50"
            );
            run(&w, &table).await;
            run(
                &w,
                "UPDATE s SET v = v + 1 WHERE id % 3 = 0; DELETE FROM s WHERE id = (SELECT max(id) FROM s)",
            )
            .await;
            full(&mut t).await;
            for _ in 0..3 {
                run(&w, "UPDATE s SET v = v + 1; DELETE FROM s WHERE id = (SELECT max(id) FROM s)").await;
                refresh(&mut t, "k").await;
                assert_equal(&mut t, "k").await;
            }
            assert_eq!(count(&w, "SELECT count(*) FROM child WHERE kid <= 50").await, 50, "{action}");
            run(&w, "DROP TABLE child").await;
        }
    });
}

#[test]
fn a_trigger_sees_an_update_as_an_update_and_no_other_row() {
    todays_server(async |db| {
        let (mut t, w) = kept(db).await;
        run(
            &w,
            "CREATE TABLE seen (op text, was int, is_now int); \
             CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                INSERT INTO public.seen VALUES (TG_OP, CASE WHEN TG_OP <> 'INSERT' THEN OLD.id END, CASE WHEN TG_OP <> 'DELETE' THEN NEW.id END); \
                RETURN NULL; END $$; \
             CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON k FOR EACH ROW EXECUTE FUNCTION see()",
        )
        .await;
        full(&mut t).await;
        assert_eq!(count(&w, "SELECT count(*) FROM seen").await, 0);
        run(
            &w,
            "UPDATE s SET v = v + 1 WHERE id = 7; DELETE FROM s WHERE id = 8; INSERT INTO s VALUES (1000, 1)",
        )
        .await;
        full(&mut t).await;
        let wanted = "SELECT count(*) FROM seen WHERE (op, was, is_now) IN (('UPDATE', 7, 7)) \
             OR (op, was) = ('DELETE', 8) OR (op, is_now) = ('INSERT', 1000)";
        assert_eq!(count(&w, wanted).await, 3);
        assert_eq!(count(&w, "SELECT count(*) FROM seen").await, 3);
    });
}

#[test]
fn readers_go_on_by_deltas_after_a_full_refresh() {
    todays_server(async |db| {
        let (mut t, w) = kept(db).await;
        create(&mut t, "reader", "SELECT v % 10 AS d, count(*) AS n FROM k GROUP BY v % 10").await;
        run(&w, "UPDATE s SET v = v + 1 WHERE id = 7").await;
        full(&mut t).await;
        let done = refresh(&mut t, "reader").await;
        let reader = done.iter().find(|d| d.report.name.ends_with("reader")).unwrap();
        assert_eq!(reader.report.action.name(), "DIFFERENTIAL", "{done:?}");
        assert_equal(&mut t, "reader").await;
    });
}

/// A refresh does not write unchanged rows, even after the query has changed.
#[test]
fn a_published_row_that_stays_is_not_written() {
    todays_server(async |db| {
        let (mut t, w) = kept(db).await;
        run(
            &w,
            "CREATE PUBLICATION told FOR TABLE k; CREATE TEMPORARY TABLE was AS SELECT ctid AS at, id FROM k",
        )
        .await;
        full(&mut t).await;
        let query = Some("SELECT id, v * 2 AS v FROM s WHERE v >= 100".to_owned());
        t.alter(&name("k"), &Alteration { query, ..Alteration::default() }).await.unwrap();
        refresh(&mut t, "k").await;
        assert_equal(&mut t, "k").await;
        let moved = "SELECT count(*) FROM was JOIN k USING (id) WHERE k.ctid <> was.at";
        assert_eq!(count(&w, moved).await, 0);
        assert_eq!(count(&w, "SELECT count(*) FROM k").await, 101);
    });
}

/// Queries whose plans cannot know that `id` is a key. The first query computes `id`. The other two queries
/// are in mode FULL, and the last one has equal rows.
const KEYLESS: [(&str, &str, RefreshMode); 3] = [
    ("computed", "SELECT id + 0 AS id, v * 2 AS v, j FROM s", RefreshMode::Auto),
    ("as_text", "SELECT id, v, j, pg_typeof(v)::text AS ty FROM s", RefreshMode::Full),
    ("repeated", "SELECT v % 7 AS id, j FROM s", RefreshMode::Full),
];

/// The user declared a key on the stream table. With this key, a refresh writes a changed row by an UPDATE.
/// Rows of other tables that refer to the changed row stay, unchanged rows are not written, and equal rows
/// keep their number.
#[test]
fn a_key_of_the_users_tells_which_rows_changed() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE s (id int PRIMARY KEY, v int, j json); INSERT INTO s SELECT i, i, json_build_object('i', i % 3) FROM generate_series(1, 60) i")
            .await;
        run(
            &w,
            "CREATE TABLE seen (op text, of text); CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                INSERT INTO public.seen VALUES (TG_OP, TG_TABLE_NAME); RETURN NULL; END $$",
        )
        .await;
        for (what, query, mode) in KEYLESS {
            let new = NewStreamTable { mode: Some(mode), ..NewStreamTable::new(name(what), query) };
            t.create(&new).await.unwrap();
            let see = format!(
                "CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON {what} FOR EACH ROW EXECUTE FUNCTION see()"
            );
            run(&w, &see).await;
            if what != "repeated" {
                let refers = format!(
                    "ALTER TABLE {what} ADD UNIQUE (id); CREATE TABLE child_{what} (kid int REFERENCES {what} (id) ON DELETE CASCADE); \
                     INSERT INTO child_{what} SELECT id FROM {what}"
                );
                run(&w, &refers).await;
            }
        }
        for (what, ..) in KEYLESS {
            create(
                &mut t,
                &format!("over_{what}"),
                &format!("SELECT id % 4 AS g, count(*) AS n FROM {what} GROUP BY id % 4"),
            )
            .await;
        }
        for write in [
            "UPDATE s SET v = v + 7 WHERE id = 3",
            "DELETE FROM s WHERE id = 60; INSERT INTO s VALUES (61, 60, '{\"i\" : 0}')",
            "UPDATE s SET id = 200 - id WHERE id IN (40, 41)",
            "UPDATE s SET v = 12 WHERE id IN (5, 6, 7); UPDATE s SET id = NULLIF(id, 0)",
        ] {
            run(&w, write).await;
            for (what, query, _) in KEYLESS {
                refresh(&mut t, what).await;
                assert_same_bag(&w, &format!("TABLE {what}"), query).await;
                let over = refresh(&mut t, &format!("over_{what}")).await;
                let mut over = over.iter().filter(|d| d.report.name.contains("over_"));
                assert!(
                    over.all(|d| [Action::Differential, Action::NoData].contains(&d.report.action)),
                    "{write}"
                );
                assert_equal(&mut t, &format!("over_{what}")).await;
            }
        }
        let children =
            "SELECT (SELECT count(*) FROM child_computed) * 1000 + (SELECT count(*) FROM child_as_text)";
        // The rows that referred to 60, 40 and 41 were deleted.
        assert_eq!(count(&w, children).await, 57_057);
        let seen = "SELECT count(*) FROM (SELECT of, op, count(*) AS n FROM seen GROUP BY 1, 2) x \
             WHERE (of, op, n) IN (('computed', 'UPDATE', 4), ('computed', 'DELETE', 3), ('computed', 'INSERT', 3), \
             ('as_text', 'UPDATE', 4), ('as_text', 'DELETE', 3), ('as_text', 'INSERT', 3))";
        assert_eq!(count(&w, seen).await, 6);
        run(&w, "TRUNCATE seen").await;
        for (what, ..) in KEYLESS {
            let full = RefreshOptions { full: true, ..RefreshOptions::default() };
            t.refresh(&[name(what)], &full).await.unwrap();
        }
        assert_eq!(count(&w, "SELECT count(*) FROM seen").await, 0);
    });
}

/// Some rows are deleted and inserted instead of updated. These are rows that exchange the values of a unique
/// index, and all rows of a stream table with a rule. With a rule, PostgreSQL does not allow a data-modifying
/// WITH.
#[test]
fn rows_that_no_update_can_change_are_written_too() {
    todays_server(async |db| {
        let mut t = open(db).await;
        let w = db.session().await;
        run(&w, "CREATE TABLE s (id int PRIMARY KEY, v int); INSERT INTO s SELECT i, i FROM generate_series(1, 9) i; CREATE TABLE log (id int)")
            .await;
        let query = "SELECT id, row_number() OVER (ORDER BY v) AS pos, pg_typeof(v)::text AS ty FROM s";
        let new =
            NewStreamTable { mode: Some(RefreshMode::Full), ..NewStreamTable::new(name("placed"), query) };
        t.create(&new).await.unwrap();
        run(&w, "ALTER TABLE placed ADD PRIMARY KEY (id), ADD UNIQUE (pos); CREATE TABLE kid () INHERITS (placed)").await;
        run(&w, "CREATE TRIGGER quick BEFORE UPDATE ON placed FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()")
            .await;
        for more in ["", "CREATE RULE also AS ON INSERT TO placed DO ALSO INSERT INTO log VALUES (NEW.id)"] {
            run(&w, more).await;
            run(&w, "UPDATE s SET v = CASE v WHEN 3 THEN 7 ELSE 3 END WHERE v IN (3, 7); DELETE FROM s WHERE id = (SELECT max(id) FROM s)")
                .await;
            refresh(&mut t, "placed").await;
            assert_same_bag(&w, "TABLE ONLY placed", query).await;
        }
        assert!(count(&w, "SELECT count(*) FROM log").await > 0);
    });
}

/// An object of the user on the stream table raises an error in a refresh. The test catches an error that
/// does not say which object has to change.
#[test]
fn an_index_or_a_rule_that_refuses_a_refresh_is_told() {
    todays_server(async |db| {
        let (mut t, w) = kept(db).await;
        let exchange = "UPDATE s SET v = 3 - v WHERE id IN (1, 2)";
        run(&w, &format!("CREATE UNIQUE INDEX pairs ON k (v); {exchange}")).await;
        let refused = t.refresh(&[name("k")], &RefreshOptions::default()).await.unwrap_err();
        assert_eq!(refused.sqlstate(), Some("23505"), "{refused}");
        assert!(refused.hint_text().is_some_and(|h| h.contains("DEFERRABLE")), "{refused}");
        run(&w, "DROP INDEX pairs; ALTER TABLE k ADD UNIQUE (v) DEFERRABLE").await;
        for _ in 0..2 {
            refresh(&mut t, "k").await;
            assert_equal(&mut t, "k").await;
            run(&w, exchange).await;
        }
        run(&w, "CREATE RULE other AS ON INSERT TO k DO ALSO SELECT 1").await;
        let refused = t.refresh(&[name("k")], &RefreshOptions::default()).await.unwrap_err();
        assert!(refused.hint_text().is_some_and(|h| h.starts_with("Drop the rule")), "{refused}");
        run(&w, "DROP RULE other ON k").await;
        refresh(&mut t, "k").await;
        assert_equal(&mut t, "k").await;
    });
}
