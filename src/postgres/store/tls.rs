//! TLS to the server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

use super::dialer::Verified;
use super::end_point::end_point;
use super::of_any_name::OfAnyName;
use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::access::{TlsFiles, ciphers};

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
        let roots = Arc::new(files.roots(&pem, limit).await?);
        let builder = ciphers::builder()?;
        let provider = Arc::clone(builder.crypto_provider());
        let builder = match verified {
            Verified::Name => builder.with_root_certificates(roots),
            Verified::Chain => {
                let verifier = OfAnyName::new(roots, provider)?;
                (builder.dangerous()).with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        let config = pem.shown_by(builder)?;
        Ok(Self(Arc::new(config)))
    }
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
        let (_, connection) = self.0.get_ref();
        let chain = connection.peer_certificates();
        let end_point = chain.and_then(|chain| end_point(chain.first()?));
        end_point.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
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
