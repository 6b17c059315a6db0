//! `trickle apply` creates and changes the stream tables that a directory declares, step by step, and changes
//! no other table. The tests catch readers, indexes and rows that a step loses, and drops that nobody
//! allowed.

use super::Role;
use crate::support::{Db, count, newest_server, run};
use serde_json::Value;
use std::path::PathBuf;
use trickle_client::Session;

/// A directory with declarations of stream tables.
pub(super) struct Declarations(PathBuf);

impl Declarations {
    pub(super) fn new(app: &Role) -> Declarations {
        let dir = std::env::temp_dir().join(format!("trickle-declared-{}", app.name));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Declarations(dir)
    }

    pub(super) fn put(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    pub(super) fn remove(&self, name: &str) {
        std::fs::remove_file(self.0.join(name)).unwrap();
    }

    pub(super) fn path(&self) -> String {
        self.0.display().to_string()
    }

    /// Applies the declarations. Returns the exit code and the planned steps, each as a verb and a name.
    pub(super) fn apply(&self, app: &Role, more: &[&str]) -> (i32, Vec<(String, String)>) {
        let dir = self.path();
        let args = [&["--json", "apply", &dir][..], more].concat();
        let ran = app.trickle(&args);
        let plan: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
        let word = |s: &Value, key: &str| s[key].as_str().unwrap().to_owned();
        let steps = plan["steps"].as_array().unwrap();
        let done = ran.code == 0 && !more.contains(&"--dry-run");
        assert!(steps.iter().all(|s| s["done"] == done), "{plan}");
        (ran.code, steps.iter().map(|s| (word(s, "what"), word(s, "name"))).collect())
    }
}

impl Drop for Declarations {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn steps(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(what, name)| ((*what).to_owned(), format!("public.{name}"))).collect()
}

const TOTALS: &str = "-- schedule: 5m\nSELECT c.region, sum(o.amount) AS total FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region;\n";
const LARGE: &str = "SELECT region, total FROM totals WHERE total > 100\n";

async fn begun(db: &Db) -> (Role, Session, Declarations) {
    let app = Role::owner(db).await;
    app.does(&["init", "--quiet"]);
    let files = Declarations::new(&app);
    // In the order of file names, the file of the reader comes before the file of its source.
    files.put("large.sql", LARGE);
    files.put("totals.sql", TOTALS);
    files.put("notes.txt", "not SQL");
    (app, db.session().await, files)
}

async fn oid(s: &Session, name: &str) -> i64 {
    count(s, &format!("SELECT to_regclass('{name}')::oid::int8")).await
}

#[test]
fn apply_makes_the_declared_tables_and_touches_no_others() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        app.does(&["create", "by_hand", "--query", "SELECT id FROM customers", "--quiet"]);
        let made = steps(&[("create", "totals"), ("create", "large")]);
        assert_eq!(files.apply(&app, &["--dry-run"]), (0, made.clone()));
        assert_eq!(
            count(&s, "SELECT count(*) FROM pgtrickle.pgt_stream_tables").await,
            1,
            "nothing was done"
        );
        assert_eq!(files.apply(&app, &[]), (0, made));
        assert_eq!(files.apply(&app, &[]), (0, vec![]));
        // The declaration changes the schedule and the layout of the query. Only the schedule is set, since
        // the layout does not change the meaning of the query.
        files.put("totals.sql", &TOTALS.replace("5m", "10m").replace(" FROM", "\n  FROM"));
        assert_eq!(files.apply(&app, &[]), (0, steps(&[("set", "totals")])));
        let schedule =
            "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'totals' AND schedule = '10m'";
        assert_eq!(count(&s, schedule).await, 1);
        // The query gets a new column. The reader, the view and the index stay.
        run(&s, "CREATE VIEW shown AS SELECT region, total FROM totals; CREATE INDEX mine ON totals (total)")
            .await;
        let before = oid(&s, "totals").await;
        files.put("totals.sql", &TOTALS.replace("AS total", "AS total, count(*) AS n"));
        assert_eq!(files.apply(&app, &[]), (0, steps(&[("change", "totals")])));
        assert_eq!(oid(&s, "totals").await, before);
        assert_eq!(
            count(&s, "SELECT count(*) FROM shown JOIN totals USING (region) WHERE n > 0").await,
            count(&s, "SELECT count(DISTINCT region) FROM customers").await
        );
        assert_ne!(oid(&s, "mine").await, 0);
        app.does(&["check", "--quiet"]);
        // A file declares a stream table that was created by hand. The stream table then belongs to the
        // declarations.
        files.put("by_hand.sql", "SELECT id FROM customers");
        assert_eq!(files.apply(&app, &[]), (0, steps(&[("take", "by_hand")])));
        files.remove("by_hand.sql");
        assert_eq!(files.apply(&app, &[]), (1, steps(&[("drop", "by_hand")])));
        assert_eq!(files.apply(&app, &["--dry-run"]), (1, steps(&[("drop", "by_hand")])));
        assert_eq!(files.apply(&app, &["--allow-drop", "--dry-run"]), (0, steps(&[("drop", "by_hand")])));
        assert_ne!(oid(&s, "by_hand").await, 0);
        assert_eq!(files.apply(&app, &["--allow-drop"]), (0, steps(&[("drop", "by_hand")])));
        // Readers are dropped before their sources.
        files.remove("large.sql");
        files.remove("totals.sql");
        run(&s, "DROP VIEW shown").await;
        let gone = steps(&[("drop", "large"), ("drop", "totals")]);
        assert_eq!(files.apply(&app, &[]), (1, gone.clone()));
        assert_eq!(files.apply(&app, &["--allow-drop"]), (0, gone));
        assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_stream_tables").await, 0);
    });
}

