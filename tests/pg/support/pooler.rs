//! A real PgBouncer between a test and its server. The pooler belongs to one test, has a directory of its
//! own, and is reached by a socket or a loopback port. The pooler ends with the test process, however the
//! test process ends.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

/// A shell script that starts the pooler as a child process, and kills it at the end of standard input. Each
/// line of input kills the pooler and starts it again. The script's arguments are the directory, the program,
/// and the program's arguments.
const KEEPER: &str = r#"
trap '' INT HUP TERM
dir=$1
shift
"$@" >>"$dir/log" 2>&1 &
pooler=$!
while read -r _; do
  kill -KILL "$pooler"
  wait "$pooler" 2>>"$dir/log"
  "$@" >>"$dir/log" 2>&1 &
  pooler=$!
done
kill -KILL "$pooler"
wait "$pooler" 2>>"$dir/log"
rm -rf "$dir"
"#;

/// Limit for the start of the pooler, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of server processes for one database and role.
pub(crate) const POOL: usize = 3;

/// A pooler that ends with the test.
pub(crate) struct Pooler {
    dir: PathBuf,
    port: u16,
    keeper: Child,
}

/// Returns the path of pgbouncer, also where the distribution's package puts it outside of PATH.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(["/usr/sbin", "/opt/homebrew/bin"].map(PathBuf::from));
    dirs.map(|d| d.join("pgbouncer")).find(|p| p.is_file())
}

/// Whether pgbouncer is installed. In continuous integration a missing pgbouncer is a failure.
pub(crate) fn is_there() -> bool {
    let there = program().is_some();
    let text =
        "no pgbouncer was found: ./x setup installs it (packages pgbouncer of Debian, Ubuntu and Homebrew)";
    assert!(there || std::env::var_os("CI").is_none(), "{text}");
    if !there {
        println!("left out: {text}");
    }
    there
}

fn id(args: &[&str]) -> Option<String> {
    let out = Command::new("id").args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Returns the user as which the pooler runs if the tests run as root. The servers run as the same user. None
/// stands for the user of the tests.
fn user() -> Option<&'static str> {
    (id(&["-u"]).as_deref() == Some("0")).then_some(())?;
    ["postgres", "nobody"].into_iter().find(|name| id(&["-u", name]).is_some())
}

impl Pooler {
    /// Starts a pooler in front of the server with these options. `users` has the lines of its `auth_file`.
    /// In `settings`, `DIR` stands for the pooler's directory. `files` are written into that directory.
    pub(crate) async fn start(
        server: &str,
        users: &[&str],
        settings: &[&str],
        files: &[(&str, &str)],
    ) -> Pooler {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("/tmp/trickle-{}-pool-{n}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        // The system does not give the same port to another process so soon.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let users: Vec<String> = users
            .iter()
            .map(|u| if u.contains('"') { (*u).to_owned() } else { format!("\"{u}\" \"\"") })
            .collect();
        let ini = format!(
            "[databases]\n* = {}\n[pgbouncer]\nunix_socket_dir = DIR\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             auth_file = DIR/users\nauth_type = trust\ndefault_pool_size = {POOL}\nmax_client_conn = 200\n\
             server_round_robin = 1\nstats_users = postgres\nquery_wait_timeout = 60\n{}\n",
            server,
            settings.join("\n")
        );
        let ini = ini.replace("DIR", &dir.display().to_string());
        for (name, text) in [("ini", ini.as_str()), ("users", &users.join("\n"))].iter().chain(files) {
            std::fs::write(dir.join(name), text).unwrap();
        }
        let program = program().expect("is_there");
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(&dir).arg(program);
        if let Some(user) = user() {
            assert!(Command::new("chown").args(["-R", user]).arg(&dir).status().unwrap().success());
            command.args(["-u", user]);
        }
        let keeper = command.arg(dir.join("ini")).stdin(Stdio::piped()).spawn().unwrap();
        let pooler = Pooler { dir, port, keeper };
        pooler.ready().await;
        pooler
    }

    async fn ready(&self) {
        let until = Instant::now() + PATIENCE;
        while tokio::net::UnixStream::connect(self.dir.join(format!(".s.PGSQL.{}", self.port))).await.is_err()
        {
            let log = || std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(Instant::now() < until, "the pooler does not start: {}", log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the pooler and starts it again. All connections through the pooler are lost.
    pub(crate) async fn restart(&mut self) {
        let socket = self.dir.join(format!(".s.PGSQL.{}", self.port));
        // The next pooler makes the socket again.
        std::fs::remove_file(&socket).unwrap();
        self.keeper.stdin.as_mut().unwrap().write_all(b"again\n").unwrap();
        self.ready().await;
    }

    /// Returns the options with which a program connects to the pooler by the socket, without role and
    /// database.
    pub(crate) fn settings(&self) -> String {
        format!("host={} port={}", self.dir.display(), self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Opens a connection to the pooler by a plain client, which is not trickle.
    pub(crate) async fn client(&self, user: &str, database: &str) -> Client {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.dir).port(self.port).user(user).dbname(database).application_name("another");
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Returns the first value of each row of a query. The simple protocol leaves no prepared statement in the
/// server process.
pub(crate) async fn said(client: &Client, text: &str) -> Vec<String> {
    let rows = client.simple_query(text).await.unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    let value = |m| match m {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    };
    rows.into_iter().filter_map(value).collect()
}

/// Opens as many clients as the pool has server processes. Each client holds one of these processes by an
/// open transaction.
pub(crate) async fn hold_all(pooler: &Pooler, user: &str, database: &str) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..POOL {
        let client = pooler.client(user, database).await;
        client.batch_execute("BEGIN").await.unwrap();
        clients.push(client);
    }
    clients
}

/// A query for the leftovers of earlier sessions in a server process: settings, prepared statements,
/// temporary tables, locks and channels. Settings that a pooler itself sets for each client are left out.
const LEFT: &str = "\
    SELECT 'setting ' || name || ' = ' || setting FROM pg_settings WHERE source = 'session' AND name NOT IN \
        ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings') \
    UNION ALL SELECT 'statement ' || statement FROM pg_prepared_statements \
    UNION ALL SELECT 'temporary ' || relname FROM pg_class WHERE relpersistence = 't' AND relnamespace = pg_my_temp_schema() \
    UNION ALL SELECT 'lock ' || locktype FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' \
    UNION ALL SELECT 'channel ' || c FROM pg_listening_channels() c";

/// Returns the leftovers in all server processes of a pool.
pub(crate) async fn left(pooler: &Pooler, user: &str, database: &str) -> Vec<String> {
    let (mut found, mut pids) = (Vec::new(), BTreeSet::new());
    let all = hold_all(pooler, user, database).await;
    for client in &all {
        found.extend(said(client, LEFT).await);
        pids.extend(said(client, "SELECT pg_backend_pid()").await);
    }
    release(all).await;
    assert_eq!(pids.len(), POOL);
    found
}

/// Ends the clients' transactions, so that the pooler gets the server processes back. The pooler ends a
/// process whose client disconnects within a transaction.
pub(crate) async fn release(clients: Vec<Client>) {
    for client in &clients {
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}
