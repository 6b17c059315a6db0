//! Checks which servers each `sslmode` accepts. The test's server speaks only a part of the protocol: it
//! answers SSLRequest, and then refuses every start with "database does not exist". A client that reads this
//! answer has accepted the connection.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use trickle_client::connect::Target;

const SSL_REQUEST: i32 = 80_877_103;
const SATISFIED: &str = "database \"shop\" does not exist";

/// A certificate for `host`, the file of its authority, and the file of the certificate itself.
struct Identity {
    config: Arc<ServerConfig>,
    authority: PathBuf,
    own: PathBuf,
}

impl Identity {
    fn of(host: &str) -> Identity {
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        let write = |name: &str, pem: String| {
            let path = std::env::temp_dir().join(format!("trickle-tls-{}-{host}-{name}", std::process::id()));
            std::fs::write(&path, pem).unwrap();
            path
        };
        let (authority, own) = (write("ca.pem", ca.pem()), write("own.pem", certificate.pem()));
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config =
            config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
        Identity { config: Arc::new(config), authority, own }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.authority);
        let _ = std::fs::remove_file(&self.own);
    }
}

/// The connections that the server lets in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// The server has no TLS.
    Plain,
    /// The server accepts connections with and without TLS.
    Either,
    /// The server's pg_hba.conf has `hostssl` lines only.
    Tls,
}

/// Starts a server that answers clients in the background. Returns the port of the server.
async fn serve(wants: Wants, config: Arc<ServerConfig>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that rejects the certificate closes the connection before the end of the exchange.
            let _ = answer(stream, wants, config.clone()).await;
        }
    });
    port
}

async fn answer(mut stream: TcpStream, wants: Wants, config: Arc<ServerConfig>) -> std::io::Result<()> {
    let first = start(&mut stream).await?;
    if first != SSL_REQUEST {
        let code = if wants == Wants::Tls {
            ("28000", "no pg_hba.conf entry, no encryption")
        } else {
            ("3D000", SATISFIED)
        };
        return refuse(&mut stream, code).await;
    }
    if wants == Wants::Plain {
        stream.write_all(b"N").await?;
        start(&mut stream).await?;
        return refuse(&mut stream, ("3D000", SATISFIED)).await;
    }
    stream.write_all(b"S").await?;
    let mut stream = TlsAcceptor::from(config).accept(stream).await?;
    start(&mut stream).await?;
    refuse(&mut stream, ("3D000", SATISFIED)).await
}

/// Reads a start-up packet. Returns the first number of the packet.
async fn start(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<i32> {
    let length = usize::try_from(stream.read_i32().await?).unwrap_or_default();
    let number = stream.read_i32().await?;
    let mut rest = vec![0; length.saturating_sub(8)];
    stream.read_exact(&mut rest).await?;
    Ok(number)
}

async fn refuse(
    stream: &mut (impl AsyncWrite + Unpin),
    (code, message): (&str, &str),
) -> std::io::Result<()> {
    let body = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
    stream.write_all(b"E").await?;
    stream.write_i32(i32::try_from(body.len()).unwrap() + 4).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

/// Returns the client's error message, or an empty text.
async fn outcome(wants: Wants, identity: &Identity, settings: &str) -> String {
    let port = serve(wants, identity.config.clone()).await;
    let text = format!("host=localhost hostaddr=127.0.0.1 port={port} user=ann dbname=shop {settings}");
    let target = Target::resolve(Some(&text), &|_| None).unwrap();
    target.connect().await.err().map_or_else(String::new, |e| e.to_string())
}

#[tokio::test]
async fn each_mode_accepts_what_it_says() {
    let (here, other) = (Identity::of("localhost"), Identity::of("elsewhere.example"));
    let ca = |i: &Identity| format!("sslrootcert={}", i.authority.display());
    let own = |i: &Identity| format!("sslrootcert={}", i.own.display());
    use Wants::{Either, Plain, Tls};
    for (wants, identity, settings, expected) in [
        (Either, &here, "sslmode=disable".to_owned(), SATISFIED),
        (Tls, &here, "sslmode=disable".to_owned(), "no pg_hba.conf entry"),
        (Plain, &here, "sslmode=prefer".to_owned(), SATISFIED),
        (Tls, &other, "sslmode=prefer".to_owned(), SATISFIED),
        (Tls, &here, "sslmode=allow".to_owned(), SATISFIED),
        (Plain, &here, "sslmode=require".to_owned(), "server does not support TLS"),
        // The connection is encrypted, whichever server answers. The client cannot check the server, since it
        // does not know the server's authority.
        (Tls, &other, "sslmode=require".to_owned(), SATISFIED),
        // A user who names an authority wants that authority to prove the certificate.
        (Tls, &here, format!("sslmode=require {}", ca(&other)), "invalid peer certificate"),
        (Tls, &here, format!("sslmode=verify-ca {}", ca(&other)), "sslrootcert=FILE"),
        (Tls, &other, format!("sslmode=verify-ca {}", ca(&other)), SATISFIED),
        (Tls, &other, format!("sslmode=verify-full {}", ca(&other)), "another host name"),
        (Tls, &here, format!("sslmode=verify-full {}", ca(&here)), SATISFIED),
        // The settings name the server's own certificate in place of an authority's.
        (Tls, &here, format!("sslmode=verify-full {}", own(&here)), SATISFIED),
        (Tls, &other, format!("sslmode=verify-full {}", own(&other)), "another host name"),
        (Tls, &here, format!("sslmode=verify-ca {}", own(&other)), "invalid peer certificate"),
    ] {
        let said = outcome(wants, identity, &settings).await;
        assert!(said.contains(expected), "{settings}: {said}");
    }
}
