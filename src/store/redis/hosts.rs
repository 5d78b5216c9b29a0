//! [`Hosts`]: the URL of several servers, `scheme://user:password@h1,h2,h3/path?options`.

use ::redis::{ConnectionInfo, IntoConnectionInfo};

/// The parts of such a URL.
#[derive(Clone, Copy)]
pub(super) struct Hosts<'a> {
    /// With its `@`; empty for none.
    pub(super) user: &'a str,
    hosts: &'a str,
    /// Without the `/` before it.
    pub(super) path: &'a str,
    /// With its `?`; empty for none.
    pub(super) query: &'a str,
}

impl<'a> Hosts<'a> {
    /// `rest`: what is behind `scheme://`.
    pub(super) fn split(rest: &'a str) -> Self {
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (path, query) = tail.split_at(tail.find(['?', '#']).unwrap_or(tail.len()));
        let user = authority.rfind('@').map_or(0, |at| at + 1);
        let (user, hosts) = authority.split_at(user);
        Self {
            user,
            hosts,
            path: path.trim_start_matches('/'),
            query,
        }
    }

    /// Each server, in order; `None` if one is named by nothing, or by what is no host and port, or twice. User and password
    /// are not theirs.
    pub(super) fn servers(&self, port: u16) -> Option<Vec<ConnectionInfo>> {
        let servers: Option<Vec<_>> = (self.hosts.split(','))
            .map(|host| server(host, port))
            .collect();
        let mut servers = servers?;
        let count = servers.len();
        servers.sort_by_key(|server| server.addr().to_string());
        servers.dedup_by_key(|server| server.addr().to_string());
        (servers.len() == count).then_some(servers)
    }
}

fn server(host: &str, port: u16) -> Option<ConnectionInfo> {
    if host.is_empty() {
        return None;
    }
    // What is behind the last bracket of an IPv6 address, or all of another host, may have a port.
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    let url = if has_port {
        format!("redis://{host}")
    } else {
        format!("redis://{host}:{port}")
    };
    let server = url.into_connection_info().ok()?;
    let settings = server.redis_settings().clone().set_skip_set_lib_name();
    Some(server.set_redis_settings(settings))
}
