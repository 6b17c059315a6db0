//! libpq's settings: connection strings, service files, variables.

use super::{ConnectError, Environment};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio_postgres::Config;

/// Values by libpq keyword.
pub(super) type Settings = BTreeMap<String, String>;

/// What becomes of a keyword.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Means the same to tokio-postgres.
    Passed,
    /// Is understood here.
    Own,
    /// Changes nothing for this program.
    Ignored,
    /// Asks for a protection that this program cannot give.
    Refused,
}

/// Every keyword: its variable, if it has one, and its use.
const KEYWORDS: &[(&str, &str, Use)] = &[
    ("host", "PGHOST", Use::Passed),
    ("hostaddr", "PGHOSTADDR", Use::Passed),
    ("port", "PGPORT", Use::Passed),
    ("dbname", "PGDATABASE", Use::Passed),
    ("user", "PGUSER", Use::Passed),
    ("password", "PGPASSWORD", Use::Passed),
    ("options", "PGOPTIONS", Use::Passed),
    ("application_name", "PGAPPNAME", Use::Passed),
    ("connect_timeout", "PGCONNECT_TIMEOUT", Use::Passed),
    ("channel_binding", "PGCHANNELBINDING", Use::Passed),
    ("target_session_attrs", "PGTARGETSESSIONATTRS", Use::Passed),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS", Use::Passed),
    ("sslnegotiation", "PGSSLNEGOTIATION", Use::Passed),
    ("tcp_user_timeout", "", Use::Passed),
    ("keepalives", "", Use::Passed),
    ("keepalives_idle", "", Use::Passed),
    ("keepalives_interval", "", Use::Passed),
    ("keepalives_count", "", Use::Passed),
    ("sslmode", "PGSSLMODE", Use::Own),
    ("sslrootcert", "PGSSLROOTCERT", Use::Own),
    ("sslcert", "PGSSLCERT", Use::Own),
    ("sslkey", "PGSSLKEY", Use::Own),
    ("passfile", "PGPASSFILE", Use::Own),
    ("service", "PGSERVICE", Use::Own),
    ("client_encoding", "PGCLIENTENCODING", Use::Ignored),
    ("fallback_application_name", "", Use::Ignored),
    ("gssencmode", "PGGSSENCMODE", Use::Ignored),
    ("krbsrvname", "PGKRBSRVNAME", Use::Ignored),
    ("gsslib", "PGGSSLIB", Use::Ignored),
    ("sslcompression", "PGSSLCOMPRESSION", Use::Ignored),
    ("sslsni", "PGSSLSNI", Use::Ignored),
    ("sslcrl", "PGSSLCRL", Use::Refused),
    ("sslcrldir", "PGSSLCRLDIR", Use::Refused),
    ("requirepeer", "PGREQUIREPEER", Use::Refused),
    ("require_auth", "PGREQUIREAUTH", Use::Refused),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", Use::Refused),
];

fn usage(key: &str) -> Option<Use> {
    KEYWORDS.iter().find(|(k, ..)| *k == key).map(|(.., u)| *u)
}

/// Reads a connection string: a URL, `key=value` pairs, or else a database name.
pub(super) fn parse(text: &str) -> Result<Settings, ConnectError> {
    let settings = match text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://")) {
        Some(rest) => parse_url(rest)?,
        None if text.contains("://") => {
            let scheme = text.split("://").next().unwrap_or_default();
            return Err(ConnectError::setting(format!("\"{scheme}://\" is no database of this program"))
                .hint("A URL looks like postgres://user@host:5432/database."));
        }
        None if text.contains('=') => parse_pairs(text)?,
        None => Settings::from([("dbname".to_owned(), text.to_owned())]),
    };
    settings.keys().try_for_each(|k| known(k))?;
    // As in libpq, an empty value is none.
    Ok(settings.into_iter().filter(|(_, v)| !v.is_empty()).collect())
}

