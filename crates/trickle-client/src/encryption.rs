//! TLS for the driver: the handshake by rustls, and the hash that binds a password's proof to the connection
//! (`channel_binding`).

use ring::digest;
use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

/// The TLS configuration with which connections are encrypted.
#[derive(Clone)]
pub(crate) struct Encrypt(Arc<ClientConfig>);

impl Encrypt {
    pub(crate) fn new(config: ClientConfig) -> Encrypt {
        Encrypt(Arc::new(config))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Encrypt {
    type Stream = Encrypted<S>;
    type TlsConnect = EncryptTo;
    type Error = InvalidDnsNameError;
    fn make_tls_connect(&mut self, host: &str) -> Result<EncryptTo, InvalidDnsNameError> {
        // For a Unix socket, the driver passes an empty host name here, and afterwards does not use TLS.
        let name = (!host.is_empty()).then(|| ServerName::try_from(host.to_owned())).transpose()?;
        Ok(EncryptTo { name, with: TlsConnector::from(self.0.clone()) })
    }
}

/// The encryption of a connection to one host.
pub(crate) struct EncryptTo {
    name: Option<ServerName<'static>>,
    with: TlsConnector,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for EncryptTo {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;
    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self.name.ok_or_else(|| io::Error::other("a socket has no name to check"))?;
            Ok(Encrypted(self.with.connect(name, stream).await?))
        })
    }
}

/// An encrypted connection.
pub(crate) struct Encrypted<S>(client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let certificates = self.0.get_ref().1.peer_certificates().unwrap_or_default();
        let bound = certificates.first().and_then(|certificate| end_point(certificate));
        bound.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, to)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, from)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Returns the hash of the server's certificate, by the hash function of the certificate's signature (RFC
/// 5929, `tls-server-end-point`). Returns `None` if the standard defines no hash function for the signature.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    let signature = signature(certificate)?;
    let hash = match (signature.strip_prefix(RSA), signature.strip_prefix(ECDSA)) {
        // The standard uses SHA-256 in place of MD5 and SHA-1.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => &digest::SHA256,
        (Some([12]), _) | (_, Some([3, 3])) => &digest::SHA384,
        (Some([13]), _) | (_, Some([3, 4])) => &digest::SHA512,
        _ => return None,
    };
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

/// Returns the object identifier of the algorithm that signed a certificate. A certificate is a sequence of
/// signed content, algorithm and signature. The algorithm itself is a sequence that begins with the object
/// identifier.
fn signature(certificate: &[u8]) -> Option<&[u8]> {
    let (parts, _) = element(certificate, 0x30)?;
    let (_, rest) = element(parts, 0x30)?;
    let (algorithm, _) = element(rest, 0x30)?;
    Some(element(algorithm, 0x06)?.0)
}

/// Returns the content of the first element of a DER text, and the bytes after this element. The element must
/// have this tag.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (_, rest) = der.split_first().filter(|(first, _)| **first == tag)?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        short @ 0..=0x7f => (usize::from(short), rest),
        long => {
            let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            if bytes.len() > 4 {
                return None;
            }
            (bytes.iter().fold(0, |n, b| n << 8 | usize::from(*b)), rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::{end_point, signature};

    /// Catches a hash by a wrong algorithm, which the server refuses. Catches a read past the end of a text
    /// that is no certificate.
    #[test]
    fn the_algorithm_of_a_signature_is_found() {
        let oid = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
        let algorithm = [&[0x30, 10, 0x06, 8], oid.as_slice()].concat();
        let signed = [[0x30, 0x81, 0x80].as_slice(), &[7; 0x80]].concat();
        let parts = [signed, algorithm].concat();
        let length = u8::try_from(parts.len()).unwrap();
        let certificate = [&[0x30, 0x81, length], parts.as_slice()].concat();
        assert_eq!(signature(&certificate), Some(oid.as_slice()));
        assert_eq!(end_point(&certificate).map(|hash| hash.len()), Some(32));
        for cut in 0..certificate.len() {
            assert_eq!(signature(&certificate[..cut]), None);
        }
        assert_eq!(signature(&[0x30, 0x85, 1, 1, 1, 1, 1]), None);
    }
}
