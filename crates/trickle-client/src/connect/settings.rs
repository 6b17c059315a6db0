//! libpq's settings, from connection strings, service files and environment variables.

use super::wrong::{OptionPlace, Part, Wrong};
use super::{ConnectError, Environment, Secret};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tokio_postgres::Config;

/// Values by libpq keyword.
pub(super) type Settings = BTreeMap<&'static str, Secret>;

/// Options as they were read: the place, the possible keyword, and the value.
type ReadOptions = Vec<(OptionPlace, Secret, Secret)>;

/// The treatment of a keyword by this program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// The keyword means the same to tokio-postgres, and is passed to tokio-postgres.
    Passed,
    /// The keyword is handled by this program, not by tokio-postgres.
    Own,
    /// The keyword changes nothing for this program.
    Ignored,
    /// The keyword asks for a protection that this program does not have.
    Refused,
}

/// Every keyword with its environment variable (empty if it has none) and its use.
const KEYWORDS: &[(&str, &str, Treatment)] = &[
    ("host", "PGHOST", Treatment::Passed),
    ("hostaddr", "PGHOSTADDR", Treatment::Passed),
    ("port", "PGPORT", Treatment::Passed),
    ("dbname", "PGDATABASE", Treatment::Passed),
    ("user", "PGUSER", Treatment::Passed),
    ("password", "PGPASSWORD", Treatment::Passed),
    ("options", "PGOPTIONS", Treatment::Passed),
    ("application_name", "PGAPPNAME", Treatment::Passed),
    ("connect_timeout", "PGCONNECT_TIMEOUT", Treatment::Passed),
    ("channel_binding", "PGCHANNELBINDING", Treatment::Passed),
    ("target_session_attrs", "PGTARGETSESSIONATTRS", Treatment::Passed),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS", Treatment::Passed),
    ("sslnegotiation", "PGSSLNEGOTIATION", Treatment::Passed),
    ("tcp_user_timeout", "", Treatment::Passed),
    ("keepalives", "", Treatment::Passed),
    ("keepalives_idle", "", Treatment::Passed),
    ("keepalives_interval", "", Treatment::Passed),
    ("keepalives_count", "", Treatment::Passed),
    ("sslmode", "PGSSLMODE", Treatment::Own),
    ("sslrootcert", "PGSSLROOTCERT", Treatment::Own),
    ("sslcert", "PGSSLCERT", Treatment::Own),
    ("sslkey", "PGSSLKEY", Treatment::Own),
    ("passfile", "PGPASSFILE", Treatment::Own),
    ("service", "PGSERVICE", Treatment::Own),
    ("client_encoding", "PGCLIENTENCODING", Treatment::Ignored),
    ("fallback_application_name", "", Treatment::Ignored),
    ("gssencmode", "PGGSSENCMODE", Treatment::Ignored),
    ("krbsrvname", "PGKRBSRVNAME", Treatment::Ignored),
    ("gsslib", "PGGSSLIB", Treatment::Ignored),
    ("sslcompression", "PGSSLCOMPRESSION", Treatment::Ignored),
    ("sslsni", "PGSSLSNI", Treatment::Ignored),
    ("sslcrl", "PGSSLCRL", Treatment::Refused),
    ("sslcrldir", "PGSSLCRLDIR", Treatment::Refused),
    ("requirepeer", "PGREQUIREPEER", Treatment::Refused),
    ("require_auth", "PGREQUIREAUTH", Treatment::Refused),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", Treatment::Refused),
];

fn usage(key: &str) -> Option<Treatment> {
    KEYWORDS.iter().find(|(k, ..)| *k == key).map(|(.., u)| *u)
}

/// Whether a text looks like a connection string, however mistyped, and so may have a password in it.
pub fn may_hold_password(text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c == '-' || c.is_whitespace());
    let first = text.split_whitespace().next().unwrap_or_default();
    let lower = first.to_lowercase();
    let is_pair = first.split_once('=').is_some_and(|(key, _)| near(key).is_some());
    let has_password = first.split_once(':').is_some_and(|(_, rest)| rest.contains('@'));
    // SQL has spaces, so a single word is no SQL.
    let is_word = first.len() == text.trim_end().len();
    lower.starts_with("postgres:")
        || lower.starts_with("postgresql:")
        || first.contains("://") && text.contains(['@', '='])
        || is_pair
        || is_word && has_password
}

