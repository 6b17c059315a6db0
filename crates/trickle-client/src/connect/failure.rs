//! Explains to people why a connection was not made: names the target, the failure, and what to try.

use super::DEFAULT_PORT;
use std::error::Error as _;
use std::fmt;
use std::io;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The error of a connection that was not made: a setting is wrong, the server cannot be reached, or the
/// server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError {
    setting: bool,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
}

impl ConnectError {
    fn new(setting: bool, message: impl Into<String>) -> ConnectError {
        ConnectError { setting, message: message.into(), detail: None, hint: None }
    }
    /// Makes the error for a setting that cannot be understood, so that no connection was tried.
    pub(super) fn setting(message: impl Into<String>) -> ConnectError {
        Self::new(true, message)
    }
    pub(super) fn detail(mut self, detail: impl Into<String>) -> ConnectError {
        self.detail = Some(detail.into());
        self
    }
    pub(super) fn hint(mut self, hint: impl Into<String>) -> ConnectError {
        self.hint = Some(hint.into());
        self
    }

    /// Whether the cause is a wrong setting, and not the network or the server.
    pub fn is_setting(&self) -> bool {
        self.setting
    }
    /// Returns the message, one sentence. If a connection was tried, the message names host, port, user and
    /// database.
    pub fn message(&self) -> &str {
        &self.message
    }
    /// Returns the text of the server's or the operating system's own error.
    pub fn detail_text(&self) -> Option<&str> {
        self.detail.as_deref()
    }
    /// Returns advice on what to try.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, "\nDETAIL: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nHINT: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectError {}

/// The hosts, the user and the database of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    /// Hosts, addresses or socket directories, each with its port. The list is not empty.
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) user: String,
    pub(super) database: String,
}

impl Names {
    pub(super) fn of(config: &Config) -> Names {
        let ports = config.get_ports();
        let port = |i: usize| ports.get(i).or_else(|| ports.first()).copied().unwrap_or(DEFAULT_PORT);
        let host = |h: &Host| match h {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts = config.get_hosts().iter().map(host);
        Names {
            hosts: hosts.enumerate().map(|(i, h)| (h, port(i))).collect(),
            user: config.get_user().unwrap_or_default().to_owned(),
            database: config.get_dbname().unwrap_or_default().to_owned(),
        }
    }

    /// Returns the arguments with which `pg_isready` and `psql` reach the same server.
    fn arguments(&self) -> String {
        self.hosts.first().map_or_else(String::new, |(h, p)| format!("-h {h} -p {p}"))
    }

    fn is_socket(&self) -> bool {
        self.hosts.iter().all(|(h, _)| h.starts_with('/') || h.starts_with('@'))
    }
}

impl Names {
    /// Describes the hosts, without user and database.
    fn place(&self) -> String {
        let place = |(host, port): &(String, u16)| match host.as_str() {
            h if h.starts_with('/') => format!("socket {h}/.s.PGSQL.{port}"),
            h if h.contains(':') => format!("[{h}]:{port}"),
            h => format!("{h}:{port}"),
        };
        self.hosts.iter().map(place).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as user \"{}\", database \"{}\"", self.place(), self.user, self.database)
    }
}

/// The reason of a failed connection, as the driver's error tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The operating system could not reach the server, by this kind of error, with this text.
    Io(io::ErrorKind, String),
    /// The name of the host cannot be resolved.
    Lookup(String),
    /// Nobody answered in time.
    Timeout,
    /// The server answers, but is not of the kind that `target_session_attrs` wants, for this reason.
    Unwanted(&'static str),
    /// TLS could not be agreed on.
    Tls(String),
    /// The server asks for a password, and the settings have none.
    NoPassword,
    /// The server refused, with this SQLSTATE, message and hint.
    Server(String, String, Option<String>),
    /// Any other error of the driver.
    Other(String),
}

