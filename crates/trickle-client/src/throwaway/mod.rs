//! Private throw-away servers, for the demo and for tests.
//!
//! A server listens on a socket in a directory of its own. The server ends with the process that started it,
//! however that process ends, unless [`Server::keep`] was called.

mod binaries;

pub use binaries::find;

use crate::session::Session;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trickle_engine::{Error, Result};

/// A shell script that starts the server as a child, waits until standard input ends, stops the server and
/// removes its directory. Standard input is a pipe, and the process that started the script holds the other
/// end of the pipe. So the server ends with that process after success, panic, abort or kill alike, unless
/// there is a file `keep` in the directory.
///
/// For each line of standard input, the script kills all processes of the server at once, and starts the
/// server again. A new server refuses to start while a process of the old server still holds shared memory.
/// Arguments: directory, binary directory, settings.
const KEEPER: &str = r#"
trap '' INT HUP TERM
dir=$1 bin=$2
shift 2
cd "$dir"
"$bin/initdb" -D "$dir/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$dir/log" 2>&1 || exit 1
start() {
  "$bin/postgres" -D "$dir/data" -k "$dir" "$@" >>"$dir/log" 2>&1 &
  server=$!
}
start "$@"
while read -r _; do
  kill -KILL "$server" $(pgrep -P "$server")
  wait "$server" 2>>"$dir/log"
  start "$@"
  while sleep 0.2; do
    kill -0 "$server" 2>/dev/null && break
    start "$@"
  done
done
[ -e "$dir/keep" ] && exit 0
kill -QUIT "$server"
wait "$server"
cd /
rm -rf "$dir"
"#;

/// Settings that switch off TCP and durability, since a throw-away server needs neither.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_wal_size=4GB",
    "timezone=UTC",
];

/// The longest wait for the start of a server. A start takes 2 s on an idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A throw-away server.
#[derive(Debug)]
pub struct Server {
    /// The directory of the socket, the data and the log. The name of the directory is short, since the path
    /// of a socket has at most 103 bytes on macOS.
    dir: PathBuf,
    keeper: Child,
    binaries: PathBuf,
    /// The port of the socket, and of TCP if the settings make the server listen on TCP.
    port: u16,
}

impl Server {
    /// Starts a server from these binaries. These settings (`name=value`) come after the settings that every
    /// throw-away server has. The server's new directory is in /tmp and has `name` in its name. When this
    /// function returns, the server may not answer yet: see [`Server::ready`].
    ///
    /// # Errors
    /// The directory cannot be made, or the shell cannot be run.
    pub fn start(binaries: &Path, name: &str, settings: &[&str]) -> Result<Server> {
        let dir = new_directory(name)?;
        let fail =
            |e: std::io::Error| Error::input(format!("cannot start a server in {}: {e}", dir.display()));
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).map_err(fail)?;
        let mut command = match server_user()? {
            None => Command::new("sh"),
            Some(user) => {
                chown(&dir, Some(user.uid), Some(user.gid)).map_err(fail)?;
                user.shell()
            }
        };
        command.args(["-c", KEEPER, "keeper"]).arg(&dir).arg(binaries);
        for setting in SETTINGS.iter().chain(settings) {
            command.args(["-c", setting]);
        }
        let keeper = command.stdin(Stdio::piped()).spawn().map_err(fail)?;
        let port = settings.iter().find_map(|s| s.strip_prefix("port=")?.parse().ok()).unwrap_or(5432);
        Ok(Server { keeper, binaries: binaries.to_owned(), dir, port })
    }

    /// Waits until the server accepts connections.
    ///
    /// # Errors
    /// The server ended, or did not start in two minutes. The error holds the server's log.
    pub async fn ready(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while let Err(e) = Session::connect(&self.config("postgres")).await {
            let ended = !matches!(self.keeper.try_wait(), Ok(None));
            if ended || Instant::now() > until {
                let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                return Err(
                    Error::connection(format!("the server does not start: {}", e.message())).detail(log)
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Kills the server as a loss of power would, and starts it again. Unlike in a loss of power, the
    /// operating system keeps its buffers. When this function returns, the server may not answer yet: see
    /// [`Server::ready`].
    ///
    /// # Errors
    /// The script that keeps the server is gone, or the server did not start in two minutes.
    pub fn crash(&mut self) -> Result<()> {
        let fail = |e: std::io::Error| Error::connection(format!("the server cannot be restarted: {e}"));
        let before = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).map_err(fail)?;
        let Some(orders) = &mut self.keeper.stdin else {
            return Err(Error::connection("the server was stopped"));
        };
        orders.write_all(b"crash\n").map_err(fail)?;
        let until = Instant::now() + PATIENCE;
        // Before the new server has written its process number, the old server may still answer.
        while std::fs::read_to_string(self.dir.join("data/postmaster.pid")).is_ok_and(|now| now == before) {
            if Instant::now() > until {
                return Err(Error::connection("the server does not start again"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns the configuration to connect to one of the server's databases as the superuser `postgres`.
    pub fn config(&self, database: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config.host_path(&self.dir).port(self.port).user("postgres").dbname(database);
        config
    }

    /// Returns the server's directory, which also holds the socket.
    pub fn directory(&self) -> &Path {
        &self.dir
    }
    /// Returns the directory of the server's binaries.
    pub fn binaries(&self) -> &Path {
        &self.binaries
    }

    /// Leaves the server running when this process ends.
    ///
    /// # Errors
    /// The server's directory cannot be written.
    pub fn keep(self) -> Result<()> {
        let mark = self.dir.join("keep");
        std::fs::write(&mark, "").map_err(|e| Error::input(format!("cannot keep the server running: {e}")))
    }

    /// Stops the server and waits until its directory is gone.
    pub fn stop(mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Makes a new directory with a short name. A directory that an earlier process with the same number left
/// behind is not touched.
fn new_directory(name: &str) -> Result<PathBuf> {
    let pid = std::process::id();
    let mut last = None;
    for n in 0..100 {
        let dir = PathBuf::from(format!("/tmp/trickle-{pid}-{name}-{n}"));
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) => last = Some(Error::input(format!("cannot make the directory {}: {e}", dir.display()))),
        }
    }
    Err(last.unwrap_or_else(|| Error::input("cannot make a directory in /tmp")))
}

/// The user that a server runs as.
struct User {
    name: &'static str,
    uid: u32,
    gid: u32,
}

/// Returns the user that servers run as, or `None` for the current user. PostgreSQL refuses to run as root.
/// For root, the user is `postgres`, or `nobody` if there is no user `postgres`.
fn server_user() -> Result<Option<User>> {
    let id = |args: &[&str]| -> Option<u32> {
        let out = Command::new("id").args(args).output().ok()?;
        String::from_utf8(out.stdout).ok()?.trim().parse().ok()
    };
    if id(&["-u"]) != Some(0) {
        return Ok(None);
    }
    let user = ["postgres", "nobody"]
        .into_iter()
        .find_map(|name| Some(User { name, uid: id(&["-u", name])?, gid: id(&["-g", name])? }));
    user.map(Some).ok_or_else(|| Error::input("there is no user postgres or nobody to run a server as"))
}

impl User {
    /// Returns a shell that runs as this user.
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
