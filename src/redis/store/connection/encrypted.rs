//! A connection over TLS. The handshake is ours: the client would first read the certificates of
//! the system, on the thread of the heartbeats, for as long as that takes, and also where the URL
//! names a file to trust instead.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::io::tcp::{TcpSettings, socket2::SockRef};
use ::redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisError};
use futures_util::future::select_ok;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::model::error::Error;
use crate::store::access::{TlsFiles, ciphers};

/// What verifies the server, with the certificates of now; `None` if the client does that, or
/// nobody.
///
/// # Errors
///
/// `Unavailable` if a file cannot be used, or reading takes longer than `limit`.
pub(super) async fn config(
    server: &ConnectionInfo,
    files: &TlsFiles,
    limit: (&Clock, Duration),
) -> Result<Option<Arc<ClientConfig>>, Error> {
    let ConnectionAddr::TcpTls { tls_params, .. } = server.addr() else {
        return Ok(None);
    };
    if tls_params.is_some() {
        // A client of the user has certificates that only the client can read, and it reads those
        // of the system first. They were read just now, so that does not hang.
        files.of_the_system(limit).await?;
        return Ok(None);
    }
    let pem = files.read(limit).await?;
    let roots = files.roots(&pem, limit).await?;
    let builder = ciphers::builder()?.with_root_certificates(roots);
    Ok(Some(Arc::new(pem.shown_by(builder)?)))
}

pub(super) async fn connect(
    server: &ConnectionInfo,
    tls: &Arc<ClientConfig>,
    config: &AsyncConnectionConfig,
    (clock, limit): (&Clock, Duration),
) -> Result<(MultiplexedConnection, AbortOnDropHandle<()>), RedisError> {
    let ConnectionAddr::TcpTls { host, port, .. } = server.addr() else {
        return Err(io::Error::from(io::ErrorKind::Unsupported).into());
    };
    let connecting = async {
        let name = ServerName::try_from(host.as_str())?.to_owned();
        let stream = reach(host, *port).await?;
        set(&stream, server.tcp_settings())?;
        let connector = TlsConnector::from(Arc::clone(tls));
        let stream = connector.connect(name, stream).await?;
        let settings = server.redis_settings();
        MultiplexedConnection::new_with_config(settings, stream, config.clone()).await
    };
    let timed_out = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
    let connected = clock.timeout(limit, connecting).await;
    let (connection, driver) = connected.unwrap_or_else(timed_out)?;
    Ok((connection, AbortOnDropHandle::new(tokio::spawn(driver))))
}

/// Whichever address of the host answers first: one of them may lead nowhere.
async fn reach(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await?;
    let dials: Vec<_> = addresses
        .map(|address| Box::pin(TcpStream::connect(address)))
        .collect();
    if dials.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(select_ok(dials).await?.0)
}

fn set(stream: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    stream.set_nodelay(settings.nodelay())?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}