impl Cause {
    pub(super) fn of(e: &tokio_postgres::Error) -> Cause {
        if let Some(db) = e.as_db_error() {
            let (code, hint) = (db.code().code().to_owned(), db.hint().map(str::to_owned));
            return Cause::Server(code, db.message().to_owned(), hint);
        }
        let why = e.source().map_or_else(|| e.to_string(), ToString::to_string);
        if e.is_closed() {
            return Cause::Io(io::ErrorKind::UnexpectedEof, "It sent no answer.".into());
        }
        match e.to_string().as_str() {
            "timeout waiting for server" => return Cause::Timeout,
            "error performing TLS handshake" => return Cause::Tls(why),
            _ if why == "password missing" => return Cause::NoPassword,
            _ => {}
        }
        match e.source().and_then(|s| s.downcast_ref::<io::Error>()) {
            Some(_) if why == "database does not allow writes" => {
                Cause::Unwanted("it is read-only, as a standby is")
            }
            Some(_) if why == "database is not read only" => Cause::Unwanted("it is not read-only"),
            Some(io) if io.kind() == io::ErrorKind::TimedOut => Cause::Timeout,
            Some(_) if why.contains("lookup address") || why.contains("resolve") => Cause::Lookup(why),
            Some(io) => Cause::Io(io.kind(), why),
            None => Cause::Other(why),
        }
    }

    /// Whether another TLS mode may succeed: a connection with TLS after one without TLS, or the reverse.
    pub(super) fn may_depend_on_tls(&self) -> bool {
        match self {
            Cause::Tls(_) => true,
            Cause::Server(code, ..) => code == "28000",
            _ => false,
        }
    }

    /// Puts the reason into words for people.
    fn words(self, names: &Names) -> Words {
        match self {
            Cause::Io(kind, why) => io_failure(kind, why, names),
            Cause::Lookup(why) => {
                let hosts: Vec<&str> = names.hosts.iter().map(|(h, _)| h.as_str()).collect();
                let hint = format!(
                    "Check the spelling of \"{}\", and whether this machine's DNS or VPN knows it.",
                    hosts.join(", ")
                );
                ("the host name cannot be resolved".to_owned(), Some(why), hint)
            }
            Cause::Timeout => (
                "no answer in time".to_owned(),
                None,
                "A firewall or a wrong address drops packets without a word; check both, or raise connect_timeout \
                 (seconds)."
                    .to_owned(),
            ),
            Cause::Tls(why) => tls_failure(why),
            Cause::NoPassword => (
                "the server asks for a password and none was given".to_owned(),
                None,
                "Set PGPASSWORD, or add a line host:port:database:user:password to ~/.pgpass (chmod 600).".to_owned(),
            ),
            Cause::Server(code, message, hint) => server_failure(&code, message, hint, names),
            Cause::Other(why) if why.contains("channel binding") => (
                why,
                None,
                "Leave out channel_binding=require: sslmode=verify-full makes sure of the server too.".to_owned(),
            ),
            Cause::Other(why) => {
                let hint = format!("Try psql {} -U {} {}.", names.arguments(), names.user, names.database);
                (why, None, hint)
            }
            Cause::Unwanted(why) => (
                why.to_owned(),
                None,
                "target_session_attrs says what kind of server is wanted: name a host that is one, or promote one."
                    .to_owned(),
            ),
        }
    }
}

/// Makes the error for people from the hosts that were tried (at least one), each with the cause of its
/// failure.
pub(super) fn explain(refused: Vec<(Names, Cause)>, all: &Names) -> ConnectError {
    // The hint is about the first host that failed for a reason other than its kind. If there is no such
    // host, the hint is about the first host.
    let telling = refused.iter().position(|(_, c)| !matches!(c, Cause::Unwanted(_))).unwrap_or(0);
    let told = |(names, cause): (Names, Cause)| (names.place(), cause.words(&names));
    let told: Vec<(String, Words)> = refused.into_iter().map(told).collect();
    let hint = told.get(telling).map(|(_, (.., hint))| hint.clone()).unwrap_or_default();
    let (what, detail) = match told.as_slice() {
        [(_, (what, detail, _))] => (what.clone(), detail.clone()),
        _ => {
            let each = told.iter().map(|(place, (what, detail, _))| match detail {
                Some(detail) => format!("{place}: {what} ({detail})"),
                None => format!("{place}: {what}"),
            });
            ("none of the hosts can be used".to_owned(), Some(each.collect::<Vec<_>>().join("; ")))
        }
    };
    let mut e = ConnectError::new(false, format!("cannot connect to {all}: {what}")).hint(hint);
    e.detail = detail;
    e
}

