//! The target of a connection and the way to it: libpq's settings with their meaning, TLS by rustls, and
//! errors that say what to try.
//!
//! A value comes from the first of these places that has one: the connection string, the service
//! (`PGSERVICE`), the `PG…` variables, libpq's defaults. The connection string is in `--database-url`, else
//! in `DATABASE_URL`. The password may also come from `~/.pgpass`.

mod failure;
mod passfile;
mod secret;
mod settings;
mod tls;
mod wrong;

pub use failure::ConnectError;
pub use secret::Secret;
pub use settings::may_hold_password;

use crate::cancel::Way;
use crate::encryption::Encrypt;
use crate::session::{Connect, Session};
use failure::{Cause, Names};
use settings::Settings;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tls::Verify;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, NoTls, Socket};

/// A function that looks up an environment variable.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Directories in which distributions put a server's socket. The first directory with a socket in it is used,
/// else the first directory that exists.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const DEFAULT_PORT: u16 = 5432;
/// The `application_name` of a connection for which the user chose none.
const PROGRAM: &str = "trickle";
/// The default of `connect_timeout`: seconds after which a host that does not answer at all is given up. By
/// default libpq waits as long as the kernel does.
const DEFAULT_TIMEOUT: &str = "10";
/// The times after which a host that stops answering is noticed. libpq leaves these times to the operating
/// system, which takes hours.
struct Silence {
    /// Seconds without an answer after which the host is probed (`keepalives_idle`).
    idle: u64,
    /// Seconds between two probes (`keepalives_interval`).
    interval: u64,
    /// Number of unanswered probes after which the connection is lost (`keepalives_count`).
    count: u32,
    /// Seconds in which the host must acknowledge sent data (`tcp_user_timeout`).
    unheard: u64,
}

/// A silent host is noticed within a minute. A shorter outage of the network does not end a load that takes
/// hours.
const PATIENT: Silence = Silence { idle: 30, interval: 10, count: 3, unheard: 60 };
/// A silent host is noticed within about ten seconds.
const IMPATIENT: Silence = Silence { idle: 4, interval: 2, count: 3, unheard: 10 };

/// A server, a database and a role, and how to connect to them.
#[derive(Clone, Debug)]
pub struct Target {
    config: Config,
    /// The same settings for each host alone, in the order in which the hosts are named.
    hosts: Vec<Config>,
    /// The TLS modes to try, in order.
    modes: Vec<SslMode>,
    tls: rustls::ClientConfig,
    names: Names,
}

impl Target {
    /// Resolves a connection string (a `postgres://` URL, `key=value` pairs or a database name), if there is
    /// one, in this process's environment.
    ///
    /// # Errors
    /// A setting cannot be understood, or a file that a setting names cannot be read.
    pub fn from_environment(url: Option<&str>) -> Result<Target, ConnectError> {
        Target::resolve(url, &|name| std::env::var(name).ok())
    }

    /// Resolves a connection string as [`Target::from_environment`] does, with `environment` in place of the
    /// process's environment.
    ///
    /// # Errors
    /// The errors of [`Target::from_environment`].
    pub fn resolve(url: Option<&str>, environment: Environment<'_>) -> Result<Target, ConnectError> {
        let variable = environment("DATABASE_URL").filter(|v| !v.is_empty());
        let mut settings = match url.or(variable.as_deref()) {
            Some(text) => settings::parse(text)?,
            None => Settings::new(),
        };
        settings::add_service(&mut settings, environment)?;
        settings::add_environment(&mut settings, environment);
        Target::new(settings, environment)
    }

