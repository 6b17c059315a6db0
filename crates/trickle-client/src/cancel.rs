//! Requests to cancel a statement.
//!
//! As in libpq, the sender waits until the other end closes the connection. By then the server has received
//! the request, so the request cannot end a statement that begins later. The wait also lets a pooler pass on
//! the whole request. `PgBouncer` 1.18 ends with an error of its own if its client disconnects before that.

use crate::encryption::Encrypt;
use crate::error::failed;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::Host;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::{CancelToken, Config, NoTls};
use trickle_engine::{Error, Result};

/// The longest time that a request may take in all, since a server that is gone never closes the connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a connection was made: its host, its port, and the encryption to use where the host offers it.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) host: Config,
    pub(crate) port: u16,
    pub(crate) tls: Encrypt,
}

/// A handle that asks the server to end the running statement of a connection.
#[derive(Clone)]
pub struct Cancel {
    token: CancelToken,
    way: Option<Way>,
}

impl Cancel {
    pub(crate) fn new(token: CancelToken, way: Option<Way>) -> Cancel {
        Cancel { token, way }
    }

    /// Asks the server to end the statement, over a new connection of the same kind. Only the connection that
    /// runs the statement shows whether the statement ends.
    ///
    /// # Errors
    /// The server cannot be reached, or does not close the connection in time.
    pub async fn send(&self) -> Result<()> {
        let late = || Error::connection("a request to cancel a statement was not heard in time");
        tokio::time::timeout(PATIENCE, self.ask()).await.map_err(|_| late())?
    }

    async fn ask(&self) -> Result<()> {
        let fail = |e| failed("cancel a statement", e);
        let Some(way) = &self.way else { return self.token.cancel_query(NoTls).await.map_err(fail) };
        let lost = |e: io::Error| Error::connection(format!("cannot ask to cancel a statement: {e}"));
        let (host, addresses) = (way.host.get_hosts().first(), way.host.get_hostaddrs());
        let port = way.port;
        let mut tls = way.tls.clone();
        match (host, addresses.first()) {
            (Some(Host::Unix(directory)), _) => {
                let line =
                    UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await.map_err(lost)?;
                self.token.cancel_query_raw(Heeded(line), Heeding(NoTls)).await.map_err(fail)
            }
            (Some(Host::Tcp(name)), address) => {
                let line = match address {
                    Some(address) => TcpStream::connect((*address, port)).await,
                    None => TcpStream::connect((name.as_str(), port)).await,
                };
                let line = Heeded(line.map_err(lost)?);
                let tls = MakeTlsConnect::<Heeded<TcpStream>>::make_tls_connect(&mut tls, name);
                let tls = tls.map_err(|e| Error::connection(e.to_string()))?;
                self.token.cancel_query_raw(line, Heeding(tls)).await.map_err(fail)
            }
            (None, _) => Err(Error::connection("cannot ask to cancel a statement: no host is known")),
        }
    }
}

/// A connection whose shutdown waits until the other end has closed the connection.
struct Heeded<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for Heeded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Heeded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut said = [0; 64];
            let mut said = ReadBuf::new(&mut said);
            // The server sends nothing before it closes the connection. An error of the read counts as a
            // closed connection, too.
            let read = ready!(Pin::new(&mut self.0).poll_read(cx, &mut said));
            if read.is_err() || said.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: TlsStream + Unpin> TlsStream for Heeded<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.0.channel_binding()
    }
}

/// Applies the encryption `T` to [`Heeded`] connections. The shutdown of the encrypted connection waits, too.
struct Heeding<T>(T);

impl<S, T> TlsConnect<Heeded<S>> for Heeding<T>
where
    T: TlsConnect<Heeded<S>, Future: Send + 'static>,
    T::Stream: Unpin,
{
    type Stream = Heeded<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<Heeded<T::Stream>, T::Error>> + Send>>;
    fn connect(self, stream: Heeded<S>) -> Self::Future {
        let connecting = self.0.connect(stream);
        Box::pin(async move { connecting.await.map(Heeded) })
    }
}