/// The exit code of a dry run shows whether a run would do anything. A stream table that somebody dropped is
/// created again. A message names subdirectories, which are not read.
#[test]
fn a_dropped_table_is_made_again_and_programs_can_ask() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        let asked = |args: &[&str]| {
            let dir = files.path();
            let ran = app.trickle(&[&["apply", &dir, "--dry-run"], args].concat());
            (ran.code, ran.err)
        };
        assert_eq!(asked(&["--exit-code"]).0, 4);
        files.apply(&app, &[]);
        assert_eq!(asked(&["--exit-code"]).0, 0);
        run(&s, "DROP TABLE large").await;
        assert_eq!(asked(&["--exit-code"]).0, 4);
        assert_eq!(asked(&[]).0, 0);
        assert_eq!(files.apply(&app, &[]), (0, steps(&[("create", "large")])));
        assert_eq!(files.apply(&app, &[]), (0, steps(&[])));
        app.does(&["check", "--quiet"]);
        std::fs::create_dir(PathBuf::from(files.path()).join("more")).unwrap();
        let (code, told) = asked(&[]);
        assert!(
            code == 0 && told.contains("not read, since apply reads the files of one directory"),
            "{told}"
        );
    });
}

/// The new query lacks a column on which objects of the user depend.
#[test]
fn a_column_goes_where_that_is_allowed_alone() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        files.remove("large.sql");
        let wide = TOTALS.replace("AS total", "AS total, count(*) AS n");
        files.put("totals.sql", &wide);
        files.apply(&app, &[]);
        run(
            &s,
            "CREATE INDEX by_n ON totals (region, n); ALTER TABLE totals ADD CONSTRAINT few CHECK (n > 0)",
        )
        .await;
        run(&s, "CREATE INDEX by_total ON totals (total)").await;
        let before = oid(&s, "totals").await;
        files.put("totals.sql", TOTALS);
        let refused = app.trickle(&["apply", &files.path(), "--json"]);
        let plan: Value = serde_json::from_str(&refused.out).unwrap();
        let step = &plan["steps"][0];
        assert_eq!(
            (refused.code, step["destroys"].as_bool(), step["done"].as_bool()),
            (1, Some(true), Some(false))
        );
        let lost = ["column n", "constraint few on table public.totals", "index public.by_n"];
        assert_eq!(step["loses"], serde_json::json!(lost));
        assert!(refused.err.contains("column n and constraint few"), "{}", refused.err);
        assert_eq!(
            count(&s, "SELECT count(n) FROM totals").await,
            count(&s, "SELECT count(*) FROM totals").await
        );
        // Only the creation of a new source shows that the column would be lost. The column stays in this
        // case too.
        files.put("regions.sql", "SELECT region, sum(amount) AS total FROM orders o JOIN customers c ON c.id = o.customer GROUP BY region");
        files.put("totals.sql", "SELECT region, total FROM regions");
        let refused = app.trickle(&["apply", &files.path()]);
        assert!(
            refused.code == 2 && refused.err.contains("public.totals would lose column n"),
            "{refused:?}"
        );
        assert_ne!(oid(&s, "by_n").await, 0);
        assert_eq!(files.apply(&app, &[]), (1, steps(&[("change", "totals")])));
        assert_eq!(files.apply(&app, &["--allow-drop"]), (0, steps(&[("change", "totals")])));
        assert_eq!(oid(&s, "totals").await, before);
        let left = "SELECT count(*) FROM pg_class WHERE relname IN ('by_n', 'by_total')";
        assert_eq!(count(&s, left).await, 1);
        app.does(&["check", "--quiet"]);
    });
}

