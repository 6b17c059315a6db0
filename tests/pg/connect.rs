//! The way to a real server, by the library and by the program: what is set arrives there, and what it refuses is said
//! in its words with what to try.

use crate::support::{Db, each_server};
use std::process::{Command, Output};
use trickle_client::connect::{ConnectError, Target};

/// The library's way, with no environment.
async fn connect(settings: &str) -> Result<tokio_postgres::Client, ConnectError> {
    Target::resolve(Some(settings), &|_| None)?.connect().await
}

/// `trickle doctor`, with no variable that it would heed.
fn doctor(settings: &str, args: &[&str]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_trickle"));
    for (name, _) in std::env::vars().filter(|(n, _)| n.starts_with("PG") || n == "DATABASE_URL") {
        c.env_remove(name);
    }
    c.args(["doctor", "--database-url", settings]).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn settings_arrive_at_the_server() {
    each_server(async |db| {
        let settings = format!("{} options='-c work_mem=7MB -c TimeZone=Asia/Tokyo'", db.settings());
        let client = connect(&settings).await.unwrap();
        let sql = "SELECT current_setting('application_name') || ' ' || current_setting('work_mem') || ' ' || \
                   current_setting('TimeZone')";
        let said: String = client.query_one(sql, &[]).await.unwrap().get(0);
        assert_eq!(said, "trickle 7MB Asia/Tokyo");
    });
}

#[test]
fn a_refusal_is_told_in_the_servers_words_with_what_to_try() {
    each_server(async |db| {
        let refused = async |settings: String| connect(&settings).await.err().unwrap();
        let e = refused(format!("{} dbname=nowhere", db.settings())).await;
        assert!(e.message().ends_with("database \"nowhere\": database \"nowhere\" does not exist"), "{e}");
        assert!(e.hint_text().unwrap().contains("createdb nowhere"), "{e}");
        let e = refused(format!("{} user=nobody_here", db.settings())).await;
        assert!(e.message().ends_with("role \"nobody_here\" does not exist"), "{e}");
        let e = refused(format!("{} port=1", db.settings())).await;
        assert!(e.message().contains("/.s.PGSQL.1 as user \"postgres\"") && !e.is_setting(), "{e}");
        let e = refused(format!("{} options='-c nonsense=1'", db.settings())).await;
        assert!(e.message().contains("nonsense"), "{e}");
    });
}

/// The results of the checks by name.
fn results(db: &Db, user: &str) -> (Option<i32>, serde_json::Value) {
    let out = doctor(&format!("{} user={user}", db.settings()), &["--json"]);
    let all: serde_json::Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e} {out:?}"));
    let checks = all["checks"].as_array().unwrap().iter();
    let by_name = checks.map(|c| (c["check"].as_str().unwrap().to_owned(), c["result"].clone())).collect();
    (out.status.code(), serde_json::Value::Object(by_name))
}

#[test]
fn doctor_says_what_is_in_the_way_of_a_role() {
    each_server(async |db| {
        let s = db.session().await;
        // Roles belong to the whole server: the name is this database's.
        let name: String =
            s.client().query_one("SELECT 'plain_' || current_database()", &[]).await.unwrap().get(0);
        s.client().batch_execute(&format!("CREATE ROLE {name} LOGIN")).await.unwrap();
        let (code, found) = results(db, &name);
        assert_eq!((code, &found["privileges"], &found["role"]), (Some(1), &"problem".into(), &"ok".into()));
        let out = doctor(&format!("{} user={name}", db.settings()), &[]);
        assert!(text(&out.stdout).contains("GRANT CREATE ON DATABASE"), "{}", text(&out.stdout));

        let grant = format!(
            "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO {name}', current_database()); END $$"
        );
        s.client().batch_execute(&grant).await.unwrap();
        let (code, found) = results(db, &name);
        assert_eq!((code, &found["privileges"], &found["version"]), (Some(0), &"ok".into(), &"ok".into()));
        assert_eq!(results(db, "postgres").1["role"], "warning");

        s.client().batch_execute("BEGIN; PREPARE TRANSACTION 'forgotten'").await.unwrap();
        let out = doctor(&format!("{} user={name}", db.settings()), &[]);
        assert!(text(&out.stdout).contains("\"forgotten\", "), "{}", text(&out.stdout));
        s.client().batch_execute("ROLLBACK PREPARED 'forgotten'").await.unwrap();

        let read_only = format!("ALTER ROLE {name} SET default_transaction_read_only = on");
        s.client().batch_execute(&read_only).await.unwrap();
        assert_eq!((results(db, &name).0, &results(db, &name).1["writable"]), (Some(1), &"problem".into()));
        s.client().batch_execute(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await.unwrap();
    });
}

#[test]
fn the_program_says_that_it_cannot_connect_with_exit_code_3() {
    each_server(async |db| {
        let out = doctor(&format!("{} dbname=nowhere", db.settings()), &[]);
        assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(3), ""));
        assert!(
            text(&out.stderr).contains("database \"nowhere\" does not exist\nhint: "),
            "{}",
            text(&out.stderr)
        );
    });
}
