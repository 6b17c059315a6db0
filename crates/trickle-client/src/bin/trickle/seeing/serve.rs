//! Serves metrics and the status page over HTTP, on a thread of its own, so that nobody who asks holds up a refresh.
//!
//! Whoever can reach the port may read; nothing can be changed through it. A request is small and quick or it is dropped.

use super::metrics::Metrics;
use super::reader::{Asked, Reader, View, answer};
use super::{page, scrape};
use crate::failure::Failure;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Connections at a time; others wait to be accepted.
const MOST: usize = 32;
/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(5);
/// How large it may be.
const HEAD_BYTES: usize = 16 << 10;
/// How long a connection may live: long enough for a database that answers late, and a slow reader.
const WHOLE: Duration = Duration::from_secs(30);

/// A port that is listened on.
pub(crate) struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

/// Listens.
///
/// # Errors
/// The port is taken, or not to be had by this user or on this machine.
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

/// What every handler needs.
struct Shared {
    metrics: Arc<Metrics>,
    asking: mpsc::Sender<Asked>,
    database: String,
    policy: HeaderValue,
}

impl Listening {
    /// Where.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the program ends.
    ///
    /// # Errors
    /// No thread is to be had.
    pub(crate) fn serve(
        self,
        metrics: Arc<Metrics>,
        reader: Reader,
        database: String,
    ) -> Result<(), Failure> {
        let fail = |e| Failure::failed(format!("cannot serve metrics: {e}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fail)?;
        let (asking, asked) = mpsc::channel(MOST);
        let policy = HeaderValue::from_str(&page::policy())
            .map_err(|e| Failure::failed(format!("cannot serve metrics: {e}")))?;
        let shared = Arc::new(Shared { metrics, asking, database, policy });
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
    let room = Arc::new(Semaphore::new(MOST));
    while let Ok(permit) = room.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    // Whoever is too slow is dropped.
                    let _ = tokio::time::timeout(WHOLE, converse(stream, shared)).await;
                    drop(permit);
                });
            }
            // Too many files are open, or the peer is gone: nothing that is better at once.
            Err(e) => {
                tracing::debug!("cannot accept a connection: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// One request and its answer.
async fn converse(stream: TcpStream, shared: Arc<Shared>) -> Result<(), hyper::Error> {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(respond(&request, &shared).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";
/// The text format of Prometheus.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

async fn respond(request: &Request<Incoming>, shared: &Shared) -> Response<Full<Bytes>> {
    let (status, kind, text) = if matches!(*request.method(), Method::GET | Method::HEAD) {
        found(request.uri().path(), shared).await
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "only GET and HEAD are understood\n".to_owned())
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

async fn found(path: &str, shared: &Shared) -> (StatusCode, &'static str, String) {
    match path {
        "/" => {
            let view = view(shared).await;
            let connected = shared.metrics.is_connected();
            (StatusCode::OK, HTML, page::render(&shared.database, connected, &view))
        }
        "/status.json" => {
            let view = view(shared).await;
            let age_ms = u64::try_from(view.age.as_millis()).unwrap_or(u64::MAX);
            let connected = shared.metrics.is_connected();
            let document = json!({"database": shared.database, "connected": connected, "age_ms": age_ms,
                "trouble": view.trouble, "snapshot": view.snapshot.as_deref()});
            (StatusCode::OK, JSON, format!("{document}\n"))
        }
        "/metrics" => match scrape::text(&shared.metrics, &view(shared).await) {
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

/// How stream tables stand, at most a second ago.
async fn view(shared: &Shared) -> View {
    let (who, answer) = oneshot::channel();
    let gone = || View { trouble: Some("nobody reads the database".to_owned()), ..View::default() };
    match shared.asking.send(who).await {
        Ok(()) => answer.await.unwrap_or_else(|_| gone()),
        Err(_) => gone(),
    }
}
