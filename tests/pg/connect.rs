//! Connections to a real server, by the library and by the program. The server receives the settings. An
//! error shows the server's own words and adds advice.

use crate::support::{Db, pid, planted, todays_server};
use rcgen::{CertificateParams, KeyPair};
use std::process::Output;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use trickle_client::Connect;
use trickle_client::connect::{ConnectError, Target};

/// Connects through the library, without environment variables.
async fn connect(settings: &str) -> Result<tokio_postgres::Client, ConnectError> {
    Target::resolve(Some(settings), &|_| None)?.connect().await
}

/// Runs `trickle doctor`, without the environment variables that would choose another server.
fn doctor(settings: &str, args: &[&str]) -> Output {
    planted::output(planted::program().args(["doctor", "--database-url", settings]).args(args))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn settings_arrive_at_the_server() {
    todays_server(async |db| {
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
    todays_server(async |db| {
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

/// Returns the exit code of the checks, and their results by name.
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
    todays_server(async |db| {
        let s = db.session().await;
        // Roles belong to the whole server. So the name of the role contains the name of the database.
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
        let temporary = |what: &str| {
            format!(
                "DO $$ BEGIN EXECUTE format('{what} TEMPORARY ON DATABASE %I {{}} PUBLIC', current_database()); END $$"
            )
        };
        s.client().batch_execute(&temporary("REVOKE").replace("{}", "FROM")).await.unwrap();
        let out = doctor(&format!("{} user={name}", db.settings()), &[]);
        assert!(text(&out.stdout).contains("GRANT TEMPORARY ON DATABASE"), "{}", text(&out.stdout));
        s.client().batch_execute(&temporary("GRANT").replace("{}", "TO")).await.unwrap();

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

/// Opens a port in front of a test's server. The port refuses connections without TLS. Returns the port.
async fn tls_only(db: &Db) -> u16 {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (_, server) = db.socket();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(through(stream, acceptor.clone(), server.clone()));
        }
    });
    port
}

async fn through(mut from: TcpStream, tls: TlsAcceptor, server: std::path::PathBuf) -> std::io::Result<()> {
    const SSL_REQUEST: i32 = 80_877_103;
    let (_, first) = (from.read_i32().await?, from.read_i32().await?);
    if first != SSL_REQUEST {
        return Ok(());
    }
    from.write_all(b"S").await?;
    let mut from = tls.accept(from).await?;
    let mut to = UnixStream::connect(server).await?;
    tokio::io::copy_bidirectional(&mut from, &mut to).await.map(|_| ())
}

#[test]
fn a_statement_is_cancelled_over_tls_where_the_connection_is() {
    todays_server(async |db| {
        let port = tls_only(db).await;
        let settings = format!("{} host=127.0.0.1 port={port} sslmode=require", db.settings());
        let target = Target::resolve(Some(&settings), &|_| None).unwrap();
        let session = Connect::connect(&target).await.unwrap();
        let (watch, pid) = (db.session().await, pid(session.client()).await);
        let cancel = async {
            let asleep = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'";
            while watch.client().query_one(asleep, &[&pid]).await.unwrap().get::<_, i64>(0) == 0 {
                tokio::task::yield_now().await;
            }
            session.cancel().send().await.unwrap();
        };
        let (slept, ()) = tokio::join!(session.client().batch_execute("SELECT pg_sleep(600)"), cancel);
        assert_eq!(slept.unwrap_err().code().map(|c| c.code()), Some("57014"));
    });
}

#[test]
fn the_program_says_that_it_cannot_connect_with_exit_code_3() {
    todays_server(async |db| {
        let out = doctor(&format!("{} dbname=nowhere", db.settings()), &[]);
        assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(3), ""));
        assert!(
            text(&out.stderr).contains("database \"nowhere\" does not exist\nhint: "),
            "{}",
            text(&out.stderr)
        );
    });
}
