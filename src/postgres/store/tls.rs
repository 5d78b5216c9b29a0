//! TLS to the server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

use super::dialer::Verified;
use super::of_any_name::OfAnyName;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::access::TlsFiles;

/// Verifies the server's certificate.
#[derive(Clone, Debug)]
pub(super) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// With the certificates of now.
    ///
    /// # Errors
    ///
    /// `Unavailable` if a file cannot be used, or reading takes longer than `limit`.
    pub(super) async fn new(
        files: &TlsFiles,
        verified: Verified,
        limit: (&Clock, Duration),
    ) -> Result<Self, Error> {
        let pem = files.read(limit).await?;
        let mut roots = RootCertStore::empty();
        // Those that cannot be read verify nothing.
        match &pem.ca {
            Some(ca) => roots.add_parsable_certificates(certificates(ca)),
            None => roots.add_parsable_certificates(of_the_system(limit).await?),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| {
                Error::unsupported(format!("no version of TLS can be used: {error}"))
            })?;
        let builder = match verified {
            Verified::Name => builder.with_root_certificates(roots),
            Verified::Chain => {
                let verifier = OfAnyName::new(roots, provider)?;
                (builder.dangerous()).with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let config = match &pem.client {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| unreadable())?;
                let chain = certificates(cert).collect();
                let with = builder.with_client_auth_cert(chain, key);
                with.map_err(|_| unreadable())?
            }
        };
        Ok(Self(Arc::new(config)))
    }
}

/// The files were checked when they were read.
fn unreadable() -> Error {
    Error::unavailable("the certificate of the client or its key cannot be used; check both files")
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok)
}

/// They are read from many files, in a thread of its own: that may take longer than the runtime
/// lives.
async fn of_the_system(
    (clock, limit): (&Clock, Duration),
) -> Result<Vec<CertificateDer<'static>>, Error> {
    let (answer, loaded) = oneshot::channel();
    let loading = std::thread::Builder::new().spawn(move || {
        let _ = answer.send(rustls_native_certs::load_native_certs().certs);
    });
    loading.map_err(|error| Error::unavailable("no thread could be started").because(error))?;
    let loaded = clock.timeout(limit, loaded).await;
    let loaded = loaded.ok_or_else(|| {
        Error::unavailable(format!(
            "the certificates of the system were not read in time: timeout={limit:?}; name a file with sslrootcert, or check the file system of SSL_CERT_FILE and SSL_CERT_DIR"
        ))
    })?;
    Ok(loaded.unwrap_or_default())
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = ToServer;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<ToServer, InvalidDnsNameError> {
        Ok(ToServer {
            connector: TlsConnector::from(Arc::clone(&self.0)),
            name: ServerName::try_from(host)?.to_owned(),
        })
    }
}

/// A handshake to come.
pub(super) struct ToServer {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for ToServer {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Encrypted>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.name, socket).await?;
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

pub(crate) struct Encrypted(Box<client::TlsStream<Socket>>);

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