fn known(key: &str) -> Result<(), ConnectError> {
    match usage(key) {
        None => {
            let e = ConnectError::setting(format!("connection option \"{key}\" does not exist"));
            Err(e.hint("Options are those of libpq: host, port, user, dbname, password, sslmode, …"))
        }
        Some(Use::Refused) => {
            let e = ConnectError::setting(format!("connection option \"{key}\" is not supported"));
            Err(e.hint("Leave it out, or have the server's pg_hba.conf demand the same."))
        }
        Some(_) => Ok(()),
    }
}

/// `[user[:password]@][host[:port],…][/database][?key=value&…]`
fn parse_url(rest: &str) -> Result<Settings, ConnectError> {
    let mut settings = Settings::new();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (who, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    for (key, value) in [("user", user), ("password", password), ("dbname", database)] {
        settings.insert(key.into(), decode(value)?);
    }
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',') {
        let (name, port) = match host.strip_prefix('[').and_then(|h| h.split_once(']')) {
            Some((name, port)) => (name, port.strip_prefix(':').unwrap_or(port)),
            None => host.rsplit_once(':').unwrap_or((host, "")),
        };
        names.push(decode(name)?);
        ports.push(decode(port)?);
    }
    settings.insert("host".into(), names.join(","));
    if ports.iter().any(|p| !p.is_empty()) {
        settings.insert("port".into(), ports.join(","));
    }
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| {
            ConnectError::setting(format!("connection option \"{pair}\" has no value"))
                .hint("Write key=value.")
        })?;
        // JDBC's spelling, which libpq accepts too.
        let (key, value) =
            if (key, value) == ("ssl", "true") { ("sslmode", "require") } else { (key, value) };
        settings.insert(decode(key)?, decode(value)?);
    }
    Ok(settings)
}

fn decode(text: &str) -> Result<String, ConnectError> {
    let wrong = || {
        let e = ConnectError::setting(format!("\"{text}\" is not percent-encoded text"));
        e.hint("In a URL, write % as %25, @ as %40, : as %3A and / as %2F.")
    };
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        if b != b'%' {
            bytes.push(b);
            continue;
        }
        let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16));
        let (high, low) = digit().zip(digit()).ok_or_else(wrong)?;
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| wrong())?);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// `key = value key = 'quoted \' value'`
fn parse_pairs(text: &str) -> Result<Settings, ConnectError> {
    let mut settings = Settings::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or_else(|| {
            let e = ConnectError::setting(format!("connection option \"{}\" has no value", rest.trim()));
            e.hint("Write key=value pairs, or a postgres:// URL.")
        })?;
        let after = after.trim_start();
        let quoted = after.strip_prefix('\'');
        let (value, end) = read_value(quoted.unwrap_or(after), quoted.is_some()).ok_or_else(|| {
            ConnectError::setting(format!(
                "the value of connection option \"{}\" has no closing quote",
                key.trim()
            ))
        })?;
        settings.insert(key.trim().to_owned(), value);
        rest = quoted.unwrap_or(after).get(end..).unwrap_or_default().trim_start();
    }
    Ok(settings)
}

/// A value and the length of its text, closing quote included.
fn read_value(text: &str, quoted: bool) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Some((value, i + 1)),
            c if c.is_whitespace() && !quoted => return Some((value, i)),
            c => value.push(c),
        }
    }
    (!quoted).then_some((value, text.len()))
}

/// Adds what the service of the settings, or of `PGSERVICE`, says and the settings do not.
pub(super) fn add_service(settings: &mut Settings, environment: Environment<'_>) -> Result<(), ConnectError> {
    let Some(service) = settings.remove("service").or_else(|| environment("PGSERVICE")) else {
        return Ok(());
    };
    let user = environment("PGSERVICEFILE").map(PathBuf::from);
    let user = user.or_else(|| environment("HOME").map(|h| PathBuf::from(h).join(".pg_service.conf")));
    let system = environment("PGSYSCONFDIR").map(|d| PathBuf::from(d).join("pg_service.conf"));
    let files: Vec<PathBuf> = user.into_iter().chain(system).collect();
    let found =
        files.iter().filter_map(|f| std::fs::read_to_string(f).ok()).find_map(|t| section(&t, &service));
    let Some(found) = found else {
        let files: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
        return Err(ConnectError::setting(format!("service \"{service}\" is not defined"))
            .detail(format!("Looked in {}.", files.join(" and ")))
            .hint("Add a section with this name, or unset PGSERVICE."));
    };
    for (key, value) in found {
        known(&key)?;
        settings.entry(key).or_insert(value);
    }
    Ok(())
}