    fn new(mut settings: Settings, environment: Environment<'_>) -> Result<Target, ConnectError> {
        let home = environment("HOME").map(PathBuf::from);
        let default = |s: &mut Settings, key: &'static str, value: &dyn Fn() -> String| {
            s.entry(key).or_insert_with(|| value().into());
        };
        // TLS needs a host name. Where only the address is set, the address serves as the name.
        if let (Some(address), false) = (settings.get("hostaddr").cloned(), settings.contains_key("host")) {
            settings.insert("host", address);
        }
        default(&mut settings, "host", &socket_directory);
        default(&mut settings, "user", &|| whoami::username().unwrap_or_else(|_| "postgres".into()));
        let user = settings["user"].clone();
        default(&mut settings, "dbname", &|| user.reveal().to_owned());
        default(&mut settings, "application_name", &|| PROGRAM.into());
        default(&mut settings, "connect_timeout", &|| DEFAULT_TIMEOUT.into());
        default(&mut settings, "keepalives_idle", &|| PATIENT.idle.to_string());
        default(&mut settings, "keepalives_interval", &|| PATIENT.interval.to_string());
        default(&mut settings, "keepalives_count", &|| PATIENT.count.to_string());
        default(&mut settings, "tcp_user_timeout", &|| (PATIENT.unheard * 1000).to_string());
        let mut taken = |key: &str| settings.remove(key).map(|v| v.reveal().to_owned());
        let mode = taken("sslmode").unwrap_or_else(|| "prefer".into());
        let root = taken("sslrootcert").map(PathBuf::from);
        let root =
            root.or_else(|| home.as_deref().map(|h| h.join(".postgresql/root.crt")).filter(|p| p.is_file()));
        let identity = taken("sslcert").zip(taken("sslkey"));
        let passfile = taken("passfile").map(PathBuf::from);
        let config = settings::config(&settings)?;
        let hosts = settings::each_host(&settings)?;
        let names = Names::of(&config);
        let tls = rustls_config(&mode, root, identity)?;
        let mut target = Target { modes: modes(&mode, &config)?, hosts, tls, config, names };
        if target.config.get_password().is_none()
            && let Some(file) = passfile.or_else(|| home.map(|h| h.join(".pgpass")))
        {
            target.password_from(&file);
        }
        Ok(target)
    }

    /// Sets this `application_name`, unless the user chose a name other than `trickle`. The name is sent when
    /// the connection starts, so it holds even where a pooler gives each transaction another server process.
    #[must_use]
    pub fn called(mut self, name: &str) -> Target {
        for config in [&mut self.config].into_iter().chain(&mut self.hosts) {
            if config.get_application_name() == Some(PROGRAM) {
                config.application_name(name);
            }
        }
        self
    }

    /// Makes connections notice within about ten seconds that a host stops answering, unless the user set
    /// these times. Other processes depend on such a connection. An example is the connection that renews a
    /// refresher's lease.
    #[must_use]
    pub fn impatient(mut self) -> Target {
        let seconds = Duration::from_secs;
        for c in [&mut self.config].into_iter().chain(&mut self.hosts) {
            if c.get_keepalives_idle() == seconds(PATIENT.idle) {
                c.keepalives_idle(seconds(IMPATIENT.idle));
            }
            if c.get_keepalives_interval() == Some(seconds(PATIENT.interval)) {
                c.keepalives_interval(seconds(IMPATIENT.interval));
            }
            if c.get_keepalives_retries() == Some(PATIENT.count) {
                c.keepalives_retries(IMPATIENT.count);
            }
            if c.get_tcp_user_timeout() == Some(&seconds(PATIENT.unheard)) {
                c.tcp_user_timeout(seconds(IMPATIENT.unheard));
            }
        }
        self
    }

    /// Sets the passwords of those hosts for which the password file has one.
    fn password_from(&mut self, file: &Path) {
        let Some(text) = passfile::read(file) else { return };
        let (user, database) = (self.names.user.clone(), self.names.database.clone());
        for (config, (host, port)) in self.hosts.iter_mut().zip(&self.names.hosts) {
            let host = if SOCKET_DIRECTORIES.contains(&host.as_str()) { "localhost" } else { host };
            let Some(password) = passfile::find(&text, host, *port, &database, &user) else { continue };
            if self.config.get_password().is_none() {
                self.config.password(password.reveal());
            }
            config.password(password.reveal());
        }
    }

    /// Returns the resolved settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Describes the target for people: `localhost:5432 as user "ann", database "shop"`. The description does
    /// not contain the password.
    pub fn describe(&self) -> String {
        self.names.to_string()
    }

    /// Connects to the first host that answers and is of the kind that `target_session_attrs` wants. Hosts
    /// are tried in the order in which they are named or, with `load_balance_hosts=random`, in random order.
    ///
    /// Must be called within a tokio runtime, in which a task then drives the connection. When the connection
    /// breaks, the statement that waits for an answer gets the error.
    ///
    /// # Errors
    /// Each host is out of reach, or refuses the connection. The error gives the reason for each host, and
    /// says what to try.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        self.reach().await.map(|(client, _)| client)
    }

    /// Connects as [`Target::connect`] does, and also returns how the host was reached.
    async fn reach(&self) -> Result<(Client, Way), ConnectError> {
        let mut refused = Vec::new();
        for host in self.in_order() {
            match self.connect_to(host).await {
                Ok(client) => {
                    let port = host.get_ports().first().copied().unwrap_or(DEFAULT_PORT);
                    let way = Way { host: host.clone(), port, tls: Encrypt::new(self.tls.clone()) };
                    return Ok((client, way));
                }
                Err(cause) => refused.push((Names::of(host), cause)),
            }
        }
        Err(failure::explain(refused, &self.names))
    }

    fn in_order(&self) -> Vec<&Config> {
        let mut hosts: Vec<&Config> = self.hosts.iter().collect();
        if self.config.get_load_balance_hosts() == LoadBalanceHosts::Random {
            // Each hasher has random keys of its own, so the hosts are sorted at random.
            hosts.sort_by_cached_key(|_| RandomState::new().build_hasher().finish());
        }
        hosts
    }

    async fn connect_to(&self, host: &Config) -> Result<Client, Cause> {
        let mut refused: Option<Cause> = None;
        let modes = if is_local(host) { &[SslMode::Disable] } else { self.modes.as_slice() };
        for mode in modes {
            let mut config = host.clone();
            config.ssl_mode(*mode);
            let opened = match mode {
                SslMode::Disable => open(&config, NoTls).await,
                _ => open(&config, Encrypt::new(self.tls.clone())).await,
            };
            match opened {
                Ok(client) => return Ok(client),
                Err(cause) => {
                    let again = cause.may_depend_on_tls();
                    // If the refusals of both modes may depend on TLS, the refusal of the first mode is
                    // reported.
                    if !again || refused.is_none() {
                        refused = Some(cause);
                    }
                    if !again {
                        break;
                    }
                }
            }
        }
        Err(refused.unwrap_or_else(|| Cause::Other("no way to connect is allowed".into())))
    }
}

