//! The order in which settings win, and the errors for wrong settings.

use super::{ConnectError, Target};
use std::path::Path;
use tokio_postgres::config::{Host, SslMode};

fn target(url: Option<&str>, variables: &[(&str, &str)]) -> Result<Target, ConnectError> {
    let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Target::resolve(url, &find)
}

fn described(url: Option<&str>, variables: &[(&str, &str)]) -> String {
    target(url, variables).unwrap().describe()
}

/// Writes a file of mode 600, whose name contains the number of this process. Returns the path of the file.
fn file(name: &str, text: &str) -> String {
    let path = std::env::temp_dir().join(format!("trickle-connect-{}-{name}", std::process::id()));
    std::fs::write(&path, text).unwrap();
    mode(&path, 0o600);
    path.display().to_string()
}

fn mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn connection_string_wins_and_variables_fill_its_gaps() {
    let env = [("PGHOST", "h"), ("PGPORT", "7"), ("PGUSER", "u"), ("PGDATABASE", "d")];
    assert_eq!(described(None, &env), "h:7 as user \"u\", database \"d\"");
    assert_eq!(described(Some("postgres://x/y"), &env), "x:7 as user \"u\", database \"y\"");
    let both = [&env[..], &[("DATABASE_URL", "host=e dbname=f")]].concat();
    assert_eq!(described(None, &both), "e:7 as user \"u\", database \"f\"");
    assert_eq!(described(Some("shop"), &both), "h:7 as user \"u\", database \"shop\"");
}

#[test]
fn the_forms_of_a_connection_string() {
    for (text, is) in [
        ("postgres://ann@db/shop", "db:5432 as user \"ann\", database \"shop\""),
        ("postgresql://ann:s%40t@db:6543/shop?sslmode=disable", "db:6543 as user \"ann\", database \"shop\""),
        ("postgres://ann@[::1]:1/a%2Fb", "[::1]:1 as user \"ann\", database \"a/b\""),
        ("postgres://ann@a:1,b:2/x", "a:1, b:2 as user \"ann\", database \"x\""),
        ("postgres://ann@%2Frun%2Fpg/x", "socket /run/pg/.s.PGSQL.5432 as user \"ann\", database \"x\""),
        (
            "postgres:///x?host=/run/pg&user=ann",
            "socket /run/pg/.s.PGSQL.5432 as user \"ann\", database \"x\"",
        ),
        ("host = db user='ann lee' dbname='it\\'s'", "db:5432 as user \"ann lee\", database \"it's\""),
        ("hostaddr=127.0.0.1 user=ann", "127.0.0.1:5432 as user \"ann\", database \"ann\""),
    ] {
        assert_eq!(described(Some(text), &[]), is, "{text}");
    }
}

#[test]
fn defaults_are_those_of_libpq_but_for_the_name_and_timeouts() {
    let t = target(None, &[("PGUSER", "u")]).unwrap();
    assert!(
        matches!(t.config().get_hosts(), [Host::Unix(p)] if p.starts_with("/var/run/postgresql") || p.starts_with("/tmp"))
    );
    assert_eq!((t.config().get_dbname(), t.config().get_application_name()), (Some("u"), Some("trickle")));
    assert_eq!(t.config().get_connect_timeout().map(std::time::Duration::as_secs), Some(10));
    let t = target(Some("application_name=mine"), &[("PGCONNECT_TIMEOUT", "3"), ("PGOPTIONS", "-c x=y")])
        .unwrap();
    assert_eq!((t.config().get_application_name(), t.config().get_options()), (Some("mine"), Some("-c x=y")));
    assert_eq!(t.config().get_connect_timeout().map(std::time::Duration::as_secs), Some(3));
    let silence = |t: Target| {
        let (c, seconds) = (t.config(), std::time::Duration::as_secs);
        let unheard = c.get_tcp_user_timeout().map(seconds);
        (
            seconds(&c.get_keepalives_idle()),
            c.get_keepalives_interval().as_ref().map(seconds),
            c.get_keepalives_retries(),
            unheard,
        )
    };
    let usual = target(Some("host=h"), &[]).unwrap();
    assert_eq!(silence(usual.clone()), (30, Some(10), Some(3), Some(60)));
    assert_eq!(silence(usual.impatient()), (4, Some(2), Some(3), Some(10)));
    let chosen =
        target(Some("host=h keepalives_idle=9 keepalives_count=2 tcp_user_timeout=1500"), &[]).unwrap();
    assert_eq!(silence(chosen.clone()), (9, Some(10), Some(2), Some(2)), "libpq's milliseconds");
    assert_eq!(silence(chosen.impatient()), (9, Some(2), Some(2), Some(2)));
}