/// The message, the detail (the text of the server's or the operating system's own error) and the hint.
type Words = (String, Option<String>, String);

fn io_failure(kind: io::ErrorKind, why: String, names: &Names) -> Words {
    let check = format!("pg_isready {} tells whether a server listens there.", names.arguments());
    match kind {
        io::ErrorKind::ConnectionRefused => (
            "connection refused".to_owned(),
            None,
            format!("Is the server running, and on this port? {check}"),
        ),
        io::ErrorKind::NotFound if names.is_socket() => (
            "there is no such socket".to_owned(),
            None,
            "Is the server running, and is this its socket directory? Name another with PGHOST, or use PGHOST=localhost \
             to connect by TCP."
                .to_owned(),
        ),
        io::ErrorKind::PermissionDenied => (
            "permission denied".to_owned(),
            None,
            "This operating system user may not use the socket; use PGHOST=localhost to connect by TCP.".to_owned(),
        ),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => (
            "the server closed the connection".to_owned(),
            Some(why),
            format!("It may be starting, stopping or full, or no PostgreSQL at all; its log says more. {check}"),
        ),
        _ => ("the server cannot be reached".to_owned(), Some(why), check),
    }
}

fn tls_failure(why: String) -> Words {
    let what = "TLS cannot be agreed on".to_owned();
    let hint = if why.contains("does not support TLS") {
        "The server has ssl = off: switch it on there, or use sslmode=prefer or disable."
    } else if why.contains("NotValidForName") || why.contains("not valid for name") {
        "The certificate is for another host name: connect by that name, or use sslmode=verify-ca."
    } else if ["UnknownIssuer", "BadSignature", "CaUsedAsEndEntity"].iter().any(|w| why.contains(w)) {
        "Name the certificate of the authority that signed the server's with sslrootcert=FILE."
    } else if why.contains("Expired") || why.contains("expired") {
        "The server's certificate has expired (or this machine's clock is wrong): renew it."
    } else {
        "sslmode=prefer encrypts where possible; sslmode=require demands it without checking the certificate."
    };
    (what, Some(why), hint.to_owned())
}

fn server_failure(code: &str, message: String, hint: Option<String>, names: &Names) -> Words {
    let ours = match code {
        "3D000" => {
            format!("psql {} -l lists the databases; createdb {} makes this one.", names.arguments(), names.database)
        }
        "28P01" => "Check user and password (PGUSER, PGPASSWORD, ~/.pgpass).".to_owned(),
        "28000" if message.contains("pg_hba.conf") => {
            "The server's pg_hba.conf has no line for this user, database and address: add one and reload, or connect \
             from where it allows. Some servers demand sslmode=require."
                .to_owned()
        }
        "28000" if message.contains("Peer authentication") || message.contains("Ident authentication") => format!(
            "On the socket the server accepts only the operating system user \"{}\": run as that user, or connect by TCP \
             with PGHOST=localhost and a password.",
            names.user
        ),
        "28000" => "Does this role exist, and may it log in? createuser makes one; PGUSER names another.".to_owned(),
        "42501" => format!("GRANT CONNECT ON DATABASE … TO \"{}\" as the owner of the database.", names.user),
        "53300" => "All connections are taken: close some, raise max_connections, or wait.".to_owned(),
        "08P01" if message.contains("startup parameter") => {
            "A pooler does not let this setting through: leave it out (options, PGOPTIONS) and set it for the role (ALTER \
             ROLE … SET), or add it to ignore_startup_parameters of pgbouncer.ini, which drops it."
                .to_owned()
        }
        "08P01" if message.contains("no such database") || message.contains("no such user") => {
            "PgBouncer does not know it: see [databases] and auth_file in pgbouncer.ini.".to_owned()
        }
        "57P03" => "The server is starting, stopping or recovering: wait a moment and try again.".to_owned(),
        _ => format!("The server's log may say more (SQLSTATE {code})."),
    };
    (message, None, hint.map_or(ours.clone(), |h| format!("{h} {ours}")))
}

