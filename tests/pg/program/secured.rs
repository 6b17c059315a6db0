//! The program over TLS and SCRAM, with real servers and a real pooler. The tests catch disagreements between
//! the two ends about certificates, about the proof of a password, and about the binding of the proof to the
//! certificate. A test with a minimal server of its own cannot show these disagreements.

use super::refresher::Refresher;
use super::{Ran, Role};
use crate::support::pooler::{self, Pooler};
use crate::support::private::{connect, newest_version, start_with};
use crate::support::{count, run};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use trickle_client::throwaway::Server;

/// An authority, and the certificates that it signed for `localhost` and for the role `carl`.
struct Certificates {
    authority: String,
    server: (String, String),
    client: (String, String),
}

impl Certificates {
    fn make() -> Certificates {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let signed = |names: Vec<String>, who: &str, usage| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(names).unwrap();
            params.distinguished_name.push(DnType::CommonName, who);
            params.extended_key_usages.push(usage);
            (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
        };
        Certificates {
            authority: ca.pem(),
            server: signed(vec!["localhost".to_owned()], "localhost", ExtendedKeyUsagePurpose::ServerAuth),
            client: signed(Vec::new(), "carl", ExtendedKeyUsagePurpose::ClientAuth),
        }
    }
}

/// The client's directory of files. The directory is removed at the end of the test.
struct Files(PathBuf);