/// Reads a connection string: a URL, `key=value` pairs, or else a database name.
pub(super) fn parse(text: &str) -> Result<Settings, Wrong> {
    let read = match text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://")) {
        Some(rest) => return parse_url(rest).map(given),
        None if has_scheme(text) => return Err(Wrong::Scheme),
        None if text.contains('=') => parse_pairs(text)?,
        None if text.contains(['@', ':', '/']) => return Err(Wrong::NoName),
        None => return Ok(given(Settings::from([("dbname", text.into())]))),
    };
    known(read).map(given)
}

/// Removes settings with empty values, since libpq treats such settings as if they were not given.
fn given(settings: Settings) -> Settings {
    settings.into_iter().filter(|(_, v)| !v.reveal().is_empty()).collect()
}

fn has_scheme(text: &str) -> bool {
    let is_scheme = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b));
    text.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme))
}

/// Turns options into settings. If an option is given twice, the second value counts.
fn known(read: ReadOptions) -> Result<Settings, Wrong> {
    let setting = |(at, key, value): (OptionPlace, Secret, Secret)| {
        let key = key.reveal();
        match KEYWORDS.iter().find(|(k, ..)| *k == key) {
            None => Err(Wrong::Unknown(at, near(key))),
            Some((name, _, Treatment::Refused)) => Err(Wrong::Refused(name)),
            Some((name, _, Treatment::Passed | Treatment::Own | Treatment::Ignored)) => Ok((*name, value)),
        }
    };
    read.into_iter().map(setting).collect()
}

/// Returns the keyword that was probably meant: the nearest one, if it is at most two edits away.
fn near(key: &str) -> Option<&'static str> {
    let distance = |k: &&str| strsim::damerau_levenshtein(key, k);
    KEYWORDS.iter().map(|(k, ..)| *k).min_by_key(distance).filter(|k| distance(k) <= 2)
}

/// Splits a URL into user with password, and the rest. As in libpq, a password may contain a `?`. Unlike in
/// libpq, a password may also contain a `@`.
fn who(rest: &str) -> (&str, &str) {
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    if let Some(at) = authority.rfind('@') {
        return (&rest[..at], &rest[at + 1..]);
    }
    let has_password = authority.split_once(':').is_some_and(|(user, more)| {
        !user.starts_with('[') && !more.is_empty() && !more.bytes().all(|b| b.is_ascii_digit())
    });
    let longer = &rest[..rest.find('/').unwrap_or(rest.len())];
    match longer.find('@').filter(|_| has_password) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => ("", rest),
    }
}

/// Parses `[user[:password]@][host[:port],…][/database][?key=value&…]`.
fn parse_url(rest: &str) -> Result<Settings, Wrong> {
    let mut settings = Settings::new();
    let (who, rest) = who(rest);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
    if database.contains('@') {
        return Err(Wrong::LateAt);
    }
    let (user, password) = who.split_once(':').unwrap_or((who, ""));
    for (key, value, part) in [
        ("user", user, Part::User),
        ("password", password, Part::Password),
        ("dbname", database, Part::Database),
    ] {
        settings.insert(key, decode(value, part)?);
    }
    if settings.get("user").is_some_and(|u| u.reveal().contains(':')) {
        return Err(Wrong::ColonInUser);
    }
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',') {
        let (name, port) = match host.strip_prefix('[').and_then(|h| h.split_once(']')) {
            Some((name, port)) => (name, port.strip_prefix(':').unwrap_or(port)),
            None => host.rsplit_once(':').unwrap_or((host, "")),
        };
        names.push(decode(name, Part::Host)?.reveal().to_owned());
        ports.push(decode(port, Part::Port)?.reveal().to_owned());
    }
    settings.insert("host", names.join(",").into());
    if ports.iter().any(|p| !p.is_empty()) {
        settings.insert("port", ports.join(",").into());
    }
    let mut options = ReadOptions::new();
    for (n, pair) in (1..).zip(query.split('&').filter(|p| !p.is_empty())) {
        let (key, value) = pair.split_once('=').ok_or(Wrong::NoValue(OptionPlace::Number(n)))?;
        // JDBC's spelling, which libpq accepts too.
        let (key, value) =
            if (key, value) == ("ssl", "true") { ("sslmode", "require") } else { (key, value) };
        options.push((
            OptionPlace::Number(n),
            decode(key, Part::Option(n))?,
            decode(value, Part::Option(n))?,
        ));
    }
    settings.extend(known(options)?);
    Ok(settings)
}

fn decode(text: &str, part: Part) -> Result<Secret, Wrong> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(b) = rest.next() {
        if b != b'%' {
            bytes.push(b);
            continue;
        }
        let at = text[..text.len() - rest.len()].chars().count();
        let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16));
        let byte = digit().zip(digit()).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        bytes.push(byte.ok_or(Wrong::Escape(part, at))?);
    }
    String::from_utf8(bytes).map(Secret::from).map_err(|_| Wrong::Bytes(part))
}