impl From<ConnectError> for trickle_engine::Error {
    fn from(e: ConnectError) -> trickle_engine::Error {
        let make =
            if e.is_setting() { trickle_engine::Error::input } else { trickle_engine::Error::connection };
        let mut error = make(e.message().to_owned());
        if let Some(detail) = e.detail_text() {
            error = error.detail(detail);
        }
        match e.hint_text() {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(host: &str) -> Names {
        Names { hosts: vec![(host.into(), 5433)], user: "ann".into(), database: "shop".into() }
    }

    fn server(code: &str, message: &str) -> Cause {
        Cause::Server(code.into(), message.into(), None)
    }

    /// For every kind of failure, the message names host, port, user and database, and the hint fits the
    /// failure.
    #[test]
    fn messages_name_the_target_and_say_what_to_try() {
        let db = names("db.example");
        let socket = names("/run/pg");
        for (cause, names, what, hint) in [
            (
                Cause::Io(io::ErrorKind::ConnectionRefused, "x".into()),
                &db,
                "connection refused",
                "pg_isready -h db.example -p 5433",
            ),
            (Cause::Io(io::ErrorKind::NotFound, "x".into()), &socket, "no such socket", "PGHOST=localhost"),
            (Cause::Io(io::ErrorKind::PermissionDenied, "x".into()), &socket, "permission denied", "by TCP"),
            (Cause::Io(io::ErrorKind::UnexpectedEof, "eof".into()), &db, "closed the connection", "its log"),
            (
                Cause::Lookup("Name or service not known".into()),
                &db,
                "cannot be resolved",
                "spelling of \"db.example\"",
            ),
            (Cause::Timeout, &db, "no answer in time", "firewall"),
            (Cause::Tls("server does not support TLS".into()), &db, "TLS", "ssl = off"),
            (Cause::Tls("invalid peer certificate: UnknownIssuer".into()), &db, "TLS", "sslrootcert"),
            (Cause::Tls("certificate not valid for name \"x\"".into()), &db, "TLS", "another host name"),
            (Cause::NoPassword, &db, "asks for a password", "~/.pgpass"),
            (
                server("3D000", "database \"shop\" does not exist"),
                &db,
                "database \"shop\" does not exist",
                "createdb shop",
            ),
            (
                server("28P01", "password authentication failed for user \"ann\""),
                &db,
                "password authentication failed",
                "PGPASSWORD",
            ),
            (
                server("28000", "no pg_hba.conf entry for host \"1.2.3.4\""),
                &db,
                "no pg_hba.conf entry",
                "has no line for this user",
            ),
            (server("28000", "Peer authentication failed for user \"ann\""), &socket, "Peer", "user \"ann\""),
            (server("28000", "role \"ann\" does not exist"), &db, "role \"ann\"", "createuser"),
            (server("53300", "sorry, too many clients already"), &db, "too many clients", "max_connections"),
            (server("57P03", "the database system is starting up"), &db, "starting up", "wait a moment"),
            (
                server("42501", "permission denied for database \"shop\""),
                &db,
                "permission denied",
                "GRANT CONNECT",
            ),
        ] {
            let e = explain(vec![(names.clone(), cause)], names);
            let place = if names == &socket { "socket /run/pg/.s.PGSQL.5433" } else { "db.example:5433" };
            let start = format!("cannot connect to {place} as user \"ann\", database \"shop\": ");
            assert!(e.message().starts_with(&start) && e.message().contains(what), "{e}");
            assert!(e.hint_text().is_some_and(|h| h.contains(hint)), "{e}");
            assert!(!e.is_setting() && !e.message().ends_with('.'), "{e}");
        }
    }

    #[test]
    fn the_text_has_detail_and_hint_on_their_own_lines() {
        let e = explain(vec![(names("::1"), Cause::Lookup("unknown".into()))], &names("::1"));
        assert_eq!(
            e.to_string(),
            "cannot connect to [::1]:5433 as user \"ann\", database \"shop\": the host name cannot be resolved\n\
             DETAIL: unknown\nHINT: Check the spelling of \"::1\", and whether this machine's DNS or VPN knows it."
        );
    }
}
