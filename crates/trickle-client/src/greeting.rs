//! The number of a server process, which a connection receives at its start. By this number, a client can
//! tell a pooler from a server.
//!
//! A server begins a connection with the number of its process and a secret, which requests to cancel repeat.
//! A pooler's clients have no server process of their own. So the pooler makes up a random number and a
//! secret for each client. In a request to cancel, both tell the pooler whose statement is meant.
//!
//! Hence the number equals `pg_backend_pid()` if and only if no pooler stands between client and server. The
//! rule holds even if a pooler gives its client the same server process each time. The driver shows the
//! number only in a request to cancel, so [`process`] reads it from one.

use futures_util::FutureExt;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Returns the number of a server process that a connection received at its start.
pub(crate) fn process(token: &CancelToken) -> Option<i32> {
    let mut sent = Vec::new();
    // The request is written into memory, so its future never waits.
    token.cancel_query_raw(RecordingStream(&mut sent), Unencrypted).now_or_never()?.ok()?;
    // The request has four parts of four bytes: its length, its code, the number of the process, the secret.
    let request = sent.last_chunk::<16>()?;
    let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *request;
    Some(i32::from_be_bytes([a, b, c, d]))
}

/// A stand-in for a server. The stand-in stores the bytes that it receives, and agrees to TLS.
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

/// TLS that encrypts nothing, for a request that is written into memory.
struct Unencrypted;

impl<'s> TlsConnect<RecordingStream<'s>> for Unencrypted {
    type Stream = RecordingStream<'s>;
    type Error = Infallible;
    type Future = Ready<Result<RecordingStream<'s>, Infallible>>;
    fn connect(self, stream: RecordingStream<'s>) -> Self::Future {
        ready(Ok(stream))
    }
}
