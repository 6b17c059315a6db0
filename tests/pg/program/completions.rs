//! Completions in a shell offer names from the database.

use super::{Ran, Role};
use crate::support::newest_server;

/// Returns the words that bash would offer for the last word of a line.
fn offered(app: &Role, database_url: Option<&str>, line: &[&str]) -> Vec<String> {
    let mut command = app.command(&[&["--", "trickle"], line].concat());
    command.env("TRICKLE_COMPLETE", "bash").env("_CLAP_IFS", "\n");
    command.env("_CLAP_COMPLETE_INDEX", line.len().to_string());
    if let Some(url) = database_url {
        command.env("DATABASE_URL", url);
    }
    let ran = Ran::of(&mut command);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line:?}");
    ran.out.lines().map(str::to_owned).collect()
}

#[test]
fn names_of_stream_tables_and_sources_are_completed() {
    newest_server(async |db| {
        let app = Role::owner(db).await;
        app.run_sql(db, "CREATE SCHEMA shop; CREATE TABLE parts (id int PRIMARY KEY, v int); CREATE TABLE shop.lines (id int PRIMARY KEY)").await;
        app.does(&["init", "--quiet"]);
        for (name, query) in [
            ("sales", "SELECT id, v FROM parts"),
            ("shop.sales", "SELECT id FROM shop.lines"),
            ("shop.\"Lines\"", "SELECT id FROM shop.lines"),
        ] {
            app.does(&["create", name, "--query", query, "--quiet"]);
        }
        // A name is not offered if the shell or the program would read it as another name.
        let all = ["public.sales", "sales", "shop.sales"];
        for command in
            ["refresh", "status", "check", "pause", "resume", "drop", "alter", "history", "explain", "wait"]
        {
            assert_eq!(
                offered(&app, None, &[command, ""])
                    .iter()
                    .filter(|o| !o.starts_with('-'))
                    .collect::<Vec<_>>(),
                all,
                "{command}"
            );
        }
        assert_eq!(offered(&app, None, &["refresh", "sales", "shop.s"]), ["shop.sales"]);
        for command in ["disable", "enable", "rebuild"] {
            assert_eq!(offered(&app, None, &[command, "p"]), ["parts", "public.parts"], "{command}");
            assert_eq!(offered(&app, None, &[command, "shop."]), ["shop.lines"], "{command}");
        }
        // When no server answers, no name is offered and no error is printed.
        assert!(offered(&app, Some("host=/nowhere"), &["refresh", "sa"]).is_empty());
        // No name is offered if the line names another database. No name is offered either if the catalog of
        // a superuser's database belongs to another role.
        assert!(
            offered(&app, None, &["--database-url", "postgres", ":", "//h/shop", "refresh", "shop.s"])
                .is_empty()
        );
        assert!(offered(&Role::superuser(db), None, &["refresh", "shop.s"]).is_empty());
        // A name that a shell would execute is not offered.
        app.run_sql(db, "ALTER TABLE parts RENAME TO \"parts$(id)\"").await;
        assert!(offered(&app, None, &["disable", "p"]).is_empty());
    });
}