#[test]
fn a_file_that_has_another_name_renames() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        files.apply(&app, &[]);
        let before = oid(&s, "totals").await;
        let history = "SELECT count(*) FROM pgtrickle.pgt_refresh_history JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE pgt_name IN ('totals', 'sums') AND action <> 'NO_DATA'";
        let refreshes = count(&s, history).await;
        // A rename is refused while the query of a reader names the former name.
        files.remove("totals.sql");
        files.put("sums.sql", &TOTALS.replace("5m", "1h"));
        let dir = files.0.display().to_string();
        let refused = app.trickle(&["apply", &dir]);
        assert!(
            refused.code == 2 && refused.err.contains("public.large reads it by its name"),
            "{refused:?}"
        );
        // The rename is refused also when the reader is renamed too, with its query unchanged.
        files.remove("large.sql");
        files.put("larger.sql", LARGE);
        let refused = app.trickle(&["apply", &dir]);
        assert!(
            refused.code == 2 && refused.err.contains("public.large reads it by its name"),
            "{refused:?}"
        );
        files.remove("larger.sql");
        files.put("large.sql", &LARGE.replace("totals", "sums"));
        let expected = steps(&[("rename", "sums"), ("set", "sums"), ("change", "large")]);
        let (code, mut found) = files.apply(&app, &[]);
        found.sort_by_key(|(what, _)| expected.iter().position(|(w, _)| w == what));
        assert_eq!((code, found), (0, expected));
        assert_eq!(oid(&s, "sums").await, before, "the table is the same");
        assert_eq!(count(&s, history).await, refreshes, "and was not computed anew");
        run(&s, "UPDATE orders SET amount = amount + 1000 WHERE id % 7 = 0").await;
        app.does(&["refresh", "--all", "--quiet"]);
        app.does(&["check", "--quiet"]);
        // The indexes that trickle made for the stream table are renamed too, since a new query needs to find
        // them.
        files.put("sums.sql", "SELECT id, amount FROM orders");
        let dir = files.0.display().to_string();
        let kept = app.trickle(&["apply", &dir]);
        assert!(kept.code != 0 && kept.err.contains("public.large reads the column"), "{kept:?}");
        files.put("large.sql", "SELECT id FROM sums WHERE amount > 100");
        let changed = steps(&[("change", "sums"), ("change", "large")]);
        assert_eq!(files.apply(&app, &[]), (1, changed.clone()), "columns would go");
        assert_eq!(files.apply(&app, &["--allow-drop"]), (0, changed));
        app.does(&["check", "--quiet"]);
        assert_eq!(count(&s, "SELECT count(*) FROM pg_class WHERE relname LIKE 'totals%'").await, 0);
        assert_eq!(files.apply(&app, &[]), (0, vec![]));
    });
}

