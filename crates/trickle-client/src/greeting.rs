//! The process number that a connection was given at its start, which tells a pooler from a server.
//!
//! A server begins with the number of its process and a secret, for requests to cancel. A pooler's clients
//! have no process of their own. So the pooler makes up a random number and a secret for each client, and
//! knows by them whose statement is to be cancelled.
//!
//! Hence the number equals `pg_backend_pid()` if and only if no pooler stands between, even if the pooler
//! gives its client the same process each time. The driver tells the number only to the receiver of a request
//! to cancel.

use futures_util::FutureExt;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Returns the number of the server process that a connection was given at its start.
pub(crate) fn process(token: &CancelToken) -> Option<i32> {
    let mut sent = Vec::new();
    // The request is written into memory, so nothing waits.
    token.cancel_query_raw(RecordingStream(&mut sent), Unencrypted).now_or_never()?.ok()?;
    // The request is: its length, its code, the process, the secret.
    let request = sent.last_chunk::<16>()?;
    let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *request;
    Some(i32::from_be_bytes([a, b, c, d]))
}

/// A stand-in for a server that stores the bytes it receives, and agrees to TLS.
struct RecordingStream<'s>(&'s mut Vec<u8>);

impl AsyncWrite for RecordingStream<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, more: &[u8]) -> Poll<io::Result<usize>> {
        self.0.extend_from_slice(more);
        Poll::Ready(Ok(more.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for RecordingStream<'_> {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        to.put_slice(b"S");
        Poll::Ready(Ok(()))
    }
}

impl TlsStream for RecordingStream<'_> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

/// TLS that encrypts nothing, for a request that goes nowhere.
struct Unencrypted;

impl<'s> TlsConnect<RecordingStream<'s>> for Unencrypted {
    type Stream = RecordingStream<'s>;
    type Error = Infallible;
    type Future = Ready<Result<RecordingStream<'s>, Infallible>>;
    fn connect(self, stream: RecordingStream<'s>) -> Self::Future {
        ready(Ok(stream))
    }
}
