//! The URL of a [`Quorum`](super::super::Quorum) of servers: `redlock://user:password@h1:6379,h2,h3/db?options`.

use super::hosts::{Hosts, place_of};
use super::options::RedisOptions;
use crate::model::error::Error;

const PORT: u16 = 6_379;

impl RedisOptions {
    /// The options of each server; everything but its address is that of all. `rest`: what is behind `redlock:`.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), and `Invalid` for a server that is named twice: it would have two votes.
    pub(crate) fn parse_members(rest: &str) -> Result<Vec<Self>, Error> {
        let rest = rest.strip_prefix("//").ok_or_else(malformed)?;
        let hosts = Hosts::split("redis", rest)?;
        let servers = hosts.servers(PORT).ok_or_else(malformed)?;
        // The address is of no account.
        let of_all = Self::parse(&format!(
            "redis://{}localhost/{}{}",
            hosts.user, hosts.path, hosts.query
        ))?;
        let member = |server| {
            let (host, port) = place_of(server).ok_or_else(malformed)?;
            Ok(of_all.at(host, port))
        };
        servers.iter().map(member).collect()
    }
}

fn malformed() -> Error {
    Error::invalid(
        "a redlock URL names its servers by host and port, each once, so that each has one vote; write redlock://user:password@h1:6379,h2:6379,h3:6379/0",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(rest: &str) -> Vec<String> {
        let members = RedisOptions::parse_members(rest).unwrap();
        members.iter().map(RedisOptions::address).collect()
    }

    #[test]
    fn each_server_has_an_address_of_its_own_and_the_rest_is_that_of_all() {
        let rest = "//me:secret@b:2,A,[::1]:3/4?prefix=app&max_ttl=5s";
        assert_eq!(addresses(rest), ["::1:3", "a:6379", "b:2"]);
        for member in RedisOptions::parse_members(rest).unwrap() {
            assert_eq!(member.names.prefix(), "app:");
            assert_eq!(member.longest_ttl().as_secs(), 5);
            let settings = member.server.redis_settings();
            assert_eq!((settings.db(), settings.username()), (4, Some("me")));
            assert!(settings.password() == Some("secret"));
        }
    }

    #[test]
    fn a_server_has_one_vote_however_it_is_written() {
        for rest in [
            "//a:1,b:2,a:1",
            "//a,b,a:6379",
            "//a:1,A:1,b:1",
            "//127.0.0.1:6379,127.0.0.1,127.0.0.1:1",
        ] {
            let error = RedisOptions::parse_members(rest).unwrap_err();
            assert!(error.to_string().contains("each once"), "{rest}: {error}");
        }
    }

    #[test]
    fn what_names_no_server_or_swallows_one_is_refused() {
        for rest in ["//", "//a,,b", "a", "//a:port,b", "//a#b"] {
            let error = RedisOptions::parse_members(rest).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{rest}");
        }
        for rest in ["//:sesame@a:1,:sesame@a:2,:sesame@a:3", "//a:1,:sesame@a:2"] {
            let error = RedisOptions::parse_members(rest).unwrap_err();
            let told = error.to_string();
            assert!(told.contains("before the first host"), "{rest}: {told}");
            assert!(!told.contains("sesame"), "{told}");
        }
        assert_eq!(addresses("//:pass%2Cword@a,b"), ["a:6379", "b:6379"]);
    }
}