#[test]
fn the_password_comes_from_the_string_the_variable_or_the_file() {
    let lines =
        "# comment\nother:*:*:*:no\ndb:5432:shop:ann:a\\:b\\\\c\n*:*:*:bob:any\nlocalhost:*:*:eve:local\n";
    let file = file("pgpass", lines);
    let password = |text: &str, more: &[(&str, &str)]| {
        let env = [&[("PGPASSFILE", file.as_str())], more].concat();
        let t = target(Some(text), &env).unwrap();
        t.config().get_password().map(|p| String::from_utf8(p.to_vec()).unwrap())
    };
    assert_eq!(password("postgres://ann@db/shop", &[]).as_deref(), Some("a:b\\c"));
    assert_eq!(password("postgres://bob@x/y", &[]).as_deref(), Some("any"));
    assert_eq!(password("postgres://eve@/y?host=/tmp", &[]).as_deref(), Some("local"));
    assert_eq!(password("postgres://ann@db/other", &[]), None);
    assert_eq!(password("postgres://ann:p@db/shop", &[("PGPASSWORD", "q")]).as_deref(), Some("p"));
    assert_eq!(password("postgres://ann@db/shop", &[("PGPASSWORD", "q")]).as_deref(), Some("q"));
    mode(Path::new(&file), 0o644);
    assert_eq!(password("postgres://bob@x/y", &[]), None, "a file that others may read is not read");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn a_service_fills_in_before_the_variables() {
    let file = file("service", "[a]\nhost=wrong\n[shop]\nhost=db\n# user=no\nport = 99\n");
    let env = [("PGSERVICEFILE", file.as_str()), ("PGSERVICE", "shop"), ("PGUSER", "u"), ("PGPORT", "1")];
    assert_eq!(described(Some("dbname=d"), &env), "db:99 as user \"u\", database \"d\"");
    let e = target(Some("service=nope"), &env).unwrap_err();
    assert!(e.is_setting() && e.message() == "service \"nope\" is not defined", "{e}");
    assert!(e.detail_text().unwrap().contains(&file), "{e}");
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn tls_modes_mean_what_they_mean_to_libpq() {
    let modes = |text: &str| target(Some(text), &[]).unwrap().modes;
    assert_eq!(modes("host=db user=u"), [SslMode::Prefer, SslMode::Disable]);
    assert_eq!(modes("host=db user=u sslmode=allow"), [SslMode::Disable, SslMode::Require]);
    assert_eq!(modes("host=db user=u sslmode=require"), [SslMode::Require]);
    assert_eq!(modes("host=/tmp user=u sslmode=require"), [SslMode::Disable]);
}

#[test]
fn a_wrong_setting_is_named() {
    for (text, message) in [
        ("hots=db", "connection option 1 does not exist"),
        ("host=db nonsense=1", "connection option 2 does not exist"),
        ("postgres://u@db/x?sslmode=disable&nonsense=1", "connection option 2 does not exist"),
        ("host=a,b,c port=1,2", "host, hostaddr and port name different numbers of hosts"),
        ("host=a,b hostaddr=127.0.0.1", "host, hostaddr and port name different numbers of hosts"),
        ("host=db port=x", "invalid value for connection option \"port\""),
        ("host=db sslmode=secure", "sslmode \"secure\" does not exist"),
        ("host='db", "the value of connection option 1 has no closing quote"),
        ("host=db dbname", "connection option 2 has no value"),
        ("mysql://db/x", "the connection URL does not begin with postgres://"),
        (
            "postgres://ü%4@db/x",
            "the user's name in the connection URL is not percent-encoded: character 2 of it is a % without two \
             hexadecimal digits after it",
        ),
        (
            "postgres://u%ff@db/x",
            "the user's name in the connection URL is not percent-encoded: it is no text in UTF-8",
        ),
        ("host=db require_auth=scram-sha-256", "connection option \"require_auth\" is not supported"),
        ("host=db sslmode=verify-full sslrootcert=/nonexistent.pem", "cannot read \"/nonexistent.pem\""),
    ] {
        let e = target(Some(text), &[]).unwrap_err();
        assert!(e.is_setting() && e.message() == message, "{text}: {e}");
    }
}

/// Catches a message that repeats its input. No piece of a connection string is shown, wherever its password
/// stands and however the string is mistyped.
#[test]
fn no_error_holds_any_piece_of_a_connection_string() {
    let pieces = ["Tulip", "Otter", "Maple"];
    let is_told = |text: &str| pieces.iter().any(|p| text.contains(p));
    for text in [
        "postgres://u:Tulip%4@db/x",
        "postgres://u:Tulip%zzOtter@db/x",
        "postgres://u:Tulip%ffOtter@db/x",
        "postgres://Tulip%@db/x",
        "postgres://u%3ATulip@db/x",
        "postgres://u:Tulip/Otter@db/x",
        "postgres://u:Tu@Tulip/Otter@db/x",
        "postgres://u:p@db?Tulip@Otter/x",
        "postgres://u:p@db?Tulip=Otter@db/x",
        "postgres://u:Tulip@db%/x",
        "postgres://u:Tulip@db/%x",
        "postgres://u:Tulip@db:Otter/x",
        "postgres://u:Tulip",
        "postgres://db/x?password=Tulip%",
        "postgres://db/x?passwort=Tulip",
        "postgres://db/x?password=Tulip&Otter",
        "postgres://db/x?password=Tulip&Otter=Maple",
        "postgres:/u:Tulip@db/x",
        "postgres:/u:Tulip@db/x?sslmode=disable",
        "u:Tulip@db/x",
        "u:Tulip://db/x",
        " postgres://u:Tulip@db/x",
        "http://u:Tulip@db/x",
        "Tulip://db",
        "password=Tulip Otter",
        "password=Tulip Otter host=db",
        "password='Tulip",
        "password='Tulip'Otter'",
        "password=Tulip Otter='Maple",
        "host=db password=Tulip://Otter port=Maple",
        "host=db port=Tulip",
        "password=Tulip sslrootcert=/nonexistent sslmode=verify-full",
    ] {
        let e = target(Some(text), &[]).unwrap_err();
        assert!(e.is_setting() && !is_told(&format!("{e} {e:?}")), "{text}: {e}");
    }
    let service = file("secret-service", "[shop]\nhost=db\npassword=Tulip\nOtter=Maple\n");
    let env = [("PGSERVICEFILE", service.as_str()), ("PGSERVICE", "shop")];
    let e = target(None, &env).unwrap_err();
    assert!(
        e.message() == "the option in line 3 of the service does not exist" && !is_told(&format!("{e:?}")),
        "{e}"
    );
    std::fs::remove_file(&service).unwrap();
    // The resolved target does not show the password either, even when the whole target is printed.
    for (text, env) in [
        (Some("postgres://u:Tulip@db/x"), ("", "")),
        (Some("host=db password=Tulip://Otter"), ("", "")),
        (Some("postgres://u:Tulip?Otter@db/x"), ("", "")),
        (Some("host=db"), ("PGPASSWORD", "Tulip")),
    ] {
        let t = target(text, &[env]).unwrap();
        assert!(t.config().get_password().is_some_and(|p| p.starts_with(b"Tulip")), "{text:?}");
        assert!(!is_told(&format!("{t:?} {}", t.describe())), "{t:?}");
    }
    assert!(!is_told(&format!("{:?}", super::Secret::from("Tulip"))));
}

/// As in libpq, a password may contain a question mark, and a port and options may follow a host.
#[test]
fn a_password_ends_where_its_user_would_say() {
    for (text, is, password) in [
        ("postgres://ann:a?b@db/x", "db:5432 as user \"ann\", database \"x\"", Some("a?b")),
        ("postgres://ann:a@b@db/x", "db:5432 as user \"ann\", database \"x\"", Some("a@b")),
        ("postgres://ann:a:b@db/x", "db:5432 as user \"ann\", database \"x\"", Some("a:b")),
        ("postgres://db:7?user=a@b&dbname=x", "db:7 as user \"a@b\", database \"x\"", None),
        ("postgres://[::1]?user=a@b&dbname=x", "[::1]:5432 as user \"a@b\", database \"x\"", None),
        ("host=db dbname='a@b:c/d' user=u:v", "db:5432 as user \"u:v\", database \"a@b:c/d\"", None),
    ] {
        assert_eq!(described(Some(text), &[]), is, "{text}");
        let t = target(Some(text), &[]).unwrap();
        assert_eq!(t.config().get_password(), password.map(str::as_bytes), "{text}");
    }
}
