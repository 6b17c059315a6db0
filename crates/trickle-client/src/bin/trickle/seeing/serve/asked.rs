//! Decides which requests are answered at all: GET and HEAD requests that name this server and have no body.
//!
//! In a browser, somebody else's page may make the name of its own host resolve to this address (DNS
//! rebinding). Without this check, that page could read all answers, as if they came from its own host. But
//! its requests name that host, and are refused. A request that names an IP address is answered, since nobody
//! can make an address lead to another server.

use hyper::body::Body;
use hyper::{Method, Request, StatusCode, Version, header};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The names by which requests may call this server.
pub(super) struct Hosts {
    /// The allowed names in lower case, without a dot at the end.
    names: Vec<String>,
    /// Whether requests may call this server `localhost`.
    loopback: bool,
}

/// The reason why a request is refused: a status of HTTP, and a sentence.
pub(super) type Refused = (StatusCode, String);

impl Hosts {
    /// Makes the list of names for a server that listens at this address. Requests may call the server by
    /// these names.
    pub(super) fn new(listening: IpAddr, names: &[String]) -> Hosts {
        let names = names.iter().map(|n| plain(n)).collect();
        Hosts { names, loopback: listening.is_loopback() || listening.is_unspecified() }
    }

    /// Refuses a request that names another server, is neither GET nor HEAD, or has a body. The body is not
    /// read. A request that names no server is refused, too, except in HTTP/1.0.
    pub(super) fn admit<B: Body>(&self, request: &Request<B>) -> Result<(), Refused> {
        self.named(request)?;
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are understood".to_owned()));
        }
        if !request.body().is_end_stream() {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "a request here has no body".to_owned()));
        }
        Ok(())
    }

    fn named<B>(&self, request: &Request<B>) -> Result<(), Refused> {
        let wrong = |text: &str| Err((StatusCode::BAD_REQUEST, text.to_owned()));
        let mut given = request.headers().get_all(header::HOST).iter();
        let host = match (given.next(), given.next()) {
            (None, _) if request.version() < Version::HTTP_11 => None,
            (None, _) => return wrong("the request has no Host"),
            (Some(host), None) => Some(host.to_str().unwrap_or_default()),
            (Some(_), Some(_)) => return wrong("the request has more than one Host"),
        };
        // A request in the form for a proxy names the server twice, in its target and in the header Host.
        for name in host.into_iter().chain(request.uri().authority().map(|a| a.as_str())) {
            match Named::read(name) {
                None => return wrong("the Host of the request is no host"),
                Some(Named::Address) => {}
                Some(Named::Name(name)) if self.knows(&name) => {}
                Some(Named::Name(name)) => return Err((StatusCode::MISDIRECTED_REQUEST, unknown(&name))),
            }
        }
        Ok(())
    }

    fn knows(&self, name: &String) -> bool {
        self.loopback && name == "localhost" || self.names.contains(name)
    }
}

/// The host by which a request calls the server, without the port.
enum Named {
    /// An IP address.
    Address,
    /// A name, in the form in which names are compared.
    Name(String),
}

impl Named {
    fn read(text: &str) -> Option<Named> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']')?;
                address.parse::<Ipv6Addr>().ok()?;
                (None, port.strip_prefix(':').or(port.is_empty().then_some(""))?)
            }
            None => {
                let (host, port) = text.split_once(':').unwrap_or((text, ""));
                (Some(host), port)
            }
        };
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        match host {
            None => Some(Named::Address),
            Some(host) if host.parse::<Ipv4Addr>().is_ok() => Some(Named::Address),
            Some(host) => is_host_name(host).then(|| Named::Name(plain(host))),
        }
    }
}

fn unknown(host: &str) -> String {
    format!(
        "this server does not know the name \"{host}\": it answers to its address; to have it answer to this name too, set \
         metrics_hosts = [\"{host}\"] in trickle.toml, or give trickle run --metrics-hosts {host}"
    )
}

/// Returns a name in the form in which names are compared: in lower case, without a dot at the end.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Whether a text can be the name of a host, without a port.
pub(crate) fn is_host_name(name: &str) -> bool {
    let label =
        |l: &str| !l.is_empty() && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    name.strip_suffix('.').unwrap_or(name).split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Empty, Full};
    use hyper::body::Bytes;

    fn code(hosts: &Hosts, request: hyper::http::request::Builder) -> u16 {
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        hosts.admit(&request).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn a_host_that_is_not_known_is_refused() {
        let names = ["Board.example.".to_owned(), "trickle_1".to_owned()];
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let home = Hosts::new(ip("127.0.0.1"), &names);
        let away = Hosts::new(ip("10.0.0.7"), &[]);
        let all = Hosts::new(ip("::"), &[]);
        for (host, at_home, at_away, at_all) in [
            ("127.0.0.1:9187", 200, 200, 200),
            ("10.0.0.7", 200, 200, 200),
            ("[::1]:9187", 200, 200, 200),
            ("localhost:9187", 200, 421, 200),
            ("LocalHost.", 200, 421, 200),
            ("board.EXAMPLE:1", 200, 421, 421),
            ("trickle_1", 200, 421, 421),
            ("evil.example:9187", 421, 421, 421),
            ("localhost.evil.example", 421, 421, 421),
            ("127.0.0.1.evil.example", 421, 421, 421),
            ("0x7f.1", 421, 421, 421),
            ("[::1].evil.example", 400, 400, 400),
            ("user@localhost", 400, 400, 400),
            ("localhost:x", 400, 400, 400),
            ("[localhost]", 400, 400, 400),
            ("", 400, 400, 400),
            ("a b", 400, 400, 400),
        ] {
            for (hosts, expected) in [(&home, at_home), (&away, at_away), (&all, at_all)] {
                let request = Request::get("/").header("host", host);
                assert_eq!(code(hosts, request), expected, "{host}");
            }
        }
        let two = Request::get("/").header("host", "localhost").header("host", "evil.example");
        assert_eq!(code(&home, two), 400);
        assert_eq!(code(&home, Request::get("/")), 400);
        assert_eq!(code(&home, Request::get("/").version(Version::HTTP_10)), 200);
        let twice = |name: &str| Request::get(format!("http://{name}/")).header("host", "localhost");
        assert_eq!((code(&home, twice("evil.example")), code(&home, twice("localhost"))), (421, 200));
    }

    #[test]
    fn a_request_that_is_no_question_is_refused() {
        let hosts = Hosts::new(IpAddr::V6(Ipv6Addr::LOCALHOST), &[]);
        let post = Request::post("/").header("host", "localhost");
        assert_eq!(code(&hosts, post), 405);
        let with_body =
            Request::get("/").header("host", "localhost").body(Full::new(Bytes::from("x"))).unwrap();
        assert_eq!(hosts.admit(&with_body).unwrap_err().0.as_u16(), 413);
    }

    #[test]
    fn names_of_hosts_are_told_from_other_words() {
        for (name, is) in [
            ("board.example", true),
            ("board.example.", true),
            ("a_b-1", true),
            ("", false),
            (".", false),
            ("a..b", false),
            ("board:9187", false),
            ("http://board", false),
            ("*", false),
        ] {
            assert_eq!(is_host_name(name), is, "{name}");
        }
    }
}