impl Connect for Target {
    fn connect(&self) -> Pin<Box<dyn Future<Output = trickle_engine::Result<Session>> + '_>> {
        Box::pin(async move {
            let (client, way) = self.reach().await?;
            Ok(Session::new(client).reached(way))
        })
    }
    fn kept(&self) -> Option<Arc<dyn Connect>> {
        Some(Arc::new(self.clone()))
    }
}

async fn open<T>(config: &Config, tls: T) -> Result<Client, Cause>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
{
    let connecting = config.connect(tls);
    let opened = match config.get_connect_timeout() {
        None => connecting.await,
        // The driver limits only the time in which the host must accept the connection. A host that accepts
        // the connection has the same time once more to answer.
        Some(most) => tokio::time::timeout(*most * 2, connecting).await.map_err(|_| Cause::Timeout)?,
    };
    let (client, connection) = opened.map_err(|e| Cause::of(&e))?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(client)
}

fn socket_directory() -> String {
    let found =
        SOCKET_DIRECTORIES.iter().find(|d| Path::new(d).join(format!(".s.PGSQL.{DEFAULT_PORT}")).exists());
    let found = found.or_else(|| SOCKET_DIRECTORIES.iter().find(|d| Path::new(d).is_dir()));
    found.unwrap_or(&SOCKET_DIRECTORIES[1]).to_string()
}

/// Whether all hosts are Unix sockets. Servers do not offer TLS on a socket, and a socket does not need it.
fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|h| !matches!(h, Host::Tcp(_))) && config.get_hostaddrs().is_empty()
}

/// Returns the TLS modes to try, in order, for libpq's `sslmode`.
fn modes(mode: &str, config: &Config) -> Result<Vec<SslMode>, ConnectError> {
    let modes = match mode {
        "disable" => vec![SslMode::Disable],
        "allow" => vec![SslMode::Disable, SslMode::Require],
        "prefer" => vec![SslMode::Prefer, SslMode::Disable],
        "require" | "verify-ca" | "verify-full" => vec![SslMode::Require],
        other => {
            return Err(ConnectError::setting(format!("sslmode \"{other}\" does not exist"))
                .hint("Use one of disable, allow, prefer, require, verify-ca, verify-full."));
        }
    };
    Ok(if is_local(config) { vec![SslMode::Disable] } else { modes })
}

fn rustls_config(
    mode: &str,
    root: Option<PathBuf>,
    identity: Option<(String, String)>,
) -> Result<rustls::ClientConfig, ConnectError> {
    let verify = match mode {
        "verify-full" => Verify::Host,
        "verify-ca" => Verify::Chain,
        // As in libpq: a user who names an authority wants the certificate checked.
        "require" if root.is_some() => Verify::Chain,
        _ => Verify::Nothing,
    };
    tls::config(verify, root.as_deref(), identity)
}

#[cfg(test)]
mod tests;