#[test]
fn apply_remakes_incompatible_tables_only_with_allow_drop() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        files.remove("large.sql");
        files.apply(&app, &[]);
        files.put("totals.sql", "SELECT count(*) AS n, region FROM customers GROUP BY region");
        assert_eq!(files.apply(&app, &[]), (1, steps(&[("remake", "totals")])));
        app.does(&["check", "--quiet"]);
        assert_eq!(files.apply(&app, &["--allow-drop"]), (0, steps(&[("remake", "totals")])));
        app.does(&["check", "--quiet"]);
        assert_eq!(files.apply(&app, &[]), (0, vec![]));
        // When the new query raises an error, the former stream table stays.
        let before = oid(&s, "totals").await;
        files.put(
            "totals.sql",
            "SELECT region, count(*) / (count(*) - count(*)) AS n FROM customers GROUP BY region",
        );
        let raised = app.trickle(&["apply", &files.0.display().to_string(), "--allow-drop"]);
        assert!(raised.code == 1 && raised.err.contains("division by zero"), "{raised:?}");
        assert_eq!(oid(&s, "totals").await, before);
        assert_eq!(count(&s, "SELECT count(*) FROM pg_class WHERE relname LIKE 'new\\_%'").await, 0);
        // When a view reads the former stream table, that stream table stays too. The next run continues a
        // run that ended half-way.
        run(&s, "CREATE VIEW readers AS SELECT n FROM totals").await;
        files.put("totals.sql", "SELECT region, count(*) AS n FROM customers GROUP BY region");
        let read = app.trickle(&["apply", &files.0.display().to_string(), "--allow-drop"]);
        assert!(read.code != 0 && read.err.contains("readers"), "{read:?}");
        assert_eq!(oid(&s, "totals").await, before);
        run(&s, "DROP VIEW readers").await;
        // A stream table that reads the replaced stream table stays, and is planned again.
        files.put("large.sql", "SELECT region FROM totals WHERE n > 6");
        let both = steps(&[("remake", "totals"), ("create", "large")]);
        assert_eq!(files.apply(&app, &["--allow-drop"]), (0, both));
        let reader = oid(&s, "large").await;
        files.put("totals.sql", "SELECT count(*) AS n, region FROM customers GROUP BY region");
        assert_eq!(files.apply(&app, &["--allow-drop"]), (0, steps(&[("remake", "totals")])));
        assert_ne!(oid(&s, "totals").await, before);
        assert_eq!(oid(&s, "large").await, reader);
        run(&s, "UPDATE customers SET region = 'r1' WHERE id < 10").await;
        app.does(&["refresh", "--all", "--quiet"]);
        app.does(&["check", "--quiet"]);
        run(&s, "UPDATE customers SET region = 'r2' WHERE id < 10").await;
        app.does(&["refresh", "--all", "--quiet"]);
        app.does(&["check", "--quiet"]);
        let indexes =
            "SELECT count(*) FROM pg_indexes WHERE tablename = 'totals' AND indexname LIKE 'totals%'";
        assert_eq!(count(&s, indexes).await, 1);
        assert_eq!(count(&s, "SELECT count(*) FROM pg_class WHERE relname LIKE 'new\\_%'").await, 0);
        assert_eq!(files.apply(&app, &[]), (0, vec![]));
        // `apply` does not touch a table of another role.
        run(&s, "CREATE TABLE theirs (id int)").await;
        files.put("theirs.sql", "SELECT id FROM customers");
        let dir = files.0.display().to_string();
        assert_eq!(app.trickle(&["apply", &dir]).code, 2);
        files.remove("theirs.sql");
        // Two sets of declarations do not change each other's stream tables.
        let refused = app.trickle(&["apply", &dir, "--label", "other"]);
        assert!(refused.code == 2 && refused.err.contains("belongs to the declarations"), "{refused:?}");
    });
}