impl Files {
    fn of(certificates: &Certificates, name: &str) -> Files {
        let dir = std::env::temp_dir().join(format!("trickle-secured-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let other = Certificates::make();
        for (file, text) in [
            ("ca.pem", &certificates.authority),
            ("other.pem", &other.authority),
            ("client.pem", &certificates.client.0),
            ("client.key", &certificates.client.1),
        ] {
            std::fs::write(dir.join(file), text).unwrap();
        }
        Files(dir)
    }
    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes a file of the server as the server's user, since only that user may read a key.
async fn put(server: &Server, name: &str, text: &str) {
    let path = server.directory().join("data").join(name);
    let to = format!(
        "COPY (SELECT unnest(string_to_array('{}', E'\\n'))) TO PROGRAM 'umask 077; cat >{}'",
        text.trim(),
        path.display()
    );
    run(&connect(server, "postgres").await, &to).await;
}

/// Starts a server that lets `app` connect with a password. A server that was built with TLS accepts only
/// connections over TLS. Such a server also lets `carl` connect with a password and a certificate. Returns
/// the server, its port, and whether it has TLS.
async fn secured(binaries: &Path, certificates: &Certificates) -> (Server, u16, bool) {
    let port = free_port();
    let settings = [format!("port={port}"), "listen_addresses=127.0.0.1".to_owned()];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = start_with(binaries, "secured", &settings).await;
    let s = connect(&server, "postgres").await;
    let tls = count(&s, "SELECT (current_setting('ssl_library') <> '')::int::int8").await == 1;
    run(&s, "CREATE ROLE app LOGIN PASSWORD 'secret'; CREATE ROLE carl LOGIN PASSWORD 'secret'").await;
    run(&s, "CREATE DATABASE shop OWNER app").await;
    let lines = match tls {
        true => {
            "hostssl all app 127.0.0.1/32 scram-sha-256\nhostssl all carl 127.0.0.1/32 scram-sha-256 clientcert=verify-full"
        }
        false => "host all app 127.0.0.1/32 scram-sha-256",
    };
    put(&server, "pg_hba.conf", &format!("local all all trust\n{lines}")).await;
    if tls {
        put(&server, "ca.pem", &certificates.authority).await;
        put(&server, "server.crt", &certificates.server.0).await;
        put(&server, "server.key", &certificates.server.1).await;
        run(&s, "ALTER SYSTEM SET ssl_ca_file = 'ca.pem'").await;
        run(&s, "ALTER SYSTEM SET ssl = on").await;
    }
    run(&s, "ALTER SYSTEM SET cluster_name = 'reloaded'").await;
    run(&s, "SELECT pg_reload_conf()").await;
    // The new lines of pg_hba.conf apply to connections after all processes have reloaded.
    if tls {
        while count(&s, "SELECT (current_setting('ssl') = 'on')::int::int8").await == 0 {
            tokio::task::yield_now().await;
        }
    }
    (server, port, tls)
}

/// Runs a command that connects by these settings.
fn tried(settings: &str) -> Ran {
    Role { name: "app".to_owned(), settings: settings.to_owned() }.trickle(&["doctor", "--quiet"])
}

#[track_caller]
fn ways(common: &str, ways: &[(&str, &str)]) {
    for (way, said) in ways {
        let ran = tried(&format!("{common} {way}"));
        match *said {
            "" => assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{way}: {ran:?}"),
            said => assert!(ran.code == 3 && ran.err.contains(said), "{way}: {ran:?}"),
        }
    }
}

/// Makes, refreshes and compares a stream table by these settings, first by hand and then by a refresher.
fn works(settings: &str) {
    let app = Role { name: "app".to_owned(), settings: settings.to_owned() };
    app.does(&["init", "--quiet"]);
    app.does(&[
        "create",
        "one",
        "--query",
        "SELECT relkind, count(*) FROM (VALUES (1)) t(relkind) GROUP BY 1",
        "--quiet",
    ]);
    app.does(&["refresh", "--quiet"]);
    app.does(&["check", "--quiet"]);
    let mut refresher = Refresher::start(app.command(&["run", "--quiet"]));
    app.does(&[
        "create",
        "two",
        "--query",
        "SELECT count(*) FROM one",
        "--no-initialize",
        "--schedule",
        "100ms",
        "--quiet",
    ]);
    app.does(&["wait", "two", "--timeout", "30s", "--quiet"]);
    refresher.terminate();
    assert_eq!(refresher.ended().code(), Some(0));
    app.does(&["uninstall", "--quiet"]);
}

#[test]
fn a_server_is_reached_over_tls_with_password_or_certificate() {
    newest_version(async |binaries| {
        let certificates = Certificates::make();
        let files = Files::of(&certificates, &format!("server-{}", binaries.display()).replace('/', "-"));
        let (server, port, tls) = secured(binaries, &certificates).await;
        let (ca, other) = (files.path("ca.pem"), files.path("other.pem"));
        let (cert, key) = (files.path("client.pem"), files.path("client.key"));
        let common = format!("host=localhost hostaddr=127.0.0.1 port={port} dbname=shop");
        if !tls {
            let app = "user=app password=secret";
            ways(
                &common,
                &[
                    (app, ""),
                    (&format!("{app} sslmode=require"), "does not support TLS"),
                    (&format!("{app} channel_binding=require"), "channel binding"),
                ],
            );
            works(&format!("{common} {app}"));
            server.stop();
            return;
        }
        let full = format!("sslmode=verify-full sslrootcert={ca}");
        let app = format!("user=app password=secret {full}");
        ways(
            &common,
            &[
                (&app, ""),
                (&format!("{app} channel_binding=require"), ""),
                (&format!("user=app password=wrong {full}"), "password authentication failed"),
                ("user=app password=secret sslmode=disable", "no pg_hba.conf entry"),
                ("user=app password=secret", ""),
                (
                    &format!("user=app password=secret sslmode=verify-ca sslrootcert={other}"),
                    "sslrootcert=FILE",
                ),
                (&format!("user=carl password=secret {full}"), "certificate"),
            ],
        );
        let carl = tried(&format!("{common} user=carl password=secret {full} sslcert={cert} sslkey={key}"));
        assert!(carl.code != 3, "{carl:?}");
        works(&format!("{common} {app} channel_binding=require"));
        server.stop();
    });
}

#[test]
fn tls_and_password_work_on_both_sides_of_a_pooler() {
    if !pooler::is_there() {
        return;
    }
    newest_version(async |binaries| {
        let certificates = Certificates::make();
        let files = Files::of(&certificates, &format!("pooler-{}", binaries.display()).replace('/', "-"));
        let (server, port, tls) = secured(binaries, &certificates).await;
        let behind = format!("host=127.0.0.1 port={port}");
        let server_tls = if tls { "server_tls_sslmode = require" } else { "server_tls_sslmode = disable" };
        let settings = [
            "pool_mode = transaction",
            "auth_type = scram-sha-256",
            "client_tls_sslmode = require",
            "client_tls_cert_file = DIR/crt",
            "client_tls_key_file = DIR/key",
            server_tls,
        ];
        let (crt, key) = &certificates.server;
        let pooler =
            Pooler::start(&behind, &["\"app\" \"secret\""], &settings, &[("crt", crt), ("key", key)]).await;
        let (ca, other) = (files.path("ca.pem"), files.path("other.pem"));
        let common = format!("host=localhost hostaddr=127.0.0.1 port={} dbname=shop user=app", pooler.port());
        let full = format!("password=secret sslmode=verify-full sslrootcert={ca}");
        ways(
            &common,
            &[
                (&full, ""),
                (&format!("password=secret sslmode=verify-ca sslrootcert={ca}"), ""),
                ("password=secret sslmode=require", ""),
                ("password=wrong sslmode=require", "authentication failed"),
                ("password=secret sslmode=disable", "SSL required"),
                (&format!("password=secret sslmode=verify-full sslrootcert={other}"), "sslrootcert=FILE"),
                (&format!("{full} channel_binding=require"), "channel binding"),
            ],
        );
        works(&format!("{common} {full}"));
        drop(pooler);
        server.stop();
    });
}
