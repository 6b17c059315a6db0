//! Throw-away servers.

use super::binaries;
use std::os::unix::fs::{PermissionsExt, chown};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trickle_client::Session;

/// Starts the server as a child, waits until standard input ends, stops it and removes its directory. The test process
/// holds the other end of that pipe, so the server ends with it after success, panic, abort or kill alike.
/// Arguments: directory, binary directory, settings.
const KEEPER: &str = r#"
trap '' INT HUP TERM
dir=$1 bin=$2
shift 2
cd "$dir"
"$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$dir/log" 2>&1 || exit 1
"$bin/postgres" -D "$dir/data" -k "$dir" "$@" >>"$dir/log" 2>&1 &
server=$!
read -r _
kill -QUIT "$server"
wait "$server"
cd /
rm -rf "$dir"
"#;

/// No TCP; no durability, which a throw-away server does not need; room for concurrent tests and every CDC mode.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_connections=200",
    "max_prepared_transactions=20",
    "max_wal_size=4GB",
    "shared_buffers=64MB",
    "wal_level=logical",
    "timezone=UTC",
];

/// Databases are copied from here: pristine, and nobody can be connected to it.
const TEMPLATE: &str = "template0";

/// Starting takes 2 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    major: u32,
    /// Holds the socket, the data and the log. Short: a socket's path has at most 103 bytes on macOS.
    dir: PathBuf,
    keeper: Child,
}

/// All servers, started together by the first test that asks.
fn servers() -> &'static [Server] {
    static SERVERS: OnceLock<Vec<Server>> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let servers: Vec<Server> =
            binaries::find().into_iter().map(|(m, bin)| Server::start(m, &bin)).collect();
        servers.into_iter().map(Server::ready).collect()
    })
}

impl Server {
    fn start(major: u32, bin: &Path) -> Server {
        let dir = PathBuf::from(format!("/tmp/trickle-{}-{major}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = match server_user() {
            None => Command::new("sh"),
            Some(user) => {
                chown(&dir, Some(user.uid), Some(user.gid)).unwrap();
                user.shell()
            }
        };
        command.args(["-c", KEEPER, "keeper"]).arg(&dir).arg(bin);
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        let keeper = command.stdin(Stdio::piped()).spawn().unwrap();
        Server { major, dir, keeper }
    }

    /// Waits until the server accepts connections.
    fn ready(mut self) -> Server {
        let until = Instant::now() + PATIENCE;
        runtime().block_on(async {
            while let Err(e) = Session::connect(&self.config("postgres")).await {
                let ended = self.keeper.try_wait().unwrap().is_some();
                if ended || Instant::now() > until {
                    let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                    panic!("PostgreSQL {} does not start: {e}\n{log}", self.major);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        self
    }

    fn config(&self, database: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.dir).user("postgres").dbname(database);
        config
    }

    /// Runs a statement that works on databases from outside.
    fn administer(&self, sql: &str) {
        runtime().block_on(async {
            let s = Session::connect(&self.config("postgres")).await.unwrap();
            s.client().batch_execute(sql).await.unwrap();
        });
    }
}

/// Whom the servers run as.
struct User {
    name: &'static str,
    uid: u32,
    gid: u32,
}

/// PostgreSQL refuses to run as root: then `postgres`, or `nobody` where there is no such user.
fn server_user() -> Option<User> {
    let id = |args: &[&str]| -> Option<u32> {
        let out = Command::new("id").args(args).output().ok()?;
        String::from_utf8(out.stdout).ok()?.trim().parse().ok()
    };
    if id(&["-u"]) != Some(0) {
        return None;
    }
    let user = ["postgres", "nobody"]
        .into_iter()
        .find_map(|name| Some(User { name, uid: id(&["-u", name])?, gid: id(&["-g", name])? }));
    Some(user.expect("no user postgres or nobody to run the server as"))
}

impl User {
    /// A shell running as this user.
    fn shell(&self) -> Command {
        let works =
            |program: &str| Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
        if works("setpriv") {
            let mut c = Command::new("setpriv");
            c.arg(format!("--reuid={}", self.uid)).arg(format!("--regid={}", self.gid));
            c.args(["--clear-groups", "sh"]);
            c
        } else {
            let mut c = Command::new("sudo");
            c.args(["-n", "-u", self.name, "sh"]);
            c
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A test's own database on one server.
pub(crate) struct Db {
    server: &'static Server,
    name: String,
}

impl Db {
    fn create(server: &'static Server) -> Db {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        server.administer(&format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}"));
        Db { server, name }
    }

    /// The server's major version.
    pub(crate) fn major(&self) -> u32 {
        self.server.major
    }

    /// How a program connects to it as the owner.
    pub(crate) fn settings(&self) -> String {
        format!("host={} user=postgres dbname={}", self.server.dir.display(), self.name)
    }

    /// Whether no older server was found.
    pub(crate) fn is_oldest(&self) -> bool {
        servers().iter().all(|s| s.major >= self.server.major)
    }

    /// A new connection as the owner of the database.
    pub(crate) async fn session(&self) -> Session {
        Session::connect(&self.server.config(&self.name)).await.unwrap()
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        self.server.administer(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// Runs a test on every server, side by side, each time in a database of its own; then says on which it failed.
pub(crate) fn each_server(test: impl AsyncFn(&Db) + Sync) {
    let run = |server: &'static Server| {
        let db = Db::create(server);
        catch_unwind(AssertUnwindSafe(|| runtime().block_on(test(&db)))).is_ok()
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = servers().iter().map(|s| (s, scope.spawn(|| run(s)))).collect();
        running
            .into_iter()
            .filter_map(|(s, t)| (!t.join().unwrap_or(false)).then(|| format!("PostgreSQL {}", s.major)))
            .collect()
    });
    assert!(failed.is_empty(), "failed on {}", failed.join(", "));
}
