//! A failed connection gives exit code 3 and a message that names the target. A wrong setting gives exit code
//! 2.

use super::{finish, run, trickle};
use std::net::TcpListener;

#[test]
fn a_refused_connection_names_host_port_user_and_database() {
    // A port that was free when this test began.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://ann@127.0.0.1:{port}/shop");
    let ran = run(&["doctor", "--database-url", &url]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    let start = format!(
        "error: cannot connect to 127.0.0.1:{port} as user \"ann\", database \"shop\": connection refused\nhint: "
    );
    assert!(ran.err.starts_with(&start) && ran.err.contains("pg_isready"), "{}", ran.err);
    // The environment gives the same result.
    let ran = finish(trickle().arg("doctor").env("DATABASE_URL", &url));
    assert!(ran.code == 3 && ran.err.starts_with(&start), "{}", ran.err);
    let variables =
        [("PGHOST", "127.0.0.1"), ("PGPORT", &port.to_string()), ("PGUSER", "ann"), ("PGDATABASE", "shop")];
    let ran = finish(trickle().arg("doctor").envs(variables));
    assert!(ran.code == 3 && ran.err.starts_with(&start), "{}", ran.err);
}

#[test]
fn no_command_does_anything_without_a_connection() {
    let commands: &[&[&str]] = &[
        &["init"],
        &["uninstall"],
        &["create", "t", "--query", "SELECT 1 AS x"],
        &["alter", "t", "--suspend"],
        &["drop", "t"],
        &["refresh"],
        &["status"],
        &["history", "t"],
        &["wait", "t"],
        &["check"],
        &["disable", "t"],
        &["enable", "t"],
        &["explain", "t"],
        &["run"],
        &["doctor"],
    ];
    for args in commands {
        let ran = finish(trickle().args(*args).env("DATABASE_URL", "host=/nonexistent user=ann dbname=shop"));
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("/nonexistent/.s.PGSQL.5432") && ran.err.contains("hint: "), "{}", ran.err);
    }
}

#[test]
fn a_missing_socket_is_named() {
    let ran = run(&["doctor", "--database-url", "host=/nonexistent user=ann dbname=shop"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert!(
        ran.err.contains(
            "socket /nonexistent/.s.PGSQL.5432 as user \"ann\", database \"shop\": there is no such socket"
        ),
        "{}",
        ran.err
    );
}

#[test]
fn a_host_that_does_not_exist_is_named() {
    // RFC 6761 reserves .invalid, so a name under .invalid never resolves.
    let ran = run(&["doctor", "--database-url", "postgres://ann@nowhere.invalid/shop"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert!(
        ran.err.contains("cannot connect to nowhere.invalid:5432") && ran.err.contains("cannot be resolved"),
        "{}",
        ran.err
    );
}

#[test]
fn what_is_no_postgresql_is_no_success() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The server accepts the connection and then closes it, as a proxy without a server behind it does.
    let server = std::thread::spawn(move || drop(listener.accept()));
    let ran =
        run(&["doctor", "--database-url", &format!("postgres://ann@127.0.0.1:{port}/shop?sslmode=disable")]);
    assert!(ran.code == 3 && ran.err.contains("closed the connection"), "{}", ran.err);
    server.join().unwrap();
}

#[test]
fn a_wrong_setting_is_bad_input() {
    for (url, what) in [
        ("hots=db", "Did you mean host?"),
        ("postgres://db:x/shop", "\"port\""),
        ("mysql://db/shop", "postgres://"),
    ] {
        let ran = run(&["doctor", "--database-url", url]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{url}");
        assert!(ran.err.starts_with("error: ") && ran.err.contains(what), "{}", ran.err);
    }
}