#[test]
fn apply_reports_faults_of_files_before_the_first_step() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        let dir = files.0.display().to_string();
        for (text, said) in [
            ("SELECT nothing FROM customers", "nothing"),
            ("SELECT 1; SELECT 2", "one query"),
            ("CREATE VIEW v AS SELECT 1", "one query"),
            ("-- schedule: sometimes\nSELECT id FROM customers", "sometimes"),
            ("-- mode: fast\nSELECT id FROM customers", "fast"),
            ("-- snapshots: yes\nSELECT id FROM customers", "yes"),
            ("-- schedul: 5s\nSELECT id FROM customers", "Did you mean schedule?"),
            ("-- diamond-consistency: none\nSELECT id FROM customers", "Did you mean diamond_consistency?"),
            ("SELECT id FROM wrong", "wrong"),
            ("-- mode: differential\nSELECT id, random() AS r FROM customers", "random"),
            ("-- name: totals\nSELECT id FROM customers", "declared twice"),
        ] {
            files.put("wrong.sql", text);
            let refused = app.trickle(&["apply", &dir]);
            assert!(refused.code == 2 && refused.err.contains(said), "{text}: {refused:?}");
            assert!(refused.err.contains("wrong.sql") || said == "declared twice", "{refused:?}");
            assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_stream_tables").await, 0, "{text}");
        }
        assert_eq!(app.trickle(&["apply", "/nonexistent"]).code, 2);
        // Three declarations read each other in a circle.
        files.put("wrong.sql", "SELECT region, total FROM large");
        files.put("totals.sql", "SELECT region, total FROM wrong");
        let refused = app.trickle(&["apply", &dir]);
        let circle = "public.large reads public.totals reads public.wrong reads public.large";
        assert!(refused.code == 2 && refused.err.contains(circle), "{refused:?}");
        files.put("totals.sql", TOTALS);
        files.remove("wrong.sql");
        let shown = app.trickle(&["apply", &dir]);
        // The whole plan is printed before the first step is done.
        let (plan, done) = (shown.out.rfind("create ").unwrap(), shown.out.find("created in").unwrap());
        assert!(shown.code == 0 && plan < done, "{shown:?}");
    });
}

/// The plan reports the steps that cannot be done. So each plan whose dry run succeeds can be done.
#[test]
fn apply_reports_what_blocks_its_plan_before_the_first_step() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        files.put("more.sql", "SELECT id, name, region FROM customers");
        files.apply(&app, &[]);
        run(&s, "CREATE VIEW named AS SELECT name FROM more").await;
        app.does(&["create", "by_hand", "--query", "SELECT id, region FROM more", "--quiet"]);
        let before = count(&s, "SELECT count(*) FROM pg_class").await;
        let (dir, totals) = (files.path(), &TOTALS.replace("5m", "7m"));
        for (file, text, said) in [
            (
                "more.sql",
                Some("SELECT id, region FROM customers"),
                "view public.named depends on column name of public.more",
            ),
            (
                "more.sql",
                Some("SELECT id, name::varchar(9) AS name, region FROM customers"),
                "view public.named",
            ),
            ("more.sql", Some("SELECT id, name FROM customers"), "public.by_hand reads the column region"),
            (
                "more.sql",
                Some("SELECT region, name, id FROM customers"),
                "view public.named depends on public.more",
            ),
            ("more.sql", None, "public.by_hand reads public.more, which is not declared any more"),
            ("totals.sql", None, "public.large reads public.totals"),
        ] {
            // The change of `totals` alone would be possible. The program must not do the change, because
            // another step of the plan is impossible.
            files.put("totals.sql", totals);
            match text {
                Some(text) => files.put(file, text),
                None => files.remove(file),
            }
            for more in [&["--dry-run"][..], &[]] {
                let ran = app.trickle(&[&["apply", &dir, "--allow-drop"][..], more].concat());
                assert!(ran.code == 2 && ran.err.contains(said), "{file} {text:?}: {ran:?}");
                assert!(!ran.err.contains("--cascade"), "{ran:?}");
            }
            files.put("more.sql", "SELECT id, name, region FROM customers");
        }
        assert_eq!(count(&s, "SELECT count(*) FROM pg_class").await, before);
        let set = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE schedule = '7m'";
        assert_eq!(count(&s, set).await, 0);
    });
}

