//! [`StoreUrl`]: reads the URL of a store, `scheme://user:password@h1:1,h2:2/path?option=value`.
//!
//! The crate `url` reads scheme, user, path and options. It refuses a list of hosts, so [`split`]
//! takes the list out before. No error here shows any part of the URL except an option's name,
//! since a password may be anywhere.

#![cfg_attr(
    not(any(feature = "postgres", feature = "redis", feature = "zookeeper")),
    allow(dead_code, unused_imports, reason = "each store uses a part")
)]

use std::fmt;
use std::io;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::model::error::Error;

/// Takes the place of the hosts while the rest is read.
const PLACEHOLDER: &str = "hosts";

/// The URL of a store.
pub(crate) struct StoreUrl {
    url: Url,
    hosts: String,
    options: Vec<(String, String)>,
    example: &'static str,
}

/// Whether a connection failed because the name service does not know the host. The library of the
/// system gives no kind for it.
pub(crate) fn is_unknown_host(error: &io::Error) -> bool {
    error.to_string().contains("failed to lookup address")
}

/// A server by its name or address. An IPv6 address has no brackets here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl StoreUrl {
    /// `example`: a URL of this kind, for messages.
    ///
    /// # Errors
    ///
    /// `Invalid` for any other text, for a `#fragment`, and for a user or a password that is
    /// written twice or is not UTF-8.
    pub(crate) fn parse(text: &str, example: &'static str) -> Result<Self, Error> {
        let (text, hosts) = split(text)?;
        let url = Url::parse(&text)
            .map_err(|_| Error::invalid(format!("this is no URL of a store; write {example}")))?;
        if url.fragment().is_some() {
            return Err(Error::invalid(
                "the URL of a store has no #fragment; leave it out, and write # in a password as %23",
            ));
        }
        // A raw `?` in a password makes options of the rest of it, up to the `@` of the hosts.
        if url.query().is_some_and(|query| query.contains('@')) {
            return Err(Error::invalid(
                "the URL has an @ behind the ?, so its options are not shown; write ?, / and # in a password as %3F, %2F and %23, and @ in an option as %40",
            ));
        }
        let options = (url.query_pairs())
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        Ok(Self {
            url,
            hosts,
            options,
            example,
        })
    }

    pub(crate) fn scheme(&self) -> &str {
        self.url.scheme()
    }

    /// `None` if it has none.
    pub(crate) fn user(&self) -> Result<Option<String>, Error> {
        let user = Some(self.url.username()).filter(|user| !user.is_empty());
        user.map(decoded).transpose()
    }

    /// `None` if it has none.
    pub(crate) fn password(&self) -> Result<Option<String>, Error> {
        self.url.password().map(decoded).transpose()
    }

    /// Without the `/` before and behind it. Not decoded.
    pub(crate) fn path(&self) -> &str {
        self.url.path().trim_matches('/')
    }

    /// The hosts as they are written.
    #[cfg(any(feature = "kubernetes", feature = "object-store", feature = "postgres"))]
    pub(crate) fn written_hosts(&self) -> &str {
        &self.hosts
    }

    /// Whether it names a server.
    #[cfg(feature = "postgres")]
    pub(crate) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// The path as a file's name; `None` if it has hosts, or no path.
    #[cfg(feature = "redis")]
    pub(crate) fn file(&self) -> Option<std::path::PathBuf> {
        let file = if cfg!(unix) {
            self.url.to_file_path().ok()
        } else {
            None
        };
        file.filter(|_| self.hosts.is_empty())
    }

    /// The options with their values, decoded, in order.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let options = self.options.iter();
        options.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether it has this option.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options().any(|(name, _)| name == option)
    }

    /// The hosts with their ports, `port` where none is written, in one order for all clients.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is none, if one is empty, is no host and port or no single machine's
    /// address, or is named twice.
    pub(crate) fn hosts(&self, port: u16) -> Result<Vec<HostPort>, Error> {
        let hosts: Option<Vec<_>> = (self.hosts.split(','))
            .map(|host| HostPort::parse(host, port))
            .collect();
        let mut hosts = hosts.unwrap_or_default();
        let count = hosts.len();
        hosts.sort();
        hosts.dedup();
        if hosts.is_empty() || hosts.len() < count {
            return Err(Error::invalid(format!(
                "the URL names its servers by host and port, each once; write {}",
                self.example
            )));
        }
        Ok(hosts)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUrl")
            .field("scheme", &self.scheme())
            .finish_non_exhaustive()
    }
}

