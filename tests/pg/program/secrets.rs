//! The program with a server that asks for a password. The server lets the program connect. No output, log,
//! served page or session name contains the password, and neither does a message about a wrong password.

use super::Ran;
use super::refresher::{PATIENCE, Refresher, until};
use crate::support::planted::{self, PASSWORD};
use crate::support::private::{connect, newest_version, start_with};
use crate::support::{count, run};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use trickle_client::throwaway::Server;

/// Starts a server that asks `ann` for the password over TCP, and returns its port.
async fn asking(binaries: &Path) -> (Server, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = [format!("port={port}"), "listen_addresses=127.0.0.1".to_owned()];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = start_with(binaries, "secrets", &settings).await;
    let s = connect(&server, "postgres").await;
    run(&s, &format!("CREATE ROLE ann LOGIN PASSWORD '{}'", PASSWORD.replace('\'', "''"))).await;
    run(&s, "CREATE DATABASE shop OWNER ann").await;
    let lines = "local all all trust\nhost all ann 127.0.0.1/32 scram-sha-256";
    let file = server.directory().join("data/pg_hba.conf");
    let write = format!(
        "COPY (SELECT unnest(string_to_array('{lines}', E'\\n'))) TO PROGRAM 'cat >{}'",
        file.display()
    );
    run(&s, &write).await;
    let loaded = count(&s, "SELECT (extract(epoch FROM pg_conf_load_time()) * 1e6)::int8").await;
    run(&s, "SELECT pg_reload_conf()").await;
    // The new lines of pg_hba.conf apply to connections after the reload.
    until(&s, &format!("SELECT (extract(epoch FROM pg_conf_load_time()) * 1e6)::int8 > {loaded}")).await;
    (server, port)
}

/// Returns the password in the form of URLs, and in the form of `key=value` pairs.
fn written() -> (String, String) {
    let byte = |b: u8| match b.is_ascii_alphanumeric() {
        true => char::from(b).to_string(),
        false => format!("%{b:02x}"),
    };
    let quoted = PASSWORD.replace('\\', "\\\\").replace('\'', "\\'");
    (PASSWORD.bytes().map(byte).collect(), format!("'{quoted}'"))
}

/// A directory with a password file. The directory is removed at the end of the test.
struct Home(PathBuf);

impl Home {
    fn new(port: u16) -> Home {
        let path = std::env::temp_dir().join(format!("trickle-secrets-{port}"));
        std::fs::create_dir_all(&path).unwrap();
        let escaped = PASSWORD.replace('\\', "\\\\").replace(':', "\\:");
        let file = path.join(".pgpass");
        std::fs::write(&file, format!("127.0.0.1:{port}:shop:ann:{escaped}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        Home(path)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the whole response to a request for a path.
fn served(to: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Runs a refresher with its most detailed log until it has refreshed once. Asserts that neither its served
/// pages nor the names of its sessions contain the password.
async fn refreshes(s: &trickle_client::Session, mut command: Command, change: &str, done: &str) {
    command.args(["run", "-vvv", "--metrics", "127.0.0.1:0"]);
    let (mut refresher, log) = Refresher::logging(command);
    let mut lines = BufReader::new(log).lines();
    let told = |line: &str| {
        let (_, rest) = line.split_once("status page and metrics at http://")?;
        rest.split('/').next()?.parse().ok()
    };
    let to: SocketAddr = lines.by_ref().map_while(Result::ok).find_map(|l| told(&l)).unwrap();
    // The log is read to its end, since a read searches its text for the password.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).count());
    run(s, change).await;
    until(s, done).await;
    for path in ["/", "/status.json", "/metrics", "/healthz", "/nowhere"] {
        let text = served(to, path);
        planted::assert_hidden(&text);
        assert!(text.starts_with("HTTP/1.1 "), "{text}");
    }
    let named = "SELECT coalesce(string_agg(application_name || query, ' '), '') FROM pg_stat_activity WHERE usename = 'ann'";
    let named: String = s.client().query_one(named, &[]).await.unwrap().get(0);
    planted::assert_hidden(&named);
    refresher.terminate();
    assert_eq!(refresher.ended().code(), Some(0));
    assert!(rest.join().unwrap() > 0);
}

#[test]
fn a_password_that_lets_in_is_told_nowhere() {
    newest_version(async |binaries| {
        let (server, port) = asking(binaries).await;
        let s = connect(&server, "shop").await;
        run(&s, "CREATE TABLE t (id int PRIMARY KEY); GRANT ALL ON t TO ann; ALTER TABLE t OWNER TO ann")
            .await;
        let (url, pair) = written();
        let to = format!("host=127.0.0.1 port={port} user=ann dbname=shop");
        let home = Home::new(port);
        let program = |string: &str, home: Option<&Home>| {
            let mut program = planted::program();
            program.env("DATABASE_URL", string);
            if let Some(home) = home {
                program.env("HOME", &home.0).env_remove("PGPASSWORD");
            }
            program
        };
        let ways = [
            (format!("postgres://ann:{url}@127.0.0.1:{port}/shop"), None),
            (format!("postgres://ann@127.0.0.1:{port}/shop?password={url}"), None),
            (format!("{to} password={pair}"), None),
            (to.clone(), None),
            (to.clone(), Some(&home)),
        ];
        let (first, _) = &ways[0];
        for args in [
            &["init", "-vvv"][..],
            &["create", "n", "--query", "SELECT count(*) AS n FROM t", "--schedule", "100ms", "-vvv"],
        ] {
            let ran = Ran::of(program(first, None).args(args));
            assert_eq!(ran.code, 0, "{}", ran.err);
        }
        for (string, home) in &ways {
            for args in [
                &["doctor", "-vvv"][..],
                &["doctor", "--json"],
                &["status", "--json"],
                &["explain", "n"],
                &["refresh", "-vv"],
                &["check", "-v"],
            ] {
                let ran = Ran::of(program(string, *home).args(args));
                assert!(ran.code == 0 || args[0] == "doctor" && ran.code == 1, "{args:?}: {}", ran.err);
            }
            let done = "SELECT n = (SELECT count(*) FROM t) FROM n";
            refreshes(&s, program(string, *home), "INSERT INTO t SELECT count(*) FROM t", done).await;
        }
        // A message about a wrong password does not contain that wrong password.
        for args in [&["doctor", "-vvv"][..], &["doctor", "--json"], &["run", "-v"], &["status"]] {
            for wrong in [
                format!("postgres://ann:{url}wrong@127.0.0.1:{port}/shop"),
                format!("{to} password={}", pair.replace("Maple", "MapleMaple")),
                format!("{to} password={pair} dbname=nowhere"),
                format!("{to} password={pair} options='-c nonsense=1'"),
            ] {
                let ran = Ran::of(program(&wrong, None).args(args));
                assert!(ran.code == 3 && !ran.err.is_empty(), "{args:?} {wrong}: {} {}", ran.code, ran.err);
            }
        }
        server.stop();
    });
}