/// Every setting in the comments of a declaration takes effect. When the comment is removed, the setting
/// loses its effect.
#[test]
fn settings_in_comments_of_declarations_take_effect() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        let in_force = async || {
            let text = "SELECT format('%s %s %s %s', pgt_name, schedule, requested_mode, diamond_consistency) \
                 FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'kept'";
            s.client().query_one(text, &[]).await.unwrap().get::<_, String>(0)
        };
        for (comments, done, expected) in [
            (
                "-- name: public.kept\n-- schedule: TZ=Europe/Berlin 0 6 * * *",
                "create",
                "kept TZ=Europe/Berlin 0 6 * * * AUTO atomic",
            ),
            ("-- name: kept\n-- mode: full\n-- schedule: 2h", "change", "kept 2h FULL atomic"),
            (
                "-- name: kept\n-- mode: FULL\n-- Schedule: manual\n-- diamond_consistency: none",
                "set",
                "kept  FULL none",
            ),
            ("-- name: kept\n-- mode: immediate", "change", "kept calculated IMMEDIATE atomic"),
            ("-- note: nothing\n-- name: kept", "change", "kept calculated AUTO atomic"),
        ] {
            files.put("other.sql", &format!("{comments}\nSELECT id, name FROM customers"));
            let (code, steps) = files.apply(&app, &[]);
            let done = (done.to_owned(), "public.kept".to_owned());
            assert!(code == 0 && steps.contains(&done), "{comments}: {steps:?}");
            assert_eq!(in_force().await, expected);
            assert_eq!(files.apply(&app, &[]), (0, vec![]), "{comments}");
            app.does(&["check", "--quiet"]);
        }
        let plan = app.trickle(&["apply", &files.path(), "--dry-run"]);
        assert!(plan.code == 0 && plan.out.contains("as declared"), "{plan:?}");
    });
}

/// The program works as only one role in a database, since objects that another role made would not belong to
/// the catalog's owner.
#[test]
fn a_role_that_was_let_in_declares_nothing_by_program() {
    newest_server(async |db| {
        let owner = Role::owner(db).await;
        owner.does(&["init", "--quiet"]);
        let guest = Role::create(db, "guest").await;
        let s = db.session().await;
        run(
            &s,
            &format!("CREATE SCHEMA own AUTHORIZATION {0}; SELECT pgtrickle.grant_to('{0}')", guest.name),
        )
        .await;
        guest.run_sql(db, "CREATE TABLE own.t (id int PRIMARY KEY, k int)").await;
        let files = Declarations::new(&guest);
        files.put("kept.sql", "-- name: own.kept\nSELECT id, k FROM own.t");
        let refused = guest.trickle(&["apply", &files.path()]);
        assert!(
            refused.code == 2 && refused.err.contains("The catalog belongs to another role"),
            "{refused:?}"
        );
        assert_eq!(count(&s, "SELECT count(*) FROM pgtrickle.pgt_stream_tables").await, 0);
        assert_eq!(count(&s, "SELECT count(to_regclass('own.kept'))").await, 0);
    });
}

