//! [`Seeds`]: the nodes that a URL names. They are asked where the others are.

use std::fmt;

use ::redis::ConnectionInfo;

use super::super::hosts::{Hosts, place_of};
use super::map::Address;
use crate::model::error::Error;

const PORT: u16 = 6_379;

/// Some nodes of a cluster; one that answers is enough.
#[derive(Clone, Debug)]
pub(in super::super) struct Seeds(Vec<Address>);

impl Seeds {
    /// Reads `redis+cluster://user:password@h1:7000,h2,h3/?options`: the nodes, and the URL that one of them would have on this
    /// machine, whose address is of no account; `rediss+cluster://` for TLS. `None` for any other URL.
    pub(in super::super) fn parse(url: &str) -> Result<Option<(Self, String)>, Error> {
        let Some(hosts) = Hosts::of_kind("cluster", url)? else {
            return Ok(None);
        };
        if !cfg!(feature = "redis-cluster") {
            return Err(Error::unsupported(
                "leasehold was built without Redis Cluster; build it with the feature redis-cluster",
            ));
        }
        if !matches!(hosts.path, "" | "0") {
            return Err(malformed("has no database number but 0"));
        }
        let servers = hosts.servers(PORT);
        let servers =
            servers.ok_or_else(|| malformed("names its nodes by host and port, each once"))?;
        let addresses: Option<Vec<_>> = servers.iter().map(address).collect();
        let addresses = addresses.ok_or_else(|| malformed("names its nodes by host and port"))?;
        Ok(Some((
            Self(addresses),
            format!(
                "{}://{}localhost/0{}",
                hosts.scheme, hosts.user, hosts.query
            ),
        )))
    }

    pub(super) fn addresses(&self) -> &[Address] {
        &self.0
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{address}")?;
        }
        Ok(())
    }
}

fn address(server: &ConnectionInfo) -> Option<Address> {
    let (host, port) = place_of(server)?;
    Some(Address {
        host: host.to_owned(),
        port,
    })
}

fn malformed(rule: &str) -> Error {
    Error::invalid(format!(
        "a cluster URL {rule}; write redis+cluster://user:password@h1:7000,h2:7001,h3:7002/?prefix=app"
    ))
}

#[cfg(all(test, feature = "redis-cluster"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_some_nodes() {
        let url = "redis+cluster://me:secret@a:7000,b,[::1]:7002/?prefix=app";
        let (seeds, server) = Seeds::parse(url).unwrap().unwrap();
        assert_eq!(seeds.to_string(), "[::1]:7002,a:7000,b:6379");
        assert_eq!(server, "redis://me:secret@localhost/0?prefix=app");
        let (seeds, server) = Seeds::parse("redis+cluster://a").unwrap().unwrap();
        assert_eq!(
            (seeds.to_string().as_str(), server.as_str()),
            ("a:6379", "redis://localhost/0")
        );
        let (_, server) = Seeds::parse("rediss+cluster://a").unwrap().unwrap();
        assert_eq!(server, "rediss://localhost/0");
        assert!(Seeds::parse("redis://a").unwrap().is_none());
    }

    #[test]
    fn what_names_no_node_or_one_twice_or_a_database_is_refused() {
        for url in [
            "redis+cluster://",
            "redis+cluster://me:sesame@",
            "redis+cluster://me:sesame@a,,b",
            "redis+cluster://me:sesame@a,a:6379",
            "redis+cluster://me:sesame@a,A",
            "redis+cluster://me:sesame@a,me:sesame@b",
            "redis+cluster://me:sesame@a/1",
            "redis+cluster://me:sesame@a:port",
        ] {
            let error = Seeds::parse(url).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}");
            assert!(!format!("{error:?} {error}").contains("sesame"), "{error}");
        }
    }
}
