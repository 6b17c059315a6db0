//! Serves metrics and the status page over HTTP, on a thread of its own, so that no request holds up a
//! refresh.
//!
//! Everybody who can reach the port may read all pages, and nobody can change anything through the port. A
//! request must be small and arrive quickly, or its connection is closed.

mod asked;
mod crowd;

pub(crate) use asked::is_host_name;

use super::metrics::Metrics;
use super::reader::{Asked, Reader, View, answer};
use super::{page, scrape};
use crate::failure::Failure;
use asked::Hosts;
use crowd::{Crowd, Lost, Place, Stage};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// The greatest number of requests that wait for the database at a time. This limit is less than the number
/// of connections that one peer may have. So a request that needs no database finds a place, however slow the
/// database is.
const WAITING: usize = 32;
/// The longest time in which the head of a request must arrive, counted from the moment when the connection
/// is accepted.
const HEAD: Duration = Duration::from_secs(2);
/// The greatest size in bytes of the head of a request.
const HEAD_BYTES: usize = 16 << 10;
/// The longest life of a connection, long enough for a database that answers late and for a peer that reads
/// slowly.
const WHOLE: Duration = Duration::from_secs(30);

/// A port on which this process listens.
pub(crate) struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

/// Listens at an address.
///
/// # Errors
/// The port is in use, this user may not use the port, or the address belongs to another machine.
pub(crate) fn listen(address: SocketAddr) -> Result<Listening, Failure> {
    let fail = |e: std::io::Error| {
        let failure = Failure::failed(format!("cannot serve metrics on {address}: {e}"));
        match e.kind() {
            std::io::ErrorKind::AddrInUse => {
                failure.hint("Another program listens there; name another port.")
            }
            _ => failure,
        }
    };
    let listener = TcpListener::bind(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    Ok(Listening { listener, address })
}

/// The state that every handler needs.
struct Shared {
    metrics: Arc<Metrics>,
    asking: mpsc::Sender<Asked>,
    database: String,
    policy: HeaderValue,
    hosts: Hosts,
    /// Permits to wait for the database. A request takes a permit, and gives it back when the request ends.
    waiting: Semaphore,
}

impl Listening {
    /// Returns the address of the listener, with the port that the system chose for port 0.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the program ends. Requests must call this server by an IP address or by one of these
    /// names.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn serve(
        self,
        metrics: Arc<Metrics>,
        reader: Reader,
        database: String,
        names: &[String],
    ) -> Result<(), Failure> {
        let fail = |e| Failure::failed(format!("cannot serve metrics: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let (asking, asked) = mpsc::channel(WAITING);
        let policy = HeaderValue::from_str(&page::policy())
            .map_err(|e| Failure::failed(format!("cannot serve metrics: {e}")))?;
        let hosts = Hosts::new(self.address.ip(), names);
        let waiting = Semaphore::new(WAITING);
        let shared = Arc::new(Shared { metrics, asking, database, policy, hosts, waiting });
        let work = move || {
            runtime.block_on(async {
                match tokio::net::TcpListener::from_std(self.listener) {
                    Ok(listener) => {
                        tokio::join!(accept(&listener, &shared), answer(reader, asked));
                    }
                    Err(e) => tracing::error!("cannot serve metrics: {e}"),
                }
            });
        };
        std::thread::Builder::new().name("metrics".to_owned()).spawn(work).map_err(fail)?;
        Ok(())
    }
}

async fn accept(listener: &tokio::net::TcpListener, shared: &Arc<Shared>) {
    let crowd = Arc::new(Crowd::default());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (place, lost) = crowd.enter(peer.ip());
                let shared = shared.clone();
                tokio::spawn(async move {
                    // A connection ends here if it is too slow, or has to make room for another connection.
                    let _ = tokio::time::timeout(WHOLE, converse(stream, shared, place, lost)).await;
                });
            }
            // Too many files are open, or the peer is gone. The pause gives open files time to be closed.
            Err(e) => {
                tracing::debug!("cannot accept a connection: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Reads one request and answers it. The connection closes early if it loses its place.
async fn converse(stream: TcpStream, shared: Arc<Shared>, place: Place, lost: Lost) {
    let place = &place;
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move {
            place.is(Stage::Answering);
            let response = respond(&request, &shared).await;
            place.is(Stage::Taking);
            Ok::<_, Infallible>(response)
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // An error of the connection concerns only its peer, so the error is ignored.
        _ = serving => {}
        _ = lost => {}
    }
}

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";
/// The text format of Prometheus.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

async fn respond(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    let (status, kind, text) = match shared.hosts.admit(request) {
        Ok(()) => found(request.uri().path(), shared).await,
        Err((status, why)) => (status, PLAIN, format!("{why}\n")),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, shared.policy.clone());
    for (name, value) in [
        (header::CONTENT_TYPE, kind),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    response
}

type Found = (StatusCode, &'static str, String);

async fn found(path: &str, shared: &Shared) -> Found {
    let turn = shared.waiting.try_acquire();
    let view = match (matches!(path, "/" | "/status.json" | "/metrics"), &turn) {
        (false, _) => View::default(),
        (true, Err(_)) => return crowded(),
        // The permit is given back when this request ends.
        (true, Ok(_)) => view(shared).await,
    };
    match path {
        "/" => {
            let connected = shared.metrics.is_connected();
            (StatusCode::OK, HTML, page::render(&shared.database, connected, &view))
        }
        "/status.json" => {
            let age_ms = u64::try_from(view.age.as_millis()).unwrap_or(u64::MAX);
            let connected = shared.metrics.is_connected();
            let document = json!({"database": shared.database, "connected": connected, "age_ms": age_ms,
                "trouble": view.trouble, "snapshot": view.snapshot.as_deref()});
            (StatusCode::OK, JSON, format!("{document}\n"))
        }
        "/metrics" => match scrape::text(&shared.metrics, &view) {
            Ok(text) => (StatusCode::OK, METRICS, text),
            Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{e}\n")),
        },
        "/healthz" if shared.metrics.is_connected() => (StatusCode::OK, PLAIN, "ok\n".to_owned()),
        "/healthz" => {
            let text = "no connection to the database\n".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text)
        }
        _ => (StatusCode::NOT_FOUND, PLAIN, "there is /, /status.json, /metrics and /healthz\n".to_owned()),
    }
}

fn crowded() -> Found {
    let text = format!("{WAITING} requests wait for the database already; ask again in a second\n");
    (StatusCode::SERVICE_UNAVAILABLE, PLAIN, text)
}

/// Returns the state of the stream tables, read anew if the last read was tried more than a second ago.
async fn view(shared: &Shared) -> View {
    let (who, answer) = oneshot::channel();
    let gone = || View { trouble: Some("nobody reads the database".to_owned()), ..View::default() };
    match shared.asking.send(who).await {
        Ok(()) => answer.await.unwrap_or_else(|_| gone()),
        Err(_) => gone(),
    }
}