/// A column of a stream table can be dropped only after the last reader of the column is gone.
#[test]
fn a_column_that_a_reader_gave_up_goes() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        files.put("totals.sql", &TOTALS.replace("AS total", "AS total, count(*) AS n"));
        files.put("large.sql", "SELECT region, total, n FROM totals WHERE total > 100");
        assert_eq!(files.apply(&app, &[]).0, 0);
        files.put("large.sql", LARGE);
        assert_eq!(files.apply(&app, &["--allow-drop"]), (0, steps(&[("change", "large")])));
        // The changes of the dropped column were still captured, although no reader needed them.
        files.put("totals.sql", &TOTALS.replace("AS total", "AS total, min(o.id) AS least"));
        assert_eq!(files.apply(&app, &["--allow-drop"]), (0, steps(&[("change", "totals")])));
        run(&s, "UPDATE orders SET amount = amount + 1000 WHERE id % 7 = 0; ALTER TABLE totals ADD CHECK (total >= 0)").await;
        app.does(&["refresh", "--all", "--quiet"]);
        app.does(&["check", "--quiet"]);
        // The reader's declaration changes too, but still reads the dropped column.
        files.put("totals.sql", "SELECT region, count(*) AS n FROM customers GROUP BY region");
        files.put("large.sql", "SELECT region, total FROM totals WHERE total > 1000");
        let refused = app.trickle(&["apply", &files.path(), "--dry-run"]);
        assert!(
            refused.code == 2 && refused.err.contains("public.large reads the column total"),
            "{refused:?}"
        );
        files.remove("totals.sql");
        let refused = app.trickle(&["apply", &files.path(), "--dry-run", "--allow-drop"]);
        assert!(refused.code == 2 && refused.err.contains("public.large reads public.totals"), "{refused:?}");
        files.remove("large.sql");
        assert_eq!(
            files.apply(&app, &["--allow-drop"]),
            (0, steps(&[("drop", "large"), ("drop", "totals")]))
        );
    });
}

/// A query with an unchanged text gets another meaning when a name in the text becomes the name of another
/// table or function.
#[test]
fn the_same_text_over_another_table_is_a_change() {
    newest_server(async |db| {
        let (app, _, files) = begun(db).await;
        app.run_sql(
            db,
            "CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1); \
            CREATE FUNCTION plus(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i + 1'",
        )
        .await;
        files.put("other.sql", "-- name: kept\nSELECT id, plus(id) AS more FROM u");
        assert_eq!(files.apply(&app, &[]).0, 0);
        for change in [
            "ALTER TABLE u RENAME TO u_old; CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (7), (8)",
            "ALTER FUNCTION plus(int) RENAME TO plus_old; \
             CREATE FUNCTION plus(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i + 2'",
        ] {
            app.run_sql(db, change).await;
            let changed = vec![("change".to_owned(), "public.kept".to_owned())];
            assert_eq!(files.apply(&app, &[]), (0, changed), "{change}");
            assert_eq!(files.apply(&app, &[]), (0, vec![]), "{change}");
            app.does(&["check", "--quiet"]);
        }
        let s = db.session().await;
        assert_eq!(count(&s, "SELECT sum(more) FROM public.kept").await, 19);
    });
}

/// The server looks up the names in a query under the search path of the declaring role. Other roles may
/// create objects in one of the schemas of this path.
#[test]
fn a_changed_query_is_found_where_others_may_create() {
    newest_server(async |db| {
        let (app, s, files) = begun(db).await;
        app.run_sql(db, "CREATE TABLE u (id int PRIMARY KEY); INSERT INTO u VALUES (1), (5)").await;
        files.put("other.sql", "-- name: kept\nSELECT id FROM u WHERE id > 3");
        assert_eq!(files.apply(&app, &[]).0, 0);
        run(&s, "DO $$ BEGIN EXECUTE format('GRANT CREATE ON SCHEMA %I TO PUBLIC', (SELECT relnamespace::regnamespace::text FROM pg_class \
            WHERE relname = 'u')); END $$").await;
        files.put("other.sql", "-- name: kept\nSELECT id FROM u WHERE id > 0");
        let changed = vec![("change".to_owned(), "public.kept".to_owned())];
        assert_eq!(files.apply(&app, &[]), (0, changed));
        assert_eq!(files.apply(&app, &[]), (0, vec![]));
        assert_eq!(count(&s, "SELECT count(*) FROM public.kept").await, 2);
        app.does(&["check", "--quiet"]);
    });
}
