//! [`Hosts`]: the URL of several servers, `scheme://user:password@h1,h2,h3/path?options`.

use ::redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::model::error::Error;

/// The parts of such a URL.
#[derive(Clone, Copy)]
pub(super) struct Hosts<'a> {
    /// `redis` or `rediss`: what the URL of one of the servers begins with.
    pub(super) scheme: &'static str,
    /// With its `@`; empty for none.
    pub(super) user: &'a str,
    hosts: &'a str,
    /// Without the `/` before it.
    pub(super) path: &'a str,
    /// With its `?`; empty for none.
    pub(super) query: &'a str,
}

impl<'a> Hosts<'a> {
    /// Reads `redis+kind://...` and `rediss+kind://...`; `None` for any other URL.
    ///
    /// # Errors
    ///
    /// As [`split`](Self::split).
    pub(super) fn of_kind(kind: &str, url: &'a str) -> Result<Option<Self>, Error> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Ok(None);
        };
        match scheme.split_once('+') {
            Some(("redis", other)) if other == kind => Self::split("redis", rest).map(Some),
            Some(("rediss", other)) if other == kind => Self::split("rediss", rest).map(Some),
            _ => Ok(None),
        }
    }

    /// `rest`: what is behind `scheme://`.
    ///
    /// # Errors
    ///
    /// `Invalid` if a comma stands before the last `@`: what looks like hosts there would be taken for a password.
    pub(super) fn split(scheme: &'static str, rest: &'a str) -> Result<Self, Error> {
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (path, query) = tail.split_at(tail.find(['?', '#']).unwrap_or(tail.len()));
        let user = authority.rfind('@').map_or(0, |at| at + 1);
        let (user, hosts) = authority.split_at(user);
        if user.contains(',') {
            return Err(Error::invalid(
                "user and password stand once, before the first host; write user:password@h1,h2,h3, and a comma in them as %2C",
            ));
        }
        Ok(Self {
            scheme,
            user,
            hosts,
            path: path.trim_start_matches('/'),
            query,
        })
    }

    /// Each server, in order; `None` if one is named by nothing, or by what is no host and port, or twice. User and password
    /// are not theirs.
    pub(super) fn servers(&self, port: u16) -> Option<Vec<ConnectionInfo>> {
        let servers: Option<Vec<_>> = (self.hosts.split(','))
            .map(|host| server(self.scheme, host, port))
            .collect();
        let mut servers = servers?;
        let count = servers.len();
        servers.sort_by_key(|server| server.addr().to_string());
        servers.dedup_by_key(|server| server.addr().to_string());
        (servers.len() == count).then_some(servers)
    }
}

fn server(scheme: &str, host: &str, port: u16) -> Option<ConnectionInfo> {
    if host.is_empty() {
        return None;
    }
    // `H1` and `h1` are one server.
    let host = host.to_ascii_lowercase();
    // What is behind the last bracket of an IPv6 address, or all of another host, may have a port.
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    let url = if has_port {
        format!("{scheme}://{host}")
    } else {
        format!("{scheme}://{host}:{port}")
    };
    let server = url.into_connection_info().ok()?;
    let settings = server.redis_settings().clone().set_skip_set_lib_name();
    Some(server.set_redis_settings(settings))
}

/// Host and port; `None` for a socket.
pub(super) fn place_of(server: &ConnectionInfo) -> Option<(&str, u16)> {
    match server.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host, *port))
        }
        _ => None,
    }
}

/// The same server somewhere else, reached in the same way.
pub(super) fn moved_to(server: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = host.to_owned();
    let address = match server.addr() {
        ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    server.clone().set_addr(address)
}