impl HostPort {
    /// `H1` and `h1`, `127.1` and `127.0.0.1` are one server.
    pub(crate) fn parse(text: &str, default_port: u16) -> Option<Self> {
        // An IPv6 address has colons within its brackets.
        let after_address = text.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match text[after_address..].split_once(':') {
            None => (text, default_port),
            Some((rest, port)) => (
                &text[..after_address + rest.len()],
                port.parse().ok().filter(|port| *port > 0)?,
            ),
        };
        let host = match Host::parse(host).ok()? {
            Host::Domain(name) => name,
            Host::Ipv4(address) if address.is_unspecified() => return None,
            Host::Ipv6(address) if address.is_unspecified() => return None,
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        Some(Self { host, port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Takes the hosts out of a URL: the URL with a placeholder, and the hosts.
fn split(text: &str) -> Result<(String, String), Error> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Ok((text.to_owned(), String::new()));
    };
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let hosts = authority.rfind('@').map_or(0, |at| at + 1);
    let (user, hosts) = authority.split_at(hosts);
    // A list of hosts before the last `@` would be read as a password.
    if user.contains(',') {
        return Err(Error::invalid(
            "user and password are written once, before the first host; write user:password@h1,h2,h3, and a comma in them as %2C",
        ));
    }
    let placeholder = if authority.is_empty() {
        ""
    } else {
        PLACEHOLDER
    };
    let url = format!("{scheme}://{user}{placeholder}{tail}");
    Ok((url, hosts.to_owned()))
}

pub(crate) fn decoded(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(String::from).map_err(|_| {
        Error::invalid(
            "the user, the password or the path of the URL is not UTF-8; percent-encode it as UTF-8",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> StoreUrl {
        StoreUrl::parse(text, "store://h1,h2").unwrap()
    }

    fn refused(text: &str) -> Error {
        let error = StoreUrl::parse(text, "store://h1,h2").and_then(|url| url.hosts(1));
        let error = error.expect_err(text);
        assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{text}");
        error
    }

    fn hosts(text: &str) -> Vec<String> {
        let hosts = parsed(text).hosts(7).unwrap();
        hosts.iter().map(HostPort::to_string).collect()
    }

    #[test]
    fn a_url_has_user_hosts_path_and_options() {
        let url = parsed("store+kind://me:s%3Acr%40t@b:2,A,[::1]:3/path/x/?first=a%20b&second=");
        assert_eq!(url.scheme(), "store+kind");
        assert_eq!(url.user().unwrap().as_deref(), Some("me"));
        assert_eq!(url.password().unwrap().as_deref(), Some("s:cr@t"));
        assert_eq!(url.path(), "path/x");
        let options: Vec<_> = url.options().collect();
        assert_eq!(options, [("first", "a b"), ("second", "")]);
        let hosts: Vec<_> = url.hosts(7).unwrap();
        let hosts: Vec<_> = hosts.iter().map(HostPort::to_string).collect();
        assert_eq!(hosts, ["[::1]:3", "a:7", "b:2"]);
        let plain = parsed("store://h");
        assert_eq!(
            (plain.user().unwrap(), plain.password().unwrap()),
            (None, None)
        );
        assert_eq!((plain.path(), plain.options().count()), ("", 0));
        let only_password = parsed("store://:pass%2Cword@h");
        assert_eq!(only_password.user().unwrap(), None);
        assert_eq!(
            only_password.password().unwrap().as_deref(),
            Some("pass,word")
        );
    }

    #[test]
    fn a_host_may_be_any_name_or_address() {
        for (text, host) in [
            ("my_redis", "my_redis:7"),
            ("db-1.example.:80", "db-1.example.:80"),
            ("127.1:5", "127.0.0.1:5"),
            ("[::1]", "[::1]:7"),
        ] {
            assert_eq!(hosts(&format!("store://{text}")), [host]);
        }
    }

    #[test]
    fn a_server_is_named_once_however_it_is_written() {
        for list in [
            "a:1,b,a:1",
            "a,b,a:7",
            "a,A",
            "127.0.0.1,127.1:7",
            "[::1],[0:0::1]",
        ] {
            let url = parsed(&format!("store://{list}"));
            let error = url.hosts(7).unwrap_err();
            assert!(error.to_string().contains("each once"), "{list}: {error}");
        }
    }

    #[test]
    fn no_refusal_shows_a_part_of_the_url() {
        for text in [
            "sesame",
            "store://me:sesame@",
            "store://me:sesame@a,,b",
            "store://me:sesame@a:port",
            "store://me:sesame@a:0",
            "store://me:sesame@a:70000",
            "store://me:sesame@a:",
            "store://me:sesame@0.0.0.0",
            "store://me:sesame@[::]",
            "store://me:sesame@a b",
            "store://me:sesame@a,me:sesame@b",
            "store://sesame@a,b@c",
            "store://me:sesame@a#sesame",
            "store://me:12?sesame@a",
            "store://me:12?x=1&sesame=2@a",
            "store://me:12#sesame@a",
        ] {
            let error = refused(text);
            assert!(!format!("{error} {error:?}").contains("sesame"), "{error}");
        }
        let url = parsed("store://me:%ff@a");
        assert!(url.password().unwrap_err().to_string().contains("UTF-8"));
        assert!(!format!("{:?}", parsed("store://me:sesame@a")).contains("sesame"));
    }
}
