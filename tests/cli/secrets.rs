//! No output contains a password, whatever the form of the password and whatever the error.
//! [`planted::output`] searches the output of every run of the program for the password. These tests run the
//! program with all kinds of errors.

use super::planted::{self, PASSWORD, assert_hidden};
use super::{Ran, finish, trickle};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Returns the password in the form of URLs.
fn encoded() -> String {
    let byte = |b: u8| match b.is_ascii_alphanumeric() {
        true => char::from(b).to_string(),
        false => format!("%{b:02X}"),
    };
    PASSWORD.bytes().map(byte).collect()
}

/// Returns the password in the form of `key=value` pairs.
fn quoted() -> String {
    format!("'{}'", PASSWORD.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A file that only this user may read. The file is removed at the end of the test.
struct File(PathBuf);

impl File {
    fn with(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("trickle-secrets-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        File(path)
    }
    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns connection strings that contain the password: valid strings, and invalid strings of every kind.
/// None of them leads to a server.
fn strings() -> Vec<String> {
    let (plain, url, pair) = (PASSWORD, encoded(), quoted());
    vec![
        format!("postgres://ann:{url}@127.0.0.1:1/shop"),
        format!("postgres://ann:{url}@nowhere.invalid/shop"),
        format!("postgres://ann@127.0.0.1:1/shop?password={url}"),
        format!("host=127.0.0.1 port=1 user=ann dbname=shop password={pair}"),
        format!("host=/nonexistent user=ann password={pair}"),
        format!("postgres://ann:{plain}@127.0.0.1:1/shop"),
        format!("postgres://ann@127.0.0.1:1/shop?password={plain}"),
        format!("postgres://ann@127.0.0.1:1/shop?{plain}"),
        format!("postgres://ann@127.0.0.1:1/{plain}"),
        format!("postgres://ann%3A{url}@127.0.0.1:1/shop"),
        format!("postgres://{plain}"),
        format!("postgres:/ann:{plain}@127.0.0.1:1/shop"),
        format!("postgres:/ann:{url}@127.0.0.1:1/shop?sslmode=disable"),
        format!("mysql://ann:{url}@127.0.0.1:1/shop"),
        format!("ann:{url}@127.0.0.1:1/shop"),
        format!("host=127.0.0.1 port=1 password={plain}"),
        format!("host=127.0.0.1 port=1 password={pair}{plain}"),
        format!("password='{plain} port=1"),
        format!("pasword={pair} port=1"),
        format!("host=127.0.0.1 password={pair} port=many"),
        format!("host=127.0.0.1 port=1 password={pair} sslmode=secure"),
        format!("host=127.0.0.1 port=1 password={pair} require_auth=md5"),
        format!("host=127.0.0.1 port=1 password={pair} service=none"),
    ]
}

/// Asserts that a run failed without a connection and printed a message.
#[track_caller]
fn fails(ran: &Ran, how: &str) {
    assert!(matches!(ran.code, 2 | 3), "{how}: {} {} {}", ran.code, ran.out, ran.err);
    assert!(!ran.err.is_empty(), "{how}");
}

#[test]
fn no_failing_invocation_tells_a_password() {
    let ways: [&[&str]; 7] = [
        &["doctor"],
        &["doctor", "-vvv"],
        &["doctor", "--json"],
        &["run", "-vv", "--metrics", "127.0.0.1:0"],
        &["run", "--log-format", "json", "-v"],
        &["status", "--json"],
        &["create", "t", "--query", "SELECT 1 AS x", "-v"],
    ];
    for string in strings() {
        for way in ways {
            // The string is in its proper place: as an option in both forms, and in the environment.
            fails(&finish(trickle().args(way).args(["--database-url", &string])), &string);
            let flag = format!("--database-url={string}");
            fails(&finish(trickle().args(way).arg(flag)), &string);
            fails(&finish(trickle().args(way).env("DATABASE_URL", &string)), &string);
        }
    }
}

#[test]
fn a_connection_string_in_a_wrong_place_is_not_told() {
    for string in strings().into_iter().filter(|s| !s.starts_with("postgres://Tulip")) {
        for json in [&[][..], &["--json"]] {
            for args in [
                &[string.as_str()][..],
                &["doctor", &string],
                &["status", &string],
                &["refresh", &string],
                &["lint", &string],
                &["explain", &string],
                &["status", "--config", &string],
                &["run", "--metrics", &string],
                &["run", "--metrics-hosts", &string],
                &["create", "t", "--schedule", &string, "--query", "SELECT 1 AS x"],
                &["status", &format!("--databse-url={string}")],
                &["status", &format!("--lock-timeout-ms={string}")],
            ] {
                let mut program = trickle();
                program.env("DATABASE_URL", "host=/nonexistent user=ann").args(args).args(json);
                let ran = finish(&mut program);
                assert!(ran.code != 0 && !ran.err.is_empty(), "{args:?}: {}", ran.out);
            }
        }
    }
}

#[test]
fn files_and_variables_tell_no_password_either() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let to = format!("host=127.0.0.1 port={port} user=ann dbname=shop");
    let escaped = PASSWORD.replace('\\', "\\\\").replace(':', "\\:");
    let passfile = File::with("pgpass", &format!("127.0.0.1:{port}:shop:ann:{escaped}\n{escaped}\n"));
    let open = File::with("open", &format!("*:*:*:*:{escaped}\n"));
    std::fs::set_permissions(&open.0, std::fs::Permissions::from_mode(0o644)).unwrap();
    let service = File::with("service", &format!("[shop]\nhost=127.0.0.1\nport=1\npassword={PASSWORD}\n"));
    let wrong = File::with("wrong", &format!("[shop]\nhost=127.0.0.1\nport=1\n{PASSWORD}\n"));
    for way in [&["doctor", "-vvv"][..], &["doctor", "--json"], &["run", "-v"]] {
        for variables in [
            &[("PGPASSFILE", passfile.path())][..],
            &[("PGPASSFILE", open.path())],
            &[("PGPASSFILE", PASSWORD.to_owned())],
            &[("PGSERVICEFILE", service.path()), ("PGSERVICE", "shop".to_owned())],
            &[("PGSERVICEFILE", wrong.path()), ("PGSERVICE", "shop".to_owned())],
            &[("PGPORT", PASSWORD.to_owned()), ("DATABASE_URL", "host=127.0.0.1".to_owned())],
            &[("PGCONNECT_TIMEOUT", PASSWORD.to_owned())],
        ] {
            let mut program = trickle();
            program.args(way).env_remove("PGPASSWORD").env("DATABASE_URL", &to);
            program.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
            fails(&finish(&mut program), &format!("{variables:?}"));
        }
    }
}

/// Tests the search of the other tests: the search must find the password in every form. Catches tests that
/// pass although the program shows the password.
#[test]
fn the_look_out_for_a_password_finds_it_however_written() {
    for told in [PASSWORD.to_owned(), encoded(), quoted(), "half of it: Maple".to_owned()] {
        assert!(std::panic::catch_unwind(|| assert_hidden(&told)).is_err(), "{told}");
    }
    let mut said = planted::Said::new(PASSWORD.as_bytes());
    let all = std::panic::catch_unwind(move || std::io::read_to_string(&mut said));
    assert!(all.is_err());
}