/// Parses `key = value key = 'quoted \' value'`.
fn parse_pairs(text: &str) -> Result<ReadOptions, Wrong> {
    let mut read = ReadOptions::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let at = OptionPlace::Number(read.len() + 1);
        let (key, after) = rest.split_once('=').ok_or(Wrong::NoValue(at))?;
        let after = after.trim_start();
        let quoted = after.strip_prefix('\'');
        let (value, end) = read_value(quoted.unwrap_or(after), quoted.is_some()).ok_or(Wrong::NoQuote(at))?;
        read.push((at, key.trim().into(), value.into()));
        rest = quoted.unwrap_or(after).get(end..).unwrap_or_default().trim_start();
    }
    Ok(read)
}

/// Returns a value and the length of its text, closing quote included. Returns `None` if the closing quote is
/// missing.
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

/// Adds those settings of a service that are not set yet. The setting `service` names the service, else
/// `PGSERVICE`.
pub(super) fn add_service(settings: &mut Settings, environment: Environment<'_>) -> Result<(), ConnectError> {
    let named = settings.remove("service").map(|s| s.reveal().to_owned());
    let Some(service) = named.or_else(|| environment("PGSERVICE")) else { return Ok(()) };
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
    for (key, value) in known(found)? {
        settings.entry(key).or_insert(value);
    }
    Ok(())
}

/// Returns the `key=value` lines below `[name]`.
fn section(text: &str, name: &str) -> Option<ReadOptions> {
    let mut lines = text.lines().map(str::trim).skip_while(|l| *l != format!("[{name}]"));
    lines.next()?;
    let lines = (1..).zip(lines.take_while(|l| !l.starts_with('['))).filter(|(_, l)| !l.starts_with('#'));
    let pair = |(n, l): (usize, &str)| {
        let (key, value) = l.split_once('=')?;
        Some((OptionPlace::Line(n), key.trim().into(), value.trim().into()))
    };
    Some(lines.filter_map(pair).collect())
}

/// Gives each setting without a value the value of its environment variable, if that variable has a value.
pub(super) fn add_environment(settings: &mut Settings, environment: Environment<'_>) {
    for (key, variable, _) in KEYWORDS.iter().filter(|(_, v, u)| !v.is_empty() && *u != Treatment::Refused) {
        if let Some(value) = environment(variable).filter(|v| !v.is_empty()) {
            settings.entry(key).or_insert(value.into());
        }
    }
}

/// Builds the driver's configuration from the settings that the driver understands. The driver checks these
/// settings.
pub(super) fn config(settings: &Settings) -> Result<Config, ConnectError> {
    let passed = || settings.iter().filter(|(k, _)| usage(k) == Some(Treatment::Passed));
    let text: String = passed().map(|(key, value)| passed_on(key, value.reveal())).collect();
    text.parse().map_err(|_| {
        // The driver's message may quote the value that it could not read, so the message is left out.
        let is_wrong = |(key, value): &(&&'static str, &Secret)| {
            passed_on(key, value.reveal()).parse::<Config>().is_err()
        };
        passed().find(is_wrong).map_or(Wrong::NoName, |(key, _)| Wrong::Value(key)).into()
    })
}

/// Writes a setting in the form that the driver reads.
fn passed_on(key: &str, value: &str) -> String {
    let (key, value) = match (key, value) {
        ("keepalives_count", v) => ("keepalives_retries", v.to_owned()),
        ("target_session_attrs", "primary") => ("target_session_attrs", "read-write".to_owned()),
        // libpq counts this timeout in milliseconds, and the driver in seconds.
        ("tcp_user_timeout", v) => {
            let seconds = v.parse::<u64>().map(|ms| ms.div_ceil(1000).to_string());
            ("tcp_user_timeout", seconds.unwrap_or_else(|_| v.to_owned()))
        }
        (key, v) => (key, v.to_owned()),
    };
    format!("{key}='{}' ", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Builds one configuration for each host, from the same other settings. The settings have one port for all
/// hosts, or one port for each.
pub(super) fn each_host(settings: &Settings) -> Result<Vec<Config>, ConnectError> {
    let parts = |key: &str| -> Vec<&str> {
        settings.get(key).map(|v| v.reveal().split(',').collect()).unwrap_or_default()
    };
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
                Some(value) => own.insert(key, (*value).into()),
                None if key == "host" => own.insert(key, super::socket_directory().into()),
                None => own.remove(key),
            };
        }
        config(&own)
    };
    (0..hosts).map(one).collect()
}
