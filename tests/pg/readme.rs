//! The commands of README.md run as written on the page, one after the other.

use crate::support::{run as run_sql, todays_server};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use trickle_client::Session;

/// Commands that this test does not run. Continuous integration runs the first two. The third is the build
/// that contains this test. The others name the reader's own database.
const ELSEWHERE: [&str; 5] =
    ["./x demo", "./x test", "cargo install", "export ADMIN_URL", "export DATABASE_URL"];

/// The database that the commands of README.md name.
const DATABASE: &str = "shop";

/// The beginning of commands that run until a signal stops them.
const ENDLESS: &str = "trickle run";

fn commands() -> Vec<String> {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    text.lines().filter_map(|l| l.strip_prefix("$ ")).map(str::to_owned).collect()
}

#[test]
fn every_command_of_the_readme_works() {
    let all = commands();
    for e in ELSEWHERE {
        assert!(all.iter().any(|c| c.starts_with(e)), "{e} is not in README.md any more");
    }
    let run: Vec<&String> = all.iter().filter(|c| !ELSEWHERE.iter().any(|e| c.starts_with(e))).collect();
    assert!(run.len() > 10, "{run:?}");
    todays_server(async |db| {
        let admin = db.session().await;
        run_sql(&admin, &format!("CREATE DATABASE {DATABASE}")).await;
        let own = db.settings();
        let host = own.split(' ').next().unwrap();
        let settings = |user: &str| format!("{host} user={user} dbname={DATABASE}");
        let dir = std::env::temp_dir().join(format!("trickle-readme-{}-{}", std::process::id(), db.major()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(
            dir.join("orders.sql"),
            "CREATE TABLE orders (id int PRIMARY KEY, region text, amount int);",
        )
        .unwrap();
        std::fs::write(dir.join("views.sql"), "SELECT region, count(*) FROM orders GROUP BY region;")
            .unwrap();
        for command in &run {
            let shell = |text: &str| {
                let mut c = shell(text, &dir, &settings("trickle"), db.binaries());
                c.env("ADMIN_URL", settings("postgres"));
                c
            };
            if command.starts_with(ENDLESS) {
                stops_on_sigterm(shell(&format!("exec {command} -v")));
                continue;
            }
            let out = shell(command).output().unwrap();
            let said =
                String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{command}\n{said}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
        let s = Session::connect(&settings("postgres").parse().unwrap()).await.unwrap();
        let left = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgtrickle%'";
        assert_eq!(s.client().query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
        drop(s);
        run_sql(&admin, &format!("DROP DATABASE {DATABASE} WITH (FORCE)")).await;
        run_sql(&admin, "DROP ROLE trickle").await;
        run_sql(&admin, "DROP ROLE app").await;
    });
}

fn shell(command: &str, dir: &Path, database: &str, binaries: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_trickle")).parent().unwrap();
    let path = [program, binaries].map(|p| p.display().to_string()).join(":");
    let path = format!("{path}:{}", std::env::var("PATH").unwrap());
    let mut c = Command::new("sh");
    c.args(["-c", command]).current_dir(dir).env("PATH", path).env("DATABASE_URL", database);
    c
}

/// Starts a command, and waits until its log says that it is connected. Then ends the command by SIGTERM.
fn stops_on_sigterm(mut shell: Command) {
    let mut child = shell.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let (until, mut said) = (Instant::now() + Duration::from_secs(60), String::new());
    while !said.contains("connected") && Instant::now() < until {
        assert_ne!(err.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    std::thread::spawn(move || std::io::copy(&mut err, &mut std::io::sink()));
    assert!(child.wait().unwrap().success(), "{said}");
}