/// The lines `key=value` below `[name]`.
fn section(text: &str, name: &str) -> Option<Settings> {
    let mut lines = text.lines().map(str::trim).skip_while(|l| *l != format!("[{name}]"));
    lines.next()?;
    let lines = lines.take_while(|l| !l.starts_with('[')).filter(|l| !l.starts_with('#'));
    let pair = |l: &str| l.split_once('=').map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned()));
    Some(lines.filter_map(pair).collect())
}

/// Adds what the variables say and the settings do not.
pub(super) fn add_environment(settings: &mut Settings, environment: Environment<'_>) {
    for (key, variable, _) in KEYWORDS.iter().filter(|(_, v, u)| !v.is_empty() && *u != Use::Refused) {
        if let Some(value) = environment(variable).filter(|v| !v.is_empty()) {
            settings.entry((*key).to_owned()).or_insert(value);
        }
    }
}

/// The settings that tokio-postgres understands too, checked by it.
pub(super) fn config(settings: &Settings) -> Result<Config, ConnectError> {
    let mut text = String::new();
    for (key, value) in settings.iter().filter(|(k, _)| usage(k) == Some(Use::Passed)) {
        let (key, value) = match (key.as_str(), value.as_str()) {
            ("keepalives_count", v) => ("keepalives_retries", v.to_owned()),
            ("target_session_attrs", "primary") => ("target_session_attrs", "read-write".to_owned()),
            // libpq's are milliseconds, the driver's seconds.
            ("tcp_user_timeout", v) => {
                let seconds = v.parse::<u64>().map(|ms| ms.div_ceil(1000).to_string());
                ("tcp_user_timeout", seconds.unwrap_or_else(|_| v.to_owned()))
            }
            (key, v) => (key, v.to_owned()),
        };
        text += &format!("{key}='{}' ", value.replace('\\', "\\\\").replace('\'', "\\'"));
    }
    text.parse().map_err(|e: tokio_postgres::Error| {
        let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
        ConnectError::setting(why.replace('`', "\""))
            .hint("Check the connection string and the PG… variables (env | grep ^PG).")
    })
}

/// The same for each host alone. Ports are one for all, or one for each.
pub(super) fn each_host(settings: &Settings) -> Result<Vec<Config>, ConnectError> {
    let parts =
        |key: &str| -> Vec<&str> { settings.get(key).map(|v| v.split(',').collect()).unwrap_or_default() };
    let (names, addresses, ports) = (parts("host"), parts("hostaddr"), parts("port"));
    let hosts = names.len();
    if !addresses.is_empty() && addresses.len() != hosts || ports.len() > 1 && ports.len() != hosts {
        let (addresses, ports) = (addresses.len(), ports.len());
        return Err(ConnectError::setting("host, hostaddr and port name different numbers of hosts")
            .detail(format!("There are {hosts} in host, {addresses} in hostaddr and {ports} in port."))
            .hint("Name a port for each host, or one for all."));
    }
    let one = |i: usize| {
        let mut own = settings.clone();
        for (key, values) in [("host", &names), ("hostaddr", &addresses), ("port", &ports)] {
            match values.get(i).or(values.first()).filter(|v| !v.is_empty()) {
                Some(value) => own.insert(key.to_owned(), (*value).to_owned()),
                None if key == "host" => own.insert(key.to_owned(), super::socket_directory()),
                None => own.remove(key),
            };
        }
        config(&own)
    };
    (0..hosts).map(one).collect()
}
