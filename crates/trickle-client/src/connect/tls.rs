//! TLS with libpq's meaning of `sslmode`.

use super::ConnectError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// The part of the server's certificate that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    /// Nothing: the connection is encrypted, but anybody may be at its other end.
    Nothing,
    /// The signature of an authority.
    Chain,
    /// The signature of an authority, and the name of the host.
    Host,
}

/// Builds the TLS configuration. `root` is a file with the certificates of authorities. The operating
/// system's certificates are used if `root` is `None` or `system`. `identity` names the files of the client's
/// own certificate and key.
pub(super) fn config(
    verify: Verify,
    root: Option<&Path>,
    identity: Option<(String, String)>,
) -> Result<ClientConfig, ConnectError> {
    let provider = Arc::new(ring::default_provider());
    let wrong = |e: rustls::Error| ConnectError::setting(format!("TLS cannot be set up: {e}"));
    let mut verifier = Verifier {
        authorities: None,
        trusted: Vec::new(),
        host: verify == Verify::Host,
        provider: provider.clone(),
    };
    if verify != Verify::Nothing {
        verifier.trusted = trusted(root)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(verifier.trusted.iter().cloned());
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        verifier.authorities =
            Some(built.map_err(|e| ConnectError::setting(format!("TLS cannot be set up: {e}")))?);
    }
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(wrong)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let Some((certificate, key)) = identity else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates(Path::new(&certificate))?;
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|e| unreadable(Path::new(&key), &e))?;
    builder.with_client_auth_cert(chain, key).map_err(wrong)
}

fn trusted(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let found = match file {
        Some(file) if file != Path::new("system") => certificates(file)?,
        _ => rustls_native_certs::load_native_certs().certs,
    };
    if found.is_empty() {
        return Err(ConnectError::setting(
            "no certificate authority is known to check the server's certificate with",
        )
        .hint("Name a file with sslrootcert, or install the package ca-certificates."));
    }
    Ok(found)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    read.map_err(|e| unreadable(file, &e))
}

fn unreadable(file: &Path, e: &rustls::pki_types::pem::Error) -> ConnectError {
    ConnectError::setting(format!("cannot read \"{}\"", file.display()))
        .detail(e.to_string())
        .hint("sslrootcert, sslcert and sslkey name files in PEM format.")
}

/// A verifier that checks the parts of a certificate that `sslmode` asks for. The verifier always checks that
/// the server holds the key of its certificate.
#[derive(Debug)]
struct Verifier {
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// The certificates in the root file, or the operating system's certificates if there is no such file.
    /// One of these certificates may be the server's own, which is signed by itself and not by an authority.
    trusted: Vec<CertificateDer<'static>>,
    host: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        match authorities.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.host => Ok(ServerCertVerified::assertion()),
            Err(_) if self.trusted.contains(certificate) => {
                if self.host {
                    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
